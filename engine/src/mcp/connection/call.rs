//! One call of a tool on a live connection.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ErrorCode, ServerResult};
use rmcp::service::ServiceError;
use rmcp::{Peer, RoleClient};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::super::Era;
use super::super::process::{Exit, ended_within};
use super::super::question::Answer;
use super::ask::Asker;
use super::changes::Changes;
use super::content::{call_result, raw_result};
use super::handler::Progress;
use super::host::Told;
use super::list::list;
use super::offer::Level;
use super::reason::{MORE_RIGHTS, explain, explain_sign_in, unreachable};
use super::run::{Break, Run, Want};
use super::running::Running;
use super::trace::{TaskSupport, Wire};
use crate::tool::numbers::first_wide;
use crate::tool::schema::{Checker, Wrong};
use crate::tool::{self, CallId, CallResult, Content, Control, Definition, SchemaHash, ServerId};

/// How long a broken call waits for the exit code that explains it.
const EXIT_SEEN: Duration = Duration::from_millis(60);
/// The headers of a request did not match the tool's schema: our list is out of date (2026-07-28).
const HEADER_MISMATCH: ErrorCode = ErrorCode(-32020);
/// Pages must be opened before the call can be made (up to 2025-11-25).
const PAGES_REQUIRED: ErrorCode = ErrorCode(-32042);
/// Most pages that one call may ask to open (fixed).
const PAGES: usize = 8;
/// Output schemas that are kept ready (fixed).
const CHECKERS: usize = 256;
/// The only revision whose tools run as tasks in the older way.
const OLDER_TASKS: &str = "2025-11-25";

/// A live connection, as calls see it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) server: ServerId,
    pub(super) peer: Peer<RoleClient>,
    pub(super) progress: Arc<Progress>,
    pub(super) tools_changed: Arc<Notify>,
    /// How the process ended, for stdio servers.
    pub(super) exit: Option<watch::Receiver<Option<Exit>>>,
    pub(super) era: Era,
    pub(super) protocol: Option<String>,
    pub(super) asker: Arc<Asker>,
    pub(super) running: Arc<Running>,
    pub(super) changes: Arc<Changes>,
    pub(super) wire: Arc<Wire>,
    pub(super) level: Arc<Level>,
    pub(super) checkers: Arc<Checkers>,
}

/// Output schemas, ready to check results.
#[derive(Debug, Default)]
pub(super) struct Checkers(Mutex<HashMap<SchemaHash, Arc<Result<Checker, String>>>>);

/// What a check came to.
enum Unchecked {
    Unfit(String),
    /// There is no verdict.
    Unusable(String),
}

impl Checkers {
    fn check(&self, hash: SchemaHash, schema: &Value, value: &Value) -> Result<(), Unchecked> {
        let checker = self.get(hash, schema);
        let checker = checker.as_ref().as_ref().map_err(|reason| Unchecked::Unusable(reason.clone()))?;
        checker.check(value).map_err(|wrong| match wrong {
            Wrong::Unfit(reason) => Unchecked::Unfit(reason),
            Wrong::TooMuch => Unchecked::Unusable("checking this result would take too long".to_owned()),
        })
    }

    fn get(&self, hash: SchemaHash, schema: &Value) -> Arc<Result<Checker, String>> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&hash) {
            return known.clone();
        }
        let made = Arc::new(Checker::new(schema, false));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() == CHECKERS {
            known.clear();
        }
        let _ = known.insert(hash, made.clone());
        made
    }
}

/// A call without a result.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: tool::Error,
    /// Why the connection itself looks lost, when it does.
    pub(super) lost: Option<String>,
    pub(super) asks: Option<Box<Asks>>,
}

/// The server wants somebody to sign in, or to allow more.
#[derive(Debug)]
pub(super) struct Asks {
    /// Its challenge.
    pub(super) said: String,
    /// Why nothing goes on before that; none where only this request needs more.
    pub(super) reason: Option<String>,
}

impl From<tool::Error> for Failed {
    fn from(error: tool::Error) -> Self {
        Self { error, lost: None, asks: None }
    }
}

/// What was done once already because of an error, and is not done again.
#[derive(Default)]
struct Tried {
    listing: bool,
    pages: bool,
}

impl Link {
    /// Runs a call. Dropping the future cancels it at the server, as `control.cancel` does.
    pub(super) async fn call(
        &self,
        tool: &Definition,
        call: &CallId,
        arguments: Map<String, Value>,
        control: &Control,
        timeout: Duration,
    ) -> Result<CallResult, Failed> {
        let mut run = Run::new(self, control, timeout, Some((&tool.id.name, call)));
        // Where a task is only possible, the plain call is the quicker one.
        let required = self.wire.task_support(&tool.id.name) == Some(TaskSupport::Required);
        let mut as_task = self.era == Era::Legacy && required && self.wire.runs_tasks();
        let mut tried = Tried::default();
        let mut want = Want::Tool { name: tool.id.name.clone(), arguments, as_task };
        loop {
            if let Want::Tool { as_task: how, .. } = &mut want {
                *how = as_task;
            }
            let broken = match run.rounds(&want).await {
                Ok(result) if !as_task && self.may_need_a_task() && wants_a_task(&result) => {
                    as_task = true;
                    continue;
                }
                Ok(result) => match run.finish(result, as_task).await {
                    Ok(result) => return self.understand(result, tool).await,
                    Err(broken) => broken,
                },
                Err(broken) => broken,
            };
            let Break::Service(ServiceError::McpError(error)) = &broken else {
                return Err(self.failed(broken, timeout).await);
            };
            if error.code == HEADER_MISMATCH && !tried.listing {
                tried.listing = true;
                self.list_again(tool).await?;
            } else if error.code == PAGES_REQUIRED && !tried.pages {
                tried.pages = true;
                self.open_pages(&mut run, error.data.as_ref(), timeout).await?;
            } else if error.code == ErrorCode::METHOD_NOT_FOUND && !as_task && self.may_need_a_task() {
                // Over HTTP nothing tells beforehand that a tool runs only as a task.
                as_task = true;
            } else {
                return Err(self.failed(broken, timeout).await);
            }
        }
    }

    fn may_need_a_task(&self) -> bool {
        self.era == Era::Legacy && self.protocol.as_deref() == Some(OLDER_TASKS)
    }

    /// The list is out of date; where the tool is another by now, the permit does not hold.
    async fn list_again(&self, tool: &Definition) -> Result<(), Failed> {
        let listing = list(&self.server, &self.peer).await;
        self.tools_changed.notify_one();
        let listing = listing.map_err(|reason| self.protocol_error(format!("its tools had to be listed again: {reason}")))?;
        if listing.tools.iter().any(|listed| listed.id == tool.id) {
            return Ok(());
        }
        Err(tool::Error::Permit(format!("the server changed the tool {} since it was shown", tool.id)).into())
    }

    /// Pages must be opened first; the call is made again when the person did so.
    async fn open_pages(&self, run: &mut Run<'_>, data: Option<&Value>, timeout: Duration) -> Result<(), Failed> {
        let pages = data.and_then(|data| data.get("elicitations")).and_then(Value::as_array);
        let pages = pages.filter(|pages| !pages.is_empty() && pages.len() <= PAGES);
        let Some(pages) = pages else {
            return Err(self.protocol_error("it wants a page to be opened, but does not say which".to_owned()).into());
        };
        let since = Instant::now();
        for page in pages {
            let text = |key: &str| page.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let id = text("elicitationId");
            let told = self.asker.page(text("message"), text("url"), id.clone(), run.asks(), &run.stop).await;
            if run.stop.is_cancelled() {
                return Err(tool::Error::Cancelled.into());
            }
            if self.asker.over.is_cancelled() {
                return Err(self.broken(&ServiceError::TransportClosed).await);
            }
            match told.map_err(|error| self.protocol_error(format!("it wants a page to be opened: {}", error.message)))? {
                Told::Happened => {}
                Told::Answer(Answer::Accept(_)) => {
                    // Opened is not done. Where the server says when it is, that is waited for; it need not say it.
                    let done = async { if id.is_empty() { std::future::ready(()).await } else { self.asker.until_happened(&id).await } };
                    tokio::select! {
                        () = done => {}
                        () = tokio::time::sleep(timeout) => {}
                        () = self.asker.over.cancelled() => return Err(self.broken(&ServiceError::TransportClosed).await),
                        () = run.stop.cancelled() => return Err(tool::Error::Cancelled.into()),
                    }
                }
                Told::Answer(Answer::Decline | Answer::Cancel) => {
                    return Err(self.protocol_error("the page that the call needs was not opened".to_owned()).into());
                }
            }
        }
        run.stood_still(since);
        Ok(())
    }

    fn protocol_error(&self, message: String) -> tool::Error {
        tool::Error::Protocol { server: self.server.clone(), message }
    }

    async fn understand(&self, result: ServerResult, tool: &Definition) -> Result<CallResult, Failed> {
        let result = match result {
            ServerResult::CallToolResult(result) => call_result(result),
            // Servers whose tools only have an effect answer with nothing but the marker of the era.
            ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => CallResult::default(),
            other => {
                let raw = serde_json::to_value(&other).unwrap_or_default();
                match raw_result(&raw) {
                    Some(result) => result,
                    None => {
                        let start: String = raw.to_string().chars().take(200).collect();
                        return Err(self.protocol_error(format!("the answer is no tool result: {start}")).into());
                    }
                }
            }
        };
        Ok(self.checked(result, tool).await)
    }

    /// Holds the result against the tool's own output schema. What does not fit still comes, as an error that says why:
    /// whoever reads it must not take it for what the tool promised.
    async fn checked(&self, mut result: CallResult, tool: &Definition) -> CallResult {
        let Some(schema) = tool.structure().filter(|_| !result.is_error) else { return result };
        let reason = match &result.structured {
            None => Err("the tool promises a structured result, but gave none".to_owned()),
            Some(value) => {
                let (checkers, hash, schema, value) = (self.checkers.clone(), tool.id.schema, schema.clone(), value.clone());
                // Some milliseconds at most, but not on a thread that serves others.
                let checking = tokio::task::spawn_blocking(move || match checkers.check(hash, &schema, &value) {
                    // A number that does not fit 64 bits came as a text, which the schema does not know.
                    Err(Unchecked::Unfit(reason)) => {
                        rounded(&value).map_or(Err(Unchecked::Unfit(reason)), |value| checkers.check(hash, &schema, &value))
                    }
                    other => other,
                });
                match checking.await.unwrap_or_else(|error| Err(Unchecked::Unusable(error.to_string()))) {
                    Ok(()) => Ok(()),
                    Err(Unchecked::Unfit(reason)) => Err(reason),
                    Err(Unchecked::Unusable(reason)) => {
                        let tool = &tool.id.name;
                        tracing::warn!(server = %self.server, tool, reason, "an output schema cannot be used; the result is not checked");
                        Ok(())
                    }
                }
            }
        };
        if let Err(reason) = reason {
            let text = format!("The result does not fit the output schema of the tool '{}', so it may be wrong: {reason}", tool.id.name);
            result.content.insert(0, Content::Text { text });
            result.is_error = true;
        }
        result
    }

    pub(super) async fn failed(&self, broken: Break, timeout: Duration) -> Failed {
        match broken {
            Break::Stopped => tool::Error::Cancelled.into(),
            Break::Late => tool::Error::Timeout(timeout).into(),
            Break::Input(message) | Break::Answer(message) => self.protocol_error(message).into(),
            Break::Service(error) => self.broken(&error).await,
        }
    }

    async fn broken(&self, error: &ServiceError) -> Failed {
        let server = self.server.clone();
        if let Some(said) = error.auth_challenge() {
            let all = error.is_authorization_required();
            let reason = if all { explain_sign_in(false) } else { MORE_RIGHTS.to_owned() };
            let asks = Asks { said: said.to_owned(), reason: all.then(|| reason.clone()) };
            return Failed { error: tool::Error::Unavailable { server, reason }, lost: None, asks: Some(Box::new(asks)) };
        }
        match error {
            ServiceError::McpError(error) => tool::Error::Protocol { server, message: error.message.to_string() }.into(),
            ServiceError::Cancelled { .. } => tool::Error::Cancelled.into(),
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                let reason = self.why_closed(error).await;
                // A refused request over HTTP says nothing about the connection; a lost one does.
                let lost = self.exit.is_some() || matches!(error, ServiceError::TransportClosed) || unreachable(error);
                Failed { error: tool::Error::Unavailable { server, reason: reason.clone() }, lost: lost.then_some(reason), asks: None }
            }
            other => tool::Error::Protocol { server, message: explain(other) }.into(),
        }
    }

    async fn why_closed(&self, error: &ServiceError) -> String {
        match &self.exit {
            Some(exit) => match ended_within(exit, EXIT_SEEN).await {
                Some(exit) => format!("its process ended during the call ({exit})"),
                None => "it closed the connection during the call".to_owned(),
            },
            None => explain(error),
        }
    }
}

/// The value with the texts that are numbers of more than 64 bits as the numbers that readers make of them; none where there
/// are none.
fn rounded(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) if first_wide(text) == Some(text) => text.parse::<f64>().ok().map(Value::from),
        Value::Array(items) => {
            let changed: Vec<Option<Value>> = items.iter().map(rounded).collect();
            let any = changed.iter().any(Option::is_some);
            any.then(|| changed.into_iter().zip(items).map(|(changed, item)| changed.unwrap_or_else(|| item.clone())).collect())
        }
        Value::Object(fields) => {
            let changed: Vec<Option<Value>> = fields.values().map(rounded).collect();
            let any = changed.iter().any(Option::is_some);
            let pair =
                |((name, value), changed): ((&String, &Value), Option<Value>)| (name.clone(), changed.unwrap_or_else(|| value.clone()));
            any.then(|| fields.iter().zip(changed).map(pair).collect::<Map<_, _>>().into())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Whether a result is the refusal of a tool that runs only as a task, in the words of the servers that do not send it as
/// an error of the protocol. Nothing ran then.
fn wants_a_task(result: &ServerResult) -> bool {
    let ServerResult::CallToolResult(result) = result else { return false };
    let refused = |text: &str| text.contains("-32601") && text.contains("requires task augmentation");
    result.is_error == Some(true) && result.content.iter().any(|block| block.as_text().is_some_and(|text| refused(&text.text)))
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolResult, ContentBlock};
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_refusal_to_run_without_a_task_counts_as_one() {
        let result = |error: bool, text: &str| {
            let blocks = vec![ContentBlock::text(text)];
            ServerResult::CallToolResult(if error { CallToolResult::error(blocks) } else { CallToolResult::success(blocks) })
        };
        let words = "MCP error -32601: Tool x requires task augmentation (taskSupport: 'required')";
        assert!(wants_a_task(&result(true, words)));
        assert!(!wants_a_task(&result(false, words)) && !wants_a_task(&result(true, "MCP error -32601: no")));
    }

    #[test]
    fn a_wide_number_is_no_reason_to_doubt_a_result() {
        let value = json!({"id": "123456789012345678901234567890", "list": [1, "18446744073709551616"], "name": "12"});
        let schema = json!({"properties": {"id": {"type": "integer"}, "list": {"items": {"type": "number"}}, "name": {"type": "string"}}});
        let rounded = rounded(&value).unwrap();
        assert_eq!((rounded["id"].is_number(), rounded["list"][1].is_number(), &rounded["name"]), (true, true, &json!("12")));
        assert!(Checker::new(&schema, false).unwrap().check(&rounded).is_ok());
        assert_eq!(super::rounded(&json!({"a": ["1", null]})), None);
    }

    #[test]
    fn checkers_are_made_once_and_not_without_end() {
        let checkers = Checkers::default();
        let schema = |n: usize| json!({ "const": n });
        let first = checkers.get(SchemaHash::of(&schema(0)), &schema(0));
        assert!(Arc::ptr_eq(&first, &checkers.get(SchemaHash::of(&schema(0)), &schema(0))));
        for n in 1..CHECKERS * 2 {
            let _ = checkers.get(SchemaHash::of(&schema(n)), &schema(n));
        }
        assert!(checkers.0.lock().unwrap().len() <= CHECKERS);
    }
}
