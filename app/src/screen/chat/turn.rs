//! One message on the screen, live or from the database.

use std::sync::Arc;

use handrail_engine::conversation::{Attachment, Message as Stored, MessageId, Part, Passage, Role, Status};
use handrail_engine::provider::Usage;
use handrail_engine::rag;
use handrail_engine::tool::Definition;
use handrail_widgets::markdown;
use iced::widget::{Column, Row, button, column, container, row, space};
use iced::{Center, Element, Fill};
use jiff::Timestamp;

use super::super::Look;
use super::tool_call::Card;
use super::{Message, tool_call};
use crate::appearance::{self, space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// One message.
#[derive(Clone, Debug)]
pub struct Entry {
    pub id: MessageId,
    pub role: Role,
    /// When it was begun.
    pub at: Timestamp,
    pub model: Option<String>,
    pub pieces: Vec<Piece>,
    pub status: Status,
    pub cited: Vec<usize>,
    pub usage: Option<Usage>,
}

/// One part of it.
#[derive(Clone, Debug)]
pub enum Piece {
    Text(markdown::Content),
    /// What a reasoning model thought, and whether it is unfolded.
    Reasoning(String, bool),
    Call(Box<Card>),
    Attachment(Attachment),
    Passages(Vec<Passage>),
    /// What the engine did with the request, in its words.
    Note(String),
}

impl Entry {
    /// A message that begins now.
    #[must_use]
    pub fn begun(id: MessageId, role: Role, model: Option<String>) -> Self {
        let at = Timestamp::now();
        Self { id, role, at, model, pieces: Vec::new(), status: Status::Streaming, cited: Vec::new(), usage: None }
    }

    /// A message of the database; `definitions` are those of the tools that are known now.
    #[must_use]
    pub fn stored(message: Stored, definitions: &[Arc<Definition>]) -> Self {
        let pieces = message.parts.into_iter().map(|part| match part {
            Part::Text { text } => Piece::Text(markdown::Content::new(&text)),
            Part::Reasoning { text } => Piece::Reasoning(text, false),
            Part::Call(record) => {
                let definition = definitions.iter().find(|definition| definition.id == record.call.tool);
                Piece::Call(Box::new(Card::new(record, definition)))
            }
            Part::Attachment(attachment) => Piece::Attachment(attachment),
            Part::Passages { passages } => Piece::Passages(passages),
        });
        Self {
            id: message.id,
            role: message.role,
            at: message.created_at,
            model: message.model,
            pieces: pieces.collect(),
            status: message.status,
            cited: Vec::new(),
            usage: None,
        }
    }

    /// Finds the passages that a stored answer rests on, as the turn did when it wrote it.
    pub fn cite(&mut self, passages: &[Passage]) {
        let calls = self.pieces.iter().any(|piece| matches!(piece, Piece::Call(_)));
        if !passages.is_empty() && !calls && self.status == Status::Complete {
            self.cited = rag::cite::citations(&self.source(), passages);
        }
    }

    /// More text.
    pub fn push_text(&mut self, piece: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Text(content)) => content.push_str(piece),
            _ => self.pieces.push(Piece::Text(markdown::Content::new(piece))),
        }
    }

    /// More reasoning.
    pub fn push_reasoning(&mut self, piece: &str) {
        match self.pieces.last_mut() {
            Some(Piece::Reasoning(text, _)) => text.push_str(piece),
            _ => self.pieces.push(Piece::Reasoning(piece.to_owned(), false)),
        }
    }

    /// Its text as it was written.
    #[must_use]
    pub fn source(&self) -> String {
        let texts = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(content) => Some(content.source()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }

    /// The passages that were found for it.
    #[must_use]
    pub fn passages(&self) -> &[Passage] {
        let found = self.pieces.iter().rev().find_map(|piece| match piece {
            Piece::Passages(passages) => Some(passages.as_slice()),
            _ => None,
        });
        found.unwrap_or_default()
    }

    /// Whether a bare Streaming state of the database means: interrupted.
    fn is_interrupted(&self, live: bool) -> bool {
        !live && self.status == Status::Streaming
    }

    /// Draws it. `passages` are those that its citations mean; `live` says that it is being written.
    pub fn view<'a>(&'a self, look: Look<'a>, passages: &'a [Passage], live: bool) -> Element<'a, Message> {
        let who = match (self.role, &self.model) {
            (Role::User, _) => look.t("chat-you"),
            (Role::Assistant, Some(model)) => {
                let name = look.facts.model(model).map_or_else(|| crate::facts::file_name(model), |view| view.entry.name.clone());
                format!("{} · {name}", look.t("app-name"))
            }
            (Role::Assistant, None) => look.t("app-name"),
        };
        let mut parts = column![piece::small(who, look.roles)].spacing(gap::S).width(Fill);
        let pieces = self.pieces.iter().enumerate().map(|(index, piece)| self.piece(index, piece, look));
        let pieces = Column::with_children(pieces).spacing(gap::S).width(Fill);
        parts = match self.role {
            Role::User => parts.push(container(pieces).padding([gap::S, gap::M]).width(Fill).style(style::raised)),
            Role::Assistant => parts.push(pieces),
        };
        if self.role == Role::Assistant {
            let below = [self.sources(look, passages), self.ending(look, live), self.actions(look, live)];
            parts = parts.extend(below.into_iter().flatten());
        }
        parts.into()
    }

    fn piece<'a>(&'a self, index: usize, piece: &'a Piece, look: Look<'a>) -> Element<'a, Message> {
        let id = self.id;
        match piece {
            Piece::Text(content) if self.role == Role::User => {
                piece::body(content.source()).wrapping(iced::widget::text::Wrapping::WordOrGlyph).into()
            }
            Piece::Text(content) => {
                markdown::view(content, appearance::markdown(look.roles), look.locale.copy(), move |action| Message::Text(id, action))
            }
            Piece::Reasoning(text, open) => reasoning(text, *open, Message::Fold(id, index), look),
            Piece::Call(card) => {
                let call = card.record.call.id.clone();
                card.view(look).map(move |message: tool_call::Message| Message::Card(call.clone(), message))
            }
            Piece::Attachment(attachment) => {
                let name = row![icon(Icon::File).size(14.0).color(look.roles.muted), piece::label(attachment.name.as_str())];
                let size = piece::small(look.locale.bytes(attachment.bytes), look.roles);
                name.push(size).spacing(gap::S).align_y(Center).into()
            }
            Piece::Note(words) => piece::state(Icon::Info, words.clone(), look.roles.muted),
            Piece::Passages(passages) => {
                let words = look.locale.tv("chat-passages", [("count", passages.len().into())]);
                let chip = row![icon(Icon::Library).size(13.0).color(look.roles.muted), piece::small(words, look.roles)];
                let chip = chip.spacing(gap::S).align_y(Center);
                button(chip).padding([2.0, gap::S]).style(style::quiet).on_press(Message::ShowPassages(id)).into()
            }
        }
    }

    /// The chips of the passages that the answer cites.
    fn sources<'a>(&'a self, look: Look<'a>, passages: &'a [Passage]) -> Option<Element<'a, Message>> {
        let cited: Vec<&Passage> = passages.iter().filter(|passage| self.cited.contains(&passage.number)).collect();
        (!cited.is_empty()).then(|| {
            let chips = cited.into_iter().map(|passage| {
                let words = piece::small(citation(passage, look), look.roles).color(look.roles.text);
                button(words).padding([gap::XS, gap::M]).style(style::chip).on_press(Message::Cite(self.id, passage.number)).into()
            });
            Row::with_children(chips).spacing(gap::S).wrap().into()
        })
    }

    /// How the message ended, when it did not end well.
    fn ending<'a>(&'a self, look: Look<'a>, live: bool) -> Option<Element<'a, Message>> {
        let roles = look.roles;
        if self.is_interrupted(live) {
            return Some(piece::state(Icon::Stop, look.t("chat-interrupted"), roles.muted));
        }
        match &self.status {
            Status::Stopped => Some(piece::state(Icon::Stop, look.t("chat-stopped"), roles.muted)),
            Status::Failed { reason } => {
                let retry = piece::secondary(look.t("chat-retry"), Some(Message::Retry));
                let failed = look.t("chat-failed");
                Some(piece::banner((Icon::Warning, |roles| roles.danger), failed, Some(reason.clone()), vec![retry], roles))
            }
            Status::Streaming | Status::Complete => None,
        }
    }

    /// What can be done with the message, and what it cost. The line is always there, so nothing shifts.
    fn actions<'a>(&'a self, look: Look<'a>, live: bool) -> Option<Element<'a, Message>> {
        let has_text = self.pieces.iter().any(|piece| matches!(piece, Piece::Text(_)));
        (has_text && !live).then(|| {
            let copy = piece::icon_button(Icon::Copy, look.t("chat-copy"), Some(Message::CopyAnswer(self.id)));
            let mut line = row![copy].spacing(gap::S).align_y(Center);
            if let Some(usage) = &self.usage {
                let speed = format!("{:.1}", usage.tokens_per_second);
                let values = [
                    ("tokens", usage.completion_tokens.into()),
                    ("speed", speed.into()),
                    ("prompt", usage.prompt_tokens.into()),
                    ("cached", usage.cached_tokens.into()),
                ];
                line = line.push(piece::small(look.locale.tv("chat-usage", values), look.roles));
            }
            line.push(space().width(Fill)).into()
        })
    }
}

/// `[1] report.pdf · p. 3`.
#[must_use]
pub fn citation(passage: &Passage, look: Look<'_>) -> String {
    let page = passage.page.map(|page| format!(" · {}", look.locale.tv("chat-page", [("page", page.into())]))).unwrap_or_default();
    format!("[{}] {}{page}", passage.number, passage.name)
}

fn reasoning<'a>(text: &'a str, open: bool, toggle: Message, look: Look<'a>) -> Element<'a, Message> {
    let arrow = icon(if open { Icon::Down } else { Icon::Right }).size(13.0);
    let head = row![icon(Icon::Thought).size(14.0), piece::label(look.t("chat-reasoning")), arrow].spacing(gap::S).align_y(Center);
    let head = button(head).padding([gap::XS, gap::S]).style(style::quiet).on_press(toggle);
    let mut parts = column![head].spacing(gap::XS);
    if open {
        let text = piece::label(text).color(look.roles.muted).wrapping(iced::widget::text::Wrapping::WordOrGlyph);
        parts = parts.push(container(text).padding([0.0, gap::L]));
    }
    parts.into()
}
