//! Names of the bundled icon font's glyphs (Lucide, ISC).

use iced::widget::{Text, text};

use crate::appearance::{ICONS, size};

/// An icon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icon {
    Plus,
    Attach,
    Send,
    Stop,
    Close,
    Right,
    Down,
    Settings,
    Servers,
    Models,
    Library,
    Sidebar,
    Delete,
    Copy,
    Warning,
    Info,
    Denied,
    Unknown,
    Call,
    Tools,
    Download,
    File,
    Retry,
    Clock,
    Thought,
    Done,
    Failed,
    Dot,
    Working,
    Shield,
}

impl Icon {
    const fn glyph(self) -> char {
        match self {
            Self::Plus => '\u{e13d}',
            Self::Attach => '\u{e12d}',
            Self::Send => '\u{e04a}',
            Self::Stop => '\u{e167}',
            Self::Close => '\u{e1b2}',
            Self::Right => '\u{e06f}',
            Self::Down => '\u{e06d}',
            Self::Settings => '\u{e154}',
            Self::Servers => '\u{e153}',
            Self::Models => '\u{e0a9}',
            Self::Library => '\u{e54e}',
            Self::Sidebar => '\u{e12a}',
            Self::Delete => '\u{e18e}',
            Self::Copy => '\u{e09e}',
            Self::Warning => '\u{e193}',
            Self::Info => '\u{e0f9}',
            Self::Denied => '\u{e051}',
            Self::Unknown => '\u{e082}',
            Self::Call => '\u{e2d2}',
            Self::Tools => '\u{e1b1}',
            Self::Download => '\u{e0b2}',
            Self::File => '\u{e0cc}',
            Self::Retry => '\u{e148}',
            Self::Clock => '\u{e087}',
            Self::Thought => '\u{e3c6}',
            Self::Done => '\u{e226}',
            Self::Failed => '\u{e084}',
            Self::Dot => '\u{e076}',
            Self::Working => '\u{e109}',
            Self::Shield => '\u{e1ff}',
        }
    }
}

/// Draws an icon in the size of the interface's text.
pub fn icon<'a>(icon: Icon) -> Text<'a> {
    text(icon.glyph().to_string()).font(ICONS).size(size::ICON).line_height(1.0).shaping(text::Shaping::Basic)
}
