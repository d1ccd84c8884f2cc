//! A line for the path of a file: the way to name one where the system has no file dialog, and for those who know
//! the path already.

use std::path::PathBuf;

use iced::widget::{Id, column, row, text_input};
use iced::{Center, Element, Task};

use super::Look;
use crate::appearance::{SANS, size, space as gap, style};
use crate::icon::Icon;
use crate::piece;

/// The field of a screen.
#[derive(Debug)]
pub struct PathField {
    id: Id,
    text: String,
    /// Whether it is shown, and if so whether the missing dialog is the reason.
    shown: Option<bool>,
}

/// What happens in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Typed(String),
    Enter,
    Close,
}

impl PathField {
    /// A field that is not shown; `name` is for focus.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Self { id: Id::new(name), text: String::new(), shown: None }
    }

    /// Shows the field and puts the cursor in it. `missing` says that it stands for a dialog that is not there.
    pub fn show<M: Send + 'static>(&mut self, missing: bool) -> Task<M> {
        self.shown = Some(missing);
        iced::widget::operation::focus(self.id.clone())
    }

    /// Takes a message in; gives a path when one was entered.
    pub fn update(&mut self, message: Message) -> Option<PathBuf> {
        match message {
            Message::Typed(text) => {
                self.text = text;
                None
            }
            Message::Enter => {
                let path = path(&self.text, std::env::var_os("HOME").map(PathBuf::from));
                if path.is_some() {
                    self.hide();
                }
                path
            }
            Message::Close => {
                self.hide();
                None
            }
        }
    }

    fn hide(&mut self) {
        self.shown = None;
        self.text.clear();
    }

    /// Draws it; nothing while it is not shown. `act` names what Enter does.
    pub fn view<'a>(&'a self, act: String, look: Look<'a>) -> Option<Element<'a, Message>> {
        let missing = self.shown?;
        let field = text_input(&look.t("path-placeholder"), &self.text)
            .id(self.id.clone())
            .on_input(Message::Typed)
            .on_submit(Message::Enter)
            .font(SANS)
            .size(size::UI.0)
            .padding([gap::S - 1.0, gap::M])
            .style(style::input);
        let enter = piece::secondary(act, (!self.text.trim().is_empty()).then_some(Message::Enter));
        let line = row![field, enter, piece::icon_button(Icon::Close, look.t("path-close"), Some(Message::Close))];
        let mut parts = column![line.spacing(gap::S).align_y(Center)].spacing(gap::XS);
        if missing {
            parts = parts.push(piece::small(look.t("path-why"), look.roles));
        }
        Some(parts.into())
    }
}

/// The path that was written: quotes around it, a `file://` before it and a leading `~` are understood.
fn path(written: &str, home: Option<PathBuf>) -> Option<PathBuf> {
    let text = written.trim();
    let unquoted = ['"', '\''].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote));
    let text = unquoted.unwrap_or(text);
    let text = text.strip_prefix("file://").unwrap_or(text);
    if text.is_empty() {
        return None;
    }
    match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => Some(home.join(rest)),
        _ => Some(PathBuf::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_understood_as_people_paste_them() {
        let home = || Some(PathBuf::from("/home/ada"));
        assert_eq!(path(" /tmp/a b.pdf ", home()), Some("/tmp/a b.pdf".into()));
        assert_eq!(path("\"/tmp/a b.pdf\"", home()), Some("/tmp/a b.pdf".into()));
        assert_eq!(path("'~/a.pdf'", home()), Some("/home/ada/a.pdf".into()));
        assert_eq!(path("file:///tmp/a.pdf", home()), Some("/tmp/a.pdf".into()));
        assert_eq!(path("~/a.pdf", None), Some("~/a.pdf".into()));
        assert_eq!(path("  ", home()), None);
        assert_eq!(path("\"", home()), Some("\"".into()));
    }

    #[test]
    fn a_path_is_given_once_and_the_field_goes() {
        let mut field = PathField::new("test");
        let _: Task<()> = field.show(true);
        assert_eq!(field.update(Message::Enter), None);
        assert!(field.shown.is_some());
        let _ = field.update(Message::Typed("/tmp/a.pdf".to_owned()));
        assert_eq!(field.update(Message::Enter), Some("/tmp/a.pdf".into()));
        assert!(field.shown.is_none() && field.text.is_empty());
    }
}
