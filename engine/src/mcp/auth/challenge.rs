//! What a server says when it asks for a sign-in: the parameters of `WWW-Authenticate`.

/// The parameters that matter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Challenge {
    /// Where its metadata is.
    pub(super) resource_metadata: Option<String>,
    /// What it wants to be allowed.
    pub(super) scopes: Vec<String>,
    /// Whether somebody is signed in already, with too few rights.
    pub(super) insufficient: bool,
}

impl Challenge {
    pub(super) fn read(said: &str) -> Self {
        let mut challenge = Self::default();
        for (name, value) in parameters(said) {
            match name.as_str() {
                "resource_metadata" if challenge.resource_metadata.is_none() => challenge.resource_metadata = Some(value),
                "scope" if challenge.scopes.is_empty() => challenge.scopes = value.split_whitespace().map(str::to_owned).collect(),
                "error" => challenge.insufficient |= value == "insufficient_scope",
                _ => {}
            }
        }
        challenge
    }
}

/// `name=value` pairs, quoted or not, whatever stands between them; names in lower case.
fn parameters(said: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = said;
    while let Some(at) = rest.find('=') {
        let name = rest[..at].trim_end().rsplit([' ', ',', '\t']).next().unwrap_or_default().to_ascii_lowercase();
        rest = rest[at + 1..].trim_start();
        let value = match rest.strip_prefix('"') {
            Some(quoted) => {
                let (value, after) = unquoted(quoted);
                rest = after;
                value
            }
            None => {
                let end = rest.find([',', ' ', ';', '\t']).unwrap_or(rest.len());
                let value = rest[..end].to_owned();
                rest = &rest[end..];
                value
            }
        };
        found.push((name, value));
    }
    found
}

/// A quoted text after its first quote, and what comes behind its last one.
fn unquoted(text: &str) -> (String, &str) {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, character) in text.char_indices() {
        match character {
            '\\' if !escaped => escaped = true,
            '"' if !escaped => return (value, &text[at + 1..]),
            other => {
                value.push(other);
                escaped = false;
            }
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read_however_they_are_written() {
        let challenge = Challenge::read(
            r#"Bearer realm="a, b=\"c\"", Error = "insufficient_scope",scope="a b" , resource_metadata=https://h/.well-known/x?y=z"#,
        );
        assert_eq!(challenge.scopes, ["a", "b"]);
        assert!(challenge.insufficient);
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://h/.well-known/x?y=z"));
        for odd in ["", "Bearer", "=", "a=\"", "\"\\", "Bearer scope=", "ü=ü=\"ü\\"] {
            let _ = Challenge::read(odd);
        }
        assert_eq!(Challenge::read("Basic realm=x, Bearer scope=one").scopes, ["one"]);
    }
}
