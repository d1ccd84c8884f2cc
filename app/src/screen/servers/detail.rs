//! The page of one server: its tools, its log, its traffic, its entry, and what is known about it.

use handrail_engine::mcp::ServerView;
use handrail_engine::tool::ServerId;
use iced::widget::{Row, column, rule, scrollable};
use iced::{Element, Fill, Task};

use super::super::{Env, Look};
use super::edit::{self, Edit};
use super::log::{self, Log};
use super::tools::{self, Tools};
use super::trace::{self, Trace};
use super::{Known, about};
use crate::appearance::{space as gap, style};
use crate::piece;

/// The page.
#[derive(Debug)]
pub struct Detail {
    server: ServerId,
    tab: Tab,
    tools: Tools,
    log: Log,
    trace: Trace,
    edit: Edit,
    error: Option<String>,
}

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Tools,
    Log,
    Traffic,
    Edit,
    About,
}

/// What happens on it.
#[derive(Clone, Debug)]
pub enum Message {
    Show(Tab),
    Tools(tools::Message),
    Log(log::Message),
    Trace(trace::Message),
    Edit(edit::Message),
    About(about::Message),
    Done(Result<(), String>),
}

/// What the screen must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Refresh,
}

impl Detail {
    /// The page of a server, with what was written before and not saved.
    #[must_use]
    pub fn new(server: ServerId, edit: Edit) -> Self {
        Self { server, tab: Tab::Tools, tools: Tools::default(), log: Log::default(), trace: Trace::default(), edit, error: None }
    }

    /// Whose page it is.
    #[must_use]
    pub const fn server(&self) -> &ServerId {
        &self.server
    }

    /// What was written and not saved.
    pub fn into_draft(self) -> Option<(ServerId, Edit)> {
        self.edit.is_changed().then_some((self.server, self.edit))
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Show(tab) => self.show(tab, env),
            Message::Tools(message) => self.tooled(message, env),
            Message::Log(message) => Action::Run(self.log.update(message, &self.server, env).map(Message::Log)),
            Message::Trace(message) => Action::Run(self.trace.update(message).map(Message::Trace)),
            Message::Edit(message) => self.edited(message, env),
            Message::About(about::Message::Cancel(call)) => self.cancel(call, env),
            Message::Done(result) => self.done(result),
        }
    }

    fn show(&mut self, tab: Tab, env: &Env<'_>) -> Action {
        self.tab = tab;
        self.error = None;
        if tab == Tab::Edit {
            return Action::Run(edit::load(&self.server, env).map(Message::Edit));
        }
        self.ticked(env)
    }

    /// Reads again what no event tells.
    pub fn ticked(&mut self, env: &Env<'_>) -> Action {
        match self.tab {
            Tab::Log => Action::Run(log::read(&self.server, env).map(Message::Log)),
            Tab::Traffic => Action::Run(trace::read(&self.server, env).map(Message::Trace)),
            Tab::Tools | Tab::Edit | Tab::About => Action::None,
        }
    }

    fn tooled(&mut self, message: tools::Message, env: &Env<'_>) -> Action {
        let tools::Action::Switch(tool, on) = self.tools.update(message) else { return Action::None };
        let (engine, server) = (env.engine.clone(), self.server.clone());
        // The entry is written to the file.
        let work = env
            .engine
            .handle()
            .spawn_blocking(move || engine.servers().set_tool_enabled(&server, &tool, on).map_err(|error| error.to_string()));
        Action::Run(Task::perform(work, |result| Message::Done(result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn edited(&mut self, message: edit::Message, env: &Env<'_>) -> Action {
        match self.edit.update(message, &self.server, env) {
            edit::Action::None => Action::None,
            edit::Action::Run(task) => Action::Run(task.map(Message::Edit)),
            edit::Action::Refresh => Action::Refresh,
        }
    }

    fn cancel(&self, call: u64, env: &Env<'_>) -> Action {
        let (engine, server) = (env.engine.clone(), self.server.clone());
        let work =
            env.engine.handle().spawn(async move { engine.servers().cancel_call(&server, call).map(drop).map_err(|e| e.to_string()) });
        Action::Run(Task::perform(work, |result| Message::Done(result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn done(&mut self, result: Result<(), String>) -> Action {
        self.error = result.err();
        Action::Refresh
    }

    /// Draws it.
    pub fn view<'a>(&'a self, server: &'a ServerView, known: Option<&'a Known>, look: Look<'a>) -> Element<'a, Message> {
        let tabs = [
            (Tab::Tools, look.t("detail-tools")),
            (Tab::Log, look.t("detail-log")),
            (Tab::Traffic, look.t("detail-traffic")),
            (Tab::Edit, look.t("detail-edit")),
            (Tab::About, look.t("detail-about")),
        ];
        let tabs = tabs.map(|(tab, name)| piece::tab(name, tab == self.tab, Message::Show(tab)));
        let scrolled = |content: Element<'a, Message>| scrollable(content).style(style::scroll).spacing(gap::S).height(Fill).into();
        let content: Element<'a, Message> = match self.tab {
            Tab::Tools => self.tools.view(server, known, look).map(Message::Tools),
            Tab::Log => self.log.view(server, look).map(Message::Log),
            Tab::Traffic => self.trace.view(look).map(Message::Trace),
            Tab::Edit => scrolled(self.edit.view(look).map(Message::Edit)),
            Tab::About => scrolled(about::view(server, look).map(Message::About)),
        };
        let tabs = Row::with_children(tabs).spacing(gap::XS);
        let fault = piece::fault(self.error.clone(), look.roles);
        column![tabs, rule::horizontal(1).style(style::line), fault, content].spacing(gap::S).height(Fill).into()
    }
}
