//! What the screens know of the engine: a snapshot that the feed keeps up to date. Views read this, never the engine.

use std::sync::Arc;

use handrail_engine::approval::{self, Request};
use handrail_engine::conversation::Conversation;
use handrail_engine::local::catalogue::Kind;
use handrail_engine::local::{ModelState, ModelView};
use handrail_engine::mcp::{self, Question, ServerView};
use handrail_engine::rag::Document;
use handrail_engine::settings::Settings;
use handrail_engine::tool::{CallId, Definition, ServerId, ToolId};
use handrail_engine::{Engine, Event};

/// The snapshot.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Conversations, the last changed first.
    pub conversations: Vec<Conversation>,
    /// Every model of the catalogue.
    pub models: Vec<ModelView>,
    /// Every configured server.
    pub servers: Vec<ServerView>,
    /// What holds for all servers.
    pub server_settings: mcp::config::Settings,
    /// What is wrong in the settings for all servers.
    pub setting_errors: Vec<String>,
    /// Why the server configuration is not used.
    pub config_error: Option<String>,
    /// What servers ask the person, the oldest first.
    pub questions: Vec<Question>,
    /// The documents.
    pub documents: Vec<Document>,
    /// Calls that wait for a decision.
    pub pending: Vec<Request>,
    /// The settings as they are in force.
    pub settings: Settings,
    /// Why something is missing here.
    pub errors: Vec<String>,
    /// Whether this was gathered at all yet.
    pub gathered: bool,
}

impl Facts {
    /// Asks every room. Blocks on the database.
    #[must_use]
    pub fn gather(engine: &Engine) -> Self {
        let mut errors: Vec<String> = engine.settings_error().map(ToString::to_string).into_iter().collect();
        let conversations = engine.conversations().unwrap_or_else(|error| {
            errors.push(error.to_string());
            Vec::new()
        });
        let documents = engine.library().documents().unwrap_or_else(|error| {
            errors.push(error.to_string());
            Vec::new()
        });
        Self {
            conversations,
            models: engine.models().list(),
            servers: engine.servers().servers(),
            server_settings: engine.servers().settings(),
            setting_errors: engine.servers().setting_errors().iter().map(ToString::to_string).collect(),
            config_error: engine.servers().config_error(),
            questions: engine.servers().questions(),
            documents,
            pending: engine.approvals().pending(),
            settings: engine.settings(),
            errors,
            gathered: true,
        }
    }

    /// Takes one change in.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Server(event) => self.server_changed(event),
            Event::Approval(approval::Event::Asked(request)) => {
                self.pending.retain(|other| other.call.id != request.call.id);
                self.pending.push(request);
            }
            Event::Approval(approval::Event::Decided { call, .. }) => self.pending.retain(|request| request.call.id != call),
            Event::Model(view) => put(&mut self.models, view, |a, b| a.entry.id == b.entry.id, true),
            Event::Document(document) => put(&mut self.documents, document, |a, b| a.id == b.id, false),
            // The feed takes a new snapshot instead.
            Event::Missed => {}
        }
    }

    fn server_changed(&mut self, event: mcp::Event) {
        match event {
            mcp::Event::Changed(view) => {
                put(&mut self.servers, *view, |a, b| a.id == b.id, true);
                self.servers.sort_by(|a, b| a.id.cmp(&b.id));
            }
            mcp::Event::Removed(id) => self.servers.retain(|server| server.id != id),
            mcp::Event::Configured { settings, wrong } => {
                (self.server_settings, self.setting_errors, self.config_error) = (*settings, wrong, None);
            }
            mcp::Event::ConfigRejected { reason } => self.config_error = Some(reason),
            mcp::Event::Asked(question) => put(&mut self.questions, *question, |a, b| a.id == b.id, true),
            mcp::Event::Settled(id) => self.questions.retain(|question| question.id != id),
            mcp::Event::ResourceChanged { .. } | mcp::Event::PromptsChanged(_) => {}
        }
    }

    /// A server.
    #[must_use]
    pub fn server(&self, id: &ServerId) -> Option<&ServerView> {
        self.servers.iter().find(|server| server.id == *id)
    }

    /// What cancels this call at its server, while it runs there.
    #[must_use]
    pub fn running(&self, server: &ServerId, call: &CallId) -> Option<u64> {
        self.server(server)?.running.iter().find(|running| running.call == *call).map(|running| running.id)
    }

    /// A model of the catalogue.
    #[must_use]
    pub fn model(&self, id: &str) -> Option<&ModelView> {
        self.models.iter().find(|model| model.entry.id == id)
    }

    /// Whether a model is here and whole.
    #[must_use]
    pub fn is_ready(&self, id: &str) -> bool {
        self.model(id).is_some_and(|model| matches!(model.state, ModelState::Ready { .. }))
    }

    /// Whether the chat model of the settings can answer: a ready model of the catalogue, or a file of the person's own.
    #[must_use]
    pub fn can_chat(&self) -> bool {
        let wanted = &self.settings.chat_model;
        self.is_ready(wanted) || (self.model(wanted).is_none() && wanted.ends_with(".gguf"))
    }

    /// The chat model's name for people.
    #[must_use]
    pub fn chat_model_name(&self) -> String {
        let wanted = &self.settings.chat_model;
        self.model(wanted).map_or_else(|| file_name(wanted), |model| model.entry.name.clone())
    }

    /// Chat models that are ready.
    pub fn ready_chat_models(&self) -> impl Iterator<Item = &ModelView> {
        self.models.iter().filter(|model| model.entry.kind == Kind::Chat && matches!(model.state, ModelState::Ready { .. }))
    }

    /// Every definition that is known: of the servers as they last gave them, and of the calls that wait.
    #[must_use]
    pub fn definitions(&self) -> Vec<Arc<Definition>> {
        let asked = self.pending.iter().map(|request| &request.definition);
        self.servers.iter().flat_map(|server| &server.tools).chain(asked).cloned().collect()
    }

    /// A tool's definition, as its server last gave it.
    #[must_use]
    pub fn definition(&self, tool: &ToolId) -> Option<Arc<Definition>> {
        let asked = self.pending.iter().map(|request| &request.definition);
        self.servers.iter().flat_map(|server| &server.tools).chain(asked).find(|definition| definition.id == *tool).cloned()
    }

    /// Usable servers, and what needs someone: servers, questions, the configuration file.
    #[must_use]
    pub fn server_counts(&self) -> (usize, usize) {
        let connected = self.servers.iter().filter(|server| server.state.is_usable()).count();
        let failed = self.servers.iter().filter(|server| server.state.needs_someone()).count();
        (connected, failed + self.questions.len() + usize::from(self.config_error.is_some()))
    }
}

/// The last piece of a path, or the whole where there is none.
#[must_use]
pub fn file_name(path: &str) -> String {
    path.rsplit(['/', '\\']).next().unwrap_or(path).to_owned()
}

fn put<T>(list: &mut Vec<T>, new: T, same: impl Fn(&T, &T) -> bool, at_end: bool) {
    match list.iter_mut().find(|old| same(old, &new)) {
        Some(old) => *old = new,
        None if at_end => list.push(new),
        None => list.insert(0, new),
    }
}
