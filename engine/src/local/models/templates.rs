//! Which chat template each model is used with: what a person chose, kept in `templates.toml`, and what loading found.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::local::download::{self, Error};
use crate::local::template::{TemplateChoice, TemplateUse};

/// A chat model's template as the screen shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TemplateView {
    /// What was chosen.
    pub choice: TemplateChoice,
    /// What the loaded model uses; nothing while it was not loaded.
    pub used: Option<TemplateUse>,
    /// Why the model's template does not work, as loading found.
    pub fault: Option<String>,
}

/// The choices, and what is known of each model's template, by the path of its file.
#[derive(Debug)]
pub(super) struct Templates {
    path: PathBuf,
    chosen: Mutex<Vec<Chosen>>,
    seen: Mutex<HashMap<PathBuf, Result<TemplateUse, String>>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Chosen {
    path: PathBuf,
    template: String,
}

#[derive(Default, Serialize, Deserialize)]
struct Written {
    #[serde(default)]
    model: Vec<Chosen>,
}

impl Templates {
    /// Reads the choices; a missing or broken file holds none.
    pub fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path).unwrap_or_default();
        let written: Written = toml::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "the list of chosen chat templates does not parse");
            Written::default()
        });
        Self { path, chosen: Mutex::new(written.model), seen: Mutex::default() }
    }

    /// What was chosen for the model in this file.
    pub fn choice(&self, model: &Path) -> TemplateChoice {
        let model = key(model);
        let chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.iter().find(|chosen| chosen.path == model).map(|chosen| TemplateChoice::parse(&chosen.template)).unwrap_or_default()
    }

    /// Chooses, and forgets what was found with the template before.
    pub fn choose(&self, model: &Path, choice: &TemplateChoice) -> Result<(), Error> {
        let model = key(model);
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut changed: Vec<Chosen> = chosen.iter().filter(|chosen| chosen.path != model).cloned().collect();
        if *choice != TemplateChoice::Own {
            changed.push(Chosen { path: model.clone(), template: choice.to_string() });
        }
        if changed != *chosen {
            self.write(&changed)?;
            *chosen = changed;
        }
        let _ = self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&model);
        Ok(())
    }

    /// Takes down what loading a model found. Whether that is news.
    pub fn saw(&self, model: &Path, found: Result<TemplateUse, String>) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(key(model), found.clone()).as_ref() != Some(&found)
    }

    /// What is known of the template of the model in this file.
    pub fn view(&self, model: &Path) -> TemplateView {
        let choice = self.choice(model);
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(&key(model)).cloned();
        let (used, fault) = match seen {
            Some(Ok(used)) => (Some(used), None),
            Some(Err(fault)) => (None, Some(fault)),
            None => (None, None),
        };
        TemplateView { choice, used, fault }
    }

    fn write(&self, chosen: &[Chosen]) -> Result<(), Error> {
        let refused = |reason: String| Error::Disk { path: self.path.clone(), reason };
        let text = toml::to_string(&Written { model: chosen.to_vec() }).map_err(|error| refused(error.to_string()))?;
        let folder = self.path.parent().unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder).map_err(|error| download::disk(folder, &error))?;
        fs::write(&self.path, text).map_err(|error| refused(error.to_string()))
    }
}

/// The same for every way to write a path.
fn key(model: &Path) -> PathBuf {
    fs::canonicalize(model).unwrap_or_else(|_| model.to_owned())
}
