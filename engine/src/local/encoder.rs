//! The BERT-family encoder on candle. Skeleton.

use std::path::Path;
use std::sync::Arc;

use crate::embedding::{Embedder, Error};

/// Loads the encoder in this folder (`model.safetensors`, `config.json`, `tokenizer.json`). Blocks.
pub fn load(id: &str, _folder: &Path) -> Result<Arc<dyn Embedder>, Error> {
    Err(Error::Load(id.to_owned()))
}
