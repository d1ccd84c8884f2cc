//! The MCP servers: paste, start, stop, remove; their state, tools and last words.

use std::collections::HashSet;
use std::sync::Arc;

use handrail_engine::mcp::config::Transport;
use handrail_engine::mcp::{ServerView, State};
use handrail_engine::tool::{Definition, ServerId};
use iced::widget::{Column, Row, button, column, container, row, scrollable, space, text, text_editor};
use iced::{Center, Color, Element, Fill, Pixels, Task};

use super::{Env, Look};
use crate::appearance::{MONO, Roles, size, space as gap, style, width};
use crate::icon::{Icon, icon};
use crate::piece;

/// Lines of stderr that are shown.
const LAST_LINES: usize = 12;

/// The screen.
#[derive(Debug, Default)]
pub struct Servers {
    paste: text_editor::Content,
    error: Option<String>,
    open: HashSet<ServerId>,
    doomed: Option<ServerId>,
    adding: bool,
}

/// What happens on the screen.
#[derive(Clone, Debug)]
pub enum Message {
    Edited(text_editor::Action),
    Add,
    Added(Result<Vec<ServerId>, String>),
    Start(ServerId),
    Stop(ServerId),
    Ask(ServerId),
    Keep,
    Remove(ServerId),
    Done(Result<(), String>),
    Toggle(ServerId),
    Dismiss,
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Refresh,
}

impl Servers {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Edited(action) => self.edited(action),
            Message::Add => self.add(env),
            Message::Added(result) => self.added(result),
            Message::Start(id) => start(id, env),
            Message::Stop(id) => act(env, async move |engine| engine.servers().stop(&id).await.map_err(|error| error.to_string())),
            Message::Ask(id) => self.ask(Some(id)),
            Message::Keep => self.ask(None),
            Message::Remove(id) => self.remove(id, env),
            Message::Done(result) => self.done(result),
            Message::Toggle(id) => self.toggle(id),
            Message::Dismiss => self.dismiss(),
        }
    }

    fn edited(&mut self, action: text_editor::Action) -> Action {
        self.paste.perform(action);
        Action::None
    }

    fn add(&mut self, env: &Env<'_>) -> Action {
        let text = self.paste.text();
        if text.trim().is_empty() || self.adding {
            return Action::None;
        }
        self.adding = true;
        let engine = env.engine.clone();
        let work = env.engine.handle().spawn_blocking(move || engine.servers().paste(&text).map_err(|error| error.to_string()));
        Action::Run(Task::perform(work, |result| Message::Added(result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn added(&mut self, result: Result<Vec<ServerId>, String>) -> Action {
        self.adding = false;
        match result {
            Ok(_) => {
                self.paste = text_editor::Content::new();
                self.error = None;
                Action::Refresh
            }
            Err(reason) => {
                self.error = Some(reason);
                Action::None
            }
        }
    }

    fn ask(&mut self, id: Option<ServerId>) -> Action {
        self.doomed = id;
        Action::None
    }

    fn remove(&mut self, id: ServerId, env: &Env<'_>) -> Action {
        self.doomed = None;
        act(env, async move |engine| engine.servers().remove(&id).await.map_err(|error| error.to_string()))
    }

    fn done(&mut self, result: Result<(), String>) -> Action {
        self.error = result.err();
        Action::Refresh
    }

    fn toggle(&mut self, id: ServerId) -> Action {
        if !self.open.remove(&id) {
            let _ = self.open.insert(id);
        }
        Action::None
    }

    fn dismiss(&mut self) -> Action {
        self.error = None;
        Action::None
    }

    /// Draws the screen.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let mut list = column![piece::page(look.t("servers-title")), piece::label(look.t("servers-about")).color(look.roles.muted)];
        if let Some(reason) = &look.facts.config_error {
            list = list.push(piece::banner(
                (Icon::Warning, |roles| roles.warning),
                look.t("servers-config-error"),
                Some(reason.clone()),
                Vec::new(),
                look.roles,
            ));
        }
        if let Some(reason) = &self.error {
            let actions = vec![piece::quiet(look.t("app-dismiss"), Some(Message::Dismiss))];
            list = list.push(piece::banner(
                (Icon::Warning, |roles| roles.danger),
                look.t("servers-error"),
                Some(reason.clone()),
                actions,
                look.roles,
            ));
        }
        if look.facts.servers.is_empty() {
            list = list.push(piece::empty(Icon::Servers, look.t("servers-empty"), look.roles));
        }
        list = list.extend(look.facts.servers.iter().map(|server| self.server(server, look)));
        list = list.push(self.paste(look));
        let list = container(list.spacing(gap::M).max_width(width::READING)).center_x(Fill).padding(gap::XL);
        scrollable(list).style(style::scroll).height(Fill).into()
    }

    fn paste<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let editor = text_editor(&self.paste)
            .placeholder(look.t("servers-paste-example"))
            .on_action(Message::Edited)
            .font(MONO)
            .size(size::CODE.0)
            .line_height(Pixels(size::CODE.1))
            .min_height(6.0 * size::CODE.1)
            .max_height(16.0 * size::CODE.1)
            .padding(gap::S)
            .style(style::framed_editor);
        let ready = !self.adding && !self.paste.text().trim().is_empty();
        let add = piece::primary(look.t("servers-add"), ready.then_some(Message::Add));
        let words = piece::label(look.t("servers-paste")).color(look.roles.muted);
        column![piece::title(look.t("servers-add-title")), words, editor, add].spacing(gap::S).into()
    }

    fn server<'a>(&'a self, server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
        let open = self.open.contains(&server.id);
        let (picture, color, word) = state(&server.state, look);
        let arrow = icon(if open { Icon::Down } else { Icon::Right }).size(14.0).color(look.roles.muted);
        let tools = piece::small(look.locale.tv("servers-tools", [("count", server.tools.len().into())]), look.roles);
        let name = row![arrow, piece::strong(server.id.as_str()), piece::state(picture, word, color(look.roles)), tools];
        let name = button(name.spacing(gap::M).align_y(Center)).padding([gap::XS, 0.0]).width(Fill).style(style::quiet);
        let head = row![name.on_press(Message::Toggle(server.id.clone())), self.actions(server, look)].spacing(gap::S).align_y(Center);
        let mut parts = column![head].spacing(gap::S).width(Fill);
        parts = parts.extend(trouble(server, look));
        if open {
            parts = parts.push(details(server, look));
        }
        container(parts).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
    }

    fn actions<'a>(&'a self, server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
        let id = || server.id.clone();
        if self.doomed.as_ref() == Some(&server.id) {
            return row![
                piece::label(look.t("servers-remove-ask")),
                piece::quiet(look.t("servers-remove"), Some(Message::Remove(id()))),
                piece::quiet(look.t("sidebar-keep"), Some(Message::Keep))
            ]
            .align_y(Center)
            .into();
        }
        let act = match server.state {
            State::Stopped | State::Failed { .. } => piece::secondary(look.t("servers-start"), Some(Message::Start(id()))),
            State::Starting { .. } | State::Connected | State::Reconnecting { .. } => {
                piece::secondary(look.t("servers-stop"), Some(Message::Stop(id())))
            }
        };
        row![act, piece::icon_button(Icon::Delete, look.t("servers-remove"), Some(Message::Ask(id())))]
            .spacing(gap::XS)
            .align_y(Center)
            .into()
    }
}

fn start(id: ServerId, env: &Env<'_>) -> Action {
    let engine = env.engine.clone();
    let work = env.engine.handle().spawn_blocking(move || engine.servers().start(&id).map_err(|error| error.to_string()));
    Action::Run(Task::perform(work, |result| Message::Done(result.unwrap_or_else(|error| Err(error.to_string())))))
}

/// Runs something on the engine's runtime.
fn act<F, W>(env: &Env<'_>, work: F) -> Action
where
    F: FnOnce(handrail_engine::Engine) -> W + Send + 'static,
    W: Future<Output = Result<(), String>> + Send + 'static,
{
    let task = env.engine.handle().spawn(work(env.engine.clone()));
    Action::Run(Task::perform(task, |result| Message::Done(result.unwrap_or_else(|error| Err(error.to_string())))))
}

/// A state's icon, colour and word.
fn state(state: &State, look: Look<'_>) -> (Icon, fn(&Roles) -> Color, String) {
    match state {
        State::Stopped => (Icon::Dot, |roles| roles.muted, look.t("server-stopped")),
        State::Starting { .. } => (Icon::Working, |roles| roles.info, look.t("server-starting")),
        State::Connected => (Icon::Done, |roles| roles.success, look.t("server-connected")),
        State::Reconnecting { attempt, .. } => {
            (Icon::Retry, |roles| roles.warning, look.locale.tv("server-reconnecting", [("attempt", (*attempt).into())]))
        }
        State::Failed { .. } => (Icon::Failed, |roles| roles.danger, look.t("server-failed")),
    }
}

/// Why a server is not usable, with the last lines it wrote.
fn trouble<'a>(server: &'a ServerView, look: Look<'a>) -> Vec<Element<'a, Message>> {
    let wrap = text::Wrapping::WordOrGlyph;
    let mut parts: Vec<Element<'a, Message>> = Vec::new();
    match &server.state {
        State::Starting { note: Some(note) } => parts.push(piece::small(note.as_str(), look.roles).wrapping(wrap).into()),
        State::Reconnecting { reason, .. } => parts.push(piece::label(reason.as_str()).color(look.roles.warning).wrapping(wrap).into()),
        State::Failed { reason, exit_code } => {
            parts.push(piece::label(reason.as_str()).color(look.roles.danger).wrapping(wrap).into());
            if let Some(code) = exit_code {
                parts.push(piece::small(look.locale.tv("server-exit-code", [("code", (*code).into())]), look.roles).into());
            }
            if !server.stderr.is_empty() {
                parts.push(lines(server, look));
            }
        }
        State::Stopped | State::Starting { note: None } | State::Connected => {}
    }
    parts
}

fn lines<'a>(server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
    let skip = server.stderr.len().saturating_sub(LAST_LINES);
    let lines = Column::with_children(server.stderr.iter().skip(skip).map(|line| piece::mono(line.as_str()).size(size::SMALL.0).into()));
    column![piece::small(look.t("server-stderr"), look.roles), container(lines).padding(gap::S).width(Fill).style(style::raised)]
        .spacing(gap::XS)
        .into()
}

fn details<'a>(server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
    let how = match &server.config.transport {
        Transport::Stdio { command, args, .. } => std::iter::once(command).chain(args).cloned().collect::<Vec<_>>().join(" "),
        Transport::Http { url, .. } => url.clone(),
    };
    let mut facts = Vec::new();
    facts.extend(server.pid.map(|pid| look.locale.tv("server-pid", [("pid", pid.to_string().into())])));
    facts.extend(server.protocol.as_ref().map(|protocol| look.locale.tv("server-protocol", [("version", protocol.as_str().into())])));
    let mut parts = column![piece::mono(how).color(look.roles.muted)].spacing(gap::S);
    if !facts.is_empty() {
        parts = parts.push(piece::small(facts.join(" · "), look.roles));
    }
    if server.tools.is_empty() {
        parts = parts.push(piece::small(look.t("server-no-tools"), look.roles));
    }
    parts = parts.extend(server.tools.iter().map(|tool| self::tool(tool, look)));
    if !server.stderr.is_empty() && !matches!(server.state, State::Failed { .. }) {
        parts = parts.push(lines(server, look));
    }
    parts.into()
}

fn tool<'a>(tool: &'a Arc<Definition>, look: Look<'a>) -> Element<'a, Message> {
    let mut name: Row<'a, Message> =
        row![icon(Icon::Call).size(12.0).color(look.roles.muted), piece::label(tool.id.name.as_str()).font(MONO)];
    if tool.claims_read_only() {
        name = name
            .push(space().width(gap::S))
            .push(container(piece::small(look.t("tool-read-only"), look.roles)).padding([0.0, gap::S]).style(style::tag));
    }
    let mut parts = column![name.spacing(gap::S).align_y(Center)].spacing(2);
    let about = tool.description.trim();
    if !about.is_empty() {
        let end = about.char_indices().nth(300).map_or(about.len(), |(at, _)| at);
        parts = parts.push(piece::small(&about[..end], look.roles).wrapping(text::Wrapping::WordOrGlyph));
    }
    parts.into()
}
