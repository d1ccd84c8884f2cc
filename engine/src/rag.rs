//! Documents: from a file to passages with places. Parsing happens in a child process ([`worker`]); the text is cut
//! ([`chunk`]), embedded, stored and indexed ([`ingest`]), found again ([`retrieve`]) and cited ([`cite`]).

pub mod chunk;
pub mod cite;
mod collection;
pub mod ingest;
pub mod load;
pub mod rank;
pub mod retrieve;
pub mod worker;

pub use ingest::Library;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::conversation::DocumentId;

/// A stored document as the screen shows it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// Its id.
    pub id: DocumentId,
    /// Its file name.
    pub name: String,
    /// Where it was read from.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its pages, where the format has any.
    pub pages: Option<u32>,
    /// How many chunks it was cut into.
    pub chunks: usize,
    /// Where it stands.
    pub state: DocumentState,
}

/// Where a document stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum DocumentState {
    /// Searchable by words and by meaning.
    Ready,
    /// Searchable, but not all of it.
    Partly {
        /// What is missing and why: pages without text, no vectors, a reader that broke off.
        reason: String,
    },
    /// Not searchable.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
}

/// Progress of one document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum Progress {
    /// Pages (or parts) read so far.
    Reading {
        /// Read.
        done: u32,
        /// All, where known.
        total: Option<u32>,
    },
    /// Chunks embedded so far.
    Embedding {
        /// Embedded.
        done: usize,
        /// All.
        total: usize,
    },
}

/// Why a document could not be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or is too large.
    #[error("{path} cannot be read: {reason}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The reader refused it, crashed or ran over a limit.
    #[error("{path} cannot be used: {reason}")]
    Parse {
        /// Which file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// The database refused.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    /// The index refused.
    #[error("the vector index cannot be used: {0}")]
    Index(String),
    /// There is no such document.
    #[error("there is no document {0}")]
    Unknown(DocumentId),
    /// The person stopped it.
    #[error("stopped")]
    Cancelled,
}
