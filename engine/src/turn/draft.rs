//! The message that is being written: in memory, and in the database before anyone sees it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::approval::Gate;
use crate::conversation::{CallRecord, CallState, ConversationId, Message, MessageId, Part, Role, Status};
use crate::store::{self, Store};
use crate::tool::CallId;

/// A message of the model while it is written. Dropping it before [`Draft::finish`] is Stop: what was written is
/// stored as stopped, with its open calls.
#[derive(Debug)]
pub(super) struct Draft {
    id: MessageId,
    store: Store,
    gate: Gate,
    message: Mutex<Message>,
}

/// What a piece of an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Reasoning,
}

impl Draft {
    /// Begins a message and stores it, before its first word.
    pub(super) fn begin(store: &Store, gate: &Gate, conversation: ConversationId, model: &str) -> Result<Self, store::Error> {
        let mut message = Message::new(conversation, Role::Assistant, Vec::new(), Status::Streaming);
        message.model = Some(model.to_owned());
        store.put_message(&message)?;
        Ok(Self { id: message.id, store: store.clone(), gate: gate.clone(), message: Mutex::new(message) })
    }

    pub(super) fn id(&self) -> MessageId {
        self.id
    }

    pub(super) fn text(&self) -> String {
        self.lock().text()
    }

    /// Appends a piece, in memory.
    pub(super) fn append(&self, kind: Kind, piece: &str) {
        let mut message = self.lock();
        match (kind, message.parts.last_mut()) {
            (Kind::Text, Some(Part::Text { text })) | (Kind::Reasoning, Some(Part::Reasoning { text })) => text.push_str(piece),
            (Kind::Text, _) => message.parts.push(Part::Text { text: piece.to_owned() }),
            (Kind::Reasoning, _) => message.parts.push(Part::Reasoning { text: piece.to_owned() }),
        }
    }

    /// Stores what was written so far.
    pub(super) fn save(&self) -> Result<(), store::Error> {
        self.store.put_message(&self.lock())
    }

    /// Adds calls and stores them.
    pub(super) fn add_calls(&self, records: impl IntoIterator<Item = CallRecord>) -> Result<(), store::Error> {
        let mut message = self.lock();
        message.parts.extend(records.into_iter().map(Part::Call));
        self.store.put_message(&message)
    }

    /// Moves a call on, stores that, and gives its record.
    pub(super) fn move_call(&self, id: &CallId, state: CallState) -> Result<Option<CallRecord>, store::Error> {
        let mut message = self.lock();
        let record = message.parts.iter_mut().find_map(|part| match part {
            Part::Call(record) if record.call.id == *id => Some(record),
            _ => None,
        });
        let Some(record) = record else { return Ok(None) };
        record.state = state;
        let moved = record.clone();
        self.store.put_message(&message)?;
        Ok(Some(moved))
    }

    /// Ends the message, stores it and gives it.
    pub(super) fn finish(&self, status: Status) -> Result<Message, store::Error> {
        let mut message = self.lock();
        message.status = status;
        self.store.put_message(&message)?;
        Ok(message.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Message> {
        // A panic while the lock is held leaves at worst a piece of text out.
        self.message.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        let message = self.message.get_mut().unwrap_or_else(PoisonError::into_inner);
        if message.status != Status::Streaming {
            return;
        }
        message.status = Status::Stopped;
        let conversation = message.conversation;
        for part in &mut message.parts {
            let Part::Call(record) = part else { continue };
            if matches!(record.state, CallState::Sent { .. })
                && let Err(error) = self.gate.ended(&record.call, conversation, "stopped while it ran", 0)
            {
                tracing::error!(%error, call = %record.call.id, "the ledger could not be written");
            }
            if matches!(record.state, CallState::Proposed | CallState::Approved { .. } | CallState::Sent { .. }) {
                record.state = CallState::Stopped;
            }
        }
        match self.store.put_message(message) {
            // A conversation that was deleted meanwhile has nothing left to keep.
            Ok(()) | Err(store::Error::Missing { .. }) => {}
            Err(error) => tracing::error!(%error, message = %self.id, "a stopped message could not be stored"),
        }
    }
}
