//! What a tool is: identity, definition, call and result, and the [`Tool`] trait.
//!
//! This room imports no other. The trait is generic over the permit that a call needs, so that the gate
//! (`approval`) can own the permit type while the tool loop and the MCP room share one trait.

mod alias;
mod call;
mod definition;
mod id;
pub mod numbers;
mod result;
pub mod schema;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

pub use alias::Aliases;
pub use call::{Call, CallId, canonical_digest, canonical_json};
pub use definition::Definition;
pub use id::{SchemaHash, ServerId, ToolId};
pub use result::{CallResult, Content, KEPT};

/// Something a model may call, once a permit for exactly that call exists.
///
/// `P` is the permit type. The arguments that run are the ones inside the permit: there is no second copy that
/// could differ from what was approved.
pub trait Tool<P>: Send + Sync + fmt::Debug {
    /// The definition that was shown to the model and to the person.
    fn definition(&self) -> &Arc<Definition>;

    /// Whether a call ends by itself in time, whatever it waits for: another start of its server, or a person who answers.
    /// Nobody else then keeps time for it.
    fn keeps_time(&self) -> bool {
        false
    }

    /// Runs the permitted call. Dropping the future or firing [`Control::cancel`] cancels it at the server.
    fn call(&self, permit: P, control: Control) -> BoxFuture<'static, Result<CallResult, Error>>;
}

/// How a running call is bounded, watched and stopped.
#[derive(Clone, Debug)]
pub struct Control {
    /// Fires when the person presses Stop or the turn ends.
    pub cancel: CancellationToken,
    /// Longest wait for the next sign of life; progress notifications extend it.
    pub timeout: Duration,
    /// Where progress goes, when someone is watching.
    pub progress: Option<mpsc::UnboundedSender<Progress>>,
}

/// One progress notification of a running call.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Work done so far; never goes backwards for one call.
    pub done: f64,
    /// All the work, when the server says so.
    pub total: Option<f64>,
    /// The server's own words.
    pub message: Option<String>,
}

/// Why a call gave no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The person or the end of the turn stopped it.
    #[error("the call was stopped")]
    Cancelled,
    /// No sign of life for the whole timeout.
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    /// The server is not connected.
    #[error("server '{server}' is not available: {reason}")]
    Unavailable {
        /// The server's id.
        server: ServerId,
        /// Why, in one sentence.
        reason: String,
    },
    /// The server answered with a protocol error.
    #[error("server '{server}' answered with an error: {message}")]
    Protocol {
        /// The server's id.
        server: ServerId,
        /// The server's own message.
        message: String,
    },
    /// The permit was not for this tool or these arguments.
    #[error("the permit does not fit this call: {0}")]
    Permit(String),
}
