//! The snapshot file: what was saved comes back, and anything else is an error.

use std::fs;
use std::path::Path;

use handrail_engine::index::bench::{DIMENSION, sample};
use handrail_engine::index::{Error, Hnsw, Index, Label, Linear};
use sha2::{Digest, Sha256};

use super::{fill, graph, row};

fn label() -> Label {
    Label { model: "all-minilm-l6-v2".to_owned(), stamp: 42 }
}

/// A small graph's file with holes, upper layers and a removed entry behind it.
fn saved(path: &Path) -> Hnsw {
    let data = sample(120, 21);
    let mut index = graph(DIMENSION);
    fill(&mut index, &data);
    for id in 0..20 {
        assert!(index.remove(id * 5));
    }
    index.save(path, &label()).unwrap();
    index
}

fn is_refused(path: &Path) -> bool {
    let graph = Hnsw::load(path).err();
    let linear = Linear::load(path).err();
    let typed = |error: Option<Error>| matches!(error, Some(Error::Damaged { .. } | Error::Stale { .. } | Error::Io { .. }));
    typed(graph) && typed(linear)
}

#[test]
fn a_reloaded_index_answers_as_before_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let before = saved(&path);
    let (mut after, read) = Hnsw::load(&path).unwrap();
    assert_eq!((read, after.len(), after.dimension(), after.config()), (label(), 100, DIMENSION, before.config()));
    let queries = sample(20, 22);
    for query in queries.chunks_exact(DIMENSION) {
        assert_eq!(after.search_graph(query, 10, 50, None), before.search_graph(query, 10, 50, None));
    }
    for id in 0..120 {
        assert_eq!(after.get(id), before.get(id));
        after.insert(id, row(&sample(120, 23), id as usize)).unwrap();
    }
    after.check().unwrap();
    after.save(&path, &label()).unwrap();
    assert_eq!(Hnsw::load(&path).unwrap().0.len(), 120);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays behind");
}

#[test]
fn a_list_of_vectors_round_trips_and_empty_ones_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let mut linear = Linear::new(5);
    linear.save(&path, &label()).unwrap();
    assert!(Linear::load(&path).unwrap().0.is_empty());
    linear.insert(9, &[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
    linear.insert(3, &[0.0; 5]).unwrap();
    linear.save(&path, &label()).unwrap();
    let (read, _) = Linear::load(&path).unwrap();
    assert_eq!((read.get(9), read.get(3), read.len()), (linear.get(9), linear.get(3), 2));
    assert!(matches!(Hnsw::load(&path), Err(Error::Damaged { .. })), "not a graph");
    graph(5).save(&path, &label()).unwrap();
    assert!(Hnsw::load(&path).unwrap().0.is_empty());
}

#[test]
fn removed_vectors_are_not_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let data = sample(50, 24);
    let mut index = graph(DIMENSION);
    fill(&mut index, &data);
    let secret: Vec<u8> = row(&data, 7)[..8].iter().flat_map(|number| number.to_le_bytes()).collect();
    index.save(&path, &label()).unwrap();
    assert!(fs::read(&path).unwrap().windows(32).any(|bytes| bytes == secret));
    assert!(index.remove(7));
    index.save(&path, &label()).unwrap();
    assert!(!fs::read(&path).unwrap().windows(32).any(|bytes| bytes == secret));
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let _ = saved(&path);
    let whole = fs::read(&path).unwrap();
    // Every field of the header, every section's start and end, and the last byte.
    let fields = [0, 1, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 72, 80, 84, 88, 472, 4064, 4095, 4096];
    let sections = (0..6).flat_map(|place| {
        let at = |offset: usize| u64::from_le_bytes(whole[88 + place * 48 + offset..][..8].try_into().unwrap()) as usize;
        [at(0), at(0) + 1, at(0) + at(8) - 1]
    });
    for length in fields.into_iter().chain(sections).chain([whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(is_refused(&path), "cut at {length}");
    }
    fs::write(&path, [whole.as_slice(), &[0]].concat()).unwrap();
    assert!(is_refused(&path), "one byte too many");
    assert_eq!(Hnsw::load(&folder.path().join("none")).err(), Some(Error::Missing { path: folder.path().join("none") }));
}

#[test]
fn a_flipped_bit_anywhere_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let _ = saved(&path);
    let whole = fs::read(&path).unwrap();
    let section = |place: usize, offset: usize| u64::from_le_bytes(whole[88 + place * 48 + offset..][..8].try_into().unwrap()) as usize;
    let inside: Vec<usize> = (0..6)
        .flat_map(|place| (0..12).map(move |step| (place, step)))
        .map(|(place, step)| section(place, 0) + section(place, 8) * step / 12)
        .collect();
    for at in (0..4096).step_by(61).chain(0..90).chain(inside) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        assert!(is_refused(&path), "flipped at {at}");
    }
}

/// Puts numbers into the file and signs it again, as someone who means harm would.
fn forge(whole: &[u8], edits: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for (at, edit) in edits {
        bytes[*at..at + edit.len()].copy_from_slice(edit);
    }
    for place in 0..6 {
        let at = 88 + place * 48;
        let long = |offset: usize| u64::from_le_bytes(bytes[at + offset..][..8].try_into().unwrap()) as usize;
        let (start, length) = (long(0), long(8));
        if let Some(section) = start.checked_add(length).and_then(|end| bytes.get(start..end)) {
            let sum = Sha256::digest(section);
            bytes[at + 16..at + 48].copy_from_slice(&sum);
        }
    }
    let sum = Sha256::digest(&bytes[..4064]);
    bytes[4064..4096].copy_from_slice(&sum);
    bytes
}

#[test]
fn a_well_signed_lie_is_an_error_and_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("index");
    let _ = saved(&path);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, forge(&whole, &[])).unwrap();
    assert!(Hnsw::load(&path).is_ok(), "the forger signs properly");
    let section = |place: usize| u64::from_le_bytes(whole[88 + place * 48..][..8].try_into().unwrap()) as usize;
    let (ids, rows, levels, base, parents) = (section(0), section(1), section(2), section(3), section(4));
    let (long, word) = (u64::MAX.to_le_bytes(), u32::MAX.to_le_bytes());
    let first_id: [u8; 8] = whole[ids..ids + 8].try_into().unwrap();
    let lies: &[(&str, &[(usize, &[u8])])] = &[
        ("dimension", &[(16, &word)]),
        ("dimension 0", &[(16, &[0; 4])]),
        ("links", &[(20, &word)]),
        ("links 4", &[(20, &4u32.to_le_bytes())]),
        ("build breadth", &[(24, &word)]),
        ("entry", &[(28, &100u32.to_le_bytes())]),
        ("no entry", &[(28, &word)]),
        ("count", &[(32, &long)]),
        ("count of 2^31", &[(32, &(1u64 << 31).to_le_bytes())]),
        ("count one less", &[(32, &99u64.to_le_bytes())]),
        ("upper", &[(40, &long)]),
        ("upper one more", &[(40, &(u64::from_le_bytes(whole[40..48].try_into().unwrap()) + 1).to_le_bytes())]),
        ("length", &[(72, &long)]),
        ("sections", &[(80, &word)]),
        ("model's length", &[(84, &word)]),
        ("model not text", &[(472, &[0xff, 0xfe])]),
        ("a section's start", &[(88, &long)]),
        ("a section's length", &[(96, &long)]),
        ("the same id twice", &[(ids + 8, &first_id)]),
        ("NaN", &[(rows + 40, &f32::NAN.to_le_bytes())]),
        ("not normalised", &[(rows + 40, &9f32.to_le_bytes())]),
        ("a level too high", &[(levels + 3, &[200])]),
        ("a free slot", &[(levels + 3, &[255])]),
        ("a link out of range", &[(base, &100u32.to_le_bytes())]),
        ("a link to itself", &[(base, &0u32.to_le_bytes())]),
        ("a gap in the links", &[(base, &word)]),
        ("a parent out of range", &[(parents + 40, &100u32.to_le_bytes())]),
        ("two roots", &[(parents + 40, &word), (parents + 80, &word)]),
        ("its own parent", &[(parents + 40, &10u32.to_le_bytes())]),
    ];
    for (name, edits) in lies {
        fs::write(&path, forge(&whole, edits)).unwrap();
        assert!(is_refused(&path), "{name}");
    }
}

#[test]
fn where_a_file_cannot_be_written_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no such folder").join("index");
    let error = graph(4).save(&path, &label()).unwrap_err();
    assert!(matches!(&error, Error::Io { action: "write", path: named, .. } if *named == path), "{error}");
    let long = Label { model: "m".repeat(1_025), stamp: 0 };
    assert!(matches!(graph(4).save(&folder.path().join("index"), &long), Err(Error::Io { .. })));
}
