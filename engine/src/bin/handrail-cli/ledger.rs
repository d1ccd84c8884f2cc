//! `ledger`: the record of every tool call.

use clap::Subcommand;
use handrail_engine::Engine;
use serde_json::json;

use crate::output::{Failure, Output};

#[derive(Subcommand)]
pub enum Command {
    /// Checks the chain of hashes and names the first row that does not fit.
    Verify,
    /// Prints every row as one JSON object per line.
    Export,
}

pub fn run(engine: &Engine, command: Command, output: &Output) -> Result<(), Failure> {
    match command {
        Command::Verify => {
            let check = engine.store().verify_ledger()?;
            output.result(&json!({ "rows": check.rows, "ok": check.broken.is_none() }), || format!("{} rows", check.rows));
            match check.broken {
                None => Ok(()),
                Some(broken) => Err(Failure::new(format!("the chain breaks: {broken:?}"))),
            }
        }
        Command::Export => {
            for row in engine.store().ledger() {
                let row = row?;
                output.result(&row, || serde_json::to_string(&row).unwrap_or_default());
            }
            Ok(())
        }
    }
}
