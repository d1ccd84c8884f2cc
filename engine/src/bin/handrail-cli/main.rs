//! The headless face of Handrail: the same engine and the same gate, for scripts, for people over ssh, for checks.
//!
//! Results go to stdout (`--json`: one JSON object per line), logs and questions to stderr. The exit status is 0
//! only when the thing asked for happened.

mod ask;
mod bench;
mod configure;
mod consent;
mod documents;
mod ledger;
mod models;
mod output;
mod secrets;
mod servers;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use handrail_engine::engine::Shutdown;
use handrail_engine::mcp::consent::Policy;
use handrail_engine::{Config, Engine};

use output::{Failure, Output};

/// Handrail without a window.
#[derive(Parser)]
#[command(name = "handrail-cli", version)]
struct Arguments {
    /// The data folder (default: HANDRAIL_DATA_DIR, else the platform's place for application data).
    #[arg(long, global = true, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The folder models are kept in (default: HANDRAIL_MODELS_DIR, else `models` in the data folder).
    #[arg(long, global = true, value_name = "DIR")]
    models_dir: Option<PathBuf>,
    /// Prints one JSON object per line on stdout.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Asks a model; tools, documents and the approval gate work as in the window.
    Ask(ask::Arguments),
    /// Lists, fetches, verifies and removes models.
    #[command(subcommand)]
    Models(models::Command),
    /// Lists, checks, adds and removes MCP servers and calls their tools.
    #[command(subcommand)]
    Servers(servers::Command),
    /// Keeps keys and tokens for `${secret:NAME}` in the server configuration.
    #[command(subcommand)]
    Secret(secrets::Command),
    /// Shows the blocks that the parser child reads from a file.
    Parse(documents::Parse),
    /// Searches files.
    Search(documents::Search),
    /// Turns each line of stdin into a vector.
    Embed,
    /// Shows or verifies the ledger of tool calls.
    #[command(subcommand)]
    Ledger(ledger::Command),
    /// Measures a model or the vector index on this machine.
    #[command(subcommand)]
    Bench(bench::Command),
}

fn main() -> ExitCode {
    if let Some(code) = handrail_engine::rag::worker::run_if_asked() {
        return code;
    }
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // What the client library of MCP reports, the engine says as well.
        .with_env_filter(tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn,rmcp=off".into()))
        .init();
    let output = Output::new(arguments.json);
    match run(arguments, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output.failure(&failure);
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments, output: &Output) -> Result<(), Failure> {
    // Benches need neither data folder nor servers.
    if let Command::Bench(command) = arguments.command {
        return bench::run(&command, output);
    }
    let data_dir = Config::data_dir(arguments.data_dir)?;
    let models_dir = arguments.models_dir.or_else(|| std::env::var_os("HANDRAIL_MODELS_DIR").map(PathBuf::from));
    let mcp_config = match &arguments.command {
        Command::Ask(ask) => ask.config.clone(),
        Command::Servers(command) => command.config(),
        _ => None,
    };
    // A file that is named here holds what whoever named it wants to run; what stands in the data folder may be anybody's.
    let consent = if mcp_config.is_some() { Policy::Trust } else { Policy::Ask };
    let config = Config { models_dir, mcp_config, start_servers: false, consent, ..Config::new(data_dir) };
    let engine = Engine::start(config)?;
    // Nobody sits here to fill in what a server asks; servers are told so, and nothing waits for ever.
    engine.servers().set_attended(false);
    if let Some(error) = engine.settings_error() {
        output.note(&format!("{error}; the defaults are used"));
    }
    engine.block_on(async {
        // Listened for before anything is started that would have to be ended.
        let stopped = signalled()?;
        let done = tokio::select! {
            outcome = command(&engine, arguments.command, output) => outcome,
            name = stopped => Err(Failure::new(format!("stopped by {name}"))),
        };
        engine.shutdown(Shutdown::Exit).await;
        done
    })
}

/// Resolves to the name of the first signal that asks this program to end.
#[cfg(unix)]
fn signalled() -> Result<impl Future<Output = &'static str>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => "SIGINT",
            _ = terminate.recv() => "SIGTERM",
            _ = hangup.recv() => "SIGHUP",
        }
    })
}

#[cfg(not(unix))]
fn signalled() -> Result<impl Future<Output = &'static str>, Failure> {
    Ok(async {
        match tokio::signal::ctrl_c().await {
            Ok(()) => "Ctrl-C",
            // Without a way to hear of it, nobody asks.
            Err(_) => std::future::pending().await,
        }
    })
}

async fn command(engine: &Engine, command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Ask(arguments) => ask::run(engine, arguments, output).await,
        Command::Models(command) => models::run(engine, command, output).await,
        Command::Servers(command) => servers::run(engine, command, output).await,
        Command::Secret(command) => secrets::run(engine, command, output),
        Command::Parse(arguments) => documents::parse(arguments, output).await,
        Command::Search(arguments) => documents::search(engine, arguments, output).await,
        Command::Embed => documents::embed(engine, output).await,
        Command::Ledger(command) => ledger::run(engine, command, output),
        Command::Bench(command) => bench::run(&command, output),
    }
}
