//! `secret`: keys and tokens, set from stdin so that they are in no process list and no shell history.

use std::io::{IsTerminal as _, Read as _};

use clap::Subcommand;
use handrail_engine::Engine;
use handrail_engine::secret::Secret;
use serde_json::json;

use crate::output::{Failure, Output};

/// Longest secret, in bytes; a keyring takes little more.
const LONGEST: u64 = 64 * 1024;

/// What to do with secrets.
#[derive(Subcommand)]
pub enum Command {
    /// Keeps what is read from stdin under a name.
    Set {
        /// The name, as in `${secret:NAME}`.
        name: String,
    },
    /// Forgets a secret.
    Remove {
        /// Its name.
        name: String,
    },
    /// Says whether there is a secret of this name, without showing it.
    Check {
        /// Its name.
        name: String,
    },
    /// Says where secrets are kept.
    Where,
}

/// Runs it.
pub fn run(engine: &Engine, command: Command, output: &Output) -> Result<(), Failure> {
    let secrets = engine.secrets();
    match command {
        Command::Set { name } => {
            check(&name)?;
            let secret = read(output)?;
            secrets.set(&name, &secret)?;
            let place = secrets.place();
            output.result(&json!({ "secret": name, "kept_in": place }), || format!("{name} is kept in {place}"));
        }
        Command::Remove { name } => {
            if secrets.get(&name)?.is_none() {
                return Err(Failure::new(format!("there is no secret \"{name}\"")));
            }
            secrets.remove(&name)?;
            output.result(&json!({ "secret": name, "removed": true }), || format!("{name} is forgotten"));
        }
        Command::Check { name } => {
            if secrets.get(&name)?.is_none() {
                return Err(Failure::new(format!("there is no secret \"{name}\"")));
            }
            output.result(&json!({ "secret": name, "there": true }), || format!("{name} is there"));
        }
        Command::Where => {
            let place = secrets.place();
            output.result(&json!({ "kept_in": place }), || place.clone());
        }
    }
    Ok(())
}

fn check(name: &str) -> Result<(), Failure> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if name.is_empty() || name.len() > 128 || !name.chars().all(fits) {
        return Err(Failure::new("a secret's name has 1 to 128 letters, digits, '_', '-' or '.'"));
    }
    Ok(())
}

fn read(output: &Output) -> Result<Secret, Failure> {
    let stdin = std::io::stdin();
    let mut text = String::new();
    if stdin.is_terminal() {
        output.note("type or paste the secret and press Enter (it is shown as you type; a pipe shows nothing):");
        let _read = stdin.read_line(&mut text)?;
    } else {
        let _read = stdin.lock().take(LONGEST + 1).read_to_string(&mut text)?;
    }
    if text.len() as u64 > LONGEST {
        return Err(Failure::new(format!("the secret is longer than {LONGEST} bytes")));
    }
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.is_empty() {
        return Err(Failure::new("nothing came on stdin; for example: printf %s \"$TOKEN\" | handrail-cli secret set NAME"));
    }
    Ok(Secret::new(secret))
}
