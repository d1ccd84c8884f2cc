//! A server's process group: every signal goes to the whole of it.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::census;

/// The group that a server leads. Once it was seen empty it is never signalled again: its number may then belong to
/// somebody else.
#[derive(Debug)]
pub(super) struct Group {
    id: Pid,
    gone: AtomicBool,
}

impl Group {
    /// The group led by a child of ours. Groups 0 and 1 would be ourselves and everybody: they are refused.
    pub(super) fn led_by(pid: u32) -> Option<Self> {
        let id = i32::try_from(pid).ok().filter(|id| *id > 1)?;
        Some(Self { id: Pid::from_raw(id), gone: AtomicBool::new(false) })
    }

    /// Asks the group to end.
    pub(super) fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Ends the group.
    pub(super) fn kill(&self) {
        self.signal(Signal::SIGKILL);
    }

    fn signal(&self, signal: Signal) {
        if self.id.as_raw() <= 1 || self.gone.load(Ordering::Acquire) {
            return;
        }
        match killpg(self.id, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            // EPERM: a member changed its user; the others were signalled.
            Err(error) => tracing::warn!(group = self.id.as_raw(), %error, "signalling a server's processes"),
        }
    }

    /// Whether something of the group still runs. Zombies do not count: whoever adopted them has to collect them.
    pub(super) fn alive(&self) -> bool {
        if self.gone.load(Ordering::Acquire) {
            return false;
        }
        match killpg(self.id, None) {
            Err(Errno::ESRCH) => false,
            _ => running_member(self.id.as_raw()),
        }
    }

    /// Notes that the leader was collected and nothing is left.
    pub(super) fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }
}

fn running_member(group: i32) -> bool {
    let group = u32::try_from(group).unwrap_or(0);
    census::all().iter().any(|seen| seen.group == group && seen.running)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_that_are_not_a_childs_are_refused() {
        assert!(Group::led_by(0).is_none());
        assert!(Group::led_by(1).is_none());
        assert!(Group::led_by(u32::MAX).is_none());
        assert!(Group::led_by(2).is_some());
    }
}
