//! Which tools a turn offers: lexical scores over names, descriptions and parameters, within a token budget.
//!
//! Everything here is deterministic and cannot fail: the worst answer is "all tools". Two questions are answered:
//! [`choose`] picks what a model that decides for itself gets to see; [`intent`] decides for a small model, which was
//! never trained to call tools, whether this turn needs one at all.

mod choose;
mod intent;
mod score;
mod words;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::tool::{Definition, ServerId};

pub use choose::{Budget, choose};
pub use intent::{FEW, Intent, intent};

/// A tool that could be offered, under the name that the model would see.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its alias.
    pub alias: String,
    /// Its definition.
    pub definition: Arc<Definition>,
}

/// Tools that were offered earlier in a conversation, by server and name. The set only grows, so that the prompt's
/// prefix stays what it was.
pub type Sticky = BTreeSet<(ServerId, String)>;

/// What was chosen, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The tools on offer, by alias, sorted.
    pub offered: Vec<String>,
    /// Why these, in one sentence.
    pub reason: String,
    /// The score of the best tool; 0 where nothing matched or nothing was scored.
    pub best: f32,
}

/// About how many tokens a tool costs in a prompt: its name, description and schema, four bytes of ASCII or one other
/// character to a token. Good to a third either way, which is enough to keep a budget.
#[must_use]
pub fn estimate_tokens(definition: &Definition) -> usize {
    let schema = definition.input_schema.to_string();
    definition.id.name.len().div_ceil(4) + estimate(&definition.description) + estimate(&schema) + 8
}

fn estimate(text: &str) -> usize {
    let ascii = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().filter(|c| !c.is_ascii()).count();
    ascii.div_ceil(4) + other
}
