//! From stored messages to a request: instructions, history, passages, tools.
//!
//! What the model has read stays byte for byte what it was: instructions are fixed texts, passages stay in the turn
//! that retrieved them, results are cut at a fixed length, and tools are sorted. [`fit`] drops the oldest whole turns
//! where a conversation outgrows the context.

mod assemble;
mod fit;

use crate::provider::{Sampling, ToolChoice, ToolSpec};

pub use assemble::{assemble, result_text};
pub use fit::{Fitted, fit};

/// Everything of a request that is not history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ask {
    /// The tools on offer.
    pub tools: Vec<ToolSpec>,
    /// Whether they may, must or must not be called.
    pub tool_choice: ToolChoice,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens of the answer.
    pub max_tokens: usize,
    /// The key of the KV cache.
    pub cache_key: Option<String>,
    /// Most characters of one tool result; see [`result_characters`].
    pub result_characters: usize,
}

/// How many characters of a tool result a model reads: the setting, but no more than about a quarter of the context,
/// at three characters to a token.
#[must_use]
pub fn result_characters(setting: usize, context: usize) -> usize {
    setting.min(context / 4 * 3)
}
