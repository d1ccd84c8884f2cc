//! `ask`: one turn, streamed.

use std::io::{BufRead as _, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use handrail_engine::Engine;
use handrail_engine::approval::{self, Decision, Gate};
use handrail_engine::conversation::{CallRecord, CallState, ConversationId, Passage};
use handrail_engine::mcp::ServerView;
use handrail_engine::provider::{Finish, Sampling, ToolChoice};
use handrail_engine::tool::ServerId;
use handrail_engine::turn::{Ended, Event, Input, Options};
use sipper::Sipper as _;

use crate::output::{Failure, Output, visible};

#[derive(clap::Args)]
pub struct Arguments {
    /// What to ask.
    text: String,
    /// A catalogue id or a GGUF file.
    #[arg(long, value_name = "ID|FILE.gguf")]
    model: Option<String>,
    /// The model's chat template from now on: ChatML, one in a file, or again its own (own).
    #[arg(long, value_name = "chatml|FILE|own")]
    template: Option<String>,
    /// A document to answer from; may be given several times.
    #[arg(long, value_name = "FILE")]
    attach: Vec<PathBuf>,
    /// A configured MCP server whose tools are offered; may be given several times. Without it: those that are switched on
    /// and agreed to, and with --config all that are switched on in that file.
    #[arg(long, value_name = "NAME")]
    server: Vec<String>,
    /// Offers no tools of servers.
    #[arg(long, conflicts_with_all = ["server", "require_servers"])]
    no_servers: bool,
    /// Fails where a server is not usable, instead of answering without it.
    #[arg(long)]
    require_servers: bool,
    /// Seconds to wait for servers before the question is answered with those that are there; the setting
    /// `server_wait_seconds` where not given.
    #[arg(long, value_name = "SECONDS")]
    server_wait: Option<u64>,
    /// An MCP configuration to use instead of the one in the data folder.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Agrees to what a server starts where nobody was asked before.
    #[arg(long)]
    yes: bool,
    /// What to answer when a tool call needs a decision.
    #[arg(long, value_enum, default_value_t = Approve::Ask)]
    approve: Approve,
    /// auto, required, none, or the name of a tool.
    #[arg(long, value_name = "CHOICE", default_value = "auto")]
    tool_choice: String,
    /// Goes on with this conversation instead of beginning one.
    #[arg(long, value_name = "ID")]
    conversation: Option<uuid::Uuid>,
    /// The same seed gives the same answer.
    #[arg(long)]
    seed: Option<u64>,
    /// 0 is greedy.
    #[arg(long)]
    temperature: Option<f32>,
    /// Most tokens of one answer.
    #[arg(long, value_name = "N")]
    max_tokens: Option<usize>,
}

/// What to answer at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Approve {
    /// Ask on the terminal; without one the call is denied.
    Ask,
    /// Deny every call that no stored approval allows.
    Deny,
    /// Allow every call once.
    Allow,
}

pub async fn run(engine: &Engine, arguments: Arguments, output: &Output) -> Result<(), Failure> {
    checked(&arguments)?;
    let model = arguments.model.clone().unwrap_or_else(|| engine.settings().chat_model);
    if let Some(choice) = &arguments.template {
        let _ = super::models::choose_template(engine, &model, choice).await?;
        output.note(&format!("{model}: the chat template '{choice}' is kept for this model; `--template own` goes back"));
    }
    let servers = start_servers(engine, &arguments, output).await?;
    let mut attachments = Vec::new();
    for path in &arguments.attach {
        attachments.push(super::documents::attach(engine, path, output).await?);
    }
    // Only now: an attachment that cannot be read leaves no empty conversation behind.
    let conversation = match arguments.conversation {
        Some(id) => ConversationId(id),
        None => engine.new_conversation()?.id,
    };
    let input = Input { text: arguments.text.clone(), attachments, options: options(&arguments, servers) };
    let approvals = tokio::spawn(answer_approvals(engine.approvals().clone(), conversation, arguments.approve));
    let mut turn = engine.turn(conversation, input).pin();
    let (mut ended, mut passages, mut told) = (None, Vec::new(), false);
    while let Some(event) = turn.sip().await {
        told = told || tell_template(engine, &model, output);
        output.json(&event);
        show(&event, &passages, output);
        if let Event::Retrieved { passages: found, .. } = &event {
            passages.clone_from(found);
        }
        if let Event::Finished { reason, .. } = event {
            ended = Some(reason);
        }
    }
    let outcome = turn.await;
    approvals.abort();
    let _ = outcome?;
    match ended {
        Some(Ended::Answered { finish }) => {
            if finish == Finish::Length {
                output.note("the answer was cut at the token limit");
            }
            Ok(())
        }
        Some(Ended::Stopped) => Err(Failure::new("the turn was stopped")),
        Some(Ended::Limit { reason } | Ended::Failed { reason }) => Err(Failure::new(reason)),
        None => Err(Failure::new("the turn ended without a result")),
    }
}

/// Says which chat template is used where it is not the model's own; whether the model is loaded, so that this is known.
fn tell_template(engine: &Engine, model: &str, output: &Output) -> bool {
    let Some(used) = engine.models().template(model).and_then(|view| view.used) else { return false };
    if let Some(note) = &used.note {
        output.json(&serde_json::json!({ "event": "template", "model": model, "template": used }));
        output.note(&format!("{model}: {note}"));
    }
    true
}

/// Values that no answer could come of are refused before anything is stored.
fn checked(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.text.trim().is_empty() && arguments.attach.is_empty() {
        return Err(Failure::new("there is nothing to ask: the text is empty"));
    }
    if let Some(path) = arguments.config.as_deref().filter(|path| !path.is_file()) {
        return Err(Failure::new(format!("{} is not a file", path.display())));
    }
    if arguments.max_tokens == Some(0) {
        return Err(Failure::new("--max-tokens must be at least 1"));
    }
    match arguments.temperature {
        Some(value) if !value.is_finite() || value < 0.0 => Err(Failure::new("--temperature must be 0 or more")),
        _ => Ok(()),
    }
}

fn options(arguments: &Arguments, servers: Vec<ServerId>) -> Options {
    let defaults = Sampling::default();
    let sampling = (arguments.seed.is_some() || arguments.temperature.is_some()).then(|| Sampling {
        seed: arguments.seed.unwrap_or(defaults.seed),
        temperature: arguments.temperature.unwrap_or(defaults.temperature),
        ..defaults
    });
    Options {
        model: arguments.model.clone(),
        tool_choice: match arguments.tool_choice.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            name => ToolChoice::Named(name.to_owned()),
        },
        sampling,
        servers: Some(servers),
        max_tokens: arguments.max_tokens,
    }
}

/// Starts what is to be offered, and waits for it a short while: a server that is not there costs its tools, not the answer.
async fn start_servers(engine: &Engine, arguments: &Arguments, output: &Output) -> Result<Vec<ServerId>, Failure> {
    let (names, own_config) = (&arguments.server, arguments.config.is_some());
    if arguments.no_servers {
        return Ok(Vec::new());
    }
    if let Some(error) = engine.servers().config_error() {
        // Chat without tools does not need the configuration.
        if own_config || !names.is_empty() || arguments.require_servers {
            return Err(Failure::new(error));
        }
        output.note(&format!("no servers are used: {error}"));
        return Ok(Vec::new());
    }
    let ids =
        if !names.is_empty() || own_config { named(engine, arguments, output).await? } else { agreed(engine, arguments, output).await? };
    for id in &ids {
        engine.servers().start(id)?;
    }
    let wait = Duration::from_secs(arguments.server_wait.unwrap_or(engine.settings().server_wait_seconds).max(1));
    let wait = if arguments.require_servers { super::servers::WAIT } else { wait };
    if !ids.is_empty() {
        output.status(&format!("waiting for {}", ids.iter().map(ServerId::as_str).collect::<Vec<_>>().join(", ")));
    }
    // All at once: the wait is for the slowest, and ends for all.
    let waits = ids.iter().map(|id| async move {
        let ready = engine.servers().ready(id, wait).await.map_err(Failure::from);
        (id.clone(), ready.and_then(|view| super::servers::usable(&view)))
    });
    let outcomes = futures::future::join_all(waits).await;
    output.status_end();
    let mut usable = Vec::new();
    for (id, outcome) in outcomes {
        match outcome {
            Ok(()) => usable.push(id),
            Err(failure) if arguments.require_servers => return Err(failure),
            Err(failure) => without(&id, &failure.0, output),
        }
    }
    Ok(usable)
}

/// The servers that were named, or are switched on in the file that was: somebody must agree to each.
async fn named(engine: &Engine, arguments: &Arguments, output: &Output) -> Result<Vec<ServerId>, Failure> {
    if arguments.server.is_empty() {
        let ids: Vec<ServerId> = engine.servers().servers().into_iter().filter(|view| view.config.active).map(|view| view.id).collect();
        let mut agreed = Vec::new();
        for id in ids {
            match super::consent::ensure_one(engine, &id, arguments.yes, output).await {
                Ok(()) => agreed.push(id),
                Err(failure) if arguments.require_servers => return Err(failure),
                Err(failure) => without(&id, &failure.0, output),
            }
        }
        return Ok(agreed);
    }
    let ids: Vec<ServerId> = arguments.server.iter().map(|name| ServerId::new(name.as_str())).collect();
    super::consent::ensure(engine, &ids, arguments.yes, output).await?;
    Ok(ids)
}

/// The servers that are switched on and that somebody agreed to: nobody is asked for a plain question.
async fn agreed(engine: &Engine, arguments: &Arguments, output: &Output) -> Result<Vec<ServerId>, Failure> {
    let (ready, waiting): (Vec<ServerView>, Vec<ServerView>) =
        engine.servers().servers().into_iter().filter(|view| view.config.active).partition(|view| view.consent.is_none());
    let mut ids: Vec<ServerId> = ready.into_iter().map(|view| view.id).collect();
    for view in waiting {
        if arguments.yes {
            super::consent::ensure_one(engine, &view.id, true, output).await?;
            ids.push(view.id);
        } else if arguments.require_servers {
            return Err(Failure::new(format!("nobody has agreed to start server '{}' yet: give --yes, or agree in the window", view.id)));
        } else {
            without(&view.id, "nobody has agreed to start it yet (--yes agrees; so does the window)", output);
        }
    }
    Ok(ids)
}

/// Says that the answer comes without a server.
fn without(id: &ServerId, reason: &str, output: &Output) {
    output.json(&serde_json::json!({ "event": "server_left_out", "server": id, "reason": reason }));
    output.note(&format!("without server '{id}': {reason}"));
}

/// Answers what waits at the gate for this conversation, in the order in which it was asked.
pub async fn answer_approvals(gate: Gate, conversation: ConversationId, approve: Approve) {
    let mut events = gate.subscribe();
    loop {
        for request in gate.pending().into_iter().filter(|request| request.conversation == conversation) {
            let decision = match approve {
                Approve::Allow => Decision::AllowOnce,
                Approve::Deny => Decision::Deny,
                Approve::Ask => {
                    let asked = request.clone();
                    tokio::task::spawn_blocking(move || ask_on_terminal(&asked)).await.unwrap_or(Decision::Deny)
                }
            };
            // Someone else may have answered meanwhile.
            let _ = gate.decide(&request.call.id, decision);
        }
        match events.recv().await {
            Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
            Err(tokio::sync::broadcast::error::RecvError::Closed) => return,
        }
    }
}

fn ask_on_terminal(request: &approval::Request) -> Decision {
    let arguments = serde_json::to_string_pretty(&request.call.arguments).unwrap_or_default();
    // What is decided on is read as it is, whatever a model or a server wrote into it.
    let asked = format!("\n◆ {} · {}\n{}\n{arguments}", request.call.tool.server, request.call.tool.name, request.why);
    eprintln!("{}", visible(&asked));
    if !std::io::stdin().is_terminal() {
        eprintln!("denied: there is no terminal to ask on (use --approve allow or --approve deny)");
        return Decision::Deny;
    }
    loop {
        eprint!("[d]eny  [a]llow once  allow in this [c]onversation  al[w]ays this tool: ");
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
            return Decision::Deny;
        }
        match line.trim().to_lowercase().as_str() {
            "d" => return Decision::Deny,
            "a" => return Decision::AllowOnce,
            "c" => return Decision::AllowInConversation,
            "w" => return Decision::AlwaysTool,
            _ => {}
        }
    }
}

fn show(event: &Event, passages: &[Passage], output: &Output) {
    if output.is_json() {
        return;
    }
    match event {
        Event::Routed { offered, reason } if !offered.is_empty() => output.note(&format!("tools: {} ({reason})", offered.join(", "))),
        Event::Retrieved { passages, reason } => {
            output.note(&format!("{} passages: {reason}", passages.len()));
        }
        Event::Prefill { done, total, reused } => output.status(&format!("reading {done}/{total} tokens ({reused} cached)")),
        Event::Text { text, .. } => {
            output.status_end();
            output.piece(text);
        }
        Event::ToolCall { record, .. } => show_call(record, output),
        Event::Cited { passages: numbers, .. } => {
            for passage in passages.iter().filter(|passage| numbers.contains(&passage.number)) {
                let page = passage.page.map(|page| format!(", page {page}")).unwrap_or_default();
                let start: String = passage.text.chars().take(120).collect::<String>().split_whitespace().collect::<Vec<_>>().join(" ");
                output.note(&format!("\n[{}] {}{page}: {start}…", passage.number, passage.name));
            }
        }
        Event::Usage { usage } => output.note(&format!(
            "\n{} prompt tokens ({} cached), {} written, first after {:.0} ms, {:.1} tokens/s",
            usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.first_token_ms, usage.tokens_per_second
        )),
        Event::Finished { .. } => output.piece("\n"),
        _ => {}
    }
}

fn show_call(record: &CallRecord, output: &Output) {
    output.status_end();
    let name = format!("{} · {}", record.call.tool.server, record.call.tool.name);
    match &record.state {
        CallState::Proposed => output.note(&format!("◆ {name} {}", record.call.arguments)),
        CallState::Sent { by } => output.note(&format!("▶ {name} ({by})")),
        CallState::Done { result, milliseconds, .. } => {
            let mark = if result.is_error { "✕" } else { "✓" };
            output.note(&format!("{mark} {name} {milliseconds} ms\n{}", result.to_model_text(2000)));
        }
        CallState::Denied { by } => output.note(&format!("⊘ {name}: {by}")),
        CallState::Failed { reason } => output.note(&format!("✕ {name}: {reason}")),
        CallState::Stopped => output.note(&format!("■ {name} stopped")),
        CallState::Unknown => output.note(&format!("? {name}: outcome unknown")),
        CallState::Approved { .. } => {}
    }
}
