//! The configuration file: read, applied, changed, and given back from its backup.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::runtime::Handle;

use super::super::config::{self, Document, Entry, ServerConfig, alone, beside, keep_beside, read_text, replaceable, write_text};
use super::super::connection::Connection;
use super::super::consent::{Origin, Policy};
use super::super::{Consent, Error, Event};
use super::{Manager, STOP, Servers};
use crate::tool::ServerId;

/// What was read last, so that a write of our own, or one that changed nothing, is told from a change.
#[derive(Default)]
pub(super) struct Seen {
    /// The text; none where there was no file.
    text: Option<Option<String>>,
}

/// The last configuration that could be used, kept beside the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Backup {
    /// Where it is.
    pub path: PathBuf,
    /// When it was kept, where the file system tells.
    pub saved: Option<SystemTime>,
    /// The servers in it.
    pub servers: Vec<ServerId>,
}

impl Manager {
    fn file_lock(&self) -> MutexGuard<'_, Seen> {
        self.inner.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self) -> Result<&Path, config::Error> {
        self.inner.path.as_deref().ok_or_else(|| config::Error::File {
            path: PathBuf::from("mcp_config.json"),
            reason: "Handrail was started without MCP servers".to_owned(),
        })
    }

    /// The file as it is now.
    pub(super) fn document(&self) -> Result<Document, Error> {
        let _file = self.file_lock();
        let path = self.path()?;
        Ok(self.usable(path, read_text(path)?.as_deref())?)
    }

    /// Changes the file as it is now, and takes what it then says.
    pub(super) fn change(&self, change: impl FnOnce(&mut Document)) -> Result<(), Error> {
        self.change_and(change, || Ok(()))
    }

    /// The same; `after` runs between writing the file and using it.
    pub(super) fn change_and(&self, change: impl FnOnce(&mut Document), after: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let path = self.path()?;
        let mut seen = self.file_lock();
        if self.servers_lock().closing {
            return Err(config::Error::File { path: path.to_owned(), reason: "Handrail is shutting down".to_owned() }.into());
        }
        let _alone = alone(path)?;
        let loaded = read_text(path).and_then(|text| self.usable(path, text.as_deref()));
        let mut document = match loaded {
            Ok(document) => document,
            Err(error) => {
                self.reject(error.clone());
                return Err(error.into());
            }
        };
        let had_servers = has_servers(&document);
        change(&mut document);
        // A disk that takes nothing is no fault of what stands in the file.
        document.save(path)?;
        seen.text = Some(document.text().map(str::to_owned));
        let recorded = after();
        // Whoever takes the last one out here wants none.
        if had_servers || has_servers(&document) {
            Self::keep_backup(path, &document);
        }
        self.apply(&document);
        recorded
    }

    /// What a text of the file says. One that is blank or gone is nobody's wish to have no servers, where there were some:
    /// a full disk, a sync or an editor did that.
    fn usable(&self, path: &Path, text: Option<&str>) -> Result<Document, config::Error> {
        let what = match text {
            Some(text) if is_blank(text) => "empty",
            Some(text) => return Document::parse(text, &path.display().to_string()),
            None => "gone",
        };
        let known = !self.servers_lock().connections.is_empty() || kept(path).is_some_and(|(_, document)| has_servers(&document));
        if known {
            let reason =
                format!("it is {what}, though there were servers in it; where none are wanted, write {{\"mcpServers\": {{}}}} into it");
            return Err(config::Error::File { path: path.to_owned(), reason });
        }
        text.map_or_else(|| Ok(Document::default()), |text| Document::parse(text, &path.display().to_string()))
    }

    /// Reads the file, and takes what it says where that is news.
    pub(super) fn reload(&self) {
        let Ok(path) = self.path() else { return };
        let mut seen = self.file_lock();
        if self.servers_lock().closing {
            return;
        }
        let text = match read_text(path) {
            Ok(text) => text,
            Err(error) => {
                seen.text = None;
                return self.reject(error);
            }
        };
        if seen.text.as_ref() == Some(&text) {
            return;
        }
        let read = self.usable(path, text.as_deref());
        seen.text = Some(text);
        match read {
            Ok(document) => {
                // Whoever only looks at a file that may be somebody else's leaves nothing beside it.
                if self.inner.consent == Policy::Ask && has_servers(&document) {
                    Self::keep_backup(path, &document);
                }
                self.apply(&document);
            }
            Err(error) => self.reject(error),
        }
    }

    /// The last good configuration keeps running.
    fn reject(&self, error: config::Error) {
        let reason = error.to_string();
        let news = {
            let mut servers = self.servers_lock();
            let before = servers.config_error.replace(error);
            before.is_none_or(|before| before.to_string() != reason)
        };
        if news {
            let _ = self.inner.events.send(Event::ConfigRejected { reason });
        }
    }

    fn keep_backup(path: &Path, document: &Document) {
        let Some(text) = document.text().filter(|text| !text.trim().is_empty()) else { return };
        let backup = beside(path, "bak");
        let kept = match read_text(&backup) {
            Ok(kept) if kept.as_deref() == Some(text) => return,
            _ => write_text(&backup, text),
        };
        if let Err(error) = kept {
            tracing::warn!(%error, "no backup of the server configuration could be kept");
        }
    }

    /// The last configuration that could be used, where the file holds something else.
    #[must_use]
    pub fn config_backup(&self) -> Option<Backup> {
        let path = self.path().ok()?;
        let (text, document) = kept(path)?;
        let backup = beside(path, "bak");
        if read_text(path).is_ok_and(|now| now.as_deref() == Some(&*text)) {
            return None;
        }
        let saved = std::fs::metadata(&backup).and_then(|found| found.modified()).ok();
        Some(Backup { path: backup, saved, servers: document.servers().map(|(name, _)| ServerId::new(name.clone())).collect() })
    }

    /// Writes the backup back into the file; what the file held is kept beside it, with `.broken` at the end of its name.
    /// Gives where that is.
    pub fn restore_backup(&self) -> Result<Option<PathBuf>, Error> {
        let path = self.path()?;
        let backup = beside(path, "bak");
        let kept = {
            let _file = self.file_lock();
            let target = replaceable(path)?;
            let _alone = alone(path)?;
            let text =
                read_text(&backup)?.ok_or_else(|| config::Error::File { path: backup.clone(), reason: "there is no backup".to_owned() })?;
            let _ = Document::parse(&text, &backup.display().to_string())?;
            let kept = match read_text(path) {
                Ok(Some(broken)) if broken != text => Some(keep_beside(path, "broken", &broken)?),
                Ok(_) => None,
                // What is no text cannot be read, and is moved as it is.
                Err(_) => {
                    let aside = beside(path, "broken");
                    std::fs::rename(path, &aside)
                        .map_err(|error| config::Error::File { path: path.to_owned(), reason: error.to_string() })?;
                    Some(aside)
                }
            };
            write_text(&target, &text)?;
            kept
        };
        self.reload();
        Ok(kept)
    }

    /// An entry of the file with what is needed before it is started.
    fn entry(&self, id: &ServerId, value: &serde_json::Value) -> Entry {
        let mut entry = Entry::read(id.as_str(), value);
        entry.consent = self.needed(id, &entry.config);
        entry
    }

    /// What must be agreed to before this server is started; none where it was, or where nobody is asked.
    fn needed(&self, id: &ServerId, config: &ServerConfig) -> Option<Consent> {
        if self.inner.consent == Policy::Trust {
            return None;
        }
        let consent = Consent::of_server(config, self.origin(id));
        let agreed = self.inner.store.server_consent(id).unwrap_or_else(|error| {
            tracing::error!(%error, server = %id, "what was agreed to cannot be read; it is asked again");
            None
        });
        (agreed.as_ref() != Some(&consent.hash)).then_some(consent)
    }

    /// Where a server's entry came from.
    pub(super) fn origin(&self, id: &ServerId) -> Origin {
        let stored = self.inner.store.server_origin(id).unwrap_or_default();
        stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(Origin::File)
    }

    pub(super) fn set_origin(&self, id: &ServerId, origin: &Origin) -> Result<(), Error> {
        let text = serde_json::to_string(origin).unwrap_or_default();
        self.inner.store.set_server_origin(id, &text).map_err(|error| stored(id, &error))
    }

    /// Brings the connections in line with the file: new ones are made, changed ones take the change, and those that
    /// are gone are stopped.
    fn apply(&self, document: &Document) {
        let entries: BTreeMap<ServerId, Entry> = document
            .servers()
            .map(|(name, value)| {
                let id = ServerId::new(name.clone());
                let entry = self.entry(&id, value);
                (id, entry)
            })
            .collect();
        let mut servers = self.servers_lock();
        let (settings, errors) = document.settings(&servers.defaults);
        self.inner.host.set_settings(settings.clone());
        let words = |errors: &[config::Error]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
        let wrong = words(&errors);
        if servers.config_error.take().is_some() || servers.settings != settings || words(&servers.setting_errors) != wrong {
            let _ = self.inner.events.send(Event::Configured { settings: Box::new(settings.clone()), wrong });
        }
        (servers.settings, servers.setting_errors) = (settings, errors);
        let Some(runtime) = self.inner.runtime.clone() else {
            if !entries.is_empty() {
                tracing::error!("the MCP servers need a tokio runtime; none of them can be used");
            }
            return;
        };
        let known = std::mem::take(&mut servers.connections);
        let (kept, gone): (BTreeMap<_, _>, BTreeMap<_, _>) = known.into_iter().partition(|(id, _)| entries.contains_key(id));
        servers.connections = kept;
        for (id, entry) in entries {
            self.place(&mut servers, id, entry, &runtime);
        }
        for connection in servers.connections.values() {
            connection.set_settings(servers.settings.clone());
        }
        drop(servers);
        for (id, connection) in gone {
            self.inner.store.set_server_transport(&id, None);
            self.forget_approvals(&id);
            if self.inner.consent == Policy::Ask {
                self.forget_consent(&id);
            }
            connection.removed();
            if self.inner.consent == Policy::Ask {
                let (manager, account) = (self.clone(), connection.account().clone());
                let _forgetting = runtime.spawn(async move { manager.forget_sign_in(&id, account).await });
            }
            let _stopping = runtime.spawn(async move { connection.stop(STOP).await });
        }
    }

    fn place(&self, servers: &mut Servers, id: ServerId, entry: Entry, runtime: &Handle) {
        // Before anything runs with the new entry: from here on no rule, waiting call or permit of another command holds.
        self.inner.store.set_server_transport(&id, Some(entry.config.transport.fingerprint()));
        let (active, runs) = (entry.config.active, entry.config.active && entry.problem.is_none());
        if let Some(connection) = servers.connections.get(&id) {
            let before = connection.entry();
            if *before != entry {
                // Words about a server or its switch are no reason to restart it; what it is, and how it is spoken to, is one.
                let spoken_to = |config: &ServerConfig| (config.transport.clone(), config.era, config.port, config.oauth.clone());
                let same = spoken_to(&before.config) == spoken_to(&entry.config)
                    && before.problem == entry.problem
                    && before.consent == entry.consent;
                if same {
                    connection.describe(entry);
                } else {
                    if before.config.transport != entry.config.transport || before.problem != entry.problem {
                        self.forget_approvals(&id);
                    }
                    connection.configure(entry);
                }
            }
            if servers.started && before.config.active != active {
                let connection = connection.clone();
                if runs && !servers.closing {
                    connection.start();
                } else if !runs {
                    let _stopping = runtime.spawn(async move { connection.stop(STOP).await });
                }
            }
            return;
        }
        let (events, store, instance) = (self.inner.events.clone(), self.inner.store.clone(), self.inner.instance.clone());
        let connection = Connection::new(id.clone(), entry, events, store, instance, self.inner.host.clone(), runtime);
        connection.set_settings(servers.settings.clone());
        let _ = self.inner.events.send(Event::Changed(Box::new(connection.view())));
        if servers.started && runs && !servers.closing {
            connection.start();
        }
        let _ = servers.connections.insert(id, connection);
    }

    /// What was allowed for a server was allowed for its command or address, not for its name. Tidying only: a rule that
    /// stays holds for nothing else either.
    fn forget_approvals(&self, server: &ServerId) {
        if let Err(error) = self.inner.store.forget_server_approvals(server) {
            tracing::error!(%error, %server, "the approvals of a changed server could not be taken back");
        }
    }

    /// A server that comes back under an old name is asked about again.
    pub(super) fn forget_consent(&self, server: &ServerId) {
        if let Err(error) = self.inner.store.forget_server_consent(server) {
            tracing::error!(%error, %server, "what was agreed to for a removed server could not be taken back");
        }
    }

    /// Forgets what was agreed to for servers that went while nobody watched.
    pub(super) fn forget_strangers(&self) {
        // A file that is not there, or says nothing, says nothing about what was agreed to either.
        let says_nothing = self.file_lock().text.as_ref().is_none_or(|text| text.as_deref().is_none_or(is_blank));
        if self.inner.consent != Policy::Ask || says_nothing || self.servers_lock().config_error.is_some() {
            return;
        }
        match self.inner.store.servers_agreed() {
            Ok(agreed) => {
                for id in agreed.into_iter().filter(|id| !self.servers_lock().connections.contains_key(id)) {
                    self.forget_consent(&id);
                }
            }
            Err(error) => tracing::error!(%error, "what was agreed to cannot be read"),
        }
        let signed_in = self.inner.store.servers_signed_in().unwrap_or_default();
        for id in signed_in.into_iter().filter(|id| !self.servers_lock().connections.contains_key(id)) {
            let (manager, account) = (self.clone(), self.account(&id));
            let forgetting = async move { manager.forget_sign_in(&id, account).await };
            let _forgetting = self.inner.runtime.as_ref().map(|runtime| runtime.spawn(forgetting));
        }
    }
}

fn has_servers(document: &Document) -> bool {
    document.servers().next().is_some()
}

fn is_blank(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim().is_empty()
}

/// The backup beside the file, where there is one that can be used.
fn kept(path: &Path) -> Option<(String, Document)> {
    let backup = beside(path, "bak");
    let text = read_text(&backup).ok()??;
    let document = Document::parse(&text, &backup.display().to_string()).ok()?;
    Some((text, document))
}

/// A database error of a server, in words.
pub(super) fn stored(server: &ServerId, error: &crate::store::Error) -> Error {
    Error::Request { server: server.clone(), reason: error.to_string() }
}
