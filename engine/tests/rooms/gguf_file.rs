//! GGUF files taken apart and put together again, for tests that need one that differs in one thing.
#![allow(dead_code, reason = "each room that takes this in uses a part of it")]

use std::path::Path;

/// A file in its parts.
#[derive(Clone)]
pub struct Parts {
    /// Keys with their values as they stand in the file: type and bytes.
    pub pairs: Vec<(String, Vec<u8>)>,
    /// Names of tensors with their dimensions and type as they stand in the file, and their bytes.
    pub tensors: Vec<(String, Vec<u8>, Vec<u8>)>,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        self.at += count;
        &self.bytes[self.at - count..self.at]
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().unwrap())
    }

    fn u64(&mut self) -> usize {
        usize::try_from(u64::from_le_bytes(self.take(8).try_into().unwrap())).unwrap()
    }

    fn text(&mut self) -> String {
        let length = self.u64();
        String::from_utf8(self.take(length).to_vec()).unwrap()
    }

    fn value(&mut self, kind: u32) {
        match kind {
            8 => drop(self.text()),
            9 => {
                let kind = self.u32();
                (0..self.u64()).for_each(|_| self.value(kind));
            }
            kind => drop(self.take([1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][kind as usize])),
        }
    }
}

impl Parts {
    /// Takes a file apart.
    pub fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let mut reader = Reader { bytes: &bytes, at: 8 };
        let (tensors, pairs) = (reader.u64(), reader.u64());
        let mut read = Vec::new();
        for _ in 0..pairs {
            let (key, from) = (reader.text(), reader.at);
            let kind = reader.u32();
            reader.value(kind);
            read.push((key, bytes[from..reader.at].to_vec()));
        }
        let mut infos = Vec::new();
        for _ in 0..tensors {
            let (name, from) = (reader.text(), reader.at);
            let dimensions = reader.u32() as usize;
            let _ = reader.take(8 * dimensions + 4);
            let shape = bytes[from..reader.at].to_vec();
            infos.push((name, shape, reader.u64()));
        }
        let data = reader.at.next_multiple_of(32);
        let mut ends: Vec<usize> = infos.iter().map(|(_, _, offset)| *offset).chain([bytes.len() - data]).collect();
        ends.sort_unstable();
        let tensors = infos.into_iter().map(|(name, shape, offset)| {
            let end = ends[ends.partition_point(|end| *end <= offset)];
            (name, shape, bytes[data + offset..data + end].to_vec())
        });
        Self { pairs: read, tensors: tensors.collect() }
    }

    /// Puts them together.
    pub fn write(&self, path: &Path) {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend((self.tensors.len() as u64).to_le_bytes());
        bytes.extend((self.pairs.len() as u64).to_le_bytes());
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend((text.len() as u64).to_le_bytes());
            bytes.extend(text.as_bytes());
        };
        for (key, value) in &self.pairs {
            text(&mut bytes, key);
            bytes.extend(value);
        }
        let mut offset = 0;
        for (name, shape, data) in &self.tensors {
            text(&mut bytes, name);
            bytes.extend(shape);
            bytes.extend((offset as u64).to_le_bytes());
            offset += data.len().next_multiple_of(32);
        }
        bytes.resize(bytes.len().next_multiple_of(32), 0);
        for (_, _, data) in &self.tensors {
            bytes.extend(data);
            bytes.resize(bytes.len().next_multiple_of(32), 0);
        }
        std::fs::write(path, bytes).unwrap();
    }

    /// A text of the metadata.
    pub fn text(&self, key: &str) -> String {
        let (_, value) = self.pairs.iter().find(|(other, _)| other == key).unwrap();
        Reader { bytes: value, at: 4 }.text()
    }

    /// Sets a value of the metadata to a type and its bytes; none takes it out.
    pub fn set(&mut self, key: &str, value: Option<(u32, Vec<u8>)>) {
        self.pairs.retain(|(other, _)| other != key);
        if let Some((kind, bytes)) = value {
            self.pairs.push((key.to_owned(), [kind.to_le_bytes().to_vec(), bytes].concat()));
        }
    }

    /// Sets a text of the metadata.
    pub fn set_text(&mut self, key: &str, text: &str) {
        self.set(key, Some((8, [(text.len() as u64).to_le_bytes().to_vec(), text.as_bytes().to_vec()].concat())));
    }
}
