//! The tool loop: from what the person wrote to the model's last word, with every call through the gate.

mod arguments;
mod call;
mod draft;
mod plan;
mod run;
mod step;

use serde::{Deserialize, Serialize};

use crate::approval;
use crate::conversation::{Attachment, CallRecord, ConversationId, MessageId, Passage};
use crate::provider::{Finish, Sampling, ToolChoice, Usage};
use crate::tool::ServerId;

pub use arguments::{check as validate, exact};
pub use run::{Runner, Tools};

/// What the person sends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// The text.
    pub text: String,
    /// Documents attached to this message, already ingested.
    pub attachments: Vec<Attachment>,
    /// How to answer.
    pub options: Options,
}

/// How one turn is run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The model, by id or GGUF path; the default one where none is named.
    pub model: Option<String>,
    /// Whether tools may be called.
    pub tool_choice: ToolChoice,
    /// How tokens are chosen; the settings' values where none are given.
    pub sampling: Option<Sampling>,
    /// Only the tools of these servers; all where none are named.
    pub servers: Option<Vec<ServerId>>,
    /// Most tokens of one answer.
    pub max_tokens: Option<usize>,
}

/// What happens during a turn. `handrail-cli ask --json` prints these, one per line.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The person's message is stored and the model is asked.
    Started {
        /// The conversation.
        conversation: ConversationId,
        /// The person's message.
        user: MessageId,
        /// The model that answers.
        model: String,
    },
    /// Tools were chosen for this turn.
    Routed {
        /// The tools on offer, by alias.
        offered: Vec<String>,
        /// Why these.
        reason: String,
    },
    /// Passages were retrieved for the person's message.
    Retrieved {
        /// The passages, numbered.
        passages: Vec<Passage>,
        /// How they were found, and what was left out.
        reason: String,
    },
    /// The history does not fit the model's context whole.
    Trimmed {
        /// What was left out.
        reason: String,
    },
    /// A message of the model begins; a turn with tool calls has several.
    Answering {
        /// Its id.
        message: MessageId,
    },
    /// The prompt is being read.
    Prefill {
        /// Tokens done.
        done: usize,
        /// All tokens.
        total: usize,
        /// Of those, from the KV cache.
        reused: usize,
    },
    /// More text.
    Text {
        /// The message it belongs to.
        message: MessageId,
        /// The piece.
        text: String,
    },
    /// More reasoning.
    Reasoning {
        /// The message it belongs to.
        message: MessageId,
        /// The piece.
        text: String,
    },
    /// A tool call was made or changed its state.
    ToolCall {
        /// The message it belongs to.
        message: MessageId,
        /// The call and where it stands.
        record: CallRecord,
    },
    /// Progress of a running call.
    ToolProgress {
        /// Which call.
        call: crate::tool::CallId,
        /// Work done.
        done: f64,
        /// All of it, where known.
        total: Option<f64>,
        /// The server's words.
        message: Option<String>,
    },
    /// A call waits for the person.
    Approval {
        /// Which call.
        call: crate::tool::CallId,
        /// Why the person is asked.
        why: String,
    },
    /// The answer cites these passages.
    Cited {
        /// The message that cites.
        message: MessageId,
        /// The numbers of the passages.
        passages: Vec<usize>,
    },
    /// What one answer cost.
    Usage {
        /// The figures.
        usage: Usage,
    },
    /// The turn is over.
    Finished {
        /// The last message.
        message: MessageId,
        /// Why it ended.
        reason: Ended,
    },
}

/// Why a turn ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ended", rename_all = "snake_case")]
pub enum Ended {
    /// The model was done.
    Answered {
        /// Why its last answer ended.
        finish: Finish,
    },
    /// The person pressed Stop.
    Stopped,
    /// A limit of the loop was reached.
    Limit {
        /// Which.
        reason: String,
    },
    /// It broke off; what was written is kept.
    Failed {
        /// Why.
        reason: String,
    },
}

/// What a finished turn was.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The last message of the model.
    pub message: MessageId,
    /// Why it ended.
    pub ended: Ended,
}

/// Why a turn could not be run at all.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The database refused.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// There is no usable model.
    #[error(transparent)]
    Provider(#[from] crate::provider::Error),
    /// The gate is lost.
    #[error(transparent)]
    Approval(#[from] approval::Error),
    /// The engine is shutting down.
    #[error("Handrail is closing")]
    Closing,
}
