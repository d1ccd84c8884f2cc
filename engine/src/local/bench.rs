//! What a model file does on this machine: the figures of `handrail-cli bench model`.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::answer::Model;
use super::memory::{Halt, Memory};
use super::sampler::best;
use super::{chat, worker};
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

/// Text that the synthetic prompt repeats.
const TEXT: &str = "The harbour of the old town lies behind a mole of grey stone, and every morning the boats come home. ";

/// Runs a greedy answer over a synthetic prompt. `threads` 0 chooses.
///
/// # Errors
/// [`Error::Unavailable`] when the file cannot be loaded, [`Error::TooLong`] when both counts exceed the context.
pub fn run(path: &Path, prompt_tokens: usize, new_tokens: usize, threads: usize) -> Result<Report, Error> {
    let unavailable = |reason: String| Error::Unavailable { model: path.display().to_string(), reason };
    let begun = Instant::now();
    let model = chat::model(path).map_err(unavailable)?;
    let load_ms = begun.elapsed().as_secs_f64() * 1_000.0;
    let context = model.decoder.config().context;
    if prompt_tokens + new_tokens > context {
        return Err(Error::TooLong { needed: prompt_tokens + new_tokens, context });
    }
    let pool = worker::pool(threads).map_err(unavailable)?;
    let (read, written) = pool.install(|| measure(&model, prompt_tokens.max(1), new_tokens)).map_err(|halt| match halt {
        Halt::Failed(error) => error,
        Halt::Stopped => Error::Broken("it was stopped".to_owned()),
    })?;
    #[allow(clippy::cast_precision_loss)]
    let rate = |tokens: usize, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    Ok(Report {
        prompt_tokens: prompt_tokens.max(1),
        new_tokens,
        threads: pool.current_num_threads(),
        prefill_tokens_per_second: rate(prompt_tokens.max(1), read),
        decode_tokens_per_second: rate(new_tokens, written),
        first_token_ms: read * 1_000.0,
        load_ms,
        peak_memory_bytes: peak_memory(),
    })
}

/// Seconds for the prompt and for the answer. The answer does not end at an end token, so that its length is the same for
/// every model.
fn measure(model: &Model, prompt_tokens: usize, new_tokens: usize) -> Result<(f64, f64), Halt> {
    let text = model.tokenizer.encode(TEXT).map_err(|e| Halt::Failed(Error::Broken(e)))?;
    let prompt: Vec<u32> = text.iter().copied().cycle().take(prompt_tokens).collect();
    let mut memory = Memory::new(&model.decoder)?;
    let go = || false;
    let begun = Instant::now();
    let mut logits = memory.read(&model.decoder, &prompt, &go, &|_| {})?;
    let read = begun.elapsed().as_secs_f64();
    let begun = Instant::now();
    for _ in 0..new_tokens {
        let token = best(&logits).unwrap_or_default();
        logits = memory.step(&model.decoder, &[token], &go)?;
    }
    Ok((read, begun.elapsed().as_secs_f64()))
}

/// `VmHWM` of `/proc/self/status`, which Linux has.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}
