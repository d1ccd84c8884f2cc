//! Models that run inside this process: catalogue, download, GGUF, the decoder and its KV cache, sampling under a
//! grammar, on candle.

pub mod bench;
pub mod catalogue;
pub mod chat;
pub mod download;
pub mod encoder;

mod answer;
mod call;
mod constraint;
mod decoder;
mod gguf;
mod kv;
mod memory;
mod models;
mod sampler;
mod splitter;
mod template;
#[cfg(test)]
mod test_model;
mod tokenizer;
mod worker;

pub use models::{ModelState, ModelView, Models, TemplateView};
pub use template::{TemplateChoice, TemplateUse};
