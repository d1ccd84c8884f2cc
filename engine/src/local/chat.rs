//! A local chat model as a [`Provider`]. Skeleton.

use std::path::Path;
use std::sync::Arc;

use crate::provider::{Error, Provider};

/// Loads a GGUF file and starts its worker thread. Blocks while it loads. `threads` 0 chooses.
pub(crate) fn load(id: &str, _path: &Path, _threads: usize) -> Result<Arc<dyn Provider>, Error> {
    Err(Error::Unavailable { model: id.to_owned(), reason: "not built yet".to_owned() })
}
