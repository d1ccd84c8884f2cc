//! The messages of one conversation and the turn that writes them.

use std::ops::Range;
use std::sync::Arc;

use handrail_engine::conversation::Message as Stored;
use handrail_engine::conversation::{Attachment, MessageId, Passage, Role, Status};
use handrail_engine::tool::{CallId, Definition};
use handrail_engine::turn::{self, Ended, Event, Input};
use handrail_widgets::markdown;
use iced::task::Handle;
use jiff::Timestamp;

use super::tool_call::Card;
use super::turn::{Entry, Piece};
use crate::facts::Facts;

/// One conversation on the screen.
#[derive(Debug, Default)]
pub struct Transcript {
    pub entries: Vec<Entry>,
    pub live: Option<Live>,
    /// Why the last turn could not run at all.
    pub error: Option<String>,
    /// Whether the messages of the database are here; a turn may run before they are.
    pub loaded: bool,
    /// When the first message was sent from here: the database has everything before it.
    sent_at: Option<Timestamp>,
    /// How the last message was to be answered.
    options: turn::Options,
}

/// The turn that is running.
#[derive(Debug)]
pub struct Live {
    pub id: u64,
    /// How much of the prompt is read: done, all, reused.
    pub prefill: Option<(usize, usize, usize)>,
    /// Whether anything of the answer is here.
    pub answering: bool,
    model: Option<String>,
    /// Dropping it is Stop.
    _handle: Handle,
}

impl Live {
    /// A turn that was just started.
    #[must_use]
    pub fn new(id: u64, handle: Handle) -> Self {
        Self { id, prefill: None, answering: false, model: None, _handle: handle }
    }
}

impl Transcript {
    /// A conversation that was just begun: the database has nothing of it yet.
    #[must_use]
    pub fn begun() -> Self {
        Self { loaded: true, ..Self::default() }
    }

    /// Builds the entries of stored messages. Parses every text, so it belongs on a thread that may block.
    #[must_use]
    pub fn build(messages: Vec<Stored>, definitions: &[Arc<Definition>]) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::with_capacity(messages.len());
        let mut passages: Vec<Passage> = Vec::new();
        for message in messages {
            let mut entry = Entry::stored(message, definitions);
            match entry.role {
                Role::User => passages = entry.passages().to_vec(),
                Role::Assistant => entry.cite(&passages),
            }
            entries.push(entry);
        }
        entries
    }

    /// Puts what the database has before what was sent and written here meanwhile.
    pub fn load(&mut self, history: Vec<Entry>, facts: &Facts) {
        if self.loaded {
            return;
        }
        // The database may have been read after a turn of this window began to write into it.
        let earlier = |entry: &Entry| self.sent_at.is_none_or(|sent_at| entry.at < sent_at) && self.position(entry.id).is_none();
        let mut entries: Vec<Entry> = history.into_iter().take_while(earlier).collect();
        entries.append(&mut self.entries);
        self.entries = entries;
        self.loaded = true;
        self.asked(facts);
    }

    /// Shows what the person just sent.
    pub fn sent(&mut self, input: &Input) {
        let mut entry = Entry::begun(MessageId::fresh(), Role::User, None);
        entry.status = Status::Complete;
        entry.pieces.push(Piece::Text(markdown::Content::new(&input.text)));
        entry.pieces.extend(input.attachments.iter().cloned().map(|attachment: Attachment| Piece::Attachment(attachment)));
        self.sent_at = self.sent_at.or(Some(entry.at));
        self.options = input.options.clone();
        self.entries.push(entry);
        self.error = None;
    }

    /// Takes an event of the turn in.
    pub fn heard(&mut self, event: Event, facts: &Facts) {
        match event {
            Event::Started { user, model, .. } => self.started(user, model),
            Event::Routed { .. } => {}
            Event::Retrieved { passages, .. } => self.retrieved(passages),
            Event::Trimmed { reason } => self.noted(reason),
            Event::Answering { message } => self.answering(message),
            Event::Prefill { done, total, reused } => self.prefill((done, total, reused)),
            Event::Text { message, text } => self.entry(message).push_text(&text),
            Event::Reasoning { message, text } => self.entry(message).push_reasoning(&text),
            Event::ToolCall { message, record } => self.called(message, record, facts),
            Event::ToolProgress { call, done, total, message } => self.with_card(&call, |card| card.progressed(done, total, message)),
            Event::Approval { call, why } => self.with_card(&call, |card| card.ask(Some(why))),
            Event::Cited { message, passages } => self.entry(message).cited = passages,
            Event::Usage { usage } => {
                if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.role == Role::Assistant) {
                    entry.usage = Some(usage);
                }
            }
            Event::Finished { message, reason } => self.finished(message, reason),
        }
    }

    fn started(&mut self, user: MessageId, model: String) {
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.role == Role::User) {
            entry.id = user;
        }
        if let Some(live) = &mut self.live {
            live.model = Some(model);
        }
    }

    fn retrieved(&mut self, passages: Vec<Passage>) {
        if passages.is_empty() {
            return;
        }
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.role == Role::User) {
            entry.pieces.push(Piece::Passages(passages));
        }
    }

    fn noted(&mut self, words: String) {
        if let Some(entry) = self.entries.iter_mut().rev().find(|entry| entry.role == Role::User) {
            entry.pieces.push(Piece::Note(words));
        }
    }

    fn prefill(&mut self, done: (usize, usize, usize)) {
        if let Some(live) = &mut self.live {
            live.prefill = Some(done);
        }
    }

    fn answering(&mut self, message: MessageId) {
        let _ = self.entry(message);
        if let Some(live) = &mut self.live {
            // The prompt is read after this.
            live.answering = false;
        }
    }

    /// The message with this id, begun where it is new.
    fn entry(&mut self, message: MessageId) -> &mut Entry {
        if let Some(live) = &mut self.live {
            live.answering = true;
            live.prefill = None;
        }
        let index = self.entries.iter().rposition(|entry| entry.id == message);
        let index = index.unwrap_or_else(|| {
            // An earlier message of the same turn is whole once the next one begins.
            if let Some(last) = self.entries.last_mut().filter(|last| last.status == Status::Streaming) {
                last.status = Status::Complete;
            }
            let model = self.live.as_ref().and_then(|live| live.model.clone());
            self.entries.push(Entry::begun(message, Role::Assistant, model));
            self.entries.len() - 1
        });
        &mut self.entries[index]
    }

    fn called(&mut self, message: MessageId, record: handrail_engine::conversation::CallRecord, facts: &Facts) {
        let entry = self.entry(message);
        let known = entry.pieces.iter_mut().find_map(|piece| match piece {
            Piece::Call(card) if card.record.call.id == record.call.id => Some(card),
            _ => None,
        });
        match known {
            Some(card) => card.changed(record),
            None => {
                let definition = facts.definition(&record.call.tool);
                entry.pieces.push(Piece::Call(Box::new(Card::new(record, definition.as_ref()))));
            }
        }
        self.asked(facts);
    }

    /// Marks the cards of calls that wait at the gate.
    pub fn asked(&mut self, facts: &Facts) {
        for request in &facts.pending {
            self.with_card(&request.call.id, |card| {
                if card.waiting.is_none() {
                    card.ask(Some(request.why.clone()));
                }
            });
        }
    }

    fn finished(&mut self, message: MessageId, reason: Ended) {
        let entry = self.entry(message);
        entry.status = match reason {
            Ended::Answered { .. } => Status::Complete,
            Ended::Stopped => Status::Stopped,
            Ended::Limit { reason } | Ended::Failed { reason } => Status::Failed { reason },
        };
    }

    /// The turn is over, however it ended.
    pub fn ended(&mut self, error: Option<String>) {
        self.live = None;
        self.error = error;
        self.settle();
    }

    /// The person stopped the turn.
    pub fn stopped(&mut self) {
        if self.live.take().is_some() {
            self.settle();
        }
    }

    /// Nothing is being written any more.
    fn settle(&mut self) {
        use handrail_engine::conversation::CallState;
        for entry in self.entries.iter_mut().rev().take_while(|entry| entry.role == Role::Assistant) {
            if entry.status == Status::Streaming {
                entry.status = Status::Stopped;
            }
            for piece in &mut entry.pieces {
                if let Piece::Call(card) = piece {
                    card.ask(None);
                    if matches!(card.record.state, CallState::Proposed | CallState::Approved { .. } | CallState::Sent { .. }) {
                        let record = handrail_engine::conversation::CallRecord { state: CallState::Stopped, ..card.record.clone() };
                        card.changed(record);
                    }
                }
            }
        }
    }

    /// Does something with the card of a call.
    pub fn with_card(&mut self, call: &CallId, work: impl FnOnce(&mut Card)) {
        let card = self.entries.iter_mut().rev().flat_map(|entry| &mut entry.pieces).find_map(|piece| match piece {
            Piece::Call(card) if card.record.call.id == *call => Some(card),
            _ => None,
        });
        if let Some(card) = card {
            work(card);
        }
    }

    /// The first call that waits for a decision.
    pub fn waiting(&mut self) -> Option<&mut Card> {
        self.entries.iter_mut().flat_map(|entry| &mut entry.pieces).find_map(|piece| match piece {
            Piece::Call(card) if card.waiting.is_some() => Some(card.as_mut()),
            _ => None,
        })
    }

    /// The passages that the citations of the message at an index mean: those found for the message before it.
    #[must_use]
    pub fn passages_for(&self, index: usize) -> &[Passage] {
        let asked = self.entries[..=index].iter().rev().find(|entry| entry.role == Role::User);
        asked.map(Entry::passages).unwrap_or_default()
    }

    /// Where a message is.
    #[must_use]
    pub fn position(&self, message: MessageId) -> Option<usize> {
        self.entries.iter().position(|entry| entry.id == message)
    }

    /// The last message that the person sent, whole, for another try. How a message of an earlier run was to be
    /// answered is not stored; it is tried again as usual.
    #[must_use]
    pub fn last_question(&self) -> Option<Input> {
        let entry = self.entries.iter().rev().find(|entry| entry.role == Role::User)?;
        let attachments = entry.pieces.iter().filter_map(|piece| match piece {
            Piece::Attachment(attachment) => Some(attachment.clone()),
            _ => None,
        });
        Some(Input { text: entry.source(), attachments: attachments.collect(), options: self.options.clone() })
    }

    /// Forgets that cards of messages outside this range of indices are on screen.
    pub fn in_view(&mut self, range: &Range<usize>) {
        let hidden = self.entries.iter_mut().enumerate().filter(|(index, _)| !range.contains(index));
        for piece in hidden.flat_map(|(_, entry)| &mut entry.pieces) {
            if let Piece::Call(card) = piece {
                card.shown_at = None;
            }
        }
    }
}
