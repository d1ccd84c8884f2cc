//! The manager holds one connection per configured server, and the configuration file.

mod bundles;
mod configure;
mod converse;
mod file;
mod operate;
mod server_tool;
mod shelf;
mod sign_in;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

pub use configure::{Shown, Summary};
pub use file::Backup;
pub use operate::{LogLine, TraceLine};

use super::connection::{Connection, Host};
use super::consent::Policy;
use super::process::Instance;
use super::{Error, Event, ServerView, config};
use crate::approval::GatedTool;
use crate::secret::{FileSecrets, Secrets};
use crate::store::Store;
use crate::tool::ServerId;
use server_tool::ServerTool;

/// Events that a slow receiver may fall behind.
const EVENTS: usize = 256;
/// The budget of a stop by click.
const STOP: Duration = Duration::from_secs(2);
/// What a shutdown may take beyond its budget: killed processes vanish within it.
const AFTER_BUDGET: Duration = Duration::from_millis(800);

/// The manager; cheap to clone, one per engine.
#[derive(Clone)]
pub struct Manager {
    inner: Arc<Inner>,
}

/// How a manager is made.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whose word starts a server.
    pub consent: Policy,
    /// The data folder: the servers' processes (`run`), logs (`logs/mcp`) and bundles (`bundles`) are in it. The folder of
    /// the configuration where not given.
    pub data: Option<PathBuf>,
    /// Whether servers that are added or switched on wait for [`Manager::start`].
    pub by_hand: bool,
    /// Where secrets are kept; a file in the data folder where not given.
    pub secrets: Option<Arc<dyn Secrets>>,
}

struct Inner {
    /// The configuration file; none where there are to be no servers at all.
    path: Option<PathBuf>,
    /// The data folder.
    data: PathBuf,
    /// Whose word starts a server.
    consent: Policy,
    /// Whether servers that are added or switched on wait for a start.
    by_hand: bool,
    store: Store,
    events: broadcast::Sender<Event>,
    /// Where the actors run; none where there was no runtime, and then nothing can be started.
    runtime: Option<Handle>,
    /// Where the servers' processes are written down.
    instance: Arc<Instance>,
    servers: Mutex<Servers>,
    /// What all servers share of the world around them.
    host: Arc<Host>,
    /// Held while the file is read, changed, replaced and applied, so that two changes never lose one. Taken before the
    /// lock of the servers.
    file: Mutex<file::Seen>,
    /// Ends the watch over the file.
    watching: CancellationToken,
    signing_in: Arc<sign_in::SignIns>,
    /// The bundle files that a person looks at, with the digest of what was shown.
    shown_bundles: Mutex<BTreeMap<PathBuf, String>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.watching.cancel();
    }
}

#[derive(Default)]
struct Servers {
    connections: BTreeMap<ServerId, Connection>,
    config_error: Option<config::Error>,
    /// What holds for all servers, and what is used where the file does not say.
    settings: config::Settings,
    defaults: config::Settings,
    setting_errors: Vec<config::Error>,
    /// Whether active servers were started, so that one that becomes active in the file is started, too.
    started: bool,
    closing: bool,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Manager {
    /// [`Manager::with`], asking before anything is started.
    #[must_use]
    pub fn new(config: PathBuf, store: Store) -> Self {
        Self::with(config, store, Options::default())
    }

    /// Reads the configuration and watches it. Nothing is started yet. A file that does not parse is left untouched, and
    /// the manager says so through [`Manager::config_error`]. Must be called inside a tokio runtime: the servers run on it.
    #[must_use]
    pub fn with(config: PathBuf, store: Store, options: Options) -> Self {
        let manager = Self::made(Some(config), store, options);
        manager.reload();
        manager.forget_strangers();
        watch::begin(&manager);
        manager
    }

    /// A manager that has no servers and never will: lists are empty, and changes are errors.
    #[must_use]
    pub fn off(store: Store) -> Self {
        Self::made(None, store, Options::default())
    }

    fn made(path: Option<PathBuf>, store: Store, options: Options) -> Self {
        // Without a file there is nothing to run, to write down, or to clean up.
        let runtime = Handle::try_current().ok().filter(|_| path.is_some());
        let beside = path.as_deref().and_then(Path::parent).map(Path::to_owned).unwrap_or_default();
        let data = options.data.clone().unwrap_or(beside);
        let secrets = options.secrets.unwrap_or_else(|| Arc::new(FileSecrets::new(data.join("secrets.toml"))));
        let events = broadcast::channel(EVENTS).0;
        let inner = Inner {
            path,
            consent: options.consent,
            by_hand: options.by_hand,
            store,
            host: Arc::new(Host::new(events.clone(), secrets)),
            events,
            instance: Instance::open(&data, runtime.as_ref()),
            data,
            runtime,
            servers: Mutex::default(),
            file: Mutex::default(),
            watching: CancellationToken::new(),
            signing_in: Arc::default(),
            shown_bundles: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    fn servers_lock(&self) -> MutexGuard<'_, Servers> {
        self.inner.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connection(&self, server: &ServerId) -> Result<Connection, Error> {
        self.servers_lock().connections.get(server).cloned().ok_or_else(|| Error::Unknown(server.clone()))
    }

    /// The manager's events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// Why the configuration file is not used, when it is not.
    #[must_use]
    pub fn config_error(&self) -> Option<String> {
        self.servers_lock().config_error.as_ref().map(ToString::to_string)
    }

    /// Every configured server, sorted by id.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerView> {
        let connections: Vec<Connection> = self.servers_lock().connections.values().cloned().collect();
        connections.iter().map(Connection::view).collect()
    }

    /// The tools of all usable servers that are not switched off, sorted by server and name. A server that is being
    /// restored keeps its tools.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<GatedTool>> {
        let connections: Vec<Connection> = self.servers_lock().connections.values().cloned().collect();
        let mut tools: Vec<Arc<GatedTool>> = Vec::new();
        for connection in connections {
            let (transport, mut definitions) = connection.usable_tools();
            let entry = connection.entry();
            definitions.retain(|definition| !entry.config.disabled_tools.contains(&definition.id.name));
            for definition in definitions {
                tools.push(Arc::new(ServerTool { definition, transport: transport.clone(), connection: connection.clone() }));
            }
        }
        tools
    }

    /// Starts every active server, without waiting.
    pub fn start_all(&self) {
        let mut servers = self.servers_lock();
        if servers.closing {
            return;
        }
        servers.started = true;
        for connection in servers.connections.values() {
            let entry = connection.entry();
            if entry.config.active && entry.problem.is_none() {
                connection.start();
            }
        }
    }

    /// Starts a server (once, however often it is asked) without waiting. One that nobody agreed to does not start: it then
    /// says so in its state.
    pub fn start(&self, server: &ServerId) -> Result<(), Error> {
        let connection = self.connection(server)?;
        // The flag is read under the lock, so that nothing starts behind a shutdown.
        let servers = self.servers_lock();
        if servers.closing {
            return Err(Error::Start { server: server.clone(), reason: "Handrail is shutting down".to_owned() });
        }
        connection.start();
        Ok(())
    }

    /// Waits until the server is usable or failed.
    pub async fn ready(&self, server: &ServerId, within: Duration) -> Result<ServerView, Error> {
        self.connection(server)?.ready(within).await
    }

    /// Stops a server and its whole process group.
    pub async fn stop(&self, server: &ServerId) -> Result<(), Error> {
        self.connection(server)?.stop(STOP).await;
        Ok(())
    }

    /// Stops all servers in parallel; after the budget the process groups are killed. Nothing starts afterwards. Two
    /// requests are one: the second one returns when everything is stopped as well.
    pub async fn shutdown(&self, budget: Duration) {
        let connections: Vec<Connection> = {
            let mut servers = self.servers_lock();
            servers.closing = true;
            self.inner.watching.cancel();
            servers.connections.values().cloned().collect()
        };
        // The supervisors first: from here on none of them starts anything.
        connections.iter().for_each(Connection::retire);
        let stopping = futures::future::join_all(connections.iter().map(|connection| connection.stop(budget)));
        if tokio::time::timeout(budget + AFTER_BUDGET, stopping).await.is_err() {
            tracing::warn!(?budget, "stopping the servers ran over its budget");
        }
        let instance = self.inner.instance.clone();
        let ended = tokio::task::spawn_blocking(move || instance.end_all());
        let _ = tokio::join!(ended, self.inner.instance.logs().flush());
    }
}
