//! Tests of whole rooms on real input.

#[path = "rooms/rag.rs"]
mod rag;
#[path = "rooms/rag_pdf.rs"]
mod rag_pdf;
#[path = "rooms/rag_worker.rs"]
mod rag_worker;
//! One test binary for all rooms: each room's public behaviour in a module of its own.

#[path = "rooms/architecture.rs"]
mod architecture;
//! One binary for the room tests: each file drives one room from the outside.

#[path = "rooms/approval.rs"]
mod approval;
#[path = "rooms/architecture.rs"]
mod architecture;
#[path = "rooms/encoder.rs"]
mod encoder;
#[path = "rooms/local.rs"]
mod local;
#[path = "rooms/models.rs"]
mod models;
#[path = "rooms/router.rs"]
mod router;
#[path = "rooms/store.rs"]
mod store;
#[path = "rooms/turn.rs"]
mod turn;

#[path = "rooms/local.rs"]
mod local;
#[path = "rooms/index.rs"]
mod index;
//! One binary for the rooms' tests: each room's behaviour through the engine's public face.

#[path = "rooms/mcp.rs"]
mod mcp;
