//! Ending processes that are in no group of ours any more, one by one and only after a look at who they are.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::census::{self, Seen};

/// How often the ending processes are looked at.
const POLL: Duration = Duration::from_millis(10);
/// How long killed processes may take to vanish.
const AFTER_KILL: Duration = Duration::from_millis(500);

/// Ends everything that `find` finds, again and again, since a process may have started another one meanwhile: asks
/// first, and after `grace` uses force. Blocks. Returns what is left in the end.
pub(super) fn end(find: impl Fn() -> Vec<Seen>, grace: Duration) -> Vec<Seen> {
    let begun = Instant::now();
    let mut asked = HashSet::new();
    loop {
        let found = find();
        if found.is_empty() || begun.elapsed() > grace + AFTER_KILL {
            return found;
        }
        let by_force = begun.elapsed() >= grace;
        for seen in &found {
            if by_force || asked.insert(seen.pid) {
                signal(seen, by_force);
            }
        }
        std::thread::sleep(POLL);
    }
}

/// Signals one process if it is still the one that was seen.
#[cfg(unix)]
fn signal(seen: &Seen, by_force: bool) {
    use nix::errno::Errno;
    use nix::sys::signal::{Signal, kill};

    let Some(pid) = i32::try_from(seen.pid).ok().filter(|pid| *pid > 1) else {
        return;
    };
    if !census::runs(seen) {
        return;
    }
    match kill(nix::unistd::Pid::from_raw(pid), if by_force { Signal::SIGKILL } else { Signal::SIGTERM }) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => tracing::warn!(pid, %error, "ending what a server left behind"),
    }
}

#[cfg(not(unix))]
fn signal(seen: &Seen, by_force: bool) {
    // There is no polite way from outside; the job object has ended what was in it.
    if by_force && census::runs(seen) {
        let id = sysinfo::Pid::from_u32(seen.pid);
        let mut system = sysinfo::System::new();
        let _ = system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[id]), true);
        let _ = system.process(id).map(sysinfo::Process::kill);
    }
}
