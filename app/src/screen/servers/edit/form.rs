//! The form over a server's entry.

use iced::widget::{Column, column, pick_list, row, text_editor, toggler};
use iced::{Center, Element, Fill, Pixels};
use serde_json::{Map, Value, json};

use super::super::super::Look;
use crate::appearance::{MONO, size, space as gap, style};
use crate::icon::Icon;
use crate::piece;

/// The form: the fields that it knows, and the whole entry for those that it does not.
#[derive(Debug)]
pub struct Form {
    entry: Map<String, Value>,
    kind: Kind,
    command: String,
    args: text_editor::Content,
    env: Vec<(String, String)>,
    cwd: String,
    url: String,
    headers: Vec<(String, String)>,
    timeout: String,
    startup: String,
    description: String,
    era: Era,
    active: bool,
    shows_values: bool,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Stdio,
    Http,
    Sse,
}

/// Which era of the protocol is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Auto,
    Legacy,
    Modern,
}

/// A choice with its name.
#[derive(Clone, Debug, PartialEq)]
struct Offer<T> {
    value: T,
    name: String,
}

impl<T> std::fmt::Display for Offer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// A line of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    Command,
    Cwd,
    Url,
    Timeout,
    Startup,
    Description,
}

/// Rows of names and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    Env,
    Headers,
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    Typed(Line, String),
    Args(text_editor::Action),
    Kind(Kind),
    Era(Era),
    Active(bool),
    Name(Rows, usize, String),
    Value(Rows, usize, String),
    More(Rows),
    Less(Rows, usize),
    Values(bool),
}

/// The fields whose names appear in the engine's reasons.
const FIELDS: [&str; 11] = ["command", "args", "env", "cwd", "url", "headers", "timeout", "startupTimeout", "description", "era", "type"];

/// The field that a reason is about: the first that it names.
#[must_use]
pub fn named(reason: &str) -> Option<String> {
    let quoted = reason.split('"').skip(1).step_by(2);
    quoted.into_iter().find(|name| FIELDS.contains(name)).map(str::to_owned)
}

/// Whether the form shows this field; one of a table has its name behind a dot.
#[must_use]
pub fn knows(field: &str) -> bool {
    FIELDS.contains(&field.split('.').next().unwrap_or_default())
}

fn text(entry: &Map<String, Value>, field: &str) -> String {
    match entry.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    }
}

fn pairs(entry: &Map<String, Value>, field: &str) -> Vec<(String, String)> {
    let pairs = entry.get(field).and_then(Value::as_object).into_iter().flatten();
    pairs.map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))).collect()
}

impl Form {
    /// Reads an entry; none where it is no object, or holds what the form cannot show.
    #[must_use]
    pub fn read(entry: &str) -> Option<Self> {
        let entry: Map<String, Value> = serde_json::from_str(entry).ok()?;
        let args: Vec<&str> = match entry.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items.iter().map(Value::as_str).collect::<Option<_>>()?,
            Some(_) => return None,
        };
        // One argument a line cannot show these.
        if args.iter().any(|argument| argument.contains('\n') || argument.is_empty()) {
            return None;
        }
        let kind = match text(&entry, "type").as_str() {
            "sse" => Kind::Sse,
            "http" | "streamable-http" | "streamableHttp" => Kind::Http,
            "" if entry.contains_key("url") => Kind::Http,
            _ => Kind::Stdio,
        };
        let era = match text(&entry, "era").as_str() {
            "legacy" => Era::Legacy,
            "modern" => Era::Modern,
            _ => Era::Auto,
        };
        Some(Self {
            kind,
            era,
            command: text(&entry, "command"),
            args: text_editor::Content::with_text(&args.join("\n")),
            env: pairs(&entry, "env"),
            cwd: text(&entry, "cwd"),
            url: text(&entry, "url"),
            headers: pairs(&entry, "headers"),
            timeout: text(&entry, "timeout"),
            startup: text(&entry, "startupTimeout"),
            description: text(&entry, "description"),
            active: entry.get("active").and_then(Value::as_bool).unwrap_or(true),
            shows_values: false,
            entry,
        })
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message) {
        match message {
            Message::Typed(line, text) => *self.line(line) = text,
            Message::Args(action) => self.args.perform(action),
            Message::Kind(kind) => self.kind = kind,
            Message::Era(era) => self.era = era,
            Message::Active(active) => self.active = active,
            Message::Name(rows, index, text) => {
                if let Some(row) = self.rows(rows).get_mut(index) {
                    row.0 = text;
                }
            }
            Message::Value(rows, index, text) => {
                if let Some(row) = self.rows(rows).get_mut(index) {
                    row.1 = text;
                }
            }
            Message::More(rows) => self.rows(rows).push((String::new(), String::new())),
            Message::Less(rows, index) => {
                let rows = self.rows(rows);
                if index < rows.len() {
                    drop(rows.remove(index));
                }
            }
            Message::Values(shown) => self.shows_values = shown,
        }
    }

    fn line(&mut self, line: Line) -> &mut String {
        match line {
            Line::Command => &mut self.command,
            Line::Cwd => &mut self.cwd,
            Line::Url => &mut self.url,
            Line::Timeout => &mut self.timeout,
            Line::Startup => &mut self.startup,
            Line::Description => &mut self.description,
        }
    }

    fn rows(&mut self, rows: Rows) -> &mut Vec<(String, String)> {
        match rows {
            Rows::Env => &mut self.env,
            Rows::Headers => &mut self.headers,
        }
    }

    /// The entry with what was filled in.
    #[must_use]
    pub fn text(&self) -> String {
        let mut entry = self.entry.clone();
        let mut set = |field: &str, value: Option<Value>| match value {
            Some(value) => drop(entry.insert(field.to_owned(), value)),
            None => drop(entry.shift_remove(field)),
        };
        let some = |text: &str| Some(json!(text.trim())).filter(|_| !text.trim().is_empty());
        let pairs = |rows: &[(String, String)]| {
            let rows: Map<String, Value> = rows.iter().filter(|(name, _)| !name.is_empty()).map(|(n, v)| (n.clone(), json!(v))).collect();
            Some(Value::Object(rows)).filter(|rows| rows.as_object().is_some_and(|rows| !rows.is_empty()))
        };
        // Where it is a number it is written as one; the engine says what is wrong with anything else.
        let number = |text: &str| some(text).map(|value| text.trim().parse::<u64>().map_or(value, |number| json!(number)));
        let kind = match self.kind {
            Kind::Stdio => "stdio",
            Kind::Http => "http",
            Kind::Sse => "sse",
        };
        set("type", Some(json!(kind)));
        let program = self.kind == Kind::Stdio;
        let args: Vec<String> = self.args.text().lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
        set("command", Some(json!(self.command.trim())).filter(|_| program));
        set("args", Some(json!(args)).filter(|_| program && !args.is_empty()));
        set("env", pairs(&self.env).filter(|_| program));
        set("cwd", some(&self.cwd).filter(|_| program));
        set("url", Some(json!(self.url.trim())).filter(|_| !program));
        set("headers", pairs(&self.headers).filter(|_| !program));
        set("timeout", number(&self.timeout));
        set("startupTimeout", number(&self.startup));
        set("description", some(&self.description));
        set(
            "era",
            match self.era {
                Era::Auto => None,
                Era::Legacy => Some(json!("legacy")),
                Era::Modern => Some(json!("modern")),
            },
        );
        set("active", Some(json!(self.active)));
        serde_json::to_string_pretty(&entry).unwrap_or_default()
    }

    /// Draws it; `fault` is a field with what is wrong in it.
    pub fn view<'a>(&'a self, fault: Option<(&'a str, &'a str)>, look: Look<'a>) -> Element<'a, Message> {
        let reason = |field: &str| fault.filter(|(name, _)| *name == field).map(|(_, reason)| reason.to_owned());
        let in_row = |table: &str| fault.and_then(|(name, reason)| Some((name.strip_prefix(table)?.strip_prefix('.')?, reason)));
        let line = |name: String, field: &'static str, value: &'a str, line: Line, hint: &'a str| {
            labelled(name, piece::input(hint, value, move |text| Message::Typed(line, text)).into(), reason(field), look)
        };
        let kinds = [(Kind::Stdio, look.t("edit-stdio")), (Kind::Http, look.t("edit-http")), (Kind::Sse, look.t("edit-sse"))];
        let mut parts = Column::new().spacing(gap::M).width(Fill);
        parts = parts.push(labelled(look.t("edit-type"), choice(kinds, self.kind, Message::Kind), reason("type"), look));
        if self.kind == Kind::Stdio {
            let args = text_editor(&self.args)
                .on_action(Message::Args)
                .font(MONO)
                .size(size::CODE.0)
                .line_height(Pixels(size::CODE.1))
                .min_height(3.0 * size::CODE.1)
                .padding(gap::S)
                .style(style::framed_editor);
            parts = parts
                .push(line(look.t("consent-command"), "command", &self.command, Line::Command, "npx"))
                .push(labelled(look.t("edit-args"), args.into(), reason("args"), look))
                .push(labelled(look.t("edit-env"), self.table(Rows::Env, &self.env, in_row("env"), look), reason("env"), look))
                .push(line(look.t("consent-folder"), "cwd", &self.cwd, Line::Cwd, ""));
        } else {
            parts = parts.push(line(look.t("consent-url"), "url", &self.url, Line::Url, "https://…")).push(labelled(
                look.t("edit-headers"),
                self.table(Rows::Headers, &self.headers, in_row("headers"), look),
                reason("headers"),
                look,
            ));
        }
        let eras =
            [(Era::Auto, look.t("edit-era-auto")), (Era::Legacy, look.t("about-era-legacy")), (Era::Modern, look.t("about-era-modern"))];
        let active = toggler(self.active).on_toggle(Message::Active).size(18).style(style::switch);
        parts
            .push(line(look.t("edit-timeout"), "timeout", &self.timeout, Line::Timeout, "30"))
            .push(line(look.t("edit-startup"), "startupTimeout", &self.startup, Line::Startup, "60"))
            .push(line(look.t("about-description"), "description", &self.description, Line::Description, ""))
            .push(labelled(look.t("about-era"), choice(eras, self.era, Message::Era), reason("era"), look))
            .push(labelled(look.t("edit-active"), active.into(), None, look))
            .into()
    }

    /// Names and values; values are often keys, so they are covered until asked for.
    fn table<'a>(
        &'a self,
        rows: Rows,
        pairs: &'a [(String, String)],
        fault: Option<(&'a str, &'a str)>,
        look: Look<'a>,
    ) -> Element<'a, Message> {
        let lines = pairs.iter().enumerate().map(|(index, (name, value))| {
            let wrong = fault.filter(|(row, _)| row == name).map(|(_, reason)| reason.to_owned());
            let name = piece::input(&look.t("edit-name"), name, move |text| Message::Name(rows, index, text)).width(220);
            let covered = !self.shows_values && !value.starts_with("${");
            let value = piece::input(&look.t("edit-value"), value, move |text| Message::Value(rows, index, text)).secure(covered);
            let less = piece::icon_button(Icon::Close, look.t("servers-remove"), Some(Message::Less(rows, index)));
            column![row![name, value.width(Fill), less].spacing(gap::S).align_y(Center), piece::fault(wrong, look.roles)].into()
        });
        let mut below = vec![piece::quiet(look.t("edit-more"), Some(Message::More(rows)))];
        if !pairs.is_empty() {
            let words = if self.shows_values { look.t("edit-hide") } else { look.t("edit-show") };
            below.push(piece::quiet(words, Some(Message::Values(!self.shows_values))));
        }
        Column::with_children(lines).push(piece::buttons(below)).spacing(gap::XS).into()
    }
}

fn labelled<'a>(name: String, control: Element<'a, Message>, reason: Option<String>, look: Look<'a>) -> Element<'a, Message> {
    let name = piece::label(name).color(look.roles.muted).width(180);
    row![iced::widget::container(name).padding([gap::S - 1.0, 0.0]), column![control, piece::fault(reason, look.roles)].width(Fill)]
        .spacing(gap::M)
        .into()
}

fn choice<'a, T: Copy + PartialEq + 'a, const N: usize>(
    offers: [(T, String); N],
    chosen: T,
    message: impl Fn(T) -> Message + 'a,
) -> Element<'a, Message> {
    let offers = offers.map(|(value, name)| Offer { value, name }).to_vec();
    let shown = offers.iter().find(|offer| offer.value == chosen).cloned();
    pick_list(offers, shown, move |offer| message(offer.value))
        .text_size(size::UI.0)
        .padding([gap::XS, gap::S])
        .style(style::pick)
        .menu_style(style::menu)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_changes_only_what_was_changed_and_keeps_what_it_does_not_know() {
        let entry = r#"{"command": "npx", "args": ["-y", "two words"], "env": {"KEY": "v"}, "alwaysAllow": ["x"], "timeout": 5}"#;
        let mut form = Form::read(entry).unwrap();
        form.update(Message::Typed(Line::Command, " uvx ".to_owned()));
        form.update(Message::More(Rows::Env));
        form.update(Message::Name(Rows::Env, 1, "NEW".to_owned()));
        form.update(Message::Typed(Line::Timeout, "soon".to_owned()));
        let written: Value = serde_json::from_str(&form.text()).unwrap();
        let expected = json!({
            "command": "uvx", "args": ["-y", "two words"], "env": {"KEY": "v", "NEW": ""}, "alwaysAllow": ["x"],
            "timeout": "soon", "type": "stdio", "active": true
        });
        assert_eq!(written, expected);
    }

    #[test]
    fn another_kind_of_server_takes_its_own_fields_only() {
        let mut form = Form::read(r#"{"command": "npx", "args": ["x"], "env": {"K": "v"}}"#).unwrap();
        form.update(Message::Kind(Kind::Http));
        form.update(Message::Typed(Line::Url, "https://example.com/mcp".to_owned()));
        let written: Value = serde_json::from_str(&form.text()).unwrap();
        assert_eq!(written, json!({"type": "http", "url": "https://example.com/mcp", "active": true}));
    }

    #[test]
    fn what_one_argument_a_line_cannot_show_is_left_to_the_json() {
        assert!(Form::read(r#"{"command": "sh", "args": ["-c", "a\nb"]}"#).is_none());
        assert!(Form::read("[]").is_none() && Form::read("{").is_none());
        assert_eq!(named("\"url\" is no address"), Some("url".to_owned()));
    }
}
