//! The zip around a bundle, which nobody here made: every number in it is held against a limit, and nothing of it gets
//! outside the folder it is unpacked into.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, Read, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use zip::ZipArchive;
use zip::read::ZipFile;

/// Largest bundle file (fixed).
const LARGEST: u64 = 1024 * 1024 * 1024;
/// Largest manifest (fixed).
const MANIFEST: u64 = 1024 * 1024;
/// Most files in a bundle (fixed): a Node program with its modules has thousands.
const MOST: usize = 50_000;
/// Largest list of the files in a bundle (fixed).
const DIRECTORY: u64 = 32 * 1024 * 1024;
/// Most bytes of a bundle when unpacked (fixed).
const UNPACKED: u64 = 2 * 1024 * 1024 * 1024;
/// A file that grows by more than this when unpacked is a trap (fixed), where it is large at all.
const RATIO: u64 = 200;
/// Below this, how much a file grows does not matter.
const SMALL: u64 = 4 * 1024 * 1024;
/// Most folders above a file, and longest name.
const DEPTH: usize = 64;
const LONGEST_NAME: usize = 1024;
/// How far from the end the end of the list is looked for: a comment, and a signature behind it.
const TAIL: u64 = 256 * 1024;

#[derive(Debug)]
pub(super) struct Archive {
    zip: ZipArchive<BufReader<File>>,
    limits: Limits,
    /// SHA-256 of the whole file, in hexadecimal.
    digest: String,
}

/// What unpacking may cost.
#[derive(Clone, Copy, Debug)]
struct Limits {
    files: usize,
    bytes: u64,
}

impl Archive {
    pub(super) fn open(mut file: File) -> Result<Self, String> {
        let length = file.metadata().map_err(|error| error.to_string())?.len();
        if length > LARGEST {
            return Err(format!("it is larger than {LARGEST} bytes"));
        }
        // Before the list of files is read into memory.
        look_at_end(&mut file, length)?;
        let digest = digest(&mut file).map_err(|error| error.to_string())?;
        let zip = ZipArchive::new(BufReader::new(file)).map_err(|error| format!("it is no bundle: {error}"))?;
        if zip.len() > MOST {
            return Err(format!("it holds more than {MOST} files"));
        }
        Ok(Self { zip, limits: Limits { files: MOST, bytes: UNPACKED }, digest })
    }

    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Whether there is a file of this name, written as any system writes it.
    pub(super) fn holds(&self, name: &str) -> bool {
        let name = name.replace('\\', "/");
        let name = name.trim_start_matches("./");
        // A program may be named without what Windows needs behind it.
        let program = format!("{name}.exe");
        self.zip.file_names().flatten().any(|found| found == name || (cfg!(windows) && found == program.as_str()))
    }

    /// A text file of the archive.
    pub(super) fn text(&mut self, name: &str) -> Result<String, String> {
        let file = self.zip.by_name(name).map_err(|error| format!("it is no bundle: {name}: {error}"))?;
        let mut bytes = Vec::new();
        let _ = file.take(MANIFEST + 1).read_to_end(&mut bytes).map_err(|error| format!("its {name} cannot be read: {error}"))?;
        if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MANIFEST {
            return Err(format!("its {name} is larger than {MANIFEST} bytes"));
        }
        String::from_utf8(bytes).map_err(|_| format!("its {name} is not UTF-8 text"))
    }

    /// Unpacks everything into a folder. Where this fails, the folder holds a part.
    pub(super) fn unpack(&mut self, folder: &Path) -> Result<(), String> {
        // All names before the first file: nothing is written of an archive that holds a trap.
        let mut names = BTreeSet::new();
        for number in 0..self.zip.len() {
            let file = self.zip.by_index_raw(number).map_err(|error| error.to_string())?;
            let name = inside(&file)?;
            // What differs only in case is one file on some systems.
            if !names.insert(name.to_string_lossy().to_lowercase()) {
                return Err(format!("it holds {} twice", name.display()));
            }
        }
        if names.len() > self.limits.files {
            return Err(format!("it holds more than {} files", self.limits.files));
        }
        let mut left = self.limits.bytes;
        for number in 0..self.zip.len() {
            let mut file = self.zip.by_index(number).map_err(|error| error.to_string())?;
            let target = folder.join(inside(&file)?);
            if file.is_dir() {
                fs::create_dir_all(&target).map_err(|error| error.to_string())?;
                continue;
            }
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).map_err(|error| error.to_string())?;
            }
            left -= copy(&mut file, &target, left)?;
        }
        Ok(())
    }
}

/// SHA-256 of a file, which is then at its beginning again.
fn digest(file: &mut File) -> std::io::Result<String> {
    let (mut hasher, mut block) = (Sha256::new(), vec![0; 64 * 1024]);
    let mut whole = (&*file).take(LARGEST);
    loop {
        let read = whole.read(&mut block)?;
        if read == 0 {
            break;
        }
        hasher.update(&block[..read]);
    }
    let _ = file.seek(SeekFrom::Start(0))?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Unpacks one file, and gives how large it is.
fn copy(file: &mut ZipFile<'_, BufReader<File>>, target: &Path, left: u64) -> Result<u64, String> {
    let allowed = file.compressed_size().saturating_mul(RATIO).max(SMALL);
    let executable = file.unix_mode().is_some_and(|mode| mode & 0o111 != 0);
    let mut options = OpenOptions::new();
    let _ = options.write(true).create_new(true);
    mode(&mut options, executable);
    let named = |error: std::io::Error| format!("{}: {error}", target.display());
    let mut written = options.open(target).map_err(named)?;
    let (mut block, mut total) = (vec![0; 64 * 1024], 0_u64);
    loop {
        // The sizes that the archive states are only its word; what comes out is counted.
        let read = file.read(&mut block).map_err(named)?;
        if read == 0 {
            return Ok(total);
        }
        total = total.saturating_add(read as u64);
        if total > allowed {
            return Err(format!("its file {} grows by more than {RATIO} times when unpacked", target.display()));
        }
        if total > left {
            return Err("it is too large when unpacked".to_owned());
        }
        written.write_all(&block[..read]).map_err(named)?;
    }
}

#[cfg(unix)]
fn mode(options: &mut OpenOptions, executable: bool) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let _ = options.mode(if executable { 0o755 } else { 0o644 });
}

#[cfg(not(unix))]
fn mode(_options: &mut OpenOptions, _executable: bool) {}

/// Where a file of the archive goes, from the folder it is unpacked into.
fn inside<R: Read>(file: &ZipFile<'_, R>) -> Result<PathBuf, String> {
    const KIND: u32 = 0o170_000;
    const PLAIN: u32 = 0o100_000;
    const FOLDER: u32 = 0o040_000;
    let name = file.name().map_err(|error| format!("a name in it cannot be read: {error}"))?;
    let shown: String = name.chars().filter(|c| !c.is_control()).take(200).collect();
    if !matches!(file.unix_mode().unwrap_or_default() & KIND, 0 | PLAIN | FOLDER) {
        return Err(format!("its \"{shown}\" is a link or no plain file"));
    }
    if file.encrypted() {
        return Err(format!("its \"{shown}\" is encrypted"));
    }
    place(&name).ok_or_else(|| format!("its file \"{shown}\" does not stay inside the bundle"))
}

/// A name as a path that stays where it is put, on every system.
fn place(name: &str) -> Option<PathBuf> {
    let name = name.strip_suffix('/').unwrap_or(name);
    if name.is_empty() || name.len() > LONGEST_NAME || name.contains(['\\', ':']) || name.chars().any(char::is_control) {
        return None;
    }
    let parts: Vec<&str> = name.split('/').collect();
    let plain = |part: &&str| !part.is_empty() && !matches!(*part, "." | "..") && !part.ends_with(['.', ' ']) && !is_device(part);
    (parts.len() <= DEPTH && parts.iter().all(plain)).then(|| parts.iter().collect())
}

/// Names that mean a device on Windows, whatever is behind the dot.
fn is_device(part: &str) -> bool {
    let stem = part.split('.').next().unwrap_or_default().to_uppercase();
    matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL")
        || (stem.len() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT")) && stem.ends_with(|c: char| c.is_ascii_digit()))
}

/// Holds the end of the archive, which says how long its list of files is, against the limits.
fn look_at_end(file: &mut File, length: u64) -> Result<(), String> {
    const END: [u8; 4] = *b"PK\x05\x06";
    const RECORD: usize = 22;
    let failed = |error: std::io::Error| error.to_string();
    let start = length.saturating_sub(TAIL);
    let _ = file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut tail = Vec::new();
    let _ = file.take(TAIL).read_to_end(&mut tail).map_err(failed)?;
    let _ = file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let at = (0..tail.len().saturating_sub(RECORD - 1))
        .rev()
        .find(|at| tail[*at..].starts_with(&END))
        .ok_or("it is no bundle: it is no zip file")?;
    let number = |offset: usize, bytes: usize| {
        tail[at + offset..at + offset + bytes].iter().rev().fold(0_u64, |number, byte| (number << 8) | u64::from(*byte))
    };
    let (files, size, offset) = (number(10, 2), number(12, 4), number(16, 4));
    // Larger numbers stand in a second record; an archive that needs them is over the limits in any case.
    if usize::try_from(files).unwrap_or(usize::MAX) > MOST || size > DIRECTORY {
        return Err(format!("it holds more than {MOST} files, or their list is larger than {DIRECTORY} bytes"));
    }
    if offset + size != start + at as u64 {
        return Err("it is no bundle: the list of its files is not where its end says".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    fn packed(build: impl FnOnce(&mut ZipWriter<Cursor<Vec<u8>>>)) -> (tempfile::TempDir, Result<Archive, String>) {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        build(&mut writer);
        let path = folder.path().join("b.mcpb");
        fs::write(&path, writer.finish().unwrap().into_inner()).unwrap();
        let archive = Archive::open(File::open(path).unwrap());
        (folder, archive)
    }

    fn file(writer: &mut ZipWriter<Cursor<Vec<u8>>>, name: &str, bytes: &[u8]) {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(bytes).unwrap();
    }

    fn refused(build: impl FnOnce(&mut ZipWriter<Cursor<Vec<u8>>>)) -> String {
        let (folder, archive) = packed(build);
        let target = folder.path().join("out");
        fs::create_dir(&target).unwrap();
        archive.and_then(|mut archive| archive.unpack(&target)).unwrap_err()
    }

    #[test]
    fn files_folders_and_programs_come_out() {
        let (folder, archive) = packed(|writer| {
            writer.add_directory("empty/", SimpleFileOptions::default()).unwrap();
            file(writer, "a/b/c.txt", b"text");
            writer.start_file("bin/run", SimpleFileOptions::default().unix_permissions(0o4777)).unwrap();
            writer.write_all(b"#!").unwrap();
        });
        let target = folder.path().join("out");
        fs::create_dir(&target).unwrap();
        archive.unwrap().unpack(&target).unwrap();
        assert_eq!(fs::read(target.join("a/b/c.txt")).unwrap(), b"text");
        assert!(target.join("empty").is_dir());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = |name: &str| fs::metadata(target.join(name)).unwrap().permissions().mode();
            assert_eq!((mode("bin/run") & 0o7111, mode("a/b/c.txt") & 0o7111), (0o111, 0));
        }
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["../x", "a/../../x", "/etc/x", "C:/x", "a\\..\\x", "a//b", "./x", "nul", "a/COM1.txt", "x.", "a\u{1}b", "x/\u{7f}"] {
            assert_eq!(place(name), None, "{name}");
        }
        assert_eq!(place(&"a/".repeat(65)), None);
        assert_eq!(place("a/b.c"), Some(PathBuf::from("a/b.c")));
        for name in ["../x", "/etc/x", "a/../../x"] {
            let reason = refused(|writer| file(writer, name, b"x"));
            assert!(reason.contains("inside"), "{reason}");
        }
    }

    #[test]
    fn links_twins_and_bombs_are_refused() {
        let reason = refused(|writer| writer.add_symlink("link", "/etc/passwd", SimpleFileOptions::default()).unwrap());
        assert!(reason.contains("link"), "{reason}");
        let reason = refused(|writer| {
            file(writer, "Same", b"1");
            file(writer, "same", b"2");
        });
        assert!(reason.contains("twice"), "{reason}");
        let reason = refused(|writer| file(writer, "bomb", &vec![0; 32 * 1024 * 1024]));
        assert!(reason.contains("grows"), "{reason}");
        let (folder, archive) = packed(|writer| {
            for number in 0..4 {
                file(writer, &number.to_string(), &[7; 1000]);
            }
        });
        let mut archive = archive.unwrap();
        archive.limits = Limits { files: 4, bytes: 3500 };
        assert!(archive.unpack(folder.path()).unwrap_err().contains("too large"));
        archive.limits = Limits { files: 3, bytes: 10_000 };
        assert!(archive.unpack(folder.path()).unwrap_err().contains("more than 3 files"));
    }

    #[test]
    fn a_huge_manifest_and_a_false_end_are_refused() {
        let (_folder, archive) = packed(|writer| file(writer, "manifest.json", &vec![b' '; 2 * 1024 * 1024]));
        assert!(archive.unwrap().text("manifest.json").unwrap_err().contains("larger"));
        let folder = tempfile::tempdir().unwrap();
        let open = |bytes: &[u8]| {
            let path = folder.path().join("x");
            fs::write(&path, bytes).unwrap();
            Archive::open(File::open(&path).unwrap()).map(drop)
        };
        assert!(open(b"").is_err() && open(b"PK").is_err() && open(&[0; 5000]).is_err());
        // Says that it holds 60 000 files.
        let mut end = b"PK\x05\x06\0\0\0\0".to_vec();
        end.extend([0x60, 0xea, 0x60, 0xea, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert!(open(&end).unwrap_err().contains("more than"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]
        #[test]
        fn no_bytes_break_the_reader(at in 0_usize..400, byte: u8, cut in 0_usize..400) {
            let (folder, _) = packed(|writer| {
                file(writer, "manifest.json", b"{\"name\": \"n\"}");
                file(writer, "a/b", b"text");
            });
            let path = folder.path().join("b.mcpb");
            let mut bytes = fs::read(&path).unwrap();
            let length = bytes.len();
            bytes[at % length] = byte;
            bytes.truncate(length - cut % 8);
            fs::write(&path, bytes).unwrap();
            let target = folder.path().join("out");
            fs::create_dir(&target).unwrap();
            if let Ok(mut archive) = Archive::open(File::open(&path).unwrap()) {
                let _ = archive.text("manifest.json");
                let _ = archive.unpack(&target);
            }
            let outside: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            proptest::prop_assert_eq!(outside.len(), 2, "{:?}", outside);
        }
    }
}
