//! The actor of one server: the only place that starts, restarts and stops it.

use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::super::State;
use super::call::Link;
use super::list::{Listing, list};
use super::negotiate::{Failure, Kind, Live, connect};
use super::{Shared, Snapshot};

/// Pause before the first new attempt; doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// Longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Failures in a row after which somebody has to act.
const MOST_FAILURES: u32 = 5;
/// A connection that held so long ends a row of failures.
const STABLE: Duration = Duration::from_secs(30);
/// How often a start is looked at for signs of life.
const TICK: Duration = Duration::from_millis(200);
/// Silence after which a start is given up, where the configuration says nothing: package runners download first.
const START_SILENCE: Duration = Duration::from_secs(60);
/// A start that shows signs of life may take so many times its limit.
const START_LIMITS: u32 = 5;
/// Servers announce changes in bursts; the list is fetched once, so long after the first word.
const SETTLE: Duration = Duration::from_millis(200);
/// How long a killed start may take to vanish.
const KILLED: Duration = Duration::from_secs(1);
/// How long a lost server's remains may take to end.
const REMAINS: Duration = Duration::from_millis(200);

/// What the actor is asked to do.
#[derive(Debug)]
pub(super) enum Command {
    /// Run; nothing new when it runs already.
    Start,
    /// Stop within the budget.
    Stop { budget: Duration, done: oneshot::Sender<()> },
    /// The configuration changed: stop, and run again where wanted.
    Configure { start: bool },
    /// A call found this connection dead.
    Lost { link: Arc<Link>, reason: String },
}

/// What ended a run.
enum End {
    Stopped,
    Again,
    Failed(Failure),
}

pub(super) struct Actor {
    pub(super) shared: Arc<Shared>,
    pub(super) commands: mpsc::UnboundedReceiver<Command>,
}

impl Actor {
    /// Runs until every handle is gone.
    pub(super) async fn run(mut self) {
        while let Some(command) = self.commands.recv().await {
            match command {
                Command::Start | Command::Configure { start: true } => self.keep_running().await,
                Command::Stop { done, .. } => {
                    self.shared.stopped();
                    let _ = done.send(());
                }
                Command::Configure { start: false } => self.shared.stopped(),
                Command::Lost { .. } => {}
            }
        }
    }

    /// Connects, and again after every loss, until it is stopped or has failed too often.
    async fn keep_running(&mut self) {
        let mut failures = 0;
        let mut worked = false;
        loop {
            if failures == 0 {
                self.shared.publish(|snapshot| snapshot.state = State::Starting { note: None });
            }
            let started = Instant::now();
            let end = match self.start().await {
                Ok(live) => {
                    worked = true;
                    self.serve(live).await
                }
                Err(end) => end,
            };
            let failure = match end {
                End::Stopped => return,
                End::Again => {
                    (failures, worked) = (0, false);
                    continue;
                }
                End::Failed(failure) => failure,
            };
            failures = if worked && started.elapsed() >= STABLE { 1 } else { failures + 1 };
            let hopeless = failure.kind == Kind::Setup || (failure.kind == Kind::Server && !worked) || failures >= MOST_FAILURES;
            if hopeless {
                self.shared.failed(&failure);
                return;
            }
            match self.pause(failures, &failure).await {
                Some(End::Stopped) => return,
                Some(_) => (failures, worked) = (0, false),
                None => {}
            }
        }
    }

    /// One start, within its limits, listening to commands meanwhile.
    async fn start(&mut self) -> Result<Live, End> {
        let shared = self.shared.clone();
        let command = {
            let mut starting = pin!(within_limits(&shared));
            loop {
                tokio::select! {
                    biased;
                    command = self.commands.recv() => match command {
                        Some(Command::Start | Command::Lost { .. }) => {}
                        other => break other,
                    },
                    live = &mut starting => return live.map_err(End::Failed),
                }
            }
            // Leaving here drops the start, which kills its process.
        };
        shared.killed().await;
        match command {
            Some(Command::Configure { start: true }) => return Err(End::Again),
            Some(Command::Stop { done, .. }) => {
                shared.stopped();
                let _ = done.send(());
            }
            _ => shared.stopped(),
        }
        Err(End::Stopped)
    }

    /// Looks after a connection until it ends.
    async fn serve(&mut self, live: Live) -> End {
        let shared = self.shared.clone();
        let mark = shared.tail.count();
        shared.connected(&live);
        let link = live.link.clone();
        let mut relisting = JoinSet::new();
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Start) => {}
                    Some(Command::Lost { link: lost, reason }) => {
                        if Arc::ptr_eq(&lost, &link) {
                            return End::Failed(shared.lose(live, &reason, mark).await);
                        }
                    }
                    Some(Command::Configure { start: true }) => {
                        shared.publish(|snapshot| snapshot.link = None);
                        live.close(Shared::STOP).await;
                        return End::Again;
                    }
                    Some(Command::Configure { start: false }) | None => {
                        live.close(Shared::STOP).await;
                        shared.stopped();
                        return End::Stopped;
                    }
                    Some(Command::Stop { budget, done }) => {
                        shared.publish(|snapshot| snapshot.link = None);
                        live.close(budget).await;
                        shared.stopped();
                        let _ = done.send(());
                        return End::Stopped;
                    }
                },
                () = live.gone() => return End::Failed(shared.lose(live, "it closed the connection", mark).await),
                () = link.tools_changed.notified(), if relisting.is_empty() => {
                    let _ = relisting.spawn(relist(link.clone()));
                }
                Some(listed) = relisting.join_next() => match listed {
                    Ok(Ok(listing)) => shared.listed(listing),
                    Ok(Err(reason)) => shared.tail.note(&format!("the tools changed, but could not be listed again: {reason}")),
                    Err(error) => tracing::warn!(%error, "listing tools broke off"),
                },
            }
        }
    }

    /// Waits before the next attempt; a click on start ends the wait.
    async fn pause(&mut self, failures: u32, failure: &Failure) -> Option<End> {
        let after = pause_after(failures, rand::random());
        let reason = failure.reason.clone();
        self.shared.publish(|snapshot| snapshot.state = State::Reconnecting { attempt: failures, after, reason });
        let until = tokio::time::Instant::now() + after;
        loop {
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Lost { .. }) => {}
                    Some(Command::Start) => return None,
                    Some(Command::Configure { start: true }) => return Some(End::Again),
                    Some(Command::Configure { start: false }) | None => {
                        self.shared.stopped();
                        return Some(End::Stopped);
                    }
                    Some(Command::Stop { done, .. }) => {
                        self.shared.stopped();
                        let _ = done.send(());
                        return Some(End::Stopped);
                    }
                },
                () = tokio::time::sleep_until(until) => return None,
            }
        }
    }
}

async fn relist(link: Arc<Link>) -> Result<Listing, String> {
    tokio::time::sleep(SETTLE).await;
    list(&link.server, &link.peer).await
}

/// `FIRST_PAUSE × 2^(failures - 1)`, at most `LONGEST_PAUSE`, times a random share between one half and one, so that
/// servers that went down together do not all come back at once. `jitter` is from 0 to 1.
fn pause_after(failures: u32, jitter: f64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1)));
    doubled.min(LONGEST_PAUSE).mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// Connects; gives up after the configured silence, counted from the last sign of life on stderr, or in the end.
async fn within_limits(shared: &Shared) -> Result<Live, Failure> {
    let silence = shared.entry().config.startup_timeout.map_or(START_SILENCE, Duration::from_secs);
    let (started, mark) = (Instant::now(), shared.tail.count());
    let (mut heard, mut count) = (started, mark);
    let mut connecting = pin!(connect(shared));
    loop {
        tokio::select! {
            live = &mut connecting => return live,
            () = tokio::time::sleep(TICK) => {}
        }
        if shared.tail.count() != count {
            (heard, count) = (Instant::now(), shared.tail.count());
            shared.note(shared.tail.since(mark, 1).pop());
        }
        if heard.elapsed() > silence || started.elapsed() > silence * START_LIMITS {
            let reason = format!("no answer within {silence:?}; a longer \"startupTimeout\" may help");
            return Err(Failure { reason: super::negotiate::with_lines(reason, None, &shared.tail, mark), exit: None, kind: Kind::Server });
        }
    }
}

impl Shared {
    /// The budget of a stop that nobody gave one.
    pub(super) const STOP: Duration = Duration::from_secs(2);

    /// Takes a lost connection away from the calls, and finds out why it was lost.
    async fn lose(&self, live: Live, what: &str, mark: u64) -> Failure {
        self.publish(|snapshot| (snapshot.link, snapshot.pid) = (None, None));
        let failure = live.explain(what, &self.tail, mark).await;
        live.close(REMAINS).await;
        failure
    }

    /// Waits until the process of a start that was dropped is gone.
    async fn killed(&self) {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut gone) = process {
            let _ = tokio::time::timeout(KILLED, gone.wait_for(|gone| *gone)).await;
        }
    }

    fn stopped(&self) {
        // Its tools are forgotten: they may be others after the next start.
        let state = self.entry().resting_state();
        self.publish(|snapshot| *snapshot = Snapshot { state, ..Snapshot::default() });
    }

    fn failed(&self, failure: &Failure) {
        let (reason, exit_code) = (failure.reason.clone(), failure.exit.and_then(|exit| exit.code));
        self.publish(|snapshot| *snapshot = Snapshot { state: State::Failed { reason, exit_code }, ..Snapshot::default() });
    }

    /// Shows the last sign of life of a first start; a reconnecting server stays reconnecting.
    fn note(&self, note: Option<String>) {
        self.publish(|snapshot| {
            if let State::Starting { note: shown } = &mut snapshot.state {
                *shown = note;
            }
        });
    }

    fn connected(&self, live: &Live) {
        for note in &live.tools.notes {
            self.tail.note(note);
        }
        self.publish(|snapshot| {
            *snapshot = Snapshot {
                state: State::Connected,
                tools: live.tools.tools.clone(),
                instructions: live.instructions.clone(),
                protocol: live.protocol.clone(),
                pid: live.process.as_ref().map(|process| process.pid),
                transport: live.transport.clone(),
                link: Some(live.link.clone()),
            };
        });
    }

    fn listed(&self, listing: Listing) {
        for note in &listing.notes {
            self.tail.note(note);
        }
        if self.snapshot().tools != listing.tools {
            self.publish(|snapshot| snapshot.tools = listing.tools);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_cap_and_never_fall_below_half() {
        let whole: Vec<u64> = (1..=8).map(|failures| pause_after(failures, 1.0).as_millis() as u64).collect();
        assert_eq!(whole, [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        assert_eq!(pause_after(1, 0.0), Duration::from_millis(500));
        assert_eq!(pause_after(u32::MAX, 0.5), Duration::from_millis(22_500));
    }
}
