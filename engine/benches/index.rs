//! Our graph and hnsw_rs on the same data in the same run, one thread, M 16, efConstruction 200, k 10.
//!
//! `cargo bench -p handrail-engine --bench index [-- VECTORS]` (20,000 by default). The data follow the recipe of the
//! recorded figures, but come from our own generator: numbers here stand beside numbers here, not beside those made from
//! numpy's. hnsw_rs gets our inner product, so the difference is the graph's.

use std::time::Instant;

use handrail_engine::index::bench::{BREADTHS, DIMENSION, Data, NEIGHBOURS, Point, measure};
use handrail_engine::index::metric::Metric;
use handrail_engine::index::{Error, VectorId};
use hnsw_rs::hnsw::Hnsw;
use hnsw_rs::prelude::Distance;

const QUERIES: usize = 1_000;

#[derive(Clone, Copy)]
struct OneMinusDot(Metric);

impl Distance<f32> for OneMinusDot {
    fn eval(&self, a: &[f32], b: &[f32]) -> f32 {
        (1.0 - self.0.dot(a, b)).max(0.0)
    }
}

#[allow(clippy::print_stdout)]
fn main() -> Result<(), Error> {
    let vectors = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(20_000);
    let data = Data::generate(vectors, QUERIES)?;
    println!("{vectors} x {DIMENSION}, {QUERIES} queries, {}, {} build", Metric::best().name(), profile());
    let linear = measure(&data, true)?;
    println!("linear  {:>8.0} queries/s, {:.1} GB/s", linear.points[0].queries_per_second, gigabytes(vectors, linear.points[0]));
    let ours = measure(&data, false)?;
    println!("ours    build {:>6.1} s, {} bytes a vector", ours.build_seconds, ours.bytes / vectors.max(1));
    show("ours", &ours.points);
    let (peer_seconds, peer) = hnsw_rs(&data, vectors)?;
    println!("hnsw_rs build {peer_seconds:>6.1} s");
    show("hnsw_rs", &peer);
    println!("build: hnsw_rs takes {:.2} times as long", peer_seconds / ours.build_seconds);
    for point in &peer {
        if let Some(speed) = speed_at(&ours.points, point.recall_at_10) {
            println!("at recall {:.3}: ours answers {:.2} times as many queries", point.recall_at_10, speed / point.queries_per_second);
        }
    }
    Ok(())
}

fn hnsw_rs(data: &Data, vectors: usize) -> Result<(f64, Vec<Point>), Error> {
    let start = Instant::now();
    let graph = Hnsw::new(16, vectors, 16, 200, OneMinusDot(Metric::best()));
    for (id, vector) in data.base.chunks_exact(DIMENSION).enumerate() {
        graph.insert((vector, id));
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut points = Vec::new();
    for breadth in BREADTHS {
        let search = |query: &[f32]| -> Result<Vec<VectorId>, Error> {
            Ok(graph.search(query, NEIGHBOURS, breadth).iter().map(|found| found.d_id as VectorId).collect())
        };
        let (recall_at_10, queries_per_second) = data.measure(search)?;
        points.push(Point { breadth, recall_at_10, queries_per_second });
    }
    Ok((seconds, points))
}

/// Queries per second at a recall, between the two measured points around it (linear in the recall).
fn speed_at(points: &[Point], recall: f64) -> Option<f64> {
    points.windows(2).find(|pair| pair[0].recall_at_10 <= recall && recall <= pair[1].recall_at_10).map(|pair| {
        let share = (recall - pair[0].recall_at_10) / (pair[1].recall_at_10 - pair[0].recall_at_10).max(f64::EPSILON);
        pair[0].queries_per_second + share * (pair[1].queries_per_second - pair[0].queries_per_second)
    })
}

fn gigabytes(vectors: usize, point: Point) -> f64 {
    (vectors * DIMENSION * size_of::<f32>()) as f64 * point.queries_per_second / 1e9
}

fn profile() -> &'static str {
    if cfg!(debug_assertions) { "unoptimised (dev)" } else { "optimised" }
}

#[allow(clippy::print_stdout)]
fn show(name: &str, points: &[Point]) {
    for point in points {
        println!("{name:<7} ef {:>3}: recall {:.3}, {:>7.0} queries/s", point.breadth, point.recall_at_10, point.queries_per_second);
    }
}
