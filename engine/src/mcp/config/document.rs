//! The file as a tree: what is known is read from it, what is unknown stays in it.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::{Error, relaxed};

/// Largest text that is read: a configuration is some kilobytes, and everything is held in memory.
const LARGEST: u64 = 4 * 1024 * 1024;

/// How programs name the object that holds the servers; the first one that is there is used.
const SECTIONS: [&[&str]; 4] = [&["mcpServers"], &["servers"], &["mcp", "servers"], &["context_servers"]];

/// A configuration file's content.
#[derive(Clone, Debug)]
pub(in crate::mcp) struct Document {
    root: Map<String, Value>,
    /// Where in the root the servers are.
    section: &'static [&'static str],
    servers: Map<String, Value>,
    /// Whether it holds comments or trailing commas, which a save cannot keep.
    relaxed: bool,
}

impl Default for Document {
    fn default() -> Self {
        Self { root: Map::new(), section: SECTIONS[0], servers: Map::new(), relaxed: false }
    }
}

impl Document {
    /// Reads the file; one that is missing or blank holds no servers.
    pub(in crate::mcp) fn load(path: &Path) -> Result<Self, Error> {
        let file = |reason: String| Error::File { path: path.to_owned(), reason };
        match fs::metadata(path) {
            Ok(found) if found.len() > LARGEST => return Err(file(format!("it is larger than {LARGEST} bytes"))),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(file(error.to_string())),
        }
        let bytes = fs::read(path).map_err(|error| file(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| file(format!("it is not UTF-8 text ({error})")))?;
        Self::parse(&text, &path.display().to_string())
    }

    fn parse(text: &str, place: &str) -> Result<Self, Error> {
        if text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Ok(Self::default());
        }
        let (root, relaxed) = parse_object(text, place, 0)?;
        let Some(section) = section(&root) else {
            return Ok(Self { root, relaxed, ..Self::default() });
        };
        match lookup(&root, section) {
            Some(Value::Object(servers)) => Ok(Self { servers: servers.clone(), root, section, relaxed }),
            _ => {
                let reason = format!("\"{}\" must be an object with one entry per server", section.join("."));
                Err(Error::Parse { place: place.to_owned(), line: 1, column: 1, reason })
            }
        }
    }

    /// The servers' entries, in the order of the file.
    pub(in crate::mcp) fn servers(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.servers.iter()
    }

    /// Adds or replaces a server's entry.
    pub(in crate::mcp) fn put(&mut self, name: &str, entry: Value) {
        let _ = self.servers.insert(name.to_owned(), entry);
    }

    /// Takes a server's entry out.
    pub(in crate::mcp) fn remove(&mut self, name: &str) {
        // The order of the others is kept.
        let _ = self.servers.shift_remove(name);
    }

    /// Switches whether a server starts with the app, in the spelling that its entry uses.
    pub(in crate::mcp) fn set_active(&mut self, name: &str, active: bool) {
        let Some(entry) = self.servers.get_mut(name).and_then(Value::as_object_mut) else {
            return;
        };
        let mut spelled = false;
        for (key, value) in [("active", active), ("isActive", active), ("enabled", active), ("disabled", !active)] {
            if let Some(field) = entry.get_mut(key) {
                *field = Value::Bool(value);
                spelled = true;
            }
        }
        if !spelled {
            let _ = entry.insert("active".to_owned(), Value::Bool(active));
        }
    }

    /// Replaces the file in one step. A link is followed. What a save cannot keep (comments) is kept once beside
    /// the file, with `.commented` at the end of the name.
    pub(in crate::mcp) fn save(&mut self, path: &Path) -> Result<(), Error> {
        let wrong = |reason: String| Error::File { path: path.to_owned(), reason };
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let folder = target.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(|error| wrong(error.to_string()))?;
        if self.relaxed {
            let mut beside = target.clone().into_os_string();
            beside.push(".commented");
            let _ = fs::copy(&target, PathBuf::from(beside))
                .map_err(|error| wrong(format!("its comments cannot be kept beside it: {error}")))?;
        }
        let mut root = self.root.clone();
        set(&mut root, self.section, self.servers.clone());
        let mut text = serde_json::to_string_pretty(&root).map_err(|error| wrong(error.to_string()))?;
        text.push('\n');
        // Temporary files are made with mode 0600, and the rename keeps it: headers and env often hold keys.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| wrong(error.to_string()))?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(|error| wrong(error.to_string()))?;
        let _ = file.persist(&target).map_err(|error| wrong(error.to_string()))?;
        sync_folder(folder);
        self.relaxed = false;
        Ok(())
    }
}

/// The servers of a pasted text: a whole file, its inner object, or a fragment `"a": {…}, "b": {…}`.
pub(in crate::mcp) fn pasted(text: &str) -> Result<Vec<(String, Value)>, Error> {
    const PLACE: &str = "the pasted text";
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    let empty = || Error::Empty { place: PLACE.to_owned() };
    if u64::try_from(trimmed.len()).unwrap_or(u64::MAX) > LARGEST {
        return Err(Error::Field { server: PLACE.to_owned(), reason: format!("it is larger than {LARGEST} bytes") });
    }
    if trimmed.is_empty() {
        return Err(empty());
    }
    let (root, _) =
        if trimmed.starts_with('"') { parse_object(&format!("{{{trimmed}}}"), PLACE, 1)? } else { parse_object(trimmed, PLACE, 0)? };
    if let Some(found) = section(&root).and_then(|keys| lookup(&root, keys)) {
        let servers = found.as_object().filter(|servers| !servers.is_empty()).ok_or_else(empty)?;
        return Ok(servers.iter().map(|(name, entry)| (name.clone(), entry.clone())).collect());
    }
    if is_server(&root) {
        return Err(Error::Field {
            server: PLACE.to_owned(),
            reason: "this is one server without a name; write { \"mcpServers\": { \"a-name\": { … } } }".to_owned(),
        });
    }
    let named = !root.is_empty() && root.values().all(|value| value.as_object().is_some_and(is_server));
    if named { Ok(root.into_iter().collect()) } else { Err(empty()) }
}

fn is_server(entry: &Map<String, Value>) -> bool {
    ["command", "url", "serverUrl", "httpUrl"].iter().any(|key| entry.get(*key).is_some_and(|value| !value.is_object()))
}

fn section(root: &Map<String, Value>) -> Option<&'static [&'static str]> {
    SECTIONS.into_iter().find(|keys| lookup(root, keys).is_some())
}

fn lookup<'a>(root: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    let found = root.get(*first)?;
    if rest.is_empty() { Some(found) } else { lookup(found.as_object()?, rest) }
}

fn set(root: &mut Map<String, Value>, keys: &[&str], servers: Map<String, Value>) {
    let Some((first, rest)) = keys.split_first() else {
        return;
    };
    let value = if rest.is_empty() {
        servers
    } else {
        let mut inner = root.get(*first).and_then(Value::as_object).cloned().unwrap_or_default();
        set(&mut inner, rest, servers);
        inner
    };
    // A key that is there keeps its place.
    let _ = root.insert((*first).to_owned(), Value::Object(value));
}

/// Parses one object; `shift` columns of the first line were put in front by us.
fn parse_object(text: &str, place: &str, shift: usize) -> Result<(Map<String, Value>, bool), Error> {
    let text = text.trim_start_matches('\u{feff}');
    let (strict, relaxed) = relaxed::to_strict(text);
    let wrong = |line: usize, column: usize, reason: String| {
        let column = if line == 1 { column.saturating_sub(shift).max(1) } else { column };
        Error::Parse { place: place.to_owned(), line: line.max(1), column, reason }
    };
    match serde_json::from_str::<Value>(&strict) {
        Ok(Value::Object(root)) => Ok((root, relaxed)),
        Ok(_) => Err(wrong(1, 1, "expected an object { … }".to_owned())),
        Err(error) => {
            let column = column_in_characters(&strict, error.line(), error.column());
            let reason = error.to_string();
            // serde_json appends the place, counted in bytes; ours is in the message already.
            let reason = reason.split(" at line ").next().unwrap_or(&reason).to_owned();
            Err(wrong(error.line(), column, reason))
        }
    }
}

/// serde_json counts bytes; an editor counts characters.
fn column_in_characters(text: &str, line: usize, bytes: usize) -> usize {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    line.char_indices().take_while(|(start, _)| *start < bytes).count().max(1)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) {
    // Makes the rename itself durable; a file system that refuses this still has a whole file, old or new.
    if let Ok(folder) = fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) {}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        pasted(text).unwrap().into_iter().map(|(name, _)| name).collect()
    }

    #[test]
    fn pastes_come_in_many_shapes() {
        assert_eq!(names(r#"{"mcpServers": {"b": {"command": "x"}, "a": {"url": "http://h"}}}"#), ["b", "a"]);
        assert_eq!(names(r#""a": {"command": "x"}, "b": {"command": "y"},"#), ["a", "b"]);
        assert_eq!(names("// from the README\n{\"servers\": {\"vs\": {\"command\": \"x\",},},}"), ["vs"]);
        assert_eq!(names(r#"{"mcp": {"servers": {"n": {"command": "x"}}}}"#), ["n"]);
        assert_eq!(names("\u{feff}{\"plain\": {\"command\": \"x\"}}"), ["plain"]);
        assert_eq!(names(r#""mcpServers": {"half": {"command": "x"}}"#), ["half"]);
        // A server may itself be called "servers".
        assert_eq!(names(r#"{"mcpServers": {"servers": {"command": "x"}}}"#), ["servers"]);
    }

    #[test]
    fn a_paste_without_a_name_or_server_says_what_to_write() {
        let bare = pasted(r#"{"command": "npx", "args": []}"#).unwrap_err().to_string();
        assert!(bare.contains("without a name") && bare.contains("mcpServers"), "{bare}");
        for text in ["", "  ", "{}", r#"{"mcpServers": {}}"#, r#"{"mcpServers": 3}"#, r#"{"other": {"x": 1}}"#] {
            assert!(matches!(pasted(text), Err(Error::Empty { .. })), "{text}");
        }
        assert!(matches!(pasted("[1]"), Err(Error::Parse { .. })));
    }

    #[test]
    fn a_parse_error_names_line_and_column_in_characters() {
        let Err(Error::Parse { line, column, reason, .. }) = pasted("{\n  \"ü\": {\"command\" \"x\"}\n}") else { panic!() };
        assert_eq!((line, column), (2, 19), "{reason}");
        let Err(Error::Parse { line, column, .. }) = pasted("\"a\": {\"command\" 3}") else { panic!() };
        assert_eq!((line, column), (1, 17));
    }

    #[test]
    fn unknown_fields_and_the_order_survive_a_save() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp_config.json");
        fs::write(&path, r#"{"$schema": "s", "mcpServers": {"z": {"command": "x", "alwaysAllow": ["t"]}, "a": {"command": "y", "disabled": true}}, "theme": 1}"#)
            .unwrap();
        let mut document = Document::load(&path).unwrap();
        document.put("m", json!({ "command": "m" }));
        document.set_active("a", true);
        document.set_active("z", false);
        document.save(&path).unwrap();
        let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(
            saved.to_string(),
            json!({
                "$schema": "s",
                "mcpServers": {
                    "z": {"command": "x", "alwaysAllow": ["t"], "active": false},
                    "a": {"command": "y", "disabled": false},
                    "m": {"command": "m"}
                },
                "theme": 1
            })
            .to_string()
        );
        document.remove("z");
        document.save(&path).unwrap();
        assert_eq!(Document::load(&path).unwrap().servers().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a", "m"]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn comments_are_kept_beside_the_file_when_it_is_saved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp_config.json");
        let text = "\u{feff}{\n  // mine\n  \"mcpServers\": { \"a\": { \"command\": \"x\", }, },\n}\n";
        fs::write(&path, text).unwrap();
        let mut document = Document::load(&path).unwrap();
        document.put("b", json!({ "command": "y" }));
        document.save(&path).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("mcp_config.json.commented")).unwrap(), text);
        assert_eq!(Document::load(&path).unwrap().servers().count(), 2);
    }

    #[test]
    fn a_missing_or_blank_file_is_empty_and_a_wrong_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp_config.json");
        assert_eq!(Document::load(&path).unwrap().servers().count(), 0);
        fs::write(&path, " \n").unwrap();
        assert_eq!(Document::load(&path).unwrap().servers().count(), 0);
        for wrong in ["[", "3", "{\"mcpServers\": [1]}", "{\"mcpServers\": {"] {
            fs::write(&path, wrong).unwrap();
            assert!(matches!(Document::load(&path), Err(Error::Parse { .. })), "{wrong}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Document::load(&path), Err(Error::File { .. })));
    }
}
