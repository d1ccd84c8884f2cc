//! Consent: what a person must have seen before a server is started for the first time, or with another command.
//!
//! What is agreed to is what stands in the configuration, before any `${NAME}` is filled in: the command, its arguments,
//! the names of its variables, its folder; or the address and the names of its headers. Values are usually keys and are
//! neither shown nor agreed to, except those of variables that decide which code runs.

use std::fmt;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::config::{ServerConfig, Transport, env_file_names};
use crate::tool::SchemaHash;

/// Whose word starts a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// A person must have agreed to its [`Consent`] before it is started or connected to.
    #[default]
    Ask,
    /// Whoever runs this program can run any program, and named the servers: nothing is asked, and nothing is recorded as
    /// agreed to.
    Trust,
}

/// What is shown before a start, and agreed to as a whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Consent {
    /// Where the entry comes from.
    pub origin: Origin,
    /// What is started or connected to.
    pub subject: Subject,
    /// What a person should look at twice.
    pub warnings: Vec<Warning>,
    /// Names the subject, and the values in the warnings; agreeing to this hash agrees to nothing else. Where the entry
    /// came from is no part of it.
    pub hash: String,
}

/// What a person should look at twice before agreeing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Warning {
    /// A variable that decides which code runs, in the program or in what it starts.
    Variable {
        /// Its name.
        name: String,
        /// What it is set to.
        value: String,
    },
    /// A shell, or an interpreter, runs a text from the arguments: anything may stand there.
    Shell {
        /// The program.
        command: String,
        /// The text that it runs.
        script: String,
    },
    /// The program asks for the rights of the machine's owner.
    Privileges {
        /// What asks for them.
        command: String,
    },
    /// The program is downloaded by a package runner and may change with each start: no version is pinned.
    Unpinned {
        /// The package.
        package: String,
    },
    /// It is given a secret from the keyring.
    Secret {
        /// The secret's name.
        name: String,
    },
    /// It is given a variable of Handrail's own environment, which may be a key.
    Environment {
        /// The variable's name.
        name: String,
    },
    /// Variables come from a file when it is started.
    EnvFile {
        /// The file.
        path: String,
        /// The names of the variables that it sets now.
        names: Vec<String>,
    },
    /// A text holds a character that is not seen: often a path whose backslashes were written once.
    Control {
        /// The text, with the character as an escape.
        shown: String,
        /// What it may have been meant to be, as it is written in JSON.
        meant: Option<String>,
    },
    /// What is sent to this address can be read on the way.
    PlainHttp {
        /// The host.
        host: String,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, value } => write!(f, "the variable {name} decides which code runs; it is set to \"{value}\""),
            Self::Shell { command, script } => write!(f, "{command} runs this text as a program: {script}"),
            Self::Privileges { command } => write!(f, "{command} asks for more rights than yours"),
            Self::Unpinned { package } => {
                write!(f, "\"{package}\" names no version: what is downloaded and run may be another program next time")
            }
            Self::Secret { name } => write!(f, "it is given the secret \"{name}\""),
            Self::Environment { name } => write!(f, "it is given the variable {name} of Handrail's own environment"),
            Self::EnvFile { path, names } if names.is_empty() => write!(f, "it is given the variables of the file {path}"),
            Self::EnvFile { path, names } => write!(f, "it is given the variables of the file {path}: {}", names.join(", ")),
            Self::Control { shown, meant: Some(meant) } => {
                write!(f, "this path holds a control character: \"{shown}\". Did you mean {meant}?")
            }
            Self::Control { shown, meant: None } => write!(f, "this holds a control character: \"{shown}\""),
            Self::PlainHttp { host } => write!(f, "the connection to {host} is not encrypted: others can read and change what is sent"),
        }
    }
}

impl Consent {
    /// What starting this needs.
    #[must_use]
    pub fn of(transport: &Transport, origin: Origin) -> Self {
        Self::made(transport, warnings(transport), origin)
    }

    /// The same for a whole entry: what it fills in for a sign-in goes to whoever its address names.
    #[must_use]
    pub fn of_server(config: &ServerConfig, origin: Origin) -> Self {
        let mut warnings = warnings(&config.transport);
        if let Some(oauth) = &config.oauth {
            given(oauth.client_id.iter().chain(&oauth.client_secret), &mut warnings);
        }
        if let Some(path) = &config.env_file {
            warnings.push(Warning::EnvFile { path: path.clone(), names: env_file_names(Path::new(path)) });
            given(std::iter::once(path), &mut warnings);
        }
        Self::made(&config.transport, warnings, origin)
    }

    fn made(transport: &Transport, warnings: Vec<Warning>, origin: Origin) -> Self {
        let subject = Subject::of(transport);
        // What these say stands in values, which are no part of the subject.
        let said = |warning: &&Warning| matches!(warning, Warning::Variable { .. } | Warning::Secret { .. } | Warning::Environment { .. });
        let values: Vec<&Warning> = warnings.iter().filter(said).collect();
        // The file is agreed to, whatever names it holds: none of them decides which code runs.
        let file = warnings.iter().find_map(|warning| if let Warning::EnvFile { path, .. } = warning { Some(path) } else { None });
        let mut agreed = json!({ "subject": subject, "values": values });
        if let Some(file) = file {
            agreed["envFile"] = json!(file);
        }
        let hash = SchemaHash::of(&agreed).to_hex();
        Self { origin, subject, warnings, hash }
    }
}

/// What is started or connected to, without any value that may be a secret.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub enum Subject {
    /// A program.
    Program {
        /// The command.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// The names of the variables that are set for it.
        env: Vec<String>,
        /// Its working folder.
        folder: Option<PathBuf>,
    },
    /// An address.
    Address {
        /// The address.
        url: String,
        /// The names of the headers that are sent.
        headers: Vec<String>,
    },
}

/// Where an entry comes from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The configuration file, changed by hand or by another program.
    File,
    /// Pasted or typed into a form.
    Pasted,
    /// Taken over from another program.
    Imported(String),
    /// The gallery of well-known servers.
    Gallery,
    /// A bundle file.
    Bundle(String),
    /// A link from elsewhere.
    Link,
}

impl Subject {
    /// What a transport would start or connect to.
    #[must_use]
    pub fn of(transport: &Transport) -> Self {
        match transport {
            Transport::Stdio { command, args, env, cwd } => {
                Self::Program { command: command.clone(), args: args.clone(), env: env.keys().cloned().collect(), folder: cwd.clone() }
            }
            Transport::Http { url, headers } | Transport::Sse { url, headers } => {
                Self::Address { url: url.clone(), headers: headers.keys().cloned().collect() }
            }
        }
    }
}

/// Variables that make a program load or start other code than its command says, or find its settings elsewhere.
const RISKY: &[&str] = &[
    "PATH",
    "PATHEXT",
    "COMSPEC",
    "SHELL",
    "BASH_ENV",
    "ENV",
    "IFS",
    "PROMPT_COMMAND",
    "HOME",
    "USERPROFILE",
    "APPDATA",
    "LOCALAPPDATA",
    "PERL5LIB",
    "PERL5OPT",
    "PERL5DB",
    "RUBYLIB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "DOTNET_STARTUP_HOOKS",
    "DOTNET_ADDITIONAL_DEPS",
    "CORECLR_PROFILER",
    "CORECLR_ENABLE_PROFILING",
    "GCONV_PATH",
    "LOCPATH",
    "HOSTALIASES",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
];
/// The runners and interpreters have more of them with each version.
const RISKY_STARTS: &[&str] = &[
    "LD_",
    "DYLD_",
    "GIT_",
    "NPM_CONFIG_",
    "PIP_",
    "UV_",
    "PYTHON",
    "NODE_",
    "BUN_",
    "DENO_",
    "YARN_",
    "COREPACK_",
    "DOCKER_",
    "XDG_",
    "BASH_FUNC_",
];
/// A name with one of these in it is that of a key, whatever it begins with: its value is neither shown nor in the hash.
const KEYS: &[&str] = &["TOKEN", "KEY", "SECRET", "PASSWORD", "PASSWD", "AUTH", "CREDENTIAL"];

/// Longest text of a warning; the whole stands in the entry.
const LONGEST: usize = 400;

fn warnings(transport: &Transport) -> Vec<Warning> {
    match transport {
        Transport::Stdio { command, args, env, cwd } => {
            let risky = env.iter().filter(|(name, _)| is_risky(name));
            let mut warnings: Vec<Warning> =
                risky.map(|(name, value)| Warning::Variable { name: name.clone(), value: value.clone() }).collect();
            program(command, args, &mut warnings);
            let folder = cwd.iter().map(|folder| folder.to_string_lossy().into_owned());
            warnings.extend(std::iter::once(command).chain(args).cloned().chain(folder).filter_map(|text| control(&text)));
            given(std::iter::once(command).chain(args).chain(env.values()), &mut warnings);
            warnings
        }
        Transport::Http { url, headers } | Transport::Sse { url, headers } => {
            let mut warnings: Vec<Warning> = plain_http(url).into_iter().collect();
            given(std::iter::once(url).chain(headers.values()), &mut warnings);
            warnings
        }
    }
}

/// A text with characters that nobody sees. Scripts have lines; a path has none.
fn control(text: &str) -> Option<Warning> {
    let drive = text.as_bytes().get(1) == Some(&b':') && text.starts_with(|first: char| first.is_ascii_alphabetic());
    let path = drive || text.starts_with("\\\\");
    let hidden = |c: char| c.is_control() && (path || !matches!(c, '\n' | '\t' | '\r'));
    if !text.contains(hidden) {
        return None;
    }
    let shown: String = text.chars().take(LONGEST).collect::<String>().escape_debug().collect();
    // As it is written in a file: each backslash twice, also those that became a character.
    let meant = path.then(|| shown.replace("\\\\", "\\").replace('\\', "\\\\").replace("\\\\u{8}", "\\\\b").replace("\\\\u{c}", "\\\\f"));
    Some(Warning::Control { shown, meant })
}

/// What is filled in from the keyring and from our environment: a text from elsewhere may ask for anybody's keys.
fn given<'a>(texts: impl Iterator<Item = &'a String>, warnings: &mut Vec<Warning>) {
    // What every program gets in any case.
    const ORDINARY: &[&str] =
        &["HOME", "USER", "USERNAME", "USERPROFILE", "PWD", "LANG", "TMPDIR", "TEMP", "PATH", "APPDATA", "LOCALAPPDATA"];
    for text in texts {
        let places = text.match_indices("${").filter(|(at, _)| !text[..*at].ends_with('$'));
        for inside in places.filter_map(|(at, _)| text[at + 2..].split_once('}')).map(|(inside, _)| inside) {
            let name = inside.split(":-").next().unwrap_or(inside);
            let warning = match name.strip_prefix("secret:").or_else(|| name.strip_prefix("input:")) {
                Some(name) => Warning::Secret { name: name.to_owned() },
                None => Warning::Environment { name: name.strip_prefix("env:").unwrap_or(name).to_owned() },
            };
            let ordinary = matches!(&warning, Warning::Environment { name } if ORDINARY.contains(&name.as_str()));
            if !ordinary && !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
}

pub(super) fn is_risky(name: &str) -> bool {
    // Windows knows no difference between big and small letters in names, and the proxies are known in both.
    let name = name.to_uppercase();
    let is_key = KEYS.iter().any(|part| name.contains(part));
    !is_key && (RISKY.contains(&name.as_str()) || RISKY_STARTS.iter().any(|start| name.starts_with(start)))
}

/// The name of a program without its folder and without Windows' endings.
fn program_name(command: &str) -> String {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command).to_lowercase();
    [".exe", ".cmd", ".bat", ".com", ".ps1"].iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(&name).to_owned()
}

fn program(command: &str, args: &[String], warnings: &mut Vec<Warning>) {
    let short = |text: &str| -> String { text.chars().take(LONGEST).collect() };
    let mut rest = args;
    let mut name = program_name(command);
    // What only starts another program is looked through, as far as people nest such things.
    for _ in 0..4 {
        match name.as_str() {
            "sudo" | "doas" | "pkexec" | "su" | "runas" | "gsudo" => warnings.push(Warning::Privileges { command: name.clone() }),
            "env" | "nohup" | "nice" | "setsid" | "time" | "xvfb-run" | "caffeinate" | "stdbuf" | "timeout" => {
                for argument in rest {
                    if let Some((variable, value)) = argument.split_once('=').filter(|(variable, _)| is_risky(variable)) {
                        warnings.push(Warning::Variable { name: variable.to_owned(), value: short(value) });
                    }
                }
            }
            _ => break,
        }
        let Some(at) = rest.iter().position(|argument| !argument.starts_with('-') && !argument.contains('=')) else { return };
        (name, rest) = (program_name(&rest[at]), &rest[at + 1..]);
    }
    if let Some(script) = script(&name, rest) {
        warnings.push(Warning::Shell { command: name, script: short(&script) });
    } else if let Some(package) = unpinned(&name, rest) {
        warnings.push(Warning::Unpinned { package: short(package) });
    }
}

/// The text that an interpreter is told to run, where it is.
fn script(name: &str, args: &[String]) -> Option<String> {
    let flags: &[&str] = match name {
        "sh" | "bash" | "zsh" | "dash" | "ksh" | "fish" | "busybox" | "ash" | "su" => &["-c", "--command"],
        "cmd" => &["/c", "/k", "/s"],
        "powershell" | "pwsh" => &["-c", "-command", "-encodedcommand", "-e", "-ec", "-enc"],
        "node" | "bun" | "deno" | "perl" | "ruby" => &["-e", "--eval", "-p", "--print", "eval", "-pe", "-ne"],
        "osascript" => &["-e"],
        _ if name.starts_with("python") || name == "php" => &["-c", "-r"],
        _ => return None,
    };
    let shell = !matches!(name, "node" | "bun" | "deno" | "perl" | "ruby" | "osascript") && !name.starts_with("python");
    let at = args.iter().position(|argument| {
        let argument = argument.to_lowercase();
        // Shells take several letters behind one dash, and -c may be among them.
        flags.iter().any(|flag| argument == *flag || (flag.starts_with("--") && argument.starts_with(&format!("{flag}="))))
            || (shell && argument.starts_with('-') && !argument.starts_with("--") && argument.ends_with('c'))
    })?;
    Some(args[at..].iter().skip(usize::from(!args[at].contains('='))).map(String::as_str).collect::<Vec<_>>().join(" "))
}

/// The package that a runner downloads, where no version is pinned.
fn unpinned<'a>(name: &str, args: &'a [String]) -> Option<&'a str> {
    let python = matches!(name, "uvx" | "pipx");
    let rest = match name {
        "npx" | "bunx" | "uvx" | "pnpx" => args,
        // The runners that are a word of another program.
        "npm" | "pnpm" | "yarn" | "bun" | "pipx" if matches!(args.first().map(String::as_str), Some("exec" | "x" | "dlx" | "run")) => {
            &args[1..]
        }
        _ => return None,
    };
    let package = rest.iter().map(String::as_str).find(|argument| !argument.starts_with('-'))?;
    if package.contains("${") || package.starts_with(['.', '/', '~']) {
        return None;
    }
    // A scope begins with the same sign that stands before a version.
    let version = package.get(1..).and_then(|rest| rest.rsplit_once('@')).map(|(_, version)| version);
    let pinned = version
        .is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()) || (python && version.starts_with("git")))
        || (python && package.contains("=="));
    (!pinned).then_some(package)
}

fn plain_http(url: &str) -> Option<Warning> {
    let parsed = reqwest::Url::parse(url).ok().filter(|parsed| parsed.scheme() == "http")?;
    let host = parsed.host_str()?.trim_matches(['[', ']']).to_owned();
    let local =
        host == "localhost" || host.ends_with(".localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    (!local).then_some(Warning::PlainHttp { host })
}

impl Subject {
    /// In one line, as one would type it. Arguments with blanks are quoted.
    #[must_use]
    pub fn line(&self) -> String {
        let quoted = |text: &str| {
            let plain = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
            if plain { text.to_owned() } else { format!("\"{}\"", text.escape_debug()) }
        };
        match self {
            Self::Program { command, args, .. } => {
                std::iter::once(command).chain(args).map(|text| quoted(text)).collect::<Vec<_>>().join(" ")
            }
            Self::Address { url, .. } => url.clone(),
        }
    }

    /// The working folder, for programs that have one.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Program { folder, .. } => folder.as_deref(),
            Self::Address { .. } => None,
        }
    }

    /// The names of what is set beside: variables of a program, headers of an address.
    #[must_use]
    pub fn names(&self) -> &[String] {
        match self {
            Self::Program { env, .. } => env,
            Self::Address { headers, .. } => headers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::config::Entry;
    use super::*;

    fn consent(entry: serde_json::Value) -> Consent {
        Consent::of_server(&Entry::read("s", &entry).config, Origin::File)
    }

    #[test]
    fn what_runs_is_in_the_hash_and_ordinary_values_are_not() {
        let base = json!({"command": "x", "args": ["a"], "env": {"KEY": "1"}, "cwd": "/tmp"});
        let hash = consent(base.clone()).hash;
        let with = |field: &str, value: serde_json::Value| {
            let mut entry = base.clone();
            entry[field] = value;
            consent(entry).hash
        };
        assert_eq!(hash, with("env", json!({"KEY": "2"})));
        assert_eq!(hash, with("timeout", json!(9)));
        assert_eq!(hash, Consent::of(&Entry::read("s", &base).config.transport, Origin::Link).hash);
        for other in
            [with("command", json!("y")), with("args", json!([])), with("env", json!({"KEY": "1", "B": "1"})), with("cwd", json!("/"))]
        {
            assert_ne!(hash, other);
        }
        // The value of a variable that decides which code runs is agreed to as well.
        let risky = |value: &str| consent(json!({"command": "x", "env": {"NODE_OPTIONS": value}}));
        assert_ne!(risky("--require a").hash, risky("--require b").hash);
        // So is whose secret it is given.
        assert_ne!(with("env", json!({"KEY": "${secret:a}"})), with("env", json!({"KEY": "${secret:b}"})));
        let oauth = |secret: &str| consent(json!({"url": "https://h", "oauth": {"clientId": "me", "clientSecret": secret}})).hash;
        assert_ne!(oauth("${secret:a}"), oauth("${secret:b}"));
        assert_eq!(oauth("mine"), consent(json!({"url": "https://h"})).hash);
        let address = |headers: serde_json::Value| consent(json!({"url": "https://h", "headers": headers})).hash;
        assert_eq!(address(json!({"K": "1"})), address(json!({"K": "2"})));
        assert_ne!(address(json!({"K": "1"})), address(json!({})));
    }

    #[test]
    fn no_ordinary_value_is_in_it() {
        let shown = format!("{:?}", consent(json!({"command": "x", "env": {"KEY": "topsecret"}})));
        assert!(shown.contains("KEY") && !shown.contains("topsecret"), "{shown}");
        let shown = format!("{:?}", consent(json!({"url": "https://h", "headers": {"Authorization": "topsecret"}})));
        assert!(shown.contains("Authorization") && !shown.contains("topsecret"), "{shown}");
    }

    #[test]
    fn what_decides_which_code_runs_is_agreed_to_with_its_value_and_keys_never_are() {
        let with = |name: &str, value: &str| consent(json!({"command": "x", "env": {name: value}}));
        for name in [
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_VALUE_0",
            "UV_INDEX_URL",
            "PYTHONPATH",
            "NODE_OPTIONS",
            "BUN_OPTIONS",
            "DENO_DIR",
            "YARN_REGISTRY",
            "COREPACK_NPM_REGISTRY",
            "DOCKER_HOST",
            "XDG_CONFIG_HOME",
            "PIP_INDEX_URL",
            "npm_config_registry",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "HOME",
            "USERPROFILE",
            "APPDATA",
            "LOCALAPPDATA",
            "SHELL",
            "BASH_ENV",
            "ENV",
            "PATH",
        ] {
            assert_eq!(with(name, "a").warnings, [Warning::Variable { name: name.to_owned(), value: "a".to_owned() }], "{name}");
            assert_ne!(with(name, "a").hash, with(name, "b").hash, "{name}");
        }
        for name in [
            "UV_PUBLISH_TOKEN",
            "npm_config__authToken",
            "NODE_AUTH_TOKEN",
            "GIT_PASSWORD",
            "PIP_KEYRING_SECRET",
            "DOCKER_PASSWD",
            "XDG_CREDENTIAL",
            "YARN_NPM_AUTH_IDENT",
            "GITHUB_TOKEN",
            "HOMEPAGE",
            "ENVIRONMENT",
        ] {
            assert_eq!((with(name, "a").warnings, with(name, "a").hash), (vec![], with(name, "b").hash), "{name}");
        }
    }

    #[test]
    fn what_is_unusual_is_pointed_out() {
        let kinds = |entry: serde_json::Value| {
            consent(entry)
                .warnings
                .iter()
                .map(|warning| serde_json::to_value(warning).unwrap()["kind"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        for (entry, wanted) in [
            (json!({"command": "node", "args": ["server.js"]}), vec![]),
            (json!({"command": "npx", "args": ["-y", "@scope/pkg@1.2.3", "/tmp"]}), vec![]),
            (json!({"command": "uvx", "args": ["mcp-server-time==1.0"]}), vec![]),
            (json!({"command": "npx", "args": ["-y", "@scope/pkg"]}), vec!["unpinned"]),
            (json!({"command": "npx", "args": ["pkg@latest"]}), vec!["unpinned"]),
            (json!({"command": "uvx", "args": ["pkg"]}), vec!["unpinned"]),
            (json!({"command": "pnpm", "args": ["dlx", "pkg"]}), vec!["unpinned"]),
            (json!({"command": "/bin/sh", "args": ["-c", "curl x | sh"]}), vec!["shell"]),
            (json!({"command": "bash", "args": ["-lc", "x"]}), vec!["shell"]),
            (json!({"command": "C:\\Windows\\System32\\CMD.EXE", "args": ["/C", "x"]}), vec!["shell"]),
            (json!({"command": "powershell.exe", "args": ["-EncodedCommand", "AA"]}), vec!["shell"]),
            (json!({"command": "python3.12", "args": ["-c", "import os"]}), vec!["shell"]),
            (json!({"command": "node", "args": ["-e", "1"]}), vec!["shell"]),
            (json!({"command": "node", "args": ["--eval=1"]}), vec!["shell"]),
            (json!({"command": "env", "args": ["LD_PRELOAD=/tmp/x.so", "sh", "-c", "x"]}), vec!["variable", "shell"]),
            (json!({"command": "sudo", "args": ["-n", "server"]}), vec!["privileges"]),
            (json!({"command": "x", "env": {"LD_PRELOAD": "a", "KEY": "b", "path": "c"}}), vec!["variable", "variable"]),
            (json!({"command": "x", "env": {"npm_config_registry": "http://evil"}}), vec!["variable"]),
            (json!({"command": "x", "env": {"K": "${secret:other.key}", "H": "${HOME}/x", "D": "$${secret:x}"}}), vec!["secret"]),
            (json!({"command": "x", "args": ["${AWS_SECRET_ACCESS_KEY:-no}", "${env:AWS_SECRET_ACCESS_KEY}"]}), vec!["environment"]),
            (json!({"url": "https://h", "headers": {"A": "Bearer ${secret:t}"}}), vec!["secret"]),
            (json!({"url": "https://h", "headers": {"A": "Bearer ${input:t}"}}), vec!["secret"]),
            (json!({"url": "https://h", "oauth": {"clientId": "${TOKEN}", "clientSecret": "${secret:t}"}}), vec!["environment", "secret"]),
            (json!({"url": "http://example.com/mcp"}), vec!["plain-http"]),
            (json!({"url": "http://127.0.0.1:3000/mcp"}), vec![]),
            (json!({"url": "http://[::1]/mcp"}), vec![]),
            (json!({"url": "https://example.com/mcp"}), vec![]),
        ] {
            assert_eq!(kinds(entry.clone()), wanted, "{entry}");
        }
        let Warning::Shell { script, .. } = &consent(json!({"command": "sh", "args": ["-c", "echo hi"]})).warnings[0] else { panic!() };
        assert_eq!(script, "echo hi");
    }
}
