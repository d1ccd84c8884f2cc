//! Finding passages: by words, by meaning, both.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use super::Error;
use super::collection::Collections;
use super::rank::{self, ByWords, Scored};
use crate::conversation::{DocumentId, Passage};
use crate::embedding::Embedder;
use crate::store::{ChunkId, ChunkRow, ContentId, DocumentRow, Store, words};

/// What is left of a chunk beside a chosen neighbour must be at least this many characters.
const WORTH: usize = 40;

/// What a search found and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retrieved {
    /// The passages, best first, numbered from 1.
    pub passages: Vec<Passage>,
    /// How they were found and what was left out, in one sentence.
    pub reason: String,
    /// What each way gave to each passage, in the order of the passages.
    pub legs: Vec<Legs>,
    /// The two ways of the search and their own best chunks.
    pub ways: Vec<Leg>,
}

/// What the two ways gave to one passage.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Legs {
    /// Its BM25 score, where the words found it.
    pub words: Option<f32>,
    /// Its cosine, where it has a vector.
    pub cosine: Option<f32>,
}

/// A way to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// By words: BM25.
    Words,
    /// By meaning: the cosine of vectors.
    Vectors,
}

/// What one way found.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Leg {
    /// Which.
    pub way: Way,
    /// Why it did not answer, where it did not.
    pub skipped: Option<String>,
    /// Its best chunks: as many as passages were asked for.
    pub hits: Vec<LegHit>,
}

/// A chunk that one way found.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LegHit {
    /// The document.
    pub document: DocumentId,
    /// Its name.
    pub name: String,
    /// The page the chunk begins on.
    pub page: Option<u32>,
    /// Its characters `[start, end)`.
    pub span: (usize, usize),
    /// BM25 or cosine.
    pub score: f32,
}

/// What a search by meaning needs.
pub(super) struct Meaning<'a> {
    pub(super) embedder: &'a dyn Embedder,
    pub(super) collections: &'a Collections,
}

/// The best passages of these documents. Documents that share a content are searched once, under the first one's name.
pub(super) fn search(
    store: &Store,
    meaning: Option<&Meaning<'_>>,
    documents: &[DocumentRow],
    query: &str,
    most: usize,
) -> Result<Retrieved, Error> {
    let mut sources: HashMap<ContentId, Source<'_>> = HashMap::new();
    for document in documents {
        let _ = sources.entry(document.content).or_insert(Source { document, page_starts: Vec::new() });
    }
    let mut contents: Vec<ContentId> = sources.keys().copied().collect();
    contents.sort_unstable();
    for (content, source) in &mut sources {
        source.page_starts = serde_json::from_str(&store.content_page_starts(*content)?).unwrap_or_default();
    }
    let (by_words, no_words) = word_leg(store, &contents, query)?;
    let (by_vector, no_vectors) = vector_leg(store, meaning, &contents, query, &by_words)?;
    let weight = weight(meaning.map(|meaning| meaning.embedder), query);
    let scored = rank::fuse(Some(&by_words), Some(&by_vector), weight);
    let (passages, legs) = passages(store, &sources, &scored, most)?;
    let word_hits: Vec<(ChunkId, f32)> = by_words.iter().take(most).map(|found| (found.chunk, found.score)).collect();
    let vector_hits: Vec<(ChunkId, f32)> = by_vector.iter().take(most).copied().collect();
    let reason = reason(&passages, no_words.as_deref(), no_vectors.as_deref());
    let ways = vec![
        Leg { way: Way::Words, skipped: no_words, hits: hits(store, &sources, &word_hits)? },
        Leg { way: Way::Vectors, skipped: no_vectors, hits: hits(store, &sources, &vector_hits)? },
    ];
    Ok(Retrieved { passages, reason, legs, ways })
}

struct Source<'a> {
    document: &'a DocumentRow,
    /// The first character of each page, and the page.
    page_starts: Vec<(usize, u32)>,
}

impl Source<'_> {
    fn page(&self, character: usize) -> Option<u32> {
        let before = self.page_starts.partition_point(|(start, _)| *start <= character);
        self.page_starts.get(before.saturating_sub(1)).map(|(_, page)| *page)
    }
}

/// What a leg found, or why it found nothing.
type Found<T> = (Vec<T>, Option<String>);

fn word_leg(store: &Store, contents: &[ContentId], query: &str) -> Result<Found<ByWords>, Error> {
    let terms = rank::terms(query);
    if terms.is_empty() {
        return Ok((Vec::new(), Some("the question has no words to search for".to_owned())));
    }
    let postings = terms.iter().map(|term| store.postings(term, contents)).collect::<Result<Vec<_>, _>>()?;
    let (chunks, words) = store.chunk_totals(contents)?;
    let found = rank::bm25(&postings, chunks, words);
    let none = found.is_empty().then(|| "no passage holds a word of the question".to_owned());
    Ok((found, none))
}

/// The nearest chunks of these contents, and the cosines of those that were found by words.
fn vector_leg(
    store: &Store,
    meaning: Option<&Meaning<'_>>,
    contents: &[ContentId],
    query: &str,
    by_words: &[ByWords],
) -> Result<Found<(ChunkId, f32)>, Error> {
    let none = |reason: String| Ok((Vec::new(), Some(reason)));
    let Some(Meaning { embedder, collections }) = meaning else { return none("there is no embedding model".to_owned()) };
    let collection = collections.of(store, *embedder)?;
    let chunks: HashSet<ChunkId> = store.chunk_ids(contents)?.into_iter().collect();
    let no_vectors = || format!("the documents have no vectors of {} yet", embedder.model());
    if collection.is_empty() {
        return none(no_vectors());
    }
    let wanted = match embedder.embed(&[query]) {
        Ok(mut wanted) if wanted.len() == 1 => wanted.remove(0),
        Ok(_) => return none("the embedding model gave no vector for the question".to_owned()),
        Err(error) => return none(error.to_string()),
    };
    let also: Vec<ChunkId> = by_words.iter().take(rank::LEG).map(|found| found.chunk).collect();
    let (found, leg) = collection.nearest(&wanted, &chunks, rank::LEG, &also)?;
    tracing::debug!(?leg, found = found.len(), "searched by meaning");
    if found.is_empty() { none(no_vectors()) } else { Ok((found, None)) }
}

fn weight(embedder: Option<&dyn Embedder>, query: &str) -> f32 {
    // Words as a reader of English counts them: a run of Chinese is one word of many pieces.
    let count = query.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).count();
    let pieces = embedder.and_then(|embedder| embedder.token_spans(query).ok()).map_or(count, |spans| spans.len());
    rank::vector_weight(pieces, count)
}

fn passages(
    store: &Store,
    sources: &HashMap<ContentId, Source<'_>>,
    scored: &[Scored],
    most: usize,
) -> Result<(Vec<Passage>, Vec<Legs>), Error> {
    // Some fall out as doubles: take enough, but read no more texts than needed.
    let candidates: Vec<ChunkId> = scored.iter().take(most.saturating_mul(4)).map(|scored| scored.chunk).collect();
    let rows: HashMap<ChunkId, ChunkRow> = store.chunk_rows(&candidates)?.into_iter().map(|row| (row.id, row)).collect();
    let mut chosen: Vec<(ContentId, (usize, usize), HashSet<String>)> = Vec::new();
    let (mut passages, mut legs): (Vec<Passage>, Vec<Legs>) = (Vec::new(), Vec::new());
    for scored in scored {
        if passages.len() == most {
            break;
        }
        let Some(row) = rows.get(&scored.chunk) else { continue };
        let Some(source) = sources.get(&row.content) else { continue };
        let terms: HashSet<String> = words(&row.text).into_iter().collect();
        if chosen.iter().any(|(_, _, other)| rank::same(&terms, other)) {
            continue;
        }
        let taken = chosen.iter().filter(|(content, _, _)| *content == row.content).map(|(_, span, _)| *span);
        let Some((span, text)) = without_overlap(row, taken) else { continue };
        passages.push(Passage {
            number: passages.len() + 1,
            document: source.document.id,
            name: source.document.name.clone(),
            page: source.page(span.0),
            span,
            text,
            score: scored.score,
        });
        legs.push(Legs { words: scored.words, cosine: scored.cosine });
        chosen.push((row.content, span, terms));
    }
    Ok((passages, legs))
}

/// A chunk without what chosen neighbours hold already; `None` when too little is left.
fn without_overlap(row: &ChunkRow, taken: impl Iterator<Item = (usize, usize)>) -> Option<((usize, usize), String)> {
    let (mut start, mut end) = row.span;
    for (from, to) in taken {
        if from <= start && start < to {
            start = to.min(end);
        } else if from < end && end <= to {
            end = from.max(start);
        }
    }
    if (start, end) == row.span {
        return Some((row.span, row.text.clone()));
    }
    let text: String = row.text.chars().skip(start - row.span.0).take(end - start).collect();
    let trimmed = text.trim();
    let before = text.chars().count() - text.trim_start().chars().count();
    let count = trimmed.chars().count();
    (count >= WORTH).then(|| ((start + before, start + before + count), trimmed.to_owned()))
}

fn hits(store: &Store, sources: &HashMap<ContentId, Source<'_>>, found: &[(ChunkId, f32)]) -> Result<Vec<LegHit>, Error> {
    let ids: Vec<ChunkId> = found.iter().map(|(chunk, _)| *chunk).collect();
    let rows = store.chunk_rows(&ids)?;
    let hits = found.iter().filter_map(|(chunk, score)| {
        let row = rows.iter().find(|row| row.id == *chunk)?;
        let source = sources.get(&row.content)?;
        Some(LegHit {
            document: source.document.id,
            name: source.document.name.clone(),
            page: source.page(row.span.0),
            span: row.span,
            score: *score,
        })
    });
    Ok(hits.collect())
}

fn reason(passages: &[Passage], no_words: Option<&str>, no_vectors: Option<&str>) -> String {
    let mut reason = match (no_words, no_vectors) {
        (None, None) => "found by words and by meaning".to_owned(),
        (None, Some(why)) => format!("found by words only, because {why}"),
        (Some(why), None) => format!("found by meaning only, because {why}"),
        (Some(words), Some(vectors)) => format!("nothing was searched: {words}, and {vectors}"),
    };
    if passages.is_empty() && (no_words.is_none() || no_vectors.is_none()) {
        reason.insert_str(0, "no passage is near enough to the question; ");
    } else if !passages.is_empty() {
        let _ = write!(reason, "; {} given", passages.len());
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(span: (usize, usize), text: &str) -> ChunkRow {
        ChunkRow { id: 1, content: 1, number: 0, span, text: text.to_owned() }
    }

    #[test]
    fn a_neighbour_gives_only_what_is_new() {
        let text = format!("{}{}", "a".repeat(50), " b".repeat(50));
        let row = row((100, 100 + text.chars().count()), &text);
        let (span, rest) = without_overlap(&row, [(50, 150)].into_iter()).unwrap();
        assert_eq!(span, (151, 250));
        assert!(rest.starts_with("b b") && rest.chars().count() == span.1 - span.0);
        let (span, rest) = without_overlap(&row, [(160, 400)].into_iter()).unwrap();
        assert_eq!((span, rest.chars().count()), ((100, 160), 60));
        assert!(without_overlap(&row, [(90, 240)].into_iter()).is_none());
        assert_eq!(without_overlap(&row, [(300, 400)].into_iter()).unwrap().0, row.span);
    }
}
