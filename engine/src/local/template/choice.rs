//! Which template a person wants for a model, and which one it got.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// What a person chose for a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TemplateChoice {
    /// The template in the model's file, or a known one where the file has none.
    #[default]
    Own,
    /// ChatML, whatever the file says.
    ChatMl,
    /// The template in this file.
    File(PathBuf),
}

impl TemplateChoice {
    /// `own`, `chatml` or the path of a file, as on a command line.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text {
            "own" => Self::Own,
            "chatml" => Self::ChatMl,
            path => Self::File(PathBuf::from(path)),
        }
    }
}

impl fmt::Display for TemplateChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("own"),
            Self::ChatMl => f.write_str("chatml"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The template that a loaded model uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TemplateUse {
    /// `own`, the name of a known one, or the path of a file.
    pub name: String,
    /// Why it is that one and what follows, where it is not the file's own.
    pub note: Option<String>,
}
