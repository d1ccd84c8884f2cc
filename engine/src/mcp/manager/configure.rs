//! Changing what is configured, and agreeing to it.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::super::config::{Document, Entry, free_name, parse_entry, pasted};
use super::super::consent::{Origin, Policy};
use super::super::import::ours;
use super::super::{Consent, Error, State, config};
use super::file::stored;
use super::{Manager, STOP};
use crate::tool::{Definition, ServerId};

/// A server in short; reading it never touches the network.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Summary {
    /// Which server.
    pub server: ServerId,
    /// What it is, in the words of its configuration or of itself.
    pub description: String,
    /// What it is good for, in single words.
    pub capabilities: Vec<String>,
}

/// What a text would add.
#[derive(Clone, Debug, PartialEq)]
pub struct Shown {
    /// The servers, with what each would start.
    pub servers: Vec<(ServerId, Consent)>,
    /// Entries that cannot be used: which, what is wrong, and what to change.
    pub faults: Vec<config::Error>,
    /// All of that in words, with what else is not added as it stands.
    pub notes: Vec<String>,
}

/// The servers of a text, as read.
#[derive(Default)]
struct Read {
    good: Vec<(ServerId, Value, Entry)>,
    faults: Vec<config::Error>,
    /// Secrets that they ask for.
    needs: Vec<String>,
}

/// What holds for all servers.
impl Manager {
    /// What holds for all servers.
    #[must_use]
    pub fn settings(&self) -> config::Settings {
        self.servers_lock().settings.clone()
    }

    /// What is wrong in the file's `mcpSettings`; the defaults of these values are used.
    #[must_use]
    pub fn setting_errors(&self) -> Vec<config::Error> {
        self.servers_lock().setting_errors.clone()
    }

    /// Writes what holds for all servers into the file: the values that are others than now.
    pub fn set_settings(&self, settings: &config::Settings) -> Result<(), Error> {
        let before = self.settings();
        let mut probe = Document::default();
        probe.set_settings(settings, &before);
        if let Some(error) = probe.settings(&before).1.pop() {
            return Err(error.into());
        }
        self.change(|document| document.set_settings(settings, &before))
    }

    /// What is used where the file does not say, from now on.
    pub fn set_defaults(&self, defaults: config::Settings) {
        let settings = self.document().map(|document| document.settings(&defaults));
        let mut servers = self.servers_lock();
        // A file that cannot be used keeps what it said last.
        if let Ok((settings, errors)) = settings {
            (servers.settings, servers.setting_errors) = (settings, errors);
        } else if self.inner.path.is_none() || servers.settings == servers.defaults {
            servers.settings = defaults.clone();
        }
        servers.defaults = defaults;
        for connection in servers.connections.values() {
            connection.set_settings(servers.settings.clone());
        }
    }
}

/// Adding, and agreeing.
impl Manager {
    /// What a text (whole file or fragment) would add, before anything is written: for the consent sheet. An entry that cannot
    /// be used costs only itself; where none can, the first one's fault is the error.
    pub fn look(&self, text: &str, origin: &Origin) -> Result<Shown, Error> {
        let read = self.read(text, origin)?;
        let mut notes: Vec<String> = read.faults.iter().map(|fault| format!("left out: {fault}")).collect();
        for (id, _, entry) in &read.good {
            notes.extend(entry.notes.iter().map(|note| format!("server '{id}': {note}")));
        }
        notes
            .extend(read.needs.iter().map(|secret| format!("it needs a value that is asked for once: handrail-cli secret set '{secret}'")));
        let shown = |(id, _, entry): (ServerId, Value, Entry)| (id, Consent::of_server(&entry.config, origin.clone()));
        Ok(Shown { servers: read.good.into_iter().map(shown).collect(), faults: read.faults, notes })
    }

    /// The servers of [`Manager::look`].
    pub fn preview(&self, text: &str, origin: &Origin) -> Result<Vec<(ServerId, Consent)>, Error> {
        Ok(self.look(text, origin)?.servers)
    }

    /// [`Manager::add`] of a text that somebody pasted, without having seen what it starts.
    pub fn paste(&self, text: &str) -> Result<Vec<ServerId>, Error> {
        self.add(text, &Origin::Pasted, &[])
    }

    /// Adds the servers of a text (whole file or fragment) to the configuration file and starts the active ones that a
    /// person agreed to; `shown` is what the sheet showed, from [`Manager::preview`]. Servers that are already there
    /// ([`Manager::is_there`]) are replaced, except by what comes from a link: it gets a free name. An entry that cannot be
    /// used is left out ([`Manager::look`] names it); where none can, nothing is written.
    pub fn add(&self, text: &str, origin: &Origin, shown: &[(ServerId, Consent)]) -> Result<Vec<ServerId>, Error> {
        self.add_read(self.read(text, origin)?.good, origin, shown)
    }

    /// Whether a server of this name is configured: adding one then replaces it.
    #[must_use]
    pub fn is_there(&self, id: &ServerId) -> bool {
        self.servers_lock().connections.contains_key(id)
    }

    /// The servers of a text, each checked.
    fn read(&self, text: &str, origin: &Origin) -> Result<Read, Error> {
        let found = pasted(text)?;
        let mut taken: BTreeSet<String> = self.servers_lock().connections.keys().map(|id| id.as_str().to_owned()).collect();
        let mut read = Read::default();
        for (name, value) in found {
            // Whoever wrote the link chose the name; it must not choose whose entry goes.
            let name = if *origin == Origin::Link { free_name(&name, |name| taken.contains(name)) } else { name };
            let _ = taken.insert(name.clone());
            let mut needs = Vec::new();
            let value = ours(&name, &value, &mut needs);
            match Entry::read(&name, &value).checked(&name) {
                Ok(entry) => {
                    read.needs.append(&mut needs);
                    read.good.push((ServerId::new(name), value, entry));
                }
                Err(fault) => read.faults.push(fault),
            }
        }
        if read.good.is_empty() && !read.faults.is_empty() {
            return Err(read.faults.swap_remove(0).into());
        }
        Ok(read)
    }

    pub(super) fn add_read(
        &self,
        servers: Vec<(ServerId, Value, Entry)>,
        origin: &Origin,
        shown: &[(ServerId, Consent)],
    ) -> Result<Vec<ServerId>, Error> {
        let put = |document: &mut Document| {
            for (id, value, _) in &servers {
                document.put_over(id.as_str(), value.clone());
            }
        };
        self.change_and(put, || {
            for (id, _, entry) in &servers {
                self.set_origin(id, origin)?;
                let hash = Consent::of_server(&entry.config, origin.clone()).hash;
                if shown.iter().any(|(shown, consent)| shown == id && consent.hash == hash) {
                    self.record(id, &hash)?;
                }
            }
            Ok(())
        })?;
        let ids: Vec<ServerId> = servers.into_iter().map(|(id, ..)| id).collect();
        for id in &ids {
            if !self.inner.by_hand && self.connection(id).is_ok_and(|connection| connection.entry().config.active) {
                self.start(id)?;
            }
        }
        Ok(ids)
    }

    /// Agrees to what was shown, and starts the server where it is active. Nothing happens where the server has become
    /// something else meanwhile.
    pub fn agree(&self, server: &ServerId, shown: &Consent) -> Result<(), Error> {
        let connection = self.connection(server)?;
        let entry = connection.entry();
        let asked = connection.view().state == State::NeedsConsent;
        if let Some(needed) = &entry.consent {
            let changed = || Error::Request {
                server: server.clone(),
                reason: "its command or address changed since it was shown; look at it again".to_owned(),
            };
            if needed.hash != shown.hash {
                return Err(changed());
            }
            // Recorded first: what runs was agreed to, whatever happens in between.
            self.record(server, &shown.hash)?;
            if !connection.agreed(&shown.hash) {
                return Err(changed());
            }
        }
        if (asked || entry.config.active) && entry.problem.is_none() { self.start(server) } else { Ok(()) }
    }

    /// Starts the servers that another process wrote down as agreed to, where they are what was agreed to there.
    pub(super) fn take_over_consent(&self) {
        let waiting: Vec<(ServerId, String)> = {
            let servers = self.servers_lock();
            let waits =
                servers.connections.iter().filter_map(|(id, connection)| Some((id.clone(), connection.entry().consent.clone()?.hash)));
            waits.collect()
        };
        for (id, hash) in waiting {
            let agreed = self.inner.store.server_consent(&id).is_ok_and(|agreed| agreed.as_ref() == Some(&hash));
            let Ok(connection) = self.connection(&id) else { continue };
            if !agreed || !connection.agreed(&hash) {
                continue;
            }
            let entry = connection.entry();
            let runs = !self.inner.by_hand && self.servers_lock().started && entry.config.active && entry.problem.is_none();
            if runs && let Err(error) = self.start(&id) {
                tracing::warn!(%error, server = %id, "a server that was agreed to elsewhere could not be started");
            }
        }
    }

    fn record(&self, server: &ServerId, hash: &str) -> Result<(), Error> {
        if self.inner.consent == Policy::Trust {
            return Ok(());
        }
        self.inner.store.set_server_consent(server, hash).map_err(|error| stored(server, &error))
    }
}

/// One server's entry.
impl Manager {
    /// A server's entry as it stands in the file, as JSON text.
    pub fn entry_text(&self, server: &ServerId) -> Result<String, Error> {
        let document = self.document()?;
        let entry = document.entry(server.as_str()).ok_or_else(|| Error::Unknown(server.clone()))?;
        serde_json::to_string_pretty(entry).map_err(|error| Error::Request { server: server.clone(), reason: error.to_string() })
    }

    /// Replaces a server's entry by another JSON text. Nothing is written where anything is wrong. Another command or
    /// address is asked about.
    pub fn set_entry_text(&self, server: &ServerId, text: &str) -> Result<(), Error> {
        let before = self.connection(server)?.entry();
        let value = parse_entry(text)?;
        let entry = Entry::read(server.as_str(), &value).checked(server.as_str())?;
        let after = || {
            if entry.config.transport == before.config.transport { Ok(()) } else { self.set_origin(server, &Origin::Pasted) }
        };
        self.change_and(|document| document.put(server.as_str(), value), after)
    }

    /// Switches one tool of a server on or off.
    pub fn set_tool_enabled(&self, server: &ServerId, tool: &str, enabled: bool) -> Result<(), Error> {
        let _ = self.connection(server)?;
        self.change(|document| document.set_tool_enabled(server.as_str(), tool, enabled))
    }

    /// Switches whether a server starts with the app, and starts or stops it now.
    pub async fn set_active(&self, server: &ServerId, active: bool) -> Result<(), Error> {
        let connection = self.connection(server)?;
        self.change(|document| document.set_active(server.as_str(), active))?;
        if active && !self.inner.by_hand {
            self.start(server)?;
        } else if !active {
            connection.stop(STOP).await;
        }
        Ok(())
    }

    /// Stops a server and takes it out of the configuration file, with all that came with it in the data folder.
    pub async fn remove(&self, server: &ServerId) -> Result<(), Error> {
        let connection = self.connection(server)?;
        let (origin, secrets) = (self.origin(server), self.secrets_of(server));
        // The file first: where it cannot be changed, the server stays as it is.
        self.change(|document| document.remove(server.as_str()))?;
        connection.stop(STOP).await;
        self.forget_consent(server);
        self.forget_sign_in(server, connection.account().clone()).await;
        let manager = self.clone();
        // A keyring asks another process, and a bundle may have thousands of files.
        let tidying = tokio::task::spawn_blocking(move || {
            manager.forget_secrets(secrets.into_iter());
            if let Origin::Bundle(bundle) = origin {
                manager.discard_bundle(&bundle);
            }
        });
        tidying
            .await
            .map_err(|error| Error::Request { server: server.clone(), reason: format!("what it left could not be tidied up: {error}") })
    }
}

/// Lists.
impl Manager {
    /// The tools of the named servers, each once; none for no names.
    #[must_use]
    pub fn tools_of(&self, servers: &[ServerId]) -> Vec<Arc<Definition>> {
        let wanted: BTreeSet<&ServerId> = servers.iter().collect();
        let tools = wanted.into_iter().filter_map(|id| self.connection(id).ok()).flat_map(|connection| {
            let off = connection.entry().config.disabled_tools.clone();
            let (_, tools) = connection.usable_tools();
            tools.into_iter().filter(move |tool| !off.contains(&tool.id.name))
        });
        tools.collect()
    }

    /// All servers in short.
    #[must_use]
    pub fn summaries(&self) -> Vec<Summary> {
        let summary = |view: super::ServerView| {
            let said = view.instructions.as_deref().and_then(|text| text.lines().map(str::trim).find(|line| !line.is_empty()));
            let description = view.config.description.as_deref().map(str::trim).filter(|text| !text.is_empty()).or(said);
            Summary {
                description: description.unwrap_or_default().to_owned(),
                capabilities: view.config.capabilities.clone(),
                server: view.id,
            }
        };
        self.servers().into_iter().map(summary).collect()
    }
}
