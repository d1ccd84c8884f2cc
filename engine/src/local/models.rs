//! The models on this machine: what is there, what can be fetched, what is loaded.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sipper::{Straw, sipper};
use tokio::sync::broadcast;

use super::catalogue::Entry;
use super::download;
use crate::embedding::{self, Embedder};
use crate::provider::{self, Provider};

/// One model as the screen shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelView {
    /// Its catalogue entry.
    pub entry: Entry,
    /// Where it stands.
    pub state: ModelState,
}

/// Where a model stands.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelState {
    /// Not on this machine; `partial` bytes of an earlier fetch are kept and resumed.
    Missing {
        /// Bytes already here.
        partial: u64,
    },
    /// Being fetched.
    Fetching(download::Progress),
    /// Here and whole.
    Ready {
        /// Its file or folder.
        path: PathBuf,
        /// Where it came from, in words.
        source: String,
    },
    /// Here, but its checksum is wrong, or the last fetch failed.
    Broken {
        /// Why, and what to do.
        reason: String,
    },
}

/// The models; cheap to clone, one per engine.
#[derive(Clone, Debug)]
pub struct Models {
    events: broadcast::Sender<ModelView>,
}

impl Models {
    /// The models in this folder. `threads` is for the decoder; 0 chooses.
    #[must_use]
    pub fn new(_folder: PathBuf, _threads: usize) -> Self {
        Self { events: broadcast::channel(256).0 }
    }

    /// Changed models from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<ModelView> {
        self.events.subscribe()
    }

    /// Every model of the catalogue.
    #[must_use]
    pub fn list(&self) -> Vec<ModelView> {
        Vec::new()
    }

    /// Fetches a model, resuming what is there. Dropping the straw cancels and keeps the partial file.
    pub fn fetch(&self, id: &str) -> impl Straw<download::Fetched, download::Progress, download::Error> + use<> {
        let id = id.to_owned();
        sipper(move |_| async move { Err(download::Error::Unknown(id)) })
    }

    /// Takes a file of the person's own as the model `id` after checking its sha256, or any GGUF as a chat model.
    pub fn adopt(&self, _path: &Path) -> Result<ModelView, download::Error> {
        Err(download::Error::Unknown(String::new()))
    }

    /// Checks the sha256 of a model's files. Blocks.
    pub fn verify(&self, id: &str) -> Result<ModelView, download::Error> {
        Err(download::Error::Unknown(id.to_owned()))
    }

    /// Removes a model and says how many bytes that freed.
    pub fn remove(&self, id: &str) -> Result<u64, download::Error> {
        Err(download::Error::Unknown(id.to_owned()))
    }

    /// The chat model of this id, or the GGUF file at this path; loaded once, on its own thread. Blocks while it
    /// loads.
    pub fn chat(&self, id_or_path: &str) -> Result<Arc<dyn Provider>, provider::Error> {
        Err(provider::Error::Unavailable { model: id_or_path.to_owned(), reason: "not built yet".to_owned() })
    }

    /// The embedding model of this id; loaded once. Blocks while it loads.
    pub fn embedder(&self, id: &str) -> Result<Arc<dyn Embedder>, embedding::Error> {
        Err(embedding::Error::Load(id.to_owned()))
    }
}
