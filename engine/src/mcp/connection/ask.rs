//! Answers what a server asks: the person, the granted folders, the model. The same way for requests of the server
//! itself (`initialize` era) and for those inside a result (2026-07-28).
// Sampling and roots are deprecated in the newest revision, and still asked by the servers of today.
#![allow(deprecated)]

use std::collections::VecDeque;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rmcp::model::{
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction, ErrorData, InputRequest,
    ListRootsResult, Role, Root, SamplingMessage, SamplingMessageContentBlock,
};
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::question::{Answer, Ask};
use super::super::{SampleMessage, SampleRequest};
use super::host::{Host, Told};
use super::running::Asking;
use crate::tool::ServerId;

/// Longest words of a server that are put before the person, in characters.
const WORDS: usize = 20_000;
/// Longest address that is put before the person, in bytes.
const ADDRESS: usize = 8 * 1024;
/// Dealt-with pages that are remembered.
const PAGES: usize = 64;

/// Answers for one server.
#[derive(Debug)]
pub(super) struct Asker {
    pub(super) host: Arc<Host>,
    pub(super) server: ServerId,
    /// Pages of which the server said that they were dealt with, the newest last.
    happened: watch::Sender<VecDeque<String>>,
    /// Fires when nothing can be heard from the server any more.
    pub(super) over: CancellationToken,
}

impl Asker {
    pub(super) fn new(host: Arc<Host>, server: ServerId) -> Self {
        Self { host, server, happened: watch::Sender::new(VecDeque::new()), over: CancellationToken::new() }
    }

    /// A request inside a result; the answer as it is sent back.
    pub(super) async fn input(&self, request: InputRequest, asking: Asking, stop: &CancellationToken) -> Result<Value, ErrorData> {
        let answer = match request {
            InputRequest::Elicitation(request) => serde_json::to_value(self.elicit(request.params, asking, stop).await?),
            InputRequest::CreateMessage(request) => serde_json::to_value(self.sample(request.params, asking, stop).await?),
            InputRequest::ListRoots(_) => serde_json::to_value(self.roots()),
            _ => return Err(ErrorData::invalid_params("a request of this kind is not known", None)),
        };
        answer.map_err(|error| ErrorData::internal_error(error.to_string(), None))
    }

    pub(super) async fn elicit(
        &self,
        params: ElicitRequestParams,
        asking: Asking,
        stop: &CancellationToken,
    ) -> Result<ElicitResult, ErrorData> {
        match params {
            ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } => {
                let schema = serde_json::to_value(requested_schema).map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
                self.form(message, schema, asking, stop).await
            }
            ElicitRequestParams::UrlElicitationParams { message, url, elicitation_id, .. } => {
                let action = match self.page(message, url, elicitation_id, asking, stop).await? {
                    Told::Answer(Answer::Accept(_)) => ElicitationAction::Accept,
                    Told::Answer(Answer::Decline) => ElicitationAction::Decline,
                    // Not for us to say yes where nobody did.
                    Told::Answer(Answer::Cancel) | Told::Happened => ElicitationAction::Cancel,
                };
                Ok(ElicitResult::new(action))
            }
            _ => Err(ErrorData::invalid_params("elicitation of this mode is not known", None)),
        }
    }

    /// A form, also where its schema goes beyond what the protocol allows: it is checked as it came.
    pub(super) async fn form(
        &self,
        message: String,
        schema: Value,
        asking: Asking,
        stop: &CancellationToken,
    ) -> Result<ElicitResult, ErrorData> {
        let _ = crate::tool::schema::Checker::new(&schema, true)
            .map_err(|error| ErrorData::invalid_params(format!("the form's schema cannot be used: {error}"), None))?;
        match self.put(Ask::Form { message: shortened(message), schema }, None, &asking, stop).await? {
            Told::Answer(Answer::Accept(fields)) => Ok(ElicitResult::new(ElicitationAction::Accept).with_content(Value::Object(fields))),
            Told::Answer(Answer::Decline) => Ok(ElicitResult::new(ElicitationAction::Decline)),
            Told::Answer(Answer::Cancel) | Told::Happened => Ok(ElicitResult::new(ElicitationAction::Cancel)),
        }
    }

    /// A page to open.
    pub(super) async fn page(
        &self,
        message: String,
        url: String,
        id: String,
        asking: Asking,
        stop: &CancellationToken,
    ) -> Result<Told, ErrorData> {
        let web = reqwest::Url::parse(&url).is_ok_and(|url| matches!(url.scheme(), "https" | "http"));
        if !web || url.len() > ADDRESS {
            return Err(ErrorData::invalid_params("only web pages (http and https) can be opened", None));
        }
        let page = (!id.is_empty()).then_some(id);
        self.put(Ask::Url { message: shortened(message), url }, page, &asking, stop).await
    }

    /// Lets the model write, once the person agreed to what it is given.
    pub(super) async fn sample(
        &self,
        params: CreateMessageRequestParams,
        asking: Asking,
        stop: &CancellationToken,
    ) -> Result<CreateMessageResult, ErrorData> {
        let Some(sampler) = self.host.sampler() else {
            return Err(ErrorData::invalid_request("sampling is switched off", None));
        };
        let request = sample_request(&params).map_err(|reason| ErrorData::invalid_params(reason, None))?;
        let ask = shown(&request).map_err(|reason| ErrorData::invalid_params(reason, None))?;
        match self.put(ask, None, &asking, stop).await? {
            Told::Answer(Answer::Accept(_)) => {}
            // -1 is the specification's word for "the person said no".
            _ => return Err(ErrorData::new(rmcp::model::ErrorCode(-1), "the person declined", None)),
        }
        let written = tokio::select! {
            written = sampler.sample(request) => written,
            () = stop.cancelled() => return Err(withdrawn()),
        };
        let written = written.map_err(|reason| ErrorData::internal_error(reason, None))?;
        let stop_reason =
            if written.cut { CreateMessageResult::STOP_REASON_END_MAX_TOKEN } else { CreateMessageResult::STOP_REASON_END_TURN };
        Ok(CreateMessageResult::new(SamplingMessage::assistant_text(written.text), written.model).with_stop_reason(stop_reason))
    }

    pub(super) fn roots(&self) -> ListRootsResult {
        let folders = self.host.roots().borrow().clone();
        ListRootsResult::new(folders.iter().map(|folder| root(folder)).collect())
    }

    /// Puts a question before the person until it is answered, the call ends or the server takes it back.
    async fn put(&self, ask: Ask, page: Option<String>, asking: &Asking, stop: &CancellationToken) -> Result<Told, ErrorData> {
        if !self.host.attended() {
            return Err(ErrorData::invalid_request("nobody is here to be asked", None));
        }
        let mut asked =
            self.host.ask(&self.server, asking.tool.clone(), ask, page).map_err(|reason| ErrorData::invalid_request(reason, None))?;
        let ended = async {
            match &asking.ended {
                Some(ended) => ended.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            told = asked.told() => Ok(told),
            () = stop.cancelled() => Err(withdrawn()),
            () = self.over.cancelled() => Err(withdrawn()),
            () = ended => Err(withdrawn()),
        }
    }

    /// The server says that a page was dealt with.
    pub(super) fn page_happened(&self, id: &str) {
        self.happened.send_modify(|pages| {
            if pages.len() == PAGES {
                let _ = pages.pop_front();
            }
            pages.push_back(id.to_owned());
        });
        self.host.happened(&self.server, id);
    }

    /// Waits until the server says so.
    pub(super) async fn until_happened(&self, id: &str) {
        let mut happened = self.happened.subscribe();
        if happened.wait_for(|pages| pages.iter().any(|page| page == id)).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

fn withdrawn() -> ErrorData {
    ErrorData::internal_error("the request was cancelled", None)
}

fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(WORDS) {
        text.truncate(end);
        text.push_str(" […]");
    }
    text
}

/// All that the model would be given: a person agrees to what they can see, and to nothing else.
fn shown(request: &SampleRequest) -> Result<Ask, String> {
    let said = |message: &SampleMessage| format!("{}: {}", if message.assistant { "Assistant" } else { "User" }, message.text);
    let mut prompt = request.messages.iter().map(said).collect::<Vec<_>>().join("\n\n");
    if !request.stop.is_empty() {
        prompt.push_str(&format!("\n\nStop: {:?}", request.stop));
    }
    let length = prompt.chars().count() + request.system.as_ref().map_or(0, |system| system.chars().count());
    if length > WORDS {
        return Err(format!("{length} characters are more than a person can be shown to agree to ({WORDS})"));
    }
    Ok(Ask::Sampling { prompt, system: request.system.clone(), max_tokens: request.max_tokens })
}

fn sample_request(params: &CreateMessageRequestParams) -> Result<SampleRequest, String> {
    if params.tools.as_ref().is_some_and(|tools| !tools.is_empty()) {
        return Err("sampling with tools was not offered".to_owned());
    }
    let mut messages = Vec::new();
    for message in &params.messages {
        let mut text = String::new();
        for block in message.content.iter() {
            let SamplingMessageContentBlock::Text(block) = block else {
                return Err("only texts can be given to the model".to_owned());
            };
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&block.text);
        }
        messages.push(SampleMessage { assistant: message.role == Role::Assistant, text });
    }
    Ok(SampleRequest {
        system: params.system_prompt.clone(),
        messages,
        max_tokens: params.max_tokens,
        temperature: params.temperature,
        stop: params.stop_sequences.clone().unwrap_or_default(),
    })
}

fn root(folder: &Path) -> Root {
    let root = Root::new(file_uri(folder));
    match folder.file_name() {
        Some(name) => root.with_name(name.to_string_lossy()),
        None => root,
    }
}

/// `file:///home/me/a%20b`, `file:///C:/Users/me`.
fn file_uri(folder: &Path) -> String {
    let mut absolute = PathBuf::new();
    for part in folder.components() {
        if part != Component::CurDir {
            absolute.push(part);
        }
    }
    reqwest::Url::from_file_path(&absolute).map_or_else(|()| format!("file://{}", absolute.display()), String::from)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::broadcast;

    use super::super::running::Running;
    use super::*;

    fn asker() -> Asker {
        Asker::new(Arc::new(Host::new(broadcast::channel(64).0, Arc::new(crate::secret::FileSecrets::new(PathBuf::new())))), "s".into())
    }

    fn asking() -> Asking {
        Arc::new(Running::default()).asks(None)
    }

    #[test]
    #[cfg(unix)]
    fn granted_folders_are_told_as_addresses() {
        let asker = asker();
        asker.host.set_roots(vec!["/home/me/a b".into(), "/srv/é/./x".into()]);
        let told = serde_json::to_value(asker.roots()).unwrap();
        assert_eq!(
            told,
            json!({ "roots": [
            { "uri": "file:///home/me/a%20b", "name": "a b" },
            { "uri": "file:///srv/%C3%A9/x", "name": "x" }
        ] })
        );
    }

    #[tokio::test]
    async fn pages_that_are_none_and_forms_that_cannot_be_checked_are_never_shown() {
        let (asker, stop) = (asker(), CancellationToken::new());
        for url in ["javascript:alert(1)", "file:///etc/passwd", "no address", &format!("https://h/{}", "x".repeat(ADDRESS))] {
            assert!(asker.page("m".to_owned(), url.to_owned(), String::new(), asking(), &stop).await.is_err(), "{url}");
        }
        let outside = json!({ "$ref": "https://example.org/schema" });
        assert!(asker.form("m".to_owned(), outside, asking(), &stop).await.is_err());
        assert!(asker.host.questions().is_empty());
    }

    #[tokio::test]
    async fn a_question_goes_with_its_call_and_nobody_is_asked_where_nobody_is() {
        let asker = Arc::new(asker());
        let running = Arc::new(Running::default());
        let ticket = running.enter(Some(("t", &crate::tool::CallId::fresh())), CancellationToken::new());
        let schema = json!({ "type": "object", "properties": {} });
        let waiting = tokio::spawn({
            let (asker, asking, schema) = (asker.clone(), ticket.asks(), schema.clone());
            async move { asker.form("m".to_owned(), schema, asking, &CancellationToken::new()).await }
        });
        while asker.host.questions().is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!((asker.host.questions()[0].tool.as_deref(), *ticket.paused.borrow()), (Some("t"), 1));
        drop(ticket);
        assert!(waiting.await.unwrap().is_err());
        assert!(asker.host.questions().is_empty());
        asker.host.set_attended(false);
        assert!(asker.form("m".to_owned(), schema, asking(), &CancellationToken::new()).await.is_err());
    }

    #[tokio::test]
    async fn sampling_is_refused_unless_it_is_allowed() {
        let params = CreateMessageRequestParams::new(vec![SamplingMessage::user_text("hi")], 5);
        assert!(asker().sample(params.clone(), asking(), &CancellationToken::new()).await.is_err());
        assert_eq!(sample_request(&params).unwrap().messages, [SampleMessage { assistant: false, text: "hi".to_owned() }]);
    }

    #[tokio::test]
    async fn what_happened_before_is_remembered() {
        let asker = asker();
        for number in 0..=PAGES {
            asker.page_happened(&number.to_string());
        }
        asker.until_happened(&PAGES.to_string()).await;
        assert_eq!(asker.happened.borrow().len(), PAGES);
    }
}
