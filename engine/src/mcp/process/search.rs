//! Where a program is looked for.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// Where one server's programs are looked for.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// The search path, which the server gets as well.
    pub(super) path: OsString,
    /// From where relative names count.
    folder: PathBuf,
}

impl Places {
    /// The places of a server: a configured PATH, or the login shell's and then our own, and behind either the folders
    /// where people's tools usually are.
    pub(super) fn new(configured: &BTreeMap<String, String>, cwd: Option<&Path>, login: Option<&OsStr>) -> Self {
        let mut folders: Vec<PathBuf> = Vec::new();
        let mut add = |path: &OsStr| {
            for folder in std::env::split_paths(path) {
                if !folder.as_os_str().is_empty() && !folders.contains(&folder) {
                    folders.push(folder);
                }
            }
        };
        let own = std::env::var_os("PATH").unwrap_or_default();
        match configured.get("PATH") {
            Some(path) => add(OsStr::new(path)),
            None => {
                if let Some(login) = login {
                    add(login);
                }
                add(&own);
            }
        }
        for folder in usual_places(std::env::var_os("HOME").map(PathBuf::from).as_deref()) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        let folder = cwd.map_or_else(|| std::env::current_dir().unwrap_or_default(), Path::to_owned);
        // Only a folder with the separator in its name cannot be joined; our own PATH alone is then the best answer.
        Self { path: std::env::join_paths(folders).unwrap_or(own), folder }
    }

    /// The program, where it is there.
    pub(super) fn get(&self, command: &str) -> Option<PathBuf> {
        which::which_in(command, Some(&self.path), &self.folder).ok()
    }

    /// A program that may have come with us: beside our own, or in the places.
    pub(super) fn bundled(&self, command: &str) -> Option<PathBuf> {
        let beside = std::env::current_exe().ok()?.with_file_name(format!("{command}{}", std::env::consts::EXE_SUFFIX));
        if beside.is_file() { Some(beside) } else { self.get(command) }
    }

    /// The program, or where it was looked for and what may help.
    pub(super) fn find(&self, command: &str) -> Result<PathBuf, String> {
        if let Some(found) = self.get(command) {
            return Ok(found);
        }
        let mut reason = if command.contains(std::path::MAIN_SEPARATOR) || command.contains('/') {
            let place = self.folder.join(command);
            let what = if place.is_dir() {
                "is a folder"
            } else if place.exists() {
                "is not executable"
            } else {
                "does not exist"
            };
            format!("the command '{command}' cannot be started: {} {what}", place.display())
        } else {
            let looked: Vec<String> = std::env::split_paths(&self.path).map(|folder| folder.display().to_string()).collect();
            format!("the command '{command}' was not found; looked in {}", looked.join(", "))
        };
        if command.contains(char::is_whitespace) {
            reason.push_str(". It contains spaces: put the arguments into \"args\"");
        } else {
            reason.push_str(hint(command));
        }
        Err(reason)
    }
}

fn usual_places(home: Option<&Path>) -> Vec<PathBuf> {
    const IN_HOME: [&str; 9] = [
        ".local/bin",
        ".cargo/bin",
        ".volta/bin",
        ".asdf/shims",
        ".local/share/mise/shims",
        ".pyenv/shims",
        ".bun/bin",
        ".deno/bin",
        ".local/share/fnm/aliases/default/bin",
    ];
    let mut places: Vec<PathBuf> = Vec::new();
    if let Some(home) = home {
        places.extend(IN_HOME.iter().map(|place| home.join(place)));
        places.extend(newest_nvm(home));
    }
    places.extend(["/opt/homebrew/bin", "/home/linuxbrew/.linuxbrew/bin", "/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from));
    places.retain(|place| place.is_dir());
    places
}

/// nvm puts no link into a fixed place, so the highest version that is installed is taken.
fn newest_nvm(home: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(home.join(".nvm/versions/node")).ok()?;
    let number = |path: &PathBuf| -> Vec<u64> {
        let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        name.trim_start_matches('v').split('.').map(|part| part.parse().unwrap_or(0)).collect()
    };
    versions.filter_map(|entry| entry.ok().map(|entry| entry.path())).max_by_key(number).map(|version| version.join("bin"))
}

fn hint(command: &str) -> &'static str {
    match command {
        "npx" | "npm" | "node" => ". Install Node.js or Bun, or give the full path",
        "uvx" | "uv" => ". Install uv, or give the full path",
        "docker" => ". Install Docker, or give the full path",
        "python" => ". Many systems only have \"python3\"; try that, or give the full path",
        _ => ". Install it, or give the full path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(configured: Option<&Path>, cwd: Option<&Path>, login: Option<&str>) -> Places {
        let configured = configured.map(|path| ("PATH".to_owned(), path.display().to_string()));
        Places::new(&configured.into_iter().collect(), cwd, login.map(OsStr::new))
    }

    #[test]
    fn the_highest_nvm_version_is_taken_by_number() {
        let home = tempfile::tempdir().unwrap();
        for version in ["v9.11.2", "v20.3.0", "v20.20.2", "v18.0.0"] {
            std::fs::create_dir_all(home.path().join(".nvm/versions/node").join(version).join("bin")).unwrap();
        }
        assert_eq!(newest_nvm(home.path()), Some(home.path().join(".nvm/versions/node/v20.20.2/bin")));
        assert!(usual_places(Some(home.path())).contains(&home.path().join(".nvm/versions/node/v20.20.2/bin")));
    }

    #[test]
    fn a_configured_path_comes_alone_and_the_login_shells_before_our_own() {
        let first = |places: &Places| std::env::split_paths(&places.path).next().unwrap();
        let all = |places: &Places| std::env::split_paths(&places.path).collect::<Vec<_>>();
        let login = places(None, None, Some("/login/bin:/usr/bin"));
        assert_eq!(first(&login), Path::new("/login/bin"));
        let own = std::env::split_paths(&std::env::var_os("PATH").unwrap()).next().unwrap();
        assert!(all(&login).contains(&own) && all(&login).iter().filter(|folder| *folder == Path::new("/usr/bin")).count() == 1);
        let configured = places(Some(Path::new("/mine")), None, Some("/login/bin"));
        assert_eq!(first(&configured), Path::new("/mine"));
        assert!(!all(&configured).contains(&PathBuf::from("/login/bin")));
    }

    #[test]
    fn a_missing_command_says_where_it_was_looked_for() {
        let reason = places(None, None, Some("/login/bin")).find("no-such-program-here").unwrap_err();
        assert!(reason.contains("no-such-program-here") && reason.contains("/usr/bin") && reason.contains("/login/bin"), "{reason}");
        let reason = places(None, None, None).find("npx -y thing").unwrap_err();
        assert!(reason.contains("\"args\""), "{reason}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plain"), "x").unwrap();
        let here = places(None, Some(folder.path()), None);
        let reason = here.find("./plain").unwrap_err();
        assert!(reason.contains("not executable"), "{reason}");
        assert!(here.find("./gone").unwrap_err().contains("does not exist"));
        assert!(here.find("sh").is_ok());
        assert!(places(Some(folder.path()), None, None).find("plain").unwrap_err().contains(&folder.path().display().to_string()));
    }
}
