//! The parser child: the same program with a hidden argument.

/// The hidden first argument that makes the program parse a file and exit.
pub const ARGUMENT: &str = "--extract-worker";

/// Runs the worker when the program was started as one; call it first in `main`. Returns the exit status to end
/// with, or `None` for a normal start.
#[must_use]
pub fn run_if_asked() -> Option<std::process::ExitCode> {
    None
}
