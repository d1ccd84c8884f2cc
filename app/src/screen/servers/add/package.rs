//! A bundle file (`.mcpb`): chosen, looked into, filled in, then seen on the sheet.

use std::path::PathBuf;
use std::sync::Arc;

use handrail_engine::mcp::bundle::Bundle;
use handrail_engine::mcp::form::{Answers, Field};
use iced::widget::{column, container, row, text};
use iced::{Center, Element, Fill, Task};

use super::super::super::chat::argument::{start, visible};
use super::super::super::path_field::{self, PathField};
use super::super::super::{Env, Look};
use super::typed::{self, Typed};
use crate::appearance::{space as gap, style};
use crate::desktop;
use crate::piece;

/// The part.
#[derive(Debug)]
pub struct Package {
    path: PathField,
    open: Option<(Arc<Facts>, Typed)>,
}

impl Default for Package {
    fn default() -> Self {
        Self { path: PathField::new("bundle-path"), open: None }
    }
}

/// What a bundle says about itself.
#[derive(Debug, PartialEq)]
pub struct Facts {
    path: PathBuf,
    title: String,
    version: String,
    author: String,
    description: String,
    command: String,
    fields: Vec<Field>,
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    Choose,
    Path(path_field::Message),
    Chosen(Option<PathBuf>),
    Opened(Result<Arc<Facts>, String>),
    Typed(typed::Message),
    Look,
    Close,
}

/// What the page must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    /// Shows what the bundle would start with these answers.
    Look(PathBuf, Answers),
    Failed(String),
}

impl Package {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Choose if !desktop::has_file_dialog() => Action::Run(self.path.show(true)),
            Message::Choose => Action::Run(desktop::choose_file(env.locale.t("bundle-choose"), Message::Chosen)),
            Message::Path(message) => self.path.update(message).map_or(Action::None, |path| read(path, env)),
            Message::Chosen(path) => path.map_or(Action::None, |path| read(path, env)),
            Message::Opened(Ok(facts)) => {
                let form = Typed::new(facts.fields.clone());
                self.open = Some((facts, form));
                Action::None
            }
            Message::Opened(Err(reason)) => Action::Failed(reason),
            Message::Typed(typed::Message::Submit) => self.update(Message::Look, env),
            Message::Typed(message) => match &mut self.open {
                Some((_, form)) => Action::Run(form.update(message).map(Message::Typed)),
                None => Action::None,
            },
            Message::Look => match &mut self.open {
                Some((facts, form)) => form.answers().map_or(Action::None, |answers| Action::Look(facts.path.clone(), answers)),
                None => Action::None,
            },
            Message::Close => {
                self.open = None;
                Action::None
            }
        }
    }

    /// The engine refused an answer; whether its field is shown.
    pub fn refuse(&mut self, field: Option<String>, reason: &str) -> bool {
        match (&mut self.open, field) {
            (Some((_, form)), Some(field)) => {
                form.refuse(field, reason.to_owned());
                true
            }
            _ => false,
        }
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let about = piece::label(look.t("bundle-about")).color(look.roles.muted).wrapping(text::Wrapping::WordOrGlyph);
        let choose = piece::buttons([piece::secondary(look.t("bundle-choose"), Some(Message::Choose))]);
        let field = self.path.view(look.t("bundle-open"), look).map(|field| field.map(Message::Path));
        let mut parts = column![about, choose].spacing(gap::M).push(field);
        if let Some((facts, form)) = &self.open {
            let title = piece::strong(visible(start(&facts.title, 120).0));
            let by = [("version", visible(&facts.version).into()), ("author", visible(start(&facts.author, 80).0).into())];
            let by = piece::small(look.locale.tv("bundle-by", by), look.roles);
            let words = piece::label(visible(start(&facts.description, 800).0)).wrapping(text::Wrapping::WordOrGlyph);
            let needs = piece::small(look.locale.tv("gallery-needs", [("programs", visible(&facts.command).into())]), look.roles);
            let look_at = piece::primary(look.t("add-look"), Some(Message::Look));
            let close = piece::quiet(look.t("consent-cancel"), Some(Message::Close));
            let card = column![
                row![title, by].spacing(gap::M).align_y(Center),
                words,
                needs,
                form.view(look).map(Message::Typed),
                piece::buttons([look_at, close])
            ];
            parts = parts.push(container(card.spacing(gap::M)).padding(gap::M).width(Fill).style(style::card));
        }
        parts.into()
    }
}

/// Looks into a bundle, off the screen; nothing is unpacked.
fn read(path: PathBuf, env: &Env<'_>) -> Action {
    let work = env.engine.handle().spawn_blocking(move || {
        let bundle = Bundle::open(&path).map_err(|error| error.to_string())?;
        Ok(Arc::new(Facts {
            title: bundle.title().to_owned(),
            version: bundle.version().to_owned(),
            author: bundle.author().to_owned(),
            description: bundle.description().to_owned(),
            command: bundle.command().to_owned(),
            fields: bundle.fields().to_vec(),
            path,
        }))
    });
    Action::Run(Task::perform(work, |result| Message::Opened(result.unwrap_or_else(|error| Err(error.to_string())))))
}
