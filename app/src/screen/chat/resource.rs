//! Resources of servers, to be attached: a list with search, a form for addresses with gaps, and what was read as an
//! attachment under its address.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use handrail_engine::mcp::offer::{Argument, Completable, Resource, Template};
use handrail_engine::tool::{Content, SchemaHash, ServerId};
use iced::widget::{Column, button, column, container, row, scrollable, space, text};
use iced::{Center, Element, Fill, Task};

use super::super::{Env, Look};
use super::argument::{start, visible};
use super::blanks::{self, Blanks};
use crate::appearance::{space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// Resources that are listed at once; searching shows others.
const LISTED: usize = 200;
/// Highest the list grows before it scrolls.
const HEIGHT: f32 = 300.0;

/// The panel.
#[derive(Debug, Default)]
pub struct Resources {
    shown: bool,
    lists: HashMap<ServerId, Known>,
    search: String,
    form: Option<(ServerId, Template, Blanks)>,
    /// What is being read.
    reading: Option<String>,
    error: Option<String>,
}

#[derive(Debug)]
enum Known {
    Asked,
    Here(Vec<Resource>, Vec<Template>),
    Failed(String),
}

/// What happens in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Toggle,
    Listed(ServerId, Result<(Vec<Resource>, Vec<Template>), String>),
    Search(String),
    Read(ServerId, String),
    Fill(ServerId, String),
    Blanks(blanks::Message),
    Got(String, Result<PathBuf, String>),
}

/// What the composer must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    /// This file holds what was read at this address.
    Attach(PathBuf, String),
}

/// Whether a server is there that offers resources.
#[must_use]
pub fn offered(look: Look<'_>) -> bool {
    look.facts.servers.iter().any(|server| server.state.is_usable() && server.offers.resources)
}

impl Resources {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Toggle => self.toggle(env),
            Message::Listed(server, result) => self.listed(server, result),
            Message::Search(search) => {
                self.search = search;
                Action::None
            }
            Message::Read(server, uri) => self.read(server, uri, env),
            Message::Fill(server, template) => self.fill(server, &template, env),
            Message::Blanks(message) => self.blanks(message, env),
            Message::Got(uri, result) => self.got(uri, result),
        }
    }

    /// Closes it; whether it was open.
    pub fn leaves(&mut self) -> bool {
        self.form.take().is_some() || std::mem::replace(&mut self.shown, false)
    }

    fn toggle(&mut self, env: &Env<'_>) -> Action {
        self.shown = !self.shown;
        self.error = None;
        if !self.shown {
            return Action::None;
        }
        // Asked anew each time: what a server has changes.
        let servers = env.facts.servers.iter().filter(|server| server.state.is_usable() && server.offers.resources);
        self.lists = servers.map(|server| (server.id.clone(), Known::Asked)).collect();
        let tasks = self.lists.keys().cloned().map(|id| {
            let (engine, server) = (env.engine.clone(), id.clone());
            let work =
                env.engine.handle().spawn(async move { engine.servers().resources(&server).await.map_err(|error| error.to_string()) });
            Task::perform(work, move |result| Message::Listed(id.clone(), result.unwrap_or_else(|error| Err(error.to_string()))))
        });
        Action::Run(Task::batch(tasks.collect::<Vec<_>>()))
    }

    fn listed(&mut self, server: ServerId, result: Result<(Vec<Resource>, Vec<Template>), String>) -> Action {
        let known = match result {
            Ok((resources, templates)) => Known::Here(resources, templates),
            Err(reason) => Known::Failed(reason),
        };
        let _ = self.lists.insert(server, known);
        Action::None
    }

    fn read(&mut self, server: ServerId, uri: String, env: &Env<'_>) -> Action {
        if self.reading.is_some() {
            return Action::None;
        }
        self.reading = Some(uri.clone());
        self.error = None;
        let (engine, asked, none) = (env.engine.clone(), uri.clone(), env.locale.t("resource-no-text"));
        let folder = env.engine.data_dir().join("resources");
        let work = env.engine.handle().spawn(async move {
            let content = engine.servers().read_resource(&server, &asked).await.map_err(|error| error.to_string())?;
            let text = text_of(&content).ok_or(none)?;
            keep(&folder, &asked, &text).map_err(|error| format!("{}: {error}", folder.display()))
        });
        Action::Run(Task::perform(work, move |result| Message::Got(uri.clone(), result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn fill(&mut self, server: ServerId, template: &str, env: &Env<'_>) -> Action {
        let Some(Known::Here(_, templates)) = self.lists.get(&server) else { return Action::None };
        let Some(template) = templates.iter().find(|known| known.uri == template).cloned() else { return Action::None };
        let fields = gaps(&template.uri).into_iter().map(|name| Argument { name, title: None, description: None, required: true });
        let completes = env.facts.server(&server).is_some_and(|server| server.offers.completions);
        let blanks = Blanks::new(server.clone(), Completable::Template(template.uri.clone()), fields.collect(), completes);
        self.form = Some((server, template, blanks));
        Action::Run(Blanks::focus())
    }

    fn blanks(&mut self, message: blanks::Message, env: &Env<'_>) -> Action {
        let Some((server, template, blanks)) = &mut self.form else { return Action::None };
        match blanks.update(message, env) {
            blanks::Action::None => Action::None,
            blanks::Action::Run(task) => Action::Run(task.map(Message::Blanks)),
            blanks::Action::Submit(values) => {
                let (server, uri) = (server.clone(), expand(&template.uri, &values));
                self.read(server, uri, env)
            }
            blanks::Action::Close => {
                self.form = None;
                Action::None
            }
        }
    }

    fn got(&mut self, uri: String, result: Result<PathBuf, String>) -> Action {
        self.reading = None;
        match result {
            Ok(path) => {
                self.shown = false;
                self.form = None;
                Action::Attach(path, uri)
            }
            Err(reason) => {
                self.error = Some(reason);
                Action::None
            }
        }
    }

    /// Draws it; nothing while it is closed.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Option<Element<'a, Message>> {
        if !self.shown {
            return None;
        }
        let close = piece::icon_button(Icon::Close, look.t("path-close"), Some(Message::Toggle));
        let fault = piece::fault(self.error.clone(), look.roles);
        let content: Element<'a, Message> = if let Some((server, template, blanks)) = &self.form {
            let head = row![piece::mono(visible(&template.uri)), piece::small(visible(server.as_str()), look.roles)].spacing(gap::M);
            column![head, blanks.view(look.t("resource-attach"), look).map(Message::Blanks)].spacing(gap::S).into()
        } else {
            let search = piece::input(&look.t("detail-search"), &self.search, Message::Search).width(Fill);
            column![search, self.list(look)].spacing(gap::S).into()
        };
        let head = row![piece::strong(look.t("resource-title")), space().width(Fill), close].align_y(Center);
        let mut parts = column![head].spacing(gap::S);
        if let Some(uri) = &self.reading {
            let words = look.locale.tv("resource-reading", [("uri", visible(start(uri, 120).0).into())]);
            parts = parts.push(piece::state(Icon::Working, words, look.roles.muted));
        }
        Some(container(parts.push(content).push(fault)).padding(gap::M).width(Fill).style(style::card).into())
    }

    fn list<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let wanted = self.search.trim().to_lowercase();
        let fits =
            |texts: [Option<&str>; 4]| wanted.is_empty() || texts.into_iter().flatten().any(|text| text.to_lowercase().contains(&wanted));
        let mut list = Column::new().spacing(2).width(Fill);
        let mut room = LISTED;
        let mut servers: Vec<_> = self.lists.iter().collect();
        servers.sort_by(|a, b| a.0.cmp(b.0));
        for (server, known) in servers {
            list = list.push(container(piece::small(visible(server.as_str()), look.roles)).padding([gap::XS, gap::S]));
            match known {
                Known::Asked => list = list.push(piece::state(Icon::Working, look.t("prompt-asking"), look.roles.muted)),
                Known::Failed(reason) => list = list.push(piece::fault(Some(reason.clone()), look.roles)),
                Known::Here(resources, templates) => {
                    let found =
                        templates.iter().filter(|t| fits([Some(&t.uri), Some(&t.name), t.title.as_deref(), t.description.as_deref()]));
                    for template in found.take(room) {
                        let name = template.title.as_deref().unwrap_or(&template.name);
                        room -= 1;
                        list = list.push(entry(name, &template.uri, Icon::Plus, Message::Fill(server.clone(), template.uri.clone()), look));
                    }
                    let found =
                        resources.iter().filter(|r| fits([Some(&r.uri), Some(&r.name), r.title.as_deref(), r.description.as_deref()]));
                    for resource in found.take(room) {
                        let name = resource.title.as_deref().unwrap_or(&resource.name);
                        room -= 1;
                        list = list.push(entry(name, &resource.uri, Icon::File, Message::Read(server.clone(), resource.uri.clone()), look));
                    }
                }
            }
        }
        if room == 0 {
            list = list.push(piece::small(look.locale.tv("resource-more", [("count", LISTED.into())]), look.roles));
        }
        container(scrollable(list).style(style::scroll).spacing(gap::XS)).max_height(HEIGHT).into()
    }
}

fn entry<'a>(name: &'a str, uri: &'a str, picture: Icon, message: Message, look: Look<'a>) -> Element<'a, Message> {
    let words = row![
        icon(picture).size(13.0).color(look.roles.muted),
        piece::label(visible(start(name, 60).0)),
        piece::small(visible(start(uri, 100).0), look.roles).wrapping(text::Wrapping::WordOrGlyph)
    ];
    let entry = button(words.spacing(gap::S).align_y(Center)).width(Fill).padding([gap::XS, gap::S]).style(style::entry(false));
    piece::pressed(entry, Some(message))
}

/// The text of what was read; none where there is none.
fn text_of(content: &[Content]) -> Option<String> {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|piece| match piece {
            Content::Text { text } | Content::Resource { text: Some(text), .. } => Some(text.as_str()),
            Content::Resource { text: None, .. } | Content::Image { .. } | Content::Audio { .. } => None,
        })
        .collect();
    (!texts.iter().all(|text| text.trim().is_empty())).then(|| texts.join("\n\n"))
}

/// Keeps what was read as a file of ours, under a name that says what it is and can be nobody else's.
fn keep(folder: &Path, uri: &str, text: &str) -> std::io::Result<PathBuf> {
    let last = uri.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let name: String = last.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).take(60).collect();
    let known = [".md", ".txt", ".html", ".csv", ".json"].iter().any(|ending| name.ends_with(ending));
    let hash = SchemaHash::of(&serde_json::json!([uri, text])).to_hex();
    let folder = folder.join(&hash[..hash.len().min(16)]);
    let name = name.trim_start_matches('.');
    let path = folder.join(if known { name.to_owned() } else { format!("{}.txt", if name.is_empty() { "resource" } else { name }) });
    std::fs::create_dir_all(&folder)?;
    std::fs::write(&path, text)?;
    Ok(path)
}

/// The names in the gaps of an address, each once.
fn gaps(template: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for piece in template.split('{').skip(1) {
        let Some((inside, _)) = piece.split_once('}') else { continue };
        for name in inside.trim_start_matches(['+', '#', '.', '/', ';', '?', '&']).split(',') {
            let name = name.split(':').next().unwrap_or_default().trim_end_matches('*');
            if !name.is_empty() && !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
    }
    names
}

/// Fills the gaps as RFC 6570 says, for plain texts.
fn expand(template: &str, values: &BTreeMap<String, String>) -> String {
    let mut address = String::new();
    let mut rest = template;
    while let Some((before, gap)) = rest.split_once('{') {
        address.push_str(before);
        let Some((inside, after)) = gap.split_once('}') else {
            rest = gap;
            continue;
        };
        rest = after;
        let operator = inside.chars().next().filter(|c| "+#./;?&".contains(*c));
        let names = inside[operator.map_or(0, char::len_utf8)..].split(',');
        let (first, between, named, open) = match operator {
            Some('+') => ("", ",", false, true),
            Some('#') => ("#", ",", false, true),
            Some('.') => (".", ".", false, false),
            Some('/') => ("/", "/", false, false),
            Some(';') => (";", ";", true, false),
            Some('?') => ("?", "&", true, false),
            Some('&') => ("&", "&", true, false),
            _ => ("", ",", false, false),
        };
        let mut is_first = true;
        for name in names {
            let (name, most) = name.split_once(':').map_or((name, None), |(name, most)| (name, most.parse::<usize>().ok()));
            let name = name.trim_end_matches('*');
            let Some(value) = values.get(name) else { continue };
            let value: String = value.chars().take(most.unwrap_or(usize::MAX)).collect();
            address.push_str(if is_first { first } else { between });
            is_first = false;
            if named {
                address.push_str(name);
                address.push('=');
            }
            encode(&value, open, &mut address);
        }
    }
    address.push_str(rest);
    address
}

/// Percent-encodes all but unreserved characters; `open` leaves reserved ones too.
fn encode(value: &str, open: bool, out: &mut String) {
    use std::fmt::Write as _;
    for byte in value.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || (open && b":/?#[]@!$&'()*+,;=".contains(&byte));
        if plain {
            out.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_found_and_filled_as_the_standard_says() {
        let values: BTreeMap<String, String> =
            [("path", "a b/c"), ("q", "x&y"), ("id", "中")].map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        for (template, expected) in [
            ("file:///{path}", "file:///a%20b%2Fc"),
            ("file:///{+path}", "file:///a%20b/c"),
            ("http://x{/path}{?q,id}", "http://x/a%20b%2Fc?q=x%26y&id=%E4%B8%AD"),
            ("x:{path:3}", "x:a%20b"),
            ("x:{missing}end", "x:end"),
            ("no gaps", "no gaps"),
            ("open {gap", "open gap"),
        ] {
            assert_eq!(expand(template, &values), expected, "{template}");
        }
        assert_eq!(gaps("a{/x*}{?y,x:3}{+z}"), ["x", "y", "z"]);
    }

    #[test]
    fn what_was_read_is_kept_under_a_harmless_name() {
        let folder = tempfile::tempdir().unwrap();
        for (uri, name) in [
            ("file:///notes/today.md", "today.md"),
            ("demo://resource/static/1", "1.txt"),
            ("x://../..", "resource.txt"),
            ("x:///a%2F..%2Fb?c", "a-2F..-2Fb.txt"),
        ] {
            let path = keep(folder.path(), uri, "text").unwrap();
            assert_eq!(path.file_name().unwrap().to_str(), Some(name), "{uri}");
            assert!(path.starts_with(folder.path()));
            assert_eq!(std::fs::read_to_string(path).unwrap(), "text");
        }
    }

    #[test]
    fn only_text_is_taken() {
        let image = Content::Image { data: "AAAA".to_owned(), mime: "image/png".to_owned() };
        assert_eq!(text_of(std::slice::from_ref(&image)), None);
        let text = Content::Resource { uri: "a".to_owned(), name: None, text: Some("b".to_owned()) };
        assert_eq!(text_of(&[text, image]), Some("b".to_owned()));
    }
}
