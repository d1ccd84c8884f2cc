//! What a server announces as changed: gathered for a moment, because servers announce in bursts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::model::{ServerCapabilities, ServerNotification, SubscriptionFilter};
use rmcp::{Peer, RoleClient};
use tokio::sync::{Notify, broadcast, watch};

use super::super::Event;
use crate::tool::ServerId;

/// How long announcements are gathered.
const SETTLE: Duration = Duration::from_millis(200);
/// Changed resources that are named; with more of them the list as a whole counts as changed.
const NAMED: usize = 64;
/// Resources of one server that are watched at a time; the oldest ones are forgotten.
const WATCHED: usize = 64;
/// Pauses between attempts to reopen an event stream: the first, and the longest.
const STREAM_PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Prompts,
    Resources,
    Resource(String),
}

/// A server's announcements.
#[derive(Debug)]
pub(super) struct Changes {
    server: ServerId,
    events: broadcast::Sender<Event>,
    /// Wakes whoever lists the tools again.
    pub(super) tools: Arc<Notify>,
    gathered: Mutex<BTreeSet<Change>>,
    /// Resources that somebody has read.
    watched: watch::Sender<Vec<String>>,
}

impl Changes {
    pub(super) fn new(server: ServerId, events: broadcast::Sender<Event>) -> Self {
        Self { server, events, tools: Arc::default(), gathered: Mutex::default(), watched: watch::Sender::new(Vec::new()) }
    }

    /// Watches a resource; whether that is new.
    pub(super) fn watch(&self, uri: &str) -> bool {
        self.watched.send_if_modified(|watched| {
            let fresh = !watched.iter().any(|known| known == uri);
            if fresh {
                if watched.len() == WATCHED {
                    let _ = watched.remove(0);
                }
                watched.push(uri.to_owned());
            }
            fresh
        })
    }

    pub(super) fn prompts(self: &Arc<Self>) {
        self.gather(Change::Prompts);
    }

    pub(super) fn resources(self: &Arc<Self>) {
        self.gather(Change::Resources);
    }

    pub(super) fn resource(self: &Arc<Self>, uri: String) {
        self.gather(Change::Resource(uri));
    }

    fn gather(self: &Arc<Self>, change: Change) {
        let first = {
            let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
            let first = gathered.is_empty();
            let change = if gathered.len() < NAMED { change } else { Change::Resources };
            let _ = gathered.insert(change);
            first
        };
        if first {
            let this = self.clone();
            let _telling = tokio::spawn(async move {
                tokio::time::sleep(SETTLE).await;
                this.tell();
            });
        }
    }

    fn tell(&self) {
        let gathered = std::mem::take(&mut *self.gathered.lock().unwrap_or_else(PoisonError::into_inner));
        for change in gathered {
            let server = self.server.clone();
            let _ = self.events.send(match change {
                Change::Prompts => Event::PromptsChanged(server),
                Change::Resources => Event::ResourceChanged { server, uri: None },
                Change::Resource(uri) => Event::ResourceChanged { server, uri: Some(uri) },
            });
        }
    }

    fn all(self: &Arc<Self>, filter: &SubscriptionFilter) {
        if filter.tools_list_changed == Some(true) {
            self.tools.notify_one();
        }
        if filter.prompts_list_changed == Some(true) {
            self.prompts();
        }
        if filter.resources_list_changed == Some(true) {
            self.resources();
        }
        for uri in filter.resource_subscriptions.iter().flatten() {
            self.resource(uri.clone());
        }
    }

    fn announced(self: &Arc<Self>, announced: ServerNotification) {
        match announced {
            ServerNotification::ToolListChangedNotification(_) => self.tools.notify_one(),
            ServerNotification::PromptListChangedNotification(_) => self.prompts(),
            ServerNotification::ResourceListChangedNotification(_) => self.resources(),
            ServerNotification::ResourceUpdatedNotification(updated) => self.resource(updated.params.uri),
            _ => {}
        }
    }
}

/// In the stateless era a server tells about changes only to those who ask. A stream that ends is asked for again, and
/// one with another filter is asked for when another resource is watched.
pub(super) async fn listen(peer: Peer<RoleClient>, changes: Arc<Changes>, capabilities: ServerCapabilities) {
    let mut watched = changes.watched.subscribe();
    let mut pause = STREAM_PAUSES.0;
    let mut missed = false;
    loop {
        let uris = watched.borrow_and_update().clone();
        let mut filter = SubscriptionFilter::builder().tools_list_changed().prompts_list_changed().resources_list_changed();
        if !uris.is_empty() {
            filter = filter.resource_subscriptions(uris);
        }
        let filter = filter.build().supported_by(&capabilities);
        if filter == SubscriptionFilter::default() {
            // Nothing to listen for, unless a resource comes to be watched.
            if watched.changed().await.is_err() {
                return;
            }
            continue;
        }
        let mut other_filter = false;
        if let Ok(mut stream) = peer.listen(filter.clone()).await {
            if std::mem::take(&mut missed) {
                // Something may have changed while nobody listened.
                changes.all(&filter);
            }
            loop {
                tokio::select! {
                    announced = stream.next() => match announced {
                        Ok(Some(announced)) => {
                            pause = STREAM_PAUSES.0;
                            changes.announced(announced);
                        }
                        Ok(None) | Err(_) => break,
                    },
                    more = watched.changed() => {
                        let _ = stream.cancel().await;
                        if more.is_err() {
                            return;
                        }
                        other_filter = true;
                        break;
                    }
                }
            }
        }
        if peer.is_transport_closed() {
            return;
        }
        if !other_filter {
            missed = true;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(STREAM_PAUSES.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_one_event_and_a_flood_names_no_more_than_its_share() {
        let (events, mut received) = broadcast::channel(256);
        let changes = Arc::new(Changes::new("s".into(), events));
        for _ in 0..5 {
            changes.prompts();
            changes.resource("a".to_owned());
        }
        assert!(received.try_recv().is_err(), "not at once");
        tokio::time::sleep(SETTLE * 2).await;
        assert!(matches!(received.try_recv().unwrap(), Event::PromptsChanged(server) if server.as_str() == "s"));
        assert!(matches!(received.try_recv().unwrap(), Event::ResourceChanged { uri: Some(uri), .. } if uri == "a"));
        assert!(received.try_recv().is_err());
        for number in 0..10_000 {
            changes.resource(number.to_string());
        }
        tokio::time::sleep(SETTLE * 2).await;
        let mut count = 0;
        while received.try_recv().is_ok() {
            count += 1;
        }
        assert_eq!(count, NAMED + 1);
    }

    #[test]
    fn a_resource_is_watched_once_and_not_for_ever() {
        let changes = Changes::new("s".into(), broadcast::channel(1).0);
        assert!(changes.watch("a") && !changes.watch("a"));
        for number in 0..WATCHED {
            assert!(changes.watch(&number.to_string()));
        }
        assert_eq!(changes.watched.borrow().len(), WATCHED);
        assert!(changes.watch("a"), "it was forgotten");
    }
}
