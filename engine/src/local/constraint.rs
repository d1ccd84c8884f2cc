//! Grammars for tool calls: which tokens may come next. A call is always JSON, and always valid for the strictest form of
//! its tool's schema that a grammar can express, which may be looser than the schema itself ([`schema`] says how). The
//! original is what the arguments are checked against afterwards, in the turn, before the gate.
//!
//! A call is `<tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call>`, where ARGUMENTS follows that form of the
//! schema of the tool NAME.

mod digits;
mod recent;
mod schema;
mod vocabulary;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{InferenceCapabilities, TokEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::Value;

use super::memory::Halt;
use super::template::CALL;
use super::tokenizer::Tokenizer;
use crate::provider::{Error, ToolSpec};
use digits::Digits;
use recent::{Key, Recent, key};

/// Most calls in one answer.
pub const CALLS: usize = 8;
/// Sets of tools whose grammar is kept. A conversation has one set, with one grammar for a demanded call and one for a
/// call that the model begins by itself.
pub const KEPT_GRAMMARS: usize = 8;
/// Tools for which it is kept which form of their schema a grammar can be made of.
pub const KEPT_FORMS: usize = 128;

/// Builds grammars for one vocabulary, and keeps what it built lately.
pub struct Grammars {
    factory: ParserFactory,
    vocabulary: TokEnv,
    /// The tokens that begin with a digit.
    digits: Arc<[u32]>,
    grammars: Mutex<Recent<Matcher>>,
    forms: Mutex<Recent<Value>>,
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}

impl Grammars {
    /// Prepares a vocabulary. Blocks for some tens of milliseconds. The error is a sentence.
    pub fn new(tokenizer: &Tokenizer) -> Result<Self, String> {
        let environment = vocabulary::environment(tokenizer);
        let abilities = InferenceCapabilities { ff_tokens: true, backtrack: false, conditional_ff_tokens: false, fork: false };
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory =
            ParserFactory::new(&environment, abilities, &slices).map_err(|e| format!("no grammars for this vocabulary: {e}"))?;
        let _ = factory.quiet();
        let begins = |token: &u32| tokenizer.bytes(*token).first().is_some_and(u8::is_ascii_digit);
        let digits = (0..u32::try_from(tokenizer.len()).unwrap_or(u32::MAX)).filter(begins).collect();
        Ok(Self {
            factory,
            vocabulary: environment,
            digits,
            grammars: Mutex::new(Recent::new(KEPT_GRAMMARS)),
            forms: Mutex::new(Recent::new(KEPT_FORMS)),
        })
    }

    /// The grammar of one call of one of these tools; with `more`, up to [`CALLS`] of them. `stop` is asked before each
    /// tool. The error is a sentence that names the tool whose schema is impossible.
    pub fn calls(&self, tools: &[&ToolSpec], more: bool, stop: &dyn Fn() -> bool) -> Result<Constraint, Halt> {
        let texts: Vec<String> = tools.iter().map(|tool| tool.parameters.to_string()).collect();
        let parts = tools.iter().zip(&texts).flat_map(|(tool, text)| [tool.name.as_str(), text]);
        let key = key(parts.chain(more.then_some("more")));
        if let Some(matcher) = self.grammars.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(self.constraint(matcher.deep_clone()));
        }
        let refused = |what: String| Halt::Failed(Error::Request(what));
        let mut fitting = Vec::with_capacity(tools.len());
        for tool in tools {
            if stop() {
                return Err(Halt::Stopped);
            }
            fitting.push(self.fitting(tool).map_err(refused)?);
        }
        if stop() {
            return Err(Halt::Stopped);
        }
        let pairs: Vec<(&str, &Value)> = tools.iter().zip(&fitting).map(|(tool, schema)| (tool.name.as_str(), schema)).collect();
        let built = self.build(&pairs, more).map_err(|e| refused(format!("no grammar for these tools together: {e}")))?;
        self.grammars.lock().unwrap_or_else(PoisonError::into_inner).put(key, built.matcher.deep_clone());
        Ok(built)
    }

    /// The strictest form of a tool's schema that a grammar can be made of.
    fn fitting(&self, tool: &ToolSpec) -> Result<Value, String> {
        let key: Key = key([tool.name.as_str(), &tool.parameters.to_string()]);
        if let Some(form) = self.forms.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(form.clone());
        }
        let mut fault = String::new();
        for form in schema::forms(&tool.parameters) {
            match self.build(&[(&tool.name, &form)], false) {
                Ok(_) => {
                    self.forms.lock().unwrap_or_else(PoisonError::into_inner).put(key, form.clone());
                    return Ok(form);
                }
                Err(error) => fault = error,
            }
            tracing::debug!(tool = %tool.name, %fault, "the schema is relaxed for its grammar");
        }
        Err(format!("no grammar for the schema of the tool '{}': {fault}", tool.name))
    }

    fn constraint(&self, matcher: Matcher) -> Constraint {
        Constraint { matcher, vocabulary: self.vocabulary.clone(), digits: self.digits.clone(), written: Digits::default() }
    }

    fn build(&self, tools: &[(&str, &Value)], more: bool) -> Result<Constraint, String> {
        let grammar = TopLevelGrammar::from_lark(lark(tools, more));
        let mut matcher = Matcher::new(self.factory.create_parser(grammar));
        // The first mask finds what only shows when the grammar runs.
        let first = matcher.compute_mask();
        match (matcher.get_error(), first) {
            (None, Ok(_)) => Ok(self.constraint(matcher)),
            (Some(error), _) => Err(brief(&error)),
            (None, Err(error)) => Err(brief(&error.to_string())),
        }
    }
}

/// The grammar as text.
fn lark(tools: &[(&str, &Value)], more: bool) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let repeat = if more { format!(" ({} call){{0,{}}}", quoted("\n"), CALLS - 1) } else { String::new() };
    let names: Vec<String> = (0..tools.len()).map(|index| format!("tool{index}")).collect();
    let mut text = format!("start: call{repeat}\ncall: {} body {}\nbody: {}\n", quoted(CALL.0), quoted(CALL.1), names.join(" | "));
    for (index, (name, schema)) in tools.iter().enumerate() {
        let head = format!("{{\"name\": {}, \"arguments\": ", Value::from(*name));
        text += &format!("tool{index}: {} arguments{index} {}\narguments{index}: %json {schema}\n", quoted(&head), quoted("}"));
    }
    text
}

fn brief(error: &str) -> String {
    let line = error.lines().find(|line| !line.trim().is_empty()).unwrap_or("unknown");
    line.chars().take(300).collect()
}

/// A grammar on its way through an answer.
pub struct Constraint {
    matcher: Matcher,
    vocabulary: TokEnv,
    digits: Arc<[u32]>,
    written: Digits,
}

impl fmt::Debug for Constraint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Constraint").finish_non_exhaustive()
    }
}

impl Constraint {
    /// Tokens that must come now, whatever the logits say.
    pub fn forced(&mut self) -> Vec<u32> {
        if self.matcher.is_stopped() { Vec::new() } else { self.matcher.compute_ff_tokens() }
    }

    /// Whether nothing can follow.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Takes the logits of tokens away that may not come next; end tokens stay where the grammar may end.
    pub fn filter(&mut self, logits: &mut [f32]) -> Result<(), String> {
        let mask = self.matcher.compute_mask_or_eos().map_err(|e| brief(&e.to_string()))?;
        for (token, logit) in (0u32..).zip(logits.iter_mut()) {
            if !mask.is_allowed(token) {
                *logit = f32::NEG_INFINITY;
            }
        }
        if self.written.full() {
            let others = (0u32..).zip(logits.iter()).any(|(token, logit)| logit.is_finite() && self.digits.binary_search(&token).is_err());
            // Where only digits fit, the schema asks for them.
            for token in self.digits.iter().filter(|_| others) {
                if let Some(logit) = logits.get_mut(*token as usize) {
                    *logit = f32::NEG_INFINITY;
                }
            }
        }
        Ok(())
    }

    /// Takes tokens that were allowed.
    pub fn take(&mut self, tokens: &[u32]) -> Result<(), String> {
        let trie = self.vocabulary.tok_trie();
        tokens.iter().for_each(|token| self.written.push(trie.token(*token)));
        self.matcher.consume_tokens(tokens).map_err(|e| brief(&e.to_string()))
    }
}

#[cfg(test)]
mod tests;
