//! What servers offer beside tools, and what they ask the person.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::super::offer::{Completable, Prompt, PromptMessage, Resource, Template};
use super::super::question::Answer;
use super::super::{Error, Question, QuestionId, Sampler, config};
use super::Manager;
use crate::tool::{Content, ServerId};

impl Manager {
    /// All prompts of a server.
    pub async fn prompts(&self, server: &ServerId) -> Result<Vec<Prompt>, Error> {
        self.connection(server)?.prompts().await
    }

    /// A prompt with its arguments filled in.
    pub async fn prompt(&self, server: &ServerId, name: &str, arguments: BTreeMap<String, String>) -> Result<Vec<PromptMessage>, Error> {
        self.connection(server)?.prompt(name, arguments).await
    }

    /// All resources and templates of a server.
    pub async fn resources(&self, server: &ServerId) -> Result<(Vec<Resource>, Vec<Template>), Error> {
        self.connection(server)?.resources().await
    }

    /// Reads a resource. Where the server can tell when it changes, that is asked for as well.
    pub async fn read_resource(&self, server: &ServerId, uri: &str) -> Result<Vec<Content>, Error> {
        self.connection(server)?.read_resource(uri).await
    }

    /// Values that fit what was typed so far for an argument; `others` are the arguments given already.
    pub async fn complete(
        &self,
        server: &ServerId,
        of: &Completable,
        argument: &str,
        typed: &str,
        others: BTreeMap<String, String>,
    ) -> Result<Vec<String>, Error> {
        self.connection(server)?.complete(of, argument, typed, others).await
    }

    /// The least important level of log messages that a server sends: one of RFC 5424's eight names, such as "info".
    pub async fn set_log_level(&self, server: &ServerId, level: &str) -> Result<(), Error> {
        self.connection(server)?.set_log_level(level).await
    }

    /// Sets the folders that the person granted; servers that ask for roots are told these, now and after a restart.
    pub fn set_roots(&self, folders: Vec<PathBuf>) -> Result<(), Error> {
        for folder in &folders {
            let wrong = |reason: String| config::Error::Setting { field: "roots".to_owned(), reason };
            if !folder.is_absolute() {
                return Err(wrong(format!("{} is no whole path", folder.display())).into());
            }
            if !folder.is_dir() {
                return Err(wrong(format!("there is no folder {}", folder.display())).into());
            }
        }
        self.set_settings(&config::Settings { roots: folders, ..self.settings() })
    }

    /// Questions that wait for the person, the oldest first.
    #[must_use]
    pub fn questions(&self) -> Vec<Question> {
        self.inner.host.questions()
    }

    /// Answers a question; whether it was still open. What does not fit a form is an error that names the fields, and
    /// leaves the question open.
    pub fn answer(&self, question: QuestionId, answer: Answer) -> Result<bool, Error> {
        self.inner.host.answer(question, answer)
    }

    /// The model that writes for servers, where the settings allow that and the person agrees each time.
    pub fn set_sampler(&self, sampler: Option<Arc<dyn Sampler>>) {
        self.inner.host.set_sampler(sampler);
    }

    /// Whether somebody is there to answer questions; servers that are started afterwards are told. True at first.
    pub fn set_attended(&self, attended: bool) {
        self.inner.host.set_attended(attended);
    }
}
