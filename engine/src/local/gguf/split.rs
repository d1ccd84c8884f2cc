//! Models in several files: each says which part it is (`split.no`, from 0), of how many (`split.count`), and how many
//! tensors all have together (`split.tensors.count`). The names `NAME-00001-of-00003.gguf` say where the others are; the
//! metadata of the model is in the first one.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use super::{Error, One};

/// Most parts. The largest models have fewer than 200.
const MOST: usize = 1_000;

/// The name of a part, taken apart.
struct Name {
    stem: String,
    /// From 1.
    number: usize,
    count: usize,
}

impl Name {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (rest, ending) = name.split_at_checked(name.len().checked_sub(5)?)?;
        let (rest, count) = rest.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
        if !ending.eq_ignore_ascii_case(".gguf") || !digits(number) || !digits(count) {
            return None;
        }
        let name = Self { stem: stem.to_owned(), number: number.parse().ok()?, count: count.parse().ok()? };
        ((1..=name.count).contains(&name.number) && name.count <= MOST).then_some(name)
    }

    fn part(&self, number: usize) -> String {
        format!("{}-{number:05}-of-{:05}.gguf", self.stem, self.count)
    }
}

/// The first part of a model that is in several files by its name, where that part lies beside it; else the file itself.
pub fn first(path: &Path) -> PathBuf {
    let first = Name::of(path).filter(|name| name.number > 1).map(|name| path.with_file_name(name.part(1)));
    first.filter(|first| first.is_file()).unwrap_or_else(|| path.to_owned())
}

/// The files of a model by its name; the file itself where it is in one.
pub fn files(path: &Path) -> Vec<PathBuf> {
    match Name::of(path) {
        Some(name) => (1..=name.count).map(|number| path.with_file_name(name.part(number))).collect(),
        None => vec![path.to_owned()],
    }
}

/// All parts of the model that this file is one of, in their order; the file alone where it is no part.
pub(super) fn whole(opened: One) -> Result<Vec<One>, Error> {
    let Some((number, count)) = place(&opened)? else { return Ok(vec![opened]) };
    let Some(name) = Name::of(&opened.path).filter(|name| (name.number, name.count) == (number + 1, count)) else {
        return Err(opened.unsupported(format!(
            "it is part {} of {count} of a model in several files, and its name does not say so; call the parts \
             NAME-00001-of-{count:05}.gguf to NAME-{count:05}-of-{count:05}.gguf, in one folder, and choose the first one",
            number + 1
        )));
    };
    let paths = files(&opened.path);
    let missing: Vec<String> = (1..=count).filter(|number| !paths[number - 1].is_file()).map(|number| name.part(number)).collect();
    if !missing.is_empty() {
        return Err(opened.unsupported(format!(
            "it is part {} of {count} of a model in several files; missing beside it: {}; bring them into the same folder",
            number + 1,
            missing.join(", ")
        )));
    }
    let mut parts = Vec::with_capacity(count);
    for (at, path) in paths.iter().enumerate() {
        let part = One::open(path)?;
        match place(&part)? {
            Some(found) if found == (at, count) => parts.push(part),
            Some((no, of)) => {
                return Err(part.damaged(format!("by its name it is part {} of {count}, inside it says {} of {of}", at + 1, no + 1)));
            }
            None => return Err(part.damaged(format!("by its name it is part {} of {count}, inside it says nothing of that", at + 1))),
        }
    }
    agree(&parts)?;
    Ok(parts)
}

/// Which part a file says it is, from 0, and of how many.
fn place(one: &One) -> Result<Option<(usize, usize)>, Error> {
    if !one.content.metadata.contains_key("split.count") {
        return Ok(None);
    }
    let (number, count) = (one.number("split.no")?, one.number("split.count")?);
    if count <= 1 {
        return Ok(None);
    }
    if number >= count || count > MOST {
        return Err(one.damaged(format!("it says it is part {} of {count}", number + 1)));
    }
    Ok(Some((number, count)))
}

/// The parts have as many tensors as the first one says, each once.
fn agree(parts: &[One]) -> Result<(), Error> {
    let mut names = HashSet::new();
    for part in parts {
        if let Some(name) = part.content.tensor_infos.keys().find(|name| !names.insert(name.as_str())) {
            return Err(part.damaged(format!("tensor '{name}' is in another part too")));
        }
    }
    let Some(first) = parts.first().filter(|first| first.content.metadata.contains_key("split.tensors.count")) else { return Ok(()) };
    let expected = first.number("split.tensors.count")?;
    if names.len() != expected {
        return Err(first.damaged(format!("its {} parts hold {} tensors, {expected} are expected", parts.len(), names.len())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::gguf::Gguf;

    /// A part with tensors of four numbers each.
    fn part(place: Option<(u16, u16)>, tensors: i32, names: &[&str]) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        bytes.extend((names.len() as u64).to_le_bytes());
        bytes.extend(if place.is_some() { 4u64 } else { 1 }.to_le_bytes());
        text(&mut bytes, "general.architecture");
        bytes.extend(8u32.to_le_bytes());
        text(&mut bytes, &format!("tiny of {}", names[0]));
        if let Some((no, count)) = place {
            for (key, value) in [("split.no", no), ("split.count", count)] {
                text(&mut bytes, key);
                bytes.extend(2u32.to_le_bytes());
                bytes.extend(value.to_le_bytes());
            }
            text(&mut bytes, "split.tensors.count");
            bytes.extend(5u32.to_le_bytes());
            bytes.extend(tensors.to_le_bytes());
        }
        for (at, name) in names.iter().enumerate() {
            text(&mut bytes, name);
            bytes.extend(1u32.to_le_bytes());
            bytes.extend(4u64.to_le_bytes());
            bytes.extend(0u32.to_le_bytes());
            bytes.extend((at as u64 * 32).to_le_bytes());
        }
        for name in names {
            bytes.resize(bytes.len().next_multiple_of(32), 0);
            (0..4u8).for_each(|at| bytes.extend(f32::from(name.as_bytes()[0] + at).to_le_bytes()));
        }
        bytes
    }

    fn values(gguf: &mut Gguf, name: &str) -> Vec<f32> {
        gguf.tensor(name, &[4]).unwrap().dequantize(&candle_core::Device::Cpu).unwrap().to_vec1().unwrap()
    }

    #[test]
    fn the_parts_are_one_model_whichever_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("whole.gguf"), part(None, 0, &["a", "b", "c", "d"])).unwrap();
        std::fs::write(at("x-00001-of-00003.gguf"), part(Some((0, 3)), 4, &["a"])).unwrap();
        std::fs::write(at("x-00002-of-00003.gguf"), part(Some((1, 3)), 4, &["d", "b"])).unwrap();
        std::fs::write(at("x-00003-of-00003.gguf"), part(Some((2, 3)), 4, &["c"])).unwrap();
        let mut whole = Gguf::open(&at("whole.gguf")).unwrap();
        for name in ["x-00001-of-00003.gguf", "x-00003-of-00003.gguf"] {
            let mut gguf = Gguf::open(&at(name)).unwrap();
            assert_eq!(gguf.architecture().unwrap(), "tiny of a", "the metadata is that of the first part");
            for tensor in ["a", "b", "c", "d"] {
                assert_eq!(values(&mut gguf, tensor), values(&mut whole, tensor));
            }
            assert!(gguf.has_tensor("c") && !gguf.has_tensor("e"));
        }
        assert_eq!(first(&at("x-00003-of-00003.gguf")), at("x-00001-of-00003.gguf"));
        assert_eq!(first(&at("whole.gguf")), at("whole.gguf"));
        assert_eq!((files(&at("x-00002-of-00003.gguf")).len(), files(&at("whole.gguf")).len()), (3, 1));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = |parts: &[(&str, Vec<u8>)], open: &str| {
            let folder = tempfile::tempdir_in(folder.path()).unwrap();
            for (name, bytes) in parts {
                std::fs::write(folder.path().join(name), bytes).unwrap();
            }
            Gguf::open(&folder.path().join(open)).unwrap_err().to_string()
        };
        let (one, three) = ("x-00001-of-00003.gguf", "x-00003-of-00003.gguf");
        let said = error(&[(one, part(Some((0, 3)), 2, &["a"])), (three, part(Some((2, 3)), 2, &["b"]))], one);
        assert!(said.contains("part 1 of 3") && said.contains("missing beside it: x-00002-of-00003.gguf;"), "{said}");
        let said = error(&[(three, part(Some((2, 3)), 2, &["b"]))], three);
        assert!(said.contains("x-00001-of-00003.gguf, x-00002-of-00003.gguf"), "{said}");
        let (one, two) = ("x-00001-of-00002.gguf", "x-00002-of-00002.gguf");
        let pair = |second: Vec<u8>| error(&[(one, part(Some((0, 2)), 3, &["a"])), (two, second)], one);
        let said = pair(part(Some((1, 2)), 3, &["b"]));
        assert!(said.contains("its 2 parts hold 2 tensors, 3 are expected"), "{said}");
        let said = pair(part(Some((1, 2)), 3, &["b", "a"]));
        assert!(said.contains("x-00002-of-00002.gguf") && said.contains("'a' is in another part too"), "{said}");
        let said = pair(part(Some((2, 4)), 3, &["b"]));
        assert!(said.contains("by its name it is part 2 of 2, inside it says 3 of 4"), "{said}");
        let said = pair(part(None, 0, &["b"]));
        assert!(said.contains("inside it says nothing of that"), "{said}");
        let said = error(&[("model.gguf", part(Some((1, 2)), 3, &["b"]))], "model.gguf");
        assert!(said.contains("part 2 of 2") && said.contains("NAME-00001-of-00002.gguf"), "{said}");
        let said = error(&[(two, part(Some((7, 2)), 3, &["b"]))], two);
        assert!(said.contains("it says it is part 8 of 2"), "{said}");
    }

    #[test]
    fn only_such_names_are_parts() {
        for name in ["a.gguf", "a-0001-of-0002.gguf", "a-00003-of-00002.gguf", "a-00000-of-00002.gguf", "a-00001-of-00002.bin", "é.ggu", ""]
        {
            assert!(Name::of(Path::new(name)).is_none(), "{name}");
        }
        let name = Name::of(Path::new("/m/a-b-00002-of-00012.GGUF")).unwrap();
        assert_eq!((name.stem.as_str(), name.number, name.count), ("a-b", 2, 12));
    }
}
