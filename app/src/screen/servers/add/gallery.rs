//! Well-known servers: what each is for, what it needs, whether that is here, and what it must be told.

use std::collections::HashMap;

use handrail_engine::mcp::form::Answers;
use handrail_engine::mcp::gallery::{Check, Offer, offers};
use iced::widget::{Column, column, container, row, text};
use iced::{Center, Element, Fill, Task};

use super::super::super::{Env, Look};
use super::typed::{self, Typed};
use crate::appearance::{space as gap, style};
use crate::desktop;
use crate::icon::Icon;
use crate::piece;

/// The gallery.
#[derive(Debug)]
pub struct Gallery {
    offers: Vec<Offer>,
    checks: HashMap<String, Checked>,
    /// The server whose form is open.
    form: Option<(String, Typed)>,
}

impl Default for Gallery {
    fn default() -> Self {
        Self { offers: offers(), checks: HashMap::new(), form: None }
    }
}

#[derive(Debug)]
enum Checked {
    Asked,
    Here(Check),
    Failed(String),
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    Check(String),
    Checked(String, Result<Check, String>),
    Open(String),
    Close,
    Typed(typed::Message),
    Take,
    Homepage(String),
}

/// What the page must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    /// Adds a server with these answers, switched off.
    Take(String, Answers),
}

impl Gallery {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Check(id) => self.check(id, env),
            Message::Checked(id, result) => {
                let _ = self.checks.insert(id, result.map_or_else(Checked::Failed, Checked::Here));
                Action::None
            }
            Message::Open(id) => {
                let fields = self.offers.iter().find(|offer| offer.id == id).map(Offer::fields).unwrap_or_default();
                self.form = Some((id, Typed::new(fields)));
                Action::None
            }
            Message::Close => {
                self.form = None;
                Action::None
            }
            Message::Typed(typed::Message::Submit) => self.update(Message::Take, env),
            Message::Typed(message) => match &mut self.form {
                Some((_, form)) => Action::Run(form.update(message).map(Message::Typed)),
                None => Action::None,
            },
            Message::Take => match &mut self.form {
                Some((id, form)) => form.answers().map_or(Action::None, |answers| Action::Take(id.clone(), answers)),
                None => Action::None,
            },
            Message::Homepage(address) => Action::Run(desktop::open_address(&address)),
        }
    }

    /// The engine refused an answer; whether its field is shown.
    pub fn refuse(&mut self, field: Option<String>, reason: &str) -> bool {
        match (&mut self.form, field) {
            (Some((_, form)), Some(field)) => {
                form.refuse(field, reason.to_owned());
                true
            }
            _ => false,
        }
    }

    fn check(&mut self, id: String, env: &Env<'_>) -> Action {
        let _ = self.checks.insert(id.clone(), Checked::Asked);
        let (engine, asked) = (env.engine.clone(), id.clone());
        let work =
            env.engine.handle().spawn(async move { engine.servers().gallery_check(&asked).await.map_err(|error| error.to_string()) });
        Action::Run(Task::perform(work, move |result| Message::Checked(id.clone(), result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let about = piece::label(look.t("gallery-about")).color(look.roles.muted);
        let cards = self.offers.iter().map(|offer| self.card(offer, look));
        column![about, Column::with_children(cards).spacing(gap::S)].spacing(gap::M).into()
    }

    fn card<'a>(&'a self, offer: &'a Offer, look: Look<'a>) -> Element<'a, Message> {
        let roles = look.roles;
        let open = self.form.as_ref().filter(|(id, _)| *id == offer.id);
        let about = piece::small(offer.description.as_str(), roles).wrapping(text::Wrapping::WordOrGlyph);
        let programs = offer.programs();
        let needs = if programs.is_empty() { offer.url.clone().unwrap_or_default() } else { programs.join(", ") };
        let asks: Vec<String> = offer.fields().iter().filter(|field| field.required).map(|field| field.label().to_owned()).collect();
        let mut needs = look.locale.tv("gallery-needs", [("programs", needs.into())]);
        if !asks.is_empty() {
            needs = format!("{needs} · {}", look.locale.tv("gallery-asks", [("fields", asks.join(", ").into())]));
        }
        let words = column![piece::strong(offer.title.as_str()), about, piece::small(needs, roles)].spacing(2).width(Fill);
        let mut buttons = vec![piece::quiet(look.t("gallery-check"), Some(Message::Check(offer.id.clone())))];
        if offer.homepage.starts_with("https://") {
            buttons.insert(0, piece::quiet(look.t("gallery-more"), Some(Message::Homepage(offer.homepage.clone()))));
        }
        // It stays where the form is open, so that the others keep their places.
        buttons.push(piece::secondary(look.t("gallery-add"), open.is_none().then(|| Message::Open(offer.id.clone()))));
        let buttons = iced::widget::Row::with_children(buttons).spacing(gap::XS).align_y(Center);
        let mut parts = column![row![words, buttons].spacing(gap::M).align_y(Center)].spacing(gap::S);
        parts = parts.extend(self.checks.get(&offer.id).map(|checked| self::checked(checked, look)));
        if let Some((_, form)) = open {
            let take = piece::primary(look.t("gallery-take"), Some(Message::Take));
            let close = piece::quiet(look.t("consent-cancel"), Some(Message::Close));
            parts = parts.push(form.view(look).map(Message::Typed)).push(piece::buttons([take, close]));
        }
        container(parts).padding(gap::M).width(Fill).style(style::card).into()
    }
}

fn checked<'a>(checked: &'a Checked, look: Look<'a>) -> Element<'a, Message> {
    let roles = look.roles;
    match checked {
        Checked::Asked => piece::state(Icon::Working, look.t("gallery-checking"), roles.muted),
        Checked::Failed(reason) => piece::fault(Some(reason.clone()), roles),
        Checked::Here(check) => {
            let found = check.found.iter().map(|(program, path)| {
                piece::state(
                    Icon::Done,
                    look.locale.tv("gallery-found", [("program", program.into()), ("path", path.into())]),
                    roles.success,
                )
            });
            let missing = check.missing.iter().map(|reason| piece::fault(Some(reason.clone()), roles));
            Column::with_children(found.chain(missing)).spacing(2).into()
        }
    }
}
