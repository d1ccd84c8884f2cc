//! `servers`: the configured MCP servers.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Subcommand;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use handrail_engine::Engine;
use handrail_engine::approval::{Gate, GatedTool};
use handrail_engine::conversation::ConversationId;
use handrail_engine::mcp::config::Transport;
use handrail_engine::mcp::{self, ServerView, SignIn, State};
use handrail_engine::tool::{Call, CallId, Control, ServerId, canonical_json};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ask::Approve;
use crate::output::{Failure, Output};

/// Longest wait for a server to become usable.
pub const WAIT: Duration = Duration::from_secs(90);
/// Most characters of a command or address in a list.
const HOW: usize = 80;

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
        /// One server; all that are switched on where none is named.
        name: Option<String>,
        /// Agrees to what a server starts where nobody was asked before.
        #[arg(long)]
        yes: bool,
        /// Longest wait for a server to become usable, in seconds.
        #[arg(long, value_name = "SECONDS", default_value_t = WAIT.as_secs())]
        wait: u64,
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
        /// Agrees to what the server starts where nobody was asked before.
        #[arg(long)]
        yes: bool,
        /// An MCP configuration to use instead of the one in the data folder.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Signs in to a server: opens the page in the browser, prints its address, and waits for you to come back.
    SignIn {
        /// The server.
        name: String,
        /// Only prints the address.
        #[arg(long)]
        no_browser: bool,
        /// Agrees to the server's address where nobody was asked before.
        #[arg(long)]
        yes: bool,
        /// An MCP configuration to use instead of the one in the data folder.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Forgets a sign-in, and tells who issued it.
    SignOut {
        /// The server.
        name: String,
        /// An MCP configuration to use instead of the one in the data folder.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    #[command(flatten)]
    Configure(super::configure::Command),
}

impl Command {
    pub fn config(&self) -> Option<PathBuf> {
        match self {
            Self::List { config }
            | Self::Check { config, .. }
            | Self::Call { config, .. }
            | Self::SignIn { config, .. }
            | Self::SignOut { config, .. } => config.clone(),
            Self::Configure(_) => None,
        }
    }
}

pub async fn run(engine: &Engine, command: Command, output: &Output) -> Result<(), Failure> {
    let needs_config = !matches!(&command, Command::Configure(command) if !command.needs_config());
    if let Some(error) = engine.servers().config_error().filter(|_| needs_config) {
        let back = engine.servers().config_backup().map(|_| "; handrail-cli servers restore puts the last good one back");
        return Err(Failure::new(format!("{error}{}", back.unwrap_or_default())));
    }
    for error in engine.servers().setting_errors() {
        output.note(&error.to_string());
    }
    if let Some(path) = command.config().filter(|path| !path.is_file()) {
        return Err(Failure::new(format!("{} is not a file", path.display())));
    }
    match command {
        Command::List { .. } => {
            for view in engine.servers().servers() {
                show(&view, output, how(&view));
            }
            Ok(())
        }
        Command::Check { name, yes, wait, .. } => check(engine, name, yes, Duration::from_secs(wait.max(1)), output).await,
        Command::Call { name, tool, arguments, approve, yes, .. } => {
            let arguments = parsed(&arguments)?;
            let id = ServerId::new(name);
            super::consent::ensure_one(engine, &id, yes, output).await?;
            call(engine, &id, &tool, arguments, approve, output).await
        }
        Command::SignIn { name, no_browser, yes, .. } => {
            let id = ServerId::new(name);
            super::consent::ensure_one(engine, &id, yes, output).await?;
            sign_in(engine, id, no_browser, output).await
        }
        Command::SignOut { name, .. } => {
            engine.servers().sign_out(&ServerId::new(name.clone())).await?;
            output.result(&json!({ "server": name, "signed_in": false }), || format!("{name} is signed out"));
            Ok(())
        }
        Command::Configure(command) => super::configure::run(engine, command, output).await,
    }
}

async fn sign_in(engine: &Engine, id: ServerId, no_browser: bool, output: &Output) -> Result<(), Failure> {
    let open = |page: &str| {
        output.note(&format!("to sign in to {id}, agree on this page:\n{page}"));
        // Where no browser can be opened, the address above is what is left.
        if !no_browser && let Err(error) = open::that_detached(page) {
            output.note(&format!("the browser could not be opened: {error}"));
        }
    };
    engine.servers().sign_in(&id, open).await?;
    let view = engine.servers().ready(&id, WAIT).await?;
    usable(&view)?;
    let issuer = match &view.sign_in {
        SignIn::Done { issuer } => Some(issuer.as_str()),
        SignIn::NotNeeded | SignIn::Needed | SignIn::Waiting => None,
    };
    output.result(&json!({ "server": id, "signed_in": true, "issuer": issuer, "tools": view.tools.len() }), || {
        format!("signed in to {id} at {}; it has {} tools", issuer.unwrap_or("its authorization server"), view.tools.len())
    });
    Ok(())
}

/// The view of a server that may be called, else its reason as a failure.
pub fn usable(view: &ServerView) -> Result<(), Failure> {
    match &view.state {
        State::Connected | State::Slow { .. } => Ok(()),
        State::Failed { reason, exit_code } => {
            let code = exit_code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            let tail: Vec<&str> = view.stderr.iter().rev().take(20).rev().map(String::as_str).collect();
            let log = if tail.is_empty() { String::new() } else { format!("\nthe last lines of its log:\n  {}", tail.join("\n  ")) };
            Err(Failure::new(format!("server '{}': {reason}{code}{log}", view.id)))
        }
        other => Err(Failure::new(format!("server '{}' did not become usable in time: {}", view.id, word(other)))),
    }
}

async fn check(engine: &Engine, name: Option<String>, yes: bool, wait: Duration, output: &Output) -> Result<(), Failure> {
    let ids: Vec<ServerId> = match name {
        Some(name) => vec![ServerId::new(name)],
        None => active(engine, output),
    };
    let (mut started, mut failures) = (Vec::new(), Vec::new());
    for id in ids {
        match super::consent::ensure_one(engine, &id, yes, output).await {
            Ok(()) => {
                engine.servers().start(&id)?;
                started.push(id);
            }
            Err(failure) => {
                output.failure(&failure);
                failures.push(id.to_string());
            }
        }
    }
    // Each is told as it comes: one that is slow says nothing about the others.
    let waits = started.into_iter().map(|id| async move {
        let outcome = engine.servers().ready(&id, wait).await;
        (id, outcome)
    });
    let mut waits: FuturesUnordered<_> = waits.collect();
    while let Some((id, outcome)) = waits.next().await {
        let outcome = match outcome {
            Ok(view) => {
                show(&view, output, found(&view));
                usable(&view)
            }
            Err(error) => Err(unready(error)),
        };
        if let Err(failure) = outcome {
            output.failure(&failure);
            failures.push(id.to_string());
        }
    }
    failures.sort();
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(format!("not usable: {}", failures.join(", ")))) }
}

/// The servers that are switched on; says which are not.
fn active(engine: &Engine, output: &Output) -> Vec<ServerId> {
    let (on, off): (Vec<ServerView>, Vec<ServerView>) = engine.servers().servers().into_iter().partition(|view| view.config.active);
    if on.is_empty() && off.is_empty() {
        output.note("no server is configured");
    } else if !off.is_empty() {
        let names: Vec<&str> = off.iter().map(|view| view.id.as_str()).collect();
        output.note(&format!("switched off and not checked (name one to check it): {}", names.join(", ")));
    }
    on.into_iter().map(|view| view.id).collect()
}

fn parsed(arguments: &str) -> Result<Value, Failure> {
    handrail_engine::turn::exact(arguments).map_err(Failure::new)?;
    let arguments: Value = serde_json::from_str(arguments).map_err(|error| Failure::new(format!("the arguments are not JSON: {error}")))?;
    if !arguments.is_object() {
        return Err(Failure::new("the arguments must be a JSON object, such as {\"path\": \"/tmp\"}"));
    }
    Ok(arguments)
}

async fn call(engine: &Engine, id: &ServerId, tool: &str, arguments: Value, approve: Approve, output: &Output) -> Result<(), Failure> {
    engine.servers().start(id)?;
    usable(&engine.servers().ready(id, WAIT).await?)?;
    let tools = engine.servers().tools();
    let found = tools.iter().find(|candidate| candidate.definition().id.server == *id && candidate.definition().id.name == tool);
    let Some(found) = found else {
        let names: Vec<&str> = tools.iter().filter(|t| t.definition().id.server == *id).map(|t| t.definition().id.name.as_str()).collect();
        return Err(Failure::new(format!("server '{id}' has no tool '{tool}'; it has {}", names.join(", "))));
    };
    handrail_engine::turn::validate(found.definition().parameters(), &arguments).map_err(Failure::new)?;
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
    output.foreign(&result, || result.to_text());
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
        State::NeedsConsent => "needs consent",
        State::NeedsSignIn { .. } => "needs sign-in",
        State::Slow { .. } => "slow",
        State::Connected => "connected",
        State::Reconnecting { .. } => "reconnecting",
        State::Failed { .. } => "failed",
    }
}

/// A start that failed; a reason that names the server already is not told with its name again.
fn unready(error: mcp::Error) -> Failure {
    match error {
        mcp::Error::Start { server, reason } => {
            let reason = reason.strip_prefix(&format!("server '{server}': ")).unwrap_or(&reason);
            Failure::new(format!("server '{server}' could not be started: {reason}"))
        }
        other => other.into(),
    }
}

/// How a server is reached, and whether it starts with the window; nothing is started for it.
fn how(view: &ServerView) -> String {
    let line = match &view.config.transport {
        Transport::Stdio { command, args, .. } => std::iter::once(command).chain(args).cloned().collect::<Vec<_>>().join(" "),
        Transport::Http { url, .. } | Transport::Sse { url, .. } => url.clone(),
    };
    let line = line.char_indices().nth(HOW).map_or_else(|| line.clone(), |(at, _)| format!("{}…", &line[..at]));
    let reason = reason(view).map(|reason| format!("  ({reason})")).unwrap_or_default();
    let state = if view.state == State::Stopped { "not started" } else { word(&view.state) };
    format!("{:3}  {state:13}  {line}{reason}", if view.config.active { "on" } else { "off" })
}

/// What a started server is and has.
fn found(view: &ServerView) -> String {
    let tools: Vec<&str> = view.tools.iter().map(|tool| tool.id.name.as_str()).collect();
    let protocol = view.protocol.as_deref().unwrap_or("");
    let names = tools.join(", ");
    let unchecked =
        view.tools.iter().flat_map(|tool| tool.unchecked().into_iter().map(|part| format!("{}: not checked: {part}", tool.id.name)));
    let notes: String = view.notes.iter().cloned().chain(unchecked).map(|note| format!("\n    {note}")).collect();
    format!("{:12} {:3} tools  {protocol}  {}{notes}", word(&view.state), tools.len(), reason(view).unwrap_or(&names))
}

fn reason(view: &ServerView) -> Option<&str> {
    match &view.state {
        State::Failed { reason, .. } | State::Reconnecting { reason, .. } | State::Slow { reason } | State::NeedsSignIn { reason } => {
            Some(reason.as_str())
        }
        State::Starting { note } => note.as_deref(),
        State::Stopped | State::NeedsConsent | State::Connected => None,
    }
}

/// The view as JSON, or the server's name with `text` behind it.
fn show(view: &ServerView, output: &Output, text: String) {
    let tools: Vec<&str> = view.tools.iter().map(|tool| tool.id.name.as_str()).collect();
    let unchecked = view.tools.iter().map(|tool| (tool.id.name.clone(), tool.unchecked())).filter(|(_, parts)| !parts.is_empty());
    let unchecked: serde_json::Map<String, Value> = unchecked.map(|(name, parts)| (name, json!(parts))).collect();
    output.foreign(
        &json!({ "server": view.id, "state": word(&view.state), "reason": reason(view), "active": view.config.active, "protocol": view.protocol, "era": view.era, "pid": view.pid, "tools": tools, "notes": view.notes, "unchecked": unchecked }),
        || format!("{:20} {text}", view.id.to_string()),
    );
}
