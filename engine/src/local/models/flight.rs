//! Fetches that run: one per model, ended when their straw is dropped.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::{Inner, ModelState};
use crate::local::download::{Error, Fetched};

/// A cancelled fetch writes down what it has received; a new one waits this long for that.
const LANDING: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The fetches that run, by model.
#[derive(Debug, Default)]
pub(super) struct Running {
    flights: Mutex<HashMap<String, (u64, Weak<Flight>)>>,
    serial: AtomicU64,
}

/// One fetch; it lasts until the last writer of its files has ended, which may be after its straw was dropped.
#[derive(Debug)]
pub(super) struct Flight {
    inner: Arc<Inner>,
    id: String,
    serial: u64,
    cancelled: Arc<AtomicBool>,
    lock: Option<Lock>,
}

/// Keeps other processes from fetching the same model: `<id>.lock` beside the model's folder.
#[derive(Debug)]
struct Lock {
    file: Option<File>,
    path: PathBuf,
}

impl Lock {
    /// None where the file system has no locks; that is no reason not to fetch.
    fn take(inner: &Inner, id: &str) -> Result<Option<Self>, Error> {
        let path = inner.folder.join(format!("{id}.lock"));
        let opened = std::fs::create_dir_all(&inner.folder).and_then(|()| File::create(&path));
        let Ok(file) = opened else { return Ok(None) };
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { file: Some(file), path })),
            Err(TryLockError::WouldBlock) => Err(Error::Running(id.to_owned())),
            Err(TryLockError::Error(_)) => Ok(None),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closed first: some platforms remove no open file.
        drop(self.file.take());
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Running {
    /// Begins the fetch of a model, unless one runs.
    pub async fn begin(inner: &Arc<Inner>, id: &str, cancelled: Arc<AtomicBool>) -> Result<Arc<Flight>, Error> {
        let patience = Instant::now() + LANDING;
        loop {
            let Some(other) = inner.running.find(id) else { break };
            if !other.cancelled.load(Ordering::Acquire) || Instant::now() > patience {
                return Err(Error::Running(id.to_owned()));
            }
            drop(other);
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let serial = inner.running.serial.fetch_add(1, Ordering::Relaxed);
        let lock = Lock::take(inner, id)?;
        let flight = Arc::new(Flight { inner: inner.clone(), id: id.to_owned(), serial, cancelled, lock });
        let mut flights = inner.running.flights.lock().unwrap_or_else(PoisonError::into_inner);
        // Another one may have begun between the look above and this lock.
        if flights.get(id).is_some_and(|(_, other)| other.strong_count() > 0) {
            drop(flights);
            return Err(Error::Running(id.to_owned()));
        }
        let _ = flights.insert(id.to_owned(), (serial, Arc::downgrade(&flight)));
        Ok(flight)
    }

    /// An error when a fetch of this model runs.
    pub fn free(&self, id: &str) -> Result<(), Error> {
        if self.find(id).is_some() { Err(Error::Running(id.to_owned())) } else { Ok(()) }
    }

    /// The flight is handed out of the lock, for dropping the last reference takes the lock again.
    fn find(&self, id: &str) -> Option<Arc<Flight>> {
        let flights = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        let found = flights.get(id).and_then(|(_, flight)| flight.upgrade());
        drop(flights);
        found
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut flights = self.inner.running.flights.lock().unwrap_or_else(PoisonError::into_inner);
        if flights.get(&self.id).is_none_or(|(serial, _)| *serial != self.serial) {
            return;
        }
        let _ = flights.remove(&self.id);
        drop(self.lock.take());
        drop(flights);
        let told = self.inner.told.lock().unwrap_or_else(PoisonError::into_inner);
        let fetching = matches!(told.get(&self.id), Some(ModelState::Fetching(_)));
        drop(told);
        if let (true, Some(offer)) = (fetching, self.inner.catalogue.get(&self.id)) {
            let _view = self.inner.settle(offer, None);
        }
    }
}

/// A fetch on its runtime; dropping it cancels.
pub(super) struct Task {
    handle: JoinHandle<Result<Fetched, Error>>,
    cancelled: Arc<AtomicBool>,
}

impl Task {
    /// Starts the work, which is given the flag that says whether it was cancelled.
    pub fn start<F>(runtime: &Handle, work: impl FnOnce(Arc<AtomicBool>) -> F) -> Self
    where
        F: Future<Output = Result<Fetched, Error>> + Send + 'static,
    {
        let cancelled = Arc::new(AtomicBool::new(false));
        Self { handle: runtime.spawn(work(cancelled.clone())), cancelled }
    }

    /// Waits for the result.
    pub async fn join(mut self) -> Result<Fetched, Error> {
        match (&mut self.handle).await {
            Ok(result) => result,
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(Error::Sources(vec![("this program".to_owned(), "it is being stopped".to_owned())])),
        }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Release);
        self.handle.abort();
    }
}
