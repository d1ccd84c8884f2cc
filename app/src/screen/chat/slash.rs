//! Prompts of servers as slash commands: a list while one writes "/…", a form for what the prompt wants to know, and
//! its text in the composer, to be read before it is sent.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use handrail_engine::mcp::offer::{Completable, Prompt, PromptMessage};
use handrail_engine::tool::{Content, ServerId};
use iced::widget::{Column, button, column, container, row, scrollable, text};
use iced::{Center, Element, Fill, Task};

use super::super::{Env, Look};
use super::argument::{start, visible};
use super::blanks::{self, Blanks};
use crate::appearance::{MONO, space as gap, style};
use crate::icon::Icon;
use crate::piece;

/// Prompts that are listed at once.
const LISTED: usize = 40;
/// Highest the list grows before it scrolls.
const HEIGHT: f32 = 280.0;

/// The commands.
#[derive(Debug, Default)]
pub struct Slash {
    prompts: HashMap<ServerId, Known>,
    /// What stands after the slash; none while nothing is looked for.
    query: Option<String>,
    selected: usize,
    form: Option<Chosen>,
    /// Counts what was asked for: what comes later than a newer wish is dropped.
    asked: u64,
    working: bool,
    error: Option<String>,
}

/// What is known of a server's prompts.
#[derive(Debug)]
enum Known {
    Asked,
    Here(Vec<Prompt>),
    Failed(String),
}

/// A prompt that waits for its arguments.
#[derive(Debug)]
struct Chosen {
    server: ServerId,
    prompt: Prompt,
    blanks: Blanks,
}

/// What happens with them.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Listed(ServerId, Result<Vec<Prompt>, String>),
    Move(bool),
    /// Takes the prompt that is marked.
    Choose,
    Pick(ServerId, String),
    Blanks(blanks::Message),
    Filled(u64, Result<Vec<PromptMessage>, String>),
    Close,
}

/// What the composer must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    /// This text takes the place of the command.
    Write(String),
    /// The form is closed: back to the field.
    Back,
}

impl Slash {
    /// The text of the composer changed.
    pub fn written(&mut self, written: &str, env: &Env<'_>) -> Task<Message> {
        let query = written.trim_end_matches('\n').strip_prefix('/').filter(|query| !query.contains(char::is_whitespace));
        self.query = query.map(str::to_lowercase);
        self.selected = 0;
        if self.query.is_none() {
            return Task::none();
        }
        let servers = env.facts.servers.iter().filter(|server| server.state.is_usable() && server.offers.prompts);
        let tasks = servers.filter(|server| !matches!(self.prompts.get(&server.id), Some(Known::Asked | Known::Here(_)))).map(|server| {
            let (engine, id) = (env.engine.clone(), server.id.clone());
            let work = env.engine.handle().spawn(async move { engine.servers().prompts(&id).await.map_err(|error| error.to_string()) });
            let id = server.id.clone();
            (
                server.id.clone(),
                Task::perform(work, move |result| Message::Listed(id.clone(), result.unwrap_or_else(|e| Err(e.to_string())))),
            )
        });
        let (ids, tasks): (Vec<_>, Vec<_>) = tasks.unzip();
        self.prompts.extend(ids.into_iter().map(|id| (id, Known::Asked)));
        Task::batch(tasks)
    }

    /// A server's prompts are not what they were.
    pub fn forget(&mut self, server: &ServerId) {
        let _ = self.prompts.remove(server);
    }

    /// Whether the list is open and has something to choose.
    #[must_use]
    pub fn chooses(&self) -> bool {
        self.form.is_none() && !self.found().is_empty()
    }

    /// Closes what is open; whether something was.
    pub fn leaves(&mut self) -> bool {
        let open = self.query.take().is_some() || self.form.take().is_some();
        self.error = None;
        open
    }

    /// What fits, what begins so first.
    fn found(&self) -> Vec<(&ServerId, &Prompt)> {
        let Some(query) = &self.query else { return Vec::new() };
        let mut found: Vec<(bool, &ServerId, &Prompt)> = Vec::new();
        for (server, known) in &self.prompts {
            let Known::Here(prompts) = known else { continue };
            for prompt in prompts {
                let name = prompt.name.to_lowercase();
                let texts = [prompt.title.as_deref(), prompt.description.as_deref(), Some(server.as_str())];
                let fits = name.contains(query) || texts.into_iter().flatten().any(|text| text.to_lowercase().contains(query));
                if fits {
                    found.push((!name.starts_with(query.as_str()), server, prompt));
                }
            }
        }
        found.sort_by(|a, b| (a.0, a.1, &a.2.name).cmp(&(b.0, b.1, &b.2.name)));
        found.into_iter().take(LISTED).map(|(_, server, prompt)| (server, prompt)).collect()
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Listed(server, result) => self.listed(server, result),
            Message::Move(down) => self.moved(down),
            Message::Choose => self.choose(env),
            Message::Pick(server, name) => self.pick(&server, &name, env),
            Message::Blanks(message) => self.blanks(message, env),
            Message::Filled(asked, result) => self.filled(asked, result, env),
            Message::Close => {
                let _ = self.leaves();
                Action::None
            }
        }
    }

    fn listed(&mut self, server: ServerId, result: Result<Vec<Prompt>, String>) -> Action {
        let known = match result {
            Ok(prompts) => Known::Here(prompts),
            Err(reason) => Known::Failed(reason),
        };
        let _ = self.prompts.insert(server, known);
        Action::None
    }

    fn moved(&mut self, down: bool) -> Action {
        let count = self.found().len();
        if count > 0 {
            self.selected = (self.selected + if down { 1 } else { count - 1 }) % count;
        }
        Action::None
    }

    fn choose(&mut self, env: &Env<'_>) -> Action {
        let found = self.found();
        let Some((server, prompt)) = found.get(self.selected).or(found.first()) else { return Action::None };
        let (server, name) = ((*server).clone(), prompt.name.clone());
        self.pick(&server, &name, env)
    }

    fn pick(&mut self, server: &ServerId, name: &str, env: &Env<'_>) -> Action {
        let Some(Known::Here(prompts)) = self.prompts.get(server) else { return Action::None };
        let Some(prompt) = prompts.iter().find(|prompt| prompt.name == name).cloned() else { return Action::None };
        self.error = None;
        if prompt.arguments.is_empty() {
            return self.ask(server.clone(), prompt.name, BTreeMap::new(), env);
        }
        let completes = env.facts.server(server).is_some_and(|server| server.offers.completions);
        let of = Completable::Prompt(prompt.name.clone());
        let blanks = Blanks::new(server.clone(), of, prompt.arguments.clone(), completes);
        self.form = Some(Chosen { server: server.clone(), prompt, blanks });
        Action::Run(Blanks::focus())
    }

    fn blanks(&mut self, message: blanks::Message, env: &Env<'_>) -> Action {
        let Some(chosen) = &mut self.form else { return Action::None };
        match chosen.blanks.update(message, env) {
            blanks::Action::None => Action::None,
            blanks::Action::Run(task) => Action::Run(task.map(Message::Blanks)),
            blanks::Action::Submit(arguments) => {
                let (server, name) = (chosen.server.clone(), chosen.prompt.name.clone());
                self.ask(server, name, arguments, env)
            }
            blanks::Action::Close => {
                self.form = None;
                Action::Back
            }
        }
    }

    fn ask(&mut self, server: ServerId, name: String, arguments: BTreeMap<String, String>, env: &Env<'_>) -> Action {
        if self.working {
            return Action::None;
        }
        self.asked += 1;
        self.working = true;
        let (asked, engine) = (self.asked, env.engine.clone());
        let work = env
            .engine
            .handle()
            .spawn(async move { engine.servers().prompt(&server, &name, arguments).await.map_err(|error| error.to_string()) });
        Action::Run(Task::perform(work, move |result| Message::Filled(asked, result.unwrap_or_else(|error| Err(error.to_string())))))
    }

    fn filled(&mut self, asked: u64, result: Result<Vec<PromptMessage>, String>, env: &Env<'_>) -> Action {
        self.working = false;
        if asked != self.asked {
            return Action::None;
        }
        match result {
            Ok(messages) => {
                self.query = None;
                self.form = None;
                Action::Write(written(&messages, &env.locale.t("prompt-assistant")))
            }
            Err(reason) => {
                self.error = Some(reason);
                Action::None
            }
        }
    }

    /// Draws what is open over the field.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Option<Element<'a, Message>> {
        let fault = piece::fault(self.error.clone(), look.roles);
        if let Some(chosen) = &self.form {
            let head = piece::strong(format!("/{}", visible(&chosen.prompt.name)));
            let from = piece::small(visible(chosen.server.as_str()), look.roles);
            let form = chosen.blanks.view(look.t("prompt-take"), look).map(Message::Blanks);
            let form = scrollable(container(form).padding(iced::Padding::ZERO.right(gap::M))).style(style::scroll);
            let parts = column![row![head, from].spacing(gap::M).align_y(Center), container(form).max_height(HEIGHT), fault];
            return Some(container(parts.spacing(gap::S)).padding(gap::M).width(Fill).style(style::card).into());
        }
        let _ = self.query.as_ref()?;
        let found = self.found();
        let mut list = Column::new().spacing(2).width(Fill);
        if self.prompts.values().any(|known| matches!(known, Known::Asked)) {
            list = list.push(piece::state(Icon::Working, look.t("prompt-asking"), look.roles.muted));
        } else if found.is_empty() {
            list = list.push(container(piece::small(look.t("prompt-none"), look.roles)).padding([gap::XS, gap::S]));
        }
        for (server, known) in &self.prompts {
            if let Known::Failed(reason) = known {
                list = list.push(piece::fault(Some(format!("{server}: {reason}")), look.roles));
            }
        }
        let selected = self.selected.min(found.len().saturating_sub(1));
        list = list.extend(found.into_iter().enumerate().map(|(index, (server, prompt))| entry(server, prompt, index == selected, look)));
        let list = container(scrollable(list).style(style::scroll)).max_height(HEIGHT);
        Some(container(column![list, fault]).padding(gap::XS).width(Fill).style(style::card).into())
    }
}

fn entry<'a>(server: &'a ServerId, prompt: &'a Prompt, marked: bool, look: Look<'a>) -> Element<'a, Message> {
    let name = piece::label(format!("/{}", visible(start(&prompt.name, 60).0))).font(MONO);
    let from = piece::small(visible(server.as_str()), look.roles);
    let mut words = column![row![name, from].spacing(gap::M).align_y(Center)].spacing(2);
    if let Some(about) = prompt.description.as_deref().or(prompt.title.as_deref()) {
        words = words.push(piece::small(visible(start(about, 160).0), look.roles).wrapping(text::Wrapping::WordOrGlyph));
    }
    let entry = button(words).width(Fill).padding([gap::XS, gap::S]).style(style::entry(marked));
    piece::pressed(entry, Some(Message::Pick(server.clone(), prompt.name.clone())))
}

/// A prompt's messages as one text that a person reads before it is sent.
fn written(messages: &[PromptMessage], assistant: &str) -> String {
    let mut text = String::new();
    for message in messages {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        if message.assistant {
            text.push_str(assistant);
            text.push(' ');
        }
        // Writing to a string cannot fail.
        let _ = match &message.content {
            Content::Text { text: said } => write!(text, "{said}"),
            Content::Resource { uri, text: Some(inside), .. } => write!(text, "{uri}\n```\n{}\n```", inside.trim_end()),
            Content::Resource { uri, text: None, .. } => write!(text, "{uri}"),
            Content::Image { mime, .. } | Content::Audio { mime, .. } => write!(text, "[{mime}]"),
        };
    }
    text
}

#[cfg(test)]
impl Slash {
    pub fn listed_for_test(&mut self, server: &str, prompts: Vec<Prompt>) {
        let _ = self.listed(server.into(), Ok(prompts));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_becomes_one_text_that_names_who_speaks_and_where_resources_are_from() {
        let said = |assistant: bool, content: Content| PromptMessage { assistant, content };
        let messages = [
            said(false, Content::Text { text: "Review this:".to_owned() }),
            said(false, Content::Resource { uri: "file:///a.rs".to_owned(), name: None, text: Some("fn a() {}\n".to_owned()) }),
            said(true, Content::Text { text: "Gladly.".to_owned() }),
            said(false, Content::Image { data: "AAAA".to_owned(), mime: "image/png".to_owned() }),
        ];
        let expected = "Review this:\n\nfile:///a.rs\n```\nfn a() {}\n```\n\nAssistant: Gladly.\n\n[image/png]";
        assert_eq!(written(&messages, "Assistant:"), expected);
    }
}
