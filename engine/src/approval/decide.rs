//! The decision as a pure function.

/// What was allowed or denied before, as far as it concerns one call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {}

/// What the rules say about one call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run it.
    Allow {
        /// The rule, in words.
        by: String,
    },
    /// Do not run it.
    Deny {
        /// The rule, in words.
        by: String,
    },
    /// Ask the person.
    Ask {
        /// Why no rule decided.
        why: String,
    },
}

/// Decides a call from what is known.
#[must_use]
pub fn decide(_known: &Known) -> Verdict {
    Verdict::Ask { why: String::new() }
}
