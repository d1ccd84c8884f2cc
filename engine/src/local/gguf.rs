//! GGUF files: opened with candle's reader, behind a walk over the header that a hostile file cannot make expensive.

mod header;
mod split;

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use candle_core::Device;
use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
pub use split::{files, first};

/// Why a model file cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read at all.
    #[error("{path} cannot be read: {reason}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// Something else than a GGUF file.
    #[error("{path} is not a GGUF model file; choose a file that ends in .gguf")]
    NotGguf {
        /// Which file.
        path: PathBuf,
    },
    /// The file ends before its contents do.
    #[error("{path} is cut off ({what}); download it again")]
    Truncated {
        /// Which file.
        path: PathBuf,
        /// What is missing.
        what: String,
    },
    /// The file contradicts itself.
    #[error("{path} is damaged ({what}); download it again")]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A valid file that this program cannot run.
    #[error("{path} cannot be run here: {what}")]
    Unsupported {
        /// Which file.
        path: PathBuf,
        /// What is not supported, and what is.
        what: String,
    },
    /// A valid GGUF without something that a chat model needs.
    #[error("{path} has no '{key}', which a chat model needs; choose another file")]
    Missing {
        /// Which file.
        path: PathBuf,
        /// The metadata key or tensor.
        key: String,
    },
}

/// An open model with its metadata: one file, or the parts that one was split into.
#[derive(Debug)]
pub struct Gguf {
    /// In their order; the first one has the metadata.
    parts: Vec<One>,
}

/// One open file.
#[derive(Debug)]
struct One {
    path: PathBuf,
    reader: BufReader<File>,
    content: Content,
}

impl One {
    fn open(path: &Path) -> Result<Self, Error> {
        let read = |e: std::io::Error| Error::Read { path: path.to_owned(), reason: e.to_string() };
        let file = File::open(path).map_err(read)?;
        let meta = file.metadata().map_err(read)?;
        if !meta.is_file() {
            return Err(Error::Read { path: path.to_owned(), reason: "it is not a file".to_owned() });
        }
        let mut reader = BufReader::with_capacity(1 << 16, file);
        header::check(&mut reader, meta.len()).map_err(|fault| fault.at(path))?;
        let _ = reader.seek(SeekFrom::Start(0)).map_err(read)?;
        let content = Content::read(&mut reader).map_err(|e| Error::Damaged { path: path.to_owned(), what: brief(&e) })?;
        let one = Self { path: path.to_owned(), reader, content };
        one.check_tensors(meta.len())?;
        Ok(one)
    }

    /// Every tensor lies inside the file, so that a cut-off download is found before any weight is read.
    fn check_tensors(&self, size: u64) -> Result<(), Error> {
        for (name, info) in &self.content.tensor_infos {
            let block = info.ggml_dtype.block_size();
            let elements = info.shape.elem_count();
            if elements % block != 0 {
                return Err(self.damaged(format!("tensor '{name}' is not made of whole blocks")));
            }
            let bytes = (elements / block * info.ggml_dtype.type_size()) as u64;
            let end = self.content.tensor_data_offset.saturating_add(info.offset).saturating_add(bytes);
            if end > size {
                let what = format!("tensor '{name}' ends at byte {end}, the file at {size}");
                return Err(Error::Truncated { path: self.path.clone(), what });
            }
        }
        Ok(())
    }

    fn number(&self, key: &str) -> Result<usize, Error> {
        let value = self.content.metadata.get(key).ok_or_else(|| Error::Missing { path: self.path.clone(), key: key.to_owned() })?;
        let number = match value {
            Value::I8(v) => u64::try_from(*v).ok(),
            Value::I16(v) => u64::try_from(*v).ok(),
            Value::I32(v) => u64::try_from(*v).ok(),
            Value::I64(v) => u64::try_from(*v).ok(),
            other => other.to_u64().ok(),
        };
        number.and_then(|v| usize::try_from(v).ok()).ok_or_else(|| self.damaged(format!("'{key}' is not a whole number")))
    }

    fn damaged(&self, what: String) -> Error {
        Error::Damaged { path: self.path.clone(), what }
    }

    fn unsupported(&self, what: String) -> Error {
        Error::Unsupported { path: self.path.clone(), what }
    }
}

impl Gguf {
    /// Opens a model and reads its header: metadata and the list of tensors, no weights. Any part of a model in several
    /// files opens the whole.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { parts: split::whole(One::open(path)?)? })
    }

    /// The file with the metadata.
    fn head(&self) -> &One {
        &self.parts[0]
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.head().content.metadata.get(key)
    }

    fn info(&self, name: &str) -> Option<&TensorInfo> {
        self.parts.iter().find_map(|part| part.content.tensor_infos.get(name))
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> Result<&str, Error> {
        self.text("general.architecture")
    }

    /// A text value.
    pub fn text(&self, key: &str) -> Result<&str, Error> {
        match self.value(key) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(self.damaged(format!("'{key}' is not text"))),
            None => Err(self.missing(key)),
        }
    }

    /// A whole number that is not negative.
    pub fn number(&self, key: &str) -> Result<usize, Error> {
        self.head().number(key)
    }

    /// A real number.
    pub fn real(&self, key: &str) -> Result<f32, Error> {
        match self.value(key) {
            Some(Value::F32(v)) if v.is_finite() => Ok(*v),
            #[allow(clippy::cast_possible_truncation)]
            Some(Value::F64(v)) if v.is_finite() => Ok(*v as f32),
            Some(_) => Err(self.damaged(format!("'{key}' is not a real number"))),
            None => Err(self.missing(key)),
        }
    }

    /// A yes or no, where the file says.
    #[must_use]
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.value(key).and_then(|v| v.to_bool().ok())
    }

    /// A list of texts.
    pub fn texts(&self, key: &str) -> Result<Vec<&str>, Error> {
        let Some(value) = self.value(key) else { return Err(self.missing(key)) };
        let texts = value.to_vec().ok().and_then(|list| list.iter().map(|v| v.to_string().ok().map(String::as_str)).collect());
        texts.ok_or_else(|| self.damaged(format!("'{key}' is not a list of texts")))
    }

    /// A list of real numbers.
    pub fn reals(&self, key: &str) -> Result<Vec<f32>, Error> {
        let Some(value) = self.value(key) else { return Err(self.missing(key)) };
        let reals = value.to_vec().ok().and_then(|list| list.iter().map(|v| v.to_f32().ok()).collect());
        reals.ok_or_else(|| self.damaged(format!("'{key}' is not a list of real numbers")))
    }

    /// A list of whole numbers.
    pub fn numbers(&self, key: &str) -> Result<Vec<u32>, Error> {
        let Some(value) = self.value(key) else { return Err(self.missing(key)) };
        let number = |v: &Value| match v {
            Value::I32(v) => u32::try_from(*v).ok(),
            other => other.to_u64().ok().and_then(|v| u32::try_from(v).ok()),
        };
        let numbers = value.to_vec().ok().and_then(|list| list.iter().map(number).collect());
        numbers.ok_or_else(|| self.damaged(format!("'{key}' is not a list of whole numbers")))
    }

    /// Whether there is such a tensor.
    #[must_use]
    pub fn has_tensor(&self, name: &str) -> bool {
        self.info(name).is_some()
    }

    /// The shape of a tensor, outermost dimension first.
    pub fn shape(&self, name: &str) -> Result<&[usize], Error> {
        self.info(name).map(|info| info.shape.dims()).ok_or_else(|| self.missing(name))
    }

    /// Reads a tensor that must have this shape.
    pub fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<QTensor, Error> {
        let found = self.shape(name)?;
        if found != shape {
            return Err(self.damaged(format!("tensor '{name}' has the shape {found:?}, not {shape:?}")));
        }
        let missing = self.missing(name);
        let holder = self.parts.iter_mut().find(|part| part.content.tensor_infos.contains_key(name));
        let Some(One { path, reader, content }) = holder else { return Err(missing) };
        let damaged = |what: String| Error::Damaged { path: path.clone(), what };
        content.tensor(reader, name, &Device::Cpu).map_err(|e| damaged(format!("tensor '{name}': {}", brief(&e))))
    }

    pub(super) fn damaged(&self, what: String) -> Error {
        Error::Damaged { path: self.head().path.clone(), what }
    }

    pub(super) fn missing(&self, key: &str) -> Error {
        Error::Missing { path: self.head().path.clone(), key: key.to_owned() }
    }

    pub(super) fn unsupported(&self, what: String) -> Error {
        Error::Unsupported { path: self.head().path.clone(), what }
    }
}

/// The first line of a candle error: the rest may be a backtrace.
pub(super) fn brief(error: &candle_core::Error) -> String {
    error.to_string().lines().next().unwrap_or("unknown").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn open(bytes: &[u8]) -> Error {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        Gguf::open(file.path()).unwrap_err()
    }

    fn head(tensors: u64, pairs: u64) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(tensors.to_le_bytes());
        bytes.extend(pairs.to_le_bytes());
        bytes
    }

    fn key(bytes: &mut Vec<u8>, key: &str, kind: u32) {
        bytes.extend((key.len() as u64).to_le_bytes());
        bytes.extend(key.as_bytes());
        bytes.extend(kind.to_le_bytes());
    }

    #[test]
    fn other_files_are_named_as_such() {
        assert!(matches!(open(b""), Error::NotGguf { .. }));
        assert!(matches!(open(b"PK\x03\x04 a zip"), Error::NotGguf { .. }));
        assert!(matches!(open(b"GGUF"), Error::Truncated { .. }));
        assert!(matches!(open(b"GGUF\x09\0\0\0"), Error::Unsupported { .. }));
    }

    #[test]
    fn counts_that_cannot_be_true_are_refused() {
        assert!(matches!(open(&head(0, u64::MAX)), Error::Damaged { .. }));
        assert!(matches!(open(&head(u64::MAX, 0)), Error::Damaged { .. }));
        let mut long_string = head(0, 1);
        long_string.extend((1u64 << 40).to_le_bytes());
        assert!(matches!(open(&long_string), Error::Truncated { .. }));
        let mut long_list = head(0, 1);
        key(&mut long_list, "a", 9);
        long_list.extend(0u32.to_le_bytes());
        long_list.extend((1u64 << 29).to_le_bytes());
        assert!(matches!(open(&long_list), Error::Damaged { .. }));
    }

    #[test]
    fn nested_lists_end() {
        let mut bytes = head(0, 1);
        key(&mut bytes, "a", 9);
        for _ in 0..10_000 {
            bytes.extend(9u32.to_le_bytes());
            bytes.extend(1u64.to_le_bytes());
        }
        assert!(matches!(open(&bytes), Error::Damaged { .. }));
    }

    #[test]
    fn an_alignment_of_zero_is_refused() {
        let mut bytes = head(0, 1);
        key(&mut bytes, "general.alignment", 4);
        bytes.extend(0u32.to_le_bytes());
        assert!(matches!(open(&bytes), Error::Damaged { .. }));
    }

    #[test]
    fn a_tensor_outside_the_file_is_found() {
        let mut bytes = head(1, 0);
        bytes.extend(1u64.to_le_bytes());
        bytes.push(b'w');
        bytes.extend(1u32.to_le_bytes());
        bytes.extend(1_000_000u64.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        assert!(matches!(open(&bytes), Error::Truncated { .. }));
        let dims = bytes.len() - 20;
        bytes[dims..dims + 8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(matches!(open(&bytes), Error::Damaged { .. }));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Gguf::open(Path::new("/nowhere/model.gguf")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/model.gguf"), "{error}");
    }
}
