//! What the connection manager costs: the round trip of a call against plain rmcp on the same server, and the memory of
//! a connected server.
//!
//! `cargo bench -p handrail-tests --bench mcp [-- CALLS]`. Clients take turns in short rounds, so that whatever else the
//! machine does hits both. A call goes the way of the turn loop: the tool from the manager, a permit from the gate, then
//! the call. What plain rmcp has nothing like is told apart: "gate" is the permit (rules, seal, ledger), got before the
//! calls of a round, so that those follow one another like rmcp's; "seal" is what spending the permit takes of the call.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use handrail_engine::approval::{Decision, GatedTool};
use handrail_tests::servers::{Bench, control};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolRequestParams, ClientConfig, Implementation, ProtocolVersion, ServerCapabilities, ServerConfig};
use rmcp::service::{ClientServiceExt as _, RunningService};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientHandler, ClientLifecycleMode, RoleClient, ServerHandler, ServiceExt as _, schemars, tool, tool_handler, tool_router};
use serde_json::{Value, json};

const ROUNDS: usize = 12;
const SERVERS: usize = 50;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Echo {
    text: String,
}

/// The server of the comparison: rmcp's own, with one tool.
#[derive(Clone)]
struct Server;

#[tool_router]
impl Server {
    #[tool(description = "Gives the text back.")]
    async fn echo(&self, Parameters(echo): Parameters<Echo>) -> String {
        echo.text
    }
}

#[tool_handler]
impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build()).with_server_info(Implementation::new("echo", "1"))
    }
}

/// The plain client.
#[derive(Clone)]
struct Plain;

impl ClientHandler for Plain {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::default().with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}

type Client = RunningService<RoleClient, Plain>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match arguments.first().map(String::as_str) {
        Some("--serve-stdio") => runtime.block_on(async {
            let _ = Server.serve(rmcp::transport::stdio()).await.unwrap().waiting().await;
        }),
        Some("--serve-http") => runtime.block_on(serve_http()),
        _ => runtime.block_on(measure(arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(150))),
    }
}

async fn serve_http() {
    use axum::serve::ListenerExt as _;
    let service =
        StreamableHttpService::new(|| Ok(Server), Arc::new(LocalSessionManager::default()), StreamableHttpServerConfig::default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("http://{}/mcp", listener.local_addr().unwrap());
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service)).await.unwrap();
}

async fn measure(calls: usize) {
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    println!("{profile} build, {ROUNDS} rounds of {calls} calls each, in turns; microseconds");
    println!("{:<30}{:>10}{:>10}{:>10}{:>10}{:>9}{:>10}{:>10}", "", "rmcp p50", "p99", "ours p50", "p99", "ratio", "gate p50", "seal p50");
    let this = std::env::current_exe().unwrap();
    let mut listening = Command::new(&this).arg("--serve-http").stdout(Stdio::piped()).spawn().unwrap();
    let mut url = String::new();
    let _ = std::io::BufRead::read_line(&mut std::io::BufReader::new(listening.stdout.take().unwrap()), &mut url).unwrap();
    let url = url.trim().to_owned();
    let bench = Bench::new();
    for era in ["legacy", "modern"] {
        let ours = format!("stdio-{era}");
        let _ = bench.add(&ours, &json!({ "command": this, "args": ["--serve-stdio"], "era": era })).await;
        let mut command = tokio::process::Command::new(&this);
        let _ = command.arg("--serve-stdio");
        let plain = Plain.serve_with_lifecycle(TokioChildProcess::new(command).unwrap(), mode(era)).await.unwrap();
        compare(&bench, &ours, &plain, calls).await;
        let _ = plain.cancel().await;

        let ours = format!("http-{era}");
        let _ = bench.add(&ours, &json!({ "url": url, "era": era })).await;
        let plain = Plain.serve_with_lifecycle(StreamableHttpClientTransport::from_uri(url.as_str()), mode(era)).await.unwrap();
        compare(&bench, &ours, &plain, calls).await;
        let _ = plain.cancel().await;
    }
    bench.close().await;
    let _ = listening.kill();
    let _ = listening.wait();
    memory().await;
}

fn mode(era: &str) -> ClientLifecycleMode {
    match era {
        "legacy" => ClientLifecycleMode::Initialize,
        _ => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::LATEST] },
    }
}

async fn compare(bench: &Bench, ours: &str, plain: &Client, calls: usize) {
    let tool = bench.tool(ours, "echo");
    // One decision for all: from here on the gate answers by rule.
    let (permit, _) = bench.permit(&tool, json!({ "text": "" }), Decision::AlwaysTool).await;
    let _ = tool.call(permit, control()).await.unwrap();
    for (size, calls) in [(64, calls), (64 * 1024, calls / 3)] {
        let text = "x".repeat(size);
        let arguments = json!({ "text": text });
        let (mut theirs, mut mine, mut gate) = (Times::default(), Times::default(), Times::default());
        let mut seal = Times::default();
        // The first round warms up.
        for round in 0..=ROUNDS {
            let first = theirs_round(plain, &arguments, calls).await;
            let (admitted, spent, second) = our_round(bench, &tool, &arguments, calls).await;
            if round > 0 {
                theirs.add(first);
                mine.add(second);
                gate.add(admitted);
                seal.add(spent);
            }
        }
        let ratio = mine.median() / theirs.median();
        let name = format!("{ours} {size} B");
        println!(
            "{name:<30}{:>10.0}{:>10.0}{:>10.0}{:>10.0}{ratio:>9.2}{:>10.0}{:>10.0}",
            theirs.median(),
            theirs.worst(),
            mine.median(),
            mine.worst(),
            gate.median(),
            seal.median()
        );
    }
}

async fn theirs_round(plain: &Client, arguments: &Value, calls: usize) -> Vec<Duration> {
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let arguments = arguments.as_object().unwrap().clone();
        let started = Instant::now();
        let result = plain.call_tool(CallToolRequestParams::new("echo").with_arguments(arguments)).await.unwrap();
        times.push(started.elapsed());
        assert!(result.is_error != Some(true));
    }
    times
}

/// The times of admitting, of spending and of calling.
async fn our_round(bench: &Bench, tool: &Arc<GatedTool>, arguments: &Value, calls: usize) -> (Vec<Duration>, Vec<Duration>, Vec<Duration>) {
    let (mut admitted, mut spent, mut called) = (Vec::new(), Vec::new(), Vec::new());
    let mut permits = Vec::with_capacity(calls);
    for index in 0..calls + calls / 4 {
        let arguments = arguments.clone();
        let started = Instant::now();
        let (permit, asked) = bench.permit(tool, arguments, Decision::AlwaysTool).await;
        admitted.push(started.elapsed());
        assert_eq!(asked, None, "the rule of the first call holds");
        if index < calls {
            permits.push(permit);
        } else {
            let started = Instant::now();
            let _ = permit.spend_for(&tool.definition().id).unwrap();
            spent.push(started.elapsed());
        }
    }
    for permit in permits {
        let control = control();
        let started = Instant::now();
        let result = tool.call(permit, control).await.unwrap();
        called.push(started.elapsed());
        assert!(!result.is_error);
    }
    (admitted, spent, called)
}

/// Round trips of all rounds, in microseconds.
#[derive(Default)]
struct Times(Vec<f64>);

impl Times {
    fn add(&mut self, times: Vec<Duration>) {
        self.0.extend(times.into_iter().map(|time| time.as_secs_f64() * 1e6));
        self.0.sort_by(f64::total_cmp);
    }

    fn median(&self) -> f64 {
        self.0[self.0.len() / 2]
    }

    fn worst(&self) -> f64 {
        self.0[self.0.len() * 99 / 100]
    }
}

/// Our side's memory for connected servers: the growth of this process over many of them.
async fn memory() {
    let script = json!({ "many": 10 });
    let bench = Bench::new();
    let _ = bench.scripted("first", &script).await;
    let before = resident();
    let names: Vec<String> = (0..SERVERS).map(|index| format!("server-{index}")).collect();
    for name in &names {
        let _ = bench.scripted(name, &script).await;
        let _ = bench.text(name, "tool_000").await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    if let (Some(before), Some(after)) = (before, resident()) {
        let each = after.saturating_sub(before) / SERVERS as u64 / 1024;
        println!("memory of a connected stdio server with 10 tools on our side: {each} KiB (growth over {SERVERS})");
    }
    bench.close().await;
}

/// Resident memory of this process in bytes, where the system tells it.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<u64>().ok()? * 1024)
}
