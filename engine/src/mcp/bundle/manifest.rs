//! What a bundle says about itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::form::{Field, Kind, known_folders, literally};

/// Most fields of a form, arguments, and variables.
const MOST: usize = 256;
/// The major versions of manifests that are known.
const MAJORS: &[u32] = &[0];
/// Longest name and version.
const LONGEST_NAME: usize = 100;
/// Longest description that is kept.
const LONGEST_TEXT: usize = 2000;
/// Most words that say what it is good for.
const KEYWORDS: usize = 12;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest {
    pub(super) name: String,
    pub(super) display_name: Option<String>,
    pub(super) version: String,
    pub(super) description: String,
    pub(super) author: String,
    pub(super) keywords: Vec<String>,
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) fields: Vec<Field>,
    /// The systems that it says to run on; empty: all.
    platforms: Vec<String>,
    /// The file that the server begins with, where the manifest names one.
    entry_point: Option<String>,
    /// The program inside the bundle, where the server is one.
    program: Option<String>,
}

/// This system, as manifests call it.
const HERE: &str = if cfg!(target_os = "macos") {
    "darwin"
} else if cfg!(windows) {
    "win32"
} else {
    "linux"
};

impl Manifest {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|error| format!("its manifest.json does not parse: {error}"))?;
        let root = value.as_object().ok_or("its manifest.json is no object { … }")?;
        known(root.get("manifest_version").or_else(|| root.get("dxt_version")))?;
        let text = |field: &str| root.get(field).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let name = text("name").ok_or("its manifest.json has no \"name\"")?;
        let version = text("version").unwrap_or("0");
        if [name, version].iter().any(|text| text.chars().count() > LONGEST_NAME || text.chars().any(char::is_control)) {
            return Err(format!("its name or version has more than {LONGEST_NAME} characters, or control characters"));
        }
        let server = root.get("server").and_then(Value::as_object).ok_or("its manifest.json has no \"server\"")?;
        let start = Start::read(server)?;
        let compatibility = root.get("compatibility").and_then(|found| found.get("platforms")).and_then(Value::as_array);
        let fields = fields(root.get("user_config"))?;
        start.asks_only_for(&fields)?;
        let author = match root.get("author") {
            Some(Value::String(name)) => name.clone(),
            Some(author) => author.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            None => String::new(),
        };
        Ok(Self {
            name: name.to_owned(),
            display_name: text("display_name").map(short),
            version: version.to_owned(),
            description: text("description").map(short).unwrap_or_default(),
            author: short(&author),
            keywords: texts(root.get("keywords")).into_iter().take(KEYWORDS).collect(),
            command: start.command,
            args: start.args,
            env: start.env,
            fields,
            platforms: compatibility.map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect()).unwrap_or_default(),
            entry_point: start.entry_point,
            program: start.program,
        })
    }

    pub(super) fn runs_here(&self) -> Result<(), String> {
        if self.platforms.is_empty() || self.platforms.iter().any(|platform| platform == HERE) {
            Ok(())
        } else {
            Err(format!("it runs on {} only, not on {HERE}", self.platforms.join(", ")))
        }
    }

    /// The file that the server begins with.
    pub(super) fn entry_point(&self) -> Option<&str> {
        self.entry_point.as_deref()
    }

    pub(super) fn program(&self) -> Option<&str> {
        self.program.as_deref()
    }
}

/// How the server is started.
struct Start {
    command: String,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    entry_point: Option<String>,
    program: Option<String>,
}

/// Whether what this version of manifests says is known; there was none before the first.
fn known(version: Option<&Value>) -> Result<(), String> {
    let Some(version) = version.filter(|version| !version.is_null()) else { return Ok(()) };
    let text = version.as_str().map_or_else(|| version.to_string(), str::to_owned);
    match text.trim().split('.').next().and_then(|major| major.parse::<u32>().ok()) {
        Some(major) if MAJORS.contains(&major) => Ok(()),
        _ => Err(format!("its \"manifest_version\" is \"{text:.20}\", which is not known here; 0.x is")),
    }
}

impl Start {
    /// Placeholders for answers that nobody is asked for would reach the server as they are.
    fn asks_only_for(&self, fields: &[Field]) -> Result<(), String> {
        for text in std::iter::once(&self.command).chain(&self.args).chain(self.env.values()) {
            for (at, start) in text.match_indices("${user_config.") {
                let inside = &text[at + start.len()..];
                let key = inside.split('}').next().unwrap_or(inside);
                if inside.contains('}') && !fields.iter().any(|field| field.key == key) {
                    return Err(format!("it uses \"${{user_config.{key:.100}}}\", but its \"user_config\" has no field of that name"));
                }
            }
        }
        Ok(())
    }

    fn read(server: &Map<String, Value>) -> Result<Self, String> {
        let kind = server.get("type").and_then(Value::as_str).unwrap_or_default();
        let entry = server.get("entry_point").and_then(Value::as_str).unwrap_or_default();
        if !entry.is_empty() && !is_inside(entry) {
            return Err(format!("its entry point \"{entry}\" is not inside the bundle"));
        }
        let nothing = Map::new();
        let config = server.get("mcp_config").and_then(Value::as_object).unwrap_or(&nothing);
        let here =
            config.get("platform_overrides").and_then(|overrides| overrides.get(HERE)).and_then(Value::as_object).unwrap_or(&nothing);
        let given = |field: &str| here.get(field).or_else(|| config.get(field));
        let command = given("command").and_then(Value::as_str).map(str::trim).filter(|command| !command.is_empty());
        let (command, args) = match (command, kind) {
            (Some(command), _) => (command.to_owned(), list(given("args"), "args")?),
            (None, _) if entry.is_empty() => return Err("its manifest.json says neither \"command\" nor \"entry_point\"".to_owned()),
            (None, "node") => ("node".to_owned(), vec![format!("${{__dirname}}/{entry}")]),
            (None, "python") => ((if cfg!(windows) { "python" } else { "python3" }).to_owned(), vec![format!("${{__dirname}}/{entry}")]),
            (None, "uv") => ("uv".to_owned(), ["run", "--directory", "${__dirname}", entry].map(str::to_owned).to_vec()),
            (None, "binary") => (format!("${{__dirname}}/{entry}"), Vec::new()),
            (None, other) => return Err(format!("its server type \"{other}\" is not known; it must be node, python, uv or binary")),
        };
        // A program of the bundle may be named as the manifest sees it, from the bundle's own folder.
        let inner = command.strip_prefix("${__dirname}").map(|rest| rest.trim_start_matches(['/', '\\'])).map(str::to_owned);
        let inner = inner.or_else(|| (kind == "binary" && command == entry).then(|| command.clone()));
        let program = inner.filter(|inner| !inner.is_empty()).map(|inner| inner.replace('\\', "/"));
        if let Some(program) = program.as_deref().filter(|program| !is_inside(program)) {
            return Err(format!("its program \"{program}\" is not inside the bundle"));
        }
        let command = program.as_ref().map_or(command, |program| format!("${{__dirname}}/{program}"));
        let mut env = pairs(config.get("env"))?;
        env.extend(pairs(here.get("env"))?);
        let entry_point = Some(entry.to_owned()).filter(|entry| !entry.is_empty());
        Ok(Self { command, args, env, entry_point, program })
    }
}

/// Whether a name stays inside the bundle.
fn is_inside(name: &str) -> bool {
    !name.starts_with(['/', '\\']) && !name.contains([':', '\0']) && name.split(['/', '\\']).all(|part| part != "..")
}

fn short(text: &str) -> String {
    text.chars().take(LONGEST_TEXT).collect()
}

fn texts(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).map(|list| list.iter().filter_map(Value::as_str).map(short).collect()).unwrap_or_default()
}

fn list(value: Option<&Value>, field: &str) -> Result<Vec<String>, String> {
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() <= MOST && items.iter().all(Value::is_string) => {
            Ok(items.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        }
        Some(_) => Err(format!("its \"{field}\" must be a list of at most {MOST} texts")),
    }
}

fn pairs(value: Option<&Value>) -> Result<BTreeMap<String, String>, String> {
    match value {
        None | Some(Value::Null) => Ok(BTreeMap::new()),
        Some(Value::Object(map)) if map.len() <= MOST && map.values().all(Value::is_string) => {
            Ok(map.iter().filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect())
        }
        Some(_) => Err(format!("its \"env\" must be an object of at most {MOST} texts")),
    }
}

fn fields(value: Option<&Value>) -> Result<Vec<Field>, String> {
    let found = match value {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Object(found)) if found.len() <= MOST => found,
        Some(_) => return Err(format!("its \"user_config\" must be an object of at most {MOST} fields")),
    };
    let field = |(key, value): (&String, &Value)| {
        let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        if !plain {
            return Err(format!("its \"user_config\" has a field \"{key}\"; letters, digits, \"_\", \"-\" and \".\" are possible"));
        }
        let mut field: Field =
            serde_json::from_value(value.clone()).map_err(|error| format!("its \"user_config\" field \"{key}\": {error}"))?;
        field.key.clone_from(key);
        (field.title, field.description) = (short(&field.title), short(&field.description));
        if let Some(default) = field.default.as_mut().filter(|_| matches!(field.kind, Kind::Directory | Kind::File | Kind::String)) {
            resolve(default);
        }
        Ok(field)
    };
    found.iter().map(field).collect()
}

fn resolve(default: &mut Value) {
    match default {
        Value::String(text) => *text = known_folders(text),
        Value::Array(items) => items.iter_mut().for_each(resolve),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {}
    }
}

/// What stands for the manifest's placeholders.
pub(super) struct Filling<'a> {
    /// The bundle's folder.
    pub(super) folder: &'a str,
    /// The answers, ready to stand in an entry.
    pub(super) values: &'a BTreeMap<String, Vec<String>>,
}

impl Filling<'_> {
    /// The arguments that one argument of the manifest becomes: a field with several answers stands for as many, one
    /// without an answer for none.
    pub(super) fn texts(&self, text: &str) -> Vec<String> {
        let whole = text.strip_prefix("${user_config.").and_then(|rest| rest.strip_suffix('}')).and_then(|key| self.values.get(key));
        match whole {
            Some(values) => values.clone(),
            None => self.text(text).into_iter().collect(),
        }
    }

    /// A text with everything filled in; none where it is nothing but a field without an answer.
    pub(super) fn text(&self, text: &str) -> Option<String> {
        let mut filled = String::new();
        let mut rest = text;
        let mut missing = false;
        while let Some(at) = rest.find("${") {
            filled.push_str(&rest[..at]);
            let inside = &rest[at + 2..];
            let Some(end) = inside.find('}') else {
                filled.push_str(&literally(&rest[at..]));
                return Some(filled);
            };
            let name = &inside[..end];
            match self.value(name) {
                Some(value) => {
                    missing |= value.is_empty();
                    filled.push_str(&value);
                }
                // What is not of the format is nothing that a bundle may reach: no variable and no secret of ours.
                None => filled.push_str(&literally(&rest[at..at + 2 + end + 1])),
            }
            rest = &inside[end + 1..];
        }
        filled.push_str(rest);
        (!(missing && filled.is_empty())).then_some(filled)
    }

    fn value(&self, name: &str) -> Option<String> {
        if let Some(key) = name.strip_prefix("user_config.") {
            return self.values.get(key).map(|values| values.join(","));
        }
        match name {
            "__dirname" => Some(self.folder.to_owned()),
            "/" | "pathSeparator" => Some(std::path::MAIN_SEPARATOR.to_string()),
            "HOME" | "DESKTOP" | "DOCUMENTS" | "DOWNLOADS" => Some(literally(&known_folders(&format!("${{{name}}}")))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Manifest, String> {
        Manifest::read(&value.to_string())
    }

    #[test]
    fn a_full_manifest_is_read() {
        let manifest = read(&json!({
            "manifest_version": "0.3", "name": "files", "display_name": "Files", "version": "1.2.0", "description": "Reads files",
            "author": {"name": "Somebody"}, "keywords": ["files", "read"],
            "server": {"type": "node", "entry_point": "server/index.js", "mcp_config": {
                "command": "node", "args": ["${__dirname}/server/index.js", "${user_config.folders}"],
                "env": {"KEY": "${user_config.key}", "LEVEL": "x-${user_config.level}"},
                "platform_overrides": {"win32": {"command": "node.exe"}, "linux": {"env": {"HERE": "1"}}, "darwin": {"env": {"HERE": "1"}}}}},
            "user_config": {
                "folders": {"type": "directory", "title": "Folders", "required": true, "multiple": true, "default": ["${HOME}"]},
                "key": {"type": "string", "sensitive": true},
                "level": {"type": "number", "min": 1, "max": 3, "default": 2}},
            "compatibility": {"platforms": ["darwin", "win32", "linux"]}
        }))
        .unwrap();
        assert_eq!((manifest.name.as_str(), manifest.version.as_str(), manifest.author.as_str()), ("files", "1.2.0", "Somebody"));
        assert_eq!(manifest.fields.iter().map(|field| field.key.as_str()).collect::<Vec<_>>(), ["folders", "key", "level"]);
        assert!(!manifest.fields[0].default.as_ref().unwrap()[0].as_str().unwrap().contains("${"));
        assert!(manifest.runs_here().is_ok());
        #[cfg(not(windows))]
        assert_eq!((manifest.command.as_str(), manifest.env["HERE"].as_str()), ("node", "1"));
    }

    #[test]
    fn without_a_command_the_kind_says_how_to_start() {
        let start = |kind: &str| {
            let manifest = read(&json!({"name": "n", "server": {"type": kind, "entry_point": "bin/x"}}))?;
            Ok::<_, String>((manifest.command.clone(), manifest.args.clone(), manifest.program().map(str::to_owned)))
        };
        assert_eq!(start("node").unwrap(), ("node".to_owned(), vec!["${__dirname}/bin/x".to_owned()], None));
        assert_eq!(start("binary").unwrap(), ("${__dirname}/bin/x".to_owned(), vec![], Some("bin/x".to_owned())));
        assert_eq!(start("uv").unwrap().0, "uv");
        assert!(start("python").unwrap().0.starts_with("python"));
        assert!(start("cobol").unwrap_err().contains("cobol"));
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_its_reason() {
        let server = json!({"type": "node", "entry_point": "x.js"});
        for (value, wanted) in [
            (json!([]), "object"),
            (json!({"server": server}), "\"name\""),
            (json!({"name": "n"}), "\"server\""),
            (json!({"name": "n\n", "server": {"type": "node"}}), "entry_point"),
            (json!({"name": "x".repeat(101), "server": server}), "100"),
            (json!({"name": "a\u{1}b", "server": server}), "control"),
            (json!({"name": "n", "server": {"type": "node", "entry_point": "../x.js"}}), "inside"),
            (json!({"name": "n", "server": {"type": "binary", "entry_point": "/bin/sh"}}), "inside"),
            (json!({"name": "n", "server": {"type": "binary", "mcp_config": {"command": "${__dirname}/../sh"}}}), "inside"),
            (json!({"name": "n", "server": {"type": "node", "mcp_config": {"command": "node", "args": [1]}}}), "args"),
            (json!({"name": "n", "server": {"type": "node", "mcp_config": {"command": "node", "env": {"A": 1}}}}), "env"),
            (json!({"name": "n", "server": server, "user_config": {"a b": {}}}), "a b"),
            (json!({"name": "n", "server": server, "user_config": {"a": {"type": "colour"}}}), "\"a\""),
            (json!({"name": "n", "server": server, "user_config": []}), "user_config"),
            (json!({"name": "n", "server": server, "manifest_version": "1.0"}), "manifest_version"),
            (json!({"name": "n", "server": server, "manifest_version": 2}), "manifest_version"),
            (json!({"name": "n", "server": server, "dxt_version": "new"}), "manifest_version"),
            (
                json!({"name": "n", "server": {"type": "node", "mcp_config": {"command": "node", "args": ["--k=${user_config.b}"]}},
                    "user_config": {"a": {"type": "string"}}}),
                "${user_config.b}",
            ),
        ] {
            let reason = read(&value).unwrap_err();
            assert!(reason.contains(wanted), "{value}: {reason}");
        }
        let elsewhere = read(&json!({"name": "n", "server": server, "compatibility": {"platforms": ["amiga"]}})).unwrap();
        assert!(elsewhere.runs_here().unwrap_err().contains("amiga"));
    }

    #[test]
    fn placeholders_are_filled_and_none_reaches_beyond_the_bundle() {
        let values = BTreeMap::from([
            ("one".to_owned(), vec!["1".to_owned()]),
            ("many".to_owned(), vec!["a".to_owned(), "b".to_owned()]),
            ("none".to_owned(), vec![]),
        ]);
        let filling = Filling { folder: "/b", values: &values };
        assert_eq!(filling.texts("${__dirname}/x"), ["/b/x"]);
        assert_eq!(filling.texts("${user_config.many}"), ["a", "b"]);
        assert_eq!(filling.texts("${user_config.none}"), Vec::<String>::new());
        assert_eq!(filling.texts("--n=${user_config.one}"), ["--n=1"]);
        assert_eq!(filling.texts("--n=${user_config.none}"), ["--n="]);
        assert_eq!(filling.text("${user_config.none}"), None);
        assert_eq!(filling.text(""), Some(String::new()));
        for reach in ["${secret:other.key}", "${AWS_SECRET}", "${env:HOME}", "${user_config.unknown}", "${open"] {
            assert_eq!(filling.text(reach).unwrap(), format!("${reach}"), "{reach}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_manifest_breaks_the_reader(text in "[\\[\\]{},:\"a-z0-9_$ .]{0,80}", name in "\\PC{0,20}", arg in "[${}a-z_.]{0,30}") {
            let _ = Manifest::read(&text);
            let value = json!({"name": name, "version": text, "server": {"type": "node", "entry_point": text, "mcp_config": {"command": name, "args": [arg]}}, "user_config": {name.clone(): {"default": text}}});
            let _ = read(&value);
            let values = BTreeMap::new();
            let _ = Filling { folder: "/f", values: &values }.texts(&arg);
        }
    }
}
