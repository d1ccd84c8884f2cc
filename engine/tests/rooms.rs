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

#[path = "rooms/local.rs"]
mod local;
