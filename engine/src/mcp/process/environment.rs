//! What a child process gets to see.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::census::MARKER;

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
    "XDG_STATE_HOME",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_DIRS",
    // A server that opens a window or a browser needs to know where.
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    // Companies that look into traffic, and systems without the usual places, need their own certificates.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "NODE_USE_SYSTEM_CA",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "UV_SYSTEM_CERTS",
    "UV_NATIVE_TLS",
    "GIT_SSL_CAINFO",
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
    "ALLUSERSPROFILE",
    "PUBLIC",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROGRAMW6432",
    "COMMONPROGRAMFILES",
    "COMMONPROGRAMFILES(X86)",
    "PROCESSOR_ARCHITECTURE",
    "NUMBER_OF_PROCESSORS",
    "OS",
    "COMPUTERNAME",
    "USERDOMAIN",
    "PSMODULEPATH",
    "TEMP",
    "TMP",
];

/// The environment of a server: the passed variables, the search path, then what was configured, and the marker that
/// nobody can take away.
pub(super) fn environment(configured: &BTreeMap<String, String>, path: &OsStr, marker: &str) -> Vec<(OsString, OsString)> {
    let passed = |name: &str| PASSED.iter().any(|known| known.eq_ignore_ascii_case(name)) || name.starts_with("LC_");
    let mut environment: Vec<(OsString, OsString)> = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(passed)).collect();
    environment.push(("PATH".into(), path.to_owned()));
    let ours = |name: &str| name == "PATH" || name == MARKER;
    environment.extend(configured.iter().filter(|(name, _)| !ours(name)).map(|(name, value)| (name.into(), value.into())));
    environment.push((MARKER.into(), marker.into()));
    environment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_allowed_and_the_configured_variables_are_passed() {
        // CARGO_MANIFEST_DIR is set by cargo for every test and is on no list.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let configured = [("API_KEY", "k"), ("HOME", "/other"), ("PATH", "/p"), (MARKER, "mine")];
        let configured: BTreeMap<String, String> = configured.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let given = environment(&configured, OsStr::new("/p:/usr/bin"), "id.1");
        let last = |wanted: &str| given.iter().rev().find(|(name, _)| name == wanted).map(|(_, value)| value.to_str().unwrap());
        assert!(!given.iter().any(|(name, _)| name == "CARGO_MANIFEST_DIR"));
        assert_eq!(
            (last("HOME"), last("API_KEY"), last("PATH"), last(MARKER)),
            (Some("/other"), Some("k"), Some("/p:/usr/bin"), Some("id.1"))
        );
        for name in ["PATH", MARKER] {
            assert_eq!(given.iter().filter(|(given, _)| given == name).count(), 1);
        }
    }
}
