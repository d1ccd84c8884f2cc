//! The snapshot file: one header block, then sections that each start on a page border (so that they can be mapped) and
//! carry their own checksum. All numbers are little-endian.
//!
//! ```text
//! 0     magic "hr-index"          40    numbers in the upper lists      u64
//! 8     version            u32    48    level generator's state         u64
//! 12    kind               u32    56    label: stamp                    u64
//! 16    dimension          u32    64    level generator's start         u64
//! 20    links              u32    72    length of the file              u64
//! 24    build breadth      u32    80    sections                        u32
//! 28    entry              u32    84    bytes of the model's name       u32
//! 32    vectors            u64    88    per section (8 places): offset u64, length u64, SHA-256
//! 472   label: the model's name (at most 1,024 bytes), zeros up to 4064
//! 4064  SHA-256 of the bytes before
//! ```
//!
//! Sections: ids (u64), rows (f32, padded to 16 numbers); of a graph also levels (u8), lowest links (u32, lists padded to
//! 16), parents (u32), upper links (u32). A file is written beside its place, synced, and then renamed into it.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::Error;

const MAGIC: &[u8; 8] = b"hr-index";
const VERSION: u32 = 1;
const HEADER: usize = 4096;
const CHECKED: usize = HEADER - 32;
const TABLE: usize = 88;
const PLACES: usize = 8;
const PLACE: usize = 48;
const MODEL: usize = TABLE + PLACES * PLACE;
const MODEL_LIMIT: usize = 1024;
const BUFFER: usize = 1 << 16;

/// What a snapshot belongs to. A file with another label is stale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// Everything that decides what the vectors mean: the embedding model's id, and the versions of what prepares its
    /// input. At most 1,024 bytes.
    pub model: String,
    /// Grows with each change of the collection.
    pub stamp: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Linear = 1,
    Graph = 2,
}

impl Kind {
    fn sections(self) -> usize {
        match self {
            Self::Linear => 2,
            Self::Graph => 6,
        }
    }
}

/// The header's facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) dimension: usize,
    pub(super) count: usize,
    pub(super) label: Label,
    pub(super) links: usize,
    pub(super) build_breadth: usize,
    pub(super) seed: u64,
    pub(super) random: u64,
    pub(super) entry: u32,
    pub(super) upper: usize,
}

struct Section {
    offset: u64,
    length: u64,
    sum: [u8; 32],
}

pub(super) struct Writer {
    path: PathBuf,
    file: BufWriter<NamedTempFile>,
    head: Head,
    sections: Vec<Section>,
    at: u64,
}

impl Writer {
    /// Starts a file beside `path`, which stays as it is until [`Writer::finish`].
    pub(super) fn create(path: &Path, head: Head) -> Result<Self, Error> {
        if head.label.model.len() > MODEL_LIMIT {
            let reason = format!("the model's name has {} bytes, {MODEL_LIMIT} fit", head.label.model.len());
            return Err(Error::Io { action: "write", path: path.to_owned(), reason });
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let start = || {
            let mut file = BufWriter::with_capacity(BUFFER, NamedTempFile::new_in(folder)?);
            file.write_all(&[0; HEADER])?;
            Ok(file)
        };
        let file = start().map_err(failed("write", path))?;
        Ok(Self { path: path.to_owned(), file, head, sections: Vec::new(), at: HEADER as u64 })
    }

    /// Appends the next section.
    pub(super) fn section<const N: usize>(&mut self, items: impl Iterator<Item = [u8; N]>) -> Result<(), Error> {
        let path = self.path.clone();
        self.append(items).map_err(failed("write", &path))
    }

    fn append<const N: usize>(&mut self, items: impl Iterator<Item = [u8; N]>) -> io::Result<()> {
        let padding = self.at.next_multiple_of(HEADER as u64) - self.at;
        self.file.write_all(&vec![0; padding as usize])?;
        self.at += padding;
        let (mut sum, mut length, mut buffer) = (Sha256::new(), 0, Vec::with_capacity(BUFFER));
        for item in items {
            buffer.extend_from_slice(&item);
            if buffer.len() + N > BUFFER {
                sum.update(&buffer);
                self.file.write_all(&buffer)?;
                length += buffer.len() as u64;
                buffer.clear();
            }
        }
        sum.update(&buffer);
        self.file.write_all(&buffer)?;
        length += buffer.len() as u64;
        self.sections.push(Section { offset: self.at, length, sum: sum.finalize().into() });
        self.at += length;
        Ok(())
    }

    /// Writes the header, syncs, and puts the file in its place.
    pub(super) fn finish(self) -> Result<(), Error> {
        let path = self.path.clone();
        self.place().map_err(failed("write", &path))
    }

    fn place(mut self) -> io::Result<()> {
        let header = self.header();
        let _ = self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&header)?;
        let temporary = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        temporary.as_file().sync_all()?;
        let _ = temporary.persist(&self.path).map_err(|error| error.error)?;
        // The rename itself is durable once the folder is synced; Windows has no such call.
        #[cfg(unix)]
        if let Some(folder) = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    fn header(&self) -> [u8; HEADER] {
        let mut block = [0; HEADER];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        let head = &self.head;
        put(0, MAGIC);
        let words = [VERSION, head.kind as u32, head.dimension as u32, head.links as u32, head.build_breadth as u32, head.entry];
        for (place, word) in words.iter().enumerate() {
            put(8 + place * 4, &word.to_le_bytes());
        }
        let longs = [head.count as u64, head.upper as u64, head.random, head.label.stamp, head.seed, self.at];
        for (place, long) in longs.iter().enumerate() {
            put(32 + place * 8, &long.to_le_bytes());
        }
        put(80, &(self.sections.len() as u32).to_le_bytes());
        put(84, &(head.label.model.len() as u32).to_le_bytes());
        for (place, section) in self.sections.iter().enumerate() {
            let at = TABLE + place * PLACE;
            put(at, &section.offset.to_le_bytes());
            put(at + 8, &section.length.to_le_bytes());
            put(at + 16, &section.sum);
        }
        put(MODEL, head.label.model.as_bytes());
        let sum: [u8; 32] = Sha256::digest(&block[..CHECKED]).into();
        block[CHECKED..].copy_from_slice(&sum);
        block
    }
}

pub(super) struct Reader {
    pub(super) path: PathBuf,
    pub(super) head: Head,
    file: File,
    sections: Vec<Section>,
    next: usize,
}

impl Reader {
    /// Reads and verifies the header and that the file has exactly the length it speaks of.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        let mut file = File::open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::Missing { path: path.to_owned() },
            _ => failed("read", path)(error),
        })?;
        let length = file.metadata().map_err(failed("read", path))?.len();
        let damaged = |reason: &str| Error::Damaged { path: path.to_owned(), reason: reason.to_owned() };
        let mut block = [0; HEADER];
        file.read_exact(&mut block).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged("shorter than its header"),
            _ => failed("read", path)(error),
        })?;
        if &block[..8] != MAGIC {
            return Err(damaged("not an index file"));
        }
        if word(&block, 8) != VERSION {
            let reason = format!("format version {}, this build reads {VERSION}", word(&block, 8));
            return Err(Error::Stale { path: path.to_owned(), reason });
        }
        if Sha256::digest(&block[..CHECKED]).as_slice() != &block[CHECKED..] {
            return Err(damaged("the header's checksum does not match"));
        }
        let (head, sections) = parse(&block, length).map_err(damaged)?;
        Ok(Self { path: path.to_owned(), head, file, sections, next: 0 })
    }

    /// Reads the next section, which must hold exactly `items`, and verifies its checksum. `each` may have been called
    /// when this fails: what it made of the items is then to be dropped.
    pub(super) fn section<const N: usize>(&mut self, items: usize, mut each: impl FnMut([u8; N])) -> Result<(), Error> {
        self.expect((items as u64).saturating_mul(N as u64))?;
        let Some(section) = self.sections.get(self.next) else { return Err(self.damaged("a section is missing")) };
        self.next += 1;
        let _ = self.file.seek(SeekFrom::Start(section.offset)).map_err(failed("read", &self.path))?;
        let mut buffer = vec![0; BUFFER - BUFFER % N];
        let (mut sum, mut left) = (Sha256::new(), section.length);
        while left > 0 {
            let part = &mut buffer[..left.min((BUFFER - BUFFER % N) as u64) as usize];
            self.file.read_exact(part).map_err(failed("read", &self.path))?;
            sum.update(&*part);
            left -= part.len() as u64;
            part.as_chunks::<N>().0.iter().for_each(|item| each(*item));
        }
        if sum.finalize().as_slice() != section.sum {
            return Err(self.damaged(&format!("the checksum of section {} does not match", self.next)));
        }
        Ok(())
    }

    /// Before memory is set aside for the next section: it must have this length.
    pub(super) fn expect(&self, length: u64) -> Result<(), Error> {
        match self.sections.get(self.next) {
            Some(section) if section.length == length => Ok(()),
            _ => Err(self.damaged(&format!("section {} has a wrong length", self.next + 1))),
        }
    }

    pub(super) fn damaged(&self, reason: &str) -> Error {
        Error::Damaged { path: self.path.clone(), reason: reason.to_owned() }
    }
}

fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::Io { action, path: path.clone(), reason: error.to_string() }
}

fn word(block: &[u8; HEADER], at: usize) -> u32 {
    block[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn long(block: &[u8; HEADER], at: usize) -> u64 {
    block[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The checksum only proves that this is what was written, not that it makes sense.
fn parse(block: &[u8; HEADER], length: u64) -> Result<(Head, Vec<Section>), &'static str> {
    let kind = match word(block, 12) {
        1 => Kind::Linear,
        2 => Kind::Graph,
        _ => return Err("an unknown kind of index"),
    };
    let (count, upper) = (long(block, 32), long(block, 40));
    if count > u64::from(u32::MAX >> 1) || count > length || upper > length {
        return Err("more vectors than the file can hold");
    }
    if word(block, 80) as usize != kind.sections() {
        return Err("a wrong number of sections");
    }
    let mut sections = Vec::with_capacity(kind.sections());
    let mut end = HEADER as u64;
    for place in 0..kind.sections() {
        let at = TABLE + place * PLACE;
        let section = Section {
            offset: long(block, at),
            length: long(block, at + 8),
            sum: block[at + 16..].first_chunk().copied().unwrap_or_default(),
        };
        if section.offset != end.next_multiple_of(HEADER as u64) || section.length > length {
            return Err("its sections do not lie one after the other");
        }
        end = section.offset + section.length;
        sections.push(section);
    }
    if end != length || long(block, 72) != length {
        return Err("its length is not what its header says");
    }
    let model = word(block, 84) as usize;
    if model > MODEL_LIMIT {
        return Err("the model's name is too long");
    }
    let model = std::str::from_utf8(&block[MODEL..MODEL + model]).map_err(|_| "the model's name is not text")?;
    let head = Head {
        kind,
        dimension: word(block, 16) as usize,
        count: count as usize,
        label: Label { model: model.to_owned(), stamp: long(block, 56) },
        links: word(block, 20) as usize,
        build_breadth: word(block, 24) as usize,
        seed: long(block, 64),
        random: long(block, 48),
        entry: word(block, 28),
        upper: upper as usize,
    };
    Ok((head, sections))
}
