//! `${NAME}` in an entry's texts, filled in when the server is started so that the file keeps the placeholder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::auth;
use super::super::consent::is_risky;
use super::entry::{check_header, check_url};
use super::env_file;
use super::{Error, OAuth, ServerConfig, Transport};
use crate::secret::Secrets;

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::mcp) enum Name<'a> {
    /// A variable of our own environment.
    Variable(&'a str),
    /// A secret that the person set.
    Secret(&'a str),
}

impl Name<'_> {
    /// What it stands for on this machine. Blocks where a keyring must be asked.
    pub(in crate::mcp) fn value(&self, secrets: &dyn Secrets) -> Result<Option<String>, String> {
        match self {
            Self::Variable(name) => Ok(std::env::var(name).ok()),
            // Access tokens belong to one server; no other entry is to send them.
            Self::Secret(name) if auth::keeps(name) => Ok(None),
            Self::Secret(name) => {
                let secret = secrets.get(name).map_err(|error| error.to_string())?;
                Ok(secret.map(|secret| secret.reveal().to_owned()))
            }
        }
    }
}

/// The transport with every `${NAME}` and `${secret:NAME}` replaced through `lookup`. `${NAME:-text}` gives `text` where there is no such
/// variable; `$${` stands for `${`. `~/` at the start of the command or the folder is the home folder.
pub(in crate::mcp) fn expand(
    server: &str,
    config: &ServerConfig,
    lookup: impl Fn(&Name<'_>) -> Result<Option<String>, String>,
) -> Result<Transport, Error> {
    let fill = |field: &str, text: &str| {
        fill(text, &lookup).map_err(|reason| Error::Field {
            server: server.to_owned(),
            field: Some(field.to_owned()),
            reason: format!("\"{field}\": {reason}"),
        })
    };
    let fill_all = |field: &str, pairs: &BTreeMap<String, String>| {
        pairs.iter().map(|(name, text)| Ok((name.clone(), fill(field, text)?))).collect::<Result<BTreeMap<_, _>, Error>>()
    };
    let home = |text: String| match (text.strip_prefix("~/"), lookup(&Name::Variable("HOME"))) {
        (Some(rest), Ok(Some(home))) => format!("{home}/{rest}"),
        _ => text,
    };
    match &config.transport {
        Transport::Stdio { command, args, env, cwd } => Ok(Transport::Stdio {
            command: home(fill("command", command)?),
            args: args.iter().map(|text| fill("args", text)).collect::<Result<_, _>>()?,
            env: match &config.env_file {
                Some(file) => {
                    let mut variables = from_file(server, &home(fill("envFile", file)?))?;
                    variables.extend(fill_all("env", env)?);
                    variables
                }
                None => fill_all("env", env)?,
            },
            cwd: match cwd {
                Some(cwd) => Some(PathBuf::from(home(fill("cwd", &cwd.to_string_lossy())?))),
                None => None,
            },
        }),
        Transport::Http { url, headers } | Transport::Sse { url, headers } => {
            let (url, headers) = (fill("url", url)?, fill_all("headers", headers)?);
            let wrong = |reason: String| Error::Field { server: server.to_owned(), field: None, reason };
            check_url(&url).map_err(wrong)?;
            for (name, value) in &headers {
                check_header(name, value).map_err(wrong)?;
            }
            Ok(match &config.transport {
                Transport::Sse { .. } => Transport::Sse { url, headers },
                Transport::Stdio { .. } | Transport::Http { .. } => Transport::Http { url, headers },
            })
        }
    }
}

/// The variables of an `envFile`. Those that decide which code runs must stand in the entry, where they are shown before the
/// start: the file may become another one without anybody looking.
fn from_file(server: &str, file: &str) -> Result<BTreeMap<String, String>, Error> {
    let wrong = |reason: String| Error::Field {
        server: server.to_owned(),
        field: Some("envFile".to_owned()),
        reason: format!("\"envFile\": {reason}"),
    };
    let variables = env_file::read(Path::new(file)).map_err(wrong)?;
    match variables.keys().find(|name| is_risky(name)) {
        Some(name) => Err(wrong(format!("{file} sets {name}, which decides which code runs; write it into \"env\" instead"))),
        None => Ok(variables),
    }
}

/// How somebody signs in, filled in the same way.
pub(in crate::mcp) fn expand_oauth(
    server: &str,
    oauth: &OAuth,
    lookup: impl Fn(&Name<'_>) -> Result<Option<String>, String>,
) -> Result<OAuth, Error> {
    let fill = |field: &str, text: &Option<String>| match text {
        Some(text) => fill(text, &lookup).map(Some).map_err(|reason| Error::Field {
            server: server.to_owned(),
            field: Some(format!("oauth.{field}")),
            reason: format!("\"oauth\": \"{field}\": {reason}"),
        }),
        None => Ok(None),
    };
    Ok(OAuth {
        client_id: fill("clientId", &oauth.client_id)?,
        client_secret: fill("clientSecret", &oauth.client_secret)?,
        ..oauth.clone()
    })
}

fn fill(text: &str, lookup: &impl Fn(&Name<'_>) -> Result<Option<String>, String>) -> Result<String, String> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let escaped = rest[..at].ends_with('$');
        filled.push_str(&rest[..at]);
        rest = &rest[at + 2..];
        if escaped {
            filled.push('{');
            continue;
        }
        let Some(end) = rest.find('}') else {
            return Err("a \"${\" is never closed with \"}\"".to_owned());
        };
        filled.push_str(&value(&rest[..end], lookup)?);
        rest = &rest[end + 1..];
    }
    filled.push_str(rest);
    Ok(filled)
}

fn value(inside: &str, lookup: &impl Fn(&Name<'_>) -> Result<Option<String>, String>) -> Result<String, String> {
    let (name, fallback) = match inside.split_once(":-") {
        Some((name, fallback)) => (name, Some(fallback)),
        None => (inside, None),
    };
    // Other programs ask for an `input` once and keep it; here it is a secret of that name.
    if let Some(secret) = name.strip_prefix("secret:").or_else(|| name.strip_prefix("input:")) {
        return match (lookup(&Name::Secret(secret))?, fallback) {
            (Some(value), _) => Ok(value),
            (None, Some(fallback)) => Ok(fallback.to_owned()),
            (None, None) => Err(format!("there is no secret \"{secret}\"; set it with: handrail-cli secret set {secret}")),
        };
    }
    let name = name.strip_prefix("env:").unwrap_or(name);
    match (lookup(&Name::Variable(name))?, fallback) {
        (Some(value), _) => Ok(value),
        (None, Some(fallback)) => Ok(fallback.to_owned()),
        (None, None) => Err(format!("the environment variable {name} is not set; set it before Handrail starts, or write the value")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Entry;
    use super::*;

    fn lookup(name: &Name<'_>) -> Result<Option<String>, String> {
        match name {
            Name::Variable("KEY") => Ok(Some("k1".to_owned())),
            Name::Variable("HOME") => Ok(Some("/home/me".to_owned())),
            Name::Secret("KEY") => Ok(Some("s1".to_owned())),
            Name::Secret("LOCKED") => Err("the keyring is locked".to_owned()),
            Name::Variable(_) | Name::Secret(_) => Ok(None),
        }
    }

    #[test]
    fn placeholders_are_filled_everywhere() {
        let config = Entry::read(
            "s",
            &json!({"command": "~/bin/x", "args": ["--key=${KEY}", "${NONE:-d}", "$${KEY}", "${env:KEY}"], "env": {"K": "a${KEY}b", "S": "${secret:KEY}", "I": "${input:KEY}", "N": "${secret:NONE:-n}"}, "cwd": "~/w"}),
        )
        .config;
        let Ok(Transport::Stdio { command, args, env, cwd }) = expand("s", &config, lookup) else { panic!() };
        assert_eq!(command, "/home/me/bin/x");
        assert_eq!(args, ["--key=k1", "d", "${KEY}", "k1"]);
        assert_eq!((env["K"].as_str(), env["S"].as_str(), env["I"].as_str(), env["N"].as_str()), ("ak1b", "s1", "s1", "n"));
        assert_eq!(cwd, Some(PathBuf::from("/home/me/w")));
    }

    #[test]
    fn the_client_of_a_sign_in_is_filled_in_too_and_tokens_are_nobodys_placeholder() {
        let oauth = OAuth { client_id: Some("${KEY}".to_owned()), client_secret: Some("${secret:KEY}".to_owned()), ..OAuth::default() };
        let filled = expand_oauth("s", &oauth, lookup).unwrap();
        assert_eq!((filled.client_id.as_deref(), filled.client_secret.as_deref()), (Some("k1"), Some("s1")));
        let missing = OAuth { client_id: Some("me".to_owned()), client_secret: Some("${secret:NONE}".to_owned()), ..OAuth::default() };
        let error = expand_oauth("s", &missing, lookup).unwrap_err().to_string();
        assert!(error.contains("clientSecret") && error.contains("handrail-cli secret set NONE"), "{error}");

        let folder = tempfile::tempdir().unwrap();
        let secrets = crate::secret::FileSecrets::new(folder.path().join("secrets.toml"));
        let name = auth::secret_name(&"other".into());
        secrets.set(&name, &crate::secret::Secret::new("token")).unwrap();
        assert_eq!(Name::Secret(&name).value(&secrets), Ok(None));
    }

    #[test]
    fn what_is_missing_is_named_with_its_field() {
        for (entry, wanted) in [
            (json!({"command": "x", "env": {"A": "${NONE}"}}), "NONE"),
            (json!({"command": "x", "args": ["${KEY"]}), "never closed"),
            (json!({"url": "http://h", "headers": {"A": "${secret:TOKEN}"}}), "handrail-cli secret set TOKEN"),
            (json!({"command": "x", "env": {"A": "${secret:LOCKED}"}}), "the keyring is locked"),
            (json!({"url": "${KEY}://h"}), "\"url\""),
        ] {
            let config = Entry::read("s", &entry).config;
            let error = expand("s", &config, lookup).unwrap_err().to_string();
            assert!(error.contains("'s'") && error.contains(wanted), "{error}");
        }
    }
}
