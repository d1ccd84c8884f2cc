//! A walk over a GGUF header that allocates nothing, before candle's reader builds it in memory.
//!
//! Layout (GGUF 2 and 3, little endian): magic, version u32, tensor count u64, pair count u64, the pairs
//! (key, type u32, value), the tensors (name, dimensions u32, each u64, type u32, offset u64). A string is its
//! length u64 and its bytes; a list is its type u32, its length u64 and its values.

use std::io::{BufReader, Read, Seek};
use std::path::Path;

use super::Error;

/// Most metadata pairs. Files of today have 20 to 60.
const PAIRS: u64 = 10_000;
/// Most tensors. Llama 3.1 405B has 1,138.
const TENSORS: u64 = 100_000;
/// Most list elements in the whole header; candle needs 32 bytes for each. A vocabulary of 262,144 tokens with its
/// types, scores and merges has about 1.2 million.
const ELEMENTS: u64 = 8_000_000;
/// Longest string in bytes.
const STRING: u64 = 16 << 20;
/// Deepest nesting of lists. No known file nests them at all.
const DEPTH: u32 = 2;
/// Most elements of one tensor.
const TENSOR: u64 = 1 << 40;

/// What is wrong with a header.
#[derive(Debug)]
pub(super) enum Fault {
    NotGguf,
    Version(u32),
    End,
    Wrong(String),
    Io(String),
}

impl Fault {
    pub(super) fn at(self, path: &Path) -> Error {
        let path = path.to_owned();
        match self {
            Self::NotGguf => Error::NotGguf { path },
            Self::Version(version) => {
                Error::Unsupported { path, what: format!("it is GGUF version {version}; versions 2 and 3 are supported") }
            }
            Self::End => Error::Truncated { path, what: "the header is not whole".to_owned() },
            Self::Wrong(what) => Error::Damaged { path, what },
            Self::Io(reason) => Error::Read { path, reason },
        }
    }
}

impl From<std::io::Error> for Fault {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::UnexpectedEof { Self::End } else { Self::Io(error.to_string()) }
    }
}

/// Walks the header.
pub(super) fn check<R: Read + Seek>(reader: &mut BufReader<R>, size: u64) -> Result<(), Fault> {
    let mut magic = [0u8; 4];
    match reader.read_exact(&mut magic) {
        Ok(()) if &magic == b"GGUF" => {}
        _ => return Err(Fault::NotGguf),
    }
    let mut walk = Walk { reader, left: size.saturating_sub(4), elements: ELEMENTS };
    let version = walk.u32()?;
    if !(2..=3).contains(&version) {
        return Err(Fault::Version(version));
    }
    let tensors = walk.u64()?;
    let pairs = walk.u64()?;
    if tensors > TENSORS || pairs > PAIRS {
        return Err(Fault::Wrong(format!("it claims {tensors} tensors and {pairs} metadata entries")));
    }
    for _ in 0..pairs {
        walk.pair()?;
    }
    for _ in 0..tensors {
        walk.tensor()?;
    }
    Ok(())
}

struct Walk<'a, R> {
    reader: &'a mut BufReader<R>,
    left: u64,
    elements: u64,
}

impl<R: Read + Seek> Walk<'_, R> {
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let mut bytes = [0u8; N];
        self.reader.read_exact(&mut bytes)?;
        self.left = self.left.saturating_sub(N as u64);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        self.bytes().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, Fault> {
        self.bytes().map(u64::from_le_bytes)
    }

    fn skip(&mut self, count: u64) -> Result<(), Fault> {
        let step = i64::try_from(count).map_err(|_| Fault::End)?;
        self.left = self.left.checked_sub(count).ok_or(Fault::End)?;
        Ok(self.reader.seek_relative(step)?)
    }

    fn string_length(&mut self) -> Result<u64, Fault> {
        let length = self.u64()?;
        if length > self.left {
            return Err(Fault::End);
        }
        if length > STRING {
            return Err(Fault::Wrong(format!("it holds a text of {length} bytes")));
        }
        Ok(length)
    }

    fn string(&mut self) -> Result<(), Fault> {
        let length = self.string_length()?;
        self.skip(length)
    }

    fn pair(&mut self) -> Result<(), Fault> {
        const ALIGNMENT: &[u8] = b"general.alignment";
        let length = self.string_length()?;
        let mut key = vec![0u8; usize::try_from(length.min(256)).unwrap_or(0)];
        self.reader.read_exact(&mut key)?;
        self.left = self.left.saturating_sub(key.len() as u64);
        self.skip(length - key.len() as u64)?;
        let kind = self.u32()?;
        if key != ALIGNMENT {
            return self.value(kind, 0);
        }
        let alignment = match kind {
            4 | 5 => self.u32()?,
            _ => return Err(Fault::Wrong("its alignment is not a number".to_owned())),
        };
        if !alignment.is_power_of_two() || alignment > 1 << 16 {
            return Err(Fault::Wrong(format!("its alignment is {alignment}")));
        }
        Ok(())
    }

    fn value(&mut self, kind: u32, depth: u32) -> Result<(), Fault> {
        match kind {
            8 => self.string(),
            9 => self.list(depth),
            _ => self.skip(width(kind)?),
        }
    }

    fn list(&mut self, depth: u32) -> Result<(), Fault> {
        let kind = self.u32()?;
        let length = self.u64()?;
        if depth >= DEPTH || length > self.elements {
            return Err(Fault::Wrong(format!("it holds a list of {length} values, {depth} lists deep")));
        }
        self.elements -= length;
        if kind != 8 && kind != 9 {
            return self.skip(length.saturating_mul(width(kind)?));
        }
        for _ in 0..length {
            self.value(kind, depth + 1)?;
        }
        Ok(())
    }

    fn tensor(&mut self) -> Result<(), Fault> {
        self.string()?;
        let dimensions = self.u32()?;
        if dimensions > 4 {
            return Err(Fault::Wrong(format!("a tensor has {dimensions} dimensions")));
        }
        let mut elements = 1u64;
        for _ in 0..dimensions {
            elements = elements.saturating_mul(self.u64()?);
        }
        if elements == 0 || elements > TENSOR {
            return Err(Fault::Wrong(format!("a tensor has {elements} elements")));
        }
        self.skip(12)
    }
}

/// Bytes of one value of a fixed size.
fn width(kind: u32) -> Result<u64, Fault> {
    match kind {
        0 | 1 | 7 => Ok(1),
        2 | 3 => Ok(2),
        4..=6 => Ok(4),
        10..=12 => Ok(8),
        _ => Err(Fault::Wrong(format!("it holds a value of the unknown type {kind}"))),
    }
}
