//! The system's keyring, and a file where no keyring runs.
//!
//! Keychain on macOS, Credential Manager on Windows, the Secret Service over D-Bus elsewhere. A keyring may be absent,
//! locked, or may not answer at all, so each question to it has its own thread and a limit.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use super::{Error, FileSecrets, Secret, Secrets};

/// The name under which secrets stand in the keyring; those of a data folder of its own have it behind a colon.
const SERVICE: &str = "handrail";
/// How long the keyring may take to say that it is there.
const PROBE: Duration = Duration::from_secs(3);
/// How long it may take to answer: the person may have to type a password.
const ANSWER: Duration = Duration::from_secs(90);

/// How long one that did not answer is left alone: it may be started, or unlocked, later than Handrail.
const AGAIN: Duration = Duration::from_secs(30);

/// Secrets in the system's keyring. Where none answers, or it refuses to keep a secret, they are in a file that only
/// this user can read. A secret is looked for in both, and is never left behind in the file once the keyring has it: what
/// is in the file is the newer one.
#[derive(Debug)]
pub struct KeyringOrFile {
    keyring: Mutex<Looked>,
    probe: fn(String) -> Result<Arc<dyn Secrets>, Error>,
    service: String,
    file: FileSecrets,
}

/// What came of looking for the keyring.
#[derive(Debug)]
enum Looked {
    NotYet,
    Absent { since: Instant },
    Found(Arc<dyn Secrets>),
}

impl KeyringOrFile {
    /// The secrets of a data folder; `usual` says that it is the platform's own place for application data. Nothing is
    /// asked yet: the keyring is looked for when the first secret is.
    #[must_use]
    pub fn new(data_dir: &Path, usual: bool) -> Self {
        // Another data folder is another person's, or a test's: it neither reads nor changes the usual secrets.
        let service = if usual { SERVICE.to_owned() } else { format!("{SERVICE}:{}", data_dir.display()) };
        Self { keyring: Mutex::new(Looked::NotYet), probe: System::probe, service, file: FileSecrets::new(data_dir.join("secrets.toml")) }
    }

    fn keyring(&self) -> Option<Arc<dyn Secrets>> {
        let mut looked = self.keyring.lock().unwrap_or_else(PoisonError::into_inner);
        match &*looked {
            Looked::Found(keyring) => return Some(keyring.clone()),
            Looked::Absent { since } if since.elapsed() < AGAIN => return None,
            Looked::NotYet | Looked::Absent { .. } => {}
        }
        match (self.probe)(self.service.clone()) {
            Ok(keyring) => {
                *looked = Looked::Found(keyring.clone());
                Some(keyring)
            }
            Err(error) => {
                tracing::info!(%error, "no keyring answers; secrets are kept in {}", self.file.place());
                *looked = Looked::Absent { since: Instant::now() };
                None
            }
        }
    }
}

impl Secrets for KeyringOrFile {
    fn place(&self) -> String {
        self.keyring().map_or_else(|| self.file.place(), |keyring| keyring.place())
    }

    fn get(&self, name: &str) -> Result<Option<Secret>, Error> {
        let in_file = match self.file.get(name) {
            Ok(Some(secret)) => return Ok(Some(secret)),
            Ok(None) => Ok(None),
            // A file that cannot be read hides nothing that the keyring has.
            Err(error) => Err(error),
        };
        match self.keyring().map(|keyring| keyring.get(name)) {
            Some(Ok(Some(secret))) => Ok(Some(secret)),
            Some(Err(error)) => Err(error),
            Some(Ok(None)) | None => in_file,
        }
    }

    fn set(&self, name: &str, secret: &Secret) -> Result<(), Error> {
        if let Some(keyring) = self.keyring() {
            match keyring.set(name, secret) {
                Ok(()) => return self.file.remove(name),
                // Some keep short texts only.
                Err(error) => tracing::warn!(%error, "the keyring does not keep this; {} is used", self.file.place()),
            }
            self.file.set(name, secret)?;
            if let Err(error) = keyring.remove(name) {
                tracing::warn!(%error, "an older secret may have stayed in the keyring");
            }
            return Ok(());
        }
        self.file.set(name, secret)
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let kept = self.keyring().map_or(Ok(()), |keyring| keyring.remove(name));
        self.file.remove(name).and(kept)
    }
}

/// The platform's keyring.
#[derive(Debug)]
struct System {
    service: String,
}

impl System {
    fn probe(service: String) -> Result<Arc<dyn Secrets>, Error> {
        let there = within(PROBE, || keyring::Entry::store_status().as_ref().map(|_| ()).map_err(ToString::to_string))?;
        there.map_err(error)?;
        Ok(Arc::new(Self { service }))
    }

    fn ask<T: Send + 'static>(
        &self,
        name: &str,
        ask: impl FnOnce(&keyring::Entry) -> keyring::v1::Result<T> + Send + 'static,
    ) -> Result<Option<T>, Error> {
        let (service, name) = (self.service.clone(), name.to_owned());
        let answer = within(ANSWER, move || match keyring::Entry::new(&service, &name).and_then(|entry| ask(&entry)) {
            Ok(answer) => Ok(Some(answer)),
            Err(keyring::v1::Error::NoEntry) => Ok(None),
            // Its text may hold what was kept.
            Err(keyring::v1::Error::BadEncoding(_)) => Err("what is kept under this name is no text".to_owned()),
            Err(error) => Err(error.to_string()),
        })?;
        answer.map_err(error)
    }
}

impl Secrets for System {
    fn place(&self) -> String {
        "the system's keyring".to_owned()
    }

    fn get(&self, name: &str) -> Result<Option<Secret>, Error> {
        Ok(self.ask(name, keyring::Entry::get_password)?.map(Secret::new))
    }

    fn set(&self, name: &str, secret: &Secret) -> Result<(), Error> {
        let secret = secret.clone();
        let _kept = self.ask(name, move |entry| entry.set_password(secret.reveal()))?;
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), Error> {
        let _gone = self.ask(name, keyring::Entry::delete_credential)?;
        Ok(())
    }
}

fn error(reason: String) -> Error {
    Error { place: "the system's keyring".to_owned(), reason }
}

/// Runs a question on a thread of its own: a call over D-Bus cannot be taken back, only left alone.
fn within<T: Send + 'static>(limit: Duration, ask: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
    let (sender, answer) = mpsc::channel();
    let _thread = std::thread::Builder::new()
        .name("handrail-keyring".to_owned())
        .spawn(move || drop(sender.send(ask())))
        .map_err(|fault| error(fault.to_string()))?;
    answer.recv_timeout(limit).map_err(|_| error(format!("it did not answer within {limit:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A keyring that works, as another file.
    fn working(folder: String) -> Result<Arc<dyn Secrets>, Error> {
        Ok(Arc::new(FileSecrets::new(Path::new(&folder).join("keyring.toml"))))
    }

    /// A keyring whose folder is not there: it finds nothing and keeps nothing.
    fn refusing(folder: String) -> Result<Arc<dyn Secrets>, Error> {
        Ok(Arc::new(FileSecrets::new(Path::new(&folder).join("none").join("keyring.toml"))))
    }

    fn absent(_: String) -> Result<Arc<dyn Secrets>, Error> {
        Err(error("there is none".to_owned()))
    }

    fn secrets(folder: &Path, probe: fn(String) -> Result<Arc<dyn Secrets>, Error>) -> KeyringOrFile {
        KeyringOrFile { probe, service: folder.display().to_string(), ..KeyringOrFile::new(folder, false) }
    }

    #[test]
    fn secrets_are_in_the_keyring_or_else_in_the_file_and_never_in_both() {
        let folder = tempfile::tempdir().unwrap();
        let file = FileSecrets::new(folder.path().join("secrets.toml"));
        for (probe, in_file) in [(absent as fn(String) -> _, true), (refusing, true), (working, false)] {
            let secrets = secrets(folder.path(), probe);
            secrets.set("key", &Secret::new("s3cret")).unwrap();
            assert_eq!(secrets.get("key").unwrap().unwrap().reveal(), "s3cret");
            assert_eq!(file.get("key").unwrap().is_some(), in_file);
        }
        // What was put into the file while there was no keyring is still found with one.
        file.set("old", &Secret::new("older")).unwrap();
        let secrets = secrets(folder.path(), working);
        assert_eq!(secrets.get("old").unwrap().unwrap().reveal(), "older");
        secrets.remove("old").unwrap();
        secrets.remove("key").unwrap();
        assert_eq!((secrets.get("old").unwrap(), secrets.get("key").unwrap()), (None, None));
    }

    /// A keyring that keeps short secrets only, as on Windows.
    #[derive(Debug)]
    struct Short(FileSecrets);

    impl Secrets for Short {
        fn place(&self) -> String {
            self.0.place()
        }

        fn get(&self, name: &str) -> Result<Option<Secret>, Error> {
            self.0.get(name)
        }

        fn set(&self, name: &str, secret: &Secret) -> Result<(), Error> {
            if secret.reveal().len() > 8 { Err(error("too long".to_owned())) } else { self.0.set(name, secret) }
        }

        fn remove(&self, name: &str) -> Result<(), Error> {
            self.0.remove(name)
        }
    }

    #[test]
    fn a_secret_that_grew_too_long_for_the_keyring_is_not_found_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = secrets(folder.path(), |folder| Ok(Arc::new(Short(FileSecrets::new(Path::new(&folder).join("keyring.toml"))))));
        for text in ["short", "much longer", "short 2"] {
            secrets.set("key", &Secret::new(text)).unwrap();
            assert_eq!(secrets.get("key").unwrap().unwrap().reveal(), text);
        }
    }

    #[test]
    fn what_was_kept_while_the_keyring_was_away_is_the_newer_one_and_it_is_asked_again() {
        let folder = tempfile::tempdir().unwrap();
        secrets(folder.path(), working).set("key", &Secret::new("old")).unwrap();
        let away = secrets(folder.path(), absent);
        away.set("key", &Secret::new("new")).unwrap();
        let back = KeyringOrFile { probe: working, ..away };
        // It was away a moment ago.
        assert!(back.keyring().is_none() && back.get("key").unwrap().unwrap().reveal() == "new");
        *back.keyring.lock().unwrap() = Looked::NotYet;
        assert!(back.keyring().is_some());
        assert_eq!(back.get("key").unwrap().unwrap().reveal(), "new");
        back.set("key", &Secret::new("newest")).unwrap();
        assert_eq!(secrets(folder.path(), working).get("key").unwrap().unwrap().reveal(), "newest");
        assert_eq!(FileSecrets::new(folder.path().join("secrets.toml")).get("key").unwrap(), None);
    }

    #[test]
    fn a_keyring_that_does_not_answer_is_left_alone() {
        let waited = std::time::Instant::now();
        let error = within(Duration::from_millis(50), || std::thread::sleep(Duration::from_secs(5))).unwrap_err();
        assert!(error.to_string().contains("did not answer") && waited.elapsed() < Duration::from_secs(4), "{error}");
    }

    #[test]
    fn a_data_folder_of_its_own_has_secrets_of_its_own() {
        assert_eq!(KeyringOrFile::new(Path::new("/data"), true).service, "handrail");
        assert_eq!(KeyringOrFile::new(Path::new("/data"), false).service, "handrail:/data");
    }
}
