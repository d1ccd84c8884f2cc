//! Servers that start badly: what the person gets to see, and that nothing is left behind.

use std::time::{Duration, Instant};

use handrail_engine::mcp::{Era, State};
use handrail_tests::servers::{Bench, Log, eventually, members};
use serde_json::{Value, json};

fn greeter(more: &Value) -> Value {
    let mut script = json!({ "tools": [{ "name": "greet", "reply": { "text": "hello" } }] });
    for (field, value) in more.as_object().unwrap() {
        script[field] = value.clone();
    }
    script
}

/// No process of any start is left.
async fn all_gone(log: &Log) {
    for pid in log.all("started") {
        let pid = u32::try_from(pid.as_u64().unwrap()).unwrap();
        eventually("a failed start leaves nothing", || members(pid).is_empty()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_server_is_given_up_with_words_and_without_remains() {
    let bench = Bench::new();
    let (mut entry, log) = bench.script("mute", &greeter(&json!({ "rules": [{ "method": "*", "silent": true }] })));
    entry["startupTimeout"] = json!(2);
    let error = bench.try_add("mute", &entry).await.unwrap_err().to_string();
    assert!(error.contains("mute") && error.contains("2s") && error.contains("startupTimeout"), "{error}");
    assert!(matches!(bench.state("mute"), State::Failed { .. }), "{:?}", bench.state("mute"));
    assert!(!log.lines().is_empty(), "it was never started");
    all_gone(&log).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_needs_25_seconds_to_start_is_waited_for_and_started_once() {
    let bench = Bench::new();
    let (entry, log) = bench.script("late", &greeter(&json!({ "start_delay_ms": 25_000, "stderr": ["fetching 3 packages"] })));
    let _ = bench.manager.paste(&json!({ "mcpServers": { "late": entry } }).to_string()).unwrap();
    eventually(
        "its last sign of life is shown",
        || matches!(bench.state("late"), State::Starting { note: Some(note) } if note.contains("fetching 3 packages")),
    )
    .await;
    let _ = bench.manager.ready(&"late".into(), Duration::from_secs(110)).await.unwrap();
    assert_eq!(bench.text("late", "greet").await, "hello");
    assert_eq!((log.starts(), log.received("initialize").len()), (1, 1));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_starts_make_one_process_and_one_handshake() {
    let bench = Bench::new();
    let (entry, log) = bench.script("single", &greeter(&json!({ "start_delay_ms": 300 })));
    let _ = bench.manager.paste(&json!({ "mcpServers": { "single": entry } }).to_string()).unwrap();
    for _ in 0..20 {
        bench.manager.start_all();
        bench.manager.start(&"single".into()).unwrap();
    }
    bench.manager.set_active(&"single".into(), true).await.unwrap();
    let _ = bench.add("single", &entry).await;
    for _ in 0..20 {
        bench.manager.start(&"single".into()).unwrap();
    }
    assert_eq!(bench.text("single", "greet").await, "hello");
    assert_eq!((log.starts(), log.received("initialize").len()), (1, 1));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_at_an_unknown_first_method_is_met_with_one_that_it_knows() {
    let bench = Bench::new();
    // In the stateless era first, so that the verdict that is kept sends the unknown method later.
    let (mut entry, _) = bench.script("old", &greeter(&json!({ "era": "modern" })));
    let view = bench.add("old", &entry).await;
    assert_eq!(view.era, Some(Era::Modern));
    bench.manager.stop(&"old".into()).await.unwrap();

    // The same command, but the program was replaced by an old one.
    std::fs::remove_file(bench.folder().join("old.log")).unwrap();
    let (_, log) = bench.script("old", &greeter(&json!({ "exits_on_unknown_first": true, "era": "legacy" })));
    bench.manager.start(&"old".into()).unwrap();
    let view = bench.manager.ready(&"old".into(), Duration::from_secs(100)).await.unwrap();
    assert_eq!(view.era, Some(Era::Legacy), "{view:?}");
    assert_eq!((log.starts(), log.received("server/discover").len(), log.received("initialize").len()), (2, 1, 1));
    assert_eq!(bench.text("old", "greet").await, "hello");

    // Where the person insists on the stateless era, it is an error that shows how the server ended.
    entry["era"] = json!("modern");
    let error = bench.try_add("old", &entry).await.unwrap_err().to_string();
    assert!(error.contains("exit code 1") && error.contains("unknown method server/discover"), "{error}");
    all_gone(&log).await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_nothing_but_an_empty_object_fails_in_words() {
    let bench = Bench::new();
    let (entry, log) = bench.script("hollow", &greeter(&json!({ "rules": [{ "method": "*", "result": {} }] })));
    let started = Instant::now();
    let error = bench.try_add("hollow", &entry).await.unwrap_err().to_string();
    assert!(error.contains("hollow") && error.contains("MCP"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(30), "an answer was waited for that had come");
    all_gone(&log).await;

    // One that answers so only what it does not know is an old server.
    let (entry, log) =
        bench.script("lenient", &greeter(&json!({ "era": "legacy", "rules": [{ "method": "server/discover", "result": {} }] })));
    assert_eq!(bench.add("lenient", &entry).await.era, Some(Era::Legacy));
    assert_eq!(log.received("initialize").len(), 1);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_on_stdout_is_skipped_and_counted_and_never_answered() {
    let bench = Bench::new();
    let script = json!({
        "tools": [{ "name": "greet", "reply": { "text": "hello" } }],
        "stdout_noise": ["Server v1.2 starting…", r#"{"level":"info","msg":"up"}"#, "42"],
        "stdout_noise_each": [r#"{"level":"debug","msg":"sending"}"#]
    });
    for era in ["legacy", "modern"] {
        let mut script = script.clone();
        script["era"] = json!(era);
        let (mut entry, log) = bench.script(era, &script);
        entry["era"] = json!(era);
        let _ = bench.add(era, &entry).await;
        let before = bench.view(era).skipped_lines;
        assert!(before >= 5, "3 lines at the start and one before each of 2 answers, but {before} were counted");
        assert_eq!(bench.text(era, "greet").await, "hello");
        assert_eq!(bench.text(era, "greet").await, "hello");
        // At least: the server may have been asked something else meanwhile.
        assert!(bench.view(era).skipped_lines >= before + 2, "{before} before two calls, {} after", bench.view(era).skipped_lines);
        // A strict server would choke on errors about messages that it never sent.
        let errors: Vec<Value> = log.all("received").into_iter().filter(|message| !message["error"].is_null()).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_eras_are_found_out_and_can_be_chosen() {
    let bench = Bench::new();
    for (name, script, choice, expected) in [
        ("only-old", "legacy", None, Era::Legacy),
        ("only-new", "modern", None, Era::Modern),
        ("both-old", "both", Some("legacy"), Era::Legacy),
        ("both-new", "both", Some("modern"), Era::Modern),
    ] {
        let (mut entry, log) = bench.script(name, &greeter(&json!({ "era": script })));
        if let Some(choice) = choice {
            entry["era"] = json!(choice);
        }
        assert_eq!(bench.add(name, &entry).await.era, Some(expected), "{name}");
        assert_eq!(bench.text(name, "greet").await, "hello");
        let foreign = if expected == Era::Legacy { "server/discover" } else { "initialize" };
        if choice.is_some() {
            assert!(log.received(foreign).is_empty(), "{name} was asked in the era that was not chosen");
        }
    }
    // Every revision that has a handshake is accepted; one from nowhere is not.
    for revision in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
        let (entry, _) = bench.script(revision, &greeter(&json!({ "era": "legacy", "protocol": revision })));
        let view = bench.add(revision, &entry).await;
        assert_eq!((view.era, view.protocol.as_deref()), (Some(Era::Legacy), Some(revision)));
        assert_eq!(bench.text(revision, "greet").await, "hello");
    }
    let (mut entry, log) = bench.script("odd", &greeter(&json!({ "era": "legacy", "protocol": "1999-01-01" })));
    entry["startupTimeout"] = json!(20);
    let error = bench.try_add("odd", &entry).await.unwrap_err().to_string();
    assert!(error.contains("1999-01-01"), "{error}");
    all_gone(&log).await;
    bench.close().await;
}
