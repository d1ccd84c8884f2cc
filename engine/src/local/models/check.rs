//! What is known of a model's files: by presence and size at any time, by checksum when asked.

use std::path::Path;

use super::{Inner, ModelState, ModelView};
use crate::local::catalogue::Offer;
use crate::local::download::record::Record;
use crate::local::download::{self, Fetched, location, whole};

/// What is said of files that no fetch brought.
const FOUND: &str = "files that were already there";

/// Where a model stands by presence and size of its files and by what the last check wrote down.
pub(super) fn on_disk(offer: &Offer, folder: &Path) -> ModelState {
    if offer.files.iter().all(|file| whole(folder, file)) {
        let record = Record::read(folder);
        return match record {
            Some(Record { broken: Some(reason), .. }) => ModelState::Broken { reason },
            Some(record) => ModelState::Ready { path: location(offer, folder), source: record.source },
            None => ModelState::Ready { path: location(offer, folder), source: FOUND.to_owned() },
        };
    }
    for file in &offer.files {
        let path = folder.join(&file.name);
        if let Some(found) = std::fs::metadata(&path).ok().filter(|found| found.len() != file.bytes) {
            let reason = format!(
                "{} has {} bytes, {} are expected; fetch it again (`models fetch {}`)",
                path.display(),
                found.len(),
                file.bytes,
                offer.entry.id
            );
            return ModelState::Broken { reason };
        }
    }
    ModelState::Missing { partial: download::partial(offer, folder) }
}

/// Bytes of the files directly in a model's folder.
pub(super) fn size(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).filter(std::fs::Metadata::is_file).map(|found| found.len()).sum()
}

impl Inner {
    /// Removes files whose checksum is wrong. Gives the finished fetch when nothing is missing.
    pub(super) fn heal(&self, offer: &Offer) -> Result<Option<Fetched>, download::Error> {
        let folder = self.folder.join(&offer.entry.id);
        let record = Record::read(&folder);
        for file in offer.files.iter().filter(|file| whole(&folder, file)) {
            let path = folder.join(&file.name);
            if record.as_ref().is_some_and(|record| record.vouches(&folder, file)) {
                continue;
            }
            if download::hash(&path).map_err(|error| download::disk(&path, &error))? != file.sha256 {
                std::fs::remove_file(&path).map_err(|error| download::disk(&path, &error))?;
            }
        }
        if !offer.files.iter().all(|file| whole(&folder, file)) {
            return Ok(None);
        }
        let source = record.map_or_else(|| FOUND.to_owned(), |record| record.source);
        Record::new(&source, &folder, &offer.files).write(&folder)?;
        let _view = self.settle(offer, None);
        Ok(Some(Fetched { path: location(offer, &folder), source, failed: Vec::new() }))
    }

    /// Hashes a model's files and writes down what was found.
    pub(super) fn check(&self, offer: &Offer) -> Result<ModelView, download::Error> {
        let folder = self.folder.join(&offer.entry.id);
        if !offer.files.iter().all(|file| whole(&folder, file)) {
            return Ok(self.settle(offer, None));
        }
        let source = Record::read(&folder).map_or_else(|| FOUND.to_owned(), |record| record.source);
        let mut record = Record::new(&source, &folder, &offer.files);
        for file in &offer.files {
            let path = folder.join(&file.name);
            let found = download::hash(&path).map_err(|error| download::disk(&path, &error))?;
            if found != file.sha256 {
                record.broken = Some(format!(
                    "{} has the wrong checksum (sha256 {found}, expected {}); fetch it again (`models fetch {}`), or remove it",
                    path.display(),
                    file.sha256,
                    offer.entry.id
                ));
                break;
            }
        }
        if let Err(error) = record.write(&folder) {
            // A folder that cannot be written can still be used; the next load hashes again.
            tracing::warn!(%error, "the check of a model is not kept");
            let state = record.broken.map(|reason| ModelState::Broken { reason });
            return Ok(self.settle(offer, state));
        }
        Ok(self.settle(offer, None))
    }
}
