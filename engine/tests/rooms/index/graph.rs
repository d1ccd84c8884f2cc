//! What is particular to the graph.

use handrail_engine::index::bench::{DIMENSION, sample};
use handrail_engine::index::{Config, Hnsw, Index, Label, Linear, VectorId};
use proptest::prelude::*;

use super::{GraphOnly, NONE, fill, graph, lost, recall, row};

/// Scenario 37: insert 5,000, delete half, upsert a third, save, reload.
#[test]
fn every_live_vector_finds_itself_after_deletions_updates_and_a_reload() {
    let (data, queries) = (sample(6_000, 37), sample(40, 38));
    let mut index = graph(DIMENSION);
    fill(&mut index, &data[..5_000 * DIMENSION]);
    for id in (0..5_000).step_by(2) {
        assert!(index.remove(id));
    }
    // A third of the 5,000 ids: some live (replaced), some deleted before (put back), with numbers of others.
    for id in (0..5_000).step_by(3) {
        index.insert(id, row(&data, (id as usize + 1_000) % 6_000)).unwrap();
    }
    let live: Vec<VectorId> = (0..5_000).filter(|id| id % 2 == 1 || id % 3 == 0).collect();
    index.check().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (path, label) = (folder.path().join("index"), Label { model: "m".to_owned(), stamp: 1 });
    index.save(&path, &label).unwrap();
    let (index, read) = Hnsw::load(&path).unwrap();
    assert_eq!((index.len(), read), (live.len(), label));
    index.check().unwrap();
    let index = GraphOnly(index);
    assert_eq!(lost(&index, live.iter().copied(), 64), NONE);
    for query in queries.chunks_exact(DIMENSION) {
        for k in [1, 10, 100] {
            assert_eq!(index.search(query, k, 64, None).unwrap().len(), k);
        }
    }
    assert_eq!(index.search(row(&queries, 0), 5_000, 64, None).unwrap().len(), live.len());

    let mut linear = Linear::new(DIMENSION);
    for id in &live {
        linear.insert(*id, index.get(*id).unwrap()).unwrap();
    }
    let mut agreed = 0;
    for query in queries.chunks_exact(DIMENSION) {
        let truth: Vec<_> = linear.search(query, 10, 0, None).unwrap().iter().map(|hit| hit.id).collect();
        agreed += index.search(query, 10, 64, None).unwrap().iter().filter(|hit| truth.contains(&hit.id)).count();
    }
    assert!(agreed >= 380, "{agreed} of 400 after the reload");
}

#[test]
fn the_same_insertions_give_the_same_graph() {
    let data = sample(700, 11);
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    for name in ["a", "b"] {
        let mut index = graph(DIMENSION);
        fill(&mut index, &data);
        for id in 0..50 {
            assert!(index.remove(id));
        }
        index.save(&folder.path().join(name), &Label::default()).unwrap();
        files.push(std::fs::read(folder.path().join(name)).unwrap());
    }
    assert_eq!(files[0], files[1]);
}

/// A drifting line of vectors makes the deepest tree; deleting a whole side of it, the entry among them, the worst repair.
#[test]
fn a_whole_region_can_go() {
    let mut index = graph(2);
    let angle = |id: u64| id as f32 * 1e-3;
    for id in 0..1_500 {
        index.insert(id, &[angle(id).cos(), angle(id).sin()]).unwrap();
    }
    index.check().unwrap();
    for id in 0..1_000 {
        assert!(index.remove(id));
    }
    index.check().unwrap();
    let index = GraphOnly(index);
    assert_eq!(lost(&index, 1_000..1_500, 32), NONE);
    assert_eq!(index.search(&[1.0, 0.0], 500, 500, None).unwrap().len(), 500);
}

#[test]
fn small_settings_work_too() {
    let (data, queries) = (sample(1_000, 12), sample(20, 13));
    let live: Vec<VectorId> = (0..1_000).collect();
    for links in [0, 2, 3, 5] {
        let mut index = Hnsw::new(DIMENSION, Config { links, build_breadth: 40, seed: 1 });
        fill(&mut index, &data);
        for id in (0..1_000).step_by(3) {
            assert!(index.remove(id));
            index.insert(id, row(&data, id as usize)).unwrap();
        }
        index.check().unwrap();
        let index = GraphOnly(index);
        assert_eq!(index.search(row(&data, 0), 1_000, 1_000, None).unwrap().len(), 1_000, "{links} links: all can be reached");
        let found = recall(&index, &data, &live, &queries, 400);
        assert!(found > 0.8, "{links} links: recall {found}");
    }
}

#[test]
fn rare_matches_are_scanned_and_common_ones_walked() {
    let data = sample(4_000, 14);
    let mut index = graph(DIMENSION);
    fill(&mut index, &data);
    let query = row(&data, 9);
    let (hits, exact) = index.search_traced(query, 10, 32, None).unwrap();
    assert_eq!((hits[0].id, exact), (9, false));
    let most = |id: VectorId| !id.is_multiple_of(10);
    let (hits, exact) = index.search_traced(query, 10, 32, Some(&most)).unwrap();
    assert_eq!((hits.len(), exact), (10, false));
    let few = |id: VectorId| id % 80 == 9;
    let (hits, exact) = index.search_traced(query, 50, 32, Some(&few)).unwrap();
    assert_eq!((hits.len(), hits[0].id, exact), (50, 9, true));
    // A breadth at which walking would cost more than scanning.
    assert!(index.search_traced(query, 10, 1_000, None).unwrap().1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_graph_holds_together_after_each_change(
        links in 2..6usize,
        changes in proptest::collection::vec((0..40u64, 0..60u64, proptest::bool::ANY), 1..160),
    ) {
        let mut index = Hnsw::new(2, Config { links, build_breadth: 8, seed: 3 });
        for (id, place, put) in changes {
            if put {
                // Places repeat, so equal vectors are common; place 0 is the zero vector.
                let (angle, length) = (place as f32, if place == 0 { 0.0 } else { 1.0 });
                index.insert(id, &[angle.cos() * length, angle.sin() * length]).unwrap();
            } else {
                let _ = index.remove(id);
            }
            prop_assert_eq!(index.check(), Ok(()));
            prop_assert_eq!(index.search_graph(&[1.0, 0.0], 40, 40, None).unwrap().len(), index.len());
        }
    }
}
