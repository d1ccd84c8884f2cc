//! What is printed, and where: results on stdout, everything else on stderr.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _};

use serde::Serialize;

/// The two ways of printing.
pub struct Output {
    json: bool,
}

impl Output {
    pub fn new(json: bool) -> Self {
        Self { json }
    }

    /// Whether results are JSON lines.
    pub fn is_json(&self) -> bool {
        self.json
    }

    /// A result: an object with `--json`, a line of text without.
    pub fn result(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        let line =
            if self.json { serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")) } else { text() };
        write_line(&line);
    }

    /// A result with words of others in it (servers, bundles, programs): on a terminal, what would steer it or change
    /// what is read is shown as its number. JSON stays exact.
    pub fn foreign(&self, value: &impl Serialize, text: impl FnOnce() -> String) {
        self.result(value, || if std::io::stdout().is_terminal() { visible(&text()) } else { text() });
    }

    /// Only with `--json`.
    pub fn json(&self, value: &impl Serialize) {
        if self.json {
            self.result(value, String::new);
        }
    }

    /// Only without `--json`: a piece of text as it comes, without a line break.
    pub fn piece(&self, text: &str) {
        if !self.json {
            let mut stdout = std::io::stdout().lock();
            // A closed pipe is how `head` says that it has enough.
            // A model writes in every script, so only what steers a terminal is taken out of its text.
            let text = if stdout.is_terminal() { shown(text, |c| c.is_control() && !matches!(c, '\n' | '\t')) } else { text.to_owned() };
            let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        }
    }

    /// Something worth knowing, on stderr. It often holds words of servers, so a terminal is given it as visible text.
    pub fn note(&self, text: &str) {
        let shown = if std::io::stderr().is_terminal() { visible(text) } else { text.to_owned() };
        let _ = writeln!(std::io::stderr(), "{shown}");
    }

    /// A line that the next one overwrites on a terminal; on other streams it is left out.
    pub fn status(&self, text: &str) {
        if std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K{text}");
        }
    }

    /// Ends the status line.
    pub fn status_end(&self) {
        if std::io::stderr().is_terminal() {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }

    /// The failure that ends the program.
    pub fn failure(&self, failure: &Failure) {
        self.json(&serde_json::json!({ "error": failure.0 }));
        self.note(&format!("handrail-cli: {}", failure.0));
    }
}

/// Text with every character shown as its number that a terminal obeys, or that changes what is read without being
/// seen: controls, marks of writing direction, characters without a width, tags.
pub fn visible(text: &str) -> String {
    shown(text, is_hidden)
}

/// Text with some characters as their numbers.
fn shown(text: &str, hidden: fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if hidden(c) {
            // Writing to a string cannot fail.
            let _ = write!(shown, "⟨U+{:04X}⟩", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// The same characters as in the window.
fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{00ad}'
        | '\u{034f}'
        | '\u{0600}'..='\u{0605}'
        | '\u{061c}'
        | '\u{06dd}'
        | '\u{070f}'
        | '\u{08e2}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{17b4}'
        | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{110bd}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

fn write_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Why the program ends with a status other than 0.
#[derive(Debug)]
pub struct Failure(pub String);

impl Failure {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_or_is_not_seen_is_shown() {
        assert_eq!(visible("a\u{1b}[2Kb\u{202e}c\u{200b}\r"), "a⟨U+001B⟩[2Kb⟨U+202E⟩c⟨U+200B⟩⟨U+000D⟩");
        assert_eq!(visible("Zeile\n\t中文 é 👍"), "Zeile\n\t中文 é 👍");
    }
}
