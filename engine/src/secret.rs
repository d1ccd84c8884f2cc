//! Secrets (API keys, tokens) behind one trait: never in plain JSON, masked in logs.

mod keyring;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

pub use keyring::KeyringOrFile;

/// A secret's text. Shown as `•••` in every log and error.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself; only for the request that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("•••")
    }
}

/// Where secrets are kept. Every method may block: on a file, or on a keyring that asks the person to unlock it.
pub trait Secrets: Send + Sync + std::fmt::Debug {
    /// Where a secret would be kept now, in words.
    fn place(&self) -> String;
    /// The secret of this name.
    fn get(&self, name: &str) -> Result<Option<Secret>, Error>;
    /// Keeps a secret.
    fn set(&self, name: &str, secret: &Secret) -> Result<(), Error>;
    /// Forgets a secret.
    fn remove(&self, name: &str) -> Result<(), Error>;
}

/// Secrets in a file that only this user can read: the fallback where no keyring runs.
#[derive(Debug)]
pub struct FileSecrets {
    path: PathBuf,
    lock: Mutex<()>,
}

impl FileSecrets {
    /// Secrets in this file; it is created with the first secret.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, lock: Mutex::new(()) }
    }

    fn read(&self) -> Result<BTreeMap<String, String>, Error> {
        match fs::read_to_string(&self.path) {
            Ok(text) => toml::from_str(&text).map_err(|_| self.error("it does not parse and is left untouched")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(error) => Err(self.error(&error.to_string())),
        }
    }

    fn write(&self, secrets: &BTreeMap<String, String>) -> Result<(), Error> {
        let text = toml::to_string(secrets).map_err(|error| self.error(&error.to_string()))?;
        let folder = self.path.parent().ok_or_else(|| self.error("it has no folder"))?;
        // A temporary file is created with mode 0600, and the rename keeps it.
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| self.error(&error.to_string()))?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(|error| self.error(&error.to_string()))?;
        let _ = file.persist(&self.path).map_err(|error| self.error(&error.to_string()))?;
        Ok(())
    }

    /// Another process of ours reads, changes and writes the same file; the lock goes with the file that is given.
    fn alone(&self) -> Result<fs::File, Error> {
        let mut name = self.path.as_os_str().to_owned();
        name.push(".lock");
        let file =
            fs::File::options().create(true).append(true).open(PathBuf::from(name)).map_err(|error| self.error(&error.to_string()))?;
        // Some file systems know no locks; one process is usual.
        if let Err(error) = file.lock() {
            tracing::debug!(%error, "the secrets' lock file cannot be locked");
        }
        Ok(file)
    }

    fn error(&self, reason: &str) -> Error {
        Error { place: self.place(), reason: reason.to_owned() }
    }
}

impl Secrets for FileSecrets {
    fn place(&self) -> String {
        format!("the file {}", self.path.display())
    }

    fn get(&self, name: &str) -> Result<Option<Secret>, Error> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.read()?.remove(name).map(Secret))
    }

    fn set(&self, name: &str, secret: &Secret) -> Result<(), Error> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let _alone = self.alone()?;
        let mut secrets = self.read()?;
        let _old = secrets.insert(name.to_owned(), secret.0.clone());
        self.write(&secrets)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        // Nothing is made where nothing is kept.
        if !self.read()?.contains_key(name) {
            return Ok(());
        }
        let _alone = self.alone()?;
        let mut secrets = self.read()?;
        match secrets.remove(name) {
            Some(_) => self.write(&secrets),
            None => Ok(()),
        }
    }
}

/// Why a secret could not be read or kept. Never holds the secret.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the secrets in {place} cannot be used: {reason}")]
pub struct Error {
    /// The file or keyring.
    pub place: String,
    /// Why.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_kept_privately_and_never_printed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.toml");
        let secrets = FileSecrets::new(path.clone());
        assert_eq!(secrets.get("key").unwrap(), None);
        secrets.set("key", &Secret::new("s3cret")).unwrap();
        assert_eq!(secrets.get("key").unwrap().unwrap().reveal(), "s3cret");
        assert!(!format!("{:?}", secrets.get("key")).contains("s3cret"));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        secrets.remove("key").unwrap();
        assert_eq!(secrets.get("key").unwrap(), None);
        fs::write(&path, "not = = toml").unwrap();
        assert!(secrets.set("key", &Secret::new("x")).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "not = = toml");
    }
}
