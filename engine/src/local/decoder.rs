//! The llama family as one decoder: Llama, SmolLM2 and Mistral (`llama`), Qwen 2 (`qwen2`) and Qwen 3 (`qwen3`) differ in
//! configuration only.
//!
//! A block is `x += out(attention(rope(norm(q)), rope(norm(k)), v))`, `x += down(silu(gate) * up)`, each behind an RMS norm
//! (Touvron et al., "LLaMA", 2023; Ainslie et al., "GQA", 2023).

mod config;
mod linear;
mod product;
mod rope;

use std::sync::Arc;

use candle_core::quantized::QTensor;
use candle_core::{D, Device, IndexOp, Result as Candle, Tensor};

use super::gguf::{Error, Gguf, brief};
use super::kv::{Cache, Shape};
pub use config::Config;
use linear::Linear;
use rope::Rope;

/// How one block normalises a vector.
#[derive(Debug)]
struct Norm {
    weight: Tensor,
    eps: f32,
}

impl Norm {
    fn read(gguf: &mut Gguf, name: &str, width: usize, eps: f32) -> Result<Self, Error> {
        let weight = gguf.tensor(name, &[width])?;
        let weight = weight.dequantize(&Device::Cpu).map_err(|e| gguf.damaged(format!("tensor '{name}': {}", brief(&e))))?;
        Ok(Self { weight, eps })
    }

    fn apply(&self, x: &Tensor) -> Candle<Tensor> {
        candle_nn::ops::rms_norm(x, &self.weight, self.eps)
    }
}

#[derive(Debug)]
struct Block {
    attention_norm: Norm,
    query: Linear,
    key: Linear,
    value: Linear,
    query_norm: Option<Norm>,
    key_norm: Option<Norm>,
    out: Linear,
    feed_norm: Norm,
    gate: Linear,
    up: Linear,
    down: Linear,
}

/// What came of a step.
#[derive(Debug)]
pub enum Step {
    /// The logits behind the last token, one per token of the vocabulary.
    Logits(Vec<f32>),
    /// It was stopped on the way; the cache is as it was before.
    Stopped,
}

/// The weights and how to apply them. It holds no state of a conversation: that is the [`Cache`].
#[derive(Debug)]
pub struct Decoder {
    config: Config,
    embedding: Arc<QTensor>,
    blocks: Vec<Block>,
    norm: Norm,
    output: Linear,
    rope: Rope,
    dense_from: usize,
}

impl Decoder {
    /// Reads the weights. Blocks while it reads.
    pub fn read(gguf: &mut Gguf) -> Result<Self, Error> {
        let config = Config::read(gguf)?;
        let rope = Rope::read(gguf, &config)?;
        let embedding = Arc::new(gguf.tensor("token_embd.weight", &[config.vocabulary, config.width])?);
        let output = if gguf.has_tensor("output.weight") {
            Linear::read(gguf, "output", config.vocabulary, config.width)?
        } else {
            Linear::new(Arc::clone(&embedding), None)
        };
        let norm = Norm::read(gguf, "output_norm.weight", config.width, config.eps)?;
        let blocks = (0..config.blocks).map(|index| Block::read(gguf, index, &config)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { config, embedding, blocks, norm, output, rope, dense_from: linear::DENSE_FROM })
    }

    /// The sizes of the model.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    #[cfg(test)]
    /// Batches of at least this many tokens multiply dequantized weights; smaller ones the quantized blocks.
    pub fn set_dense_from(&mut self, tokens: usize) {
        self.dense_from = tokens;
    }

    /// An empty cache for this model.
    pub fn cache(&self) -> Candle<Cache> {
        let shape = Shape { heads: self.config.kv_heads, width: self.config.head, context: self.config.context };
        Cache::new(self.config.blocks, shape)
    }

    /// Reads `tokens` behind what the cache holds and gives the logits behind the last. `stop` is asked before every
    /// block.
    pub fn step(&self, tokens: &[u32], cache: &mut Cache, stop: &dyn Fn() -> bool) -> Candle<Step> {
        let Some(x) = self.run(tokens, cache, stop)? else { return Ok(Step::Stopped) };
        let last = self.norm.apply(&x.i(tokens.len() - 1..)?)?;
        let logits = self.output.forward(&last, self.dense_from <= 1)?;
        Ok(Step::Logits(logits.flatten_all()?.to_vec1()?))
    }

    /// Like [`Self::step`] without the logits; false when it was stopped.
    pub fn skim(&self, tokens: &[u32], cache: &mut Cache, stop: &dyn Fn() -> bool) -> Candle<bool> {
        Ok(self.run(tokens, cache, stop)?.is_some())
    }

    fn run(&self, tokens: &[u32], cache: &mut Cache, stop: &dyn Fn() -> bool) -> Candle<Option<Tensor>> {
        if tokens.is_empty() {
            candle_core::bail!("a step needs a token");
        }
        cache.reserve(tokens.len())?;
        let ids = Tensor::new(tokens, &Device::Cpu)?;
        let mut x = self.embedding.embedding(&ids)?;
        let place = Place::new(&self.rope, cache.len(), tokens.len())?;
        let dense = tokens.len() >= self.dense_from;
        for (index, block) in self.blocks.iter().enumerate() {
            if stop() {
                return Ok(None);
            }
            x = block.forward(&x, index, cache, &self.config, &place, dense)?;
        }
        cache.commit(tokens.len());
        Ok(Some(x))
    }
}

/// Where the tokens of a step stand: their rotations, and what each may not see.
struct Place {
    cos: Tensor,
    sin: Tensor,
    mask: Option<Tensor>,
    neox: bool,
}

impl Place {
    fn new(rope: &Rope, start: usize, count: usize) -> Candle<Self> {
        let (cos, sin) = rope.rows(start, count)?;
        let mask = if count == 1 { None } else { Some(causal(start, count)?) };
        Ok(Self { cos, sin, mask, neox: rope.neox })
    }

    fn rotate(&self, x: &Tensor) -> Candle<Tensor> {
        let x = x.unsqueeze(0)?.contiguous()?;
        let turned = if self.neox {
            candle_nn::rotary_emb::rope(&x, &self.cos, &self.sin)?
        } else {
            candle_nn::rotary_emb::rope_i(&x, &self.cos, &self.sin)?
        };
        turned.squeeze(0)
    }
}

/// `[count, start + count]`: 0 where a token may look, minus infinity behind it.
fn causal(start: usize, count: usize) -> Candle<Tensor> {
    let total = start + count;
    let mut mask = vec![0f32; count * total];
    for (row, line) in mask.chunks_exact_mut(total).enumerate() {
        line[start + row + 1..].fill(f32::NEG_INFINITY);
    }
    Tensor::from_vec(mask, (count, total), &Device::Cpu)
}

impl Block {
    fn read(gguf: &mut Gguf, index: usize, config: &Config) -> Result<Self, Error> {
        let name = |part: &str| format!("blk.{index}.{part}");
        let (width, eps) = (config.width, config.eps);
        let queries = config.heads * config.head;
        let keys = config.kv_heads * config.head;
        let head_norm = |gguf: &mut Gguf, part: &str| -> Result<Option<Norm>, Error> {
            let name = name(part);
            if gguf.has_tensor(&name) { Norm::read(gguf, &name, config.head, eps).map(Some) } else { Ok(None) }
        };
        Ok(Self {
            attention_norm: Norm::read(gguf, &name("attn_norm.weight"), width, eps)?,
            query: Linear::read(gguf, &name("attn_q"), queries, width)?,
            key: Linear::read(gguf, &name("attn_k"), keys, width)?,
            value: Linear::read(gguf, &name("attn_v"), keys, width)?,
            query_norm: head_norm(gguf, "attn_q_norm.weight")?,
            key_norm: head_norm(gguf, "attn_k_norm.weight")?,
            out: Linear::read(gguf, &name("attn_output"), width, queries)?,
            feed_norm: Norm::read(gguf, &name("ffn_norm.weight"), width, eps)?,
            gate: Linear::read(gguf, &name("ffn_gate"), config.feed, width)?,
            up: Linear::read(gguf, &name("ffn_up"), config.feed, width)?,
            down: Linear::read(gguf, &name("ffn_down"), width, config.feed)?,
        })
    }

    fn forward(&self, x: &Tensor, index: usize, cache: &Cache, config: &Config, place: &Place, dense: bool) -> Candle<Tensor> {
        let normed = self.attention_norm.apply(x)?;
        let queries = split(&self.query.forward(&normed, dense)?, config.heads, self.query_norm.as_ref())?;
        let keys = split(&self.key.forward(&normed, dense)?, config.kv_heads, self.key_norm.as_ref())?;
        let values = split(&self.value.forward(&normed, dense)?, config.kv_heads, None)?;
        let queries = place.rotate(&queries)?;
        let (keys, values) = cache.append(index, &place.rotate(&keys)?, &values)?;
        let seen = attend(&queries, &keys, &values, place.mask.as_ref())?;
        let x = (x + self.out.forward(&seen, dense)?)?;
        let normed = self.feed_norm.apply(&x)?;
        let gate = candle_nn::ops::silu(&self.gate.forward(&normed, dense)?)?;
        let fed = (gate * self.up.forward(&normed, dense)?)?;
        x + self.down.forward(&fed, dense)?
    }
}

/// `[tokens, heads * width]` as `[heads, tokens, width]`, each head normalised where the model does that.
fn split(x: &Tensor, heads: usize, norm: Option<&Norm>) -> Candle<Tensor> {
    let (tokens, width) = x.dims2()?;
    let x = x.reshape((tokens, heads, width / heads))?;
    let x = match norm {
        Some(norm) => norm.apply(&x)?,
        None => x,
    };
    x.transpose(0, 1)
}

/// Softmax attention of queries `[heads, tokens, width]` over keys and values `[kv heads, positions, width]`; query heads
/// in a row share a key head, so they go through one product without a copy of the keys. Gives `[tokens, heads * width]`.
fn attend(queries: &Tensor, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>) -> Candle<Tensor> {
    let (heads, tokens, width) = queries.dims3()?;
    let (kv_heads, positions, _) = keys.dims3()?;
    let rows = heads / kv_heads * tokens;
    #[allow(clippy::cast_precision_loss)]
    let scale = 1.0 / (width as f64).sqrt();
    let queries = (queries * scale)?.reshape((kv_heads, rows, width))?;
    let scores = queries.matmul(&keys.transpose(D::Minus2, D::Minus1)?)?;
    let scores = match mask {
        Some(mask) => scores.reshape((heads, tokens, positions))?.broadcast_add(mask)?,
        None => scores,
    };
    let shares = candle_nn::ops::softmax_last_dim(&scores)?.reshape((kv_heads, rows, positions))?;
    let seen = shares.matmul(values)?.reshape((heads, tokens, width))?;
    seen.transpose(0, 1)?.reshape((tokens, heads * width))
}

#[cfg(test)]
mod tests;
