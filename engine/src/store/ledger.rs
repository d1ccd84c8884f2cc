//! Skeleton.

pub(super) const MIGRATIONS: &[&str] = &[];

/// One row of the ledger.
#[derive(Clone, Debug)]
pub struct LedgerRow {}
