//! The library: documents in, searchable text out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sipper::{Straw, sipper};
use tokio::sync::broadcast;

use super::{Document, Error, Progress};
use super::retrieve::Retrieved;
use crate::conversation::DocumentId;
use crate::embedding::Embedder;
use crate::store::Store;

/// The library; cheap to clone, one per engine.
#[derive(Clone, Debug)]
pub struct Library {
    events: broadcast::Sender<Document>,
}

impl Library {
    /// A library over the store. `worker` is the program that parses files when started with
    /// [`super::worker::ARGUMENT`]; `index` is the folder for index snapshots.
    #[must_use]
    pub fn new(_store: Store, _worker: PathBuf, _index: PathBuf) -> Self {
        Self { events: broadcast::channel(256).0 }
    }

    /// Gives the library an embedder, or takes it away: then search is lexical only.
    pub fn set_embedder(&self, _embedder: Option<Arc<dyn Embedder>>) {}

    /// Changed documents from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Document> {
        self.events.subscribe()
    }

    /// Every document, newest first.
    pub fn documents(&self) -> Result<Vec<Document>, Error> {
        Ok(Vec::new())
    }

    /// Reads, cuts, embeds and stores a file of at most `limit` bytes. The same content is stored once.
    pub fn ingest(&self, path: &Path, _limit: u64) -> impl Straw<Document, Progress, Error> + use<> {
        let path = path.to_owned();
        sipper(move |_| async move { Err(Error::File { path, reason: "not built yet".to_owned() }) })
    }

    /// The best passages of these documents for a query, numbered from 1.
    pub fn retrieve(&self, _documents: &[DocumentId], _query: &str, _most: usize) -> Result<Retrieved, Error> {
        Ok(Retrieved::default())
    }

    /// The whole text of a document, for showing a passage in its place.
    pub fn text(&self, document: DocumentId) -> Result<String, Error> {
        Err(Error::Unknown(document))
    }

    /// Removes a document with its text, chunks and vectors.
    pub fn remove(&self, document: DocumentId) -> Result<(), Error> {
        Err(Error::Unknown(document))
    }
}
