//! The server configuration from the command line: what it says, what it changes, and that it starts nothing that nobody
//! agreed to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use handrail_engine::mcp::State;
use handrail_engine::mcp::consent::Origin;
use handrail_engine::{Config, Engine};
use handrail_tests::{models, program, real_server};
use serde_json::{Value, json};

struct Terminal {
    folder: tempfile::TempDir,
}

impl Terminal {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn data(&self) -> PathBuf {
        self.path("data")
    }

    fn file(&self) -> PathBuf {
        self.data().join("mcp_config.json")
    }

    fn output(&self, arguments: &[&str]) -> Output {
        let home = self.path("home");
        Command::new(program("handrail-cli"))
            .args(["--data-dir".as_ref(), self.data().as_os_str(), "--json".as_ref(), "servers".as_ref()])
            .args(arguments)
            .env("HOME", &home)
            .env("TEST_KEY", "topsecret")
            .env_remove("XDG_CONFIG_HOME")
            .env_remove("XDG_DATA_HOME")
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What it printed, a JSON object per line.
    fn ok(&self, arguments: &[&str]) -> Vec<Value> {
        let output = self.output(arguments);
        let (printed, notes) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr).into_owned());
        assert!(output.status.success(), "{arguments:?}: {printed}{notes}");
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn fails(&self, arguments: &[&str]) -> String {
        let output = self.output(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// What it printed for people.
    fn words(&self, arguments: &[&str]) -> String {
        let program = Command::new(program("handrail-cli"))
            .args(["--data-dir".as_ref(), self.data().as_os_str(), "servers".as_ref()])
            .args(arguments)
            .env("HOME", self.path("home"))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        String::from_utf8(program.stdout).unwrap()
    }

    fn names(&self) -> Vec<String> {
        self.ok(&["list"]).iter().map(|line| line["server"].as_str().unwrap().to_owned()).collect()
    }
}

/// `ask` with a short answer, over a configuration file of its own where one is named.
fn ask(terminal: &Terminal, arguments: &[&str]) -> (bool, String, String) {
    let output = Command::new(program("handrail-cli"))
        .args(["--data-dir".as_ref(), terminal.data().as_os_str(), "--models-dir".as_ref(), models().as_os_str()])
        .args(["ask", "Say hello.", "--max-tokens", "8", "--json"])
        .args(arguments)
        .env("HOME", terminal.path("home"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let words = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), words(output.stdout), words(output.stderr))
}

#[test]
fn one_dead_server_costs_its_tools_and_not_the_answer() {
    let terminal = Terminal::new();
    // It takes the connection and never says a word.
    let dead = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = json!({ "url": format!("http://{}/mcp", dead.local_addr().unwrap()) });
    let file = terminal.path("mcp.json");
    fs::write(&file, json!({ "mcpServers": { "dead": dead, "time": real_server("time", terminal.folder.path()) } }).to_string()).unwrap();
    let begun = std::time::Instant::now();
    let (done, printed, notes) = ask(&terminal, &["--config", text(&file), "--yes", "--server-wait", "4"]);
    assert!(done && notes.contains("without server 'dead'"), "{printed}{notes}");
    assert!(printed.lines().any(|line| line.contains("server_left_out") && line.contains("dead")), "{printed}");
    assert!(printed.contains("\"event\":\"text\"") && !notes.contains("without server 'time'"), "{printed}{notes}");
    assert!(begun.elapsed().as_secs() < 50, "{:?}", begun.elapsed());
    // A plain question takes what is on and agreed to, and asks nobody.
    let own = json!({ "mcpServers": { "new": { "command": "never-started" }, "off": { "command": "x", "active": false } } });
    fs::write(terminal.file(), own.to_string()).unwrap();
    let (done, _, notes) = ask(&terminal, &[]);
    assert!(done && notes.contains("without server 'new': nobody has agreed") && !notes.contains("'off'"), "{notes}");
    let (done, _, notes) = ask(&terminal, &["--no-servers"]);
    assert!(done && !notes.contains("without server"), "{notes}");
    let (done, _, notes) = ask(&terminal, &["--require-servers"]);
    assert!(!done && notes.contains("nobody has agreed"), "{notes}");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn servers_are_added_switched_and_removed_and_none_is_started() {
    let terminal = Terminal::new();
    let marker = terminal.path("started");
    let entry = json!({ "command": "sh", "args": ["-c", format!("touch {}", marker.display())], "env": { "KEY": "topsecret" } });
    let file = terminal.path("paste.json");
    fs::write(&file, format!("// mine\n\"one\": {entry}, \"two\": {{\"url\": \"http://example.com\", \"active\": false}},")).unwrap();
    let shown = terminal.ok(&["add", text(&file), "--dry-run"]);
    assert_eq!((shown.len(), shown[0]["what"].as_str()), (2, Some("would be added")));
    assert!(!terminal.file().exists());
    let added = terminal.ok(&["add", text(&file)]);
    assert_eq!(added[0]["what"], "added");
    assert!(added[0]["starts"].as_str().unwrap().starts_with("sh -c "));
    assert!(added[0]["warnings"][0].as_str().unwrap().contains("sh runs this text"));
    assert_eq!(added[0]["names"], json!(["KEY"]));
    assert!(added[1]["warnings"][0].as_str().unwrap().contains("not encrypted"));
    assert!(!added.iter().any(|line| line.to_string().contains("topsecret")));
    assert_eq!(terminal.ok(&["add", text(&file)])[0]["what"], "replaced");
    assert_eq!(terminal.names(), ["one", "two"]);
    let _ = terminal.ok(&["enable", "two"]);
    let _ = terminal.ok(&["disable", "one"]);
    let active: Vec<Value> = terminal.ok(&["list"]).iter().map(|line| line["active"].clone()).collect();
    assert_eq!(active, [json!(false), json!(true)]);
    let _ = terminal.ok(&["enable", "one"]);
    let _ = terminal.ok(&["remove", "two"]);
    assert_eq!(terminal.names(), ["one"]);
    assert!(terminal.fails(&["remove", "two"]).contains("two"));
    fs::write(&file, r#"{"mcpServers": {"bad": {"command": ""}}}"#).unwrap();
    assert!(terminal.fails(&["add", text(&file)]).contains("\"command\""));
    assert!(!marker.exists(), "the command line started what it added");
    // Nor does the window, before somebody agreed there.
    let engine = Engine::start(Config { worker: Some(program("handrail-cli")), ..Config::new(terminal.data()) }).unwrap();
    let view = engine.servers().servers().remove(0);
    assert_eq!((view.state, view.consent.unwrap().origin), (State::NeedsConsent, Origin::Pasted));
    engine.block_on(engine.shutdown(handrail_engine::engine::Shutdown::Exit));
    assert!(!marker.exists());
}

#[test]
fn a_broken_file_is_put_back_and_kept() {
    let terminal = Terminal::new();
    let file = terminal.path("paste.json");
    fs::write(&file, r#"{"mcpServers": {"one": {"command": "x"}}}"#).unwrap();
    let _ = terminal.ok(&["add", text(&file)]);
    assert!(terminal.fails(&["restore"]).contains("no backup"));
    fs::write(terminal.file(), "{ broken").unwrap();
    let reason = terminal.fails(&["list"]);
    assert!(reason.contains("line 1, column 3") && reason.contains("servers restore"), "{reason}");
    assert!(terminal.fails(&["add", text(&file)]).contains("line 1"));
    assert_eq!(fs::read_to_string(terminal.file()).unwrap(), "{ broken");
    let back = terminal.ok(&["restore"]);
    assert_eq!(back[0]["servers"], json!(["one"]));
    assert_eq!(fs::read_to_string(back[0]["kept"].as_str().unwrap()).unwrap(), "{ broken");
    assert_eq!(terminal.names(), ["one"]);
}

#[test]
fn other_programs_links_and_the_gallery() {
    let terminal = Terminal::new();
    assert_eq!(terminal.ok(&["import"]), Vec::<Value>::new());
    // The same place on every system.
    let cursor = terminal.path("home/.cursor/mcp.json");
    fs::create_dir_all(cursor.parent().unwrap()).unwrap();
    let theirs = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"url": "https://h"}, "c": {"command": 3}}}"#;
    fs::write(&cursor, theirs).unwrap();
    let found = terminal.ok(&["import"]);
    assert_eq!(found.iter().map(|line| line["server"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert!(found[2]["problem"].as_str().unwrap().contains("command"));
    assert!(terminal.fails(&["import", "--from", "netscape"]).contains("cursor"));
    assert!(terminal.fails(&["import", "c"]).contains("command"));
    assert!(terminal.fails(&["import", "none"]).contains("'none'"));
    assert_eq!(terminal.ok(&["import", "--from", "cursor", "a"])[0]["server"], "a");
    // What can be taken over is; what cannot is told, and is no success.
    let all = terminal.output(&["import", "--all"]);
    let lines: Vec<Value> = String::from_utf8(all.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!all.status.success());
    assert_eq!((&lines[0]["added"], &lines[1]["skipped"]), (&json!(true), &json!("c")));
    assert_eq!(terminal.names(), ["a", "b"]);
    assert_eq!(fs::read_to_string(&cursor).unwrap(), theirs);

    let shown = terminal.ok(&["link", "handrail://mcp/install?name=l&command=npx&args=-y&args=pkg"]);
    assert_eq!((shown[0]["server"].as_str(), shown[0]["starts"].as_str()), (Some("l"), Some("npx -y pkg")));
    assert!(terminal.fails(&["link", "https://example.com"]).contains("handrail://"));
    assert_eq!(terminal.names(), ["a", "b"]);

    assert!(terminal.ok(&["gallery"]).iter().any(|line| line["id"] == "filesystem"));
    assert!(terminal.fails(&["gallery", "tavily", "--add"]).contains("API key"));
    assert!(terminal.fails(&["gallery", "none", "--add"]).contains("none"));
    let added = terminal.ok(&["gallery", "tavily", "--add", "--set-env", "key=TEST_KEY"]);
    assert_eq!((added[0]["server"].as_str(), added[0]["active"].as_bool()), (Some("tavily"), Some(false)));
    assert!(!fs::read_to_string(terminal.file()).unwrap().contains("topsecret"));
    assert!(terminal.fails(&["log", "a"]).contains("no log"));
}

#[test]
fn people_read_how_a_server_is_reached_what_came_of_it_and_which_file_is_wrong() {
    let terminal = Terminal::new();
    let file = terminal.path("mine.json");
    let servers = json!({ "mcpServers": {
        "one": { "command": "no-such-program-here", "args": ["-y", "x".repeat(200)] },
        "two": { "url": "http://127.0.0.1:9/mcp", "active": false }
    } });
    fs::write(&file, servers.to_string()).unwrap();
    let _ = terminal.ok(&["add", text(&file)]);
    let listed = terminal.words(&["list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    assert!(lines[0].starts_with("one") && lines[0].contains(" on ") && lines[0].contains("no-such-program-here -y xxx"), "{listed}");
    assert!(lines[0].ends_with('…') && !lines[0].contains("0 tools"), "{listed}");
    assert!(lines[1].starts_with("two") && lines[1].contains(" off ") && lines[1].contains("http://127.0.0.1:9/mcp"), "{listed}");

    let reason = terminal.fails(&["check", "one", "--yes"]);
    assert!(reason.contains("server 'one'") && !reason.contains("started: server 'one'") && !reason.contains('\u{1b}'), "{reason}");

    fs::write(&file, "{ broken").unwrap();
    let reason = terminal.fails(&["add", text(&file)]);
    assert!(reason.contains("mine.json") && reason.contains("line 1") && !reason.contains("pasted"), "{reason}");
    fs::write(&file, "{\"mcpServers\": {}}").unwrap();
    assert!(!terminal.fails(&["add", text(&file)]).contains("pasted"));
    let reason = terminal.fails(&["gallery", "nope"]);
    assert!(reason.contains("the gallery has no 'nope'"), "{reason}");
    let reason = terminal.fails(&["log", "nope"]);
    assert!(reason.contains("no server of that name") && !reason.contains("os error"), "{reason}");
}

#[test]
fn what_nobody_agreed_to_is_shown_and_not_started_and_agreeing_lasts() {
    let terminal = Terminal::new();
    let marker = terminal.path("started");
    let file = terminal.path("mine.json");
    let entry = |argument: &str| json!({ "command": "sh", "args": ["-c", format!("touch {}", marker.display()), argument], "env": { "KEY": "topsecret" } });
    let servers =
        |argument: &str| json!({ "mcpServers": { "one": entry(argument), "off": { "command": "x", "active": false } } }).to_string();
    fs::write(&file, servers("a")).unwrap();
    let _ = terminal.ok(&["add", text(&file)]);
    let reason = terminal.fails(&["check"]);
    for said in
        ["added by hand", "sh -c", "with KEY", "! sh runs this text", "nobody has agreed to start server 'one'", "--yes", "not checked"]
    {
        assert!(reason.contains(said), "{said}: {reason}");
    }
    assert!(!reason.contains("topsecret") && !reason.contains("'off'"), "{reason}");
    assert!(!marker.exists());
    // It is no server, but it ran; and need not be agreed to again.
    for arguments in [["check", "one", "--yes"].as_slice(), &["check", "one"]] {
        let reason = terminal.fails(arguments);
        assert!(!reason.contains("nobody has agreed"), "{reason}");
        fs::remove_file(&marker).unwrap();
    }
    // Another command is.
    fs::write(&file, servers("b")).unwrap();
    let _ = terminal.ok(&["add", text(&file)]);
    assert!(terminal.fails(&["check", "one"]).contains("nobody has agreed"));
    assert!(!marker.exists());
    // A file that is named on the command line is its caller's own.
    assert!(!terminal.fails(&["check", "one", "--config", text(&file)]).contains("nobody has agreed"));
    assert!(marker.exists());
}

#[cfg(unix)]
#[test]
fn what_is_kept_is_its_owners_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let terminal = Terminal::new();
    let file = terminal.path("mine.json");
    fs::write(&file, r#"{"mcpServers": {"one": {"command": "x"}}}"#).unwrap();
    let _ = terminal.ok(&["add", text(&file)]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&terminal.data()), 0o700);
    assert_eq!((mode(&terminal.data().join("handrail.db")), mode(&terminal.file())), (0o600, 0o600));
}

/// A zip of files that are stored as they are.
fn pack(path: &Path, files: &[(&str, &[u8])]) {
    let crc = |bytes: &[u8]| {
        let step = |crc: u32, bit: u32| if (crc ^ bit) & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
        !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc, |crc, at| step(crc, u32::from(byte >> at))))
    };
    let (mut body, mut list) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let (offset, length) = (u32::try_from(body.len()).unwrap(), u32::try_from(bytes.len()).unwrap());
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        common.extend(crc(bytes).to_le_bytes());
        common.extend([length.to_le_bytes(), length.to_le_bytes()].concat());
        common.extend(u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend([0, 0]);
        body.extend([b"PK\x03\x04", &*common, name.as_bytes(), bytes].concat());
        list.extend([b"PK\x01\x02\x14\0", &*common, &[0; 10], &offset.to_le_bytes(), name.as_bytes()].concat());
    }
    let count = u16::try_from(files.len()).unwrap().to_le_bytes();
    let (size, at) = (u32::try_from(list.len()).unwrap().to_le_bytes(), u32::try_from(body.len()).unwrap().to_le_bytes());
    fs::write(path, [&*body, &*list, b"PK\x05\x06\0\0\0\0", &count, &count, &size, &at, &[0, 0]].concat()).unwrap();
}

#[test]
fn a_bundle_is_installed_through_its_form_and_called_and_removed() {
    let terminal = Terminal::new();
    let script = json!({ "tools": [{ "name": "hello", "inputSchema": { "type": "object" }, "reply": { "text": "hello" } }] });
    let manifest = json!({
        "manifest_version": "0.3", "name": "scripted", "version": "1.0.0", "description": "A test",
        "server": { "type": "binary", "entry_point": "server/run", "mcp_config": {
            "command": program("handrail-scripted-server"), "args": ["${__dirname}/script.json", "--stdio"],
            "env": { "TOKEN": "${user_config.token}" } } },
        "user_config": { "token": { "type": "string", "title": "Token", "sensitive": true, "required": true } }
    });
    let path = terminal.path("scripted.mcpb");
    let (manifest, script) = (manifest.to_string(), script.to_string());
    pack(&path, &[("manifest.json", manifest.as_bytes()), ("script.json", script.as_bytes()), ("server/run", b"")]);
    let missing = terminal.output(&["install", text(&path)]);
    assert!(!missing.status.success());
    assert!(String::from_utf8_lossy(&missing.stdout).contains("\"token\""), "{missing:?}");
    assert!(!terminal.file().exists());
    let installed = terminal.ok(&["install", text(&path), "--set-env", "token=TEST_KEY"]);
    assert_eq!(installed[0]["server"], "scripted");
    assert!(terminal.data().join("bundles/scripted-1.0.0/script.json").is_file());
    assert!(!fs::read_to_string(terminal.file()).unwrap().contains("topsecret"));
    let reason = terminal.fails(&["call", "scripted", "hello", "{}", "--approve", "allow"]);
    assert!(reason.contains("nobody has agreed to start server 'scripted'") && reason.contains("from the bundle"), "{reason}");
    let called = terminal.ok(&["call", "scripted", "hello", "{}", "--approve", "allow", "--yes"]);
    assert!(called[0].to_string().contains("hello"), "{called:?}");
    let _ = terminal.ok(&["remove", "scripted"]);
    assert!(!terminal.data().join("bundles/scripted-1.0.0").exists() && terminal.names().is_empty());
    fs::write(&path, "no zip").unwrap();
    assert!(terminal.fails(&["install", text(&path)]).contains("no zip file"));
}
