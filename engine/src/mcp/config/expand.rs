//! `${NAME}` in an entry's texts, filled in when the server is started so that the file keeps the placeholder.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::entry::{check_header, check_url};
use super::{Error, ServerConfig, Transport};

/// The transport with every `${NAME}` replaced through `lookup`. `${NAME:-text}` gives `text` where there is no such
/// variable; `$${` stands for `${`. `~/` at the start of the command or the folder is the home folder.
pub(in crate::mcp) fn expand(server: &str, config: &ServerConfig, lookup: impl Fn(&str) -> Option<String>) -> Result<Transport, Error> {
    let fill = |field: &str, text: &str| {
        fill(text, &lookup).map_err(|reason| Error::Field { server: server.to_owned(), reason: format!("\"{field}\": {reason}") })
    };
    let fill_all = |field: &str, pairs: &BTreeMap<String, String>| {
        pairs.iter().map(|(name, text)| Ok((name.clone(), fill(field, text)?))).collect::<Result<BTreeMap<_, _>, Error>>()
    };
    let home = |text: String| match (text.strip_prefix("~/"), lookup("HOME")) {
        (Some(rest), Some(home)) => format!("{home}/{rest}"),
        _ => text,
    };
    match &config.transport {
        Transport::Stdio { command, args, env, cwd } => Ok(Transport::Stdio {
            command: home(fill("command", command)?),
            args: args.iter().map(|text| fill("args", text)).collect::<Result<_, _>>()?,
            env: fill_all("env", env)?,
            cwd: match cwd {
                Some(cwd) => Some(PathBuf::from(home(fill("cwd", &cwd.to_string_lossy())?))),
                None => None,
            },
        }),
        Transport::Http { url, headers } => {
            let (url, headers) = (fill("url", url)?, fill_all("headers", headers)?);
            let wrong = |reason: String| Error::Field { server: server.to_owned(), reason };
            check_url(&url).map_err(wrong)?;
            for (name, value) in &headers {
                check_header(name, value).map_err(wrong)?;
            }
            Ok(Transport::Http { url, headers })
        }
    }
}

fn fill(text: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
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

fn value(inside: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, fallback) = match inside.split_once(":-") {
        Some((name, fallback)) => (name, Some(fallback)),
        None => (inside, None),
    };
    let name = name.strip_prefix("env:").unwrap_or(name);
    if name.starts_with("secret:") || name.starts_with("input:") {
        return Err(format!("${{{inside}}} needs the secret store, which this version does not have yet; use an environment variable"));
    }
    match (lookup(name), fallback) {
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

    fn lookup(name: &str) -> Option<String> {
        match name {
            "KEY" => Some("k1".to_owned()),
            "HOME" => Some("/home/me".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn placeholders_are_filled_everywhere() {
        let config = Entry::read(
            "s",
            &json!({"command": "~/bin/x", "args": ["--key=${KEY}", "${NONE:-d}", "$${KEY}", "${env:KEY}"], "env": {"K": "a${KEY}b"}, "cwd": "~/w"}),
        )
        .config;
        let Ok(Transport::Stdio { command, args, env, cwd }) = expand("s", &config, lookup) else { panic!() };
        assert_eq!(command, "/home/me/bin/x");
        assert_eq!(args, ["--key=k1", "d", "${KEY}", "k1"]);
        assert_eq!(env["K"], "ak1b");
        assert_eq!(cwd, Some(PathBuf::from("/home/me/w")));
    }

    #[test]
    fn what_is_missing_is_named_with_its_field() {
        for (entry, wanted) in [
            (json!({"command": "x", "env": {"A": "${NONE}"}}), "NONE"),
            (json!({"command": "x", "args": ["${KEY"]}), "never closed"),
            (json!({"url": "http://h", "headers": {"A": "${secret:TOKEN}"}}), "secret store"),
            (json!({"url": "${KEY}://h"}), "\"url\""),
        ] {
            let config = Entry::read("s", &entry).config;
            let error = expand("s", &config, lookup).unwrap_err().to_string();
            assert!(error.contains("'s'") && error.contains(wanted), "{error}");
        }
    }
}
