//! One server, one actor: it negotiates, watches, restarts and stops. This is the handle that others hold.

mod ask;
mod call;
mod changes;
mod content;
mod converse;
mod greeting;
mod handler;
mod host;
mod list;
mod negotiate;
mod offer;
mod probe;
mod reason;
mod run;
mod running;
mod supervise;
mod task;
mod trace;
mod waiting;
mod way;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::time::Instant;

use super::auth::{Account, Errand};
use super::config::{Entry, Name, Settings, Transport, expand, expand_oauth};
use super::process::{Gone, Instance, Line, Tail};
use super::{Era, Error, Event, Offers, ServerView, State};
use crate::store::Store;
use crate::tool::{self, CallId, CallResult, Control, Definition, ServerId, ToolId};
use call::{Failed, Link};
use changes::Changes;
pub(super) use host::Host;
use offer::Level;
use reason::explain;
use running::Running;
use supervise::{Actor, Command};
use tokio_util::sync::{CancellationToken, DropGuard};
use trace::Wire;

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
    entry: Mutex<Kept>,
    /// Whether somebody wants it to run; a stop that is still under way counts as not wanted.
    wanted: AtomicBool,
    /// Held while somebody changes his mind about that: the commands then come in the order of the wishes.
    wishing: Mutex<()>,
    snapshot: watch::Sender<Snapshot>,
    events: broadcast::Sender<Event>,
    /// Whether it was removed: nothing is said about it any more. Held while something is.
    removed: Mutex<bool>,
    tail: Arc<Tail>,
    /// Tells when the process that was started last, with its group, is gone.
    process: Mutex<Option<Gone>>,
    /// Where its processes are written down.
    instance: Arc<Instance>,
    settings: Mutex<Settings>,
    /// How often somebody wanted to wait longer for the start that runs now.
    longer: AtomicU32,
    /// Whether the package runner must be the configured one: the other one failed with this server.
    as_configured: AtomicBool,
    store: Store,
    host: Arc<Host>,
    running: Arc<Running>,
    wire: Arc<Wire>,
    changes: Arc<Changes>,
    level: Arc<Level>,
    /// What the server said when it last asked for a sign-in (`WWW-Authenticate`); empty where it asked without words.
    challenge: Mutex<Option<String>>,
    /// Who gives its access tokens.
    account: Arc<Account>,
    _pacer: DropGuard,
}

/// What it is configured to be, and the name of what that stands for ([`Transport::fingerprint`]): each call asks for it.
#[derive(Clone, Debug)]
struct Kept {
    entry: Arc<Entry>,
    stands_for: Arc<str>,
}

impl Kept {
    fn new(entry: Entry) -> Self {
        Self { stands_for: entry.config.transport.fingerprint().into(), entry: Arc::new(entry) }
    }
}

/// Where the server stands. Readers clone it and hold no lock.
#[derive(Clone, Debug)]
struct Snapshot {
    state: State,
    tools: Vec<Arc<Definition>>,
    /// What was left out of the list of tools.
    notes: Vec<String>,
    instructions: Option<String>,
    era: Option<Era>,
    offers: Offers,
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
            notes: Vec::new(),
            instructions: None,
            era: None,
            offers: Offers::default(),
            protocol: None,
            pid: None,
            transport: String::new(),
            link: None,
        }
    }
}

/// What a call needs to know of a [`Snapshot`].
struct Seen {
    state: State,
    link: Option<Arc<Link>>,
    tool: Option<Arc<Definition>>,
    /// Whether it lists tools; one that is stopped or starting lists nothing yet, nor does one that was never there.
    lists: bool,
    /// Whether what gave the tools is what is asked for.
    same: bool,
}

impl Seen {
    fn of(now: &Snapshot, id: &ToolId, transport: &str) -> Self {
        Self {
            state: now.state.clone(),
            link: now.link.clone(),
            tool: now.tools.iter().find(|tool| tool.id == *id).cloned(),
            lists: now.state.lists_tools() && !(now.link.is_none() && now.tools.is_empty()),
            same: now.transport == transport,
        }
    }
}

impl Shared {
    fn entry(&self) -> Arc<Entry> {
        self.kept().entry
    }

    fn kept(&self) -> Kept {
        self.entry.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn snapshot(&self) -> Snapshot {
        self.snapshot.borrow().clone()
    }

    fn publish(&self, change: impl FnOnce(&mut Snapshot)) {
        self.snapshot.send_modify(change);
        self.tell();
    }

    fn tell(&self) {
        let view = self.view();
        let removed = self.removed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*removed {
            // Nobody may be listening; the snapshot is what counts.
            let _ = self.events.send(Event::Changed(Box::new(view)));
        }
    }

    fn view(&self) -> ServerView {
        let snapshot = self.snapshot();
        let entry = self.entry();
        let asks = matches!(snapshot.state, State::NeedsSignIn { .. }) || self.challenge().is_some();
        ServerView {
            id: self.id.clone(),
            config: entry.config.clone(),
            state: snapshot.state,
            tools: snapshot.tools,
            notes: snapshot.notes.into_iter().chain(self.wire.mends()).collect(),
            instructions: snapshot.instructions,
            offers: snapshot.offers,
            pid: snapshot.pid,
            era: snapshot.era,
            protocol: snapshot.protocol,
            stderr: self.tail.lines(),
            running: self.running.shown(),
            skipped_lines: self.wire.skipped_lines(),
            log_level: self.level.get().and_then(offer::level_name),
            sign_in: self.account.shown(asks),
            consent: entry.consent.clone(),
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
            self.tell();
        }
    }

    fn settings(&self) -> Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn challenge(&self) -> Option<String> {
        self.challenge.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_challenge(&self, challenge: Option<String>) {
        *self.challenge.lock().unwrap_or_else(PoisonError::into_inner) = challenge;
    }

    fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    fn unavailable(&self, reason: impl Into<String>) -> tool::Error {
        tool::Error::Unavailable { server: self.id.clone(), reason: reason.into() }
    }
}

impl Connection {
    /// Makes the actor of a server. Nothing is started yet.
    pub(super) fn new(
        id: ServerId,
        entry: Entry,
        events: broadcast::Sender<Event>,
        store: Store,
        instance: Arc<Instance>,
        host: Arc<Host>,
        runtime: &Handle,
    ) -> Self {
        let gone = CancellationToken::new();
        let snapshot = Snapshot { state: entry.resting_state(), ..Snapshot::default() };
        let tail = Arc::new(Tail::with_file(instance.logs().of(id.as_str())));
        let shared = Arc::new(Shared {
            changes: Arc::new(Changes::new(id.clone(), events.clone())),
            account: Arc::new(Account::new(id.clone(), host.secrets().clone(), store.clone())),
            id,
            entry: Mutex::new(Kept::new(entry)),
            wanted: AtomicBool::new(false),
            wishing: Mutex::new(()),
            snapshot: watch::Sender::new(snapshot),
            events,
            removed: Mutex::new(false),
            wire: Arc::new(Wire::new(tail.clone())),
            tail,
            process: Mutex::new(None),
            instance,
            settings: Mutex::default(),
            longer: AtomicU32::new(0),
            as_configured: AtomicBool::new(false),
            store,
            host,
            running: Arc::default(),
            level: Arc::default(),
            challenge: Mutex::default(),
            _pacer: gone.clone().drop_guard(),
        });
        let _pacer = runtime.spawn(running::pace(shared.running.clone(), Arc::downgrade(&shared), gone));
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

    /// Says that it is not configured any more: the last that is heard of it, however long it takes to stop.
    pub(super) fn removed(&self) {
        let mut removed = self.shared.removed.lock().unwrap_or_else(PoisonError::into_inner);
        *removed = true;
        let _ = self.shared.events.send(Event::Removed(self.shared.id.clone()));
    }

    /// Its sign-in.
    pub(super) fn account(&self) -> &Arc<Account> {
        &self.shared.account
    }

    /// Says whether a browser waits for the person.
    pub(super) fn signing_in(&self, waiting: bool) {
        self.shared.account.set_waiting(waiting);
        self.shared.publish(|_| {});
    }

    /// Says that what it asked for was done, or is not wanted any more.
    pub(super) fn unchallenged(&self) {
        self.shared.set_challenge(None);
        self.shared.publish(|_| {});
    }

    /// What a sign-in needs of the entry, filled in. Blocks where a keyring must be asked.
    pub(super) fn errand(&self) -> Result<Errand, Error> {
        let (id, entry) = (&self.shared.id, self.entry());
        // Read together with what would be sent: nothing gets past this by a change at the wrong moment.
        if entry.consent.is_some() {
            return Err(Error::SignIn { server: id.clone(), reason: "nobody has agreed to its address yet".to_owned() });
        }
        let secrets = self.shared.host.secrets();
        let lookup = |name: &Name<'_>| name.value(secrets.as_ref());
        let address = match expand(id.as_str(), &entry.config, lookup)? {
            Transport::Http { url, .. } | Transport::Sse { url, .. } => url,
            Transport::Stdio { .. } => {
                let reason = "it is a program on this machine; put its keys into \"env\"".to_owned();
                return Err(Error::SignIn { server: id.clone(), reason });
            }
        };
        let oauth = entry.config.oauth.clone().unwrap_or_default();
        Ok(Errand { address, oauth: expand_oauth(id.as_str(), &oauth, lookup)?, challenge: self.shared.challenge() })
    }

    /// The tools that a model may be shown, also while the connection is being restored, and what names the command or
    /// address that listed them.
    pub(super) fn usable_tools(&self) -> (String, Vec<Arc<Definition>>) {
        let snapshot = self.shared.snapshot.borrow();
        if !snapshot.state.lists_tools() {
            return (String::new(), Vec::new());
        }
        let entry = self.shared.entry();
        let usable = snapshot.tools.iter().filter(|tool| !entry.config.disabled_tools.contains(&tool.id.name));
        (snapshot.transport.clone(), usable.cloned().collect())
    }

    /// Starts it; once, however often it is asked. One that nobody agreed to says so instead.
    pub(super) fn start(&self) {
        if self.entry().consent.is_some() {
            let resting =
                |state: &State| matches!(state, State::Stopped | State::Failed { .. } | State::NeedsConsent | State::NeedsSignIn { .. });
            self.shared.publish(|snapshot| {
                if resting(&snapshot.state) {
                    snapshot.state = State::NeedsConsent;
                }
            });
            return;
        }
        let _wish = self.wish(true);
        // Said here and not by the actor, so that whoever waits next does not find the last failure.
        self.shared
            .starting(|state| matches!(state, State::Stopped | State::NeedsConsent | State::NeedsSignIn { .. } | State::Failed { .. }));
        let _ = self.commands.send(Command::Start);
    }

    /// Takes a new configuration; a server that is wanted is started anew with it, where that was agreed to.
    pub(super) fn configure(&self, entry: Entry) {
        let agreed = entry.consent.is_none();
        *self.shared.entry.lock().unwrap_or_else(PoisonError::into_inner) = Kept::new(entry);
        let _wish = self.shared.wishing.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.as_configured.store(false, Ordering::Release);
        let start = agreed && self.shared.is_wanted();
        self.shared.starting(|_| start);
        let _ = self.commands.send(Command::Configure { start });
    }

    /// Takes an entry that changes nothing about how the server runs.
    pub(super) fn describe(&self, entry: Entry) {
        *self.shared.entry.lock().unwrap_or_else(PoisonError::into_inner) = Kept::new(entry);
        self.shared.publish(|_| {});
    }

    /// Takes it as agreed to, where this is what must be agreed to now; says whether it is.
    pub(super) fn agreed(&self, hash: &str) -> bool {
        {
            let mut kept = self.shared.entry.lock().unwrap_or_else(PoisonError::into_inner);
            let entry = &mut kept.entry;
            match &entry.consent {
                Some(consent) if consent.hash == hash => *entry = Arc::new(Entry { consent: None, ..(**entry).clone() }),
                Some(_) => return false,
                None => return true,
            }
        }
        self.shared.publish(|snapshot| {
            if snapshot.state == State::NeedsConsent {
                snapshot.state = State::Stopped;
            }
        });
        true
    }

    /// Stops it, with its whole process group, and returns when that is done.
    pub(super) async fn stop(&self, budget: Duration) {
        let (done, stopped) = oneshot::channel();
        let sent = {
            let _wish = self.wish(false);
            self.commands.send(Command::Stop { budget, done }).is_ok()
        };
        if sent {
            let _ = stopped.await;
        }
    }

    /// Takes the wish to run away, so that its supervisor starts nothing any more; [`Connection::stop`] has to follow.
    pub(super) fn retire(&self) {
        drop(self.wish(false));
    }

    fn wish(&self, wanted: bool) -> MutexGuard<'_, ()> {
        let wish = self.shared.wishing.lock().unwrap_or_else(PoisonError::into_inner);
        self.shared.wanted.store(wanted, Ordering::Release);
        wish
    }

    /// Takes what holds for all servers; the next attempt goes by it.
    pub(super) fn set_settings(&self, settings: Settings) {
        *self.shared.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Gives the start that runs now another whole limit.
    pub(super) fn wait_longer(&self) -> Result<(), Error> {
        let starting = matches!(self.shared.snapshot.borrow().state, State::Starting { .. } | State::Reconnecting { .. });
        if !starting {
            return Err(Error::Request { server: self.shared.id.clone(), reason: "it is not starting".to_owned() });
        }
        let _ = self.shared.longer.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    /// The newest lines of its log, at most so many.
    pub(super) fn log(&self, lines: usize) -> Vec<Line> {
        self.shared.tail.newest(lines)
    }

    /// Waits until it is usable, failed, or not wanted any more.
    pub(super) async fn ready(&self, within: Duration) -> Result<ServerView, Error> {
        let mut snapshot = self.shared.snapshot.subscribe();
        let settled = snapshot.wait_for(|snapshot| match snapshot.state {
            State::Connected | State::Slow { .. } | State::Failed { .. } | State::NeedsConsent | State::NeedsSignIn { .. } => true,
            State::Stopped => !self.shared.is_wanted(),
            State::Starting { .. } | State::Reconnecting { .. } => false,
        });
        // Out of time or not: what the server is by then decides.
        let _ = tokio::time::timeout(within, settled).await.map(drop);
        let wrong = |reason: String| Error::Start { server: self.shared.id.clone(), reason };
        let view = self.view();
        match &view.state {
            State::Connected | State::Slow { .. } => Ok(view),
            State::Failed { reason, .. } | State::Reconnecting { reason, .. } | State::NeedsSignIn { reason } => Err(wrong(reason.clone())),
            State::NeedsConsent => Err(wrong("nobody has agreed to its command or address yet".to_owned())),
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
        call: &CallId,
        transport: &str,
        arguments: Map<String, Value>,
        control: &Control,
    ) -> Result<CallResult, tool::Error> {
        let timeout = self.entry().config.timeout.map_or(control.timeout, Duration::from_secs);
        let (link, tool) = self.link(id, transport, control, timeout).await?;
        match link.call(&tool, call, arguments, control, timeout).await {
            Ok(result) => {
                self.heard(link);
                Ok(result)
            }
            Err(failed) => Err(self.noticed(link, failed, || format!("the tool '{:.80}'", id.name))),
        }
    }

    /// Tells the actor what a failed request says about the connection.
    fn noticed(&self, link: Arc<Link>, Failed { error, lost, asks }: Failed, what: impl FnOnce() -> String) -> tool::Error {
        if let Some(asks) = asks {
            self.shared.set_challenge(Some(asks.said));
            match asks.reason {
                Some(reason) => drop(self.commands.send(Command::SignIn { link, reason })),
                // Only this request needs more; the others go on.
                None => self.shared.publish(|_| {}),
            }
            return error;
        }
        match (lost, &error) {
            (Some(reason), _) => drop(self.commands.send(Command::Lost { link, reason })),
            (None, tool::Error::Timeout(limit)) => {
                let reason = format!("{} gave no answer within {limit:?}", what());
                let _ = self.commands.send(Command::Late { link, reason });
            }
            (None, tool::Error::Protocol { .. }) => self.heard(link),
            (None, _) => {}
        }
        error
    }

    /// An answer, whatever is in it, ends a server's being slow.
    fn heard(&self, link: Arc<Link>) {
        if matches!(self.shared.snapshot.borrow().state, State::Slow { .. }) {
            let _ = self.commands.send(Command::Heard { link });
        }
    }

    /// Whether the tool is still what it was when it was shown, as far as is known now.
    fn unchanged(&self, now: &Seen, id: &ToolId, transport: &str) -> Result<(), tool::Error> {
        // What the whole process goes by, then what this connection is, or is about to be.
        let kept = self.shared.kept();
        if self.shared.store.server_transport(&id.server) != transport || &*kept.stands_for != transport {
            return Err(tool::Error::Permit(format!("the command or address of server '{}' changed since the tool was shown", id.server)));
        }
        if kept.entry.config.disabled_tools.contains(&id.name) {
            return Err(tool::Error::Permit(format!("the tool {id} was switched off since it was shown")));
        }
        if now.lists && !(now.same && now.tool.is_some()) {
            return Err(tool::Error::Permit(format!("the server changed the tool {id} since it was shown")));
        }
        Ok(())
    }

    async fn link(
        &self,
        id: &ToolId,
        transport: &str,
        control: &Control,
        timeout: Duration,
    ) -> Result<(Arc<Link>, Arc<Definition>), tool::Error> {
        let mut snapshot = self.shared.snapshot.subscribe();
        let until = Instant::now() + timeout;
        let mut reason = "it is not connected".to_owned();
        loop {
            {
                // Link and tool must be of one moment; the checks take locks, so that they come after it.
                let now = Seen::of(&snapshot.borrow_and_update(), id, transport);
                self.unchanged(&now, id, transport)?;
                match (&now.state, now.link) {
                    // What is dead already is about to be noticed: a call waits for what comes after it.
                    (State::Connected | State::Slow { .. }, Some(link)) if !is_dead(&link) => {
                        let gone = || tool::Error::Permit(format!("the server changed the tool {id} since it was shown"));
                        return Ok((link, now.tool.ok_or_else(gone)?));
                    }
                    (State::Stopped, _) => return Err(self.shared.unavailable("it is stopped")),
                    (State::Failed { reason, .. } | State::NeedsSignIn { reason }, _) => {
                        return Err(self.shared.unavailable(reason.clone()));
                    }
                    (State::NeedsConsent, _) => {
                        return Err(self.shared.unavailable("nobody has agreed to its command or address yet"));
                    }
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

/// Whether nothing can be sent on a connection any more.
fn is_dead(link: &Link) -> bool {
    link.peer.is_transport_closed() || link.exit.as_ref().is_some_and(|exit| exit.borrow().is_some())
}
