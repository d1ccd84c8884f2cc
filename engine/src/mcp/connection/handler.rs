//! Our side of a connection: what we declare, what we answer, and what a server may say by itself.
// Sampling, roots and logging are deprecated in the newest revision, and still used by the servers of today.
#![allow(deprecated)]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{
    ClientCapabilities, ClientConfig, CreateMessageRequestParams, CreateMessageResult, CustomNotification, CustomRequest, CustomResult,
    ElicitRequestParams, ElicitResult, ElicitationCapability, ErrorCode, ErrorData, Extensions, FormElicitationCapability, Implementation,
    ListRootsResult, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, ProgressToken, ProtocolVersion, RequestId,
    ResourceUpdatedNotificationParam, RootsCapabilities, SamplingCapability, TASKS_EXTENSION_ID, UrlElicitationCapability,
};
use rmcp::service::{InboundStreamOrigin, NotificationContext, RequestContext};
use rmcp::{ClientHandler, RoleClient};
use serde_json::Value;
use tokio::sync::mpsc;

use super::super::Era;
use super::super::process::Tail;
use super::ask::Asker;
use super::changes::Changes;
use super::running::{Asking, Running};

/// Notifications kept for a call that has not asked for them yet: one can overtake the return of `send`.
const EARLY: usize = 32;
/// Longest log message that is kept, in characters.
const LOGGED: usize = 4000;
/// Longest words about progress that are kept, in characters.
const PROGRESS: usize = 1000;

/// Our side of a connection.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    pub(super) era: Era,
    pub(super) progress: Arc<Progress>,
    pub(super) changes: Arc<Changes>,
    pub(super) asker: Arc<Asker>,
    pub(super) running: Arc<Running>,
    pub(super) tail: Arc<Tail>,
}

impl Handler {
    /// Exactly what can be answered: servers offer more to a client that claims more.
    fn capabilities(&self) -> ClientCapabilities {
        let mut can = ClientCapabilities::default();
        let mut roots = RootsCapabilities::default();
        roots.list_changed = (self.era == Era::Legacy).then_some(true);
        can.roots = Some(roots);
        if self.asker.host.attended() {
            let form = FormElicitationCapability::new().with_schema_validation(true);
            can.elicitation = Some(ElicitationCapability::new().with_form(form).with_url(UrlElicitationCapability::new()));
        }
        if self.asker.host.sampler().is_some() {
            can.sampling = Some(SamplingCapability::default());
        }
        if self.era == Era::Modern {
            can.extensions = Some([(TASKS_EXTENSION_ID.to_owned(), serde_json::Map::new())].into());
        }
        can
    }

    fn asking(&self, extensions: &Extensions) -> Asking {
        let request: Option<&RequestId> = match extensions.get::<InboundStreamOrigin>() {
            Some(InboundStreamOrigin::OutboundRequest(id)) => Some(id),
            _ => None,
        };
        self.running.asks(request)
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let this = Implementation::new("handrail", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(self.capabilities(), this).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.asker.elicit(request, self.asking(&context.extensions), &context.ct).await
    }

    async fn create_message(
        &self,
        params: CreateMessageRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.asker.sample(params, self.asking(&context.extensions), &context.ct).await
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        Ok(self.asker.roots())
    }

    /// A form whose schema holds more than the protocol's types know still is a form.
    async fn on_custom_request(&self, request: CustomRequest, context: RequestContext<RoleClient>) -> Result<CustomResult, ErrorData> {
        let form = request.params.as_ref().and_then(|params| {
            let schema = params.get("requestedSchema").filter(|schema| schema.get("properties").is_some_and(Value::is_object))?;
            Some((params.get("message")?.as_str()?.to_owned(), schema.clone()))
        });
        match form {
            Some((message, schema)) if request.method == "elicitation/create" => {
                let answer = self.asker.form(message, schema, self.asking(&context.extensions), &context.ct).await?;
                let answer = serde_json::to_value(answer).map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
                Ok(CustomResult::new(answer))
            }
            _ => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, request.method, None)),
        }
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.progress.deliver(progress);
    }

    async fn on_logging_message(&self, message: LoggingMessageNotificationParam, _context: NotificationContext<RoleClient>) {
        let text = match &message.data {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let text: String = text.chars().take(LOGGED).collect();
        let text = message.logger.map_or_else(|| text.clone(), |logger| format!("{logger:.80}: {text}"));
        self.tail.note_level(level(&message.level), &text);
    }

    async fn on_resource_updated(&self, updated: ResourceUpdatedNotificationParam, _context: NotificationContext<RoleClient>) {
        self.changes.resource(updated.uri);
    }

    async fn on_resource_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.resources();
    }

    async fn on_prompt_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.prompts();
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.changes.tools.notify_one();
    }

    async fn on_custom_notification(&self, notification: CustomNotification, _context: NotificationContext<RoleClient>) {
        if notification.method == "notifications/elicitation/complete"
            && let Some(id) = notification.params.as_ref().and_then(|params| params.get("elicitationId")).and_then(Value::as_str)
        {
            self.asker.page_happened(id);
        }
    }
}

/// The eight levels of the protocol in the four of the log.
fn level(level: &LoggingLevel) -> &'static str {
    match level {
        LoggingLevel::Debug => "debug",
        LoggingLevel::Info | LoggingLevel::Notice => "info",
        LoggingLevel::Warning => "warning",
        _ => "error",
    }
}

/// Brings progress notifications to their calls by token.
#[derive(Debug, Default)]
pub(super) struct Progress {
    routes: Mutex<Routes>,
}

#[derive(Debug, Default)]
struct Routes {
    calls: HashMap<ProgressToken, mpsc::UnboundedSender<ProgressNotificationParam>>,
    early: Vec<ProgressNotificationParam>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, mut progress: ProgressNotificationParam) {
        progress.message = progress.message.map(|words| cut(words, PROGRESS));
        let mut routes = self.lock();
        match routes.calls.get(&progress.progress_token) {
            // A call that just ended no longer listens.
            Some(call) => drop(call.send(progress)),
            None => {
                if routes.early.len() == EARLY {
                    let _ = routes.early.remove(0);
                }
                routes.early.push(progress);
            }
        }
    }

    /// Begins to route a call's notifications, until the route is dropped.
    pub(super) fn follow(self: &Arc<Self>, token: ProgressToken) -> Route {
        let (sender, notifications) = mpsc::unbounded_channel();
        let mut routes = self.lock();
        let early = std::mem::take(&mut routes.early);
        let (ours, others): (Vec<_>, Vec<_>) = early.into_iter().partition(|progress| progress.progress_token == token);
        routes.early = others;
        for progress in ours {
            let _ = sender.send(progress);
        }
        let _ = routes.calls.insert(token.clone(), sender);
        Route { progress: self.clone(), token, notifications }
    }
}

/// The start of a text, of so many characters at most.
pub(super) fn cut(mut text: String, most: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(most) {
        text.truncate(end);
        text.shrink_to_fit();
    }
    text
}

/// One call's notifications.
#[derive(Debug)]
pub(super) struct Route {
    progress: Arc<Progress>,
    token: ProgressToken,
    pub(super) notifications: mpsc::UnboundedReceiver<ProgressNotificationParam>,
}

impl Drop for Route {
    fn drop(&mut self) {
        let _ = self.progress.lock().calls.remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;

    use super::*;

    fn step(token: i64, done: f64) -> ProgressNotificationParam {
        ProgressNotificationParam::new(ProgressToken(NumberOrString::Number(token)), done)
    }

    #[test]
    fn progress_reaches_its_call_even_when_it_is_early() {
        let progress = Arc::new(Progress::default());
        progress.deliver(step(7, 1.0));
        progress.deliver(step(8, 5.0));
        let mut route = progress.follow(ProgressToken(NumberOrString::Number(7)));
        progress.deliver(step(7, 2.0));
        assert_eq!(route.notifications.try_recv().unwrap().progress, 1.0);
        assert_eq!(route.notifications.try_recv().unwrap().progress, 2.0);
        assert!(route.notifications.try_recv().is_err());
        drop(route);
        assert!(progress.lock().calls.is_empty());
        for number in 0..100 {
            progress.deliver(step(9, f64::from(number)));
        }
        assert_eq!(progress.lock().early.len(), EARLY);
    }
}
