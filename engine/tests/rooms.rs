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

#[path = "rooms/encoder.rs"]
mod encoder;
#[path = "rooms/models.rs"]
mod models;

#[path = "rooms/router.rs"]
mod router;
#[path = "rooms/approval.rs"]
mod approval;
#[path = "rooms/store.rs"]
mod store;
#[path = "rooms/turn.rs"]
mod turn;

#[path = "rooms/local.rs"]
mod local;
#[path = "rooms/index.rs"]
mod index;
