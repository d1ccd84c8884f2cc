//! Who runs on this machine: what it takes to know a process again, and to find those that are ours.
//!
//! A process id alone names nobody: it is given out again. With the moment of the start it does. Every process that
//! we start carries [`MARKER`] in its environment, and so does everything that it starts in turn, also what left the
//! process group. On Linux any process of the same user shows its environment; on macOS those of the system's own
//! programs do not, and on Windows a job object does the work instead.

/// The variable that names the instance of Handrail and the start (`INSTANCE.NUMBER`) a process belongs to.
pub(super) const MARKER: &str = "HANDRAIL_INSTANCE";

/// One process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) pid: u32,
    pub(super) parent: u32,
    /// Its process group; its own id where there are none.
    pub(super) group: u32,
    /// When it was started, in the unit of the platform: clock ticks since the machine did, or seconds since 1970.
    pub(super) started: u64,
    /// Whether it still runs; a zombie only waits for being collected.
    pub(super) running: bool,
}

#[cfg(target_os = "linux")]
mod platform {
    use std::fs::File;
    use std::io::Read as _;

    use super::{MARKER, Seen};

    /// Longest environment that is read (fixed); the kernel allows more, programs hardly use a hundredth.
    const ENVIRONMENT: u64 = 1024 * 1024;

    pub(in super::super) fn look(pid: u32) -> Option<Seen> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = String::from_utf8_lossy(&stat);
        // Behind the name, which may hold anything, in brackets: state, parent, group, and as the 20th the start.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
        Some(Seen {
            pid,
            parent: number(1).and_then(|parent| u32::try_from(parent).ok()).unwrap_or(0),
            group: number(2).and_then(|group| u32::try_from(group).ok()).unwrap_or(0),
            started: number(19)?,
            running: !matches!(fields.first(), Some(&("Z" | "X"))),
        })
    }

    pub(in super::super) fn all() -> Vec<Seen> {
        let Ok(processes) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        processes.filter_map(|entry| look(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
    }

    pub(in super::super) fn marker(pid: u32) -> Option<String> {
        let mut environment = Vec::new();
        let _ = File::open(format!("/proc/{pid}/environ")).ok()?.take(ENVIRONMENT).read_to_end(&mut environment).ok()?;
        let found = environment.split(|byte| *byte == 0).find_map(|pair| pair.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"="));
        found.map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// Names the time since the machine was started; start times of another one mean nothing.
    pub(in super::super) fn boot() -> String {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System, UpdateKind};

    use super::{MARKER, Seen};

    fn of(pid: u32, process: &Process) -> Seen {
        #[cfg(unix)]
        let group = i32::try_from(pid).ok().and_then(|pid| nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid))).ok());
        #[cfg(unix)]
        let group = group.and_then(|group| u32::try_from(group.as_raw()).ok()).unwrap_or(pid);
        #[cfg(not(unix))]
        let group = pid;
        Seen {
            pid,
            parent: process.parent().map_or(0, Pid::as_u32),
            group,
            started: process.start_time(),
            running: !matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead),
        }
    }

    fn asked(which: ProcessesToUpdate<'_>, kind: ProcessRefreshKind) -> System {
        let mut system = System::new();
        let _ = system.refresh_processes_specifics(which, true, kind);
        system
    }

    pub(in super::super) fn look(pid: u32) -> Option<Seen> {
        let id = Pid::from_u32(pid);
        let system = asked(ProcessesToUpdate::Some(&[id]), ProcessRefreshKind::nothing());
        system.process(id).map(|process| of(pid, process))
    }

    pub(in super::super) fn all() -> Vec<Seen> {
        let system = asked(ProcessesToUpdate::All, ProcessRefreshKind::nothing());
        system.processes().iter().map(|(pid, process)| of(pid.as_u32(), process)).collect()
    }

    pub(in super::super) fn marker(pid: u32) -> Option<String> {
        let id = Pid::from_u32(pid);
        let system = asked(ProcessesToUpdate::Some(&[id]), ProcessRefreshKind::nothing().with_environ(UpdateKind::Always));
        let prefix = format!("{MARKER}=");
        system.process(id)?.environ().iter().find_map(|pair| pair.to_str()?.strip_prefix(&prefix).map(str::to_owned))
    }

    /// Names the time since the machine was started.
    pub(in super::super) fn boot() -> String {
        System::boot_time().to_string()
    }
}

pub(super) use platform::{all, boot, look, marker};

/// The processes whose marker fits and that still run, without ourselves and those that started us: we may be the
/// server of another Handrail.
pub(super) fn marked(fits: impl Fn(&str) -> bool) -> Vec<Seen> {
    let everybody = all();
    let mut ours = vec![std::process::id()];
    while let Some(parent) = everybody.iter().find(|seen| Some(&seen.pid) == ours.last()).map(|seen| seen.parent) {
        if parent == 0 || ours.contains(&parent) {
            break;
        }
        ours.push(parent);
    }
    let found = everybody.iter().filter(|seen| seen.running && seen.pid > 1 && !ours.contains(&seen.pid));
    found.filter(|seen| marker(seen.pid).is_some_and(|value| fits(&value))).copied().collect()
}

/// What a process started, and what that started, as far as the parents still live.
pub(super) fn descendants(root: u32) -> Vec<Seen> {
    let everybody = all();
    let mut found: Vec<Seen> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        for child in everybody.iter().filter(|seen| seen.parent == parent && seen.running && seen.pid > 1) {
            if child.pid != root && !found.iter().any(|seen| seen.pid == child.pid) {
                found.push(*child);
                parents.push(child.pid);
            }
        }
    }
    found
}

/// Whether this very process still runs.
pub(super) fn runs(seen: &Seen) -> bool {
    look(seen.pid).is_some_and(|now| now.running && now.started == seen.started)
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_known_again_by_its_start_and_found_by_its_marker() {
        let value = format!("test-{}.1", std::process::id());
        let mut child =
            Command::new("sh").args(["-c", "setsid sleep 60 & read x; kill $!"]).env(MARKER, &value).stdin(Stdio::piped()).spawn().unwrap();
        let seen = look(child.id()).unwrap();
        assert!(runs(&seen) && seen.running && seen.parent == std::process::id());
        assert!(!runs(&Seen { started: seen.started + 1, ..seen }), "the same number, another process");
        let mut found = Vec::new();
        for _ in 0..500 {
            found = marked(|marker| marker == value);
            if found.len() == 2 && found.iter().any(|seen| seen.group == seen.pid) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert_eq!(found.len(), 2, "the child, and the grandchild in a session of its own: {found:?}");
        assert_eq!(descendants(child.id()).len(), 1);
        drop(child.stdin.take());
        let _ = child.wait().unwrap();
        assert!(!runs(&seen));
        assert!(marked(|marker| marker == value).iter().all(|seen| seen.pid != child.id()));
        assert!(!boot().is_empty());
    }
}
