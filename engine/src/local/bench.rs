//! What a model file does on this machine: the figures of `handrail-cli bench model`.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use super::answer::Model;
use super::memory::{Halt, Memory};
use super::sampler::best;
use super::template::TemplateChoice;
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
    /// Prompt tokens per second, over the whole prompt.
    pub prefill_tokens_per_second: f64,
    /// Written tokens per second: one over the median time of a token behind the first, whose time is that of the prompt.
    pub decode_tokens_per_second: f64,
    /// Milliseconds until the first token: reading the prompt and choosing.
    pub first_token_ms: f64,
    /// Milliseconds to load the file.
    pub load_ms: f64,
    /// Most memory the process has used, in bytes, where the platform tells.
    pub peak_memory_bytes: Option<u64>,
}

/// Text that the synthetic prompt repeats.
const TEXT: &str = "The harbour of the old town lies behind a mole of grey stone, and every morning the boats come home. ";

/// Tokens of the prompt that are read, and then written, before anything is measured: the weights are then in memory, the
/// threads are awake, and the processor runs at its speed.
const WARM_UP: (usize, usize) = (64, 4);

/// Runs a greedy answer over a synthetic prompt, once, behind a short warm-up. `threads` 0 takes one per physical core. The prompt needs
/// no template, but a model whose own one is broken loads only with another `choice`.
///
/// # Errors
/// [`Error::Unavailable`] when the file cannot be loaded, [`Error::TooLong`] when both counts exceed the context.
pub fn run(path: &Path, prompt_tokens: usize, new_tokens: usize, threads: usize, choice: &TemplateChoice) -> Result<Report, Error> {
    let unavailable = |reason: String| Error::Unavailable { model: path.display().to_string(), reason };
    let begun = Instant::now();
    let model = chat::model(path, choice).map_err(|refused| unavailable(refused.reason))?;
    let load_ms = begun.elapsed().as_secs_f64() * 1_000.0;
    let context = model.decoder.config().context;
    if prompt_tokens + new_tokens > context {
        return Err(Error::TooLong { needed: prompt_tokens + new_tokens, context });
    }
    let pool = worker::pool(threads).map_err(unavailable)?;
    let measured = pool.install(|| measure(&model, prompt_tokens.max(1), new_tokens)).map_err(|halt| match halt {
        Halt::Failed(error) => error,
        Halt::Stopped => Error::Broken("it was stopped".to_owned()),
    })?;
    #[allow(clippy::cast_precision_loss)]
    let rate = |tokens: usize, seconds: f64| if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
    Ok(Report {
        prompt_tokens: prompt_tokens.max(1),
        new_tokens,
        threads: pool.current_num_threads(),
        prefill_tokens_per_second: rate(prompt_tokens.max(1), measured.first),
        decode_tokens_per_second: rate(1, median(measured.tokens)),
        first_token_ms: measured.first * 1_000.0,
        load_ms,
        peak_memory_bytes: peak_memory(),
    })
}

struct Measured {
    /// Seconds until the first token.
    first: f64,
    /// Seconds of each token behind it.
    tokens: Vec<f64>,
}

/// The answer does not end at an end token, so that its length is the same for every model.
fn measure(model: &Model, prompt_tokens: usize, new_tokens: usize) -> Result<Measured, Halt> {
    let text = model.tokenizer.encode(TEXT).map_err(|e| Halt::Failed(Error::Broken(e)))?;
    let prompt: Vec<u32> = text.iter().copied().cycle().take(prompt_tokens).collect();
    let mut memory = Memory::new(&model.decoder)?;
    let _ = go(model, &mut memory, &prompt[..prompt.len().min(WARM_UP.0)], WARM_UP.1.min(new_tokens))?;
    memory.truncate(0);
    go(model, &mut memory, &prompt, new_tokens)
}

fn go(model: &Model, memory: &mut Memory, prompt: &[u32], new_tokens: usize) -> Result<Measured, Halt> {
    let begun = Instant::now();
    let logits = memory.read(&model.decoder, prompt, &|| false, &|_| {})?;
    let mut token = best(&logits).unwrap_or_default();
    let first = begun.elapsed().as_secs_f64();
    let mut tokens = Vec::with_capacity(new_tokens);
    for _ in 0..new_tokens {
        let begun = Instant::now();
        let logits = memory.step(&model.decoder, &[token], &|| false)?;
        token = best(&logits).unwrap_or_default();
        tokens.push(begun.elapsed().as_secs_f64());
    }
    Ok(Measured { first, tokens })
}

/// The middle one, or the mean of the two in the middle; 0 of none.
fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    let half = seconds.len() / 2;
    match (seconds.get(half), seconds.len() % 2) {
        (None, _) => 0.0,
        (Some(middle), 1) => *middle,
        (Some(middle), _) => f64::midpoint(seconds.get(half - 1).copied().unwrap_or(*middle), *middle),
    }
}

/// `VmHWM` of `/proc/self/status`, which Linux has.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), 3.0);
    }
}
