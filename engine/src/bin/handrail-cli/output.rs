//! What is printed, and where: results on stdout, everything else on stderr.

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
            let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        }
    }

    /// Something worth knowing, on stderr.
    pub fn note(&self, text: &str) {
        let _ = writeln!(std::io::stderr(), "{text}");
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

fn write_line(line: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
}

/// Why the program ends with a status other than 0.
#[derive(Debug)]
pub struct Failure(String);

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
