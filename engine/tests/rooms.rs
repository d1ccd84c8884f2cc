//! One test binary for all rooms: each room's public behaviour in a module of its own.

#[path = "rooms/architecture.rs"]
mod architecture;
