//! Attachments on their way to the next message.

use std::path::Path;

use futures::SinkExt as _;
use futures::channel::mpsc;
use handrail_engine::conversation::Attachment;
use handrail_engine::{Engine, rag};
use iced::task::Handle;
use iced::widget::{button, container, row};
use iced::{Center, Element, Task};
use sipper::Sipper as _;

use super::super::Look;
use super::composer::Message;
use crate::appearance::{space, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// One file on its way.
#[derive(Debug)]
pub struct Attached {
    pub id: u64,
    name: String,
    /// The address of a resource that was read into the file.
    address: Option<String>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Dropping the handle stops the reader.
    Reading(Option<rag::Progress>, #[allow(dead_code)] Handle),
    Ready(Attachment),
    Failed(String),
}

/// Begins to read a file.
pub fn read(engine: &Engine, id: u64, path: &Path) -> (Attached, Task<Message>) {
    let work = engine.attach(path);
    let stream = iced::stream::channel(8, async move |mut out: mpsc::Sender<Message>| {
        let mut work = work.pin();
        while let Some(progress) = work.sip().await {
            // The receiver only goes when the reader is being dropped as well.
            let _ = out.send(Message::Attaching(id, progress)).await;
        }
        let result = work.await;
        let _ = out.send(Message::Attached(id, result)).await;
    });
    let (task, handle) = Task::stream(stream).abortable();
    let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
    (Attached { id, name, address: None, state: State::Reading(None, handle.abort_on_drop()) }, task)
}

impl Attached {
    /// A file that was read before.
    pub fn again(id: u64, attachment: Attachment) -> Self {
        Self { id, name: attachment.name.clone(), address: None, state: State::Ready(attachment) }
    }

    /// The same under the address of the resource that it holds.
    #[must_use]
    pub fn named(self, address: String) -> Self {
        Self { name: address.clone(), address: Some(address), ..self }
    }

    pub fn is_reading(&self) -> bool {
        matches!(self.state, State::Reading(..))
    }

    pub fn progressed(&mut self, progress: rag::Progress) {
        if let State::Reading(last, _) = &mut self.state {
            *last = Some(progress);
        }
    }

    pub fn finished(&mut self, result: Result<Attachment, rag::Error>) {
        self.state = match result {
            Ok(attachment) => {
                let name = self.address.clone().unwrap_or_else(|| attachment.name.clone());
                State::Ready(Attachment { name, ..attachment })
            }
            Err(error) => State::Failed(error.to_string()),
        };
    }

    pub fn into_ready(self) -> Option<Attachment> {
        match self.state {
            State::Ready(attachment) => Some(attachment),
            State::Reading(..) | State::Failed(_) => None,
        }
    }

    /// Draws the chip; pressing its cross gives the id.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, u64> {
        let roles = look.roles;
        let (picture, color, words) = match &self.state {
            State::Reading(progress, _) => (Icon::Working, roles.muted, reading(progress.as_ref(), look)),
            State::Ready(attachment) => (Icon::File, roles.muted, look.locale.bytes(attachment.bytes)),
            State::Failed(reason) => (Icon::Warning, roles.danger, reason.clone()),
        };
        let close = button(icon(Icon::Close).size(12.0)).padding(2).style(style::quiet).on_press(self.id);
        let words = piece::small(words, roles).color(color);
        let chip = row![
            icon(picture).size(14.0).color(color),
            piece::label(super::argument::visible(&self.name)).wrapping(iced::widget::text::Wrapping::WordOrGlyph),
            words,
            close
        ];
        container(chip.spacing(space::S).align_y(Center)).padding([space::XS, space::S]).max_width(640.0).style(style::raised).into()
    }
}

/// How far the reader is, in words.
fn reading(progress: Option<&rag::Progress>, look: Look<'_>) -> String {
    match progress {
        None => look.t("attachment-waiting"),
        Some(rag::Progress::Reading { done, total: Some(total) }) => {
            look.locale.tv("attachment-reading-of", [("done", (*done).into()), ("total", (*total).into())])
        }
        Some(rag::Progress::Reading { done, total: None }) => look.locale.tv("attachment-reading", [("done", (*done).into())]),
        Some(rag::Progress::Embedding { done, total }) => {
            look.locale.tv("attachment-embedding", [("done", (*done).into()), ("total", (*total).into())])
        }
    }
}
