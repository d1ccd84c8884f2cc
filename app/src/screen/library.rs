//! The library: the documents that were attached, and their states.

use std::path::PathBuf;

use handrail_engine::conversation::{Attachment, DocumentId};
use handrail_engine::rag::{self, Document, DocumentState};
use iced::widget::{column, container, row, scrollable, space, text};
use iced::{Center, Element, Fill, Task};

use super::path_field::{self, PathField};
use super::{Env, Look};
use crate::appearance::{space as gap, style, width};
use crate::desktop;
use crate::icon::Icon;
use crate::piece;

/// The screen.
#[derive(Debug)]
pub struct Library {
    reading: usize,
    error: Option<String>,
    doomed: Option<DocumentId>,
    path: PathField,
}

impl Default for Library {
    fn default() -> Self {
        Self { reading: 0, error: None, doomed: None, path: PathField::new("library-path") }
    }
}

/// What happens on the screen.
#[derive(Clone, Debug)]
pub enum Message {
    Add,
    Path(path_field::Message),
    Chosen(Vec<PathBuf>),
    Read(Result<Attachment, rag::Error>),
    Ask(DocumentId),
    Keep,
    Remove(DocumentId),
    Removed(Result<(), String>),
    Dismiss,
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Refresh,
}

impl Library {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Add if !desktop::has_file_dialog() => Action::Run(self.path.show(true)),
            Message::Path(message) => self.path.update(message).map_or(Action::None, |path| self.add(&[path], env)),
            Message::Add => Action::Run(desktop::choose_files(env.locale.t("library-add"), Message::Chosen)),
            Message::Chosen(paths) => self.add(&paths, env),
            Message::Read(result) => self.read(result),
            Message::Ask(document) => self.ask(Some(document)),
            Message::Keep => self.ask(None),
            Message::Remove(document) => self.remove(document, env),
            Message::Removed(result) => self.removed(result),
            Message::Dismiss => self.dismiss(),
        }
    }

    fn add(&mut self, paths: &[PathBuf], env: &Env<'_>) -> Action {
        self.reading += paths.len();
        Action::Run(Task::batch(paths.iter().map(|path| Task::perform(env.engine.attach(path), Message::Read))))
    }

    fn read(&mut self, result: Result<Attachment, rag::Error>) -> Action {
        self.reading = self.reading.saturating_sub(1);
        if let Err(error) = result {
            self.error = Some(error.to_string());
        }
        Action::Refresh
    }

    fn ask(&mut self, document: Option<DocumentId>) -> Action {
        self.doomed = document;
        Action::None
    }

    fn remove(&mut self, document: DocumentId, env: &Env<'_>) -> Action {
        self.doomed = None;
        let engine = env.engine.clone();
        let work = env.engine.handle().spawn_blocking(move || engine.library().remove(document).map_err(|error| error.to_string()));
        Action::Run(Task::perform(work, |result| Message::Removed(result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn removed(&mut self, result: Result<(), String>) -> Action {
        self.error = result.err();
        Action::Refresh
    }

    fn dismiss(&mut self) -> Action {
        self.error = None;
        Action::None
    }

    /// Draws the screen.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let add = piece::secondary(look.t("library-add"), Some(Message::Add));
        let head = row![piece::page(look.t("library-title")), space().width(Fill), add].align_y(Center);
        let mut list = column![head, piece::label(look.t("library-about")).color(look.roles.muted)];
        list = list.extend(self.path.view(look.t("library-take"), look).map(|field| field.map(Message::Path)));
        if let Some(reason) = &self.error {
            let actions = vec![piece::quiet(look.t("app-dismiss"), Some(Message::Dismiss))];
            list = list.push(piece::banner(
                (Icon::Warning, |roles| roles.danger),
                look.t("library-error"),
                Some(reason.clone()),
                actions,
                look.roles,
            ));
        }
        if self.reading > 0 {
            let words = look.locale.tv("library-reading", [("count", self.reading.into())]);
            list = list.push(piece::state(Icon::Working, words, look.roles.info));
        }
        if look.facts.documents.is_empty() && self.reading == 0 {
            list = list.push(piece::empty(Icon::Library, look.t("library-empty"), look.roles));
        }
        list = list.extend(look.facts.documents.iter().map(|document| self.document(document, look)));
        let list = container(list.spacing(gap::M).max_width(width::READING)).center_x(Fill).padding(gap::XL);
        scrollable(list).style(style::scroll).height(Fill).into()
    }

    fn document<'a>(&'a self, document: &'a Document, look: Look<'a>) -> Element<'a, Message> {
        let roles = look.roles;
        let (state, reason) = match &document.state {
            DocumentState::Ready => (piece::state(Icon::Done, look.t("document-ready"), roles.success), None),
            DocumentState::Partly { reason } => (piece::state(Icon::Warning, look.t("document-partly"), roles.warning), Some(reason)),
            DocumentState::Failed { reason } => (piece::state(Icon::Failed, look.t("document-failed"), roles.danger), Some(reason)),
        };
        let act: Element<'a, Message> = if self.doomed == Some(document.id) {
            row![
                piece::quiet(look.t("library-remove"), Some(Message::Remove(document.id))),
                piece::quiet(look.t("sidebar-keep"), Some(Message::Keep))
            ]
            .into()
        } else {
            piece::icon_button(Icon::Delete, look.t("library-remove"), Some(Message::Ask(document.id)))
        };
        let name = piece::strong(document.name.as_str()).wrapping(text::Wrapping::WordOrGlyph).width(Fill);
        let head = row![name, state, act].spacing(gap::M).align_y(Center);
        let mut facts = vec![look.locale.bytes(document.bytes)];
        facts.extend(document.pages.map(|pages| look.locale.tv("document-pages", [("count", pages.into())])));
        facts.push(look.locale.tv("document-chunks", [("count", document.chunks.into())]));
        let mut parts = column![head, piece::small(facts.join(" · "), roles)].spacing(gap::XS);
        if let Some(reason) = reason {
            parts = parts.push(piece::label(reason.as_str()).color(roles.muted).wrapping(text::Wrapping::WordOrGlyph));
        }
        container(parts).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
    }
}
