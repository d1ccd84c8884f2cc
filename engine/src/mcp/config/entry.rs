//! One server's entry: what is read from it, and the first thing that is wrong with it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;

use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::super::{Consent, State};
use super::{EraChoice, Error, OAuth, ServerConfig, Transport};

/// Longest server name; it is part of tool names, log lines and file names.
const LONGEST_NAME: usize = 128;

/// A server's entry as read. Where something is wrong, the rest is still there to be shown, and the server is not
/// started.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::mcp) struct Entry {
    pub(in crate::mcp) config: ServerConfig,
    pub(in crate::mcp) problem: Option<Problem>,
    /// What must be agreed to before it is started. Kept here so that whoever reads what to start reads with it whether
    /// that may be started.
    pub(in crate::mcp) consent: Option<Consent>,
    /// What of it is not used as it stands, in words.
    pub(in crate::mcp) notes: Vec<String>,
}

/// What is wrong with an entry; it is not started.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::mcp) struct Problem {
    /// The field that is wrong; with a dot and the name for one of `env` or `headers`.
    field: Option<String>,
    reason: String,
}

impl Problem {
    pub(in crate::mcp) fn reason(&self) -> &str {
        &self.reason
    }
}

impl Entry {
    /// Reads an entry, forgiving the spellings of other programs.
    pub(in crate::mcp) fn read(name: &str, entry: &Value) -> Self {
        let fields = entry.as_object().map(|fields| flat(Cow::Borrowed(fields))).unwrap_or_default();
        let mut reader = Reader::of(&fields);
        if !entry.is_object() {
            reader.wrong("", "the entry must be an object { … }");
        }
        if name.trim().is_empty() || name.chars().count() > LONGEST_NAME || name.chars().any(char::is_control) {
            reader.wrong("name", &format!("the name must have 1 to {LONGEST_NAME} characters and no control characters"));
        }
        let transport = reader.transport();
        let config = ServerConfig {
            transport,
            active: reader.active(),
            timeout: reader.seconds("timeout"),
            startup_timeout: reader.seconds("startupTimeout"),
            description: reader.text("description"),
            capabilities: reader.texts("capabilities"),
            era: reader.era(),
            port: reader.port(),
            // Names of tools are the server's; one with a blank in front is another one.
            disabled_tools: reader.exact("disabledTools"),
            oauth: reader.oauth(),
            env_file: reader.text("envFile").filter(|file| !file.trim().is_empty()),
        };
        if config.env_file.is_some() && !matches!(config.transport, Transport::Stdio { .. }) {
            reader.wrong("envFile", "\"envFile\" has no effect on an HTTP server; put keys into \"headers\"");
        }
        reader.unknown();
        Self { config, problem: reader.problem, consent: None, notes: reader.notes }
    }

    /// The state of a server that does not run.
    pub(in crate::mcp) fn resting_state(&self) -> State {
        match &self.problem {
            Some(problem) => State::Failed { reason: problem.reason().to_owned(), exit_code: None },
            None if self.config.active && self.consent.is_some() => State::NeedsConsent,
            None => State::Stopped,
        }
    }

    /// The entry, where nothing is wrong with it.
    pub(in crate::mcp) fn checked(self, name: &str) -> Result<Self, Error> {
        match &self.problem {
            Some(Problem { field, reason }) => Err(Error::Field { server: name.to_owned(), field: field.clone(), reason: reason.clone() }),
            None => Ok(self),
        }
    }
}

struct Reader<'a> {
    entry: &'a Map<String, Value>,
    problem: Option<Problem>,
    notes: Vec<String>,
}

impl<'a> Reader<'a> {
    const fn of(entry: &'a Map<String, Value>) -> Self {
        Self { entry, problem: None, notes: Vec::new() }
    }

    /// Fields of other programs that have no effect here; those that only say how the other program shows or allows the
    /// server are nobody's loss.
    fn unknown(&mut self) {
        let theirs = self.entry.keys().filter(|field| !KNOWN.contains(&field.as_str()) && !ELSEWHERE.contains(&field.as_str()));
        let names: Vec<String> = theirs.take(UNKNOWN).map(|field| format!("\"{field:.40}\"")).collect();
        if !names.is_empty() {
            self.notes.push(format!("{} have no effect here; they are kept as they are", names.join(", ")));
        }
    }

    /// Notes a finding at a field; none where the name is empty.
    fn wrong(&mut self, field: &str, reason: &str) {
        // The first finding is the one that explains the others.
        if self.problem.is_none() {
            let field = Some(field.to_owned()).filter(|field| !field.is_empty());
            self.problem = Some(Problem { field, reason: reason.to_owned() });
        }
    }

    fn text(&mut self, field: &str) -> Option<String> {
        match self.entry.get(field) {
            None | Some(Value::Null) => None,
            Some(Value::String(text)) => Some(text.clone()),
            Some(_) => {
                self.wrong(field, &format!("\"{field}\" must be a text"));
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
            Some("sse") => match self.http(url) {
                Transport::Http { url, headers } => Transport::Sse { url, headers },
                other => other,
            },
            Some(other) => {
                self.wrong("type", &format!("\"type\" is \"{other}\"; it must be \"stdio\", \"http\" or \"sse\""));
                self.stdio(command)
            }
            None if command.is_some() && url.is_some() => {
                self.wrong("type", "it has both \"command\" and \"url\"; set \"type\" to \"stdio\" or \"http\"");
                self.stdio(command)
            }
            None if url.is_some() => self.http(url),
            None => self.stdio(command),
        }
    }

    fn stdio(&mut self, command: Option<String>) -> Transport {
        let command = command.unwrap_or_default().trim().to_owned();
        if command.is_empty() {
            self.wrong("command", "\"command\" is missing or empty; it names the program, such as \"npx\" (or give a \"url\")");
        }
        let args = self.args();
        let env = self.pairs("env");
        if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
            self.wrong(&format!("env.{name}"), &format!("\"env\" holds \"{name}\", which is no name for a variable"));
        }
        if args.iter().chain(env.values()).any(|text| text.contains('\0')) || command.contains('\0') {
            self.wrong("command", "\"command\", \"args\" and \"env\" must not hold NUL characters");
        }
        if !self.pairs("headers").is_empty() {
            self.wrong("headers", "\"headers\" belongs to an HTTP server; for a program use \"env\"");
        }
        Transport::Stdio { command, args, env, cwd: self.text("cwd").filter(|cwd| !cwd.trim().is_empty()).map(PathBuf::from) }
    }

    fn http(&mut self, url: Option<String>) -> Transport {
        let url = url.unwrap_or_default().trim().to_owned();
        if let Err(reason) = check_url(&url) {
            self.wrong("url", &reason);
        }
        let headers = self.pairs("headers");
        for (name, value) in &headers {
            if let Err(reason) = check_header(name, value) {
                self.wrong(&format!("headers.{name}"), &reason);
            }
        }
        if !self.pairs("env").is_empty() {
            self.wrong("env", "\"env\" has no effect on an HTTP server; put keys into \"headers\"");
        }
        Transport::Http { url, headers }
    }

    /// A list of texts without the blanks around them, each once.
    fn texts(&mut self, field: &str) -> Vec<String> {
        let mut texts: Vec<String> = Vec::new();
        for text in self.exact(field) {
            let text = text.trim();
            if !text.is_empty() && !texts.iter().any(|other| other == text) {
                texts.push(text.to_owned());
            }
        }
        texts
    }

    /// A list of texts as they are, each once.
    fn exact(&mut self, field: &str) -> Vec<String> {
        let found = match self.entry.get(field) {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(Value::Array(items)) => items.iter().map(|item| item.as_str().map(str::to_owned)).collect(),
            Some(_) => None,
        };
        let Some(found) = found else {
            self.wrong(field, &format!("\"{field}\" must be a list of texts"));
            return Vec::new();
        };
        let mut texts: Vec<String> = Vec::new();
        for text in found {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts
    }

    fn era(&mut self) -> EraChoice {
        match self.text("era").as_deref().map(str::to_lowercase).as_deref() {
            None | Some("" | "auto") => EraChoice::Auto,
            Some("legacy") => EraChoice::Legacy,
            Some("modern") => EraChoice::Modern,
            Some(other) => {
                self.wrong("era", &format!("\"era\" is \"{other}\"; it must be \"auto\", \"legacy\" or \"modern\""));
                EraChoice::Auto
            }
        }
    }

    fn port(&mut self) -> Option<u16> {
        self.port_at("port")
    }

    fn port_at(&mut self, field: &str) -> Option<u16> {
        let value = self.entry.get(field).filter(|value| !value.is_null())?;
        let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
        let port = number.and_then(|number| u16::try_from(number).ok()).filter(|port| *port > 0);
        if port.is_none() {
            self.wrong(field, &format!("\"{field}\" must be a number from 1 to 65535"));
        }
        port
    }

    fn oauth(&mut self) -> Option<OAuth> {
        let found = match self.entry.get("oauth") {
            None | Some(Value::Null) => return None,
            Some(Value::Object(found)) => found,
            Some(_) => {
                self.wrong("oauth", "\"oauth\" must be an object with \"clientId\", \"clientSecret\" and \"scopes\"");
                return None;
            }
        };
        let mut inner = Reader::of(found);
        let (client_id, client_secret) = (inner.text("clientId"), inner.text("clientSecret"));
        // Scopes are written as a list, or as one text with blanks between, as the protocol itself does.
        let scopes = match found.get("scopes") {
            Some(Value::String(text)) => text.split_whitespace().map(str::to_owned).collect(),
            _ => inner.texts("scopes"),
        };
        let client_metadata_url = inner.text("clientMetadataUrl");
        if client_metadata_url.as_deref().is_some_and(|url| !is_document(url)) {
            inner.wrong("clientMetadataUrl", "\"clientMetadataUrl\" must be an https:// address with a path");
        }
        let callback_port = inner.port_at("callbackPort");
        let for_itself = match inner.text("grant").as_deref() {
            None | Some("authorization_code") => false,
            Some("client_credentials") => true,
            Some(_) => {
                inner.wrong("grant", "\"grant\" must be \"authorization_code\" or \"client_credentials\"");
                false
            }
        };
        if for_itself && (client_id.is_none() || client_secret.is_none()) {
            inner.wrong("clientSecret", "a \"grant\" of \"client_credentials\" needs \"clientId\" and \"clientSecret\"");
        }
        if let Some(problem) = inner.problem {
            let field = problem.field.as_ref().map_or_else(|| "oauth".to_owned(), |field| format!("oauth.{field}"));
            self.wrong(&field, &format!("\"oauth\": {}", problem.reason()));
        } else if client_secret.is_some() && client_id.is_none() {
            self.wrong("oauth.clientId", "\"oauth\" has a \"clientSecret\" without a \"clientId\"");
        }
        Some(OAuth { client_id, client_secret, scopes, client_metadata_url, callback_port, for_itself })
    }

    fn args(&mut self) -> Vec<String> {
        match self.entry.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => {
                let texts: Option<Vec<String>> = items.iter().map(scalar).collect();
                texts.unwrap_or_else(|| {
                    self.wrong("args", "\"args\" must hold texts only");
                    Vec::new()
                })
            }
            Some(_) => {
                self.wrong("args", "\"args\" must be a list of texts, one per argument");
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
                    if value.is_null() {
                        self.notes.push(format!("\"{field}\": \"{name:.80}\" has no value (null) and is left out"));
                        continue;
                    }
                    match scalar(value) {
                        Some(text) => drop(pairs.insert(name.clone(), text)),
                        None => {
                            let reason = format!("\"{field}\": the value of \"{name}\" must be a text, written in quotes");
                            self.wrong(&format!("{field}.{name}"), &reason);
                        }
                    }
                }
            }
            Some(_) => self.wrong(field, &format!("\"{field}\" must be an object of names and texts")),
        }
        pairs
    }

    fn active(&mut self) -> bool {
        let mut active = true;
        for (field, on) in [("active", true), ("isActive", true), ("enabled", true), ("disabled", false)] {
            match self.entry.get(field) {
                None | Some(Value::Null) => {}
                Some(Value::Bool(value)) => active &= *value == on,
                Some(_) => self.wrong(field, &format!("\"{field}\" must be true or false")),
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
                self.wrong(field, &format!("\"{field}\" must be a number of seconds, at least 1"));
                None
            }
        }
    }
}

/// The fields that are read from an entry; every other one belongs to somebody else.
pub(in crate::mcp) const KNOWN: &[&str] = &[
    "type",
    "transport",
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "active",
    "isActive",
    "enabled",
    "disabled",
    "timeout",
    "startupTimeout",
    "description",
    "capabilities",
    "era",
    "port",
    "disabledTools",
    "oauth",
    "envFile",
];

/// Fields that other programs write for themselves: what they show, and what they allow.
const ELSEWHERE: &[&str] = &[
    "name",
    "id",
    "version",
    "icon",
    "$schema",
    "alwaysAllow",
    "autoApprove",
    "allowedTools",
    "trust",
    "gallery",
    "tags",
    "metadata",
    "source",
    "provider",
    "logo",
    "homepage",
    "dev",
    "bundle",
];
/// Fields without effect that are named.
const UNKNOWN: usize = 8;

/// An entry whose program, arguments and variables are one object, as Zed keeps them, or whose program and arguments are one
/// list, as opencode keeps them, with these side by side and under our names.
pub(in crate::mcp) fn flat(entry: Cow<'_, Map<String, Value>>) -> Cow<'_, Map<String, Value>> {
    let mut entry = entry;
    if entry.contains_key("environment") && !entry.contains_key("env") {
        let fields = entry.to_mut();
        let environment = fields.shift_remove("environment").unwrap_or_default();
        let _ = fields.insert("env".to_owned(), environment);
    }
    if let Some(Value::Array(words)) = entry.get("command").filter(|words| is_command(words)) {
        let (mut words, fields) = (words.clone(), entry.to_mut());
        let command = words.remove(0);
        if let Some(Value::Array(args)) = fields.get("args") {
            words.extend(args.iter().cloned());
        }
        let _ = (fields.insert("command".to_owned(), command), fields.insert("args".to_owned(), words.into()));
    }
    let Some(Value::Object(command)) = entry.get("command").cloned() else { return entry };
    let mut entry = entry.into_owned();
    let _ = entry.shift_remove("command");
    for (theirs, ours) in [("path", "command"), ("args", "args"), ("env", "env")] {
        if let Some(value) = command.get(theirs) {
            let _ = entry.insert(ours.to_owned(), value.clone());
        }
    }
    Cow::Owned(entry)
}

/// Whether a program and its arguments stand in one list.
pub(super) fn is_command(value: &Value) -> bool {
    value.as_array().and_then(|words| words.first()).is_some_and(Value::is_string)
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(truth) => Some(truth.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Whether an address can stand for a client.
fn is_document(url: &str) -> bool {
    reqwest::Url::parse(url).is_ok_and(|url| url.scheme() == "https" && url.path() != "/" && url.fragment().is_none())
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
    let parsed = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| format!("\"headers\": \"{name}\" is no name for a header; it has letters, digits and -, and no blanks"))?;
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
            (json!({"command": "x", "env": {"A": ["1"]}}), "\"A\""),
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
            (json!({"command": "x", "era": "bronze"}), "\"era\""),
            (json!({"command": "x", "era": 1}), "\"era\""),
            (json!({"command": "x", "port": 0}), "\"port\""),
            (json!({"command": "x", "port": 65536}), "\"port\""),
            (json!({"command": "x", "capabilities": "files"}), "\"capabilities\""),
            (json!({"command": "x", "disabledTools": [1]}), "\"disabledTools\""),
            (json!({"url": "http://h", "oauth": "me"}), "\"oauth\""),
            (json!({"url": "http://h", "oauth": {"clientSecret": "secret"}}), "\"clientId\""),
            (json!({"url": "http://h", "oauth": {"clientId": 3}}), "\"clientId\""),
            (json!({"url": "http://h", "oauth": {"clientMetadataUrl": "http://h/client.json"}}), "\"clientMetadataUrl\""),
            (json!({"url": "http://h", "oauth": {"clientMetadataUrl": "https://h"}}), "\"clientMetadataUrl\""),
            (json!({"url": "http://h", "oauth": {"callbackPort": 0}}), "\"callbackPort\""),
            (json!({"url": "http://h", "oauth": {"grant": "password"}}), "\"grant\""),
            (json!({"url": "http://h", "oauth": {"grant": "client_credentials", "clientId": "x"}}), "\"clientSecret\""),
            (json!([]), "object"),
        ] {
            let reason = reason(&entry);
            assert!(reason.contains("'s'") && reason.contains(field), "{entry}: {reason}");
            assert!(!reason.contains("secret"), "{reason}");
        }
        assert!(Entry::read("", &json!({"command": "x"})).checked("").is_err());
    }

    #[test]
    fn a_fault_carries_the_field_that_a_form_shows_it_at() {
        for (entry, wanted) in [
            (json!({"command": ""}), "command"),
            (json!({"command": "x", "args": 1}), "args"),
            (json!({"command": "x", "env": {"A": []}}), "env.A"),
            (json!({"command": "x", "env": {"A=B": "1"}}), "env.A=B"),
            (json!({"url": "ftp://h"}), "url"),
            (json!({"url": "http://h", "headers": {"bad name": "1"}}), "headers.bad name"),
            (json!({"url": "http://h", "env": {"A": "1"}}), "env"),
            (json!({"command": "x", "timeout": 0}), "timeout"),
            (json!({"command": "x", "era": "bronze"}), "era"),
            (json!({"command": "x", "port": "x"}), "port"),
            (json!({"url": "http://h", "oauth": {"scopes": 3}}), "oauth.scopes"),
            (json!({"command": "x", "url": "http://h"}), "type"),
        ] {
            let Err(Error::Field { field, .. }) = Entry::read("s", &entry).checked("s") else { panic!("{entry}") };
            assert_eq!(field.as_deref(), Some(wanted), "{entry}");
        }
        let Err(Error::Field { field, .. }) = Entry::read("s", &json!(3)).checked("s") else { panic!() };
        assert_eq!(field, None);
    }

    #[test]
    fn the_further_fields_are_read() {
        let entry = Entry::read(
            "s",
            &json!({"url": "https://h/mcp", "capabilities": ["search", " web ", "search", ""], "era": "Modern", "port": 8080,
                    "disabledTools": ["rm"], "oauth": {"clientId": "me", "clientSecret": "${secret:X}", "scopes": "a b"}}),
        );
        assert_eq!(entry.problem, None);
        assert_eq!(entry.config.capabilities, ["search", "web"]);
        assert_eq!((entry.config.era, entry.config.port), (EraChoice::Modern, Some(8080)));
        assert_eq!(entry.config.disabled_tools, ["rm"]);
        let oauth = entry.config.oauth.unwrap();
        assert_eq!((oauth.client_id.as_deref(), oauth.client_secret.as_deref()), (Some("me"), Some("${secret:X}")));
        assert_eq!(oauth.scopes, ["a", "b"]);
        let listed = Entry::read("s", &json!({"url": "https://h", "oauth": {"scopes": ["x"]}})).config.oauth.unwrap();
        assert_eq!(listed.scopes, ["x"]);
    }

    #[test]
    fn an_address_of_the_older_kind_is_read_like_any_other() {
        let entry = Entry::read("old", &json!({"type": "sse", "url": "http://h/sse", "headers": {"X-Key": "k"}})).checked("old").unwrap();
        let headers = BTreeMap::from([("X-Key".to_owned(), "k".to_owned())]);
        assert_eq!(entry.config.transport, Transport::Sse { url: "http://h/sse".to_owned(), headers });
        assert!(Entry::read("old", &json!({"type": "sse", "command": "x"})).problem.is_some());
    }
}
