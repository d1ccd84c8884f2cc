//! An MCP server whose behaviour a JSON file decides:
//! `handrail-scripted-server SCRIPT.json [--stdio | --http PORT | --sse PORT]`.
//!
//! The file's format is described at the head of `tests/src/script.rs`. Port 0 takes any free port; the address is
//! written to stderr as `listening on http://127.0.0.1:PORT/mcp` (`/sse` for the old HTTP+SSE transport) and into the log.
//!
//! It speaks JSON-RPC by itself and not through an SDK: SDKs do not misbehave.

// Shared with the journeys, which also make scripts; here they are only read.
#[allow(dead_code)]
#[path = "../script.rs"]
mod script;

#[path = "scripted_server/call.rs"]
mod call;
#[path = "scripted_server/face.rs"]
mod face;
#[path = "scripted_server/log.rs"]
mod log;
#[path = "scripted_server/offer.rs"]
mod offer;
#[path = "scripted_server/server.rs"]
mod server;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use log::Log;
use script::{Flood, Script};
use serde_json::json;
use server::Server;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const USAGE: &str = "usage: handrail-scripted-server SCRIPT.json [--stdio | --http PORT | --sse PORT]";

/// How the server is reached.
#[derive(Clone, Copy)]
enum Face {
    Stdio,
    Http(u16),
    Sse(u16),
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("handrail-scripted-server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or(USAGE)?;
    let port = || -> Result<u16, Failure> { Ok(arguments.get(2).ok_or(USAGE)?.parse()?) };
    let face = match arguments.get(1).map(String::as_str) {
        None | Some("--stdio") => Some(Face::Stdio),
        Some("--http") => Some(Face::Http(port()?)),
        Some("--sse") => Some(Face::Sse(port()?)),
        // How the grandchild is started; not for people.
        Some("--hold") => None,
        Some(_) => return Err(USAGE.into()),
    };
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let script: Script = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    let log = Log::new(script.log.clone());
    let Some(face) = face else {
        return hold(port()?, &log);
    };
    for line in &script.stderr {
        eprintln!("{line}");
    }
    if let Some(code) = script.exit_at_start {
        std::process::exit(code);
    }
    let grandchild = grandchild(&script, Path::new(path))?;
    if let Some(flood) = script.stderr_flood {
        let log = log.clone();
        let _writer = std::thread::spawn(move || pour(flood, &log));
    }
    tokio::time::sleep(Duration::from_millis(script.start_delay_ms)).await;
    let server = Arc::new(Server::new(script, log));
    match face {
        Face::Stdio => {
            server.log.write(json!({ "started": std::process::id(), "port": null, "grandchild": grandchild }));
            face::stdio(server).await
        }
        Face::Http(port) => face::http(server, port, grandchild).await,
        Face::Sse(port) => face::sse(server, port, grandchild).await,
    }
}

/// A process of our group that does not end when it is asked to. It is not waited for: that is the point.
fn grandchild(script: &Script, path: &Path) -> Result<Option<u32>, Failure> {
    let work = if let Some(port) = script.fork_port {
        format!("exec \"$0\" \"$1\" --hold {port}")
    } else if script.fork_child {
        "while :; do sleep 1; done".to_owned()
    } else {
        return Ok(None);
    };
    let child = std::process::Command::new("sh")
        .arg("-c")
        // What is ignored stays ignored in the program that takes over.
        .arg(format!("trap '' TERM HUP INT; {work}"))
        .arg(std::env::current_exe()?)
        .arg(path)
        .stdin(std::process::Stdio::null())
        .spawn()?;
    Ok(Some(child.id()))
}

fn hold(port: u16, log: &Log) -> Result<(), Failure> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", port))?;
    log.write(json!({ "holding": listener.local_addr()?.port() }));
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn pour(flood: Flood, log: &Log) {
    const PIECE: usize = 64 * 1024;
    let mut piece = vec![b'~'; PIECE];
    if flood.newlines {
        piece.iter_mut().skip(79).step_by(80).for_each(|byte| *byte = b'\n');
    }
    let mut stderr = std::io::stderr().lock();
    let mut left = flood.bytes;
    while left > 0 {
        let now = usize::try_from(left).map_or(PIECE, |left| left.min(PIECE));
        if stderr.write_all(&piece[..now]).is_err() {
            return;
        }
        left -= now as u64;
    }
    log.write(json!({ "flooded": flood.bytes }));
}
