//! The tokens of an answer with the text that they have become.

use super::super::call::CallText;
use super::super::splitter::{Piece, Splitter};
use super::super::tokenizer::{Detokenizer, Tokenizer};
use crate::provider::Delta;

const MARK: &[u8] = b"<tool_call>";

/// Tokens, text, and what of it was shown.
#[derive(Debug)]
pub(super) struct Running {
    tokens: Vec<u32>,
    /// Length of the text behind each token.
    ends: Vec<usize>,
    text: String,
    bytes: Detokenizer,
    splitter: Splitter,
    call: CallText,
    watch: bool,
    in_call: bool,
}

impl Running {
    pub(super) fn new(watch: bool, thinking: bool) -> Self {
        Self {
            tokens: Vec::new(),
            ends: Vec::new(),
            text: String::new(),
            bytes: Detokenizer::default(),
            splitter: Splitter::new(watch, thinking),
            call: CallText::default(),
            watch,
            in_call: false,
        }
    }

    /// Tokens so far.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> String {
        let text = self.bytes.push(tokenizer.bytes(token));
        self.text.push_str(&text);
        self.tokens.push(token);
        self.ends.push(self.text.len());
        text
    }

    /// Takes free text; stops behind the mark of a call.
    pub(super) fn push_free(&mut self, tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for token in tokens {
            let text = self.push(tokenizer, *token);
            pieces.extend(self.splitter.push(&text));
            if matches!(pieces.last(), Some(Piece::Call(_))) {
                break;
            }
        }
        pieces
    }

    /// Takes the text of calls.
    pub(super) fn push_call(&mut self, tokenizer: &Tokenizer, tokens: &[u32]) -> Vec<Delta> {
        self.in_call = true;
        let text: String = tokens.iter().map(|token| self.push(tokenizer, *token)).collect();
        self.call.push(&text)
    }

    /// Forgets every token that reaches behind byte `at`, and gives the text before `at` that this took along.
    pub(super) fn turn_back(&mut self, at: usize) -> String {
        let keep = self.ends.iter().take_while(|end| **end <= at).count();
        let from = keep.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or(0);
        let lead = self.text.get(from..at).unwrap_or_default().to_owned();
        self.tokens.truncate(keep);
        self.ends.truncate(keep);
        self.text.truncate(at);
        self.bytes = Detokenizer::default();
        lead
    }

    /// Appends tokens whose text is already there and shown.
    pub(super) fn append_shown(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        self.ends.extend(tokens.iter().map(|_| self.text.len()));
    }

    /// Takes the logits of every token away that could begin a call here.
    #[allow(clippy::unused_self)]
    pub(super) fn ban_call(&self, tokenizer: &Tokenizer, logits: &mut [f32]) {
        for (token, logit) in (0u32..).zip(logits.iter_mut()) {
            let bytes = tokenizer.bytes(token);
            if !bytes.is_empty() && (MARK.starts_with(bytes) || bytes.starts_with(MARK)) {
                *logit = f32::NEG_INFINITY;
            }
        }
    }

    /// The tokens that bring the arguments nearer to their end, the best first.
    pub(super) fn closers(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let texts: &[&str] = match self.call.position().map(super::super::call::Position::in_text) {
            None | Some(Some(true)) => &[],
            Some(Some(false)) => &["\""],
            Some(None) => &["}", "]", ","],
        };
        texts.iter().filter_map(|text| tokenizer.find(text)).collect()
    }

    /// What was held back; nothing where the answer ends in a call.
    pub(super) fn finish(&mut self) -> Vec<Piece> {
        if self.in_call {
            return Vec::new();
        }
        let rest = self.bytes.finish();
        let mut pieces = self.splitter.push(&rest);
        pieces.extend(self.splitter.finish());
        pieces.retain(|piece| self.watch || !matches!(piece, Piece::Call(_)));
        pieces
    }
}

/// Whether tokens end in a pattern of at most `longest` tokens that stands there `times` times.
pub(super) fn loops(tokens: &[u32], (longest, times): (usize, usize)) -> bool {
    (1..=longest).any(|period| {
        // A short pattern must last longer: zeros and spaces are no loop yet.
        let needed = (period * times).max(32);
        tokens.len() >= needed && {
            let tail = &tokens[tokens.len() - needed..];
            tail.iter().zip(&tail[period..]).all(|(a, b)| a == b)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_seen_late_enough() {
        let pattern: Vec<u32> = (0..10).collect();
        assert!(loops(&[vec![9; 5], pattern.repeat(4)].concat(), (24, 4)));
        assert!(!loops(&pattern.repeat(3), (24, 4)));
        assert!(!loops(&[7; 31], (24, 4)) && loops(&[7; 32], (24, 4)));
        assert!(!loops(&(0..200).collect::<Vec<_>>(), (24, 4)));
    }
}
