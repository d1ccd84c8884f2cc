//! Texts on disk: read within bounds, replaced in one step, and kept beside.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Error;

/// Largest text that is read: a configuration is some kilobytes, and everything is held in memory.
pub(super) const LARGEST: u64 = 4 * 1024 * 1024;

/// The file's text; none where there is no file.
pub(in crate::mcp) fn read_text(path: &Path) -> Result<Option<String>, Error> {
    let wrong = |reason: String| Error::File { path: path.to_owned(), reason };
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(error.to_string())),
    };
    // Bounded while reading, too: what opens as a file may be endless, or grow.
    let mut bytes = Vec::new();
    let _ = file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| wrong(error.to_string()))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > LARGEST {
        return Err(wrong(format!("it is larger than {LARGEST} bytes")));
    }
    decoded(bytes).map(Some).map_err(wrong)
}

/// The text in a file's bytes: UTF-8, or UTF-16 as editors on Windows write it, with a byte order mark or without one. The
/// error says what to do.
pub fn decoded(bytes: Vec<u8>) -> Result<String, String> {
    let encoding = match bytes.as_slice() {
        [0xff, 0xfe, ..] => Some(encoding_rs::UTF_16LE),
        [0xfe, 0xff, ..] => Some(encoding_rs::UTF_16BE),
        // What begins such a text is one of a few characters of ASCII.
        [first, 0, ..] if *first != 0 => Some(encoding_rs::UTF_16LE),
        [0, first, ..] if *first != 0 => Some(encoding_rs::UTF_16BE),
        _ => None,
    };
    match encoding {
        Some(encoding) => {
            let (text, _, broken) = encoding.decode(&bytes);
            if broken { Err(format!("it looks like {} and is not; save it as UTF-8", encoding.name())) } else { Ok(text.into_owned()) }
        }
        None => String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            format!("it is neither UTF-8 nor UTF-16 text (byte {at} fits neither); save it as UTF-8")
        }),
    }
}

/// Replaces a file in one step, readable by its owner only. Its folder is made where there is none.
pub(in crate::mcp) fn write_text(path: &Path, text: &str) -> Result<(), Error> {
    let wrong = |error: io::Error| Error::File { path: path.to_owned(), reason: error.to_string() };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    fs::create_dir_all(folder).map_err(wrong)?;
    // Temporary files are made with mode 0600, and the rename keeps it: headers and env often hold keys.
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(wrong)?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).map_err(wrong)?;
    let _ = file.persist(path).map_err(|error| wrong(error.error))?;
    sync_folder(folder);
    Ok(())
}

/// The file that stands for this path and may be replaced: links are followed, also one whose target is not there yet. A
/// rename would go over a file's write protection, so that is asked about here.
pub(in crate::mcp) fn replaceable(path: &Path) -> Result<PathBuf, Error> {
    /// As far as systems follow links.
    const LINKS: usize = 40;
    let wrong = |reason: &str| Error::File { path: path.to_owned(), reason: reason.to_owned() };
    let mut target = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&target) {
            Ok(next) => target = target.parent().map_or_else(|| next.clone(), |folder| folder.join(&next)),
            Err(_) if fs::metadata(&target).is_ok_and(|found| found.permissions().readonly()) => {
                return Err(wrong("it is protected against writing; take the protection away to change it here"));
            }
            Err(_) => return Ok(target),
        }
    }
    Err(wrong("it is a link that leads nowhere"))
}

/// What keeps other processes of ours from changing a file between our reading and our writing it; it goes with its drop.
#[derive(Debug)]
pub(in crate::mcp) struct Alone {
    _lock: Option<fs::File>,
}

/// Waits until no other process changes this file. They do so for some milliseconds; one that holds on is an error.
pub(in crate::mcp) fn alone(path: &Path) -> Result<Alone, Error> {
    const TRIES: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(20);
    let wrong = |reason: String| Error::File { path: path.to_owned(), reason };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(|error| wrong(error.to_string()))?;
    }
    let lock = fs::File::options().create(true).append(true).open(beside(path, "lock")).map_err(|error| wrong(error.to_string()))?;
    for _ in 0..TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(Alone { _lock: Some(lock) }),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            // Some file systems know no locks; one process is usual.
            Err(fs::TryLockError::Error(error)) => {
                tracing::debug!(%error, "the configuration's lock file cannot be locked");
                return Ok(Alone { _lock: None });
            }
        }
    }
    Err(wrong(format!("another Handrail has been changing it for {:?}; try again", PAUSE * TRIES)))
}

/// Keeps a text in a file beside another one, with this at the end of its name; gives the file. What an earlier time kept
/// stays: the new one then has a number.
pub(in crate::mcp) fn keep_beside(path: &Path, ending: &str, text: &str) -> Result<PathBuf, Error> {
    for number in 1_u32.. {
        let beside = if number == 1 { beside(path, ending) } else { beside(path, &format!("{ending}-{number}")) };
        match read_text(&beside) {
            Ok(None) => {
                write_text(&beside, text)?;
                return Ok(beside);
            }
            Ok(Some(kept)) if kept == text => return Ok(beside),
            Ok(Some(_)) | Err(_) => {}
        }
    }
    Err(Error::File { path: path.to_owned(), reason: "no name for a copy beside it is free".to_owned() })
}

/// The file beside another one with this at the end of its name.
pub(in crate::mcp) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(unix)]
fn sync_folder(folder: &Path) {
    // Makes the rename itself durable; a file system that refuses this still has a whole file, old or new.
    if let Ok(folder) = fs::File::open(folder) {
        let _ = folder.sync_all();
    }
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_comes_back_and_what_is_too_large_or_no_text_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/folder/file");
        assert_eq!(read_text(&path).unwrap(), None);
        write_text(&path, "one").unwrap();
        write_text(&path, "two").unwrap();
        assert_eq!(read_text(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a temporary file is left");
        fs::write(&path, [0xff]).unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("UTF-8"));
        fs::File::create(&path).unwrap().set_len(LARGEST + 1).unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("larger"));
        assert!(read_text(folder.path()).is_err());
    }

    #[test]
    fn a_protected_file_stays_and_a_link_leads_to_its_target() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.json");
        assert_eq!(replaceable(&path).unwrap(), path);
        fs::write(&path, "x").unwrap();
        let mut permissions = fs::metadata(&path).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(&path, permissions.clone()).unwrap();
        assert!(replaceable(&path).unwrap_err().to_string().contains("protected"));
        #[cfg(unix)]
        {
            let link = folder.path().join("link.json");
            std::os::unix::fs::symlink("f.json", &link).unwrap();
            assert!(replaceable(&link).unwrap_err().to_string().contains("protected"));
            fs::remove_file(&path).unwrap();
            assert_eq!(replaceable(&link).unwrap(), path, "a link to what is not there yet");
            std::os::unix::fs::symlink("circle", folder.path().join("circle")).unwrap();
            assert!(replaceable(&folder.path().join("circle")).is_err());
        }
        #[cfg(not(unix))]
        {
            #[allow(clippy::permissions_set_readonly_false)]
            permissions.set_readonly(false);
            fs::set_permissions(&path, permissions).unwrap();
        }
    }

    #[test]
    fn only_one_changes_a_file_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/f.json");
        let first = alone(&path).unwrap();
        let waiting = std::thread::spawn({
            let path = path.clone();
            move || alone(&path).map(|_| std::time::Instant::now())
        });
        std::thread::sleep(Duration::from_millis(100));
        let freed = std::time::Instant::now();
        drop(first);
        assert!(waiting.join().unwrap().unwrap() >= freed);
        let _held = alone(&path).unwrap();
        assert!(alone(&path).unwrap_err().to_string().contains("another Handrail"));
    }

    #[test]
    fn copies_beside_never_replace_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f.json");
        let names: Vec<String> = ["a", "b", "a", "c"]
            .iter()
            .map(|text| keep_beside(&path, "old", text).unwrap().file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert_eq!(names, ["f.json.old", "f.json.old-2", "f.json.old", "f.json.old-3"]);
    }
}
