//! What servers ask the person in the middle of their work: forms, pages to open, and requests to let the model write.
//! A card says who asks; nothing is answered but by a press.

mod address;
mod field;

use std::collections::HashMap;
use std::time::Instant;

use handrail_engine::mcp::question::{Answer, Ask, fields};
use handrail_engine::mcp::{Question, QuestionId};
use iced::widget::{Column, column, container, row, scrollable, sensor, space, text};
use iced::{Center, Element, Fill};
use serde_json::Map;

use self::field::Filled;
use super::chat::approval;
use super::chat::argument::{start, visible};
use super::{Env, Look};
use crate::appearance::{space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// Cards that are shown at once; the others wait behind them: there is only so much room over the composer.
const SHOWN: usize = 1;
/// Most characters of a server's text that a card shows: no fewer than the engine lets through, so that nobody agrees to
/// what they cannot see.
const LONGEST: usize = 21_000;
/// Highest what is asked grows before it scrolls; the buttons under it are always there.
const HEIGHT: f32 = 280.0;

/// The questions' forms.
#[derive(Debug, Default)]
pub struct Questions {
    forms: HashMap<QuestionId, Form>,
}

/// What a person filled in so far.
#[derive(Debug, Default)]
struct Form {
    fields: Vec<Filled>,
    /// Since when the card is on screen.
    shown_at: Option<Instant>,
    /// Whether the person is at it.
    touched: bool,
    /// Whether a try to send found something wrong; from then on faults are shown as one writes.
    tried: bool,
}

/// What happens with a card.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Shown(QuestionId),
    Hidden(QuestionId),
    Field(QuestionId, usize, field::Message),
    /// Sends the form, opens the page, lets the model write.
    Accept(QuestionId),
    Decline(QuestionId),
    /// Puts it away without an answer.
    Cancel(QuestionId),
}

/// What the app must do about it.
#[derive(Debug, PartialEq)]
pub enum Action {
    None,
    Answer(QuestionId, Answer),
    /// Opens a page, and says so.
    Open(QuestionId, String),
}

impl Questions {
    /// Takes the questions as they are now: new ones get a form with their defaults, and those that are gone lose it.
    pub fn asked(&mut self, questions: &[Question]) {
        self.forms.retain(|id, _| questions.iter().any(|question| question.id == *id));
        for question in questions {
            let _ = self.forms.entry(question.id).or_insert_with(|| Form {
                fields: match &question.ask {
                    Ask::Form { schema, .. } => fields(schema).into_iter().map(Filled::new).collect(),
                    Ask::Url { .. } | Ask::Sampling { .. } => Vec::new(),
                },
                ..Form::default()
            });
        }
    }

    /// No card is on screen any more.
    pub fn out_of_view(&mut self) {
        self.forms.values_mut().for_each(|form| form.shown_at = None);
    }

    /// What Escape declines: the first question. Where Escape left a field at the same time, only one that the person
    /// was answering.
    #[must_use]
    pub fn to_decline(&self, questions: &[Question], left_field: bool) -> Option<QuestionId> {
        let first = questions.first()?.id;
        let form = self.forms.get(&first)?;
        (form.shown_at.is_some() && (!left_field || form.touched)).then_some(first)
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Shown(id) => self.seen(id, Some(env.now)),
            Message::Hidden(id) => self.seen(id, None),
            Message::Field(id, index, message) => self.filled(id, index, message),
            Message::Accept(id) => self.accept(id, env),
            Message::Decline(id) => Action::Answer(id, Answer::Decline),
            Message::Cancel(id) => Action::Answer(id, Answer::Cancel),
        }
    }

    fn seen(&mut self, id: QuestionId, at: Option<Instant>) -> Action {
        if let Some(form) = self.forms.get_mut(&id) {
            form.shown_at = at.and(form.shown_at).or(at);
        }
        Action::None
    }

    fn filled(&mut self, id: QuestionId, index: usize, message: field::Message) -> Action {
        if let Some(form) = self.forms.get_mut(&id) {
            form.touched = true;
            if let Some(field) = form.fields.get_mut(index) {
                field.update(message);
            }
        }
        Action::None
    }

    fn accept(&mut self, id: QuestionId, env: &Env<'_>) -> Action {
        let question = env.facts.questions.iter().find(|question| question.id == id);
        let (Some(question), Some(form)) = (question, self.forms.get_mut(&id)) else { return Action::None };
        // A press that was meant for what was there before is no answer.
        if !approval::counts(form.shown_at, env.focused_since, env.now) {
            return Action::None;
        }
        form.tried = true;
        match &question.ask {
            Ask::Form { .. } => {
                let mut answer = Map::new();
                for field in &form.fields {
                    match field.value() {
                        Ok(Some(value)) => drop(answer.insert(field.name().to_owned(), value)),
                        Ok(None) => {}
                        Err(_) => return Action::None,
                    }
                }
                Action::Answer(id, Answer::Accept(answer))
            }
            Ask::Url { url, .. } if address::opens(url) => Action::Open(id, url.clone()),
            Ask::Url { .. } => Action::None,
            Ask::Sampling { .. } => Action::Answer(id, Answer::Accept(Map::new())),
        }
    }

    /// Draws the cards of the questions that wait; nothing where none does.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Option<Element<'a, Message>> {
        let waiting: Vec<&Question> = look.facts.questions.iter().filter(|question| self.forms.contains_key(&question.id)).collect();
        if waiting.is_empty() {
            return None;
        }
        let mut cards = Column::new().spacing(gap::S);
        cards = cards.extend(waiting.iter().take(SHOWN).filter_map(|question| Some(card(question, self.forms.get(&question.id)?, look))));
        if waiting.len() > SHOWN {
            cards = cards.push(piece::small(look.locale.tv("question-more", [("count", (waiting.len() - SHOWN).into())]), look.roles));
        }
        Some(cards.into())
    }
}

fn card<'a>(question: &'a Question, form: &'a Form, look: Look<'a>) -> Element<'a, Message> {
    let (id, roles) = (question.id, look.roles);
    let who = visible(question.server.as_str());
    let head = match &question.ask {
        Ask::Form { .. } => look.locale.tv("question-form", [("server", who.into())]),
        Ask::Url { .. } => look.locale.tv("question-url", [("server", who.into())]),
        Ask::Sampling { .. } => look.locale.tv("question-sampling", [("server", who.into())]),
    };
    let head = piece::strong(head).wrapping(text::Wrapping::WordOrGlyph);
    let close = piece::icon_button(Icon::Close, look.t("question-cancel"), Some(Message::Cancel(id)));
    let head = row![icon(Icon::Shield).color(roles.warning), container(head).width(Fill), close].spacing(gap::S).align_y(Center);
    let mut parts = column![head].spacing(gap::M);
    if let Some(tool) = &question.tool {
        parts = parts.push(piece::small(look.locale.tv("question-tool", [("tool", visible(tool).into())]), roles));
    }
    let content = scrollable(asked(question, form, look)).style(style::scroll).spacing(gap::S);
    parts = parts.push(container(content).max_height(HEIGHT));
    let (yes, ready) = match &question.ask {
        Ask::Form { .. } => (look.t("question-send"), !form.tried || form.fields.iter().all(|field| field.value().is_ok())),
        Ask::Url { url, .. } => (look.t("question-open"), address::opens(url)),
        Ask::Sampling { .. } => (look.t("question-allow"), true),
    };
    let yes = piece::primary(yes, ready.then_some(Message::Accept(id)));
    let no = piece::secondary(look.t("question-decline"), Some(Message::Decline(id)));
    let hint = piece::small(look.t("question-keys"), roles);
    parts = parts.push(row![yes, no, space().width(Fill), hint].spacing(gap::S).align_y(Center));
    let card = container(parts).padding(gap::L).width(Fill).style(style::waiting);
    sensor(card).on_show(move |_| Message::Shown(id)).on_hide(Message::Hidden(id)).key(id.0).into()
}

/// What is asked.
fn asked<'a>(question: &'a Question, form: &'a Form, look: Look<'a>) -> Element<'a, Message> {
    let id = question.id;
    let words = |text: &str| piece::label(short(text)).wrapping(text::Wrapping::WordOrGlyph);
    let mut parts = Column::new().spacing(gap::M).width(Fill);
    match &question.ask {
        Ask::Form { message, .. } => {
            parts = parts.push(words(message));
            parts = parts.extend(form.fields.iter().enumerate().map(|(index, field)| {
                let drawn = field.view(form.tried, look, Message::Accept(id), move |message| Message::Field(id, index, message));
                container(drawn).padding(iced::Padding::ZERO.right(gap::M)).into()
            }));
        }
        Ask::Url { message, url } => parts = parts.push(words(message)).push(address::view(url, look)),
        Ask::Sampling { prompt, system, max_tokens } => {
            parts = parts.push(piece::label(look.locale.tv("question-sampling-about", [("tokens", (*max_tokens).into())])));
            for (name, text) in [(look.t("question-system"), system.as_deref()), (look.t("question-prompt"), Some(prompt.as_str()))] {
                if let Some(text) = text {
                    let shown = container(piece::mono(short(text))).padding(gap::S).width(Fill).style(style::raised);
                    parts = parts.push(column![piece::small(name, look.roles), shown].spacing(gap::XS));
                }
            }
        }
    }
    parts.into()
}

/// A server's text, bounded and with nothing hidden in it.
fn short(text: &str) -> String {
    let (start, is_cut) = start(text, LONGEST);
    let mut shown = visible(start);
    if is_cut {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests;
