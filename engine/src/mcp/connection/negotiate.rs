//! From a configuration to a live connection: start or reach the server, agree on an era of the protocol, list its
//! tools.
//!
//! Two eras are met daily: `initialize` (up to revision 2025-11-25) and the stateless one from 2026-07-28. Every
//! server known to us accepts `initialize` first, so that is the order unless the store knows better (`way`); the second
//! attempt always gets a fresh process, because some servers end at a first request that they do not know.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{ProtocolVersion, ServerCapabilities};
use rmcp::service::{ClientInitializeError, serve_client_with_lifecycle_and_ct};
use rmcp::transport::IntoTransport;
use rmcp::{ClientLifecycleMode, Peer, RoleClient};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::super::config::{Entry, Transport, expand};
use super::super::process::{self, Exit, Launch, Line, Process, Tail};
use super::super::transport::{http, sse, stdio};
use super::super::{Era, Offers};
use super::Shared;
use super::ask::Asker;
use super::call::Link;
use super::changes::listen;
use super::handler::{Handler, Progress, cut};
use super::list::{Listing, list};
use super::reason::{explain_revision, explain_sign_in, explain_start, explain_way, is_older};
use super::trace::Traced;
use super::way::{Order, Way};
use crate::tool::{SchemaHash, ServerId};

/// Attempts to list the tools right after the start, and the pause between them.
const LIST_ATTEMPTS: u32 = 3;
const LIST_PAUSE: Duration = Duration::from_secs(1);
/// How long a failed start waits for the exit code that explains it.
const EXIT_SEEN: Duration = Duration::from_millis(500);
/// How long a server that refused may take to end by itself.
const REFUSED: Duration = Duration::from_millis(300);
/// How long a server may leave `server/discover` unanswered where `initialize` can be tried instead, and how often it is
/// looked at for signs of life.
const DISCOVER: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(200);
/// Longest instructions of a server that are kept, in characters (fixed).
const INSTRUCTIONS: usize = 64 * 1024;
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
    pub(super) era: Era,
    pub(super) offers: Offers,
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
    /// It asks for a sign-in; trying again before that would end the same way.
    SignIn,
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

impl Era {
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
    // Read together with what would be started: nothing gets past this by a change at the wrong moment.
    if entry.consent.is_some() {
        return Err(Failure::setup("nobody has agreed to its command or address yet"));
    }
    let transport = expanded(shared, &entry).await?;
    let configuration = era_key(&entry.config.transport);
    let known = shared.store.server_era(&configuration).unwrap_or_else(|error| {
        tracing::warn!(%error, "the known era of a server cannot be read");
        None
    });
    let known = known.as_deref().and_then(Way::named);
    let mut order = Order::of(&transport, entry.config.era, known).map_err(Failure::setup)?;
    let (mut live, way) = tried(shared, &transport, &mut order).await?;
    if known != Some(way)
        && let Err(error) = shared.store.set_server_era(&configuration, way.name())
    {
        tracing::warn!(%error, "the era of a server cannot be stored");
    }
    // Of the entry that was connected to: the shared one may be another by now.
    live.transport = entry.config.transport.fingerprint();
    Ok(live)
}

/// The transport with its placeholders filled in, off the async threads: a keyring may ask the person to unlock it.
async fn expanded(shared: &Shared, entry: &Arc<Entry>) -> Result<Transport, Failure> {
    let (id, entry, secrets) = (shared.id.clone(), entry.clone(), shared.host.secrets().clone());
    let expanding = tokio::task::spawn_blocking(move || expand(id.as_str(), &entry.config, |name| name.value(secrets.as_ref())));
    let expanded = expanding.await.map_err(|error| Failure::setup(error.to_string()))?;
    expanded.map_err(|error| Failure::setup(error.to_string()))
}

/// Tries way after way. The first failure is the one that tells most, unless a later one says what to do.
async fn tried(shared: &Shared, transport: &Transport, order: &mut Order) -> Result<(Live, Way), Failure> {
    let (mut next, mut told) = (order.first(), None);
    while let Some(way) = next {
        let result = if way == Way::Modern && order.goes_on() {
            not_for_ever(shared, attempt(shared, transport, way)).await
        } else {
            attempt(shared, transport, way).await
        };
        let refused = match result {
            Ok(live) => return Ok((live, way)),
            Err(refused) => refused,
        };
        next = order.after(way, &refused);
        if told.is_none() || refused.failure.kind == Kind::SignIn {
            told = Some(refused.failure);
        }
    }
    Err(told.unwrap_or_else(|| Failure::setup("there is no way to speak to it")))
}

/// Gives an attempt up that another one can follow: some servers never answer a request that they do not know. Counted from
/// the last sign of life, because package runners download first.
async fn not_for_ever(shared: &Shared, attempt: impl Future<Output = Result<Live, Refused>>) -> Result<Live, Refused> {
    let configured = shared.entry().config.startup_timeout.map(Duration::from_secs);
    let patience = configured.map_or(DISCOVER, |limit| DISCOVER.min(limit / 2));
    let (mut heard, mut since) = (shared.tail.heard(), Instant::now());
    {
        let mut attempt = pin!(attempt);
        while since.elapsed() < patience {
            tokio::select! {
                result = &mut attempt => return result,
                () = tokio::time::sleep(LOOK) => {}
            }
            if shared.tail.heard() != heard {
                (heard, since) = (shared.tail.heard(), Instant::now());
            }
        }
        // Being here drops the attempt, which kills its process.
    }
    shared.killed().await;
    let reason = format!("it did not answer \"server/discover\" within {patience:?}");
    Err(Refused { failure: Failure { reason, exit: None, kind: Kind::Server }, other_era: true, older: false })
}

/// Names what decides which program or address answers; nothing secret is in it.
fn era_key(transport: &Transport) -> String {
    let value = match transport {
        Transport::Stdio { command, args, cwd, .. } => json!({ "command": command, "args": args, "cwd": cwd }),
        Transport::Http { url, .. } | Transport::Sse { url, .. } => json!({ "url": url }),
    };
    SchemaHash::of(&value).to_hex()
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) failure: Failure,
    /// Whether the server answered in a way that the other era may suit.
    pub(super) other_era: bool,
    /// Whether the address answered as one of the older kind would.
    pub(super) older: bool,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, other_era: false, older: false }
    }
}

async fn attempt(shared: &Shared, configured: &Transport, way: Way) -> Result<Live, Refused> {
    match configured {
        Transport::Stdio { command, .. } => {
            let as_configured = shared.as_configured.load(Ordering::Acquire);
            let (refused, replaced) = match program(shared, configured, way.era(), as_configured).await {
                Ok(live) => return Ok(live),
                Err(refused) => refused,
            };
            // A server that answered was started well, whatever runner did it.
            if !replaced || refused.other_era {
                return Err(refused);
            }
            shared.tail.note(&format!("it could not be started like that; now by '{command}' itself"));
            let live = program(shared, configured, way.era(), true).await.map_err(|(refused, _)| refused)?;
            shared.as_configured.store(true, Ordering::Release);
            Ok(live)
        }
        Transport::Http { url, headers } | Transport::Sse { url, headers } => {
            let client = http::client(url, headers, Some(shared.account.at(url))).map_err(Failure::setup)?;
            let result = over_http(shared, &client, way).await;
            let said = client.challenge();
            // It asks for a sign-in, wherever in the start it did so.
            if result.is_err() && said.is_some() {
                shared.set_challenge(said);
                let failure = Failure { reason: explain_sign_in(client.has_key()), exit: None, kind: Kind::SignIn };
                return Err(failure.into());
            }
            if result.is_ok() {
                shared.set_challenge(None);
            }
            result
        }
    }
}

async fn over_http(shared: &Shared, client: &http::Client, way: Way) -> Result<Live, Refused> {
    let mark = shared.tail.count();
    if way != Way::Sse {
        return establish(shared, http::open(client), None, way.era(), mark).await;
    }
    match sse::open(client).await {
        Ok(opened) => establish(shared, opened, None, way.era(), mark).await,
        Err(error) => {
            let (reason, kind) = explain_way(&error);
            Err(Failure { reason: with_lines(reason, None, &shared.tail, mark), exit: None, kind }.into())
        }
    }
}

/// Starts the program and connects to it. A failure comes with whether another package runner was started in place of
/// the configured one.
async fn program(shared: &Shared, configured: &Transport, era: Era, as_configured: bool) -> Result<Live, (Refused, bool)> {
    let mark = shared.tail.count();
    let launch = Launch {
        server: shared.id.to_string(),
        port: shared.entry().config.port,
        as_configured,
        tail: shared.tail.clone(),
        instance: shared.instance.clone(),
    };
    let announce = |gone| *shared.process.lock().unwrap_or_else(PoisonError::into_inner) = Some(gone);
    let started = process::launch(launch, configured, announce).await.map_err(|not| (Failure::setup(not.reason).into(), not.replaced))?;
    shared.publish(|snapshot| snapshot.pid = Some(started.process.pid));
    let pipes = stdio::Stdio::new(started.stdout, started.stdin, shared.wire.clone());
    establish(shared, pipes, Some(started.process), era, mark).await.map_err(|refused| (refused, started.replaced))
}

/// Shakes hands and lists the tools. On every way out that is no success the process dies with its handle.
async fn establish<T, E, A>(shared: &Shared, transport: T, process: Option<Process>, era: Era, mark: u64) -> Result<Live, Refused>
where
    T: IntoTransport<RoleClient, E, A>,
    E: std::error::Error + Send + Sync + 'static,
{
    shared.wire.renew();
    // The framing of stdio shows its messages as they are; others are shown as they are understood.
    let wire = process.is_none().then(|| shared.wire.clone());
    let handler = handler(shared, era);
    let transport = Traced::new(transport.into_transport(), wire, handler.asker.over.clone(), shared.wire.clone());
    let (progress, asker) = (handler.progress.clone(), handler.asker.clone());
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
    if let Some(refusal) = info.as_ref().and_then(|info| explain_revision(&info.protocol_version)) {
        return Err(Failure { reason: refusal, exit: None, kind: Kind::Server }.into());
    }
    let tools = match first_list(&shared.id, &peer).await {
        Ok(tools) => tools,
        Err(reason) => return Err(unlisted(&reason, process.as_ref(), &shared.tail, mark).await.into()),
    };
    let link = Arc::new(Link {
        server: shared.id.clone(),
        peer,
        progress,
        tools_changed: shared.changes.tools.clone(),
        exit: process.as_ref().map(Process::exit),
        era,
        protocol: info.as_ref().map(|info| info.protocol_version.to_string()),
        asker,
        running: shared.running.clone(),
        changes: shared.changes.clone(),
        wire: shared.wire.clone(),
        level: shared.level.clone(),
        checkers: Arc::default(),
    });
    let listening = JoinSet::from_iter([keep_up(link.clone())]);
    Ok(Live {
        protocol: link.protocol.clone(),
        link,
        process,
        transport: String::new(),
        tools,
        era,
        offers: info.as_ref().map_or_else(Offers::default, |info| offers(&info.capabilities, shared.wire.runs_tasks())),
        instructions: info.and_then(|info| info.instructions.clone()).map(|words| cut(words, INSTRUCTIONS)),
        closed,
        cancel,
        _listening: listening,
    })
}

async fn unlisted(reason: &str, process: Option<&Process>, tail: &Tail, mark: u64) -> Failure {
    let exit = match process {
        Some(process) => process.ended_within(EXIT_SEEN).await,
        None => None,
    };
    let reason = with_lines(format!("it answered, but its tools could not be listed: {reason}"), exit, tail, mark);
    Failure { reason, exit, kind: Kind::Server }
}

/// Our side of a new connection.
fn handler(shared: &Shared, era: Era) -> Handler {
    Handler {
        era,
        progress: Arc::new(Progress::default()),
        changes: shared.changes.clone(),
        asker: Arc::new(Asker::new(shared.host.clone(), shared.id.clone())),
        running: shared.running.clone(),
        tail: shared.tail.clone(),
    }
}

/// Hears of changes from a server of the stateless era, and tells one of the older era about ours.
async fn keep_up(link: Arc<Link>) {
    match link.era {
        Era::Modern => {
            if let Some(info) = link.peer.peer_info() {
                listen(link.peer.clone(), link.changes.clone(), info.capabilities.clone()).await;
            }
        }
        Era::Legacy => keep_informed(&link).await,
    }
}

fn offers(capabilities: &ServerCapabilities, older_tasks: bool) -> Offers {
    Offers {
        tools: capabilities.tools.is_some(),
        prompts: capabilities.prompts.is_some(),
        resources: capabilities.resources.is_some(),
        completions: capabilities.completions.is_some(),
        logging: capabilities.logging.is_some(),
        tasks: older_tasks || capabilities.supports_tasks(),
    }
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

/// Tells a server of the older era what it wants to know without asking: the log level that was chosen before it was
/// started, and that the granted folders changed.
#[allow(deprecated)]
async fn keep_informed(link: &Link) {
    if let Some(level) = link.level.get()
        && let Err(reason) = link.send_level(level).await
    {
        tracing::debug!(server = %link.server, reason, "the log level could not be set");
    }
    let mut roots = link.asker.host.roots();
    roots.mark_unchanged();
    while roots.changed().await.is_ok() {
        if link.peer.notify_roots_list_changed().await.is_err() {
            return;
        }
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
    let older = is_older(error);
    if let Some(process) = &process {
        let _ = process.stop(REFUSED).await;
    }
    Refused { failure: Failure { reason: with_lines(what, exit, tail, mark), exit, kind }, other_era, older }
}

/// The reason, and behind it what the server wrote and sent last.
pub(super) fn with_lines(reason: String, exit: Option<Exit>, tail: &Tail, mark: u64) -> String {
    let (sent, written): (Vec<Line>, Vec<Line>) = tail.since(mark, LINES).into_iter().partition(|line| line.sent);
    let mut reason = match (exit, written.is_empty()) {
        (Some(_), true) => format!("{reason}; it wrote nothing to stderr"),
        _ => reason,
    };
    for (what, lines) in [("log messages", sent), ("lines on stderr", written)] {
        if !lines.is_empty() {
            let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
            reason = format!("{reason}; its last {what}:\n{}", lines.join("\n"));
        }
    }
    reason
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
