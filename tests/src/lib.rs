//! What journeys stand on: a sandboxed engine, the programs beside the test, and the real servers and models that
//! `tests/run` put into the cache folder.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]

pub mod pdf;
pub mod script;
pub mod servers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use handrail_engine::approval::{self, Decision};
use handrail_engine::conversation::{CallRecord, CallState, ConversationId, Message, Part};
use handrail_engine::engine::Shutdown;
use handrail_engine::mcp::consent::Policy;
use handrail_engine::mcp::{ServerView, State};
use handrail_engine::provider::Provider;
use handrail_engine::tool::ServerId;
use handrail_engine::turn::{Ended, Event, Input, Outcome};
use handrail_engine::{Config, Engine};
use serde_json::Value;
use sipper::Sipper as _;
use tempfile::TempDir;

/// Longest wait for anything in a journey; a journey that needs it has failed.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A data folder of its own with an engine in it.
pub struct Sandbox {
    folder: TempDir,
    engine: Option<Engine>,
}

impl Sandbox {
    #[must_use]
    pub fn new() -> Self {
        let mut sandbox = Self { folder: TempDir::new().unwrap(), engine: None };
        sandbox.open();
        sandbox
    }

    fn open(&mut self) {
        let config = Config {
            models_dir: Some(models()),
            worker: Some(program("handrail-cli")),
            consent: Policy::Trust,
            ..Config::new(self.folder.path().join("data"))
        };
        self.engine = Some(Engine::start(config).unwrap());
    }

    #[must_use]
    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    /// A folder for files that are not Handrail's own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Closes the engine as the app does at exit and opens the same data folder again.
    pub fn restart(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.block_on(engine.shutdown(Shutdown::Exit));
        }
        self.open();
    }

    /// Adds a scripted MCP server over stdio and waits until it is connected. Gives the log of what it received.
    pub fn scripted(&self, name: &str, script: &Value) -> PathBuf {
        let log = self.folder().join(format!("{name}.log"));
        let mut script = script.clone();
        script["log"] = Value::String(log.display().to_string());
        let path = self.folder().join(format!("{name}.json"));
        std::fs::write(&path, serde_json::to_vec_pretty(&script).unwrap()).unwrap();
        let server = serde_json::json!({
            "mcpServers": { name: { "command": program("handrail-scripted-server"), "args": [path, "--stdio"] } }
        });
        let _ = self.add(&server);
        log
    }

    /// Pastes servers and waits until each is connected.
    pub fn add(&self, config: &Value) -> Vec<ServerView> {
        let ids = self.engine().servers().paste(&config.to_string()).unwrap();
        ids.iter().map(|id| self.connected(id)).collect()
    }

    #[must_use]
    pub fn connected(&self, id: &ServerId) -> ServerView {
        let view = self.engine().block_on(self.engine().servers().ready(id, PATIENCE)).unwrap();
        assert_eq!(view.state, State::Connected, "server {id}: {:?}\n{}", view.state, view.stderr.join("\n"));
        view
    }

    /// Runs a turn on the default model.
    pub fn turn(&self, conversation: ConversationId, input: Input, decide: impl FnMut(&approval::Request) -> Option<Decision>) -> Turn {
        let straw = self.engine().turn(conversation, input);
        self.engine().block_on(follow(self.engine(), conversation, straw, decide, |_| false))
    }

    /// Runs a turn on a model of the journey's own.
    pub fn turn_with(
        &self,
        provider: impl Provider + 'static,
        conversation: ConversationId,
        input: Input,
        decide: impl FnMut(&approval::Request) -> Option<Decision>,
    ) -> Turn {
        self.turn_until(provider, conversation, input, decide, |_| false)
    }

    /// The same, but the turn is dropped (that is what Stop does) at the first event for which `stop` says so.
    pub fn turn_until(
        &self,
        provider: impl Provider + 'static,
        conversation: ConversationId,
        input: Input,
        decide: impl FnMut(&approval::Request) -> Option<Decision>,
        stop: impl FnMut(&Event) -> bool,
    ) -> Turn {
        let straw = self.engine().runner().run(Arc::new(provider), conversation, input);
        self.engine().block_on(follow(self.engine(), conversation, straw, decide, stop))
    }

    #[must_use]
    pub fn messages(&self, conversation: ConversationId) -> Vec<Message> {
        self.engine().messages(conversation).unwrap()
    }

    /// Every tool call of a conversation as it is stored.
    #[must_use]
    pub fn calls(&self, conversation: ConversationId) -> Vec<CallRecord> {
        let parts = self.messages(conversation).into_iter().flat_map(|message| message.parts);
        parts.filter_map(|part| if let Part::Call(record) = part { Some(record) } else { None }).collect()
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            engine.block_on(engine.shutdown(Shutdown::Exit));
        }
    }
}

/// What happened in a turn.
#[derive(Debug)]
pub struct Turn {
    pub events: Vec<Event>,
    pub asked: Vec<approval::Request>,
    /// `None` when the turn was dropped.
    pub outcome: Option<Outcome>,
}

impl Turn {
    #[must_use]
    pub fn text(&self) -> String {
        self.events.iter().filter_map(|event| if let Event::Text { text, .. } = event { Some(text.as_str()) } else { None }).collect()
    }

    /// The last state of each call, in order of appearance.
    #[must_use]
    pub fn call_states(&self) -> Vec<CallState> {
        let mut states: Vec<(String, CallState)> = Vec::new();
        for event in &self.events {
            if let Event::ToolCall { record, .. } = event {
                let id = record.call.id.to_string();
                match states.iter_mut().find(|(known, _)| *known == id) {
                    Some((_, state)) => *state = record.state.clone(),
                    None => states.push((id, record.state.clone())),
                }
            }
        }
        states.into_iter().map(|(_, state)| state).collect()
    }

    #[must_use]
    pub fn ended(&self) -> &Ended {
        &self.outcome.as_ref().expect("the turn was dropped").ended
    }
}

async fn follow(
    engine: &Engine,
    conversation: ConversationId,
    straw: impl sipper::Straw<Outcome, Event, handrail_engine::turn::Error>,
    mut decide: impl FnMut(&approval::Request) -> Option<Decision>,
    mut stop: impl FnMut(&Event) -> bool,
) -> Turn {
    let mut turn = Turn { events: Vec::new(), asked: Vec::new(), outcome: None };
    let mut straw = Box::pin(straw.pin());
    loop {
        let event =
            tokio::time::timeout(PATIENCE, straw.sip()).await.unwrap_or_else(|_| panic!("no event in time after {:#?}", turn.events));
        let Some(event) = event else { break };
        let stopped = stop(&event);
        turn.events.push(event);
        if stopped {
            return turn;
        }
        for request in engine.approvals().pending().into_iter().filter(|request| request.conversation == conversation) {
            if turn.asked.iter().any(|known| known.call.id == request.call.id) {
                continue;
            }
            if let Some(decision) = decide(&request) {
                engine.approvals().decide(&request.call.id, decision).unwrap();
            }
            turn.asked.push(request);
        }
    }
    turn.outcome = Some(straw.await.expect("the turn could not be run"));
    turn
}

/// A program that cargo built beside this test.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.parent().and_then(Path::parent).unwrap().join(name).with_extension(std::env::consts::EXE_EXTENSION);
    assert!(path.is_file(), "{} is not built; run the tests with tests/run", path.display());
    path
}

fn cache() -> PathBuf {
    std::env::var_os("XDG_CACHE_HOME")
        .map_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache"), PathBuf::from)
        .join("handrail")
}

/// The folder with the default models.
#[must_use]
pub fn models() -> PathBuf {
    let models = cache().join("test-models");
    assert!(models.is_dir(), "{} is missing; run the tests with tests/run", models.display());
    models
}

/// `mcpServers` entries of the real servers.
#[must_use]
pub fn real_server(name: &str, folder: &Path) -> Value {
    let servers = cache().join("test-servers");
    let npm = |package: &str| servers.join("npm/node_modules/@modelcontextprotocol").join(package).join("dist/index.js");
    match name {
        "filesystem" => serde_json::json!({ "command": "node", "args": [npm("server-filesystem"), folder] }),
        "everything" => serde_json::json!({ "command": "node", "args": [npm("server-everything")] }),
        "memory" => {
            serde_json::json!({ "command": "node", "args": [npm("server-memory")], "env": { "MEMORY_FILE_PATH": folder.join("memory.jsonl") } })
        }
        "sequential-thinking" => serde_json::json!({ "command": "node", "args": [npm("server-sequential-thinking")] }),
        "time" => serde_json::json!({ "command": servers.join("py/bin/mcp-server-time") }),
        "fetch" => {
            serde_json::json!({ "command": servers.join("py/bin/mcp-server-fetch"), "args": ["--ignore-robots-txt", "--allow-private-ips"] })
        }
        "git" => serde_json::json!({ "command": servers.join("py/bin/mcp-server-git"), "args": ["--repository", folder] }),
        other => panic!("no real server '{other}'"),
    }
}

/// The messages of this method that a scripted server received.
#[must_use]
pub fn received(log: &Path, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.map(|mut line| line["received"].take()).filter(|message| message["method"] == method).collect()
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
