//! A file on its way in: it is written and hashed under the name `<file>.part` and gets its own name only when size
//! and sha256 are right.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::{Error, Failure, size_words};
use crate::local::catalogue::File;

/// Bytes read at once while hashing.
const BLOCK: usize = 1 << 20;

/// A file being written.
pub(super) struct Part {
    file: fs::File,
    path: PathBuf,
    target: PathBuf,
    wanted: File,
    hasher: Sha256,
    done: u64,
}

/// Where the part of a file is kept between two fetches.
pub(super) fn part_path(folder: &Path, file: &File) -> PathBuf {
    folder.join(format!("{}.part", file.name))
}

impl Part {
    /// Opens the part at `path`, hashing what an earlier fetch left; `target` is its final name.
    pub fn open(path: PathBuf, target: PathBuf, wanted: &File) -> Result<Self, Failure> {
        let opened = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = opened.map_err(|error| failure(&path, &error))?;
        let mut part = Self { file, path, target, wanted: wanted.clone(), hasher: Sha256::new(), done: 0 };
        part.take_in()?;
        if part.done > part.wanted.bytes {
            part.restart()?;
        }
        Ok(part)
    }

    fn take_in(&mut self) -> Result<(), Failure> {
        let mut block = vec![0; BLOCK];
        loop {
            let read = self.file.read(&mut block).map_err(|error| failure(&self.path, &error))?;
            if read == 0 {
                return Ok(());
            }
            self.hasher.update(&block[..read]);
            self.done += read as u64;
            if self.done > self.wanted.bytes {
                return Ok(());
            }
        }
    }

    /// Bytes here so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes still to come.
    pub fn missing(&self) -> u64 {
        self.wanted.bytes.saturating_sub(self.done)
    }

    /// Forgets what is here.
    pub fn restart(&mut self) -> Result<(), Failure> {
        self.file = fs::File::create(&self.path).map_err(|error| failure(&self.path, &error))?;
        self.hasher = Sha256::new();
        self.done = 0;
        Ok(())
    }

    /// Appends bytes. More than the file may have is the source's fault and removes the part.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        if bytes.len() as u64 > self.missing() {
            let _ = fs::remove_file(&self.path);
            return Err(Failure::Source(format!("{} is larger there than the {} bytes it must have", self.wanted.name, self.wanted.bytes)));
        }
        self.file.write_all(bytes).map_err(|error| self.refused(&error))?;
        self.hasher.update(bytes);
        self.done += bytes.len() as u64;
        Ok(())
    }

    fn refused(&self, error: &io::Error) -> Failure {
        if !full(error) {
            return failure(&self.path, error);
        }
        let here = fs::metadata(&self.path).map_or(self.done, |found| found.len());
        let free = free(&self.path).map_or_else(|| "an unknown amount is free".to_owned(), |free| format!("{} are free", size_words(free)));
        let missing = size_words(self.wanted.bytes.saturating_sub(here));
        let reason = format!(
            "the disk is full ({error}): {here} of {} bytes are written and {free}; make room for {missing} and fetch again, what is here is kept",
            self.wanted.bytes
        );
        Failure::Disk { path: self.path.clone(), reason }
    }

    /// Checks size and sha256 and gives the file its name. A wrong checksum removes the part.
    pub fn finish(self) -> Result<(), Failure> {
        let name = &self.wanted.name;
        if self.done != self.wanted.bytes {
            return Err(Failure::Source(format!("{name} ended after {} of {} bytes", self.done, self.wanted.bytes)));
        }
        self.file.sync_all().map_err(|error| self.refused(&error))?;
        let found = hex(self.hasher);
        if found != self.wanted.sha256 {
            let _ = fs::remove_file(&self.path);
            return Err(Failure::Source(format!(
                "{name} has the wrong checksum (sha256 {found}, expected {}); the download was removed",
                self.wanted.sha256
            )));
        }
        drop(self.file);
        fs::rename(&self.path, &self.target).map_err(|error| failure(&self.target, &error))
    }
}

fn hex(hasher: Sha256) -> String {
    format!("{:x}", hasher.finalize())
}

/// The sha256 of a file in lower-case hex.
pub(in crate::local) fn hash(path: &Path) -> io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; BLOCK];
    loop {
        let read = file.read(&mut block)?;
        if read == 0 {
            return Ok(hex(hasher));
        }
        hasher.update(&block[..read]);
    }
}

fn full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    Failure::Disk { path: path.to_owned(), reason: error.to_string() }
}

/// A refused write as the error of a whole fetch.
pub(in crate::local) fn disk(path: &Path, error: &io::Error) -> Error {
    Error::Disk { path: path.to_owned(), reason: error.to_string() }
}

/// Checks that this many bytes fit on the disk of the folder, where the platform tells.
pub(in crate::local) fn room(folder: &Path, needed: u64) -> Result<(), Failure> {
    match free(folder) {
        Some(free) if free < needed => {
            let reason = format!("{} are needed and {} are free; make room and fetch again", size_words(needed), size_words(free));
            Err(Failure::Disk { path: folder.to_owned(), reason })
        }
        _ => Ok(()),
    }
}

/// Bytes that this process may still write where `path` lies.
#[cfg(unix)]
fn free(path: &Path) -> Option<u64> {
    let found = nix::sys::statvfs::statvfs(path).ok()?;
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // the widths differ between platforms
    Some((found.blocks_available() as u64).saturating_mul(found.fragment_size() as u64))
}

#[cfg(not(unix))]
fn free(_path: &Path) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(bytes: &[u8]) -> File {
        File { name: "weights".to_owned(), bytes: bytes.len() as u64, sha256: hex(Sha256::new().chain_update(bytes)) }
    }

    fn open(folder: &Path, file: &File) -> Part {
        Part::open(part_path(folder, file), folder.join(&file.name), file).unwrap()
    }

    #[test]
    fn a_part_goes_on_where_it_was_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = wanted(b"one and two");
        let mut part = open(folder.path(), &file);
        part.write(b"one ").unwrap();
        drop(part);
        let mut part = open(folder.path(), &file);
        assert_eq!((part.done(), part.missing()), (4, 7));
        part.write(b"and two").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(folder.path().join("weights")).unwrap(), b"one and two");
        assert!(!part_path(folder.path(), &file).exists());
    }

    #[test]
    fn wrong_bytes_and_too_many_bytes_leave_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = wanted(b"right");
        let mut part = open(folder.path(), &file);
        part.write(b"wrong").unwrap();
        assert!(matches!(part.finish(), Err(Failure::Source(reason)) if reason.contains("checksum") && reason.contains(&file.sha256)));
        let mut part = open(folder.path(), &file);
        assert!(matches!(part.write(b"right and more"), Err(Failure::Source(reason)) if reason.contains("5 bytes")));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[cfg(unix)]
    #[test]
    fn more_than_the_disk_holds_is_refused_with_numbers() {
        let folder = tempfile::tempdir().unwrap();
        assert!(room(folder.path(), 1).is_ok());
        match room(folder.path(), u64::MAX) {
            Err(Failure::Disk { reason, .. }) => assert!(reason.contains("GB are needed") && reason.contains("are free"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
}
