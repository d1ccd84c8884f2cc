//! The MCP servers: a card for each, with what it needs; a page of details; adding; and the sheet on which a person
//! agrees to what is started.

mod about;
mod add;
pub mod card;
mod consent;
mod detail;
mod edit;
mod log;
mod shared;
mod tools;
mod trace;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use handrail_engine::mcp::{self, State};
use handrail_engine::tool::{Definition, ServerId};
use handrail_engine::{Engine, router};
use handrail_widgets::behind;
use iced::widget::{Stack, column, container, row, scrollable, space};
use iced::{Center, Element, Fill, Task};

use self::add::Add;
use self::consent::Sheet;
use self::detail::Detail;
use self::edit::Edit;
use self::shared::Shared;
use super::chat::argument::visible;
use super::{Env, Look, question};
use crate::appearance::{space as gap, style, width};
use crate::desktop;
use crate::icon::Icon;
use crate::piece;

/// The screen.
#[derive(Debug, Default)]
pub struct Servers {
    page: Page,
    detail: Option<Detail>,
    /// What was written into the entries of other servers than the shown one, and not saved.
    drafts: HashMap<ServerId, Edit>,
    add: Add,
    shared: Shared,
    sheet: Option<Sheet>,
    known: HashMap<ServerId, Known>,
    doomed: Option<ServerId>,
    error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Page {
    #[default]
    List,
    Detail,
    Add,
}

/// What the screen works out about a server once, not for each frame.
#[derive(Debug)]
pub struct Known {
    state: State,
    /// Since when it is in this state.
    since: Instant,
    tools: Vec<Arc<Definition>>,
    /// What each of its tools costs in the context, in tokens.
    costs: Vec<usize>,
}

/// What a person can have done with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Start,
    Stop,
    Restart,
    WaitLonger,
    SignIn,
    SignOut,
}

/// What happens on the screen.
#[derive(Clone, Debug)]
pub enum Message {
    Open(ServerId),
    ShowList,
    ShowAdd,
    Do(ServerId, Verb),
    Ask(ServerId),
    Keep,
    Remove(ServerId),
    Done(Result<(), String>),
    /// Shows what a server needs agreement to.
    Review(ServerId),
    Detail(detail::Message),
    Add(add::Message),
    Shared(shared::Message),
    Sheet(consent::Message),
    Question(question::Message),
    OpenFile,
    Restore,
    Dismiss,
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Refresh,
    Question(question::Message),
}

impl Servers {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Open(id) => self.open(id, env),
            Message::ShowList => self.show(Page::List),
            Message::ShowAdd => self.show(Page::Add),
            Message::Do(id, verb) => act(id, verb, env),
            Message::Ask(id) => self.ask(Some(id)),
            Message::Keep => self.ask(None),
            Message::Remove(id) => self.remove(id, env),
            Message::Done(result) => self.done(result),
            Message::Review(id) => self.review(&id, env),
            Message::Detail(message) => self.detailed(message, env),
            Message::Add(message) => self.added(message, env),
            Message::Shared(message) => self.share(message, env),
            Message::Sheet(message) => self.agreed(message, env),
            Message::Question(message) => Action::Question(message),
            Message::OpenFile => open_file(env),
            Message::Restore => restore(env),
            Message::Dismiss => self.dismiss(),
        }
    }

    /// Opens the sheet for a link from elsewhere.
    pub fn link(&mut self, link: String, env: &Env<'_>) -> Action {
        if let Err(error) = mcp::link::read(&link) {
            let reason = match error {
                mcp::config::Error::Field { reason, .. } => reason,
                other => other.to_string(),
            };
            self.show_list();
            self.error = Some(env.locale.tv("servers-bad-link", [("reason", visible(&reason).into())]));
            return Action::None;
        }
        self.page = Page::Add;
        self.added(add::Message::Link(link), env)
    }

    /// New facts came.
    pub fn facts_changed(&mut self, env: &Env<'_>) {
        self.known.retain(|id, _| env.facts.server(id).is_some());
        self.drafts.retain(|id, _| env.facts.server(id).is_some());
        for server in &env.facts.servers {
            let known = self.known.entry(server.id.clone()).or_insert_with(|| Known {
                state: server.state.clone(),
                since: env.now,
                tools: Vec::new(),
                costs: Vec::new(),
            });
            if known.state != server.state {
                known.state = server.state.clone();
                known.since = env.now;
            }
            let same = known.tools.len() == server.tools.len() && known.tools.iter().zip(&server.tools).all(|(a, b)| Arc::ptr_eq(a, b));
            if !same {
                known.tools.clone_from(&server.tools);
                known.costs = server.tools.iter().map(|tool| router::estimate_tokens(tool)).collect();
            }
        }
        if self.detail.as_ref().is_some_and(|detail| env.facts.server(detail.server()).is_none()) {
            self.detail = None;
            if self.page == Page::Detail {
                self.page = Page::List;
            }
        }
    }

    /// A second passed while the screen is shown.
    pub fn ticked(&mut self, env: &Env<'_>) -> Action {
        match self.detail.as_mut().filter(|_| self.page == Page::Detail) {
            Some(detail) => detailed(detail.ticked(env)),
            None => Action::None,
        }
    }

    /// The screen was asked for by its name: the list, without what was begun and left.
    pub fn show_list(&mut self) {
        self.page = Page::List;
        self.sheet = None;
        self.doomed = None;
    }

    /// Escape: closes what lies over the page, then leaves the page.
    pub fn back(&mut self) {
        if self.sheet.take().is_none() {
            self.page = Page::List;
            self.doomed = None;
        }
    }

    fn open(&mut self, id: ServerId, env: &Env<'_>) -> Action {
        self.page = Page::Detail;
        if self.detail.as_ref().is_none_or(|detail| *detail.server() != id) {
            self.drafts.extend(self.detail.take().and_then(Detail::into_draft));
            let draft = self.drafts.remove(&id).unwrap_or_default();
            self.detail = Some(Detail::new(id, draft));
        }
        self.detail.as_mut().map_or(Action::None, |detail| detailed(detail.ticked(env)))
    }

    fn show(&mut self, page: Page) -> Action {
        self.page = page;
        Action::None
    }

    fn ask(&mut self, id: Option<ServerId>) -> Action {
        self.doomed = id;
        Action::None
    }

    fn remove(&mut self, id: ServerId, env: &Env<'_>) -> Action {
        self.doomed = None;
        run(env, async move |engine| engine.servers().remove(&id).await.map_err(|error| error.to_string()))
    }

    fn done(&mut self, result: Result<(), String>) -> Action {
        self.error = result.err();
        Action::Refresh
    }

    fn review(&mut self, id: &ServerId, env: &Env<'_>) -> Action {
        if let Some(consent) = env.facts.server(id).and_then(|server| server.consent.clone()) {
            return self.lay(Sheet::known(id.clone(), consent));
        }
        Action::None
    }

    /// Lays a sheet over the page; the keyboard is on it from then on.
    fn lay(&mut self, sheet: Sheet) -> Action {
        self.sheet = Some(sheet);
        Action::Run(iced::widget::operation::focus(consent::CANCEL))
    }

    /// Whether a sheet waits for a decision, so that nothing else is reached by keyboard.
    #[must_use]
    pub const fn is_covered(&self) -> bool {
        self.sheet.is_some()
    }

    fn detailed(&mut self, message: detail::Message, env: &Env<'_>) -> Action {
        match &mut self.detail {
            Some(detail) => detailed(detail.update(message, env)),
            None => Action::None,
        }
    }

    fn added(&mut self, message: add::Message, env: &Env<'_>) -> Action {
        match self.add.update(message, env) {
            add::Action::None => Action::None,
            add::Action::Run(task) => Action::Run(task.map(Message::Add)),
            add::Action::Show(sheet) => self.lay(*sheet),
        }
    }

    fn share(&mut self, message: shared::Message, env: &Env<'_>) -> Action {
        match self.shared.update(message, env) {
            shared::Action::None => Action::None,
            shared::Action::Run(task) => Action::Run(task.map(Message::Shared)),
            shared::Action::Refresh => Action::Refresh,
        }
    }

    fn agreed(&mut self, message: consent::Message, env: &Env<'_>) -> Action {
        let Some(sheet) = &mut self.sheet else {
            // The sheet was left while its servers were added; what became of it is said all the same.
            return if let consent::Message::Agreed(result) = message { self.done(result) } else { Action::None };
        };
        match sheet.update(message, env) {
            consent::Action::None => Action::None,
            consent::Action::Run(task) => Action::Run(task.map(Message::Sheet)),
            consent::Action::Close => {
                self.sheet = None;
                Action::None
            }
            consent::Action::Added => {
                self.sheet = None;
                self.error = None;
                self.add = Add::default();
                self.page = Page::List;
                Action::Refresh
            }
        }
    }

    fn dismiss(&mut self) -> Action {
        self.error = None;
        Action::None
    }

    /// Draws the screen, with the cards of the questions that wait.
    pub fn view<'a>(&'a self, look: Look<'a>, questions: Option<Element<'a, question::Message>>) -> Element<'a, Message> {
        let notices = self.notices(look, questions);
        let page: Element<'a, Message> = match (self.page, &self.detail) {
            (Page::Detail, Some(detail)) => {
                let Some(server) = look.facts.server(detail.server()) else { return self.list(look, notices) };
                let known = self.known.get(&server.id);
                let head = card::head(server, known, self.doomed.as_ref() == Some(&server.id), look);
                let parts = column![notices, head, detail.view(server, known, look).map(Message::Detail)].spacing(gap::M);
                container(parts.max_width(width::WIDE)).center_x(Fill).padding(gap::XL).height(Fill).into()
            }
            (Page::Add, _) => {
                let back = piece::quiet(format!("‹ {}", look.t("servers-back")), Some(Message::ShowList));
                let parts = column![row![back], piece::page(look.t("servers-add-title")), notices, self.add.view(look).map(Message::Add)];
                let parts = container(parts.spacing(gap::M).max_width(width::READING)).center_x(Fill).padding(gap::XL);
                scrollable(parts).style(style::scroll).height(Fill).into()
            }
            (Page::List | Page::Detail, _) => self.list(look, notices),
        };
        let over = self.sheet.as_ref().map_or_else(
            || space().into(),
            |sheet| {
                // A low window scrolls the sheet as a whole, so that its buttons are never out of reach.
                let sheet = container(sheet.view(look).map(Message::Sheet)).center_x(Fill).padding(gap::XL);
                let sheet = container(scrollable(sheet).style(style::scroll)).center(Fill).style(style::veil);
                Element::from(iced::widget::opaque(sheet))
            },
        );
        Stack::with_children([behind(page, self.is_covered()).into(), over]).into()
    }

    fn list<'a>(&'a self, look: Look<'a>, notices: Element<'a, Message>) -> Element<'a, Message> {
        let add = piece::primary(look.t("servers-add-title"), Some(Message::ShowAdd));
        let head = row![piece::page(look.t("servers-title")), space().width(Fill), add].align_y(Center);
        let mut list = column![head, piece::label(look.t("servers-about")).color(look.roles.muted), notices];
        if look.facts.servers.is_empty() {
            list = list.push(piece::empty(Icon::Servers, look.t("servers-empty"), look.roles));
        }
        list = list.extend(
            look.facts
                .servers
                .iter()
                .map(|server| card::view(server, self.known.get(&server.id), self.doomed.as_ref() == Some(&server.id), look)),
        );
        let list = list.push(space().height(gap::S)).push(self.shared.view(look).map(Message::Shared));
        let list = container(list.spacing(gap::M).max_width(width::READING)).center_x(Fill).padding(gap::XL);
        scrollable(list).style(style::scroll).height(Fill).into()
    }

    /// What needs the person before anything else.
    fn notices<'a>(&'a self, look: Look<'a>, questions: Option<Element<'a, question::Message>>) -> Element<'a, Message> {
        let mut notices = column![].spacing(gap::S);
        if let Some(reason) = &look.facts.config_error {
            let actions = vec![
                piece::secondary(look.t("servers-open-file"), Some(Message::OpenFile)),
                piece::secondary(look.t("servers-restore"), Some(Message::Restore)),
            ];
            let words = look.t("servers-config-error");
            notices = notices.push(piece::banner((Icon::Warning, |roles| roles.warning), words, Some(reason.clone()), actions, look.roles));
        }
        if !look.facts.setting_errors.is_empty() {
            let actions = vec![piece::secondary(look.t("servers-open-file"), Some(Message::OpenFile))];
            let (words, reasons) = (look.t("servers-setting-errors"), look.facts.setting_errors.join("\n"));
            notices = notices.push(piece::banner((Icon::Warning, |roles| roles.warning), words, Some(reasons), actions, look.roles));
        }
        if let Some(reason) = &self.error {
            let actions = vec![piece::quiet(look.t("app-dismiss"), Some(Message::Dismiss))];
            let words = look.t("servers-error");
            notices = notices.push(piece::banner((Icon::Warning, |roles| roles.danger), words, Some(reason.clone()), actions, look.roles));
        }
        notices.push(questions.map(|questions| questions.map(Message::Question))).into()
    }
}

fn detailed(action: detail::Action) -> Action {
    match action {
        detail::Action::None => Action::None,
        detail::Action::Run(task) => Action::Run(task.map(Message::Detail)),
        detail::Action::Refresh => Action::Refresh,
    }
}

fn act(id: ServerId, verb: Verb, env: &Env<'_>) -> Action {
    run(env, async move |engine| {
        let servers = engine.servers();
        let result = match verb {
            Verb::Start => servers.start(&id),
            Verb::Stop => servers.stop(&id).await,
            Verb::Restart => servers.restart(&id).await,
            Verb::WaitLonger => servers.wait_longer(&id),
            Verb::SignIn => servers.sign_in(&id, desktop::browse).await,
            Verb::SignOut => servers.sign_out(&id).await,
        };
        result.map_err(|error| error.to_string())
    })
}

/// Runs something on the engine's runtime.
fn run<F, W>(env: &Env<'_>, work: F) -> Action
where
    F: FnOnce(Engine) -> W + Send + 'static,
    W: Future<Output = Result<(), String>> + Send + 'static,
{
    let task = env.engine.handle().spawn(work(env.engine.clone()));
    Action::Run(Task::perform(task, |result| Message::Done(result.unwrap_or_else(|error| Err(error.to_string())))))
}

/// Where the configuration is.
fn config_file(engine: &Engine) -> PathBuf {
    engine.data_dir().join("mcp_config.json")
}

fn open_file(env: &Env<'_>) -> Action {
    Action::Run(desktop::open_file(&config_file(env.engine)))
}

fn restore(env: &Env<'_>) -> Action {
    run(env, async move |engine| engine.servers().restore_backup().map(drop).map_err(|error| error.to_string()))
}

#[cfg(test)]
mod tests;
