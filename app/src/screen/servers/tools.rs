//! The tools of a server, with what each costs in the context and a switch.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use handrail_engine::mcp::ServerView;
use handrail_engine::tool::Definition;
use handrail_widgets::virtual_list;
use iced::widget::{Id, column, container, row, space, text, toggler};
use iced::{Center, Element, Fill};

use super::super::Look;
use super::super::chat::argument::{start, visible};
use super::{Known, card};
use crate::appearance::{MONO, size, space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// Most characters of a description.
const LONGEST: usize = 400;

/// Most characters of a name or title in the head of a row.
const NAME: usize = 64;

/// Most broken parts of a schema that are named.
const UNCHECKED: usize = 5;

/// The list.
const LIST: Id = Id::new("server-tools");

/// The part.
#[derive(Debug, Default)]
pub struct Tools {
    search: String,
}

/// What happens in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Search(String),
    Switch(String, bool),
}

/// What the page must do about it.
#[derive(Debug, PartialEq)]
pub enum Action {
    None,
    Switch(String, bool),
}

impl Tools {
    /// Takes a message in.
    pub fn update(&mut self, message: Message) -> Action {
        match message {
            Message::Search(search) => {
                self.search = search;
                Action::None
            }
            Message::Switch(tool, on) => Action::Switch(tool, on),
        }
    }

    /// Draws it.
    pub fn view<'a>(&'a self, server: &'a ServerView, known: Option<&'a Known>, look: Look<'a>) -> Element<'a, Message> {
        if server.tools.is_empty() && server.config.disabled_tools.is_empty() {
            return piece::empty(Icon::Tools, look.t("server-no-tools"), look.roles);
        }
        let wanted = self.search.trim().to_lowercase();
        let fits = |tool: &Definition| {
            wanted.is_empty() || [&tool.id.name, &tool.description].into_iter().any(|text| text.to_lowercase().contains(&wanted))
        };
        let shown: Vec<(usize, &'a Arc<Definition>)> = server.tools.iter().enumerate().filter(|(_, tool)| fits(tool)).collect();
        let on = server.tools.iter().filter(|tool| !server.config.disabled_tools.contains(&tool.id.name)).count();
        let values = [
            ("on", on.into()),
            ("count", server.tools.len().into()),
            ("tokens", known.map_or(0, |known| card::cost(server, known)).into()),
        ];
        let total = piece::label(look.locale.tv("tools-total", values));
        let search = piece::input(&look.t("detail-search"), &self.search, Message::Search).width(260);
        let head = row![total, space().width(Fill), search].spacing(gap::M).align_y(Center);
        // What is switched off and not listed any more can still be switched on.
        let gone: Vec<&'a str> = server.config.disabled_tools.iter().map(String::as_str).collect();
        let gone: Vec<&'a str> = gone.into_iter().filter(|name| !server.tools.iter().any(|tool| tool.id.name == *name)).collect();
        let keys = shown.iter().map(|(_, tool)| key(&tool.id.name)).chain(gone.iter().map(|name| key(name))).collect();
        let list = virtual_list(keys, move |index| match shown.get(index) {
            Some((at, tool)) => {
                let cost = known.and_then(|known| known.costs.get(*at)).copied();
                row_of(tool, !server.config.disabled_tools.contains(&tool.id.name), cost, look)
            }
            None => missing(gone.get(index - shown.len()).copied().unwrap_or_default(), look),
        });
        let list = list.id(LIST).from_start().spacing(gap::S).scroller(style::mix(look.roles.line, look.roles.muted, 0.4));
        column![head, piece::small(look.t("tools-about"), look.roles), list].spacing(gap::S).height(Fill).into()
    }
}

fn key(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn row_of<'a>(tool: &'a Definition, on: bool, cost: Option<usize>, look: Look<'a>) -> Element<'a, Message> {
    let roles = look.roles;
    let name = tool.id.name.clone();
    let switch = toggler(on).on_toggle(move |on| Message::Switch(name.clone(), on)).size(18).style(style::switch);
    let color = if on { roles.text } else { roles.muted };
    let mut head =
        row![icon(Icon::Call).size(12.0).color(roles.muted), name_of(&tool.id.name).color(color)].spacing(gap::S).align_y(Center);
    let title = tool.label();
    if title != tool.id.name {
        head = head.push(piece::small(card::cut(title, NAME), roles).wrapping(text::Wrapping::WordOrGlyph));
    }
    if tool.claims_read_only() {
        head = head.push(piece::tag(look.t("tool-read-only"), roles));
    }
    if !on {
        head = head.push(piece::tag(look.t("tool-off"), roles));
    }
    let tokens = cost.map(|cost| look.locale.tv("tool-cost", [("count", cost.into())])).unwrap_or_default();
    let head = row![head.width(Fill).wrap(), piece::small(tokens, roles)].spacing(gap::M).align_y(Center);
    let mut words = column![head].spacing(2).width(Fill);
    // What the head has no place for is still to be seen: it is what is called.
    if start(&tool.id.name, NAME).1 {
        words = words.push(piece::mono(visible(&tool.id.name)).size(size::SMALL.0).color(roles.muted));
    }
    let (about, is_cut) = start(tool.description.trim(), LONGEST);
    if !about.is_empty() {
        let about = if is_cut { format!("{}…", visible(about)) } else { visible(about) };
        words = words.push(piece::small(about, roles).wrapping(text::Wrapping::WordOrGlyph));
    }
    for part in tool.unchecked().iter().take(UNCHECKED) {
        let words_of = look.locale.tv("tool-unchecked", [("part", card::cut(&part.to_string(), LONGEST).into())]);
        words = words.push(piece::small(words_of, roles).color(roles.warning).wrapping(text::Wrapping::WordOrGlyph));
    }
    container(row![switch, words].spacing(gap::M)).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
}

/// A tool's name, at most as long as leaves place for what stands beside it.
fn name_of<'a>(name: &str) -> text::Text<'a> {
    piece::label(card::cut(name, NAME)).font(MONO).wrapping(text::Wrapping::WordOrGlyph)
}

fn missing<'a>(name: &'a str, look: Look<'a>) -> Element<'a, Message> {
    let switch = toggler(false).on_toggle(move |on| Message::Switch(name.to_owned(), on)).size(18).style(style::switch);
    let words = row![name_of(name).color(look.roles.muted), piece::tag(look.t("tool-gone"), look.roles)];
    let words = words.spacing(gap::S).align_y(Center).wrap();
    container(row![switch, words].spacing(gap::M)).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
}
