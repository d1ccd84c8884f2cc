//! The client under test for `@modelcontextprotocol/conformance`: `mcp-conformance-client URL`, one scenario per run.
//!
//! Nothing here speaks the protocol. It writes a configuration with one server and does what a person would: connect,
//! sign in when asked, call every tool through the gate, answer questions with the defaults of their forms. Which
//! scenario runs comes from the environment, as the suite gives it (`MCP_CONFORMANCE_SCENARIO`, `_PROTOCOL_VERSION` and
//! `_CONTEXT`). The exit status is 0 only when everything worked.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use handrail_engine::approval::{self, Decision, Gate, GatedTool};
use handrail_engine::conversation::ConversationId;
use handrail_engine::mcp::consent::Policy;
use handrail_engine::mcp::question::{Answer, Ask};
use handrail_engine::mcp::{self, Manager, Options, SignIn, State};
use handrail_engine::store::Store;
use handrail_engine::tool::{Call, CallId, Control, ServerId};
use serde_json::{Map, Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The one server.
const SERVER: &str = "conformance";
/// The suite gives a scenario 30 s.
const TOTAL: Duration = Duration::from_secs(25);
/// Longest wait for a connection or a call.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a failed call may take to turn into a request to sign in.
const SETTLE: Duration = Duration::from_millis(500);
/// Sign-ins after which a person would give up.
const MOST_SIGN_INS: u32 = 3;
const DOCUMENT: &str = "https://conformance-test.local/client-metadata.json";
/// Most bytes of an answer that the browser reads.
const PAGE: u64 = 64 * 1024;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into()))
        .init();
    match tokio::time::timeout(TOTAL, run()).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("mcp-conformance-client: {error}");
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("mcp-conformance-client: not done within {TOTAL:?}");
            ExitCode::FAILURE
        }
    }
}

/// What the suite says about this run.
struct Scenario {
    name: String,
    context: Value,
}

async fn run() -> Result<(), Failure> {
    let url = std::env::args().nth(1).ok_or("usage: mcp-conformance-client URL")?;
    let variable = |name: &str| std::env::var(format!("MCP_CONFORMANCE_{name}")).unwrap_or_default();
    let context = serde_json::from_str(&variable("CONTEXT")).unwrap_or_else(|_| json!({}));
    let scenario = Scenario { name: variable("SCENARIO"), context };
    let era = if variable("PROTOCOL_VERSION").as_str() >= "2026-07-28" { "modern" } else { "legacy" };

    let folder = tempfile::tempdir()?;
    let store = Store::open(&folder.path().join("handrail.db"))?;
    let file = folder.path().join("mcp_config.json");
    let options = Options { consent: Policy::Trust, data: Some(folder.path().to_owned()), ..Options::default() };
    let manager = Manager::with(file, store.clone(), options);
    let gate = Gate::new(store.clone());
    let _answering = [tokio::spawn(answer(manager.clone())), tokio::spawn(allow(gate.clone()))];
    let entry = json!({ "type": "http", "url": url, "era": era, "oauth": oauth(&scenario) });
    let _ = manager.paste(&json!({ "mcpServers": { SERVER: entry } }).to_string())?;
    let person = Person { manager: manager.clone(), gate, conversation: store.new_conversation()?.id, scenario };
    let outcome = person.work().await;
    manager.shutdown(Duration::from_secs(2)).await;
    outcome
}

/// The registration that the suite hands out, where it does, as a person would write it into the file; and the document that
/// its authorization servers take for a client.
fn oauth(scenario: &Scenario) -> Value {
    let mut oauth = Map::from_iter([("clientMetadataUrl".to_owned(), DOCUMENT.into())]);
    for (from, to) in [("client_id", "clientId"), ("client_secret", "clientSecret")] {
        if let Some(text) = scenario.context[from].as_str() {
            let _ = oauth.insert(to.to_owned(), text.into());
        }
    }
    if scenario.name == "auth/client-credentials-basic" {
        let _ = oauth.insert("grant".to_owned(), "client_credentials".into());
    }
    Value::Object(oauth)
}

struct Person {
    manager: Manager,
    gate: Gate,
    conversation: ConversationId,
    scenario: Scenario,
}

impl Person {
    async fn work(&self) -> Result<(), Failure> {
        let server = ServerId::new(SERVER);
        let mut sign_ins = 0;
        loop {
            let failed = match self.manager.ready(&server, PATIENCE).await {
                Ok(_) => match self.call_everything().await {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                },
                Err(error) => error.into(),
            };
            if !self.asks_for_sign_in().await || sign_ins == MOST_SIGN_INS {
                return Err(failed);
            }
            sign_ins += 1;
            self.manager.sign_in(&server, browse).await?;
        }
    }

    async fn asks_for_sign_in(&self) -> bool {
        // All of it, or one request that needs more rights.
        let asks = || {
            let servers = self.manager.servers();
            servers.iter().any(|view| matches!(view.state, State::NeedsSignIn { .. }) || view.sign_in == SignIn::Needed)
        };
        if !asks() {
            tokio::time::sleep(SETTLE).await;
        }
        asks()
    }

    async fn call_everything(&self) -> Result<(), Failure> {
        let tools = self.manager.tools();
        let named = |name: &str| tools.iter().find(|tool| tool.definition().id.name == name).ok_or(format!("no tool {name}"));
        if let Some(calls) = self.scenario.context["toolCalls"].as_array() {
            for call in calls {
                let tool = named(call["name"].as_str().unwrap_or_default())?;
                self.call(tool, call["arguments"].as_object().cloned().unwrap_or_default()).await?;
            }
            return Ok(());
        }
        match self.scenario.name.as_str() {
            // A list is all that it takes to be tempted.
            "json-schema-ref-no-deref" => Ok(()),
            "json-schema-2020-12-preservation" => {
                let schema = named("json_schema_2020_12_tool")?.definition().input_schema.clone();
                self.call(named("json_schema_echo")?, Map::from_iter([("schema".to_owned(), schema)])).await
            }
            _ => {
                for tool in &tools {
                    self.call(tool, arguments(&tool.definition().input_schema)).await?;
                }
                Ok(())
            }
        }
    }

    async fn call(&self, tool: &Arc<GatedTool>, arguments: Map<String, Value>) -> Result<(), Failure> {
        let definition = tool.definition();
        let (id, arguments) = (CallId::fresh(), Value::Object(arguments));
        let call = Call { id, tool: definition.id.clone(), alias: definition.id.name.clone(), arguments };
        let cancel = CancellationToken::new();
        let permit = self.gate.admit(&call, definition, self.conversation, &cancel).await?;
        let result = tool.call(permit, Control { cancel, timeout: PATIENCE, progress: None }).await?;
        eprintln!("{} -> {}", definition.id, result.to_text());
        Ok(())
    }
}

/// Arguments that fit: only what is required.
fn arguments(schema: &Value) -> Map<String, Value> {
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name));
    let properties = schema["properties"].as_object().into_iter().flatten();
    properties.filter(|(name, _)| required(name)).map(|(name, property)| (name.clone(), value(property))).collect()
}

fn value(property: &Value) -> Value {
    if let Some(first) = property["enum"].get(0) {
        return first.clone();
    }
    match property["type"].as_str() {
        Some("integer" | "number") => json!(1),
        Some("boolean") => json!(true),
        Some("object") => json!({}),
        Some("array") => json!([]),
        _ => json!("x"),
    }
}

/// Answers forms as somebody who leaves every field as it is and fills in what is required.
async fn answer(manager: Manager) {
    let mut events = manager.subscribe();
    while let Ok(event) = events.recv().await {
        let mcp::Event::Asked(question) = event else { continue };
        let answer = match &question.ask {
            Ask::Form { schema, .. } => {
                let mut fields = arguments(schema);
                for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                    if let Some(default) = property.get("default") {
                        let _ = fields.insert(name.clone(), default.clone());
                    }
                }
                Answer::Accept(fields)
            }
            Ask::Url { .. } => Answer::Accept(Map::new()),
            Ask::Sampling { .. } => Answer::Decline,
        };
        if let Err(error) = manager.answer(question.id, answer) {
            eprintln!("the answer does not fit: {error}");
        }
    }
}

/// Allows every call, each by itself.
async fn allow(gate: Gate) {
    let mut events = gate.subscribe();
    while let Ok(event) = events.recv().await {
        if let approval::Event::Asked(request) = event
            && let Err(error) = gate.decide(&request.call.id, Decision::AllowOnce)
        {
            eprintln!("{error}");
        }
    }
}

/// The browser of somebody who agrees at once: it opens the page and goes where it is sent, back to us.
fn browse(address: &str) {
    let address = address.to_owned();
    let _browser = tokio::spawn(async move {
        match get(&address).await {
            Ok(Some(back)) => drop(get(&back).await.map_err(|error| eprintln!("{back}: {error}"))),
            Ok(None) => eprintln!("the page sends nobody back"),
            Err(error) => eprintln!("the page cannot be opened: {error}"),
        }
    });
}

/// One GET; the result is where it redirects to.
async fn get(address: &str) -> Result<Option<String>, Failure> {
    let rest = address.strip_prefix("http://").ok_or("only http")?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut stream = TcpStream::connect(authority).await?;
    stream.write_all(format!("GET /{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = Vec::new();
    let _ = stream.take(PAGE).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let head = answer.split_once("\r\n\r\n").map_or(&*answer, |(head, _)| head);
    let location = head.lines().filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("location"));
    Ok(location.map(|(_, value)| value.trim().to_owned()))
}
