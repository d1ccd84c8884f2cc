//! The headless face of Handrail.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(status) = handrail_engine::rag::worker::run_if_asked() {
        return status;
    }
    ExitCode::SUCCESS
}
