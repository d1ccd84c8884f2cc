//! Our HTTP client: one per connection, with its headers and tokens, and with typed answers where the protocol's own
//! client gives a text.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use ::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use reqwest::{RequestBuilder, Response, Url};
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    AuthRequiredError, InsufficientScopeError, SseError, StreamableHttpClient, StreamableHttpPostResponse, StreamableHttpResponseLimits,
};
use sse_stream::Sse;

use super::events::{self, Found};
use super::http::{Error, Fault, Tokens};
use super::mend::{self, UNREADABLE};
use crate::tool::numbers::first_wide;

/// Longest wait for a TCP and TLS connection (fixed).
const CONNECT: Duration = Duration::from_secs(10);
/// After so long without a byte a connection is asked whether it is still there (fixed).
const ALIVE: Duration = Duration::from_secs(30);
/// Bytes of a foreign error page that are read (fixed).
const PAGE: usize = 4096;
/// Characters of a foreign error page that are shown.
const SHOWN: usize = 200;
/// Longest challenge that is kept (fixed).
const CHALLENGE: usize = 8192;
/// Shorter values are in too many texts to be taken out of them.
const SECRET: usize = 6;

pub(super) const EVENTS: &str = "text/event-stream";
pub(super) const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";
const LAST_EVENT: &str = "last-event-id";

/// The client; cheap to clone.
#[derive(Clone)]
pub(in crate::mcp) struct Client {
    inner: Arc<Inner>,
}

struct Inner {
    http: reqwest::Client,
    url: Url,
    /// Host and port, for people. The address itself may hold keys.
    place: String,
    headers: HeaderMap,
    tokens: Option<Arc<dyn Tokens>>,
    challenge: Mutex<Option<String>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("place", &self.inner.place).finish_non_exhaustive()
    }
}

impl Client {
    pub(super) fn new(url: &str, headers: &BTreeMap<String, String>, tokens: Option<Arc<dyn Tokens>>) -> Result<Self, String> {
        // What does not parse is not repeated: there may be keys in it.
        let url = Url::parse(url).map_err(|error| format!("\"url\" is not an address: {error}"))?;
        let host = url.host_str().ok_or_else(|| "\"url\" names no host".to_owned())?;
        let place = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let inner = Inner { http: http(&url)?, place, headers: header_map(headers)?, url, tokens, challenge: Mutex::default() };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(super) fn url(&self) -> &str {
        self.inner.url.as_str()
    }

    pub(super) fn address(&self) -> &Url {
        &self.inner.url
    }

    pub(super) fn get(&self, url: Url) -> RequestBuilder {
        self.inner.http.get(url)
    }

    pub(super) fn post(&self, url: Url, message: &ClientJsonRpcMessage) -> Result<RequestBuilder, Error> {
        let body = serde_json::to_vec(message)?;
        Ok(self.inner.http.post(url).header(CONTENT_TYPE, JSON).body(body))
    }

    /// What the server said when it asked for a sign-in; empty where it asked without words.
    pub(in crate::mcp) fn challenge(&self) -> Option<String> {
        self.inner.challenge.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the configuration itself holds a key that was refused.
    pub(in crate::mcp) fn has_key(&self) -> bool {
        self.inner.headers.contains_key(AUTHORIZATION)
    }

    /// Sends, with headers and token, and once more where another token came in place of one that was refused. An answer
    /// that asks for a sign-in is an error.
    pub(super) async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let token = self.token().await?;
        let again = if token.is_some() { request.try_clone() } else { None };
        let mut response = self.once(request, token.as_deref()).await?;
        if response.status() == StatusCode::UNAUTHORIZED
            && let (Some(refused), Some(again), Some(tokens)) = (token, again, &self.inner.tokens)
            && tokens.refused(&refused).await
        {
            let token = self.token().await?;
            response = self.once(again, token.as_deref()).await?;
        }
        match self.refusal(&response) {
            Some(error) => Err(error),
            None => Ok(response),
        }
    }

    async fn token(&self) -> Result<Option<String>, Error> {
        match &self.inner.tokens {
            Some(tokens) => tokens.token().await.map_err(|reason| Error::Client(Fault::Token(reason))),
            None => Ok(None),
        }
    }

    async fn once(&self, request: RequestBuilder, token: Option<&str>) -> Result<Response, Error> {
        let mut headers = self.inner.headers.clone();
        if let Some(token) = token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| Error::Client(Fault::Token("it holds characters that a header cannot carry".to_owned())))?;
            value.set_sensitive(true);
            // Signed in to is newer than a key that was written down.
            let _ = headers.insert(AUTHORIZATION, value);
        }
        request.headers(headers).send().await.map_err(|error| self.reach(error))
    }

    pub(super) fn reach(&self, error: reqwest::Error) -> Error {
        Error::Client(Fault::Reach { place: self.inner.place.clone(), error: error.without_url() })
    }

    /// The answer as a wish for a sign-in, where it is one.
    fn refusal(&self, response: &Response) -> Option<Error> {
        let said = challenge(response.headers());
        let error = match (response.status(), said) {
            // One without a challenge asks all the same.
            (StatusCode::UNAUTHORIZED, said) => {
                let said = said.unwrap_or_default();
                self.asked(&said);
                Error::AuthRequired(AuthRequiredError::new(said))
            }
            (StatusCode::FORBIDDEN, Some(said)) if said.contains("insufficient_scope") => {
                self.asked(&said);
                let scope = parameter(&said, "scope");
                Error::InsufficientScope(InsufficientScopeError::new(said, scope))
            }
            _ => return None,
        };
        Some(error)
    }

    fn asked(&self, said: &str) {
        *self.inner.challenge.lock().unwrap_or_else(PoisonError::into_inner) = Some(said.to_owned());
    }

    /// An answer that is an error, and no message of the protocol.
    pub(super) async fn foreign(&self, response: Response) -> Error {
        let status = response.status().as_u16();
        let mut page = Vec::new();
        let mut chunks = response.bytes_stream();
        while page.len() < PAGE
            && let Some(Ok(chunk)) = chunks.next().await
        {
            page.extend_from_slice(&chunk[..chunk.len().min(PAGE - page.len())]);
        }
        self.status(status, &page)
    }

    fn status(&self, status: u16, page: &[u8]) -> Error {
        let text = String::from_utf8_lossy(&page[..page.len().min(PAGE)]);
        let said = self.without_secrets(text.trim());
        let said: String = said.chars().filter(|character| !character.is_control()).take(SHOWN).collect();
        let said = if said.is_empty() { said } else { format!(": {said}") };
        Error::Client(Fault::Status { place: self.inner.place.clone(), status, said })
    }

    /// Some servers repeat the keys that they refuse.
    fn without_secrets(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for value in self.inner.headers.values() {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            for secret in [value.as_str(), value.rsplit(' ').next().unwrap_or_default()] {
                if secret.len() >= SECRET {
                    text = text.replace(secret, "…");
                }
            }
        }
        text
    }

    /// A whole body, within its limit.
    async fn body(&self, response: Response, most: usize) -> Result<Vec<u8>, Error> {
        let too_large = || Error::ResponseBodyTooLarge { max_size: most };
        if response.content_length().is_some_and(|length| length > most as u64) {
            return Err(too_large());
        }
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.reach(error))?;
            if chunk.len() > most - body.len() {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The events of an answer. One that is too long ends only what it belongs to: the request, where there is one.
    fn events(&self, response: Response, most: usize, request: Option<RequestId>) -> BoxStream<'static, Result<Sse, SseError>> {
        let client = self.clone();
        let bytes = response.bytes_stream().map(move |chunk| chunk.map_err(|error| client.reach(error)));
        let found = events::read(bytes, most);
        found
            .filter_map(move |found| {
                let event = match found {
                    Ok(Found::Event(event)) => Some(Ok(mended(event, request.as_ref()))),
                    Ok(Found::TooLong(_)) => request.clone().map(|id| Ok(too_long(id, most))),
                    Err(error) => Some(Err(SseError::Body(Box::new(error)))),
                };
                std::future::ready(event)
            })
            .boxed()
    }

    async fn posted(
        &self,
        message: ClientJsonRpcMessage,
        response: Response,
        had_session: bool,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let status = response.status();
        let request = match &message {
            JsonRpcMessage::Request(request) => Some(request.id.clone()),
            _ => None,
        };
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && had_session {
            return Err(Error::SessionExpired);
        }
        let kind = response.headers().get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
        let session = response.headers().get(SESSION).and_then(|session| session.to_str().ok()).map(str::to_owned);
        let json = kind.as_deref().is_some_and(|kind| is_kind(kind, JSON));
        if !status.is_success() {
            if !json {
                return Err(self.foreign(response).await);
            }
            let body = self.body(response, limits.max_json_response_size).await?;
            return match (only(&body), request) {
                (Some(JsonRpcMessage::Error(error)), Some(request)) if !made_up(&error.error) => {
                    Ok(StreamableHttpPostResponse::Json(ServerJsonRpcMessage::error(error.error, Some(request)), session))
                }
                _ => Err(self.status(status.as_u16(), &body)),
            };
        }
        if kind.as_deref().is_some_and(|kind| is_kind(kind, EVENTS)) {
            return Ok(StreamableHttpPostResponse::Sse(self.events(response, limits.max_sse_event_size, request), session));
        }
        // Where nothing is waited for, nothing in the body matters.
        let Some(request) = request else {
            return Ok(StreamableHttpPostResponse::Accepted);
        };
        if !json {
            return Err(Error::UnexpectedContentType(kind));
        }
        let body = self.body(response, limits.max_json_response_size).await?;
        match only(&body) {
            Some(message) => Ok(StreamableHttpPostResponse::Json(answering(message, &request), session)),
            None => {
                let start: String =
                    self.without_secrets(&String::from_utf8_lossy(&body[..body.len().min(PAGE)])).chars().take(SHOWN).collect();
                Err(Error::UnexpectedServerResponse(format!("the answer is no message of the protocol: {start}").into()))
            }
        }
    }
}

/// The one message of a body.
fn only(body: &[u8]) -> Option<ServerJsonRpcMessage> {
    let mut messages = mend::read(body).messages;
    if messages.len() == 1 { messages.pop() } else { None }
}

fn made_up(error: &ErrorData) -> bool {
    error.code == UNREADABLE && error.message.starts_with("the answer is no valid JSON")
}

/// An answer to this request. Whatever id it has: what comes back on a request belongs to it. Some have none, or a word.
fn answering(message: ServerJsonRpcMessage, request: &RequestId) -> ServerJsonRpcMessage {
    match message {
        JsonRpcMessage::Response(answer) => ServerJsonRpcMessage::response(answer.result, request.clone()),
        JsonRpcMessage::Error(error) => ServerJsonRpcMessage::error(error.error, Some(request.clone())),
        other => other,
    }
}

/// An event with a message that the protocol's own client can read, where it could not as it came.
fn mended(mut event: Sse, request: Option<&RequestId>) -> Sse {
    let Some(data) = event.data.as_deref().filter(|data| !data.trim().is_empty()) else { return event };
    let known = serde_json::from_str::<ServerJsonRpcMessage>(data).is_ok_and(|message| match &message {
        JsonRpcMessage::Response(answer) => request.is_none_or(|request| answer.id == *request),
        JsonRpcMessage::Error(error) => request.is_none_or(|request| error.id.as_ref() == Some(request)),
        JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => true,
    });
    if known && first_wide(data).is_none() {
        return event;
    }
    if let Some(message) = only(data.as_bytes()) {
        let message = match request {
            Some(request) => answering(message, request),
            None => message,
        };
        event.data = serde_json::to_string(&message).ok().or(event.data);
    }
    event
}

/// Stands in for an answer that was too long to be read.
fn too_long(id: RequestId, most: usize) -> Sse {
    let error = ErrorData::internal_error(format!("the answer is longer than {most} bytes and was dropped"), None);
    let message = ServerJsonRpcMessage::error(error, Some(id));
    Sse { data: serde_json::to_string(&message).ok(), ..Sse::default() }
}

fn http(url: &Url) -> Result<reqwest::Client, String> {
    // The first provider stays; a second installation is no fault.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = reqwest::Client::builder().connect_timeout(CONNECT).tcp_keepalive(ALIVE).redirect(same_origin());
    if url.scheme() == "http" {
        // Plain HTTP servers often write small pieces with Nagle's algorithm on: a reused connection then costs 40 ms
        // per call, a new one on this machine or network next to nothing.
        builder = builder.pool_max_idle_per_host(0);
    } else {
        builder = builder.http2_keep_alive_interval(ALIVE).http2_keep_alive_while_idle(true);
    }
    builder.build().map_err(|error| format!("no HTTP client can be made: {error}"))
}

/// Follows `/mcp` to `/mcp/` and the like; a message, and the keys in its headers, never goes to another origin.
fn same_origin() -> reqwest::redirect::Policy {
    const HOPS: usize = 10;
    reqwest::redirect::Policy::custom(|attempt| {
        let keeps_method = matches!(attempt.status().as_u16(), 307 | 308);
        let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
        if keeps_method && same && attempt.previous().len() <= HOPS { attempt.follow() } else { attempt.stop() }
    })
}

fn header_map(headers: &BTreeMap<String, String>) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let parsed = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value));
        let (Ok(header), Ok(mut value)) = parsed else {
            return Err(format!("\"headers\": \"{name}\" cannot be sent"));
        };
        // Kept out of logs.
        value.set_sensitive(true);
        let _ = map.insert(header, value);
    }
    Ok(map)
}

/// Whether a content type is this one, whatever parameters it has.
pub(super) fn is_kind(content_type: &str, kind: &str) -> bool {
    content_type.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(kind))
}

/// All challenges of an answer as one; the one for bearer tokens first.
fn challenge(headers: &HeaderMap) -> Option<String> {
    let mut said: Vec<String> =
        headers.get_all(WWW_AUTHENTICATE).iter().map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
    said.sort_by_key(|said| !said.trim_start().get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")));
    let said = said.join(", ");
    if said.is_empty() { None } else { Some(said.chars().take(CHALLENGE).collect()) }
}

/// The value of a challenge's parameter.
fn parameter(challenge: &str, name: &str) -> Option<String> {
    let start = format!("{name}=");
    let at = challenge.match_indices(&start).map(|(at, _)| at).find(|at| {
        let before = challenge[..*at].chars().next_back();
        before.is_none_or(|before| before == ' ' || before == ',')
    })?;
    let value = &challenge[at + start.len()..];
    match value.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next().map(str::to_owned),
        None => value.split([',', ' ', ';']).next().filter(|value| !value.is_empty()).map(str::to_owned),
    }
}

impl StreamableHttpClient for Client {
    type Error = Fault;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let limits = StreamableHttpResponseLimits::default();
        self.post_message_with_response_limits(uri, message, session_id, auth_header, custom_headers, limits).await
    }

    async fn post_message_with_response_limits(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        limits: StreamableHttpResponseLimits,
    ) -> Result<StreamableHttpPostResponse, Error> {
        let mut request = self.post(self.inner.url.clone(), &message)?.header(ACCEPT, format!("{EVENTS}, {JSON}"));
        for (name, value) in custom_headers {
            request = request.header(name, value);
        }
        if let Some(session) = &session_id {
            request = request.header(SESSION, session.as_ref());
        }
        let response = self.send(request).await?;
        self.posted(message, response, session_id.is_some(), limits).await
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Error> {
        let mut request = self.inner.http.delete(self.inner.url.clone()).header(SESSION, session_id.as_ref());
        for (name, value) in custom_headers {
            request = request.header(name, value);
        }
        let response = self.send(request).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Err(Error::ServerDoesNotSupportDeleteSession),
            status if status.is_success() => Ok(()),
            _ => Err(self.foreign(response).await),
        }
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let most = StreamableHttpResponseLimits::default().max_sse_event_size;
        self.get_stream_with_max_sse_event_size(uri, session_id, last_event_id, auth_header, custom_headers, most).await
    }

    async fn get_stream_with_max_sse_event_size(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
        max_sse_event_size: usize,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Error> {
        let mut request = self.get(self.inner.url.clone()).header(ACCEPT, EVENTS);
        for (name, value) in custom_headers {
            request = request.header(name, value);
        }
        if let Some(session) = session_id {
            request = request.header(SESSION, session.as_ref());
        }
        if let Some(last) = last_event_id {
            request = request.header(LAST_EVENT, last);
        }
        let response = self.send(request).await?;
        let status = response.status();
        // Offering a stream is up to the server. Asking again would change nothing; a session that is gone is found out by
        // the next message.
        if status.is_client_error() && !matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) {
            return Err(Error::ServerDoesNotSupportSse);
        }
        if !status.is_success() {
            return Err(self.foreign(response).await);
        }
        let kind = response.headers().get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
        if !kind.as_deref().is_some_and(|kind| is_kind(kind, EVENTS)) {
            return Err(Error::UnexpectedContentType(kind));
        }
        Ok(self.events(response, max_sse_event_size, None))
    }
}
