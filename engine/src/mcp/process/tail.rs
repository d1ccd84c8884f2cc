//! The last lines of a server's stderr, in bounded memory whatever the server writes.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Lines that are kept.
const LINES: usize = 200;
/// Bytes of a line that are kept; what follows up to the line's end is dropped and marked.
const LINE: usize = 2000;
/// Bytes that are read at once.
const CHUNK: usize = 8 * 1024;

/// A bounded ring of lines, shared by the reader, the connection and the screen. At most `LINES * LINE` bytes.
#[derive(Debug, Default)]
pub(in crate::mcp) struct Tail {
    ring: Mutex<Ring>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<String>,
    partial: Vec<u8>,
    cut: bool,
    count: u64,
}

impl Tail {
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last lines, oldest first.
    pub(in crate::mcp) fn lines(&self) -> Vec<String> {
        self.lock().lines.iter().cloned().collect()
    }

    /// The last lines that were written after [`Tail::count`] was `mark`, at most `most`, oldest first.
    pub(in crate::mcp) fn since(&self, mark: u64, most: usize) -> Vec<String> {
        let ring = self.lock();
        let fresh = usize::try_from(ring.count.saturating_sub(mark)).unwrap_or(usize::MAX);
        ring.lines.iter().skip(ring.lines.len().saturating_sub(fresh.min(most))).cloned().collect()
    }

    /// How many lines were ever written: grows with every sign of life.
    pub(in crate::mcp) fn count(&self) -> u64 {
        self.lock().count
    }

    /// Adds a line of our own.
    pub(in crate::mcp) fn note(&self, text: &str) {
        self.lock().keep(format!("[handrail] {text}"));
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
        self.lock().end_line();
    }
}

impl Ring {
    fn push(&mut self, bytes: &[u8]) {
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
            line.push_str(" [line cut]");
        }
        self.partial.clear();
        self.cut = false;
        if !line.trim().is_empty() {
            self.keep(line);
        }
    }

    fn keep(&mut self, mut line: String) {
        let end = line.floor_char_boundary(LINE + " [line cut]".len());
        line.truncate(end);
        if self.lines.len() == LINES {
            let _ = self.lines.pop_front();
        }
        self.lines.push_back(line);
        self.count += 1;
    }
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
    use super::*;

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
        assert_eq!(tail.since(0, 1), ["\u{fffd}\u{fffd}"]);
        assert_eq!(tail.count(), 4);
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
        assert!(lines[0].ends_with("x [line cut]") && lines[0].len() == LINE + " [line cut]".len());
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let tail = Tail::default();
        for number in 0..1000 {
            tail.lock().push(format!("{number}\n").as_bytes());
        }
        assert_eq!(tail.lines().len(), LINES);
        assert_eq!(tail.since(0, 1), ["999"]);
        assert_eq!(tail.since(998, 20), ["998", "999"]);
        assert!(tail.since(1000, 20).is_empty());
    }
}
