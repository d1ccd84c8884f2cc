//! MCP servers: configuration, processes, connections and their tools. Calls need a permit of the gate.

pub mod config;
mod connection;
mod manager;
mod process;

use std::sync::Arc;
use std::time::Duration;

use crate::tool::{Definition, ServerId};

pub use config::ServerConfig;
pub use manager::Manager;

/// One server as the screen shows it.
#[derive(Clone, Debug)]
pub struct ServerView {
    /// Its id: the key in the configuration.
    pub id: ServerId,
    /// How it is configured.
    pub config: ServerConfig,
    /// Where it stands.
    pub state: State,
    /// Its tools, as last known.
    pub tools: Vec<Arc<Definition>>,
    /// The server's own instructions, where it gave any.
    pub instructions: Option<String>,
    /// Its process, for stdio servers.
    pub pid: Option<u32>,
    /// The protocol revision agreed on.
    pub protocol: Option<String>,
    /// The last lines it wrote to stderr.
    pub stderr: Vec<String>,
}

/// Where a server stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Switched off or stopped.
    Stopped,
    /// Being started; with the last sign of life, such as a package runner's line.
    Starting {
        /// The last thing heard.
        note: Option<String>,
    },
    /// Usable.
    Connected,
    /// Lost; a new start is planned.
    Reconnecting {
        /// Which attempt comes next, from 1.
        attempt: u32,
        /// When.
        after: Duration,
        /// Why the last connection ended.
        reason: String,
    },
    /// Not usable until someone acts.
    Failed {
        /// What went wrong, where, and what to do.
        reason: String,
        /// The exit code, where a process ended.
        exit_code: Option<i32>,
    },
}

/// What changed.
#[derive(Clone, Debug)]
pub enum Event {
    /// A server's view changed.
    Changed(Box<ServerView>),
    /// A server was removed.
    Removed(ServerId),
    /// The configuration file could not be used; the last good one keeps running.
    ConfigRejected {
        /// What is wrong, with line and column.
        reason: String,
    },
}

/// Why something about a server did not work.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// There is no such server.
    #[error("there is no server '{0}' in the configuration")]
    Unknown(ServerId),
    /// It could not be started or reached.
    #[error("server '{server}' could not be started: {reason}")]
    Start {
        /// Which server.
        server: ServerId,
        /// What went wrong, where it looked, exit code and last lines of stderr.
        reason: String,
    },
}
