//! `source.toml` beside a model: where it came from, when, and what was verified.

use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use super::{Error, disk};
use crate::local::catalogue::File;

/// The record's file name.
const NAME: &str = "source.toml";

/// Where a model came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::local) struct Record {
    /// The source in words.
    pub source: String,
    /// When it was fetched.
    pub fetched_at: jiff::Timestamp,
    /// Why the files must not be used, when the last check failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken: Option<String>,
    /// Its files as they were verified.
    #[serde(default)]
    pub file: Vec<Verified>,
}

/// A verified file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::local) struct Verified {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its sha256.
    pub sha256: String,
    /// When it was last changed, in nanoseconds since 1970: while this and the size stand, nobody touched it.
    pub modified: Option<i64>,
}

impl Record {
    /// A record of files whose checksums were verified just now.
    pub fn new(source: &str, folder: &Path, files: &[File]) -> Self {
        let verified = |file: &File| Verified {
            name: file.name.clone(),
            bytes: file.bytes,
            sha256: file.sha256.clone(),
            modified: modified(&folder.join(&file.name)),
        };
        Self { source: source.to_owned(), fetched_at: jiff::Timestamp::now(), broken: None, file: files.iter().map(verified).collect() }
    }

    /// Reads the record of a model's folder; none where it is missing or unreadable.
    pub fn read(folder: &Path) -> Option<Self> {
        toml::from_str(&std::fs::read_to_string(folder.join(NAME)).ok()?).ok()
    }

    /// Writes it.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(NAME);
        let text = toml::to_string(self).map_err(|error| Error::Disk { path: path.clone(), reason: error.to_string() })?;
        std::fs::write(&path, text).map_err(|error| disk(&path, &error))
    }

    /// Whether this file is, by time and size, the one that was verified.
    pub fn vouches(&self, folder: &Path, file: &File) -> bool {
        let now = modified(&folder.join(&file.name));
        self.broken.is_none()
            && now.is_some()
            && self.file.iter().any(|known| known.name == file.name && known.sha256 == file.sha256 && known.modified == now)
    }
}

fn modified(path: &Path) -> Option<i64> {
    let time = std::fs::metadata(path).ok()?.modified().ok()?;
    i64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_vouches_until_the_file_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("weights");
        std::fs::write(&path, b"abc").unwrap();
        let file = File { name: "weights".to_owned(), bytes: 3, sha256: "0".repeat(64) };
        let record = Record::new("hub a/b", folder.path(), std::slice::from_ref(&file));
        record.write(folder.path()).unwrap();
        let read = Record::read(folder.path()).unwrap();
        assert_eq!(read, record);
        assert!(read.vouches(folder.path(), &file));
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        std::fs::File::options().write(true).open(&path).unwrap().set_modified(later).unwrap();
        assert!(!read.vouches(folder.path(), &file));
    }
}
