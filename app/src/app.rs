//! The whole application: state, messages, update as a table, view by window.

mod attention;
mod page;

use std::sync::Arc;
use std::time::{Duration, Instant};

use handrail_engine::Engine;
use handrail_engine::approval::Decision;
use handrail_engine::conversation::{Conversation, ConversationId};
use handrail_engine::engine::Shutdown;
use handrail_engine::mcp;
use handrail_engine::settings::Settings as Values;
use iced::{Event, Subscription, Task, Theme, event, keyboard};

use crate::appearance;
use crate::desktop::tray::{self, Tray};
use crate::facts::Facts;
use crate::feed;
use crate::locale::{Language, Locale};
use crate::screen::chat::{self, Chat, composer};
use crate::screen::library::{self, Library};
use crate::screen::models::{self, Models};
use crate::screen::question::{self, Questions};
use crate::screen::servers::{self, Servers};
use crate::screen::settings::{self, Settings};
use crate::screen::sidebar::{self, Sidebar};
use crate::screen::{Env, Screen, welcome};
use crate::signal;
use crate::smoke::{self, Smoke};
use crate::verb::{self, Verb};
use crate::window::{self, Told, Window};

/// Between two looks at what counts seconds.
const TICK: Duration = Duration::from_secs(1);

/// The state.
#[derive(Debug)]
pub struct App {
    engine: Engine,
    facts: Facts,
    locale: Locale,
    theme: Theme,
    system_dark: bool,
    today: jiff::civil::Date,
    window: Window,
    screen: Screen,
    sidebar: Sidebar,
    chat: Chat,
    servers: Servers,
    questions: Questions,
    models: Models,
    library: Library,
    settings: Settings,
    smoke: Option<Smoke>,
    tray: Option<Box<dyn Tray>>,
    /// A link that was given when the program was started, until the first facts are here.
    link: Option<String>,
    /// The moment of the last message: what a view counts from.
    now: Instant,
    closing: bool,
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Message {
    Opened,
    Window(iced::window::Id, Told),
    SystemTheme(iced::theme::Mode),
    Composing(bool),
    Verb(Verb),
    Feed(feed::Message),
    Refreshed(Arc<Facts>),
    Conversations(Result<Vec<Conversation>, String>),
    Deleted(ConversationId, Result<(), String>),
    Sidebar(sidebar::Message),
    Chat(chat::Message),
    Servers(servers::Message),
    Question(question::Message),
    /// A second passed.
    Tick(Instant),
    Tray(tray::Told),
    Models(models::Message),
    Library(library::Message),
    Settings(settings::Message),
    Welcome(welcome::Message),
    DismissErrors,
    Smoke(smoke::Message),
    /// The system asks the program to end.
    Signalled,
    ShutDown,
}

/// Runs the window until the person quits.
pub fn run(engine: Engine, smoke: Option<Smoke>, link: Option<String>) -> iced::Result {
    let boot = move || {
        let (mut app, task) = App::new(engine.clone(), smoke.clone());
        app.link.clone_from(&link);
        // A smoke run has no person who would look at a tray.
        app.tray = smoke.is_none().then(tray::start).flatten();
        (app, task)
    };
    let mut daemon = iced::daemon(boot, App::update, App::view)
        .title(App::title)
        .theme(App::theme)
        .subscription(App::subscription)
        .default_font(appearance::SANS);
    for font in appearance::FONTS {
        daemon = daemon.font(font);
    }
    daemon.run()
}

impl App {
    /// The first state, and the task that opens the window.
    pub fn new(engine: Engine, smoke: Option<Smoke>) -> (Self, Task<Message>) {
        let settings = engine.settings();
        let (window, open) = Window::open();
        let app = Self {
            locale: Locale::new(Language::of_setting(&settings.language)),
            theme: appearance::theme(settings.theme == "dark"),
            system_dark: false,
            today: jiff::ZonedDateTime::now().date(),
            facts: Facts { settings, ..Facts::default() },
            engine,
            window,
            screen: Screen::Chat,
            sidebar: Sidebar::default(),
            chat: Chat::default(),
            servers: Servers::default(),
            questions: Questions::default(),
            models: Models::default(),
            library: Library::default(),
            settings: Settings::default(),
            smoke,
            tray: None,
            link: None,
            now: Instant::now(),
            closing: false,
        };
        let start = app.smoke.as_ref().map_or_else(Task::none, |smoke| smoke.start().map(Message::Smoke));
        let focus = iced::widget::operation::focus(composer::EDITOR);
        let system = iced::system::theme().map(Message::SystemTheme);
        (app, Task::batch([open.map(|_| Message::Opened), system, start, focus]))
    }

    fn title(&self, _window: iced::window::Id) -> String {
        let open = self.chat.open().and_then(|open| self.facts.conversations.iter().find(|conversation| conversation.id == open));
        let name = self.locale.t("app-name");
        match open.map(|conversation| conversation.title.as_str()).filter(|title| !title.is_empty() && self.screen == Screen::Chat) {
            Some(title) => format!("{title} · {name}"),
            None => name,
        }
    }

    fn theme(&self, _window: iced::window::Id) -> Theme {
        self.theme.clone()
    }

    fn subscription(&self) -> Subscription<Message> {
        Subscription::batch([
            feed::follow(&self.engine).map(Message::Feed),
            event::listen_with(listened),
            iced::system::theme_changes().map(Message::SystemTheme),
            signal::follow().map(|()| Message::Signalled),
            tray::follow().map(Message::Tray),
            if self.counts() { iced::time::every(TICK).map(Message::Tick) } else { Subscription::none() },
        ])
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message) -> Task<Message> {
        self.at(message, Instant::now())
    }

    /// Takes a message in at a moment.
    fn at(&mut self, message: Message, now: Instant) -> Task<Message> {
        self.now = now;
        match message {
            Message::Opened => iced::widget::operation::focus(composer::EDITOR),
            Message::Window(window, told) => self.told(window, told, now),
            Message::SystemTheme(mode) => self.system_theme(mode),
            Message::Composing(composing) => self.chat(chat::Message::Composer(composer::Message::Composing(composing)), now),
            Message::Verb(verb) => self.verb(verb, now),
            Message::Feed(message) => self.fed(message, now),
            Message::Refreshed(facts) => self.refreshed(&facts, now),
            Message::Conversations(result) => self.listed(result),
            Message::Deleted(conversation, result) => self.deleted(conversation, result),
            Message::Sidebar(message) => self.sidebar(message, now),
            Message::Chat(message) => self.chat(message, now),
            Message::Servers(message) => self.servers(message, now),
            Message::Question(message) => self.question(message, now),
            Message::Tick(now) => self.ticked(now),
            Message::Tray(told) => self.tray_told(told, now),
            Message::Models(message) => self.models(message, now),
            Message::Library(message) => self.library(message, now),
            Message::Settings(message) => self.settings(message, now),
            Message::Welcome(message) => self.welcome(message, now),
            Message::DismissErrors => self.dismiss_errors(),
            Message::Smoke(message) => self.smoked(message, now),
            Message::Signalled => self.quit(),
            Message::ShutDown => iced::exit(),
        }
    }

    fn told(&mut self, window: iced::window::Id, told: Told, now: Instant) -> Task<Message> {
        if window != self.window.id {
            return Task::none();
        }
        self.today = jiff::ZonedDateTime::now().date();
        self.window.heard(&told, now);
        match told {
            Told::CloseRequested | Told::Closed => self.quit(),
            Told::Dropped(path) => {
                self.screen = Screen::Chat;
                self.with_chat(now, |chat, env| chat.dropped(vec![path], env))
            }
            Told::Sized(_) | Told::Focused | Told::Unfocused | Told::Hovered | Told::Left => Task::none(),
        }
    }

    fn system_theme(&mut self, mode: iced::theme::Mode) -> Task<Message> {
        self.system_dark = mode == iced::theme::Mode::Dark;
        self.applied();
        Task::none()
    }

    fn verb(&mut self, verb: Verb, now: Instant) -> Task<Message> {
        match verb {
            Verb::NewChat => self.sidebar(sidebar::Message::New, now),
            Verb::Escape => self.escape(now),
            Verb::FocusComposer => iced::widget::operation::focus(composer::EDITOR),
            Verb::ToggleSidebar => self.toggle_sidebar(),
            Verb::Attach => self.chat(chat::Message::Composer(composer::Message::Attach), now),
            Verb::AttachPath => {
                self.screen = Screen::Chat;
                self.chat(chat::Message::Composer(composer::Message::AttachPath), now)
            }
            Verb::ShowChat => self.show(Screen::Chat),
            Verb::ShowServers => self.show(Screen::Servers),
            Verb::ShowModels => self.show(Screen::Models),
            Verb::ShowLibrary => self.show(Screen::Library),
            Verb::ShowSettings => self.show(Screen::Settings),
            Verb::Approve if self.screen == Screen::Chat => self.chat(chat::Message::Decide(Decision::AllowOnce), now),
            Verb::Deny if self.screen == Screen::Chat => self.chat(chat::Message::Decide(Decision::Deny), now),
            Verb::Approve | Verb::Deny => Task::none(),
            Verb::Leave => self.leave(now),
            Verb::Next => iced::widget::operation::focus_next(),
            Verb::Previous => iced::widget::operation::focus_previous(),
            Verb::Quit => self.quit(),
        }
    }

    fn toggle_sidebar(&mut self) -> Task<Message> {
        self.sidebar.toggle(self.is_narrow());
        Task::none()
    }

    fn show(&mut self, screen: Screen) -> Task<Message> {
        if screen != Screen::Chat {
            self.chat.out_of_view();
        }
        self.questions.out_of_view();
        if screen == Screen::Servers {
            self.servers.show_list();
        }
        self.screen = screen;
        self.sidebar.over = false;
        if screen == Screen::Chat { iced::widget::operation::focus(composer::EDITOR) } else { Task::none() }
    }

    fn fed(&mut self, message: feed::Message, now: Instant) -> Task<Message> {
        match message {
            feed::Message::Snapshot(facts) => self.refreshed(&facts, now),
            feed::Message::Changed(event) => {
                match &*event {
                    handrail_engine::Event::Server(mcp::Event::PromptsChanged(server) | mcp::Event::Removed(server)) => {
                        self.chat.forget_prompts(server);
                    }
                    handrail_engine::Event::Server(mcp::Event::Changed(view)) if !view.state.is_usable() => {
                        self.chat.forget_prompts(&view.id);
                    }
                    _ => {}
                }
                self.facts.apply(*event);
                self.facts_changed(now);
                Task::none()
            }
        }
    }

    fn refreshed(&mut self, facts: &Facts, now: Instant) -> Task<Message> {
        let first = !self.facts.gathered;
        self.facts = facts.clone();
        if first && !self.facts.can_chat() && self.facts.conversations.is_empty() && self.smoke.is_none() {
            self.screen = Screen::Welcome;
        }
        self.facts_changed(now);
        self.applied();
        if let Some(link) = self.link.take().filter(|_| self.screen != Screen::Welcome || first) {
            let shown = self.show(Screen::Servers);
            return Task::batch([shown, self.with_servers(now, |servers, env| servers.link(link, env))]);
        }
        if first && self.smoke.is_some() { Task::done(Message::Smoke(smoke::Message::Ready)) } else { Task::none() }
    }

    fn facts_changed(&mut self, now: Instant) {
        let env = env(&self.engine, &self.facts, &self.locale, &self.window, now);
        self.chat.facts_changed(&env);
        self.servers.facts_changed(&env);
        self.questions.asked(&self.facts.questions);
        if let Some(tray) = &mut self.tray {
            tray.show(tray::picture(&self.facts, &self.locale));
        }
    }

    /// Uses the settings as they are now.
    fn applied(&mut self) {
        let settings = &self.facts.settings;
        let dark = match settings.theme.as_str() {
            "dark" => true,
            "light" => false,
            _ => self.system_dark,
        };
        self.theme = appearance::theme(dark);
        let language = Language::of_setting(&settings.language);
        if language != self.locale.language() {
            self.locale = Locale::new(language);
        }
    }

    /// Asks every room again.
    fn refresh(&self) -> Task<Message> {
        let engine = self.engine.clone();
        let work = self.engine.handle().spawn_blocking(move || Arc::new(Facts::gather(&engine)));
        Task::perform(work, Result::ok).and_then(|facts| Task::done(Message::Refreshed(facts)))
    }

    fn list(&self) -> Task<Message> {
        let engine = self.engine.clone();
        let work = self.engine.handle().spawn_blocking(move || engine.conversations().map_err(|error| error.to_string()));
        Task::perform(work, |result| Message::Conversations(result.unwrap_or_else(|error| Err(error.to_string()))))
    }

    fn listed(&mut self, result: Result<Vec<Conversation>, String>) -> Task<Message> {
        match result {
            Ok(conversations) => self.facts.conversations = conversations,
            Err(reason) => self.facts.errors.push(reason),
        }
        Task::none()
    }

    fn deleted(&mut self, conversation: ConversationId, result: Result<(), String>) -> Task<Message> {
        match result {
            Ok(()) => self.chat.forget(conversation),
            Err(reason) => self.facts.errors.push(reason),
        }
        self.list()
    }

    fn sidebar(&mut self, message: sidebar::Message, now: Instant) -> Task<Message> {
        match self.sidebar.update(message) {
            sidebar::Action::None => Task::none(),
            sidebar::Action::New => {
                let shown = self.show(Screen::Chat);
                Task::batch([shown, self.chat(chat::Message::New, now)])
            }
            sidebar::Action::Open(conversation) => {
                let shown = self.show(Screen::Chat);
                Task::batch([shown, self.with_chat(now, |chat, env| chat.show(conversation, env))])
            }
            sidebar::Action::Show(screen) => self.show(screen),
            sidebar::Action::Delete(conversation) => self.delete(conversation),
        }
    }

    fn delete(&mut self, conversation: ConversationId) -> Task<Message> {
        // A turn of it is stopped first; it must not write into what is gone.
        self.chat.forget(conversation);
        let engine = self.engine.clone();
        let work = self.engine.handle().spawn_blocking(move || engine.delete_conversation(conversation).map_err(|error| error.to_string()));
        Task::perform(work, move |result| Message::Deleted(conversation, result.unwrap_or_else(|error| Err(error.to_string()))))
    }

    fn chat(&mut self, message: chat::Message, now: Instant) -> Task<Message> {
        let ended = match &message {
            chat::Message::Ended(_, result) if self.smoke.is_some() => Some(result.clone()),
            _ => None,
        };
        let task = self.with_chat(now, |chat, env| chat.update(message, env));
        match ended {
            Some(result) => {
                let verdict = smoke::Message::Ended(self.chat.verdict(&result));
                task.chain(Task::done(Message::Smoke(verdict)))
            }
            None => task,
        }
    }

    fn with_chat(&mut self, now: Instant, work: impl FnOnce(&mut Chat, &Env<'_>) -> chat::Action) -> Task<Message> {
        let env = env(&self.engine, &self.facts, &self.locale, &self.window, now);
        match work(&mut self.chat, &env) {
            chat::Action::None => Task::none(),
            chat::Action::Run(task) => task.map(Message::Chat),
            chat::Action::Changed(task) => Task::batch([task.map(Message::Chat), self.list()]),
            chat::Action::ShowModels => self.show(Screen::Models),
            chat::Action::ShowServers => self.show(Screen::Servers),
            chat::Action::Question(message) => self.question(message, now),
        }
    }

    fn servers(&mut self, message: servers::Message, now: Instant) -> Task<Message> {
        self.with_servers(now, |servers, env| servers.update(message, env))
    }

    fn with_servers(&mut self, now: Instant, work: impl FnOnce(&mut Servers, &Env<'_>) -> servers::Action) -> Task<Message> {
        let env = env(&self.engine, &self.facts, &self.locale, &self.window, now);
        match work(&mut self.servers, &env) {
            servers::Action::None => Task::none(),
            servers::Action::Run(task) => task.map(Message::Servers),
            servers::Action::Refresh => self.refresh(),
            servers::Action::Question(message) => self.question(message, now),
        }
    }

    fn models(&mut self, message: models::Message, now: Instant) -> Task<Message> {
        let env = env(&self.engine, &self.facts, &self.locale, &self.window, now);
        match self.models.update(message, &env) {
            models::Action::None => Task::none(),
            models::Action::Run(task) => task.map(Message::Models),
            models::Action::Use(id) => self.settings(settings::Message::Model(id), now),
            models::Action::Refresh => self.refresh(),
        }
    }

    fn library(&mut self, message: library::Message, now: Instant) -> Task<Message> {
        let env = env(&self.engine, &self.facts, &self.locale, &self.window, now);
        match self.library.update(message, &env) {
            library::Action::None => Task::none(),
            library::Action::Run(task) => task.map(Message::Library),
            library::Action::Refresh => self.refresh(),
        }
    }

    fn settings(&mut self, message: settings::Message, now: Instant) -> Task<Message> {
        let env = env(&self.engine, &self.facts, &self.locale, &self.window, now);
        match self.settings.update(message, &env) {
            settings::Action::None => Task::none(),
            settings::Action::Apply(values, task) => self.apply(*values, task),
            settings::Action::Refresh => self.refresh(),
        }
    }

    fn apply(&mut self, values: Values, task: Task<settings::Message>) -> Task<Message> {
        self.facts.settings = values;
        self.applied();
        task.map(Message::Settings)
    }

    fn welcome(&mut self, message: welcome::Message, now: Instant) -> Task<Message> {
        match message {
            welcome::Message::Models(message) => self.models(message, now),
            welcome::Message::Leave => self.show(Screen::Chat),
            welcome::Message::FetchBoth => {
                let settings = &self.facts.settings;
                let wanted = [settings.chat_model.clone(), settings.embedding_model.clone()];
                let missing = wanted.into_iter().filter(|id| self.facts.model(id).is_some() && !self.facts.is_ready(id));
                let missing: Vec<String> = missing.collect();
                Task::batch(missing.into_iter().map(|id| self.models(models::Message::Fetch(id), now)).collect::<Vec<_>>())
            }
        }
    }

    fn dismiss_errors(&mut self) -> Task<Message> {
        self.facts.errors.clear();
        Task::none()
    }

    fn smoked(&mut self, message: smoke::Message, now: Instant) -> Task<Message> {
        let Some(smoke) = &self.smoke else { return Task::none() };
        match smoke.update(message, &self.facts, self.window.id) {
            smoke::Action::Run(task) => task.map(Message::Smoke),
            smoke::Action::Say(input) => self.with_chat(now, |chat, env| chat.send(input, env)),
            smoke::Action::Quit => self.quit(),
        }
    }

    /// Stops servers and turns within the budget, then ends.
    fn quit(&mut self) -> Task<Message> {
        if std::mem::replace(&mut self.closing, true) {
            return Task::none();
        }
        self.chat = Chat::default();
        let engine = self.engine.clone();
        Task::perform(async move { engine.shutdown(Shutdown::Exit).await }, |()| Message::ShutDown)
    }

    fn is_narrow(&self) -> bool {
        self.window.size.width < appearance::width::NARROW
    }
}

fn env<'a>(engine: &'a Engine, facts: &'a Facts, locale: &'a Locale, window: &Window, now: Instant) -> Env<'a> {
    Env { engine, facts, locale, now, focused_since: window.focused_since }
}

/// What of the window system's events matters, whoever else took it.
fn listened(event: Event, status: event::Status, window: iced::window::Id) -> Option<Message> {
    match event {
        Event::Window(event) => window::told(event).map(|told| Message::Window(window, told)),
        Event::InputMethod(iced::advanced::input_method::Event::Preedit(text, _)) => Some(Message::Composing(!text.is_empty())),
        Event::InputMethod(iced::advanced::input_method::Event::Commit(_) | iced::advanced::input_method::Event::Closed) => {
            Some(Message::Composing(false))
        }
        Event::Keyboard(keyboard::Event::KeyPressed { key, modifiers, .. }) if status == event::Status::Ignored => {
            verb::of_key(&key, modifiers).map(Message::Verb)
        }
        // A field takes Escape to lose the focus.
        Event::Keyboard(keyboard::Event::KeyPressed { key: keyboard::Key::Named(keyboard::key::Named::Escape), .. }) => {
            Some(Message::Verb(Verb::Leave))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
