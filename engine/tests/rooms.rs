

#[path = "rooms/router.rs"]
mod router;
#[path = "rooms/approval.rs"]
mod approval;
#[path = "rooms/store.rs"]
mod store;
#[path = "rooms/turn.rs"]
mod turn;
