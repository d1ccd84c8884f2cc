//! Text to tokens and back, from the vocabulary inside a GGUF file.

mod build;
mod bytes;
mod stream;

use std::sync::Arc;

use super::gguf::{Error, Gguf};
pub use stream::Detokenizer;

/// What a token is (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Text, or one byte.
    Text,
    /// Steers the model; never shown and never made from a person's text.
    Control,
    /// Shown like text, but always one token (`<tool_call>` of Qwen).
    Fixed,
}

/// Tokens that end an answer in the families that are supported, whatever the file calls its end token.
const ENDS: [&str; 8] = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|endoftext|>", "</s>", "<|end|>", "<end_of_turn>"];

/// A vocabulary with its splitting rules; cheap to clone.
#[derive(Clone, Debug)]
pub struct Tokenizer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    model: tokenizers::Tokenizer,
    texts: Vec<String>,
    bytes: Vec<Vec<u8>>,
    kinds: Vec<Kind>,
    ends: Vec<u32>,
    end: u32,
    begin: Option<u32>,
    add_begin: bool,
    /// Whether encoding puts a space before the text (SentencePiece), which decoding a whole text takes away again.
    space_prefix: bool,
}

impl Tokenizer {
    /// Builds it from the file's metadata.
    pub fn read(gguf: &Gguf) -> Result<Self, Error> {
        let vocabulary = build::Vocabulary::read(gguf)?;
        let id =
            |key: &str| gguf.number(key).ok().and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < vocabulary.texts.len());
        let end = id("tokenizer.ggml.eos_token_id");
        let begin = id("tokenizer.ggml.bos_token_id");
        let named = (0u32..)
            .zip(&vocabulary.texts)
            .filter(|(id, text)| vocabulary.kinds.get(*id as usize) == Some(&Kind::Control) && ENDS.contains(&text.as_str()));
        let mut ends: Vec<u32> = named.map(|(id, _)| id).chain(end).chain(id("tokenizer.ggml.eot_token_id")).collect();
        ends.sort_unstable();
        ends.dedup();
        let Some(end) = end.or_else(|| ends.first().copied()) else { return Err(gguf.missing("tokenizer.ggml.eos_token_id")) };
        let model = vocabulary.model(gguf)?;
        let add_begin = gguf.flag("tokenizer.ggml.add_bos_token").unwrap_or(vocabulary.sentence_piece);
        let space_prefix = vocabulary.space_prefix;
        let bytes = vocabulary.bytes();
        let build::Vocabulary { texts, kinds, .. } = vocabulary;
        Ok(Self(Arc::new(Inner { model, texts, bytes, kinds, ends, end, begin, add_begin, space_prefix })))
    }

    /// Tokens of the vocabulary.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.texts.len()
    }

    /// The tokens of a text; the text of a control token becomes that token. The error is a sentence.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = self.0.model.encode_fast(text, false).map_err(|e| format!("the text cannot be split into tokens: {e}"))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The tokens of a whole prompt: [`Self::encode`] with the begin token, where the model wants one and the text
    /// does not bring it.
    pub fn encode_prompt(&self, text: &str) -> Result<Vec<u32>, String> {
        let mut tokens = self.encode(text)?;
        if let Some(begin) = self.0.begin.filter(|_| self.0.add_begin)
            && tokens.first() != Some(&begin)
        {
            tokens.insert(0, begin);
        }
        Ok(tokens)
    }

    /// The bytes that a token adds to a text; none for control tokens.
    #[must_use]
    pub fn bytes(&self, token: u32) -> &[u8] {
        let at = token as usize;
        match self.0.kinds.get(at) {
            Some(Kind::Text | Kind::Fixed) => self.0.bytes.get(at).map_or(&[], Vec::as_slice),
            _ => &[],
        }
    }

    /// Whether a token steers the model instead of being text.
    #[must_use]
    pub fn is_control(&self, token: u32) -> bool {
        self.0.kinds.get(token as usize).is_none_or(|kind| *kind == Kind::Control)
    }

    /// The text of tokens without control tokens; bytes that are not UTF-8 become U+FFFD.
    #[must_use]
    #[cfg_attr(not(test), expect(dead_code, reason = "answers are decoded token by token; whole texts only in tests"))]
    pub fn decode(&self, tokens: &[u32]) -> String {
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| self.bytes(*token)).copied().collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match text.strip_prefix(' ') {
            Some(rest) if self.0.space_prefix => rest.to_owned(),
            _ => text,
        }
    }

    /// The name of a token, as the file spells it.
    #[must_use]
    pub fn text(&self, token: u32) -> &str {
        self.0.texts.get(token as usize).map_or("", String::as_str)
    }

    /// The names of the begin and end tokens, for templates.
    #[must_use]
    pub fn frame(&self) -> (&str, &str) {
        (self.0.begin.map_or("", |begin| self.text(begin)), self.text(self.0.end))
    }

    /// Whether a token ends an answer.
    #[must_use]
    pub fn is_end(&self, token: u32) -> bool {
        self.0.ends.binary_search(&token).is_ok()
    }

    /// Every token that ends an answer; the file's own first.
    #[must_use]
    pub fn ends(&self) -> Vec<u32> {
        let others = self.0.ends.iter().copied().filter(|end| *end != self.0.end);
        std::iter::once(self.0.end).chain(others).collect()
    }

    /// Texts of control tokens, longest first.
    #[must_use]
    pub fn controls(&self) -> Vec<&str> {
        let pairs = self.0.texts.iter().zip(&self.0.kinds);
        let mut texts: Vec<&str> = pairs.filter(|(_, kind)| **kind == Kind::Control).map(|(text, _)| text.as_str()).collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts
    }

    /// A token of exactly this name.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<u32> {
        self.0.model.token_to_id(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::test_model;

    fn tokenizer() -> Tokenizer {
        Tokenizer::read(&Gguf::open(&test_model::path()).unwrap()).unwrap()
    }

    #[test]
    fn text_survives_the_round_trip() {
        let tokenizer = tokenizer();
        let texts = [
            "",
            "Hello, world!",
            "  two  spaces\n\n\tand a tab ",
            "Zürich kostet 1'234.50 CHF",
            "こんにちは世界。漢字かな交じり文",
            "नमस्ते दुनिया",
            "مرحبا بالعالم",
            "한국어 문장입니다",
            "🦀🇨🇭👩‍👩‍👧‍👦 emoji",
            "fn main() { println!(\"{}\", 0x1F); }",
            "e\u{301} is not \u{e9}",
        ];
        for text in texts {
            let tokens = tokenizer.encode(text).unwrap();
            assert_eq!(tokenizer.decode(&tokens), text);
            let mut stream = Detokenizer::default();
            let streamed: String = tokens.iter().map(|token| stream.push(tokenizer.bytes(*token))).collect();
            assert_eq!(streamed, text);
        }
    }

    #[test]
    fn known_tokens_of_the_default_model() {
        let tokenizer = tokenizer();
        assert_eq!(tokenizer.len(), 49_152);
        assert_eq!(tokenizer.encode("<|im_start|>user\n").unwrap(), [1, 4093, 198]);
        assert_eq!(tokenizer.encode("1234").unwrap().len(), 4, "smollm splits every digit");
        assert_eq!(tokenizer.encode_prompt("<|im_end|>").unwrap(), [2], "this model wants no begin token");
        assert!(tokenizer.is_end(2) && tokenizer.is_end(0) && !tokenizer.is_end(1));
        assert_eq!(tokenizer.ends(), [2, 0]);
        assert_eq!(tokenizer.frame(), ("<|im_start|>", "<|im_end|>"));
        assert!(tokenizer.is_control(1) && tokenizer.is_control(999_999) && !tokenizer.is_control(4093));
        assert!(tokenizer.bytes(1).is_empty());
        assert_eq!(tokenizer.find("<|im_end|>"), Some(2));
    }
}
