//! Putting a stored row into the graph (the paper's algorithm 1).

use super::super::aligned::Aligned;
use super::super::rows::Slot;
use super::Hnsw;
use super::links::{NONE, TOP_LEVEL};
use super::walk::{Near, Walk};

impl Hnsw {
    /// Links a row that was just stored.
    pub(super) fn put_in(&mut self, slot: Slot) {
        let level = self.draw_level();
        self.links.add(slot, level);
        if slot as usize == self.parents.len() {
            self.parents.push(NONE);
        }
        if self.entry == NONE {
            self.entry = slot;
            return;
        }
        let query = self.copy_of(slot);
        let top = self.links.level(self.entry);
        let mut starts = vec![self.descend(query.as_slice(), usize::from(level))];
        let mut scratch = self.scratch();
        for layer in (0..=usize::from(level.min(top))).rev() {
            self.walk(Walk { query: query.as_slice(), starts: &starts, breadth: self.config.build_breadth, layer }, &mut scratch);
            starts.clear();
            starts.extend(scratch.found());
            self.link_both_ways(slot, &starts, layer);
        }
        self.give_back(scratch);
        if level > top {
            self.entry = slot;
        }
    }

    fn link_both_ways(&mut self, slot: Slot, found: &[Near], layer: usize) {
        let chosen = self.select(found, self.config.links, self.config.links, |_| false);
        self.links.set(slot, layer, &chosen);
        if layer == 0 {
            let offered = chosen.iter().copied().chain(found.iter().map(|near| near.slot));
            if let Some(parent) = self.find_parent(slot, offered) {
                self.adopt(slot, parent);
            }
        }
        for near in found.iter().filter(|near| chosen.contains(&near.slot)) {
            if !self.links.of(near.slot, layer).contains(&slot) {
                self.connect(near.slot, Near { score: near.score, slot }, layer);
            }
        }
    }

    fn copy_of(&self, slot: Slot) -> Aligned<f32> {
        let mut copy = Aligned::new();
        copy.extend(self.rows.stride(), 0.0);
        copy.as_mut_slice().copy_from_slice(self.rows.row(slot));
        copy
    }

    /// Exponentially fewer vectors per level: floor(-ln(u) / ln(M)), u uniform in (0, 1].
    fn draw_level(&mut self) -> u8 {
        let uniform = ((next_random(&mut self.random) >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let level = -uniform.ln() / (self.config.links as f64).ln();
        (level as u8).min(TOP_LEVEL)
    }
}

/// SplitMix64 (Steele, Lea and Flood, 2014): one word of state, so that it fits in a snapshot.
pub(in super::super) fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Config;

    #[test]
    fn levels_thin_out_by_the_number_of_links() {
        let mut graph = Hnsw::new(1, Config::default());
        let mut counts = [0usize; 4];
        for _ in 0..160_000 {
            counts[usize::from(graph.draw_level()).min(3)] += 1;
        }
        assert!((149_000..151_000).contains(&counts[0]), "15 of 16 stay at the bottom: {counts:?}");
        assert!((9_000..9_800).contains(&counts[1]) && (450..720).contains(&counts[2]), "{counts:?}");
    }
}
