#[path = "rooms/local.rs"]
mod local;
