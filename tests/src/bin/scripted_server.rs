//! An MCP server whose behaviour a JSON file decides: `handrail-scripted-server SCRIPT.json [--stdio | --http PORT]`.
//!
//! The file's format is described at the head of `tests/src/script.rs`. `--http 0` takes any free port; the address
//! is written to stderr as `listening on http://127.0.0.1:PORT/mcp` and into the log.

// Shared with the journeys, which also make scripts; here they are only read.
#[allow(dead_code)]
#[path = "../script.rs"]
mod script;

use std::borrow::Cow;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult, PaginatedRequestParams,
    ProgressNotificationParam, ProtocolVersion, ServerCapabilities, ServerConfig, SubscriptionFilter, Tool,
};
use rmcp::service::{NotificationContext, RequestContext, SubscriptionContext};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use rmcp::{ErrorData, RoleServer, ServerHandler, ServiceExt as _};
use script::{Era, Reply, Script, ToolScript};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Room between the logged input and the server.
const PIPE: usize = 64 * 1024;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("handrail-scripted-server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: handrail-scripted-server SCRIPT.json [--stdio | --http PORT]";
    let path = arguments.first().ok_or(usage)?;
    let port: Option<u16> = match arguments.get(1).map(String::as_str) {
        None | Some("--stdio") => None,
        Some("--http") => Some(arguments.get(2).ok_or(usage)?.parse()?),
        Some(_) => return Err(usage.into()),
    };
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let script: Script = serde_json::from_str(&text).map_err(|error| format!("{path}: {error}"))?;
    for line in &script.stderr {
        eprintln!("{line}");
    }
    if let Some(code) = script.exit_at_start {
        std::process::exit(code);
    }
    let grandchild = if script.fork_child { Some(stubborn_child()?) } else { None };
    tokio::time::sleep(Duration::from_millis(script.start_delay_ms)).await;
    let log = Log { path: script.log.clone(), start: Instant::now(), lock: Arc::default() };
    let server = Scripted { tools: Arc::new(Mutex::new(script.tools.clone())), script: Arc::new(script), log: log.clone() };
    match port {
        None => {
            log.write(json!({ "started": std::process::id(), "port": null, "grandchild": grandchild }));
            stdio(server).await?;
        }
        Some(port) => http(server, port, grandchild).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A process of our group that does not end when it is asked to. It is not waited for: that is the point.
fn stubborn_child() -> Result<u32, Failure> {
    let child = std::process::Command::new("sh")
        .args(["-c", "trap '' TERM HUP INT; while :; do sleep 1; done"])
        .stdin(std::process::Stdio::null())
        .spawn()?;
    Ok(child.id())
}

async fn stdio(server: Scripted) -> Result<(), Failure> {
    {
        let mut stdout = std::io::stdout().lock();
        for line in &server.script.stdout_noise {
            writeln!(stdout, "{line}")?;
        }
        stdout.flush()?;
    }
    // Standard input passes through the log on its way.
    let (mut forward, input) = tokio::io::duplex(PIPE);
    let log = server.log.clone();
    let reader = tokio::spawn(async move {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            log.received(line.as_bytes());
            if forward.write_all(format!("{line}\n").as_bytes()).await.is_err() {
                break;
            }
        }
    });
    let running = server.serve((input, tokio::io::stdout())).await?;
    let _ = running.waiting().await?;
    reader.abort();
    Ok(())
}

async fn http(server: Scripted, port: u16, grandchild: Option<u32>) -> Result<(), Failure> {
    let log = server.log.clone();
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let port = listener.local_addr()?.port();
    log.write(json!({ "started": std::process::id(), "port": port, "grandchild": grandchild }));
    eprintln!("listening on http://127.0.0.1:{port}/mcp");
    let logged = axum::middleware::from_fn(move |request: axum::extract::Request, next: axum::middleware::Next| {
        let log = log.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
            if !body.is_empty() {
                log.received(&body);
            }
            next.run(axum::extract::Request::from_parts(parts, body.into())).await
        }
    });
    axum::serve(listener, axum::Router::new().nest_service("/mcp", service).layer(logged)).await?;
    Ok(())
}

/// Appends what happened, one JSON object per line.
#[derive(Clone, Debug)]
struct Log {
    path: Option<PathBuf>,
    start: Instant,
    lock: Arc<Mutex<()>>,
}

impl Log {
    fn received(&self, message: &[u8]) {
        let message = serde_json::from_slice(message).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(message).into_owned()));
        self.write(json!({ "received": message }));
    }

    fn write(&self, mut entry: Value) {
        let Some(path) = &self.path else {
            return;
        };
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        entry["ms"] = json!(u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX));
        let written = std::fs::OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| writeln!(file, "{entry}"));
        if let Err(error) = written {
            eprintln!("handrail-scripted-server: {}: {error}", path.display());
        }
    }
}

#[derive(Clone, Debug)]
struct Scripted {
    script: Arc<Script>,
    tools: Arc<Mutex<Vec<ToolScript>>>,
    log: Log,
}

impl Scripted {
    fn tools(&self) -> Vec<ToolScript> {
        self.tools.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the scripted change of the tools, and makes it.
    async fn change_later(&self) -> bool {
        let Some(later) = &self.script.later else {
            return false;
        };
        tokio::time::sleep(Duration::from_millis(later.after_ms)).await;
        (*self.tools.lock().unwrap_or_else(PoisonError::into_inner)).clone_from(&later.tools);
        true
    }

    async fn work(&self, tool: &ToolScript, context: &RequestContext<RoleServer>) {
        if tool.hang {
            std::future::pending::<()>().await;
        }
        let token = context.meta.get_progress_token();
        let steps = tool.progress.max(1);
        for step in 1..=steps {
            tokio::time::sleep(Duration::from_millis(tool.delay_ms) / steps).await;
            if let (Some(token), true) = (&token, tool.progress > 0) {
                let progress = ProgressNotificationParam::new(token.clone(), f64::from(step)).with_total(f64::from(steps));
                let _ = context.peer.notify_progress(progress.with_message(format!("step {step}"))).await;
            }
        }
        if let Some(code) = tool.exit {
            std::process::exit(code);
        }
    }
}

fn described(tool: ToolScript) -> Result<Tool, ErrorData> {
    let mut described = Tool::new(tool.name, tool.description, tool.input_schema);
    described.title = tool.title;
    described.output_schema = tool.output_schema.map(Arc::new);
    if let Some(hints) = tool.annotations {
        described.annotations = Some(serde_json::from_value(hints).map_err(|error| ErrorData::internal_error(error.to_string(), None))?);
    }
    Ok(described)
}

fn answer(reply: &Reply, request: &CallToolRequestParams) -> Result<CallToolResult, ErrorData> {
    match reply {
        Reply::Text(text) => Ok(CallToolResult::success(vec![ContentBlock::text(text)])),
        Reply::Structured(value) => Ok(CallToolResult::structured(value.clone())),
        Reply::Error(text) => Ok(CallToolResult::error(vec![ContentBlock::text(text)])),
        Reply::Content(blocks) => {
            let blocks: Result<Vec<ContentBlock>, _> = blocks.iter().map(|block| serde_json::from_value(block.clone())).collect();
            blocks.map(CallToolResult::success).map_err(|error| ErrorData::internal_error(error.to_string(), None))
        }
        Reply::ProtocolError(message) => Err(ErrorData::internal_error(message.clone(), None)),
        Reply::Echo => {
            let text = serde_json::to_string(&request.arguments).unwrap_or_default();
            Ok(CallToolResult::success(vec![ContentBlock::text(text)]))
        }
    }
}

impl ServerHandler for Scripted {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tool_list_changed().build();
        let name = self.script.name.as_deref().unwrap_or("scripted");
        let mut info = ServerConfig::new(capabilities).with_server_info(Implementation::new(name, "1"));
        info.instructions.clone_from(&self.script.instructions);
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.script.era {
            Era::Both => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
            Era::Modern => Cow::Owned(vec![ProtocolVersion::LATEST]),
            Era::Legacy => Cow::Owned(ProtocolVersion::KNOWN_VERSIONS.iter().filter(|version| version.has_initialize()).cloned().collect()),
        }
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        if self.change_later().await {
            let _ = context.peer.notify_tool_list_changed().await;
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        if self.change_later().await {
            let _ = context.sink().notify_tool_list_changed().await;
        }
        context.cancelled().await;
        Ok(())
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools: Result<Vec<Tool>, ErrorData> = self.tools().into_iter().map(described).collect();
        Ok(ListToolsResult::with_all_items(tools?))
    }

    async fn call_tool(&self, request: CallToolRequestParams, context: RequestContext<RoleServer>) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = self.tools().into_iter().find(|tool| tool.name == request.name) else {
            return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
        };
        tokio::select! {
            () = self.work(&tool, &context) => answer(&tool.reply, &request).map(CallToolResponse::Complete),
            () = context.ct.cancelled() => {
                self.log.write(json!({ "cancelled": tool.name }));
                Err(ErrorData::internal_error("cancelled", None))
            }
        }
    }
}
