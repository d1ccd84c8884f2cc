//! The sizes of a model, from the metadata of its file.

use super::super::gguf::{Error, Gguf};

/// The architectures that the decoder covers.
pub const ARCHITECTURES: [&str; 3] = ["llama", "qwen2", "qwen3"];

/// Sizes and constants of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Blocks.
    pub blocks: usize,
    /// Numbers per token between blocks.
    pub width: usize,
    /// Heads that ask.
    pub heads: usize,
    /// Heads that are asked; divides `heads`.
    pub kv_heads: usize,
    /// Numbers per head.
    pub head: usize,
    /// Numbers per token inside the feed-forward part.
    pub feed: usize,
    /// Most positions.
    pub context: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Added under the root of every RMS norm.
    pub eps: f32,
}

impl Config {
    /// Reads and checks them.
    pub fn read(gguf: &Gguf) -> Result<Self, Error> {
        let architecture = gguf.architecture()?.to_owned();
        if !ARCHITECTURES.contains(&architecture.as_str()) {
            let known = ARCHITECTURES.join(", ");
            return Err(gguf.unsupported(format!("its architecture is '{architecture}'; supported are {known}")));
        }
        let key = |name: &str| format!("{architecture}.{name}");
        let heads = gguf.number(&key("attention.head_count"))?;
        let width = gguf.number(&key("embedding_length"))?;
        let config = Self {
            blocks: gguf.number(&key("block_count"))?,
            kv_heads: optional(gguf, &key("attention.head_count_kv"))?.unwrap_or(heads),
            head: match optional(gguf, &key("attention.key_length"))? {
                Some(head) => head,
                None => width.checked_div(heads).unwrap_or(0),
            },
            feed: gguf.number(&key("feed_forward_length"))?,
            context: gguf.number(&key("context_length"))?,
            vocabulary: gguf.shape("token_embd.weight")?.first().copied().unwrap_or(0),
            eps: gguf.real(&key("attention.layer_norm_rms_epsilon"))?,
            architecture: architecture.clone(),
            width,
            heads,
        };
        config.check(gguf)?;
        if optional(gguf, &key("expert_count"))?.unwrap_or(0) > 1 {
            return Err(gguf.unsupported("it is a mixture of experts; only dense models are supported".to_owned()));
        }
        Ok(config)
    }

    fn check(&self, gguf: &Gguf) -> Result<(), Error> {
        let sizes = [
            ("block_count", self.blocks, 1_024),
            ("embedding_length", self.width, 1 << 17),
            ("attention.head_count", self.heads, 1_024),
            ("attention.head_count_kv", self.kv_heads, 1_024),
            ("attention.key_length", self.head, 1_024),
            ("feed_forward_length", self.feed, 1 << 20),
            ("context_length", self.context, 1 << 24),
            ("vocabulary", self.vocabulary, 1 << 22),
        ];
        if let Some((name, size, most)) = sizes.iter().find(|(_, size, most)| !(1..=*most).contains(size)) {
            return Err(gguf.damaged(format!("its {name} is {size}; 1 to {most} can be true")));
        }
        if !self.heads.is_multiple_of(self.kv_heads) || !self.head.is_multiple_of(2) {
            let what = format!("{} heads of {} numbers do not share {} key heads", self.heads, self.head, self.kv_heads);
            return Err(gguf.damaged(what));
        }
        Ok(())
    }
}

fn optional(gguf: &Gguf, key: &str) -> Result<Option<usize>, Error> {
    match gguf.number(key) {
        Ok(number) => Ok(Some(number)),
        Err(Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
