//! The exact answer: every row that passes is scored, the best `k` are kept in a bounded heap.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::metric::Metric;
use super::rows::{Rows, Slot};
use super::{Filter, Hit, VectorId};

/// Rows scored in one go: enough for the four-row kernel, small enough to stay on the stack.
const BATCH: usize = 64;

/// A hit with a total order: the better score is greater, then the smaller id.
#[derive(Clone, Copy)]
pub(super) struct Ranked(pub(super) Hit);

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.score.total_cmp(&other.0.score).then(other.0.id.cmp(&self.0.id))
    }
}
impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Ranked {}

/// The best few of what it was offered.
pub(super) struct Best {
    limit: usize,
    heap: BinaryHeap<Reverse<Ranked>>,
}

impl Best {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, heap: BinaryHeap::with_capacity(limit.min(4096) + 1) }
    }

    pub(super) fn offer(&mut self, id: VectorId, score: f32) {
        if self.heap.len() < self.limit {
            self.heap.push(Reverse(Ranked(Hit { id, score })));
        } else if let Some(mut worst) = self.heap.peek_mut() {
            let new = Ranked(Hit { id, score });
            if new > worst.0 {
                *worst = Reverse(new);
            }
        }
    }

    /// The score that a new one has to beat, once the limit is reached.
    pub(super) fn floor(&self) -> Option<f32> {
        if self.heap.len() < self.limit { None } else { self.heap.peek().map(|worst| worst.0.0.score) }
    }

    /// Best first.
    pub(super) fn into_hits(self) -> Vec<Hit> {
        self.heap.into_sorted_vec().into_iter().map(|ranked| ranked.0.0).collect()
    }
}

/// The nearest `k` live rows that pass the filter, best first. The query is prepared (`Rows::prepare`).
pub(super) fn search(rows: &Rows, metric: Metric, query: &[f32], k: usize, filter: Option<&Filter<'_>>) -> Vec<Hit> {
    if k == 0 {
        return Vec::new();
    }
    let mut best = Best::new(k);
    let mut batch: [Slot; BATCH] = [0; BATCH];
    let mut filled = 0;
    let passing = rows.iter().filter(|slot| filter.is_none_or(|passes| passes(rows.id(*slot))));
    for slot in passing {
        batch[filled] = slot;
        filled += 1;
        if filled == BATCH {
            rows.scores(metric, query, &batch, |slot, score| best.offer(rows.id(slot), score));
            filled = 0;
        }
    }
    rows.scores(metric, query, &batch[..filled], |slot, score| best.offer(rows.id(slot), score));
    best.into_hits()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_best_and_breaks_ties_by_smaller_id() {
        let mut best = Best::new(3);
        assert_eq!(best.floor(), None);
        for (id, score) in [(9, 0.5), (1, -1.0), (4, 0.5), (7, 0.9), (2, 0.5)] {
            best.offer(id, score);
        }
        assert_eq!(best.floor(), Some(0.5));
        let ids: Vec<_> = best.into_hits().iter().map(|hit| hit.id).collect();
        assert_eq!(ids, [7, 2, 4]);
    }
}
