//! One piece of work at a server, from the first request to the last answer: bounded in time, watched, stopped. It may
//! take several requests: a server may ask for input in the middle (multi-round-trip), or make a task of it.

use std::time::Duration;

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CancelledNotification, CancelledNotificationParam, ClientRequest, CustomRequest, ErrorData,
    GetPromptRequest, GetPromptRequestParams, InputRequests, InputResponses, ProgressNotificationParam, ReadResourceRequest,
    ReadResourceRequestParams, RequestId, RequestMetaObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, ServiceError};
use rmcp::{Peer, RoleClient};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::super::Era;
use super::call::Link;
use super::running::{Asking, Ticket};
use crate::tool::{self, CallId, Control};

/// Progress extends a call's timeout, but never beyond this many timeouts (fixed).
const MOST_TIMEOUTS: u32 = 10;
/// How long a stopped call waits for its `notifications/cancelled` to be on the way.
const CANCEL_SENT: Duration = Duration::from_millis(50);
/// Most rounds of input that a server may ask for (fixed).
const ROUNDS: usize = 10;
/// Most requests for input in one answer (fixed).
const INPUTS: usize = 16;
/// Pause before a request is repeated whose answer asked for nothing: doubles, up to the longest.
const REPEAT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(1));

/// What is wanted from the server; the same again in each round.
#[derive(Clone, Debug)]
pub(super) enum Want {
    Tool { name: String, arguments: Map<String, Value>, as_task: bool },
    Prompt { name: String, arguments: Map<String, Value> },
    Resource { uri: String },
}

impl Want {
    fn request(&self, responses: Option<InputResponses>, state: Option<String>) -> ClientRequest {
        match self.clone() {
            Self::Tool { name, arguments, as_task: true } => {
                // The types know no task of the older revision.
                let params = json!({ "name": name, "arguments": arguments, "task": {} });
                ClientRequest::CustomRequest(CustomRequest::new("tools/call", Some(params)))
            }
            Self::Tool { name, arguments, as_task: false } => {
                let mut params = CallToolRequestParams::new(name).with_arguments(arguments);
                (params.input_responses, params.request_state) = (responses, state);
                ClientRequest::CallToolRequest(CallToolRequest::new(params))
            }
            Self::Prompt { name, arguments } => {
                let mut params = GetPromptRequestParams::new(name);
                params.arguments = (!arguments.is_empty()).then_some(arguments);
                (params.input_responses, params.request_state) = (responses, state);
                ClientRequest::GetPromptRequest(GetPromptRequest::new(params))
            }
            Self::Resource { uri } => {
                let mut params = ReadResourceRequestParams::new(uri);
                (params.input_responses, params.request_state) = (responses, state);
                ClientRequest::ReadResourceRequest(ReadResourceRequest::new(params))
            }
        }
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Break {
    Stopped,
    Late,
    /// The server asked for what cannot be given.
    Input(String),
    /// The server's answer makes no sense.
    Answer(String),
    Service(ServiceError),
}

/// A run.
pub(super) struct Run<'a> {
    pub(super) link: &'a Link,
    pub(super) stop: CancellationToken,
    ticket: Ticket,
    watcher: Watcher,
    timeout: Duration,
    quiet_until: Instant,
    end: Instant,
    paused_since: Option<Instant>,
}

impl<'a> Run<'a> {
    /// Begins; what is no call of a tool has no name and is not shown among the running calls.
    pub(super) fn new(link: &'a Link, control: &Control, timeout: Duration, call: Option<(&str, &CallId)>) -> Self {
        let (now, stop) = (Instant::now(), control.cancel.child_token());
        let ticket = link.running.enter(call, stop.clone());
        let watcher = Watcher { to: control.progress.clone(), last: None };
        Self { link, stop, ticket, watcher, timeout, quiet_until: now + timeout, end: now + timeout * MOST_TIMEOUTS, paused_since: None }
    }

    /// Asks until the answer asks for nothing more.
    pub(super) async fn rounds(&mut self, want: &Want) -> Result<ServerResult, Break> {
        let (mut responses, mut state, mut pause) = (None, None, REPEAT.0);
        for round in 0..=ROUNDS {
            match self.exchange(want.request(responses.take(), state.take())).await? {
                // What the last round asks for would be answered for nothing.
                ServerResult::InputRequiredResult(_) if round == ROUNDS => break,
                ServerResult::InputRequiredResult(required) => {
                    self.alive();
                    state = required.request_state;
                    match required.input_requests.filter(|requests| !requests.is_empty()) {
                        Some(requests) => responses = Some(self.supply(requests).await?),
                        None => {
                            self.rest(pause).await?;
                            pause = (pause * 2).min(REPEAT.1);
                        }
                    }
                }
                answer => return Ok(answer),
            }
        }
        Err(Break::Input(format!("the server asked for input more than {ROUNDS} times")))
    }

    /// Answers what the server asks for, all at once. A person may take their time: the clock stands still.
    pub(super) async fn supply(&mut self, requests: InputRequests) -> Result<InputResponses, Break> {
        if requests.len() > INPUTS {
            return Err(Break::Input(format!("the server asks {} things at once, more than {INPUTS}", requests.len())));
        }
        let since = Instant::now();
        let answers = requests.into_iter().map(|(key, request)| {
            let asking = self.asks();
            async {
                let answer = self.link.asker.input(request, asking, &self.stop).await;
                answer.map(|answer| (key, answer))
            }
        });
        let answers: Result<Vec<(String, Value)>, ErrorData> = futures::future::try_join_all(answers).await;
        if self.stop.is_cancelled() {
            return Err(Break::Stopped);
        }
        if self.link.asker.over.is_cancelled() {
            return Err(Break::Service(ServiceError::TransportClosed));
        }
        self.stood_still(since);
        let answers = answers.map_err(|error| Break::Input(format!("the server asks for input that is not given: {}", error.message)))?;
        Ok(answers.into_iter().collect())
    }

    pub(super) fn asks(&self) -> Asking {
        self.ticket.asks()
    }

    /// The time since then does not count.
    pub(super) fn stood_still(&mut self, since: Instant) {
        self.quiet_until += since.elapsed();
        self.end += since.elapsed();
    }

    /// The server showed that it is alive.
    pub(super) fn alive(&mut self) {
        self.quiet_until = Instant::now() + self.timeout;
    }

    /// The work may take so long from now on, whatever the call's own timeout says.
    pub(super) fn allow(&mut self, longest: Duration) {
        self.end = self.end.max(Instant::now() + longest);
    }

    /// Waits between two requests.
    pub(super) async fn rest(&mut self, pause: Duration) -> Result<(), Break> {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Break::Stopped),
            () = tokio::time::sleep(pause) => if Instant::now() > self.end { Err(Break::Late) } else { Ok(()) },
        }
    }

    pub(super) fn tell(&mut self, message: Option<String>) {
        let progress = self.watcher.words(message);
        self.show(progress);
    }

    fn show(&self, progress: Option<tool::Progress>) {
        if let Some(progress) = progress {
            self.ticket.progress(&progress);
            if let Some(to) = &self.watcher.to {
                let _ = to.send(progress);
            }
        }
    }

    /// One request and its answer. Dropping the future cancels it at the server, as Stop does.
    pub(super) async fn exchange(&mut self, request: ClientRequest) -> Result<ServerResult, Break> {
        let mut handle = self.send(request).await?;
        let mut unanswered = self.unanswered(&handle);
        let answer = self.answer(&mut handle).await;
        match &answer {
            Err(Break::Stopped) => unanswered.cancel("stopped by the person").await,
            Err(Break::Late) => unanswered.cancel("no answer in time").await,
            _ => unanswered.id = None,
        }
        answer
    }

    pub(super) fn unanswered(&self, handle: &RequestHandle<RoleClient>) -> Unanswered {
        Unanswered { peer: self.link.peer.clone(), id: Some(handle.id.clone()) }
    }

    pub(super) async fn send(&mut self, request: ClientRequest) -> Result<RequestHandle<RoleClient>, Break> {
        // No timeout: the waits below know about progress, Stop, the person and the hard end together.
        let options = self.link.options();
        tokio::select! {
            biased;
            () = self.stop.cancelled() => Err(Break::Stopped),
            sent = self.link.peer.send_request_with_option(request, options) => sent.map_err(Break::Service),
            () = sleep_until(self.quiet_until.min(self.end)) => Err(Break::Late),
        }
    }

    pub(super) async fn answer(&mut self, handle: &mut RequestHandle<RoleClient>) -> Result<ServerResult, Break> {
        self.ticket.waits_for(&handle.id);
        let mut route = self.link.progress.follow(handle.progress_token.clone());
        loop {
            tokio::select! {
                biased;
                answer = &mut handle.rx => {
                    // Progress that came before the answer is still shown.
                    while let Ok(progress) = route.notifications.try_recv() {
                        let progress = self.watcher.step(progress);
                        self.show(progress);
                    }
                    return answer.unwrap_or(Err(ServiceError::TransportClosed)).map_err(Break::Service);
                }
                () = self.stop.cancelled() => return Err(Break::Stopped),
                Some(progress) = route.notifications.recv() => {
                    self.alive();
                    let progress = self.watcher.step(progress);
                    self.show(progress);
                }
                Ok(()) = self.ticket.paused.changed() => self.pause(),
                () = sleep_until(self.quiet_until.min(self.end)), if self.paused_since.is_none() => return Err(Break::Late),
            }
        }
    }

    /// The clock stands still while a question of this run waits for the person.
    fn pause(&mut self) {
        let asked = *self.ticket.paused.borrow_and_update() > 0;
        match (asked, self.paused_since) {
            (true, None) => self.paused_since = Some(Instant::now()),
            (false, Some(since)) => {
                self.paused_since = None;
                self.stood_still(since);
            }
            _ => {}
        }
    }
}

impl Link {
    /// What goes with each request.
    pub(super) fn options(&self) -> PeerRequestOptions {
        let options = PeerRequestOptions::no_options();
        match self.wanted_level() {
            // In the stateless era the level goes with each request.
            Some(level) if self.era == Era::Modern => {
                let mut meta = RequestMetaObject::new();
                meta.set_log_level(level);
                options.with_meta(meta)
            }
            _ => options,
        }
    }
}

/// Brings progress into order, never backwards: notifications arrive out of order.
struct Watcher {
    to: Option<mpsc::UnboundedSender<tool::Progress>>,
    last: Option<tool::Progress>,
}

impl Watcher {
    fn step(&mut self, progress: ProgressNotificationParam) -> Option<tool::Progress> {
        let further = self.last.as_ref().is_none_or(|last| progress.progress > last.done);
        if !further || !progress.progress.is_finite() {
            return None;
        }
        self.last = Some(tool::Progress { done: progress.progress, total: progress.total, message: progress.message });
        self.last.clone()
    }

    /// The server's words alone, such as a task's status.
    fn words(&mut self, message: Option<String>) -> Option<tool::Progress> {
        let message = message?;
        let last = self.last.get_or_insert(tool::Progress { done: 0.0, total: None, message: None });
        if last.message.as_ref() == Some(&message) {
            return None;
        }
        last.message = Some(message);
        Some(last.clone())
    }
}

/// A request whose answer nobody has yet. When it is dropped like that, the server is told to stop.
pub(super) struct Unanswered {
    peer: Peer<RoleClient>,
    pub(super) id: Option<RequestId>,
}

impl Unanswered {
    pub(super) async fn cancel(&mut self, reason: &'static str) {
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

#[cfg(test)]
mod tests {
    use rmcp::model::{NumberOrString, ProgressToken};

    use super::*;

    #[test]
    fn progress_never_goes_backwards_and_words_alone_keep_the_number() {
        let mut watcher = Watcher { to: None, last: None };
        let mut step = |done: f64| {
            let token = ProgressToken(NumberOrString::Number(1));
            watcher.step(ProgressNotificationParam::new(token, done)).map(|progress| progress.done)
        };
        let told: Vec<_> = [1.0, 3.0, 2.0, 3.0, f64::NAN, 4.0].into_iter().map(&mut step).collect();
        assert_eq!(told, [Some(1.0), Some(3.0), None, None, None, Some(4.0)]);
        let words = watcher.words(Some("half".to_owned())).unwrap();
        assert_eq!((words.done, words.message.as_deref()), (4.0, Some("half")));
        assert_eq!(watcher.words(Some("half".to_owned())), None, "said already");
        assert_eq!(watcher.words(None), None);
    }

    #[test]
    fn a_retry_is_the_same_request_with_the_answers_beside_it() {
        let want = Want::Tool { name: "t".to_owned(), arguments: Map::from_iter([("a".to_owned(), json!(1))]), as_task: false };
        let responses = InputResponses::from([("k".to_owned(), json!({ "action": "decline" }))]);
        let sent = serde_json::to_value(want.request(Some(responses), Some("state".to_owned()))).unwrap();
        assert_eq!(
            sent["params"],
            json!({ "name": "t", "arguments": { "a": 1 }, "inputResponses": { "k": { "action": "decline" } }, "requestState": "state" })
        );
        let Want::Tool { name, arguments, .. } = want else { panic!() };
        let task = Want::Tool { name, arguments, as_task: true }.request(None, None);
        assert_eq!(
            serde_json::to_value(task).unwrap(),
            json!({ "method": "tools/call", "params": { "name": "t", "arguments": { "a": 1 }, "task": {} } })
        );
    }
}
