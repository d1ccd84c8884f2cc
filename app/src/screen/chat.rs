//! The chat screen.

pub mod approval;
pub mod argument;
mod attachment;
mod blanks;
pub mod composer;
mod inspector;
mod live;
mod page;
mod resource;
mod slash;
mod tool_call;
mod transcript;
mod turn;

use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

use handrail_engine::approval::Decision;
use handrail_engine::conversation::{Conversation, ConversationId, MessageId, Passage};
use handrail_engine::local::TemplateChoice;
use handrail_engine::tool::{CallId, ServerId};
use handrail_engine::turn::{Ended, Error, Event, Input, Outcome};
use handrail_widgets::markdown;
use iced::Task;
use iced::widget::Id;

use super::{Env, question};
use crate::desktop;
use composer::Composer;
use transcript::{Live, Transcript};
use turn::{Entry, Piece};

/// The transcript, for scrolling.
const LIST: Id = Id::new("transcript");

/// The screen: the open conversation, and those whose turns still run.
#[derive(Debug, Default)]
pub struct Chat {
    open: Option<ConversationId>,
    talks: HashMap<ConversationId, Transcript>,
    composer: Composer,
    inspector: Option<Inspected>,
    /// Whether the reader is not at the end.
    away: bool,
    next_turn: u64,
    error: Option<String>,
}

/// What the inspector shows: passages of a message, one of them or all.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Inspected {
    message: MessageId,
    number: Option<usize>,
}

/// What happens on the screen.
#[derive(Clone, Debug)]
pub enum Message {
    Composer(composer::Message),
    Question(question::Message),
    New,
    Begun(Result<Conversation, String>, Box<Input>),
    Loaded(ConversationId, Result<Vec<Entry>, String>),
    Turn(u64, Vec<Event>),
    Ended(u64, Result<Outcome, Error>),
    Stop,
    Retry,
    Card(CallId, tool_call::Message),
    Decide(Decision),
    Decided(Result<(), String>),
    Fold(MessageId, usize),
    Text(MessageId, markdown::Action),
    CopyAnswer(MessageId),
    Cite(MessageId, usize),
    ShowPassages(MessageId),
    CloseInspector,
    AtEnd(bool),
    /// These rows of the transcript are on screen.
    InView(Range<usize>),
    ToEnd,
    ShowModels,
    ShowServers,
    /// The chat model gets ChatML or again its own template.
    Template(TemplateChoice),
    Dismiss,
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    /// Conversations changed: the list must be read again.
    Changed(Task<Message>),
    ShowModels,
    ShowServers,
    Question(question::Message),
}

impl Chat {
    /// Which conversation is open.
    #[must_use]
    pub const fn open(&self) -> Option<ConversationId> {
        self.open
    }

    /// Whether a turn of the open conversation runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.talk().is_some_and(|talk| talk.live.is_some())
    }

    /// Closes what is open over the composer; whether something was.
    pub fn leaves(&mut self) -> bool {
        self.composer.leaves()
    }

    /// A server's prompts are not what they were.
    pub fn forget_prompts(&mut self, server: &ServerId) {
        self.composer.forget_prompts(server);
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Composer(message) => self.composed(message, env),
            Message::Question(message) => Action::Question(message),
            Message::New => self.begin_new(),
            Message::Begun(result, input) => self.begun(result, *input, env),
            Message::Loaded(conversation, result) => self.loaded(conversation, result, env),
            Message::Turn(id, events) => self.heard(id, events, env),
            Message::Ended(id, result) => self.ended(id, result),
            Message::Stop => self.stop(),
            Message::Retry => self.retry(env),
            Message::Card(call, message) => self.card(&call, message, env),
            Message::Decide(decision) => self.decide_first(decision, env),
            Message::Decided(result) => self.decided(result),
            Message::Fold(message, index) => self.fold(message, index),
            Message::Text(message, action) => self.text(message, action),
            Message::CopyAnswer(message) => self.copy(message),
            Message::Cite(message, number) => self.inspect(message, Some(number)),
            Message::ShowPassages(message) => self.inspect(message, None),
            Message::CloseInspector => self.close_inspector(),
            Message::AtEnd(at_end) => self.moved(at_end),
            Message::InView(rows) => self.in_view(&rows),
            Message::ToEnd => Action::Run(to_end()),
            Message::ShowModels => Action::ShowModels,
            Message::ShowServers => Action::ShowServers,
            Message::Template(choice) => choose_template(choice, env),
            Message::Dismiss => self.dismiss(),
        }
    }

    fn talk(&self) -> Option<&Transcript> {
        self.talks.get(&self.open?)
    }

    fn talk_mut(&mut self) -> Option<&mut Transcript> {
        self.talks.get_mut(&self.open?)
    }

    fn composed(&mut self, message: composer::Message, env: &Env<'_>) -> Action {
        match self.composer.update(message, env) {
            composer::Action::None => Action::None,
            composer::Action::Run(task) => Action::Run(task.map(Message::Composer)),
            composer::Action::Stop => self.stop(),
            composer::Action::Send(input) => self.send(input, env),
        }
    }

    /// Attaches files that were dropped on the window.
    pub fn dropped(&mut self, paths: Vec<PathBuf>, env: &Env<'_>) -> Action {
        self.composed(composer::Message::Chosen(paths), env)
    }

    fn begin_new(&mut self) -> Action {
        self.out_of_view();
        self.open = None;
        self.inspector = None;
        self.error = None;
        Action::Run(iced::widget::operation::focus(composer::EDITOR))
    }

    /// Sends a message, in a new conversation where none is open.
    pub fn send(&mut self, input: Input, env: &Env<'_>) -> Action {
        self.error = None;
        if !env.facts.can_chat() {
            self.composer.restore(input);
            return Action::ShowModels;
        }
        if self.is_running() {
            self.composer.restore(input);
            return Action::None;
        }
        match self.open {
            Some(conversation) => self.start(conversation, input, env),
            None => {
                let engine = env.engine.clone();
                let work = env.engine.handle().spawn_blocking(move || engine.new_conversation().map_err(|error| error.to_string()));
                Action::Run(Task::perform(work, move |result| {
                    let result = result.unwrap_or_else(|error| Err(error.to_string()));
                    Message::Begun(result, Box::new(input.clone()))
                }))
            }
        }
    }

    fn begun(&mut self, result: Result<Conversation, String>, input: Input, env: &Env<'_>) -> Action {
        match result {
            Ok(conversation) => {
                self.open = Some(conversation.id);
                let _ = self.talks.insert(conversation.id, Transcript::begun());
                self.start(conversation.id, input, env)
            }
            Err(reason) => {
                self.composer.restore(input);
                self.error = Some(reason);
                Action::None
            }
        }
    }

    fn start(&mut self, conversation: ConversationId, input: Input, env: &Env<'_>) -> Action {
        self.next_turn += 1;
        let talk = self.talks.entry(conversation).or_default();
        talk.sent(&input);
        let (task, handle) = live::run(env.engine, conversation, input, self.next_turn);
        talk.live = Some(Live::new(self.next_turn, handle));
        Action::Changed(task).with(to_end())
    }

    /// Opens a conversation.
    pub fn show(&mut self, conversation: ConversationId, env: &Env<'_>) -> Action {
        self.out_of_view();
        self.open = Some(conversation);
        self.inspector = None;
        self.error = None;
        if self.talks.get(&conversation).is_some_and(|talk| talk.loaded) {
            return Action::Run(to_end());
        }
        // Long conversations take a while to read and parse; the window must not wait for them.
        let (engine, definitions) = (env.engine.clone(), env.facts.definitions());
        let work = env.engine.handle().spawn_blocking(move || {
            let messages = engine.messages(conversation).map_err(|error| error.to_string())?;
            Ok(Transcript::build(messages, &definitions))
        });
        Action::Run(Task::perform(work, move |result| Message::Loaded(conversation, result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    /// Forgets a conversation that was deleted.
    pub fn forget(&mut self, conversation: ConversationId) {
        let _ = self.talks.remove(&conversation);
        if self.open == Some(conversation) {
            self.open = None;
            self.inspector = None;
        }
    }

    fn loaded(&mut self, conversation: ConversationId, result: Result<Vec<Entry>, String>, env: &Env<'_>) -> Action {
        match result {
            Ok(history) => self.talks.entry(conversation).or_default().load(history, env.facts),
            Err(reason) => self.error = Some(reason),
        }
        Action::None
    }

    /// The conversation that a turn writes; none for a turn that was stopped.
    fn writing(&mut self, turn: u64) -> Option<&mut Transcript> {
        self.talks.values_mut().find(|talk| talk.live.as_ref().is_some_and(|live| live.id == turn))
    }

    fn heard(&mut self, turn: u64, events: Vec<Event>, env: &Env<'_>) -> Action {
        let started = events.iter().any(|event| matches!(event, Event::Started { .. }));
        if let Some(talk) = self.writing(turn) {
            for event in events {
                talk.heard(event, env.facts);
            }
        }
        if started { Action::Changed(Task::none()) } else { Action::None }
    }

    fn ended(&mut self, turn: u64, result: Result<Outcome, Error>) -> Action {
        if let Some(talk) = self.writing(turn) {
            talk.ended(result.err().map(|error| error.to_string()));
        }
        Action::Changed(Task::none())
    }

    fn stop(&mut self) -> Action {
        if let Some(talk) = self.talk_mut() {
            talk.stopped();
        }
        Action::Changed(Task::none())
    }

    fn retry(&mut self, env: &Env<'_>) -> Action {
        if self.is_running() {
            return Action::None;
        }
        if !env.facts.can_chat() {
            // The message stays where it is, with its button.
            return Action::ShowModels;
        }
        let question = self.talk().and_then(Transcript::last_question);
        question.map_or(Action::None, |input| self.send(input, env))
    }

    /// Whether a turn ended in an answer that says something; if not, why.
    pub fn verdict(&self, result: &Result<Outcome, Error>) -> Result<(), String> {
        let outcome = result.as_ref().map_err(ToString::to_string)?;
        let entry = self.talks.values().flat_map(|talk| &talk.entries).find(|entry| entry.id == outcome.message);
        match &outcome.ended {
            Ended::Answered { .. } if entry.is_some_and(|entry| !entry.source().trim().is_empty()) => Ok(()),
            Ended::Answered { .. } => Err("the answer is empty".to_owned()),
            Ended::Stopped => Err("the turn was stopped".to_owned()),
            Ended::Limit { reason } | Ended::Failed { reason } => Err(reason.clone()),
        }
    }

    /// No card is on screen any more.
    pub fn out_of_view(&mut self) {
        for talk in self.talks.values_mut() {
            talk.in_view(&(0..0));
        }
    }

    fn in_view(&mut self, rows: &Range<usize>) -> Action {
        if let Some(talk) = self.talk_mut() {
            talk.in_view(rows);
        }
        Action::None
    }

    /// New facts came: calls may wait now, or no longer.
    pub fn facts_changed(&mut self, env: &Env<'_>) {
        for talk in self.talks.values_mut() {
            talk.asked(env.facts);
        }
    }

    fn card(&mut self, call: &CallId, message: tool_call::Message, env: &Env<'_>) -> Action {
        let now = env.now;
        let mut copied = None;
        if let Some(talk) = self.talk_mut() {
            talk.with_card(call, |card| match &message {
                tool_call::Message::Shown => card.shown_at = card.shown_at.or(Some(now)),
                tool_call::Message::Hidden => card.shown_at = None,
                tool_call::Message::Copy => copied = Some(card.details()),
                other => card.toggle(other),
            });
        }
        match message {
            tool_call::Message::Decide(decision) => self.decide(call.clone(), decision, env),
            tool_call::Message::Stop => self.cancel(call, env),
            tool_call::Message::Copy => copied.map_or(Action::None, |text| Action::Run(iced::clipboard::write(text))),
            tool_call::Message::Shown
            | tool_call::Message::Hidden
            | tool_call::Message::Raw
            | tool_call::Message::Result
            | tool_call::Message::Always => Action::None,
        }
    }

    /// Cancels one call; the turn goes on with that. What no server has running yet, or any more, is stopped with the turn.
    fn cancel(&mut self, call: &CallId, env: &Env<'_>) -> Action {
        let mut found = None;
        if let Some(talk) = self.talk_mut() {
            talk.with_card(call, |card| {
                let tool = &card.record.call.tool;
                if let Some(id) = env.facts.running(&tool.server, call) {
                    card.cancelled = true;
                    found = Some((tool.server.clone(), id));
                }
            });
        }
        let Some((server, id)) = found else { return self.stop() };
        let engine = env.engine.clone();
        let work = env.engine.handle().spawn(async move { engine.servers().cancel_call(&server, id).map(drop).map_err(|e| e.to_string()) });
        Action::Run(Task::perform(work, |result| Message::Decided(result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn decide_first(&mut self, decision: Decision, env: &Env<'_>) -> Action {
        let waiting = self.talk_mut().and_then(Transcript::waiting).map(|card| card.record.call.id.clone());
        waiting.map_or(Action::None, |call| self.decide(call, decision, env))
    }

    /// Answers the gate, if the person could see what they answer.
    fn decide(&mut self, call: CallId, decision: Decision, env: &Env<'_>) -> Action {
        let mut shown_at = None;
        if let Some(talk) = self.talk_mut() {
            talk.with_card(&call, |card| shown_at = card.shown_at.filter(|_| card.waiting.is_some()));
        }
        if !approval::counts(shown_at, env.focused_since, env.now) {
            tracing::info!(%call, ?decision, "a decision came before its question could be read; ignored");
            return Action::None;
        }
        let engine = env.engine.clone();
        // The gate writes the decision to the database before it answers.
        let work =
            env.engine.handle().spawn_blocking(move || engine.approvals().decide(&call, decision).map_err(|error| error.to_string()));
        Action::Run(Task::perform(work, |result| Message::Decided(result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn decided(&mut self, result: Result<(), String>) -> Action {
        if let Err(reason) = result {
            self.error = Some(reason);
        }
        Action::None
    }

    fn fold(&mut self, message: MessageId, index: usize) -> Action {
        let entry = self.talk_mut().and_then(|talk| talk.entries.iter_mut().find(|entry| entry.id == message));
        if let Some(Piece::Reasoning(_, open)) = entry.and_then(|entry| entry.pieces.get_mut(index)) {
            *open = !*open;
        }
        Action::None
    }

    fn text(&mut self, message: MessageId, action: markdown::Action) -> Action {
        match action {
            markdown::Action::Copy(text) => Action::Run(iced::clipboard::write(text)),
            markdown::Action::Open(address) => match address.strip_prefix('#').and_then(|number| number.parse().ok()) {
                Some(number) => self.inspect(message, Some(number)),
                None => Action::Run(desktop::open_address(&address)),
            },
        }
    }

    fn copy(&mut self, message: MessageId) -> Action {
        let entry = self.talk().and_then(|talk| talk.entries.iter().find(|entry| entry.id == message));
        entry.map_or(Action::None, |entry| Action::Run(iced::clipboard::write(entry.source())))
    }

    fn inspect(&mut self, message: MessageId, number: Option<usize>) -> Action {
        self.inspector = Some(Inspected { message, number });
        Action::None
    }

    fn close_inspector(&mut self) -> Action {
        self.inspector = None;
        Action::None
    }

    fn moved(&mut self, at_end: bool) -> Action {
        self.away = !at_end;
        Action::None
    }

    fn dismiss(&mut self) -> Action {
        self.error = None;
        if let Some(talk) = self.talk_mut() {
            talk.error = None;
        }
        Action::None
    }

    /// The passages that the inspector shows.
    fn inspected(&self) -> Option<Vec<&Passage>> {
        let inspected = self.inspector?;
        let talk = self.talk()?;
        let passages = talk.passages_for(talk.position(inspected.message)?);
        let shown = passages.iter().filter(|passage| inspected.number.is_none_or(|number| number == passage.number));
        Some(shown.collect())
    }
}

impl Action {
    /// Adds a task.
    fn with(self, more: Task<Message>) -> Self {
        match self {
            Self::Run(task) => Self::Run(Task::batch([task, more])),
            Self::Changed(task) => Self::Changed(Task::batch([task, more])),
            Self::None => Self::Run(more),
            other @ (Self::ShowModels | Self::ShowServers | Self::Question(_)) => other,
        }
    }
}

/// The chat model is read anew with the next message.
fn choose_template(choice: TemplateChoice, env: &Env<'_>) -> Action {
    let (engine, model) = (env.engine.clone(), env.facts.settings.chat_model.clone());
    let work = env.engine.handle().spawn_blocking(move || {
        let chosen = engine.models().choose_template(&model, &choice);
        chosen.map(drop).map_err(|error| error.to_string())
    });
    Action::Run(Task::perform(work, |result| Message::Decided(result.unwrap_or_else(|error| Err(error.to_string())))))
}

fn to_end() -> Task<Message> {
    iced::widget::operation::snap_to_end(LIST)
}

#[cfg(test)]
impl Chat {
    pub fn written(&self) -> String {
        self.composer.written()
    }
}

#[cfg(test)]
mod tests;
