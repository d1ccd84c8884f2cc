//! Bundles (`.mcpb`, formerly `.dxt`): a zip with a server and a manifest that says how to start it and what to ask.

mod archive;
mod manifest;

use std::fs::File;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use super::config::{Entry, Error};
use super::form::{self, Answers, Field, literally};
use crate::secret::Secret;
use archive::Archive;
use manifest::Manifest;

/// A bundle file that was opened and whose manifest makes sense. Nothing is unpacked yet.
#[derive(Debug)]
pub struct Bundle {
    path: PathBuf,
    archive: Archive,
    manifest: Manifest,
}

/// What a bundle becomes with a person's answers.
#[derive(Debug)]
pub(super) struct Made {
    /// The server's entry.
    pub(super) value: Value,
    /// The same, read and checked.
    pub(super) entry: Entry,
    /// What must be kept in the keyring for it, by name.
    pub(super) secrets: Vec<(String, Secret)>,
}

impl Bundle {
    /// Opens a bundle and reads its manifest.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let wrong = |reason: String| Error::File { path: path.to_owned(), reason };
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let mut archive = Archive::open(file).map_err(wrong)?;
        let text = archive.text("manifest.json").map_err(wrong)?;
        let manifest = Manifest::read(&text).map_err(wrong)?;
        manifest.runs_here().map_err(wrong)?;
        if let Some(missing) = manifest.entry_point().filter(|name| !archive.holds(name)) {
            return Err(wrong(format!("its entry point \"{missing}\" is not in it")));
        }
        Ok(Self { path: path.to_owned(), archive, manifest })
    }

    /// The name that the bundle gives itself.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// SHA-256 of the whole file as it was opened, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        self.archive.digest()
    }

    /// Where the file is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// What it is called for people.
    #[must_use]
    pub fn title(&self) -> &str {
        self.manifest.display_name.as_deref().unwrap_or(&self.manifest.name)
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.manifest.version
    }

    /// What it says about itself.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.manifest.description
    }

    /// Who says to have made it.
    #[must_use]
    pub fn author(&self) -> &str {
        &self.manifest.author
    }

    /// What it asks for.
    #[must_use]
    pub fn fields(&self) -> &[Field] {
        &self.manifest.fields
    }

    /// What its runner is: the program that must be there.
    #[must_use]
    pub fn command(&self) -> &str {
        &self.manifest.command
    }

    /// The folder's name under which it is kept.
    pub(super) fn folder(&self) -> String {
        format!("{}-{}", safe(&self.manifest.name), safe(&self.manifest.version))
    }

    /// The server's entry, for a bundle that is, or will be, in this folder.
    pub(super) fn make(&self, id: &str, folder: &Path, answers: &Answers) -> Result<Made, Error> {
        let wrong = |field: Option<String>, reason: String| Error::Field { server: id.to_owned(), field, reason };
        let texts = form::check(&self.manifest.fields, answers).map_err(|mut all| {
            all.drain(..1).next().map_or_else(|| wrong(None, String::new()), |first| wrong(Some(first.field), first.reason))
        })?;
        let mut secrets = Vec::new();
        let mut filled = std::collections::BTreeMap::new();
        for field in &self.manifest.fields {
            let texts = texts.get(&field.key).cloned().unwrap_or_default();
            let shown = if field.sensitive {
                let kept = texts.into_iter().enumerate().map(|(number, text)| {
                    let name = form::secret_name(id, &field.key, number);
                    secrets.push((name.clone(), Secret::new(text)));
                    format!("${{secret:{name}}}")
                });
                kept.collect()
            } else {
                texts.iter().map(|text| literally(text)).collect()
            };
            let _ = filled.insert(field.key.clone(), shown);
        }
        let folder = folder.to_str().ok_or_else(|| wrong(None, format!("the folder {} is no text", folder.display())))?;
        let filling = manifest::Filling { folder: &literally(folder), values: &filled };
        let value = self.value(&filling);
        let entry = Entry::read(id, &value).checked(id)?;
        Ok(Made { value, entry, secrets })
    }

    fn value(&self, filling: &manifest::Filling<'_>) -> Value {
        let manifest = &self.manifest;
        let mut entry = Map::new();
        let mut put = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
        put("command", json!(filling.text(&manifest.command).unwrap_or_default()));
        put("args", json!(manifest.args.iter().flat_map(|text| filling.texts(text)).collect::<Vec<_>>()));
        let env: Map<String, Value> =
            manifest.env.iter().filter_map(|(name, text)| Some((name.clone(), json!(filling.text(text)?)))).collect();
        if !env.is_empty() {
            put("env", Value::Object(env));
        }
        let description = if manifest.description.is_empty() { self.title() } else { &manifest.description };
        put("description", json!(description));
        if !manifest.keywords.is_empty() {
            put("capabilities", json!(manifest.keywords));
        }
        Value::Object(entry)
    }

    /// Unpacks everything into a folder that is there and empty.
    pub(super) fn unpack(&mut self, folder: &Path) -> Result<(), Error> {
        let wrong = |path: &Path, reason: String| Error::File { path: path.to_owned(), reason };
        self.archive.unpack(folder).map_err(|reason| wrong(&self.path, reason))?;
        // A program of the bundle must be runnable, whatever the packer's system knew of that.
        if let Some(program) = self.manifest.program() {
            runnable(&folder.join(program)).map_err(|error| wrong(&self.path, format!("its program {program} cannot be used: {error}")))?;
        }
        Ok(())
    }
}

/// The name and the author that the manifest in an unpacked bundle's folder gives.
pub(super) fn identity_in(folder: &Path) -> Option<(String, String)> {
    let text = super::config::read_text(&folder.join("manifest.json")).ok()??;
    Manifest::read(&text).ok().map(|manifest| (manifest.name, manifest.author))
}

/// A name that is one folder on every system.
fn safe(name: &str) -> String {
    let kept = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '+') { c } else { '_' };
    let name: String = name.chars().map(kept).take(100).collect();
    let name = name.trim_matches('.');
    if name.is_empty() { "bundle".to_owned() } else { name.to_owned() }
}

#[cfg(unix)]
fn runnable(program: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(program, std::fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn runnable(program: &Path) -> std::io::Result<()> {
    // What makes a program here is its name.
    std::fs::metadata(program).map(drop)
}
