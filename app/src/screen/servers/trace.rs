//! What passes between Handrail and a server: raw JSON-RPC, pretty when opened.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use handrail_engine::mcp::TraceLine;
use handrail_engine::tool::ServerId;
use handrail_widgets::virtual_list;
use iced::widget::{Id, button, column, container, row, space};
use iced::{Center, Element, Fill, Task};
use serde_json::Value;

use super::super::chat::argument::{start, visible};
use super::super::{Env, Look};
use super::log::time;
use crate::appearance::{size, space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// Most characters of an opened message that are shown; Copy takes all.
const LONGEST: usize = 20_000;
/// The list, for scrolling.
const LIST: Id = Id::new("server-traffic");

/// The part.
#[derive(Debug, Default)]
pub struct Trace {
    lines: Arc<Vec<Line>>,
    open: HashSet<u64>,
    search: String,
    read: bool,
    error: Option<String>,
}

/// A message, with what stands in its row.
#[derive(Clone, Debug)]
pub struct Line {
    key: u64,
    line: TraceLine,
    what: String,
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    Read(Result<Arc<Vec<Line>>, String>),
    Search(String),
    Toggle(u64),
    Copy(u64),
}

/// Reads the traffic, off the screen.
pub fn read(server: &ServerId, env: &Env<'_>) -> Task<Message> {
    let (engine, server) = (env.engine.clone(), server.clone());
    let work = env.engine.handle().spawn_blocking(move || {
        let lines = engine.servers().trace(&server).map_err(|error| error.to_string())?;
        Ok(Arc::new(numbered(lines)))
    });
    Task::perform(work, |result| Message::Read(result.unwrap_or_else(|error| Err(error.to_string()))))
}

fn numbered(lines: Vec<TraceLine>) -> Vec<Line> {
    let mut seen = HashSet::with_capacity(lines.len());
    let keyed = lines.into_iter().map(|line| {
        let mut hasher = DefaultHasher::new();
        (line.at, line.received, &line.message).hash(&mut hasher);
        let mut key = hasher.finish();
        while !seen.insert(key) {
            key = key.wrapping_add(1);
        }
        let what = what(&line.message);
        Line { key, line, what }
    });
    keyed.collect()
}

/// What a message is, in short: its method, or which request it answers.
fn what(message: &str) -> String {
    let Ok(value) = serde_json::from_str::<Value>(message) else {
        return cut(message).unwrap_or_else(|| message.chars().take(80).collect());
    };
    let id =
        value.get("id").filter(|id| !id.is_null()).map(|id| format!(" #{}", id.as_str().map_or_else(|| id.to_string(), str::to_owned)));
    let id = id.unwrap_or_default();
    let name = value.pointer("/params/name").and_then(Value::as_str).map(|name| format!(" · {name}")).unwrap_or_default();
    match (value.get("method").and_then(Value::as_str), value.get("error")) {
        (Some(method), _) => format!("{method}{id}{name}"),
        (None, Some(error)) => format!("error{id} · {}", error.get("message").and_then(Value::as_str).unwrap_or_default()),
        (None, None) => format!("result{id}"),
    }
}

/// The same of a message that is too long to be kept whole: its beginning or its end, as servers write them, still tells.
fn cut(message: &str) -> Option<String> {
    /// As much of the beginning as the fields before a method or a result take.
    const HEAD: usize = 120;
    let (start, end) = message.rsplit_once(" [cut, ")?;
    let head = start.char_indices().nth(HEAD).map_or(start, |(at, _)| &start[..at]);
    let value = |rest: &str| -> Option<String> {
        let value = rest.split_once([',', '}'])?.0.trim().trim_matches('"');
        (!value.is_empty() && value.len() < 40).then(|| format!(" #{value}"))
    };
    if let Some((before, rest)) = head.split_once("\"method\":\"") {
        let id = before.split_once("\"id\":").and_then(|(_, rest)| value(rest));
        return Some(format!("{}{}", rest.split_once('"')?.0, id.unwrap_or_default()));
    }
    let (before, _) = head.split_once("\"result\":")?;
    // The last field ends with the only brace behind it; what stands inside the result has its braces, too.
    let last = end.rsplit_once(",\"id\":").map(|(_, rest)| rest).filter(|rest| rest.find('}') == Some(rest.len() - 1));
    let id = before.split_once("\"id\":").map(|(_, rest)| rest).or(last).and_then(value);
    Some(format!("result{}", id.unwrap_or_default()))
}

/// A message with line breaks, where it is whole.
fn pretty(message: &str) -> String {
    serde_json::from_str::<Value>(message).and_then(|value| serde_json::to_string_pretty(&value)).unwrap_or_else(|_| message.to_owned())
}

impl Trace {
    /// Takes a message in.
    pub fn update(&mut self, message: Message) -> Task<Message> {
        match message {
            Message::Read(Ok(lines)) => {
                self.error = None;
                self.open.retain(|key| lines.iter().any(|line| line.key == *key));
                self.lines = lines;
                return if std::mem::replace(&mut self.read, true) { Task::none() } else { iced::widget::operation::snap_to_end(LIST) };
            }
            Message::Read(Err(reason)) => self.error = Some(reason),
            Message::Search(search) => self.search = search,
            Message::Toggle(key) => {
                if !self.open.remove(&key) {
                    let _ = self.open.insert(key);
                }
            }
            Message::Copy(key) => {
                let line = self.lines.iter().find(|line| line.key == key);
                return line.map_or_else(Task::none, |line| iced::clipboard::write(pretty(&line.line.message)));
            }
        }
        Task::none()
    }

    fn shown(&self) -> Vec<&Line> {
        let wanted = self.search.trim().to_lowercase();
        self.lines.iter().filter(|line| wanted.is_empty() || line.line.message.to_lowercase().contains(&wanted)).collect()
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let shown = self.shown();
        let search = piece::input(&look.t("detail-search"), &self.search, Message::Search).width(260);
        let count = piece::label(look.locale.tv("traffic-count", [("count", shown.len().into())]));
        let head = row![count, space().width(Fill), search].spacing(gap::M).align_y(Center);
        let fault = piece::fault(self.error.clone(), look.roles);
        if shown.is_empty() {
            return column![head, fault, piece::empty(Icon::Servers, look.t("traffic-empty"), look.roles)].spacing(gap::S).into();
        }
        let keys = shown.iter().map(|line| line.key).collect();
        let list = virtual_list(keys, move |index| self.line(shown[index], look));
        let list = list.id(LIST).spacing(2.0).scroller(style::mix(look.roles.line, look.roles.muted, 0.4));
        column![head, fault, list].spacing(gap::S).height(Fill).into()
    }

    fn line<'a>(&'a self, line: &'a Line, look: Look<'a>) -> Element<'a, Message> {
        let roles = look.roles;
        let open = self.open.contains(&line.key);
        let (arrow, word, color) = if line.line.received {
            ("←", look.t("traffic-received"), roles.info)
        } else {
            ("→", look.t("traffic-sent"), roles.accent)
        };
        let head = row![
            icon(if open { Icon::Down } else { Icon::Right }).size(12.0).color(roles.muted),
            piece::mono(time(line.line.at)).size(size::SMALL.0).color(roles.faint).width(96),
            piece::small(format!("{arrow} {word}"), roles).color(color).width(96),
            piece::mono(visible(start(&line.what, 160).0)).size(size::SMALL.0).width(Fill),
            piece::small(look.locale.bytes(line.line.message.len() as u64), roles),
        ];
        let head = button(head.spacing(gap::S).align_y(Center)).padding([2.0, gap::XS]).width(Fill).style(style::quiet);
        let mut parts = column![piece::pressed(head, Some(Message::Toggle(line.key)))];
        if open {
            let text = pretty(&line.line.message);
            let (text, is_cut) = start(&text, LONGEST);
            let text = if is_cut { format!("{}…", visible(text)) } else { visible(text) };
            let copy = piece::quiet(look.t("call-copy"), Some(Message::Copy(line.key)));
            let shown = column![piece::mono(text).size(size::SMALL.0), copy].spacing(gap::XS);
            parts = parts.push(container(shown).padding(gap::S).width(Fill).style(style::raised));
        }
        parts.into()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn a_row_says_what_the_message_is() {
        for (message, expected) in [
            (r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo"}}"#, "tools/call #3 · echo"),
            (r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, "notifications/initialized"),
            (r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, "result #a"),
            (r#"{"jsonrpc":"2.0","id":4,"error":{"code":-1,"message":"no"}}"#, "error #4 · no"),
            (r#"{"jsonrpc":"2.0","id":5,"resu"#, r#"{"jsonrpc":"2.0","id":5,"resu"#),
            (r#"{"jsonrpc":"2.0","id":5,"result":{"a":"b [cut, 9000 bytes] c"}}"#, "result #5"),
            (r#"{"result":{"a":[{"n":1,"id":7 [cut, 9000 bytes] ,"id":8}]},"jsonrpc":"2.0","id":6}"#, "result #6"),
            (r#"{"result":{"a":"b [cut, 9000 bytes] {"n":1,"id":8}]}}"#, "result"),
            (r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"a [cut, 9000 bytes] "}}"#, "tools/call #9"),
        ] {
            assert_eq!(what(message), expected);
        }
        assert_eq!(pretty(r#"{"a":1}"#), "{\n  \"a\": 1\n}");
        assert_eq!(pretty("cut {"), "cut {");
    }

    #[test]
    fn search_looks_into_messages_and_what_is_opened_stays_open_while_it_is_there() {
        let line = |message: &str| TraceLine { at: SystemTime::UNIX_EPOCH, received: true, message: message.to_owned() };
        let lines = numbered(vec![line(r#"{"id":1,"result":{"x":"needle"}}"#), line(r#"{"id":2,"result":{}}"#)]);
        let (first, second) = (lines[0].key, lines[1].key);
        let mut trace = Trace::default();
        let _ = trace.update(Message::Read(Ok(Arc::new(lines.clone()))));
        let _ = trace.update(Message::Search("NEEDLE".to_owned()));
        assert_eq!(trace.shown().iter().map(|line| line.key).collect::<Vec<_>>(), [first]);
        let _ = trace.update(Message::Toggle(first));
        let _ = trace.update(Message::Toggle(second));
        let _ = trace.update(Message::Read(Ok(Arc::new(vec![lines[1].clone()]))));
        assert_eq!(trace.open, HashSet::from([second]));
    }
}
