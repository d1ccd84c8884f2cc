//! Calls that hang, spam, end badly or answer too much: the call pays, not the server.

use std::time::{Duration, Instant};

use handrail_engine::mcp::State;
use handrail_engine::tool::{self, Control};
use handrail_tests::servers::{Bench, control, eventually, watched, within};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

fn echo() -> Value {
    json!([{ "name": "echo", "reply": "echo" }])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ends_after_two_calls_comes_back_and_its_tools_stay_listed() {
    let bench = Bench::new();
    let log = bench.scripted("mortal", &json!({ "tools": echo(), "exit_after_calls": 2 })).await;
    let shown = serde_json::to_string(&*bench.tool("mortal", "echo").definition().clone()).unwrap();
    for round in 0..5 {
        let answer = bench.call("mortal", "echo", json!({ "round": round })).await.unwrap();
        assert_eq!(answer.to_text(), format!(r#"{{"round":{round}}}"#));
        assert_eq!(serde_json::to_string(&*bench.tool("mortal", "echo").definition().clone()).unwrap(), shown);
        // Its end comes a moment after its second answer; a call right into it is not what is tried here.
        if round % 2 == 1 {
            eventually("its end is noticed", || bench.state("mortal") != State::Connected || log.starts() > round / 2 + 1).await;
        }
    }
    assert_eq!((log.starts(), log.received("tools/call").len()), (3, 5));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_hangs_ends_by_its_timeout_and_the_next_one_works() {
    let bench = Bench::new();
    let rules = json!([{ "method": "tools/call", "skip": 1, "times": 1, "silent": true }]);
    let log = bench.scripted("hangs", &json!({ "tools": echo(), "rules": rules })).await;
    let pid = bench.view("hangs").pid;
    assert!(bench.call("hangs", "echo", json!({})).await.is_ok());
    let late = bench.call_with("hangs", "echo", json!({}), within(Duration::from_secs(1))).await.unwrap_err();
    assert!(matches!(late, tool::Error::Timeout(limit) if limit == Duration::from_secs(1)), "{late:?}");
    assert!(bench.state("hangs").is_usable(), "{:?}", bench.state("hangs"));
    assert!(bench.call("hangs", "echo", json!({})).await.is_ok());
    eventually("the server is told", || log.received("notifications/cancelled").len() == 1).await;
    assert_eq!((log.starts(), bench.view("hangs").pid), (1, pid), "a late call restarted the server");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_out_of_order_never_goes_backwards() {
    let bench = Bench::new();
    let values: Vec<f64> = (0..300).map(|index| f64::from((index * 7919) % 301)).collect();
    let most = values.iter().copied().fold(0.0, f64::max);
    let script = json!({ "tools": [{ "name": "spam", "progress_values": values, "delay_ms": 300, "reply": { "text": "done" } }] });
    for era in ["legacy", "modern"] {
        let mut script = script.clone();
        script["era"] = json!(era);
        let _ = bench.scripted(era, &script).await;
        let (control, mut progress) = watched();
        assert_eq!(bench.call_with(era, "spam", json!({}), control).await.unwrap().to_text(), "done");
        let mut told = Vec::new();
        while let Some(step) = progress.recv().await {
            told.push(step.done);
        }
        assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
        assert_eq!(told.last(), Some(&most), "{told:?}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_keeps_a_long_call_alive() {
    let bench = Bench::new();
    let script = json!({ "tools": [{ "name": "long", "progress": 12, "delay_ms": 6_000, "reply": { "text": "done" } }] });
    let _ = bench.scripted("long", &script).await;
    let answer = bench.call_with("long", "long", json!({}), within(Duration::from_secs(3))).await.unwrap();
    assert_eq!(answer.to_text(), "done");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_a_cancellation_loses_the_call_and_nothing_else() {
    let bench = Bench::new();
    let tools = json!([
        { "name": "deaf", "delay_ms": 1_500, "ignores_cancel": true, "reply": { "text": "too late" } },
        { "name": "echo", "reply": "echo" }
    ]);
    for era in ["legacy", "modern"] {
        let log = bench.scripted(era, &json!({ "era": era, "tools": tools })).await;
        let (pid, cancel) = (bench.view(era).pid, CancellationToken::new());
        let control = Control { cancel: cancel.clone(), ..control() };
        let (stopped, ()) = tokio::join!(bench.call_with(era, "deaf", json!({}), control), async {
            eventually("the call is there", || log.received("tools/call").len() == 1).await;
            cancel.cancel();
        });
        assert!(matches!(stopped, Err(tool::Error::Cancelled)), "{stopped:?}");
        assert!(log.all("cancelled").len() <= 1);
        eventually("the server is told", || log.all("cancelled") == ["deaf"]).await;
        // Its answer comes in the middle of these.
        let started = Instant::now();
        let mut round = 0;
        while started.elapsed() < Duration::from_millis(2_000) {
            round += 1;
            let answer = bench.call(era, "echo", json!({ "round": round })).await.unwrap();
            assert_eq!(answer.to_text(), format!(r#"{{"round":{round}}}"#));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(bench.view(era).pid, pid);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_17_mib_ends_one_call_and_not_the_server() {
    let bench = Bench::new();
    let tools = json!([{ "name": "flood", "reply": { "bytes": 17 << 20 } }, { "name": "echo", "reply": "echo" }]);
    for era in ["legacy", "modern"] {
        let _ = bench.scripted(era, &json!({ "era": era, "tools": tools })).await;
        let pid = bench.view(era).pid;
        let started = Instant::now();
        let other = bench.call(era, "echo", json!({ "at": "the same time" }));
        let (flood, other) = tokio::join!(bench.call(era, "flood", json!({})), other);
        let error = flood.expect_err("17 MiB are more than the limit of 16").to_string();
        assert!(error.contains("16777216") || error.contains("16 MiB"), "{error}");
        assert!(started.elapsed() < Duration::from_secs(40), "the call waited for its timeout");
        assert!(other.is_ok(), "{other:?}");
        assert!(bench.call(era, "echo", json!({})).await.is_ok());
        assert_eq!((bench.view(era).pid, bench.state(era)), (pid, State::Connected));
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_fails_its_call_at_once_and_is_back_soon() {
    let bench = Bench::new();
    let log = bench.scripted("victim", &json!({ "tools": [{ "name": "wait", "hang": true }, { "name": "echo", "reply": "echo" }] })).await;
    let shown =
        || -> Vec<String> { bench.manager.tools().iter().map(|tool| serde_json::to_string(&**tool.definition()).unwrap()).collect() };
    let before = shown();
    let pid = bench.view("victim").pid.unwrap();
    let mut killed = None;
    let (failed, ()) = tokio::join!(bench.call("victim", "wait", json!({})), async {
        eventually("the call is there", || log.received("tools/call").len() == 1).await;
        let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
        killed = Some(Instant::now());
    });
    let failing = killed.unwrap().elapsed();
    let error = failed.unwrap_err().to_string();
    assert!(error.contains("victim") && error.contains("signal 9"), "{error}");
    let mut lists = 0;
    while !bench.state("victim").is_usable() || bench.view("victim").pid == Some(pid) {
        assert_eq!(shown(), before, "the list changed while the server was away");
        lists += 1;
        assert!(killed.unwrap().elapsed() < Duration::from_secs(60), "it did not come back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let back = killed.unwrap().elapsed();
    assert_eq!(shown(), before);
    assert!(lists > 0, "nobody looked at the list in between");
    assert!(bench.call("victim", "echo", json!({})).await.is_ok());
    eprintln!("failed after {failing:?}, back after {back:?}");
    // 100 ms and 2 s on a machine that has nothing else to do.
    assert!(failing < Duration::from_secs(2) && back < Duration::from_secs(20), "{failing:?} {back:?}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_command_with_different_variables_is_two_servers() {
    let bench = Bench::new();
    let tools = json!([{ "name": "account", "reply": { "env": "ACCOUNT" } }, { "name": "names", "reply": "environment" }]);
    let (entry, log) = bench.script("shared", &json!({ "tools": tools }));
    for account in ["work", "home"] {
        let mut entry = entry.clone();
        entry["env"] = json!({ "ACCOUNT": account });
        let _ = bench.add(account, &entry).await;
    }
    assert_ne!(bench.view("work").pid, bench.view("home").pid);
    assert_eq!((bench.text("work", "account").await.as_str(), bench.text("home", "account").await.as_str()), ("work", "home"));
    assert_eq!(log.starts(), 2);
    // Only an allow-list and the configured variables get there.
    let names = bench.text("home", "names").await;
    assert!(names.lines().any(|name| name == "PATH") && names.lines().any(|name| name == "ACCOUNT"), "{names}");
    assert!(!names.lines().any(|name| name.starts_with("CARGO")), "{names}");
    bench.close().await;
}
