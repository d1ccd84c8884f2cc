//! What servers offer beside tools: prompts, resources, completions.

use serde::{Deserialize, Serialize};

use crate::tool::Content;

/// What a server says it can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Offers {
    /// It has tools.
    pub tools: bool,
    /// It has prompts.
    pub prompts: bool,
    /// It has resources.
    pub resources: bool,
    /// It completes arguments of prompts and templates.
    pub completions: bool,
    /// It sends log messages.
    pub logging: bool,
    /// It can run calls as tasks.
    pub tasks: bool,
}

/// A prompt; the composer offers it as a slash command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Its name.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// What it is for.
    pub description: Option<String>,
    /// What it wants to know.
    pub arguments: Vec<Argument>,
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Argument {
    /// Its name.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Whether it must be given.
    pub required: bool,
}

/// One message of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptMessage {
    /// Whether it speaks for the assistant; else for the person.
    pub assistant: bool,
    /// What it says.
    pub content: Content,
}

/// A resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its address.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Its media type.
    pub mime: Option<String>,
    /// Its size in bytes, where the server tells.
    pub size: Option<u64>,
}

/// A family of resources whose addresses have gaps to fill (RFC 6570).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Template {
    /// The address with its gaps, such as `file:///{path}`.
    pub uri: String,
    /// Its name.
    pub name: String,
    /// Its title for people.
    pub title: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// The media type of what it gives.
    pub mime: Option<String>,
}

/// What an argument belongs to, when it is to be completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Completable {
    /// A prompt, by name.
    Prompt(String),
    /// A template, by its address with gaps.
    Template(String),
}
