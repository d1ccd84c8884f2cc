//! The BERT-family encoder on candle: mean of the last layer over the text's tokens, normalised.
//!
//! Parallelism: candle's matrix products run on rayon's global pool through the `gemm` crate; softmax, layer norm
//! and the activation are candle's own element loops.

use std::path::Path;
use std::sync::Arc;

use candle_core::{D, DType, Device, IndexOp as _, Module as _, Result, Tensor};
use candle_nn::{Embedding, LayerNorm, Linear, VarBuilder};
use serde::Deserialize;
use tokenizers::{Tokenizer, TruncationDirection};

use crate::embedding::{Embedder, Error};

/// Tokens of one text that are seen, special ones included. The models this encoder is for were trained with it
/// (`max_seq_length` of all-MiniLM-L6-v2); their position table is larger.
const WINDOW: usize = 256;
/// Tokens of one batch, padding included. It bounds the memory (the widest tensor takes 6 MB with 1,536 columns);
/// larger batches were not faster, they only cost page faults.
const BATCH_TOKENS: usize = 1024;
/// Bounds of a configuration that can be meant.
const MOST_LAYERS: usize = 64;

/// Loads the encoder in this folder (`model.safetensors`, `config.json`, `tokenizer.json`). Blocks.
pub fn load(id: &str, folder: &Path) -> std::result::Result<Arc<dyn Embedder>, Error> {
    let read = |name: &str| {
        let path = folder.join(name);
        std::fs::read(&path).map_err(|error| Error::Load(format!("{id}: {} cannot be read: {error}", path.display())))
    };
    let broken = |name: &str, reason: String| Error::Load(format!("{id}: {} is broken: {reason}", folder.join(name).display()));
    let config: Config = serde_json::from_slice(&read("config.json")?).map_err(|error| broken("config.json", error.to_string()))?;
    config.check().map_err(|reason| broken("config.json", reason))?;
    let mut tokenizer = Tokenizer::from_bytes(read("tokenizer.json")?).map_err(|error| broken("tokenizer.json", error.to_string()))?;
    // The shipped file cuts at 128 tokens and pads to 128: both are decided here, per batch.
    let _ = tokenizer.with_padding(None);
    let _ = tokenizer.with_truncation(None).map_err(|error| broken("tokenizer.json", error.to_string()))?;
    let bert = VarBuilder::from_buffered_safetensors(read("model.safetensors")?, DType::F32, &Device::Cpu)
        .and_then(|weights| Bert::load(&weights, &config))
        .map_err(|error| broken("model.safetensors", error.to_string()))?;
    let special = tokenizer.encode("", true).map_or(0, |encoding| encoding.len());
    let window = WINDOW.min(config.max_position_embeddings).saturating_sub(special);
    if window == 0 {
        return Err(broken("config.json", "max_position_embeddings leaves no room for a text".to_owned()));
    }
    Ok(Arc::new(Encoder { id: id.to_owned(), tokenizer, window, dimension: config.hidden_size, padding: config.pad_token_id, bert }))
}

#[derive(Clone, Debug, Deserialize)]
struct Config {
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    hidden_act: Activation,
    max_position_embeddings: usize,
    type_vocab_size: usize,
    layer_norm_eps: f64,
    #[serde(default)]
    pad_token_id: u32,
    /// Only read so that another kind of positions is refused.
    #[serde(default, rename = "position_embedding_type")]
    _positions: Positions,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Activation {
    /// x Φ(x) with the exact error function (Hendrycks and Gimpel, arXiv 1606.08415).
    Gelu,
    /// Its tanh approximation, from the same paper.
    #[serde(alias = "gelu_pytorch_tanh", alias = "gelu_fast")]
    GeluNew,
    Relu,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Positions {
    #[default]
    Absolute,
}

impl Config {
    fn check(&self) -> std::result::Result<(), String> {
        if self.num_attention_heads == 0 || !self.hidden_size.is_multiple_of(self.num_attention_heads) || self.hidden_size == 0 {
            return Err("hidden_size must be a multiple of num_attention_heads".to_owned());
        }
        if !(1..=MOST_LAYERS).contains(&self.num_hidden_layers) {
            return Err(format!("num_hidden_layers must be from 1 to {MOST_LAYERS}"));
        }
        if self.type_vocab_size == 0 || self.pad_token_id as usize >= self.vocab_size {
            return Err("type_vocab_size must be at least 1 and pad_token_id below vocab_size".to_owned());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Encoder {
    id: String,
    tokenizer: Tokenizer,
    window: usize,
    dimension: usize,
    padding: u32,
    bert: Bert,
}

impl Embedder for Encoder {
    fn model(&self) -> &str {
        &self.id
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn window(&self) -> usize {
        self.window
    }

    fn token_spans(&self, text: &str) -> std::result::Result<Vec<(usize, usize)>, Error> {
        let encoding = self.tokenizer.encode(text, false).map_err(|error| Error::Tokenize { position: 0, reason: error.to_string() })?;
        Ok(encoding.get_offsets().to_vec())
    }

    fn embed(&self, texts: &[&str]) -> std::result::Result<Vec<Vec<f32>>, Error> {
        let mut rows = Vec::with_capacity(texts.len());
        for (position, text) in texts.iter().enumerate() {
            rows.push((position, self.tokens(text).map_err(|reason| Error::Tokenize { position, reason })?));
        }
        // Texts of like length share a batch, so that little of it is padding.
        rows.sort_by_key(|(_, tokens)| std::cmp::Reverse(tokens.len()));
        let mut vectors = vec![Vec::new(); texts.len()];
        let mut rest = rows.as_slice();
        while let Some((_, longest)) = rest.first() {
            let (batch, later) = rest.split_at(rest.len().min((BATCH_TOKENS / longest.len().max(1)).max(1)));
            rest = later;
            let embedded = self.batch(batch).map_err(|error| Error::Compute(error.to_string()))?;
            for ((position, _), vector) in batch.iter().zip(embedded) {
                if !vector.iter().all(|value| value.is_finite()) {
                    return Err(Error::NotFinite(*position));
                }
                vectors[*position] = vector;
            }
        }
        Ok(vectors)
    }
}

impl Encoder {
    /// The text's token ids with the special ones, cut to the window.
    fn tokens(&self, text: &str) -> std::result::Result<Vec<u32>, String> {
        let mut encoding = self.tokenizer.encode(text, false).map_err(|error| error.to_string())?;
        encoding.truncate(self.window, 0, TruncationDirection::Right);
        let whole = self.tokenizer.post_process(encoding, None, true).map_err(|error| error.to_string())?;
        Ok(whole.get_ids().to_vec())
    }

    fn batch(&self, rows: &[(usize, Vec<u32>)]) -> Result<Vec<Vec<f32>>> {
        let longest = rows.iter().map(|(_, tokens)| tokens.len()).max().unwrap_or(0);
        let mut ids = Vec::with_capacity(rows.len() * longest);
        let mut mask = Vec::with_capacity(rows.len() * longest);
        for (_, tokens) in rows {
            let padding = longest - tokens.len();
            ids.extend(tokens.iter().copied().chain(std::iter::repeat_n(self.padding, padding)));
            mask.extend(std::iter::repeat_n(1f32, tokens.len()).chain(std::iter::repeat_n(0f32, padding)));
        }
        let shape = (rows.len(), longest);
        let ids = Tensor::from_vec(ids, shape, &Device::Cpu)?;
        let mask = Tensor::from_vec(mask, shape, &Device::Cpu)?;
        let hidden = self.bert.forward(&ids, &mask)?;
        let weights = mask.unsqueeze(2)?;
        let mean = hidden.broadcast_mul(&weights)?.sum(1)?.broadcast_div(&weights.sum(1)?)?;
        let norm = mean.sqr()?.sum_keepdim(1)?.sqrt()?;
        mean.broadcast_div(&norm)?.to_vec2()
    }
}

/// The encoder of BERT (Devlin et al., arXiv 1810.04805): post-norm layers over word, position and type embeddings.
#[derive(Debug)]
struct Bert {
    words: Embedding,
    positions: Tensor,
    /// The first row of the type table: a lone text is all of type 0.
    kind: Tensor,
    norm: LayerNorm,
    layers: Vec<Layer>,
    heads: usize,
    activation: Activation,
}

#[derive(Debug)]
struct Layer {
    /// Query, key and value in one product.
    qkv: Linear,
    output: Linear,
    attention_norm: LayerNorm,
    up: Linear,
    down: Linear,
    norm: LayerNorm,
}

impl Bert {
    fn load(weights: &VarBuilder<'_>, config: &Config) -> Result<Self> {
        // Some exports put the encoder below this name.
        let prefixed = weights.contains_tensor("bert.embeddings.word_embeddings.weight");
        let root = if prefixed { weights.pp("bert") } else { weights.clone() };
        let (hidden, tables) = (config.hidden_size, root.pp("embeddings"));
        let words = tables.get((config.vocab_size, hidden), "word_embeddings.weight")?;
        let positions = tables.get((config.max_position_embeddings, hidden), "position_embeddings.weight")?;
        let kind = tables.get((config.type_vocab_size, hidden), "token_type_embeddings.weight")?.i(0)?;
        let norm = candle_nn::layer_norm(hidden, config.layer_norm_eps, tables.pp("LayerNorm"))?;
        let layers = (0..config.num_hidden_layers)
            .map(|index| Layer::load(&root.pp("encoder").pp("layer").pp(index), config))
            .collect::<Result<_>>()?;
        let (heads, activation) = (config.num_attention_heads, config.hidden_act);
        Ok(Self { words: Embedding::new(words, hidden), positions, kind, norm, layers, heads, activation })
    }

    /// The last layer for a batch of ids (batch × length); `mask` is 1 for tokens and 0 for padding.
    fn forward(&self, ids: &Tensor, mask: &Tensor) -> Result<Tensor> {
        let (_, length) = ids.dims2()?;
        let places = self.positions.narrow(0, 0, length)?.broadcast_add(&self.kind)?;
        let mut hidden = self.norm.forward(&self.words.forward(ids)?.broadcast_add(&places)?)?;
        // Padding gets a score so low that its share is exactly 0 after the softmax.
        let bias = mask.affine(f64::from(f32::MAX), -f64::from(f32::MAX))?.unsqueeze(1)?.unsqueeze(1)?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden, &bias, self.heads, self.activation)?;
        }
        Ok(hidden)
    }
}

impl Layer {
    fn load(weights: &VarBuilder<'_>, config: &Config) -> Result<Self> {
        let (hidden, wide, eps) = (config.hidden_size, config.intermediate_size, config.layer_norm_eps);
        let attention = weights.pp("attention");
        let parts = ["query", "key", "value"].map(|name| attention.pp("self").pp(name));
        let matrices = parts.iter().map(|part| part.get((hidden, hidden), "weight")).collect::<Result<Vec<_>>>()?;
        let biases = parts.iter().map(|part| part.get(hidden, "bias")).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            qkv: Linear::new(Tensor::cat(&matrices, 0)?, Some(Tensor::cat(&biases, 0)?)),
            output: candle_nn::linear(hidden, hidden, attention.pp("output").pp("dense"))?,
            attention_norm: candle_nn::layer_norm(hidden, eps, attention.pp("output").pp("LayerNorm"))?,
            up: candle_nn::linear(hidden, wide, weights.pp("intermediate").pp("dense"))?,
            down: candle_nn::linear(wide, hidden, weights.pp("output").pp("dense"))?,
            norm: candle_nn::layer_norm(hidden, eps, weights.pp("output").pp("LayerNorm"))?,
        })
    }

    fn forward(&self, hidden: &Tensor, bias: &Tensor, heads: usize, activation: Activation) -> Result<Tensor> {
        let attended = self.output.forward(&self.attend(hidden, bias, heads)?)?;
        let hidden = self.attention_norm.forward(&(attended + hidden)?)?;
        let wide = self.up.forward(&hidden)?;
        let wide = match activation {
            Activation::Gelu => wide.gelu_erf()?,
            Activation::GeluNew => wide.gelu()?,
            Activation::Relu => wide.relu()?,
        };
        self.norm.forward(&(self.down.forward(&wide)? + hidden)?)
    }

    fn attend(&self, hidden: &Tensor, bias: &Tensor, heads: usize) -> Result<Tensor> {
        let (batch, length, width) = hidden.dims3()?;
        let size = width / heads;
        // batch × length × (3 · heads · size)  ->  3 × batch × heads × length × size
        let split = self.qkv.forward(hidden)?.reshape((batch, length, 3, heads, size))?.permute((2, 0, 3, 1, 4))?;
        let [query, key, value] = [split.i(0)?.contiguous()?, split.i(1)?.contiguous()?, split.i(2)?.contiguous()?];
        #[allow(clippy::cast_precision_loss)]
        let scale = 1.0 / (size as f64).sqrt();
        let scores = (query.matmul(&key.transpose(D::Minus2, D::Minus1)?)? * scale)?.broadcast_add(bias)?;
        let shares = candle_nn::ops::softmax_last_dim(&scores)?;
        shares.matmul(&value)?.transpose(1, 2)?.reshape((batch, length, width))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_that_cannot_be_meant_is_refused() {
        let text = r#"{"vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 4,
            "hidden_act": "gelu", "max_position_embeddings": 16, "type_vocab_size": 2, "layer_norm_eps": 1e-12}"#;
        let config: Config = serde_json::from_str(text).unwrap();
        assert!(config.check().unwrap_err().contains("multiple"));
        let relative = text.replacen('{', r#"{"position_embedding_type": "relative_key", "#, 1);
        assert!(serde_json::from_str::<Config>(&relative).unwrap_err().to_string().contains("relative_key"));
    }

    #[test]
    fn missing_and_broken_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = load("m", folder.path()).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains("cannot be read"), "{error}");
        std::fs::write(folder.path().join("config.json"), "{").unwrap();
        let error = load("m", folder.path()).unwrap_err().to_string();
        assert!(error.contains("config.json") && error.contains("is broken"), "{error}");
    }
}
