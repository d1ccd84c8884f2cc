//! Segments become lines, columns in reading order, and paragraphs.

use kurbo::Rect;

use super::super::{Block, Kind, Line};
use super::device::Segment;
use super::direction::logical;

/// A heading is set this much larger than most of the page.
const HEADING_RATIO: f64 = 1.18;
/// And is no longer than this.
const HEADING_CHARACTERS: usize = 200;
/// Lines further apart than this many usual line distances begin a new paragraph.
const PARAGRAPH_GAP: f64 = 1.35;
/// A gutter is at least this wide, in font sizes.
const GUTTER: f64 = 0.8;
/// Columns of running text have at least this many words a line; fewer are cells of a table, read row by row.
const COLUMN_WORDS: f64 = 3.0;

/// One line of the page.
struct Row {
    text: String,
    area: Rect,
    size: f64,
    vertical: bool,
}

/// The blocks of a page, in reading order.
pub(super) fn blocks(segments: Vec<Segment>) -> Vec<Block> {
    let rows = rows(columns(segments));
    let (body, leading) = (usual_size(&rows), usual_leading(&rows));
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Vec<Row> = Vec::new();
    for row in rows {
        if open.last().is_some_and(|above| parts(above, &row, &open, leading)) {
            blocks.push(block(std::mem::take(&mut open), body));
        }
        open.push(row);
    }
    if !open.is_empty() {
        blocks.push(block(open, body));
    }
    blocks
}

/// Puts two columns that were drawn row by row into reading order: the left one, then the right one.
fn columns(segments: Vec<Segment>) -> Vec<Segment> {
    let mut lines: Vec<Vec<Segment>> = Vec::new();
    for segment in segments {
        match lines.last_mut() {
            Some(line) if segment.continues => line.push(segment),
            _ => lines.push(vec![segment]),
        }
    }
    let mut ordered = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let end = at + column_run(&lines[at..]);
        if end == at {
            ordered.append(&mut lines[at]);
            at += 1;
            continue;
        }
        let gutter = gutter(&lines[at..end]).unwrap_or_default();
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for mut segment in lines[at..end].iter_mut().flat_map(std::mem::take) {
            segment.continues = false;
            if segment.area.center().x < (gutter.0 + gutter.1) / 2.0 { left.push(segment) } else { right.push(segment) }
        }
        ordered.append(&mut left);
        ordered.append(&mut right);
        at = end;
    }
    ordered
}

/// The lines from the first on that stand in two columns of running text; 0 if none.
fn column_run(lines: &[Vec<Segment>]) -> usize {
    if lines.first().is_none_or(|line| line.len() != 2) {
        return 0;
    }
    let mut run = 1;
    while run < lines.len() && lines[run].len() <= 2 && gutter(&lines[..=run]).is_some() {
        run += 1;
    }
    // A last line that only happens to be short belongs to what follows unless it stands in a column.
    let paired = lines[..run].iter().filter(|line| line.len() == 2).count();
    if paired < 2 {
        return 0;
    }
    let words: usize = lines[..run].iter().flatten().map(|segment| segment.text.split_whitespace().count()).sum();
    let count = lines[..run].iter().map(Vec::len).sum::<usize>();
    #[allow(clippy::cast_precision_loss)]
    let usual = words as f64 / count.max(1) as f64;
    if usual >= COLUMN_WORDS { run } else { 0 }
}

/// The strip that no segment of these lines touches, from left to right.
fn gutter(lines: &[Vec<Segment>]) -> Option<(f64, f64)> {
    let pair = lines.iter().find(|line| line.len() == 2)?;
    let (mut left, mut right) = (pair[0].area.x1, pair[1].area.x0);
    let size = pair[0].size.max(pair[1].size);
    for segment in lines.iter().flatten() {
        if segment.vertical {
            return None;
        }
        let middle = (left + right) / 2.0;
        if segment.area.x1 <= middle {
            left = left.max(segment.area.x1);
        } else if segment.area.x0 >= middle {
            right = right.min(segment.area.x0);
        } else {
            return None;
        }
    }
    let both = lines.iter().filter(|line| line.len() == 2).all(|line| line[0].area.x1 <= left && line[1].area.x0 >= right);
    (both && right - left >= GUTTER * size).then_some((left, right))
}

fn rows(segments: Vec<Segment>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for segment in segments {
        match rows.last_mut() {
            Some(row) if segment.continues => {
                row.text.push(' ');
                row.text.push_str(&segment.text);
                row.area = row.area.union(segment.area);
                row.size = row.size.max(segment.size);
            }
            _ => rows.push(Row { text: segment.text, area: segment.area, size: segment.size, vertical: segment.vertical }),
        }
    }
    for row in &mut rows {
        let text = logical(row.text.trim());
        row.text = text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
    }
    rows.retain(|row| !row.text.is_empty());
    rows
}

/// The size in which most characters are set.
fn usual_size(rows: &[Row]) -> f64 {
    median(rows.iter().map(|row| (row.size, row.text.len())).collect())
}

/// The usual distance from a line to the next one, in font sizes.
fn usual_leading(rows: &[Row]) -> f64 {
    let distances = rows.windows(2).filter_map(|pair| {
        let (above, below) = (&pair[0], &pair[1]);
        let distance = (below.area.y1 - above.area.y1) / above.size.max(1e-6);
        (overlaps(above, below) && (0.8..2.6).contains(&distance)).then_some((distance, 1))
    });
    let usual = median(distances.collect());
    if usual > 0.0 { usual } else { 1.2 }
}

fn median(mut values: Vec<(f64, usize)>) -> f64 {
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let half = values.iter().map(|(_, weight)| weight).sum::<usize>() / 2;
    let mut passed = 0;
    for (value, weight) in values {
        passed += weight;
        if passed > half {
            return value;
        }
    }
    0.0
}

fn overlaps(above: &Row, below: &Row) -> bool {
    above.area.x0 < below.area.x1 && below.area.x0 < above.area.x1
}

/// Whether a line begins a new paragraph after the line above it.
fn parts(above: &Row, row: &Row, open: &[Row], leading: f64) -> bool {
    if above.vertical || row.vertical {
        return above.vertical != row.vertical;
    }
    let (large, small) = (above.size.max(row.size), above.size.min(row.size));
    let distance = (row.area.y1 - above.area.y1) / above.size.max(1e-6);
    if large > small * 1.2 || distance > leading * PARAGRAPH_GAP || distance < -0.5 || !overlaps(above, row) {
        return true;
    }
    if item(&row.text) {
        return true;
    }
    // An indented first line after a sentence's end.
    let left = open.iter().map(|row| row.area.x0).fold(f64::INFINITY, f64::min);
    let indent = row.area.x0 - left;
    let ended = above.text.ends_with(['.', '!', '?', ':', '。', '！', '？', '”', '"', ')']);
    ended && open.len() > 1 && indent > 0.9 * row.size && above.area.x0 - left < 0.5 * row.size
}

/// Whether a line begins like an item of a list.
fn item(text: &str) -> bool {
    let mut characters = text.chars();
    match characters.next() {
        Some('•' | '◦' | '▪' | '‣' | '–' | '*' | '·') => characters.next() == Some(' '),
        Some(c) if c.is_ascii_digit() => {
            let rest = text.trim_start_matches(|c: char| c.is_ascii_digit());
            text.len() - rest.len() <= 2 && (rest.starts_with(". ") || rest.starts_with(") "))
        }
        _ => false,
    }
}

fn block(rows: Vec<Row>, body: f64) -> Block {
    let size = rows.iter().map(|row| row.size).fold(0.0, f64::max);
    let characters: usize = rows.iter().map(|row| row.text.chars().count()).sum();
    let kind = if rows.first().is_some_and(|row| item(&row.text)) {
        Kind::List
    } else if size > body * HEADING_RATIO && characters <= HEADING_CHARACTERS && rows.len() <= 3 {
        let ratio = size / body.max(1e-6);
        Kind::Heading {
            level: if ratio > 1.7 {
                1
            } else if ratio > 1.35 {
                2
            } else {
                3
            },
        }
    } else {
        Kind::Paragraph
    };
    let lines = rows.into_iter().map(|row| Line { text: row.text, row: None, area: Some(area(row.area)) }).collect();
    Block { kind, lines, section: Vec::new() }
}

#[allow(clippy::cast_possible_truncation)]
fn area(rect: Rect) -> [f32; 4] {
    // A tenth of a point is finer than any mark drawn over a page.
    [rect.x0, rect.y0, rect.x1, rect.y1].map(|value| ((value * 10.0).round() / 10.0) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(text: &str, x0: f64, x1: f64, y: f64, continues: bool) -> Segment {
        Segment { text: text.to_owned(), area: Rect::new(x0, y, x1, y + 10.0), size: 10.0, continues, vertical: false }
    }

    #[test]
    fn two_columns_drawn_row_by_row_are_read_one_after_the_other() {
        let page = vec![
            segment("The committee reviewed the annual", 50.0, 250.0, 100.0, false),
            segment("approved the budget for the", 300.0, 480.0, 100.0, true),
            segment("report and", 50.0, 110.0, 112.0, false),
            segment("coming fiscal year.", 300.0, 420.0, 112.0, true),
        ];
        let lines: Vec<String> = blocks(page).into_iter().flat_map(|block| block.lines).map(|line| line.text).collect();
        assert_eq!(lines, ["The committee reviewed the annual", "report and", "approved the budget for the", "coming fiscal year."]);
    }

    #[test]
    fn a_table_stays_row_by_row() {
        let page = vec![
            segment("Part", 50.0, 80.0, 100.0, false),
            segment("Quantity", 300.0, 350.0, 100.0, true),
            segment("AB-1021", 50.0, 100.0, 112.0, false),
            segment("12", 300.0, 315.0, 112.0, true),
        ];
        let lines: Vec<String> = blocks(page).into_iter().flat_map(|block| block.lines).map(|line| line.text).collect();
        assert_eq!(lines, ["Part Quantity", "AB-1021 12"]);
    }

    #[test]
    fn a_gap_begins_a_paragraph_and_a_larger_size_a_heading() {
        let mut title = segment("Title", 50.0, 120.0, 60.0, false);
        title.size = 20.0;
        let page = vec![
            title,
            segment("one one one one one", 50.0, 200.0, 100.0, false),
            segment("one two", 50.0, 200.0, 112.0, false),
            segment("two one", 50.0, 200.0, 140.0, false),
        ];
        let found = blocks(page);
        assert_eq!(found.iter().map(|block| block.lines.len()).collect::<Vec<_>>(), [1, 2, 1]);
        assert!(matches!(found[0].kind, Kind::Heading { .. }));
    }
}
