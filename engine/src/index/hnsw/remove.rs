//! Taking a vector out and mending the links around it.

use super::super::rows::Slot;
use super::Hnsw;
use super::links::{FREE, NONE};
use super::walk::{Near, sort};

/// New links at most for a vector that lost one: its way onward through the lost one led to several directions.
const REPLACEMENTS: usize = 3;

impl Hnsw {
    /// Removes a live row from the graph and frees it.
    pub(super) fn take_out(&mut self, slot: Slot) {
        let parent = self.parents[slot as usize];
        let orphans: Vec<Slot> = self.children(slot).collect();
        self.parents[slot as usize] = NONE;
        for child in &orphans {
            self.parents[*child as usize] = NONE;
        }
        let level = self.links.level(slot);
        let around = self.links.of(slot, 0).to_vec();
        for layer in (0..=usize::from(level)).rev() {
            let sources = if layer == 0 { self.links.incoming(slot).to_vec() } else { self.sources_above(slot, layer) };
            self.cut_off(slot, &sources, layer);
        }
        self.links.release(slot);
        self.rows.release(slot);
        self.replant(&orphans, parent, &around);
        if self.entry == slot {
            self.entry = self.highest();
        }
    }

    fn cut_off(&mut self, slot: Slot, sources: &[Slot], layer: usize) {
        let onward = self.links.of(slot, layer).to_vec();
        for source in sources {
            self.links.cut(*source, layer, slot);
        }
        for source in sources {
            self.mend(*source, &onward, layer);
        }
    }

    /// Upper layers hold one vector in M: looking through them is quicker than keeping backward lists.
    fn sources_above(&self, slot: Slot, layer: usize) -> Vec<Slot> {
        let levels = self.links.levels().iter().enumerate();
        let members = levels.filter(|(_, level)| **level != FREE && usize::from(**level) >= layer).map(|(member, _)| member as Slot);
        members.filter(|member| self.links.of(*member, layer).contains(&slot)).collect()
    }

    /// Gives a vector that lost a link the way onward: the lost one's neighbours that lie in directions of their own;
    /// the nearest of them in any case while it has few links.
    fn mend(&mut self, source: Slot, onward: &[Slot], layer: usize) {
        let known = self.links.of(source, layer).to_vec();
        let offered: Vec<Slot> = onward.iter().copied().filter(|slot| *slot != source && !known.contains(slot)).collect();
        let mut candidates = Vec::with_capacity(offered.len());
        self.rows.scores(self.metric, self.rows.row(source), &offered, |slot, score| candidates.push(Near { score, slot }));
        sort(&mut candidates);
        let mut added = 0;
        for candidate in &candidates {
            if added == REPLACEMENTS {
                break;
            }
            if self.is_diverse(*candidate, self.links.of(source, layer)) && self.links.push(source, layer, candidate.slot) {
                added += 1;
            }
        }
        if added == 0
            && self.links.of(source, layer).len() < self.config.links
            && let Some(nearest) = candidates.first()
        {
            let _ = self.links.push(source, layer, nearest.slot);
        }
    }

    /// A vector of the highest level left.
    fn highest(&self) -> Slot {
        let levels = self.links.levels().iter().enumerate();
        levels.filter(|(_, level)| **level != FREE).max_by_key(|(_, level)| **level).map_or(NONE, |(slot, _)| slot as Slot)
    }
}
