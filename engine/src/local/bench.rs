//! What a model file does on this machine: the figures of `handrail-cli bench model`. Skeleton.

use std::path::Path;

use serde::Serialize;

use crate::provider::Error;

/// Figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens written.
    pub new_tokens: usize,
    /// Threads used.
    pub threads: usize,
    /// Prompt tokens per second.
    pub prefill_tokens_per_second: f64,
    /// Written tokens per second.
    pub decode_tokens_per_second: f64,
    /// Milliseconds until the first token.
    pub first_token_ms: f64,
    /// Milliseconds to load the file.
    pub load_ms: f64,
    /// Most memory the process has used, in bytes, where the platform tells.
    pub peak_memory_bytes: Option<u64>,
}

/// Runs a greedy answer over a synthetic prompt.
pub fn run(path: &Path, _prompt_tokens: usize, _new_tokens: usize, _threads: usize) -> Result<Report, Error> {
    Err(Error::Unavailable { model: path.display().to_string(), reason: "not built yet".to_owned() })
}
