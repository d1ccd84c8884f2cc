//! A local chat model as a [`Provider`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::answer::Model;
use super::constraint::Grammars;
use super::decoder::Decoder;
use super::gguf::{self, Gguf};
use super::template::{Template, TemplateChoice, TemplateUse};
use super::tokenizer::Tokenizer;
use super::worker::{self, Job, Outlet};
use crate::provider::{Capabilities, Delta, Error, Finish, Provider, Request, ToolSupport, Usage};

/// Why a file cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong, where, and what to do.
    pub reason: String,
    /// Whether only the chat template is at fault, so that another one helps.
    pub template: bool,
}

impl From<String> for Refused {
    fn from(reason: String) -> Self {
        Self { reason, template: false }
    }
}

/// Loads a GGUF file with the template it brings. See [`load_with`].
///
/// # Errors
/// [`Error::Unavailable`] with the reason: the file is no GGUF, cut off, damaged, of an architecture that is not
/// supported, or lacks something that a chat model needs.
pub fn load(id: &str, path: &Path, threads: usize) -> Result<Arc<dyn Provider>, Error> {
    let loaded = load_with(id, path, threads, &TemplateChoice::Own);
    loaded.map(|(model, _)| model).map_err(|refused| Error::Unavailable { model: id.to_owned(), reason: refused.reason })
}

/// Loads a GGUF file and starts its worker thread; says which template it uses. Blocks while it loads. `threads` 0 takes
/// one per physical core.
///
/// # Errors
/// As with [`load`], and whether another template would help.
pub fn load_with(id: &str, path: &Path, threads: usize, choice: &TemplateChoice) -> Result<(Arc<dyn Provider>, TemplateUse), Refused> {
    let model = Arc::new(model(path, choice)?);
    let used = model.template.used().clone();
    let jobs = worker::start(Arc::clone(&model), threads)?;
    Ok((Arc::new(Chat { id: id.to_owned(), model, jobs }), used))
}

/// Reads a model. A panic of a part that reads the file is a fault of the file.
pub(super) fn model(path: &Path, choice: &TemplateChoice) -> Result<Model, Refused> {
    match catch_unwind(AssertUnwindSafe(|| read(path, choice))) {
        Ok(model) => model,
        Err(panic) => Err(format!("{} is damaged ({}); download it again", path.display(), worker::words(panic.as_ref())).into()),
    }
}

fn read(path: &Path, choice: &TemplateChoice) -> Result<Model, Refused> {
    let fault = |e: gguf::Error| e.to_string();
    let mut gguf = Gguf::open(path).map_err(fault)?;
    // The architecture first: that error helps more than one about a part of the file.
    let config = super::decoder::Config::read(&gguf).map_err(fault)?;
    let tokenizer = Tokenizer::read(&gguf).map_err(fault)?;
    if tokenizer.len() > config.vocabulary {
        let what = format!("{} tokens have {} embeddings", tokenizer.len(), config.vocabulary);
        return Err(gguf.damaged(what).to_string().into());
    }
    let template = Template::choose(choice, gguf.text("tokenizer.chat_template").ok(), &tokenizer);
    let template = template.map_err(|e| Refused { reason: format!("{}: {e}", path.display()), template: true })?;
    let grammars = Grammars::new(&tokenizer)?;
    let decoder = Decoder::read(&mut gguf).map_err(fault)?;
    Ok(Model { decoder, tokenizer, template, grammars })
}

/// A model with its line of requests.
#[derive(Debug)]
struct Chat {
    id: String,
    model: Arc<Model>,
    jobs: mpsc::Sender<Job>,
}

impl Provider for Chat {
    fn id(&self) -> &str {
        &self.id
    }

    fn capabilities(&self) -> Capabilities {
        let tools = if self.model.template.knows_tools() { ToolSupport::Native } else { ToolSupport::Constrained };
        Capabilities { context: self.model.decoder.config().context, tools }
    }

    fn count(&self, request: &Request) -> Option<usize> {
        self.model.prompt(request).ok().map(|(tokens, _)| tokens.len())
    }

    fn stream(&self, request: Request, cancel: CancellationToken) -> BoxStream<'static, Result<Delta, Error>> {
        let (sender, deltas) = mpsc::unbounded_channel();
        let started = Arc::new(AtomicBool::new(false));
        let out = Outlet { deltas: sender, cancel: cancel.clone() };
        let job = Job { request, out, started: Arc::clone(&started), asked: Instant::now() };
        let feed = Feed { waiting: Some((self.jobs.clone(), job)), deltas, cancel, started, over: false };
        stream::unfold(feed, Feed::next).boxed()
    }
}

/// The receiving end of one answer.
struct Feed {
    waiting: Option<(mpsc::Sender<Job>, Job)>,
    deltas: mpsc::UnboundedReceiver<Result<Delta, Error>>,
    cancel: CancellationToken,
    started: Arc<AtomicBool>,
    over: bool,
}

impl Feed {
    async fn next(mut self) -> Option<(Result<Delta, Error>, Self)> {
        if self.over {
            return None;
        }
        let step = self.step().await;
        self.over = matches!(step, Err(_) | Ok(Delta::Finished { .. }));
        Some((step, self))
    }

    async fn step(&mut self) -> Result<Delta, Error> {
        if let Some((jobs, job)) = self.waiting.take() {
            tokio::select! {
                biased;
                () = self.cancel.cancelled() => return Ok(cancelled()),
                sent = jobs.send(job) => sent.map_err(|_| gone())?,
            }
        }
        loop {
            // Once its turn has come, the model itself says how far it got.
            let queued = !self.started.load(Ordering::Acquire);
            tokio::select! {
                biased;
                delta = self.deltas.recv() => {
                    let delta = delta.unwrap_or_else(|| Err(gone()));
                    // What was under way when it was cancelled is no longer shown; only the end is.
                    let end = matches!(delta, Err(_) | Ok(Delta::Finished { .. }));
                    if end || !self.cancel.is_cancelled() {
                        return delta;
                    }
                }
                () = self.cancel.cancelled(), if queued => {
                    if !self.started.load(Ordering::Acquire) {
                        return Ok(cancelled());
                    }
                }
            }
        }
    }
}

fn cancelled() -> Delta {
    Delta::Finished { reason: Finish::Cancelled, usage: Usage::default() }
}

fn gone() -> Error {
    Error::Broken("the model's thread has ended; restart the program".to_owned())
}
