//! What a server offers beside tools: prompts, resources, completions, and how much it logs.
// Logging is deprecated in the newest revision, and still used by the servers of today.
#![allow(deprecated)]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{
    ArgumentInfo, ClientRequest, CompleteRequest, CompleteRequestParams, CompletionContext, ContentBlock, ListPromptsRequest,
    ListResourceTemplatesRequest, ListResourcesRequest, LoggingLevel, PaginatedRequestParams, Reference, ResourceContents, ServerResult,
    SetLevelRequest, SetLevelRequestParams, SubscribeRequest, SubscribeRequestParams,
};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::super::Era;
use super::super::offer::{Argument, Completable, Prompt, PromptMessage, Resource, Template};
use super::call::{Failed, Link};
use super::content::{content, resource};
use super::list::{LIMIT, walk};
use super::run::{Run, Want};
use crate::tool::{Content, Control};

/// Most entries of one list that are kept (fixed).
const ENTRIES: usize = 10_000;
/// Longest wait for completions (fixed): whoever types does not wait longer.
const COMPLETION: Duration = Duration::from_secs(5);
/// Most completions that are taken, as the protocol has it.
const COMPLETIONS: usize = 100;
/// Longest wait for what is only set.
const SETTING: Duration = Duration::from_secs(10);

/// The least important level of log messages that is wanted, where somebody chose one.
#[derive(Debug, Default)]
pub(super) struct Level(Mutex<Option<LoggingLevel>>);

impl Level {
    pub(super) fn get(&self) -> Option<LoggingLevel> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, level: LoggingLevel) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
    }
}

/// Builds a request for a page of a list: the types have no other way to be made.
macro_rules! page_of {
    ($request:ident) => {
        |params: Option<PaginatedRequestParams>| {
            let mut request = $request::default();
            request.params = params;
            ClientRequest::$request(request)
        }
    };
}

impl Link {
    /// All entries of a list. One that is not in shape costs only itself.
    async fn entries<T>(
        &self,
        key: &str,
        request: impl Fn(Option<PaginatedRequestParams>) -> ClientRequest,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Vec<T>, String> {
        let (mut entries, mut lost) = (Vec::new(), 0_usize);
        let reading = walk(&self.peer, request, |answer| {
            let page = serde_json::to_value(&answer).map_err(|error| error.to_string())?;
            let Some(list) = page.get(key).and_then(Value::as_array) else {
                // Servers without any answer with nothing at all.
                return if matches!(answer, ServerResult::EmptyResult(_)) {
                    Ok(None)
                } else {
                    Err(format!("the answer holds no list \"{key}\""))
                };
            };
            for entry in list {
                match read(entry) {
                    Some(entry) if entries.len() < ENTRIES => entries.push(entry),
                    _ => lost += 1,
                }
            }
            Ok(page.get("nextCursor").and_then(Value::as_str).map(str::to_owned))
        });
        let cut = tokio::time::timeout(LIMIT, reading).await.map_err(|_| format!("no whole list within {LIMIT:?}"))??;
        for note in cut.into_iter().chain((lost > 0).then(|| format!("{lost} entries of \"{key}\" are malformed or too many and left out")))
        {
            self.wire.note(&note);
        }
        Ok(entries)
    }

    pub(super) async fn prompts(&self) -> Result<Vec<Prompt>, String> {
        if !self.can(|can| can.prompts.is_some()) {
            return Ok(Vec::new());
        }
        self.entries("prompts", page_of!(ListPromptsRequest), prompt).await
    }

    pub(super) async fn resources(&self) -> Result<(Vec<Resource>, Vec<Template>), String> {
        if !self.can(|can| can.resources.is_some()) {
            return Ok((Vec::new(), Vec::new()));
        }
        let resources = self.entries("resources", page_of!(ListResourcesRequest), listed_resource).await?;
        // Many servers have resources and do not know the question for templates.
        let templates = match self.entries("resourceTemplates", page_of!(ListResourceTemplatesRequest), template).await {
            Ok(templates) => templates,
            Err(reason) => {
                tracing::debug!(server = %self.server, reason, "no templates");
                Vec::new()
            }
        };
        Ok((resources, templates))
    }

    pub(super) async fn prompt(
        &self,
        name: &str,
        arguments: BTreeMap<String, String>,
        timeout: Duration,
    ) -> Result<Vec<PromptMessage>, Failed> {
        let arguments: Map<String, Value> = arguments.into_iter().map(|(name, value)| (name, Value::String(value))).collect();
        let answer = self.fetch(&Want::Prompt { name: name.to_owned(), arguments }, timeout).await?;
        let messages = answer.get("messages").and_then(Value::as_array).ok_or_else(|| self.senseless("prompts/get", &answer))?;
        let read = |message: &Value| PromptMessage {
            assistant: message.get("role").is_some_and(|role| role == "assistant"),
            content: message.get("content").map_or_else(|| Content::Text { text: String::new() }, block),
        };
        Ok(messages.iter().map(read).collect())
    }

    pub(super) async fn read_resource(&self, uri: &str, timeout: Duration) -> Result<Vec<Content>, Failed> {
        let answer = self.fetch(&Want::Resource { uri: uri.to_owned() }, timeout).await?;
        let contents = answer.get("contents").and_then(Value::as_array).ok_or_else(|| self.senseless("resources/read", &answer))?;
        let read = |part: &Value| match serde_json::from_value::<ResourceContents>(part.clone()) {
            Ok(part) => resource(part),
            Err(_) => Content::Text { text: part.to_string() },
        };
        let contents = contents.iter().map(read).collect();
        self.watch(uri);
        Ok(contents)
    }

    /// Whoever read a resource wants to know when it changes.
    fn watch(&self, uri: &str) {
        let subscribes = self.can(|can| can.resources.as_ref().is_some_and(|resources| resources.subscribe == Some(true)));
        // In the stateless era the stream that listens takes up what is watched.
        if !subscribes || !self.changes.watch(uri) || self.era == Era::Modern {
            return;
        }
        let (peer, request) = (self.peer.clone(), SubscribeRequest::new(SubscribeRequestParams::new(uri)));
        let _asking = tokio::spawn(async move {
            let asked = tokio::time::timeout(SETTING, peer.send_request(ClientRequest::SubscribeRequest(request))).await;
            if let Ok(Err(error)) = asked {
                tracing::debug!(%error, "a resource cannot be watched");
            }
        });
    }

    async fn fetch(&self, want: &Want, timeout: Duration) -> Result<Value, Failed> {
        let control = Control { cancel: CancellationToken::new(), timeout, progress: None };
        let mut run = Run::new(self, &control, timeout, None);
        match run.rounds(want).await {
            Ok(answer) => Ok(serde_json::to_value(&answer).unwrap_or_default()),
            Err(broken) => Err(self.failed(broken, timeout).await),
        }
    }

    fn senseless(&self, method: &str, answer: &Value) -> Failed {
        let start: String = answer.to_string().chars().take(200).collect();
        let message = format!("the answer to {method} makes no sense: {start}");
        crate::tool::Error::Protocol { server: self.server.clone(), message }.into()
    }

    pub(super) async fn complete(
        &self,
        of: &Completable,
        argument: &str,
        typed: &str,
        others: BTreeMap<String, String>,
    ) -> Result<Vec<String>, String> {
        if !self.can(|can| can.completions.is_some()) {
            return Ok(Vec::new());
        }
        let reference = match of {
            Completable::Prompt(name) => Reference::for_prompt(name),
            Completable::Template(uri) => Reference::for_resource(uri),
        };
        let mut params = CompleteRequestParams::new(reference, ArgumentInfo::new(argument, typed));
        if !others.is_empty() {
            params = params.with_context(CompletionContext::with_arguments(others.into_iter().collect()));
        }
        let asked = self.peer.send_request(ClientRequest::CompleteRequest(CompleteRequest::new(params)));
        match tokio::time::timeout(COMPLETION, asked).await {
            Ok(Ok(ServerResult::CompleteResult(result))) => Ok(result.completion.values.into_iter().take(COMPLETIONS).collect()),
            Ok(Ok(_)) => Err("the answer to completion/complete makes no sense".to_owned()),
            Ok(Err(error)) => Err(super::explain(&error)),
            Err(_) => Err(format!("no completions within {COMPLETION:?}")),
        }
    }

    /// Tells a server of the older era how much to log; in the stateless one the level goes with each request.
    pub(super) async fn send_level(&self, level: LoggingLevel) -> Result<(), String> {
        if self.era == Era::Modern || !self.can(|can| can.logging.is_some()) {
            return Ok(());
        }
        let request = ClientRequest::SetLevelRequest(SetLevelRequest::new(SetLevelRequestParams::new(level)));
        match tokio::time::timeout(SETTING, self.peer.send_request(request)).await {
            Ok(asked) => asked.map(drop).map_err(|error| super::explain(&error)),
            Err(_) => Err(format!("no answer within {SETTING:?}")),
        }
    }

    /// The level that was chosen, else the one that people would expect: a server of the stateless era says nothing unless
    /// it is asked.
    pub(super) fn wanted_level(&self) -> Option<LoggingLevel> {
        let logs = || self.peer.peer_info().is_some_and(|info| info.capabilities.logging.is_some());
        self.level.get().or_else(|| logs().then_some(LoggingLevel::Info))
    }

    fn can(&self, what: impl Fn(&rmcp::model::ServerCapabilities) -> bool) -> bool {
        // Where nothing is known, it is asked for.
        self.peer.peer_info().is_none_or(|info| what(&info.capabilities))
    }
}

/// The name of a level.
pub(super) fn level_name(level: LoggingLevel) -> Option<String> {
    serde_json::to_value(level).ok()?.as_str().map(str::to_owned)
}

/// One of the eight names of RFC 5424.
pub(super) fn log_level(name: &str) -> Option<LoggingLevel> {
    serde_json::from_value(Value::String(name.to_owned())).ok()
}

fn text(entry: &Value, key: &str) -> Option<String> {
    entry.get(key).and_then(Value::as_str).map(str::to_owned)
}

fn prompt(entry: &Value) -> Option<Prompt> {
    let argument = |argument: &Value| {
        Some(Argument {
            name: text(argument, "name")?,
            title: text(argument, "title"),
            description: text(argument, "description"),
            required: argument.get("required").and_then(Value::as_bool).unwrap_or(false),
        })
    };
    Some(Prompt {
        name: text(entry, "name")?,
        title: text(entry, "title"),
        description: text(entry, "description"),
        arguments: entry.get("arguments").and_then(Value::as_array).into_iter().flatten().filter_map(argument).collect(),
    })
}

fn listed_resource(entry: &Value) -> Option<Resource> {
    let uri = text(entry, "uri")?;
    Some(Resource {
        name: text(entry, "name").unwrap_or_else(|| uri.clone()),
        uri,
        title: text(entry, "title"),
        description: text(entry, "description"),
        mime: text(entry, "mimeType"),
        size: entry.get("size").and_then(Value::as_u64),
    })
}

fn template(entry: &Value) -> Option<Template> {
    let uri = text(entry, "uriTemplate")?;
    Some(Template {
        name: text(entry, "name").unwrap_or_else(|| uri.clone()),
        uri,
        title: text(entry, "title"),
        description: text(entry, "description"),
        mime: text(entry, "mimeType"),
    })
}

fn block(block: &Value) -> Content {
    match serde_json::from_value::<ContentBlock>(block.clone()) {
        Ok(block) => content(block),
        Err(_) => Content::Text { text: block.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_are_read_as_far_as_they_go() {
        let read = prompt(&json!({ "name": "p", "arguments": [{ "name": "a", "required": true }, { "noname": 1 }] })).unwrap();
        assert_eq!((read.name.as_str(), read.arguments.len(), read.arguments[0].required), ("p", 1, true));
        assert_eq!(prompt(&json!({ "title": "no name" })), None);
        let read = listed_resource(&json!({ "uri": "a:b", "size": 3, "mimeType": "text/plain" })).unwrap();
        assert_eq!((read.name.as_str(), read.size, read.mime.as_deref()), ("a:b", Some(3), Some("text/plain")));
        assert_eq!(listed_resource(&json!({ "name": "no address" })), None);
        assert_eq!(template(&json!({ "uriTemplate": "a:{b}", "name": "t" })).unwrap().name, "t");
        assert_eq!(block(&json!({ "type": "text", "text": "x" })), Content::Text { text: "x".to_owned() });
        assert_eq!(block(&json!({ "type": "new" })), Content::Text { text: "{\"type\":\"new\"}".to_owned() });
    }

    #[test]
    fn the_eight_levels_are_known_and_no_other() {
        for name in ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"] {
            assert!(log_level(name).is_some(), "{name}");
        }
        assert!(log_level("loud").is_none() && log_level("Info").is_none());
    }
}
