//! Blocks and runs: what a Markdown text is made of.

/// One block.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A paragraph.
    Paragraph(Vec<Run>),
    /// A heading with its level, 1 to 6.
    Heading(u8, Vec<Run>),
    /// Code, fenced or indented.
    Code {
        /// The first word after the fence.
        language: Option<String>,
        /// The code without its last line break.
        text: String,
    },
    /// A quotation.
    Quote(Vec<Block>),
    /// A list.
    List {
        /// The first number; none for bullets.
        start: Option<u64>,
        /// The items.
        items: Vec<Item>,
    },
    /// A table.
    Table {
        /// The cells of the head.
        head: Vec<Vec<Run>>,
        /// The cells of each row.
        rows: Vec<Vec<Vec<Run>>>,
    },
    /// A line across.
    Rule,
    /// HTML, kept as it was written.
    Html(String),
}

/// One item of a list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Item {
    /// For tasks: whether it is done.
    pub task: Option<bool>,
    /// What is in it.
    pub blocks: Vec<Block>,
}

/// A stretch of text with one look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// The text.
    pub text: String,
    /// Strong.
    pub bold: bool,
    /// Emphasised.
    pub italic: bool,
    /// Code.
    pub code: bool,
    /// Struck through.
    pub strike: bool,
    /// Where it leads; `#n` for a number in square brackets.
    pub link: Option<String>,
}

impl Run {
    /// Whether another run looks the same.
    pub(super) fn looks_like(&self, other: &Self) -> bool {
        (self.bold, self.italic, self.code, self.strike, &self.link) == (other.bold, other.italic, other.code, other.strike, &other.link)
    }
}

/// The words of runs.
pub(super) fn words(runs: &[Run]) -> String {
    runs.iter().map(|run| run.text.as_str()).collect()
}

/// The words of blocks, one block a line.
pub(super) fn plain<'a>(blocks: impl Iterator<Item = &'a Block>) -> String {
    let mut lines = Vec::new();
    collect(blocks, &mut lines);
    lines.join("\n")
}

fn collect<'a>(blocks: impl Iterator<Item = &'a Block>, lines: &mut Vec<String>) {
    for block in blocks {
        match block {
            Block::Paragraph(runs) | Block::Heading(_, runs) => lines.push(words(runs)),
            Block::Code { text, .. } | Block::Html(text) => lines.push(text.clone()),
            Block::Quote(blocks) => collect(blocks.iter(), lines),
            Block::List { items, .. } => items.iter().for_each(|item| collect(item.blocks.iter(), lines)),
            Block::Table { head, rows } => {
                for row in std::iter::once(head).chain(rows) {
                    lines.push(row.iter().map(|cell| words(cell)).collect::<Vec<_>>().join("\t"));
                }
            }
            Block::Rule => {}
        }
    }
}

/// The languages of a block's code, for tests that look for every word.
#[cfg(test)]
pub(super) fn languages(block: &Block) -> String {
    match block {
        Block::Code { language, .. } => language.clone().unwrap_or_default(),
        Block::Quote(blocks) => blocks.iter().map(languages).collect(),
        Block::List { items, .. } => items.iter().flat_map(|item| &item.blocks).map(languages).collect(),
        _ => String::new(),
    }
}
