//! The server configuration: watched, rejected, restored, imported, unpacked; and nothing runs before somebody agreed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use handrail_engine::mcp::bundle::Bundle;
use handrail_engine::mcp::consent::{Origin, Policy, Subject, Warning};
use handrail_engine::mcp::form::Answers;
use handrail_engine::mcp::import::{Places, System};
use handrail_engine::mcp::{self, Consent, Event, Manager, Options, ServerView, State, link};
use handrail_engine::secret::{self, Secret, Secrets};
use handrail_engine::store::Store;
use handrail_engine::tool::ServerId;
use handrail_engine::{Config, Engine};
use serde_json::{Value, json};

/// Generous: the machine that runs this may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long something that must not happen is waited for.
const NEVER: Duration = Duration::from_millis(1500);

struct Bench {
    folder: tempfile::TempDir,
    store: Store,
    drawer: Arc<Drawer>,
    manager: Manager,
}

impl Bench {
    fn new() -> Self {
        Self::with(Policy::Ask, None)
    }

    fn with(consent: Policy, text: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            fs::write(folder.path().join("mcp_config.json"), text).unwrap();
        }
        let store = Store::in_memory().unwrap();
        let drawer = Arc::new(Drawer::default());
        let options = Options { consent, secrets: Some(drawer.clone()), ..Options::default() };
        let manager = Manager::with(folder.path().join("mcp_config.json"), store.clone(), options);
        Self { folder, store, drawer, manager }
    }

    fn again(&mut self) {
        self.manager = manager(self.folder.path(), &self.store, Policy::Ask);
    }

    fn file(&self) -> PathBuf {
        self.path("mcp_config.json")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces the file as an editor does: another one takes its name.
    fn edit(&self, text: &str) {
        let other = self.path("mcp_config.json.swap");
        fs::write(&other, text).unwrap();
        fs::rename(other, self.file()).unwrap();
    }

    fn names(&self) -> Vec<String> {
        self.manager.servers().into_iter().map(|view| view.id.to_string()).collect()
    }

    fn view(&self, name: &str) -> ServerView {
        self.manager.servers().into_iter().find(|view| view.id.as_str() == name).unwrap()
    }

    fn consent(&self, name: &str) -> Consent {
        self.view(name).consent.unwrap()
    }

    async fn connected(&self, name: &str) -> ServerView {
        self.manager.ready(&name.into(), PATIENCE).await.unwrap()
    }
}

fn manager(folder: &Path, store: &Store, consent: Policy) -> Manager {
    Manager::with(folder.join("mcp_config.json"), store.clone(), Options { consent, ..Options::default() })
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A server that leaves a file behind when it is started.
fn marking(marker: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_mock.py");
    json!({ "command": "python3", "args": ["-u", script, json!({ "log": marker }).to_string()] })
}

fn file_of(name: &str, entry: &Value) -> String {
    json!({ "mcpServers": { name: entry } }).to_string()
}

#[derive(Debug, Default)]
struct Drawer(Mutex<std::collections::BTreeMap<String, String>>);

impl Drawer {
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

impl Secrets for Drawer {
    fn get(&self, name: &str) -> Result<Option<Secret>, secret::Error> {
        Ok(self.0.lock().unwrap().get(name).map(Secret::new))
    }

    fn set(&self, name: &str, secret: &Secret) -> Result<(), secret::Error> {
        let _ = self.0.lock().unwrap().insert(name.to_owned(), secret.reveal().to_owned());
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), secret::Error> {
        let _ = self.0.lock().unwrap().remove(name);
        Ok(())
    }

    fn place(&self) -> String {
        "a drawer".to_owned()
    }
}

#[tokio::test]
async fn nothing_is_started_before_somebody_agreed_and_a_changed_command_asks_again() {
    let mut bench = Bench::new();
    let (marker, other) = (bench.path("one"), bench.path("two"));
    let id = ServerId::from("s");
    // By paste, by start, at the start of the app, by its switch, by a call's wait: nothing runs.
    let _ = bench.manager.paste(&file_of("s", &marking(&marker))).unwrap();
    bench.manager.start_all();
    bench.manager.start(&id).unwrap();
    bench.manager.set_active(&id, true).await.unwrap();
    assert!(bench.manager.ready(&id, PATIENCE).await.unwrap_err().to_string().contains("agreed"));
    tokio::time::sleep(NEVER).await;
    let view = bench.view("s");
    assert_eq!((view.state, view.pid), (State::NeedsConsent, None));
    assert!(!marker.exists());
    let shown = view.consent.unwrap();
    assert_eq!(shown.origin, Origin::Pasted);
    let Subject::Program { command, args, .. } = &shown.subject else { panic!() };
    assert_eq!((command.as_str(), args.len()), ("python3", 3));
    // What was shown before a change counts for nothing.
    let stale = Consent { hash: "another".to_owned(), ..shown.clone() };
    assert!(bench.manager.agree(&id, &stale).is_err());
    assert_eq!(bench.view("s").state, State::NeedsConsent);
    bench.manager.agree(&id, &shown).unwrap();
    let view = bench.connected("s").await;
    assert!(view.consent.is_none() && marker.exists());
    // The same command stays agreed to over a restart of the app, also with other words about it.
    bench.manager.shutdown(Duration::from_secs(1)).await;
    fs::remove_file(&marker).unwrap();
    let mut entry = marking(&marker);
    entry["description"] = json!("mine");
    fs::write(bench.file(), file_of("s", &entry)).unwrap();
    bench.again();
    bench.manager.start_all();
    let _ = bench.connected("s").await;
    // Another command is stopped and asked about.
    bench.manager.set_entry_text(&id, &marking(&other).to_string()).unwrap();
    eventually("the old command still runs", || bench.view("s").state == State::NeedsConsent && bench.view("s").pid.is_none()).await;
    bench.manager.start(&id).unwrap();
    tokio::time::sleep(NEVER).await;
    assert!(!other.exists());
    assert!(bench.manager.agree(&id, &shown).is_err(), "the old agreement was taken for the new command");
    bench.manager.agree(&id, &bench.consent("s")).unwrap();
    let _ = bench.connected("s").await;
    assert!(other.exists());
    // A server that was removed and comes back is asked about again.
    bench.manager.remove(&id).await.unwrap();
    let _ = bench.manager.paste(&file_of("s", &marking(&other))).unwrap();
    assert_eq!(bench.view("s").state, State::NeedsConsent);
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn what_a_sheet_showed_is_agreed_to_with_the_paste_and_nothing_else_is() {
    let bench = Bench::new();
    let (good, bad) = (bench.path("good"), bench.path("bad"));
    let text = json!({ "mcpServers": { "good": marking(&good), "bad": marking(&bad) } }).to_string();
    let shown = bench.manager.preview(&text, &Origin::Link).unwrap();
    assert_eq!(shown.len(), 2);
    assert!(bench.names().is_empty() && !bench.file().exists());
    // Between the preview and the click, the text of one became another.
    let other = json!({ "mcpServers": { "good": marking(&good), "bad": marking(&bench.path("worse")) } }).to_string();
    let ids = bench.manager.add(&other, &Origin::Link, &shown).unwrap();
    assert_eq!(ids, [ServerId::from("good"), "bad".into()]);
    let _ = bench.connected("good").await;
    tokio::time::sleep(NEVER).await;
    assert_eq!(bench.view("bad").state, State::NeedsConsent);
    assert_eq!(bench.consent("bad").origin, Origin::Link);
    assert!(good.exists() && !bad.exists() && !bench.path("worse").exists());
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn whoever_may_run_any_program_is_not_asked_and_records_nothing() {
    let bench = Bench::with(Policy::Trust, None);
    let marker = bench.path("marker");
    let _ = bench.manager.paste(&file_of("s", &marking(&marker))).unwrap();
    let _ = bench.connected("s").await;
    assert_eq!(bench.store.server_consent(&"s".into()).unwrap(), None);
    bench.manager.shutdown(Duration::from_secs(1)).await;
    // The window over the same folder asks.
    let asking = manager(bench.folder.path(), &bench.store, Policy::Ask);
    asking.start_all();
    assert_eq!(asking.servers()[0].state, State::NeedsConsent);
}

#[tokio::test]
async fn an_edit_from_outside_is_applied_and_a_changed_command_does_not_run() {
    let bench = Bench::new();
    let (marker, other) = (bench.path("one"), bench.path("two"));
    bench.manager.start_all();
    // A file that appears.
    bench.edit(&file_of("s", &marking(&marker)));
    eventually("the new file was not read", || bench.names() == ["s"]).await;
    assert_eq!(bench.view("s").state, State::NeedsConsent);
    assert_eq!(bench.consent("s").origin, Origin::File);
    bench.manager.agree(&"s".into(), &bench.consent("s")).unwrap();
    let pid = bench.connected("s").await.pid;
    // Words and settings do not restart it.
    let mut entry = marking(&marker);
    entry["description"] = json!("new words");
    bench.edit(
        &json!({ "mcpServers": { "s": entry, "t": { "command": "x", "active": false } }, "mcpSettings": { "toolCallTimeoutSeconds": 7 } })
            .to_string(),
    );
    eventually("the words were not read", || bench.view("s").config.description.as_deref() == Some("new words")).await;
    assert_eq!((bench.view("s").pid, bench.names()), (pid, vec!["s".to_owned(), "t".to_owned()]));
    assert_eq!(bench.manager.settings().tool_call_timeout, Duration::from_secs(7));
    // A broken file changes nothing that runs, and is not written over.
    let mut events = bench.manager.subscribe();
    let broken = "{\n  \"mcpServers\": {\n    \"s\": }\n}";
    bench.edit(broken);
    eventually("the broken file was not noticed", || bench.manager.config_error().is_some()).await;
    let error = bench.manager.config_error().unwrap();
    assert!(error.contains("line 3, column 10"), "{error}");
    assert!(std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, Event::ConfigRejected { .. })));
    assert_eq!(bench.view("s").pid, pid);
    assert!(bench.manager.paste(r#""n": {"command": "x"}"#).is_err());
    assert_eq!(fs::read_to_string(bench.file()).unwrap(), broken);
    // Another command from outside stops the server and asks.
    bench.edit(&file_of("s", &marking(&other)));
    eventually("the new command was not asked about", || bench.view("s").state == State::NeedsConsent && bench.view("s").pid.is_none())
        .await;
    tokio::time::sleep(NEVER).await;
    assert!(!other.exists() && bench.manager.config_error().is_none());
    // A file that says that there are none takes its servers with it.
    bench.edit(r#"{"mcpServers": {}}"#);
    eventually("the servers that were taken out are still there", || bench.names().is_empty()).await;
    assert_eq!(bench.manager.config_error(), None);
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn the_last_good_file_is_offered_and_comes_back() {
    let bench = Bench::with(Policy::Ask, Some(r#"{"mcpServers": {"a": {"command": "x", "active": false}}}"#));
    assert_eq!(bench.manager.config_backup(), None, "what the file holds is no backup of it");
    let _ = bench.manager.paste(r#""b": {"command": "y", "active": false}"#).unwrap();
    let good = fs::read_to_string(bench.file()).unwrap();
    bench.edit("{ broken");
    eventually("the broken file was not noticed", || bench.manager.config_error().is_some()).await;
    assert_eq!(bench.names(), ["a", "b"]);
    let backup = bench.manager.config_backup().unwrap();
    assert_eq!(backup.servers, [ServerId::from("a"), "b".into()]);
    assert_eq!(backup.path, bench.path("mcp_config.json.bak"));
    let kept = bench.manager.restore_backup().unwrap().unwrap();
    assert_eq!(fs::read_to_string(kept).unwrap(), "{ broken");
    assert_eq!((fs::read_to_string(bench.file()).unwrap(), bench.manager.config_error()), (good, None));
    assert_eq!(bench.manager.config_backup(), None);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        for file in ["mcp_config.json", "mcp_config.json.bak", "mcp_config.json.broken"] {
            assert_eq!(fs::metadata(bench.path(file)).unwrap().permissions().mode() & 0o777, 0o600, "{file}");
        }
    }
}

#[tokio::test]
async fn settings_have_their_defaults_and_wrong_ones_are_named() {
    let bench = Bench::with(
        Policy::Ask,
        Some(r#"{"mcpServers": {}, "mcpSettings": {"toolCallTimeoutSeconds": 0, "backoffMultiplier": 3, "mine": 1}}"#),
    );
    assert_eq!(bench.manager.config_error(), None);
    let errors: Vec<String> = bench.manager.setting_errors().iter().map(ToString::to_string).collect();
    assert!(errors.len() == 1 && errors[0].contains("toolCallTimeoutSeconds"), "{errors:?}");
    let mut settings = bench.manager.settings();
    assert_eq!((settings.tool_call_timeout, settings.backoff_multiplier), (Duration::from_secs(30), 3.0));
    settings.tool_call_timeout = Duration::from_secs(12);
    settings.allow_sampling = true;
    bench.manager.set_settings(&settings).unwrap();
    assert_eq!((bench.manager.settings(), bench.manager.setting_errors().len()), (settings.clone(), 0));
    let saved: Value = serde_json::from_str(&fs::read_to_string(bench.file()).unwrap()).unwrap();
    assert_eq!(saved["mcpSettings"], json!({"toolCallTimeoutSeconds": 12, "backoffMultiplier": 3, "mine": 1, "allowSampling": true}));
    settings.backoff_multiplier = 0.1;
    assert!(bench.manager.set_settings(&settings).unwrap_err().to_string().contains("backoffMultiplier"));
}

#[tokio::test]
async fn an_entry_is_shown_and_replaced_as_text_and_its_faults_carry_their_field() {
    let bench = Bench::with(Policy::Ask, Some(r#"{"mcpServers": {"a": {"command": "x", "active": false, "mine": [1]}}}"#));
    let id = ServerId::from("a");
    let text = bench.manager.entry_text(&id).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), json!({"command": "x", "active": false, "mine": [1]}));
    let before = fs::read_to_string(bench.file()).unwrap();
    for (wrong, at) in [
        (r#"{"command": ""}"#, Some("command")),
        (r#"{"url": "http://h", "headers": {"a b": "1"}}"#, Some("headers.a b")),
        (r#"{"url": "http://h", "env": {"A": "1"}}"#, Some("env")),
    ] {
        let mcp::Error::Config(mcp::config::Error::Field { field, .. }) = bench.manager.set_entry_text(&id, wrong).unwrap_err() else {
            panic!("{wrong}")
        };
        assert_eq!(field.as_deref(), at, "{wrong}");
    }
    let error = bench.manager.set_entry_text(&id, "{\n \"command\" }").unwrap_err().to_string();
    assert!(error.contains("line 2"), "{error}");
    assert_eq!(fs::read_to_string(bench.file()).unwrap(), before);
    bench.manager.set_entry_text(&id, r#"{"command": "y", "active": false, "mine": [1],}"#).unwrap();
    assert_eq!(bench.consent("a").subject.line(), "y");
    bench.manager.set_tool_enabled(&id, "rm", false).unwrap();
    assert_eq!(bench.view("a").config.disabled_tools, ["rm"]);
    assert!(bench.manager.entry_text(&"none".into()).is_err());
}

#[tokio::test]
async fn tools_come_for_named_servers_each_once_and_summaries_need_no_server() {
    let bench = Bench::with(Policy::Trust, None);
    let mut entry = marking(&bench.path("log"));
    entry["disabledTools"] = json!(["hang"]);
    let off = json!({ "command": "no-such-program", "active": false, "description": "Files", "capabilities": ["read"] });
    let _ = bench.manager.paste(&json!({ "on": entry, "off": off }).to_string()).unwrap();
    let view = bench.connected("on").await;
    assert!(view.tools.iter().any(|tool| tool.id.name == "hang"), "the screen shows what is switched off");
    let (on, off) = (ServerId::from("on"), ServerId::from("off"));
    let tools = bench.manager.tools_of(&[on.clone(), off.clone(), on.clone(), "none".into()]);
    assert_eq!(tools.len(), view.tools.len() - 1);
    assert!(tools.iter().all(|tool| tool.id.server == on && tool.id.name != "hang"));
    assert_eq!(bench.manager.tools().len(), tools.len());
    assert!(bench.manager.tools_of(&[]).is_empty());
    bench.manager.set_tool_enabled(&on, "hang", true).unwrap();
    assert_eq!(bench.manager.tools_of(&[on]).len(), view.tools.len());
    assert_eq!(bench.view("on").pid, view.pid, "a tool's switch restarted the server");
    let summaries = bench.manager.summaries();
    assert_eq!(summaries.iter().map(|summary| summary.server.as_str()).collect::<Vec<_>>(), ["off", "on"]);
    assert_eq!((summaries[0].description.as_str(), summaries[0].capabilities.clone()), ("Files", vec!["read".to_owned()]));
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[test]
fn without_servers_or_a_runtime_every_list_is_empty() {
    let check = |manager: &Manager| {
        assert!(manager.servers().is_empty() && manager.tools().is_empty() && manager.summaries().is_empty());
        assert!(manager.tools_of(&["a".into()]).is_empty());
        assert_eq!((manager.config_error(), manager.config_backup()), (None, None));
        assert_eq!(manager.settings(), mcp::config::Settings::default());
        manager.start_all();
        assert!(manager.start(&"a".into()).is_err());
    };
    let folder = tempfile::tempdir().unwrap();
    check(&Manager::off(Store::in_memory().unwrap()));
    assert!(Manager::off(Store::in_memory().unwrap()).paste(r#""a": {"command": "x"}"#).is_err());
    // No runtime: what is configured cannot be used, and says so in the log only.
    check(&manager(folder.path(), &Store::in_memory().unwrap(), Policy::Trust));
}

#[test]
fn an_engine_without_mcp_reads_no_file_and_answers_everything() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mcp_config.json"), r#"{"mcpServers": {"a": {"command": "x"}}}"#).unwrap();
    let engine = Engine::start(Config { mcp: false, worker: Some("none".into()), ..Config::new(folder.path()) }).unwrap();
    assert!(engine.servers().servers().is_empty() && engine.servers().tools().is_empty() && engine.servers().summaries().is_empty());
    assert!((engine.runner().tools)().is_empty());
    engine.block_on(engine.shutdown(handrail_engine::engine::Shutdown::Exit));
    let engine = Engine::start(Config { start_servers: false, worker: Some("none".into()), ..Config::new(folder.path()) }).unwrap();
    assert_eq!(engine.servers().servers().len(), 1);
    engine.block_on(engine.shutdown(handrail_engine::engine::Shutdown::Exit));
}

#[test]
fn what_the_file_says_about_output_and_time_reaches_the_turn() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("settings.toml"), "tool_result_characters = 1234\ntool_timeout_seconds = 9\n").unwrap();
    let path = folder.path().join("mcp_config.json");
    let start = || Engine::start(Config { worker: Some("none".into()), ..Config::new(folder.path()) }).unwrap();
    // The settings' values are what the file goes over.
    let engine = start();
    let settings = engine.runner().settings;
    assert_eq!((settings.tool_result_characters, settings.tool_timeout_seconds), (1234, 9));
    engine.block_on(engine.shutdown(handrail_engine::engine::Shutdown::Exit));
    fs::write(
        &path,
        r#"{"mcpSettings": {"maxToolOutputCharacters": 777, "enableSmartToolRouting": false, "toolCallTimeoutSeconds": 1.5}}"#,
    )
    .unwrap();
    let engine = start();
    let settings = engine.runner().settings;
    assert_eq!((settings.tool_result_characters, settings.tool_timeout_seconds), (777, 2));
    assert!(settings.routing_share.is_infinite());
    engine.block_on(engine.shutdown(handrail_engine::engine::Shutdown::Exit));
}

#[tokio::test]
async fn servers_of_other_programs_are_listed_and_taken_over() {
    let bench = Bench::new();
    let home = tempfile::tempdir().unwrap();
    let cursor = home.path().join(".cursor/mcp.json");
    let claude = home.path().join(".config/Claude/claude_desktop_config.json");
    for (path, text) in [
        (
            &cursor,
            json!({"mcpServers": {"same": {"command": "x", "disabled": true}, "taken": {"command": "from-cursor", "disabled": true}}}),
        ),
        (&claude, json!({"mcpServers": {"taken": {"command": "from-claude", "active": false}, "bad": {"command": ""}}})),
    ] {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.to_string()).unwrap();
    }
    let before = (fs::read(&cursor).unwrap(), fs::read(&claude).unwrap());
    let _ = bench
        .manager
        .paste(r#"{"mcpServers": {"same": {"command": "x", "active": false}, "taken": {"command": "mine", "active": false}}}"#)
        .unwrap();
    let found = bench.manager.importable(&Places::under(home.path(), System::Linux));
    let all: Vec<_> = found.iter().flat_map(|found| found.servers.iter().map(|server| (found.program, server.clone()))).collect();
    let there: Vec<(&str, &str, bool)> =
        all.iter().map(|(program, server)| (*program, server.name.as_str(), server.there.is_some())).collect();
    assert_eq!(
        there,
        [("claude-desktop", "taken", false), ("claude-desktop", "bad", false), ("cursor", "same", true), ("cursor", "taken", false)]
    );
    assert!(all[1].1.problem.is_some());
    assert!(bench.manager.import(&[all[1].1.clone()], true).is_err());
    let chosen: Vec<_> = all.iter().filter(|(_, server)| server.problem.is_none()).map(|(_, server)| server.clone()).collect();
    let ids = bench.manager.import(&chosen, true).unwrap();
    assert_eq!(ids, [ServerId::from("taken-2"), "taken-3".into()]);
    assert_eq!(bench.names(), ["same", "taken", "taken-2", "taken-3"]);
    // Agreed to with the import; the others were never agreed to.
    assert!(bench.view("taken-2").consent.is_none() && bench.view("taken-3").consent.is_none() && bench.view("taken").consent.is_some());
    assert_eq!((fs::read(&cursor).unwrap(), fs::read(&claude).unwrap()), before);
    assert!(
        bench.manager.import(&bench.manager.importable(&Places::under(home.path(), System::Linux))[1].servers, true).unwrap().is_empty()
    );
}

#[tokio::test]
async fn the_gallery_adds_what_is_off_and_keeps_keys_out_of_the_file() {
    let bench = Bench::new();
    let answers = Answers::from([("key".to_owned(), json!("topsecret"))]);
    let id = bench.manager.add_from_gallery("tavily", &answers).unwrap();
    let again = bench.manager.add_from_gallery("tavily", &answers).unwrap();
    assert_eq!((id.as_str(), again.as_str()), ("tavily", "tavily-2"));
    assert_eq!(bench.drawer.names(), ["tavily-2.key", "tavily.key"]);
    let text = fs::read_to_string(bench.file()).unwrap();
    assert!(!text.contains("topsecret") && text.contains("${secret:tavily.key}"), "{text}");
    let view = bench.view("tavily");
    assert_eq!((view.state.clone(), view.config.active), (State::Stopped, false));
    let consent = view.consent.unwrap();
    assert_eq!(consent.origin, Origin::Gallery);
    assert!(consent.warnings.contains(&Warning::Secret { name: "tavily.key".to_owned() }), "{consent:?}");
    assert!(bench.manager.add_from_gallery("tavily", &Answers::new()).unwrap_err().to_string().contains("API key"));
    assert!(bench.manager.add_from_gallery("none", &Answers::new()).is_err());
    assert!(bench.manager.gallery().len() >= 11);
    let check = bench.manager.gallery_check("git").await.unwrap();
    assert_eq!(check.asks, ["repository"]);
    assert_eq!(check.ready, check.missing.is_empty());
    assert_eq!(check.found.len() + check.missing.len(), 2, "{check:?}");
}

/// A bundle whose server leaves a file behind, and answers with what it was given.
fn bundle(path: &Path, version: &str, extra: &[(&str, &[u8])]) {
    let manifest = json!({
        "manifest_version": "0.3", "name": "marker", "display_name": "Marker", "version": version, "description": "Marks",
        "author": {"name": "Somebody"},
        "server": {"type": "python", "entry_point": "server/main.py", "mcp_config": {
            "command": "python3", "args": ["-u", "${__dirname}/server/main.py", "{\"log\": \"${user_config.log}\"}", "${user_config.extra}"],
            "env": {"API_KEY": "${user_config.key}", "NOTHING": "${user_config.extra}", "REACH": "${secret:other.key}"}}},
        "user_config": {
            "log": {"type": "string", "title": "Log", "required": true},
            "key": {"type": "string", "title": "Key", "sensitive": true, "required": true},
            "extra": {"type": "directory", "title": "Extra", "multiple": true}}
    });
    let script = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_mock.py")).unwrap();
    let manifest = manifest.to_string();
    let mut files: Vec<(&str, &[u8])> = vec![("manifest.json", manifest.as_bytes()), ("server/main.py", &script)];
    files.extend(extra);
    pack(path, &files);
}

fn pack(path: &Path, files: &[(&str, &[u8])]) {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in files {
        writer.start_file(*name, zip::write::SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }
    fs::write(path, writer.finish().unwrap().into_inner()).unwrap();
}

fn folders(bench: &Bench) -> Vec<String> {
    let Ok(entries) = fs::read_dir(bench.path("bundles")) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_is_asked_about_unpacked_run_updated_and_leaves_nothing() {
    let bench = Bench::new();
    let (path, log) = (bench.path("marker.mcpb"), bench.path("log"));
    bundle(&path, "1.0.0", &[]);
    let mut opened = Bundle::open(&path).unwrap();
    assert_eq!((opened.title(), opened.version(), opened.author(), opened.fields().len()), ("Marker", "1.0.0", "Somebody", 3));
    let mut answers = Answers::from([("log".to_owned(), json!(log))]);
    let missing = bench.manager.preview_bundle(&opened, &answers).unwrap_err();
    assert!(matches!(&missing, mcp::Error::Config(mcp::config::Error::Field { field: Some(field), .. }) if field == "key"), "{missing}");
    assert!(bench.manager.install_bundle(&mut opened, &answers, None).is_err());
    assert!(folders(&bench).is_empty() && bench.drawer.names().is_empty() && !bench.file().exists());
    let _ = answers.insert("key".to_owned(), json!("topsecret"));
    let (id, shown) = bench.manager.preview_bundle(&opened, &answers).unwrap();
    assert_eq!((id.as_str(), shown.origin.clone()), ("marker", Origin::Bundle("marker-1.0.0".to_owned())));
    assert_eq!(shown.warnings, [Warning::Secret { name: "marker.key".to_owned() }], "it reaches no other secret");
    assert!(folders(&bench).is_empty());
    // Installed without anybody's word, it does not run.
    let _ = bench.manager.install_bundle(&mut opened, &answers, None).unwrap();
    tokio::time::sleep(NEVER).await;
    assert_eq!((bench.view("marker").state, log.exists()), (State::NeedsConsent, false));
    assert_eq!((folders(&bench), bench.drawer.names()), (vec!["marker-1.0.0".to_owned()], vec!["marker.key".to_owned()]));
    let text = fs::read_to_string(bench.file()).unwrap();
    assert!(!text.contains("topsecret") && text.contains("$${secret:other.key}") && !text.contains("NOTHING"), "{text}");
    // An update replaces it, and has to be agreed to anew even where its command is the same.
    bench.manager.agree(&id, &bench.consent("marker")).unwrap();
    assert_eq!(bench.view("marker").consent, None);
    bundle(&path, "1.1.0", &[("new.txt", b"new")]);
    let mut opened = Bundle::open(&path).unwrap();
    let (same, shown) = bench.manager.preview_bundle(&opened, &answers).unwrap();
    assert_eq!(same, id);
    let _ = bench.manager.install_bundle(&mut opened, &answers, None).unwrap();
    assert_eq!(folders(&bench), ["marker-1.1.0"]);
    assert_eq!(bench.consent("marker").hash, shown.hash);
    bundle(&path, "1.1.0", &[]);
    let mut opened = Bundle::open(&path).unwrap();
    bench.manager.agree(&id, &shown).unwrap();
    let _ = bench.manager.install_bundle(&mut opened, &answers, None).unwrap();
    assert_eq!(bench.consent("marker").hash, shown.hash, "other content behind the same command was taken as agreed to");
    assert!(!bench.path("bundles/marker-1.1.0/new.txt").exists());
    // With its server it goes.
    bench.manager.remove(&id).await.unwrap();
    assert!(folders(&bench).is_empty() && bench.drawer.names().is_empty());
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn an_agreed_bundle_runs_from_its_folder() {
    let bench = Bench::with(Policy::Trust, None);
    let (path, log) = (bench.path("marker.mcpb"), bench.path("log"));
    // Nothing secret in it: the expansion of secrets is tested with the keyring.
    let manifest = json!({"name": "plain", "version": "1", "server": {"type": "python", "mcp_config": {
        "command": "python3", "args": ["-u", "${__dirname}/main.py", "{\"log\": \"${user_config.log}\"}"]}},
        "user_config": {"log": {"type": "string", "required": true}}});
    let script = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_mock.py")).unwrap();
    pack(&path, &[("manifest.json", manifest.to_string().as_bytes()), ("main.py", &script)]);
    let mut opened = Bundle::open(&path).unwrap();
    let id = bench.manager.install_bundle(&mut opened, &Answers::from([("log".to_owned(), json!(log))]), None).unwrap();
    let view = bench.connected(id.as_str()).await;
    assert!(log.exists() && view.tools.iter().any(|tool| tool.id.name == "echo"));
    bench.manager.remove(&id).await.unwrap();
    assert!(folders(&bench).is_empty());
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn hostile_bundles_change_nothing() {
    let bench = Bench::new();
    let path = bench.path("evil.mcpb");
    let manifest = br#"{"name": "evil", "version": "1", "server": {"type": "node", "entry_point": "x.js"}}"#;
    let zeros = vec![0_u8; 64 * 1024 * 1024];
    let spaces = vec![b' '; 2 * 1024 * 1024];
    let cases: Vec<(&str, Vec<(&str, &[u8])>)> = vec![
        ("escape", vec![("manifest.json", manifest), ("x.js", b""), ("../escaped", b"x")]),
        ("deep escape", vec![("manifest.json", manifest), ("x.js", b""), ("a/b/../../../escaped", b"x")]),
        ("absolute", vec![("manifest.json", manifest), ("x.js", b""), ("/tmp/escaped", b"x")]),
        ("drive", vec![("manifest.json", manifest), ("x.js", b""), ("C:\\escaped", b"x")]),
        ("bomb", vec![("manifest.json", manifest), ("x.js", b""), ("bomb", &zeros)]),
        ("huge manifest", vec![("manifest.json", &spaces)]),
        ("no entry point", vec![("manifest.json", manifest), ("y.js", b"")]),
        ("no manifest", vec![("x", b"x")]),
        ("broken manifest", vec![("manifest.json", b"{")]),
        ("outside program", vec![("manifest.json", br#"{"name": "evil", "server": {"type": "binary", "entry_point": "../../bin/sh"}}"#)]),
    ];
    for (what, files) in cases {
        pack(&path, &files);
        let outcome = Bundle::open(&path)
            .map_err(mcp::Error::from)
            .and_then(|mut opened| bench.manager.install_bundle(&mut opened, &Answers::new(), None));
        let error = outcome.expect_err(what).to_string();
        assert!(error.contains("evil.mcpb"), "{what}: {error}");
        assert!(folders(&bench).is_empty() && bench.names().is_empty(), "{what}: {:?}", folders(&bench));
    }
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("manifest.json", zip::write::SimpleFileOptions::default()).unwrap();
    writer.write_all(manifest).unwrap();
    writer.start_file("x.js", zip::write::SimpleFileOptions::default()).unwrap();
    writer.add_symlink("link", "/etc", zip::write::SimpleFileOptions::default()).unwrap();
    fs::write(&path, writer.finish().unwrap().into_inner()).unwrap();
    let mut opened = Bundle::open(&path).unwrap();
    assert!(bench.manager.install_bundle(&mut opened, &Answers::new(), None).unwrap_err().to_string().contains("link"));
    assert!(!bench.path("escaped").exists() && !Path::new("/tmp/escaped").exists() && folders(&bench).is_empty());
    // A name cannot choose its folder either.
    pack(
        &path,
        &[("manifest.json", br#"{"name": "../../x", "version": "..", "server": {"type": "node", "entry_point": "x.js"}}"#), ("x.js", b"")],
    );
    let mut opened = Bundle::open(&path).unwrap();
    let id = bench.manager.install_bundle(&mut opened, &Answers::new(), None).unwrap();
    assert_eq!(folders(&bench), ["_.._x-bundle"]);
    bench.manager.remove(&id).await.unwrap();
    assert!(folders(&bench).is_empty() && bench.file().exists());
}

#[tokio::test]
async fn a_bundle_that_cannot_be_added_is_taken_back() {
    let bench = Bench::with(Policy::Ask, Some("{ broken"));
    let path = bench.path("marker.mcpb");
    bundle(&path, "1", &[]);
    let mut opened = Bundle::open(&path).unwrap();
    let answers = Answers::from([("log".to_owned(), json!("x")), ("key".to_owned(), json!("k"))]);
    let error = bench.manager.install_bundle(&mut opened, &answers, None).unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
    assert!(folders(&bench).is_empty() && bench.drawer.names().is_empty());
    assert_eq!(fs::read_to_string(bench.file()).unwrap(), "{ broken");
}

#[tokio::test]
async fn a_link_only_ever_becomes_a_preview() {
    let bench = Bench::new();
    let marker = bench.path("marker");
    let entry = marking(&marker).to_string();
    let config: String = entry.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let text = link::read(&format!("handrail://mcp/install?name=linked&config={config}")).unwrap();
    let shown = bench.manager.preview(&text, &Origin::Link).unwrap();
    assert_eq!((shown.len(), shown[0].0.as_str(), shown[0].1.origin.clone()), (1, "linked", Origin::Link));
    tokio::time::sleep(NEVER).await;
    assert!(!marker.exists() && bench.names().is_empty() && !bench.file().exists());
    let _ = bench.manager.add(&text, &Origin::Link, &shown).unwrap();
    let _ = bench.connected("linked").await;
    assert!(marker.exists());
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_server_that_ran_under_an_earlier_version_is_asked_about_once() {
    let folder = tempfile::tempdir().unwrap();
    let marker = folder.path().join("marker");
    fs::write(folder.path().join("mcp_config.json"), file_of("old", &marking(&marker))).unwrap();
    let store = Store::in_memory().unwrap();
    store.set_server_era("something that ran", "legacy").unwrap();
    let first = manager(folder.path(), &store, Policy::Ask);
    first.start_all();
    let view = &first.servers()[0];
    assert_eq!(view.state, State::NeedsConsent);
    first.agree(&view.id, view.consent.as_ref().unwrap()).unwrap();
    let _ = first.ready(&view.id, PATIENCE).await.unwrap();
    first.shutdown(Duration::from_secs(1)).await;
    let second = manager(folder.path(), &store, Policy::Ask);
    second.start_all();
    let _ = second.ready(&view.id, PATIENCE).await.unwrap();
    second.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_file_that_is_blank_or_gone_is_no_wish_to_have_no_servers() {
    let mut bench = Bench::new();
    let marker = bench.path("one");
    let text = file_of("s", &marking(&marker));
    let shown = bench.manager.preview(&text, &Origin::Pasted).unwrap();
    assert_eq!(bench.manager.config_error(), None, "a first run has no file");
    let _ = bench.manager.add(&text, &Origin::Pasted, &shown).unwrap();
    let pid = bench.connected("s").await.pid;
    let good = fs::read_to_string(bench.file()).unwrap();
    let backup = bench.path("mcp_config.json.bak");
    let mut events = bench.manager.subscribe();
    for what in ["", " \n\t", "\u{feff}"] {
        bench.edit(what);
        eventually("the blank file was not noticed", || bench.manager.config_error().is_some_and(|error| error.contains("empty"))).await;
        assert_eq!(bench.view("s").pid, pid, "{what:?}");
        assert!(bench.manager.paste(r#""n": {"command": "x", "active": false}"#).is_err(), "{what:?}");
        assert_eq!((fs::read_to_string(bench.file()).unwrap(), fs::read_to_string(&backup).unwrap()), (what.to_owned(), good.clone()));
        assert_eq!(bench.manager.config_backup().unwrap().servers, [ServerId::from("s")]);
    }
    assert!(std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, Event::ConfigRejected { .. })));
    fs::remove_file(bench.file()).unwrap();
    eventually("the missing file was not noticed", || bench.manager.config_error().is_some_and(|error| error.contains("gone"))).await;
    assert!(bench.manager.paste(r#""n": {"command": "x", "active": false}"#).is_err());
    assert_eq!((bench.view("s").pid, bench.file().exists()), (pid, false));
    assert_eq!(bench.store.server_consent(&"s".into()).unwrap().unwrap(), shown[0].1.hash);
    bench.manager.shutdown(Duration::from_secs(1)).await;
    // The next start finds the same, knows of no server yet, and forgets nothing.
    bench.again();
    assert!(bench.manager.config_error().is_some_and(|error| error.contains("gone")));
    assert_eq!(bench.manager.restore_backup().unwrap(), None);
    assert_eq!((bench.manager.config_error(), fs::read_to_string(bench.file()).unwrap()), (None, good.clone()));
    assert_eq!((bench.view("s").consent, bench.store.server_origin(&"s".into()).unwrap().is_some()), (None, true));
    // Who writes that there are none wants none, and the backup stays for who did not mean it.
    bench.edit(r#"{"mcpServers": {}}"#);
    eventually("the servers that were taken out are still there", || bench.names().is_empty()).await;
    bench.manager.set_settings(&mcp::config::Settings { allow_sampling: true, ..bench.manager.settings() }).unwrap();
    assert_eq!((bench.manager.config_error(), fs::read_to_string(&backup).unwrap()), (None, good));
    // Who takes out the last one by hand needs no backup of it.
    let _ = bench.manager.paste(r#""n": {"command": "x", "active": false}"#).unwrap();
    bench.manager.remove(&"n".into()).await.unwrap();
    fs::remove_file(bench.file()).unwrap();
    bench.again();
    assert_eq!((bench.manager.config_error(), bench.names().len()), (None, 0));
}

#[tokio::test]
async fn nothing_is_heard_of_a_server_after_its_removal() {
    let bench = Bench::with(Policy::Trust, None);
    for by_hand in [false, true] {
        let _ = bench.manager.paste(&file_of("s", &marking(&bench.path("log")))).unwrap();
        let _ = bench.connected("s").await;
        let mut events = bench.manager.subscribe();
        if by_hand {
            bench.manager.remove(&"s".into()).await.unwrap();
        } else {
            bench.edit(r#"{"mcpServers": {}}"#);
            eventually("the server is still there", || bench.names().is_empty()).await;
        }
        tokio::time::sleep(NEVER).await;
        let heard: Vec<Event> = std::iter::from_fn(|| events.try_recv().ok()).collect();
        let removed = heard.iter().position(|event| matches!(event, Event::Removed(id) if id.as_str() == "s")).unwrap();
        assert!(!heard[removed..].iter().any(|event| matches!(event, Event::Changed(_))), "{heard:?}");
    }
    // One that comes back under the same name is heard of.
    let mut events = bench.manager.subscribe();
    let _ = bench.manager.paste(r#""s": {"command": "x", "active": false}"#).unwrap();
    assert!(std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, Event::Changed(view) if view.id.as_str() == "s")));
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn nothing_starts_and_nothing_is_written_once_the_shutdown_began() {
    let bench = Bench::with(Policy::Trust, Some(r#"{"mcpServers": {"a": {"command": "x", "active": false}}}"#));
    let marker = bench.path("marker");
    bench.manager.start_all();
    bench.manager.shutdown(Duration::from_secs(1)).await;
    let before = fs::read_to_string(bench.file()).unwrap();
    let entry = marking(&marker);
    assert!(bench.manager.paste(&file_of("s", &entry)).unwrap_err().to_string().contains("shutting down"));
    assert!(bench.manager.set_entry_text(&"a".into(), &entry.to_string()).is_err());
    assert!(bench.manager.set_active(&"a".into(), true).await.is_err());
    tokio::time::sleep(NEVER).await;
    assert!(!marker.exists() && fs::read_to_string(bench.file()).unwrap() == before);
    assert_eq!((bench.names(), bench.manager.config_error()), (vec!["a".to_owned()], None));
}

#[tokio::test]
async fn a_link_takes_no_name_and_a_paste_keeps_what_it_does_not_know() {
    let mine = json!({ "command": "mine", "active": false, "env": { "KEY": "k" }, "alwaysAllow": ["t"], "note": "mine" });
    let bench = Bench::with(Policy::Ask, Some(&file_of("s", &mine)));
    let entries = || serde_json::from_str::<Value>(&fs::read_to_string(bench.file()).unwrap()).unwrap()["mcpServers"].clone();
    assert!(bench.manager.is_there(&"s".into()) && !bench.manager.is_there(&"s-2".into()));
    let theirs = json!({ "mcpServers": { "s": { "command": "theirs", "active": false } } }).to_string();
    let shown = bench.manager.preview(&theirs, &Origin::Link).unwrap();
    assert_eq!(shown[0].0.as_str(), "s-2");
    assert_eq!(bench.manager.add(&theirs, &Origin::Link, &shown).unwrap(), [ServerId::from("s-2")]);
    assert_eq!(entries(), json!({ "s": mine, "s-2": { "command": "theirs", "active": false } }));
    assert!(bench.view("s-2").consent.is_none(), "what was shown was agreed to");
    let other = json!({ "s": { "command": "other", "active": false, "note": "new" } }).to_string();
    assert_eq!(bench.manager.preview(&other, &Origin::Pasted).unwrap()[0].0.as_str(), "s");
    assert_eq!(bench.manager.paste(&other).unwrap(), [ServerId::from("s")]);
    assert_eq!(entries()["s"], json!({ "command": "other", "active": false, "note": "new", "alwaysAllow": ["t"] }));
}

#[tokio::test]
async fn what_other_programs_ask_for_is_a_secret_in_a_paste_too_and_zeds_shape_is_read() {
    let bench = Bench::new();
    let code = json!({ "inputs": [{ "id": "key" }], "servers": { "v": {
        "type": "stdio", "command": "x", "disabled": true, "env": { "K": "${input:key}", "H": "${userHome}/x" } } } });
    let (id, shown) = bench.manager.preview(&code.to_string(), &Origin::Pasted).unwrap().remove(0);
    assert_eq!(shown.warnings, [Warning::Secret { name: "v.key".to_owned() }]);
    let _ = bench.manager.paste(&code.to_string()).unwrap();
    assert!(bench.manager.entry_text(&id).unwrap().contains("${secret:v.key}"));
    assert_eq!(bench.consent("v").hash, shown.hash);
    let zed = json!({ "context_servers": { "zed": { "source": "custom", "enabled": false, "command": { "path": "echo", "args": ["hi"], "env": {} } } } });
    let _ = bench.manager.paste(&zed.to_string()).unwrap();
    assert_eq!(bench.consent("zed").subject.line(), "echo hi");
    // As a file of our own it is read as it is.
    bench.edit(&zed.to_string());
    eventually("the other shape was not read", || bench.names() == ["zed"]).await;
    assert_eq!((bench.consent("zed").subject.line(), bench.view("zed").state), ("echo hi".to_owned(), State::Stopped));
}

#[tokio::test]
async fn a_protected_file_is_left_alone_and_is_no_rejected_configuration() {
    let bench = Bench::with(Policy::Ask, Some(r#"{"mcpServers": {"a": {"command": "x", "active": false}}}"#));
    let before = fs::read_to_string(bench.file()).unwrap();
    let permissions = fs::metadata(bench.file()).unwrap().permissions();
    let mut protected = permissions.clone();
    protected.set_readonly(true);
    fs::set_permissions(bench.file(), protected).unwrap();
    let mut events = bench.manager.subscribe();
    let error = bench.manager.paste(r#""b": {"command": "y", "active": false}"#).unwrap_err().to_string();
    assert!(error.contains("protected"), "{error}");
    assert_eq!((bench.manager.config_error(), bench.names()), (None, vec!["a".to_owned()]));
    assert!(!std::iter::from_fn(|| events.try_recv().ok()).any(|event| matches!(event, Event::ConfigRejected { .. })));
    assert_eq!(fs::read_to_string(bench.file()).unwrap(), before);
    fs::set_permissions(bench.file(), permissions).unwrap();
    let _ = bench.manager.paste(r#""b": {"command": "y", "active": false}"#).unwrap();
    bench.manager.set_tool_enabled(&"b".into(), " x", false).unwrap();
    assert_eq!(bench.view("b").config.disabled_tools, [" x"], "the name of a tool is the server's");
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_to_a_file_that_is_not_there_yet_stays_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let (file, target) = (folder.path().join("mcp_config.json"), folder.path().join("elsewhere/mine.json"));
    std::os::unix::fs::symlink("elsewhere/mine.json", &file).unwrap();
    let manager = manager(folder.path(), &Store::in_memory().unwrap(), Policy::Ask);
    let _ = manager.paste(r#""a": {"command": "x", "active": false}"#).unwrap();
    assert!(file.is_symlink() && fs::read_to_string(&target).unwrap().contains("\"a\""));
    assert_eq!(manager.servers().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bundle_that_changed_since_it_was_shown_is_refused_and_one_that_fails_loses_nothing() {
    let bench = Bench::new();
    let (path, log) = (bench.path("marker.mcpb"), bench.path("log"));
    let answers = |key: &str| Answers::from([("log".to_owned(), json!(log)), ("key".to_owned(), json!(key))]);
    bundle(&path, "1.0.0", &[]);
    let mut opened = Bundle::open(&path).unwrap();
    let (id, shown) = bench.manager.preview_bundle(&opened, &answers("old")).unwrap();
    // Another file takes the place of the one that is on the sheet.
    bundle(&path, "1.0.0", &[("new.txt", b"new")]);
    let mut changed = Bundle::open(&path).unwrap();
    assert_ne!(changed.digest(), opened.digest());
    let error = bench.manager.install_bundle(&mut changed, &answers("old"), Some(&shown)).unwrap_err().to_string();
    assert!(error.contains("changed since it was shown"), "{error}");
    assert!(bench.names().is_empty() && folders(&bench).is_empty() && bench.drawer.names().is_empty());
    // Looked at again it may be installed.
    bundle(&path, "1.0.0", &[]);
    opened = Bundle::open(&path).unwrap();
    let (_, shown) = bench.manager.preview_bundle(&opened, &answers("old")).unwrap();
    let _ = bench.manager.install_bundle(&mut opened, &answers("old"), Some(&shown)).unwrap();
    let _ = bench.connected("marker").await;
    // A file that cannot be changed: the server, its secret, its origin and what was agreed to stay as they were.
    let permissions = fs::metadata(bench.file()).unwrap().permissions();
    let mut protected = permissions.clone();
    protected.set_readonly(true);
    fs::set_permissions(bench.file(), protected).unwrap();
    bundle(&path, "1.0.0", &[("new.txt", b"new")]);
    opened = Bundle::open(&path).unwrap();
    let error = bench.manager.install_bundle(&mut opened, &answers("new"), None).unwrap_err().to_string();
    assert!(error.contains("protected"), "{error}");
    assert_eq!(bench.drawer.get("marker.key").unwrap().unwrap().reveal(), "old");
    assert_eq!(bench.store.server_consent(&id).unwrap(), Some(shown.hash));
    assert!(bench.store.server_origin(&id).unwrap().unwrap().contains("marker-1.0.0"));
    assert!(folders(&bench) == ["marker-1.0.0"] && !bench.path("bundles/marker-1.0.0/new.txt").exists());
    let view = bench.connected("marker").await;
    assert!(view.consent.is_none());
    // The same version again stops what runs before its files go.
    fs::set_permissions(bench.file(), permissions).unwrap();
    opened = Bundle::open(&path).unwrap();
    let _ = bench.manager.install_bundle(&mut opened, &answers("new"), None).unwrap();
    assert_eq!(bench.view("marker").pid, None, "the old server runs in the folder of the new one");
    assert!(bench.path("bundles/marker-1.0.0/new.txt").exists() && bench.view("marker").consent.is_some());
    bench.manager.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test]
async fn a_bundle_of_somebody_else_takes_neither_the_name_nor_the_folder() {
    let bench = Bench::new();
    let path = bench.path("plain.mcpb");
    let install = |author: &str| {
        let manifest = json!({"manifest_version": "0.2", "name": "plain", "version": "1", "author": {"name": author},
            "server": {"type": "node", "entry_point": "./x.js"}});
        pack(&path, &[("manifest.json", manifest.to_string().as_bytes()), ("x.js", b"")]);
        let mut opened = Bundle::open(&path).unwrap();
        let (id, shown) = bench.manager.preview_bundle(&opened, &Answers::new()).unwrap();
        assert_eq!(bench.manager.install_bundle(&mut opened, &Answers::new(), None).unwrap(), id);
        assert_eq!(bench.consent(id.as_str()).hash, shown.hash);
        id.to_string()
    };
    assert_eq!([install("Me"), install("Somebody"), install("Me")], ["plain", "plain-2", "plain"]);
    assert_eq!(folders(&bench), ["plain-1", "plain-1-2"]);
    // Neither does one take the name of what a person configured.
    let _ = bench.manager.paste(r#""other": {"command": "mine", "active": false}"#).unwrap();
    pack(&path, &[("manifest.json", br#"{"name": "other", "server": {"type": "node", "entry_point": "x.js"}}"#), ("x.js", b"")]);
    let mut opened = Bundle::open(&path).unwrap();
    assert_eq!(bench.manager.install_bundle(&mut opened, &Answers::new(), None).unwrap().as_str(), "other-2");
    bench.manager.remove(&"plain-2".into()).await.unwrap();
    assert_eq!(folders(&bench), ["other-0", "plain-1"]);
}
