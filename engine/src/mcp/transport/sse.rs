//! HTTP+SSE of revision 2024-11-05: one event stream from the server, whose first event names the address that messages
//! are posted to. When the stream ends, so does the connection; who supervises it opens another one.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use ::http::header::{ACCEPT, CONTENT_TYPE};
use futures::StreamExt as _;
use futures::stream::BoxStream;
use reqwest::Url;
use rmcp::RoleClient;
use rmcp::model::{ErrorData, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;

use super::client::{Client, EVENTS, is_kind};
use super::events::{self, Found};
use super::http::{Error, Fault};
use super::mend::{self, UNREADABLE, id_in_head};
use super::stdio::LINE;

/// Longest wait for the stream and its first event (fixed).
const ENDPOINT: Duration = Duration::from_secs(10);
/// Events before the first one that counts.
const OTHERS: usize = 16;
/// Longest address for messages (fixed).
const ADDRESS: usize = 8192;

/// An open connection.
pub(in crate::mcp) struct Sse {
    client: Client,
    endpoint: Url,
    events: Option<BoxStream<'static, Result<Found, Error>>>,
    ready: VecDeque<RxJsonRpcMessage<RoleClient>>,
}

impl fmt::Debug for Sse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The endpoint holds the session's id, which is as good as a key.
        f.debug_struct("Sse").field("client", &self.client).field("open", &self.events.is_some()).finish_non_exhaustive()
    }
}

/// Opens the stream and waits until the server said where messages go.
pub(in crate::mcp) async fn open(client: &Client) -> Result<Sse, Error> {
    match tokio::time::timeout(ENDPOINT, connect(client)).await {
        Ok(opened) => opened,
        Err(_) => Err(fault(format!("its event stream did not say within {ENDPOINT:?} where messages go"))),
    }
}

fn fault(reason: impl Into<String>) -> Error {
    Error::Client(Fault::Stream(reason.into()))
}

async fn connect(client: &Client) -> Result<Sse, Error> {
    let response = client.send(client.get(client.address().clone()).header(ACCEPT, EVENTS)).await?;
    if !response.status().is_success() {
        return Err(client.foreign(response).await);
    }
    let kind = response.headers().get(CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    if !kind.as_deref().is_some_and(|kind| is_kind(kind, EVENTS)) {
        return Err(Error::UnexpectedContentType(kind));
    }
    // Redirects stay within the origin; the endpoint counts from where they led.
    let base = response.url().clone();
    let reader = client.clone();
    let mut events = events::read(response.bytes_stream().map(move |chunk| chunk.map_err(|error| reader.reach(error))), LINE);
    for _ in 0..OTHERS {
        match events.next().await {
            Some(Ok(Found::Event(event))) if event.event.as_deref() == Some("endpoint") => {
                let endpoint = endpoint(&base, event.data.as_deref().unwrap_or_default().trim())?;
                return Ok(Sse { client: client.clone(), endpoint, events: Some(events), ready: VecDeque::new() });
            }
            Some(Ok(Found::Event(event))) if event.data.is_none() => {}
            Some(Ok(_)) => break,
            Some(Err(error)) => return Err(error),
            None => return Err(fault("its event stream ended before it said where messages go")),
        }
    }
    Err(fault("its event stream does not begin with the event \"endpoint\""))
}

/// Where messages go. Headers and tokens go there as well, so it must be the same origin.
fn endpoint(base: &Url, said: &str) -> Result<Url, Error> {
    if said.is_empty() || said.len() > ADDRESS {
        return Err(fault("the address for messages that it gives is empty or too long"));
    }
    let endpoint = base.join(said).map_err(|error| fault(format!("the address for messages that it gives cannot be used: {error}")))?;
    if endpoint.origin() != base.origin() {
        let origin = endpoint.origin().ascii_serialization();
        return Err(fault(format!("it wants messages to be sent to another origin, {origin:.200}; that is not allowed")));
    }
    Ok(endpoint)
}

impl Sse {
    fn understand(&mut self, data: &str) {
        let read = mend::read(data.as_bytes());
        if !read.is_rpc {
            tracing::debug!("an event that is no message is left out");
        }
        self.ready.extend(read.messages);
    }
}

impl Transport<RoleClient> for Sse {
    type Error = Error;

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), Error>> + Send + 'static {
        let (client, endpoint) = (self.client.clone(), self.endpoint.clone());
        async move {
            let response = client.send(client.post(endpoint, &item)?).await?;
            if response.status().is_success() { Ok(()) } else { Err(client.foreign(response).await) }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            match self.events.as_mut()?.next().await {
                Some(Ok(Found::Event(event))) => {
                    let for_us = event.event.as_deref().is_none_or(|name| name == "message");
                    if let Some(data) = event.data.filter(|data| for_us && !data.trim().is_empty()) {
                        self.understand(&data);
                    }
                }
                Some(Ok(Found::TooLong(start))) => {
                    let what = format!("the answer is longer than {LINE} bytes and was dropped");
                    let id = id_in_head(start.as_bytes());
                    tracing::debug!(known = id.is_some(), "an event is too long");
                    self.ready.extend(id.map(|id| JsonRpcMessage::error(ErrorData::new(UNREADABLE, what, None), Some(id))));
                }
                Some(Err(error)) => {
                    tracing::debug!(%error, "an event stream broke off");
                    self.events = None;
                }
                None => self.events = None,
            }
        }
    }

    async fn close(&mut self) -> Result<(), Error> {
        self.events = None;
        Ok(())
    }
}
