//! Work that a server does as a task: asked about from time to time until it is done. Both ways of it: the extension of
//! 2026-07-28, and what 2025-11-25 had, of which the types hold nothing.

use std::collections::HashSet;
use std::time::Duration;

use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, ClientRequest, CustomRequest, GetTaskParams, GetTaskRequest, ServerResult, Task, TaskPayload,
    UpdateTaskParams, UpdateTaskRequest,
};
use rmcp::service::{RequestHandle, ServiceError};
use rmcp::{ErrorData, Peer, RoleClient};
use serde_json::{Value, json};

use super::run::{Break, Run, Unanswered};

/// How often a task is asked about where the server does not say, and the bounds of what it may say.
const POLL: Duration = Duration::from_secs(1);
const POLLS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(60));
/// Longest time of a task (fixed), where its own time to live is not shorter.
const LONGEST: Duration = Duration::from_secs(3600);

/// What a task of the older revision says about itself.
#[derive(Debug)]
struct Status {
    id: String,
    state: String,
    message: Option<String>,
    poll: Option<u64>,
    ttl: Option<u64>,
}

impl Status {
    fn read(value: &Value) -> Option<Self> {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let number = |key: &str| value.get(key).and_then(Value::as_u64);
        Some(Self {
            id: text("taskId")?,
            state: text("status")?,
            message: text("statusMessage"),
            poll: number("pollInterval"),
            ttl: number("ttl"),
        })
    }
}

fn pause(milliseconds: Option<u64>) -> Duration {
    milliseconds.map_or(POLL, Duration::from_millis).clamp(POLLS.0, POLLS.1)
}

fn lifetime(milliseconds: Option<u64>) -> Duration {
    milliseconds.map_or(LONGEST, |ttl| Duration::from_millis(ttl).min(LONGEST))
}

fn custom(method: &'static str, id: &str) -> ClientRequest {
    ClientRequest::CustomRequest(CustomRequest::new(method, Some(json!({ "taskId": id }))))
}

fn failure(error: Value) -> Break {
    let message = error.get("message").and_then(Value::as_str).unwrap_or("the task failed").to_owned();
    Break::Service(ServiceError::McpError(serde_json::from_value(error).unwrap_or_else(|_| ErrorData::internal_error(message, None))))
}

impl Run<'_> {
    /// Follows the task that an answer may be, to its result.
    pub(super) async fn finish(&mut self, answer: ServerResult, as_task: bool) -> Result<ServerResult, Break> {
        match answer {
            ServerResult::CreateTaskResult(created) => self.follow(created.task).await,
            other if as_task => {
                let value = serde_json::to_value(&other).unwrap_or_default();
                match value.get("task").and_then(Status::read) {
                    Some(task) => self.follow_older(task).await,
                    // The server did it at once.
                    None => Ok(other),
                }
            }
            other => Ok(other),
        }
    }

    async fn follow(&mut self, mut task: Task) -> Result<ServerResult, Break> {
        let request = CancelTaskRequest::new(CancelTaskParams::new(task.task_id.clone()));
        let mut unfinished = Unfinished { peer: self.link.peer.clone(), cancel: Some(ClientRequest::CancelTaskRequest(request)) };
        self.allow(lifetime(task.ttl_ms));
        let mut answered = HashSet::new();
        loop {
            self.tell(task.status_message.take());
            if !task.status.is_terminal() {
                self.rest(pause(task.poll_interval_ms)).await?;
            }
            let request = GetTaskRequest::new(GetTaskParams::new(task.task_id.clone()));
            let ServerResult::GetTaskResult(now) = self.exchange(ClientRequest::GetTaskRequest(request)).await? else {
                return Err(Break::Answer("the answer to tasks/get is no task".to_owned()));
            };
            self.alive();
            task = now.task.task;
            match now.task.payload {
                TaskPayload::Completed { result } => {
                    unfinished.cancel = None;
                    self.tell(task.status_message.take());
                    return serde_json::from_value(Value::Object(result)).map_err(|error| Break::Answer(error.to_string()));
                }
                TaskPayload::Failed { error } => {
                    unfinished.cancel = None;
                    return Err(failure(Value::Object(error)));
                }
                TaskPayload::Cancelled => {
                    unfinished.cancel = None;
                    return Err(Break::Answer("the server cancelled the task".to_owned()));
                }
                TaskPayload::InputRequired { mut input_requests } => {
                    // What was answered already may be listed until the server has taken it in.
                    input_requests.retain(|key, _| !answered.contains(key));
                    if !input_requests.is_empty() {
                        self.tell(task.status_message.take());
                        answered.extend(input_requests.keys().cloned());
                        let responses = self.supply(input_requests).await?;
                        let update = UpdateTaskRequest::new(UpdateTaskParams::new(task.task_id.clone(), responses));
                        let _ = self.exchange(ClientRequest::UpdateTaskRequest(update)).await?;
                    }
                }
                _ => {}
            }
        }
    }

    async fn follow_older(&mut self, mut task: Status) -> Result<ServerResult, Break> {
        let id = task.id.clone();
        let mut unfinished = Unfinished { peer: self.link.peer.clone(), cancel: Some(custom("tasks/cancel", &id)) };
        self.allow(lifetime(task.ttl));
        let mut every = pause(task.poll);
        let mut result: Option<(RequestHandle<RoleClient>, Unanswered)> = None;
        loop {
            self.tell(task.message.take());
            match task.state.as_str() {
                "completed" | "failed" => {
                    let answer = match result.take() {
                        Some((mut handle, mut unanswered)) => {
                            let answer = self.answer(&mut handle).await;
                            unanswered.id = None;
                            answer
                        }
                        None => self.exchange(custom("tasks/result", &id)).await,
                    };
                    unfinished.cancel = None;
                    return answer;
                }
                "cancelled" => {
                    unfinished.cancel = None;
                    return Err(Break::Answer("the server cancelled the task".to_owned()));
                }
                // The server's questions come to whoever waits for the result.
                "input_required" if result.is_none() => {
                    let handle = self.send(custom("tasks/result", &id)).await?;
                    let unanswered = self.unanswered(&handle);
                    result = Some((handle, unanswered));
                }
                _ => {}
            }
            if let Some(answer) = self.result_or_rest(result.as_mut().map(|(handle, _)| handle), every).await? {
                if let Some((_, unanswered)) = &mut result {
                    unanswered.id = None;
                }
                unfinished.cancel = None;
                return answer.map_err(Break::Service);
            }
            let now = self.exchange(custom("tasks/get", &id)).await?;
            self.alive();
            let now = serde_json::to_value(&now).unwrap_or_default();
            task = Status::read(&now).ok_or_else(|| Break::Answer("the answer to tasks/get is no task".to_owned()))?;
            every = task.poll.map_or(every, |poll| pause(Some(poll)));
        }
    }

    /// The result, where it comes before the next look is due.
    async fn result_or_rest(
        &mut self,
        result: Option<&mut RequestHandle<RoleClient>>,
        every: Duration,
    ) -> Result<Option<Result<ServerResult, ServiceError>>, Break> {
        let Some(handle) = result else {
            self.rest(every).await?;
            return Ok(None);
        };
        tokio::select! {
            biased;
            answer = &mut handle.rx => Ok(Some(answer.unwrap_or(Err(ServiceError::TransportClosed)))),
            rested = self.rest(every) => rested.map(|()| None),
        }
    }
}

/// A task that still runs. When it is dropped like that, the server is told to stop it.
struct Unfinished {
    peer: Peer<RoleClient>,
    cancel: Option<ClientRequest>,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let (Some(cancel), Ok(runtime)) = (self.cancel.take(), tokio::runtime::Handle::try_current()) else { return };
        let peer = self.peer.clone();
        let _sending = runtime.spawn(async move {
            let sent = tokio::time::timeout(POLLS.1, peer.send_request(cancel)).await;
            if let Ok(Err(error)) = sent {
                tracing::debug!(%error, "a task could not be cancelled");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_servers_word_about_polling_and_lifetime_is_held_within_bounds() {
        assert_eq!((pause(None), pause(Some(0)), pause(Some(u64::MAX))), (POLL, POLLS.0, POLLS.1));
        assert_eq!((lifetime(None), lifetime(Some(5000)), lifetime(Some(u64::MAX))), (LONGEST, Duration::from_secs(5), LONGEST));
    }

    #[test]
    fn a_task_is_read_as_far_as_it_goes_and_its_error_is_kept() {
        let status =
            Status::read(&json!({ "taskId": "1", "status": "working", "statusMessage": "on it", "pollInterval": 10, "ttl": null }))
                .unwrap();
        assert_eq!((status.id.as_str(), status.message.as_deref(), status.poll, status.ttl), ("1", Some("on it"), Some(10), None));
        assert!(Status::read(&json!({ "status": "working" })).is_none());
        assert!(
            matches!(failure(json!({ "code": -5, "message": "no" })), Break::Service(ServiceError::McpError(error)) if error.message == "no" && error.code.0 == -5)
        );
        assert!(matches!(failure(json!({})), Break::Service(ServiceError::McpError(error)) if error.message == "the task failed"));
    }
}
