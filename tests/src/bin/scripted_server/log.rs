//! What happened, one JSON object per line.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct Log {
    path: Option<PathBuf>,
    start: Instant,
    lock: Arc<Mutex<()>>,
}

impl Log {
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, start: Instant::now(), lock: Arc::default() }
    }

    /// How long the server has been running.
    pub fn age(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn write(&self, mut entry: Value) {
        let Some(path) = &self.path else {
            return;
        };
        let _one_at_a_time = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        entry["ms"] = json!(u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX));
        // In one piece: a grandchild appends to the same file.
        let line = format!("{entry}\n");
        let written = std::fs::OpenOptions::new().create(true).append(true).open(path).and_then(|mut file| file.write_all(line.as_bytes()));
        if let Err(error) = written {
            eprintln!("handrail-scripted-server: {}: {error}", path.display());
        }
    }
}
