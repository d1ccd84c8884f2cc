//! The ways to a server.

mod client;
mod events;
pub(super) mod http;
pub(super) mod mend;
pub(super) mod sse;
pub(super) mod stdio;
