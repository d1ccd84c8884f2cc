//! A collection: legs, crossing, opening.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use handrail_engine::index::bench::{DIMENSION, sample};
use handrail_engine::index::{Error, Label, Leg, Opened, Options, VectorId, Vectors};

use super::row;

fn options() -> Options {
    Options { linear_below: 400, ..Options::new(DIMENSION) }
}

fn label() -> Label {
    Label { model: "m".to_owned(), stamp: 7 }
}

fn rows(data: &[f32], ids: std::ops::Range<usize>) -> impl Iterator<Item = (VectorId, &[f32])> {
    ids.map(|id| (id as VectorId, row(data, id)))
}

#[test]
fn a_growing_collection_gets_a_graph_and_a_shrinking_one_loses_it() {
    assert_eq!(Options::new(384).linear_below, 10_000);
    let data = sample(1_000, 31);
    let vectors = Vectors::new(options());
    vectors.insert_all(rows(&data, 0..399)).unwrap();
    assert_eq!((vectors.leg(), vectors.search(row(&data, 3), 5, 16, None).unwrap().leg), (Leg::Linear, Leg::Linear));
    vectors.insert(399, row(&data, 399)).unwrap();
    assert_eq!(vectors.leg(), Leg::Graph);
    vectors.insert_all(rows(&data, 400..1_000)).unwrap();
    let answer = vectors.search(row(&data, 3), 5, 16, None).unwrap();
    assert_eq!((answer.hits[0].id, answer.hits.len(), answer.leg), (3, 5, Leg::Graph));
    let rare = vectors.search(row(&data, 3), 5, 16, Some(&|id| id < 4)).unwrap();
    assert_eq!((rare.hits.len(), rare.leg), (4, Leg::Exact));
    assert_eq!(vectors.remove_all(0..799), 799);
    assert_eq!((vectors.leg(), vectors.len()), (Leg::Graph, 201));
    assert!(vectors.remove(799) && vectors.remove(800) && !vectors.remove(800));
    assert_eq!((vectors.leg(), vectors.len(), vectors.contains(801)), (Leg::Linear, 199, true));
    assert_eq!(vectors.search(row(&data, 900), 1, 16, None).unwrap().hits[0].id, 900);
    assert_eq!(vectors.get(900).as_deref(), Some(row(&data, 900)));
}

#[test]
fn a_refused_vector_stops_a_batch_where_it_stands() {
    let vectors = Vectors::new(Options::new(2));
    let batch = [(1, [1.0, 0.0]), (2, [f32::NAN, 0.0]), (3, [0.0, 1.0])];
    assert_eq!(vectors.insert_all(batch), Err(Error::NotFinite { position: 0 }));
    assert_eq!((vectors.contains(1), vectors.len()), (true, 1));
}

#[test]
fn opens_its_snapshot_or_says_why_it_was_rebuilt() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let data = sample(500, 32);
    let open = |label: &Label, options: Options| Vectors::open_or_rebuild(&path, label, options, || rows(&data, 0..500));

    let (vectors, opened) = open(&label(), options());
    assert!(matches!(opened, Opened::Rebuilt { reason: Error::Missing { .. }, refused_count: 0, .. }));
    assert_eq!((vectors.leg(), vectors.len()), (Leg::Linear, 500), "a rebuilt collection answers before its graph is built");
    assert_eq!(vectors.search(row(&data, 8), 1, 64, None).unwrap().hits[0].id, 8);
    assert!(vectors.build_graph() && !vectors.build_graph());
    vectors.save(&path, &label()).unwrap();

    let (vectors, opened) = open(&label(), options());
    assert_eq!((opened, vectors.leg(), vectors.len()), (Opened::Loaded, Leg::Graph, 500));

    let reason = |label: &Label, options: Options| match open(label, options).1 {
        Opened::Rebuilt { reason, refused_count, .. } => (reason.to_string(), refused_count),
        Opened::Loaded => panic!("loaded"),
    };
    let (other, count) = reason(&Label { model: "n".to_owned(), stamp: 7 }, options());
    assert!(other.contains("made with the model m, now n is used") && count == 0, "{other}");
    let (older, _) = reason(&Label { stamp: 8, ..label() }, options());
    assert!(older.contains("of state 7, the collection is at 8"), "{older}");
    let (longer, count) = reason(&label(), Options { dimension: 3, ..options() });
    assert!(longer.contains("vectors of 384 numbers, now 3") && count == 500, "{longer}");

    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&path, bytes).unwrap();
    let (vectors, opened) = open(&label(), options());
    assert!(matches!(opened, Opened::Rebuilt { reason: Error::Damaged { .. }, .. }));
    assert_eq!(vectors.len(), 500);
}

#[test]
fn a_rebuild_leaves_bad_vectors_out_and_lists_them() {
    let folder = tempfile::tempdir().unwrap();
    let source = || (0..40).map(|id| (id, if id % 2 == 0 { vec![1.0, 0.5] } else { vec![f32::NAN, 0.0] }));
    let (vectors, opened) = Vectors::open_or_rebuild(&folder.path().join("index"), &label(), Options::new(2), source);
    let Opened::Rebuilt { refused, refused_count, .. } = opened else { panic!("loaded") };
    assert_eq!((vectors.len(), refused.len(), refused_count), (20, 16, 20));
    assert_eq!(refused[0], (1, Error::NotFinite { position: 0 }));
}

#[test]
fn searches_go_on_while_one_writes() {
    let data = sample(900, 33);
    let vectors = Vectors::new(options());
    vectors.insert_all(rows(&data, 0..300)).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut asked = 0;
                    while !done.load(Ordering::Acquire) || asked == 0 {
                        let answer = vectors.search(row(&data, 5), 10, 64, None).unwrap();
                        assert_eq!((answer.hits[0].id, answer.hits.len()), (5, 10));
                        asked += 1;
                    }
                    asked
                })
            })
            .collect();
        vectors.insert_all(rows(&data, 300..900)).unwrap();
        assert_eq!(vectors.remove_all(6..400), 394);
        done.store(true, Ordering::Release);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    assert_eq!((vectors.leg(), vectors.len()), (Leg::Graph, 506));
}
