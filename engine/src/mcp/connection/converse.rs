//! What is done with a server beside calling its tools, and looking into its calls.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::super::offer::{Completable, Prompt, PromptMessage, Resource, Template};
use super::super::{Error, State, TraceLine};
use super::call::{Failed, Link};
use super::{Connection, offer};
use crate::tool::{self, Content};

impl Connection {
    /// The live connection, or why there is none.
    fn live(&self) -> Result<Arc<Link>, Error> {
        let snapshot = self.shared.snapshot();
        match (snapshot.link, snapshot.state) {
            (Some(link), State::Connected | State::Slow { .. }) => Ok(link),
            (_, State::Failed { reason, .. } | State::Reconnecting { reason, .. } | State::NeedsSignIn { reason }) => {
                Err(self.wrong(format!("it is not connected: {reason}")))
            }
            _ => Err(self.wrong("it is not connected; start it first".to_owned())),
        }
    }

    fn wrong(&self, reason: String) -> Error {
        Error::Request { server: self.shared.id.clone(), reason }
    }

    /// The error of a request in the words of this room, without naming the server twice.
    fn failed(&self, link: Arc<Link>, failed: Failed) -> Error {
        match self.noticed(link, failed, || "a request".to_owned()) {
            tool::Error::Protocol { message, .. } => self.wrong(message),
            tool::Error::Unavailable { reason, .. } => self.wrong(format!("it is not available: {reason}")),
            other => self.wrong(other.to_string()),
        }
    }

    fn timeout(&self) -> Duration {
        let seconds = self.entry().config.timeout;
        seconds.map_or_else(|| self.shared.host.settings().tool_call_timeout, Duration::from_secs)
    }

    pub(in crate::mcp) async fn prompts(&self) -> Result<Vec<Prompt>, Error> {
        self.live()?.prompts().await.map_err(|reason| self.wrong(reason))
    }

    pub(in crate::mcp) async fn prompt(&self, name: &str, arguments: BTreeMap<String, String>) -> Result<Vec<PromptMessage>, Error> {
        let link = self.live()?;
        link.prompt(name, arguments, self.timeout()).await.map_err(|failed| self.failed(link, failed))
    }

    pub(in crate::mcp) async fn resources(&self) -> Result<(Vec<Resource>, Vec<Template>), Error> {
        self.live()?.resources().await.map_err(|reason| self.wrong(reason))
    }

    pub(in crate::mcp) async fn read_resource(&self, uri: &str) -> Result<Vec<Content>, Error> {
        let link = self.live()?;
        link.read_resource(uri, self.timeout()).await.map_err(|failed| self.failed(link, failed))
    }

    pub(in crate::mcp) async fn complete(
        &self,
        of: &Completable,
        argument: &str,
        typed: &str,
        others: BTreeMap<String, String>,
    ) -> Result<Vec<String>, Error> {
        self.live()?.complete(of, argument, typed, others).await.map_err(|reason| self.wrong(reason))
    }

    /// Sets the level for now and for every later start.
    pub(in crate::mcp) async fn set_log_level(&self, level: &str) -> Result<(), Error> {
        let known = offer::log_level(level).ok_or_else(|| {
            self.wrong(format!("'{level}' is no log level; it is one of debug, info, notice, warning, error, critical, alert, emergency"))
        })?;
        self.shared.level.set(known);
        match self.live() {
            Ok(link) => link.send_level(known).await.map_err(|reason| self.wrong(reason)),
            Err(_) => Ok(()),
        }
    }

    /// The last messages to and from the server.
    pub(in crate::mcp) fn trace(&self) -> Vec<TraceLine> {
        self.shared.wire.lines()
    }

    /// Stops a running call; whether it still ran.
    pub(in crate::mcp) fn cancel_call(&self, call: u64) -> bool {
        self.shared.running.cancel(call)
    }
}
