//! This instance of Handrail and the children it has: written down, so that a later one can end what a crash left.
//!
//! `run/INSTANCE.json` in the data folder holds the children, `run/INSTANCE.lock` an OS lock that lives exactly as
//! long as the instance. The record is there before the first child is, and [`census::MARKER`] is in the environment of
//! every child from its first instruction on: a crash between a start and its entry is found by that.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::census::{self, Seen};
use super::log_file::Logs;
use super::{ending, reap};

/// Longest wait of a start for the end of what earlier instances left (fixed); each of them has its own limits.
const REAPED: Duration = Duration::from_secs(10);

/// An instance of Handrail, as far as its child processes are concerned.
#[derive(Debug)]
pub(in crate::mcp) struct Instance {
    id: String,
    /// `run` in the data folder.
    folder: PathBuf,
    held: Mutex<Held>,
    reaped: watch::Receiver<bool>,
    logs: Logs,
}

#[derive(Debug)]
struct Held {
    /// Locked from the first start of a server on.
    lock: Option<File>,
    record: Record,
    starts: u64,
}

/// What is written down.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) instance: String,
    /// The process that wrote it, and when that was started.
    pub(super) pid: u32,
    pub(super) started: u64,
    /// The time since the machine was started that all start times are of.
    pub(super) boot: String,
    pub(super) host: String,
    pub(super) children: BTreeMap<u64, Child>,
}

/// One child.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Child {
    pub(super) server: String,
    pub(super) pid: u32,
    pub(super) pgid: u32,
    pub(super) started: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<u16>,
    pub(super) created_at: String,
}

/// One start of a server: its number and what its processes carry.
#[derive(Clone, Debug)]
pub(super) struct Start {
    number: u64,
    pub(super) marker: String,
}

impl Instance {
    /// The instance of a data folder. What dead instances left there is ended in the background; nothing is written
    /// before the first start.
    pub(in crate::mcp) fn open(data: &Path, runtime: Option<&Handle>) -> Arc<Self> {
        let folder = data.join("run");
        let (done, reaped) = watch::channel(false);
        match runtime {
            Some(runtime) if folder.is_dir() => {
                let folder = folder.clone();
                let _reaping = runtime.spawn_blocking(move || {
                    reap::dead(&folder);
                    let _ = done.send(true);
                });
            }
            // Dropped unsent: nobody waits for it.
            _ => drop(done),
        }
        let id = uuid::Uuid::new_v4().simple().to_string();
        let pid = std::process::id();
        let record = Record {
            instance: id.clone(),
            pid,
            started: census::look(pid).map_or(0, |seen| seen.started),
            boot: census::boot(),
            host: host(),
            children: BTreeMap::new(),
        };
        let held = Mutex::new(Held { lock: None, record, starts: 0 });
        Arc::new(Self { id, folder, held, reaped, logs: Logs::new(data.join("logs").join("mcp")) })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The log files of the servers.
    pub(in crate::mcp) fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Waits until what earlier instances left is ended: it may hold ports and files that a server needs.
    pub(super) async fn reaped(&self) {
        let mut reaped = self.reaped.clone();
        let _ = tokio::time::timeout(REAPED, reaped.wait_for(|reaped| *reaped)).await.map(drop);
    }

    /// Before a server is started: from here on the record tells that this instance has children.
    pub(super) fn begin(&self) -> Start {
        let mut held = self.held();
        held.starts += 1;
        if held.lock.is_none() {
            match reap::claim(&self.folder, &self.id) {
                Ok(lock) => held.lock = Some(lock),
                // The markers are still there; to refuse every server for a full disk would help nobody.
                Err(error) => tracing::warn!(%error, folder = %self.folder.display(), "the servers' processes cannot be written down"),
            }
            self.write(&held.record);
        }
        Start { number: held.starts, marker: format!("{}.{}", self.id, held.starts) }
    }

    /// Writes a child down, right after it was started.
    pub(super) fn enroll(&self, start: &Start, server: &str, pid: u32, port: Option<u16>) {
        let started = census::look(pid).map_or(0, |seen| seen.started);
        let created_at = jiff::Timestamp::now().to_string();
        let child = Child { server: server.to_owned(), pid, pgid: pid, started, port, created_at };
        let mut held = self.held();
        let _ = held.record.children.insert(start.number, child);
        self.write(&held.record);
    }

    /// Takes a child off the record, when it and everything that it started are gone.
    pub(super) fn forget(&self, start: &Start) {
        let mut held = self.held();
        if held.record.children.remove(&start.number).is_some() {
            self.write(&held.record);
        }
    }

    fn write(&self, record: &Record) {
        // Not synced to the disk: what has to survive is the end of this program, and not that of the machine, which
        // no child survives either.
        if let Err(error) = reap::write(&self.folder, record) {
            tracing::warn!(%error, folder = %self.folder.display(), "the servers' processes cannot be written down");
        }
    }

    /// The server of ours that a process belongs to.
    pub(super) fn owner(&self, seen: &Seen, marker: Option<&str>) -> Option<(Start, String)> {
        let held = self.held();
        let number = marker.and_then(|marker| marker.strip_prefix(&self.id)?.strip_prefix('.')?.parse::<u64>().ok());
        let found = held.record.children.iter().find(|(at, child)| number == Some(**at) || seen.group == child.pgid);
        found.map(|(at, child)| (Start { number: *at, marker: format!("{}.{at}", self.id) }, child.server.clone()))
    }

    /// The folder of the records, for looking at those of other instances.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Ends all children that are still there, by force, and everything that carries our marker. Blocks.
    pub(in crate::mcp) fn end_all(&self) {
        let (children, boot) = {
            let held = self.held();
            (held.record.children.clone(), held.record.boot.clone())
        };
        for child in children.values() {
            reap::end_child(child, &boot, Duration::ZERO);
        }
        if !children.is_empty() || self.held().starts > 0 {
            let prefix = format!("{}.", self.id);
            let left = ending::end(|| census::marked(|marker| marker.starts_with(&prefix)), Duration::ZERO);
            if !left.is_empty() {
                tracing::warn!(?left, "processes of servers could not be ended");
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let held = self.held();
        // A record with children stays for the next instance to find.
        if held.lock.is_some() && held.record.children.is_empty() {
            reap::remove(&self.folder, &self.id);
        }
    }
}

/// The name of this machine: a data folder may lie on a shared disk.
pub(super) fn host() -> String {
    sysinfo::System::host_name().unwrap_or_default()
}
