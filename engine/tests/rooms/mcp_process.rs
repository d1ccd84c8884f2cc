//! Servers as processes: single starts, supervision, logs, and that nothing of them is left, whatever ends first.

// The shared parts of these tests are tests too.
#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use handrail_engine::approval::{self, Decision, Gate, GatedTool};
use handrail_engine::engine::Shutdown;
use handrail_engine::mcp::consent::Policy;
use handrail_engine::mcp::{self, Manager, State};
use handrail_engine::store::Store;
use handrail_engine::tool::{self, Call, CallId, CallResult, Control, ServerId};
use handrail_engine::{Config, Engine};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Generous: the machine that runs this may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable by which a test finds everything that its servers started.
const TAG: &str = "HANDRAIL_TEST_TAG";

struct Bench {
    folder: tempfile::TempDir,
    store: Store,
    gate: Gate,
    manager: Manager,
    tag: String,
}

impl Bench {
    fn new() -> Self {
        Self::with_settings(&json!({}))
    }

    fn with_settings(settings: &Value) -> Self {
        let (folder, store) = (tempfile::tempdir().unwrap(), Store::in_memory().unwrap());
        let text = json!({ "mcpServers": {}, "mcpSettings": settings }).to_string();
        std::fs::write(folder.path().join("mcp_config.json"), text).unwrap();
        let options = mcp::Options { consent: Policy::Trust, ..mcp::Options::default() };
        let manager = Manager::with(folder.path().join("mcp_config.json"), store.clone(), options);
        let tag = CallId::fresh().to_string();
        Self { folder, gate: Gate::new(store.clone()), store, manager, tag }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn server(&self, options: &Value) -> Value {
        server(options, &self.tag)
    }

    fn put(&self, entry: Value) {
        let _ = self.manager.paste(&json!({ "mcpServers": { "s": entry } }).to_string()).unwrap();
    }

    async fn add(&self, entry: Value) -> mcp::ServerView {
        self.put(entry);
        self.ready().await
    }

    async fn ready(&self) -> mcp::ServerView {
        self.manager.ready(&id(), PATIENCE).await.unwrap()
    }

    fn view(&self) -> mcp::ServerView {
        self.manager.servers().into_iter().find(|view| view.id == id()).unwrap()
    }

    fn state(&self) -> State {
        self.view().state
    }

    fn tool(&self, name: &str) -> Arc<GatedTool> {
        self.manager.tools().into_iter().find(|tool| tool.definition().id.name == name).unwrap()
    }

    /// The tools as the model is shown them, in bytes.
    fn listed(&self) -> Vec<u8> {
        listed(&self.manager)
    }

    async fn call(&self, name: &str, timeout: Duration) -> Result<CallResult, tool::Error> {
        let tool = self.tool(name);
        let definition = tool.definition().clone();
        let call =
            Call { id: CallId::fresh(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments: json!({ "a": "b" }) };
        let conversation = self.store.new_conversation().unwrap().id;
        let mut events = self.gate.subscribe();
        let cancel = CancellationToken::new();
        let deciding = async {
            loop {
                if let Ok(approval::Event::Asked(request)) = events.recv().await
                    && request.call.id == call.id
                {
                    return self.gate.decide(&request.call.id, Decision::AllowOnce).unwrap();
                }
            }
        };
        let (permit, ()) = tokio::join!(self.gate.admit(&call, &definition, conversation, &cancel), deciding);
        tool.call(permit.unwrap(), Control { cancel, timeout, progress: None }).await
    }

    fn left(&self) -> Vec<u32> {
        tagged(&self.tag)
    }
}

fn listed(manager: &Manager) -> Vec<u8> {
    let tools: Vec<_> = manager.tools().iter().map(|tool| tool.definition().clone()).collect();
    serde_json::to_vec(&tools.iter().map(|tool| &**tool).collect::<Vec<_>>()).unwrap()
}

fn id() -> ServerId {
    ServerId::from("s")
}

fn server(options: &Value, tag: &str) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_process.py");
    json!({ "command": "python3", "args": ["-u", script, options.to_string()], "env": { TAG: tag } })
}

/// Everything that runs and inherited the tag.
fn tagged(tag: &str) -> Vec<u32> {
    let wanted = format!("{TAG}={tag}");
    processes(|folder| {
        std::fs::read(folder.join("environ")).is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|pair| pair == wanted.as_bytes()))
    })
}

/// Processes that run, zombies left aside, and fit.
fn processes(fits: impl Fn(&Path) -> bool) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| runs(*pid) && fits(Path::new(&format!("/proc/{pid}")))).collect()
}

fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !matches!(rest.split_whitespace().next(), Some("Z" | "X") | None))
}

fn signal(name: &str, pid: u32) {
    let _ = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).output().unwrap();
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

fn heard(log: &Path, method: &str) -> usize {
    lines(log).iter().filter(|line| *line == method).count()
}

async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_racing_starts_give_one_process_and_one_initialize() {
    let bench = Bench::new();
    let (log, pids) = (bench.path("log"), bench.path("pids"));
    let mut entry = bench.server(&json!({ "log": log, "pids": pids }));
    entry["active"] = json!(false);
    bench.put(entry);
    assert_eq!((bench.state(), bench.left()), (State::Stopped, Vec::new()));
    let racing: Vec<_> = (0..50)
        .map(|number| {
            let manager = bench.manager.clone();
            tokio::spawn(async move {
                match number % 3 {
                    0 => manager.set_active(&id(), true).await.unwrap(),
                    1 => manager.start(&id()).unwrap(),
                    _ => {
                        manager.start(&id()).unwrap();
                        let _ = manager.ready(&id(), PATIENCE).await.unwrap();
                        manager.start_all();
                    }
                }
            })
        })
        .collect();
    for start in racing {
        start.await.unwrap();
    }
    let _ = bench.ready().await;
    let _ = bench.call("echo", PATIENCE).await.unwrap();
    assert_eq!((lines(&pids).len(), heard(&log, "initialize"), bench.left().len()), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whatever_is_done_to_a_server_a_stop_leaves_no_process() {
    let rounds = 12;
    for round in 0..rounds {
        let bench = Bench::new();
        bench.put(bench.server(&json!({ "tree": round % 3 == 0, "pids": bench.path("pids") })));
        let hands: Vec<_> = (0..4_u64)
            .map(|hand| {
                let (manager, pids) = (bench.manager.clone(), bench.path("pids"));
                // A simple generator with a fixed seed: a failure can be repeated.
                let mut random = (round as u64 * 4 + hand).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
                tokio::spawn(async move {
                    for _ in 0..5 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        match random % 6 {
                            0 | 1 => manager.start(&id()).unwrap(),
                            2 => manager.stop(&id()).await.unwrap(),
                            3 => drop(manager.restart(&id()).await),
                            4 => lines(&pids).last().into_iter().for_each(|pid| signal("KILL", pid.parse().unwrap())),
                            _ => drop(manager.ready(&id(), Duration::from_millis(random % 300)).await),
                        }
                        tokio::time::sleep(Duration::from_millis(random % 50)).await;
                    }
                })
            })
            .collect();
        for hand in hands {
            hand.await.unwrap();
        }
        bench.manager.stop(&id()).await.unwrap();
        assert_eq!((bench.state(), bench.left()), (State::Stopped, Vec::new()), "round {round}");
        // Two shutdowns are one, and nothing starts behind them.
        let shutdown = || bench.manager.shutdown(Duration::from_millis(500));
        bench.manager.start(&id()).unwrap();
        let _ = tokio::join!(shutdown(), shutdown());
        assert!(bench.manager.start(&id()).is_err() && bench.manager.restart(&id()).await.is_err());
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!((bench.state(), bench.left()), (State::Stopped, Vec::new()), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_server_is_slow_and_keeps_its_process_and_an_error_replaces_it() {
    let bench = Bench::new();
    let (block, refuse, pids) = (bench.path("block"), bench.path("refuse"), bench.path("pids"));
    let view = bench.add(bench.server(&json!({ "block": block, "refuse": refuse, "pids": pids }))).await;
    let tools = bench.listed();
    std::fs::write(&block, "").unwrap();
    let error = bench.call("echo", Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, tool::Error::Timeout(_)), "{error}");
    eventually("it is slow", || matches!(bench.state(), State::Slow { reason } if reason.contains("'echo'"))).await;
    eventually("the probe is late as well", || matches!(bench.state(), State::Slow { reason } if reason.contains("whether it is there")))
        .await;
    assert_eq!((bench.listed(), bench.view().pid), (tools.clone(), view.pid), "slow is usable");
    std::fs::remove_file(&block).unwrap();
    eventually("the late answer counts", || bench.state() == State::Connected).await;
    assert_eq!(bench.view().pid, view.pid);

    // A slow tool alone: slow for a moment, and the probe finds it well.
    let mut events = bench.manager.subscribe();
    assert!(bench.call("hang", Duration::from_millis(300)).await.is_err());
    // Views are told for other reasons too, such as a call that runs: what counts is the way from connected to connected.
    let mut seen = Vec::new();
    while !matches!(&seen[..], [.., State::Slow { .. }, State::Connected]) {
        if let mcp::Event::Changed(view) = tokio::time::timeout(PATIENCE, events.recv()).await.unwrap().unwrap() {
            seen.push(view.state);
        }
    }
    assert!(
        matches!(seen.iter().find(|state| **state != State::Connected), Some(State::Slow { reason }) if reason.contains("'hang'")),
        "{seen:?}"
    );
    assert_eq!((lines(&pids).len(), bench.view().pid), (1, view.pid));

    std::fs::write(&refuse, "").unwrap();
    assert!(bench.call("hang", Duration::from_millis(300)).await.is_err());
    eventually("it is replaced", || matches!(bench.state(), State::Reconnecting { reason, .. } if reason.contains("no list today"))).await;
    assert_eq!(bench.listed(), tools);
    std::fs::remove_file(&refuse).unwrap();
    let again = bench.ready().await;
    assert!(again.pid != view.pid && lines(&pids).len() >= 2);
    assert_eq!(bench.listed(), tools);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_the_stateless_era_is_slow_until_a_call_is_answered() {
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_mock.py");
    let log = bench.path("log");
    let options = json!({ "modern": true, "log": log }).to_string();
    let view = bench.add(json!({ "command": "python3", "args": ["-u", script, options], "env": { TAG: bench.tag } })).await;
    assert_eq!(view.era, Some(mcp::Era::Modern));
    assert!(bench.call("hang", Duration::from_millis(300)).await.is_err());
    eventually("it is slow", || matches!(bench.state(), State::Slow { reason } if reason.contains("'hang'"))).await;
    let asked = lines(&log).iter().filter(|line| line.contains("tools/list")).count();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(matches!(bench.state(), State::Slow { .. }), "nobody asks it whether it is there");
    assert_eq!(lines(&log).iter().filter(|line| line.contains("tools/list")).count(), asked);
    let _ = bench.call("echo", PATIENCE).await.unwrap();
    eventually("the answer counts", || bench.state() == State::Connected).await;
    assert_eq!(bench.view().pid, view.pid);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_five_failures_in_a_row_the_circuit_opens_and_waits_for_a_click() {
    let bench = Bench::with_settings(&json!({ "baseRestartDelayMs": 200, "maxRestartDelayMs": 3000 }));
    let dead = bench.path("dead");
    let view = bench.add(bench.server(&json!({ "dead": dead, "pids": bench.path("pids") }))).await;
    let tools = bench.listed();
    std::fs::write(&dead, "").unwrap();
    signal("KILL", view.pid.unwrap());
    eventually("it reconnects", || matches!(bench.state(), State::Reconnecting { .. })).await;
    let started = Instant::now();
    let error = bench.call("echo", Duration::from_millis(200)).await.unwrap_err().to_string();
    assert!(error.contains("did not come back") || error.contains("exit code 7"), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(200) || error.contains("in a row"));
    let mut attempts = Vec::new();
    let reason = loop {
        match bench.state() {
            State::Reconnecting { attempt, .. } => {
                assert_eq!(bench.listed(), tools, "they stay listed all along");
                if attempts.last() != Some(&attempt) {
                    attempts.push(attempt);
                }
            }
            State::Failed { reason, exit_code } => {
                assert_eq!(exit_code, Some(7));
                break reason;
            }
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        assert!(started.elapsed() < PATIENCE);
    };
    assert!(reason.contains("5 times in a row") && reason.contains("exit code 7") && reason.contains("I may not live"), "{reason}");
    assert!(attempts.is_sorted() && attempts.last() == Some(&4), "{attempts:?}");
    assert_eq!((bench.view().tools.len(), bench.listed()), (4, tools.clone()), "last known, for the screen and for models");
    let error = bench.call("echo", PATIENCE).await.unwrap_err().to_string();
    assert!(error.contains("5 times in a row"), "a call fails at once, with the reason: {error}");
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(matches!(bench.state(), State::Failed { .. }) && bench.left().is_empty());
    std::fs::remove_file(&dead).unwrap();
    bench.manager.start(&id()).unwrap();
    let _ = bench.ready().await;
    assert_eq!(bench.listed(), tools);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_lasts_as_long_as_it_shows_life_or_somebody_waits_longer() {
    let bench = Bench::new();
    let mut entry = bench.server(&json!({ "silent": 6, "dots": true }));
    entry["startupTimeout"] = json!(4);
    let started = Instant::now();
    // Dots without a line's end: more than its limit, but never silent.
    let _ = bench.add(entry).await;
    assert!(started.elapsed() > Duration::from_secs(5));
    assert!(bench.manager.wait_longer(&id()).is_err(), "it is not starting");

    for patient in [false, true] {
        let mut entry = bench.server(&json!({ "silent": 7, "pids": bench.path("pids") }));
        entry["startupTimeout"] = json!(4);
        entry["description"] = json!(patient.to_string());
        bench.put(entry);
        bench.manager.restart(&id()).await.unwrap();
        assert!(matches!(bench.state(), State::Starting { .. }));
        if patient {
            // Each time the limit begins anew.
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(2)).await;
                bench.manager.wait_longer(&id()).unwrap();
            }
            let _ = bench.ready().await;
        } else {
            let error = bench.manager.ready(&id(), PATIENCE).await.unwrap_err().to_string();
            assert!(error.contains("startupTimeout"), "{error}");
            eventually("nothing is left of it", || bench.left().is_empty()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bun_is_started_for_npx_and_npx_itself_where_that_fails() {
    use std::os::unix::fs::PermissionsExt as _;
    let bench = Bench::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_process.py");
    let said = bench.path("said");
    let runner = |name: &str, works: bool| {
        let serve = format!("exec python3 -u {} '{{}}'", script.display());
        let text = format!(
            "#!/bin/sh\necho \"{name} $*\" >> {}\n{}\n",
            said.display(),
            if works { &serve } else { "echo 'error: it crashed' >&2; exit 5" }
        );
        let path = bench.path(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    };
    runner("bun", true);
    runner("npx", true);
    let path = format!("{}:{}", bench.folder.path().display(), std::env::var("PATH").unwrap());
    let entry = json!({ "command": "npx", "args": ["-y", "some-server@1", "--flag"], "env": { "PATH": path, TAG: bench.tag } });
    let _ = bench.add(entry).await;
    assert!(lines(&said).iter().all(|line| line.starts_with("bun x ") && line.ends_with("some-server@1 --flag")), "{:?}", lines(&said));
    assert!(bench.manager.log(&id(), 50).unwrap().iter().any(|line| line.text.contains("in place of npx")));
    bench.manager.stop(&id()).await.unwrap();

    runner("bun", false);
    std::fs::remove_file(&said).unwrap();
    bench.manager.start(&id()).unwrap();
    let view = bench.ready().await;
    let last = lines(&said).pop().unwrap();
    assert_eq!(last, "npx -y some-server@1 --flag");
    // What failed once is not tried first again.
    std::fs::remove_file(&said).unwrap();
    signal("KILL", view.pid.unwrap());
    eventually("it reconnects", || matches!(bench.state(), State::Reconnecting { .. })).await;
    let _ = bench.ready().await;
    assert!(lines(&said).iter().all(|line| line.starts_with("npx ")), "{:?}", lines(&said));
}

#[test]
fn a_program_is_found_where_only_the_login_shell_looks() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        let path = data.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_process.py");
    let _ = put("bin/my-own-server", &format!("exec python3 -u {} '{{}}'", script.display()));
    // Called as `shell -l -i -c COMMAND`.
    let shell = put("shell", &format!("echo welcome; export PATH=\"{}:$PATH\"; exec sh -c \"$4\"", data.path().join("bin").display()));
    let call = |command: &str| {
        let entry = json!({ "mcpServers": { "s": { "command": command, "env": { TAG: "login" } } } });
        std::fs::write(data.path().join("mcp_config.json"), entry.to_string()).unwrap();
        let mut app = std::process::Command::new(env!("CARGO_BIN_EXE_handrail-cli"));
        let _ =
            app.arg("--data-dir").arg(data.path()).args(["servers", "call", "s", "echo", r#"{"a":"b"}"#, "--approve", "allow", "--yes"]);
        let out = app.env("SHELL", &shell).stdin(std::process::Stdio::null()).output().unwrap();
        (out.status.success(), format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
    };
    let (worked, said) = call("my-own-server");
    assert!(worked && said.contains('b'), "{said}");
    let (worked, said) = call("nobodys-server");
    assert!(!worked && said.contains(data.path().join("bin").to_str().unwrap()), "it says where it looked: {said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_has_levels_and_times_and_is_also_a_file() {
    let bench = Bench::new();
    let before = std::time::SystemTime::now();
    let _ = bench.add(bench.server(&json!({}))).await;
    let _ = bench.call("complain", PATIENCE).await.unwrap();
    eventually("all lines", || bench.manager.log(&id(), 3).unwrap().len() == 3).await;
    let log = bench.manager.log(&id(), 3).unwrap();
    let seen: Vec<_> = log.iter().map(|line| (line.level, line.text.as_str())).collect();
    assert_eq!(seen, [(Some("warning"), "WARN it is late"), (None, "plain words"), (Some("error"), r#"{"level":"error","msg":"x"}"#)]);
    assert!(log.iter().all(|line| line.at >= before - Duration::from_secs(1)));
    assert_eq!(bench.manager.log(&id(), 1).unwrap().len(), 1);
    bench.manager.shutdown(Duration::from_millis(500)).await;
    let file = std::fs::read_to_string(bench.path("logs/mcp/s.log")).unwrap();
    assert!(file.contains("warning WARN it is late\n") && file.contains("-       plain words\n"), "{file}");
    assert!(std::fs::read_dir(bench.path("run")).is_ok());
    drop(bench.manager);
    let folder = bench.folder;
    eventually("the record goes with the instance", || std::fs::read_dir(folder.path().join("run")).unwrap().count() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_killed_in_mid_call_fails_the_call_and_comes_back_with_the_list_unchanged_all_along() {
    let (mut worst_failure, mut worst_return) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..3 {
        let bench = Bench::new();
        let log = bench.path("log");
        let view = bench.add(bench.server(&json!({ "log": log, "pids": bench.path("pids") }))).await;
        let tools = bench.listed();
        let over = Arc::new(AtomicBool::new(false));
        let (manager, wanted, stop) = (bench.manager.clone(), tools.clone(), over.clone());
        let watching = std::thread::spawn(move || {
            let mut looks = 0;
            while !stop.load(Ordering::Acquire) {
                assert_eq!(listed(&manager), wanted, "the list never changes");
                looks += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            looks
        });
        let calling = bench.call("hang", PATIENCE);
        let killing = async {
            eventually("the call arrives", || heard(&log, "hanging") == 1).await;
            let killed = Instant::now();
            nix_kill(view.pid.unwrap());
            killed
        };
        let (failed, killed) = tokio::join!(async { (calling.await.unwrap_err(), Instant::now()) }, killing);
        let (error, at) = failed;
        assert!(matches!(&error, tool::Error::Unavailable { reason, .. } if reason.contains("signal 9")), "{error}");
        let pid = bench.call("pid", PATIENCE).await.unwrap().to_text();
        let back = killed.elapsed();
        over.store(true, Ordering::Release);
        let looks: usize = watching.join().unwrap();
        assert!(looks > 100 && pid != view.pid.unwrap().to_string(), "{looks}");
        worst_failure = worst_failure.max(at - killed);
        worst_return = worst_return.max(back);
    }
    println!("the call failed after {worst_failure:?}, the server was usable again after {worst_return:?}, at worst of three");
    // The issue asks for 0.1 s and 2 s; a busy test machine gets five times as much.
    assert!(worst_failure < Duration::from_millis(500) && worst_return < Duration::from_secs(10), "{worst_failure:?} {worst_return:?}");
}

/// Without a process in between, whose start would be measured as well.
fn nix_kill(pid: u32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.try_into().unwrap()), nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_left_the_group_is_found_as_well() {
    let bench = Bench::new();
    let pids = bench.path("pids");
    let _ = bench.add(bench.server(&json!({ "tree": true, "bare": true, "pids": pids }))).await;
    eventually("the whole tree", || lines(&pids).len() == 4).await;
    bench.manager.stop(&id()).await.unwrap();
    let left: Vec<u32> = lines(&pids).iter().map(|pid| pid.parse().unwrap()).filter(|pid| runs(*pid)).collect();
    assert_eq!(left, Vec::<u32>::new(), "also the one in another session that has no environment");
}

/// Rounds that run at once.
const AT_ONCE: usize = 12;

/// How an app ends in a round, and how long that may take.
#[derive(Clone, Copy, Debug)]
enum Ending {
    Exit,
    Crash,
    Reset,
}

#[test]
fn two_hundred_ends_of_the_app_leave_no_descendant() {
    let rounds: usize = std::env::var("HANDRAIL_PROCESS_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(200);
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    let worst = std::sync::Mutex::new([Duration::ZERO; 3]);
    std::thread::scope(|scope| {
        // Most of a round is waiting for what ends only by force.
        for _ in 0..AT_ONCE {
            let _ = scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::AcqRel);
                    if round >= rounds {
                        return;
                    }
                    let ending = [Ending::Exit, Ending::Crash, Ending::Reset][round % 3];
                    let took = one_end(ending, round);
                    let mut worst = worst.lock().unwrap();
                    worst[round % 3] = worst[round % 3].max(took);
                }
            });
        }
    });
    let [exit, crash, reset] = *worst.lock().unwrap();
    println!(
        "{rounds} rounds in {:?}; at worst exit {exit:?}, reaping after a crash {crash:?}, factory reset {reset:?}",
        started.elapsed()
    );
}

/// An engine that starts what the test configured.
fn trusting(data: &Path) -> Config {
    Config { consent: Policy::Trust, ..Config::new(data) }
}

/// One round: an app with a stubborn tree ends. Returns how long that took.
fn one_end(ending: Ending, round: usize) -> Duration {
    let data = tempfile::tempdir().unwrap();
    let (pids, log, config) = (data.path().join("pids"), data.path().join("log"), data.path().join("mcp_config.json"));
    let tag = CallId::fresh().to_string();
    let entry = server(&json!({ "tree": true, "pids": pids, "log": log }), &tag);
    std::fs::write(&config, json!({ "mcpServers": { "s": entry } }).to_string()).unwrap();
    let took = match ending {
        Ending::Exit | Ending::Crash => {
            let mut app = std::process::Command::new(env!("CARGO_BIN_EXE_handrail-cli"));
            let _ = app.arg("--data-dir").arg(data.path()).args(["servers", "call", "s", "hang", "{}", "--approve", "allow", "--yes"]);
            let _ = app.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
            let mut app = app.spawn().unwrap();
            wait("the whole tree", || lines(&pids).len() == 3 && heard(&log, "hanging") == 1, round);
            let ended = Instant::now();
            if matches!(ending, Ending::Exit) {
                signal("TERM", app.id());
                let _ = app.wait().unwrap();
            } else {
                app.kill().unwrap();
                let _ = app.wait().unwrap();
                assert_eq!(tagged(&tag).len(), 3, "the stubborn ones outlive it");
                restarted(data.path(), &tag, round);
            }
            ended.elapsed()
        }
        Ending::Reset => {
            let engine = Engine::start(trusting(data.path())).unwrap();
            wait("the whole tree", || lines(&pids).len() == 3, round);
            let ended = Instant::now();
            engine.block_on(engine.shutdown(Shutdown::FactoryReset));
            let took = ended.elapsed();
            std::fs::remove_dir_all(data.path()).unwrap();
            took
        }
    };
    assert_eq!(tagged(&tag), Vec::<u32>::new(), "round {round}, {ending:?}");
    let budget = match ending {
        Ending::Exit => Shutdown::Exit.budget().1,
        Ending::Crash => Duration::from_secs(5),
        Ending::Reset => Shutdown::FactoryReset.budget().1,
    };
    // Many rounds at once on a busy machine: two seconds on top for the machine.
    assert!(took < budget + Duration::from_secs(2), "round {round}, {ending:?}: {took:?}");
    took
}

/// The app is started again: it ends what is left before anything else.
fn restarted(data: &Path, tag: &str, round: usize) {
    let config = Config { start_servers: false, ..Config::new(data) };
    let engine = Engine::start(config).unwrap();
    wait("the orphans are reaped", || tagged(tag).is_empty(), round);
    wait("the record is gone", || std::fs::read_dir(data.join("run")).unwrap().count() == 0, round);
    engine.block_on(engine.shutdown(Shutdown::Exit));
}

fn wait(what: &str, mut done: impl FnMut() -> bool, round: usize) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "round {round}: never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_running_instance_and_its_servers_are_left_alone_by_another_one() {
    let data = tempfile::tempdir().unwrap();
    let tag = CallId::fresh().to_string();
    let pids = data.path().join("pids");
    let entry = server(&json!({ "pids": pids }), &tag);
    std::fs::write(data.path().join("mcp_config.json"), json!({ "mcpServers": { "s": entry } }).to_string()).unwrap();
    let first = Engine::start(trusting(data.path())).unwrap();
    let _ = first.block_on(first.servers().ready(&id(), PATIENCE)).unwrap();
    let second = Engine::start(trusting(data.path())).unwrap();
    let _ = second.block_on(second.servers().ready(&id(), PATIENCE)).unwrap();
    assert_eq!(tagged(&tag).len(), 2, "each has its own");
    second.block_on(second.shutdown(Shutdown::Exit));
    drop(second);
    assert_eq!(tagged(&tag), [lines(&pids)[0].parse::<u32>().unwrap()]);
    assert_eq!(first.servers().servers()[0].state, State::Connected);
    first.block_on(first.shutdown(Shutdown::Restart));
    assert_eq!(tagged(&tag), Vec::<u32>::new());
}

#[test]
fn a_flood_on_stderr_without_a_newline_costs_little_memory() {
    let megabytes: u64 = std::env::var("HANDRAIL_FLOOD_MEGABYTES").ok().and_then(|megabytes| megabytes.parse().ok()).unwrap_or(200);
    let peak = |flood: u64| {
        let data = tempfile::tempdir().unwrap();
        let log = data.path().join("log");
        let entry = server(&json!({ "flood": flood, "log": log }), "flood");
        std::fs::write(data.path().join("mcp_config.json"), json!({ "mcpServers": { "s": entry } }).to_string()).unwrap();
        let mut app = std::process::Command::new(env!("CARGO_BIN_EXE_handrail-cli"));
        let _ = app.arg("--data-dir").arg(data.path()).args(["servers", "call", "s", "hang", "{}", "--approve", "allow", "--yes"]);
        let _ = app.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut app = app.spawn().unwrap();
        wait("the call arrives behind the flood", || heard(&log, "hanging") == 1, 0);
        let status = std::fs::read_to_string(format!("/proc/{}/status", app.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        signal("TERM", app.id());
        let _ = app.wait().unwrap();
        kilobytes
    };
    let (without, with) = (peak(0), peak(megabytes));
    println!("{megabytes} MB on stderr: peak memory {without} kB without, {with} kB with it");
    assert!(with < without + 20_000, "{without} {with}");
}

#[test]
fn a_connected_server_costs_less_than_a_megabyte() {
    // Alone in a process of its own: other tests would be measured as well.
    if std::env::var_os("HANDRAIL_MEASURE").is_none() {
        let test = "mcp_process::a_connected_server_costs_less_than_a_megabyte";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let out = alone.args([test, "--exact", "--nocapture"]).env("HANDRAIL_MEASURE", "1").output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        println!("{}", text.lines().find(|line| line.contains("per connected server")).unwrap_or_default());
        assert!(out.status.success(), "{text}\n{}", String::from_utf8_lossy(&out.stderr));
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let bench = Bench::new();
        let some = async |from: usize, to: usize| {
            let servers: serde_json::Map<String, Value> = (from..to)
                .map(|number| (format!("s{number}"), bench.server(&json!({ "pids": bench.path(&number.to_string()) }))))
                .collect();
            let _ = bench.manager.paste(&json!({ "mcpServers": servers }).to_string()).unwrap();
            for number in from..to {
                let _ = bench.manager.ready(&format!("s{number}").as_str().into(), PATIENCE).await.unwrap();
            }
            resident()
        };
        // The first ones bring in what is needed once.
        let before = some(0, 5).await;
        let after = some(5, 25).await;
        let each = after.saturating_sub(before) / 20;
        println!("{each} kB per connected server");
        bench.manager.shutdown(Duration::from_secs(2)).await;
        assert!(each < 1024, "{each} kB");
    });
}

/// Resident memory of this process in kB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
