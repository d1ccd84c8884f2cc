//! The ways to a server.

mod client;
mod events;
pub(super) mod http;
pub(super) mod sse;
pub(super) mod stdio;
