//! The linear scan: exact, nothing to build, the fastest choice for small collections.

use std::path::Path;

use super::metric::Metric;
use super::persist::{Head, Kind, Label, Reader, Writer};
use super::rows::Rows;
use super::{Error, Filter, Hit, Index, VectorId, exact};

/// Vectors searched by scanning all of them.
pub struct Linear {
    pub(super) rows: Rows,
    metric: Metric,
}

impl Linear {
    /// An empty index.
    #[must_use]
    pub fn new(dimension: usize) -> Self {
        Self::from_rows(Rows::new(dimension))
    }

    pub(super) fn from_rows(rows: Rows) -> Self {
        Self { rows, metric: Metric::best() }
    }

    /// Makes room for so many vectors in one step.
    pub fn reserve(&mut self, vectors: usize) {
        self.rows.reserve(vectors);
    }

    /// Writes a snapshot; the file appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: &Path, label: &Label) -> Result<(), Error> {
        let head = Head {
            kind: Kind::Linear,
            dimension: self.dimension(),
            count: self.len(),
            label: label.clone(),
            links: 0,
            build_breadth: 0,
            seed: 0,
            random: 0,
            entry: 0,
            upper: 0,
        };
        let mut writer = Writer::create(path, head)?;
        self.rows.save(&mut writer)?;
        writer.finish()
    }

    /// Reads a snapshot and verifies all of it.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Damaged`], [`Error::Stale`], [`Error::Io`].
    pub fn load(path: &Path) -> Result<(Self, Label), Error> {
        let reader = Reader::open(path)?;
        let label = reader.head.label.clone();
        Self::read(reader).map(|linear| (linear, label))
    }

    pub(super) fn read(mut reader: Reader) -> Result<Self, Error> {
        if reader.head.kind != Kind::Linear {
            return Err(reader.damaged("not a plain list of vectors"));
        }
        Rows::load(&mut reader).map(Self::from_rows)
    }
}

impl Index for Linear {
    fn dimension(&self) -> usize {
        self.rows.dimension()
    }

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn contains(&self, id: VectorId) -> bool {
        self.rows.slot(id).is_some()
    }

    fn get(&self, id: VectorId) -> Option<&[f32]> {
        self.rows.slot(id).map(|slot| self.rows.vector(slot))
    }

    fn insert(&mut self, id: VectorId, vector: &[f32]) -> Result<(), Error> {
        let padded = self.rows.prepare(vector)?;
        if let Some(slot) = self.rows.slot(id) {
            self.rows.write(slot, padded.as_slice());
            return Ok(());
        }
        self.rows.add(id, padded.as_slice()).map(|_| ())
    }

    fn remove(&mut self, id: VectorId) -> bool {
        let Some(slot) = self.rows.slot(id) else { return false };
        self.rows.release(slot);
        true
    }

    fn search(&self, query: &[f32], k: usize, _breadth: usize, filter: Option<&Filter<'_>>) -> Result<Vec<Hit>, Error> {
        let query = self.rows.prepare(query)?;
        Ok(exact::search(&self.rows, self.metric, query.as_slice(), k, filter))
    }

    fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}
