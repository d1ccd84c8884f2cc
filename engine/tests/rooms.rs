//! One test binary for all rooms: each room's public behaviour in a module of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::too_many_lines)]

#[path = "rooms/approval.rs"]
mod approval;
#[path = "rooms/architecture.rs"]
mod architecture;
#[path = "rooms/encoder.rs"]
mod encoder;
#[path = "rooms/gguf_file.rs"]
mod gguf_file;
#[path = "rooms/index.rs"]
mod index;
#[path = "rooms/local.rs"]
mod local;
#[path = "rooms/mcp.rs"]
mod mcp;
#[path = "rooms/mcp_odd.rs"]
mod mcp_odd;
#[path = "rooms/mcp_surface.rs"]
mod mcp_surface;
#[path = "rooms/mcp_config.rs"]
mod mcp_config;
#[path = "rooms/mcp_process.rs"]
mod mcp_process;
#[path = "rooms/mcp_sign_in.rs"]
mod mcp_sign_in;
#[path = "rooms/model_files.rs"]
mod model_files;
#[path = "rooms/models.rs"]
mod models;
#[path = "rooms/rag.rs"]
mod rag;
#[path = "rooms/rag_pdf.rs"]
mod rag_pdf;
#[path = "rooms/rag_worker.rs"]
mod rag_worker;
#[path = "rooms/router.rs"]
mod router;
#[path = "rooms/store.rs"]
mod store;
#[path = "rooms/turn.rs"]
mod turn;
