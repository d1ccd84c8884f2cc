//! The gate: asks [`super::decide`], waits for the person where it says ask, and mints the permit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use tokio::sync::{broadcast, oneshot};
use tokio_util::sync::CancellationToken;

use super::permit::Seal;
use super::{Decision, Error, Event, Known, Permit, Request, Verdict, decide};
use crate::conversation::ConversationId;
use crate::store::{Effect, Recorded, Scope, Store, Subject};
use crate::tool::{Call, CallId, Definition, ServerId, ToolId};

/// Events that a slow receiver may still take; one that falls behind reads [`Gate::pending`].
const EVENTS: usize = 256;
/// Why a waiting call is denied whose server now stands for something else.
const MOVED: &str = "the command or address of its server changed, or it was removed, while the call waited";

/// The gate; cheap to clone, one per engine.
#[derive(Clone, Debug)]
pub struct Gate {
    inner: Arc<Inner>,
    asked_by: Arc<str>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    events: broadcast::Sender<Event>,
    pending: Mutex<Vec<Waiting>>,
}

/// A call that waits, and the way back to it.
#[derive(Debug)]
struct Waiting {
    request: Request,
    /// What the server stood for when the call was asked for.
    transport: String,
    seal: Seal,
    asked_by: Arc<str>,
    answer: oneshot::Sender<Answer>,
}

#[derive(Debug)]
struct Answer {
    allowed: bool,
    by: String,
    transport: String,
    seal: Seal,
}

impl Gate {
    /// A gate over the stored approvals.
    #[must_use]
    pub fn new(store: Store) -> Self {
        let inner = Inner { store, events: broadcast::channel(EVENTS).0, pending: Mutex::default() };
        Self { inner: Arc::new(inner), asked_by: "unnamed".into() }
    }

    /// The same gate, for someone whose name goes into the ledger: a model's id, the command line.
    #[must_use]
    pub fn on_behalf_of(&self, asked_by: &str) -> Self {
        Self { inner: Arc::clone(&self.inner), asked_by: asked_by.into() }
    }

    /// The gate's events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.inner.events.subscribe()
    }

    /// The calls that wait, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Request> {
        self.inner.lock().iter().map(|waiting| waiting.request.clone()).collect()
    }

    /// Answers a waiting call, from any thread. A rule is stored before the call is let go; when it cannot be stored
    /// the call keeps waiting. Other waiting calls that the new rule allows are let go with it. A call whose server
    /// meanwhile stands for another command or address cannot be allowed any more.
    pub fn decide(&self, call: &CallId, decision: Decision) -> Result<(), Error> {
        let mut pending = self.inner.lock();
        let position = pending.iter().position(|waiting| waiting.request.call.id == *call && !waiting.answer.is_closed());
        let position = position.ok_or_else(|| Error::NotPending(call.clone()))?;
        let Waiting { request, transport, asked_by, .. } = &pending[position];
        if decision != Decision::Deny && self.inner.store.server_transport(&request.call.tool.server) != *transport {
            let waiting = pending.remove(position);
            self.inner.withdraw(waiting, MOVED);
            return Err(Error::Denied { by: MOVED.to_owned() });
        }
        self.inner.store_rule(request, transport, decision)?;
        let allowed = decision != Decision::Deny;
        let by = words(decision);
        self.inner.record(asked_by, request.conversation, &request.call, Recorded::Decided { allowed, by: by.to_owned() })?;
        let waiting = pending.remove(position);
        self.inner.release(waiting, allowed, by.to_owned());
        if allowed && decision != Decision::AllowOnce {
            self.inner.release_allowed(&mut pending);
        }
        Ok(())
    }

    /// Waits until the call may run. Returns at once where a rule decides. There is no time limit: a person may take
    /// as long as they like. Dropping the future takes the call back.
    pub async fn admit(
        &self,
        call: &Call,
        definition: &Arc<Definition>,
        conversation: ConversationId,
        cancel: &CancellationToken,
    ) -> Result<Permit, Error> {
        if call.tool != definition.id {
            return Err(Error::Denied { by: "the call is not for the tool that was shown".to_owned() });
        }
        let transport = self.inner.store.server_transport(&call.tool.server);
        let seal = Seal::of(call, &transport);
        let known = self.inner.known(&call.tool, &transport, conversation)?;
        let (allowed, by) = match decide(&known) {
            Verdict::Allow { by } => {
                if known.server && !known.tool {
                    let seen = Subject::Tool(call.tool.clone());
                    self.inner.store.put_approval_under(&transport, Scope::Always, &seen, Effect::Seen, None)?;
                }
                (true, by)
            }
            Verdict::Deny { by } => (false, by),
            Verdict::Ask { why } => {
                let request =
                    Request { call: call.clone(), conversation, definition: Arc::clone(definition), why, asked_at: Timestamp::now() };
                return conclude(call, self.ask(request, transport, cancel).await?);
            }
        };
        self.inner.record(&self.asked_by, conversation, call, Recorded::Decided { allowed, by: by.clone() })?;
        self.inner.emit(Event::Decided { call: call.id.clone(), allowed, by: by.clone() });
        conclude(call, Answer { allowed, by, transport, seal })
    }

    /// Writes down what became of a call that had a permit.
    pub fn ended(&self, call: &Call, conversation: ConversationId, outcome: &str, milliseconds: u64) -> Result<(), Error> {
        let recorded = Recorded::Ended { outcome: outcome.to_owned(), milliseconds };
        self.inner.record(&self.asked_by, conversation, call, recorded)
    }

    /// Ends the waiting calls of a conversation that is being deleted: they are denied.
    pub fn forget(&self, conversation: ConversationId) {
        let gone: Vec<Waiting> = self.inner.lock().extract_if(.., |waiting| waiting.request.conversation == conversation).collect();
        for waiting in gone {
            self.inner.withdraw(waiting, "the conversation was deleted");
        }
    }

    /// Takes back everything that was allowed for a server, because its command or its address changed.
    pub fn forget_server(&self, server: &ServerId) -> Result<(), Error> {
        Ok(self.inner.store.forget_server_approvals(server)?)
    }

    async fn ask(&self, request: Request, transport: String, cancel: &CancellationToken) -> Result<Answer, Error> {
        let (answer, answered) = oneshot::channel();
        let Call { id, tool, .. } = request.call.clone();
        let seal = Seal::of(&request.call, &transport);
        let asked_by = Arc::clone(&self.asked_by);
        self.inner.lock().push(Waiting { request: request.clone(), transport: transport.clone(), seal, asked_by, answer });
        let mut pending = Pending { inner: &self.inner, call: &id, undecided: "stopped before anyone decided" };
        self.inner.emit(Event::Asked(request));
        tokio::select! {
            biased;
            answer = answered => answer.map_err(|_| Error::Denied { by: "the gate is gone".to_owned() }),
            () = cancel.cancelled() => Err(Error::Cancelled),
            () = self.inner.store.server_transport_left(&tool.server, &transport) => {
                pending.undecided = MOVED;
                Err(Error::Denied { by: MOVED.to_owned() })
            }
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Vec<Waiting>> {
        // Nothing that holds this lock leaves the list half changed.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn emit(&self, event: Event) {
        // Nobody may be listening.
        let _ = self.events.send(event);
    }

    fn known(&self, tool: &ToolId, transport: &str, conversation: ConversationId) -> Result<Known, Error> {
        Ok(Known::of(&self.store.approvals_for(&tool.server, conversation)?, tool, transport))
    }

    fn record(&self, asked_by: &str, conversation: ConversationId, call: &Call, recorded: Recorded) -> Result<(), Error> {
        Ok(self.store.append_ledger(asked_by, conversation, call, recorded)?)
    }

    fn store_rule(&self, request: &Request, transport: &str, decision: Decision) -> Result<(), Error> {
        let tool = &request.call.tool;
        let (scope, subject, accepts) = match decision {
            Decision::Deny | Decision::AllowOnce => return Ok(()),
            // Elsewhere the change of a tool is still to be noticed.
            Decision::AllowInConversation => (Scope::Conversation(request.conversation), Subject::Tool(tool.clone()), None),
            Decision::AlwaysTool => (Scope::Always, Subject::Tool(tool.clone()), Some(tool)),
            Decision::AlwaysServer => (Scope::Always, Subject::Server(tool.server.clone()), Some(tool)),
        };
        // Under what the person was asked about, even where the server changes in this very moment.
        self.store.put_approval_under(transport, scope, &subject, Effect::Allow, accepts)?;
        if decision == Decision::AlwaysServer {
            self.store.put_approval_under(transport, Scope::Always, &Subject::Tool(tool.clone()), Effect::Seen, None)?;
        }
        Ok(())
    }

    fn release(&self, waiting: Waiting, allowed: bool, by: String) {
        let call = waiting.request.call.id;
        self.emit(Event::Decided { call, allowed, by: by.clone() });
        // The waiting future may be gone in this very moment; then nothing runs.
        let _ = waiting.answer.send(Answer { allowed, by, transport: waiting.transport, seal: waiting.seal });
    }

    /// Lets waiting calls go that a rule allows by now. What cannot be read or recorded keeps waiting.
    fn release_allowed(&self, pending: &mut Vec<Waiting>) {
        let mut position = 0;
        while position < pending.len() {
            let waiting = &pending[position];
            let request = &waiting.request;
            let verdict = self.known(&request.call.tool, &waiting.transport, request.conversation).map(|known| decide(&known));
            if let Ok(Verdict::Allow { by }) = verdict
                && self
                    .record(&waiting.asked_by, request.conversation, &request.call, Recorded::Decided { allowed: true, by: by.clone() })
                    .is_ok()
            {
                let waiting = pending.remove(position);
                self.release(waiting, true, by);
            } else {
                position += 1;
            }
        }
    }

    /// Denies a call that nobody decided about.
    fn withdraw(&self, waiting: Waiting, by: &str) {
        let request = &waiting.request;
        let recorded = Recorded::Decided { allowed: false, by: by.to_owned() };
        if let Err(error) = self.record(&waiting.asked_by, request.conversation, &request.call, recorded) {
            tracing::error!(%error, call = %request.call.id, "the ledger could not be written");
        }
        self.release(waiting, false, by.to_owned());
    }
}

/// Takes a call out of the list when its future ends undecided: cancelled or dropped.
struct Pending<'a> {
    inner: &'a Inner,
    call: &'a CallId,
    /// Why nobody decided.
    undecided: &'static str,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut pending = self.inner.lock();
            pending.iter().position(|waiting| waiting.request.call.id == *self.call).map(|position| pending.remove(position))
        };
        if let Some(waiting) = waiting {
            self.inner.withdraw(waiting, self.undecided);
        }
    }
}

fn conclude(call: &Call, answer: Answer) -> Result<Permit, Error> {
    if !answer.allowed {
        return Err(Error::Denied { by: answer.by });
    }
    Permit::mint(call.clone(), answer.transport, answer.by, answer.seal).map_err(|error| Error::Denied { by: error.to_string() })
}

fn words(decision: Decision) -> &'static str {
    match decision {
        Decision::Deny => "you denied it",
        Decision::AllowOnce => "you allowed it once",
        Decision::AllowInConversation => "you allowed this tool in this conversation",
        Decision::AlwaysTool => "you always allow this tool",
        Decision::AlwaysServer => "you always allow this server",
    }
}
