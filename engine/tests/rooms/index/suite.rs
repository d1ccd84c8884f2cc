//! What holds of every leg.

use std::collections::BTreeMap;

use handrail_engine::index::bench::{DIMENSION, sample};
use handrail_engine::index::{Error, Index, VectorId};
use proptest::prelude::*;

use super::{NONE, brute, fill, legs, lost, recall, row};

/// At these sizes the full graph index answers by its graph, so only one of the two is judged.
fn judged(dimension: usize) -> impl Iterator<Item = (&'static str, Box<dyn Index>)> {
    legs(dimension).into_iter().filter(|(name, _)| *name != "hnsw")
}

#[test]
fn finds_what_is_near() {
    let (data, queries) = (sample(3_000, 1), sample(60, 2));
    let live: Vec<VectorId> = (0..3_000).collect();
    for (name, mut index) in judged(DIMENSION) {
        fill(index.as_mut(), &data);
        let found = recall(index.as_ref(), &data, &live, &queries, 64);
        let floor = if name == "linear" { 1.0 } else { 0.95 };
        assert!(found >= floor, "{name}: recall {found}");
        assert_eq!(lost(index.as_ref(), 0..3_000, 64), NONE, "{name}");
    }
}

#[test]
fn half_deleted_and_put_back_is_as_good_as_new() {
    let (data, queries) = (sample(2_000, 3), sample(40, 4));
    for (name, mut index) in judged(DIMENSION) {
        fill(index.as_mut(), &data);
        let (odd, even): (Vec<VectorId>, Vec<VectorId>) = (0..2_000).partition(|id| id % 2 == 1);
        assert!(odd.iter().all(|id| index.remove(*id)) && !index.remove(1), "{name}");
        let halved = recall(index.as_ref(), &data, &even, &queries, 64);
        assert!(halved >= 0.95, "{name}: recall {halved} after deleting half");
        assert_eq!(lost(index.as_ref(), even.iter().copied(), 64), NONE, "{name}");
        for id in &odd {
            index.insert(*id, row(&data, *id as usize)).unwrap();
        }
        let live: Vec<VectorId> = (0..2_000).collect();
        let again = recall(index.as_ref(), &data, &live, &queries, 64);
        assert!(again >= 0.95, "{name}: recall {again} after putting back");
        assert_eq!(lost(index.as_ref(), 0..2_000, 64), NONE, "{name}");
    }
}

#[test]
fn an_update_moves_a_vector() {
    let data = sample(600, 5);
    for (name, mut index) in legs(DIMENSION) {
        fill(index.as_mut(), &data[..500 * DIMENSION]);
        for id in 0..100 {
            index.insert(id, row(&data, 500 + id as usize)).unwrap();
        }
        assert_eq!(index.len(), 500, "{name}");
        for id in 0..100 {
            let new = index.search(row(&data, 500 + id as usize), 1, 64, None).unwrap();
            assert_eq!(new[0].id, id, "{name}");
            let old = index.search(row(&data, id as usize), 1, 64, None).unwrap();
            assert!(old[0].score < 0.999, "{name}: {id} is still at its old place");
        }
    }
}

#[test]
fn only_what_passes_is_found_and_enough_of_it() {
    let (data, queries) = (sample(1_500, 6), sample(10, 7));
    for (name, mut index) in legs(DIMENSION) {
        fill(index.as_mut(), &data);
        for modulus in [2, 7, 100, 400] {
            let passes = |id: VectorId| id % modulus == 1;
            let matching: Vec<VectorId> = (0..1_500).filter(|id| passes(*id)).collect();
            let mut right = 0;
            let wanted = 10.min(matching.len());
            for query in queries.chunks_exact(DIMENSION) {
                let hits = index.search(query, 10, 64, Some(&passes)).unwrap();
                assert!(hits.iter().all(|hit| passes(hit.id)), "{name}: one in {modulus}");
                let truth = brute(&data, matching.iter().copied(), query, 10);
                right += hits.iter().filter(|hit| truth.contains(&hit.id)).count();
                assert_eq!(hits.len(), wanted, "{name}: one in {modulus}");
            }
            assert!(right as f64 >= 9.5 * wanted as f64, "{name}: one in {modulus}, {right} of {}", 10 * wanted);
        }
        assert_eq!(index.search(row(&queries, 0), 10, 64, Some(&|_| false)).unwrap(), [], "{name}");
        let all = index.search(row(&queries, 0), 10, 64, Some(&|_| true)).unwrap();
        assert_eq!(all.len(), 10, "{name}");
    }
}

#[test]
fn edges_of_size() {
    for (name, mut index) in legs(3) {
        assert!(index.is_empty() && index.get(1).is_none() && !index.remove(1), "{name}");
        assert_eq!(index.search(&[1.0, 0.0, 0.0], 5, 64, None).unwrap(), [], "{name}: empty");
        index.insert(7, &[2.0, 0.0, 0.0]).unwrap();
        index.insert(u64::MAX, &[0.0, 3.0, 0.0]).unwrap();
        let hits = index.search(&[1.0, 0.0, 0.0], 100, 1, None).unwrap();
        assert_eq!(hits.iter().map(|hit| (hit.id, hit.score)).collect::<Vec<_>>(), [(7, 1.0), (u64::MAX, 0.0)], "{name}: k above len");
        assert_eq!(index.search(&[1.0, 0.0, 0.0], 0, 64, None).unwrap(), [], "{name}: k 0");
        assert_eq!(index.search(&[1.0, 0.0, 0.0], usize::MAX, usize::MAX, None).unwrap().len(), 2, "{name}");
        assert!(index.remove(7) && index.remove(u64::MAX) && index.is_empty(), "{name}");
        assert_eq!(index.search(&[1.0, 0.0, 0.0], 5, 64, None).unwrap(), [], "{name}: emptied");
        index.insert(7, &[0.0, 0.0, 1.0]).unwrap();
        assert_eq!(index.search(&[0.0, 0.0, 1.0], 5, 64, None).unwrap()[0].id, 7, "{name}: used again");
    }
}

#[test]
fn many_equal_vectors_are_all_there() {
    for (name, mut index) in legs(8) {
        let (one, other) = ([1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        for id in 0..300 {
            index.insert(id, if id % 3 == 0 { &other } else { &one }).unwrap();
        }
        let hits = index.search(&one, 300, 300, None).unwrap();
        assert_eq!(hits.len(), 300, "{name}");
        assert!(hits[..200].iter().all(|hit| hit.score == 1.0) && hits[200..].iter().all(|hit| hit.score == 0.0), "{name}");
        assert!((0..300).filter(|id| id % 3 != 0).all(|id| index.remove(id)), "{name}");
        assert_eq!(index.search(&one, 300, 300, None).unwrap().len(), 100, "{name}");
        assert_eq!(lost(index.as_ref(), (0..300).step_by(3), 16), NONE, "{name}");
    }
}

#[test]
fn zeros_and_wrong_vectors() {
    for (name, mut index) in legs(2) {
        index.insert(1, &[0.0, 0.0]).unwrap();
        index.insert(2, &[0.0, 1.0]).unwrap();
        assert_eq!(index.get(1), Some([0.0, 0.0].as_slice()), "{name}");
        let hits = index.search(&[0.0, 5.0], 2, 64, None).unwrap();
        assert_eq!(hits.iter().map(|hit| (hit.id, hit.score)).collect::<Vec<_>>(), [(2, 1.0), (1, 0.0)], "{name}");
        assert_eq!(index.search(&[0.0, 0.0], 2, 64, None).unwrap().len(), 2, "{name}: a query of zeros");
        let wrong = Error::Dimension { expected: 2, found: 3 };
        assert_eq!(index.insert(2, &[1.0, 0.0, 0.0]), Err(wrong.clone()), "{name}");
        assert_eq!(index.search(&[1.0, 0.0, 0.0], 1, 1, None), Err(wrong), "{name}");
        assert_eq!(index.insert(2, &[f32::NAN, 0.0]), Err(Error::NotFinite { position: 0 }), "{name}");
        assert_eq!(index.search(&[0.0, f32::INFINITY], 1, 1, None), Err(Error::NotFinite { position: 1 }), "{name}");
        assert_eq!(index.get(2), Some([0.0, 1.0].as_slice()), "{name}: a refused update changes nothing");
    }
}

#[derive(Clone, Debug)]
enum Change {
    Put(VectorId, usize),
    Remove(VectorId),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![3 => (0..120u64, 0..200usize).prop_map(|(id, row)| Change::Put(id, row)), 2 => (0..120u64).prop_map(Change::Remove)]
}

/// 200 vectors of 12 numbers: some equal, some zero, some in tight groups.
fn rows() -> Vec<[f32; 12]> {
    let mut word = 9u64;
    let mut next = || {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (word >> 40) as f32 / 8_388_608.0 - 1.0
    };
    let mut rows: Vec<[f32; 12]> = (0..160).map(|_| std::array::from_fn(|_| next())).collect();
    let mut near = rows[0];
    near[3] += 1e-3;
    rows.extend([rows[1], rows[1], rows[2], [0.0; 12], [0.0; 12], near]);
    rows.extend((0..34).map(|step| std::array::from_fn(|place| if place == step % 4 { 1.0 } else { 0.01 * step as f32 })));
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_mix_of_changes_leaves_what_a_map_would_hold(changes in proptest::collection::vec(change(), 1..400)) {
        let rows = rows();
        for (name, mut index) in legs(12) {
            let mut model = BTreeMap::new();
            for change in &changes {
                match change {
                    Change::Put(id, row) => {
                        index.insert(*id, &rows[*row]).unwrap();
                        let _ = model.insert(*id, *row);
                    }
                    Change::Remove(id) => prop_assert_eq!(index.remove(*id), model.remove(id).is_some(), "{}", name),
                }
            }
            prop_assert_eq!(index.len(), model.len());
            prop_assert!((0..120).all(|id| index.contains(id) == model.contains_key(&id)));
            prop_assert_eq!(lost(index.as_ref(), model.keys().copied(), 16), Vec::<VectorId>::new(), "{}", name);
            let all = index.search(&rows[0], 500, 500, None).unwrap();
            prop_assert_eq!(all.len(), model.len(), "{}", name);
            prop_assert!(all.windows(2).all(|pair| pair[0].score >= pair[1].score));
        }
    }
}
