//! What the rest of the engine uses: a collection's vectors, behind whichever leg suits their number.

use std::path::Path;
use std::sync::{Mutex, PoisonError, RwLock};

use super::persist::{Kind, Label, Reader};
use super::{Config, Error, Filter, Hit, Hnsw, Index, Linear, VectorId};

/// Collections below this many vectors are scanned: a scan of 10,000 × 384 takes about a millisecond, is exact, and
/// needs no graph built. A graph is given up again below half of it.
pub const LINEAR_BELOW: usize = 10_000;

/// The breadth for a search that has no reason for another: 0.97 of the true ten nearest on 20,000 clustered vectors.
pub const SEARCH_BREADTH: usize = 64;

/// What a collection's index holds and when it changes legs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Numbers per vector.
    pub dimension: usize,
    /// Fewer vectors than this are scanned.
    pub linear_below: usize,
    /// How the graph is built.
    pub graph: Config,
}

impl Options {
    /// The defaults for vectors of this length.
    #[must_use]
    pub fn new(dimension: usize) -> Self {
        Self { dimension, linear_below: LINEAR_BELOW, graph: Config::default() }
    }
}

/// What answered a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// The linear scan: there is no graph.
    Linear,
    /// The graph.
    Graph,
    /// An exact scan although there is a graph: the filter left too few, or a scan was cheaper.
    Exact,
}

/// A search's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Best first.
    pub hits: Vec<Hit>,
    /// What found them.
    pub leg: Leg,
}

/// How a collection's index was opened.
#[derive(Clone, Debug, PartialEq)]
pub enum Opened {
    /// From its snapshot.
    Loaded,
    /// From the stored vectors.
    Rebuilt {
        /// Why the snapshot could not be used.
        reason: Error,
        /// Vectors left out, each with what is wrong with it (the first few).
        refused: Vec<(VectorId, Error)>,
        /// How many were left out in all.
        refused_count: usize,
    },
}

/// Refused vectors that are listed with their reasons.
const REFUSED_LISTED: usize = 16;

enum Store {
    Linear(Linear),
    Graph(Box<Hnsw>),
}

impl Store {
    fn index(&self) -> &dyn Index {
        match self {
            Self::Linear(linear) => linear,
            Self::Graph(graph) => graph.as_ref(),
        }
    }

    fn index_mut(&mut self) -> &mut dyn Index {
        match self {
            Self::Linear(linear) => linear,
            Self::Graph(graph) => graph.as_mut(),
        }
    }
}

/// A collection's vectors: many readers, one writer at a time. Searches go on while a graph is built.
pub struct Vectors {
    options: Options,
    store: RwLock<Store>,
    writer: Mutex<()>,
}

impl Vectors {
    /// An empty collection.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::with(options, Store::Linear(Linear::new(options.dimension)))
    }

    fn with(options: Options, store: Store) -> Self {
        Self { options, store: RwLock::new(store), writer: Mutex::new(()) }
    }

    /// Opens a snapshot that was saved with this label.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Damaged`], [`Error::Stale`] (another model, stamp or dimension), [`Error::Io`].
    pub fn open(path: &Path, label: &Label, options: Options) -> Result<Self, Error> {
        let reader = Reader::open(path)?;
        let head = &reader.head;
        let stale = |reason: String| Err(Error::Stale { path: path.to_owned(), reason });
        if head.label.model != label.model {
            return stale(format!("made with the model {}, now {} is used", head.label.model, label.model));
        }
        if head.dimension != options.dimension {
            return stale(format!("vectors of {} numbers, now {}", head.dimension, options.dimension));
        }
        if head.label.stamp != label.stamp {
            return stale(format!("of state {}, the collection is at {}", head.label.stamp, label.stamp));
        }
        let store = match head.kind {
            Kind::Linear => Store::Linear(Linear::read(reader)?),
            Kind::Graph => Store::Graph(Box::new(Hnsw::read(reader)?)),
        };
        Ok(Self::with(options, store))
    }

    /// Opens a snapshot, or fills the index from the stored vectors when it is missing, damaged, stale or unreadable. It
    /// is then a linear scan, whatever its size, until [`Vectors::build_graph`] (or the next insertion) builds the graph.
    pub fn open_or_rebuild<I, V>(path: &Path, label: &Label, options: Options, source: impl FnOnce() -> I) -> (Self, Opened)
    where
        I: IntoIterator<Item = (VectorId, V)>,
        V: AsRef<[f32]>,
    {
        let reason = match Self::open(path, label, options) {
            Ok(vectors) => return (vectors, Opened::Loaded),
            Err(reason) => reason,
        };
        let mut linear = Linear::new(options.dimension);
        let (mut refused, mut refused_count) = (Vec::new(), 0);
        for (id, vector) in source() {
            if let Err(error) = linear.insert(id, vector.as_ref()) {
                refused_count += 1;
                if refused.len() < REFUSED_LISTED {
                    refused.push((id, error));
                }
            }
        }
        (Self::with(options, Store::Linear(linear)), Opened::Rebuilt { reason, refused, refused_count })
    }

    /// Writes a snapshot; the file appears whole or not at all. Searches go on, changes wait.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: &Path, label: &Label) -> Result<(), Error> {
        // Changes wait for this lock, not for the one of the searches, which would hold up searches behind them.
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        match &*self.read() {
            Store::Linear(linear) => linear.save(path, label),
            Store::Graph(graph) => graph.save(path, label),
        }
    }

    /// Stores a vector, or replaces the one that has this id. The insertion that reaches
    /// [`Options::linear_below`] builds the graph (seconds).
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NotFinite`], [`Error::Full`]; nothing has changed then.
    pub fn insert(&self, id: VectorId, vector: &[f32]) -> Result<(), Error> {
        self.insert_all([(id, vector)])
    }

    /// As [`Vectors::insert`] for many; the graph is built once, after the last.
    ///
    /// # Errors
    /// The first vector's that is refused; those before it are stored.
    pub fn insert_all<V: AsRef<[f32]>>(&self, vectors: impl IntoIterator<Item = (VectorId, V)>) -> Result<(), Error> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut result = Ok(());
        for (id, vector) in vectors {
            result = self.write().index_mut().insert(id, vector.as_ref());
            if result.is_err() {
                break;
            }
        }
        drop(writer);
        let _ = self.build_graph();
        result
    }

    /// Removes vectors; gives how many there were.
    pub fn remove_all(&self, ids: impl IntoIterator<Item = VectorId>) -> usize {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let removed = ids.into_iter().filter(|id| self.write().index_mut().remove(*id)).count();
        let mut store = self.write();
        if let Store::Graph(graph) = &mut *store
            && graph.len() < self.options.linear_below / 2
        {
            *store = Store::Linear(Linear::from_rows(graph.take_rows()));
        }
        removed
    }

    /// Removes one vector; false when there was none.
    pub fn remove(&self, id: VectorId) -> bool {
        self.remove_all([id]) == 1
    }

    /// Builds the graph if the collection is large enough and has none; true when it did. Takes about half a
    /// millisecond per vector; searches are answered by the scan meanwhile, changes wait.
    pub fn build_graph(&self) -> bool {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let graph = match &*self.read() {
            Store::Linear(linear) if linear.len() >= self.options.linear_below => Hnsw::over(&linear.rows, self.options.graph),
            _ => return false,
        };
        *self.write() = Store::Graph(Box::new(graph));
        true
    }

    /// The nearest `k` that pass the filter, best first; see [`Index::search`].
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NotFinite`].
    pub fn search(&self, query: &[f32], k: usize, breadth: usize, filter: Option<&Filter<'_>>) -> Result<Answer, Error> {
        match &*self.read() {
            Store::Linear(linear) => Ok(Answer { hits: linear.search(query, k, breadth, filter)?, leg: Leg::Linear }),
            Store::Graph(graph) => {
                let (hits, exact) = graph.search_traced(query, k, breadth, filter)?;
                Ok(Answer { hits, leg: if exact { Leg::Exact } else { Leg::Graph } })
            }
        }
    }

    /// Whether a vector has this id.
    #[must_use]
    pub fn contains(&self, id: VectorId) -> bool {
        self.read().index().contains(id)
    }

    /// A copy of the stored (normalised) vector.
    #[must_use]
    pub fn get(&self, id: VectorId) -> Option<Vec<f32>> {
        self.read().index().get(id).map(<[f32]>::to_vec)
    }

    /// Stored vectors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.read().index().len()
    }

    /// Whether nothing is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.read().index().bytes()
    }

    /// The leg that stands ready: [`Leg::Linear`] or [`Leg::Graph`].
    #[must_use]
    pub fn leg(&self) -> Leg {
        match &*self.read() {
            Store::Linear(_) => Leg::Linear,
            Store::Graph(_) => Leg::Graph,
        }
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }
}
