//! MCP servers: configuration, processes, connections and their tools. Calls need a permit of the gate.

mod auth;
pub mod bundle;
pub mod config;
mod connection;
pub mod consent;
pub mod form;
pub mod gallery;
pub mod import;
pub mod link;
mod manager;
pub mod offer;
mod process;
pub mod question;
pub mod sampling;
mod transport;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::tool::{CallId, Definition, Progress, ServerId};

pub use config::ServerConfig;
pub use consent::Consent;
pub use manager::{Backup, LogLine, Manager, Options, Shown, Summary, TraceLine};
pub use offer::Offers;
pub use question::{Question, QuestionId};
pub use sampling::{Sample, SampleMessage, SampleRequest, Sampler};

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
    /// What of it was left out, or not taken as it came: tools that are none, answers out of shape.
    pub notes: Vec<String>,
    /// What it offers beside tools.
    pub offers: Offers,
    /// The server's own instructions, where it gave any.
    pub instructions: Option<String>,
    /// Its process, for stdio servers; on Unix also its process group.
    pub pid: Option<u32>,
    /// The era of the protocol that it speaks.
    pub era: Option<Era>,
    /// The protocol revision agreed on.
    pub protocol: Option<String>,
    /// The last lines it wrote to stderr.
    pub stderr: Vec<String>,
    /// Calls that run now, the oldest first.
    pub running: Vec<RunningCall>,
    /// Lines on its stdout that were no JSON-RPC and were skipped, since it was started.
    pub skipped_lines: u64,
    /// The least level of log messages that was asked for; none where the server decides.
    pub log_level: Option<String>,
    /// Whether somebody is signed in to it.
    pub sign_in: SignIn,
    /// What must be agreed to before it is started; none where that was done.
    pub consent: Option<Consent>,
}

/// An era of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// `initialize`, up to revision 2025-11-25.
    Legacy,
    /// Stateless, from revision 2026-07-28.
    Modern,
}

/// A call that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningCall {
    /// Names the call among those of its server; [`Manager::cancel_call`] takes it.
    pub id: u64,
    /// The call that the gate let through.
    pub call: CallId,
    /// The tool's name.
    pub tool: String,
    /// When it was sent.
    pub since: SystemTime,
    /// How far it is, where the server tells.
    pub progress: Option<Progress>,
}

/// Whether somebody is signed in to a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignIn {
    /// It never asked for it.
    #[default]
    NotNeeded,
    /// It asks for it.
    Needed,
    /// A browser is open and waits for the person.
    Waiting,
    /// Tokens of this issuer are kept.
    Done {
        /// Who issued them.
        issuer: String,
    },
}

/// Where a server stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Switched off or stopped.
    Stopped,
    /// Not started: nobody has agreed to its command or address yet ([`ServerView::consent`]).
    NeedsConsent,
    /// Being started; with the last sign of life, such as a package runner's line.
    Starting {
        /// The last thing heard.
        note: Option<String>,
    },
    /// Usable.
    Connected,
    /// Usable, but it did not answer in time lately.
    Slow {
        /// What was late.
        reason: String,
    },
    /// Lost; a new start is planned.
    Reconnecting {
        /// Which attempt comes next, from 1.
        attempt: u32,
        /// When.
        after: Duration,
        /// Why the last connection ended.
        reason: String,
    },
    /// Not usable until the person signs in.
    NeedsSignIn {
        /// What it said.
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

impl State {
    /// Whether calls reach the server now.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        matches!(self, Self::Connected | Self::Slow { .. })
    }

    /// Whether its last known tools stay listed: it is usable, is being brought back, or was tried too often. A list that
    /// comes and goes would break a model's cached context, and a call says why it fails.
    #[must_use]
    pub fn lists_tools(&self) -> bool {
        self.is_usable() || matches!(self, Self::Reconnecting { .. } | Self::Failed { .. })
    }

    /// Whether it waits for the person.
    #[must_use]
    pub fn needs_someone(&self) -> bool {
        matches!(self, Self::NeedsConsent | Self::NeedsSignIn { .. } | Self::Failed { .. })
    }
}

/// What changed.
#[derive(Clone, Debug)]
pub enum Event {
    /// A server's view changed.
    Changed(Box<ServerView>),
    /// A server was removed.
    Removed(ServerId),
    /// The configuration file was read and is used, after something else was: what holds for all servers now.
    Configured {
        /// The settings in force.
        settings: Box<config::Settings>,
        /// What is wrong in the file's `mcpSettings`; the defaults of these values are used.
        wrong: Vec<String>,
    },
    /// The configuration file could not be used; the last good one keeps running.
    ConfigRejected {
        /// What is wrong, with line and column.
        reason: String,
    },
    /// A server asks the person something.
    Asked(Box<Question>),
    /// A question needs no answer any more: it was answered, or the server took it back.
    Settled(QuestionId),
    /// A resource that is read or attached changed.
    ResourceChanged {
        /// Whose.
        server: ServerId,
        /// Which one; none where the whole list changed.
        uri: Option<String>,
    },
    /// A server's prompts changed.
    PromptsChanged(ServerId),
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
    /// It is there, but did not do what was asked.
    #[error("server '{server}': {reason}")]
    Request {
        /// Which server.
        server: ServerId,
        /// What was asked, what came back, and what to do.
        reason: String,
    },
    /// The person could not be signed in or out.
    #[error("signing in to server '{server}' did not work: {reason}")]
    SignIn {
        /// Which server.
        server: ServerId,
        /// What went wrong and what to do.
        reason: String,
    },
}
