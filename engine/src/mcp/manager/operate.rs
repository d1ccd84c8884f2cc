//! Looking into a running server: its log, its traffic, its calls.

use std::path::PathBuf;
use std::time::SystemTime;

use super::super::Error;
use super::Manager;
use crate::tool::ServerId;

/// A line of a server's log: what it wrote to stderr, or sent as a log message.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// When it was read.
    pub at: SystemTime,
    /// Its level, where it names one: "debug", "info", "warning" or "error".
    pub level: Option<&'static str>,
    /// The line.
    pub text: String,
}

/// One JSON-RPC message.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceLine {
    /// When it passed.
    pub at: SystemTime,
    /// Whether the server sent it; else we did.
    pub received: bool,
    /// The message; long ones are cut, and header values and tokens are never in it.
    pub message: String,
}

impl Manager {
    /// Where a server's log is kept, also over restarts; there may be no file yet.
    #[must_use]
    pub fn log_file(&self, server: &ServerId) -> PathBuf {
        self.inner.instance.logs().of(server.as_str()).path()
    }

    /// The newest lines of a server's log, the oldest of them first.
    pub fn log(&self, server: &ServerId, lines: usize) -> Result<Vec<LogLine>, Error> {
        let lines = self.connection(server)?.log(lines);
        Ok(lines.into_iter().map(|line| LogLine { at: line.at, level: line.level, text: line.text }).collect())
    }

    /// The last JSON-RPC messages to and from a server, the oldest first.
    pub fn trace(&self, server: &ServerId) -> Result<Vec<TraceLine>, Error> {
        Ok(self.connection(server)?.trace())
    }

    /// Cancels a running call ([`super::super::RunningCall::id`]); whether it still ran.
    pub fn cancel_call(&self, server: &ServerId, call: u64) -> Result<bool, Error> {
        Ok(self.connection(server)?.cancel_call(call))
    }

    /// Stops a server and starts it anew.
    pub async fn restart(&self, server: &ServerId) -> Result<(), Error> {
        self.stop(server).await?;
        self.start(server)
    }

    /// Gives a starting server another whole start limit.
    pub fn wait_longer(&self, server: &ServerId) -> Result<(), Error> {
        self.connection(server)?.wait_longer()
    }
}
