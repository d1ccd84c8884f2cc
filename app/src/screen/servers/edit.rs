//! A server's entry as a form and as JSON. Both write the same entry, so fields that the form does not know stay.

mod form;

use std::sync::Arc;

use handrail_engine::mcp;
use handrail_engine::mcp::config;
use handrail_engine::tool::ServerId;
use iced::widget::{column, row, space, text_editor};
use iced::{Center, Element, Pixels, Task};

use self::form::Form;
use super::super::{Env, Look};
use crate::appearance::{MONO, size, space as gap, style};
use crate::icon::Icon;
use crate::piece;

/// The part.
#[derive(Debug, Default)]
pub struct Edit {
    form: Option<Form>,
    json: text_editor::Content,
    /// The entry as it is in the file, and as the form writes the same.
    kept: Option<(Arc<str>, Option<String>)>,
    /// What is being saved.
    saving: Option<Arc<str>>,
    /// Whether the JSON is shown.
    raw: bool,
    fault: Option<Fault>,
    saved: bool,
}

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fault {
    /// The field, where the reason names one.
    field: Option<String>,
    /// Line and column, for JSON.
    at: Option<(usize, usize)>,
    reason: String,
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    Loaded(Result<Arc<str>, String>),
    Raw(bool),
    Json(text_editor::Action),
    Form(form::Message),
    Save,
    /// Takes back what was not saved.
    Revert,
    Saved(Result<(), mcp::Error>),
}

/// What the page must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Refresh,
}

/// Reads the entry as it stands in the file.
pub fn load(server: &ServerId, env: &Env<'_>) -> Task<Message> {
    let (engine, server) = (env.engine.clone(), server.clone());
    let work =
        env.engine.handle().spawn_blocking(move || engine.servers().entry_text(&server).map(Into::into).map_err(|error| error.to_string()));
    Task::perform(work, |result| Message::Loaded(result.unwrap_or_else(|error| Err(error.to_string()))))
}

impl Edit {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, server: &ServerId, env: &Env<'_>) -> Action {
        match message {
            Message::Loaded(result) => self.loaded(result),
            Message::Raw(raw) => self.show(raw),
            Message::Json(action) => self.typed(action),
            Message::Form(message) => self.filled(message),
            Message::Save => self.save(server, env),
            Message::Revert => self.revert(server, env),
            Message::Saved(result) => self.done(result),
        }
    }

    /// Whether something was written that is not in the file.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        let Some((entry, form)) = &self.kept else { return false };
        let text = self.text();
        let same = |other: &str| other.trim_end() == text.trim_end();
        !same(entry) && !form.as_deref().is_some_and(same)
    }

    fn text(&self) -> String {
        match &self.form {
            Some(form) if !self.raw => form.text(),
            _ => self.json.text(),
        }
    }

    fn keep(&mut self, text: Arc<str>) {
        let form = Form::read(&text).map(|form| form.text());
        self.kept = Some((text, form));
    }

    fn revert(&mut self, server: &ServerId, env: &Env<'_>) -> Action {
        self.kept = None;
        Action::Run(load(server, env))
    }

    fn loaded(&mut self, result: Result<Arc<str>, String>) -> Action {
        // What was written and not saved stays until it is saved or taken back.
        if self.is_changed() || self.saving.is_some() {
            return Action::None;
        }
        self.saved = false;
        match result {
            Ok(text) => {
                self.fault = None;
                self.keep(text.clone());
                self.form = Form::read(&text);
                self.raw |= self.form.is_none();
                self.json = text_editor::Content::with_text(&text);
            }
            Err(reason) => self.fault = Some(Fault { field: None, at: None, reason }),
        }
        Action::None
    }

    /// Goes from one to the other; what was written goes along, where it can be read.
    fn show(&mut self, raw: bool) -> Action {
        if raw == self.raw {
            return Action::None;
        }
        if raw {
            if let Some(form) = &self.form {
                self.json = text_editor::Content::with_text(&form.text());
            }
            self.raw = true;
        } else {
            match Form::read(&self.json.text()) {
                Some(form) => {
                    self.form = Some(form);
                    self.raw = false;
                    self.fault = None;
                }
                None => self.fault = Some(unreadable(&self.json.text())),
            }
        }
        Action::None
    }

    fn typed(&mut self, action: text_editor::Action) -> Action {
        let edits = action.is_edit();
        self.json.perform(action);
        if edits {
            self.saved = false;
            self.fault = None;
        }
        Action::None
    }

    fn filled(&mut self, message: form::Message) -> Action {
        if let Some(form) = &mut self.form {
            form.update(message);
            self.saved = false;
        }
        Action::None
    }

    fn save(&mut self, server: &ServerId, env: &Env<'_>) -> Action {
        let text: Arc<str> = self.text().into();
        self.saving = Some(text.clone());
        let (engine, server) = (env.engine.clone(), server.clone());
        let work = env.engine.handle().spawn_blocking(move || engine.servers().set_entry_text(&server, &text));
        Action::Run(Task::perform(work, |result| {
            let broken =
                |error: tokio::task::JoinError| mcp::Error::Config(config::Error::File { path: "".into(), reason: error.to_string() });
            Message::Saved(result.unwrap_or_else(|error| Err(broken(error))))
        }))
    }

    fn done(&mut self, result: Result<(), mcp::Error>) -> Action {
        let saving = self.saving.take();
        match result {
            Ok(()) => {
                self.fault = None;
                if let Some(text) = saving {
                    self.keep(text);
                }
                self.saved = !self.is_changed();
                Action::Refresh
            }
            Err(error) => {
                self.saved = false;
                self.fault = Some(fault(&error));
                if let Some((line, column)) = self.fault.as_ref().and_then(|fault| fault.at) {
                    let position = text_editor::Position { line: line.saturating_sub(1), column: column.saturating_sub(1) };
                    self.json.move_to(text_editor::Cursor { position, selection: None });
                }
                Action::None
            }
        }
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let kinds = [(false, look.t("edit-form")), (true, look.t("edit-json"))];
        let kinds = row(kinds.map(|(raw, name)| piece::tab(name, raw == self.raw, Message::Raw(raw)))).spacing(gap::XS);
        let (changed, working) = (self.is_changed(), self.saving.is_some());
        let save = piece::primary(look.t("edit-save"), (changed && !working).then_some(Message::Save));
        let mut line = row![save].spacing(gap::M).align_y(Center);
        if changed {
            line = line.push(piece::secondary(look.t("edit-revert"), (!working).then_some(Message::Revert)));
            line = line.push(piece::state(Icon::Info, look.t("edit-changed"), look.roles.warning));
        } else if self.saved {
            line = line.push(piece::state(Icon::Done, look.t("edit-saved"), look.roles.success));
        }
        let here = self.fault.as_ref().filter(|fault| self.raw || fault.field.is_none());
        let words = here.map(|fault| match fault.at {
            Some((at, column)) => {
                let values = [("line", at.into()), ("column", column.into()), ("reason", fault.reason.as_str().into())];
                look.locale.tv("edit-at", values)
            }
            None if fault.reason.is_empty() => look.t("edit-no-form"),
            None => fault.reason.clone(),
        });
        let content: Element<'a, Message> = match &self.form {
            _ if self.raw => self.editor(look),
            Some(form) => {
                let fault = self.fault.as_ref().and_then(|fault| Some((fault.field.as_deref()?, fault.reason.as_str())));
                form.view(fault, look).map(Message::Form)
            }
            None => space().into(),
        };
        let about = piece::small(look.t("edit-about"), look.roles);
        // Above the text, which may be longer than the window.
        column![row![kinds, space().width(iced::Fill), about].align_y(Center), piece::fault(words, look.roles), content, line]
            .spacing(gap::M)
            .padding(iced::Padding::ZERO.right(gap::M))
            .into()
    }

    fn editor<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let _ = look;
        text_editor(&self.json)
            .on_action(Message::Json)
            .font(MONO)
            .size(size::CODE.0)
            .line_height(Pixels(size::CODE.1))
            .min_height(14.0 * size::CODE.1)
            .padding(gap::S)
            .style(style::framed_editor)
            .into()
    }
}

/// Where an error belongs.
fn fault(error: &mcp::Error) -> Fault {
    match error {
        mcp::Error::Config(config::Error::Parse { line, column, reason, .. }) => {
            Fault { field: None, at: Some((*line, *column)), reason: reason.clone() }
        }
        mcp::Error::Config(config::Error::Field { field, reason, .. }) => {
            let field = field.clone().or_else(|| form::named(reason));
            Fault { field: field.filter(|field| form::knows(field)), at: None, reason: reason.clone() }
        }
        other => Fault { field: None, at: None, reason: other.to_string() },
    }
}

/// Why a text is no entry.
fn unreadable(text: &str) -> Fault {
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(text) {
        Err(error) => {
            // The place is said before the reason.
            let reason = error.to_string();
            let reason = reason.split_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason).to_owned();
            Fault { field: None, at: Some((error.line(), error.column())), reason }
        }
        Ok(_) => Fault { field: None, at: None, reason: String::new() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_where_they_belong() {
        let said = |field: Option<&str>, reason: &str| {
            let (server, field, reason) = ("x".to_owned(), field.map(str::to_owned), reason.to_owned());
            fault(&mcp::Error::Config(config::Error::Field { server, field, reason })).field
        };
        let field = |reason: &str| said(None, reason);
        assert_eq!(said(Some("headers.X-Key"), "no"), Some("headers.X-Key".to_owned()));
        assert_eq!(said(Some("oauth.clientId"), "no"), None, "the form does not show it, so it is said under the form");
        assert_eq!(field("\"command\" is missing or empty; it names the program"), Some("command".to_owned()));
        assert_eq!(field("\"env\" holds \"A=B\", which is no name for a variable"), Some("env".to_owned()));
        assert_eq!(field("the name must have 1 to 128 characters"), None);
        let place = "the entry".to_owned();
        let parse = config::Error::Parse { place, line: 3, column: 7, reason: "expected a colon".to_owned() };
        assert_eq!(fault(&mcp::Error::Config(parse)).at, Some((3, 7)));
        assert_eq!(unreadable("{\n  \"a\" 1}").at, Some((2, 7)));
    }
}
