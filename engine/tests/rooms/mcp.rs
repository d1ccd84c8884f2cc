//! MCP servers through the manager and the gate: real servers, and a mock that misbehaves.

// The shared parts of these tests are tests too.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use handrail_engine::approval::{self, Decision, Gate, GatedTool, Permit};
use handrail_engine::conversation::ConversationId;
use handrail_engine::mcp::{self, Manager, State};
use handrail_engine::store::{Recorded, Store};
use handrail_engine::tool::{self, Call, CallId, CallResult, Control, ServerId};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Generous: the machine that runs this may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Bench {
    folder: tempfile::TempDir,
    store: Store,
    gate: Gate,
    conversation: ConversationId,
    pub(super) manager: Manager,
}

/// A manager whose servers the test itself answers for.
fn trusting(file: PathBuf, store: &Store) -> Manager {
    Manager::with(file, store.clone(), mcp::Options { consent: mcp::consent::Policy::Trust, ..mcp::Options::default() })
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with_file(None)
    }

    fn with_file(text: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        if let Some(text) = text {
            std::fs::write(folder.path().join("mcp_config.json"), text).unwrap();
        }
        Self::over(Store::in_memory().unwrap(), folder)
    }

    fn over(store: Store, folder: tempfile::TempDir) -> Self {
        let manager = trusting(folder.path().join("mcp_config.json"), &store);
        let conversation = store.new_conversation().unwrap().id;
        Self { folder, gate: Gate::new(store.clone()), conversation, store, manager }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("mcp_config.json")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Adds a server and waits for it.
    pub(super) async fn add(&self, name: &str, entry: Value) -> mcp::ServerView {
        let _ = self.manager.paste(&json!({ "mcpServers": { name: entry } }).to_string()).unwrap();
        self.manager.ready(&name.into(), PATIENCE).await.unwrap()
    }

    pub(super) fn tool(&self, server: &str, name: &str) -> Arc<GatedTool> {
        let tools = self.manager.tools();
        let found = tools.into_iter().find(|tool| tool.definition().id.server.as_str() == server && tool.definition().id.name == name);
        found.unwrap_or_else(|| panic!("no tool {name} at {server}"))
    }

    /// Why a call of the tool would be asked about; none where a rule lets it run.
    async fn asked(&self, tool: &Arc<GatedTool>) -> Option<String> {
        let mut events = self.gate.subscribe();
        let (_, waiting) = self.waits(tool);
        let event = events.recv().await.unwrap();
        waiting.abort();
        let _ = waiting.await;
        match event {
            approval::Event::Asked(request) => Some(request.why),
            approval::Event::Decided { allowed, .. } => {
                assert!(allowed);
                None
            }
        }
    }

    /// Brings a call of the tool before the gate.
    fn waits(&self, tool: &Arc<GatedTool>) -> (CallId, tokio::task::JoinHandle<Result<Permit, approval::Error>>) {
        let (gate, conversation, definition) = (self.gate.clone(), self.conversation, tool.definition().clone());
        let id = CallId::fresh();
        let call = Call { id: id.clone(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments: json!({}) };
        (id, tokio::spawn(async move { gate.admit(&call, &definition, conversation, &CancellationToken::new()).await }))
    }

    async fn permit(&self, tool: &Arc<GatedTool>, arguments: Value) -> Permit {
        let definition = tool.definition().clone();
        let call = Call { id: CallId::fresh(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments };
        let mut events = self.gate.subscribe();
        let cancel = CancellationToken::new();
        let deciding = async {
            loop {
                if let Ok(approval::Event::Asked(request)) = events.recv().await {
                    self.gate.decide(&request.call.id, Decision::AllowOnce).unwrap();
                    return;
                }
            }
        };
        let (permit, ()) = tokio::join!(self.gate.admit(&call, &definition, self.conversation, &cancel), deciding);
        permit.unwrap()
    }

    pub(super) async fn call(&self, server: &str, name: &str, arguments: Value) -> Result<CallResult, tool::Error> {
        let tool = self.tool(server, name);
        let permit = self.permit(&tool, arguments).await;
        tool.call(permit, control()).await
    }
}

fn control() -> Control {
    Control { cancel: CancellationToken::new(), timeout: Duration::from_secs(20), progress: None }
}

fn mock(options: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_mock.py");
    json!({ "command": "python3", "args": ["-u", script, options.to_string()] })
}

fn test_server(relative: &str) -> PathBuf {
    let cache = directories::BaseDirs::new().unwrap().cache_dir().join("handrail/test-servers");
    let path = cache.join(relative);
    assert!(path.exists(), "{} is missing; the project's test command installs the test servers there", path.display());
    path
}

fn everything() -> PathBuf {
    test_server("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js")
}

fn state(manager: &Manager, server: &str) -> State {
    manager.servers().into_iter().find(|view| view.id.as_str() == server).unwrap().state
}

/// Processes of a group that still run.
fn members(group: u32) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if fields[2] == group.to_string() && fields[0] != "Z" {
            found.push(stat);
        }
    }
    found
}

async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn received(log: &Path, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let messages = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    messages.filter(|message| message["method"] == method).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn real_stdio_servers_connect_list_call_and_leave_nothing() {
    let bench = Bench::new();
    let files = bench.path("files");
    std::fs::create_dir(&files).unwrap();
    std::fs::write(files.join("hello.txt"), "it is me").unwrap();
    let files = files.canonicalize().unwrap();
    let filesystem = test_server("npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js");
    let time = test_server("py/bin/mcp-server-time");

    let views = [
        bench.add("everything", json!({ "command": "node", "args": [everything(), "stdio"] })).await,
        bench.add("files", json!({ "command": "node", "args": [filesystem, files] })).await,
        bench.add("time", json!({ "command": time, "args": ["--local-timezone", "UTC"] })).await,
    ];
    assert_eq!(views.iter().map(|view| view.tools.len()).collect::<Vec<_>>(), [16, 14, 2]);
    assert!(views.iter().all(|view| view.protocol.as_deref() == Some("2025-11-25")));
    assert!(views[0].instructions.as_ref().is_some_and(|text| !text.is_empty()));
    let names: Vec<String> = bench.manager.tools().iter().map(|tool| tool.definition().id.to_string()).collect();
    assert!(names.is_sorted(), "{names:?}");

    let echo = bench.call("everything", "echo", json!({ "message": "hi" })).await.unwrap();
    assert!(echo.to_text().contains("hi"), "{echo:?}");
    let read = bench.call("files", "read_text_file", json!({ "path": files.join("hello.txt") })).await.unwrap();
    assert!(read.to_text().contains("it is me"), "{read:?}");
    let refused = bench.call("files", "read_text_file", json!({ "path": "/etc/hostname" })).await.unwrap();
    assert!(refused.is_error, "{refused:?}");
    let now = bench.call("time", "get_current_time", json!({ "timezone": "Europe/Berlin" })).await.unwrap();
    assert!(now.to_text().contains("Europe/Berlin"), "{now:?}");

    let started = Instant::now();
    bench.manager.shutdown(Duration::from_millis(500)).await;
    assert!(started.elapsed() < Duration::from_millis(1500), "{:?}", started.elapsed());
    for view in &views {
        assert_eq!(members(view.pid.unwrap()), Vec::<String>::new(), "{}", view.id);
    }
    assert!(matches!(bench.manager.start(&"time".into()), Err(mcp::Error::Start { .. })), "nothing starts behind a shutdown");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_streamable_http_server_works_and_its_loss_is_noticed() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = std::process::Command::new("node")
        .arg(everything())
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let bench = Bench::new();
    // Not there yet at first: reconnecting, not failed.
    let view = bench.add("http", json!({ "url": format!("http://127.0.0.1:{port}/mcp"), "headers": { "X-Test": "1" } })).await;
    assert_eq!((view.tools.len(), view.pid), (16, None));
    let sum = bench.call("http", "get-sum", json!({ "a": 2, "b": 3 })).await.unwrap();
    assert!(sum.to_text().contains('5'), "{sum:?}");

    let before = bench.manager.tools().len();
    server.kill().unwrap();
    let _ = server.wait().unwrap();
    let error = bench.call("http", "echo", json!({ "message": "x" })).await.unwrap_err();
    assert!(matches!(&error, tool::Error::Unavailable { .. }), "{error}");
    eventually("reconnecting", || matches!(state(&bench.manager, "http"), State::Reconnecting { .. })).await;
    assert_eq!(bench.manager.tools().len(), before, "the tools stay while it is being restored");
    bench.manager.stop(&"http".into()).await.unwrap();
    assert_eq!(state(&bench.manager, "http"), State::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_not_there_says_where_it_was_looked_for() {
    let bench = Bench::new();
    let id = ServerId::from("gone");
    let _ = bench.manager.paste(r#""gone": {"command": "no-such-mcp-server"}"#).unwrap();
    let error = bench.manager.ready(&id, PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("'gone'") && error.contains("no-such-mcp-server") && error.contains("/usr/bin"), "{error}");
    assert!(matches!(state(&bench.manager, "gone"), State::Failed { exit_code: None, .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_at_once_shows_its_exit_code_and_last_lines() {
    let bench = Bench::new();
    let entry = json!({ "command": "sh", "args": ["-c", "echo 'no key given' >&2; exit 3"] });
    let _ = bench.manager.paste(&json!({ "mcpServers": { "short": entry } }).to_string()).unwrap();
    let error = bench.manager.ready(&"short".into(), PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("exit code 3") && error.contains("no key given"), "{error}");
    assert!(matches!(state(&bench.manager, "short"), State::Failed { exit_code: Some(3), .. }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_file_is_left_alone_and_the_last_good_one_keeps_running() {
    let broken = "{\n  \"mcpServers\": {\n    \"a\": { \"command\": }\n  }\n}";
    let bench = Bench::with_file(Some(broken));
    let error = bench.manager.config_error().unwrap();
    assert!(error.contains("line 3") && error.contains("mcp_config.json"), "{error}");
    let refused = bench.manager.paste(r#""b": {"command": "x"}"#).unwrap_err();
    assert!(matches!(refused, mcp::Error::Config(mcp::config::Error::Parse { line: 3, .. })), "{refused}");
    assert_eq!(std::fs::read_to_string(bench.file()).unwrap(), broken);

    let bench = Bench::new();
    let _ = bench.add("mock", mock(&json!({}))).await;
    std::fs::write(bench.file(), broken).unwrap();
    let mut events = bench.manager.subscribe();
    assert!(bench.manager.set_active(&"mock".into(), false).await.is_err());
    assert!(matches!(events.recv().await, Ok(mcp::Event::ConfigRejected { reason }) if reason.contains("line 3")));
    assert_eq!(state(&bench.manager, "mock"), State::Connected);
    assert_eq!(std::fs::read_to_string(bench.file()).unwrap(), broken);
}

#[tokio::test(flavor = "multi_thread")]
async fn pastes_are_merged_into_the_file_and_wrong_ones_change_nothing() {
    let file = r#"{ "keep": 1, "mcpServers": { "old": { "command": "x", "disabled": true, "autoApprove": ["t"] }, "wrong": { "command": "" }, "sse": { "type": "sse", "url": "http://127.0.0.1:1/sse" } } }"#;
    let bench = Bench::with_file(Some(file));
    assert_eq!(bench.manager.config_error(), None, "one wrong entry is that server's problem only");
    assert!(matches!(state(&bench.manager, "wrong"), State::Failed { reason, .. } if reason.contains("\"command\"")));
    assert_eq!(state(&bench.manager, "sse"), State::Stopped, "every kind of address is known");

    for wrong in [r#"{"command": "npx"}"#, r#""n": {"url": "http://h", "env": {"A": "1"}}"#, "nonsense", r#"{"mcpServers": {"b": {}}}"#] {
        assert!(bench.manager.paste(wrong).is_err(), "{wrong}");
        assert_eq!(std::fs::read_to_string(bench.file()).unwrap(), file);
    }
    let added =
        bench.manager.paste(r#"{"servers": {"b": {"command": "y", "active": false}, "a": {"command": "z", "isActive": false}}}"#).unwrap();
    assert_eq!(added, [ServerId::from("b"), ServerId::from("a")]);
    let saved: Value = serde_json::from_str(&std::fs::read_to_string(bench.file()).unwrap()).unwrap();
    assert_eq!((&saved["keep"], &saved["mcpServers"]["old"]["autoApprove"][0]), (&json!(1), &json!("t")));
    let ids: Vec<String> = bench.manager.servers().iter().map(|view| view.id.to_string()).collect();
    assert_eq!(ids, ["a", "b", "old", "sse", "wrong"]);
    bench.manager.remove(&"wrong".into()).await.unwrap();
    assert!(!std::fs::read_to_string(bench.file()).unwrap().contains("wrong"));
    assert_eq!(bench.manager.servers().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_returns_at_once_and_the_server_hears_which_call_was_cancelled() {
    let bench = Bench::new();
    let log = bench.path("log");
    let _ = bench.add("mock", mock(&json!({ "log": log }))).await;
    for by_dropping in [false, true] {
        let tool = bench.tool("mock", "hang");
        let permit = bench.permit(&tool, json!({})).await;
        let control = control();
        let before = received(&log, "tools/call").len();
        let running = tokio::spawn(tool.call(permit, control.clone()));
        eventually("the call arrives", || received(&log, "tools/call").len() > before).await;
        let started = Instant::now();
        if by_dropping {
            running.abort();
            assert!(running.await.unwrap_err().is_cancelled());
        } else {
            control.cancel.cancel();
            assert!(matches!(running.await.unwrap(), Err(tool::Error::Cancelled)));
        }
        assert!(started.elapsed() < Duration::from_millis(100), "{:?}", started.elapsed());
        eventually("the cancellation arrives", || received(&log, "notifications/cancelled").len() > before).await;
        let (call, cancelled) = (received(&log, "tools/call").pop().unwrap(), received(&log, "notifications/cancelled").pop().unwrap());
        assert_eq!(cancelled["params"]["requestId"], call["id"]);
        assert!(cancelled["params"]["reason"].as_str().is_some_and(|reason| !reason.is_empty()));
    }
    // One hanging call delays no other.
    assert_eq!(bench.call("mock", "echo", json!({ "a": 1 })).await.unwrap().to_text(), r#"{"a": 1}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_extends_the_timeout_and_never_goes_backwards() {
    let bench = Bench::new();
    let log = bench.path("log");
    let _ = bench.add("mock", mock(&json!({ "log": log }))).await;
    let tool = bench.tool("mock", "slow");
    let (sender, mut progress) = mpsc::unbounded_channel();
    // 0.7 s in all, with at most 0.1 s of silence: longer than the timeout, but alive.
    let control = Control { cancel: CancellationToken::new(), timeout: Duration::from_millis(500), progress: Some(sender) };
    let result = tool.call(bench.permit(&tool, json!({})).await, control).await.unwrap();
    assert_eq!(result.to_text(), "done");
    let mut seen = Vec::new();
    while let Ok(step) = progress.try_recv() {
        assert_eq!(step.total, Some(5.0));
        seen.push(step.done);
    }
    assert!(seen.is_sorted() && seen.last() == Some(&5.0) && seen.len() >= 3, "{seen:?}");

    let hang = bench.tool("mock", "hang");
    let control = Control { cancel: CancellationToken::new(), timeout: Duration::from_millis(300), progress: None };
    let error = hang.call(bench.permit(&hang, json!({})).await, control).await.unwrap_err();
    assert!(matches!(error, tool::Error::Timeout(_)), "{error}");
    eventually("the server hears of the timeout", || !received(&log, "notifications/cancelled").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_fails_its_call_quickly_and_comes_back_with_the_same_tools() {
    let bench = Bench::new();
    let log = bench.path("log");
    let view = bench.add("mock", mock(&json!({ "log": log }))).await;
    let tools: Vec<_> = bench.manager.tools().iter().map(|tool| tool.definition().clone()).collect();
    let hang = bench.tool("mock", "hang");
    let running = tokio::spawn(hang.call(bench.permit(&hang, json!({})).await, control()));
    eventually("the call arrives", || !received(&log, "tools/call").is_empty()).await;

    let killed = Instant::now();
    assert!(std::process::Command::new("kill").args(["-9", &view.pid.unwrap().to_string()]).status().unwrap().success());
    let error = running.await.unwrap().unwrap_err();
    let failed_after = killed.elapsed();
    assert!(matches!(&error, tool::Error::Unavailable { reason, .. } if reason.contains("signal 9")), "{error}");
    // A call made meanwhile waits for the server to come back.
    let echo = bench.tool("mock", "pid");
    let waiting = tokio::spawn(echo.call(bench.permit(&echo, json!({})).await, control()));
    loop {
        let now: Vec<_> = bench.manager.tools().iter().map(|tool| tool.definition().clone()).collect();
        assert_eq!(now, tools, "the list never changes");
        if waiting.is_finished() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let pid = waiting.await.unwrap().unwrap().to_text();
    println!("failed after {failed_after:?}, usable again after {:?}", killed.elapsed());
    assert!(failed_after < Duration::from_millis(500), "{failed_after:?}");
    assert_ne!(pid, view.pid.unwrap().to_string());
    assert_eq!(received(&log, "initialize").len(), 2);

    // A server that ends by itself during a call explains itself, too.
    let error = bench.call("mock", "die", json!({})).await.unwrap_err();
    assert!(error.to_string().contains("exit code 9"), "{error}");
    eventually("the reason holds its last words", || {
        matches!(state(&bench.manager, "mock"), State::Reconnecting { reason, .. } if reason.contains("last words") && reason.contains("exit code 9"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn starting_many_times_gives_one_process_and_one_initialize() {
    let bench = Bench::new();
    let log = bench.path("log");
    let id = ServerId::from("mock");
    let _ = bench.manager.paste(&json!({ "mock": mock(&json!({ "log": log })) }).to_string()).unwrap();
    for _ in 0..20 {
        bench.manager.start(&id).unwrap();
        bench.manager.start_all();
    }
    let view = bench.manager.ready(&id, PATIENCE).await.unwrap();
    bench.manager.start(&id).unwrap();
    let _ = bench.call("mock", "echo", json!({})).await.unwrap();
    assert_eq!(received(&log, "initialize").len(), 1);
    assert_eq!(view.instructions.as_deref(), Some("be kind"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_runs_only_its_own_tool_as_it_was_shown() {
    let bench = Bench::new();
    let log = bench.path("log");
    let _ = bench.add("mock", mock(&json!({ "log": log }))).await;
    let (echo, pid) = (bench.tool("mock", "echo"), bench.tool("mock", "pid"));
    let error = pid.call(bench.permit(&echo, json!({})).await, control()).await.unwrap_err();
    assert!(matches!(error, tool::Error::Permit(_)), "{error}");

    let permit = bench.permit(&echo, json!({ "a": 1 })).await;
    let _ = bench.call("mock", "drift", json!({})).await.unwrap();
    eventually("the new list arrives", || bench.tool("mock", "echo").definition().id != echo.definition().id).await;
    let error = echo.call(permit, control()).await.unwrap_err();
    assert!(matches!(error, tool::Error::Permit(_)), "{error}");
    assert!(received(&log, "tools/call").iter().all(|call| call["params"]["name"] == "drift"), "nothing else ran");
    assert!(received(&log, "tools/list").len() <= 3, "five notices give one more listing, or two");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_are_read_one_bad_tool_is_left_out_and_a_loop_ends() {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let bench = Bench::new();
    let pages = json!([[tool("c"), { "name": "bad", "inputSchema": 3 }], [tool("时间"), tool("c")], [tool("a")]]);
    let view = bench.add("mock", mock(&json!({ "pages": pages, "loop": true, "noise": ["starting up", "{\"level\":\"info\"}"] }))).await;
    let names: Vec<&str> = view.tools.iter().map(|tool| tool.id.name.as_str()).collect();
    assert_eq!(names, ["a", "c", "时间"]);
    let stderr = bench.manager.servers()[0].stderr.join("\n");
    assert!(stderr.contains("'bad' is malformed") && stderr.contains("'c' is listed twice"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_stateless_era_only_is_found_and_remembered() {
    let bench = Bench::new();
    let log = bench.path("log");
    let entry = mock(&json!({ "log": log, "modern": true }));
    let view = bench.add("mock", entry).await;
    assert_eq!(view.protocol.as_deref(), Some("2026-07-28"));
    assert_eq!(bench.call("mock", "echo", json!({ "n": 1 })).await.unwrap().to_text(), r#"{"n": 1}"#);
    assert_eq!(received(&log, "initialize").len(), 1);
    // The next start asks the right way at once: the verdict is in the store.
    bench.manager.stop(&"mock".into()).await.unwrap();
    let again = trusting(bench.file(), &bench.store);
    again.start_all();
    let _ = again.ready(&"mock".into(), PATIENCE).await.unwrap();
    assert_eq!((received(&log, "initialize").len(), received(&log, "server/discover").len()), (1, 2));
    again.shutdown(Duration::from_secs(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stubborn_tree_is_gone_after_stop_and_after_the_last_handle() {
    let bench = Bench::new();
    let view = bench.add("mock", mock(&json!({ "stubborn": true }))).await;
    let group = view.pid.unwrap();
    assert!(members(group).len() >= 2, "server and grandchild");
    let started = Instant::now();
    bench.manager.stop(&"mock".into()).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    assert_eq!(members(group), Vec::<String>::new());

    bench.manager.start(&"mock".into()).unwrap();
    let group = bench.manager.ready(&"mock".into(), PATIENCE).await.unwrap().pid.unwrap();
    drop(bench);
    eventually("the tree goes with the last handle", || members(group).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_during_the_start_leaves_nothing_and_a_new_start_works() {
    let bench = Bench::new();
    let id = ServerId::from("slow");
    // It never answers, and neither it nor its child ends when asked to.
    let entry = json!({ "command": "sh", "args": ["-c", "trap '' TERM; sh -c 'trap \"\" TERM; sleep 600' & echo begun >&2; sleep 600; sleep 600"], "startupTimeout": 600 });
    let _ = bench.manager.paste(&json!({ "slow": entry }).to_string()).unwrap();
    eventually("the last sign of life is shown", || state(&bench.manager, "slow") == State::Starting { note: Some("begun".to_owned()) })
        .await;
    let group = bench.manager.servers()[0].pid.unwrap();
    assert!(members(group).len() >= 2);
    let started = Instant::now();
    bench.manager.stop(&id).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    assert_eq!(members(group), Vec::<String>::new());
    assert_eq!(state(&bench.manager, "slow"), State::Stopped);

    let view = bench.add("slow", mock(&json!({}))).await;
    assert_eq!(view.state, State::Connected);
    let impatient = json!({ "command": "sh", "args": ["-c", "echo waiting for nothing >&2; sleep 600"], "startupTimeout": 1 });
    let _ = bench.manager.paste(&json!({ "slow": impatient }).to_string()).unwrap();
    let error = bench.manager.ready(&id, PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("startupTimeout") && error.contains("waiting for nothing"), "{error}");
}

#[test]
fn the_end_of_the_runtime_leaves_no_process() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (bench, group) = runtime.block_on(async {
        let bench = Bench::new();
        let view = bench.add("mock", mock(&json!({ "stubborn": true }))).await;
        (bench, view.pid.unwrap())
    });
    runtime.shutdown_background();
    let started = Instant::now();
    while !members(group).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", members(group));
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(bench);
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_see_a_small_environment_and_a_flood_on_stderr_stops_nothing() {
    let bench = Bench::new();
    let mut entry = mock(&json!({ "flood": 2000 }));
    entry["env"] = json!({ "MY_KEY": "k" });
    let view = bench.add("mock", entry).await;
    assert!(view.stderr.iter().map(String::len).sum::<usize>() < 10_000);
    let names: Vec<String> = serde_json::from_str(&bench.call("mock", "env", json!({})).await.unwrap().to_text()).unwrap();
    assert!(names.iter().any(|name| name == "MY_KEY") && names.iter().any(|name| name == "PATH"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("CARGO")), "{names:?}");
    eventually("the line after the flood", || bench.manager.servers()[0].stderr.iter().any(|line| line == "after the flood")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_variable_is_named_and_the_file_keeps_the_placeholder() {
    let bench = Bench::new();
    let mut entry = mock(&json!({}));
    entry["env"] = json!({ "TOKEN": "${HANDRAIL_TEST_NOT_SET}" });
    let _ = bench.manager.paste(&json!({ "mock": entry }).to_string()).unwrap();
    let error = bench.manager.ready(&"mock".into(), PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("HANDRAIL_TEST_NOT_SET") && error.contains("\"env\""), "{error}");
    assert!(std::fs::read_to_string(bench.file()).unwrap().contains("${HANDRAIL_TEST_NOT_SET}"));
    // A corrected paste replaces it and starts it.
    let view = bench.add("mock", mock(&json!({}))).await;
    assert_eq!(view.state, State::Connected);
    bench.manager.set_active(&"mock".into(), false).await.unwrap();
    assert_eq!(state(&bench.manager, "mock"), State::Stopped);
    assert!(std::fs::read_to_string(bench.file()).unwrap().contains("\"active\": false"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_never_reaches_a_server_that_came_back_with_another_tool() {
    let bench = Bench::new();
    let (id, log) = (ServerId::from("mock"), bench.path("log"));
    std::fs::write(&log, "").unwrap();
    let view = bench.add("mock", mock(&json!({ "log": log, "drift_from": 2 }))).await;
    let (echo, pid) = (bench.tool("mock", "echo"), bench.tool("mock", "pid"));
    let (first, second, unchanged) =
        (bench.permit(&echo, json!({})).await, bench.permit(&echo, json!({})).await, bench.permit(&pid, json!({})).await);

    // Lost: the call waits for the server to come back, and then it must not run.
    assert!(std::process::Command::new("kill").args(["-9", &view.pid.unwrap().to_string()]).status().unwrap().success());
    eventually("the loss is seen", || state(&bench.manager, "mock") != State::Connected).await;
    let error = echo.call(first, control()).await.unwrap_err();
    assert!(matches!(&error, tool::Error::Permit(reason) if reason.contains("changed the tool")), "{error}");
    assert_eq!((state(&bench.manager, "mock"), received(&log, "initialize").len()), (State::Connected, 2), "it was waited for");

    // Stopped and started: a server that is starting lists nothing that could be compared at first.
    bench.manager.stop(&id).await.unwrap();
    bench.manager.start(&id).unwrap();
    assert_eq!(state(&bench.manager, "mock"), State::Starting { note: None });
    let error = echo.call(second, control()).await.unwrap_err();
    assert!(matches!(&error, tool::Error::Permit(reason) if reason.contains("changed the tool")), "{error}");
    assert!(received(&log, "tools/call").is_empty());
    // A tool that is still the same runs.
    assert!(!pid.call(unchanged, control()).await.unwrap().is_error);
    assert_eq!(received(&log, "tools/call").len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_another_command_gets_no_call_that_was_approved_before() {
    let bench = Bench::new();
    let (before, after) = (bench.path("before"), bench.path("after"));
    let _ = bench.add("mock", mock(&json!({ "log": before }))).await;
    let old = bench.tool("mock", "echo");
    let (first, second) = (bench.permit(&old, json!({})).await, bench.permit(&old, json!({})).await);
    let (waiting, withdrawn) = bench.waits(&old);
    eventually("it waits", || bench.gate.pending().len() == 1).await;

    let _ = bench.add("mock", mock(&json!({ "log": after }))).await;
    let denied = withdrawn.await.unwrap().unwrap_err();
    assert!(matches!(&denied, approval::Error::Denied { by } if by.contains("command or address")), "{denied}");
    assert!(matches!(bench.gate.decide(&waiting, Decision::AlwaysServer), Err(approval::Error::NotPending(_))));
    let new = bench.tool("mock", "echo");
    assert_eq!(new.definition().id, old.definition().id, "the same definition, from another program");
    for (tool, permit) in [(&old, first), (&new, second)] {
        let error = tool.call(permit, control()).await.unwrap_err();
        assert!(matches!(&error, tool::Error::Permit(reason) if reason.contains("command or address")), "{error}");
    }
    assert!(received(&before, "tools/call").is_empty() && received(&after, "tools/call").is_empty());
    // An old tool with a new permit is refused as well; both new run.
    let fresh = bench.permit(&new, json!({})).await;
    assert!(matches!(old.call(fresh, control()).await, Err(tool::Error::Permit(_))));
    let _ = bench.call("mock", "echo", json!({})).await.unwrap();
    assert_eq!((received(&before, "tools/call").len(), received(&after, "tools/call").len()), (0, 1));

    let (_, withdrawn) = bench.waits(&new);
    eventually("it waits", || bench.gate.pending().len() == 1).await;
    bench.manager.remove(&"mock".into()).await.unwrap();
    assert!(matches!(withdrawn.await.unwrap(), Err(approval::Error::Denied { by }) if by.contains("removed")));
    assert!(bench.gate.pending().is_empty() && bench.store.approvals().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn approvals_follow_the_command_and_not_the_name_from_one_process_to_the_next() {
    let data = tempfile::tempdir().unwrap();
    let database = data.path().join("handrail.db");
    let process = |key: &str| {
        let mut entry = mock(&json!({}));
        entry["env"] = json!({ "KEY": key });
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("mcp_config.json"), json!({ "mcpServers": { "mock": entry } }).to_string()).unwrap();
        Bench::over(Store::open(&database).unwrap(), folder)
    };
    let started = async |bench: &Bench| {
        bench.manager.start_all();
        let _ = bench.manager.ready(&"mock".into(), PATIENCE).await.unwrap();
        bench.tool("mock", "echo")
    };
    for decision in [Decision::AlwaysTool, Decision::AlwaysServer] {
        let first = process("plain-secret-1");
        let echo = started(&first).await;
        let (id, waiting) = first.waits(&echo);
        eventually("it waits", || first.gate.pending().len() == 1).await;
        first.gate.decide(&id, decision).unwrap();
        let _ = waiting.await.unwrap().unwrap();
        assert_eq!(first.asked(&echo).await, None);
        // At the same time, another configuration with the same name on the same data.
        let second = process("plain-secret-2");
        let why = second.asked(&started(&second).await).await.unwrap();
        assert!(why.contains("command or address"), "{why}");
        assert_eq!(first.asked(&echo).await, None, "the first one keeps what it was given");
        drop((first, second));

        let again = process("plain-secret-1");
        assert_eq!(again.asked(&started(&again).await).await, None, "the same command after a restart");
        let edited = process("plain-secret-3");
        let why = edited.asked(&started(&edited).await).await.unwrap();
        assert!(why.contains("command or address"), "{why}");
        for rule in edited.store.approvals().unwrap() {
            edited.store.remove_approval(rule.id).unwrap();
        }
    }
    for file in ["handrail.db", "handrail.db-wal"] {
        let bytes = std::fs::read(data.path().join(file)).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&bytes).contains("plain-secret"), "{file}");
    }
}

/// The groups of a process' children.
fn groups_of_children(parent: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        let fields: Vec<&str> = rest.split_whitespace().collect();
        if fields[1] == parent.to_string() {
            found.push(fields[2].parse().unwrap());
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_ends_its_servers_on_every_signal_and_writes_down_what_became_of_the_call() {
    let data = tempfile::tempdir().unwrap();
    let (log, config) = (data.path().join("log"), data.path().join("servers.json"));
    std::fs::write(&config, json!({ "mcpServers": { "mock": mock(&json!({ "log": log, "stubborn": true })) } }).to_string()).unwrap();
    let cli = |tool: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_handrail-cli"));
        let _ = command.arg("--data-dir").arg(data.path()).args(["servers", "call", "mock", tool, "{}", "--approve", "allow", "--config"]);
        let _ = command.arg(&config).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null());
        command.stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    for (calls, signal) in ["TERM", "HUP", "INT"].into_iter().enumerate() {
        let mut running = cli("hang");
        eventually("the call arrives", || received(&log, "tools/call").len() > calls).await;
        let groups = groups_of_children(running.id());
        assert_eq!(groups.len(), 1, "{groups:?}");
        assert!(members(groups[0]).len() >= 2, "server and grandchild");
        assert!(std::process::Command::new("kill").args([&format!("-{signal}"), &running.id().to_string()]).status().unwrap().success());
        let mut status = None;
        eventually("it ends", || {
            status = running.try_wait().unwrap();
            status.is_some()
        })
        .await;
        assert_eq!(status.unwrap().code(), Some(1), "{signal}: it ended by itself");
        assert_eq!(members(groups[0]), Vec::<String>::new(), "{signal}");
    }
    assert!(cli("echo").wait().unwrap().success());
    assert!(!cli("die").wait().unwrap().success());

    let rows: Vec<_> = Store::open(&data.path().join("handrail.db")).unwrap().ledger().map(Result::unwrap).collect();
    let ends = rows.iter().filter_map(|row| match &row.recorded {
        Recorded::Ended { outcome, .. } => Some((row.tool.name.as_str(), outcome.as_str())),
        Recorded::Decided { .. } => None,
    });
    let ends: Vec<_> = ends.collect();
    assert_eq!(
        (rows.len(), &ends[..4]),
        (10, &[("hang", "stopped while it ran"); 3].into_iter().chain([("echo", "done")]).collect::<Vec<_>>()[..])
    );
    assert!(ends[4].0 == "die" && ends[4].1.contains("exit code 9"), "{ends:?}");
}
