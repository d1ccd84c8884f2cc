//! The parser child: the same program with a hidden argument. A file that makes a parser run out of memory, of stack
//! or of time ends the child and never the app.
//!
//! The parent writes one [`Job`] as a line of JSON to the child's standard input and keeps it open; the child writes
//! one [`Frame`] a line to its standard output. When the parent goes away the input ends and so does the child.

mod child;
mod parent;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use parent::{Summary, parse};

use super::load::{Opened, Part};

/// The hidden first argument that makes the program parse a file and exit.
pub const ARGUMENT: &str = "--extract-worker";

/// The bounds of one reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of address space of the child (unix only). 1.5 GiB.
    pub memory: u64,
    /// Processor seconds for opening the file and for each part (unix only). 20 s.
    pub cpu_seconds: u64,
    /// The longest time without a frame. 60 s.
    pub silence: Duration,
    /// Characters of text in all. 20 million.
    pub characters: usize,
    /// Bytes of one frame. 32 MiB.
    pub frame: usize,
    /// How often a crashed child is started again at the page after the one that crashed it. 5 times.
    pub restarts: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 3 << 29, cpu_seconds: 20, silence: Duration::from_secs(60), characters: 20_000_000, frame: 32 << 20, restarts: 5 }
    }
}

/// What the child is asked to read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The file.
    pub path: PathBuf,
    /// The first part to read, from 1.
    pub from: u32,
    /// Its bounds.
    pub limits: Limits,
}

/// What the child says, one line of JSON each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "frame", rename_all = "snake_case")]
pub enum Frame {
    /// The file could be opened.
    Started(Opened),
    /// A page or a part was read.
    Part(Part),
    /// Everything was read.
    Done {
        /// Why not all of it is here although nothing failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cut: Option<String>,
    },
    /// The file cannot be read.
    Failed {
        /// Why, and what to do.
        reason: String,
    },
}

/// Runs the worker when the program was started as one; call it first in `main`. Returns the exit status to end
/// with, or `None` for a normal start.
#[must_use]
pub fn run_if_asked() -> Option<std::process::ExitCode> {
    (std::env::args_os().nth(1)? == ARGUMENT).then(child::run)
}
