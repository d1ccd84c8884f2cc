//! Skeleton.

pub(super) const MIGRATIONS: &[&str] = &[];
