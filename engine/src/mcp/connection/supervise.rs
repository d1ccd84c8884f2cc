//! The actor of one server: the only place that starts, restarts and stops it.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::super::config::Settings;
use super::super::{Era, State};
use super::call::Link;
use super::list::{Listing, list};
use super::negotiate::{Failure, Kind, Live, connect};
use super::probe::{Found, Probe};
use super::{Shared, Snapshot};

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
    /// A call on this connection had no answer in time.
    Late { link: Arc<Link>, reason: String },
    /// A call on this connection was answered.
    Heard { link: Arc<Link> },
    /// A call on this connection was answered with a wish for a sign-in.
    SignIn { link: Arc<Link>, reason: String },
}

/// A command that ends what the actor does.
#[derive(Debug)]
enum Turn {
    /// Stop within the budget, and tell, where somebody waits.
    Stop { budget: Duration, done: Option<oneshot::Sender<()>> },
    /// Begin anew, with another configuration.
    Again,
}

impl Turn {
    fn of(command: Option<Command>) -> Result<Self, Command> {
        match command {
            None | Some(Command::Configure { start: false }) => Ok(Self::Stop { budget: Shared::STOP, done: None }),
            Some(Command::Stop { budget, done }) => Ok(Self::Stop { budget, done: Some(done) }),
            Some(Command::Configure { start: true }) => Ok(Self::Again),
            Some(other) => Err(other),
        }
    }
}

/// What ended a run.
enum End {
    Stopped,
    Again,
    /// How long the connection had held, where there was one.
    Failed(Failure, Option<Duration>),
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
                // A wish may be older than the one that took it back.
                Command::Start | Command::Configure { start: true } if self.shared.is_wanted() => self.keep_running().await,
                Command::Stop { done, .. } => {
                    self.shared.stopped();
                    let _ = done.send(());
                }
                Command::Start | Command::Configure { .. } => self.shared.stopped(),
                Command::Lost { .. } | Command::Late { .. } | Command::Heard { .. } | Command::SignIn { .. } => {}
            }
        }
    }

    /// Connects, and again after every loss, until it is stopped or has failed too often.
    async fn keep_running(&mut self) {
        let mut failures = 0;
        let mut worked = false;
        while self.shared.is_wanted() {
            if failures == 0 {
                self.shared.publish(|snapshot| snapshot.state = State::Starting { note: None });
            }
            let end = match self.start().await {
                Ok(live) => {
                    worked = true;
                    self.serve(live, failures + 1).await
                }
                Err(end) => end,
            };
            let (failure, held) = match end {
                End::Stopped => return,
                End::Again => {
                    (failures, worked) = (0, false);
                    continue;
                }
                End::Failed(failure, held) => (failure, held),
            };
            if failure.kind == Kind::SignIn {
                self.shared.needs_sign_in(failure.reason);
                return;
            }
            failures = if held.is_some_and(|held| held >= STABLE) { 1 } else { failures + 1 };
            let hopeless = failure.kind == Kind::Setup || (failure.kind == Kind::Server && !worked);
            if hopeless || failures >= MOST_FAILURES {
                self.shared.failed(failure, !hopeless);
                return;
            }
            match self.pause(failures, &failure).await {
                Some(Turn::Stop { done, .. }) => return self.shared.stopped_for(done),
                Some(Turn::Again) => (failures, worked) = (0, false),
                None => {}
            }
        }
        // Whoever took the wish away has a stop on its way.
        self.shared.stopped();
    }

    /// The next command that ends what goes on; the others are of no use now.
    async fn turn(&mut self) -> Turn {
        loop {
            if let Ok(turn) = Turn::of(self.commands.recv().await) {
                return turn;
            }
        }
    }

    /// One start, within its limits, listening to commands meanwhile.
    async fn start(&mut self) -> Result<Live, End> {
        let shared = self.shared.clone();
        let turn = tokio::select! {
            biased;
            turn = self.turn() => turn,
            live = within_limits(&shared) => return live.map_err(|failure| End::Failed(failure, None)),
            // Being here has dropped the start, which kills its process.
        };
        shared.killed().await;
        Err(match turn {
            Turn::Again => End::Again,
            Turn::Stop { done, .. } => {
                shared.stopped_for(done);
                End::Stopped
            }
        })
    }

    /// Looks after a connection until it ends.
    async fn serve(&mut self, live: Live, attempt: u32) -> End {
        let shared = self.shared.clone();
        let (mark, since) = (shared.tail.count(), Instant::now());
        shared.connected(&live);
        let link = live.link.clone();
        let mut probe = Probe::new(link.clone());
        let probed = live.era == Era::Legacy;
        let mut relisting = JoinSet::new();
        let lost = loop {
            tokio::select! {
                command = self.commands.recv() => match Turn::of(command) {
                    Ok(turn) => return shared.end(live, turn).await,
                    Err(Command::Lost { link: lost, reason }) if Arc::ptr_eq(&lost, &link) => break reason,
                    Err(Command::Late { link: late, reason }) if Arc::ptr_eq(&late, &link) => {
                        shared.slow(reason);
                        probe.hurry();
                    }
                    Err(Command::SignIn { link: asking, reason }) if Arc::ptr_eq(&asking, &link) => {
                        shared.needs_sign_in(reason.clone());
                        live.close(REMAINS).await;
                        return End::Failed(Failure { reason, exit: None, kind: Kind::SignIn }, Some(since.elapsed()));
                    }
                    Err(Command::Heard { link: heard }) if Arc::ptr_eq(&heard, &link) => shared.recovered(),
                    Err(_) => {}
                },
                () = live.gone() => break "it closed the connection".to_owned(),
                found = probe.found(), if probed => match found {
                    Found::Answer => shared.recovered(),
                    Found::Late(limit) => shared.slow(format!("it did not answer within {limit:?} whether it is there")),
                    Found::Error(reason) => break format!("asked whether it is there, it answered with an error: {reason}"),
                },
                () = link.tools_changed.notified(), if relisting.is_empty() => {
                    let _ = relisting.spawn(relist(link.clone()));
                }
                Some(listed) = relisting.join_next() => match listed {
                    Ok(Ok(listing)) => shared.listed(listing),
                    Ok(Err(reason)) => shared.tail.note(&format!("the tools changed, but could not be listed again: {reason}")),
                    Err(error) => tracing::warn!(%error, "listing tools broke off"),
                },
            }
        };
        let held = since.elapsed();
        let attempt = if held >= STABLE { 1 } else { attempt };
        // The state with the link: nobody is to see a server that is connected and has no connection.
        let reconnecting = State::Reconnecting { attempt, after: Duration::ZERO, reason: lost.clone() };
        shared.publish(|snapshot| (snapshot.state, snapshot.link, snapshot.pid) = (reconnecting, None, None));
        self.lose(live, &lost, mark, held).await
    }

    /// Finds out why a connection was lost, and ends what is left of it; a stop does not wait for that.
    async fn lose(&mut self, live: Live, what: &str, mark: u64, held: Duration) -> End {
        let shared = self.shared.clone();
        let failure = tokio::select! {
            biased;
            turn = self.turn() => return shared.end(live, turn).await,
            failure = live.explain(what, &shared.tail, mark) => failure,
        };
        live.close(REMAINS).await;
        End::Failed(failure, Some(held))
    }

    /// Waits before the next attempt; a click on start ends the wait.
    async fn pause(&mut self, failures: u32, failure: &Failure) -> Option<Turn> {
        let after = pause_after(&self.shared.settings(), failures, rand::random());
        let reason = failure.reason.clone();
        self.shared.publish(|snapshot| snapshot.state = State::Reconnecting { attempt: failures, after, reason });
        let until = tokio::time::Instant::now() + after;
        loop {
            tokio::select! {
                command = self.commands.recv() => match Turn::of(command) {
                    Ok(turn) => return Some(turn),
                    Err(Command::Start) => return None,
                    Err(_) => {}
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

/// `base × multiplier^(failures - 1)`, at most the longest pause, times a random share between one half and one, so that
/// servers that went down together do not all come back at once. `jitter` is from 0 to 1.
fn pause_after(settings: &Settings, failures: u32, jitter: f64) -> Duration {
    let exponent = i32::try_from(failures.saturating_sub(1)).unwrap_or(i32::MAX);
    let grown = settings.base_restart_delay.as_secs_f64() * settings.backoff_multiplier.max(1.0).powi(exponent);
    let longest = settings.max_restart_delay.max(settings.base_restart_delay);
    // What is no number or too large for a duration is beyond the longest pause as well.
    let whole = Duration::try_from_secs_f64(grown).map_or(longest, |grown| grown.min(longest));
    whole.mul_f64(0.5 + jitter.clamp(0.0, 1.0) / 2.0)
}

/// Connects; gives up after the configured silence, counted from the last sign of life on stderr, or in the end.
async fn within_limits(shared: &Shared) -> Result<Live, Failure> {
    let silence = shared.entry().config.startup_timeout.map_or(START_SILENCE, Duration::from_secs);
    let mut longest = silence * START_LIMITS;
    let (started, mark) = (Instant::now(), shared.tail.count());
    let (mut since, mut heard, mut count) = (started, shared.tail.heard(), mark);
    shared.longer.store(0, Ordering::Release);
    let mut connecting = pin!(connect(shared));
    loop {
        tokio::select! {
            live = &mut connecting => return live,
            () = tokio::time::sleep(TICK) => {}
        }
        let longer = shared.longer.swap(0, Ordering::AcqRel);
        if longer > 0 || shared.tail.heard() != heard {
            (since, heard) = (Instant::now(), shared.tail.heard());
            longest += silence * longer;
        }
        if shared.tail.count() != count {
            count = shared.tail.count();
            shared.note(shared.tail.since(mark, 1).pop().map(|line| line.text));
        }
        if since.elapsed() > silence || started.elapsed() > longest {
            let reason = format!("no answer within {silence:?}; a longer \"startupTimeout\" may help");
            return Err(Failure { reason: super::negotiate::with_lines(reason, None, &shared.tail, mark), exit: None, kind: Kind::Server });
        }
    }
}

impl Shared {
    /// The budget of a stop that nobody gave one.
    pub(super) const STOP: Duration = Duration::from_secs(2);

    /// Ends a connection because somebody said so.
    async fn end(&self, live: Live, turn: Turn) -> End {
        self.publish(|snapshot| snapshot.link = None);
        match turn {
            Turn::Again => {
                live.close(Self::STOP).await;
                End::Again
            }
            Turn::Stop { budget, done } => {
                live.close(budget).await;
                self.stopped_for(done);
                End::Stopped
            }
        }
    }

    fn stopped_for(&self, done: Option<oneshot::Sender<()>>) {
        self.stopped();
        if let Some(done) = done {
            let _ = done.send(());
        }
    }

    /// Waits until the process of a start that was dropped is gone.
    pub(super) async fn killed(&self) {
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

    /// Nothing more is tried. Where it was tried often enough, the last known tools stay on the screen.
    fn failed(&self, failure: Failure, tried: bool) {
        let exit_code = failure.exit.and_then(|exit| exit.code);
        self.publish(|snapshot| {
            let known = std::mem::take(snapshot);
            if tried {
                let reason = format!(
                    "it failed {MOST_FAILURES} times in a row and is not tried again until it is started by hand; the last time {}",
                    failure.reason
                );
                *snapshot = Snapshot { state: State::Failed { reason, exit_code }, link: None, pid: None, ..known };
            } else {
                snapshot.state = State::Failed { reason: failure.reason, exit_code };
            }
        });
    }

    /// Nothing more is tried until the person has signed in. The tools stay on the screen, but no model is shown them.
    fn needs_sign_in(&self, reason: String) {
        self.publish(|snapshot| (snapshot.state, snapshot.link, snapshot.pid) = (State::NeedsSignIn { reason }, None, None));
    }

    /// Usable, but late.
    fn slow(&self, reason: String) {
        let now = self.snapshot.borrow().state.clone();
        if now.is_usable() && now != (State::Slow { reason: reason.clone() }) {
            self.publish(|snapshot| snapshot.state = State::Slow { reason });
        }
    }

    /// It answered.
    fn recovered(&self) {
        if matches!(self.snapshot.borrow().state, State::Slow { .. }) {
            self.publish(|snapshot| snapshot.state = State::Connected);
        }
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
                notes: live.tools.notes.clone(),
                instructions: live.instructions.clone(),
                era: Some(live.era),
                offers: live.offers,
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
        let now = self.snapshot();
        if now.tools != listing.tools || now.notes != listing.notes {
            self.publish(|snapshot| (snapshot.tools, snapshot.notes) = (listing.tools, listing.notes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_cap_and_never_fall_below_half() {
        let usual = Settings::default();
        let whole: Vec<u64> = (1..=8).map(|failures| pause_after(&usual, failures, 1.0).as_millis() as u64).collect();
        assert_eq!(whole, [1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
        assert_eq!(pause_after(&usual, 1, 0.0), Duration::from_millis(500));
        assert_eq!(pause_after(&usual, u32::MAX, 0.5), Duration::from_millis(22_500));
        for odd in [f64::NAN, f64::INFINITY, -3.0, 0.0] {
            let odd = Settings { backoff_multiplier: odd, ..usual.clone() };
            let pause = pause_after(&odd, 7, 1.0);
            assert!(pause >= usual.base_restart_delay && pause <= usual.max_restart_delay, "{pause:?}");
        }
        let quick = Settings { base_restart_delay: Duration::from_millis(10), backoff_multiplier: 3.0, ..usual };
        assert_eq!(pause_after(&quick, 3, 1.0), Duration::from_millis(90));
    }
}
