//! From parts to one text with places: running heads dropped, broken words healed.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{Block, Condition, Kind, Line, Part};

/// A line at the edge of a page that stands on more than this share of the pages is a header or footer.
const RUNNING_SHARE: f64 = 0.6;
/// Fewer pages than this cannot show what runs.
const RUNNING_PAGES: usize = 3;
/// How many lines at the top and at the bottom of a page are looked at.
const EDGE: usize = 2;

/// Where a line of the document's text came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anchor {
    /// Its first character in the document's text.
    pub at: usize,
    /// Its page, from 1, where the format has pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<u32>,
    /// Its line in the file, from 1, where the format has lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u32>,
    /// Its box on the page: left, top, right, bottom in points.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub area: Option<[f32; 4]>,
}

/// A document's text and the places of its lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assembled {
    /// The text; blocks are parted by an empty line, pages by two.
    pub text: String,
    /// One anchor per line, in order.
    pub anchors: Vec<Anchor>,
    /// What of the document is not in the text, in words.
    pub missing: Vec<String>,
}

/// Makes the text of a document from its parts. `paged` says that the parts are pages.
#[must_use]
pub fn assemble(mut parts: Vec<Part>, paged: bool) -> Assembled {
    let missing = missing(&parts);
    if paged {
        drop_running_lines(&mut parts);
    }
    let kept = kept_hyphens(&parts);
    let mut writer = Writer { whole: Assembled { missing, ..Assembled::default() }, characters: 0, kept };
    for part in &parts {
        if paged && !part.blocks.is_empty() && !writer.whole.text.is_empty() {
            writer.push("\n");
        }
        for block in &part.blocks {
            writer.block(block, paged.then_some(part.number));
        }
    }
    writer.whole
}

/// The page that a character of the text stands on.
#[must_use]
pub fn page_at(anchors: &[Anchor], character: usize) -> Option<u32> {
    anchors[..anchors.partition_point(|anchor| anchor.at <= character)].last().or(anchors.first())?.page
}

fn missing(parts: &[Part]) -> Vec<String> {
    let mut grouped: Vec<(String, Vec<u32>)> = Vec::new();
    for part in parts {
        let what = match &part.condition {
            Condition::Read | Condition::Empty => continue,
            Condition::ImageOnly => "no text, only an image".to_owned(),
            Condition::Unreadable { .. } => "text that cannot be read: its font does not say which characters it shows".to_owned(),
            Condition::Broken { reason } => format!("no text that could be read: {reason}"),
        };
        match grouped.iter_mut().find(|(known, _)| *known == what) {
            Some((_, pages)) => pages.push(part.number),
            None => grouped.push((what, vec![part.number])),
        }
    }
    let total = parts.last().map_or(0, |part| part.number);
    grouped
        .into_iter()
        .map(|(what, pages)| match pages.as_slice() {
            [page] => format!("page {page} of {total} has {what}"),
            _ => format!("pages {} of {total} have {what}", ranges(&pages)),
        })
        .collect()
}

/// `1, 2, 3, 7` as `1–3, 7`.
fn ranges(pages: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for page in pages {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *page => *last = *page,
            _ => runs.push((*page, *page)),
        }
    }
    let words: Vec<String> = runs.iter().map(|(from, to)| if from == to { from.to_string() } else { format!("{from}–{to}") }).collect();
    words.join(", ")
}

/// A line's text with its numbers made equal, so that page numbers do not hide a running line.
fn shape(line: &Line) -> String {
    let mut shape = String::new();
    for character in line.text.trim().chars() {
        if character.is_numeric() {
            if !shape.ends_with('#') {
                shape.push('#');
            }
        } else {
            shape.extend(character.to_lowercase());
        }
    }
    shape
}

fn edges(part: &Part) -> HashSet<(usize, usize)> {
    let all: Vec<(usize, usize)> =
        part.blocks.iter().enumerate().flat_map(|(block, lines)| (0..lines.lines.len()).map(move |line| (block, line))).collect();
    all.iter().take(EDGE).chain(all.iter().rev().take(EDGE)).copied().collect()
}

fn drop_running_lines(parts: &mut [Part]) {
    let pages = parts.iter().filter(|part| !part.blocks.is_empty()).count();
    if pages < RUNNING_PAGES {
        return;
    }
    let mut counts: HashMap<String, usize> = HashMap::new();
    for part in parts.iter() {
        let shapes: HashSet<String> = edges(part).into_iter().map(|(block, line)| shape(&part.blocks[block].lines[line])).collect();
        for shape in shapes {
            *counts.entry(shape).or_default() += 1;
        }
    }
    #[allow(clippy::cast_precision_loss)]
    let runs = |shape: &str| counts.get(shape).is_some_and(|count| *count as f64 > pages as f64 * RUNNING_SHARE);
    for part in parts.iter_mut() {
        let edges = edges(part);
        // A page of nothing but running lines is a page of short text.
        let lines = || part.blocks.iter().enumerate().flat_map(|(number, block)| (0..block.lines.len()).map(move |line| (number, line)));
        if lines().all(|at| edges.contains(&at) && runs(&shape(&part.blocks[at.0].lines[at.1]))) {
            continue;
        }
        for (number, block) in part.blocks.iter_mut().enumerate() {
            let mut line = 0;
            block.lines.retain(|text| {
                let drop = edges.contains(&(number, line)) && runs(&shape(text));
                line += 1;
                !drop
            });
        }
        part.blocks.retain(|block| !block.lines.is_empty());
    }
}

/// Words that are written with a hyphen within a line of this document: at a line's end they keep it.
fn kept_hyphens(parts: &[Part]) -> HashSet<String> {
    let mut kept = HashSet::new();
    for line in parts.iter().flat_map(|part| &part.blocks).flat_map(|block| &block.lines) {
        for word in line.text.split_whitespace() {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            if word.contains('-') {
                let _ = kept.insert(word.to_lowercase());
            }
        }
    }
    kept
}

struct Writer {
    whole: Assembled,
    characters: usize,
    kept: HashSet<String>,
}

impl Writer {
    fn push(&mut self, text: &str) {
        self.whole.text.push_str(text);
        self.characters += text.chars().count();
    }

    fn block(&mut self, block: &Block, page: Option<u32>) {
        if !self.whole.text.is_empty() {
            self.push("\n\n");
        }
        for (number, line) in block.lines.iter().enumerate() {
            if number > 0 {
                self.join(block.kind, line, page.is_some());
            }
            self.whole.anchors.push(Anchor { at: self.characters, page, row: line.row, area: line.area });
            self.push(&line.text);
        }
    }

    /// Writes what stands between the text so far and the next line of the same block.
    fn join(&mut self, kind: Kind, next: &Line, flows: bool) {
        if !flows || matches!(kind, Kind::Code | Kind::Table) {
            self.push("\n");
            return;
        }
        let first = next.text.chars().next().unwrap_or(' ');
        let last = self.whole.text.chars().last().unwrap_or(' ');
        if matches!(last, '-' | '\u{2010}' | '\u{ad}') && self.breaks_word(first) {
            if last == '\u{ad}' || !self.keeps(&next.text) {
                let _ = self.whole.text.pop();
                self.characters -= 1;
            }
        } else if !(wide(last) && wide(first)) {
            self.push(" ");
        }
    }

    /// Whether the hyphen at the end stands within a word: letters before it and a small letter after it.
    fn breaks_word(&self, first: char) -> bool {
        let before = self.whole.text.chars().rev().nth(1).unwrap_or(' ');
        before.is_alphabetic() && first.is_lowercase()
    }

    fn keeps(&self, next: &str) -> bool {
        let word = |c: char| c.is_alphanumeric() || c == '-';
        let before: String = self.whole.text.chars().rev().skip(1).take_while(|c| word(*c)).collect();
        let after: String = next.chars().take_while(|c| word(*c)).collect();
        let whole = format!("{}-{after}", before.chars().rev().collect::<String>()).to_lowercase();
        self.kept.contains(whole.trim_end_matches('-'))
    }
}

/// Written without spaces between words.
fn wide(character: char) -> bool {
    matches!(character as u32, 0x2e80..=0x9fff | 0xf900..=0xfaff | 0xff00..=0xffef | 0x20000..=0x3ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(number: u32, blocks: &[&[&str]]) -> Part {
        let line = |text: &&str| Line { text: (*text).to_owned(), row: None, area: Some([0.0, 0.0, 1.0, 1.0]) };
        let block = |lines: &&[&str]| Block { kind: Kind::Paragraph, lines: lines.iter().map(line).collect(), section: Vec::new() };
        let condition = if blocks.is_empty() { Condition::ImageOnly } else { Condition::Read };
        Part { number, condition, blocks: blocks.iter().map(block).collect() }
    }

    #[test]
    fn broken_words_are_healed_and_real_hyphens_stay() {
        let whole = assemble(vec![page(1, &[&["The infor-", "mation is well-", "known; it is well-known."]])], true);
        assert_eq!(whole.text, "The information is well-known; it is well-known.");
        let at = whole.text.find("mation").unwrap();
        assert_eq!(whole.anchors[1].at, at);
    }

    #[test]
    fn headers_and_footers_are_dropped_whatever_page_number_they_carry() {
        let pages = (1..=4).map(|n| {
            let footer = format!("Page {n} of 4");
            let body = ["first", "second", "third", "fourth"][n as usize - 1];
            page(n, &[&["Annual report"], &[body, &format!("and more {body}")], &[&footer]])
        });
        let whole = assemble(pages.collect(), true);
        assert!(!whole.text.contains("Annual") && !whole.text.contains("Page"), "{}", whole.text);
        assert!(whole.text.contains("second and more second\n\n\nthird and more"));
        assert_eq!(page_at(&whole.anchors, whole.text.find("third").unwrap()), Some(3));
    }

    #[test]
    fn pages_without_text_are_named() {
        let whole = assemble(vec![page(1, &[&["a"]]), page(2, &[]), page(3, &[&["b"]])], true);
        assert_eq!(whole.missing, ["page 2 of 3 has no text, only an image"]);
        let whole = assemble(vec![page(1, &[]), page(2, &[]), page(3, &[]), page(4, &[&["b"]])], true);
        assert_eq!(whole.missing, ["pages 1–3 of 4 have no text, only an image"]);
    }

    #[test]
    fn chinese_lines_join_without_a_space() {
        assert_eq!(assemble(vec![page(1, &[&["冷却泵压力", "过低。"]])], true).text, "冷却泵压力过低。");
    }
}
