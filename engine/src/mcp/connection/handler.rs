//! What a server may say by itself: progress of a call, and that its tools changed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rmcp::model::{ClientCapabilities, ClientConfig, Implementation, ProgressNotificationParam, ProgressToken, ProtocolVersion};
use rmcp::service::NotificationContext;
use rmcp::{ClientHandler, RoleClient};
use tokio::sync::{Notify, mpsc};

/// Notifications kept for a call that has not asked for them yet: one can overtake the return of `send`.
const EARLY: usize = 32;

/// Our side of a connection. It declares no capability: nothing here could answer sampling, roots or elicitation,
/// and servers offer more tools to a client that claims it can.
#[derive(Clone, Debug)]
pub(super) struct Handler {
    pub(super) progress: Arc<Progress>,
    pub(super) tools_changed: Arc<Notify>,
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let this = Implementation::new("handrail", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), this).with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn on_progress(&self, progress: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        self.progress.deliver(progress);
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }
}

/// Brings progress notifications to their calls by token.
#[derive(Debug, Default)]
pub(super) struct Progress {
    routes: Mutex<Routes>,
}

#[derive(Debug, Default)]
struct Routes {
    calls: HashMap<ProgressToken, mpsc::UnboundedSender<ProgressNotificationParam>>,
    early: Vec<ProgressNotificationParam>,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Routes> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn deliver(&self, progress: ProgressNotificationParam) {
        let mut routes = self.lock();
        match routes.calls.get(&progress.progress_token) {
            // A call that just ended no longer listens.
            Some(call) => drop(call.send(progress)),
            None => {
                if routes.early.len() == EARLY {
                    let _ = routes.early.remove(0);
                }
                routes.early.push(progress);
            }
        }
    }

    /// Begins to route a call's notifications, until the route is dropped.
    pub(super) fn follow(self: &Arc<Self>, token: ProgressToken) -> Route {
        let (sender, notifications) = mpsc::unbounded_channel();
        let mut routes = self.lock();
        let early = std::mem::take(&mut routes.early);
        let (ours, others): (Vec<_>, Vec<_>) = early.into_iter().partition(|progress| progress.progress_token == token);
        routes.early = others;
        for progress in ours {
            let _ = sender.send(progress);
        }
        let _ = routes.calls.insert(token.clone(), sender);
        Route { progress: self.clone(), token, notifications }
    }
}

/// One call's notifications.
#[derive(Debug)]
pub(super) struct Route {
    progress: Arc<Progress>,
    token: ProgressToken,
    pub(super) notifications: mpsc::UnboundedReceiver<ProgressNotificationParam>,
}

impl Drop for Route {
    fn drop(&mut self) {
        let _ = self.progress.lock().calls.remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::NumberOrString;

    use super::*;

    fn step(token: i64, done: f64) -> ProgressNotificationParam {
        ProgressNotificationParam::new(ProgressToken(NumberOrString::Number(token)), done)
    }

    #[test]
    fn progress_reaches_its_call_even_when_it_is_early() {
        let progress = Arc::new(Progress::default());
        progress.deliver(step(7, 1.0));
        progress.deliver(step(8, 5.0));
        let mut route = progress.follow(ProgressToken(NumberOrString::Number(7)));
        progress.deliver(step(7, 2.0));
        assert_eq!(route.notifications.try_recv().unwrap().progress, 1.0);
        assert_eq!(route.notifications.try_recv().unwrap().progress, 2.0);
        assert!(route.notifications.try_recv().is_err());
        drop(route);
        assert!(progress.lock().calls.is_empty());
        for number in 0..100 {
            progress.deliver(step(9, f64::from(number)));
        }
        assert_eq!(progress.lock().early.len(), EARLY);
    }
}
