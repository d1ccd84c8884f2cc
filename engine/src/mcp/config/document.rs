//! The file as a tree: what is known is read from it, what is unknown stays in it.

use std::path::Path;

use serde_json::{Map, Value};

use super::disk::{LARGEST, keep_beside, replaceable, write_text};
use super::entry::KNOWN;
use super::shape::{OWN, Shape, is_server};
use super::{Error, Settings, relaxed};

/// A configuration file's content.
#[derive(Clone, Debug)]
pub(in crate::mcp) struct Document {
    shape: Shape,
    /// Whether it holds comments or trailing commas, which a save cannot keep.
    relaxed: bool,
    /// The text as it was read; none where there was no file.
    text: Option<String>,
}

impl Default for Document {
    fn default() -> Self {
        let shape = Shape { root: Map::new(), section: OWN, servers: Map::new(), older: false };
        Self { shape, relaxed: false, text: None }
    }
}

impl Document {
    /// Reads the file; one that is missing or blank holds no servers.
    #[cfg(test)]
    fn load(path: &Path) -> Result<Self, Error> {
        match super::disk::read_text(path)? {
            Some(text) => Self::parse(&text, &path.display().to_string()),
            None => Ok(Self::default()),
        }
    }

    /// Reads a text; `place` names it in errors.
    pub(in crate::mcp) fn parse(text: &str, place: &str) -> Result<Self, Error> {
        let kept = Some(text.to_owned());
        if text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Ok(Self { text: kept, ..Self::default() });
        }
        let (root, relaxed) = parse_value(text, place, 0)?;
        let shape = Shape::of(root).map_err(|reason| Error::Parse { place: place.to_owned(), line: 1, column: 1, reason })?;
        Ok(Self { shape, relaxed, text: kept })
    }

    /// The text as it was read or written; none where there is no file.
    pub(in crate::mcp) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// What holds for all servers, over `base`, and what is wrong in it.
    pub(in crate::mcp) fn settings(&self, base: &Settings) -> (Settings, Vec<Error>) {
        Settings::read(self.shape.root.get("mcpSettings"), base)
    }

    /// Writes what is other than `before` into what holds for all servers.
    pub(in crate::mcp) fn set_settings(&mut self, settings: &Settings, before: &Settings) {
        let found = self.shape.root.entry("mcpSettings").or_insert_with(|| Value::Object(Map::new()));
        if !found.is_object() {
            *found = Value::Object(Map::new());
        }
        if let Some(found) = found.as_object_mut() {
            settings.write(before, found);
        }
    }

    /// A server's entry.
    pub(in crate::mcp) fn entry(&self, name: &str) -> Option<&Value> {
        self.shape.servers.get(name)
    }

    /// Switches one tool of a server on or off.
    pub(in crate::mcp) fn set_tool_enabled(&mut self, name: &str, tool: &str, enabled: bool) {
        let Some(entry) = self.shape.servers.get_mut(name).and_then(Value::as_object_mut) else { return };
        let mut off: Vec<Value> = entry.get("disabledTools").and_then(Value::as_array).cloned().unwrap_or_default();
        off.retain(|name| name.as_str() != Some(tool));
        if !enabled {
            off.push(Value::String(tool.to_owned()));
        }
        if off.is_empty() {
            let _ = entry.shift_remove("disabledTools");
        } else {
            let _ = entry.insert("disabledTools".to_owned(), Value::Array(off));
        }
    }

    /// The servers' entries, in the order of the file.
    pub(in crate::mcp) fn servers(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.shape.servers.iter()
    }

    /// Adds or replaces a server's entry.
    pub(in crate::mcp) fn put(&mut self, name: &str, entry: Value) {
        let _ = self.shape.servers.insert(name.to_owned(), entry);
    }

    /// Adds a server's entry, or puts it in the place of one of the same name, of which the fields that Handrail does not
    /// know stay.
    pub(in crate::mcp) fn put_over(&mut self, name: &str, mut entry: Value) {
        if let (Some(before), Some(entry)) = (self.shape.servers.get(name).and_then(Value::as_object), entry.as_object_mut()) {
            for (field, value) in before.iter().filter(|(field, _)| !KNOWN.contains(&field.as_str())) {
                let _ = entry.entry(field.clone()).or_insert_with(|| value.clone());
            }
        }
        self.put(name, entry);
    }

    /// Takes a server's entry out.
    pub(in crate::mcp) fn remove(&mut self, name: &str) {
        // The order of the others is kept.
        let _ = self.shape.servers.shift_remove(name);
    }

    /// Switches whether a server starts with the app, in the spelling that its entry uses.
    pub(in crate::mcp) fn set_active(&mut self, name: &str, active: bool) {
        let Some(entry) = self.shape.servers.get_mut(name).and_then(Value::as_object_mut) else {
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
        let target = replaceable(path)?;
        if let Some(before) = self.text.as_deref() {
            if self.relaxed {
                let _ = keep_beside(&target, "commented", before)?;
            }
            if self.shape.older {
                let _ = keep_beside(&target, "old", before)?;
            }
        }
        let mut text = serde_json::to_string_pretty(&self.shape.whole()).map_err(|error| wrong(error.to_string()))?;
        text.push('\n');
        write_text(&target, &text)?;
        (self.relaxed, self.shape.older, self.text) = (false, false, Some(text));
        Ok(())
    }
}

/// The servers of a pasted text: a whole file, its inner object, or a fragment `"a": {…}, "b": {…}`.
pub(in crate::mcp) fn pasted(text: &str) -> Result<Vec<(String, Value)>, Error> {
    const PLACE: &str = "the pasted text";
    let trimmed = text.trim_start_matches('\u{feff}').trim();
    let empty = || Error::Empty { place: PLACE.to_owned() };
    if u64::try_from(trimmed.len()).unwrap_or(u64::MAX) > LARGEST {
        return Err(Error::Field { server: PLACE.to_owned(), field: None, reason: format!("it is larger than {LARGEST} bytes") });
    }
    if trimmed.is_empty() {
        return Err(empty());
    }
    // Comments may stand before the first name and behind the last entry.
    let fragment = relaxed::to_strict(trimmed).0.trim_start().starts_with('"');
    let (root, _) = if fragment { parse_value(&format!("{{{trimmed}\n}}"), PLACE, 1)? } else { parse_value(trimmed, PLACE, 0)? };
    if root.as_object().is_some_and(is_server) {
        return Err(Error::Field {
            server: PLACE.to_owned(),
            field: None,
            reason: "this is one server without a name; write { \"mcpServers\": { \"a-name\": { … } } }".to_owned(),
        });
    }
    let shape = match Shape::of(root) {
        Ok(shape) if !shape.servers.is_empty() => shape,
        // Objects only: that one of them holds something else where servers belong is the same as none.
        Ok(_) => return Err(empty()),
        Err(reason) => return Err(Error::Parse { place: PLACE.to_owned(), line: 1, column: 1, reason }),
    };
    Ok(shape.servers.into_iter().collect())
}

/// Parses any object or list.
pub(in crate::mcp) fn parse_any(text: &str, place: &str) -> Result<Value, Error> {
    parse_value(text, place, 0).map(|(value, _)| value)
}

/// Parses one server's entry.
pub(in crate::mcp) fn parse_entry(text: &str) -> Result<Value, Error> {
    const PLACE: &str = "the entry";
    let text = text.trim_start_matches('\u{feff}');
    let wrong = |reason: String| Error::Parse { place: PLACE.to_owned(), line: 1, column: 1, reason };
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > LARGEST {
        return Err(wrong(format!("it is larger than {LARGEST} bytes")));
    }
    match parse_value(text, PLACE, 0)?.0 {
        entry @ Value::Object(_) => Ok(entry),
        _ => Err(wrong("expected an object { … }".to_owned())),
    }
}

/// Parses an object or a list; `shift` columns of the first line were put in front by us.
fn parse_value(text: &str, place: &str, shift: usize) -> Result<(Value, bool), Error> {
    let text = text.trim_start_matches('\u{feff}');
    let (strict, relaxed) = relaxed::to_strict(text);
    let wrong = |line: usize, column: usize, reason: String| {
        let column = if line == 1 { column.saturating_sub(shift).max(1) } else { column };
        Error::Parse { place: place.to_owned(), line: line.max(1), column, reason }
    };
    match serde_json::from_str::<Value>(&strict) {
        Ok(root @ (Value::Object(_) | Value::Array(_))) => Ok((root, relaxed)),
        Ok(_) => Err(wrong(1, 1, "expected an object { … }".to_owned())),
        Err(error) => {
            let column = column_in_characters(&strict, error.line(), error.column());
            let reason = error.to_string();
            // serde_json appends the place, counted in bytes; ours is in the message already.
            let reason = reason.split(" at line ").next().unwrap_or(&reason).to_owned();
            let reason = match reason.as_str() {
                "invalid escape" => "in JSON a backslash is written twice, as in \"C:\\\\Users\"".to_owned(),
                _ if strict.contains(['“', '”']) => format!("{reason}; names and texts need straight quotes (\") instead of “ and ”"),
                _ => reason,
            };
            Err(wrong(error.line(), column, reason))
        }
    }
}

/// serde_json counts bytes; an editor counts characters.
fn column_in_characters(text: &str, line: usize, bytes: usize) -> usize {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    line.char_indices().take_while(|(start, _)| *start < bytes).count().max(1)
}

#[cfg(test)]
mod tests {
    use std::fs;

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
        assert_eq!(names("// mine\n/* too */ \"a\": {\"command\": \"x\"}, // last"), ["a"]);
        // A server may itself be called "servers".
        assert_eq!(names(r#"{"mcpServers": {"servers": {"command": "x"}}}"#), ["servers"]);
    }

    #[test]
    fn a_paste_without_a_name_or_server_says_what_to_write() {
        let bare = pasted(r#"{"command": "npx", "args": []}"#).unwrap_err().to_string();
        assert!(bare.contains("without a name") && bare.contains("mcpServers"), "{bare}");
        for text in ["", "  ", "{}", r#"{"mcpServers": {}}"#, "[]", r#"{"other": {"x": 1}}"#] {
            assert!(matches!(pasted(text), Err(Error::Empty { .. })), "{text}");
        }
        for text in ["[1]", r#"{"mcpServers": 3}"#] {
            assert!(matches!(pasted(text), Err(Error::Parse { .. })), "{text}");
        }
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
    fn an_older_shape_is_brought_into_ours_and_the_old_file_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mcp_config.json");
        for (old, beside) in [
            (r#"{"theme": 1, "a": {"command": "x"}}"#, "mcp_config.json.old"),
            (r#"[{"name": "a", "command": "x"}]"#, "mcp_config.json.old-2"),
            (r#"{"servers": [{"name": "a", "command": "x"}]}"#, "mcp_config.json.old-3"),
            // The same text needs no further copy.
            (r#"[{"name": "a", "command": "x"}]"#, "mcp_config.json.old-2"),
        ] {
            fs::write(&path, old).unwrap();
            let mut document = Document::load(&path).unwrap();
            assert_eq!(document.servers().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["a"], "{old}");
            document.put("b", json!({ "command": "y" }));
            document.save(&path).unwrap();
            let saved: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
            assert_eq!(saved["mcpServers"], json!({"a": {"command": "x"}, "b": {"command": "y"}}), "{old}");
            assert_eq!(fs::read_to_string(folder.path().join(beside)).unwrap(), old);
        }
        assert!(!folder.path().join("mcp_config.json.old-4").exists());
    }

    #[test]
    fn tools_are_switched_in_the_entry() {
        let text = r#"{"mcpServers": {"a": {"command": "x"}}}"#;
        let mut document = Document::parse(text, "t").unwrap();
        document.set_tool_enabled("a", "rm", false);
        document.set_tool_enabled("a", "rm", false);
        document.set_tool_enabled("a", "mv", false);
        document.set_tool_enabled("none", "mv", false);
        assert_eq!(document.entry("a").unwrap()["disabledTools"], json!(["rm", "mv"]));
        document.set_tool_enabled("a", "rm", true);
        document.set_tool_enabled("a", "mv", true);
        assert_eq!(document.entry("a").unwrap(), &json!({"command": "x"}));
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_the_readers(text in "[\\[\\]{},:\"a-z0-9. \\n\u{e9}]{0,80}", json in json_like()) {
            for text in [text, json.to_string()] {
                let _ = pasted(&text);
                if let Ok(mut document) = Document::parse(&text, "t") {
                    for (name, entry) in document.clone().servers() {
                        let _ = super::super::Entry::read(name, entry);
                        document.set_active(name, false);
                        document.set_tool_enabled(name, "t", false);
                    }
                    let _ = document.settings(&Settings::default());
                    document.set_settings(&Settings { allow_sampling: true, ..Settings::default() }, &Settings::default());
                    proptest::prop_assert!(document.settings(&Settings::default()).0.allow_sampling);
                }
            }
        }
    }

    /// Trees made of the words that the readers look for.
    fn json_like() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let word = prop::sample::select(vec![
            "mcpServers",
            "servers",
            "mcp",
            "command",
            "url",
            "args",
            "env",
            "headers",
            "active",
            "port",
            "era",
            "oauth",
            "mcpSettings",
            "disabledTools",
            "name",
            "timeout",
            "type",
            "stdio",
            "sse",
            "allowSampling",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            word.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec((word.clone(), inner), 0..5)
                    .prop_map(|pairs| Value::Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())),
            ]
        })
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
        fs::write(&path, [b'{', 0x80, 0x81, b'}']).unwrap();
        assert!(matches!(Document::load(&path), Err(Error::File { .. })));
        let text = r#"{"mcpServers": {"名": {"command": "x"}}}"#;
        let wide: Vec<u16> = text.encode_utf16().collect();
        let little: Vec<u8> = wide.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let big: Vec<u8> = wide.iter().flat_map(|unit| unit.to_be_bytes()).collect();
        for bytes in [[&[0xff, 0xfe][..], &little].concat(), little, [&[0xfe, 0xff][..], &big].concat(), big, text.as_bytes().to_vec()] {
            fs::write(&path, bytes).unwrap();
            assert_eq!(Document::load(&path).unwrap().servers().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["名"]);
        }
    }
}
