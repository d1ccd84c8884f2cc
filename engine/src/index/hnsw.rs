//! A hierarchical navigable small world graph (Malkov and Yashunin, 2018, arXiv 1603.09320), with two additions:
//!
//! - The lowest layer carries a spanning tree whose edges are stored both ways and never pruned (`tree`), so every live
//!   vector can be reached from every other one after any mix of insertions, updates and removals.
//! - A removal repairs the links around it at once (`remove`); no tombstones stay behind.

mod check;
mod insert;
mod links;
mod remove;
mod select;
mod snapshot;
mod tree;
mod walk;

use std::sync::{Mutex, PoisonError};

pub(super) use self::insert::next_random;
use self::links::{Links, NONE};
use self::walk::{Scratch, Walk};
use super::exact::{self, Ranked};
use super::metric::Metric;
use super::rows::{Rows, Slot};
use super::{Error, Filter, Hit, Index, VectorId};

/// Links that a new vector makes per layer (twice as many fit in the lowest one). 16 is the paper's and every peer's
/// middle value for embeddings of some hundred numbers.
pub const LINKS: usize = 16;

/// Candidates kept while a vector is inserted: the value the peers are measured with.
pub const BUILD_BREADTH: usize = 200;

/// The level generator's start: the same insertions give the same graph.
const SEED: u64 = 0x6861_6e64_7261_696c;

/// Scores that a walk computes per candidate it keeps: about 900 at a breadth of 64 on 20,000 clustered vectors of 384.
/// It only decides when scanning is cheaper than walking, where both give good answers.
const SCORES_PER_CANDIDATE: usize = 14;

/// A filter that leaves less than one in so many is answered by a scan: a walk would mostly see what it must not return.
const SCAN_BELOW_ONE_IN: usize = 50;

/// Ids asked to estimate how many a filter leaves.
const FILTER_SAMPLE: usize = 1024;

/// How a graph is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Links per vector and layer, called M (2 to 64; twice that in the lowest layer).
    pub links: usize,
    /// Candidates kept during an insertion, called efConstruction (at least `links`).
    pub build_breadth: usize,
    /// Start of the level generator.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self { links: LINKS, build_breadth: BUILD_BREADTH, seed: SEED }
    }
}

impl Config {
    fn clamped(self) -> Self {
        let links = self.links.clamp(2, 64);
        Self { links, build_breadth: self.build_breadth.clamp(links, 4096), seed: self.seed }
    }
}

/// The graph.
pub struct Hnsw {
    config: Config,
    rows: Rows,
    metric: Metric,
    links: Links,
    parents: Vec<Slot>,
    entry: Slot,
    random: u64,
    scratches: Mutex<Vec<Scratch>>,
}

impl Hnsw {
    /// An empty graph. Numbers of the configuration out of range are moved to the nearest that works.
    #[must_use]
    pub fn new(dimension: usize, config: Config) -> Self {
        let config = config.clamped();
        Self {
            config,
            rows: Rows::new(dimension),
            metric: Metric::best(),
            links: Links::new(config.links),
            parents: Vec::new(),
            entry: NONE,
            random: config.seed,
            scratches: Mutex::new(Vec::new()),
        }
    }

    /// The graph over rows that already passed all checks.
    pub(super) fn over(rows: &Rows, config: Config) -> Self {
        let mut graph = Self::new(rows.dimension(), config);
        graph.reserve(rows.len());
        for old in rows.iter() {
            // The only error left is "full", and there are no more rows than before.
            if let Ok(new) = graph.rows.add(rows.id(old), rows.row(old)) {
                graph.put_in(new);
            }
        }
        graph
    }

    /// Leaves an empty graph behind.
    pub(super) fn take_rows(&mut self) -> Rows {
        let empty = Self::new(self.dimension(), self.config);
        std::mem::replace(self, empty).rows
    }

    /// Makes room for so many vectors in one step.
    pub fn reserve(&mut self, vectors: usize) {
        self.rows.reserve(vectors);
        self.links.reserve(vectors);
        self.parents.reserve_exact(vectors);
    }

    /// How the graph is built.
    #[must_use]
    pub fn config(&self) -> Config {
        self.config
    }

    /// As [`Index::search`], and whether the answer came from an exact scan: when that is cheaper than a walk, when a
    /// filter leaves under 2 %, or when the walk found fewer than there are.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NotFinite`].
    pub fn search_traced(&self, query: &[f32], k: usize, breadth: usize, filter: Option<&Filter<'_>>) -> Result<(Vec<Hit>, bool), Error> {
        let query = self.rows.prepare(query)?;
        let (query, k) = (query.as_slice(), k.min(self.len()));
        let breadth = breadth.max(k);
        if !self.scan_is_better(breadth, filter)
            && let Some(hits) = self.walk_for(query, k, breadth, filter, self.len() / 2)
            && hits.len() == k
        {
            return Ok((hits, false));
        }
        Ok((exact::search(&self.rows, self.metric, query, k, filter), true))
    }

    /// The graph's answer alone, without the scan that [`Index::search`] falls back to: for judging the graph.
    ///
    /// # Errors
    /// [`Error::Dimension`], [`Error::NotFinite`].
    pub fn search_graph(&self, query: &[f32], k: usize, breadth: usize, filter: Option<&Filter<'_>>) -> Result<Vec<Hit>, Error> {
        let query = self.rows.prepare(query)?;
        Ok(self.walk_for(query.as_slice(), k, breadth, filter, usize::MAX).unwrap_or_default())
    }

    /// None when a walk with a filter gave up after more than `patience` scores.
    fn walk_for(&self, query: &[f32], k: usize, breadth: usize, filter: Option<&Filter<'_>>, patience: usize) -> Option<Vec<Hit>> {
        let breadth = breadth.max(k).min(self.len());
        if self.entry == NONE || k == 0 {
            return Some(Vec::new());
        }
        let mut scratch = self.scratch();
        let start = self.descend(query, 0);
        let mut hits = if let Some(passes) = filter {
            self.walk_filtered(Walk { query, starts: &[start], breadth, layer: 0 }, passes, patience, &mut scratch)
        } else {
            self.walk(Walk { query, starts: &[start], breadth, layer: 0 }, &mut scratch);
            Some(scratch.found().map(|near| Hit { id: self.rows.id(near.slot), score: near.score }).collect())
        };
        self.give_back(scratch);
        if let Some(hits) = &mut hits {
            hits.sort_unstable_by_key(|hit| std::cmp::Reverse(Ranked(*hit)));
            hits.truncate(k);
        }
        hits
    }

    /// Compares what a scan and a walk would cost. A filter makes the scan shorter and the walk longer.
    fn scan_is_better(&self, breadth: usize, filter: Option<&Filter<'_>>) -> bool {
        let walk = breadth.saturating_mul(SCORES_PER_CANDIDATE);
        let Some(passes) = filter else { return self.len() <= walk };
        let slots = self.rows.slots();
        let (mut seen, mut passed) = (0usize, 0usize);
        // Whole files pass or fail together and lie side by side, so the sample is spread over all slots.
        let step = (slots / FILTER_SAMPLE).max(1);
        for slot in (0..slots).step_by(step).filter(|slot| self.rows.is_live(*slot as Slot)) {
            seen += 1;
            passed += usize::from(passes(self.rows.id(slot as Slot)));
        }
        if passed * SCAN_BELOW_ONE_IN < seen || passed == 0 {
            return true;
        }
        let matching = self.len() * passed / seen;
        matching + self.len() / SCORES_PER_CANDIDATE <= walk.saturating_mul(seen) / passed
    }

    fn scratch(&self) -> Scratch {
        let kept = self.scratches.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.unwrap_or_default()
    }

    fn give_back(&self, scratch: Scratch) {
        self.scratches.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}

impl Index for Hnsw {
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
            if self.rows.row(slot) == padded.as_slice() {
                return Ok(());
            }
            self.take_out(slot);
        }
        let slot = self.rows.add(id, padded.as_slice())?;
        self.put_in(slot);
        Ok(())
    }

    fn remove(&mut self, id: VectorId) -> bool {
        let Some(slot) = self.rows.slot(id) else { return false };
        self.take_out(slot);
        true
    }

    fn search(&self, query: &[f32], k: usize, breadth: usize, filter: Option<&Filter<'_>>) -> Result<Vec<Hit>, Error> {
        self.search_traced(query, k, breadth, filter).map(|(hits, _)| hits)
    }

    fn bytes(&self) -> usize {
        self.rows.bytes() + self.links.bytes() + self.parents.capacity() * size_of::<Slot>()
    }
}
