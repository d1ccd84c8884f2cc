//! The index room through its public face: one suite for every leg, then the graph, the snapshot file and the collection.

#[path = "index/graph.rs"]
mod graph;
#[path = "index/snapshot.rs"]
mod snapshot;
#[path = "index/suite.rs"]
mod suite;
#[path = "index/vectors.rs"]
mod vectors;

use handrail_engine::index::bench::DIMENSION;
use handrail_engine::index::{Config, Error, Filter, Hit, Hnsw, Index, Linear, VectorId};

/// Nothing lost.
const NONE: [VectorId; 0] = [];

/// The graph without the exact scan that it may fall back to, so that the suite judges the graph.
struct GraphOnly(Hnsw);

impl Index for GraphOnly {
    fn dimension(&self) -> usize {
        self.0.dimension()
    }
    fn len(&self) -> usize {
        self.0.len()
    }
    fn contains(&self, id: VectorId) -> bool {
        self.0.contains(id)
    }
    fn get(&self, id: VectorId) -> Option<&[f32]> {
        self.0.get(id)
    }
    fn insert(&mut self, id: VectorId, vector: &[f32]) -> Result<(), Error> {
        self.0.insert(id, vector)
    }
    fn remove(&mut self, id: VectorId) -> bool {
        self.0.remove(id)
    }
    fn search(&self, query: &[f32], k: usize, breadth: usize, filter: Option<&Filter<'_>>) -> Result<Vec<Hit>, Error> {
        self.0.search_graph(query, k, breadth, filter)
    }
    fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

fn graph(dimension: usize) -> Hnsw {
    Hnsw::new(dimension, Config::default())
}

/// Each leg empty, by name.
fn legs(dimension: usize) -> Vec<(&'static str, Box<dyn Index>)> {
    vec![
        ("linear", Box::new(Linear::new(dimension))),
        ("hnsw", Box::new(graph(dimension))),
        ("graph only", Box::new(GraphOnly(graph(dimension)))),
    ]
}

/// Row `n` of the bench's clustered data.
fn row(data: &[f32], n: usize) -> &[f32] {
    &data[n * DIMENSION..(n + 1) * DIMENSION]
}

fn fill(index: &mut dyn Index, data: &[f32]) {
    for (id, vector) in (0..).zip(data.chunks_exact(DIMENSION)) {
        index.insert(id, vector).unwrap();
    }
}

/// The true nearest among some rows, by plain arithmetic in double precision.
fn brute(data: &[f32], ids: impl Iterator<Item = VectorId>, query: &[f32], k: usize) -> Vec<VectorId> {
    let dot = |id: VectorId| -> f64 { row(data, id as usize).iter().zip(query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum() };
    let mut scored: Vec<_> = ids.map(|id| (dot(id), id)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(k).map(|(_, id)| id).collect()
}

fn recall(index: &dyn Index, data: &[f32], live: &[VectorId], queries: &[f32], breadth: usize) -> f64 {
    let mut found = 0;
    for query in queries.chunks_exact(DIMENSION) {
        let truth = brute(data, live.iter().copied(), query, 10);
        let hits = index.search(query, 10, breadth, None).unwrap();
        assert_eq!(hits.len(), 10);
        found += hits.iter().filter(|hit| truth.contains(&hit.id)).count();
    }
    found as f64 / (queries.len() / DIMENSION * 10) as f64
}

/// Ids of live vectors that are not first when searched for themselves. Another one may stand in when it is as near to
/// rounding (equal vectors, vectors of zeros).
fn lost(index: &dyn Index, ids: impl Iterator<Item = VectorId>, breadth: usize) -> Vec<VectorId> {
    let is_lost = |id: &VectorId| {
        let vector = index.get(*id).unwrap();
        let own: f32 = vector.iter().map(|number| number * number).sum();
        let first = index.search(vector, 1, breadth, None).unwrap()[0];
        first.id != *id && first.score < own - 1e-6
    };
    ids.filter(is_lost).collect()
}

#[test]
fn the_trait_is_an_object_that_threads_can_share() {
    fn shared<T: Send + Sync + ?Sized>() {}
    shared::<dyn Index>();
    shared::<handrail_engine::index::Vectors>();
}
