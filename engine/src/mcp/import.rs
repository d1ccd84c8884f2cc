//! Servers that other programs on this machine are configured with. Their files are read, and never written.

use std::borrow::Cow;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Consent;
use super::config::{Entry, decoded, flat, parse_any};
use super::consent::Origin;
use super::form::{secret_name, secret_start};
use crate::tool::ServerId;

/// Largest file that is read: some programs keep whole histories beside their servers.
const LARGEST: u64 = 32 * 1024 * 1024;
/// Most servers that are taken from one file.
const MOST: usize = 500;

/// A system, as far as places differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Linux, and what is like it.
    Linux,
    /// macOS.
    MacOs,
    /// Windows.
    Windows,
}

/// Where programs keep their configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    system: System,
    home: PathBuf,
    config: PathBuf,
    data: PathBuf,
}

impl Places {
    /// Those of this machine and person; none where the person has no home.
    #[must_use]
    pub fn here() -> Option<Self> {
        let dirs = directories::BaseDirs::new()?;
        let system = if cfg!(target_os = "macos") {
            System::MacOs
        } else if cfg!(windows) {
            System::Windows
        } else {
            System::Linux
        };
        Some(Self { system, home: dirs.home_dir().to_owned(), config: dirs.config_dir().to_owned(), data: dirs.data_dir().to_owned() })
    }

    /// The usual ones of a system, under this home.
    #[must_use]
    pub fn under(home: &Path, system: System) -> Self {
        let (config, data) = match system {
            System::Linux => (".config", ".local/share"),
            System::MacOs => ("Library/Application Support", "Library/Application Support"),
            System::Windows => ("AppData/Roaming", "AppData/Roaming"),
        };
        Self { system, home: home.to_owned(), config: home.join(config), data: home.join(data) }
    }
}

/// From where a path counts.
#[derive(Clone, Copy)]
enum Base {
    Home,
    Config,
    Data,
}

/// What a file is written in.
#[derive(Clone, Copy, PartialEq)]
enum Format {
    Json,
    Toml,
}

/// A file of a program, with where in it the servers are.
struct Source {
    systems: &'static [System],
    base: Base,
    path: &'static str,
    format: Format,
    sections: &'static [&'static [&'static str]],
}

/// A program with its files; of those that are there, all count.
struct Program {
    id: &'static str,
    title: &'static str,
    sources: &'static [Source],
}

const ALL: &[System] = &[System::Linux, System::MacOs, System::Windows];
const UNIX: &[System] = &[System::Linux, System::MacOs];
const WINDOWS: &[System] = &[System::Windows];
const SERVERS: &[&[&str]] = &[&["mcpServers"], &["servers"]];
const VS_CODE: &[&[&str]] = &[&["mcp", "servers"], &["mcp.servers"]];
const ZED: &[&[&str]] = &[&["context_servers"]];

const fn json(base: Base, path: &'static str) -> Source {
    Source { systems: ALL, base, path, format: Format::Json, sections: SERVERS }
}

const PROGRAMS: &[Program] = &[
    Program { id: "claude-desktop", title: "Claude Desktop", sources: &[json(Base::Config, "Claude/claude_desktop_config.json")] },
    Program { id: "claude-code", title: "Claude Code", sources: &[json(Base::Home, ".claude.json")] },
    Program {
        id: "vscode",
        title: "VS Code",
        sources: &[
            json(Base::Config, "Code/User/mcp.json"),
            Source { sections: VS_CODE, ..json(Base::Config, "Code/User/settings.json") },
            json(Base::Config, "Code - Insiders/User/mcp.json"),
            Source { sections: VS_CODE, ..json(Base::Config, "Code - Insiders/User/settings.json") },
            json(Base::Config, "VSCodium/User/mcp.json"),
            Source { sections: VS_CODE, ..json(Base::Config, "VSCodium/User/settings.json") },
        ],
    },
    Program { id: "cursor", title: "Cursor", sources: &[json(Base::Home, ".cursor/mcp.json")] },
    Program {
        id: "cline",
        title: "Cline",
        sources: &[
            json(Base::Config, "Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            json(Base::Config, "Code - Insiders/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            json(Base::Config, "Cursor/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
            json(Base::Config, "VSCodium/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"),
        ],
    },
    Program {
        id: "roo",
        title: "Roo Code",
        sources: &[
            json(Base::Config, "Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
            json(Base::Config, "Cursor/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"),
        ],
    },
    Program {
        id: "jan",
        title: "Jan",
        sources: &[
            json(Base::Data, "Jan/data/mcp_config.json"),
            Source { systems: &[System::Linux], ..json(Base::Config, "Jan/data/mcp_config.json") },
        ],
    },
    Program { id: "windsurf", title: "Windsurf", sources: &[json(Base::Home, ".codeium/windsurf/mcp_config.json")] },
    Program { id: "lmstudio", title: "LM Studio", sources: &[json(Base::Home, ".lmstudio/mcp.json")] },
    Program {
        id: "zed",
        title: "Zed",
        sources: &[
            Source { systems: UNIX, sections: ZED, ..json(Base::Home, ".config/zed/settings.json") },
            Source { systems: WINDOWS, sections: ZED, ..json(Base::Config, "Zed/settings.json") },
        ],
    },
    Program { id: "gemini", title: "Gemini CLI", sources: &[json(Base::Home, ".gemini/settings.json")] },
    Program {
        id: "codex",
        title: "Codex",
        sources: &[Source { format: Format::Toml, sections: &[&["mcp_servers"]], ..json(Base::Home, ".codex/config.toml") }],
    },
];

/// What one file of another program has.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The program, as the command line names it.
    pub program: &'static str,
    /// The program, for people.
    pub title: &'static str,
    /// Its file.
    pub path: PathBuf,
    /// The servers in it.
    pub servers: Vec<Importable>,
    /// Why the file cannot be read, where it cannot.
    pub problem: Option<String>,
}

/// A server of another program.
#[derive(Clone, Debug, PartialEq)]
pub struct Importable {
    /// Its name there.
    pub name: String,
    /// What starting it here would need.
    pub consent: Consent,
    /// The server here that is the same already.
    pub there: Option<ServerId>,
    /// What is wrong with its entry, where something is.
    pub problem: Option<String>,
    /// The secrets that it needs and that must be given again: the other program keeps them to itself.
    pub needs: Vec<String>,
    /// What of its entry is not used as it stands.
    pub notes: Vec<String>,
    pub(super) value: Value,
    pub(super) entry: Entry,
}

/// The names of the programs that are known, as the command line takes them.
#[must_use]
pub fn programs() -> Vec<&'static str> {
    PROGRAMS.iter().map(|program| program.id).collect()
}

/// Everything that other programs have. Files that are not there are left out.
#[must_use]
pub fn found(places: &Places) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for program in PROGRAMS {
        for source in program.sources.iter().filter(|source| source.systems.contains(&places.system)) {
            let base = match source.base {
                Base::Home => &places.home,
                Base::Config => &places.config,
                Base::Data => &places.data,
            };
            let path = base.join(source.path);
            // Two bases may be one folder.
            if all.iter().any(|found| found.path == path) {
                continue;
            }
            let (servers, problem) = match servers(&path, source, program.title) {
                Ok(None) => continue,
                Ok(Some(servers)) => (servers, None),
                Err(reason) => (Vec::new(), Some(reason)),
            };
            if !servers.is_empty() || problem.is_some() {
                all.push(Found { program: program.id, title: program.title, path, servers, problem });
            }
        }
    }
    all
}

/// The servers of a file; none where there is no file.
fn servers(path: &Path, source: &Source, title: &str) -> Result<Option<Vec<Importable>>, String> {
    let Some(text) = read(path)? else { return Ok(None) };
    let root = match source.format {
        Format::Json if text.trim_start_matches('\u{feff}').trim().is_empty() => return Ok(None),
        Format::Json => parse_any(&text, "the file").map_err(|error| error.to_string())?,
        Format::Toml => toml::from_str(&text).map_err(|error: toml::de::Error| format!("the file does not parse: {}", error.message()))?,
    };
    let section = source.sections.iter().find_map(|keys| keys.iter().try_fold(&root, |value, key| value.get(*key)));
    let Some(section) = section else { return Ok(Some(Vec::new())) };
    let entries = section.as_object().ok_or("its servers are no object { … }")?;
    let importable = |(name, value): (&String, &Value)| {
        let mut needs = Vec::new();
        let value = ours(name, value, &mut needs);
        let entry = Entry::read(name, &value);
        let problem = entry.problem.as_ref().map(|problem| problem.reason().to_owned());
        let consent = Consent::of_server(&entry.config, Origin::Imported(title.to_owned()));
        let notes = entry.notes.clone();
        Importable { name: name.clone(), consent, there: None, problem, needs, notes, value, entry }
    };
    Ok(Some(entries.iter().take(MOST).map(importable).collect()))
}

fn read(path: &Path) -> Result<Option<String>, String> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => return Ok(None),
        Ok(found) if found.len() > LARGEST => return Err(format!("it is larger than {LARGEST} bytes")),
        Ok(_) => {}
        // A folder that is none, or not ours to look into, holds nothing for us.
        Err(_) => return Ok(None),
    }
    let mut bytes = Vec::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let _ = file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it is larger than {LARGEST} bytes"));
    }
    decoded(bytes).map(Some)
}

/// An entry in our words. What the other program fills in by itself gets the name of ours, or is named as needed.
pub(super) fn ours(name: &str, value: &Value, needs: &mut Vec<String>) -> Value {
    let Value::Object(entry) = value else { return value.clone() };
    let mut entry = flat(Cow::Borrowed(entry)).into_owned();
    // Codex keeps headers under its own name.
    if let Some(headers) = entry.shift_remove("http_headers") {
        let _ = entry.insert("headers".to_owned(), headers);
    }
    let mut filled = Map::new();
    for (key, value) in entry {
        let value = if matches!(key.as_str(), "command" | "args" | "env" | "envFile" | "cwd" | "url" | "serverUrl" | "httpUrl" | "headers")
        {
            renamed(name, value, needs, 0)
        } else {
            value
        };
        let _ = filled.insert(key, value);
    }
    Value::Object(filled)
}

/// `${input:ID}` asks the person in VS Code; here it is a secret of the server's own.
fn renamed(name: &str, value: Value, needs: &mut Vec<String>, depth: usize) -> Value {
    match value {
        Value::String(text) => Value::String(renamed_text(name, &text, needs)),
        Value::Array(items) if depth < 4 => items.into_iter().map(|item| renamed(name, item, needs, depth + 1)).collect(),
        Value::Object(map) if depth < 4 => {
            Value::Object(map.into_iter().map(|(key, value)| (key, renamed(name, value, needs, depth + 1))).collect())
        }
        other => other,
    }
}

fn renamed_text(name: &str, text: &str, needs: &mut Vec<String>) -> String {
    const INPUT: &str = "${input:";
    // The folder that is open there is none that we know: the person says which one is meant.
    let text = text
        .replace("${userHome}", "${HOME}")
        .replace("${workspaceFolder}", "${input:workspaceFolder}")
        .replace("${pathSeparator}", std::path::MAIN_SEPARATOR_STR);
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(at) = rest.find(INPUT) {
        out.push_str(&rest[..at]);
        let inside = &rest[at + INPUT.len()..];
        let Some(end) = inside.find('}') else { break };
        let secret = secret_name(name, &secret_start(&inside[..end]), 0);
        out.push_str(&format!("${{secret:{secret}}}"));
        if !needs.contains(&secret) {
            needs.push(secret);
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_program_has_its_place_on_every_system() {
        for (system, claude, code, jan, zed) in [
            (System::Linux, ".config/Claude", ".config/Code/User", ".local/share/Jan/data", ".config/zed"),
            (
                System::MacOs,
                "Library/Application Support/Claude",
                "Library/Application Support/Code/User",
                "Library/Application Support/Jan/data",
                ".config/zed",
            ),
            (System::Windows, "AppData/Roaming/Claude", "AppData/Roaming/Code/User", "AppData/Roaming/Jan/data", "AppData/Roaming/Zed"),
        ] {
            let home = tempfile::tempdir().unwrap();
            let at = |folder: &str, file: &str| home.path().join(folder).join(file);
            let one = |name: &str| format!("{{\"mcpServers\": {{\"{name}\": {{\"command\": \"x\"}}}}}}");
            write(&at(claude, "claude_desktop_config.json"), &one("a"));
            write(
                &at(code, "mcp.json"),
                r#"{"servers": {"b": {"type": "stdio", "command": "x", "env": {"K": "${input:key}"}}}, "inputs": []}"#,
            );
            write(
                &at(code, "settings.json"),
                "{ // mine\n \"editor\": {\"command\": \"no\"}, \"mcp\": {\"servers\": {\"c\": {\"url\": \"https://h\"},}},}",
            );
            write(&at(code, "globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"), &one("d"));
            write(&at(jan, "mcp_config.json"), &one("e"));
            write(&at(zed, "settings.json"), r#"{"context_servers": {"f": {"command": {"path": "x", "args": ["1"], "env": {"A": "2"}}}}}"#);
            write(&at(".cursor", "mcp.json"), &one("g"));
            write(&at(".codeium/windsurf", "mcp_config.json"), &one("h"));
            write(&at(".lmstudio", "mcp.json"), &one("i"));
            write(&home.path().join(".claude.json"), &one("j"));
            write(&at(".gemini", "settings.json"), &one("k"));
            write(&at(".codex", "config.toml"), "model = \"m\"\n[mcp_servers.l]\ncommand = \"x\"\nargs = [\"1\"]\n");
            let found = found(&Places::under(home.path(), system));
            let names: Vec<(&str, &str)> =
                found.iter().flat_map(|found| found.servers.iter().map(|server| (found.program, server.name.as_str()))).collect();
            let wanted = [
                ("claude-desktop", "a"),
                ("claude-code", "j"),
                ("vscode", "b"),
                ("vscode", "c"),
                ("cursor", "g"),
                ("cline", "d"),
                ("jan", "e"),
                ("windsurf", "h"),
                ("lmstudio", "i"),
                ("zed", "f"),
                ("gemini", "k"),
                ("codex", "l"),
            ];
            assert_eq!(names, wanted, "{system:?}");
            assert!(found.iter().all(|found| found.problem.is_none() && found.servers.iter().all(|server| server.problem.is_none())));
            let zed = found.iter().find(|found| found.program == "zed").unwrap();
            assert_eq!(zed.servers[0].consent.subject.line(), "x 1");
            let code = found.iter().find(|found| found.program == "vscode").unwrap();
            assert_eq!(code.servers[0].needs, ["b.key"]);
            assert_eq!(code.servers[0].value["env"]["K"], "${secret:b.key}");
            assert_eq!(code.servers[0].consent.origin, Origin::Imported("VS Code".to_owned()));
        }
    }

    #[test]
    fn what_cannot_be_read_says_so_and_what_has_nothing_is_left_out() {
        let home = tempfile::tempdir().unwrap();
        assert!(found(&Places::under(home.path(), System::Linux)).is_empty());
        write(&home.path().join(".cursor/mcp.json"), "{\n  \"mcpServers\": {\n");
        write(&home.path().join(".lmstudio/mcp.json"), r#"{"mcpServers": [1]}"#);
        write(&home.path().join(".gemini/settings.json"), r#"{"theme": "x"}"#);
        write(&home.path().join(".config/Code/User/mcp.json"), "");
        write(&home.path().join(".claude.json"), r#"{"mcpServers": {"bad": {"command": ""}, "good": {"command": "x"}}}"#);
        write(&home.path().join(".codex/config.toml"), "= broken");
        fs::create_dir_all(home.path().join(".codeium/windsurf/mcp_config.json")).unwrap();
        let found = found(&Places::under(home.path(), System::Linux));
        let seen: Vec<(&str, usize, bool)> =
            found.iter().map(|found| (found.program, found.servers.len(), found.problem.is_some())).collect();
        assert_eq!(seen, [("claude-code", 2, false), ("cursor", 0, true), ("lmstudio", 0, true), ("codex", 0, true)]);
        assert!(found[1].problem.as_ref().unwrap().contains("line"), "{found:?}");
        assert!(found[0].servers[0].problem.as_ref().unwrap().contains("command"), "{found:?}");
    }

    #[test]
    fn an_endless_file_is_no_reason_to_hang() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(".cursor/mcp.json");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let file = fs::File::create(&path).unwrap();
        file.set_len(LARGEST + 1).unwrap();
        let found = found(&Places::under(home.path(), System::Linux));
        assert!(found[0].problem.as_ref().unwrap().contains("larger"));
        #[cfg(unix)]
        {
            fs::remove_file(&path).unwrap();
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
            assert!(super::found(&Places::under(home.path(), System::Linux)).is_empty());
        }
    }
}
