//! The calls that run on a server: who sees them, who stops them, and whose call a server's question belongs to.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, SystemTime};

use rmcp::model::RequestId;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::super::RunningCall;
use super::Shared;
use crate::tool::{CallId, Progress};

/// How often a server's view is published at most because of what its calls do.
const PACE: Duration = Duration::from_millis(250);
/// Requests of one call that are remembered: a task is asked about while its result is waited for.
const REQUESTS: usize = 4;

/// All calls of one server.
#[derive(Debug, Default)]
pub(super) struct Running {
    calls: Mutex<Calls>,
    /// Tells that something changed that a screen shows; whoever waits decides how often to look.
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// The tool and its call. None for what is no tool call, such as reading a resource: it may be asked about, but is not
    /// shown.
    call: Option<(String, CallId)>,
    since: SystemTime,
    progress: Option<Progress>,
    /// The requests that it waits for, or waited for lately.
    requests: VecDeque<RequestId>,
    cancel: CancellationToken,
    ended: CancellationToken,
    asking: Arc<watch::Sender<usize>>,
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a call; it stays until the ticket is dropped. `cancel` is what [`Running::cancel`] fires.
    pub(super) fn enter(self: &Arc<Self>, call: Option<(&str, &CallId)>, cancel: CancellationToken) -> Ticket {
        let (asking, paused) = watch::channel(0);
        let ended = CancellationToken::new();
        let entry = Entry {
            call: call.map(|(tool, id)| (tool.to_owned(), id.clone())),
            since: SystemTime::now(),
            progress: None,
            requests: VecDeque::new(),
            cancel,
            ended: ended.clone(),
            asking: Arc::new(asking),
        };
        let id = {
            let mut calls = self.lock();
            calls.last += 1;
            let id = calls.last;
            let _ = calls.entries.insert(id, entry);
            id
        };
        self.changed.notify_one();
        Ticket { running: self.clone(), id, ended, paused }
    }

    /// The tool calls, the oldest first.
    pub(super) fn shown(&self) -> Vec<RunningCall> {
        let calls = self.lock();
        let shown = calls.entries.iter().filter_map(|(id, entry)| {
            let (tool, call) = entry.call.clone()?;
            Some(RunningCall { id: *id, call, tool, since: entry.since, progress: entry.progress.clone() })
        });
        shown.collect()
    }

    /// Stops a call; whether it still ran.
    pub(super) fn cancel(&self, id: u64) -> bool {
        let found = self.lock().entries.get(&id).filter(|entry| entry.call.is_some()).map(|entry| entry.cancel.clone());
        found.inspect(CancellationToken::cancel).is_some()
    }

    /// Whose call it is in which the server asks something: that of the request it came with, where the transport tells,
    /// else the only one that runs. Until the answer is there, the clocks of the calls in question stand still.
    pub(super) fn asks(&self, request: Option<&RequestId>) -> Asking {
        let calls = self.lock();
        let named = calls.entries.values().find(|entry| request.is_some_and(|request| entry.requests.contains(request)));
        let only = if calls.entries.len() == 1 { calls.entries.values().next() } else { None };
        match named.or(only) {
            Some(entry) => {
                Asking::new(entry.call.as_ref().map(|(tool, _)| tool.clone()), Some(entry.ended.clone()), vec![entry.asking.clone()])
            }
            None => Asking::new(None, None, calls.entries.values().map(|entry| entry.asking.clone()).collect()),
        }
    }
}

/// A call that runs.
#[derive(Debug)]
pub(super) struct Ticket {
    running: Arc<Running>,
    id: u64,
    ended: CancellationToken,
    /// How many questions of this call wait for the person.
    pub(super) paused: watch::Receiver<usize>,
}

impl Ticket {
    /// Names the request that the call waits for now.
    pub(super) fn waits_for(&self, request: &RequestId) {
        if let Some(entry) = self.running.lock().entries.get_mut(&self.id) {
            entry.requests.truncate(REQUESTS - 1);
            entry.requests.push_front(request.clone());
        }
    }

    pub(super) fn progress(&self, progress: &Progress) {
        if let Some(entry) = self.running.lock().entries.get_mut(&self.id) {
            entry.progress = Some(progress.clone());
        }
        self.running.changed.notify_one();
    }

    /// A question in this very call.
    pub(super) fn asks(&self) -> Asking {
        let calls = self.running.lock();
        let entry = calls.entries.get(&self.id);
        Asking::new(
            entry.and_then(|entry| entry.call.as_ref().map(|(tool, _)| tool.clone())),
            Some(self.ended.clone()),
            entry.map(|entry| entry.asking.clone()).into_iter().collect(),
        )
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.ended.cancel();
        let _ = self.running.lock().entries.remove(&self.id);
        self.running.changed.notify_one();
    }
}

/// A server's question, and whose call it holds up.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) tool: Option<String>,
    /// Fires when the call ends, where it is known.
    pub(super) ended: Option<CancellationToken>,
    pausing: Vec<Arc<watch::Sender<usize>>>,
}

impl Asking {
    fn new(tool: Option<String>, ended: Option<CancellationToken>, pausing: Vec<Arc<watch::Sender<usize>>>) -> Self {
        for call in &pausing {
            call.send_modify(|questions| *questions += 1);
        }
        Self { tool, ended, pausing }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        for call in &self.pausing {
            call.send_modify(|questions| *questions -= 1);
        }
    }
}

/// Publishes the view when calls come, go on or end: calls may be short and progress may be a flood.
pub(super) async fn pace(running: Arc<Running>, shared: Weak<Shared>, gone: CancellationToken) {
    loop {
        tokio::select! {
            () = running.changed.notified() => {}
            () = gone.cancelled() => return,
        }
        tokio::time::sleep(PACE).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.publish(|_| {});
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_shown_while_they_run_and_can_be_stopped() {
        let running = Arc::new(Running::default());
        let cancel = CancellationToken::new();
        let first = running.enter(Some(("dig", &CallId::fresh())), cancel.clone());
        let hidden = running.enter(None, CancellationToken::new());
        first.progress(&Progress { done: 1.0, total: Some(2.0), message: None });
        let shown = running.shown();
        assert_eq!(shown.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), ["dig"]);
        assert_eq!(shown[0].progress.as_ref().map(|progress| progress.done), Some(1.0));
        assert!(running.cancel(shown[0].id) && cancel.is_cancelled());
        assert!(!running.cancel(shown[0].id + 1), "reading is not stopped from the list of calls");
        let id = shown[0].id;
        drop((first, hidden));
        assert!(running.shown().is_empty() && !running.cancel(id));
    }

    #[test]
    fn a_question_belongs_to_the_call_of_its_request_or_to_the_only_one() {
        let running = Arc::new(Running::default());
        let one = running.enter(Some(("one", &CallId::fresh())), CancellationToken::new());
        let asking = running.asks(None);
        assert_eq!((asking.tool.as_deref(), *one.paused.borrow()), (Some("one"), 1));
        drop(asking);
        assert_eq!(*one.paused.borrow(), 0);

        let two = running.enter(Some(("two", &CallId::fresh())), CancellationToken::new());
        two.waits_for(&RequestId::Number(9));
        let named = running.asks(Some(&RequestId::Number(9)));
        assert_eq!((named.tool.as_deref(), *one.paused.borrow(), *two.paused.borrow()), (Some("two"), 0, 1));
        let unknown = running.asks(None);
        assert_eq!((unknown.tool.as_deref(), *one.paused.borrow(), *two.paused.borrow()), (None, 1, 2), "both may be held up");
        let ended = named.ended.clone().unwrap();
        drop(two);
        assert!(ended.is_cancelled() && unknown.ended.is_none());
    }
}
