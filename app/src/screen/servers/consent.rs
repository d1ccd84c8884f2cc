//! The one sheet on which a person sees what would be started or connected to, and agrees to all of it or to nothing.

use std::path::PathBuf;

use handrail_engine::Engine;
use handrail_engine::mcp::bundle::Bundle;
use handrail_engine::mcp::consent::{Origin, Subject, Warning};
use handrail_engine::mcp::form::Answers;
use handrail_engine::mcp::import::Importable;
use handrail_engine::mcp::{Consent, ServerView};
use handrail_engine::tool::ServerId;
use iced::widget::{Column, Id, column, container, row, scrollable, text};
use iced::{Center, Element, Fill, Task};

use super::super::chat::argument::visible;
use super::super::{Env, Look};
use super::card;
use crate::appearance::{space as gap, style, width};
use crate::icon::{Icon, icon};
use crate::piece;

/// The button that has the focus when the sheet opens: Enter alone agrees to nothing.
pub const CANCEL: Id = Id::new("consent-cancel");

/// Most characters of the command that is replaced.
const OLD: usize = 400;
/// Most notes that are shown.
const NOTES: usize = 12;
/// Highest the list of servers grows before it scrolls.
const HEIGHT: f32 = 460.0;

/// The sheet.
#[derive(Debug)]
pub struct Sheet {
    entries: Vec<(ServerId, Consent)>,
    source: Source,
    /// What of the text is not added, or not as it stands.
    notes: Vec<String>,
    working: bool,
    error: Option<String>,
}

/// Where the servers on the sheet come from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// They are configured already.
    Known,
    /// A text that is not in the configuration yet.
    Text(String, Origin),
    /// What another program has.
    Import(Vec<Importable>),
    /// A server of the gallery, with what was filled in.
    Gallery(String, Answers),
    /// A bundle file, with what was filled in.
    Bundle(PathBuf, Answers),
}

/// What happens on it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Agrees; whether to start as well.
    Agree(bool),
    Agreed(Result<(), String>),
    Cancel,
}

/// What the screen must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Close,
    Added,
}

impl Sheet {
    /// For a server that is configured.
    #[must_use]
    pub fn known(id: ServerId, consent: Consent) -> Self {
        Self { entries: vec![(id, consent)], source: Source::Known, notes: Vec::new(), working: false, error: None }
    }

    /// For servers that would be added.
    #[must_use]
    pub const fn new(entries: Vec<(ServerId, Consent)>, source: Source, notes: Vec<String>) -> Self {
        Self { entries, source, notes, working: false, error: None }
    }

    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Agree(_) if self.working => Action::None,
            Message::Agree(start) => {
                self.working = true;
                let work = agree(env.engine.clone(), self.entries.clone(), self.source.clone(), start);
                let task = env.engine.handle().spawn(work);
                Action::Run(Task::perform(task, |result| Message::Agreed(result.unwrap_or_else(|error| Err(error.to_string())))))
            }
            Message::Agreed(Ok(())) => Action::Added,
            Message::Agreed(Err(reason)) => {
                self.working = false;
                self.error = Some(reason);
                Action::None
            }
            Message::Cancel => Action::Close,
        }
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let known = self.source == Source::Known;
        let title =
            if known { look.t("consent-title-known") } else { look.locale.tv("consent-title", [("count", self.entries.len().into())]) };
        let head = row![icon(Icon::Shield).color(look.roles.warning), piece::title(title)].spacing(gap::S).align_y(Center);
        let about = piece::label(look.t("consent-about")).color(look.roles.muted).wrapping(text::Wrapping::WordOrGlyph);
        // The other ways to add find a name that is free.
        let replaces = matches!(self.source, Source::Text(..));
        let entries = self.entries.iter().map(|(id, consent)| {
            let old = look.facts.server(id).filter(|_| replaces);
            entry(id, consent, old, look)
        });
        let entries = scrollable(container(Column::with_children(entries).spacing(gap::M)).padding(iced::Padding::ZERO.right(gap::M)));
        let entries = container(entries.style(style::scroll)).max_height(HEIGHT);
        let ready = |start: bool| (!self.working).then_some(Message::Agree(start));
        let cancel = piece::quiet_named(CANCEL, look.t("consent-cancel"), Message::Cancel);
        let buttons = if known {
            vec![piece::primary(look.t("consent-start"), ready(true)), cancel]
        } else {
            vec![piece::primary(look.t("consent-add-start"), ready(true)), piece::secondary(look.t("consent-add"), ready(false)), cancel]
        };
        let fault = piece::fault(self.error.clone(), look.roles);
        let note = |note: &'a String| {
            piece::small(visible(note), look.roles).color(look.roles.warning).wrapping(text::Wrapping::WordOrGlyph).into()
        };
        let notes = (!self.notes.is_empty()).then(|| Column::with_children(self.notes.iter().take(NOTES).map(note)).spacing(2));
        let parts = column![head, about, entries].push(notes).push(fault).push(piece::buttons(buttons)).spacing(gap::M);
        container(parts).padding(gap::XL).width(Fill).max_width(width::SHEET).style(style::overlay).into()
    }
}

/// Adds what was shown and agrees to exactly that.
async fn agree(engine: Engine, entries: Vec<(ServerId, Consent)>, source: Source, start: bool) -> Result<(), String> {
    let servers = engine.servers().clone();
    let said = |error: handrail_engine::mcp::Error| error.to_string();
    let added = match source {
        Source::Known => {
            for (id, consent) in &entries {
                servers.agree(id, consent).map_err(said)?;
            }
            return Ok(());
        }
        Source::Gallery(offer, answers) => {
            let adding = servers.clone();
            let work = move || adding.add_from_gallery(&offer, &answers);
            let added = tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?.map_err(said)?;
            // Agreeing checks that this is what was shown.
            for (_, consent) in entries.iter().filter(|_| start) {
                servers.agree(&added, consent).map_err(said)?;
            }
            vec![added]
        }
        // What is added without being started is added as not agreed to, and switched off before it is agreed to.
        Source::Text(text, origin) => servers.add(&text, &origin, if start { &entries } else { &[] }).map_err(said)?,
        Source::Import(chosen) => servers.import(&chosen, start).map_err(said)?,
        Source::Bundle(path, answers) => {
            let work = move || {
                let mut bundle = Bundle::open(&path).map_err(handrail_engine::mcp::Error::from)?;
                let shown = entries.first().map(|(_, consent)| consent);
                engine.servers().install_bundle(&mut bundle, &answers, shown.filter(|_| start))
            };
            vec![tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())?.map_err(said)?]
        }
    };
    for id in added {
        servers.set_active(&id, start).await.map_err(said)?;
    }
    Ok(())
}

fn origin(origin: &Origin, look: Look<'_>) -> String {
    match origin {
        Origin::File => look.t("origin-file"),
        Origin::Pasted => look.t("origin-pasted"),
        Origin::Imported(program) => look.locale.tv("origin-imported", [("program", visible(program).into())]),
        Origin::Gallery => look.t("origin-gallery"),
        Origin::Bundle(name) => look.locale.tv("origin-bundle", [("name", visible(name).into())]),
        Origin::Link => look.t("origin-link"),
    }
}

fn warning(warning: &Warning, look: Look<'_>) -> String {
    match warning {
        Warning::Variable { name, value } => {
            look.locale.tv("consent-variable", [("name", visible(name).into()), ("value", visible(value).into())])
        }
        Warning::Shell { command, script } => {
            look.locale.tv("consent-shell", [("command", visible(command).into()), ("script", visible(script).into())])
        }
        Warning::Privileges { command } => look.locale.tv("consent-privileges", [("command", visible(command).into())]),
        Warning::Unpinned { package } => look.locale.tv("consent-unpinned", [("package", visible(package).into())]),
        Warning::Secret { name } => look.locale.tv("consent-secret", [("name", visible(name).into())]),
        Warning::Environment { name } => look.locale.tv("consent-environment", [("name", visible(name).into())]),
        Warning::EnvFile { path, names } => {
            let (path, names) = (visible(path), visible(&names.join(", ")));
            look.locale.tv("consent-env-file", [("path", path.into()), ("names", names.into())])
        }
        Warning::Control { shown, meant: Some(meant) } => {
            look.locale.tv("consent-control-path", [("shown", visible(shown).into()), ("meant", visible(meant).into())])
        }
        Warning::Control { shown, meant: None } => look.locale.tv("consent-control", [("shown", visible(shown).into())]),
        Warning::PlainHttp { host } => look.locale.tv("consent-plain-http", [("host", visible(host).into())]),
    }
}

/// One server: everything that is agreed to.
fn entry<'a>(id: &'a ServerId, consent: &'a Consent, old: Option<&ServerView>, look: Look<'a>) -> Element<'a, Message> {
    let roles = look.roles;
    let from = piece::small(origin(&consent.origin, look), roles);
    let head = row![piece::strong(visible(id.as_str())).wrapping(text::Wrapping::WordOrGlyph), from].spacing(gap::M).align_y(Center);
    let mut parts = column![head].spacing(gap::S);
    let replaced = old.map(|old| look.locale.tv("consent-replaces", [("old", card::cut(&card::how(old), OLD).into())]));
    parts = parts.extend(replaced.into_iter().chain(consent.warnings.iter().map(|found| warning(found, look))).map(|words| {
        let words = piece::label(words).wrapping(text::Wrapping::WordOrGlyph);
        let line = row![icon(Icon::Warning).size(14.0).color(roles.warning), words].spacing(gap::S);
        container(line).padding([gap::XS, gap::S]).width(Fill).style(style::banner(|roles| roles.warning)).into()
    }));
    let line = |name: String, value: Element<'a, Message>| {
        row![container(piece::label(name).color(roles.muted)).width(130), container(value).width(Fill)].spacing(gap::S).into()
    };
    let value = |text: String| Element::from(piece::mono(text));
    let nothing = || look.t("about-none");
    let list =
        |texts: &[String]| if texts.is_empty() { nothing() } else { texts.iter().map(|text| visible(text)).collect::<Vec<_>>().join(", ") };
    let lines: Vec<Element<'a, Message>> = match &consent.subject {
        Subject::Program { command, args, env, folder } => vec![
            line(look.t("consent-command"), value(visible(command))),
            line(look.t("consent-args"), if args.is_empty() { value(nothing()) } else { arguments(args) }),
            line(look.t("consent-env"), value(list(env))),
            line(look.t("consent-folder"), value(folder.as_ref().map_or_else(nothing, |folder| visible(&folder.display().to_string())))),
        ],
        Subject::Address { url, headers } => {
            vec![line(look.t("consent-url"), value(visible(url))), line(look.t("consent-headers"), value(list(headers)))]
        }
    };
    parts = parts.extend(lines);
    container(parts).padding(gap::M).width(Fill).style(style::card).into()
}

/// One argument a line: where one ends and the next begins must be seen.
fn arguments<'a>(args: &[String]) -> Element<'a, Message> {
    let shown = args.iter().map(|argument| {
        let text = visible(argument);
        let text = if argument.is_empty() || argument.contains(char::is_whitespace) { format!("\"{text}\"") } else { text };
        piece::mono(text).into()
    });
    Column::with_children(shown).into()
}

#[cfg(test)]
mod tests {
    use handrail_engine::Config;

    use super::*;

    #[test]
    fn nothing_is_in_the_configuration_before_the_agreement_and_then_exactly_what_was_shown() {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(Config { start_servers: false, ..Config::new(folder.path()) }).unwrap();
        let text = r#"{"mcpServers": {"x": {"command": "no-such-program-here", "args": ["a b"], "env": {"KEY": "secret"}}}}"#;
        let entries = engine.servers().preview(text, &Origin::Pasted).unwrap();
        assert!(engine.servers().servers().is_empty());
        assert!(!folder.path().join("mcp_config.json").exists());
        let source = Source::Text(text.to_owned(), Origin::Pasted);
        engine.block_on(agree(engine.clone(), entries, source, false)).unwrap();
        let servers = engine.servers().servers();
        assert_eq!(servers.len(), 1);
        assert!(!servers[0].config.active, "added without starting");
    }
}
