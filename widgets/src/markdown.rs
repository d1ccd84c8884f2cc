//! Markdown that streams.
//!
//! [`Content`] keeps the blocks that can no longer change apart from the open tail, so that a new piece of an
//! answer parses the tail only. [`view`] draws the blocks; every word is findable ([`crate::readable`]), HTML stays
//! visible as it was written, and code blocks carry a copy button.

mod block;
mod draw;
mod parse;

pub use block::{Block, Item, Run};
pub use draw::{Action, Style, view};

/// A Markdown text that may still grow.
///
/// ```
/// use handrail_widgets::markdown::{Block, Content};
///
/// let mut content = Content::new("# Title\n\nSome *te");
/// content.push_str("xt*");
/// assert_eq!(content.blocks().count(), 2);
/// assert_eq!(content.plain(), "Title\nSome text");
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    source: String,
    /// Where the open tail begins; always the start of a line.
    open_from: usize,
    closed: Vec<Block>,
    open: Vec<Block>,
}

impl Content {
    /// Parses a text.
    #[must_use]
    pub fn new(source: &str) -> Self {
        let mut content = Self::default();
        content.push_str(source);
        content
    }

    /// Appends a piece and parses the open tail again.
    pub fn push_str(&mut self, piece: &str) {
        if piece.is_empty() {
            return;
        }
        self.source.push_str(piece);
        let mut blocks = parse::parse(&self.source[self.open_from..]);
        // A block is closed when a later one began on a line that is whole: an unfinished line may still turn out
        // to belong to the block before it.
        let whole = |start: usize| self.source[self.open_from + start..].contains('\n');
        let open = blocks.iter().rposition(|(start, _)| whole(*start)).unwrap_or(0);
        let from = blocks.get(open).map_or(0, |(start, _)| *start);
        let tail = blocks.split_off(open.min(blocks.len()));
        self.closed.extend(blocks.into_iter().map(|(_, block)| block));
        self.open = tail.into_iter().map(|(_, block)| block).collect();
        if open > 0 {
            self.open_from += from;
        }
    }

    /// The text as it was written.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The blocks, in order.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.closed.iter().chain(&self.open)
    }

    /// The words without the marks, one block a line.
    #[must_use]
    pub fn plain(&self) -> String {
        block::plain(self.blocks())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn blocks(source: &str) -> Vec<Block> {
        Content::new(source).blocks().cloned().collect()
    }

    #[test]
    fn indented_code_html_and_text_before_images_are_kept() {
        let content = Content::new("Run:\n\n    make all\n\nSee <b>this</b> ![a chart](c.png) now\n\n<div>\nraw\n</div>\n");
        let plain = content.plain();
        for word in ["make all", "<b>this</b>", "a chart", "now", "<div>", "raw"] {
            assert!(plain.contains(word), "{word} is missing in {plain}");
        }
        assert!(content.blocks().any(|block| matches!(block, Block::Code { text, .. } if text == "make all")));
    }

    #[test]
    fn numbers_in_brackets_become_references_but_not_in_code() {
        let runs = |source: &str| match &blocks(source)[0] {
            Block::Paragraph(runs) => runs.clone(),
            other => panic!("{other:?}"),
        };
        let found = runs("It rained [1][12] and `a[3]`.");
        let links: Vec<_> = found.iter().filter_map(|run| run.link.as_deref()).collect();
        assert_eq!(links, ["#1", "#12"]);
    }

    #[test]
    fn lists_tables_and_tasks_have_their_shape() {
        let found = blocks("3. a\n4. b\n   - c\n\n| x | y |\n|---|--:|\n| 1 | 2 |\n\n- [x] done\n");
        assert!(matches!(&found[0], Block::List { start: Some(3), items } if items.len() == 2 && items[1].blocks.len() == 2));
        assert!(matches!(&found[1], Block::Table { head, rows } if head.len() == 2 && rows.len() == 1));
        assert!(matches!(&found[2], Block::List { start: None, items } if items[0].task == Some(true)));
    }

    #[test]
    fn deep_nesting_neither_recurses_nor_loses_text() {
        let source = format!("{}deep", "> ".repeat(20_000));
        assert!(Content::new(&source).plain().contains("deep"));
    }

    #[test]
    fn closed_blocks_are_not_parsed_again() {
        let mut content = Content::default();
        for index in 0..200 {
            content.push_str(&format!("paragraph {index}\n\n"));
        }
        assert!(content.closed.len() >= 198, "{}", content.closed.len());
        assert!(content.source.len() - content.open_from < 40);
    }

    proptest! {
        #[test]
        fn any_text_parses_and_every_word_stays(words in proptest::collection::vec("[a-z]{1,6}|[*_`#>~+\\-]{1,3}|\n|\n\n|    | |<b>|```\n|1\\. |- |👍|中文", 0..60)) {
            let source = words.concat();
            let plain = Content::new(&source).plain();
            // A fence's language is shown apart from the text.
            let languages: String = Content::new(&source).blocks().map(block::languages).collect();
            let all: String = (plain + &languages).chars().filter(|c| c.is_alphabetic()).collect();
            for word in source.split(|c: char| !c.is_ascii_lowercase()).filter(|word| !word.is_empty()) {
                prop_assert!(all.contains(word), "{word:?} of {source:?} is missing in {all:?}");
            }
        }

        #[test]
        fn streaming_gives_the_same_blocks_as_parsing_at_once(
            words in proptest::collection::vec("[a-z]{1,6}|[*_`#>~=+\\-|]{1,3}|\n|\n\n|    | |<b>|<div>|```\n|1\\. |- |\\| a \\| b \\|\n|\\|--\\|--\\|\n", 0..40),
        ) {
            let source = words.concat();
            let mut streamed = Content::default();
            for word in &words {
                streamed.push_str(word);
            }
            let streamed: Vec<_> = streamed.blocks().cloned().collect();
            prop_assert_eq!(streamed, blocks(&source), "{:?}", source);
        }

        #[test]
        fn any_string_at_all_parses(source in "\\PC*") {
            let _ = Content::new(&source).plain();
        }
    }
}
