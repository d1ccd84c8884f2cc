//! A small form for the arguments of a prompt or of a resource's address, with values that the server suggests.

use std::collections::BTreeMap;

use handrail_engine::mcp::offer::{Argument, Completable};
use handrail_engine::tool::ServerId;
use iced::widget::{Column, Id, button, column, row, text};
use iced::{Center, Element, Fill, Task};

use super::super::{Env, Look};
use super::argument::{start, visible};
use crate::appearance::{space as gap, style};
use crate::piece;

/// Suggestions that are shown.
const OFFERED: usize = 8;
/// Most characters of a server's words.
const LONGEST: usize = 300;
/// The first field, for focus.
const FIRST: Id = Id::new("blanks-first");

/// The form.
#[derive(Debug)]
pub struct Blanks {
    server: ServerId,
    of: Completable,
    fields: Vec<Argument>,
    values: Vec<String>,
    /// Whether the server suggests values.
    completes: bool,
    /// For which field which values are suggested.
    offered: Option<(usize, Vec<String>)>,
    /// Counts what was asked: an answer to something older is dropped.
    asked: u64,
    tried: bool,
}

/// What happens in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Typed(usize, String),
    Offered(u64, usize, Vec<String>),
    Take(usize, String),
    Submit,
    Close,
}

/// What its owner must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Submit(BTreeMap<String, String>),
    Close,
}

impl Blanks {
    /// A form for these fields.
    #[must_use]
    pub fn new(server: ServerId, of: Completable, fields: Vec<Argument>, completes: bool) -> Self {
        let values = vec![String::new(); fields.len()];
        Self { server, of, fields, values, completes, offered: None, asked: 0, tried: false }
    }

    /// Puts the cursor into the first field.
    pub fn focus<M: Send + 'static>() -> Task<M> {
        iced::widget::operation::focus(FIRST)
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Typed(index, text) => self.typed(index, text, env),
            Message::Offered(asked, index, values) => self.offered(asked, index, values),
            Message::Take(index, value) => self.take(index, value),
            Message::Submit => self.submit(),
            Message::Close => Action::Close,
        }
    }

    fn typed(&mut self, index: usize, text: String, env: &Env<'_>) -> Action {
        let (Some(value), Some(field)) = (self.values.get_mut(index), self.fields.get(index)) else { return Action::None };
        value.clone_from(&text);
        self.offered = None;
        if !self.completes {
            return Action::None;
        }
        self.asked += 1;
        let (asked, engine, server, of, name) = (self.asked, env.engine.clone(), self.server.clone(), self.of.clone(), field.name.clone());
        let others = self.fields.iter().zip(&self.values).enumerate().filter(|(at, (_, value))| *at != index && !value.is_empty());
        let others: BTreeMap<String, String> = others.map(|(_, (field, value))| (field.name.clone(), value.clone())).collect();
        let work = env.engine.handle().spawn(async move { engine.servers().complete(&server, &of, &name, &text, others).await });
        // A server that cannot suggest anything leaves the form as it is.
        Action::Run(Task::perform(work, move |result| Message::Offered(asked, index, result.ok().and_then(Result::ok).unwrap_or_default())))
    }

    fn offered(&mut self, asked: u64, index: usize, values: Vec<String>) -> Action {
        if asked == self.asked {
            self.offered = Some((index, values.into_iter().take(OFFERED).collect()));
        }
        Action::None
    }

    fn take(&mut self, index: usize, value: String) -> Action {
        if let Some(field) = self.values.get_mut(index) {
            *field = value;
        }
        self.asked += 1;
        self.offered = None;
        Action::None
    }

    fn submit(&mut self) -> Action {
        self.tried = true;
        if self.fields.iter().zip(&self.values).any(|(field, value)| field.required && value.trim().is_empty()) {
            return Action::None;
        }
        let filled = self.fields.iter().zip(&self.values).filter(|(_, value)| !value.is_empty());
        Action::Submit(filled.map(|(field, value)| (field.name.clone(), value.clone())).collect())
    }

    /// Draws it; `act` names what Enter does.
    pub fn view<'a>(&'a self, act: String, look: Look<'a>) -> Element<'a, Message> {
        let fields = self.fields.iter().zip(&self.values).enumerate().map(|(index, (field, value))| self.field(index, field, value, look));
        let buttons = [piece::primary(act, Some(Message::Submit)), piece::quiet(look.t("consent-cancel"), Some(Message::Close))];
        Column::with_children(fields).push(piece::buttons(buttons)).spacing(gap::S).into()
    }

    fn field<'a>(&'a self, index: usize, field: &'a Argument, value: &'a str, look: Look<'a>) -> Element<'a, Message> {
        let title = field.title.as_deref().unwrap_or(&field.name);
        let mut head = row![piece::strong(visible(start(title, LONGEST).0))].spacing(gap::S).align_y(Center);
        if field.required {
            head = head.push(piece::tag(look.t("question-required"), look.roles));
        }
        let mut input = piece::input("", value, move |text| Message::Typed(index, text)).on_submit(Message::Submit).width(Fill);
        if index == 0 {
            input = input.id(FIRST);
        }
        let mut parts = column![head].spacing(gap::XS);
        if let Some(about) = &field.description {
            parts = parts.push(piece::small(visible(start(about, LONGEST).0), look.roles).wrapping(text::Wrapping::WordOrGlyph));
        }
        parts = parts.push(input);
        if let Some((_, values)) = self.offered.as_ref().filter(|(of, values)| *of == index && !values.is_empty()) {
            let chips = values.iter().map(|value| {
                let words = piece::small(visible(start(value, 80).0), look.roles).color(look.roles.text);
                let chip = button(words).padding([2.0, gap::S]).style(style::chip);
                piece::pressed(chip, Some(Message::Take(index, value.clone())))
            });
            parts = parts.push(piece::buttons(chips));
        }
        let missing = self.tried && field.required && value.trim().is_empty();
        parts.push(piece::fault(missing.then(|| look.t("fault-missing")), look.roles)).into()
    }
}
