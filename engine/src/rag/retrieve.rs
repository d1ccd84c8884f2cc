//! Finding passages.

use crate::conversation::Passage;

/// What a search found and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Retrieved {
    /// The passages, best first, numbered from 1.
    pub passages: Vec<Passage>,
    /// How they were found and what was left out, in one sentence.
    pub reason: String,
}
