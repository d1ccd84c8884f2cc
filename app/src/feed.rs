//! The engine's endless facts as one Subscription: a snapshot first, then changes; a receiver that fell behind takes
//! a new snapshot.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use futures::SinkExt as _;
use futures::channel::mpsc;
use handrail_engine::{Engine, Event};
use iced::Subscription;
use tokio::sync::broadcast::error::RecvError;

use crate::facts::Facts;

/// What the feed brings.
#[derive(Clone, Debug)]
pub enum Message {
    /// Everything, as it is now.
    Snapshot(Arc<Facts>),
    /// One change.
    Changed(Box<Event>),
}

/// There is one engine per process, so its identity is a constant.
struct Source(Engine);

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        "engine".hash(state);
    }
}

/// Follows the engine.
pub fn follow(engine: &Engine) -> Subscription<Message> {
    Subscription::run_with(Source(engine.clone()), |source| {
        let engine = source.0.clone();
        iced::stream::channel(64, async move |mut out: mpsc::Sender<Message>| {
            loop {
                // Subscribing comes first: what happens while the snapshot is taken is applied after it.
                let mut events = engine.events();
                let asked = engine.clone();
                let Ok(facts) = engine.handle().spawn_blocking(move || Facts::gather(&asked)).await else { return };
                if out.send(Message::Snapshot(Arc::new(facts))).await.is_err() {
                    return;
                }
                loop {
                    let message = match events.recv().await {
                        Ok(Event::Missed) | Err(RecvError::Lagged(_)) => break,
                        Ok(event) => Message::Changed(Box::new(event)),
                        Err(RecvError::Closed) => return,
                    };
                    if out.send(message).await.is_err() {
                        return;
                    }
                }
            }
        })
    })
}
