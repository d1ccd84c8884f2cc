//! What other programs on this machine have: chosen by tick, then seen on the sheet.

use std::collections::BTreeSet;
use std::sync::Arc;

use handrail_engine::mcp::import::{Found, Importable, Places};
use iced::widget::{Column, checkbox, column, container, row, text};
use iced::{Center, Element, Fill, Task};

use super::super::super::chat::argument::{start, visible};
use super::super::super::{Env, Look};
use crate::appearance::{SANS, size, space as gap, style};
use crate::facts::Facts;
use crate::icon::Icon;
use crate::piece;

/// The list.
#[derive(Debug, Default)]
pub struct Import {
    found: Option<Arc<Vec<Found>>>,
    ticked: BTreeSet<(usize, usize)>,
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    Found(Arc<Vec<Found>>),
    Tick(usize, usize, bool),
    Take,
}

/// Looks for what other programs have, off the screen.
pub fn look(env: &Env<'_>) -> Task<Message> {
    let engine = env.engine.clone();
    let work = env.engine.handle().spawn_blocking(move || {
        let places = Places::here();
        Arc::new(places.map(|places| engine.servers().importable(&places)).unwrap_or_default())
    });
    Task::perform(work, |found| Message::Found(found.unwrap_or_default()))
}

impl Import {
    /// Takes a message in; gives what is to be taken over.
    pub fn update(&mut self, message: Message) -> Option<Vec<Importable>> {
        match message {
            Message::Found(found) => {
                self.ticked.clear();
                self.found = Some(found);
                None
            }
            Message::Tick(program, server, on) => {
                if on {
                    let _ = self.ticked.insert((program, server));
                } else {
                    let _ = self.ticked.remove(&(program, server));
                }
                None
            }
            Message::Take => Some(self.chosen()).filter(|chosen| !chosen.is_empty()),
        }
    }

    /// The names that the chosen ones are given here: what is taken gets a number, as the engine does it.
    pub fn names<'s>(chosen: impl IntoIterator<Item = &'s Importable>, facts: &Facts) -> Vec<String> {
        let mut taken: Vec<String> = facts.servers.iter().map(|server| server.id.to_string()).collect();
        let names = chosen.into_iter().map(|server| {
            let numbered = (2_u64..).map(|number| format!("{}-{number}", server.name));
            let free = std::iter::once(server.name.clone()).chain(numbered).find(|name| !taken.contains(name));
            let name = free.unwrap_or_else(|| server.name.clone());
            taken.push(name.clone());
            name
        });
        names.collect()
    }

    /// The name that one of them would have here, with those that are ticked before it.
    fn name(&self, at: (usize, usize), server: &Importable, facts: &Facts) -> String {
        let found = self.found.as_deref().map(Vec::as_slice).unwrap_or_default();
        let before = self.ticked.range(..at).filter_map(|(program, server)| found.get(*program)?.servers.get(*server));
        let names = Self::names(before.filter(|server| takes(server)).chain(std::iter::once(server)), facts);
        names.into_iter().next_back().unwrap_or_default()
    }

    fn chosen(&self) -> Vec<Importable> {
        let found = self.found.as_deref().map(Vec::as_slice).unwrap_or_default();
        let chosen = self.ticked.iter().filter_map(|(program, server)| found.get(*program)?.servers.get(*server));
        chosen.filter(|server| takes(server)).cloned().collect()
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let about = piece::label(look.t("import-about")).color(look.roles.muted);
        let Some(found) = &self.found else {
            return column![about, piece::state(Icon::Working, look.t("import-looking"), look.roles.muted)].spacing(gap::M).into();
        };
        if found.is_empty() {
            return column![about, piece::empty(Icon::Servers, look.t("import-nothing"), look.roles)].spacing(gap::M).into();
        }
        let programs = found.iter().enumerate().map(|(at, found)| self.program(at, found, look));
        let take = piece::primary(look.t("add-look"), (!self.chosen().is_empty()).then_some(Message::Take));
        column![about, Column::with_children(programs).spacing(gap::M), take].spacing(gap::M).into()
    }

    fn program<'a>(&'a self, at: usize, found: &'a Found, look: Look<'a>) -> Element<'a, Message> {
        let path = piece::small(visible(&found.path.display().to_string()), look.roles).wrapping(text::Wrapping::WordOrGlyph);
        let mut parts = column![piece::strong(found.title), path].spacing(gap::XS);
        parts = parts.push(piece::fault(found.problem.as_deref().map(visible), look.roles));
        parts = parts.extend(found.servers.iter().enumerate().map(|(index, server)| self.server(at, index, server, look)));
        container(parts).padding(gap::M).width(Fill).style(style::card).into()
    }

    fn server<'a>(&'a self, at: usize, index: usize, server: &'a Importable, look: Look<'a>) -> Element<'a, Message> {
        let ticked = self.ticked.contains(&(at, index));
        let takes = takes(server);
        let tick = checkbox(ticked && takes)
            .label(visible(&server.name))
            .on_toggle_maybe(takes.then_some(move |on| Message::Tick(at, index, on)))
            .size(16)
            .text_size(size::UI.0)
            .font(SANS)
            .style(style::tick);
        let line = visible(start(&server.consent.subject.line(), 120).0);
        let mut words = row![tick, piece::small(line, look.roles).wrapping(text::Wrapping::WordOrGlyph)].spacing(gap::M).align_y(Center);
        if let Some(there) = &server.there {
            words = words.push(piece::tag(look.locale.tv("import-there", [("server", there.as_str().into())]), look.roles));
        }
        let name = self.name((at, index), server, look.facts);
        if takes && name != server.name {
            words = words.push(piece::tag(look.locale.tv("import-becomes", [("name", visible(&name).into())]), look.roles));
        }
        let needs = (!server.needs.is_empty()).then(|| look.locale.tv("import-needs", [("secrets", server.needs.join(", ").into())]));
        let problem = server.problem.as_deref().map(visible);
        column![words, piece::fault(problem.or(needs), look.roles)].spacing(2).into()
    }
}

/// Whether a server can be taken over.
const fn takes(server: &Importable) -> bool {
    server.there.is_none() && server.problem.is_none()
}
