//! Real servers from npm and PyPI: each connects, lists, does something real, and leaves nothing.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use handrail_engine::mcp::Era;
use handrail_tests::real_server;
use handrail_tests::servers::Bench;
use serde_json::{Value, json};

/// Adds a real server, says which era it has to speak, and that it really does.
async fn add(bench: &Bench, name: &str, entry: &Value, era: Era) -> usize {
    let view = bench.add(name, entry).await;
    assert_eq!(view.era, Some(era), "{name}");
    assert!(view.pid.is_some() || entry["url"].is_string());
    view.tools.len()
}

async fn call(bench: &Bench, server: &str, tool: &str, arguments: Value) -> String {
    let result = bench.call(server, tool, arguments).await.unwrap_or_else(|error| panic!("{error}\n{:#?}", bench.view(server)));
    assert!(!result.is_error, "{server} {tool}: {result:?}");
    result.to_text()
}

fn modern(mut entry: Value) -> Value {
    entry["era"] = json!("modern");
    entry
}

#[tokio::test(flavor = "multi_thread")]
async fn the_npm_servers_work_in_the_era_with_a_handshake() {
    let bench = Bench::new();
    let folder = bench.folder().canonicalize().unwrap();
    std::fs::write(folder.join("hello.txt"), "it is me").unwrap();
    let entry = |name: &str| real_server(name, &folder);

    assert_eq!(add(&bench, "memory", &entry("memory"), Era::Legacy).await, 9);
    let ada = json!({ "entities": [{ "name": "Ada", "entityType": "person", "observations": ["wrote the first program"] }] });
    let _ = call(&bench, "memory", "create_entities", ada).await;
    assert!(call(&bench, "memory", "read_graph", json!({})).await.contains("wrote the first program"));
    assert!(std::fs::read_to_string(folder.join("memory.jsonl")).unwrap().contains("Ada"));

    assert_eq!(add(&bench, "thinking", &entry("sequential-thinking"), Era::Legacy).await, 1);
    let thought = json!({ "thought": "First things first.", "thoughtNumber": 1, "totalThoughts": 2, "nextThoughtNeeded": true });
    assert!(call(&bench, "thinking", "sequentialthinking", thought).await.contains("thoughtNumber"));

    assert_eq!(add(&bench, "files", &entry("filesystem"), Era::Legacy).await, 14);
    let read = call(&bench, "files", "read_text_file", json!({ "path": folder.join("hello.txt") })).await;
    assert!(read.contains("it is me"), "{read}");
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_python_servers_work_in_the_stateless_era() {
    let bench = Bench::new();
    let folder = bench.folder().canonicalize().unwrap();
    let git = |arguments: &[&str]| {
        let status =
            Command::new("git").args(["-c", "user.name=A", "-c", "user.email=a@example.org"]).args(arguments).current_dir(&folder).status();
        assert!(status.unwrap().success());
    };
    git(&["init", "--quiet"]);
    std::fs::write(folder.join("hello.txt"), "it is me").unwrap();
    git(&["add", "hello.txt"]);
    git(&["commit", "--quiet", "-m", "The very first"]);

    assert_eq!(add(&bench, "git", &modern(real_server("git", &folder)), Era::Modern).await, 12);
    let log = call(&bench, "git", "git_log", json!({ "repo_path": folder })).await;
    assert!(log.contains("The very first"), "{log}");

    assert_eq!(add(&bench, "time", &modern(real_server("time", &folder)), Era::Modern).await, 2);
    assert!(call(&bench, "time", "get_current_time", json!({ "timezone": "Asia/Tokyo" })).await.contains("Asia/Tokyo"));

    // A page of our own: the network is not part of this.
    let page = page_server();
    assert_eq!(add(&bench, "fetch", &modern(real_server("fetch", &folder)), Era::Modern).await, 1);
    let fetched = call(&bench, "fetch", "fetch", json!({ "url": page, "raw": true })).await;
    assert!(fetched.contains("a page of our own"), "{fetched}");
    bench.close().await;

    // Left to itself, the connection finds an era that works.
    let bench = Bench::new();
    let view = bench.add("time", &real_server("time", &folder)).await;
    assert!(view.era.is_some());
    assert!(call(&bench, "time", "get_current_time", json!({ "timezone": "UTC" })).await.contains("UTC"));
    bench.close().await;
}

/// Serves one page as often as it is asked for, as long as the test runs.
fn page_server() -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/page", listener.local_addr().unwrap());
    let _server = std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let body = "<html><body><p>a page of our own</p></body></html>";
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
            let _ = stream.write_all((head + body).as_bytes());
        }
    });
    url
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_everything_works_over_all_three_transports() {
    let bench = Bench::new();
    let folder = bench.folder().to_path_buf();
    let stdio = real_server("everything", &folder);
    let mut entries = vec![("stdio", stdio.clone(), None)];
    for (kind, path) in [("sse", "sse"), ("streamableHttp", "mcp")] {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new("node")
            .arg(stdio["args"][0].as_str().unwrap())
            .arg(kind)
            .env("PORT", port.to_string())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Running(child);
        handrail_tests::servers::eventually("it listens", || std::net::TcpStream::connect(("localhost", port)).is_ok()).await;
        let kind = if kind == "sse" { "sse" } else { "http" };
        entries.push((kind, json!({ "type": kind, "url": format!("http://localhost:{port}/{path}") }), Some(server)));
    }
    for (name, entry, _server) in &entries {
        let tools = add(&bench, name, entry, Era::Legacy).await;
        assert!(tools >= 13, "{name}: {tools} tools");
        assert!(call(&bench, name, "echo", json!({ "message": "hi" })).await.contains("hi"));
        let sum = call(&bench, name, "get-sum", json!({ "a": 2, "b": 40 })).await;
        assert!(sum.contains("42"), "{name}: {sum}");
        let (control, mut progress) = handrail_tests::servers::watched();
        let arguments = json!({ "duration": 1, "steps": 4 });
        let long = bench.call_with(name, "trigger-long-running-operation", arguments, control).await.unwrap();
        assert!(!long.is_error, "{long:?}");
        let mut told = Vec::new();
        while let Ok(step) = progress.try_recv() {
            told.push(step.done);
        }
        assert!(!told.is_empty() && told.windows(2).all(|pair| pair[0] < pair[1]), "{name}: {told:?}");
        bench.manager.stop(&(*name).into()).await.unwrap();
    }
    drop(entries);
    tokio::time::sleep(Duration::from_millis(10)).await;
    bench.close().await;
}
