//! Who points to whom. The lowest layer is one block of fixed-width lists on cache-line borders; the few vectors of the
//! upper layers have theirs in a second block.

use super::super::aligned::{Aligned, LINE};
use super::super::rows::Slot;

/// Ends a list that is not full; also "no vector".
pub(super) const NONE: Slot = Slot::MAX;

/// The level of a slot that holds no vector.
pub(super) const FREE: u8 = u8::MAX;

/// The highest level: with 2 links per layer this is reached by one vector in 32,768 and costs nothing with more.
pub(super) const TOP_LEVEL: u8 = 15;

pub(super) struct Links {
    width: usize,
    stride: usize,
    base: Aligned<Slot>,
    levels: Vec<u8>,
    upper: Vec<Slot>,
    /// Where a slot's upper lists start, in lists.
    upper_at: Vec<u32>,
    /// Unused places in `upper`, by level.
    upper_free: Vec<Vec<u32>>,
    /// The lowest layer backwards, kept from the first removal on.
    incoming: Option<Vec<Vec<Slot>>>,
}

impl Links {
    pub(super) fn new(width: usize) -> Self {
        Self {
            width,
            stride: (2 * width).next_multiple_of(LINE),
            base: Aligned::new(),
            levels: Vec::new(),
            upper: Vec::new(),
            upper_at: Vec::new(),
            upper_free: vec![Vec::new(); usize::from(TOP_LEVEL) + 1],
            incoming: None,
        }
    }

    /// From a snapshot: the levels are in range, `upper` holds one list per level of each slot, in order.
    pub(super) fn from_parts(width: usize, base: Aligned<Slot>, levels: Vec<u8>, upper: Vec<Slot>) -> Self {
        let mut at = 0;
        let start = |level: &u8| {
            let start = if *level == 0 { NONE } else { at };
            at += u32::from(*level);
            start
        };
        let upper_at = levels.iter().map(start).collect();
        Self { base, levels, upper, upper_at, ..Self::new(width) }
    }

    pub(super) fn reserve(&mut self, slots: usize) {
        self.base.reserve(slots * self.stride);
        self.levels.reserve_exact(slots);
        self.upper_at.reserve_exact(slots);
    }

    pub(super) fn slots(&self) -> usize {
        self.levels.len()
    }

    /// Numbers that a list of the lowest layer takes, its padding included.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Links that fit in a list of this layer.
    pub(super) fn width(&self, layer: usize) -> usize {
        if layer == 0 { 2 * self.width } else { self.width }
    }

    pub(super) fn level(&self, slot: Slot) -> u8 {
        self.levels[slot as usize]
    }

    pub(super) fn levels(&self) -> &[u8] {
        &self.levels
    }

    /// Gives a slot (a new one at the end, or a freed one) its empty lists.
    pub(super) fn add(&mut self, slot: Slot, level: u8) {
        let index = slot as usize;
        if index == self.levels.len() {
            self.base.extend(self.stride, NONE);
            self.levels.push(level);
            self.upper_at.push(NONE);
            if let Some(incoming) = &mut self.incoming {
                incoming.push(Vec::new());
            }
        } else {
            self.levels[index] = level;
        }
        if level > 0 {
            self.upper_at[index] = self.upper_free[usize::from(level)].pop().unwrap_or_else(|| {
                let at = self.upper.len() / self.width;
                self.upper.resize(self.upper.len() + usize::from(level) * self.width, NONE);
                at as u32
            });
        }
    }

    /// Takes a slot's lists away. Nothing may point to it any more.
    pub(super) fn release(&mut self, slot: Slot) {
        let level = self.level(slot);
        for layer in 0..=usize::from(level) {
            self.set(slot, layer, &[]);
        }
        if level > 0 {
            self.upper_free[usize::from(level)].push(self.upper_at[slot as usize]);
            self.upper_at[slot as usize] = NONE;
        }
        self.levels[slot as usize] = FREE;
    }

    fn start(&self, slot: Slot, layer: usize) -> usize {
        if layer == 0 { slot as usize * self.stride } else { (self.upper_at[slot as usize] as usize + layer - 1) * self.width }
    }

    /// The whole list, with `NONE` from its end on.
    #[inline]
    pub(super) fn list(&self, slot: Slot, layer: usize) -> &[Slot] {
        let start = self.start(slot, layer);
        let block = if layer == 0 { self.base.as_slice() } else { &self.upper };
        &block[start..start + self.width(layer)]
    }

    fn list_mut(&mut self, slot: Slot, layer: usize) -> &mut [Slot] {
        let (start, width) = (self.start(slot, layer), self.width(layer));
        let block = if layer == 0 { self.base.as_mut_slice() } else { &mut self.upper };
        &mut block[start..start + width]
    }

    /// The links of a list.
    pub(super) fn of(&self, slot: Slot, layer: usize) -> &[Slot] {
        let list = self.list(slot, layer);
        &list[..list.partition_point(|link| *link != NONE)]
    }

    /// Adds a link that is not there yet; false when the list is full.
    pub(super) fn push(&mut self, slot: Slot, layer: usize, target: Slot) -> bool {
        let used = self.of(slot, layer).len();
        let Some(place) = self.list_mut(slot, layer).get_mut(used) else { return false };
        *place = target;
        if layer == 0 {
            self.note(slot, target);
        }
        true
    }

    /// Takes one link out.
    pub(super) fn cut(&mut self, slot: Slot, layer: usize, target: Slot) {
        let links = self.of(slot, layer);
        let (used, found) = (links.len(), links.iter().position(|link| *link == target));
        let Some(found) = found else { return };
        let list = self.list_mut(slot, layer);
        list.swap(found, used - 1);
        list[used - 1] = NONE;
        if layer == 0 {
            self.forget(slot, target);
        }
    }

    /// Replaces a list.
    pub(super) fn set(&mut self, slot: Slot, layer: usize, targets: &[Slot]) {
        if layer == 0 && self.incoming.is_some() {
            for old in self.of(slot, 0).to_vec() {
                self.forget(slot, old);
            }
            for new in targets {
                self.note(slot, *new);
            }
        }
        let list = self.list_mut(slot, layer);
        list[..targets.len()].copy_from_slice(targets);
        list[targets.len()..].fill(NONE);
    }

    fn note(&mut self, from: Slot, to: Slot) {
        if let Some(incoming) = &mut self.incoming {
            incoming[to as usize].push(from);
        }
    }

    fn forget(&mut self, from: Slot, to: Slot) {
        if let Some(incoming) = &mut self.incoming {
            let list = &mut incoming[to as usize];
            if let Some(at) = list.iter().position(|source| *source == from) {
                let _ = list.swap_remove(at);
            }
        }
    }

    /// Who points to a slot in the lowest layer. The first call builds the backward lists, which then follow every
    /// change: only collections that see removals pay for them.
    pub(super) fn incoming(&mut self, slot: Slot) -> &[Slot] {
        let incoming = self.incoming.take().unwrap_or_else(|| {
            let mut lists = vec![Vec::new(); self.levels.len()];
            for from in 0..self.levels.len() as Slot {
                for to in self.of(from, 0) {
                    lists[*to as usize].push(from);
                }
            }
            lists
        });
        &self.incoming.insert(incoming)[slot as usize]
    }

    pub(super) fn bytes(&self) -> usize {
        let backwards = self.incoming.as_ref().map_or(0, |lists| {
            lists.capacity() * size_of::<Vec<Slot>>() + lists.iter().map(|list| list.capacity() * size_of::<Slot>()).sum::<usize>()
        });
        self.base.bytes() + self.levels.capacity() + (self.upper.capacity() + self.upper_at.capacity()) * size_of::<Slot>() + backwards
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_fill_shrink_and_are_found_backwards() {
        let mut links = Links::new(2);
        for slot in 0..6 {
            links.add(slot, if slot == 1 { 2 } else { 0 });
        }
        assert!((1..5).all(|target| links.push(0, 0, target)));
        assert!(!links.push(0, 0, 5), "a full list refuses");
        assert_eq!(links.incoming(3), [0]);
        links.cut(0, 0, 2);
        assert!(links.push(5, 0, 3));
        assert_eq!(links.of(0, 0), [1, 4, 3]);
        assert_eq!(links.incoming(3), [0, 5]);
        assert!(links.incoming(2).is_empty());
        links.set(0, 0, &[5]);
        assert_eq!(links.incoming(3), [5]);
        assert_eq!(links.incoming(5), [0]);
    }

    #[test]
    fn upper_lists_are_used_again() {
        let mut links = Links::new(2);
        links.add(0, 2);
        links.add(1, 1);
        assert!(links.push(0, 2, 7) && links.push(0, 1, 8) && links.push(1, 1, 9));
        assert_eq!((links.of(0, 2), links.of(0, 1), links.of(1, 1)), ([7].as_slice(), [8].as_slice(), [9].as_slice()));
        links.release(0);
        assert_eq!(links.level(0), FREE);
        let before = links.upper.len();
        links.add(0, 2);
        assert_eq!((links.upper.len(), links.of(0, 2), links.of(0, 1)), (before, [].as_slice(), [].as_slice()));
    }
}
