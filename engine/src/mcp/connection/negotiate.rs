//! From a configuration to a live connection: start or reach the server, agree on an era of the protocol, list its
//! tools.
//!
//! Two eras are met daily: `initialize` (up to revision 2025-11-25) and the stateless one from 2026-07-28. Every
//! server known to us accepts `initialize` first, so that is the order unless the store knows better; the second
//! attempt always gets a fresh process, because some servers end at a first request that they do not know.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::model::{ProtocolVersion, SubscriptionFilter};
use rmcp::service::{ClientInitializeError, serve_client_with_lifecycle_and_ct};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{IntoTransport, StreamableHttpClientTransport};
use rmcp::{ClientLifecycleMode, Peer, RoleClient};
use serde_json::json;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::config::{Transport, expand};
use super::super::process::{self, Exit, Process, Tail};
use super::call::Link;
use super::handler::{Handler, Progress};
use super::list::{Listing, list};
use super::{Shared, explain_start};
use crate::tool::{SchemaHash, ServerId};

/// Attempts to list the tools right after the start, and the pause between them.
const LIST_ATTEMPTS: u32 = 3;
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// How long a failed start waits for the exit code that explains it.
const EXIT_SEEN: Duration = Duration::from_millis(500);
/// How long a server that refused may take to end by itself.
const REFUSED: Duration = Duration::from_millis(300);
/// Longest wait for a TCP and TLS connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest pause between attempts to reopen an event stream.
const STREAM_PAUSE: Duration = Duration::from_secs(30);
/// Lines of stderr that explain a failure.
const LINES: usize = 20;

/// A connection that works.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) link: Arc<Link>,
    pub(super) process: Option<Process>,
    /// Names the command or address that was connected to.
    pub(super) transport: String,
    pub(super) tools: Listing,
    pub(super) protocol: Option<String>,
    pub(super) instructions: Option<String>,
    /// Fires when the connection is closed, from either side.
    closed: CancellationToken,
    cancel: DropGuard,
    /// What listens for changes, where the era needs asking for them.
    _listening: JoinSet<()>,
}

/// Why there is no connection, or not any more.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// What happened, in words, with the last lines of stderr.
    pub(super) reason: String,
    pub(super) exit: Option<Exit>,
    pub(super) kind: Kind,
}

/// What a failure means for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Another attempt would end the same way: something must be changed first.
    Setup,
    /// The server was there and failed; trying again helps only if it ever worked.
    Server,
    /// The way to the server is broken; trying again may help.
    Unreachable,
}

impl Failure {
    pub(super) fn setup(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), exit: None, kind: Kind::Setup }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

impl Era {
    fn name(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }

    fn mode(self) -> ClientLifecycleMode {
        match self {
            Self::Legacy => ClientLifecycleMode::Initialize,
            Self::Modern => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
        }
    }
}

/// Connects, in the order of eras that fits.
pub(super) async fn connect(shared: &Shared) -> Result<Live, Failure> {
    let entry = shared.entry();
    if let Some(problem) = &entry.problem {
        return Err(Failure::setup(problem.reason()));
    }
    let transport =
        expand(shared.id.as_str(), &entry.config, |name| std::env::var(name).ok()).map_err(|error| Failure::setup(error.to_string()))?;
    let configuration = era_key(&entry.config.transport);
    let known = shared.store.server_era(&configuration).unwrap_or_else(|error| {
        tracing::warn!(%error, "the known era of a server cannot be read");
        None
    });
    let modern_first = known.as_deref() == Some(Era::Modern.name());
    let order = if modern_first { [Era::Modern, Era::Legacy] } else { [Era::Legacy, Era::Modern] };
    let (mut live, era) = match attempt(shared, &transport, order[0]).await {
        Ok(live) => (live, order[0]),
        // A verdict may be out of date, so a modern failure of any kind is followed up.
        Err(refused) if refused.other_era || (modern_first && refused.failure.kind != Kind::Setup) => {
            match attempt(shared, &transport, order[1]).await {
                Ok(live) => (live, order[1]),
                Err(_) => return Err(refused.failure),
            }
        }
        Err(refused) => return Err(refused.failure),
    };
    if known.as_deref() != Some(era.name())
        && let Err(error) = shared.store.set_server_era(&configuration, era.name())
    {
        tracing::warn!(%error, "the era of a server cannot be stored");
    }
    // Of the entry that was connected to: the shared one may be another by now.
    live.transport = entry.config.transport.fingerprint();
    Ok(live)
}

/// Names what decides which program or address answers; nothing secret is in it.
fn era_key(transport: &Transport) -> String {
    let value = match transport {
        Transport::Stdio { command, args, cwd, .. } => json!({ "command": command, "args": args, "cwd": cwd }),
        Transport::Http { url, .. } => json!({ "url": url }),
    };
    SchemaHash::of(&value).to_hex()
}

struct Refused {
    failure: Failure,
    /// Whether the server answered in a way that the other era may suit.
    other_era: bool,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, other_era: false }
    }
}

async fn attempt(shared: &Shared, transport: &Transport, era: Era) -> Result<Live, Refused> {
    match transport {
        Transport::Stdio { .. } => {
            let mark = shared.tail.count();
            let (process, stdin, stdout) = process::spawn(transport, &shared.tail).map_err(Failure::setup)?;
            *shared.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(process.gone());
            shared.publish(|snapshot| snapshot.pid = Some(process.pid));
            let pipes = AsyncRwTransport::new_client(stdout, stdin);
            establish(shared, pipes, Some(process), era, mark).await
        }
        Transport::Http { url, headers } => {
            let http = StreamableHttpClientTransport::with_client(
                client(url).map_err(Failure::setup)?,
                endpoint(url, headers).map_err(Failure::setup)?,
            );
            establish(shared, http, None, era, shared.tail.count()).await
        }
    }
}

/// Shakes hands and lists the tools. On every way out that is no success the process dies with its handle.
async fn establish<T, E, A>(shared: &Shared, transport: T, process: Option<Process>, era: Era, mark: u64) -> Result<Live, Refused>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    let (progress, tools_changed) = (Arc::new(Progress::default()), Arc::new(Notify::new()));
    let handler = Handler { progress: progress.clone(), tools_changed: tools_changed.clone() };
    let cancel = CancellationToken::new();
    let service = match serve_client_with_lifecycle_and_ct(handler, transport, era.mode(), cancel.clone()).await {
        Ok(service) => service,
        Err(error) => return Err(refused(&error, process, &shared.tail, mark).await),
    };
    let cancel = cancel.drop_guard();
    let peer = service.peer().clone();
    let closed = CancellationToken::new();
    let closing = closed.clone().drop_guard();
    let _watcher = tokio::spawn(async move {
        let _closing = closing;
        if let Err(error) = service.waiting().await {
            tracing::warn!(%error, "a connection broke off");
        }
    });
    let info = peer.peer_info();
    let tools = match first_list(&shared.id, &peer).await {
        Ok(tools) => tools,
        Err(reason) => {
            let exit = match &process {
                Some(process) => process.ended_within(EXIT_SEEN).await,
                None => None,
            };
            let reason = with_lines(format!("it answered, but its tools could not be listed: {reason}"), exit, &shared.tail, mark);
            return Err(Failure { reason, exit, kind: Kind::Server }.into());
        }
    };
    let mut listening = JoinSet::new();
    let announces =
        info.as_ref().is_some_and(|info| info.capabilities.tools.as_ref().is_some_and(|tools| tools.list_changed == Some(true)));
    if era == Era::Modern && announces {
        let _ = listening.spawn(listen(peer.clone(), tools_changed.clone()));
    }
    let link = Link { server: shared.id.clone(), peer, progress, tools_changed, exit: process.as_ref().map(Process::exit) };
    Ok(Live {
        link: Arc::new(link),
        process,
        transport: String::new(),
        tools,
        protocol: info.as_ref().map(|info| info.protocol_version.to_string()),
        instructions: info.and_then(|info| info.instructions.clone()),
        closed,
        cancel,
        _listening: listening,
    })
}

async fn first_list(server: &ServerId, peer: &Peer<RoleClient>) -> Result<Listing, String> {
    let mut attempt = 1;
    loop {
        match list(server, peer).await {
            Ok(listing) => return Ok(listing),
            Err(reason) if attempt == LIST_ATTEMPTS || peer.is_transport_closed() => return Err(reason),
            Err(_) => attempt += 1,
        }
        tokio::time::sleep(LIST_PAUSE).await;
    }
}

/// In the stateless era a server tells about changes only to those who ask. A stream that ends is asked for again.
async fn listen(peer: Peer<RoleClient>, changed: Arc<Notify>) {
    loop {
        let filter = SubscriptionFilter::builder().tools_list_changed().build();
        if let Ok(mut changes) = peer.listen(filter).await {
            while let Ok(Some(_)) = changes.next().await {
                changed.notify_one();
            }
        }
        if peer.is_transport_closed() {
            return;
        }
        tokio::time::sleep(STREAM_PAUSE).await;
        // Something may have changed while nobody listened.
        changed.notify_one();
    }
}

async fn refused(error: &ClientInitializeError, process: Option<Process>, tail: &Tail, mark: u64) -> Refused {
    // After an answer our end of the pipes is closed already: an exit seen then says nothing about the server.
    let closed = matches!(error, ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::TransportError { .. });
    let exit = match &process {
        Some(process) if closed => process.ended_within(EXIT_SEEN).await,
        _ => None,
    };
    let (what, kind) = match exit {
        Some(exit) => (format!("its process ended during the start ({exit})"), Kind::Server),
        None => explain_start(error),
    };
    let answered = !matches!(error, ClientInitializeError::ConnectionClosed(_) | ClientInitializeError::Cancelled);
    let other_era = exit.is_none() && answered && kind == Kind::Server;
    if let Some(process) = &process {
        let _ = process.stop(REFUSED).await;
    }
    Refused { failure: Failure { reason: with_lines(what, exit, tail, mark), exit, kind }, other_era }
}

/// The reason, and behind it what the process wrote last.
pub(super) fn with_lines(reason: String, exit: Option<Exit>, tail: &Tail, mark: u64) -> String {
    let lines = tail.since(mark, LINES);
    if lines.is_empty() {
        return if exit.is_some() { format!("{reason}; it wrote nothing to stderr") } else { reason };
    }
    format!("{reason}; its last lines on stderr:\n{}", lines.join("\n"))
}

fn client(url: &str) -> Result<reqwest::Client, String> {
    // The first provider stays; a second installation is no fault.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder().connect_timeout(CONNECT).redirect(same_origin());
    if url.starts_with("http://") {
        // Plain HTTP servers often write small pieces with Nagle's algorithm on: a reused connection then costs 40 ms
        // per call, a new one on this machine or network next to nothing.
        builder = builder.pool_max_idle_per_host(0);
    }
    builder.build().map_err(|error| format!("no HTTP client can be made: {error}"))
}

/// Follows `/mcp` to `/mcp/` and the like; a message, and the keys in its headers, never goes to another origin.
fn same_origin() -> reqwest::redirect::Policy {
    const HOPS: usize = 10;
    reqwest::redirect::Policy::custom(|attempt| {
        let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
        let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        if keeps_method && same && attempt.previous().len() <= HOPS { attempt.follow() } else { attempt.stop() }
    })
}

fn endpoint(url: &str, headers: &std::collections::BTreeMap<String, String>) -> Result<StreamableHttpClientTransportConfig, String> {
    let mut custom = HashMap::new();
    for (name, value) in headers {
        let parsed = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
        let (Ok(header), Ok(mut value)) = parsed else {
            return Err(format!("\"headers\": \"{name}\" cannot be sent"));
        };
        // Kept out of logs.
        value.set_sensitive(true);
        let _ = custom.insert(header, value);
    }
    let mut config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(custom);
    let mut retry = ExponentialBackoff::default();
    retry.max_delay = Some(STREAM_PAUSE);
    config.retry_config = Arc::new(retry);
    Ok(config)
}

impl Live {
    /// Waits until the connection or its process is gone.
    pub(super) async fn gone(&self) {
        match &self.process {
            Some(process) => {
                let mut exit = process.exit();
                tokio::select! {
                    _ = exit.wait_for(Option::is_some) => {}
                    () = self.closed.cancelled() => {}
                }
            }
            None => self.closed.cancelled().await,
        }
    }

    /// Why the connection is gone; `what` says what was seen, unless the process' end explains it.
    pub(super) async fn explain(&self, what: &str, tail: &Tail, mark: u64) -> Failure {
        let exit = match &self.process {
            Some(process) => process.ended_within(EXIT_SEEN).await,
            None => None,
        };
        let what = exit.map_or_else(|| what.to_owned(), |exit| format!("its process ended ({exit})"));
        Failure { reason: with_lines(what, exit, tail, mark), exit, kind: Kind::Unreachable }
    }

    /// Ends the connection, and the process with its whole group, within the budget.
    pub(super) async fn close(self, budget: Duration) {
        let Self { process, closed, cancel, .. } = self;
        // Closing the pipes is the polite way to ask a process to end; for HTTP the session is given back.
        drop(cancel);
        match process {
            Some(process) => {
                if !process.stop(budget).await {
                    tracing::warn!(pid = process.pid, "a server's process could not be ended");
                }
            }
            None => drop(tokio::time::timeout(budget, closed.cancelled()).await),
        }
    }
}
