

#[path = "rooms/router.rs"]
mod router;
