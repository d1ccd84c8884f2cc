//! Handrail without a screen: models, MCP servers, documents, the approval gate and the tool loop.
//!
//! The rooms below are listed from the ground up; a room imports only rooms listed above it
//! (`tests/rooms/architecture.rs` holds every `use crate::` line against that order). Nothing here knows iced.
//!
//! Start with [`Engine::start`]: it opens the data folder, owns the async runtime and hands out one cheap-clone
//! handle per room.
#![deny(missing_docs)]

pub mod approval;
pub mod conversation;
pub mod embedding;
pub mod engine;
pub mod event;
pub mod index;
pub mod local;
pub mod mcp;
pub mod prompt;
pub mod provider;
pub mod rag;
pub mod router;
pub mod secret;
pub mod settings;
pub mod store;
pub mod tool;
pub mod turn;

pub use engine::{Config, Engine};
pub use event::Event;
