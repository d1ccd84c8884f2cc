//! The vocabulary as a tree of bytes, which the grammar walks.

use std::sync::Arc;

use llguidance::toktrie::{TokEnv, TokRxInfo, TokTrie, TokenizerEnv};

use super::super::tokenizer::Tokenizer;

struct Vocabulary {
    tree: TokTrie,
    tokenizer: Tokenizer,
}

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.tree
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.tree.tokenize_with_greedy_fallback(bytes, |text| {
            self.tokenizer.encode(text).unwrap_or_else(|_| self.tree.greedy_tokenize(text.as_bytes()))
        })
    }
}

/// The tree of a tokenizer. Control tokens stand in it behind the byte 0xFF, where no grammar over text reaches them.
pub(super) fn environment(tokenizer: &Tokenizer) -> TokEnv {
    let count = u32::try_from(tokenizer.len()).unwrap_or(u32::MAX);
    let word = |token: u32| {
        if tokenizer.is_control(token) {
            [&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.text(token).as_bytes()].concat()
        } else {
            tokenizer.bytes(token).to_vec()
        }
    };
    let words: Vec<Vec<u8>> = (0..count).map(word).collect();
    let ends = tokenizer.ends();
    let tree = TokTrie::from(&TokRxInfo::new(count, ends.first().copied().unwrap_or(0)), &words);
    let tree = if ends.is_empty() { tree } else { tree.with_eos_tokens(&ends) };
    Arc::new(Vocabulary { tree, tokenizer: tokenizer.clone() })
}
