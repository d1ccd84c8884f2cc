//! Files of the person's own: one that is a catalogue model becomes that model, any other GGUF is remembered in
//! `own.toml` and used where it lies.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::local::catalogue::{Catalogue, Entry, Kind, Offer};
use crate::local::download::record::Record;
use crate::local::download::{self, Error, Failure};
use crate::local::gguf::{files, first};

/// The first bytes of a GGUF file.
const MAGIC: [u8; 4] = *b"GGUF";

/// The remembered files.
#[derive(Debug)]
pub(super) struct Own {
    path: PathBuf,
    files: Mutex<Vec<OwnFile>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct OwnFile {
    id: String,
    path: PathBuf,
}

#[derive(Default, Serialize, Deserialize)]
struct Written {
    #[serde(default)]
    file: Vec<OwnFile>,
}

impl Own {
    /// Reads the list; a missing or broken one is empty.
    pub fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let written: Written = toml::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "the list of own models does not parse");
            Written::default()
        });
        Self { path, files: Mutex::new(written.file) }
    }

    /// Every remembered file.
    pub fn entries(&self) -> Vec<(Entry, PathBuf)> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).iter().map(entry).collect()
    }

    /// The file of this id or path.
    pub fn find(&self, id_or_path: &str) -> Option<(Entry, PathBuf)> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().find(|file| file.id == id_or_path || file.path == Path::new(id_or_path)).map(entry)
    }

    /// Remembers a GGUF file, of a model in several files the first one. Its id is its stem, or its path where `taken` or another file has that.
    pub fn add(&self, path: &Path, taken: impl Fn(&str) -> bool) -> Result<(Entry, PathBuf), Error> {
        gguf(path)?;
        let path = &first(path);
        let path = fs::canonicalize(path).map_err(|error| unusable(path, error.to_string()))?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = files.iter().find(|file| file.path == path) {
            return Ok(entry(known));
        }
        let stem = stem(&path);
        let clash = taken(&stem) || files.iter().any(|file| file.id == stem);
        let id = if clash { path.display().to_string() } else { stem };
        let file = OwnFile { id, path };
        let mut changed = files.clone();
        changed.push(file.clone());
        self.write(&changed)?;
        *files = changed;
        Ok(entry(&file))
    }

    /// Forgets a file; it stays where it lies.
    pub fn forget(&self, path: &Path) -> Result<(), Error> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let changed: Vec<OwnFile> = files.iter().filter(|file| file.path != path).cloned().collect();
        self.write(&changed)?;
        *files = changed;
        Ok(())
    }

    fn write(&self, files: &[OwnFile]) -> Result<(), Error> {
        let refused = |reason: String| Error::Disk { path: self.path.clone(), reason };
        let text = toml::to_string(&Written { file: files.to_vec() }).map_err(|error| refused(error.to_string()))?;
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(|error| refused(error.to_string()))?;
        fs::write(&self.path, text).map_err(|error| refused(error.to_string()))
    }
}

fn entry(file: &OwnFile) -> (Entry, PathBuf) {
    let entry = Entry {
        id: file.id.clone(),
        name: stem(&file.path),
        kind: Kind::Chat,
        family: "GGUF".to_owned(),
        bytes: files(&file.path).iter().map(|part| fs::metadata(part).map_or(0, |found| found.len())).sum(),
        licence: "unknown".to_owned(),
        context: 0,
        about: file.path.display().to_string(),
    };
    (entry, file.path.clone())
}

/// A file's name without its ending.
pub(super) fn stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned())
}

fn unusable(path: &Path, reason: impl Into<String>) -> Error {
    Error::File { path: path.to_owned(), reason: reason.into() }
}

/// Why this is no GGUF file, when it is none.
pub(super) fn gguf(path: &Path) -> Result<(), Error> {
    let mut file = fs::File::open(path).map_err(|error| unusable(path, error.to_string()))?;
    let found = file.metadata().map_err(|error| unusable(path, error.to_string()))?;
    if found.is_dir() {
        return Err(unusable(path, "it is a folder that does not hold the files of a model in the catalogue; choose a GGUF file"));
    }
    let mut magic = [0; 4];
    match file.read_exact(&mut magic) {
        Ok(()) if magic == MAGIC => Ok(()),
        _ => Err(unusable(path, "it is not a GGUF file (those begin with the letters GGUF), nor a file of a model in the catalogue")),
    }
}

/// The catalogue model whose file this is, or whose files this folder holds, by size and sha256.
pub(super) fn matching<'a>(catalogue: &'a Catalogue, path: &Path) -> Option<&'a Offer> {
    let folder = path.is_dir();
    catalogue.offers().iter().find(|offer| {
        (folder || offer.files.len() == 1)
            && pairs(offer, path, folder)
                .all(|(file, from)| fs::metadata(from).is_ok_and(|found| found.is_file() && found.len() == file.bytes))
            && pairs(offer, path, folder).all(|(file, from)| download::hash(&from).is_ok_and(|hash| hash == file.sha256))
    })
}

fn pairs<'a>(offer: &'a Offer, path: &'a Path, folder: bool) -> impl Iterator<Item = (&'a crate::local::catalogue::File, PathBuf)> {
    offer.files.iter().map(move |file| (file, if folder { path.join(&file.name) } else { path.to_owned() }))
}

/// Brings a model's verified files into its folder: as hard links where the file system allows it, else as copies.
pub(super) fn bring(offer: &Offer, path: &Path, folder: &Path) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| download::disk(folder, &error))?;
    for (file, from) in pairs(offer, path, path.is_dir()) {
        let to = folder.join(&file.name);
        if fs::canonicalize(&to).is_ok_and(|there| fs::canonicalize(&from).is_ok_and(|from| from == there)) {
            continue;
        }
        let staged = folder.join(format!("{}.part", file.name));
        let _ = fs::remove_file(&staged);
        if fs::hard_link(&from, &staged).is_err() {
            download::room(folder, file.bytes).map_err(|failure| match failure {
                Failure::Disk { path, reason } => Error::Disk { path, reason },
                Failure::Source(reason) => unusable(&from, reason),
            })?;
            let _bytes = fs::copy(&from, &staged).map_err(|error| download::disk(&staged, &error))?;
        }
        fs::rename(&staged, &to).map_err(|error| download::disk(&to, &error))?;
    }
    Record::new(&format!("a file of yours ({})", path.display()), folder, &offer.files).write(folder)
}
