//! What bad servers may cost in memory. Each is measured in a process of its own: tests run side by side.
#![cfg(target_os = "linux")]

use std::process::Command;

use handrail_engine::mcp::State;
use handrail_tests::servers::{Bench, eventually};
use serde_json::json;

const MIB: u64 = 1 << 20;

/// Runs an ignored test of this file in a process of its own.
fn alone(name: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", &format!("servers_memory::{name}")])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && words.contains("1 passed"), "{words}");
    eprintln!("{}", words.lines().filter(|line| line.contains("MiB")).collect::<Vec<_>>().join("\n"));
}

fn memory(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// What this process had at most since the last call, over what it has now, once the work is done.
struct Peak {
    before: u64,
}

impl Peak {
    fn start() -> Self {
        // Resets the high-water mark.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        Self { before: memory("VmRSS:") }
    }

    fn cost(&self) -> u64 {
        memory("VmHWM:").saturating_sub(self.before)
    }
}

#[test]
fn a_flood_on_stderr_costs_under_20_mib() {
    alone("flood");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test in a process of its own"]
async fn flood() {
    let bench = Bench::new();
    // A first server, so that what every server costs is there already.
    let _ = bench.scripted("first", &json!({ "many": 1 })).await;
    assert_eq!(bench.text("first", "tool_000").await, "tool_000");
    let peak = Peak::start();
    for newlines in [false, true] {
        let name = if newlines { "lines" } else { "one-line" };
        let flood = json!({ "bytes": 512 * MIB, "newlines": newlines });
        let log = bench.scripted(name, &json!({ "many": 1, "stderr_flood": flood })).await;
        // It answers in the middle of it.
        assert_eq!(bench.text(name, "tool_000").await, "tool_000");
        eventually("all of it is read", || !log.all("flooded").is_empty()).await;
        assert_eq!(bench.state(name), State::Connected, "a flood on stderr is no failure");
        assert_eq!(bench.text(name, "tool_000").await, "tool_000");
    }
    let cost = peak.cost();
    println!("two floods of 512 MiB cost {} MiB", cost / MIB);
    assert!(cost < 20 * MIB, "{} MiB", cost / MIB);
    bench.close().await;
}

#[test]
fn a_result_of_100_mb_ends_one_call_within_bounds() {
    alone("result");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "started by another test in a process of its own"]
async fn result() {
    let bench = Bench::new();
    let tools = json!([{ "name": "huge", "reply": { "bytes": 100_000_000 } }, { "name": "small" }]);
    let script = json!({ "tools": tools });
    let _ = bench.scripted("stdio", &script).await;
    let server = bench.listening("http", "--http", &script);
    let _ = bench.add("http", &json!({ "url": server.url })).await;
    for name in ["stdio", "http"] {
        assert_eq!(bench.text(name, "small").await, "ok");
        let peak = Peak::start();
        match bench.call(name, "huge", json!({})).await {
            Ok(result) => assert!(result.to_text().len() <= handrail_engine::tool::KEPT + 1000, "{name}"),
            Err(error) => assert!(["MiB", "bytes", "16777216"].iter().any(|word| error.to_string().contains(word)), "{name}: {error}"),
        }
        let cost = peak.cost();
        println!("a result of 100 MB over {name} cost {} MiB", cost / MIB);
        assert!(cost < 96 * MIB, "{name}: {} MiB", cost / MIB);
        assert_eq!(bench.text(name, "small").await, "ok");
        assert_eq!(bench.state(name), State::Connected, "{name}");
    }
    bench.close().await;
}
