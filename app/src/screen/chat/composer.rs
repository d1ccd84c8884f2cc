//! The composer: text, attachments, tool choice, send and stop.

use std::path::PathBuf;

use handrail_engine::conversation::Attachment;
use handrail_engine::provider::ToolChoice;
use handrail_engine::tool::ServerId;
use handrail_engine::{rag, turn};
use iced::keyboard::{Key, key::Named};
use iced::widget::{Id, button, column, container, pick_list, row, space, text_editor};
use iced::{Center, Element, Fill, Pixels, Task};

use super::super::path_field::{self, PathField};
use super::super::{Env, Look};
use super::attachment::{self, Attached};
use super::resource::{self, Resources};
use super::slash::{self, Slash};
use crate::appearance::{SANS, size, space as gap, style};
use crate::desktop;
use crate::icon::{Icon, icon};
use crate::piece;

/// The text field, for focus.
pub const EDITOR: Id = Id::new("composer");

/// The composer.
#[derive(Debug)]
pub struct Composer {
    content: text_editor::Content,
    attachments: Vec<Attached>,
    choice: Choice,
    /// Whether an input method is composing: then Enter belongs to it.
    composing: bool,
    path: PathField,
    slash: Slash,
    resources: Resources,
    next: u64,
}

impl Default for Composer {
    fn default() -> Self {
        Self {
            content: text_editor::Content::new(),
            attachments: Vec::new(),
            choice: Choice::default(),
            composing: false,
            path: PathField::new("composer-path"),
            slash: Slash::default(),
            resources: Resources::default(),
            next: 0,
        }
    }
}

/// Whether tools may be called, as a choice in a menu.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    #[default]
    Auto,
    None,
    Required,
}

impl Choice {
    const ALL: [Self; 3] = [Self::Auto, Self::None, Self::Required];

    fn name(self, look: Look<'_>) -> String {
        match self {
            Self::Auto => look.t("composer-tools-auto"),
            Self::None => look.t("composer-tools-none"),
            Self::Required => look.t("composer-tools-required"),
        }
    }

    /// The choice of the menu that a request carries; a named tool is never chosen there.
    fn of(wire: &ToolChoice) -> Self {
        match wire {
            ToolChoice::None => Self::None,
            ToolChoice::Required | ToolChoice::Named(_) => Self::Required,
            ToolChoice::Auto => Self::Auto,
        }
    }

    fn wire(self) -> ToolChoice {
        match self {
            Self::Auto => ToolChoice::Auto,
            Self::None => ToolChoice::None,
            Self::Required => ToolChoice::Required,
        }
    }
}

/// A choice with its name, for the menu.
#[derive(Clone, Debug, PartialEq)]
struct Offer {
    choice: Choice,
    name: String,
}

impl std::fmt::Display for Offer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// What happens in the composer.
#[derive(Clone, Debug)]
pub enum Message {
    Edited(text_editor::Action),
    Submit,
    Stop,
    Attach,
    /// Attaches by a path that is written.
    AttachPath,
    Path(path_field::Message),
    Slash(slash::Message),
    Resource(resource::Message),
    Chosen(Vec<PathBuf>),
    Attaching(u64, rag::Progress),
    Attached(u64, Result<Attachment, rag::Error>),
    Remove(u64),
    Choose(Choice),
    Composing(bool),
}

/// What the chat must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    Run(Task<Message>),
    Send(turn::Input),
    Stop,
}

impl Composer {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Edited(action) => self.edited(action, env),
            Message::Slash(message) => self.slashed(message, env),
            Message::Resource(message) => self.resourced(message, env),
            Message::Submit => self.submitted(),
            Message::Stop => Action::Stop,
            Message::Attach if !desktop::has_file_dialog() => Action::Run(self.path.show(true)),
            Message::Attach => Action::Run(desktop::choose_files(env.locale.t("composer-attach"), Message::Chosen)),
            Message::AttachPath => Action::Run(self.path.show(false)),
            Message::Path(message) => self.path_changed(message, env),
            Message::Chosen(paths) => self.attach(paths, env),
            Message::Attaching(id, progress) => self.attaching(id, progress),
            Message::Attached(id, result) => self.attached(id, result),
            Message::Remove(id) => self.remove(id),
            Message::Choose(choice) => self.chosen(choice),
            Message::Composing(composing) => self.composing_changed(composing),
        }
    }

    /// Puts a message back that could not be sent: its text before what was written meanwhile, its files, and its
    /// choice about tools.
    pub fn restore(&mut self, input: turn::Input) {
        let written = self.content.text();
        let text = if written.trim().is_empty() { input.text } else { format!("{}\n\n{}", input.text, written.trim_end()) };
        self.content = text_editor::Content::with_text(&text);
        self.content.perform(text_editor::Action::Move(text_editor::Motion::DocumentEnd));
        for attachment in input.attachments {
            self.next += 1;
            self.attachments.push(Attached::again(self.next, attachment));
        }
        self.choice = Choice::of(&input.options.tool_choice);
    }

    /// Closes what is open over the field; whether something was.
    pub fn leaves(&mut self) -> bool {
        self.slash.leaves() || self.resources.leaves()
    }

    /// A server's prompts are not what they were.
    pub fn forget_prompts(&mut self, server: &ServerId) {
        self.slash.forget(server);
    }

    fn slashed(&mut self, message: slash::Message, env: &Env<'_>) -> Action {
        match self.slash.update(message, env) {
            slash::Action::None => Action::None,
            slash::Action::Run(task) => Action::Run(task.map(Message::Slash)),
            slash::Action::Write(text) => {
                self.content = text_editor::Content::with_text(&text);
                self.content.perform(text_editor::Action::Move(text_editor::Motion::DocumentEnd));
                Action::Run(iced::widget::operation::focus(EDITOR))
            }
            slash::Action::Back => Action::Run(iced::widget::operation::focus(EDITOR)),
        }
    }

    fn resourced(&mut self, message: resource::Message, env: &Env<'_>) -> Action {
        match self.resources.update(message, env) {
            resource::Action::None => Action::None,
            resource::Action::Run(task) => Action::Run(task.map(Message::Resource)),
            resource::Action::Attach(path, address) => {
                self.next += 1;
                let (attached, task) = attachment::read(env.engine, self.next, &path);
                self.attachments.push(attached.named(address));
                Action::Run(Task::batch([task, iced::widget::operation::focus(EDITOR)]))
            }
        }
    }

    fn path_changed(&mut self, message: path_field::Message, env: &Env<'_>) -> Action {
        let closed = message == path_field::Message::Close;
        match self.path.update(message) {
            Some(path) => match self.attach(vec![path], env) {
                Action::Run(task) => Action::Run(Task::batch([task, iced::widget::operation::focus(EDITOR)])),
                other => other,
            },
            None if closed => Action::Run(iced::widget::operation::focus(EDITOR)),
            None => Action::None,
        }
    }

    fn edited(&mut self, action: text_editor::Action, env: &Env<'_>) -> Action {
        let edits = action.is_edit();
        self.content.perform(action);
        if edits { Action::Run(self.slash.written(&self.content.text(), env).map(Message::Slash)) } else { Action::None }
    }

    fn submitted(&mut self) -> Action {
        if self.composing || !self.can_send() {
            return Action::None;
        }
        let text = self.content.text().trim().to_owned();
        let attachments = self.attachments.drain(..).filter_map(Attached::into_ready).collect();
        self.content = text_editor::Content::new();
        let options = turn::Options { tool_choice: self.choice.wire(), ..turn::Options::default() };
        Action::Send(turn::Input { text, attachments, options })
    }

    /// Whether there is something to send and nothing still being read.
    fn can_send(&self) -> bool {
        let written = !self.content.text().trim().is_empty();
        written && !self.attachments.iter().any(Attached::is_reading)
    }

    /// Begins to read files.
    pub fn attach(&mut self, paths: Vec<PathBuf>, env: &Env<'_>) -> Action {
        let tasks = paths.into_iter().map(|path| {
            self.next += 1;
            let (attached, task) = attachment::read(env.engine, self.next, &path);
            self.attachments.push(attached);
            task
        });
        Action::Run(Task::batch(tasks.collect::<Vec<_>>()))
    }

    fn attaching(&mut self, id: u64, progress: rag::Progress) -> Action {
        if let Some(attached) = self.attachments.iter_mut().find(|attached| attached.id == id) {
            attached.progressed(progress);
        }
        Action::None
    }

    fn attached(&mut self, id: u64, result: Result<Attachment, rag::Error>) -> Action {
        if let Some(attached) = self.attachments.iter_mut().find(|attached| attached.id == id) {
            attached.finished(result);
        }
        Action::None
    }

    fn remove(&mut self, id: u64) -> Action {
        // Dropping a file that is still being read stops its reader.
        self.attachments.retain(|attached| attached.id != id);
        Action::None
    }

    fn chosen(&mut self, choice: Choice) -> Action {
        self.choice = choice;
        Action::None
    }

    fn composing_changed(&mut self, composing: bool) -> Action {
        self.composing = composing;
        Action::None
    }

    /// Draws the composer.
    pub fn view<'a>(&'a self, look: Look<'a>, running: bool, hovered: bool) -> Element<'a, Message> {
        let placeholder = if hovered { look.t("composer-drop") } else { look.t("composer-placeholder") };
        let editor = text_editor(&self.content)
            .id(EDITOR)
            .placeholder(placeholder)
            .on_action(Message::Edited)
            .key_binding(binding_for(self.slash.chooses()))
            .font(SANS)
            .size(size::BODY.0)
            .line_height(Pixels(size::BODY.1))
            .min_height(size::BODY.1 + 2.0 * gap::S)
            .max_height(8.0 * size::BODY.1)
            .padding([gap::S, gap::XS])
            .style(style::editor);
        // The line of attachments is always there, or the editor would change its place and lose the focus.
        let chips = self.attachments.iter().map(|attached| attached.view(look).map(Message::Remove));
        let chips: Element<'a, Message> = if self.attachments.is_empty() {
            space().into()
        } else {
            container(iced::widget::Row::with_children(chips).spacing(gap::S).wrap()).padding(iced::Padding::ZERO.bottom(gap::S)).into()
        };
        let path = self.path.view(look.t("composer-attach-path"), look).map_or_else(
            || Element::from(space()),
            |field| container(field.map(Message::Path)).padding(iced::Padding::ZERO.bottom(gap::S)).into(),
        );
        let above = |panel: Option<Element<'a, Message>>| {
            panel.map_or_else(|| Element::from(space()), |panel| container(panel).padding(iced::Padding::ZERO.bottom(gap::S)).into())
        };
        let slash = above(self.slash.view(look).map(|panel| panel.map(Message::Slash)));
        let resources = above(self.resources.view(look).map(|panel| panel.map(Message::Resource)));
        let parts = column![chips, path, resources, slash, editor, self.tools(look, running)];
        container(parts).padding(gap::M).width(Fill).style(style::field(hovered)).into()
    }

    fn tools<'a>(&'a self, look: Look<'a>, running: bool) -> Element<'a, Message> {
        let named = |choice: Choice| Offer { choice, name: choice.name(look) };
        let menu = pick_list(Choice::ALL.map(named).to_vec(), Some(named(self.choice)), |named| Message::Choose(named.choice))
            .text_size(size::UI.0)
            .padding([gap::XS, gap::S])
            .style(style::pick)
            .menu_style(style::menu);
        let attach = piece::icon_button(Icon::Attach, look.t("composer-attach"), Some(Message::Attach));
        let model = piece::small(look.facts.chat_model_name(), look.roles);
        let act = if running {
            let stop = button(row![icon(Icon::Stop).size(13.0), piece::label(look.t("composer-stop"))].spacing(gap::S).align_y(Center));
            stop.padding([gap::S - 1.0, gap::M]).style(style::secondary).on_press(Message::Stop)
        } else {
            let send = row![icon(Icon::Send).size(14.0), piece::label(look.t("composer-send"))].spacing(gap::S).align_y(Center);
            button(send).padding([gap::S - 1.0, gap::M]).style(style::primary).on_press_maybe(self.can_send().then_some(Message::Submit))
        };
        let mut line = row![attach].spacing(gap::S).align_y(Center);
        if resource::offered(look) {
            let open = Some(Message::Resource(resource::Message::Toggle));
            line = line.push(piece::icon_button(Icon::Library, look.t("resource-title"), open));
        }
        let tools: usize = look.facts.servers.iter().map(|server| server.tools.len()).sum();
        if tools > 0 {
            line = line.push(icon(Icon::Tools).size(14.0).color(look.roles.muted)).push(menu);
        }
        column![line.push(space().width(Fill)).push(model).push(act)].into()
    }
}

/// While prompts are listed, the keys choose among them.
fn binding_for(chooses: bool) -> impl Fn(text_editor::KeyPress) -> Option<text_editor::Binding<Message>> {
    move |press| {
        let focused = matches!(press.status, text_editor::Status::Focused { .. });
        let message = match &press.key {
            Key::Named(Named::ArrowUp) => slash::Message::Move(false),
            Key::Named(Named::ArrowDown) => slash::Message::Move(true),
            Key::Named(Named::Enter | Named::Tab) if !press.modifiers.shift() => slash::Message::Choose,
            Key::Named(Named::Escape) => slash::Message::Close,
            _ => return binding(press),
        };
        if focused && chooses { Some(text_editor::Binding::Custom(Message::Slash(message))) } else { binding(press) }
    }
}

/// Enter sends, with Shift it breaks the line; combinations with Ctrl or Command that the editor does not know are
/// left to the app's shortcuts.
fn binding(press: text_editor::KeyPress) -> Option<text_editor::Binding<Message>> {
    let focused = matches!(press.status, text_editor::Status::Focused { .. });
    if focused && press.key == Key::Named(Named::Enter) && !press.modifiers.shift() {
        return Some(text_editor::Binding::Custom(Message::Submit));
    }
    let editing = ["a", "c", "v", "x"].iter().any(|letter| press.key == Key::Character((*letter).into()));
    if press.modifiers.command() && matches!(press.key, Key::Character(_)) && !editing {
        return None;
    }
    text_editor::Binding::from_key_press(press)
}

#[cfg(test)]
impl Composer {
    pub fn slash(&mut self) -> &mut Slash {
        &mut self.slash
    }

    pub fn typed(&mut self, text: &str) {
        self.content = text_editor::Content::with_text(text);
    }

    pub fn written(&self) -> String {
        self.content.text()
    }

    /// The files that would be sent, and the choice about tools.
    pub fn ready(self) -> (Vec<Attachment>, Choice) {
        (self.attachments.into_iter().filter_map(Attached::into_ready).collect(), self.choice)
    }

    /// How many files are on their way or here.
    pub fn attached_count(&self) -> usize {
        self.attachments.len()
    }
}
