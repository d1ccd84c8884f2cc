//! A server's process: started with a small environment in its own group, watched, and ended with everything that it
//! started.

mod environment;
#[cfg(unix)]
mod group;
mod tail;

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::config::Transport;
#[cfg(unix)]
use group::Group;
pub(super) use tail::Tail;

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
    kill: CancellationToken,
    exit: watch::Receiver<Option<Exit>>,
    gone: watch::Receiver<bool>,
}

/// Starts the program; its stderr goes into `tail`. Needs a tokio runtime.
pub(super) fn spawn(transport: &Transport, tail: &Arc<Tail>) -> Result<(Process, ChildStdin, ChildStdout), String> {
    let Transport::Stdio { command, args, env, cwd } = transport else {
        return Err("an HTTP server has no process".to_owned());
    };
    if let Some(cwd) = cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return Err(format!("the folder \"cwd\" {} does not exist", cwd.display()));
    }
    let program = environment::find(command, env, cwd.as_deref())?;
    let mut started = Command::new(&program);
    let _ = started.args(args).env_clear().envs(environment::environment(env));
    let _ = started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(cwd) = cwd {
        let _ = started.current_dir(cwd);
    }
    let mut wrapped = CommandWrap::from(started);
    #[cfg(unix)]
    let _ = wrapped.wrap(process_wrap::tokio::ProcessGroup::leader());
    #[cfg(windows)]
    let _ = wrapped.wrap(process_wrap::tokio::JobObject);
    let mut child = wrapped.spawn().map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    let parts = (child.id(), child.stdin().take(), child.stdout().take(), child.stderr().take());
    let (Some(pid), Some(stdin), Some(stdout), Some(stderr)) = parts else {
        let _ = child.start_kill();
        return Err(format!("{} was started without its pipes", program.display()));
    };
    let tail = tail.clone();
    let reader = tokio::spawn(async move { tail.drain(stderr).await });
    Ok((watched(child, pid, reader)?, stdin, stdout))
}

fn watched(child: Box<dyn ChildWrapper>, pid: u32, reader: JoinHandle<()>) -> Result<Process, String> {
    let (exit_sender, exit) = watch::channel(None);
    let (gone_sender, gone) = watch::channel(false);
    let kill = CancellationToken::new();
    #[cfg(unix)]
    let group = Arc::new(Group::led_by(pid).ok_or_else(|| format!("process {pid} cannot lead a group"))?);
    let mut owned = Owned {
        child,
        ended: false,
        #[cfg(unix)]
        group: group.clone(),
    };
    let killed = kill.clone();
    let _watcher = tokio::spawn(async move {
        owned.wait(&killed, &exit_sender).await;
        owned.sweep().await;
        // With every writer gone the reader is at the end of the pipe; what was written last is then in the tail.
        let _ = tokio::time::timeout(AFTER_LEADER, reader).await;
        let _ = gone_sender.send(true);
    });
    Ok(Process {
        pid,
        #[cfg(unix)]
        group,
        kill,
        exit,
        gone,
    })
}

/// The child in the hands of its watcher; when the runtime ends first, everything is killed.
struct Owned {
    child: Box<dyn ChildWrapper>,
    ended: bool,
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
        self.ended = true;
        let ended = status.map_or(Exit { code: None, signal: None }, |status| Exit {
            code: status.code(),
            #[cfg(unix)]
            signal: std::os::unix::process::ExitStatusExt::signal(&status),
            #[cfg(not(unix))]
            signal: None,
        });
        let _ = exit.send(Some(ended));
    }

    /// Ends what the leader left behind.
    #[cfg(unix)]
    async fn sweep(&mut self) {
        if self.group.alive() {
            self.group.terminate();
            if !until(AFTER_LEADER, || !self.group.alive()).await {
                self.group.kill();
                if !until(AFTER_KILL, || !self.group.alive()).await {
                    tracing::warn!("a killed server process is still there");
                }
            }
        }
        self.group.mark_gone();
    }

    #[cfg(not(unix))]
    async fn sweep(&mut self) {
        // The job object ends its members with it.
        let _ = self.child.start_kill();
        tokio::task::yield_now().await;
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        #[cfg(unix)]
        self.group.kill();
        #[cfg(not(unix))]
        if !self.ended {
            let _ = self.child.start_kill();
        }
    }
}

impl Process {
    /// How the process ended, when it has.
    pub(super) fn exit(&self) -> watch::Receiver<Option<Exit>> {
        self.exit.clone()
    }

    /// Tells when the process and its whole group are gone.
    pub(super) fn gone(&self) -> watch::Receiver<bool> {
        self.gone.clone()
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
