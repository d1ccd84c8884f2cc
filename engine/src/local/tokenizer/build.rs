//! The `tokenizers` pipeline of a GGUF vocabulary.

use std::collections::HashMap;

use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::normalizers::{NFC, Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::digits::Digits;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::super::gguf::{Error, Gguf};
use super::{Kind, bytes};

/// Most tokens. The largest vocabulary in use has 262,144.
const MOST: usize = 1 << 21;

/// Splits before merging, by `tokenizer.ggml.pre`. Numbers: at most three digits together for Llama 3, each digit alone
/// for Qwen. These are the patterns that the models were trained with.
const LLAMA_3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The vocabulary as the file has it.
pub(super) struct Vocabulary {
    pub(super) texts: Vec<String>,
    pub(super) kinds: Vec<Kind>,
    pub(super) sentence_piece: bool,
    pub(super) space_prefix: bool,
}

impl Vocabulary {
    pub(super) fn read(gguf: &Gguf) -> Result<Self, Error> {
        let sentence_piece = match gguf.text("tokenizer.ggml.model")? {
            "gpt2" => false,
            "llama" => true,
            other => return Err(gguf.unsupported(format!("its tokenizer is '{other}'; supported are 'gpt2' and 'llama'"))),
        };
        let texts: Vec<String> = gguf.texts("tokenizer.ggml.tokens")?.into_iter().map(str::to_owned).collect();
        if texts.is_empty() || texts.len() > MOST {
            return Err(gguf.damaged(format!("its vocabulary has {} tokens", texts.len())));
        }
        let kinds = match gguf.numbers("tokenizer.ggml.token_type") {
            Ok(kinds) if kinds.len() == texts.len() => kinds.into_iter().map(kind).collect(),
            Ok(kinds) => return Err(gguf.damaged(format!("{} tokens have {} types", texts.len(), kinds.len()))),
            Err(Error::Missing { .. }) => vec![Kind::Text; texts.len()],
            Err(error) => return Err(error),
        };
        let space_prefix = sentence_piece && gguf.flag("tokenizer.ggml.add_space_prefix").unwrap_or(true);
        Ok(Self { texts, kinds, sentence_piece, space_prefix })
    }

    /// The bytes of every token.
    pub(super) fn bytes(&self) -> Vec<Vec<u8>> {
        let spell = |(text, kind): (&String, &Kind)| match kind {
            Kind::Text if self.sentence_piece => bytes::of_piece(text),
            Kind::Text => bytes::of_byte_level(text),
            Kind::Control | Kind::Fixed => text.clone().into_bytes(),
        };
        self.texts.iter().zip(&self.kinds).map(spell).collect()
    }

    pub(super) fn model(&self, gguf: &Gguf) -> Result<tokenizers::Tokenizer, Error> {
        let merges = if self.sentence_piece { self.merges_by_score(&gguf.reals("tokenizer.ggml.scores")?) } else { merges(gguf)? };
        let pre = if self.sentence_piece { "llama" } else { gguf.text("tokenizer.ggml.pre").unwrap_or("default") };
        let vocabulary: Vocab = self.texts.iter().cloned().zip(0u32..).collect();
        let mut bpe = BPE::builder().vocab_and_merges(vocabulary, merges).ignore_merges(pre.starts_with("llama") && !self.sentence_piece);
        if self.sentence_piece {
            bpe = bpe.byte_fallback(true).fuse_unk(true);
        }
        let fault = |e: tokenizers::Error| gguf.damaged(format!("its vocabulary does not fit together: {e}"));
        let mut model = tokenizers::Tokenizer::new(bpe.build().map_err(fault)?);
        if self.sentence_piece { self.split_pieces(&mut model) } else { split_bytes(&mut model, pre) }
            .map_err(fault)?
            .map_err(|what| gguf.unsupported(what))?;
        let added = |wanted: Kind, special: bool| {
            let pairs = self.texts.iter().zip(&self.kinds);
            let texts = pairs.filter(move |(text, kind)| **kind == wanted && !text.is_empty()).map(|(text, _)| text.clone());
            texts.map(move |text| AddedToken::from(text, special).normalized(false)).collect::<Vec<_>>()
        };
        let _ = model.add_special_tokens(added(Kind::Control, true)).map_err(fault)?;
        let _ = model.add_tokens(added(Kind::Fixed, false)).map_err(fault)?;
        Ok(model)
    }

    fn split_pieces(&self, model: &mut tokenizers::Tokenizer) -> tokenizers::Result<Result<(), String>> {
        let mut steps = Vec::new();
        if self.space_prefix {
            steps.push(Prepend::new("\u{2581}".to_owned()).into());
        }
        steps.push(Replace::new(" ", "\u{2581}")?.into());
        let _ = model.with_normalizer(Some(Normalizers::new(steps)))?;
        Ok(Ok(()))
    }

    /// SentencePiece merges the pair whose union scores best, so every way to halve a piece is a merge, ranked by that
    /// piece's score.
    fn merges_by_score(&self, scores: &[f32]) -> Merges {
        let ids: HashMap<&str, usize> = self.texts.iter().map(String::as_str).zip(0..).collect();
        let mut ranked = Vec::new();
        for (text, (score, kind)) in self.texts.iter().zip(scores.iter().zip(&self.kinds)) {
            // Longer pieces than this would make the list quadratic in the longest token of a hostile file.
            if *kind != Kind::Text || text.len() > 256 {
                continue;
            }
            for (at, _) in text.char_indices().skip(1) {
                let (left, right) = text.split_at(at);
                if let (Some(l), Some(r)) = (ids.get(left), ids.get(right)) {
                    ranked.push((*score, *l, *r, left, right));
                }
            }
        }
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)).then(a.2.cmp(&b.2)));
        ranked.into_iter().map(|(_, _, _, left, right)| (left.to_owned(), right.to_owned())).collect()
    }
}

fn kind(number: u32) -> Kind {
    match number {
        2 | 3 | 5 => Kind::Control,
        4 => Kind::Fixed,
        _ => Kind::Text,
    }
}

fn merges(gguf: &Gguf) -> Result<Merges, Error> {
    let pair = |line: &str| line.split_once(' ').map(|(left, right)| (left.to_owned(), right.to_owned()));
    let merges: Option<Merges> = gguf.texts("tokenizer.ggml.merges")?.into_iter().map(pair).collect();
    merges.ok_or_else(|| gguf.damaged("one of its merges is not a pair".to_owned()))
}

fn split_bytes(model: &mut tokenizers::Tokenizer, pre: &str) -> tokenizers::Result<Result<(), String>> {
    let bytes = |regex: bool| PreTokenizerWrapper::from(ByteLevel::new(false, false, regex));
    let pattern = |pattern: &str| -> tokenizers::Result<PreTokenizerWrapper> {
        let pattern = SplitPattern::Regex(pattern.to_owned());
        Ok(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into())
    };
    let steps = match pre {
        "default" | "gpt-2" | "gpt2" => vec![bytes(true)],
        "smollm" => vec![Digits::new(true).into(), bytes(true)],
        "llama-bpe" | "llama3" | "llama-v3" => vec![pattern(LLAMA_3)?, bytes(false)],
        "qwen2" => {
            let _ = model.with_normalizer(Some(NFC))?;
            vec![pattern(QWEN_2)?, bytes(false)]
        }
        other => {
            return Ok(Err(format!("it splits text by '{other}'; supported are default, gpt-2, smollm, llama-bpe and qwen2")));
        }
    };
    let _ = model.with_pre_tokenizer(Some(Sequence::new(steps)));
    Ok(Ok(()))
}
