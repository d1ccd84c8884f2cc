//! The parser child on real and on hostile files: what can be read is read, and nothing harms or holds the parent.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use handrail_engine::rag::load::assemble::assemble;
use handrail_engine::rag::load::{Condition, Part};
use handrail_engine::rag::worker::{Frame, Limits, Summary, parse};
use handrail_engine::rag::{self, Error};
use sipper::Sipper as _;

use super::rag_pdf::{self, Pdf};

/// The program that Cargo built beside this test.
pub fn worker() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_handrail-cli"))
}

/// Tight bounds, so that what runs into them does so soon.
fn tight() -> Limits {
    Limits { cpu_seconds: 4, silence: Duration::from_secs(20), memory: 1 << 30, ..Limits::default() }
}

async fn read_with(name: &str, bytes: &[u8], limits: Limits) -> Result<(Summary, Vec<Part>), Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    read_path(&path, limits).await
}

async fn read_path(path: &Path, limits: Limits) -> Result<(Summary, Vec<Part>), Error> {
    let mut reading = parse(&worker(), path, limits).pin();
    let mut parts = Vec::new();
    while let Some(frame) = reading.sip().await {
        if let Frame::Part(part) = &*frame {
            parts.push(part.clone());
        }
    }
    Ok((reading.await?, parts))
}

async fn read(name: &str, bytes: &[u8]) -> Result<(Summary, Vec<Part>), Error> {
    read_with(name, bytes, Limits::default()).await
}

async fn text_of(pdf: &Pdf) -> String {
    let (_, parts) = read("a.pdf", &pdf.bytes()).await.unwrap();
    assemble(parts, true).text
}

fn reason(result: Result<(Summary, Vec<Part>), Error>) -> String {
    match result {
        Err(Error::Parse { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_page_gives_its_text_and_the_boxes_of_its_lines() {
    let pdf = Pdf::of_text(&[&["The pump runs at 4.2 bar.", "It is blue."]]);
    let (summary, parts) = read("a.pdf", &pdf.bytes()).await.unwrap();
    assert_eq!((summary.opened.pages, summary.parts, summary.problems.len()), (Some(1), 1, 0));
    let line = &parts[0].blocks[0].lines[0];
    assert_eq!(line.text, "The pump runs at 4.2 bar.");
    let [left, top, right, bottom] = line.area.unwrap();
    // 720 points from the bottom of a page of 800.
    assert!((71.0..73.0).contains(&left) && (180.0..205.0).contains(&right), "{line:?}");
    assert!((68.0..75.0).contains(&top) && (80.0..84.0).contains(&bottom), "{line:?}");
}

#[tokio::test]
async fn broken_words_are_joined_and_columns_are_read_in_order() {
    let pdf = Pdf::of_text(&[&["This sentence brings infor-", "mation that is well-known to all of us here."]]);
    assert_eq!(text_of(&pdf).await, "This sentence brings information that is well-known to all of us here.");
    let columns = [
        rag_pdf::at(72.0, 700.0, "The committee reviewed the annual"),
        rag_pdf::at(320.0, 700.0, "approved the budget for the"),
        rag_pdf::at(72.0, 686.0, "report and"),
        rag_pdf::at(320.0, 686.0, "coming fiscal year."),
    ];
    let text = text_of(&Pdf::pages(&[columns.concat()])).await.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(text, "The committee reviewed the annual report and approved the budget for the coming fiscal year.");
}

#[tokio::test]
async fn ligatures_are_taken_apart() {
    let mut pdf = Pdf::pages(&["BT /F1 11 Tf 72 700 Td (\u{1}nancial e\u{2}ciency) Tj ET".to_owned()]);
    pdf.replace(
        3,
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /BaseEncoding /WinAnsiEncoding /Differences [1 /fi /ffi] >> >>",
    );
    assert_eq!(text_of(&pdf).await, "financial efficiency");
}

#[tokio::test]
async fn text_drawn_twice_to_look_bold_is_read_once() {
    let page = [rag_pdf::at(72.0, 700.0, "Annual total"), rag_pdf::at(72.3, 700.0, "Annual total")].concat();
    assert_eq!(text_of(&Pdf::pages(&[page])).await, "Annual total");
}

#[tokio::test]
async fn a_page_that_is_only_an_image_is_named() {
    let pdf = Pdf::pages(&[rag_pdf::text(&["one"]), rag_pdf::image(), rag_pdf::text(&["three"])]);
    let (summary, parts) = read("a.pdf", &pdf.bytes()).await.unwrap();
    assert_eq!(summary.parts, 3);
    assert_eq!(parts[1].condition, Condition::ImageOnly);
    assert_eq!(assemble(parts, true).missing, ["page 2 of 3 has no text, only an image"]);
}

#[tokio::test]
async fn glyphs_without_characters_mark_the_page() {
    // Identity codes into a font that is not there and that says nothing about characters.
    let mut pdf = Pdf::pages(&["BT /F1 11 Tf 72 700 Td <0021002200230024002500260027> Tj ET".to_owned()]);
    pdf.replace(
        3,
        "<< /Type /Font /Subtype /Type0 /BaseFont /Nowhere /Encoding /Identity-H /DescendantFonts [<< /Type /Font /Subtype /CIDFontType2 \
         /BaseFont /Nowhere /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> /DW 500 >>] >>",
    );
    let (_, parts) = read("a.pdf", &pdf.bytes()).await.unwrap();
    assert_eq!(parts[0].condition, Condition::Unreadable { percent: 100 });
}

#[tokio::test]
async fn other_formats_are_refused_by_their_content() {
    let asked = Instant::now();
    for (name, bytes) in
        [("a.pdf", &b"PK\x03\x04 word/document.xml"[..]), ("a.txt", b"\x89PNG\r\n\x1a\n\0\0"), ("a.md", b"<!doctype html><p>")]
    {
        let reason = reason(read(name, bytes).await);
        assert!(reason.starts_with("not supported yet: "), "{reason}");
    }
    assert_eq!(reason(read("a.txt", b"").await), "the file is empty");
    let (summary, _) = read("report.txt", &Pdf::of_text(&[&["really a PDF"]]).bytes()).await.unwrap();
    assert_eq!(summary.opened.format, rag::load::Format::Pdf);
    assert!(asked.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_wrong_worker_and_a_missing_file_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.txt");
    std::fs::write(&file, "text").unwrap();
    for (program, word) in [("/nowhere/handrail", "cannot be started"), ("/bin/true", "no reader")] {
        let error = parse(Path::new(program), &file, tight()).await.unwrap_err().to_string();
        assert!(error.contains(word) && error.contains(program), "{error}");
    }
    let reason = reason(read_path(&folder.path().join("gone.txt"), tight()).await);
    assert!(reason.contains("cannot be opened"), "{reason}");
}

#[tokio::test]
async fn a_cut_off_file_gives_what_is_left_or_a_reason() {
    let pages: Vec<String> = (0..12).map(|n| rag_pdf::text(&[&format!("Page {n} speaks of the number {}.", n * 7919)])).collect();
    let whole = Pdf::pages(&pages).bytes();
    for tenth in 1..10 {
        match read_with("a.pdf", &whole[..whole.len() * tenth / 10], tight()).await {
            Ok((summary, parts)) => {
                assert!(summary.problems.iter().any(|problem| problem.contains("damaged")), "{tenth}: {summary:?}");
                assert_eq!(parts.len() as u32, summary.opened.pages.unwrap());
            }
            Err(Error::Parse { reason, .. }) => assert!(reason.contains("damaged or cut off"), "{tenth}: {reason}"),
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn random_damage_never_holds_or_harms() {
    let pages: Vec<String> = (0..3).map(|n| rag_pdf::text(&[&format!("Page {n} of it"), "has some words", "in a few lines."])).collect();
    let whole = Pdf::pages(&pages).bytes();
    let mut seed = 0x2545_F491_4F6C_DD1D_u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed >> 16).unwrap()
    };
    let (mut read, mut refused) = (0, 0);
    for _ in 0..24 {
        let mut bytes = whole.clone();
        for _ in 0..1 + next() % 12 {
            let at = next() % bytes.len();
            bytes[at] = u8::try_from(next() % 256).unwrap();
        }
        match read_with("a.pdf", &bytes, tight()).await {
            Ok(_) => read += 1,
            Err(Error::Parse { reason, .. }) => {
                assert!(!reason.is_empty());
                refused += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert_eq!(read + refused, 24);
    assert!(read > 0);
}

/// A page between two good ones whose content is this object.
fn with_content(entries: &str, data: &[u8]) -> Vec<u8> {
    let mut pdf = Pdf::pages(&[rag_pdf::text(&["before"]), String::new(), rag_pdf::text(&["after"])]);
    pdf.stream(entries, data);
    pdf.replace(7, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 11 0 R /Resources << /Font << /F1 3 0 R >> >> >>");
    pdf.bytes()
}

#[tokio::test]
async fn a_bomb_costs_its_page_and_no_other() {
    let bytes = with_content("/Filter /FlateDecode", &rag_pdf::bomb(b' ', 2 << 30));
    assert!(bytes.len() < 16 << 20);
    let started = Instant::now();
    let (summary, parts) = read_with("bomb.pdf", &bytes, tight()).await.unwrap();
    let whole = assemble(parts, true);
    assert!(whole.text.contains("before") && whole.text.contains("after"), "{whole:?}");
    assert!(whole.missing.iter().any(|missing| missing.starts_with("page 2 of 3") && missing.contains("memory")), "{whole:?} {summary:?}");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn forms_that_draw_themselves_or_each_other_without_end_are_bounded() {
    let form = |others: &str| format!("/Type /XObject /Subtype /Form /BBox [0 0 10 10] /Resources << /XObject << {others} >> >>");
    let mut own = Pdf::pages(&["/X Do".to_owned(), rag_pdf::text(&["after"])]);
    own.stream(&form("/X 9 0 R"), b"/X Do");
    own.replace(5, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 6 0 R /Resources << /XObject << /X 9 0 R >> >> >>");
    let (_, parts) = read_with("self.pdf", &own.bytes(), tight()).await.unwrap();
    assert!(assemble(parts, true).text.contains("after"));

    let mut many = Pdf::pages(&["/X Do".to_owned(), rag_pdf::text(&["after"])]);
    for level in 0..11 {
        let next = if level == 10 { String::new() } else { format!("/X {} 0 R", 10 + level) };
        let body: &[u8] = if level == 10 { b"q Q" } else { b"/X Do /X Do /X Do /X Do /X Do /X Do /X Do /X Do /X Do /X Do" };
        many.stream(&form(&next), body);
    }
    many.replace(5, "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents 6 0 R /Resources << /XObject << /X 9 0 R >> >> >>");
    let started = Instant::now();
    let (_, parts) = read_with("many.pdf", &many.bytes(), tight()).await.unwrap();
    let whole = assemble(parts, true);
    assert!(whole.text.contains("after"), "{whole:?}");
    // On a machine that is busy with other things the clock may strike before the processor time is used up.
    let bounded = |missing: &String| missing.contains("processor time") || missing.contains("took longer");
    assert!(whole.missing.iter().all(bounded), "{whole:?}");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn deep_nesting_and_false_counts_are_bounded() {
    let deep = [vec![b'['; 200_000], vec![b']'; 200_000]].concat();
    let dicts = ["<</a".repeat(100_000), ">>".repeat(100_000)].concat();
    for content in [deep, dicts.into_bytes(), b"q ".repeat(1_000_000)] {
        let started = Instant::now();
        let (_, parts) = read_with("deep.pdf", &with_content("", &content), tight()).await.unwrap();
        let text = assemble(parts, true).text;
        assert!(text.contains("before") && text.contains("after"), "{text}");
        assert!(started.elapsed() < Duration::from_secs(60));
    }
    for pages in ["<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 >>", "<< /Type /Pages /Kids [] /Count 2147483648 >>"] {
        let pdf = Pdf::raw(&["<< /Type /Catalog /Pages 2 0 R >>", pages]);
        let reason = reason(read_with("loop.pdf", &pdf.bytes(), tight()).await);
        assert!(!reason.is_empty());
    }
}

#[tokio::test]
async fn text_without_end_is_cut_and_says_so() {
    let pages: Vec<String> = (0..20).map(|_| rag_pdf::text(&["a line of forty characters, more or less"])).collect();
    let limits = Limits { characters: 300, ..tight() };
    let (summary, parts) = read_with("long.pdf", &Pdf::pages(&pages).bytes(), limits).await.unwrap();
    assert_eq!(parts.len(), 7);
    assert!(summary.problems[0].contains("only 300 characters"), "{summary:?}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn dropping_the_straw_ends_the_child() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("handrail-drop-test.pdf");
    let pages: Vec<String> = (0..2000).map(|n| rag_pdf::text(&[&format!("page {n}")])).collect();
    std::fs::write(&path, Pdf::pages(&pages).bytes()).unwrap();
    let mut reading = parse(&worker(), &path, Limits::default()).pin();
    assert!(reading.sip().await.is_some());
    let children = || {
        let own = std::process::id().to_string();
        let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(|entry| entry.path());
        all.filter(|process| {
            let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
            let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).map(str::trim) == Some(own.as_str());
            // A process that has ended but was not waited for yet has no command line.
            parent && line.windows(16).any(|window| window == b"--extract-worker")
        })
        .filter(|process| std::fs::read_link(process.join("cwd")).is_ok())
        .count()
    };
    let before = children();
    assert!(before >= 1);
    drop(reading);
    let waited = Instant::now();
    while children() >= before && waited.elapsed() < Duration::from_secs(10) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(children() < before, "the child still runs");
}
