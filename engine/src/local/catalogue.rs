//! `resources/models.toml`: the models on offer.

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
    /// Tokens of its context window.
    pub context: usize,
    /// One line for people.
    pub about: String,
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Answers.
    Chat,
    /// Embeds text.
    Embedding,
}
