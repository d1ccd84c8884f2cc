//! What a server may ask our model, once the person agreed to it.

use futures::future::BoxFuture;

/// Lets a model write for a server. The engine gives one to the manager.
pub trait Sampler: Send + Sync + std::fmt::Debug {
    /// Writes. Dropping the future stops the model.
    fn sample(&self, request: SampleRequest) -> BoxFuture<'static, Result<Sample, String>>;
}

/// What a server wants to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampleRequest {
    /// Instructions for the model.
    pub system: Option<String>,
    /// The conversation, oldest first.
    pub messages: Vec<SampleMessage>,
    /// The most tokens to write.
    pub max_tokens: u32,
    /// How tokens are chosen, where the server wishes something.
    pub temperature: Option<f32>,
    /// Texts at which to stop.
    pub stop: Vec<String>,
}

/// One message of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleMessage {
    /// Whether the model is to have said it; else the person.
    pub assistant: bool,
    /// What it says.
    pub text: String,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Which model wrote it.
    pub model: String,
    /// The text.
    pub text: String,
    /// Whether it ended because the tokens were used up.
    pub cut: bool,
}
