//! Scores: BM25, the two legs put together, near-identical passages told apart. Pure functions.

use std::collections::{HashMap, HashSet};

use crate::store::{ChunkId, Posting};

/// BM25's saturation of repeated terms.
const K1: f32 = 1.2;
/// BM25's correction for length.
const B: f32 = 0.75;
/// How many chunks of each leg are put together.
pub const LEG: usize = 100;
/// Word pieces per word from which on the query is in a language that an English model splits to pieces.
const FOREIGN: f32 = 1.6;
/// The weight of the vectors for a query that the model knows the words of, and for one that it does not. Measured on
/// ten sets: best or within 0.01 of the best on nine.
const KNOWN_WEIGHT: f32 = 0.5;
/// See [`KNOWN_WEIGHT`].
const FOREIGN_WEIGHT: f32 = 0.2;
/// The information of a term is reckoned as if there were at least so many chunks: in a document of one chunk every
/// term it holds would else count for next to nothing beside those it lacks.
const FEW: u64 = 32;
/// A chunk that holds less than this share of the query's information by words is no answer to it,
pub const COVERAGE_FLOOR: f32 = 0.1;
/// unless its vector is at least this near. Unrelated sentences measured 0.26 with all-MiniLM.
pub const COSINE_FLOOR: f32 = 0.3;
/// Chunks that share more than this of their words say the same.
const SAME: f32 = 0.9;

/// English words that carry no topic, and greetings: a query of nothing else has no words to search for.
const EMPTY_WORDS: &[&str] = &[
    "a", "about", "am", "an", "and", "any", "are", "as", "at", "be", "but", "by", "can", "could", "did", "do", "does", "for", "from",
    "had", "has", "have", "he", "hello", "her", "hey", "hi", "his", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my", "no",
    "not", "of", "on", "or", "our", "please", "s", "she", "so", "such", "t", "tell", "thank", "thanks", "that", "the", "their", "then",
    "there", "these", "they", "this", "to", "us", "was", "we", "were", "what", "when", "where", "which", "who", "why", "will", "with",
    "would", "you", "your",
];

/// The terms of a query that are worth looking up, each once.
#[must_use]
pub fn terms(query: &str) -> Vec<String> {
    let mut seen = HashSet::new();
    crate::store::words(query)
        .into_iter()
        .filter(|word| EMPTY_WORDS.binary_search(&word.as_str()).is_err() && seen.insert(word.clone()))
        .collect()
}

/// A chunk found by words.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ByWords {
    /// The chunk.
    pub chunk: ChunkId,
    /// Its BM25 score.
    pub score: f32,
    /// The share of the query's information (its terms' idf) that the chunk holds, 0 to 1.
    pub coverage: f32,
}

/// Scores the chunks that hold a term, best first: BM25 with k1 1.2, b 0.75 and idf ln(1 + (N - n + 0.5) / (n + 0.5)),
/// where N counts only the chunks that are searched.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn bm25(postings: &[Vec<Posting>], chunks: u64, words: u64) -> Vec<ByWords> {
    let usual = (words as f32 / chunks.max(1) as f32).max(1.0);
    let idf_among = |chunks: u64, holding: usize| (1.0 + (chunks as f32 - holding as f32 + 0.5).max(0.5) / (holding as f32 + 0.5)).ln();
    let information = |holding: usize| idf_among(chunks.max(FEW), holding);
    let all: f32 = postings.iter().map(|term| information(term.len())).sum();
    let mut scores: HashMap<ChunkId, (f32, f32)> = HashMap::new();
    for term in postings {
        let (idf, information) = (idf_among(chunks, term.len()), information(term.len()));
        for posting in term {
            let count = posting.count as f32;
            let length = posting.words as f32 / usual;
            let entry = scores.entry(posting.chunk).or_default();
            entry.0 += idf * count * (K1 + 1.0) / (count + K1 * (1.0 - B + B * length));
            entry.1 += information;
        }
    }
    let found = scores.into_iter().map(|(chunk, (score, mass))| ByWords { chunk, score, coverage: mass / all.max(f32::MIN_POSITIVE) });
    let mut found: Vec<ByWords> = found.collect();
    found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.chunk.cmp(&b.chunk)));
    found
}

/// The weight of the vectors for a query of so many word pieces and words.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn vector_weight(pieces: usize, words: usize) -> f32 {
    if (pieces as f32) < FOREIGN * words.max(1) as f32 { KNOWN_WEIGHT } else { FOREIGN_WEIGHT }
}

/// A chunk with its scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// The chunk.
    pub chunk: ChunkId,
    /// Both legs together, 0 to 1, only comparable within one query.
    pub score: f32,
    /// Its BM25 score, where the words found it.
    pub words: Option<f32>,
    /// Its cosine, where it has a vector.
    pub cosine: Option<f32>,
}

/// Puts the legs together: `(1 - weight) * bm25 / max + weight * minmax(cosine)` over the union of the first
/// [`LEG`] of both, best first. A leg that is missing is left out and the other one counts alone. Chunks below both
/// floors are dropped.
#[must_use]
pub fn fuse(words: Option<&[ByWords]>, vectors: Option<&[(ChunkId, f32)]>, weight: f32) -> Vec<Scored> {
    let by_words = words.unwrap_or_default();
    let by_vector = vectors.unwrap_or_default();
    let weight = match (by_words.is_empty(), by_vector.is_empty()) {
        (_, true) => 0.0,
        (true, false) => 1.0,
        (false, false) => weight,
    };
    let found: HashMap<ChunkId, &ByWords> = by_words.iter().map(|found| (found.chunk, found)).collect();
    let near: HashMap<ChunkId, f32> = by_vector.iter().copied().collect();
    let mut union: Vec<ChunkId> = by_words.iter().take(LEG).map(|found| found.chunk).collect();
    union.extend(by_vector.iter().take(LEG).map(|(chunk, _)| *chunk));
    union.sort_unstable();
    union.dedup();
    let best = by_words.first().map_or(0.0, |found| found.score).max(f32::MIN_POSITIVE);
    let cosines = union.iter().filter_map(|chunk| near.get(chunk).copied());
    let (low, high) = cosines.fold((f32::INFINITY, f32::NEG_INFINITY), |(low, high), cosine| (low.min(cosine), high.max(cosine)));
    let mut scored: Vec<Scored> = union
        .into_iter()
        .filter_map(|chunk| {
            let (words, cosine) = (found.get(&chunk), near.get(&chunk).copied());
            let enough = words.is_some_and(|words| words.coverage >= COVERAGE_FLOOR) || cosine.is_some_and(|cosine| cosine >= COSINE_FLOOR);
            let words = words.map(|words| words.score);
            // One chunk alone, or all equally near: nearness then says nothing against it.
            let nearness = cosine.map_or(0.0, |cosine| if high > low { (cosine - low) / (high - low) } else { 1.0 });
            let score = (1.0 - weight) * words.unwrap_or(0.0) / best + weight * nearness;
            enough.then_some(Scored { chunk, score, words, cosine })
        })
        .collect();
    scored.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.chunk.cmp(&b.chunk)));
    scored
}

/// Whether two passages say the same in nearly the same words.
#[must_use]
#[allow(clippy::cast_precision_loss)]
pub fn same(one: &HashSet<String>, other: &HashSet<String>) -> bool {
    let shared = one.intersection(other).count() as f32;
    let all = (one.len() + other.len()) as f32 - shared;
    all > 0.0 && shared / all > SAME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn posting(chunk: ChunkId, count: u32) -> Posting {
        Posting { chunk, count, words: 10 }
    }

    #[test]
    fn the_list_of_empty_words_is_sorted() {
        assert!(EMPTY_WORDS.is_sorted());
        assert_eq!(terms("Hello, how are you?"), Vec::<String>::new());
        assert_eq!(terms("What is the pump's pump pressure?"), ["pump", "pressure"]);
    }

    #[test]
    fn bm25_matches_its_formula() {
        let found = bm25(&[vec![posting(1, 2), posting(2, 1)], vec![posting(1, 1)]], 4, 40);
        // idf(2 of 4) = ln 2, idf(1 of 4) = ln(10/3); all lengths are usual.
        let (two, one) = (2f32.ln(), (10f32 / 3.0).ln());
        assert!((found[0].score - (two * 2.0 * 2.2 / 3.2 + one)).abs() < 1e-5, "{found:?}");
        assert!((found[1].score - two).abs() < 1e-5);
        // The information is reckoned among 32 chunks: ln(1 + 30.5 / 2.5) and ln(1 + 31.5 / 1.5).
        let (two, one) = (13.2f32.ln(), 22f32.ln());
        assert!((found[0].coverage - 1.0).abs() < 1e-5 && (found[1].coverage - two / (two + one)).abs() < 1e-5);
    }

    #[test]
    fn one_word_of_four_is_enough_in_a_document_of_one_chunk() {
        let found = bm25(&[vec![posting(1, 1)], vec![], vec![], vec![]], 1, 10);
        assert!(found[0].coverage > COVERAGE_FLOOR, "{found:?}");
    }

    #[test]
    fn the_legs_are_weighted_by_language_and_a_missing_one_is_left_out() {
        assert_eq!(vector_weight(15, 10), 0.5);
        assert_eq!(vector_weight(16, 10), 0.2);
        let words = [ByWords { chunk: 1, score: 4.0, coverage: 1.0 }, ByWords { chunk: 2, score: 2.0, coverage: 0.5 }];
        let vectors = [(3, 0.9), (2, 0.7), (1, 0.1)];
        let both = fuse(Some(&words), Some(&vectors), 0.5);
        let scores: Vec<_> = both.iter().map(|found| (found.chunk, (found.score * 1000.0).round())).collect();
        assert_eq!(scores, [(2, 625.0), (1, 500.0), (3, 500.0)]);
        let alone = fuse(Some(&words), None, 0.5);
        assert_eq!(alone.iter().map(|found| (found.chunk, found.score)).collect::<Vec<_>>(), [(1, 1.0), (2, 0.5)]);
        let alone = fuse(None, Some(&vectors), 0.5);
        assert_eq!(alone.iter().map(|found| found.chunk).collect::<Vec<_>>(), [3, 2]);
    }

    #[test]
    fn what_is_neither_near_nor_shares_words_is_no_passage() {
        assert!(fuse(None, Some(&[(1, 0.2), (2, -0.2)]), 0.5).is_empty());
        assert!(fuse(Some(&[ByWords { chunk: 1, score: 1.0, coverage: 0.05 }]), None, 0.5).is_empty());
    }
}
