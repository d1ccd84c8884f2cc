//! The thread of a model: requests wait in a line, one is answered at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::answer::{self, Model};
use super::memory::Memory;
use crate::provider::{Delta, Error, Request};

/// Requests that wait behind the one being answered; further senders wait for a place.
const LINE: usize = 16;

/// Where an answer goes.
#[derive(Debug)]
pub struct Outlet {
    /// Takes the deltas.
    pub deltas: mpsc::UnboundedSender<Result<Delta, Error>>,
    /// Stops the answer.
    pub cancel: CancellationToken,
}

impl Outlet {
    /// Whether the answer is no longer wanted.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.cancel.is_cancelled() || self.deltas.is_closed()
    }

    /// Sends a step. Whether anybody still listens shows in [`Self::is_stopped`].
    pub fn send(&self, delta: Delta) {
        let _ = self.deltas.send(Ok(delta));
    }
}

/// A request on its way.
#[derive(Debug)]
pub struct Job {
    /// What to answer.
    pub request: Request,
    /// Where to.
    pub out: Outlet,
    /// Set when its turn has come.
    pub started: Arc<AtomicBool>,
    /// When it was asked.
    pub asked: Instant,
}

/// Starts the thread. It ends when every sender is gone. Matrix products run on a pool of `threads` threads of its own;
/// what 0 means is said at [`pool`].
pub fn start(model: Arc<Model>, threads: usize) -> Result<mpsc::Sender<Job>, String> {
    let (jobs, mut line) = mpsc::channel::<Job>(LINE);
    let pool = pool(threads)?;
    let mut memory = Memory::new(&model.decoder).map_err(|e| e.to_string())?;
    let work = move || {
        while let Some(job) = line.blocking_recv() {
            pool.install(|| run(&model, &mut memory, &job));
        }
    };
    let thread = std::thread::Builder::new().name("handrail-model".to_owned()).spawn(work);
    thread.map(|_| jobs).map_err(|e| format!("no thread for the model: {e}"))
}

/// A pool of threads for matrix products. 0 takes one per physical core: two hardware threads of a core share the units
/// that multiply, so more would only wait for each other. On processors with slow and fast cores it takes the fast ones;
/// `RAYON_NUM_THREADS` overrides it. At least one thread is there.
pub fn pool(threads: usize) -> Result<rayon::ThreadPool, String> {
    let threads = if threads == 0 { candle_core::utils::get_num_threads() } else { threads };
    let builder = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).thread_name(|nth| format!("handrail-model-{nth}"));
    builder.build().map_err(|e| format!("no threads for the model: {e}"))
}

fn run(model: &Model, memory: &mut Memory, job: &Job) {
    job.started.store(true, Ordering::Release);
    if job.out.deltas.is_closed() {
        return;
    }
    let answered = catch_unwind(AssertUnwindSafe(|| answer::answer(model, memory, job)));
    let error = match answered {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error,
        Err(panic) => {
            // The step that broke off may have left keys without their token.
            memory.truncate(0);
            Error::Broken(format!("an internal fault: {}", words(panic.as_ref())))
        }
    };
    let _ = job.out.deltas.send(Err(error));
}

/// The words of a panic.
pub fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("unknown").lines().next().unwrap_or("unknown").to_owned()
}
