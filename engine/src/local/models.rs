//! The models on this machine: what is there, what can be fetched, what is loaded.
//!
//! A model lives in `<folder>/<id>/` with a `source.toml` that says where it came from. Whether it is ready is
//! decided by the presence and the exact size of its files; before a model is loaded, a file that changed since its
//! checksum was verified is hashed again.

mod check;
mod flight;
mod loaded;
mod own;
mod templates;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sipper::{Straw, sipper};
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc};

use super::catalogue::{Catalogue, Entry, Kind, Offer};
use super::download::record::Record;
use super::download::{self, Endpoints, Fetched, Job, Progress, location, size_words};
use super::template::{self, TemplateChoice, TemplateUse};
use super::{chat, encoder};
use crate::embedding::{self, Embedder};
use crate::provider::{self, Provider};
use check::{on_disk, size};
use flight::{Running, Task};
use loaded::Loaded;
use own::Own;
pub use templates::TemplateView;
use templates::Templates;

/// Room for changes that a slow receiver has not taken yet.
const FEED: usize = 256;
/// Progress steps between a fetch and its straw; more are dropped, the next one says more anyway.
const STEPS: usize = 16;

/// One model as the screen shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelView {
    /// Its catalogue entry.
    pub entry: Entry,
    /// Where it stands.
    pub state: ModelState,
    /// Its chat template.
    pub template: TemplateView,
}

/// Where a model stands.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelState {
    /// Not on this machine; `partial` bytes of an earlier fetch are kept and resumed.
    Missing {
        /// Bytes already here.
        partial: u64,
    },
    /// Being fetched.
    Fetching(Progress),
    /// Here and whole.
    Ready {
        /// Its file or folder.
        path: PathBuf,
        /// Where it came from, in words.
        source: String,
    },
    /// Here, but its checksum is wrong, or the last fetch failed.
    Broken {
        /// Why, and what to do.
        reason: String,
    },
}

/// The models; cheap to clone, one per engine.
#[derive(Clone, Debug)]
pub struct Models {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    threads: usize,
    catalogue: Catalogue,
    endpoints: Endpoints,
    runtime: Option<Handle>,
    running: Running,
    /// States that the disk does not show: fetches that run or failed.
    told: Mutex<HashMap<String, ModelState>>,
    own: Own,
    templates: Templates,
    chats: Loaded<dyn Provider>,
    embedders: Loaded<dyn Embedder>,
    events: broadcast::Sender<ModelView>,
}

impl Models {
    /// The models in this folder. `threads` is for the decoder; 0 chooses.
    #[must_use]
    pub fn new(folder: PathBuf, threads: usize) -> Self {
        Self::open(folder, threads, Catalogue::shipped(), Endpoints::from_env())
    }

    /// The models of a catalogue, reached through these endpoints. Fetches run on the async runtime that is entered
    /// here, else on the one that polls them.
    #[must_use]
    pub fn open(folder: PathBuf, threads: usize, catalogue: Catalogue, endpoints: Endpoints) -> Self {
        let own = Own::read(folder.join("own.toml"));
        let templates = Templates::read(folder.join("templates.toml"));
        let inner = Inner {
            folder,
            threads,
            catalogue,
            endpoints,
            runtime: Handle::try_current().ok(),
            running: Running::default(),
            told: Mutex::default(),
            own,
            templates,
            chats: Loaded::default(),
            embedders: Loaded::default(),
            events: broadcast::channel(FEED).0,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Where the models are kept.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.inner.folder
    }

    /// The catalogue.
    #[must_use]
    pub fn catalogue(&self) -> &Catalogue {
        &self.inner.catalogue
    }

    /// Changed models from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<ModelView> {
        self.inner.events.subscribe()
    }

    /// Every model of the catalogue, then the person's own GGUF files.
    #[must_use]
    pub fn list(&self) -> Vec<ModelView> {
        let own = self.inner.own.entries().into_iter().map(|(entry, path)| self.inner.own_view(entry, path));
        self.inner.catalogue.offers().iter().map(|offer| self.inner.view(offer)).chain(own).collect()
    }

    /// Fetches a model, resuming what is there. Dropping the straw cancels and keeps the partial file.
    pub fn fetch(&self, id: &str) -> impl Straw<Fetched, Progress, download::Error> + use<> {
        let (inner, id) = (self.inner.clone(), id.to_owned());
        sipper(move |mut sender| async move {
            let Some(runtime) = inner.runtime.clone().or_else(|| Handle::try_current().ok()) else {
                return Err(download::Error::Sources(vec![("this program".to_owned(), "no async runtime runs".to_owned())]));
            };
            let (steps, mut progress) = mpsc::channel(STEPS);
            let task = Task::start(&runtime, |cancelled| inner.fetch(id, cancelled, steps));
            while let Some(step) = progress.recv().await {
                sender.send(step).await;
            }
            task.join().await
        })
    }

    /// Takes a file of the person's own as the model `id` after checking its sha256, or any GGUF as a chat model.
    /// A folder with all the files of a catalogue model will do too. Blocks while it hashes.
    pub fn adopt(&self, path: &Path) -> Result<ModelView, download::Error> {
        if let Some(offer) = own::matching(&self.inner.catalogue, path) {
            self.inner.running.free(&offer.entry.id)?;
            own::bring(offer, path, &self.inner.folder.join(&offer.entry.id))?;
            return Ok(self.inner.settle(offer, None));
        }
        let taken = |id: &str| self.inner.catalogue.get(id).is_some();
        let (entry, path) = self.inner.own.add(path, taken)?;
        let view = self.inner.own_view(entry, path);
        self.inner.tell(view.clone());
        Ok(view)
    }

    /// Checks the sha256 of a model's files. Blocks.
    pub fn verify(&self, id: &str) -> Result<ModelView, download::Error> {
        if let Some((entry, path)) = self.inner.own.find(id) {
            return Ok(self.inner.own_view(entry, path));
        }
        let offer = self.inner.offer(id)?;
        self.inner.running.free(id)?;
        self.inner.check(offer)
    }

    /// Removes a model and says how many bytes that freed. A file of the person's own is only forgotten.
    pub fn remove(&self, id: &str) -> Result<u64, download::Error> {
        if let Some((_, path)) = self.inner.own.find(id) {
            self.inner.own.forget(&path)?;
            self.inner.chats.forget(&path);
            return Ok(0);
        }
        let offer = self.inner.offer(id)?;
        self.inner.running.free(id)?;
        let folder = self.inner.folder.join(id);
        self.inner.chats.forget(&location(offer, &folder));
        self.inner.embedders.forget(&folder);
        let freed = size(&folder);
        match std::fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(download::disk(&folder, &error)),
            _ => {}
        }
        let _view = self.inner.settle(offer, None);
        Ok(freed)
    }

    /// The chat model of this id, or the GGUF file at this path; loaded once, on its own thread. Blocks while it
    /// loads.
    pub fn chat(&self, id_or_path: &str) -> Result<Arc<dyn Provider>, provider::Error> {
        let unavailable = |reason| provider::Error::Unavailable { model: id_or_path.to_owned(), reason };
        let (id, path) = self.inner.chat_file(id_or_path).map_err(unavailable)?;
        let loaded = self.inner.chats.get(&path, || {
            let choice = self.inner.templates.choice(&path);
            chat::load_with(&id, &path, self.inner.threads, &choice).map(|(model, used)| {
                self.inner.saw(&id, &path, Ok(used));
                model
            })
        });
        loaded.map_err(|refused| {
            if refused.template {
                self.inner.saw(&id, &path, Err(refused.reason.clone()));
            }
            unavailable(refused.reason)
        })
    }

    /// Chooses the template of a chat model, by its id or the path of its file, from its next answer on; kept until another
    /// one is chosen. A template that does not parse is refused.
    pub fn choose_template(&self, id_or_path: &str, choice: &TemplateChoice) -> Result<TemplateView, download::Error> {
        let (id, path) = self.inner.place(id_or_path).ok_or_else(|| download::Error::Unknown(id_or_path.to_owned()))?;
        let choice = match choice {
            // The folder that a path is relative to may be another one next time.
            TemplateChoice::File(file) => TemplateChoice::File(std::fs::canonicalize(file).unwrap_or_else(|_| file.clone())),
            other => other.clone(),
        };
        template::check(&choice).map_err(download::Error::Template)?;
        if self.inner.templates.choice(&path) != choice {
            self.inner.templates.choose(&path, &choice)?;
            self.inner.chats.forget(&path);
            self.inner.tell_again(&id);
        }
        Ok(self.inner.templates.view(&path))
    }

    /// The template of a chat model, by its id or the path of its file.
    #[must_use]
    pub fn template(&self, id_or_path: &str) -> Option<TemplateView> {
        self.inner.place(id_or_path).map(|(_, path)| self.inner.templates.view(&path))
    }

    /// The embedding model of this id; loaded once. Blocks while it loads.
    pub fn embedder(&self, id: &str) -> Result<Arc<dyn Embedder>, embedding::Error> {
        let failed = |reason: String| embedding::Error::Load(format!("{id}: {reason}"));
        let offer = self.inner.catalogue.get(id).ok_or_else(|| failed("it is not in the catalogue".to_owned()))?;
        if offer.entry.kind != Kind::Embedding {
            return Err(failed("it is a chat model, not an embedding model".to_owned()));
        }
        let path = self.inner.ready(offer).map_err(failed)?;
        self.inner.embedders.get(&path, || encoder::load(id, &path))
    }
}

impl Inner {
    fn offer(&self, id: &str) -> Result<&Offer, download::Error> {
        self.catalogue.get(id).ok_or_else(|| download::Error::Unknown(id.to_owned()))
    }

    fn view(&self, offer: &Offer) -> ModelView {
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner).get(&offer.entry.id).cloned();
        let folder = self.folder.join(&offer.entry.id);
        let template = match offer.entry.kind {
            Kind::Chat => self.templates.view(&location(offer, &folder)),
            Kind::Embedding => TemplateView::default(),
        };
        ModelView { entry: offer.entry.clone(), state: told.unwrap_or_else(|| on_disk(offer, &folder)), template }
    }

    fn own_view(&self, entry: Entry, path: PathBuf) -> ModelView {
        let template = self.templates.view(&path);
        let state = match own::gguf(&path) {
            Ok(()) => ModelState::Ready { path, source: "a file of yours".to_owned() },
            Err(error) => ModelState::Broken { reason: error.to_string() },
        };
        ModelView { entry, state, template }
    }

    /// Takes down what loading found about a template, and shows it.
    fn saw(&self, id: &str, path: &Path, found: Result<TemplateUse, String>) {
        if self.templates.saw(path, found) {
            self.tell_again(id);
        }
    }

    /// Broadcasts how a model stands now.
    fn tell_again(&self, id: &str) {
        if let Some(offer) = self.catalogue.get(id) {
            self.tell(self.view(offer));
        } else if let Some((entry, path)) = self.own.find(id) {
            self.tell(self.own_view(entry, path));
        }
    }

    /// The id and the file of what a person calls a chat model, whether it can be loaded or not.
    fn place(&self, id_or_path: &str) -> Option<(String, PathBuf)> {
        if let Some(offer) = self.catalogue.get(id_or_path) {
            let chats = offer.entry.kind == Kind::Chat;
            return chats.then(|| (offer.entry.id.clone(), location(offer, &self.folder.join(&offer.entry.id))));
        }
        if let Some((entry, path)) = self.own.find(id_or_path) {
            return Some((entry.id, path));
        }
        let path = std::fs::canonicalize(id_or_path).ok()?;
        Some((own::stem(&path), path))
    }

    /// Replaces what was told of a model and broadcasts how it stands now.
    fn settle(&self, offer: &Offer, state: Option<ModelState>) -> ModelView {
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = match state {
                Some(state) => told.insert(offer.entry.id.clone(), state),
                None => told.remove(&offer.entry.id),
            };
        }
        let view = self.view(offer);
        self.tell(view.clone());
        view
    }

    fn tell(&self, view: ModelView) {
        // Nobody may be listening; the state is kept either way.
        drop(self.events.send(view));
    }

    async fn fetch(
        self: Arc<Self>,
        id: String,
        cancelled: Arc<std::sync::atomic::AtomicBool>,
        steps: mpsc::Sender<Progress>,
    ) -> Result<Fetched, download::Error> {
        let offer = self.offer(&id)?.clone();
        let flight = Running::begin(&self, &id, cancelled).await?;
        let folder = self.folder.join(&id);
        let (checked, hold) = (self.clone(), flight.clone());
        let known = tokio::task::spawn_blocking(move || {
            let _hold = hold;
            checked.heal(&checked.offer(&id)?.clone())
        });
        match known.await {
            Ok(Ok(Some(fetched))) => return Ok(fetched),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => return Err(error),
            Err(error) => return Err(download::Error::Sources(vec![("this machine".to_owned(), error.to_string())])),
        }
        let (reporter, shown) = (self.clone(), offer.clone());
        let report = Arc::new(move |step: Progress| {
            let _view = reporter.settle(&shown, Some(ModelState::Fetching(step.clone())));
            let _ = steps.try_send(step);
        });
        let job = Job { offer: offer.clone(), folder, endpoints: self.endpoints.clone(), report, hold: flight.clone() };
        let result = download::run(&job).await;
        let state = result.as_ref().err().map(|error| ModelState::Broken { reason: format!("{error}. Fetch it again to go on") });
        let _view = self.settle(&offer, state);
        result
    }

    /// The path of a model that can be loaded, or why it cannot be and what to do.
    fn ready(&self, offer: &Offer) -> Result<PathBuf, String> {
        let id = &offer.entry.id;
        let folder = self.folder.join(id);
        let mut state = self.view(offer).state;
        if matches!(state, ModelState::Ready { .. }) {
            let record = Record::read(&folder);
            if !record.is_some_and(|record| offer.files.iter().all(|file| record.vouches(&folder, file))) {
                state = self.check(offer).map_err(|error| error.to_string())?.state;
            }
        }
        let size = size_words(offer.entry.bytes);
        let remedy = match offer.entry.kind {
            Kind::Chat => format!("fetch it ({size}, `models fetch {id}`), or choose a GGUF file of your own"),
            Kind::Embedding => format!("fetch it ({size}, `models fetch {id}`), or choose a folder with its files"),
        };
        match state {
            ModelState::Ready { path, .. } => Ok(path),
            ModelState::Fetching(progress) => Err(format!("it is being downloaded ({} of {size})", size_words(progress.done))),
            ModelState::Missing { partial: 0 } => Err(format!("it is not on this machine: {remedy}")),
            ModelState::Missing { partial } => Err(format!("only {} of it are on this machine: {remedy}", size_words(partial))),
            ModelState::Broken { reason } => Err(reason),
        }
    }

    /// The id and the file behind what a person calls a chat model.
    fn chat_file(&self, id_or_path: &str) -> Result<(String, PathBuf), String> {
        if let Some(offer) = self.catalogue.get(id_or_path) {
            if offer.entry.kind != Kind::Chat {
                return Err("it is an embedding model and does not chat".to_owned());
            }
            return Ok((offer.entry.id.clone(), self.ready(offer)?));
        }
        if let Some((entry, path)) = self.own.find(id_or_path) {
            own::gguf(&path).map_err(|error| error.to_string())?;
            return Ok((entry.id, path));
        }
        let path = Path::new(id_or_path);
        if !path.exists() {
            return Err("it is neither a model of the catalogue (`models list` shows them) nor a file on this machine".to_owned());
        }
        own::gguf(path).map_err(|error| error.to_string())?;
        let path = std::fs::canonicalize(path).map_err(|error| error.to_string())?;
        Ok((own::stem(&path), path))
    }
}
