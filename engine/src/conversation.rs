//! What a conversation is made of: pure data, as it is stored and as the screen shows it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::tool::{Call, CallResult};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl $name {
            /// A fresh id; later ids sort after earlier ones.
            #[must_use]
            pub fn fresh() -> Self {
                Self(Uuid::now_v7())
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// A conversation's id.
    ConversationId
);
id!(
    /// A message's id.
    MessageId
);
id!(
    /// A document's id.
    DocumentId
);

/// A conversation without its messages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its id.
    pub id: ConversationId,
    /// Its title; empty until the first message named it.
    pub title: String,
    /// The model it was last used with.
    pub model: Option<String>,
    /// When it was begun.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person.
    User,
    /// The model; its tool calls and their results are parts of its messages.
    Assistant,
}

/// Where a message stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Status {
    /// Being written. Found in the database after a crash it means: interrupted.
    Streaming,
    /// Whole.
    Complete,
    /// The person pressed Stop, or the app ended.
    Stopped,
    /// It broke off.
    Failed {
        /// Why, in one sentence.
        reason: String,
    },
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// The conversation it belongs to.
    pub conversation: ConversationId,
    /// Who speaks.
    pub role: Role,
    /// Its parts, in the order in which they were made.
    pub parts: Vec<Part>,
    /// Where it stands.
    pub status: Status,
    /// The model that wrote it.
    pub model: Option<String>,
    /// When it was begun.
    pub created_at: Timestamp,
}

impl Message {
    /// A message that is being made now.
    #[must_use]
    pub fn new(conversation: ConversationId, role: Role, parts: Vec<Part>, status: Status) -> Self {
        Self { id: MessageId::fresh(), conversation, role, parts, status, model: None, created_at: Timestamp::now() }
    }

    /// All its text, without reasoning, calls and passages.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n\n")
    }
}

/// One part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "part", rename_all = "snake_case")]
pub enum Part {
    /// Text, Markdown as the model or the person wrote it.
    Text {
        /// The text.
        text: String,
    },
    /// What a reasoning model thought.
    Reasoning {
        /// The text.
        text: String,
    },
    /// A tool call and what became of it.
    Call(CallRecord),
    /// A document that the person attached with this message.
    Attachment(Attachment),
    /// Passages that were retrieved for this message. They stay in it, byte for byte, so that the prompt's prefix
    /// never changes.
    Passages {
        /// The passages, numbered from 1.
        passages: Vec<Passage>,
    },
}

/// A tool call with its state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallRecord {
    /// What the model asked for.
    pub call: Call,
    /// What became of it.
    pub state: CallState,
}

/// The life of a tool call. Each change is stored before the screen shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum CallState {
    /// The model asked; nobody decided yet.
    Proposed,
    /// Allowed, not sent yet.
    Approved {
        /// What allowed it, in words: the click or the rule.
        by: String,
    },
    /// Sent; the answer is not recorded. Found after a restart: the outcome is unknown, and it is never sent again.
    Sent {
        /// What allowed it.
        by: String,
    },
    /// Answered.
    Done {
        /// What allowed it.
        by: String,
        /// The answer.
        result: CallResult,
        /// How long it ran.
        milliseconds: u64,
    },
    /// Not allowed.
    Denied {
        /// What denied it, in words.
        by: String,
    },
    /// Allowed, but it gave no result.
    Failed {
        /// Why, in one sentence.
        reason: String,
    },
    /// Stopped by the person.
    Stopped,
    /// Sent before the app stopped; no answer was recorded.
    Unknown,
}

/// A document attached to a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// The stored document.
    pub document: DocumentId,
    /// Its file name.
    pub name: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// A retrieved passage: what a citation `[n]` opens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// Its number in this message, from 1; the model cites it as `[n]`.
    pub number: usize,
    /// The document.
    pub document: DocumentId,
    /// The document's file name.
    pub name: String,
    /// The page it begins on, from 1, where the format has pages.
    pub page: Option<u32>,
    /// Its characters `[start, end)` in the document's text.
    pub span: (usize, usize),
    /// The passage itself.
    pub text: String,
    /// Its score in the search that found it; only comparable within that search.
    pub score: f32,
}
