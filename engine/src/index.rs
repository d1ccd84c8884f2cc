//! Vectors by nearness: an HNSW graph of our own and a linear scan behind the same trait. Knows no text.
//!
//! [`Vectors`] is what other rooms use: it scans while a collection is small, builds the graph when it grows, keeps a
//! snapshot file and says which leg answered. [`Linear`] and [`Hnsw`] are the legs, both an [`Index`].
//!
//! Every vector is stored with length one, so that a score is always the cosine. A vector of zeros has no direction:
//! it is kept as it is and scores 0 against everything.

mod aligned;
pub mod bench;
mod exact;
mod hnsw;
mod linear;
pub mod metric;
mod persist;
mod rows;
mod vectors;

use std::path::PathBuf;

pub use hnsw::{Config, Hnsw};
pub use linear::Linear;
pub use persist::Label;
pub use vectors::{Answer, LINEAR_BELOW, Leg, Opened, Options, SEARCH_BREADTH, Vectors};

/// A vector's id, chosen by the caller (a chunk's row id).
pub type VectorId = u64;

/// One found vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Which vector.
    pub id: VectorId,
    /// Inner product with the query: the cosine for normalised vectors.
    pub score: f32,
}

/// Which ids may be found. It is asked often (up to once per stored vector), so it should be cheap; it must not call the
/// collection that asks it.
pub type Filter<'a> = dyn Fn(VectorId) -> bool + 'a;

/// A set of vectors that can be searched by nearness.
pub trait Index: Send + Sync {
    /// Numbers per vector.
    fn dimension(&self) -> usize;

    /// Live vectors.
    fn len(&self) -> usize;

    /// Whether no vector is stored.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a live vector has this id.
    fn contains(&self, id: VectorId) -> bool;

    /// The stored (normalised) vector.
    fn get(&self, id: VectorId) -> Option<&[f32]>;

    /// Stores a vector; one that has the same id is replaced. On an error nothing has changed.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NotFinite`], [`Error::Full`].
    fn insert(&mut self, id: VectorId, vector: &[f32]) -> Result<(), Error>;

    /// Removes a vector and wipes its numbers; false when there was none.
    fn remove(&mut self, id: VectorId) -> bool;

    /// The nearest `k` vectors that pass the filter, best first, equal scores by smaller id. There are `k` of them
    /// whenever that many live vectors pass. `breadth` (called ef in the literature) is how many candidates a graph
    /// walk keeps: more is slower and finds more; at least `k` is used; an exact scan ignores it.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NotFinite`].
    fn search(&self, query: &[f32], k: usize, breadth: usize, filter: Option<&Filter<'_>>) -> Result<Vec<Hit>, Error>;

    /// Bytes of memory held.
    fn bytes(&self) -> usize;
}

/// What went wrong in the index.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// A vector of another length than the index holds.
    #[error("a vector has {found} numbers, the index holds vectors of {expected}; embed again with the index's model")]
    Dimension {
        /// Numbers per vector in the index.
        expected: usize,
        /// Numbers given.
        found: usize,
    },
    /// A vector with NaN or infinity.
    #[error("a vector holds a number that is not finite at position {position}; it was refused")]
    NotFinite {
        /// Which number, from 0.
        position: usize,
    },
    /// No room for more vectors.
    #[error("the index is full at {limit} vectors; split the collection")]
    Full {
        /// The most vectors one index holds.
        limit: usize,
    },
    /// There is no snapshot file yet.
    #[error("there is no index file at {path}; rebuild it from the stored vectors")]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// A snapshot that is not what was written.
    #[error("the index file {path} is damaged ({reason}); rebuild it from the stored vectors")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
    /// A sound snapshot of something else: another model, dimension, state of the collection or version of the format.
    #[error("the index file {path} is out of date ({reason}); rebuild it from the stored vectors")]
    Stale {
        /// The file.
        path: PathBuf,
        /// What differs.
        reason: String,
    },
    /// A snapshot could not be read or written.
    #[error("cannot {action} {path}: {reason}")]
    Io {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// A benchmark's data files do not fit together.
    #[error("{path} does not fit: {reason}")]
    BenchData {
        /// The file.
        path: PathBuf,
        /// What does not fit.
        reason: String,
    },
}
