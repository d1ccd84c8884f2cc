//! A server's process: started with a small environment in its own group, watched, and ended with everything that it
//! started.

mod census;
mod ending;
mod environment;
#[cfg(unix)]
mod group;
mod instance;
mod level;
mod log_file;
mod login;
mod port;
mod reap;
mod runner;
mod search;
mod tail;

use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::config::Transport;
use census::Seen;
#[cfg(unix)]
use group::Group;
pub(super) use instance::Instance;
use instance::Start;
use search::Places;
pub(super) use tail::{Line, Tail};

/// How often a stopping process is looked at.
const POLL: Duration = Duration::from_millis(10);
/// How long the members of a group may take to end after its leader did, before they are killed.
const AFTER_LEADER: Duration = Duration::from_millis(300);
/// How long a killed process may take to vanish; the kernel needs no more unless it hangs in a device.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit {
    /// Its exit code, where it ended by itself.
    pub(super) code: Option<i32>,
    /// The signal that ended it.
    pub(super) signal: Option<i32>,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "exit code {code}"),
            (None, Some(signal)) => write!(f, "killed by signal {signal}"),
            (None, None) => f.write_str("unknown exit code"),
        }
    }
}

/// A running server process. Dropping it kills its whole group.
#[derive(Debug)]
pub(super) struct Process {
    /// The process id; also the group's.
    pub(super) pid: u32,
    #[cfg(unix)]
    group: Arc<Group>,
    kin: Arc<Kin>,
    kill: CancellationToken,
    exit: watch::Receiver<Option<Exit>>,
    gone: watch::Receiver<bool>,
}

/// What a server started outside of its group, as seen before it was stopped: a process may take the marker out of its
/// environment.
#[derive(Debug, Default)]
struct Kin(Mutex<Vec<Seen>>);

impl Kin {
    fn look(&self, pid: u32) {
        let outside = census::descendants(pid).into_iter().filter(|seen| seen.group != pid);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(outside);
    }

    /// Ends them and everything that carries the marker. Blocks. Returns what is left.
    fn end(&self, start: &Start, grace: Duration) -> Vec<Seen> {
        let kin = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let find = || {
            let mut found = census::marked(|marker| marker == start.marker);
            found.extend(
                kin.iter()
                    .filter(|seen| census::runs(seen) && !found.iter().any(|other| other.pid == seen.pid))
                    .copied()
                    .collect::<Vec<_>>(),
            );
            found
        };
        ending::end(find, grace)
    }
}

/// What is started, and by whom.
#[derive(Clone, Debug)]
pub(super) struct Launch {
    /// The server's id.
    pub(super) server: String,
    /// The port that it declares.
    pub(super) port: Option<u16>,
    /// Whether the command is taken as it stands: no other package runner in its place.
    pub(super) as_configured: bool,
    /// Where its stderr goes.
    pub(super) tail: Arc<Tail>,
    /// Where its processes are written down.
    pub(super) instance: Arc<Instance>,
}

/// A process that was started, with its pipes.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) process: Process,
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    /// Whether another package runner was started in place of the configured one.
    pub(super) replaced: bool,
}

/// Why nothing was started.
#[derive(Debug)]
pub(super) struct NotStarted {
    pub(super) reason: String,
    /// Whether it was another package runner that could not be started in place of the configured one.
    pub(super) replaced: bool,
}

impl From<String> for NotStarted {
    fn from(reason: String) -> Self {
        Self { reason, replaced: false }
    }
}

/// Tells when a start is over and its processes are gone, from before there are any.
pub(super) type Gone = watch::Receiver<bool>;

/// Starts the program; its stderr goes into the tail. `announce` is given what tells that nothing of it is left. When
/// this future is dropped, nothing is started any more, and what was started is killed. Needs a tokio runtime.
pub(super) async fn launch(launch: Launch, transport: &Transport, announce: impl FnOnce(Gone)) -> Result<Started, NotStarted> {
    let (gone, announced) = watch::channel(false);
    announce(announced);
    launch.instance.reaped().await;
    let login = login::search_path().await;
    let (transport, dropped) = (transport.clone(), Dropped::default());
    let abandoned = dropped.0.clone();
    // Searching folders and ports, writing the record and starting a program all block.
    let starting = tokio::task::spawn_blocking(move || {
        let spec = Spec::new(&launch, &transport, login.as_deref())?;
        if let Some(port) = launch.port {
            port::free(port, &launch.server, &launch.instance)?;
        }
        if abandoned.load(Ordering::Acquire) {
            return Err("it is not wanted any more".to_owned().into());
        }
        spawn(spec, &launch, gone)
    });
    let started = starting.await.map_err(|error| format!("starting it broke off: {error}"))?;
    drop(dropped);
    started
}

/// Where a program is that a server would be started with, or where it was looked for.
pub(super) async fn locate(command: &str) -> Result<std::path::PathBuf, String> {
    let login = login::search_path().await;
    let command = command.to_owned();
    let looking = tokio::task::spawn_blocking(move || {
        let places = Places::new(&std::collections::BTreeMap::new(), None, login.as_deref());
        runner::program(&command, &[], &places, false).map(|program| program.path)
    });
    looking.await.map_err(|error| format!("looking for it broke off: {error}"))?
}

/// Says so when it is dropped.
#[derive(Default)]
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A program that was found, with everything that it gets but its marker.
struct Spec<'a> {
    program: runner::Program,
    places: Places,
    env: &'a std::collections::BTreeMap<String, String>,
    cwd: Option<&'a std::path::Path>,
}

impl<'a> Spec<'a> {
    fn new(launch: &Launch, transport: &'a Transport, login: Option<&std::ffi::OsStr>) -> Result<Self, String> {
        let Transport::Stdio { command, args, env, cwd } = transport else {
            return Err("an HTTP server has no process".to_owned());
        };
        if let Some(cwd) = cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            return Err(format!("the folder \"cwd\" {} does not exist", cwd.display()));
        }
        let places = Places::new(env, cwd.as_deref(), login);
        let program = runner::program(command, args, &places, launch.as_configured)?;
        Ok(Self { program, places, env, cwd: cwd.as_deref() })
    }
}

fn spawn(spec: Spec<'_>, launch: &Launch, gone: watch::Sender<bool>) -> Result<Started, NotStarted> {
    let Spec { program, places, env, cwd } = spec;
    let mark = launch.instance.begin();
    let mut started = Command::new(&program.path);
    let _ = started.args(&program.args).env_clear().envs(environment::environment(env, &places.path, &mark.marker));
    let _ = started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = cwd {
        let _ = started.current_dir(cwd);
    }
    let child = wrapped(started).spawn();
    let mut child = child.map_err(|error| NotStarted {
        reason: format!("{} cannot be started: {error}", program.path.display()),
        replaced: program.instead_of.is_some(),
    })?;
    if let Some(pid) = child.id() {
        launch.instance.enroll(&mark, &launch.server, pid, launch.port);
    }
    let parts = (child.id(), child.stdin().take(), child.stdout().take(), child.stderr().take());
    let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) = parts else {
        let _ = child.start_kill();
        return Err(format!("{} was started without its pipes", program.path.display()).into());
    };
    if let Some(configured) = program.instead_of {
        launch.tail.note(&format!("started by {} in place of {configured}", program.path.display()));
    }
    let tail = launch.tail.clone();
    let reader = tokio::spawn(async move { tail.drain(stderr).await });
    let process = watched(child, pid, reader, gone, (launch.instance.clone(), mark))?;
    Ok(Started { process, stdin, stdout, replaced: program.instead_of.is_some() })
}

#[cfg(unix)]
fn wrapped(command: Command) -> CommandWrap {
    let mut wrapped = CommandWrap::from(command);
    let _ = wrapped.wrap(process_wrap::tokio::ProcessGroup::leader());
    wrapped
}

/// In a job that ends with its last handle, so with us however we end, and without a console window.
#[cfg(windows)]
fn wrapped(command: Command) -> CommandWrap {
    let mut wrapped = CommandWrap::from(command);
    let _ = wrapped.wrap(process_wrap::tokio::KillOnDrop).wrap(process_wrap::tokio::JobObject).wrap(NoWindow);
    wrapped
}

#[cfg(windows)]
#[derive(Debug)]
struct NoWindow;

#[cfg(windows)]
impl process_wrap::tokio::CommandWrapper for NoWindow {
    fn pre_spawn(&mut self, command: &mut Command, _core: &CommandWrap) -> std::io::Result<()> {
        const CREATE_SUSPENDED: u32 = 0x4;
        const CREATE_NO_WINDOW: u32 = 0x0800_0000;
        // The job object's own flag once more: flags replace each other.
        let _ = command.creation_flags(CREATE_SUSPENDED | CREATE_NO_WINDOW);
        Ok(())
    }
}

fn watched(
    child: Box<dyn ChildWrapper>,
    pid: u32,
    reader: JoinHandle<()>,
    gone_sender: watch::Sender<bool>,
    mark: (Arc<Instance>, Start),
) -> Result<Process, String> {
    let (exit_sender, exit) = watch::channel(None);
    let gone = gone_sender.subscribe();
    let kill = CancellationToken::new();
    #[cfg(unix)]
    let group = Arc::new(Group::led_by(pid).ok_or_else(|| format!("process {pid} cannot lead a group"))?);
    let kin = Arc::new(Kin::default());
    let mut owned = Owned {
        child,
        swept: false,
        mark,
        kin: kin.clone(),
        #[cfg(unix)]
        group: group.clone(),
    };
    let killed = kill.clone();
    let _watcher = tokio::spawn(async move {
        owned.wait(&killed, &exit_sender).await;
        owned.sweep(&killed).await;
        // With every writer gone the reader is at the end of the pipe; what was written last is then in the tail.
        let _ = tokio::time::timeout(AFTER_LEADER, reader).await;
        let _ = gone_sender.send(true);
    });
    Ok(Process {
        pid,
        #[cfg(unix)]
        group,
        kin,
        kill,
        exit,
        gone,
    })
}

/// The child in the hands of its watcher; when the runtime ends first, everything is killed.
struct Owned {
    child: Box<dyn ChildWrapper>,
    swept: bool,
    /// Where it is written down.
    mark: (Arc<Instance>, Start),
    kin: Arc<Kin>,
    #[cfg(unix)]
    group: Arc<Group>,
}

impl Owned {
    async fn wait(&mut self, kill: &CancellationToken, exit: &watch::Sender<Option<Exit>>) {
        let status = {
            let waited = self.child.wait();
            tokio::pin!(waited);
            tokio::select! {
                status = &mut waited => Some(status),
                () = kill.cancelled() => None,
            }
        };
        let status = match status {
            Some(status) => status,
            None => {
                let _ = self.child.start_kill();
                self.child.wait().await
            }
        };
        let ended = status.map_or(Exit { code: None, signal: None }, |status| Exit {
            code: status.code(),
            #[cfg(unix)]
            signal: std::os::unix::process::ExitStatusExt::signal(&status),
            #[cfg(not(unix))]
            signal: None,
        });
        let _ = exit.send(Some(ended));
    }

    /// Ends what the leader left behind: the rest of its group, and what left the group but carries its marker.
    async fn sweep(&mut self, kill: &CancellationToken) {
        #[cfg(unix)]
        self.sweep_group(kill).await;
        // The job object ends its members with it.
        #[cfg(not(unix))]
        let _ = self.child.start_kill();
        let ((instance, start), kin) = (self.mark.clone(), self.kin.clone());
        let grace = if kill.is_cancelled() { Duration::ZERO } else { AFTER_LEADER };
        let swept = tokio::task::spawn_blocking(move || {
            let left = kin.end(&start, grace);
            if left.is_empty() {
                instance.forget(&start);
            } else {
                tracing::warn!(?left, "processes of a server could not be ended");
            }
        });
        if swept.await.is_ok() {
            self.swept = true;
        }
    }

    #[cfg(unix)]
    async fn sweep_group(&self, kill: &CancellationToken) {
        if self.group.alive() {
            self.group.terminate();
            let waiting = until(AFTER_LEADER, || !self.group.alive());
            let ended = tokio::select! {
                ended = waiting => ended,
                () = kill.cancelled() => false,
            };
            if !ended {
                self.group.kill();
                if !until(AFTER_KILL, || !self.group.alive()).await {
                    tracing::warn!("a killed server process is still there");
                }
            }
        }
        self.group.mark_gone();
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        if self.swept {
            return;
        }
        #[cfg(unix)]
        self.group.kill();
        #[cfg(not(unix))]
        let _ = self.child.start_kill();
        let (instance, start) = &self.mark;
        if self.kin.end(start, Duration::ZERO).is_empty() {
            instance.forget(start);
        }
    }
}

impl Process {
    /// How the process ended, when it has.
    pub(super) fn exit(&self) -> watch::Receiver<Option<Exit>> {
        self.exit.clone()
    }

    /// Waits for the process to end, at most so long, and then for its last words.
    pub(super) async fn ended_within(&self, limit: Duration) -> Option<Exit> {
        let exit = ended_within(&self.exit, limit).await;
        if exit.is_some() {
            let _ = self.gone_within(AFTER_LEADER + AFTER_LEADER).await;
        }
        exit
    }

    /// Ends the process and its group. Its stdin must be closed already: that is the polite way to ask. After two
    /// fifths of the budget SIGTERM follows, after nine tenths SIGKILL. Returns whether nothing is left.
    pub(super) async fn stop(&self, budget: Duration) -> bool {
        let started = Instant::now();
        let left = |share: f64| budget.mul_f64(share).saturating_sub(started.elapsed());
        let (kin, pid) = (self.kin.clone(), self.pid);
        let _ = tokio::task::spawn_blocking(move || kin.look(pid)).await;
        if self.gone_within(left(0.4)).await {
            return true;
        }
        #[cfg(unix)]
        self.group.terminate();
        if self.gone_within(left(0.9)).await {
            return true;
        }
        self.kill();
        self.gone_within(AFTER_KILL + AFTER_LEADER).await
    }

    fn kill(&self) {
        #[cfg(unix)]
        self.group.kill();
        self.kill.cancel();
    }

    async fn gone_within(&self, limit: Duration) -> bool {
        let mut gone = self.gone.clone();
        matches!(tokio::time::timeout(limit, gone.wait_for(|gone| *gone)).await, Ok(Ok(_)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for an exit, at most so long.
pub(super) async fn ended_within(exit: &watch::Receiver<Option<Exit>>, limit: Duration) -> Option<Exit> {
    let mut exit = exit.clone();
    let found = tokio::time::timeout(limit, exit.wait_for(Option::is_some)).await;
    found.ok().and_then(Result::ok).and_then(|exit| *exit)
}

#[cfg(unix)]
async fn until(limit: Duration, done: impl Fn() -> bool) -> bool {
    let started = Instant::now();
    while !done() {
        if started.elapsed() >= limit {
            return false;
        }
        tokio::time::sleep(POLL).await;
    }
    true
}
