//! Text to terms: lower case, names split at `_`, `-` and capitals, English endings cut, Chinese as pairs of
//! characters.

use std::collections::BTreeSet;

/// Words that say nothing about what is wanted. Sorted, for binary search.
const STOP: &[&str] = &[
    "a", "about", "all", "also", "am", "an", "and", "any", "are", "as", "at", "be", "been", "but", "by", "can", "could", "day", "did",
    "do", "does", "doing", "for", "from", "give", "good", "had", "has", "have", "he", "hello", "help", "her", "hey", "hi", "him", "his",
    "how", "i", "if", "in", "into", "is", "it", "its", "just", "let", "like", "many", "may", "me", "mine", "much", "must", "my", "need",
    "no", "not", "now", "of", "on", "one", "or", "our", "out", "please", "right", "say", "says", "she", "should", "so", "some", "tell",
    "thank", "thanks", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "today", "tool", "up",
    "us", "use", "using", "very", "want", "was", "we", "were", "what", "when", "where", "which", "who", "whom", "whose", "why", "will",
    "with", "would", "you", "your",
];

/// Whether a word says nothing about what is wanted.
pub(super) fn is_stop(word: &str) -> bool {
    STOP.binary_search(&word).is_ok()
}

/// The words of a text in their order, lower case, uncut. Names are split at `_`, `-`, digits and capitals.
pub(super) fn split(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before = ' ';
    for c in text.chars() {
        let camel = c.is_uppercase() && before.is_lowercase();
        let joins = c.is_alphanumeric() && !is_cjk(c) && !is_cjk(before) && !camel;
        if !joins && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if c.is_alphanumeric() {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    if !word.is_empty() {
        words.push(word);
    }
    pair_cjk(words)
}

/// The distinct terms of a text: what is compared.
pub(super) fn terms(text: &str) -> BTreeSet<String> {
    split(text).iter().filter(|word| !is_stop(word)).map(|word| stem(word)).collect()
}

/// Cuts the commonest English endings, so that `files` meets `file` and `listing` meets `list`. Both sides go through
/// it, so what it makes need not be a word.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() || word.len() < 4 {
        return word.to_owned();
    }
    let cut = if let Some(head) = word.strip_suffix("ies") {
        return format!("{head}y");
    } else if let Some(head) = word.strip_suffix("ing").or_else(|| word.strip_suffix("ed")).filter(|head| head.len() >= 3) {
        undouble(head)
    } else if let Some(head) = word.strip_suffix('s').filter(|head| !head.ends_with(['s', 'u', 'i'])) {
        // `searches` and `matches` lose the whole ending, `names` and `files` only the `s`.
        head.strip_suffix('e').filter(|head| head.ends_with("ch") || head.ends_with("sh") || head.ends_with('x')).unwrap_or(head)
    } else {
        word
    };
    // `writing` and `write`, `moved` and `move` meet without their `e`.
    cut.strip_suffix('e').filter(|head| head.len() >= 3).unwrap_or(cut).to_owned()
}

/// `getting` is `get`, not `gett`; `calling` stays `call`.
fn undouble(head: &str) -> &str {
    let bytes = head.as_bytes();
    match bytes {
        [.., a, b] if a == b && !matches!(b, b'l' | b's' | b'z') && head.len() > 3 => &head[..head.len() - 1],
        _ => head,
    }
}

fn is_cjk(c: char) -> bool {
    matches!(c, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Chinese and Japanese have no spaces: each character with its successor is a term. A single one stands alone.
fn pair_cjk(words: Vec<String>) -> Vec<String> {
    let single = |word: &String| {
        let mut chars = word.chars();
        chars.next().is_some_and(is_cjk) && chars.next().is_none()
    };
    let mut paired = Vec::with_capacity(words.len());
    for (position, word) in words.iter().enumerate() {
        if !single(word) {
            paired.push(word.clone());
            continue;
        }
        match words.get(position + 1).filter(|next| single(next)) {
            Some(next) => paired.push(format!("{word}{next}")),
            None if position == 0 || !single(&words[position - 1]) => paired.push(word.clone()),
            None => {}
        }
    }
    paired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_and_stop_words_are_sorted() {
        assert!(STOP.is_sorted());
        assert_eq!(split("getCurrent_time-Zone"), ["get", "current", "time", "zone"]);
        assert_eq!(split("读取文件 a.txt"), ["读取", "取文", "文件", "a", "txt"]);
        assert_eq!(split("天"), ["天"]);
    }

    #[test]
    fn endings_meet() {
        for (left, right) in [
            ("files", "file"),
            ("directories", "directory"),
            ("listing", "list"),
            ("getting", "get"),
            ("writes", "write"),
            ("writing", "write"),
            ("searches", "search"),
            ("moved", "move"),
            ("converted", "convert"),
            ("calling", "call"),
            ("zones", "zone"),
            ("names", "name"),
        ] {
            assert_eq!(stem(left), stem(right), "{left} {right}");
        }
        assert_ne!(stem("status"), stem("state"));
    }
}
