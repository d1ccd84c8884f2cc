//! Bundles: previewed, unpacked into the data folder, and taken away with their server.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError, mpsc};

use super::super::bundle::{self, Bundle, Made};
use super::super::config::{self, free_name};
use super::super::consent::Origin;
use super::super::form::{self, Answers};
use super::super::{Consent, Error, State};
use super::file::stored;
use super::{AFTER_BUDGET, Manager, STOP};
use crate::secret::Secret;
use crate::tool::ServerId;

impl Manager {
    fn bundles(&self) -> PathBuf {
        let folder = self.inner.data.join("bundles");
        // Its path becomes part of commands, which are started elsewhere.
        std::path::absolute(&folder).unwrap_or(folder)
    }

    /// What a bundle would add with these answers, before anything is unpacked or written: for the consent sheet. From then
    /// on only this very file is installed from its place.
    pub fn preview_bundle(&self, bundle: &Bundle, answers: &Answers) -> Result<(ServerId, Consent), Error> {
        let id = self.bundle_id(bundle);
        let name = self.folder_of(bundle, &id);
        let made = bundle.make(id.as_str(), &self.bundles().join(&name), answers)?;
        let _ = self.shown_bundles().insert(bundle.path().to_owned(), bundle.digest().to_owned());
        Ok((id, Consent::of_server(&made.entry.config, Origin::Bundle(name))))
    }

    fn shown_bundles(&self) -> MutexGuard<'_, BTreeMap<PathBuf, String>> {
        self.inner.shown_bundles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Unpacks a bundle, keeps its secrets, and adds its server (this blocks, and must not hold up the only thread of the
    /// runtime: a server that runs is stopped first); it is started where `shown` is what it now is and a person agreed to
    /// it. A bundle of the same name and author that is there is replaced. All of it happens or nothing.
    pub fn install_bundle(&self, bundle: &mut Bundle, answers: &Answers, shown: Option<&Consent>) -> Result<ServerId, Error> {
        let path = bundle.path().to_owned();
        let seen = self.shown_bundles().get(&path).cloned();
        if seen.is_some_and(|seen| seen != bundle.digest()) {
            let reason = "it was changed since it was shown; open it again and look at it".to_owned();
            return Err(config::Error::File { path, reason }.into());
        }
        let id = self.bundle_id(bundle);
        let (bundles, name) = (self.bundles(), self.folder_of(bundle, &id));
        let made = bundle.make(id.as_str(), &bundles.join(&name), answers)?;
        let before = Before::of(self, &id, &made)?;
        let ran = self.stop_now(&id)?;
        let installed = self.put_in_place(bundle, &id, &name, made, shown);
        match installed {
            Ok(()) => {
                let _ = self.shown_bundles().remove(&path);
                if let Origin::Bundle(old) = &before.origin
                    && *old != name
                {
                    self.discard_bundle(old);
                }
                Ok(id)
            }
            Err(error) => {
                before.put_back(self, &id);
                if ran && let Err(error) = self.start(&id) {
                    tracing::warn!(%error, "the server of a bundle that could not be replaced was not started again");
                }
                Err(error)
            }
        }
    }

    fn put_in_place(&self, bundle: &mut Bundle, id: &ServerId, name: &str, made: Made, shown: Option<&Consent>) -> Result<(), Error> {
        let bundles = self.bundles();
        let unpacked = Unpacked::new(&bundles, &bundles.join(name), |place| bundle.unpack(place))?;
        let Made { value, entry, secrets } = made;
        self.keep_secrets(id, &secrets)?;
        // Another content may be behind the same command: what was agreed to for the old one says nothing about it.
        self.inner.store.forget_server_consent(id).map_err(|error| stored(id, &error))?;
        let shown: Vec<(ServerId, Consent)> = shown.map(|consent| (id.clone(), consent.clone())).into_iter().collect();
        let _ = self.add_read(vec![(id.clone(), value, entry)], &Origin::Bundle(name.to_owned()), &shown)?;
        unpacked.keep();
        Ok(())
    }

    /// Stops a server before its files go, and says whether it ran.
    fn stop_now(&self, id: &ServerId) -> Result<bool, Error> {
        let (Ok(connection), Some(runtime)) = (self.connection(id), &self.inner.runtime) else { return Ok(false) };
        if !matches!(
            connection.view().state,
            State::Starting { .. } | State::Connected | State::Slow { .. } | State::Reconnecting { .. } | State::NeedsSignIn { .. }
        ) {
            return Ok(false);
        }
        let (done, stopped) = mpsc::channel();
        let _stopping = runtime.spawn(async move {
            connection.stop(STOP).await;
            let _ = done.send(());
        });
        let wrong = |_| Error::Request { server: id.clone(), reason: "it still runs and could not be stopped".to_owned() };
        stopped.recv_timeout(STOP + AFTER_BUDGET + STOP).map_err(wrong)?;
        Ok(true)
    }

    /// The id of a bundle's server: that of the same bundle's earlier version, else a free one. A bundle is the same where
    /// its name and its author are.
    fn bundle_id(&self, bundle: &Bundle) -> ServerId {
        let ids: Vec<ServerId> = self.servers_lock().connections.keys().cloned().collect();
        let same = |id: &&ServerId| match self.origin(id) {
            Origin::Bundle(folder) => bundle::identity_in(&self.bundles().join(folder))
                .is_some_and(|(name, author)| name == bundle.name() && author == bundle.author()),
            Origin::File | Origin::Pasted | Origin::Imported(_) | Origin::Gallery | Origin::Link => false,
        };
        ids.iter()
            .find(same)
            .cloned()
            .unwrap_or_else(|| ServerId::new(free_name(bundle.name(), |name| ids.iter().any(|id| id.as_str() == name))))
    }

    /// The folder of a bundle's server, which is that of no other server.
    fn folder_of(&self, bundle: &Bundle, id: &ServerId) -> String {
        let ids: Vec<ServerId> = self.servers_lock().connections.keys().cloned().collect();
        free_name(&bundle.folder(), |name| ids.iter().any(|other| other != id && self.origin(other) == Origin::Bundle(name.to_owned())))
    }

    /// Deletes what a bundle left in the data folder.
    pub(super) fn discard_bundle(&self, name: &str) {
        // The name comes from the database; it must still be one folder of ours.
        if name.is_empty() || Path::new(name).components().count() != 1 || name.starts_with('.') {
            return;
        }
        let used = |connection: &super::Connection| self.origin(&connection.view().id) == Origin::Bundle(name.to_owned());
        let connections: Vec<_> = self.servers_lock().connections.values().cloned().collect();
        if connections.iter().any(used) {
            return;
        }
        let folder = self.bundles().join(name);
        if let Err(error) = fs::remove_dir_all(&folder) {
            tracing::warn!(%error, folder = %folder.display(), "a bundle could not be deleted");
        }
    }

    /// The secrets that belong to this server alone, because it was given them when it was added: those that its entry
    /// names under its own name.
    pub(super) fn secrets_of(&self, server: &ServerId) -> Vec<String> {
        let Ok(text) = self.entry_text(server) else { return Vec::new() };
        let start = format!("${{secret:{}.", form::secret_start(server.as_str()));
        let mut names = Vec::new();
        for (at, _) in text.match_indices(&start) {
            let inside = &text[at + "${secret:".len()..];
            if let Some(end) = inside.find('}') {
                names.push(inside[..end].to_owned());
            }
        }
        names
    }

    /// Keeps all of them or none.
    pub(super) fn keep_secrets(&self, server: &ServerId, secrets: &[(String, Secret)]) -> Result<(), Error> {
        for (number, (name, secret)) in secrets.iter().enumerate() {
            if let Err(error) = self.inner.host.secrets().set(name, secret) {
                self.forget_secrets(secrets[..number].iter().map(|(name, _)| name.clone()));
                return Err(Error::Request { server: server.clone(), reason: error.to_string() });
            }
        }
        Ok(())
    }

    pub(super) fn forget_secrets(&self, names: impl Iterator<Item = String>) {
        for name in names {
            if let Err(error) = self.inner.host.secrets().remove(&name) {
                tracing::warn!(%error, name, "a secret could not be forgotten");
            }
        }
    }
}

/// What was kept for a server before it is replaced.
struct Before {
    origin: Origin,
    stored: Option<String>,
    consent: Option<String>,
    secrets: Vec<(String, Option<Secret>)>,
}

impl Before {
    fn of(manager: &Manager, id: &ServerId, made: &Made) -> Result<Self, Error> {
        let wrong = |error: crate::secret::Error| Error::Request { server: id.clone(), reason: error.to_string() };
        let secret = |(name, _): &(String, Secret)| Ok((name.clone(), manager.inner.host.secrets().get(name).map_err(wrong)?));
        Ok(Self {
            origin: manager.origin(id),
            stored: manager.inner.store.server_origin(id).map_err(|error| stored(id, &error))?,
            consent: manager.inner.store.server_consent(id).map_err(|error| stored(id, &error))?,
            secrets: made.secrets.iter().map(secret).collect::<Result<_, Error>>()?,
        })
    }

    fn put_back(&self, manager: &Manager, id: &ServerId) {
        for (name, secret) in &self.secrets {
            let put = match secret {
                Some(secret) => manager.inner.host.secrets().set(name, secret),
                None => manager.inner.host.secrets().remove(name),
            };
            if let Err(error) = put {
                tracing::error!(%error, name, "the secret that was there before could not be put back");
            }
        }
        let store = &manager.inner.store;
        let put = store
            .forget_server_consent(id)
            .and_then(|()| self.stored.as_ref().map_or(Ok(()), |origin| store.set_server_origin(id, origin)))
            .and_then(|()| self.consent.as_ref().map_or(Ok(()), |hash| store.set_server_consent(id, hash)));
        if let Err(error) = put {
            tracing::error!(%error, server = %id, "what was agreed to before could not be put back");
        }
    }
}

/// A bundle in its place, which is taken back unless it is kept; what was there before then comes back.
struct Unpacked {
    folder: PathBuf,
    /// What was there before.
    before: Option<tempfile::TempDir>,
    kept: bool,
}

impl Unpacked {
    fn new(bundles: &Path, folder: &Path, unpack: impl FnOnce(&Path) -> Result<(), config::Error>) -> Result<Self, Error> {
        let wrong = |error: std::io::Error| config::Error::File { path: folder.to_owned(), reason: error.to_string() };
        fs::create_dir_all(bundles).map_err(wrong)?;
        // In the same folder, so that each step below is one rename.
        let fresh = tempfile::Builder::new().prefix(".new-").tempdir_in(bundles).map_err(wrong)?;
        let inside = fresh.path().join("bundle");
        fs::create_dir(&inside).map_err(wrong)?;
        unpack(&inside)?;
        let before = if folder.exists() {
            let aside = tempfile::Builder::new().prefix(".old-").tempdir_in(bundles).map_err(wrong)?;
            fs::rename(folder, aside.path().join("bundle")).map_err(wrong)?;
            Some(aside)
        } else {
            None
        };
        let placed = Self { folder: folder.to_owned(), before, kept: false };
        fs::rename(&inside, folder).map_err(wrong)?;
        Ok(placed)
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let _ = fs::remove_dir_all(&self.folder);
        if let Some(before) = &self.before
            && let Err(error) = fs::rename(before.path().join("bundle"), &self.folder)
        {
            tracing::error!(%error, folder = %self.folder.display(), "the bundle that was there before could not be put back");
        }
    }
}
