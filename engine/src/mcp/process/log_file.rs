//! A log file per server, `logs/mcp/NAME.log` in the data folder: rotated, and written by a thread of its own, so that
//! a slow disk holds up no server. Where the thread cannot follow, lines are left out and counted.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::tool::SchemaHash;

/// A file that would grow beyond this is put aside (fixed).
const SIZE: u64 = 1024 * 1024;
/// Files that were put aside are kept so often (fixed): `NAME.log.1` and `NAME.log.2`, three with the current one.
const OLDER: u32 = 2;
/// Lines on the way to the thread (fixed).
const QUEUE: usize = 1024;
/// Files that are open at once (fixed).
const OPEN: usize = 64;
/// How long the last lines may take (fixed).
const FLUSH: Duration = Duration::from_millis(200);

enum Message {
    Line { file: Arc<str>, text: String },
    Flush(oneshot::Sender<()>),
}

/// The log files of all servers.
#[derive(Debug)]
pub(in crate::mcp) struct Logs {
    folder: PathBuf,
    /// Made with the first line; none where there can be no thread.
    sender: Arc<OnceLock<Option<SyncSender<Message>>>>,
}

/// Where the lines of one server go.
#[derive(Clone, Debug)]
pub(in crate::mcp) struct LogFile {
    folder: PathBuf,
    name: Arc<str>,
    sender: Arc<OnceLock<Option<SyncSender<Message>>>>,
}

impl Logs {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder, sender: Arc::default() }
    }

    /// The log file of a server.
    pub(in crate::mcp) fn of(&self, server: &str) -> LogFile {
        LogFile { folder: self.folder.clone(), name: file_name(server).into(), sender: self.sender.clone() }
    }

    /// Waits, not for long, until what was said so far is in the files.
    pub(in crate::mcp) async fn flush(&self) {
        let (done, written) = oneshot::channel();
        if let Some(Some(sender)) = self.sender.get()
            && sender.try_send(Message::Flush(done)).is_ok()
        {
            let _ = tokio::time::timeout(FLUSH, written).await.map(drop);
        }
    }
}

impl LogFile {
    /// Where it is.
    pub(in crate::mcp) fn path(&self) -> PathBuf {
        self.folder.join(&*self.name)
    }

    /// Sends a line to its file; whether it will be there.
    pub(super) fn write(&self, text: String) -> bool {
        let sender = self.sender.get_or_init(|| writer(self.folder.clone()));
        let Some(sender) = sender else {
            return false;
        };
        match sender.try_send(Message::Line { file: self.name.clone(), text }) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

/// A server's name may hold anything, and upper and lower case are one to some file systems: such a name is made plain,
/// and a hash keeps it apart from the others.
fn file_name(server: &str) -> String {
    const RESERVED: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
    let name: String = server.chars().take(64).map(|c| if plain(c) { c } else { '_' }).collect();
    if !name.is_empty() && name == server && !RESERVED.iter().any(|reserved| name.starts_with(reserved) && name.len() <= reserved.len() + 1)
    {
        return format!("{name}.log");
    }
    let hash = SchemaHash::of(&serde_json::Value::String(server.to_owned())).to_hex();
    format!("{name}-{}.log", hash.get(..8).unwrap_or_default())
}

fn writer(folder: PathBuf) -> Option<SyncSender<Message>> {
    let (sender, lines) = sync_channel(QUEUE);
    let thread = std::thread::Builder::new().name("handrail-server-logs".to_owned()).spawn(move || write_all(&folder, &lines));
    match thread {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::warn!(%error, "the servers' logs are not written");
            None
        }
    }
}

/// Ends with the last sender.
fn write_all(folder: &Path, lines: &Receiver<Message>) {
    let mut files: HashMap<Arc<str>, Rotating> = HashMap::new();
    let mut failed = false;
    while let Ok(message) = lines.recv() {
        match message {
            Message::Flush(done) => drop(done.send(())),
            Message::Line { file, text } => {
                if files.len() >= OPEN && !files.contains_key(&file) {
                    files.clear();
                }
                let rotating = files.entry(file).or_insert_with_key(|name| Rotating { path: folder.join(&**name), open: None });
                if let Err(error) = rotating.write(&text) {
                    rotating.open = None;
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(%error, path = %rotating.path.display(), "a server's log cannot be written");
                    }
                }
            }
        }
    }
}

struct Rotating {
    path: PathBuf,
    open: Option<(File, u64)>,
}

impl Rotating {
    fn write(&mut self, text: &str) -> io::Result<()> {
        let length = text.len() as u64 + 1;
        let (mut file, mut size) = match self.open.take() {
            Some(open) => open,
            None => self.append()?,
        };
        if size > 0 && size + length > SIZE {
            drop(file);
            self.rotate()?;
            (file, size) = self.append()?;
        }
        file.write_all(format!("{text}\n").as_bytes())?;
        self.open = Some((file, size + length));
        Ok(())
    }

    /// What servers say may be private: the file is its owner's.
    fn append(&self) -> io::Result<(File, u64)> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        let _ = options.create(true).append(true);
        #[cfg(unix)]
        let _ = std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&self.path)?;
        let size = file.metadata()?.len();
        Ok((file, size))
    }

    fn rotate(&self) -> io::Result<()> {
        let older = |number: u32| if number == 0 { self.path.clone() } else { PathBuf::from(format!("{}.{number}", self.path.display())) };
        for number in (0..OLDER).rev() {
            match std::fs::rename(older(number), older(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_file_names_that_differ_and_stay_in_the_folder() {
        assert_eq!(file_name("time"), "time.log");
        let odd = ["Time", "../time", "a/b", "a b", "时间", "con", "nul", "lpt1", "", ".", &"x".repeat(128)];
        let mut names: Vec<String> = odd.iter().map(|name| file_name(name)).collect();
        assert!(names.iter().all(|name| !name.contains(['/', '\\']) && !name.starts_with('.') && name.len() < 100), "{names:?}");
        names.sort();
        names.dedup();
        assert_eq!(names.len(), odd.len());
    }

    #[tokio::test]
    async fn files_are_put_aside_at_their_size_and_three_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let logs = Logs::new(folder.path().join("logs"));
        let file = logs.of("s");
        let line = "x".repeat(2000);
        for number in 0..2500 {
            while !file.write(format!("{number} {line}")) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        // The queue may be full: a flush is asked for until it fits.
        logs.flush().await;
        drop(file);
        for _ in 0..500 {
            let newest = std::fs::read_to_string(folder.path().join("logs/s.log")).unwrap_or_default();
            if newest.lines().last().is_some_and(|line| line.starts_with("2499 ")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let sizes = ["s.log", "s.log.1", "s.log.2"].map(|name| std::fs::metadata(folder.path().join("logs").join(name)).unwrap().len());
        assert!(sizes.iter().all(|size| *size <= SIZE) && sizes[1] > SIZE - 3000, "{sizes:?}");
        assert!(!folder.path().join("logs/s.log.3").exists());
        let newest = std::fs::read_to_string(folder.path().join("logs/s.log")).unwrap();
        assert!(newest.lines().last().unwrap().starts_with("2499 "));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(folder.path().join("logs/s.log")).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }
}
