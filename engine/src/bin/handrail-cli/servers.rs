//! `servers`: the configured MCP servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Subcommand;
use handrail_engine::Engine;
use handrail_engine::approval::{Gate, GatedTool};
use handrail_engine::conversation::ConversationId;
use handrail_engine::mcp::{ServerView, State};
use handrail_engine::tool::{Call, CallId, Control, ServerId, canonical_json};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ask::Approve;
use crate::output::{Failure, Output};

/// Longest wait for a server to become usable.
pub const WAIT: Duration = Duration::from_secs(90);

#[derive(Subcommand)]
pub enum Command {
    /// Lists the configured servers.
    List {
        /// An MCP configuration to use instead of the one in the data folder.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Starts servers, lists their tools and stops them again.
    Check {
        /// One server; all where none is named.
        name: Option<String>,
        /// An MCP configuration to use instead of the one in the data folder.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Calls one tool through the gate.
    Call {
        /// The server.
        name: String,
        /// The tool, by the name its server gave it.
        tool: String,
        /// The arguments, a JSON object.
        arguments: String,
        /// What to answer when the call needs a decision.
        #[arg(long, value_enum, default_value_t = Approve::Ask)]
        approve: Approve,
        /// An MCP configuration to use instead of the one in the data folder.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

impl Command {
    pub fn config(&self) -> Option<PathBuf> {
        match self {
            Self::List { config } | Self::Check { config, .. } | Self::Call { config, .. } => config.clone(),
        }
    }
}

pub async fn run(engine: &Engine, command: Command, output: &Output) -> Result<(), Failure> {
    if let Some(error) = engine.servers().config_error() {
        return Err(Failure::new(error));
    }
    if let Some(path) = command.config().filter(|path| !path.is_file()) {
        return Err(Failure::new(format!("{} is not a file", path.display())));
    }
    match command {
        Command::List { .. } => {
            for view in engine.servers().servers() {
                show(&view, output);
            }
            Ok(())
        }
        Command::Check { name, .. } => check(engine, name, output).await,
        Command::Call { name, tool, arguments, approve, .. } => call(engine, &name, &tool, &arguments, approve, output).await,
    }
}

/// The view of a server that may be called, else its reason as a failure.
pub fn usable(view: &ServerView) -> Result<(), Failure> {
    match &view.state {
        State::Connected => Ok(()),
        State::Failed { reason, exit_code } => {
            let code = exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            let tail: Vec<&str> = view.stderr.iter().rev().take(20).rev().map(String::as_str).collect();
            let log = if tail.is_empty() { String::new() } else { format!("\nlast lines of its stderr:\n  {}", tail.join("\n  ")) };
            Err(Failure::new(format!("server '{}': {reason}{code}{log}", view.id)))
        }
        other => Err(Failure::new(format!("server '{}' did not become usable in time: {}", view.id, word(other)))),
    }
}

async fn check(engine: &Engine, name: Option<String>, output: &Output) -> Result<(), Failure> {
    let ids: Vec<ServerId> = match name {
        Some(name) => vec![ServerId::new(name)],
        None => engine.servers().servers().into_iter().map(|view| view.id).collect(),
    };
    if ids.is_empty() {
        output.note("no server is configured");
    }
    for id in &ids {
        engine.servers().start(id)?;
    }
    let mut failures = Vec::new();
    for id in &ids {
        // One server that fails says nothing about the next one.
        let outcome = match engine.servers().ready(id, WAIT).await {
            Ok(view) => {
                show(&view, output);
                usable(&view)
            }
            Err(error) => Err(error.into()),
        };
        if let Err(failure) = outcome {
            output.failure(&failure);
            failures.push(id.to_string());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(format!("not usable: {}", failures.join(", ")))) }
}

async fn call(engine: &Engine, name: &str, tool: &str, arguments: &str, approve: Approve, output: &Output) -> Result<(), Failure> {
    let id = ServerId::new(name);
    let arguments: Value = serde_json::from_str(arguments).map_err(|error| Failure::new(format!("the arguments are not JSON: {error}")))?;
    if !arguments.is_object() {
        return Err(Failure::new("the arguments must be a JSON object, such as {\"path\": \"/tmp\"}"));
    }
    engine.servers().start(&id)?;
    usable(&engine.servers().ready(&id, WAIT).await?)?;
    let tools = engine.servers().tools();
    let found = tools.iter().find(|candidate| candidate.definition().id.server == id && candidate.definition().id.name == tool);
    let Some(found) = found else {
        let names: Vec<&str> = tools.iter().filter(|t| t.definition().id.server == id).map(|t| t.definition().id.name.as_str()).collect();
        return Err(Failure::new(format!("server '{name}' has no tool '{tool}'; it has {}", names.join(", "))));
    };
    handrail_engine::turn::validate(&found.definition().input_schema, &arguments).map_err(Failure::new)?;
    run_gated(engine, found, arguments, approve, output).await
}

async fn run_gated(engine: &Engine, tool: &Arc<GatedTool>, arguments: Value, approve: Approve, output: &Output) -> Result<(), Failure> {
    let definition = tool.definition();
    let call = Call { id: CallId::fresh(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments };
    let conversation = ConversationId::fresh();
    let cancel = CancellationToken::new();
    let answering = tokio::spawn(super::ask::answer_approvals(engine.approvals().clone(), conversation, approve));
    let gate = engine.approvals().on_behalf_of("the command line");
    let permit = gate.admit(&call, definition, conversation, &cancel).await;
    answering.abort();
    let permit = permit?;
    output.note(&format!("▶ {} {} ({})", call.tool, canonical_json(&call.arguments), permit.by()));
    let timeout = Duration::from_secs(engine.settings().tool_timeout_seconds);
    let mut outcome = Outcome { gate: &gate, call: &call, conversation, begun: Instant::now(), words: "stopped while it ran".to_owned() };
    let ended = tool.call(permit, Control { cancel, timeout, progress: None }).await;
    outcome.words = match &ended {
        Ok(result) if result.is_error => "the tool reported an error".to_owned(),
        Ok(_) => "done".to_owned(),
        Err(error) => error.to_string(),
    };
    drop(outcome);
    let result = ended?;
    output.result(&result, || result.to_text());
    if result.is_error { Err(Failure::new("the tool says that it failed")) } else { Ok(()) }
}

/// What became of a call that had a permit; goes into the ledger when it is dropped, which a signal may do early.
struct Outcome<'a> {
    gate: &'a Gate,
    call: &'a Call,
    conversation: ConversationId,
    begun: Instant,
    words: String,
}

impl Drop for Outcome<'_> {
    fn drop(&mut self) {
        let milliseconds = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        if let Err(error) = self.gate.ended(self.call, self.conversation, &self.words, milliseconds) {
            tracing::error!(%error, call = %self.call.id, "the ledger could not be written");
        }
    }
}

fn word(state: &State) -> &'static str {
    match state {
        State::Stopped => "stopped",
        State::Starting { .. } => "starting",
        State::Connected => "connected",
        State::Reconnecting { .. } => "reconnecting",
        State::Failed { .. } => "failed",
    }
}

fn show(view: &ServerView, output: &Output) {
    let reason = match &view.state {
        State::Failed { reason, .. } | State::Reconnecting { reason, .. } => Some(reason.as_str()),
        State::Starting { note } => note.as_deref(),
        State::Stopped | State::Connected => None,
    };
    let tools: Vec<&str> = view.tools.iter().map(|tool| tool.id.name.as_str()).collect();
    output.result(
        &json!({ "server": view.id, "state": word(&view.state), "reason": reason, "protocol": view.protocol, "pid": view.pid, "tools": tools }),
        || format!("{:20} {:12} {:3} tools  {}  {}", view.id.to_string(), word(&view.state), tools.len(), view.protocol.as_deref().unwrap_or(""), reason.unwrap_or(&tools.join(", "))),
    );
}
