//! What a person set. `settings.toml` as written, and the validated values; a file that does not parse is left
//! untouched and the defaults run.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Every setting with its default. Unknown fields of the file survive a save.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The default chat model: a catalogue id or the path of a GGUF file.
    pub chat_model: String,
    /// The embedding model's catalogue id.
    pub embedding_model: String,
    /// Threads for the local model; 0 chooses.
    pub threads: usize,
    /// Most tokens of one answer.
    pub max_answer_tokens: usize,
    /// Characters of a tool result that stay in the context.
    pub tool_result_characters: usize,
    /// Seconds a tool call may stay silent (at least 1).
    pub tool_timeout_seconds: u64,
    /// Seconds that a question on the command line waits for its servers before it is answered without those that are not
    /// there.
    pub server_wait_seconds: u64,
    /// Model steps in one turn.
    pub turn_steps: usize,
    /// Most tools shown to the model while routing is on.
    pub routed_tools: usize,
    /// Routing starts when the tools' definitions cost more than this share of the context.
    pub routing_share: f32,
    /// Passages given to the model.
    pub passages: usize,
    /// Largest attachment in megabytes (1 to 200).
    pub attachment_megabytes: u64,
    /// Interface language: `en`, `zh-CN`, or empty to follow the system.
    pub language: String,
    /// `light`, `dark`, or empty to follow the system.
    pub theme: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chat_model: "smollm2-135m-instruct-q4_1".to_owned(),
            embedding_model: "all-minilm-l6-v2".to_owned(),
            threads: 0,
            max_answer_tokens: 1024,
            tool_result_characters: 40_000,
            tool_timeout_seconds: 30,
            server_wait_seconds: 10,
            turn_steps: 25,
            routed_tools: 30,
            routing_share: 0.05,
            passages: 6,
            attachment_megabytes: 20,
            language: String::new(),
            theme: String::new(),
        }
    }
}

impl Settings {
    /// Reads the file; a missing one gives the defaults.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Error::Read { path: path.to_owned(), reason: error.to_string() }),
        };
        let settings: Self = toml::from_str(text.trim_start_matches('\u{feff}'))
            .map_err(|error| Error::Parse { path: path.to_owned(), reason: error.to_string() })?;
        settings.validated(path)
    }

    fn validated(mut self, path: &Path) -> Result<Self, Error> {
        let wrong = |field: &'static str, reason: &str| Error::Value { path: path.to_owned(), field, reason: reason.to_owned() };
        if self.tool_timeout_seconds == 0 {
            return Err(wrong("tool_timeout_seconds", "must be at least 1"));
        }
        if !(1..=200).contains(&self.attachment_megabytes) {
            return Err(wrong("attachment_megabytes", "must be from 1 to 200"));
        }
        if !(0.0..=1.0).contains(&self.routing_share) {
            return Err(wrong("routing_share", "must be from 0 to 1"));
        }
        for (field, value) in [("turn_steps", self.turn_steps), ("passages", self.passages), ("max_answer_tokens", self.max_answer_tokens)]
        {
            if value == 0 {
                return Err(wrong(field, "must be at least 1"));
            }
        }
        self.routed_tools = self.routed_tools.max(1);
        Ok(self)
    }

    /// Writes the values into the file atomically, keeping its other fields and refusing to touch a file that does
    /// not parse.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let write = |reason: String| Error::Write { path: path.to_owned(), reason };
        let mut table: toml::Table = match fs::read_to_string(path) {
            Ok(text) => toml::from_str(&text).map_err(|error| Error::Parse { path: path.to_owned(), reason: error.to_string() })?,
            Err(_) => toml::Table::new(),
        };
        let values = toml::Table::try_from(self).map_err(|error| write(error.to_string()))?;
        table.extend(values);
        let text = toml::to_string_pretty(&table).map_err(|error| write(error.to_string()))?;
        let folder = path.parent().unwrap_or_else(|| Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder).map_err(|error| write(error.to_string()))?;
        file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(|error| write(error.to_string()))?;
        let _ = file.persist(path).map_err(|error| write(error.to_string()))?;
        Ok(())
    }
}

/// Why the settings could not be read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{path} cannot be read: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The file is not TOML; it is left untouched.
    #[error("{path} is left untouched because it does not parse: {reason}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        reason: String,
    },
    /// A value is out of its range.
    #[error("{path}: {field} {reason}")]
    Value {
        /// The file.
        path: PathBuf,
        /// Which field.
        field: &'static str,
        /// What it must be.
        reason: String,
    },
    /// The file cannot be written.
    #[error("{path} cannot be written: {reason}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_fields_survive_a_save_and_a_broken_file_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        fs::write(&path, "future = \"kept\"\nthreads = 3\n").unwrap();
        let mut settings = Settings::load(&path).unwrap();
        assert_eq!(settings.threads, 3);
        settings.threads = 1;
        settings.save(&path).unwrap();
        assert!(fs::read_to_string(&path).unwrap().contains("future = \"kept\""));
        assert_eq!(Settings::load(&path).unwrap().threads, 1);

        fs::write(&path, "threads = = 3").unwrap();
        assert!(matches!(Settings::load(&path), Err(Error::Parse { .. })));
        assert!(settings.save(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "threads = = 3");
    }

    #[test]
    fn values_out_of_range_name_their_field() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("settings.toml");
        fs::write(&path, "attachment_megabytes = 500").unwrap();
        let error = Settings::load(&path).unwrap_err().to_string();
        assert!(error.contains("attachment_megabytes") && error.contains("1 to 200"), "{error}");
    }
}
