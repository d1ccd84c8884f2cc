//! The records of instances: which of them are dead, and the end of what they left.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::census::{self, Seen};
use super::ending;
use super::instance::{Child, Record, host};

/// What an orphan gets between being asked to end and being killed.
const GRACE: Duration = Duration::from_millis(300);
/// Age after which a lock without a record is litter (fixed).
const LITTER: Duration = Duration::from_secs(24 * 60 * 60);
/// Largest record that is read (fixed).
const RECORD: u64 = 4 * 1024 * 1024;

fn record_path(folder: &Path, instance: &str) -> PathBuf {
    folder.join(format!("{instance}.json"))
}

fn lock_path(folder: &Path, instance: &str) -> PathBuf {
    folder.join(format!("{instance}.lock"))
}

/// Makes and locks the lock of an instance. The record must be written afterwards: a record without a lock is dead.
pub(super) fn claim(folder: &Path, instance: &str) -> io::Result<File> {
    std::fs::create_dir_all(folder)?;
    let lock = private().create_new(true).open(lock_path(folder, instance))?;
    match lock.try_lock() {
        // Some network file systems have no locks; the owner's process is then what tells.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(io::Error::other("the lock of this instance is held by another one")),
    }
}

/// Replaces the record of an instance in one step.
pub(super) fn write(folder: &Path, record: &Record) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let fresh = folder.join(format!(".{}.new", record.instance));
    let mut file = private().create(true).truncate(true).open(&fresh)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    drop(file);
    std::fs::rename(&fresh, record_path(folder, &record.instance))
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    let _ = options.write(true);
    #[cfg(unix)]
    let _ = std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Removes the files of an instance.
pub(super) fn remove(folder: &Path, instance: &str) {
    for path in [record_path(folder, instance), folder.join(format!(".{instance}.new")), lock_path(folder, instance)] {
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, path = %path.display(), "a record of an instance cannot be removed");
        }
    }
}

fn read(path: &Path) -> Option<Record> {
    let file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() <= RECORD))?;
    serde_json::from_reader(io::BufReader::new(file)).ok()
}

/// Ends what dead instances left, and removes their records. Blocks.
pub(super) fn dead(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("json") => match read(&path) {
                Some(record) if record.instance == stem => bury(folder, &record),
                _ => tracing::warn!(path = %path.display(), "a record of an instance cannot be read and is left alone"),
            },
            Some("lock") if !record_path(folder, stem).exists() && old(&path) => remove(folder, stem),
            _ => {}
        }
    }
}

fn old(path: &Path) -> bool {
    let changed = path.metadata().and_then(|metadata| metadata.modified()).unwrap_or_else(|_| SystemTime::now());
    changed.elapsed().is_ok_and(|age| age > LITTER)
}

/// Whether an instance has ended. Holding its lock meanwhile keeps two new instances from doing the same work.
fn ended(folder: &Path, record: &Record) -> Option<Option<File>> {
    if record.host != host() {
        // Its processes are somewhere else.
        return None;
    }
    let owner_gone = || record.boot != census::boot() || census::look(record.pid).is_none_or(|seen| seen.started != record.started);
    match File::options().write(true).open(lock_path(folder, &record.instance)) {
        Ok(lock) => match lock.try_lock() {
            Ok(()) => Some(Some(lock)),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(_)) => owner_gone().then_some(None),
        },
        Err(_) => owner_gone().then_some(None),
    }
}

fn bury(folder: &Path, record: &Record) {
    let Some(_lock) = ended(folder, record) else {
        return;
    };
    if record.boot == census::boot() {
        for child in record.children.values() {
            end_child(child, &record.boot, GRACE);
        }
        let left = end_marked(&record.instance, GRACE);
        if !left.is_empty() {
            tracing::warn!(?left, "processes of an earlier Handrail could not be ended; the next start tries again");
            return;
        }
    }
    remove(folder, &record.instance);
}

/// Ends everything that carries the marker of an instance. Blocks.
fn end_marked(instance: &str, grace: Duration) -> Vec<Seen> {
    let prefix = format!("{instance}.");
    ending::end(|| census::marked(|marker| marker.starts_with(&prefix)), grace)
}

/// Whether the instance that a marker names has ended; `None` where nothing is known about it.
pub(super) fn instance_ended(folder: &Path, marker: &str) -> Option<bool> {
    let instance = marker.split('.').next().filter(|instance| instance.chars().all(|c| c.is_ascii_alphanumeric()))?;
    let record = read(&record_path(folder, instance))?;
    Some(ended(folder, &record).is_some())
}

/// Ends the group that a recorded child leads, if it still is that child. What only its remains would show, a group
/// without its leader, is found by the marker or not at all: its number may belong to somebody else by now.
pub(super) fn end_child(child: &Child, boot: &str, grace: Duration) {
    if boot != census::boot() || child.pid <= 1 || child.pgid <= 1 {
        return;
    }
    let leads = || census::look(child.pid).filter(|seen| seen.started == child.started && seen.group == child.pgid);
    if leads().is_none() {
        return;
    }
    // Members by number and not the group by a signal: the leader may end between a look and a signal.
    let oldest = child.started;
    let members = || census::all().into_iter().filter(|seen| seen.group == child.pgid && seen.started >= oldest && seen.running).collect();
    let known: Vec<Seen> = members();
    let _ = ending::end(
        || {
            if leads().is_some() { members() } else { known.iter().filter(|seen| census::runs(seen)).copied().collect() }
        },
        grace,
    );
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::process::CommandExt as _;
    use std::process::Command;

    use super::*;

    fn sleeper() -> (std::process::Child, Seen) {
        let child = Command::new("sleep").arg("60").process_group(0).spawn().unwrap();
        let seen = census::look(child.id()).unwrap();
        (child, seen)
    }

    fn record(instance: &str, children: &[(&Seen, u64)]) -> Record {
        let child = |seen: &Seen, started| Child {
            server: "s".to_owned(),
            pid: seen.pid,
            pgid: seen.group,
            started,
            port: None,
            created_at: String::new(),
        };
        let children: BTreeMap<u64, Child> = (1..).zip(children.iter().map(|(seen, started)| child(seen, *started))).collect();
        Record { instance: instance.to_owned(), pid: 1, started: u64::MAX, boot: census::boot(), host: host(), children }
    }

    #[test]
    fn only_children_of_dead_instances_that_are_still_themselves_are_ended() {
        let folder = tempfile::tempdir().unwrap();
        let ((mut orphan, first), (mut foreign, second), (mut alive, third)) = (sleeper(), sleeper(), sleeper());
        // The second one has the number of a child, and another start: it is somebody else.
        write(folder.path(), &record("dead", &[(&first, first.started), (&second, second.started - 1)])).unwrap();
        // Started, and the crash came before it was written down.
        let mut unwritten = Command::new("sleep").arg("60").env(census::MARKER, "dead.9").process_group(0).spawn().unwrap();
        let fourth = census::look(unwritten.id()).unwrap();
        drop(claim(folder.path(), "dead").unwrap());
        let lock = claim(folder.path(), "live").unwrap();
        write(folder.path(), &record("live", &[(&third, third.started)])).unwrap();
        let elsewhere = Record { host: "another machine".to_owned(), ..record("elsewhere", &[(&third, third.started)]) };
        write(folder.path(), &elsewhere).unwrap();
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        assert_eq!((instance_ended(folder.path(), "live.1"), instance_ended(folder.path(), "dead.1")), (Some(false), Some(true)));
        assert_eq!((instance_ended(folder.path(), "none.1"), instance_ended(folder.path(), "../x.1")), (None, None));

        dead(folder.path());
        assert!(!census::runs(&first) && !census::runs(&fourth) && census::runs(&second) && census::runs(&third));
        let mut names: Vec<String> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["broken.json", "elsewhere.json", "live.json", "live.lock"]);
        drop(lock);
        dead(folder.path());
        assert!(!census::runs(&third) && census::runs(&second));
        foreign.kill().unwrap();
        for child in [&mut orphan, &mut foreign, &mut alive, &mut unwritten] {
            let _ = child.wait().unwrap();
        }
    }

    #[test]
    fn a_record_of_before_the_last_boot_and_the_groups_of_everybody_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, seen) = sleeper();
        let old = Record { boot: "another boot".to_owned(), ..record("old", &[(&seen, seen.started)]) };
        write(folder.path(), &old).unwrap();
        dead(folder.path());
        assert!(census::runs(&seen), "a start time of another boot names nobody");
        assert!(!folder.path().join("old.json").exists());
        // Were the numbers 0 and 1 not refused, these would end this test, or the machine.
        for pid in [0, 1] {
            let started = census::look(pid).map_or(0, |seen| seen.started);
            let everybody = Child { server: String::new(), pid, pgid: pid, started, port: None, created_at: String::new() };
            end_child(&everybody, &census::boot(), Duration::ZERO);
        }
        child.kill().unwrap();
        let _ = child.wait().unwrap();
    }
}
