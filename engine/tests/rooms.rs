//! One binary for the rooms' tests: each room's behaviour through the engine's public face.

#[path = "rooms/mcp.rs"]
mod mcp;
