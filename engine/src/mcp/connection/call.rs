//! One call on a live connection: bounded, watched, stopped.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientRequest, ProgressNotificationParam,
    RequestId, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

use super::super::process::{Exit, ended_within};
use super::content::{call_result, raw_result};
use super::handler::Progress;
use crate::tool::{self, CallResult, Control, ServerId};

/// Progress extends a call's timeout, but never beyond this many timeouts (fixed).
const MOST_TIMEOUTS: u32 = 10;
/// How long a stopped call waits for its `notifications/cancelled` to be on the way.
const CANCEL_SENT: Duration = Duration::from_millis(50);
/// How long a broken call waits for the exit code that explains it.
const EXIT_SEEN: Duration = Duration::from_millis(60);

/// A live connection, as calls see it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: ServerId,
    pub(super) peer: Peer<RoleClient>,
    pub(super) progress: Arc<Progress>,
    pub(super) tools_changed: Arc<Notify>,
    /// How the process ended, for stdio servers.
    pub(super) exit: Option<watch::Receiver<Option<Exit>>>,
}

/// A call without a result.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: tool::Error,
    /// Why the connection itself looks lost, when it does.
    pub(super) lost: Option<String>,
}

impl From<tool::Error> for Failed {
    fn from(error: tool::Error) -> Self {
        Self { error, lost: None }
    }
}

impl Link {
    /// Runs a call. Dropping the future cancels it at the server, as `control.cancel` does.
    pub(super) async fn call(
        &self,
        name: &str,
        arguments: Map<String, Value>,
        control: &Control,
        timeout: Duration,
    ) -> Result<CallResult, Failed> {
        let params = CallToolRequestParams::new(name.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let started = Instant::now();
        let sent = tokio::select! {
            biased;
            () = control.cancel.cancelled() => return Err(tool::Error::Cancelled.into()),
            // No option: the waits below know about progress, Stop and the hard end together.
            sent = self.peer.send_request_with_option(request, PeerRequestOptions::no_options()) => sent,
            () = sleep_until(started + timeout) => return Err(tool::Error::Timeout(timeout).into()),
        };
        let mut handle = match sent {
            Ok(handle) => handle,
            Err(error) => return Err(self.broken(&error).await),
        };
        let mut unanswered = Unanswered { peer: self.peer.clone(), id: Some(handle.id.clone()) };
        match self.answer(&mut handle, control, timeout, started).await {
            Answer::Came(answer) => {
                unanswered.id = None;
                match answer {
                    Ok(result) => self.understand(result),
                    Err(error) => Err(self.broken(&error).await),
                }
            }
            Answer::Stopped => {
                unanswered.cancel("stopped by the person").await;
                Err(tool::Error::Cancelled.into())
            }
            Answer::Late => {
                unanswered.cancel("no answer in time").await;
                Err(tool::Error::Timeout(timeout).into())
            }
        }
    }

    async fn answer(&self, handle: &mut RequestHandle<RoleClient>, control: &Control, timeout: Duration, started: Instant) -> Answer {
        let mut route = self.progress.follow(handle.progress_token.clone());
        let mut watcher = Watcher { to: control.progress.clone(), done: f64::NEG_INFINITY };
        let end = started + timeout * MOST_TIMEOUTS;
        let mut quiet_until = (started + timeout).min(end);
        loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    // Progress that came before the answer is still shown.
                    while let Ok(progress) = route.notifications.try_recv() {
                        watcher.tell(progress);
                    }
                    return Answer::Came(answer.unwrap_or(Err(ServiceError::TransportClosed)));
                }
                () = control.cancel.cancelled() => return Answer::Stopped,
                Some(progress) = route.notifications.recv() => {
                    quiet_until = (Instant::now() + timeout).min(end);
                    watcher.tell(progress);
                }
                () = sleep_until(quiet_until) => return Answer::Late,
            }
        }
    }

    fn understand(&self, result: ServerResult) -> Result<CallResult, Failed> {
        let message = match result {
            ServerResult::CallToolResult(result) => return Ok(call_result(result)),
            ServerResult::InputRequiredResult(_) => "the server asks for input that this version cannot give yet".to_owned(),
            ServerResult::CreateTaskResult(_) => "the server made a task of the call, which this version cannot follow yet".to_owned(),
            // Servers whose tools only have an effect answer with nothing but the marker of the era.
            ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => return Ok(CallResult::default()),
            other => {
                let raw = serde_json::to_value(&other).unwrap_or_default();
                match raw_result(&raw) {
                    Some(result) => return Ok(result),
                    None => format!("the answer is no tool result: {}", raw.to_string().chars().take(200).collect::<String>()),
                }
            }
        };
        Err(tool::Error::Protocol { server: self.server.clone(), message }.into())
    }

    async fn broken(&self, error: &ServiceError) -> Failed {
        let server = self.server.clone();
        match error {
            ServiceError::McpError(error) => tool::Error::Protocol { server, message: error.message.to_string() }.into(),
            ServiceError::Cancelled { .. } => tool::Error::Cancelled.into(),
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                let reason = self.why_closed(error).await;
                // A refused request over HTTP says nothing about the connection; a lost one does.
                let lost = self.exit.is_some() || matches!(error, ServiceError::TransportClosed) || super::unreachable(error);
                Failed { error: tool::Error::Unavailable { server, reason: reason.clone() }, lost: lost.then_some(reason) }
            }
            other => tool::Error::Protocol { server, message: super::explain(other) }.into(),
        }
    }

    async fn why_closed(&self, error: &ServiceError) -> String {
        match &self.exit {
            Some(exit) => match ended_within(exit, EXIT_SEEN).await {
                Some(exit) => format!("its process ended during the call ({exit})"),
                None => "it closed the connection during the call".to_owned(),
            },
            None => super::explain(error),
        }
    }
}

enum Answer {
    Came(Result<ServerResult, ServiceError>),
    Stopped,
    Late,
}

/// Tells progress on, never backwards: notifications arrive out of order.
struct Watcher {
    to: Option<mpsc::UnboundedSender<tool::Progress>>,
    done: f64,
}

impl Watcher {
    fn tell(&mut self, progress: ProgressNotificationParam) {
        if progress.progress > self.done {
            self.done = progress.progress;
            if let Some(to) = &self.to {
                let _ = to.send(tool::Progress { done: progress.progress, total: progress.total, message: progress.message });
            }
        }
    }
}

/// A request whose answer nobody has yet. When it is dropped like that, the server is told to stop.
struct Unanswered {
    peer: Peer<RoleClient>,
    id: Option<RequestId>,
}

impl Unanswered {
    async fn cancel(&mut self, reason: &'static str) {
        if let Some(sending) = self.send(reason) {
            // Sent by its own task, so that a server that does not read cannot hold up Stop.
            let _ = tokio::time::timeout(CANCEL_SENT, sending).await;
        }
    }

    fn send(&mut self, reason: &'static str) -> Option<tokio::task::JoinHandle<()>> {
        let id = self.id.take()?;
        let peer = self.peer.clone();
        let runtime = tokio::runtime::Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            let notification = CancelledNotification::new(CancelledNotificationParam::new(Some(id), Some(reason.to_owned())));
            if let Err(error) = peer.send_notification(notification.into()).await {
                tracing::debug!(%error, "a cancellation could not be sent");
            }
        }))
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        let _ = self.send("the call was abandoned");
    }
}
