//! Citations: the markers a model wrote, and for models that write none the passages its sentences came from.

use std::collections::HashSet;

use unicode_segmentation::UnicodeSegmentation as _;

use crate::conversation::Passage;
use crate::store::words;

/// A sentence comes from a passage when this share of its telling words stands in it. Below a half, two texts on
/// one topic share as much by chance.
const ALIGNED: f32 = 0.6;
/// A sentence with fewer telling words says too little to be placed.
const TELLING: usize = 3;
/// A word of fewer characters tells little, unless it holds a digit.
const TELLING_CHARACTERS: usize = 4;
/// A list in one bracket names at most this many passages.
const LIST: usize = 20;

/// The numbers that an answer cites as `[1]`, `[1][2]`, `[1, 2]`, `[1-3]` or in full-width brackets and that are
/// passages, each once, in the order of the answer. Numbers that no passage has are passed over.
#[must_use]
pub fn cited(answer: &str, passages: &[Passage]) -> Vec<usize> {
    let mut cited = Vec::new();
    let mut rest = answer;
    while let Some(open) = rest.find(['[', '【', '［']) {
        let after = &rest[open..];
        let mut characters = after.chars();
        let bracket = characters.next().unwrap_or('[');
        let inner = characters.as_str();
        let Some(close) = inner.find([']', '】', '］', '[', '【', '［', '\n']) else { break };
        let closed = inner[close..].starts_with([']', '】', '］']);
        // `[1](url)` is a link, not a citation.
        let link = inner[close..].starts_with("](");
        if closed && !link {
            for number in numbers(&inner[..close]) {
                if passages.iter().any(|passage| passage.number == number) && !cited.contains(&number) {
                    cited.push(number);
                }
            }
        }
        rest = if closed { &inner[close..] } else { &rest[open + bracket.len_utf8()..] };
    }
    cited
}

/// The numbers in a bracket; none when anything else stands in it.
fn numbers(inner: &str) -> Vec<usize> {
    let mut numbers = Vec::new();
    for item in inner.split([',', ';', '，', '、']) {
        let item = item.trim();
        let item = item.strip_prefix('^').unwrap_or(item);
        let (from, to) = item.split_once(['-', '–']).unwrap_or((item, item));
        let (Some(from), Some(to)) = (number(from), number(to)) else { return Vec::new() };
        if from > to || to - from >= LIST || numbers.len() >= LIST {
            return Vec::new();
        }
        numbers.extend(from..=to);
    }
    numbers
}

fn number(text: &str) -> Option<usize> {
    let digits: Option<String> = text
        .trim()
        .chars()
        .map(|c| match c {
            '0'..='9' => Some(c),
            '０'..='９' => char::from_u32(c as u32 - '０' as u32 + '0' as u32),
            _ => None,
        })
        .collect();
    digits?.parse().ok()
}

/// A sentence of an answer and the passage it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Aligned {
    /// The sentence's bytes `[start, end)` in the answer.
    pub sentence: (usize, usize),
    /// The passage's number.
    pub number: usize,
    /// The share of the sentence's telling words that stand in the passage, 0 to 1.
    pub share: f32,
}

/// For an answer without markers: which sentences came from which passage, by the words they share. A sentence goes to the
/// passage that holds most of its telling words when that is at least 60 % of them.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn align(answer: &str, passages: &[Passage]) -> Vec<Aligned> {
    let held: Vec<(usize, HashSet<String>)> =
        passages.iter().map(|passage| (passage.number, words(&passage.text).into_iter().collect())).collect();
    let mut aligned = Vec::new();
    for (at, sentence) in sentences(answer) {
        let telling: HashSet<String> = words(sentence).into_iter().filter(|word| tells(word)).collect();
        if telling.len() < TELLING {
            continue;
        }
        let shares = held.iter().map(|(number, held)| (*number, telling.intersection(held).count() as f32 / telling.len() as f32));
        // The first of equals: the better ranked.
        let best = shares.fold((0, 0.0), |best, next| if next.1 > best.1 { next } else { best });
        if best.1 >= ALIGNED {
            aligned.push(Aligned { sentence: (at, at + sentence.len()), number: best.0, share: best.1 });
        }
    }
    aligned
}

/// The passages an answer rests on: those it cites, or where it cites none those its sentences came from.
#[must_use]
pub fn citations(answer: &str, passages: &[Passage]) -> Vec<usize> {
    let cited = cited(answer, passages);
    if !cited.is_empty() {
        return cited;
    }
    let mut numbers: Vec<usize> = Vec::new();
    for aligned in align(answer, passages) {
        if !numbers.contains(&aligned.number) {
            numbers.push(aligned.number);
        }
    }
    numbers
}

fn tells(word: &str) -> bool {
    word.chars().count() >= TELLING_CHARACTERS || word.chars().any(char::is_numeric) || !word.is_ascii()
}

fn sentences(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.split_sentence_bound_indices().map(|(at, sentence)| {
        let trimmed = sentence.trim_start();
        (at + sentence.len() - trimmed.len(), trimmed.trim_end())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::DocumentId;

    fn passages(texts: &[&str]) -> Vec<Passage> {
        let passage = |(at, text): (usize, &&str)| Passage {
            number: at + 1,
            document: DocumentId::fresh(),
            name: "a.pdf".to_owned(),
            page: Some(1),
            span: (0, text.chars().count()),
            text: (*text).to_owned(),
            score: 1.0,
        };
        texts.iter().enumerate().map(passage).collect()
    }

    #[test]
    fn markers_of_every_shape_are_found_and_invented_ones_are_not() {
        let passages = passages(&["a", "b", "c"]);
        let cited = |answer: &str| cited(answer, &passages);
        assert_eq!(cited("It is 5 bar [2]. Or so [1][3]."), [2, 1, 3]);
        assert_eq!(cited("Both [1, 3] and 【2】 and ［２］."), [1, 3, 2]);
        assert_eq!(cited("[1-3]"), [1, 2, 3]);
        assert_eq!(cited("[7] and [0] and [99999999999999999999]"), Vec::<usize>::new());
        assert_eq!(cited("array[i], [see 1], [x][2], [ 3 ]"), [2, 3]);
        assert_eq!(cited("[1](https://example.org) [[2]] [unclosed 3"), [2]);
        assert_eq!(cited("[1-999999999] [^1]"), [1]);
        assert_eq!(cited("[1\n2] ["), Vec::<usize>::new());
    }

    #[test]
    fn sentences_without_markers_are_placed_by_their_words() {
        let passages = passages(&[
            "The annual budget was approved by the committee in March.",
            "The coolant pump must run at a pressure of 4.2 bar before the valve opens.",
        ]);
        let answer = "Sure! The coolant pump runs at a pressure of 4.2 bar. Penguins live in the southern hemisphere mostly.";
        let aligned = align(answer, &passages);
        assert_eq!(aligned.len(), 1);
        assert_eq!(aligned[0].number, 2);
        assert_eq!(&answer[aligned[0].sentence.0..aligned[0].sentence.1], "The coolant pump runs at a pressure of 4.2 bar.");
        assert_eq!(citations(answer, &passages), [2]);
        assert_eq!(citations("The coolant pump runs at a pressure of 4.2 bar [1].", &passages), [1]);
        assert_eq!(citations("Hello, how can I help?", &passages), Vec::<usize>::new());
    }

    #[test]
    fn chinese_sentences_are_placed_too() {
        let passages = passages(&["年度预算已由委员会批准。", "冷却泵压力过低时阀门不会打开。"]);
        assert_eq!(citations("如果冷却泵压力过低，阀门不会打开。", &passages), [2]);
    }
}
