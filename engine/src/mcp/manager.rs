//! The manager holds one connection per configured server, and the configuration file.

mod server_tool;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::broadcast;

use super::config::{Document, Entry, pasted};
use super::connection::Connection;
use super::{Error, Event, ServerView, config};
use crate::approval::GatedTool;
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

struct Inner {
    path: PathBuf,
    store: Store,
    events: broadcast::Sender<Event>,
    /// Where the actors run; none where there was no runtime, and then nothing can be started.
    runtime: Option<Handle>,
    servers: Mutex<Servers>,
    /// Held while the file is read, changed and replaced, so that two changes never lose one.
    file: Mutex<()>,
}

#[derive(Default)]
struct Servers {
    connections: BTreeMap<ServerId, Connection>,
    config_error: Option<config::Error>,
    closing: bool,
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Manager {
    /// Reads the configuration. Nothing is started yet. A file that does not parse is left untouched, and the
    /// manager says so through [`Manager::config_error`]. Must be called inside a tokio runtime: the servers run on it.
    #[must_use]
    pub fn new(config: PathBuf, store: Store) -> Self {
        let inner = Inner {
            path: config,
            store,
            events: broadcast::channel(EVENTS).0,
            runtime: Handle::try_current().ok(),
            servers: Mutex::default(),
            file: Mutex::default(),
        };
        let manager = Self { inner: Arc::new(inner) };
        manager.reload();
        manager
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

    /// The tools of all usable servers, sorted by server and name. A server that is being restored keeps its tools.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<GatedTool>> {
        let connections: Vec<Connection> = self.servers_lock().connections.values().cloned().collect();
        let mut tools: Vec<Arc<GatedTool>> = Vec::new();
        for connection in connections {
            let (transport, definitions) = connection.usable_tools();
            for definition in definitions {
                tools.push(Arc::new(ServerTool { definition, transport: transport.clone(), connection: connection.clone() }));
            }
        }
        tools
    }

    /// Adds the servers of a pasted text (whole file or fragment) to the configuration file and starts the active
    /// ones. Servers that are already there are replaced. Nothing is written where anything is wrong.
    pub fn paste(&self, text: &str) -> Result<Vec<ServerId>, Error> {
        let servers = pasted(text)?;
        for (name, entry) in &servers {
            let _ = Entry::read(name, entry).checked(name)?;
        }
        self.change(|document| {
            for (name, entry) in &servers {
                document.put(name, entry.clone());
            }
        })?;
        let ids: Vec<ServerId> = servers.into_iter().map(|(name, _)| ServerId::new(name)).collect();
        for id in &ids {
            if self.connection(id).is_ok_and(|connection| connection.entry().config.active) {
                self.start(id)?;
            }
        }
        Ok(ids)
    }

    /// Changes the file as it is now, and takes what it then says.
    fn change(&self, change: impl FnOnce(&mut Document)) -> Result<(), Error> {
        let changed = {
            let _file = self.inner.file.lock().unwrap_or_else(PoisonError::into_inner);
            Document::load(&self.inner.path).and_then(|mut document| {
                change(&mut document);
                document.save(&self.inner.path)?;
                Ok(document)
            })
        };
        match changed {
            Ok(document) => {
                self.apply(&document);
                Ok(())
            }
            Err(error) => {
                self.reject(error.clone());
                Err(error.into())
            }
        }
    }

    fn reload(&self) {
        match Document::load(&self.inner.path) {
            Ok(document) => self.apply(&document),
            Err(error) => self.reject(error),
        }
    }

    /// The last good configuration keeps running.
    fn reject(&self, error: config::Error) {
        let reason = error.to_string();
        self.servers_lock().config_error = Some(error);
        let _ = self.inner.events.send(Event::ConfigRejected { reason });
    }

    /// Brings the connections in line with the file: new ones are made, changed ones take the change, and those that
    /// are gone are stopped.
    fn apply(&self, document: &Document) {
        let entries: BTreeMap<ServerId, Entry> =
            document.servers().map(|(name, entry)| (ServerId::new(name.clone()), Entry::read(name, entry))).collect();
        let Some(runtime) = self.inner.runtime.clone() else {
            if !entries.is_empty() {
                tracing::error!("the MCP servers need a tokio runtime; none of them can be used");
            }
            return;
        };
        let gone = {
            let mut servers = self.servers_lock();
            servers.config_error = None;
            let known = std::mem::take(&mut servers.connections);
            let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = known.into_iter().partition(|(id, _)| entries.contains_key(id));
            servers.connections = kept;
            for (id, entry) in entries {
                self.place(&mut servers, id, entry, &runtime);
            }
            gone
        };
        for (id, connection) in gone {
            self.inner.store.set_server_transport(&id, None);
            self.forget_approvals(&id);
            let _ = self.inner.events.send(Event::Removed(id));
            let _stopping = runtime.spawn(async move { connection.stop(STOP).await });
        }
    }

    fn place(&self, servers: &mut Servers, id: ServerId, entry: Entry, runtime: &Handle) {
        // Before anything runs with the new entry: from here on no rule, waiting call or permit of another command holds.
        self.inner.store.set_server_transport(&id, Some(entry.config.transport.fingerprint()));
        if let Some(connection) = servers.connections.get(&id) {
            let before = connection.entry();
            if *before != entry {
                // Words about a server or its switch are no reason to restart it.
                let same = before.config.transport == entry.config.transport && before.problem == entry.problem;
                if same {
                    connection.describe(entry);
                } else {
                    self.forget_approvals(&id);
                    connection.configure(entry);
                }
            }
            return;
        }
        let connection = Connection::new(id.clone(), entry, self.inner.events.clone(), self.inner.store.clone(), runtime);
        let _ = self.inner.events.send(Event::Changed(Box::new(connection.view())));
        let _ = servers.connections.insert(id, connection);
    }

    /// What was allowed for a server was allowed for its command or address, not for its name. Tidying only: a rule that
    /// stays holds for nothing else either.
    fn forget_approvals(&self, server: &ServerId) {
        if let Err(error) = self.inner.store.forget_server_approvals(server) {
            tracing::error!(%error, %server, "the approvals of a changed server could not be taken back");
        }
    }

    /// Starts every active server, without waiting.
    pub fn start_all(&self) {
        let servers = self.servers_lock();
        if servers.closing {
            return;
        }
        for connection in servers.connections.values() {
            let entry = connection.entry();
            if entry.config.active && entry.problem.is_none() {
                connection.start();
            }
        }
    }

    /// Starts a server (once, however often it is asked) without waiting.
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

    /// Stops a server and takes it out of the configuration file.
    pub async fn remove(&self, server: &ServerId) -> Result<(), Error> {
        let connection = self.connection(server)?;
        // The file first: where it cannot be changed, the server stays as it is.
        self.change(|document| document.remove(server.as_str()))?;
        connection.stop(STOP).await;
        Ok(())
    }

    /// Switches whether a server starts with the app, and starts or stops it now.
    pub async fn set_active(&self, server: &ServerId, active: bool) -> Result<(), Error> {
        let connection = self.connection(server)?;
        self.change(|document| document.set_active(server.as_str(), active))?;
        if active {
            self.start(server)?;
        } else {
            connection.stop(STOP).await;
        }
        Ok(())
    }

    /// Stops all servers in parallel; after the budget the process groups are killed. Nothing starts afterwards.
    pub async fn shutdown(&self, budget: Duration) {
        let connections: Vec<Connection> = {
            let mut servers = self.servers_lock();
            servers.closing = true;
            servers.connections.values().cloned().collect()
        };
        let stopping = futures::future::join_all(connections.iter().map(|connection| connection.stop(budget)));
        if tokio::time::timeout(budget + AFTER_BUDGET, stopping).await.is_err() {
            tracing::warn!(?budget, "stopping the servers ran over its budget");
        }
    }
}
