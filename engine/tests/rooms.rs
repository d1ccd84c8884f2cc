#[path = "rooms/index.rs"]
mod index;
