//! Streamable HTTP: the transport to an address, who gives its access tokens, and what may go wrong on the way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::{StreamableHttpClientTransportConfig, StreamableHttpError};

pub(in crate::mcp) use super::client::Client;

/// Longest pause between attempts to reopen an event stream.
const STREAM_PAUSE: Duration = Duration::from_secs(30);

/// Who gives the access token for an address. Asked for each request, so it keeps what it has.
pub(in crate::mcp) trait Tokens: Send + Sync + std::fmt::Debug {
    /// The access token to send, refreshed silently where needed. None where nobody is signed in, or not any more: the
    /// request then goes without one, and the server's answer says what it wants. An error where a token should be there
    /// but cannot be had now.
    fn token(&self) -> BoxFuture<'_, Result<Option<String>, String>>;

    /// The server refused this token although it looked good. Whether there is another one now, worth a second try.
    fn refused<'a>(&'a self, token: &'a str) -> BoxFuture<'a, bool> {
        let _ = token;
        Box::pin(std::future::ready(false))
    }
}

/// What goes wrong between here and a server, beyond what the protocol's own error knows.
#[derive(Debug, thiserror::Error)]
pub(in crate::mcp) enum Fault {
    /// It was not reached, or the connection broke off. The address is not in it: keys are often part of one.
    #[error("{place} cannot be reached")]
    Reach {
        place: String,
        #[source]
        error: reqwest::Error,
    },
    /// It answered with an error that is no message of the protocol.
    #[error("{place} answered with HTTP {status}{said}")]
    Status {
        place: String,
        status: u16,
        /// The start of what came with it, after a colon; empty where nothing did.
        said: String,
    },
    #[error("the access token cannot be had: {0}")]
    Token(String),
    /// It does not speak HTTP+SSE as the revision has it.
    #[error("{0}")]
    Stream(String),
}

/// The error of both ways over HTTP.
pub(in crate::mcp) type Error = StreamableHttpError<Fault>;

impl Fault {
    /// Whether nobody was there at all.
    pub(in crate::mcp) fn is_unreachable(&self) -> bool {
        matches!(self, Self::Reach { error, .. } if error.is_connect() || error.is_timeout())
    }

    /// Whether trying again may help: nobody was there, or something on the way says that it is out of order for now.
    pub(in crate::mcp) fn may_pass(&self) -> bool {
        self.is_unreachable() || matches!(self, Self::Status { status: 429 | 502..=504, .. } | Self::Token(_))
    }

    /// Whether this is how an address answers that knows no Streamable HTTP, such as one of the older kind.
    pub(in crate::mcp) fn is_other_kind(&self) -> bool {
        matches!(self, Self::Status { status: 400 | 404 | 405, .. })
    }
}

/// How an address is reached: headers from the configuration, and tokens where somebody signs in.
pub(in crate::mcp) fn client(url: &str, headers: &BTreeMap<String, String>, tokens: Option<Arc<dyn Tokens>>) -> Result<Client, String> {
    Client::new(url, headers, tokens)
}

/// The transport of Streamable HTTP; nothing is sent yet.
pub(in crate::mcp) fn open(client: &Client) -> StreamableHttpClientTransport<Client> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(client.url());
    let mut retry = ExponentialBackoff::default();
    retry.max_delay = Some(STREAM_PAUSE);
    config.retry_config = Arc::new(retry);
    StreamableHttpClientTransport::with_client(client.clone(), config)
}
