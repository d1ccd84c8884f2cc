//! Errors of the protocol and of the way to a server in words, and what they mean.

use rmcp::model::ProtocolVersion;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::DynamicTransportError;

use super::super::transport::http::{self, Fault};
use super::handler::cut;
use super::negotiate::Kind;

/// Longest error message of a server that is kept, in characters (fixed).
const MESSAGE: usize = 4000;

/// Characters of an answer that is no greeting which are shown.
const SHOWN: usize = 200;

/// One request needs more than was allowed at the sign-in.
pub(super) const MORE_RIGHTS: &str = "it asks for more rights than it was given; sign in again to give them";

/// An error of a running connection in words.
pub(super) fn explain(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("{} (code {})", cut(error.message.to_string(), MESSAGE), error.code.0),
        ServiceError::TransportClosed => "the connection is closed".to_owned(),
        ServiceError::TransportSend(error) => explain_sent(error),
        other => other.to_string(),
    }
}

/// Whether the server could not even be reached.
pub(super) fn unreachable(error: &ServiceError) -> bool {
    matches!(error, ServiceError::TransportSend(error) if way(error).and_then(fault).is_some_and(Fault::is_unreachable))
}

fn way(error: &DynamicTransportError) -> Option<&http::Error> {
    error.error.downcast_ref()
}

fn fault(error: &http::Error) -> Option<&Fault> {
    match error {
        http::Error::Client(fault) => Some(fault),
        _ => None,
    }
}

fn explain_sent(error: &DynamicTransportError) -> String {
    way(error).map_or_else(|| chain(error.error.as_ref()), |error| explain_way(error).0)
}

/// An error of the way over HTTP in words, and what it means for a start.
pub(super) fn explain_way(error: &http::Error) -> (String, Kind) {
    match fault(error) {
        Some(fault) if fault.may_pass() => (chain(fault), Kind::Unreachable),
        Some(fault) => (chain(fault), Kind::Server),
        None => (chain(error), Kind::Server),
    }
}

/// Whether the address answered the first request as one of the older kind, HTTP+SSE, would.
pub(super) fn is_older(error: &ClientInitializeError) -> bool {
    let ClientInitializeError::TransportError { error, .. } = error else { return false };
    way(error).and_then(fault).is_some_and(Fault::is_other_kind)
}

/// What asking for a sign-in is called, and what to do about it.
pub(super) fn explain_sign_in(has_key: bool) -> String {
    if has_key {
        "it refused the key in \"headers\"; correct it, or sign in".to_owned()
    } else {
        "it asks for a sign-in; where it takes a key instead, put that into \"headers\"".to_owned()
    }
}

/// An error of a start in words, and what it means. Whether it asks for a sign-in is seen by the transport.
pub(super) fn explain_start(error: &ClientInitializeError) -> (String, Kind) {
    match error {
        ClientInitializeError::ConnectionClosed(_) => ("it closed the connection during the start".to_owned(), Kind::Server),
        ClientInitializeError::JsonRpcError(error) => {
            (format!("it refused the start: {} (code {})", error.message, error.code.0), Kind::Server)
        }
        ClientInitializeError::TransportError { error, .. } => {
            way(error).map_or_else(|| (chain(error.error.as_ref()), Kind::Server), explain_way)
        }
        ClientInitializeError::NoCompatibleProtocolVersion { server_supported, .. } => {
            let versions: Vec<String> = server_supported.iter().map(ToString::to_string).collect();
            (format!("it speaks no protocol revision that this version knows, only {}", versions.join(", ")), Kind::Server)
        }
        ClientInitializeError::ExpectedInitResponse(answer) => {
            let what = answer.as_ref().map_or_else(|| "nothing came".to_owned(), |answer| format!("it sent {}", start_of(answer)));
            (format!("it did not answer the greeting as an MCP server would: {what}"), Kind::Server)
        }
        ClientInitializeError::ExpectedInitResult(result) => {
            let what = result.as_ref().map_or_else(|| "nothing came".to_owned(), |result| format!("its answer holds {}", start_of(result)));
            (format!("it did not answer the greeting as an MCP server would: {what}"), Kind::Server)
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => explain_start(fallback),
        ClientInitializeError::ConflictInitResponseId(..)
        | ClientInitializeError::UncorrelatedErrorResponse { .. }
        | ClientInitializeError::NoPreferredProtocolVersion
        | ClientInitializeError::Cancelled => {
            let text: String = error.to_string().chars().take(500).collect();
            (format!("it did not answer as an MCP server would: {text}"), Kind::Server)
        }
        // The library's own words may hold what only its authors can read.
        _ => ("it did not answer as an MCP server would".to_owned(), Kind::Server),
    }
}

/// The start of a message as it stood on the wire.
fn start_of(message: &impl serde::Serialize) -> String {
    let text = serde_json::to_string(message).unwrap_or_else(|_| "something that cannot be shown".to_owned());
    cut(text, SHOWN)
}

/// What is wrong with the revision that the server chose: the protocol has us leave where we do not know it.
pub(super) fn explain_revision(chosen: &ProtocolVersion) -> Option<String> {
    let known = ProtocolVersion::KNOWN_VERSIONS;
    if known.contains(chosen) {
        return None;
    }
    let known: Vec<&str> = known.iter().map(ProtocolVersion::as_str).collect();
    Some(format!("it speaks protocol revision {:.40}, and this version knows only {}", chosen.as_str(), known.join(", ")))
}

/// An error with its causes: the outermost text alone ("error sending request") explains nothing.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
