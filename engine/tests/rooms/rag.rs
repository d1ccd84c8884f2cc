//! The library from a file to a cited passage.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use handrail_engine::conversation::DocumentId;
use handrail_engine::embedding::{self, Embedder};
use handrail_engine::rag::retrieve::Way;
use handrail_engine::rag::{Document, DocumentState, Error, Library, Progress, cite};
use handrail_engine::store::Store;
use sipper::Sipper as _;

use super::rag_pdf::{self, Pdf};
use super::rag_worker::worker;

const LIMIT: u64 = 20_000_000;

/// An embedder of its own kind: the hashed three-letter pieces of a text. Texts that share words are near, others are
/// not; it can be told to fail.
#[derive(Debug)]
struct Trigrams {
    model: &'static str,
    embedded: AtomicUsize,
    fails_from: usize,
}

impl Trigrams {
    fn new() -> Arc<Self> {
        Self::failing_from(usize::MAX)
    }

    fn failing_from(fails_from: usize) -> Arc<Self> {
        Arc::new(Self { model: "trigrams", embedded: AtomicUsize::new(0), fails_from })
    }

    fn embedded(&self) -> usize {
        self.embedded.load(Ordering::SeqCst)
    }
}

impl Embedder for Trigrams {
    fn model(&self) -> &str {
        self.model
    }
    fn dimension(&self) -> usize {
        256
    }
    fn window(&self) -> usize {
        254
    }
    fn token_spans(&self, text: &str) -> Result<Vec<(usize, usize)>, embedding::Error> {
        let mut spans = Vec::new();
        let mut start = None;
        for (at, character) in text.char_indices().chain([(text.len(), ' ')]) {
            match (start, character.is_whitespace()) {
                (None, false) => start = Some(at),
                (Some(from), true) => {
                    spans.push((from, at));
                    start = None;
                }
                _ => {}
            }
        }
        Ok(spans)
    }
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, embedding::Error> {
        let before = self.embedded.fetch_add(texts.len(), Ordering::SeqCst);
        if before + texts.len() > self.fails_from {
            return Err(embedding::Error::Compute("out of luck".to_owned()));
        }
        Ok(texts.iter().map(|text| vector(text)).collect())
    }
}

fn vector(text: &str) -> Vec<f32> {
    let letters: Vec<char> = text.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
    let mut vector = vec![0.0_f32; 256];
    for three in letters.windows(3) {
        let hash = three.iter().fold(17_u32, |hash, c| hash.wrapping_mul(31).wrapping_add(*c as u32));
        vector[hash as usize % 256] += 1.0;
    }
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt().max(1e-6);
    vector.iter().map(|value| value / length).collect()
}

struct Place {
    folder: tempfile::TempDir,
    library: Library,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let library = library(folder.path());
        Self { folder, library }
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    async fn add(&self, name: &str, bytes: impl AsRef<[u8]>) -> Document {
        self.library.ingest(&self.file(name, bytes), LIMIT).await.unwrap()
    }
}

fn library(folder: &Path) -> Library {
    let store = Store::open(&folder.join("handrail.db")).unwrap();
    Library::new(store, worker(), folder.join("index"))
}

fn partly(document: &Document) -> &str {
    match &document.state {
        DocumentState::Partly { reason } => reason,
        other => panic!("{other:?}"),
    }
}

async fn until(what: impl Fn() -> bool) {
    let started = Instant::now();
    while !what() {
        assert!(started.elapsed() < Duration::from_secs(20), "it never happened");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_pdf_becomes_passages_with_pages_and_places() {
    let place = Place::new();
    place.library.set_embedder(Some(Trigrams::new()));
    let pdf = Pdf::of_text(&[
        &["The coolant pump must run at 4.2 bar."],
        &["Nothing of interest stands on this page."],
        &["The warranty ends after thirty-six months."],
    ]);
    let path = place.file("manual.pdf", pdf.bytes());
    let mut ingest = place.library.ingest(&path, LIMIT).pin();
    let mut steps = Vec::new();
    while let Some(step) = ingest.sip().await {
        steps.push(step);
    }
    let document = ingest.await.unwrap();
    assert_eq!((document.state.clone(), document.pages, document.name.as_str()), (DocumentState::Ready, Some(3), "manual.pdf"));
    assert!(steps.contains(&Progress::Reading { done: 3, total: Some(3) }), "{steps:?}");
    assert!(matches!(steps.last(), Some(Progress::Embedding { done, total }) if done == total), "{steps:?}");

    let found = place.library.retrieve(&[document.id], "When does the warranty end?", 3).unwrap();
    let text = place.library.text(document.id).unwrap();
    let first = &found.passages[0];
    assert!(first.text.contains("thirty-six months") && first.number == 1 && first.name == "manual.pdf", "{found:?}");
    let by_span: String = text.chars().skip(first.span.0).take(first.span.1 - first.span.0).collect();
    assert_eq!(by_span, first.text);
    assert_eq!(
        found.ways.iter().map(|leg| (leg.way, leg.skipped.is_none())).collect::<Vec<_>>(),
        [(Way::Words, true), (Way::Vectors, true)]
    );
    assert!(found.legs.len() == found.passages.len() && found.legs[0].words.is_some() && found.legs[0].cosine.is_some());
    let at = text.chars().collect::<Vec<_>>().windows(8).position(|w| w.iter().collect::<String>() == "warranty").unwrap();
    let anchors = place.library.places(document.id, (at, at + 8)).unwrap();
    assert_eq!((anchors.len(), anchors[0].page), (1, Some(3)));
    assert!(anchors[0].area.is_some());
    assert_eq!(cite::citations("It ends after thirty-six months of warranty.", &found.passages), [1]);
}

#[tokio::test]
async fn a_fact_on_page_one_and_one_on_page_three_are_cited_there() {
    let place = Place::new();
    let filler: Vec<String> = (0..40).map(|n| format!("Line {n} tells about ordinary matters such as gravel, paint and timber.")).collect();
    let page = |fact: &'static str| -> Vec<&str> { std::iter::once(fact).chain(filler.iter().map(String::as_str)).collect() };
    let pages = [page("The zebrafish tank holds ninety litres."), page("Chapter two."), page("The quokka enclosure opens in April.")];
    let pages: Vec<&[&str]> = pages.iter().map(Vec::as_slice).collect();
    let paged = place.add("zoo.pdf", Pdf::of_text(&pages).bytes()).await;
    let plain = place.add("plain.txt", "The axolotl pool is closed on Mondays.").await;
    let ids = [paged.id, plain.id];
    let best = |query: &str| place.library.retrieve(&ids, query, 1).unwrap().passages.remove(0);
    assert_eq!(best("zebrafish tank litres").page, Some(1));
    assert_eq!(best("quokka enclosure").page, Some(3));
    let axolotl = best("axolotl pool");
    assert_eq!((axolotl.page, axolotl.document), (None, plain.id));
}

#[tokio::test]
async fn without_an_embedder_words_are_enough_and_one_that_comes_later_fills_in() {
    let place = Place::new();
    let document = place.add("a.txt", "Box XC23 contains 1 toy.\n\nBox HJ22 contains 2 games.").await;
    assert!(partly(&document).contains("no embedding model"), "{document:?}");
    let found = place.library.retrieve(&[document.id], "XC23", 3).unwrap();
    assert!(found.passages[0].text.contains("XC23"));
    assert!(found.reason.contains("words only") && found.ways[1].skipped.is_some(), "{found:?}");

    let mut events = place.library.subscribe();
    let embedder = Trigrams::new();
    place.library.set_embedder(Some(embedder.clone()));
    until(|| place.library.documents().unwrap()[0].state == DocumentState::Ready).await;
    let event = tokio::time::timeout(Duration::from_secs(10), events.recv()).await.unwrap().unwrap();
    assert_eq!((event.id, event.state), (document.id, DocumentState::Ready));
    let embedded = embedder.embedded();
    place.library.set_embedder(Some(embedder.clone()));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(embedder.embedded(), embedded);
}

#[tokio::test]
async fn an_embedder_that_fails_half_way_leaves_words_and_a_reason_and_the_next_one_goes_on() {
    let place = Place::new();
    let paragraphs: Vec<String> =
        (0..300).map(|n| format!("Paragraph {n} is about item {}. {}", n * 31, "It goes on and on. ".repeat(20))).collect();
    place.library.set_embedder(Some(Trigrams::failing_from(40)));
    let document = place.add("long.txt", paragraphs.join("\n\n")).await;
    assert!(document.chunks > 80, "{document:?}");
    assert!(partly(&document).contains("out of luck"), "{document:?}");
    let found = place.library.retrieve(&[document.id], "item 9269", 2).unwrap();
    assert!(found.passages[0].text.contains("item 9269"), "{found:?}");
    assert!(found.reason.contains("out of luck"), "{}", found.reason);

    // As after a restart: the vectors that were stored are not made again.
    let next = Trigrams::new();
    let again = library(place.folder.path());
    again.set_embedder(Some(next.clone()));
    until(|| again.documents().unwrap()[0].state == DocumentState::Ready).await;
    assert_eq!(next.embedded(), document.chunks - 32);
}

#[tokio::test]
async fn text_counted_by_an_estimate_is_cut_anew_for_the_embedder() {
    let place = Place::new();
    let document = place.add("a.txt", "Some words that go on. ".repeat(400)).await;
    place.library.set_embedder(Some(Trigrams::new()));
    until(|| place.library.documents().unwrap()[0].state == DocumentState::Ready).await;
    let now = &place.library.documents().unwrap()[0];
    assert!(now.chunks > 1 && now.chunks != document.chunks, "{} and {}", now.chunks, document.chunks);
    assert!(!place.library.retrieve(&[document.id], "words that go on", 2).unwrap().passages.is_empty());
}

#[tokio::test]
async fn the_same_bytes_are_read_and_embedded_once() {
    let place = Place::new();
    let embedder = Trigrams::new();
    place.library.set_embedder(Some(embedder.clone()));
    let text = "The archive key lies under the third stone.";
    let (one, two) = (place.file("a/one.txt", text), place.file("b/two.txt", text));
    let (first, again, second) =
        tokio::join!(place.library.ingest(&one, LIMIT), place.library.ingest(&one, LIMIT), place.library.ingest(&two, LIMIT));
    let (first, again, second) = (first.unwrap(), again.unwrap(), second.unwrap());
    assert_eq!(first.id, again.id);
    assert_ne!(first.id, second.id);
    assert_eq!(embedder.embedded(), 1);
    let found = place.library.retrieve(&[first.id, second.id], "archive key stone", 6).unwrap();
    assert_eq!(found.passages.len(), 1);
    place.library.remove(first.id).unwrap();
    assert!(matches!(place.library.remove(first.id), Err(Error::Unknown(_))));
    assert_eq!(place.library.retrieve(&[second.id], "archive key", 6).unwrap().passages.len(), 1);
    let found = place.library.retrieve(&[first.id], "archive key", 6).unwrap();
    assert!(found.passages.is_empty() && found.reason.contains("no longer in the library"), "{found:?}");
}

#[tokio::test]
async fn only_the_chosen_documents_are_searched_and_each_passage_opens_its_own_file() {
    let place = Place::new();
    place.library.set_embedder(Some(Trigrams::new()));
    let mut ids: Vec<DocumentId> = Vec::new();
    for n in 0..10 {
        let fact = if n == 7 { "The vault code is kept by Agatha." } else { "The garden is watered in the evening." };
        ids.push(place.add(&format!("file{n}.txt"), format!("File number {n}. {fact} Entry {}.", n * 1009)).await.id);
    }
    let found = place.library.retrieve(&ids, "Who keeps the vault code?", 10).unwrap();
    assert_eq!((found.passages[0].document, found.passages[0].name.as_str()), (ids[7], "file7.txt"));
    for (at, passage) in found.passages.iter().enumerate() {
        assert_eq!(passage.number, at + 1);
        let text = place.library.text(passage.document).unwrap();
        assert!(text.contains(&passage.text));
    }
    let others = place.library.retrieve(&ids[..7], "Who keeps the vault code?", 10).unwrap();
    assert!(others.passages.iter().all(|passage| !passage.text.contains("Agatha")));
}

#[tokio::test]
async fn a_greeting_brings_no_passages() {
    let place = Place::new();
    place.library.set_embedder(Some(Trigrams::new()));
    let document = place.add("a.txt", "The coolant pump must run at 4.2 bar.").await;
    for query in ["Hello", "Hi, how are you?", "", "\" OR * NEAR(", "謝謝"] {
        let found = place.library.retrieve(&[document.id], query, 6).unwrap();
        assert!(found.passages.is_empty() && !found.reason.is_empty(), "{query}: {found:?}");
    }
    assert!(place.library.retrieve(&[], "pump", 6).unwrap().passages.is_empty());
}

#[tokio::test]
async fn chinese_and_arabic_are_found_by_their_words() {
    let place = Place::new();
    let (gbk, _, _) = encoding_rs::GBK.encode("错误代码 E-4021：冷却泵压力过低。请检查阀门。");
    let chinese = place.add("a.txt", &*gbk).await;
    let arabic = place.add("b.md", "# دليل\n\nضغط مضخة التبريد منخفض جدا.\n").await;
    let ids = [chinese.id, arabic.id];
    let best = |query: &str| place.library.retrieve(&ids, query, 2).unwrap().passages.remove(0).document;
    assert_eq!(best("冷却泵怎么了"), chinese.id);
    assert_eq!(best("مضخة التبريد"), arabic.id);
    assert_eq!(best("E-4021"), chinese.id);
}

#[tokio::test]
async fn neighbouring_chunks_do_not_repeat_their_overlap() {
    let place = Place::new();
    let text: String = (0..400).map(|n| format!("The reactor log entry {n} mentions reactor valve {}. ", n * 37)).collect();
    let document = place.add("log.txt", text).await;
    let found = place.library.retrieve(&[document.id], "reactor valve", 6).unwrap();
    assert!(found.passages.len() > 2);
    for one in &found.passages {
        for other in found.passages.iter().filter(|other| other.number != one.number) {
            assert!(one.span.1 <= other.span.0 || other.span.1 <= one.span.0, "{:?} and {:?}", one.span, other.span);
        }
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_and_leaves_nothing() {
    let place = Place::new();
    let image = place.file("scan.pdf", Pdf::pages(&[rag_pdf::image(), rag_pdf::image()]).bytes());
    let error = place.library.ingest(&image, LIMIT).await.unwrap_err().to_string();
    assert!(error.contains("pages 1–2 of 2 have no text, only an image"), "{error}");
    let large = place.file("large.txt", "x".repeat(2_000_001));
    let error = place.library.ingest(&large, 1_000_000).await.unwrap_err().to_string();
    assert!(error.contains("2 MB, more than the 1 MB"), "{error}");
    for (path, word) in [(place.folder.path().to_owned(), "not a file"), (place.folder.path().join("gone"), "No such file")] {
        let error = place.library.ingest(&path, LIMIT).await.unwrap_err();
        assert!(matches!(&error, Error::File { reason, .. } if reason.contains(word)), "{error}");
    }
    assert!(place.library.documents().unwrap().is_empty());
}

#[tokio::test]
async fn a_document_that_was_read_in_part_says_which_part() {
    let place = Place::new();
    place.library.set_embedder(Some(Trigrams::new()));
    let pdf = Pdf::pages(&[rag_pdf::text(&["The first page speaks."]), rag_pdf::image(), rag_pdf::text(&["The third page speaks."])]);
    let document = place.add("scan.pdf", pdf.bytes()).await;
    assert_eq!(partly(&document), "page 2 of 3 has no text, only an image");
    assert_eq!(library(place.folder.path()).documents().unwrap(), [document]);
}

#[tokio::test]
async fn a_dropped_ingest_leaves_no_document_that_claims_to_be_ready() {
    let place = Place::new();
    place.library.set_embedder(Some(Trigrams::new()));
    let pages: Vec<String> = (0..400).map(|n| rag_pdf::text(&[&format!("Page {n} of many.")])).collect();
    let path = place.file("many.pdf", Pdf::pages(&pages).bytes());
    let mut ingest = place.library.ingest(&path, LIMIT).pin();
    assert!(matches!(ingest.sip().await, Some(Progress::Reading { .. })));
    drop(ingest);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(place.library.documents().unwrap().is_empty());
    let document = place.library.ingest(&path, LIMIT).await.unwrap();
    assert_eq!((document.pages, document.state), (Some(400), DocumentState::Ready));
}

#[tokio::test]
async fn deleting_leaves_no_trace_on_disk() {
    let place = Place::new();
    place.library.set_embedder(Some(Trigrams::new()));
    let kept = place.add("kept.txt", "Ordinary words stay.").await;
    let secret = place.add("secret.txt", "The word is xyzzyplugh, and nobody knows it.").await;
    assert_eq!(place.library.retrieve(&[secret.id], "xyzzyplugh", 3).unwrap().passages.len(), 1);
    std::fs::remove_file(place.folder.path().join("secret.txt")).unwrap();
    place.library.remove(secret.id).unwrap();
    for entry in std::fs::read_dir(place.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(10).any(|window| window == b"xyzzyplugh"), "{}", path.display());
        }
    }
    assert_eq!(place.library.retrieve(&[kept.id], "ordinary words", 3).unwrap().passages.len(), 1);
}
