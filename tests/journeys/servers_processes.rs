//! Process trees that do not want to end.
#![cfg(unix)]

use std::net::TcpListener;
use std::time::Duration;

use handrail_tests::servers::{Bench, Log, eventually, members, nothing_left};
use serde_json::json;

fn held(log: &Log) -> u16 {
    u16::try_from(log.all("holding").last().unwrap().as_u64().unwrap()).unwrap()
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stubborn_grandchild_with_a_port_goes_with_its_server() {
    let bench = Bench::new();
    let script = json!({ "many": 1, "fork_port": 0 });
    let log = bench.scripted("tree", &script).await;
    eventually("the grandchild holds its port", || log.all("holding").len() == 1).await;
    let (group, port) = (bench.view("tree").pid.unwrap(), held(&log));
    assert!(members(group).len() >= 2 && !is_free(port), "{:?}", members(group));

    // Stopped by a person.
    bench.manager.stop(&"tree".into()).await.unwrap();
    nothing_left(group).await;
    assert!(is_free(port), "port {port} is still held after the stop");

    // Its leader is killed: what it left goes too, before another is started.
    bench.manager.start(&"tree".into()).unwrap();
    let _ = bench.manager.ready(&"tree".into(), Duration::from_secs(60)).await.unwrap();
    eventually("the grandchild holds its port", || log.all("holding").len() == 2).await;
    let (group, port) = (bench.view("tree").pid.unwrap(), held(&log));
    let _ = std::process::Command::new("kill").args(["-9", &group.to_string()]).status().unwrap();
    nothing_left(group).await;
    assert!(is_free(port), "port {port} is still held after the crash");
    eventually("it is back", || bench.state("tree").is_usable() && bench.view("tree").pid != Some(group)).await;
    assert_eq!(bench.text("tree", "tool_000").await, "tool_000");

    // The app ends.
    eventually("the grandchild holds its port", || log.all("holding").len() == 3).await;
    let (group, port) = (bench.view("tree").pid.unwrap(), held(&log));
    bench.close().await;
    assert!(members(group).is_empty() && is_free(port), "port {port} is still held after the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_ignores_the_end_of_its_input_ends_all_the_same() {
    let bench = Bench::new();
    let log = bench.scripted("stays", &json!({ "many": 1, "ignores_eof": true })).await;
    let group = bench.view("stays").pid.unwrap();
    let started = std::time::Instant::now();
    bench.manager.shutdown(Duration::from_millis(500)).await;
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    nothing_left(group).await;
    assert_eq!(log.starts(), 1, "it was restarted while it was being stopped");
}
