//! What was built lately, by the hash of what it was built from.

use sha2::{Digest, Sha256};

/// SHA-256 of what something is built from.
pub(super) type Key = [u8; 32];

/// The hash of these parts. Each goes in behind its length, so that no two lists of parts run together.
pub(super) fn key<'a>(parts: impl IntoIterator<Item = &'a str>) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

/// The `most` things that were used last.
pub(super) struct Recent<T> {
    most: usize,
    /// The one used last stands at the end.
    kept: Vec<(Key, T)>,
}

impl<T> Recent<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, kept: Vec::new() }
    }

    /// What is kept under a key; it becomes the one used last.
    pub(super) fn get(&mut self, key: &Key) -> Option<&T> {
        let at = self.kept.iter().position(|(kept, _)| kept == key)?;
        let entry = self.kept.remove(at);
        self.kept.push(entry);
        self.kept.last().map(|(_, value)| value)
    }

    /// Keeps something; the one unused for longest goes where there are too many.
    pub(super) fn put(&mut self, key: Key, value: T) {
        self.kept.retain(|(kept, _)| *kept != key);
        self.kept.push((key, value));
        if self.kept.len() > self.most {
            let _ = self.kept.remove(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_unused_for_longest_goes() {
        let mut recent = Recent::new(2);
        let (a, b, c) = (key(["a"]), key(["b"]), key(["c"]));
        recent.put(a, 1);
        recent.put(b, 2);
        assert_eq!(recent.get(&a), Some(&1));
        recent.put(c, 3);
        assert_eq!((recent.get(&a).copied(), recent.get(&b).copied(), recent.get(&c).copied()), (Some(1), None, Some(3)));
        recent.put(c, 4);
        assert_eq!((recent.get(&a).copied(), recent.get(&c).copied()), (Some(1), Some(4)));
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(key(["ab", "c"]), key(["a", "bc"]));
        assert_ne!(key(["a"]), key(["a", ""]));
    }
}
