//! What holds for all servers: the folders that they are told of, and whether they may ask the model to write.

use std::path::PathBuf;

use handrail_engine::mcp::config::Settings;
use iced::widget::{Column, column, container, row, text, toggler};
use iced::{Center, Element, Fill, Task};

use super::super::chat::argument::visible;
use super::super::{Env, Look};
use crate::appearance::{MONO, space as gap, style};
use crate::desktop;
use crate::icon::Icon;
use crate::piece;

/// The part.
#[derive(Debug, Default)]
pub struct Shared {
    typed: String,
    error: Option<String>,
}

/// What happens in it.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    Typed(String),
    Add,
    Choose,
    Chosen(Option<PathBuf>),
    Remove(PathBuf),
    Sampling(bool),
    Saved(Result<(), String>),
}

/// What the screen must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Refresh,
}

impl Shared {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Typed(typed) => {
                (self.typed, self.error) = (typed, None);
                Action::None
            }
            Message::Add if self.typed.trim().is_empty() => Action::None,
            Message::Add => grant(PathBuf::from(self.typed.trim()), env),
            Message::Choose => Action::Run(desktop::choose_folder(env.locale.t("shared-folders"), Message::Chosen)),
            Message::Chosen(Some(folder)) => grant(folder, env),
            Message::Chosen(None) => Action::None,
            Message::Remove(folder) => save(env, move |settings| settings.roots.retain(|granted| *granted != folder)),
            Message::Sampling(on) => save(env, move |settings| settings.allow_sampling = on),
            Message::Saved(Ok(())) => {
                *self = Self::default();
                Action::Refresh
            }
            Message::Saved(Err(reason)) => {
                self.error = Some(reason);
                Action::None
            }
        }
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let (roles, settings) = (look.roles, &look.facts.server_settings);
        let small = |words: String| piece::small(words, roles).wrapping(text::Wrapping::WordOrGlyph);
        let folders = settings.roots.iter().map(|folder| {
            let name = piece::label(visible(&folder.display().to_string())).font(MONO).wrapping(text::Wrapping::WordOrGlyph).width(Fill);
            let less = piece::icon_button(Icon::Close, look.t("servers-remove"), Some(Message::Remove(folder.clone())));
            row![name, less].spacing(gap::S).align_y(Center).into()
        });
        let input = piece::input(&look.t("typed-folder"), &self.typed, Message::Typed).on_submit(Message::Add).width(Fill);
        let ready = !self.typed.trim().is_empty();
        let mut line = row![input, piece::secondary(look.t("shared-add"), ready.then_some(Message::Add))].spacing(gap::S).align_y(Center);
        if desktop::has_file_dialog() {
            line = line.push(piece::secondary(look.t("typed-choose"), Some(Message::Choose)));
        }
        let folders = column![
            piece::strong(look.t("shared-folders")),
            small(look.t("shared-folders-about")),
            Column::with_children(folders).spacing(gap::XS),
            line,
            piece::fault(self.error.clone(), roles),
        ];
        let switch = toggler(settings.allow_sampling).on_toggle(Message::Sampling).size(18).style(style::switch);
        let words = column![piece::strong(look.t("shared-sampling")), small(look.t("shared-sampling-about"))].spacing(2).width(Fill);
        let sampling = row![switch, words].spacing(gap::M);
        let parts = column![folders.spacing(gap::XS), sampling].spacing(gap::L);
        column![piece::title(look.t("shared-title")), container(parts).padding(gap::M).width(Fill).style(style::card)]
            .spacing(gap::S)
            .into()
    }
}

fn grant(folder: PathBuf, env: &Env<'_>) -> Action {
    if env.facts.server_settings.roots.contains(&folder) {
        return Action::None;
    }
    let mut folders = env.facts.server_settings.roots.clone();
    folders.push(folder);
    let engine = env.engine.clone();
    run(env, move || engine.servers().set_roots(folders))
}

fn save(env: &Env<'_>, change: impl FnOnce(&mut Settings)) -> Action {
    let mut settings = env.facts.server_settings.clone();
    change(&mut settings);
    let engine = env.engine.clone();
    run(env, move || engine.servers().set_settings(&settings))
}

/// The file is written off the screen.
fn run(env: &Env<'_>, work: impl FnOnce() -> Result<(), handrail_engine::mcp::Error> + Send + 'static) -> Action {
    let work = env.engine.handle().spawn_blocking(move || work().map_err(|error| error.to_string()));
    Action::Run(Task::perform(work, |result| Message::Saved(result.unwrap_or_else(|error| Err(error.to_string())))))
}
