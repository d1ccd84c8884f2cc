//! Whether a legacy server still answers: asked now and then, and when a call was late.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientRequest, ErrorCode, ListToolsRequest, PingRequest};
use rmcp::service::ServiceError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::call::Link;

/// Pause between two probes (fixed).
const EVERY: Duration = Duration::from_secs(30);
/// After so long without an answer the server is slow (fixed).
const LATE: Duration = Duration::from_secs(2);

/// What a probe found.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// It answered.
    Answer,
    /// It did not, so far.
    Late(Duration),
    /// It is broken.
    Error(String),
}

/// Probes one connection, one request at a time. An answer that comes late is still one: a server that is busy with a
/// slow tool is slow only until it looks up again.
#[derive(Debug)]
pub(super) struct Probe {
    link: Arc<Link>,
    running: JoinSet<Result<(), String>>,
    /// When the one that runs was sent, or the next one is.
    at: Instant,
    told: bool,
    every: Duration,
    late: Duration,
}

impl Probe {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, running: JoinSet::new(), at: Instant::now() + EVERY, told: false, every: EVERY, late: LATE }
    }

    /// Asks at once, unless a question is open.
    pub(super) fn hurry(&mut self) {
        if self.running.is_empty() {
            self.at = Instant::now();
        }
    }

    /// The next finding. May be dropped and called again at any time.
    pub(super) async fn found(&mut self) -> Found {
        loop {
            if self.running.is_empty() {
                sleep_until(self.at).await;
                let _ = self.running.spawn(ask(self.link.clone()));
                (self.at, self.told) = (Instant::now(), false);
            }
            tokio::select! {
                biased;
                Some(answer) = self.running.join_next() => {
                    self.at += self.every;
                    match answer {
                        Ok(Ok(())) => return Found::Answer,
                        Ok(Err(reason)) => return Found::Error(reason),
                        Err(error) => tracing::warn!(%error, "a probe broke off"),
                    }
                }
                () = sleep_until(self.at + self.late), if !self.told => {
                    self.told = true;
                    return Found::Late(self.late);
                }
                // A server may have lost the question: another one.
                () = sleep_until(self.at + self.every) => {
                    self.running = JoinSet::new();
                    self.at = Instant::now();
                }
            }
        }
    }
}

async fn ask(link: Arc<Link>) -> Result<(), String> {
    let lists = link.peer.peer_info().is_some_and(|info| info.capabilities.tools.is_some());
    let request = if lists {
        ClientRequest::ListToolsRequest(ListToolsRequest::default())
    } else {
        ClientRequest::PingRequest(PingRequest::default())
    };
    match link.peer.send_request(request).await {
        Ok(_) => Ok(()),
        // Not in the shape of a result, but an answer.
        Err(ServiceError::UnexpectedResponse) => Ok(()),
        Err(ServiceError::McpError(error)) if !lists && error.code == ErrorCode::METHOD_NOT_FOUND => Ok(()),
        Err(error) => Err(super::explain(&error)),
    }
}
