//! What must hold of every graph, however it came about: held against each loaded snapshot and, in tests, after each
//! change.

use super::super::rows::Slot;
use super::Hnsw;
use super::links::{FREE, NONE, TOP_LEVEL};

impl Hnsw {
    /// Says what is wrong, if anything: levels, links that lead nowhere, the tree.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn check(&self) -> Result<(), String> {
        let slots = self.rows.slots();
        if self.links.slots() != slots || self.parents.len() != slots {
            return Err(format!("{slots} vectors, {} lists, {} parents", self.links.slots(), self.parents.len()));
        }
        let highest = self.links.levels().iter().filter(|level| **level != FREE).max();
        let entry = (self.entry as usize) < slots && self.rows.is_live(self.entry);
        match highest {
            None if self.entry == NONE => {}
            Some(highest) if entry && self.links.level(self.entry) == *highest => {}
            _ => return Err(format!("entry {} is not a vector of the highest level", self.entry)),
        }
        for slot in 0..slots as Slot {
            if self.rows.is_live(slot) != (self.links.level(slot) != FREE) {
                return Err(format!("vector {slot} is half removed"));
            }
        }
        self.rows.iter().try_for_each(|slot| self.check_links(slot))?;
        self.check_tree()
    }

    fn check_links(&self, slot: Slot) -> Result<(), String> {
        let level = self.links.level(slot);
        if level > TOP_LEVEL {
            return Err(format!("vector {slot} is on level {level}"));
        }
        for layer in 0..=usize::from(level) {
            let links = self.links.of(slot, layer);
            if self.links.list(slot, layer)[links.len()..].iter().any(|link| *link != NONE) {
                return Err(format!("the links of vector {slot} have a gap"));
            }
            for (place, link) in links.iter().enumerate() {
                let known = (*link as usize) < self.links.slots() && self.links.level(*link) != FREE;
                if !known || *link == slot || usize::from(self.links.level(*link)) < layer || links[..place].contains(link) {
                    return Err(format!("vector {slot} links to {link} in layer {layer}"));
                }
            }
        }
        Ok(())
    }

    /// One root; each parent and child link to each other; going up always ends at the root.
    fn check_tree(&self) -> Result<(), String> {
        let mut rooted = vec![false; self.parents.len()];
        let mut roots = 0;
        for slot in self.rows.iter() {
            let parent = self.parents[slot as usize];
            if parent == NONE {
                roots += 1;
                rooted[slot as usize] = true;
            } else if !(self.links.of(slot, 0).contains(&parent)
                && (parent as usize) < self.links.slots()
                && self.rows.is_live(parent)
                && self.links.of(parent, 0).contains(&slot))
            {
                return Err(format!("vector {slot} and its parent {parent} do not link to each other"));
            }
        }
        if roots != usize::from(self.rows.len() > 0) {
            return Err(format!("{roots} roots"));
        }
        let mut path = Vec::new();
        for slot in self.rows.iter() {
            let mut at = slot;
            while !rooted[at as usize] {
                if path.len() > self.parents.len() {
                    return Err(format!("the parents of vector {slot} go round in a circle"));
                }
                path.push(at);
                at = self.parents[at as usize];
            }
            for passed in path.drain(..) {
                rooted[passed as usize] = true;
            }
        }
        Ok(())
    }
}
