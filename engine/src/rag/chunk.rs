//! Cutting a document's text into overlapping windows of tokens, on paragraph and sentence boundaries where it can.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::embedding::{self, Embedder};

/// The largest window, in tokens, whatever the embedder could see.
pub const MOST_TOKENS: usize = 512;
/// The window for embedders that see 256 tokens or fewer with their special ones, and where there is no embedder.
/// Measured: 250 recalls 0.808 of the reference text against 0.741 at 400, of which the model sees 256.
pub const SMALL_WINDOW: usize = 250;
/// The share of a window that the next one repeats, as a divisor: 20 %.
const OVERLAP: usize = 5;
/// A window ends at the best boundary within its last 40 %, as divisors of the window: 2/5.
const SEARCH: (usize, usize) = (2, 5);
/// A page that ends with a sentence ends the chunk, once that holds this share of the window, as a divisor: 3 %, some eight
/// tokens. What follows then begins on its own page and is cited there; only a bare page title goes with the next page.
const PAGE: usize = 30;
/// Text is tokenised in pieces of about this many bytes, so that memory stays bounded.
const PIECE: usize = 32 << 10;

/// One chunk: its characters and bytes in the document's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Characters `[start, end)`.
    pub span: Range<usize>,
    /// Bytes `[start, end)`.
    pub bytes: Range<usize>,
}

/// What counted the tokens; chunks counted by something else are cut anew.
#[must_use]
pub fn counter(embedder: Option<&dyn Embedder>) -> String {
    match embedder {
        Some(embedder) => format!("2:{}:{}", window(Some(embedder)), embedder.model()),
        None => format!("2:{SMALL_WINDOW}:estimate"),
    }
}

/// Tokens per chunk for an embedder.
#[must_use]
pub fn window(embedder: Option<&dyn Embedder>) -> usize {
    match embedder.map(Embedder::window) {
        Some(window) if window > 256 => window.min(MOST_TOKENS),
        Some(window) => window.clamp(1, SMALL_WINDOW),
        None => SMALL_WINDOW,
    }
}

/// Cuts a text. Every character that is no white space is in at least one chunk, and the text of a chunk is exactly
/// the document's text at its span.
pub fn chunks(text: &str, embedder: Option<&dyn Embedder>) -> Result<Vec<Chunk>, embedding::Error> {
    let tokens = tokens(text, embedder)?;
    let ranges = windows(text, &tokens, window(embedder));
    Ok(with_characters(text, ranges))
}

/// Where each token starts, in bytes, rising, on character boundaries.
fn tokens(text: &str, embedder: Option<&dyn Embedder>) -> Result<Vec<usize>, embedding::Error> {
    let mut starts = Vec::new();
    for piece in pieces(text) {
        let spans = match embedder {
            Some(embedder) => embedder.token_spans(&text[piece.clone()])?.into_iter().map(|(start, _)| start).collect(),
            None => estimate(&text[piece.clone()]),
        };
        for start in spans {
            // Byte-level tokenizers split characters; a chunk never does.
            let mut start = (piece.start + start).min(piece.end);
            while !text.is_char_boundary(start) {
                start -= 1;
            }
            if starts.last().is_none_or(|last| *last < start) {
                starts.push(start);
            }
        }
    }
    Ok(starts)
}

/// Pieces that end at white space where there is any.
fn pieces(text: &str) -> Vec<Range<usize>> {
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let mut end = (start + PIECE).min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let space = text[start..end].rfind(char::is_whitespace).filter(|at| *at > 0 && end < text.len());
        if let Some(space) = space {
            end = start + space;
        }
        pieces.push(start..end);
        start = end;
    }
    pieces
}

/// Token starts where there is no embedder: one per five characters of a word, one per Chinese, Japanese, Korean or
/// Thai character and one per punctuation mark. That is more than a WordPiece vocabulary needs for English, so
/// chunks come out somewhat shorter and never lose their end to an embedder that is added later.
fn estimate(text: &str) -> Vec<usize> {
    let mut starts = Vec::new();
    for (at, word) in text.unicode_word_indices() {
        for (number, (offset, character)) in word.char_indices().enumerate() {
            if number % 5 == 0 || dense(character) {
                starts.push(at + offset);
            }
        }
    }
    starts.extend(text.char_indices().filter(|(_, c)| !c.is_alphanumeric() && !c.is_whitespace() && !c.is_control()).map(|(at, _)| at));
    starts.sort_unstable();
    starts
}

fn dense(character: char) -> bool {
    matches!(character as u32, 0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0x20000..=0x3ffff)
}

/// [`boundary`] at the end of a page that ends with a sentence.
const PAGE_END: u8 = 5;

/// How good it is to cut before a byte: 5 page, 4 paragraph, 3 line, 2 sentence, 1 word, 0 within a word.
fn boundary(text: &str, at: usize) -> u8 {
    let before = &text[..at];
    let trimmed = before.trim_end();
    let space = &before[trimmed.len()..];
    let last = trimmed.chars().next_back().unwrap_or(' ');
    let full_stop = matches!(last, '。' | '！' | '？' | '；' | '…');
    let stop = full_stop || matches!(last, '.' | '!' | '?' | '؟' | '।' | '۔' | ':');
    let lines = space.matches('\n').count();
    if lines >= 3 && stop {
        PAGE_END
    } else if lines >= 2 {
        4
    } else if lines == 1 {
        3
    } else if full_stop || (!space.is_empty() && stop) {
        2
    } else if !space.is_empty() || dense(last) {
        1
    } else {
        0
    }
}

fn windows(text: &str, tokens: &[usize], window: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    if tokens.is_empty() {
        push(text, 0..text.len(), &mut ranges);
        return ranges;
    }
    // What stands before the first token belongs to the first chunk, so that nothing is lost.
    let (mut from, mut start) = (0, 0);
    loop {
        let limit = from + window;
        let page_end = (from + window / PAGE + 1..=limit.min(tokens.len() - 1)).find(|token| boundary(text, tokens[*token]) == PAGE_END);
        if let Some(cut) = page_end {
            push(text, start..tokens[cut], &mut ranges);
            (from, start) = (cut, tokens[cut]);
            continue;
        }
        if limit >= tokens.len() {
            push(text, start..text.len(), &mut ranges);
            return ranges;
        }
        let earliest = (limit - window * SEARCH.0 / SEARCH.1).max(from + 1);
        let cut = (earliest..=limit).max_by_key(|token| (boundary(text, tokens[*token]), *token)).unwrap_or(limit);
        push(text, start..tokens[cut], &mut ranges);
        let overlap = cut.saturating_sub(window / OVERLAP).max(from + 1);
        // The next chunk begins with a sentence where one begins in the overlap, else with a word.
        let next = (overlap..=cut).max_by_key(|token| (boundary(text, tokens[*token]).min(2), std::cmp::Reverse(*token))).unwrap_or(cut);
        (from, start) = (next, tokens[next]);
    }
}

fn push(text: &str, range: Range<usize>, ranges: &mut Vec<Range<usize>>) {
    let piece = &text[range.clone()];
    let start = range.start + (piece.len() - piece.trim_start().len());
    let end = range.start + piece.trim_end().len();
    if start < end {
        ranges.push(start..end);
    }
}

/// Counts characters once over the text; the starts and the ends of the ranges rise.
fn with_characters(text: &str, ranges: Vec<Range<usize>>) -> Vec<Chunk> {
    let mut at = (0, 0);
    let mut starts = Vec::with_capacity(ranges.len());
    for range in &ranges {
        at = (range.start, at.1 + text[at.0..range.start].chars().count());
        starts.push(at.1);
    }
    ranges.into_iter().zip(starts).map(|(bytes, start)| Chunk { span: start..start + text[bytes.clone()].chars().count(), bytes }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Counts words, sees `window` of them.
    #[derive(Debug)]
    struct Words(usize);

    impl Embedder for Words {
        fn model(&self) -> &str {
            "words"
        }
        fn dimension(&self) -> usize {
            1
        }
        fn window(&self) -> usize {
            self.0
        }
        fn token_spans(&self, text: &str) -> Result<Vec<(usize, usize)>, embedding::Error> {
            Ok(text.split_word_bound_indices().filter(|(_, w)| !w.trim().is_empty()).map(|(at, w)| (at, at + w.len())).collect())
        }
        fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, embedding::Error> {
            Ok(texts.iter().map(|_| vec![1.0]).collect())
        }
    }

    fn check(text: &str, embedder: Option<&dyn Embedder>) {
        let chunks = chunks(text, embedder).unwrap();
        let characters: Vec<char> = text.chars().collect();
        let mut covered = vec![false; characters.len()];
        for chunk in &chunks {
            let by_span: String = characters[chunk.span.clone()].iter().collect();
            assert_eq!(by_span, &text[chunk.bytes.clone()]);
            assert_eq!(by_span.trim(), by_span);
            covered[chunk.span.clone()].fill(true);
        }
        for (at, character) in characters.iter().enumerate() {
            assert!(covered[at] || character.is_whitespace(), "character {at} {character:?} of {text:?} is in no chunk");
        }
        for pair in chunks.windows(2) {
            assert!(pair[0].span.start < pair[1].span.start && pair[0].span.end < pair[1].span.end);
        }
    }

    proptest! {
        #[test]
        fn spans_are_exact_and_nothing_is_lost(text in "([a-z]{1,9}|[ .\n]|\\. |\n\n|\\.\n\n\n|冷却泵|。|é|👍🏽|\u{301}|\\PC){0,200}", window in 1usize..60) {
            check(&text, Some(&Words(window)));
            check(&text, None);
        }
    }

    #[test]
    fn a_window_of_250_for_a_256_token_model_and_at_most_512() {
        assert_eq!(window(Some(&Words(254))), 250);
        assert_eq!(window(Some(&Words(256))), 250);
        assert_eq!(window(Some(&Words(126))), 126);
        assert_eq!(window(Some(&Words(510))), 510);
        assert_eq!(window(Some(&Words(8190))), 512);
    }

    #[test]
    fn chunks_end_with_sentences_and_overlap_by_a_fifth() {
        let text = "One two three four five six seven. ".repeat(100);
        let chunks = chunks(&text, Some(&Words(40))).unwrap();
        assert!(chunks.len() > 20);
        for pair in chunks.windows(2) {
            assert!(text[pair[0].bytes.clone()].ends_with("seven."));
            assert!(text[pair[1].bytes.clone()].starts_with("One"));
            assert!(pair[1].span.start < pair[0].span.end, "no overlap");
        }
    }

    #[test]
    fn a_page_begins_its_own_chunk() {
        let pages: Vec<String> =
            (0..4).map(|n| format!("Page {n} begins. {}", "It goes on for a while. ".repeat(9 + 5 * n).trim())).collect();
        let text = pages.join("\n\n\n");
        let chunks = chunks(&text, Some(&Words(100))).unwrap();
        for n in 0..4 {
            assert!(chunks.iter().any(|chunk| text[chunk.bytes.clone()].starts_with(&format!("Page {n}"))), "{n}");
        }
    }

    #[test]
    fn chinese_is_cut_at_its_own_full_stop() {
        let text = "冷却泵压力过低请检查阀门并重新启动系统。".repeat(60);
        for chunk in chunks(&text, None).unwrap() {
            assert!(text[chunk.bytes].ends_with('。'));
        }
    }
}
