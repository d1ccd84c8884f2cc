//! Running a turn.

use std::sync::Arc;

use sipper::{Straw, sipper};

use super::{Error, Event, Input, Outcome};
use crate::approval::{Gate, GatedTool};
use crate::conversation::ConversationId;
use crate::provider::Provider;
use crate::rag::Library;
use crate::settings::Settings;
use crate::store::Store;

/// Where a turn's tools come from.
pub type Tools = Arc<dyn Fn() -> Vec<Arc<GatedTool>> + Send + Sync>;

/// Everything a turn needs; cheap to clone.
#[derive(Clone)]
pub struct Runner {
    /// The database.
    pub store: Store,
    /// The gate.
    pub gate: Gate,
    /// The documents.
    pub library: Library,
    /// The tools as they are now.
    pub tools: Tools,
    /// The settings.
    pub settings: Settings,
}

impl Runner {
    /// Runs a turn with this model. Dropping the straw stops model and calls and stores what was written.
    pub fn run(
        &self,
        _provider: Arc<dyn Provider>,
        _conversation: ConversationId,
        _input: Input,
    ) -> impl Straw<Outcome, Event, Error> + use<> {
        sipper(|_| async { Err(Error::Closing) })
    }
}
