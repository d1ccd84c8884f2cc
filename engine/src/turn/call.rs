//! From a call that the model wrote to its one result: found, checked, through the gate, run.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::draft::Draft;
use super::plan::Offer;
use super::run::{Feed, Turn};
use super::step::{EVENT_EVERY, RawCall};
use super::{Event, arguments};
use crate::approval::{self, GatedTool, Permit};
use crate::conversation::{CallRecord, CallState};
use crate::store;
use crate::tool::{Call, CallId, CallResult, Content, Control, Error, SchemaHash, ServerId, ToolId, canonical_json};

/// How much longer than its timeout a silent call may take before the loop gives up on the tool itself.
const GRACE: Duration = Duration::from_secs(2);

/// The same call with the same arguments: the second time the model is told, the third time the turn ends.
const NUDGE_AT: usize = 2;
const STOP_AT: usize = 3;

const NUDGE: &str = "(This was the same call with the same arguments as before. Answer with what is known, or call with other arguments.)";

/// The calls of a turn so far, by tool and arguments.
#[derive(Debug, Default)]
pub(super) struct Repeats(HashMap<(String, String), usize>);

impl Repeats {
    fn count(&mut self, alias: &str, arguments: &str) -> usize {
        let count = self.0.entry((alias.to_owned(), arguments.to_owned())).or_default();
        *count += 1;
        *count
    }
}

/// A call that was read, and the tool for it where it may go to the gate.
#[derive(Debug)]
pub(super) struct Proposal {
    pub record: CallRecord,
    tool: Option<Arc<GatedTool>>,
    nudge: bool,
    /// It was made too often: the turn ends.
    pub over: bool,
}

/// Reads a call. What cannot run is failed here, with a reason that the model can read; its server hears nothing.
pub(super) fn read(raw: RawCall, offer: &Offer, repeats: &mut Repeats) -> Proposal {
    let tool = offer.tools.get(&raw.name);
    let parsed = arguments::parse(&raw.arguments);
    let key = parsed.as_ref().map_or_else(|_| raw.arguments.clone(), canonical_json);
    let times = repeats.count(&raw.name, &key);
    let checked = match (tool, &parsed) {
        (None, _) => Err(not_offered(&raw.name, offer)),
        (_, Err(reason)) => Err(reason.clone()),
        (Some(tool), Ok(arguments)) => arguments::check(tool.definition().parameters(), arguments),
    };
    let over = times >= STOP_AT;
    let checked =
        if over { Err(format!("the same call with the same arguments was made {times} times; it was not run again")) } else { checked };
    let identity = tool.map_or_else(|| unknown(&raw.name), |tool| tool.definition().id.clone());
    let call = Call { id: CallId::fresh(), tool: identity, alias: raw.name, arguments: parsed.unwrap_or_else(|_| json!({})) };
    let (state, tool) = match checked {
        Ok(()) => (CallState::Proposed, tool.cloned()),
        Err(reason) => (CallState::Failed { reason }, None),
    };
    Proposal { record: CallRecord { call, state }, tool, nudge: times == NUDGE_AT, over }
}

fn not_offered(name: &str, offer: &Offer) -> String {
    if offer.tools.is_empty() {
        return format!("there is no tool '{name}'; no tools are on offer, so answer without one");
    }
    let names: Vec<&str> = offer.tools.keys().map(String::as_str).collect();
    format!("there is no tool '{name}' on offer; these are: {}", names.join(", "))
}

/// A tool that the model made up belongs to no server.
fn unknown(name: &str) -> ToolId {
    ToolId { server: ServerId::new(""), name: name.to_owned(), schema: SchemaHash::of(&Value::Null) }
}

/// Brings a call through the gate and runs it. Each state is stored before its event is sent, and *sent* before the
/// tool hears of it.
pub(super) async fn settle(turn: &Turn, draft: &Draft, proposal: &Proposal, mut feed: Feed) -> Result<(), store::Error> {
    let Some(tool) = &proposal.tool else { return Ok(()) };
    let call = &proposal.record.call;
    let permit = match admit(turn, call, tool, &mut feed).await {
        Ok(permit) => permit,
        Err(error) => {
            let state = match error {
                approval::Error::Denied { by } => CallState::Denied { by },
                approval::Error::Cancelled => CallState::Stopped,
                approval::Error::NotPending(_) | approval::Error::Store(_) => CallState::Failed { reason: error.to_string() },
            };
            return advance(draft, call, state, &mut feed).await;
        }
    };
    let by = permit.by().to_owned();
    advance(draft, call, CallState::Approved { by: by.clone() }, &mut feed).await?;
    advance(draft, call, CallState::Sent { by: by.clone() }, &mut feed).await?;
    let begun = Instant::now();
    let outcome = run(turn, tool, permit, &mut feed).await;
    let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    let words = match &outcome {
        Ok(result) if result.is_error => "the tool reported an error".to_owned(),
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    };
    if let Err(error) = turn.runner.gate.ended(call, turn.conversation, &words, milliseconds) {
        tracing::error!(%error, call = %call.id, "the ledger could not be written");
    }
    let state = match outcome {
        Ok(result) => CallState::Done { by, result: nudged(result.bounded(), proposal.nudge), milliseconds },
        Err(Error::Cancelled) => CallState::Stopped,
        Err(error) => CallState::Failed { reason: error.to_string() },
    };
    advance(draft, call, state, &mut feed).await
}

fn nudged(mut result: CallResult, nudge: bool) -> CallResult {
    if nudge {
        if result.content.is_empty() {
            result.content.extend(result.structured.as_ref().map(|value| Content::Text { text: value.to_string() }));
        }
        result.content.push(Content::Text { text: NUDGE.to_owned() });
    }
    result
}

async fn advance(draft: &Draft, call: &Call, state: CallState, feed: &mut Feed) -> Result<(), store::Error> {
    if let Some(record) = draft.move_call(&call.id, state)? {
        feed.send(Event::ToolCall { message: draft.id(), record }).await;
    }
    Ok(())
}

/// Waits at the gate, and says so where the person is asked.
async fn admit(turn: &Turn, call: &Call, tool: &Arc<GatedTool>, feed: &mut Feed) -> Result<Permit, approval::Error> {
    let gate = &turn.runner.gate;
    let mut events = gate.subscribe();
    let admitted = gate.admit(call, tool.definition(), turn.conversation, &turn.cancel);
    tokio::pin!(admitted);
    let mut asked = false;
    loop {
        let why = tokio::select! {
            biased;
            event = events.recv(), if !asked => match event {
                Ok(approval::Event::Asked(request)) => (request.call.id == call.id).then_some(request.why),
                Ok(approval::Event::Decided { .. }) => None,
                // Too many events at once: what waits is known to the gate.
                Err(RecvError::Lagged(_) | RecvError::Closed) => {
                    gate.pending().into_iter().find(|request| request.call.id == call.id).map(|request| request.why)
                }
            },
            permit = &mut admitted => return permit,
        };
        if let Some(why) = why {
            asked = true;
            feed.send(Event::Approval { call: call.id.clone(), why }).await;
        }
    }
}

/// Runs the call. Dropping this cancels it.
async fn run(turn: &Turn, tool: &Arc<GatedTool>, permit: Permit, feed: &mut Feed) -> Result<CallResult, Error> {
    let id = permit.call().id.clone();
    let timeout = Duration::from_secs(turn.runner.settings.tool_timeout_seconds.max(1));
    let (progress, mut reports) = mpsc::unbounded_channel();
    let cancel = turn.cancel.child_token();
    let _stop = cancel.clone().drop_guard();
    let server = tool.definition().id.server.clone();
    let broken = |_| Err(Error::Protocol { server: server.clone(), message: "the call broke down inside Handrail".to_owned() });
    // A fault in one tool must not take the turn with it. Nothing of the tool is used afterwards.
    let mut running = AssertUnwindSafe(tool.call(permit, Control { cancel, timeout, progress: Some(progress) })).catch_unwind();
    let (mut deadline, mut shown) = (Instant::now() + timeout + GRACE, None::<Instant>);
    loop {
        tokio::select! {
            biased;
            result = &mut running => return result.unwrap_or_else(broken),
            Some(report) = reports.recv() => {
                deadline = Instant::now() + timeout + GRACE;
                if shown.is_none_or(|shown| shown.elapsed() >= EVENT_EVERY) {
                    shown = Some(Instant::now());
                    let (done, total, message) = (report.done, report.total, report.message);
                    feed.send(Event::ToolProgress { call: id.clone(), done, total, message }).await;
                }
            }
            () = tokio::time::sleep_until(deadline), if !tool.keeps_time() => return Err(Error::Timeout(timeout)),
        }
    }
}
