//! `parse`, `search`, `embed`: documents without a model.
