//! The permit: minted only by the gate, for exactly one call.

use crate::tool::Call;

/// Leave to run one call, with the arguments inside. It cannot be made outside this room, copied, or used twice.
#[derive(Debug)]
pub struct Permit {
    call: Call,
    by: String,
}

impl Permit {
    pub(in crate::approval) fn mint(call: Call, by: String) -> Self {
        Self { call, by }
    }

    /// What allowed the call, in words.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The permitted call, by reference.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// Spends the permit and gives the call that may run.
    #[must_use]
    pub fn spend(self) -> Call {
        self.call
    }
}
