//! The arguments of a call, so that a person can judge them.

use std::fmt::Write as _;

use iced::Element;
use iced::Fill;
use iced::widget::{container, row};
use serde_json::Value;

use super::super::Look;
use crate::appearance::{space, style};
use crate::piece;

/// One argument: what it is called and its whole value.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    pub label: String,
    value: String,
}

/// The arguments in the schema's order, then those the schema does not know.
#[must_use]
pub fn list(arguments: &Value, schema: Option<&Value>) -> Vec<Argument> {
    let Some(given) = arguments.as_object() else { return Vec::new() };
    let properties = schema.and_then(|schema| schema.get("properties")).and_then(Value::as_object);
    let known = properties.into_iter().flatten().filter_map(|(key, property)| given.get(key).map(|value| (key, Some(property), value)));
    let unknown = given.iter().filter(|(key, _)| properties.is_none_or(|properties| !properties.contains_key(*key)));
    let all = known.chain(unknown.map(|(key, value)| (key, None, value)));
    all.map(|(key, property, value)| {
        let title = property.and_then(|property| property.get("title")).and_then(Value::as_str).filter(|title| !title.trim().is_empty());
        // A title that hides the real name would be a way to mislead, so both are shown where they differ.
        let label = match title {
            Some(title) if !title.eq_ignore_ascii_case(&key.replace('_', " ")) && !title.eq_ignore_ascii_case(key) => {
                format!("{title} ({key})")
            }
            Some(title) => title.to_owned(),
            None => key.clone(),
        };
        let value = match value {
            Value::String(text) => visible(text),
            other => visible(&serde_json::to_string_pretty(other).unwrap_or_default()),
        };
        Argument { label: visible(&label), value }
    })
    .collect()
}

impl Argument {
    /// Keeps the first characters of the value only.
    pub fn cut(&mut self, most: usize) {
        let (start, is_cut) = start(&self.value, most);
        if is_cut {
            self.value = format!("{start}…");
        }
    }

    #[cfg(test)]
    pub fn is_cut(&self) -> bool {
        self.value.ends_with('…')
    }

    /// Draws it as a line of two columns.
    pub fn view<'a, M: 'a>(&'a self, look: Look<'a>) -> Element<'a, M> {
        let label = piece::label(self.label.as_str()).color(look.roles.muted).width(150);
        let value = container(piece::mono(self.value.as_str())).padding([space::XS, space::S]).width(Fill).style(style::raised);
        row![container(label).padding([space::XS, 0.0]), value].spacing(space::M).into()
    }
}

/// The first characters of a text, and whether there are more.
#[must_use]
pub fn start(text: &str, most: usize) -> (&str, bool) {
    text.char_indices().nth(most).map_or((text, false), |(at, _)| (&text[..at], true))
}

/// Text with every character made visible that changes what is read without being seen: controls, marks of writing
/// direction, zero-width characters, tags and other format characters.
#[must_use]
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Unicode's format characters (Cf), controls other than line break and tab, separators, variation selectors of the
/// second block, and the letters that draw as nothing.
fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        // Joins emoji; on its own it is hidden text.
        '\u{00ad}'
        | '\u{034f}'
        | '\u{0600}'..='\u{0605}'
        | '\u{061c}'
        | '\u{06dd}'
        | '\u{070f}'
        | '\u{08e2}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_title_never_hides_the_real_name() {
        let schema = json!({"properties": {"path": {"title": "Harmless note"}, "dry_run": {"title": "Dry run"}}});
        let labels: Vec<_> = list(&json!({"dry_run": true, "path": "/etc/passwd", "x": [1]}), Some(&schema))
            .into_iter()
            .map(|argument| argument.label)
            .collect();
        assert_eq!(labels, ["Harmless note (path)", "Dry run", "x"]);
    }

    #[test]
    fn hidden_characters_are_shown_and_the_rest_is_untouched() {
        assert_eq!(visible("a\u{202e}b\u{200b}c\u{e0041}\r"), "a⟨U+202E⟩b⟨U+200B⟩c⟨U+E0041⟩⟨U+000D⟩");
        assert_eq!(visible("Zeile\n\t中文 é 👍"), "Zeile\n\t中文 é 👍");
    }
}
