//! Adding servers: pasted text, other programs, the gallery, a bundle file, a link. Each way ends on the consent sheet.

pub mod gallery;
mod import;
mod package;
mod typed;

use std::path::PathBuf;

use handrail_engine::mcp::bundle::Bundle;
use handrail_engine::mcp::consent::Origin;
use handrail_engine::mcp::form::Answers;
use handrail_engine::mcp::{self, Consent, config, link};
use handrail_engine::tool::ServerId;
use iced::widget::{column, row, text_editor};
use iced::{Element, Fill, Pixels, Task};

use self::gallery::Gallery;
use self::import::Import;
use self::package::Package;
use super::super::{Env, Look};
use super::consent::{Sheet, Source};
use crate::appearance::{MONO, size, space as gap, style};
use crate::piece;

/// What would be added, and what of the text would not.
type Shown = (Vec<(ServerId, Consent)>, Vec<String>);

/// The page.
#[derive(Debug, Default)]
pub struct Add {
    tab: Tab,
    paste: text_editor::Content,
    import: Import,
    gallery: Gallery,
    package: Package,
    error: Option<String>,
    working: bool,
}

/// A way to add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tab {
    #[default]
    Gallery,
    Paste,
    Import,
    Bundle,
}

/// What happens on it.
#[derive(Clone, Debug)]
pub enum Message {
    Show(Tab),
    Edited(text_editor::Action),
    Look,
    Looked(Source, Result<Shown, mcp::Error>),
    Link(String),
    Import(import::Message),
    Gallery(gallery::Message),
    Package(package::Message),
}

/// What the screen must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Show(Box<Sheet>),
}

impl Add {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Show(tab) => self.show(tab, env),
            Message::Edited(action) => self.edited(action),
            Message::Look => self.look(env),
            Message::Looked(source, result) => self.looked(source, result),
            Message::Link(link) => self.link(&link, env),
            Message::Import(message) => self.imported(message, env),
            Message::Gallery(message) => self.chosen(message, env),
            Message::Package(message) => self.packaged(message, env),
        }
    }

    fn show(&mut self, tab: Tab, env: &Env<'_>) -> Action {
        self.tab = tab;
        self.error = None;
        if tab == Tab::Import { Action::Run(import::look(env).map(Message::Import)) } else { Action::None }
    }

    fn edited(&mut self, action: text_editor::Action) -> Action {
        self.paste.perform(action);
        Action::None
    }

    fn look(&mut self, env: &Env<'_>) -> Action {
        let text = self.paste.text();
        if text.trim().is_empty() {
            return Action::None;
        }
        // Whoever pastes a link means what it stands for.
        if link::is_link(&text) { self.link(&text, env) } else { self.preview(text, Origin::Pasted, env) }
    }

    fn link(&mut self, address: &str, env: &Env<'_>) -> Action {
        match link::read(address) {
            Ok(text) => self.preview(text, Origin::Link, env),
            Err(error) => self.failed(error.into()),
        }
    }

    /// Says what a text would add; nothing is written.
    fn preview(&mut self, text: String, origin: Origin, env: &Env<'_>) -> Action {
        let source = Source::Text(text.clone(), origin.clone());
        self.ask(source, env, move |engine| {
            let shown = engine.servers().look(&text, &origin)?;
            Ok((shown.servers, shown.notes))
        })
    }

    fn ask(
        &mut self,
        source: Source,
        env: &Env<'_>,
        work: impl FnOnce(handrail_engine::Engine) -> Result<Shown, mcp::Error> + Send + 'static,
    ) -> Action {
        if std::mem::replace(&mut self.working, true) {
            return Action::None;
        }
        let engine = env.engine.clone();
        let work = env.engine.handle().spawn_blocking(move || work(engine));
        Action::Run(Task::perform(work, move |result| Message::Looked(source.clone(), result.unwrap_or_else(|error| Err(broken(&error))))))
    }

    fn looked(&mut self, source: Source, result: Result<Shown, mcp::Error>) -> Action {
        self.working = false;
        match result {
            Ok((entries, notes)) => {
                self.error = None;
                Action::Show(Box::new(Sheet::new(entries, source, notes)))
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&mut self, error: mcp::Error) -> Action {
        let refused = match &error {
            mcp::Error::Config(config::Error::Field { field, reason, .. }) => match self.tab {
                Tab::Gallery => self.gallery.refuse(field.clone(), reason),
                Tab::Bundle => self.package.refuse(field.clone(), reason),
                Tab::Paste | Tab::Import => false,
            },
            _ => false,
        };
        self.error = (!refused).then(|| error.to_string());
        Action::None
    }

    fn imported(&mut self, message: import::Message, env: &Env<'_>) -> Action {
        let Some(chosen) = self.import.update(message) else { return Action::None };
        let names = Import::names(&chosen, env.facts);
        let entries = names.into_iter().zip(&chosen).map(|(name, server)| (ServerId::new(name), server.consent.clone())).collect();
        let notes = chosen.iter().flat_map(|server| server.notes.iter().map(|note| format!("{}: {note}", server.name))).collect();
        Action::Show(Box::new(Sheet::new(entries, Source::Import(chosen), notes)))
    }

    fn chosen(&mut self, message: gallery::Message, env: &Env<'_>) -> Action {
        match self.gallery.update(message, env) {
            gallery::Action::None => Action::None,
            gallery::Action::Run(task) => Action::Run(task.map(Message::Gallery)),
            gallery::Action::Take(id, answers) => self.take(id, answers, env),
        }
    }

    /// Says what a server of the gallery would start; nothing is written before the sheet was agreed to.
    fn take(&mut self, id: String, answers: Answers, env: &Env<'_>) -> Action {
        let source = Source::Gallery(id.clone(), answers.clone());
        self.ask(source, env, move |engine| Ok((vec![engine.servers().preview_from_gallery(&id, &answers)?], Vec::new())))
    }

    fn packaged(&mut self, message: package::Message, env: &Env<'_>) -> Action {
        match self.package.update(message, env) {
            package::Action::None => Action::None,
            package::Action::Run(task) => Action::Run(task.map(Message::Package)),
            package::Action::Look(path, answers) => self.look_into(path, answers, env),
            package::Action::Failed(reason) => {
                self.error = Some(reason);
                Action::None
            }
        }
    }

    fn look_into(&mut self, path: PathBuf, answers: Answers, env: &Env<'_>) -> Action {
        let source = Source::Bundle(path.clone(), answers.clone());
        self.ask(source, env, move |engine| {
            let bundle = Bundle::open(&path)?;
            Ok((vec![engine.servers().preview_bundle(&bundle, &answers)?], Vec::new()))
        })
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let tabs = [
            (Tab::Gallery, look.t("add-gallery")),
            (Tab::Paste, look.t("add-paste")),
            (Tab::Import, look.t("add-import")),
            (Tab::Bundle, look.t("add-bundle")),
        ];
        let tabs = tabs.map(|(tab, name)| piece::tab(name, tab == self.tab, Message::Show(tab)));
        let content = match self.tab {
            Tab::Gallery => self.gallery.view(look).map(Message::Gallery),
            Tab::Paste => self.paste(look),
            Tab::Import => self.import.view(look).map(Message::Import),
            Tab::Bundle => self.package.view(look).map(Message::Package),
        };
        column![row(tabs).spacing(gap::XS), piece::fault(self.error.clone(), look.roles), content].spacing(gap::M).width(Fill).into()
    }

    fn paste<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let editor = text_editor(&self.paste)
            .placeholder(look.t("servers-paste-example"))
            .on_action(Message::Edited)
            .font(MONO)
            .size(size::CODE.0)
            .line_height(Pixels(size::CODE.1))
            .min_height(8.0 * size::CODE.1)
            .max_height(18.0 * size::CODE.1)
            .padding(gap::S)
            .style(style::framed_editor);
        let ready = !self.working && !self.paste.text().trim().is_empty();
        let look_at = piece::primary(look.t("add-look"), ready.then_some(Message::Look));
        let words = piece::label(look.t("servers-paste")).color(look.roles.muted);
        column![words, editor, look_at].spacing(gap::S).into()
    }
}

/// A task that broke down.
fn broken(error: &tokio::task::JoinError) -> mcp::Error {
    mcp::Error::Config(config::Error::File { path: PathBuf::new(), reason: error.to_string() })
}

#[cfg(test)]
impl Add {
    pub fn typed(&mut self, text: &str) {
        self.tab = Tab::Paste;
        self.paste = text_editor::Content::with_text(text);
    }
}
