//! One binary for the room tests: each file drives one room from the outside.

#[path = "rooms/encoder.rs"]
mod encoder;
#[path = "rooms/models.rs"]
mod models;
