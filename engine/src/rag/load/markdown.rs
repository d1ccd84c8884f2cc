//! Markdown: blocks by line, each under its headings. The text stays as it was written.

use super::text::{clean, decode, lines};
use super::{Block, Condition, Format, Kind, Line, Opened, Part, Sink};

/// Reads Markdown as one part.
pub fn read(bytes: &[u8], sink: &mut dyn Sink) -> Result<(), String> {
    let (text, encoding) = decode(bytes);
    if !sink.opened(Opened { format: Format::Markdown, pages: None, encoding: Some(encoding.to_owned()), damage: None }) {
        return Ok(());
    }
    let mut reader = Reader::default();
    for (row, line) in lines(&text).enumerate() {
        reader.line(Line { text: clean(line), row: u32::try_from(row + 1).ok(), area: None });
    }
    reader.close();
    if reader.blocks.is_empty() {
        return Err("the file holds no text".to_owned());
    }
    sink.beginning(1);
    let _ = sink.part(Part { number: 1, condition: Condition::Read, blocks: reader.blocks });
    Ok(())
}

#[derive(Default)]
struct Reader {
    blocks: Vec<Block>,
    open: Vec<Line>,
    kind: Option<Kind>,
    /// The open headings: level and text.
    section: Vec<(u8, String)>,
    /// The fence that ends the open code block.
    fence: Option<(char, usize)>,
}

impl Reader {
    fn line(&mut self, line: Line) {
        let trimmed = line.text.trim().to_owned();
        if let Some((mark, length)) = self.fence {
            let ends = trimmed.chars().all(|c| c == mark) && trimmed.chars().count() >= length;
            self.open.push(line);
            if ends {
                self.close();
            }
            return;
        }
        if trimmed.is_empty() {
            self.close();
            return;
        }
        if let Some(fence) = fence(&trimmed) {
            self.close();
            self.kind = Some(Kind::Code);
            self.open.push(line);
            self.fence = Some(fence);
            return;
        }
        if let Some((level, title)) = heading(&trimmed) {
            self.close();
            self.enter(level, title);
            self.push(Kind::Heading { level }, vec![line]);
            return;
        }
        if let Some(level) = self.underline(&trimmed) {
            let mut title = std::mem::take(&mut self.open);
            self.kind = None;
            self.enter(level, title.first().map(|line| line.text.trim().to_owned()).unwrap_or_default());
            title.push(line);
            self.push(Kind::Heading { level }, title);
            return;
        }
        let kind = kind(&line.text, &trimmed, self.kind);
        if self.kind.is_some_and(|open| open != kind) {
            self.close();
        }
        self.kind = Some(kind);
        self.open.push(line);
    }

    /// A line of `=` or `-` under one line of text makes that line a heading.
    fn underline(&self, trimmed: &str) -> Option<u8> {
        if self.open.len() != 1 || self.kind != Some(Kind::Paragraph) {
            return None;
        }
        match trimmed.chars().next()? {
            '=' if trimmed.chars().all(|c| c == '=') => Some(1),
            '-' if trimmed.chars().all(|c| c == '-') => Some(2),
            _ => None,
        }
    }

    fn enter(&mut self, level: u8, title: String) {
        self.section.retain(|(open, _)| *open < level);
        self.section.push((level, title));
    }

    fn close(&mut self) {
        self.fence = None;
        let kind = self.kind.take().unwrap_or(Kind::Paragraph);
        if !self.open.is_empty() {
            let lines = std::mem::take(&mut self.open);
            self.push(kind, lines);
        }
    }

    fn push(&mut self, kind: Kind, lines: Vec<Line>) {
        let section = self.section.iter().map(|(_, title)| title.clone()).collect();
        self.blocks.push(Block { kind, lines, section });
    }
}

fn fence(line: &str) -> Option<(char, usize)> {
    let mark = line.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = line.chars().take_while(|c| *c == mark).count();
    (length >= 3).then_some((mark, length))
}

fn heading(line: &str) -> Option<(u8, String)> {
    let level = line.chars().take_while(|c| *c == '#').count();
    let rest = &line[level..];
    if !(1..=6).contains(&level) || !(rest.is_empty() || rest.starts_with([' ', '\t'])) {
        return None;
    }
    Some((u8::try_from(level).ok()?, rest.trim().trim_end_matches('#').trim_end().to_owned()))
}

fn kind(line: &str, trimmed: &str, open: Option<Kind>) -> Kind {
    let number = trimmed.trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = number.len() < trimmed.len() && (number.starts_with(". ") || number.starts_with(") "));
    if numbered || ["- ", "* ", "+ "].iter().any(|bullet| trimmed.starts_with(bullet)) {
        Kind::List
    } else if trimmed.starts_with('|') {
        Kind::Table
    } else if trimmed.starts_with('>') {
        Kind::Quote
    } else if open == Some(Kind::List) || open == Some(Kind::Quote) {
        // A continued item or quotation.
        open.unwrap_or(Kind::Paragraph)
    } else if open != Some(Kind::Paragraph) && (line.starts_with("    ") || line.starts_with('\t')) {
        Kind::Code
    } else {
        Kind::Paragraph
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Kept(Vec<Block>);

    impl Sink for Kept {
        fn opened(&mut self, _: Opened) -> bool {
            true
        }
        fn beginning(&mut self, _: u32) {}
        fn part(&mut self, part: Part) -> bool {
            self.0.extend(part.blocks);
            true
        }
    }

    #[test]
    fn blocks_know_their_kind_their_lines_and_their_headings() {
        let text =
            "# Pump\n\nIntro\nmore\n\n## Limits ##\n- one\n  still one\n\n```rust\n# not a heading\n```\n\nOther\n=====\n| a | b |\n";
        let mut kept = Kept(Vec::new());
        read(text.as_bytes(), &mut kept).unwrap();
        let found: Vec<_> = kept.0.iter().map(|block| (block.kind, block.lines[0].row.unwrap(), block.section.join(" > "))).collect();
        assert_eq!(
            found,
            [
                (Kind::Heading { level: 1 }, 1, "Pump".to_owned()),
                (Kind::Paragraph, 3, "Pump".to_owned()),
                (Kind::Heading { level: 2 }, 6, "Pump > Limits".to_owned()),
                (Kind::List, 7, "Pump > Limits".to_owned()),
                (Kind::Code, 10, "Pump > Limits".to_owned()),
                (Kind::Heading { level: 1 }, 14, "Other".to_owned()),
                (Kind::Table, 16, "Other".to_owned()),
            ]
        );
        assert_eq!(kept.0[3].lines.len(), 2);
        assert_eq!(kept.0[4].lines.len(), 3);
    }
}
