//! Reading a file into blocks with places: one file per format. Runs in the parser child ([`super::worker`]).

pub mod assemble;
pub mod markdown;
pub mod pdf;
pub mod sniff;
pub mod text;

mod utf16;

use serde::{Deserialize, Serialize};

pub use sniff::Format;

/// What a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A heading; 1 is the highest level.
    Heading {
        /// Its level, 1 to 6.
        level: u8,
    },
    /// Running text.
    Paragraph,
    /// One or more list items.
    List,
    /// Text whose line ends and spaces matter.
    Code,
    /// A quotation.
    Quote,
    /// Rows of cells.
    Table,
}

/// One line of a block and where it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Its text, without the line end.
    pub text: String,
    /// Its line number in the file, from 1, for formats made of lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// Left, top, right and bottom in points from the top left corner of the page as it is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<[f32; 4]>,
}

/// A run of lines that belong together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// What it is.
    pub kind: Kind,
    /// Its lines.
    pub lines: Vec<Line>,
    /// The headings it stands under, the highest first, where the format has headings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub section: Vec<String>,
}

/// How well a page was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum Condition {
    /// All of it.
    Read,
    /// There is nothing on it.
    Empty,
    /// It shows an image and has no text.
    ImageOnly,
    /// Its glyphs cannot be mapped to characters.
    Unreadable {
        /// Percent of the glyphs that are unknown.
        percent: u8,
    },
    /// The reader broke off on it.
    Broken {
        /// Why.
        reason: String,
    },
}

/// A page, or the whole of a format without pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its number, from 1.
    pub number: u32,
    /// How well it was read.
    #[serde(flatten)]
    pub condition: Condition,
    /// Its blocks, in reading order.
    pub blocks: Vec<Block>,
}

impl Part {
    /// The characters in its lines.
    #[must_use]
    pub fn characters(&self) -> usize {
        self.blocks.iter().flat_map(|block| &block.lines).map(|line| line.text.chars().count()).sum()
    }
}

/// What the reader knows before the first part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// The format, by content.
    pub format: Format,
    /// The pages, where the format has any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pages: Option<u32>,
    /// The encoding that the text was decoded from, where there was a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// What is wrong with the file although it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// Takes what a reader finds, in order. Returning `false` ends the reading.
pub trait Sink {
    /// The file was opened.
    fn opened(&mut self, opened: Opened) -> bool;

    /// The reader begins this part; limits per part start here.
    fn beginning(&mut self, number: u32);

    /// A part was read.
    fn part(&mut self, part: Part) -> bool;
}

/// Reads a file's bytes from part `from` (1 is the first) on. `name` only chooses between kinds of text.
pub fn read(bytes: Vec<u8>, name: &str, from: u32, sink: &mut dyn Sink) -> Result<(), String> {
    match sniff::format(&bytes, name)? {
        Format::Pdf => pdf::read(bytes, from, sink),
        Format::Markdown => markdown::read(&bytes, sink),
        Format::Text => text::read(&bytes, sink),
    }
}
