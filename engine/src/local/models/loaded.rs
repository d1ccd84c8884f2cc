//! What is loaded, by the path it was loaded from: each only once, also when several ask at the same time.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

type Slot<T> = Arc<Mutex<Option<Arc<T>>>>;

/// Loaded models of one kind.
pub(super) struct Loaded<T: ?Sized> {
    slots: Mutex<HashMap<PathBuf, Slot<T>>>,
}

impl<T: ?Sized> Default for Loaded<T> {
    fn default() -> Self {
        Self { slots: Mutex::default() }
    }
}

impl<T: ?Sized> std::fmt::Debug for Loaded<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(slots.keys()).finish()
    }
}

impl<T: ?Sized> Loaded<T> {
    /// The model at this path, loading it when it is not. Others who ask for the same one wait; a failure is not
    /// kept, the next one to ask tries again.
    pub fn get<E>(&self, path: &Path, load: impl FnOnce() -> Result<Arc<T>, E>) -> Result<Arc<T>, E> {
        let slot = self.slots.lock().unwrap_or_else(PoisonError::into_inner).entry(path.to_owned()).or_default().clone();
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(model) = slot.as_ref() {
            return Ok(model.clone());
        }
        let model = load()?;
        *slot = Some(model.clone());
        Ok(model)
    }

    /// Lets go of the model at this path. Who uses it keeps it until done.
    pub fn forget(&self, path: &Path) {
        drop(self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn many_who_ask_at_once_share_one_load_and_a_failure_is_not_kept() {
        let loaded = Loaded::<str>::default();
        let loads = AtomicUsize::new(0);
        let path = Path::new("/a");
        assert_eq!(loaded.get(path, || Err::<Arc<str>, _>("no")), Err("no"));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let _thread = scope.spawn(|| {
                    let model = loaded.get(path, || {
                        let _ = loads.fetch_add(1, Ordering::SeqCst);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        Ok::<_, &str>(Arc::from("model"))
                    });
                    assert_eq!(&*model.unwrap(), "model");
                });
            }
        });
        assert_eq!(loads.load(Ordering::SeqCst), 1);
        loaded.forget(path);
        assert_eq!(&*loaded.get(path, || Ok::<_, &str>(Arc::from("again"))).unwrap(), "again");
    }
}
