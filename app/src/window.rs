//! The main window: how it opens, what it tells, and what of it the screens need to know.

use std::path::PathBuf;
use std::time::Instant;

use iced::{Size, Task, window};

/// What a window told.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// Its size.
    Sized(Size),
    /// It has the focus.
    Focused,
    /// It lost the focus.
    Unfocused,
    /// The person wants it closed.
    CloseRequested,
    /// It is gone.
    Closed,
    /// A file hovers over it.
    Hovered,
    /// The file is gone again.
    Left,
    /// A file was dropped on it.
    Dropped(PathBuf),
}

/// The main window.
#[derive(Debug)]
pub struct Window {
    /// Its id.
    pub id: window::Id,
    /// Its size in logical pixels.
    pub size: Size,
    /// Since when it has the focus.
    pub focused_since: Option<Instant>,
    /// Whether a file hovers over it.
    pub hovered: bool,
}

impl Window {
    /// Opens it.
    pub fn open() -> (Self, Task<window::Id>) {
        let size = Size::new(1280.0, 800.0);
        let settings =
            window::Settings { size, min_size: Some(Size::new(480.0, 400.0)), exit_on_close_request: false, ..window::Settings::default() };
        let (id, task) = window::open(settings);
        (Self { id, size, focused_since: None, hovered: false }, task)
    }

    /// Remembers what it told.
    pub fn heard(&mut self, told: &Told, now: Instant) {
        match told {
            Told::Sized(size) => self.size = *size,
            Told::Focused => self.focused_since = Some(now),
            Told::Unfocused => self.focused_since = None,
            Told::Hovered => self.hovered = true,
            Told::Left | Told::Dropped(_) => self.hovered = false,
            Told::CloseRequested | Told::Closed => {}
        }
    }
}

/// What of a window's event matters here.
#[must_use]
pub fn told(event: window::Event) -> Option<Told> {
    match event {
        window::Event::Opened { size, .. } | window::Event::Resized(size) => Some(Told::Sized(size)),
        window::Event::Focused => Some(Told::Focused),
        window::Event::Unfocused => Some(Told::Unfocused),
        window::Event::CloseRequested => Some(Told::CloseRequested),
        window::Event::Closed => Some(Told::Closed),
        window::Event::FileHovered(_) => Some(Told::Hovered),
        window::Event::FilesHoveredLeft => Some(Told::Left),
        window::Event::FileDropped(path) => Some(Told::Dropped(path)),
        window::Event::Moved(_) | window::Event::Rescaled(_) | window::Event::RedrawRequested(_) => None,
    }
}
