//! The consent sheet of the command line: what a server is, shown before its first start, and one question.

use std::io::{BufRead as _, IsTerminal as _};

use handrail_engine::Engine;
use handrail_engine::mcp::Consent;
use handrail_engine::mcp::consent::Origin;
use handrail_engine::tool::ServerId;

use crate::output::{Failure, Output, visible};

/// Sees to it that somebody agreed to what each of these servers starts or connects to: asks on the terminal where nobody
/// did, and takes `yes` for an answer. What is agreed to here counts in the window as well.
pub async fn ensure(engine: &Engine, servers: &[ServerId], yes: bool, output: &Output) -> Result<(), Failure> {
    for id in servers {
        ensure_one(engine, id, yes, output).await?;
    }
    Ok(())
}

/// The same for one.
pub async fn ensure_one(engine: &Engine, id: &ServerId, yes: bool, output: &Output) -> Result<(), Failure> {
    let Some(consent) = engine.servers().servers().into_iter().find(|view| view.id == *id).and_then(|view| view.consent) else {
        return Ok(());
    };
    let sheet = format!("server {id}: {}\n{}", origin(&consent.origin), lines(&consent));
    // What is agreed to is read as it is, whoever wrote it.
    output.note(&visible(&sheet));
    if !yes {
        if !std::io::stdin().is_terminal() {
            return Err(Failure::new(format!(
                "nobody has agreed to start server '{id}' yet, and there is no terminal to ask on: agree in the window, or give --yes"
            )));
        }
        if !tokio::task::spawn_blocking(agreed).await.unwrap_or(false) {
            return Err(Failure::new(format!("server '{id}' was not started: you did not agree to it")));
        }
    }
    engine.servers().agree(id, &consent)?;
    Ok(())
}

fn agreed() -> bool {
    eprint!("start it, now and from now on? [y/N] ");
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line).unwrap_or(0);
    read > 0 && matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

fn origin(origin: &Origin) -> String {
    match origin {
        Origin::File => "from the configuration file".to_owned(),
        Origin::Pasted => "added by hand".to_owned(),
        Origin::Imported(program) => format!("taken over from {program}"),
        Origin::Gallery => "from the gallery".to_owned(),
        Origin::Bundle(bundle) => format!("from the bundle {bundle}"),
        Origin::Link => "from a link".to_owned(),
    }
}

/// What is started or connected to, one thing per line, each line set in.
pub fn lines(consent: &Consent) -> String {
    let subject = &consent.subject;
    let mut text = format!("  {}", subject.line());
    if !subject.names().is_empty() {
        text.push_str(&format!("\n  with {}", subject.names().join(", ")));
    }
    if let Some(folder) = subject.folder() {
        text.push_str(&format!("\n  in {}", folder.display()));
    }
    for warning in &consent.warnings {
        text.push_str(&format!("\n  ! {warning}"));
    }
    text
}
