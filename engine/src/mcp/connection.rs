//! One server, one actor: it negotiates, watches, restarts and stops. This is the handle that others hold.

mod call;
mod content;
mod handler;
mod list;
mod negotiate;
mod supervise;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::config::Entry;
use super::process::Tail;
use super::{Error, Event, ServerView, State};
use crate::store::Store;
use crate::tool::{self, CallResult, Control, Definition, ServerId, ToolId};
use call::{Failed, Link};
use negotiate::Kind;
use supervise::{Actor, Command};

/// The handle of a server's actor; cheap to clone. With the last one the server ends.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
    commands: mpsc::UnboundedSender<Command>,
}

/// What the actor, its handles and the calls share.
#[derive(Debug)]
struct Shared {
    id: ServerId,
    entry: Mutex<Arc<Entry>>,
    /// Whether somebody wants it to run; a stop that is still under way counts as not wanted.
    wanted: Mutex<bool>,
    snapshot: watch::Sender<Snapshot>,
    events: broadcast::Sender<Event>,
    tail: Arc<Tail>,
    /// Tells when the process that was started last, with its group, is gone.
    process: Mutex<Option<watch::Receiver<bool>>>,
    store: Store,
}

/// Where the server stands. Readers clone it and hold no lock.
#[derive(Clone, Debug)]
struct Snapshot {
    state: State,
    tools: Vec<Arc<Definition>>,
    instructions: Option<String>,
    protocol: Option<String>,
    pid: Option<u32>,
    /// Names the command or address that gave the tools and the link.
    transport: String,
    link: Option<Arc<Link>>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            state: State::Stopped,
            tools: Vec::new(),
            instructions: None,
            protocol: None,
            pid: None,
            transport: String::new(),
            link: None,
        }
    }
}

impl Shared {
    fn entry(&self) -> Arc<Entry> {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot.borrow().clone()
    }

    fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshot.send_modify(change);
        // Nobody may be listening; the snapshot is what counts.
        let _ = self.events.send(Event::Changed(Box::new(self.view())));
    }

    fn view(&self) -> ServerView {
        let snapshot = self.snapshot();
        ServerView {
            id: self.id.clone(),
            config: self.entry().config.clone(),
            state: snapshot.state,
            tools: snapshot.tools,
            instructions: snapshot.instructions,
            pid: snapshot.pid,
            protocol: snapshot.protocol,
            stderr: self.tail.lines(),
        }
    }

    fn starting(&self, from: impl Fn(&State) -> bool) {
        let changed = self.snapshot.send_if_modified(|snapshot| {
            let fits = from(&snapshot.state);
            if fits {
                (snapshot.state, snapshot.link) = (State::Starting { note: None }, None);
            }
            fits
        });
        if changed {
            let _ = self.events.send(Event::Changed(Box::new(self.view())));
        }
    }

    fn set_wanted(&self, wanted: bool) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = wanted;
    }

    fn unavailable(&self, reason: impl Into<String>) -> tool::Error {
        tool::Error::Unavailable { server: self.id.clone(), reason: reason.into() }
    }
}

impl Connection {
    /// Makes the actor of a server. Nothing is started yet.
    pub(super) fn new(id: ServerId, entry: Entry, events: broadcast::Sender<Event>, store: Store, runtime: &Handle) -> Self {
        let snapshot = Snapshot { state: entry.resting_state(), ..Snapshot::default() };
        let shared = Arc::new(Shared {
            id,
            entry: Mutex::new(Arc::new(entry)),
            wanted: Mutex::new(false),
            snapshot: watch::Sender::new(snapshot),
            events,
            tail: Arc::new(Tail::default()),
            process: Mutex::new(None),
            store,
        });
        let (commands, received) = mpsc::unbounded_channel();
        let _actor = runtime.spawn(Actor { shared: shared.clone(), commands: received }.run());
        Self { shared, commands }
    }

    pub(super) fn entry(&self) -> Arc<Entry> {
        self.shared.entry()
    }

    pub(super) fn view(&self) -> ServerView {
        self.shared.view()
    }

    /// The tools that a model may be shown, also while the connection is being restored, and what names the command or
    /// address that listed them.
    pub(super) fn usable_tools(&self) -> (String, Vec<Arc<Definition>>) {
        let snapshot = self.shared.snapshot.borrow();
        match snapshot.state {
            State::Connected | State::Reconnecting { .. } => (snapshot.transport.clone(), snapshot.tools.clone()),
            State::Stopped | State::Starting { .. } | State::Failed { .. } => (String::new(), Vec::new()),
        }
    }

    /// Starts it; once, however often it is asked.
    pub(super) fn start(&self) {
        self.shared.set_wanted(true);
        // Said here and not by the actor, so that whoever waits next does not find the last failure.
        self.shared.starting(|state| matches!(state, State::Stopped | State::Failed { .. }));
        let _ = self.commands.send(Command::Start);
    }

    /// Takes a new configuration; a server that is wanted is started anew with it.
    pub(super) fn configure(&self, entry: Entry) {
        *self.shared.entry.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(entry);
        let start = *self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.starting(|_| start);
        let _ = self.commands.send(Command::Configure { start });
    }

    /// Takes an entry that changes nothing about how the server runs.
    pub(super) fn describe(&self, entry: Entry) {
        *self.shared.entry.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(entry);
        self.shared.publish(|_| {});
    }

    /// Stops it, with its whole process group, and returns when that is done.
    pub(super) async fn stop(&self, budget: Duration) {
        self.shared.set_wanted(false);
        let (done, stopped) = oneshot::channel();
        if self.commands.send(Command::Stop { budget, done }).is_ok() {
            let _ = stopped.await;
        }
    }

    /// Waits until it is usable, failed, or not wanted any more.
    pub(super) async fn ready(&self, within: Duration) -> Result<ServerView, Error> {
        let mut snapshot = self.shared.snapshot.subscribe();
        let settled = snapshot.wait_for(|snapshot| match snapshot.state {
            State::Connected | State::Failed { .. } => true,
            State::Stopped => !*self.shared.wanted.lock().unwrap_or_else(PoisonError::into_inner),
            State::Starting { .. } | State::Reconnecting { .. } => false,
        });
        // Out of time or not: what the server is by then decides.
        let _ = tokio::time::timeout(within, settled).await.map(drop);
        let wrong = |reason: String| Error::Start { server: self.shared.id.clone(), reason };
        let view = self.view();
        match &view.state {
            State::Connected => Ok(view),
            State::Failed { reason, .. } | State::Reconnecting { reason, .. } => Err(wrong(reason.clone())),
            State::Stopped => Err(wrong("it is stopped".to_owned())),
            State::Starting { note } => {
                let heard = note.as_ref().map(|note| format!("; last heard: {note}")).unwrap_or_default();
                Err(wrong(format!("it is still starting after {within:?}{heard}")))
            }
        }
    }

    /// Runs a call. A server that is being restored is waited for, at most for the timeout; the call itself then has
    /// its whole timeout. It runs only where `transport` (the command or address that listed the tool) still answers and
    /// still lists this very tool. The caller must hold a permit: `manager::ServerTool` is the only one.
    pub(super) async fn call(
        &self,
        id: &ToolId,
        transport: &str,
        arguments: Map<String, Value>,
        control: &Control,
    ) -> Result<CallResult, tool::Error> {
        let timeout = self.entry().config.timeout.map_or(control.timeout, Duration::from_secs);
        let link = self.link(id, transport, control, timeout).await?;
        match link.call(&id.name, arguments, control, timeout).await {
            Ok(result) => Ok(result),
            Err(Failed { error, lost }) => {
                if let Some(reason) = lost {
                    let _ = self.commands.send(Command::Lost { link, reason });
                }
                Err(error)
            }
        }
    }

    /// Whether the tool is still what it was when it was shown, as far as is known now.
    fn unchanged(&self, now: &Snapshot, id: &ToolId, transport: &str) -> Result<(), tool::Error> {
        // What the whole process goes by, then what this connection is, or is about to be.
        if self.shared.store.server_transport(&id.server) != transport || self.entry().config.transport.fingerprint() != transport {
            return Err(tool::Error::Permit(format!("the command or address of server '{}' changed since the tool was shown", id.server)));
        }
        // A server that is stopped or starting lists nothing yet.
        let lists = matches!(now.state, State::Connected | State::Reconnecting { .. });
        if lists && (now.transport != transport || !now.tools.iter().any(|tool| tool.id == *id)) {
            return Err(tool::Error::Permit(format!("the server changed the tool {id} since it was shown")));
        }
        Ok(())
    }

    async fn link(&self, id: &ToolId, transport: &str, control: &Control, timeout: Duration) -> Result<Arc<Link>, tool::Error> {
        let mut snapshot = self.shared.snapshot.subscribe();
        let until = Instant::now() + timeout;
        let mut reason = "it is not connected".to_owned();
        loop {
            {
                // A clone: link and tools must be of one moment, and the checks take locks.
                let now = snapshot.borrow_and_update().clone();
                self.unchanged(&now, id, transport)?;
                match (&now.state, &now.link) {
                    (State::Connected, Some(link)) => return Ok(link.clone()),
                    (State::Stopped, _) => return Err(self.shared.unavailable("it is stopped")),
                    (State::Failed { reason, .. }, _) => return Err(self.shared.unavailable(reason.clone())),
                    (State::Reconnecting { reason: why, .. }, _) => reason = why.clone(),
                    _ => {}
                }
            }
            tokio::select! {
                biased;
                () = control.cancel.cancelled() => return Err(tool::Error::Cancelled),
                changed = snapshot.changed() => if changed.is_err() {
                    return Err(self.shared.unavailable("it was removed"));
                },
                () = tokio::time::sleep_until(until) => {
                    return Err(self.shared.unavailable(format!("it did not come back within {timeout:?}: {reason}")));
                }
            }
        }
    }
}

/// An error of a running connection in words.
fn explain(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("{} (code {})", error.message, error.code.0),
        ServiceError::TransportClosed => "the connection is closed".to_owned(),
        ServiceError::TransportSend(error) => chain(error.error.as_ref()),
        other => other.to_string(),
    }
}

/// Whether the server could not even be reached.
fn unreachable(error: &ServiceError) -> bool {
    matches!(error, ServiceError::TransportSend(error) if not_reached(error))
}

fn not_reached(error: &DynamicTransportError) -> bool {
    matches!(error.error.downcast_ref(), Some(StreamableHttpError::<reqwest::Error>::Client(error)) if error.is_connect() || error.is_timeout())
}

/// An error of a start in words, and what it means.
fn explain_start(error: &ClientInitializeError) -> (String, Kind) {
    if error.is_authorization_required() {
        return (
            "it asks for a sign-in, which this version cannot do yet; where it takes a key, put it into \"headers\"".to_owned(),
            Kind::Setup,
        );
    }
    match error {
        ClientInitializeError::ConnectionClosed(_) => ("it closed the connection during the start".to_owned(), Kind::Server),
        ClientInitializeError::JsonRpcError(error) => {
            (format!("it refused the start: {} (code {})", error.message, error.code.0), Kind::Server)
        }
        ClientInitializeError::TransportError { error, .. } => {
            let kind = if not_reached(error) { Kind::Unreachable } else { Kind::Server };
            (chain(error.error.as_ref()), kind)
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<String> = server_supported.iter().map(ToString::to_string).collect();
            (format!("it speaks no protocol revision that this version knows, only {}", versions.join(", ")), Kind::Server)
        }
        other => {
            let text: String = other.to_string().chars().take(500).collect();
            (format!("it did not answer as an MCP server would: {text}"), Kind::Server)
        }
    }
}

/// An error with its causes: the outermost text alone ("error sending request") explains nothing.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
