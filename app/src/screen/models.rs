//! The models: what is here, what can be fetched, and how a fetch goes on. The first-run page draws the same cards.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures::SinkExt as _;
use futures::channel::mpsc;
use handrail_engine::Engine;
use handrail_engine::local::catalogue::Kind;
use handrail_engine::local::download::{Error, Fetched, Progress};
use handrail_engine::local::{ModelState, ModelView, TemplateChoice};
use iced::task::Handle;
use iced::widget::{Column, Row, column, container, row, scrollable, space, text};
use iced::{Center, Element, Fill, Task};
use sipper::Sipper as _;

use super::path_field::{self, PathField};
use super::{Env, Look};
use crate::appearance::{space as gap, style, width};
use crate::desktop;
use crate::icon::Icon;
use crate::piece;

/// Shortest time between two progress messages of one fetch.
const TICK: Duration = Duration::from_millis(100);

/// The screen.
#[derive(Debug)]
pub struct Models {
    fetches: HashMap<String, Fetch>,
    outcomes: HashMap<String, Result<Fetched, Error>>,
    error: Option<String>,
    path: PathField,
}

impl Default for Models {
    fn default() -> Self {
        Self { fetches: HashMap::new(), outcomes: HashMap::new(), error: None, path: PathField::new("model-path") }
    }
}

/// One fetch; dropping it cancels it and keeps what is here.
#[derive(Debug)]
struct Fetch {
    progress: Option<Progress>,
    _handle: Handle,
}

/// What happens on the screen.
#[derive(Clone, Debug)]
pub enum Message {
    Fetch(String),
    Progressed(String, Progress),
    Fetched(String, Result<Fetched, Error>),
    Cancel(String),
    Choose,
    Path(path_field::Message),
    Chosen(Option<PathBuf>),
    Adopted(Result<Box<ModelView>, Error>),
    Use(String),
    Verify(String),
    Template(String, TemplateChoice),
    Remove(String),
    Done(Result<(), Error>),
    Dismiss,
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    /// This model answers from now on.
    Use(String),
    /// Facts changed in a way that the feed may not tell.
    Refresh,
}

impl Models {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Fetch(id) => self.fetch(id, env),
            Message::Progressed(id, progress) => self.progressed(&id, progress),
            Message::Fetched(id, result) => self.fetched(id, result),
            Message::Cancel(id) => self.cancel(&id),
            Message::Choose if !desktop::has_file_dialog() => Action::Run(self.path.show(true)),
            Message::Path(message) => self.path.update(message).map_or(Action::None, |path| adopt(path, env)),
            Message::Choose => Action::Run(desktop::choose_file(env.locale.t("models-choose"), Message::Chosen)),
            Message::Chosen(path) => path.map_or(Action::None, |path| adopt(path, env)),
            Message::Adopted(result) => self.adopted(result, env),
            Message::Use(id) => Action::Use(id),
            Message::Verify(id) => verify(id, env),
            Message::Template(id, choice) => choose_template(id, choice, env),
            Message::Remove(id) => self.remove(id, env),
            Message::Done(result) => self.done(result),
            Message::Dismiss => self.dismiss(),
        }
    }

    /// Begins to fetch a model, once.
    pub fn fetch(&mut self, id: String, env: &Env<'_>) -> Action {
        if self.fetches.contains_key(&id) {
            return Action::None;
        }
        let _ = self.outcomes.remove(&id);
        let (task, handle) = fetching(env.engine, id.clone());
        let _ = self.fetches.insert(id, Fetch { progress: None, _handle: handle });
        Action::Run(task)
    }

    fn progressed(&mut self, id: &str, progress: Progress) -> Action {
        if let Some(fetch) = self.fetches.get_mut(id) {
            fetch.progress = Some(progress);
        }
        Action::None
    }

    fn fetched(&mut self, id: String, result: Result<Fetched, Error>) -> Action {
        let _ = self.fetches.remove(&id);
        let _ = self.outcomes.insert(id, result);
        Action::Refresh
    }

    fn cancel(&mut self, id: &str) -> Action {
        let _ = self.fetches.remove(id);
        Action::Refresh
    }

    /// A file of the person's own becomes the chat model, unless it was taken as a model of the catalogue.
    fn adopted(&mut self, result: Result<Box<ModelView>, Error>, env: &Env<'_>) -> Action {
        match result {
            Ok(view) if view.entry.kind == Kind::Embedding || view.entry.id == env.facts.settings.chat_model => Action::Refresh,
            Ok(view) => Action::Use(view.entry.id),
            Err(error) => {
                self.error = Some(error.to_string());
                Action::None
            }
        }
    }

    fn remove(&mut self, id: String, env: &Env<'_>) -> Action {
        let _ = self.outcomes.remove(&id);
        let engine = env.engine.clone();
        let work = env.engine.handle().spawn_blocking(move || engine.models().remove(&id).map(drop));
        Action::Run(Task::perform(work, |result| Message::Done(result.unwrap_or(Ok(())))))
    }

    fn done(&mut self, result: Result<(), Error>) -> Action {
        self.error = result.err().map(|error| error.to_string());
        Action::Refresh
    }

    fn dismiss(&mut self) -> Action {
        self.error = None;
        Action::None
    }

    /// Draws the screen.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let mut list = column![piece::page(look.t("models-title")), piece::label(look.t("models-about")).color(look.roles.muted)];
        list = list.extend(self.error(look));
        for (kind, head) in [(Kind::Chat, look.t("models-chat")), (Kind::Embedding, look.t("models-embedding"))] {
            let models: Vec<&ModelView> = look.facts.models.iter().filter(|model| model.entry.kind == kind).collect();
            if !models.is_empty() {
                list = list.push(piece::title(head)).extend(models.into_iter().map(|model| self.card(model, look)));
            }
        }
        let own = row![
            piece::label(look.t("models-own")).color(look.roles.muted).width(Fill),
            piece::secondary(look.t("models-choose"), Some(Message::Choose))
        ];
        list = list.push(own.spacing(gap::M).align_y(Center)).extend(self.path(look));
        let list = container(list.spacing(gap::M).max_width(width::READING)).center_x(Fill).padding(gap::XL);
        scrollable(list).style(style::scroll).height(Fill).into()
    }

    /// The line for the path of a file of the person's own.
    pub fn path<'a>(&'a self, look: Look<'a>) -> Option<Element<'a, Message>> {
        self.path.view(look.t("models-take"), look).map(|field| field.map(Message::Path))
    }

    /// What went wrong beside the fetches.
    pub fn error<'a>(&'a self, look: Look<'a>) -> Option<Element<'a, Message>> {
        let reason = self.error.clone()?;
        let actions = vec![piece::quiet(look.t("app-dismiss"), Some(Message::Dismiss))];
        Some(piece::banner((Icon::Warning, |roles| roles.danger), look.t("models-error"), Some(reason), actions, look.roles))
    }

    /// Draws one model.
    pub fn card<'a>(&'a self, model: &'a ModelView, look: Look<'a>) -> Element<'a, Message> {
        let entry = &model.entry;
        let head = row![piece::strong(entry.name.as_str()), space().width(Fill), self.state(model, look)].spacing(gap::S).align_y(Center);
        let mut facts = vec![look.locale.tv("model-size", [("size", look.locale.bytes(entry.bytes).into())]), entry.licence.clone()];
        if entry.kind == Kind::Chat && entry.context > 0 {
            facts.push(look.locale.tv("model-context", [("tokens", entry.context.into())]));
        }
        let mut parts =
            column![head, piece::label(entry.about.as_str()).color(look.roles.muted), piece::small(facts.join(" · "), look.roles)];
        parts = parts.extend(self.going(model, look));
        container(parts.spacing(gap::S)).padding(gap::L).width(Fill).style(style::card).into()
    }

    fn state<'a>(&'a self, model: &'a ModelView, look: Look<'a>) -> Element<'a, Message> {
        let roles = look.roles;
        let in_use = model.entry.id == look.facts.settings.chat_model || model.entry.id == look.facts.settings.embedding_model;
        match &model.state {
            _ if self.fetches.contains_key(&model.entry.id) => piece::state(Icon::Download, look.t("model-fetching"), roles.info),
            ModelState::Ready { .. } if in_use => piece::state(Icon::Done, look.t("model-in-use"), roles.success),
            ModelState::Ready { .. } => piece::state(Icon::Done, look.t("model-ready"), roles.success),
            ModelState::Fetching(_) => piece::state(Icon::Download, look.t("model-fetching"), roles.info),
            ModelState::Broken { .. } => piece::state(Icon::Warning, look.t("model-broken"), roles.danger),
            ModelState::Missing { .. } => piece::state(Icon::Dot, look.t("model-missing"), roles.muted),
        }
    }

    /// Progress, outcome and what can be done.
    fn going<'a>(&'a self, model: &'a ModelView, look: Look<'a>) -> Vec<Element<'a, Message>> {
        let id = model.entry.id.as_str();
        let mut parts = Vec::new();
        if let Some(fetch) = self.fetches.get(id) {
            let told = match &model.state {
                ModelState::Fetching(progress) => Some(progress),
                _ => None,
            };
            parts.extend(progress(fetch.progress.as_ref().or(told), look));
            parts.push(piece::secondary(look.t("model-cancel"), Some(Message::Cancel(id.to_owned()))));
            return parts;
        }
        parts.extend(self.outcome(id, look));
        let mut actions: Vec<Element<'a, Message>> = Vec::new();
        match &model.state {
            ModelState::Missing { partial } => {
                let words = if *partial > 0 {
                    look.locale.tv("model-resume", [("done", look.locale.bytes(*partial).into())])
                } else {
                    look.t("model-fetch")
                };
                actions.push(piece::primary(words, Some(Message::Fetch(id.to_owned()))));
            }
            ModelState::Fetching(told) => parts.extend(progress(Some(told), look)),
            ModelState::Broken { reason } => {
                parts.push(piece::label(reason.as_str()).color(look.roles.danger).wrapping(text::Wrapping::WordOrGlyph).into());
                actions.push(piece::primary(look.t("model-fetch-again"), Some(Message::Fetch(id.to_owned()))));
                actions.push(piece::quiet(look.t("model-remove"), Some(Message::Remove(id.to_owned()))));
            }
            ModelState::Ready { source, .. } => {
                parts.push(piece::small(look.locale.tv("model-from", [("source", source.as_str().into())]), look.roles).into());
                if model.entry.kind == Kind::Chat {
                    let (words, choose) = template(model, look);
                    parts.extend(words);
                    actions.push(choose);
                }
                if model.entry.kind == Kind::Chat && id != look.facts.settings.chat_model {
                    actions.push(piece::secondary(look.t("model-use"), Some(Message::Use(id.to_owned()))));
                }
                actions.push(piece::quiet(look.t("model-verify"), Some(Message::Verify(id.to_owned()))));
                actions.push(piece::quiet(look.t("model-remove"), Some(Message::Remove(id.to_owned()))));
            }
        }
        if !actions.is_empty() {
            parts.push(Row::with_children(actions).spacing(gap::S).into());
        }
        parts
    }

    /// Which sources failed, and why.
    fn outcome<'a>(&'a self, id: &str, look: Look<'a>) -> Option<Element<'a, Message>> {
        let (head, failed) = match self.outcomes.get(id)? {
            Ok(fetched) if fetched.failed.is_empty() => return None,
            Ok(fetched) => (piece::small(look.t("model-others-failed"), look.roles), fetched.failed.as_slice()),
            Err(Error::Sources(failed)) => (piece::label(look.t("model-no-source")).color(look.roles.danger), failed.as_slice()),
            Err(other) => {
                let words = piece::label(other.to_string()).color(look.roles.danger);
                return Some(words.wrapping(text::Wrapping::WordOrGlyph).into());
            }
        };
        let lines = failed
            .iter()
            .map(|(source, reason)| piece::small(format!("{source}: {reason}"), look.roles).wrapping(text::Wrapping::WordOrGlyph).into());
        Some(column![head, Column::with_children(lines).spacing(2)].spacing(gap::XS).into())
    }
}

/// What is to say about a model's chat template, and the button that chooses another one.
fn template<'a>(model: &'a ModelView, look: Look<'a>) -> (Vec<Element<'a, Message>>, Element<'a, Message>) {
    let view = &model.template;
    let mut words: Vec<Element<'a, Message>> = Vec::new();
    match &view.choice {
        TemplateChoice::Own => {}
        TemplateChoice::ChatMl => words.push(piece::state(Icon::Info, look.t("model-template-chatml"), look.roles.info)),
        TemplateChoice::File(file) => {
            let named = look.locale.tv("model-template-file", [("file", file.display().to_string().into())]);
            words.push(piece::state(Icon::Info, named, look.roles.info));
        }
    }
    if let Some(fault) = &view.fault {
        words.push(piece::label(fault.as_str()).color(look.roles.danger).wrapping(text::Wrapping::WordOrGlyph).into());
    }
    if let Some(note) = view.used.as_ref().and_then(|used| used.note.as_deref()) {
        words.push(piece::small(note, look.roles).wrapping(text::Wrapping::WordOrGlyph).into());
    }
    let choose = |choice| Some(Message::Template(model.entry.id.clone(), choice));
    let button = match (&view.choice, &view.fault) {
        (TemplateChoice::Own, Some(_)) => piece::primary(look.t("model-use-chatml"), choose(TemplateChoice::ChatMl)),
        (TemplateChoice::Own, None) => piece::quiet(look.t("model-use-chatml"), choose(TemplateChoice::ChatMl)),
        _ => piece::secondary(look.t("model-use-own-template"), choose(TemplateChoice::Own)),
    };
    (words, button)
}

/// The bar, and below it: how much, how fast, from where.
fn progress<'a>(progress: Option<&Progress>, look: Look<'a>) -> Vec<Element<'a, Message>> {
    let Some(progress) = progress else {
        return vec![piece::progress(0.0), piece::small(look.t("model-starting"), look.roles).into()];
    };
    let values = [
        ("done", look.locale.bytes(progress.done).into()),
        ("total", look.locale.bytes(progress.total).into()),
        ("speed", look.locale.bytes(progress.speed.max(0.0) as u64).into()),
        ("source", progress.source.as_str().into()),
    ];
    let share = progress.done as f32 / progress.total.max(1) as f32;
    vec![piece::progress(share), piece::small(look.locale.tv("model-progress", values), look.roles).into()]
}

/// Fetches as a stream of messages, a few a second.
fn fetching(engine: &Engine, id: String) -> (Task<Message>, Handle) {
    let work = engine.models().fetch(&id);
    let stream = iced::stream::channel(4, async move |mut out: mpsc::Sender<Message>| {
        let mut work = work.pin();
        let mut last: Option<Instant> = None;
        while let Some(progress) = work.sip().await {
            if last.is_none_or(|last| last.elapsed() >= TICK) {
                last = Some(Instant::now());
                // The receiver only goes when the fetch is being dropped as well.
                let _ = out.send(Message::Progressed(id.clone(), progress)).await;
            }
        }
        let result = work.await;
        let _ = out.send(Message::Fetched(id, result)).await;
    });
    let (task, handle) = Task::stream(stream).abortable();
    (task, handle.abort_on_drop())
}

fn adopt(path: PathBuf, env: &Env<'_>) -> Action {
    let engine = env.engine.clone();
    let work = env.engine.handle().spawn_blocking(move || engine.models().adopt(&path).map(Box::new));
    Action::Run(Task::perform(work, |result| match result {
        Ok(result) => Message::Adopted(result),
        Err(_) => Message::Done(Ok(())),
    }))
}

fn verify(id: String, env: &Env<'_>) -> Action {
    let engine = env.engine.clone();
    let work = env.engine.handle().spawn_blocking(move || engine.models().verify(&id).map(drop));
    Action::Run(Task::perform(work, |result| Message::Done(result.unwrap_or(Ok(())))))
}

fn choose_template(id: String, choice: TemplateChoice, env: &Env<'_>) -> Action {
    let engine = env.engine.clone();
    let work = env.engine.handle().spawn_blocking(move || engine.models().choose_template(&id, &choice).map(drop));
    Action::Run(Task::perform(work, |result| Message::Done(result.unwrap_or(Ok(())))))
}

#[cfg(test)]
mod tests {
    use handrail_engine::Config;
    use iced_test::simulator;

    use super::*;
    use crate::appearance::LIGHT;
    use crate::facts::Facts;
    use crate::locale::{Language, Locale};

    #[test]
    fn another_template_is_chosen_on_the_card_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let config = || Config { start_servers: false, ..Config::new(folder.path()) };
        let file = folder.path().join("mine.gguf");
        std::fs::write(&file, b"GGUF and more").unwrap();
        let engine = Engine::start(config()).unwrap();
        let _ = engine.models().adopt(&file).unwrap();
        let (screen, locale) = (Models::default(), Locale::new(Language::English));
        for (button, choice) in [("Use ChatML instead", TemplateChoice::ChatMl), ("Use its own template", TemplateChoice::Own)] {
            let facts = Facts { models: engine.models().list(), gathered: true, ..Facts::default() };
            let now = Instant::now();
            let look = Look { locale: &locale, roles: &LIGHT, facts: &facts, today: jiff::civil::date(2026, 12, 7), now, narrow: false };
            let card = facts.model("mine").unwrap();
            let mut ui = simulator(screen.card(card, look));
            let _ = ui.click(button).unwrap();
            let messages: Vec<Message> = ui.into_messages().collect();
            assert!(matches!(&messages[..], [Message::Template(id, chosen)] if id == "mine" && *chosen == choice), "{messages:?}");
            let _ = engine.models().choose_template("mine", &choice).unwrap();
            let reopened = handrail_engine::local::Models::new(folder.path().join("models"), 0);
            assert_eq!(reopened.template("mine").unwrap().choice, choice);
        }
    }
}
