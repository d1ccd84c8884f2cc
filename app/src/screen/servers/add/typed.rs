//! The typed form of a bundle or of a server of the gallery: what it must be told before it is a server.

use std::path::PathBuf;

use handrail_engine::mcp::form::{Answers, Field, Kind};
use iced::widget::{Column, column, row, text, toggler};
use iced::{Center, Element, Fill, Task};
use serde_json::{Value, json};

use super::super::super::Look;
use super::super::super::chat::argument::{start, visible};
use crate::appearance::{space as gap, style};
use crate::desktop;
use crate::icon::Icon;
use crate::piece;

/// Most characters of a bundle's words.
const LONGEST: usize = 600;

/// The form.
#[derive(Debug)]
pub struct Typed {
    fields: Vec<Field>,
    values: Vec<Vec<String>>,
    /// The field that the engine refused, and why.
    wrong: Option<(String, String)>,
    tried: bool,
}

/// What happens in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Typed(usize, usize, String),
    More(usize),
    Less(usize, usize),
    Choose(usize, usize),
    /// Enter in a field: means the button under the form.
    Submit,
    Chosen(usize, usize, Option<PathBuf>),
}

fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::String(text) => vec![text.clone()],
        Value::Null => Vec::new(),
        other => vec![other.to_string()],
    }
}

impl Typed {
    /// A form with the defaults in it.
    #[must_use]
    pub fn new(fields: Vec<Field>) -> Self {
        let values = fields.iter().map(|field| {
            let mut values = field.default.as_ref().map(texts).unwrap_or_default();
            if values.is_empty() {
                values.push(String::new());
            }
            values
        });
        Self { values: values.collect(), fields, wrong: None, tried: false }
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message) -> Task<Message> {
        match message {
            Message::Typed(field, index, text) => self.put(field, index, text),
            Message::More(field) => {
                if let Some(values) = self.values.get_mut(field) {
                    values.push(String::new());
                }
            }
            Message::Less(field, index) => {
                if let Some(values) = self.values.get_mut(field).filter(|values| values.len() > 1 && index < values.len()) {
                    drop(values.remove(index));
                }
            }
            Message::Choose(field, index) => {
                let Some(asked) = self.fields.get(field) else { return Task::none() };
                let (title, folder) = (asked.label().to_owned(), asked.kind == Kind::Directory);
                let chosen = move |path| Message::Chosen(field, index, path);
                return if folder { desktop::choose_folder(title, chosen) } else { desktop::choose_file(title, chosen) };
            }
            Message::Chosen(field, index, Some(path)) => self.put(field, index, path.display().to_string()),
            Message::Chosen(.., None) | Message::Submit => {}
        }
        Task::none()
    }

    fn put(&mut self, field: usize, index: usize, text: String) {
        if let Some(value) = self.values.get_mut(field).and_then(|values| values.get_mut(index)) {
            *value = text;
        }
        self.wrong = None;
    }

    /// The engine refused an answer.
    pub fn refuse(&mut self, field: String, reason: String) {
        self.wrong = Some((field, reason));
    }

    /// The answers, where nothing that is needed is missing. From here on what is missing is said at its field.
    pub fn answers(&mut self) -> Option<Answers> {
        self.tried = true;
        if self.fields.iter().zip(&self.values).any(|(field, values)| is_missing(field, values)) {
            return None;
        }
        let answers = self.fields.iter().zip(&self.values).filter_map(|(field, values)| {
            let given: Vec<&String> = values.iter().filter(|value| !value.trim().is_empty()).collect();
            let value = match (field.multiple, given.first()) {
                (_, None) => return None,
                (true, _) => json!(given),
                (false, Some(one)) => json!(one),
            };
            Some((field.key.clone(), value))
        });
        Some(answers.collect())
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let fields = self.fields.iter().zip(&self.values).enumerate();
        Column::with_children(fields.map(|(index, (field, values))| self.field(index, field, values, look))).spacing(gap::M).into()
    }

    fn field<'a>(&'a self, at: usize, field: &'a Field, values: &'a [String], look: Look<'a>) -> Element<'a, Message> {
        let mut head = row![piece::strong(visible(start(field.label(), LONGEST).0))].spacing(gap::S).align_y(Center);
        if field.required {
            head = head.push(piece::tag(look.t("question-required"), look.roles));
        }
        if field.sensitive {
            head = head.push(piece::tag(look.t("typed-secret"), look.roles));
        }
        let mut parts = column![head].spacing(gap::XS);
        if !field.description.trim().is_empty() {
            let about = visible(start(&field.description, LONGEST).0);
            parts = parts.push(piece::small(about, look.roles).wrapping(text::Wrapping::WordOrGlyph));
        }
        parts = parts.extend(values.iter().enumerate().map(|(index, value)| control(at, index, field, value, values.len() > 1, look)));
        if field.multiple {
            parts = parts.push(piece::buttons([piece::quiet(look.t("edit-more"), Some(Message::More(at)))]));
        }
        let refused = self.wrong.as_ref().filter(|(key, _)| *key == field.key).map(|(_, reason)| reason.clone());
        let missing = (self.tried && is_missing(field, values)).then(|| look.t("fault-missing"));
        parts.push(piece::fault(refused.or(missing), look.roles)).into()
    }
}

fn is_missing(field: &Field, values: &[String]) -> bool {
    field.required && field.default.is_none() && field.kind != Kind::Boolean && values.iter().all(|value| value.trim().is_empty())
}

fn control<'a>(at: usize, index: usize, field: &'a Field, value: &'a str, several: bool, look: Look<'a>) -> Element<'a, Message> {
    if field.kind == Kind::Boolean {
        let on = value == "true";
        let switch = toggler(on).on_toggle(move |on| Message::Typed(at, index, on.to_string())).size(18).style(style::switch);
        let word = if on { look.t("question-yes") } else { look.t("question-no") };
        return row![switch, piece::label(word)].spacing(gap::S).align_y(Center).into();
    }
    let hint = match field.kind {
        Kind::Directory => look.t("typed-folder"),
        Kind::File => look.t("path-placeholder"),
        Kind::String | Kind::Number | Kind::Boolean => String::new(),
    };
    let input = piece::input(&hint, value, move |text| Message::Typed(at, index, text))
        .on_submit(Message::Submit)
        .secure(field.sensitive)
        .width(Fill);
    let mut line = row![input].spacing(gap::S).align_y(Center);
    if matches!(field.kind, Kind::Directory | Kind::File) && desktop::has_file_dialog() {
        line = line.push(piece::secondary(look.t("typed-choose"), Some(Message::Choose(at, index))));
    }
    if several {
        line = line.push(piece::icon_button(Icon::Close, look.t("servers-remove"), Some(Message::Less(at, index))));
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> Typed {
        let fields = json!([
            {"key": "folder", "title": "Folder", "type": "directory", "required": true, "multiple": true},
            {"key": "token", "type": "string", "sensitive": true},
            {"key": "limit", "type": "number", "default": 5, "required": true},
            {"key": "write", "type": "boolean", "default": false}
        ]);
        Typed::new(serde_json::from_value(fields).unwrap())
    }

    #[test]
    fn answers_are_given_only_when_nothing_that_is_needed_is_missing() {
        let mut form = form();
        assert_eq!(form.answers(), None);
        let _ = form.update(Message::Typed(0, 0, "/a".to_owned()));
        let _ = form.update(Message::More(0));
        let _ = form.update(Message::Typed(0, 1, "/b".to_owned()));
        let _ = form.update(Message::More(0));
        let _ = form.update(Message::Typed(3, 0, "true".to_owned()));
        let answers = Value::Object(form.answers().unwrap().into_iter().collect());
        assert_eq!(answers, json!({"folder": ["/a", "/b"], "limit": "5", "write": "true"}));
        // A cancelled dialog changes nothing; a row that goes is gone.
        let _ = form.update(Message::Chosen(0, 0, None));
        let _ = form.update(Message::Less(0, 0));
        assert_eq!(form.answers().unwrap()["folder"], json!(["/b"]));
    }
}
