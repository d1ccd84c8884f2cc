//! Handrail without a screen: models, MCP servers, documents, the approval gate and the tool loop.
//!
//! The rooms below are listed from the ground up; a room imports only rooms listed above it
//! (`tests/rooms/architecture.rs` holds every `use crate::` line against that order). Nothing here knows iced.
//!
//! Start with [`Engine::start`]: it opens the data folder, owns the async runtime and hands out one cheap-clone
//! handle per room.
#![deny(missing_docs)]

pub mod settings;
pub mod secret;
pub mod index;
pub mod tool;
pub mod conversation;
pub mod store;
pub mod approval;
pub mod embedding;
pub mod provider;
pub mod local;
pub mod mcp;
pub mod rag;
pub mod router;
pub mod prompt;
pub mod turn;
pub mod event;
pub mod engine;

pub use engine::{Config, Engine};
pub use event::Event;
