//! Finding near vectors in one layer.

use std::collections::BinaryHeap;

use super::super::exact::{Best, Ranked};
use super::super::metric::prefetch;
use super::super::rows::Slot;
use super::super::{Filter, Hit};
use super::Hnsw;
use super::links::NONE;

/// A vector and its score.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) score: f32,
    pub(super) slot: Slot,
}

/// Best first.
pub(super) fn sort(nears: &mut [Near]) {
    nears.sort_unstable_by(|a, b| b.score.total_cmp(&a.score).then(a.slot.cmp(&b.slot)));
}

/// What a walk looks for and where it starts.
pub(super) struct Walk<'a> {
    pub(super) query: &'a [f32],
    pub(super) starts: &'a [Near],
    pub(super) breadth: usize,
    pub(super) layer: usize,
}

/// The mark of a candidate whose links were followed.
const FOLLOWED: Slot = 1 << 31;

/// Memory that walks use again.
#[derive(Default)]
pub(super) struct Scratch {
    /// One bit per slot.
    seen: Vec<u64>,
    /// Candidates, best first, at most the walk's breadth.
    pool: Vec<Near>,
    fresh: Vec<Slot>,
}

impl Scratch {
    fn start(&mut self, slots: usize, breadth: usize) {
        self.seen.clear();
        self.seen.resize(slots.div_ceil(64), 0);
        self.pool.clear();
        self.pool.reserve(breadth + 1);
    }

    /// True the first time.
    #[inline]
    fn see(&mut self, slot: Slot) -> bool {
        let (word, bit) = (&mut self.seen[slot as usize / 64], 1 << (slot % 64));
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    /// Keeps a candidate if it is among the best; gives its place.
    #[inline]
    fn keep(pool: &mut Vec<Near>, near: Near, breadth: usize) -> Option<usize> {
        if pool.len() >= breadth {
            if pool.last().is_none_or(|worst| near.score <= worst.score) {
                return None;
            }
            let _ = pool.pop();
        }
        let place = pool.partition_point(|other| other.score >= near.score);
        pool.insert(place, near);
        Some(place)
    }

    /// What the last walk found, best first.
    pub(super) fn found(&self) -> impl Iterator<Item = Near> + '_ {
        self.pool.iter().map(|near| Near { score: near.score, slot: near.slot & !FOLLOWED })
    }
}

impl Hnsw {
    pub(super) fn score(&self, query: &[f32], slot: Slot) -> Near {
        Near { score: self.metric.dot(query, self.rows.row(slot)), slot }
    }

    /// From the entry down to just above `layer`, each time to the best neighbour until none is better.
    pub(super) fn descend(&self, query: &[f32], layer: usize) -> Near {
        let mut best = self.score(query, self.entry);
        for layer in (layer + 1..=usize::from(self.links.level(self.entry))).rev() {
            loop {
                let before = best.slot;
                let neighbours = self.links.of(before, layer);
                for slot in neighbours {
                    prefetch(self.rows.row(*slot));
                }
                self.rows.scores(self.metric, query, neighbours, |slot, score| {
                    if score > best.score {
                        best = Near { score, slot };
                    }
                });
                if best.slot == before {
                    break;
                }
            }
        }
        best
    }

    /// Puts the unseen neighbours of a vector into `scratch.fresh`, on their way into the cache.
    #[inline]
    fn look_around(&self, slot: Slot, layer: usize, scratch: &mut Scratch) {
        scratch.fresh.clear();
        for neighbour in self.links.list(slot, layer) {
            if *neighbour == NONE {
                break;
            }
            if scratch.see(*neighbour) {
                prefetch(self.rows.row(*neighbour));
                scratch.fresh.push(*neighbour);
            }
        }
    }

    /// Follows the best unfollowed candidate until all of the best `breadth` are followed (the paper's algorithm 2; one
    /// sorted array serves as both of its heaps).
    pub(super) fn walk(&self, walk: Walk<'_>, scratch: &mut Scratch) {
        let Walk { query, starts, breadth, layer } = walk;
        scratch.start(self.rows.slots(), breadth);
        for start in starts {
            if scratch.see(start.slot) {
                let _ = Scratch::keep(&mut scratch.pool, *start, breadth);
            }
        }
        let mut next = 0;
        while let Some(candidate) = scratch.pool.get_mut(next) {
            if candidate.slot & FOLLOWED != 0 {
                next += 1;
                continue;
            }
            let slot = candidate.slot;
            candidate.slot |= FOLLOWED;
            self.look_around(slot, layer, scratch);
            let pool = &mut scratch.pool;
            self.rows.scores(self.metric, query, &scratch.fresh, |slot, score| {
                if let Some(place) = Scratch::keep(pool, Near { score, slot }, breadth) {
                    next = next.min(place);
                }
            });
            if let Some(following) = scratch.pool.get(next) {
                prefetch(self.links.list(following.slot & !FOLLOWED, layer));
            }
        }
    }

    /// As [`Hnsw::walk`] through all vectors, but only those that pass are kept as found. None when it has scored
    /// more than `patience` of them.
    pub(super) fn walk_filtered(&self, walk: Walk<'_>, passes: &Filter<'_>, patience: usize, scratch: &mut Scratch) -> Option<Vec<Hit>> {
        let Walk { query, starts, breadth, layer } = walk;
        scratch.start(self.rows.slots(), 0);
        let mut best = Best::new(breadth);
        let mut frontier = BinaryHeap::new();
        let mut scored = 0;
        for start in starts.iter().filter(|start| scratch.see(start.slot)) {
            self.consider(*start, passes, &mut best, &mut frontier);
        }
        while let Some(Ranked(Hit { id, score })) = frontier.pop() {
            if best.floor().is_some_and(|floor| score < floor) {
                break;
            }
            self.look_around(id as Slot, layer, scratch);
            scored += scratch.fresh.len();
            if scored > patience {
                return None;
            }
            self.rows.scores(self.metric, query, &scratch.fresh, |slot, score| {
                self.consider(Near { score, slot }, passes, &mut best, &mut frontier);
            });
        }
        Some(best.into_hits())
    }

    /// The frontier is ordered like hits, with slots in the place of ids.
    fn consider(&self, near: Near, passes: &Filter<'_>, best: &mut Best, frontier: &mut BinaryHeap<Ranked>) {
        if best.floor().is_some_and(|floor| near.score < floor) {
            return;
        }
        frontier.push(Ranked(Hit { id: u64::from(near.slot), score: near.score }));
        let id = self.rows.id(near.slot);
        if passes(id) {
            best.offer(id, near.score);
        }
    }
}
