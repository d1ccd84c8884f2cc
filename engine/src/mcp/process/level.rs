//! How serious a line is, where it says so itself.

use serde_json::Value;

/// Words in front of a line that are looked at: a time stamp, or two, may come before the level.
const WORDS: usize = 4;

/// The level that a word names, in the usual spellings and in those of the protocol.
pub(in crate::mcp) fn named(word: &str) -> Option<&'static str> {
    let word = word.to_ascii_lowercase();
    Some(match word.as_str() {
        "trace" | "debug" | "dbg" | "debg" | "verbose" | "silly" => "debug",
        "info" | "inf" | "information" | "informational" | "notice" => "info",
        "warn" | "warning" | "wrn" => "warning",
        "error" | "err" | "eror" | "fatal" | "critical" | "crit" | "panic" | "severe" | "alert" | "emergency" | "emerg" => "error",
        _ => return None,
    })
}

/// The level of a line of stderr: that of its first word, or of its JSON.
pub(in crate::mcp) fn of(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    if line.starts_with('{') {
        return of_json(line);
    }
    for word in line.split_whitespace().take(WORDS) {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        // "error:" and "[warn]", and "ERROR:module:text" as Python writes it.
        let first = bare.split([':', ']', '|']).next().unwrap_or_default();
        let first = first.strip_prefix("level=").unwrap_or(first);
        if let Some(level) = named(first) {
            return Some(level);
        }
        // Only a time stamp may come before it: in a sentence these words mean something else.
        let stamp = bare.is_empty()
            || (bare.starts_with(|c: char| c.is_ascii_digit()) && bare.chars().all(|c| !c.is_alphabetic() || "TZAPMapm".contains(c)));
        if !stamp {
            return None;
        }
    }
    None
}

fn of_json(line: &str) -> Option<&'static str> {
    let value: Value = serde_json::from_str(line).ok()?;
    let level = ["level", "severity", "lvl", "levelname"].into_iter().find_map(|name| value.get(name))?;
    match level {
        Value::String(word) => named(word),
        // The numbers of pino and bunyan.
        Value::Number(number) => match number.as_u64()? {
            10..=29 => Some("debug"),
            30..=39 => Some("info"),
            40..=49 => Some("warning"),
            50..=69 => Some("error"),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_or_the_json_decides_and_everything_else_is_neutral() {
        for (line, level) in [
            ("DEBUG starting", Some("debug")),
            ("[INFO] listening", Some("info")),
            ("info: listening", Some("info")),
            ("WARN  deprecated", Some("warning")),
            ("npm warn deprecated x", None),
            ("(warning) late", Some("warning")),
            ("Error: no key", Some("error")),
            ("ERROR:root:no key", Some("error")),
            ("FATAL no key", Some("error")),
            ("2026-11-30T20:00:01.123Z ERROR no key", Some("error")),
            ("2026-11-30 20:00:01,123 - WARNING - late", Some("warning")),
            ("[2026-11-30 20:00:01] warn late", Some("warning")),
            ("level=info msg=x", Some("info")),
            ("there was an error", None),
            ("Secure MCP Filesystem Server running on stdio", None),
            ("5 errors found", None),
            ("", None),
            (r#"{"level":"warn","msg":"x"}"#, Some("warning")),
            (r#"{"msg":"x","level":50}"#, Some("error")),
            (r#"{"severity":"NOTICE"}"#, Some("info")),
            (r#"{"level":"#, None),
            (r#"{"level":"odd"}"#, None),
        ] {
            assert_eq!(of(line), level, "{line}");
        }
    }
}
