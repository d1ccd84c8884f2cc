//! Which candidates become links: near ones in different directions (the paper's algorithm 4).

use super::super::rows::Slot;
use super::Hnsw;
use super::walk::{Near, sort};

impl Hnsw {
    /// Whether a candidate is nearer to the centre (its score) than to every one chosen so far.
    pub(super) fn is_diverse(&self, candidate: Near, chosen: &[Slot]) -> bool {
        let row = self.rows.row(candidate.slot);
        let (fours, rest) = chosen.as_chunks::<4>();
        for four in fours {
            let scores = self.metric.dot4(row, four.map(|slot| self.rows.row(slot)));
            if scores.iter().any(|score| *score >= candidate.score) {
                return false;
            }
        }
        rest.iter().all(|slot| self.metric.dot(row, self.rows.row(*slot)) < candidate.score)
    }

    /// Chooses at most `limit` of the candidates (best first). Forced ones are always among them; passed-over ones fill
    /// up to `fill`, nearest first.
    pub(super) fn select(&self, candidates: &[Near], limit: usize, fill: usize, forced: impl Fn(Slot) -> bool) -> Vec<Slot> {
        let mut reserved = candidates.iter().filter(|candidate| forced(candidate.slot)).count();
        let mut chosen = Vec::with_capacity(limit);
        let mut passed_over = Vec::new();
        for candidate in candidates {
            if chosen.len() >= limit {
                break;
            }
            if forced(candidate.slot) {
                chosen.push(candidate.slot);
                reserved -= 1;
            } else if chosen.len() + reserved < limit {
                if self.is_diverse(*candidate, &chosen) {
                    chosen.push(candidate.slot);
                } else {
                    passed_over.push(candidate.slot);
                }
            }
        }
        let missing = fill.min(limit).saturating_sub(chosen.len() + reserved);
        chosen.extend(passed_over.into_iter().take(missing));
        chosen
    }

    /// Adds a link; a full list is chosen anew, without ever losing an edge of the tree.
    pub(super) fn connect(&mut self, from: Slot, to: Near, layer: usize) {
        if self.links.push(from, layer, to.slot) {
            return;
        }
        let mut candidates = Vec::with_capacity(self.links.width(layer) + 1);
        self.rows.scores(self.metric, self.rows.row(from), self.links.of(from, layer), |slot, score| candidates.push(Near { score, slot }));
        candidates.push(to);
        sort(&mut candidates);
        let width = self.links.width(layer);
        let chosen = self.select(&candidates, width, Self::fill(width), |slot| layer == 0 && self.is_tree_edge(from, slot));
        self.links.set(from, layer, &chosen);
    }

    /// How far a list chosen anew is filled up.
    fn fill(width: usize) -> usize {
        width * 3 / 4
    }
}
