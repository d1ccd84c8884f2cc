//! One server's entry: what is read from it, and the first thing that is wrong with it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::super::State;
use super::{Error, ServerConfig, Transport};

/// Longest server name; it is part of tool names, log lines and file names.
const LONGEST_NAME: usize = 128;

/// A server's entry as read. Where something is wrong, the rest is still there to be shown, and the server is not
/// started.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::mcp) struct Entry {
    pub(in crate::mcp) config: ServerConfig,
    pub(in crate::mcp) problem: Option<Problem>,
}

/// Why a server is not started.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::mcp) enum Problem {
    /// The entry is wrong.
    Wrong(String),
    /// The entry is right, but this version cannot do it yet.
    Later(String),
}

impl Problem {
    pub(in crate::mcp) fn reason(&self) -> &str {
        match self {
            Self::Wrong(reason) | Self::Later(reason) => reason,
        }
    }
}

impl Entry {
    /// Reads an entry, forgiving the spellings of other programs.
    pub(in crate::mcp) fn read(name: &str, entry: &Value) -> Self {
        let nothing = Map::new();
        let mut reader = Reader { entry: entry.as_object().unwrap_or(&nothing), problem: None };
        if !entry.is_object() {
            reader.wrong("the entry must be an object { … }");
        }
        if name.trim().is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
            reader.wrong(&format!("the name must have 1 to {LONGEST_NAME} characters and no control characters"));
        }
        let transport = reader.transport();
        let config = ServerConfig {
            transport,
            active: reader.active(),
            timeout: reader.seconds("timeout"),
            startup_timeout: reader.seconds("startupTimeout"),
            description: reader.text("description"),
        };
        Self { config, problem: reader.problem }
    }

    /// The state of a server that does not run.
    pub(in crate::mcp) fn resting_state(&self) -> State {
        match &self.problem {
            Some(problem) => State::Failed { reason: problem.reason().to_owned(), exit_code: None },
            None => State::Stopped,
        }
    }

    /// The entry, where nothing is wrong with it.
    pub(in crate::mcp) fn checked(self, name: &str) -> Result<Self, Error> {
        match &self.problem {
            Some(Problem::Wrong(reason)) => Err(Error::Field { server: name.to_owned(), reason: reason.clone() }),
            Some(Problem::Later(_)) | None => Ok(self),
        }
    }
}

struct Reader<'a> {
    entry: &'a Map<String, Value>,
    problem: Option<Problem>,
}

impl Reader<'_> {
    fn wrong(&mut self, reason: &str) {
        // The first finding is the one that explains the others.
        if self.problem.is_none() {
            self.problem = Some(Problem::Wrong(reason.to_owned()));
        }
    }

    fn text(&mut self, field: &str) -> Option<String> {
        match self.entry.get(field) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                self.wrong(&format!("\"{field}\" must be a text"));
                None
            }
        }
    }

    fn transport(&mut self) -> Transport {
        let kind = self.text("type").or_else(|| self.text("transport"));
        let kind = kind.map(|kind| kind.to_lowercase().replace(['-', '_', ' '], ""));
        let command = self.text("command");
        let url = ["url", "serverUrl", "httpUrl"].into_iter().find_map(|field| self.text(field));
        match kind.as_deref() {
            Some("stdio" | "local") => self.stdio(command),
            Some("http" | "streamablehttp" | "remote") => self.http(url),
            Some("sse") => {
                let transport = self.http(url);
                if self.problem.is_none() {
                    let reason = "\"type\": \"sse\" is the old HTTP+SSE transport, which this version cannot speak yet; where the server also offers Streamable HTTP, set \"type\": \"http\"";
                    self.problem = Some(Problem::Later(reason.to_owned()));
                }
                transport
            }
            Some(other) => {
                self.wrong(&format!("\"type\" is \"{other}\"; it must be \"stdio\", \"http\" or \"sse\""));
                self.stdio(command)
            }
            None if command.is_some() && url.is_some() => {
                self.wrong("it has both \"command\" and \"url\"; set \"type\" to \"stdio\" or \"http\"");
                self.stdio(command)
            }
            None if url.is_some() => self.http(url),
            None => self.stdio(command),
        }
    }

    fn stdio(&mut self, command: Option<String>) -> Transport {
        let command = command.unwrap_or_default().trim().to_owned();
        if command.is_empty() {
            self.wrong("\"command\" is missing or empty; it names the program, such as \"npx\" (or give a \"url\")");
        }
        let args = self.args();
        let env = self.pairs("env");
        if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            self.wrong(&format!("\"env\" holds \"{name}\", which is no name for a variable"));
        }
        if args.iter().chain(env.values()).any(|text| text.contains('\0')) || command.contains('\0') {
            self.wrong("\"command\", \"args\" and \"env\" must not hold NUL characters");
        }
        if !self.pairs("headers").is_empty() {
            self.wrong("\"headers\" belongs to an HTTP server; for a program use \"env\"");
        }
        Transport::Stdio { command, args, env, cwd: self.text("cwd").filter(|cwd| !cwd.trim().is_empty()).map(PathBuf::from) }
    }

    fn http(&mut self, url: Option<String>) -> Transport {
        let url = url.unwrap_or_default().trim().to_owned();
        if let Err(reason) = check_url(&url) {
            self.wrong(&reason);
        }
        let headers = self.pairs("headers");
        for (name, value) in &headers {
            if let Err(reason) = check_header(name, value) {
                self.wrong(&reason);
            }
        }
        if !self.pairs("env").is_empty() {
            self.wrong("\"env\" has no effect on an HTTP server; put keys into \"headers\"");
        }
        Transport::Http { url, headers }
    }

    fn args(&mut self) -> Vec<String> {
        match self.entry.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => {
                let texts: Option<Vec<String>> = items.iter().map(scalar).collect();
                texts.unwrap_or_else(|| {
                    self.wrong("\"args\" must hold texts only");
                    Vec::new()
                })
            }
            Some(_) => {
                self.wrong("\"args\" must be a list of texts, one per argument");
                Vec::new()
            }
        }
    }

    fn pairs(&mut self, field: &str) -> BTreeMap<String, String> {
        let mut pairs = BTreeMap::new();
        match self.entry.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                for (name, value) in map {
                    match scalar(value) {
                        Some(text) => drop(pairs.insert(name.clone(), text)),
                        None => self.wrong(&format!("\"{field}\": the value of \"{name}\" must be a text")),
                    }
                }
            }
            Some(_) => self.wrong(&format!("\"{field}\" must be an object of names and texts")),
        }
        pairs
    }

    fn active(&mut self) -> bool {
        let mut active = true;
        for (field, on) in [("active", true), ("isActive", true), ("enabled", true), ("disabled", false)] {
            match self.entry.get(field) {
                None | Some(Value::Null) => {}
                Some(Value::Bool(value)) => active &= *value == on,
                Some(_) => self.wrong(&format!("\"{field}\" must be true or false")),
            }
        }
        active
    }

    fn seconds(&mut self, field: &str) -> Option<u64> {
        let value = match self.entry.get(field) {
            None | Some(Value::Null) => return None,
            Some(value) => value.as_f64(),
        };
        match value {
            Some(seconds) if (1.0..=1e9).contains(&seconds) => Some(seconds.ceil() as u64),
            _ => {
                self.wrong(&format!("\"{field}\" must be a number of seconds, at least 1"));
                None
            }
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Checks an address; a part that is filled in at the start is checked then.
pub(super) fn check_url(url: &str) -> Result<(), String> {
    if url.is_empty() {
        return Err("\"url\" is missing or empty".to_owned());
    }
    if url.contains("${") {
        return Ok(());
    }
    let parsed = reqwest::Url::parse(url).map_err(|error| format!("\"url\" is not an address: {error}"))?;
    if !matches!(parsed.scheme(), "http" | "https") {
        return Err(format!("\"url\" must start with http:// or https://, not {}:", parsed.scheme()));
    }
    if parsed.host_str().is_none_or(str::is_empty) {
        return Err("\"url\" names no host".to_owned());
    }
    Ok(())
}

/// Checks a header; a value that is filled in at the start is checked then. Values are never repeated in the
/// message: they are often keys.
pub(super) fn check_header(name: &str, value: &str) -> Result<(), String> {
    // The transport sets these itself and refuses others' values.
    const RESERVED: [&str; 4] = ["accept", "mcp-session-id", "mcp-protocol-version", "last-event-id"];
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("\"headers\": \"{name}\" is no name for a header"))?;
    if RESERVED.contains(&parsed.as_str()) {
        return Err(format!("\"headers\": \"{name}\" is set by the protocol itself; take it out"));
    }
    if !value.contains("${") && HeaderValue::from_str(value).is_err() {
        return Err(format!("\"headers\": the value of \"{name}\" holds characters that a header cannot carry"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reason(entry: &Value) -> String {
        Entry::read("s", entry).checked("s").unwrap_err().to_string()
    }

    #[test]
    fn the_usual_entries_are_read() {
        let entry = Entry::read(
            "fs",
            &json!({"command": "npx", "args": ["-y", "pkg", 8080, true], "env": {"A": "1", "PORT": 99}, "cwd": "/tmp",
                    "timeout": 1.5, "startupTimeout": 90, "description": "files", "alwaysAllow": []}),
        );
        assert_eq!(entry.problem, None);
        let Transport::Stdio { command, args, env, cwd } = &entry.config.transport else { panic!() };
        assert_eq!((command.as_str(), args.len(), args[2].as_str(), env["PORT"].as_str()), ("npx", 4, "8080", "99"));
        assert_eq!(cwd.as_deref(), Some(std::path::Path::new("/tmp")));
        assert_eq!((entry.config.timeout, entry.config.startup_timeout, entry.config.active), (Some(2), Some(90), true));
        for kind in ["http", "streamable-http", "streamableHttp", "streamable_http"] {
            let entry = Entry::read("h", &json!({"type": kind, "url": "https://h/mcp", "headers": {"X-Key": "${KEY}"}}));
            assert_eq!(entry.problem, None, "{kind}");
            assert!(matches!(entry.config.transport, Transport::Http { .. }));
        }
        assert!(matches!(Entry::read("h", &json!({"serverUrl": "http://h"})).config.transport, Transport::Http { .. }));
    }

    #[test]
    fn every_spelling_of_off_is_off() {
        for off in [json!({"active": false}), json!({"isActive": false}), json!({"enabled": false}), json!({"disabled": true})] {
            let mut entry = off.clone();
            entry["command"] = json!("x");
            assert!(!Entry::read("s", &entry).config.active, "{off}");
        }
        assert!(Entry::read("s", &json!({"command": "x", "disabled": false, "active": true})).config.active);
    }

    #[test]
    fn each_fault_names_server_and_field() {
        for (entry, field) in [
            (json!({"command": " "}), "\"command\""),
            (json!({}), "\"command\""),
            (json!({"command": 3}), "\"command\""),
            (json!({"command": "x", "args": "-y"}), "\"args\""),
            (json!({"command": "x", "args": [["-y"]]}), "\"args\""),
            (json!({"command": "x", "env": {"A=B": "1"}}), "\"env\""),
            (json!({"command": "x", "env": {"A": null}}), "\"A\""),
            (json!({"command": "x", "headers": {"A": "1"}}), "\"headers\""),
            (json!({"command": "x", "timeout": -1}), "\"timeout\""),
            (json!({"command": "x", "timeout": 0}), "\"timeout\""),
            (json!({"command": "x", "startupTimeout": "soon"}), "\"startupTimeout\""),
            (json!({"command": "x", "active": "yes"}), "\"active\""),
            (json!({"command": "x", "url": "http://h"}), "\"type\""),
            (json!({"type": "carrier-pigeon", "command": "x"}), "\"type\""),
            (json!({"type": "http"}), "\"url\""),
            (json!({"url": "not an address"}), "\"url\""),
            (json!({"url": "ftp://h"}), "\"url\""),
            (json!({"url": "http://h", "env": {"A": "1"}}), "\"headers\""),
            (json!({"url": "http://h", "headers": {"bad name": "1"}}), "\"bad name\""),
            (json!({"url": "http://h", "headers": {"X-Key": "secret\nline"}}), "\"X-Key\""),
            (json!({"url": "http://h", "headers": {"Mcp-Session-Id": "1"}}), "\"Mcp-Session-Id\""),
            (json!([]), "object"),
        ] {
            let reason = reason(&entry);
            assert!(reason.contains("'s'") && reason.contains(field), "{entry}: {reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
        assert!(Entry::read("", &json!({"command": "x"})).checked("").is_err());
    }

    #[test]
    fn legacy_sse_is_no_fault_of_the_file() {
        let entry = Entry::read("old", &json!({"type": "sse", "url": "http://h/sse"}));
        assert!(matches!(&entry.problem, Some(Problem::Later(reason)) if reason.contains("HTTP+SSE")), "{entry:?}");
        assert!(entry.checked("old").is_ok());
    }
}
