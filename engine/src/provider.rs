//! One face for every model: a request goes in, a stream of deltas comes out.

pub mod scripted;

use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

/// A model that answers requests. Implemented by the local engine, by remote endpoints and by the scripted fake.
pub trait Provider: Send + Sync + std::fmt::Debug {
    /// The model's id, as stored with each message.
    fn id(&self) -> &str;

    /// What the model can do.
    fn capabilities(&self) -> Capabilities;

    /// How many tokens the whole request costs, by the model's own tokenizer and template; `None` where only the
    /// server knows.
    fn count(&self, request: &Request) -> Option<usize>;

    /// Answers. The stream ends after [`Delta::Finished`] or an error; dropping it or firing `cancel` stops the
    /// model within one token.
    fn stream(&self, request: Request, cancel: CancellationToken) -> BoxStream<'static, Result<Delta, Error>>;
}

/// What a model can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Tokens in its context window.
    pub context: usize,
    /// How it calls tools.
    pub tools: ToolSupport,
}

/// How a model calls tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolSupport {
    /// It was trained to, and decides well by itself.
    Native,
    /// Its calls are valid because they are decoded under a grammar, but it needs help to decide when to call.
    Constrained,
    /// Not at all.
    None,
}

/// One request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The conversation, oldest first.
    pub messages: Vec<ChatMessage>,
    /// The tools on offer, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// Whether the model may, must or must not call a tool.
    pub tool_choice: ToolChoice,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Most tokens to write.
    pub max_tokens: Option<usize>,
    /// A key under which the model may keep its KV cache (the conversation's id).
    pub cache_key: Option<String>,
}

/// One message of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum ChatMessage {
    /// Instructions.
    System(String),
    /// The person.
    User(String),
    /// The model.
    Assistant {
        /// Its text.
        text: String,
        /// Its calls.
        calls: Vec<WireCall>,
    },
    /// The result of a call.
    Tool {
        /// Which call.
        call_id: String,
        /// Which tool, by the name the model knows.
        name: String,
        /// The result as text.
        text: String,
    },
}

/// A call as a model writes it.
#[derive(Clone, Debug, PartialEq)]
pub struct WireCall {
    /// The call's id.
    pub id: String,
    /// The tool's alias.
    pub name: String,
    /// The arguments.
    pub arguments: Value,
}

/// A tool as a model sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolSpec {
    /// Its alias.
    pub name: String,
    /// Its description.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: Value,
}

/// Whether tools may be called.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// No calls.
    None,
    /// One call of any tool on offer.
    Required,
    /// One call of this tool, by its alias.
    Named(String),
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: usize,
    /// Keep the most likely tokens up to this mass.
    pub top_p: f32,
    /// Drop tokens below this share of the best one.
    pub min_p: f32,
    /// Divides the logits of recent tokens; 1 does nothing.
    pub repeat_penalty: f32,
    /// The same seed gives the same text.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.2, top_k: 40, top_p: 0.95, min_p: 0.05, repeat_penalty: 1.1, seed: 0 }
    }
}

/// One step of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Delta {
    /// The prompt is being read: tokens done of all; `reused` came from the KV cache.
    Prefill {
        /// Tokens evaluated or reused so far.
        done: usize,
        /// All tokens of the prompt.
        total: usize,
        /// Tokens taken from the cache.
        reused: usize,
    },
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// A call begins.
    CallStarted {
        /// Position among the calls of this answer.
        index: usize,
        /// Its id, where the model gave one.
        id: Option<String>,
        /// The tool's alias.
        name: String,
    },
    /// More of a call's arguments.
    CallArguments {
        /// Which call.
        index: usize,
        /// A piece of JSON text.
        fragment: String,
    },
    /// The answer ends.
    Finished {
        /// Why.
        reason: Finish,
        /// What it cost.
        usage: Usage,
    },
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model was done.
    Stop,
    /// It reached the token limit or the end of its context.
    Length,
    /// It called tools.
    Calls,
    /// It was cancelled.
    Cancelled,
}

/// What an answer cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, taken from the KV cache.
    pub cached_tokens: usize,
    /// Tokens written.
    pub completion_tokens: usize,
    /// Milliseconds until the first token.
    pub first_token_ms: f64,
    /// Tokens per second while writing.
    pub tokens_per_second: f64,
}

/// Why a model gave no answer, or only a part of it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such model, or it could not be loaded.
    #[error("the model '{model}' cannot be used: {reason}")]
    Unavailable {
        /// The model's id.
        model: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The request does not fit the context window.
    #[error("the request needs {needed} tokens, the model's context holds {context}")]
    TooLong {
        /// Tokens of the request.
        needed: usize,
        /// Tokens of the context window.
        context: usize,
    },
    /// The request itself is wrong (an impossible schema, an unknown tool).
    #[error("the request cannot be answered: {0}")]
    Request(String),
    /// The model broke down on the way.
    #[error("the model stopped: {0}")]
    Broken(String),
}
