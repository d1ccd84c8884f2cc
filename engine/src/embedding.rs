//! Text to vectors: the trait, and the BERT-family encoder on candle behind it.

/// Turns texts into vectors of one length. Calls block: run them off the async threads.
pub trait Embedder: Send + Sync + std::fmt::Debug {
    /// The model's id; vectors of different models are never compared.
    fn model(&self) -> &str;

    /// The length of its vectors.
    fn dimension(&self) -> usize;

    /// Most tokens it sees of one text, special tokens left out.
    fn window(&self) -> usize;

    /// The byte ranges of the text's tokens, in order, without truncation and special tokens: what chunking counts.
    fn token_spans(&self, text: &str) -> Result<Vec<(usize, usize)>, Error>;

    /// One normalised vector per text. A non-finite vector is an error that names the text's position.
    fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Error>;
}

/// Why a text has no vector.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The model's files are missing or broken.
    #[error("the embedding model cannot be loaded: {0}")]
    Load(String),
    /// The tokenizer refused the text.
    #[error("text {position} cannot be tokenized: {reason}")]
    Tokenize {
        /// Position in the batch.
        position: usize,
        /// Why.
        reason: String,
    },
    /// The model gave NaN or infinity.
    #[error("text {0} gave a vector that is not finite")]
    NotFinite(usize),
    /// The computation failed.
    #[error("the embedding failed: {0}")]
    Compute(String),
}
