//! The manager holds one connection per configured server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use super::{Error, Event, ServerView};
use crate::approval::GatedTool;
use crate::store::Store;
use crate::tool::ServerId;

/// The manager; cheap to clone, one per engine.
#[derive(Clone, Debug)]
pub struct Manager {
    events: broadcast::Sender<Event>,
}

impl Manager {
    /// Reads the configuration. Nothing is started yet. A file that does not parse is left untouched, and the
    /// manager says so through [`Manager::config_error`].
    #[must_use]
    pub fn new(_config: PathBuf, _store: Store) -> Self {
        Self { events: broadcast::channel(256).0 }
    }

    /// The manager's events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// Why the configuration file is not used, when it is not.
    #[must_use]
    pub fn config_error(&self) -> Option<String> {
        None
    }

    /// Every configured server, sorted by id.
    #[must_use]
    pub fn servers(&self) -> Vec<ServerView> {
        Vec::new()
    }

    /// The tools of all usable servers, sorted by server and name.
    #[must_use]
    pub fn tools(&self) -> Vec<Arc<GatedTool>> {
        Vec::new()
    }

    /// Adds the servers of a pasted text (whole file or fragment) to the configuration file and starts the active
    /// ones. Servers that are already there are replaced.
    pub fn paste(&self, _text: &str) -> Result<Vec<ServerId>, Error> {
        Ok(Vec::new())
    }

    /// Starts every active server, without waiting.
    pub fn start_all(&self) {}

    /// Starts a server (once, however often it is asked) without waiting.
    pub fn start(&self, server: &ServerId) -> Result<(), Error> {
        Err(Error::Unknown(server.clone()))
    }

    /// Waits until the server is usable or failed.
    pub async fn ready(&self, server: &ServerId, _within: Duration) -> Result<ServerView, Error> {
        Err(Error::Unknown(server.clone()))
    }

    /// Stops a server and its whole process group.
    pub async fn stop(&self, server: &ServerId) -> Result<(), Error> {
        Err(Error::Unknown(server.clone()))
    }

    /// Stops a server and takes it out of the configuration file.
    pub async fn remove(&self, server: &ServerId) -> Result<(), Error> {
        Err(Error::Unknown(server.clone()))
    }

    /// Switches whether a server starts with the app, and starts or stops it now.
    pub async fn set_active(&self, server: &ServerId, _active: bool) -> Result<(), Error> {
        Err(Error::Unknown(server.clone()))
    }

    /// Stops all servers in parallel; after the budget the process groups are killed.
    pub async fn shutdown(&self, _budget: Duration) {}
}
