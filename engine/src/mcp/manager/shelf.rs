//! Taking servers from elsewhere: other programs, and the gallery.

use std::path::PathBuf;

use super::super::config::{Entry, free_name};
use super::super::consent::Origin;
use super::super::form::Answers;
use super::super::gallery::{self, Check, Made, Offer};
use super::super::import::{self, Found, Importable, Places};
use super::super::{Consent, Error, process};
use super::Manager;
use crate::tool::ServerId;

/// Other programs.
impl Manager {
    /// What other programs on this machine have, and which of it is here already.
    #[must_use]
    pub fn importable(&self, places: &Places) -> Vec<Found> {
        let mut all = import::found(places);
        let here: Vec<(ServerId, String)> = {
            let servers = self.servers_lock();
            servers.connections.iter().map(|(id, connection)| (id.clone(), connection.entry().config.transport.fingerprint())).collect()
        };
        for server in all.iter_mut().flat_map(|found| &mut found.servers) {
            let fingerprint = server.entry.config.transport.fingerprint();
            server.there = here.iter().find(|(_, other)| *other == fingerprint).map(|(id, _)| id.clone());
        }
        all
    }

    /// Takes servers over. One that is here already is left out; one whose name is taken gets a number behind it. `agreed`
    /// says that a person saw and agreed to the consent of each. Nothing is written where anything is wrong.
    pub fn import(&self, chosen: &[Importable], agreed: bool) -> Result<Vec<ServerId>, Error> {
        let mut taken: Vec<String> = self.servers_lock().connections.keys().map(|id| id.as_str().to_owned()).collect();
        let mut added = Vec::new();
        for server in chosen.iter().filter(|server| server.there.is_none()) {
            let name = free_name(&server.name, |name| taken.iter().any(|taken| taken == name));
            let entry = Entry::read(&name, &server.value).checked(&name)?;
            taken.push(name.clone());
            added.push((ServerId::new(name), server.value.clone(), entry, &server.consent));
        }
        let mut ids = Vec::new();
        // Each program is an origin of its own.
        while let Some((_, _, _, first)) = added.first() {
            let origin = first.origin.clone();
            let (same, others): (Vec<_>, Vec<_>) = added.into_iter().partition(|(_, _, _, consent)| consent.origin == origin);
            added = others;
            let shown: Vec<(ServerId, Consent)> =
                same.iter().filter(|_| agreed).map(|(id, _, _, consent)| (id.clone(), (*consent).clone())).collect();
            let servers = same.into_iter().map(|(id, value, entry, _)| (id, value, entry)).collect();
            ids.extend(self.add_read(servers, &origin, &shown)?);
        }
        Ok(ids)
    }
}

/// The gallery.
impl Manager {
    /// The gallery.
    #[must_use]
    pub fn gallery(&self) -> Vec<Offer> {
        gallery::offers()
    }

    fn offer(id: &str) -> Result<Offer, Error> {
        gallery::offers().into_iter().find(|offer| offer.id == id).ok_or_else(|| Error::Unknown(ServerId::new(id.to_owned())))
    }

    /// Whether what a server of the gallery needs is on this machine. Nothing of it is started.
    pub async fn gallery_check(&self, id: &str) -> Result<Check, Error> {
        let offer = Self::offer(id)?;
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for program in offer.programs() {
            match process::locate(program).await {
                Ok(path) => found.push((program.to_owned(), path.display().to_string())),
                Err(reason) => missing.push(reason),
            }
        }
        let asks = offer.fields().into_iter().filter(|field| field.required && field.default.is_none()).map(|field| field.key).collect();
        Ok(Check { id: offer.id, ready: missing.is_empty(), found, missing, asks })
    }

    /// What a server of the gallery would be called and start with these answers, before anything is written: for the
    /// consent sheet.
    pub fn preview_from_gallery(&self, id: &str, answers: &Answers) -> Result<(ServerId, Consent), Error> {
        let offer = Self::offer(id)?;
        let name = self.free_name_for(&offer);
        let Made { entry, .. } = offer.make(&name, answers)?;
        Ok((ServerId::new(name), Consent::of_server(&entry.config, Origin::Gallery)))
    }

    fn free_name_for(&self, offer: &Offer) -> String {
        let servers = self.servers_lock();
        free_name(&offer.id, |name| servers.connections.keys().any(|id| id.as_str() == name))
    }

    /// Adds a server of the gallery, switched off; its secrets are kept first.
    pub fn add_from_gallery(&self, id: &str, answers: &Answers) -> Result<ServerId, Error> {
        let offer = Self::offer(id)?;
        let name = self.free_name_for(&offer);
        let server = ServerId::new(name.clone());
        let Made { value, entry, secrets: kept } = offer.make(&name, answers)?;
        self.keep_secrets(&server, &kept)?;
        if let Err(error) = self.add_read(vec![(server.clone(), value, entry)], &Origin::Gallery, &[]) {
            self.forget_secrets(kept.into_iter().map(|(name, _)| name));
            return Err(error);
        }
        Ok(server)
    }

    /// Where a program is that a server needs.
    pub async fn locate(&self, program: &str) -> Result<PathBuf, String> {
        process::locate(program).await
    }
}
