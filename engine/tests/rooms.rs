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
