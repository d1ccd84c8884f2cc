//! What a child process gets to see, and where its program is looked for.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variables of our own environment that every server gets. Everything else (keys, tokens, our own settings)
/// stays here; what a server needs beyond this is configured.
const PASSED: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TMPDIR",
    "TZ",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    // Windows programs do not start without these.
    "SYSTEMROOT",
    "SYSTEMDRIVE",
    "WINDIR",
    "COMSPEC",
    "PATHEXT",
    "USERPROFILE",
    "HOMEDRIVE",
    "HOMEPATH",
    "USERNAME",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROCESSOR_ARCHITECTURE",
    "TEMP",
    "TMP",
];

/// The environment of a server: the passed variables, the search path, then what was configured.
pub(super) fn environment(configured: &BTreeMap<String, String>) -> Vec<(OsString, OsString)> {
    let passed = |name: &str| PASSED.iter().any(|known| known.eq_ignore_ascii_case(name)) || name.starts_with("LC_");
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(passed)).collect();
    environment.push(("PATH".into(), search_path(configured)));
    environment.extend(configured.iter().filter(|(name, _)| name.as_str() != "PATH").map(|(name, value)| (name.into(), value.into())));
    environment
}

/// The folders that are searched: a configured PATH or our own, and then the places where people's tools are. A
/// program started from a desktop often has the bare system path only.
pub(super) fn search_path(configured: &BTreeMap<String, String>) -> OsString {
    let own = configured.get("PATH").map(OsString::from).or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&own).filter(|folder| !folder.as_os_str().is_empty()).collect();
    for folder in usual_places(std::env::var_os("HOME").map(PathBuf::from).as_deref()) {
        if !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    // Only a folder with the separator in its name cannot be joined; our own PATH alone is then the best answer.
    std::env::join_paths(folders).unwrap_or(own)
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

/// Finds the program, or says where it was looked for and what may help.
pub(super) fn find(command: &str, configured: &BTreeMap<String, String>, cwd: Option<&Path>) -> Result<PathBuf, String> {
    let path = search_path(configured);
    let here = std::env::current_dir().unwrap_or_default();
    if let Ok(found) = which::which_in(command, Some(&path), cwd.unwrap_or(&here)) {
        return Ok(found);
    }
    let mut reason = if command.contains(std::path::MAIN_SEPARATOR) || command.contains('/') {
        let place = cwd.unwrap_or(&here).join(command);
        let what = if place.is_dir() {
            "is a folder"
        } else if place.exists() {
            "is not executable"
        } else {
            "does not exist"
        };
        format!("the command '{command}' cannot be started: {} {what}", place.display())
    } else {
        let looked: Vec<String> = std::env::split_paths(&path).map(|folder| folder.display().to_string()).collect();
        format!("the command '{command}' was not found; looked in {}", looked.join(", "))
    };
    if command.contains(char::is_whitespace) {
        reason.push_str(". It contains spaces: put the arguments into \"args\"");
    } else {
        reason.push_str(hint(command));
    }
    Err(reason)
}

fn hint(command: &str) -> &'static str {
    match command {
        "npx" | "npm" | "node" => ". Install Node.js, or give the full path",
        "uvx" | "uv" => ". Install uv, or give the full path",
        "docker" => ". Install Docker, or give the full path",
        "python" => ". Many systems only have \"python3\"; try that, or give the full path",
        _ => ". Install it, or give the full path",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_allowed_and_the_configured_variables_are_passed() {
        // CARGO_MANIFEST_DIR is set by cargo for every test and is on no list.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let configured = BTreeMap::from([("API_KEY".to_owned(), "k".to_owned()), ("HOME".to_owned(), "/other".to_owned())]);
        let given = environment(&configured);
        assert!(!given.iter().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
        assert_eq!(given.iter().rev().find(|(name, _)| name == "HOME").map(|(_, value)| value.clone()), Some("/other".into()));
        assert!(given.iter().any(|(name, value)| name == "API_KEY" && value == "k"));
        assert_eq!(given.iter().filter(|(name, _)| name == "PATH").count(), 1);
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
    fn a_missing_command_says_where_it_was_looked_for() {
        let nothing = BTreeMap::new();
        let reason = find("no-such-program-here", &nothing, None).unwrap_err();
        assert!(reason.contains("no-such-program-here") && reason.contains("/usr/bin"), "{reason}");
        let reason = find("npx -y thing", &nothing, None).unwrap_err();
        assert!(reason.contains("\"args\""), "{reason}");
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("plain"), "x").unwrap();
        let reason = find("./plain", &nothing, Some(folder.path())).unwrap_err();
        assert!(reason.contains("not executable"), "{reason}");
        assert!(find("./gone", &nothing, Some(folder.path())).unwrap_err().contains("does not exist"));
        assert!(find("sh", &nothing, None).is_ok());
        let elsewhere = BTreeMap::from([("PATH".to_owned(), folder.path().display().to_string())]);
        assert!(find("plain", &elsewhere, None).unwrap_err().contains(&folder.path().display().to_string()));
    }
}
