//! The whole engine behind one cheap-clone handle: it owns the runtime, wires the rooms and merges their events.

mod sampling;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sipper::{Sipper as _, Straw, sipper};
use tokio::sync::broadcast;

use crate::approval::Gate;
use crate::conversation::{Attachment, Conversation, ConversationId, Message};
use crate::event::Event;
use crate::secret::{KeyringOrFile, Secrets};
use crate::settings::Settings;
use crate::store::Store;
use crate::{local, mcp, provider, rag, settings, store, turn};

/// Room for events that a slow receiver has not taken yet; one that falls behind takes a new snapshot.
const FEED: usize = 1024;

/// Threads of the runtime: more than one or two, because a short database write may wait for another process that
/// holds the file, and Stop and the servers must not wait with it.
const WORKERS: usize = 4;

/// Where an engine lives and what it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data folder.
    pub data_dir: PathBuf,
    /// Where models are kept; a folder in the data folder where not given.
    pub models_dir: Option<PathBuf>,
    /// The program that parses documents when started with [`rag::worker::ARGUMENT`]; this program where not given.
    pub worker: Option<PathBuf>,
    /// The MCP configuration; `mcp_config.json` in the data folder where not given.
    pub mcp_config: Option<PathBuf>,
    /// Whether active servers are started with the engine, and others as soon as they are added.
    pub start_servers: bool,
    /// Whether there are MCP servers at all; without, their configuration is not even read.
    pub mcp: bool,
    /// Whose word starts a server.
    pub consent: mcp::consent::Policy,
}

impl Config {
    /// The usual configuration for a data folder.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            models_dir: None,
            worker: None,
            mcp_config: None,
            start_servers: true,
            mcp: true,
            consent: mcp::consent::Policy::Ask,
        }
    }

    /// The data folder: the one given, else `HANDRAIL_DATA_DIR`, else the platform's place for application data.
    pub fn data_dir(given: Option<PathBuf>) -> Result<PathBuf, Error> {
        given
            .or_else(|| std::env::var_os("HANDRAIL_DATA_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from))
            .or_else(Self::usual_data_dir)
            .ok_or(Error::NoDataDir)
    }

    /// The platform's place for application data.
    fn usual_data_dir() -> Option<PathBuf> {
        directories::ProjectDirs::from("", "", "handrail").map(|dirs| dirs.data_dir().to_owned())
    }
}

/// How the engine is stopped, and how long each server and all of it may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// The app exits.
    Exit,
    /// The app restarts.
    Restart,
    /// Everything is reset.
    FactoryReset,
}

impl Shutdown {
    /// The budget per server and in total.
    #[must_use]
    pub fn budget(self) -> (Duration, Duration) {
        match self {
            Self::Exit => (Duration::from_millis(500), Duration::from_millis(1500)),
            Self::Restart => (Duration::from_secs(2), Duration::from_secs(5)),
            Self::FactoryReset => (Duration::from_secs(5), Duration::from_secs(10)),
        }
    }
}

/// The engine; cheap to clone. The last clone to go stops the runtime.
#[derive(Clone, Debug)]
pub struct Engine {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    runtime: Option<tokio::runtime::Runtime>,
    config: Config,
    settings: Mutex<Settings>,
    settings_error: Option<settings::Error>,
    store: Store,
    gate: Gate,
    models: local::Models,
    servers: mcp::Manager,
    library: rag::Library,
    secrets: Arc<dyn Secrets>,
    feed: broadcast::Sender<Event>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Never block here: the last handle may be dropped inside another runtime.
            runtime.shutdown_background();
        }
    }
}

impl Engine {
    /// Opens the data folder and starts the engine. Broken settings do not stop it: see [`Engine::settings_error`].
    pub fn start(config: Config) -> Result<Self, Error> {
        // A second call finds the provider installed; that is no fault.
        let _ = rustls::crypto::ring::default_provider().install_default();
        private_folder(&config.data_dir).map_err(|error| Error::DataDir { path: config.data_dir.clone(), reason: error.to_string() })?;
        let (settings, settings_error) = match Settings::load(&config.data_dir.join("settings.toml")) {
            Ok(settings) => (settings, None),
            Err(error) => (Settings::default(), Some(error)),
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .thread_name("handrail-engine")
            .enable_all()
            .build()
            .map_err(|error| Error::Runtime(error.to_string()))?;
        let store = Store::open(&config.data_dir.join("handrail.db"))?;
        let worker = match &config.worker {
            Some(worker) => worker.clone(),
            None => std::env::current_exe().map_err(|error| Error::Runtime(error.to_string()))?,
        };
        let models_dir = config.models_dir.clone().unwrap_or_else(|| config.data_dir.join("models"));
        let mcp_config = config.mcp_config.clone().unwrap_or_else(|| config.data_dir.join("mcp_config.json"));
        let _entered = runtime.enter();
        let gate = Gate::new(store.clone());
        let models = local::Models::new(models_dir, settings.threads);
        let usual = Config::usual_data_dir().is_some_and(|usual| usual == config.data_dir);
        let secrets: Arc<dyn Secrets> = Arc::new(KeyringOrFile::new(&config.data_dir, usual));
        let servers = if config.mcp {
            let options = mcp::Options {
                consent: config.consent,
                by_hand: !config.start_servers,
                data: Some(config.data_dir.clone()),
                secrets: Some(secrets.clone()),
            };
            mcp::Manager::with(mcp_config, store.clone(), options)
        } else {
            mcp::Manager::off(store.clone())
        };
        servers.set_defaults(server_defaults(&settings));
        let library = rag::Library::new(store.clone(), worker, config.data_dir.join("index"));
        let feed = broadcast::channel(FEED).0;
        forward(&runtime, gate.subscribe(), &feed, Event::Approval);
        forward(&runtime, models.subscribe(), &feed, Event::Model);
        forward(&runtime, servers.subscribe(), &feed, Event::Server);
        forward(&runtime, library.subscribe(), &feed, Event::Document);
        drop(_entered);
        let start_servers = config.start_servers;
        let settings = Mutex::new(settings);
        let inner =
            Inner { runtime: Some(runtime), config, settings, settings_error, store, gate, models, servers, library, secrets, feed };
        let engine = Self { inner: Arc::new(inner) };
        // Before the first server is started: what we declare to servers depends on it.
        engine.servers().set_sampler(Some(Arc::new(sampling::ChatModel::of(&engine.inner))));
        if start_servers {
            engine.servers().start_all();
        }
        Ok(engine)
    }

    /// Where keys and tokens are kept. Its methods block.
    #[must_use]
    pub fn secrets(&self) -> &Arc<dyn Secrets> {
        &self.inner.secrets
    }

    /// The data folder.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.inner.config.data_dir
    }

    /// The settings as they are now.
    #[must_use]
    pub fn settings(&self) -> Settings {
        self.inner.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the settings file is not used, when it is not.
    #[must_use]
    pub fn settings_error(&self) -> Option<&settings::Error> {
        self.inner.settings_error.as_ref()
    }

    /// Saves new settings and uses them from now on.
    pub fn set_settings(&self, settings: Settings) -> Result<(), Error> {
        settings.save(&self.data_dir().join("settings.toml"))?;
        self.inner.servers.set_defaults(server_defaults(&settings));
        *self.inner.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        Ok(())
    }

    /// The database.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The approval gate.
    #[must_use]
    pub fn approvals(&self) -> &Gate {
        &self.inner.gate
    }

    /// The MCP servers.
    #[must_use]
    pub fn servers(&self) -> &mcp::Manager {
        &self.inner.servers
    }

    /// The models.
    #[must_use]
    pub fn models(&self) -> &local::Models {
        &self.inner.models
    }

    /// The documents.
    #[must_use]
    pub fn library(&self) -> &rag::Library {
        &self.inner.library
    }

    /// Everything endless, from now on. Take a snapshot from the rooms after subscribing.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.inner.feed.subscribe()
    }

    /// A handle to the engine's runtime, for work that must not run on the caller's.
    #[must_use]
    pub fn handle(&self) -> tokio::runtime::Handle {
        match &self.inner.runtime {
            Some(runtime) => runtime.handle().clone(),
            // Only reachable while the engine is being dropped, when nobody holds a handle any more.
            None => tokio::runtime::Handle::current(),
        }
    }

    /// Runs async work on the engine's runtime and waits for it, from a thread that is not part of a runtime.
    pub fn block_on<F: Future>(&self, work: F) -> F::Output {
        self.handle().block_on(work)
    }
}

/// Makes the folder for its owner only: conversations are nobody else's business. One that is there stays as it is.
fn private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    let _ = builder.recursive(true);
    #[cfg(unix)]
    let _ = std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

/// Conversations.
impl Engine {
    /// All conversations, the last changed first.
    pub fn conversations(&self) -> Result<Vec<Conversation>, Error> {
        Ok(self.inner.store.conversations()?)
    }

    /// Begins a conversation.
    pub fn new_conversation(&self) -> Result<Conversation, Error> {
        Ok(self.inner.store.new_conversation()?)
    }

    /// The messages of a conversation, oldest first.
    pub fn messages(&self, conversation: ConversationId) -> Result<Vec<Message>, Error> {
        Ok(self.inner.store.messages(conversation)?)
    }

    /// Renames a conversation.
    pub fn rename_conversation(&self, conversation: ConversationId, title: &str) -> Result<(), Error> {
        Ok(self.inner.store.rename_conversation(conversation, title)?)
    }

    /// Deletes a conversation with its messages, approvals and waiting calls.
    pub fn delete_conversation(&self, conversation: ConversationId) -> Result<(), Error> {
        self.inner.gate.forget(conversation);
        Ok(self.inner.store.delete_conversation(conversation)?)
    }

    /// Reads a document and makes it ready to be attached. Dropping the straw stops the reader.
    pub fn attach(&self, path: &Path) -> impl Straw<Attachment, rag::Progress, rag::Error> + use<> {
        let engine = self.clone();
        let path = path.to_owned();
        let limit = self.settings().attachment_megabytes * 1_000_000;
        self.on_runtime(rag::Error::Index, move |mut sender| async move {
            engine.ensure_embedder().await;
            let mut ingest = engine.inner.library.ingest(&path, limit).pin();
            while let Some(progress) = ingest.sip().await {
                sender.send(progress).await;
            }
            let document = ingest.await?;
            Ok(Attachment { document: document.id, name: document.name, bytes: document.bytes })
        })
    }

    /// Runs a turn. Dropping the straw is Stop: model and calls are cancelled and what was written is kept.
    pub fn turn(&self, conversation: ConversationId, input: turn::Input) -> impl Straw<turn::Outcome, turn::Event, turn::Error> + use<> {
        let engine = self.clone();
        let broken = |reason| turn::Error::Provider(provider::Error::Broken(reason));
        self.on_runtime(broken, move |mut sender| async move {
            let wanted = input.options.model.clone().unwrap_or_else(|| engine.settings().chat_model);
            let (loader, id) = (engine.clone(), wanted.clone());
            let load = async move {
                let models = loader.inner.models.clone();
                let loaded = tokio::task::spawn_blocking(move || models.chat(&id)).await;
                let provider = loaded.map_err(|error| provider::Error::Broken(error.to_string()))??;
                loader.ensure_embedder().await;
                Ok(provider)
            };
            let mut turn = engine.runner().run_with(wanted, load, conversation, input).pin();
            while let Some(event) = turn.sip().await {
                sender.send(event).await;
            }
            turn.await
        })
    }

    /// What runs turns; for callers that bring their own model.
    #[must_use]
    pub fn runner(&self) -> turn::Runner {
        let servers = self.inner.servers.clone();
        let settings = with_servers_settings(self.settings(), &servers.settings());
        turn::Runner {
            store: self.inner.store.clone(),
            gate: self.inner.gate.clone(),
            library: self.inner.library.clone(),
            tools: Arc::new(move || servers.tools()),
            settings,
        }
    }

    /// Loads the embedding model when it is here; without it the library searches by words only.
    pub async fn ensure_embedder(&self) {
        let (models, id) = (self.inner.models.clone(), self.settings().embedding_model);
        match tokio::task::spawn_blocking(move || models.embedder(&id)).await {
            Ok(Ok(embedder)) => self.inner.library.set_embedder(Some(embedder)),
            Ok(Err(error)) => tracing::info!(%error, "searching by words only"),
            Err(error) => tracing::warn!(%error, "loading the embedding model broke off"),
        }
    }

    /// Stops servers and work within the budget. Nothing is started afterwards.
    pub async fn shutdown(&self, how: Shutdown) {
        let servers = self.inner.servers.clone();
        let (per_server, total) = how.budget();
        let stopping = self.handle().spawn(async move { servers.shutdown(per_server).await });
        if tokio::time::timeout(total, stopping).await.is_err() {
            tracing::warn!(?total, "shutdown ran over its budget");
        }
    }

    /// Runs work on the engine's runtime, whatever polls the straw; dropping the straw aborts the work. Work that panics
    /// ends as the error that `broken` makes of it.
    fn on_runtime<T, P, E, F, Fut>(&self, broken: fn(String) -> E, work: F) -> impl Straw<T, P, E> + use<T, P, E, F, Fut>
    where
        T: Send + 'static,
        P: Send + 'static,
        E: Send + 'static,
        F: FnOnce(Forward<P>) -> Fut + Send + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
    {
        let handle = self.handle();
        sipper(move |mut sender| async move {
            let (forward, mut progress) = tokio::sync::mpsc::channel(64);
            let task = AbortOnDrop(handle.spawn(work(Forward(forward))));
            while let Some(event) = progress.recv().await {
                sender.send(event).await;
            }
            match task.join().await {
                Ok(result) => result,
                Err(error) if error.is_panic() => Err(broken(format!("it broke off: {error}"))),
                Err(_) => Err(broken("Handrail is closing".to_owned())),
            }
        })
    }
}

/// What holds for all servers where `mcp_config.json` does not say.
fn server_defaults(settings: &Settings) -> mcp::config::Settings {
    mcp::config::Settings {
        tool_call_timeout: Duration::from_secs(settings.tool_timeout_seconds.max(1)),
        routing_share: f64::from(settings.routing_share),
        max_routed_tools: settings.routed_tools,
        max_tool_output_characters: settings.tool_result_characters,
        ..mcp::config::Settings::default()
    }
}

/// The settings of a turn, with what `mcp_config.json` says about servers and tools.
fn with_servers_settings(mut settings: Settings, servers: &mcp::config::Settings) -> Settings {
    settings.tool_timeout_seconds = servers.tool_call_timeout.as_secs_f64().ceil() as u64;
    settings.tool_result_characters = servers.max_tool_output_characters;
    settings.routed_tools = servers.max_routed_tools;
    settings.routing_share = servers.routing_share as f32;
    if !servers.enable_smart_tool_routing {
        // No definitions cost more than this, so all tools are offered.
        settings.routing_share = f32::INFINITY;
    }
    settings
}

/// The sending half that carries progress out of the engine's runtime.
struct Forward<P>(tokio::sync::mpsc::Sender<P>);

impl<P> Forward<P> {
    async fn send(&mut self, progress: P) {
        // The receiver is gone when the straw was dropped; the task is being aborted then.
        let _ = self.0.send(progress).await;
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    async fn join(mut self) -> Result<T, tokio::task::JoinError> {
        (&mut self.0).await
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Carries one room's events into the feed.
fn forward<T: Clone + Send + 'static>(
    runtime: &tokio::runtime::Runtime,
    mut events: broadcast::Receiver<T>,
    feed: &broadcast::Sender<Event>,
    wrap: fn(T) -> Event,
) {
    let feed = feed.clone();
    let _task = runtime.spawn(async move {
        loop {
            match events.recv().await {
                // Nobody may be listening; the rooms keep the state either way.
                Ok(event) => drop(feed.send(wrap(event))),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    tracing::warn!(missed, "the feed fell behind");
                    let _ = feed.send(Event::Missed);
                }
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    });
}

/// Why the engine could not start or answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The platform names no place for application data.
    #[error("there is no place for application data on this machine; name a folder with --data-dir or HANDRAIL_DATA_DIR")]
    NoDataDir,
    /// The data folder cannot be made.
    #[error("the data folder {path} cannot be used: {reason}")]
    DataDir {
        /// Which folder.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// No threads, or no path to this program.
    #[error("the engine cannot start: {0}")]
    Runtime(String),
    /// The settings.
    #[error(transparent)]
    Settings(#[from] settings::Error),
    /// The database.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// A turn.
    #[error(transparent)]
    Turn(#[from] turn::Error),
}
