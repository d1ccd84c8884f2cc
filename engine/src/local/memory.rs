//! What a model has read: the tokens and their keys and values, always in step with each other.

use super::decoder::{Decoder, Step};
use super::gguf::brief;
use super::kv::Cache;
use crate::provider::Error;

/// Tokens of one step while a prompt is read; progress is told after each.
pub const CHUNK: usize = 256;

/// Why a step gave nothing.
#[derive(Debug)]
pub enum Halt {
    /// It was cancelled, or nobody listens any more.
    Stopped,
    /// It failed.
    Failed(Error),
}

impl From<candle_core::Error> for Halt {
    fn from(error: candle_core::Error) -> Self {
        Self::Failed(Error::Broken(brief(&error)))
    }
}

/// Tokens with their KV cache.
#[derive(Debug)]
pub struct Memory {
    cache: Cache,
    tokens: Vec<u32>,
}

impl Memory {
    /// An empty memory.
    pub fn new(decoder: &Decoder) -> Result<Self, candle_core::Error> {
        Ok(Self { cache: decoder.cache()?, tokens: Vec::new() })
    }

    /// The tokens it holds.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Forgets everything from the token `len` on.
    pub fn truncate(&mut self, len: usize) {
        self.tokens.truncate(len);
        self.cache.truncate(len);
    }

    /// Keeps the longest common beginning with `prompt`, less its last token, whose logits are needed, and says how long
    /// that is.
    pub fn keep_common(&mut self, prompt: &[u32]) -> usize {
        let common = self.tokens.iter().zip(prompt).take_while(|(a, b)| a == b).count().min(prompt.len().saturating_sub(1));
        self.truncate(common);
        common
    }

    /// Reads tokens and gives the logits behind the last.
    pub fn step(&mut self, decoder: &Decoder, tokens: &[u32], stop: &dyn Fn() -> bool) -> Result<Vec<f32>, Halt> {
        match decoder.step(tokens, &mut self.cache, stop)? {
            Step::Logits(logits) => {
                self.tokens.extend_from_slice(tokens);
                Ok(logits)
            }
            Step::Stopped => Err(Halt::Stopped),
        }
    }

    /// Reads a prompt behind what is kept of it; `done` hears how many tokens are in after each chunk. The last token goes
    /// alone, so that it meets the same arithmetic whether the rest was kept or not, and the same seed gives the same text.
    pub fn read(&mut self, decoder: &Decoder, prompt: &[u32], stop: &dyn Fn() -> bool, done: &dyn Fn(usize)) -> Result<Vec<f32>, Halt> {
        let Some((last, body)) = prompt.split_last() else {
            return Err(Halt::Failed(Error::Request("the prompt is empty".to_owned())));
        };
        let kept = self.keep_common(prompt);
        done(kept);
        for chunk in body[kept..].chunks(CHUNK) {
            if !decoder.skim(chunk, &mut self.cache, stop)? {
                return Err(Halt::Stopped);
            }
            self.tokens.extend_from_slice(chunk);
            done(self.tokens.len());
        }
        let logits = self.step(decoder, &[*last], stop)?;
        done(prompt.len());
        Ok(logits)
    }
}
