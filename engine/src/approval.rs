//! The one gate that every tool call passes, whoever asks for it.
//!
//! [`decide`] is a pure function over what the person allowed before; [`Gate`] waits for the person where it says
//! ask; a [`Permit`] is what comes out, and nothing runs without one. The gate fails closed: no rule, an unreadable
//! rule or a changed schema mean ask; a lost gate means deny.

mod decide;
mod gate;
mod permit;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::conversation::ConversationId;
use crate::tool::{Call, CallId, Definition, Tool};

pub use decide::{Known, Verdict, decide};
pub use gate::Gate;
pub use permit::Permit;

/// A tool that runs only with a permit of this gate.
pub type GatedTool = dyn Tool<Permit>;

/// What a person can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// No.
    Deny,
    /// Yes, this call.
    AllowOnce,
    /// Yes, this tool in this conversation.
    AllowInConversation,
    /// Yes, this tool as it is now, everywhere.
    AlwaysTool,
    /// Yes, every tool of this server, everywhere.
    AlwaysServer,
}

/// A call that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The call, with the arguments that will run.
    pub call: Call,
    /// Where it was asked.
    pub conversation: ConversationId,
    /// The tool's definition.
    pub definition: Arc<Definition>,
    /// Why the person is asked and no rule decided.
    pub why: String,
    /// Since when it waits.
    pub asked_at: Timestamp,
}

/// What happens at the gate.
#[derive(Clone, Debug)]
pub enum Event {
    /// A call waits.
    Asked(Request),
    /// A call was decided.
    Decided {
        /// Which call.
        call: CallId,
        /// Whether it may run.
        allowed: bool,
        /// What decided, in words.
        by: String,
    },
}

/// Why there is no permit.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The person or a rule said no.
    #[error("not allowed: {by}")]
    Denied {
        /// What denied it.
        by: String,
    },
    /// The turn was stopped while the call waited.
    #[error("stopped while waiting for a decision")]
    Cancelled,
    /// No call with this id waits.
    #[error("no call '{0}' is waiting for a decision")]
    NotPending(CallId),
    /// What was allowed before could not be read, so nothing runs.
    #[error("the stored approvals cannot be used, so nothing runs: {0}")]
    Store(#[from] crate::store::Error),
}
