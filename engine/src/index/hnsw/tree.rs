//! The spanning tree of the lowest layer. Each vector but one has a parent; the link from parent to child and the one
//! back are never pruned. So the layer is strongly connected whatever else is pruned, at the cost of two or so of 32
//! links per vector.

use super::super::rows::Slot;
use super::Hnsw;
use super::links::NONE;
use super::walk::{Near, sort};

impl Hnsw {
    pub(super) fn is_tree_edge(&self, a: Slot, b: Slot) -> bool {
        self.parents[a as usize] == b || self.parents[b as usize] == a
    }

    pub(super) fn children(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        self.links.of(slot, 0).iter().copied().filter(move |link| self.parents[*link as usize] == slot)
    }

    /// Half of a list may be children, so that there is always something to prune.
    fn has_room(&self, slot: Slot) -> bool {
        self.children(slot).count() < self.config.links
    }

    /// Whether going up from `slot` leads through `ancestor`.
    fn is_below(&self, mut slot: Slot, ancestor: Slot) -> bool {
        while slot != NONE {
            if slot == ancestor {
                return true;
            }
            slot = self.parents[slot as usize];
        }
        false
    }

    fn may_adopt(&self, parent: Slot, child: Slot) -> bool {
        parent != child && self.rows.is_live(parent) && self.has_room(parent) && !self.is_below(parent, child)
    }

    /// A parent for a vector without one: the first of those offered that can take it, else any. None when every other
    /// vector hangs below it (it is the root).
    pub(super) fn find_parent(&self, child: Slot, offered: impl Iterator<Item = Slot>) -> Option<Slot> {
        let mut known = offered.filter(|parent| self.links.level(*parent) != super::links::FREE);
        let known = known.find(|parent| self.may_adopt(*parent, child));
        known.or_else(|| (0..self.links.slots() as Slot).find(|parent| self.may_adopt(*parent, child)))
    }

    /// Hangs a vector under a parent.
    pub(super) fn adopt(&mut self, child: Slot, parent: Slot) {
        self.parents[child as usize] = parent;
        let score = self.score(self.rows.row(child), parent).score;
        self.ensure(child, Near { score, slot: parent });
        self.ensure(parent, Near { score, slot: child });
    }

    fn ensure(&mut self, from: Slot, to: Near) {
        if !self.links.of(from, 0).contains(&to.slot) {
            self.connect(from, to, 0);
        }
    }

    /// Hangs the orphans of a vector that was taken out somewhere else. `around` are the links it had.
    pub(super) fn replant(&mut self, orphans: &[Slot], parent: Slot, around: &[Slot]) {
        let mut orphans = orphans;
        if parent == NONE {
            // The root is gone: its first child follows it.
            orphans = orphans.get(1..).unwrap_or_default();
        }
        for child in orphans {
            let mut near = Vec::new();
            self.rows.scores(self.metric, self.rows.row(*child), self.links.of(*child, 0), |slot, score| near.push(Near { score, slot }));
            sort(&mut near);
            let offered = near.iter().map(|near| near.slot).chain(around.iter().copied()).chain([parent]).filter(|slot| *slot != NONE);
            if let Some(found) = self.find_parent(*child, offered) {
                self.adopt(*child, found);
            }
        }
    }
}
