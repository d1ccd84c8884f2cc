//! The last lines of a server's stderr and log messages, in bounded memory whatever the server writes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::level;
use super::log_file::LogFile;

/// Lines that are kept (fixed).
const LINES: usize = 500;
/// Bytes of all kept lines together (fixed).
const BYTES: usize = 256 * 1024;
/// Bytes of a line that are kept (fixed); what follows up to the line's end is dropped and marked.
const LINE: usize = 2000;
/// What a line that was cut ends with.
const CUT: &str = " [line cut]";
/// Bytes that are read at once.
const CHUNK: usize = 8 * 1024;
/// The lines shown with a server's state; the log has the others.
const SHOWN: usize = 50;
/// What goes into the log file within a second (fixed); the rest is counted.
const FILE_LINES: u32 = 500;
const FILE_BYTES: usize = 256 * 1024;

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::mcp) struct Line {
    pub(in crate::mcp) at: SystemTime,
    pub(in crate::mcp) level: Option<&'static str>,
    /// Whether the server sent it as a log message, and did not write it to stderr.
    pub(in crate::mcp) sent: bool,
    pub(in crate::mcp) text: String,
}

/// A bounded ring of lines, shared by the reader, the connection and the screen.
#[derive(Debug, Default)]
pub(in crate::mcp) struct Tail {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<Line>,
    /// Bytes of all lines.
    size: usize,
    partial: Vec<u8>,
    cut: bool,
    /// Lines ever kept.
    count: u64,
    /// Times that something came from stderr.
    heard: u64,
    file: Option<Filed>,
}

/// The way into the log file, with its limits.
#[derive(Debug)]
struct Filed {
    file: LogFile,
    since: Instant,
    lines: u32,
    bytes: usize,
    left_out: u64,
}

impl Tail {
    /// A ring whose lines also go into a file.
    pub(in crate::mcp) fn with_file(file: LogFile) -> Self {
        let filed = Filed { file, since: Instant::now(), lines: 0, bytes: 0, left_out: 0 };
        Self { ring: Mutex::new(Ring { file: Some(filed), ..Ring::default() }) }
    }

    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last lines, oldest first: those that are shown with the state.
    pub(in crate::mcp) fn lines(&self) -> Vec<String> {
        self.newest(SHOWN).into_iter().map(|line| line.text).collect()
    }

    /// The last lines, at most so many, oldest first.
    pub(in crate::mcp) fn newest(&self, most: usize) -> Vec<Line> {
        let ring = self.lock();
        ring.lines.iter().skip(ring.lines.len().saturating_sub(most)).cloned().collect()
    }

    /// The last lines that came after [`Tail::count`] was `mark`, at most `most`, oldest first.
    pub(in crate::mcp) fn since(&self, mark: u64, most: usize) -> Vec<Line> {
        let fresh = usize::try_from(self.count().saturating_sub(mark)).unwrap_or(usize::MAX);
        self.newest(fresh.min(most))
    }

    /// How many lines were ever kept.
    pub(in crate::mcp) fn count(&self) -> u64 {
        self.lock().count
    }

    /// Grows with every sign of life on stderr, also with one that is no whole line yet.
    pub(in crate::mcp) fn heard(&self) -> u64 {
        self.lock().heard
    }

    /// Adds a line of our own.
    pub(in crate::mcp) fn note(&self, text: &str) {
        let text: String = text.chars().take(LINE).collect();
        self.lock().keep(None, false, format!("[handrail] {text}"));
    }

    /// Adds what the server sent as a log message, with the level in its words.
    pub(in crate::mcp) fn note_level(&self, level: &str, text: &str) {
        let level = level::named(level);
        let mut ring = self.lock();
        // A message may be long and have lines: as many as would push out everything else are enough.
        for line in text.lines().take(LINES) {
            let line = readable(&line.chars().take(LINE).collect::<String>());
            if !line.trim().is_empty() {
                ring.keep(level, true, line);
            }
        }
    }

    /// Reads until the end. Never stops early: a full pipe would stop the server.
    pub(super) async fn drain(&self, mut stderr: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; CHUNK];
        loop {
            match stderr.read(&mut chunk).await {
                Ok(0) | Err(_) => break,
                Ok(length) => self.lock().push(&chunk[..length]),
            }
        }
        let mut ring = self.lock();
        ring.end_line();
        if let Some(file) = &mut ring.file {
            file.say_what_was_left_out();
        }
    }
}

impl Ring {
    fn push(&mut self, bytes: &[u8]) {
        self.heard += 1;
        // A carriage return ends a line too: progress bars then show as their last state and stay bounded.
        for piece in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, ends) = match piece.split_last() {
                Some((b'\n' | b'\r', text)) => (text, true),
                _ => (piece, false),
            };
            let room = LINE - self.partial.len();
            self.cut |= text.len() > room;
            self.partial.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let mut line = readable(&String::from_utf8_lossy(&self.partial));
        if self.cut {
            line.push_str(CUT);
        }
        self.partial.clear();
        self.cut = false;
        if !line.trim().is_empty() {
            self.keep(level::of(&line), false, line);
        }
    }

    fn keep(&mut self, level: Option<&'static str>, sent: bool, mut text: String) {
        let end = text.floor_char_boundary(LINE + CUT.len());
        text.truncate(end);
        let line = Line { at: SystemTime::now(), level, sent, text };
        if let Some(file) = &mut self.file {
            file.write(&line);
        }
        self.size += line.text.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES || self.size > BYTES {
            let gone = self.lines.pop_front().map_or(0, |line| line.text.len());
            self.size -= gone;
        }
        self.count += 1;
    }
}

impl Filed {
    fn write(&mut self, line: &Line) {
        if self.since.elapsed() >= Duration::from_secs(1) {
            self.say_what_was_left_out();
            (self.since, self.lines, self.bytes) = (Instant::now(), 0, 0);
        }
        if self.lines >= FILE_LINES || self.bytes + line.text.len() > FILE_BYTES || !self.file.write(stamped(line)) {
            self.left_out += 1;
            return;
        }
        self.lines += 1;
        self.bytes += line.text.len();
    }

    fn say_what_was_left_out(&mut self) {
        if self.left_out > 0 {
            let text = format!("[handrail] {} lines left out", self.left_out);
            if self.file.write(stamped(&Line { at: SystemTime::now(), level: None, sent: false, text })) {
                self.left_out = 0;
            }
        }
    }
}

fn stamped(line: &Line) -> String {
    let at = jiff::Timestamp::try_from(line.at).map(|at| format!("{at:.3}")).unwrap_or_default();
    format!("{at} {:<7} {}", line.level.unwrap_or("-"), line.text)
}

/// The text without terminal escapes and control characters.
fn readable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                // CSI: parameters up to a letter. Any other escape is one character long.
                if characters.next() == Some('[') {
                    let _ = characters.find(|next| ('@'..='~').contains(next));
                }
            }
            '\t' => out.push('\t'),
            control if control.is_control() => {}
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::log_file::Logs;
    use super::*;

    fn texts(tail: &Tail, mark: u64, most: usize) -> Vec<String> {
        tail.since(mark, most).into_iter().map(|line| line.text).collect()
    }

    fn pushed(chunks: &[&[u8]]) -> Tail {
        let tail = Tail::default();
        for chunk in chunks {
            tail.lock().push(chunk);
        }
        tail
    }

    #[test]
    fn lines_are_put_together_across_chunks_and_cleaned() {
        let tail = pushed(&[b"fir", b"st\nse", b"cond\r\n\n\x1b[31mred\x1b[0m\n\xff\xfe\n"]);
        assert_eq!(tail.lines(), ["first", "second", "red", "\u{fffd}\u{fffd}"]);
        assert_eq!(texts(&tail, 0, 1), ["\u{fffd}\u{fffd}"]);
        assert_eq!((tail.count(), tail.heard()), (4, 3));
    }

    #[test]
    fn a_flood_without_newlines_stays_small_and_is_marked() {
        let tail = Tail::default();
        let chunk = vec![b'x'; CHUNK];
        for _ in 0..10_000 {
            tail.lock().push(&chunk);
        }
        assert!(tail.lock().partial.capacity() <= 2 * LINE);
        tail.lock().push(b"\nnext\n");
        let lines = tail.lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with("x [line cut]") && lines[0].len() == LINE + CUT.len());
    }

    #[test]
    fn only_the_last_lines_are_kept_by_number_and_by_size() {
        let tail = Tail::default();
        for number in 0..1000 {
            tail.lock().push(format!("{number}\n").as_bytes());
        }
        assert_eq!((tail.newest(usize::MAX).len(), tail.lines().len()), (LINES, SHOWN));
        assert_eq!(texts(&tail, 0, 1), ["999"]);
        assert_eq!(texts(&tail, 998, 20), ["998", "999"]);
        assert!(tail.since(1000, 20).is_empty());
        for number in 0..1000 {
            tail.lock().push(format!("{number:01999}\n").as_bytes());
        }
        let kept = tail.newest(usize::MAX);
        let size: usize = kept.iter().map(|line| line.text.len()).sum();
        assert!(size <= BYTES && size > BYTES - LINE && size == tail.lock().size, "{size}");
        assert!(kept.last().unwrap().text.ends_with("999"));
    }

    #[test]
    fn lines_have_levels_from_their_first_word_or_from_the_protocol() {
        let tail = pushed(&[b"WARN late\nplain\n"]);
        tail.note("error: our own words are neutral");
        tail.note_level("critical", "two\n\nlines\x07");
        tail.note_level("odd", "x");
        let kept: Vec<_> = tail.newest(10).into_iter().map(|line| (line.level, line.text)).collect();
        let kept: Vec<_> = kept.iter().map(|(level, text)| (*level, text.as_str())).collect();
        assert_eq!(
            kept,
            [
                (Some("warning"), "WARN late"),
                (None, "plain"),
                (None, "[handrail] error: our own words are neutral"),
                (Some("error"), "two"),
                (Some("error"), "lines"),
                (None, "x")
            ]
        );
        tail.note_level("info", &"多".repeat(100_000));
        assert!(tail.newest(1)[0].text.len() <= LINE + CUT.len());
    }

    #[tokio::test]
    async fn the_file_gets_a_bounded_number_of_lines_a_second_and_the_number_of_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().to_owned());
        let tail = Tail::with_file(logs.of("s"));
        let flood: String = (0..20_000).map(|number| format!("info {number}\n")).collect();
        tail.drain(flood.as_bytes()).await;
        logs.flush().await;
        let text = std::fs::read_to_string(folder.path().join("s.log")).unwrap();
        let (mut written, mut left_out) = (0, 0);
        for line in text.lines() {
            match line.split_once("[handrail] ") {
                Some((_, note)) => left_out += note.split(' ').next().unwrap().parse::<u32>().unwrap(),
                None => written += 1,
            }
        }
        // More than one second may have passed on a busy machine.
        assert!(written >= 400 && left_out > 0, "{written} {left_out}");
        assert_eq!(written + left_out, 20_000);
        assert!(text.lines().next().unwrap().contains("Z info    info 0"), "{text:.100}");
        assert_eq!(tail.count(), 20_000);
    }
}
