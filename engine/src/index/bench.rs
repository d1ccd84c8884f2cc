//! Measuring an index: what `handrail-cli bench index DIR [--linear]` prints, and the recipe of its data set.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::metric::Metric;
use super::{Config, Error, Hit, Hnsw, Index, Linear, VectorId};

/// Numbers per vector of the data set.
pub const DIMENSION: usize = 384;

/// Neighbours per query.
pub const NEIGHBOURS: usize = 10;

/// The breadths (ef) that are measured.
pub const BREADTHS: [usize; 5] = [16, 32, 64, 128, 256];

/// Each figure is measured for at least so long, in whole passes over the queries.
const AT_LEAST: Duration = Duration::from_millis(500);

/// One run's figures, all on one thread.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// `linear` or `hnsw`.
    pub index: &'static str,
    /// The inner product's instructions.
    pub metric: &'static str,
    /// Vectors in the index.
    pub vectors: usize,
    /// Queries asked.
    pub queries: usize,
    /// Numbers per vector.
    pub dimension: usize,
    /// Seconds to insert all vectors, one by one.
    pub build_seconds: f64,
    /// Bytes of memory held.
    pub bytes: usize,
    /// One per breadth; a linear scan has one with breadth 0.
    pub points: Vec<Point>,
}

/// Recall against speed at one breadth.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Candidates kept, called ef.
    pub breadth: usize,
    /// Share of the true ten nearest that were found.
    pub recall_at_10: f64,
    /// Queries per second.
    pub queries_per_second: f64,
}

/// A data set: rows of [`DIMENSION`] numbers, and per query the ids (row numbers) of its ten nearest.
#[derive(Clone, Debug, PartialEq)]
pub struct Data {
    /// The stored vectors.
    pub base: Vec<f32>,
    /// The queries.
    pub queries: Vec<f32>,
    /// [`NEIGHBOURS`] ids per query, in any order.
    pub truth: Vec<i32>,
}

impl Data {
    /// Reads `base.f32`, `query.f32` and `truth.i32` (raw little-endian) of a folder.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::BenchData`].
    pub fn read(folder: &Path) -> Result<Self, Error> {
        let base = numbers(&folder.join("base.f32"), DIMENSION, f32::from_le_bytes)?;
        let queries = numbers(&folder.join("query.f32"), DIMENSION, f32::from_le_bytes)?;
        let path = folder.join("truth.i32");
        let truth = numbers(&path, NEIGHBOURS, i32::from_le_bytes)?;
        let (rows, asked) = (base.len() / DIMENSION, queries.len() / DIMENSION);
        if truth.len() / NEIGHBOURS != asked {
            let reason = format!("{} rows of {NEIGHBOURS} ids for {asked} queries", truth.len() / NEIGHBOURS);
            return Err(Error::BenchData { path, reason });
        }
        if let Some(id) = truth.iter().find(|id| !usize::try_from(**id).is_ok_and(|id| id < rows)) {
            return Err(Error::BenchData { path, reason: format!("id {id}, there are {rows} vectors") });
        }
        Ok(Self { base, queries, truth })
    }

    /// Makes a data set by the recipe of [`sample`] and finds the truth by scanning.
    ///
    /// # Errors
    /// None in practice; those of [`Index::insert`].
    pub fn generate(vectors: usize, queries: usize) -> Result<Self, Error> {
        let (base, queries) = (sample(vectors, 1), sample(queries, 2));
        let linear = filled(Linear::new(DIMENSION), &base)?;
        let mut truth = Vec::new();
        for query in queries.chunks_exact(DIMENSION) {
            truth.extend(linear.search(query, NEIGHBOURS, 0, None)?.iter().map(|hit| hit.id as i32));
        }
        Ok(Self { base, queries, truth })
    }

    /// Asks all queries again and again for at least half a second: recall@10 and queries per second.
    ///
    /// # Errors
    /// The search's own.
    pub fn measure<E>(&self, mut search: impl FnMut(&[f32]) -> Result<Vec<VectorId>, E>) -> Result<(f64, f64), E> {
        let mut found = 0;
        for (query, truth) in self.queries.chunks_exact(DIMENSION).zip(self.truth.chunks_exact(NEIGHBOURS)) {
            let truth: HashSet<VectorId> = truth.iter().map(|id| *id as VectorId).collect();
            found += search(query)?.iter().filter(|id| truth.contains(id)).count();
        }
        let (start, mut asked) = (Instant::now(), 0);
        while start.elapsed() < AT_LEAST {
            for query in self.queries.chunks_exact(DIMENSION) {
                let _ = std::hint::black_box(search(query)?);
                asked += 1;
            }
        }
        Ok((found as f64 / self.truth.len().max(1) as f64, f64::from(asked) / start.elapsed().as_secs_f64()))
    }
}

/// Measures this room's index on a folder's data set.
///
/// # Errors
/// [`Error::Io`], [`Error::BenchData`].
pub fn run(folder: &Path, linear: bool) -> Result<Report, Error> {
    measure(&Data::read(folder)?, linear)
}

/// Measures this room's index on a data set in memory.
///
/// # Errors
/// Those of [`Index::insert`].
pub fn measure(data: &Data, linear: bool) -> Result<Report, Error> {
    let vectors = data.base.len() / DIMENSION;
    if linear {
        let mut index = Linear::new(DIMENSION);
        index.reserve(vectors);
        report("linear", index, data, &[0])
    } else {
        let mut index = Hnsw::new(DIMENSION, Config::default());
        index.reserve(vectors);
        report("hnsw", index, data, &BREADTHS)
    }
}

fn report<I: Index>(name: &'static str, index: I, data: &Data, breadths: &[usize]) -> Result<Report, Error> {
    let start = Instant::now();
    let index = filled(index, &data.base)?;
    let build_seconds = start.elapsed().as_secs_f64();
    let ids = |hits: Vec<Hit>| hits.iter().map(|hit| hit.id).collect();
    let mut points = Vec::new();
    for breadth in breadths.iter().copied() {
        let (recall_at_10, queries_per_second) = data.measure(|query| index.search(query, NEIGHBOURS, breadth, None).map(ids))?;
        points.push(Point { breadth, recall_at_10, queries_per_second });
    }
    Ok(Report {
        index: name,
        metric: Metric::best().name(),
        vectors: index.len(),
        queries: data.queries.len() / DIMENSION,
        dimension: DIMENSION,
        build_seconds,
        bytes: index.bytes(),
        points,
    })
}

fn filled<I: Index>(mut index: I, base: &[f32]) -> Result<I, Error> {
    for (id, vector) in (0..).zip(base.chunks_exact(DIMENSION)) {
        index.insert(id, vector)?;
    }
    Ok(index)
}

fn numbers<T>(path: &Path, row: usize, decode: impl Fn([u8; 4]) -> T) -> Result<Vec<T>, Error> {
    let bytes = fs::read(path).map_err(|error| Error::Io { action: "read", path: path.to_owned(), reason: error.to_string() })?;
    if bytes.is_empty() || !bytes.len().is_multiple_of(row * 4) {
        let reason = format!("{} bytes are not whole rows of {row} numbers", bytes.len());
        return Err(Error::BenchData { path: path.to_owned(), reason });
    }
    Ok(bytes.as_chunks::<4>().0.iter().map(|number| decode(*number)).collect())
}

/// Latent numbers per vector of the recipe.
const LATENT: usize = 128;

/// Clusters of the recipe.
const CLUSTERS: usize = 400;

/// Clustered vectors like an embedder's: `z = C[random of 400] + N(128)`, `x = z·A + 3·N(384)`, normalised, with
/// `A = N(128 × 384)` and `C = 0.7·N(400 × 128)` the same for all seeds. This is the recipe of the recorded figures, but
/// not the same numbers: those came from numpy's generator.
#[must_use]
pub fn sample(count: usize, seed: u64) -> Vec<f32> {
    let mut fixed = Normal::new(7);
    // Transposed, so that each number of x is one inner product.
    let across: Vec<f32> = (0..DIMENSION * LATENT).map(|_| fixed.next()).collect();
    let centres: Vec<f32> = (0..CLUSTERS * LATENT).map(|_| 0.7 * fixed.next()).collect();
    let (mut noise, metric) = (Normal::new(seed), Metric::best());
    let mut vectors = Vec::with_capacity(count * DIMENSION);
    for _ in 0..count {
        let centre = noise.below(CLUSTERS as u64) as usize * LATENT;
        let latent: Vec<f32> = centres[centre..centre + LATENT].iter().map(|number| number + noise.next()).collect();
        let vector: Vec<f32> = across.chunks_exact(LATENT).map(|row| metric.dot(&latent, row) + 3.0 * noise.next()).collect();
        let length = metric.dot(&vector, &vector).sqrt();
        vectors.extend(vector.iter().map(|number| number / length));
    }
    vectors
}

/// Normally distributed numbers by the Box-Muller transform over SplitMix64.
struct Normal {
    state: u64,
    spare: Option<f32>,
}

impl Normal {
    fn new(seed: u64) -> Self {
        Self { state: seed, spare: None }
    }

    fn word(&mut self) -> u64 {
        super::hnsw::next_random(&mut self.state)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.word() % limit
    }

    fn next(&mut self) -> f32 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let mut uniform = || ((self.word() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
        self.spare = Some((radius * angle.sin()) as f32);
        (radius * angle.cos()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recipe_is_normal_and_repeatable() {
        let mut normal = Normal::new(3);
        let drawn: Vec<f64> = (0..40_000).map(|_| f64::from(normal.next())).collect();
        let mean = drawn.iter().sum::<f64>() / 40_000.0;
        let variance = drawn.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 40_000.0;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.03, "{mean} {variance}");
        let tail = drawn.iter().filter(|number| number.abs() > 1.96).count();
        assert!((1_800..2_200).contains(&tail), "{tail} of 40,000 beyond 1.96");
        assert_eq!(sample(5, 1), sample(7, 1)[..5 * DIMENSION]);
        assert_ne!(sample(1, 1), sample(1, 2));
    }

    #[test]
    fn a_folder_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::generate(300, 20).unwrap();
        let bytes = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<_>>();
        fs::write(folder.path().join("base.f32"), bytes(&data.base)).unwrap();
        fs::write(folder.path().join("query.f32"), bytes(&data.queries)).unwrap();
        let truth: Vec<u8> = data.truth.iter().flat_map(|id| id.to_le_bytes()).collect();
        fs::write(folder.path().join("truth.i32"), &truth).unwrap();
        let report = run(folder.path(), true).unwrap();
        assert_eq!((report.vectors, report.queries, report.points.len()), (300, 20, 1));
        assert_eq!(report.points[0].recall_at_10, 1.0);
        assert!(report.points[0].queries_per_second > 0.0 && report.bytes >= 300 * DIMENSION * 4);
        let text = serde_json::to_string(&report).unwrap();
        assert!(text.contains("\"recall_at_10\":1.0"), "{text}");

        fs::write(folder.path().join("truth.i32"), &truth[..truth.len() - 4]).unwrap();
        assert!(matches!(run(folder.path(), false), Err(Error::BenchData { .. })));
        fs::write(folder.path().join("truth.i32"), 300i32.to_le_bytes().repeat(200)).unwrap();
        let error = run(folder.path(), false).unwrap_err();
        assert!(error.to_string().ends_with("id 300, there are 300 vectors"), "{error}");
    }
}
