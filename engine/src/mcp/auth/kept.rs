//! What is kept of a sign-in, among the secrets: tokens, and the client that they were given to. Both belong to one address
//! and one issuer.

use serde::{Deserialize, Serialize};

use super::client::Client;
use super::now;
use crate::tool::ServerId;

/// How the names of these secrets begin.
const PREFIX: &str = "mcp-sign-in:";
/// A token is renewed so long before it ends, in seconds (fixed).
const MARGIN: u64 = 30;

/// The name under which a server's sign-in is kept.
pub(in crate::mcp) fn secret_name(server: &ServerId) -> String {
    format!("{PREFIX}{server}")
}

/// Whether a name is one of these. Some keyrings see no difference between capitals and small letters.
pub(in crate::mcp) fn keeps(name: &str) -> bool {
    name.trim().to_ascii_lowercase().starts_with(PREFIX)
}

/// A text that is kept, but never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Hidden(pub(super) String);

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("•••")
    }
}

/// A sign-in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The server's address; at another one none of this is used.
    pub(super) address: Hidden,
    pub(super) issuer: String,
    pub(super) resource: String,
    pub(super) token_endpoint: String,
    #[serde(default)]
    pub(super) revocation_endpoint: Option<String>,
    pub(super) client: Client,
    /// None where the issuer took them back; the client stays usable.
    #[serde(default)]
    pub(super) tokens: Option<Tokens>,
    /// What was granted.
    #[serde(default)]
    pub(super) scopes: Vec<String>,
    /// Whether the client signed in for itself, and may do so again at any time.
    #[serde(default)]
    pub(super) for_itself: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Tokens {
    pub(super) access: Hidden,
    #[serde(default)]
    pub(super) refresh: Option<Hidden>,
    /// When the access token ends, in seconds since 1970, where that was said.
    #[serde(default)]
    pub(super) ends: Option<u64>,
}

impl Kept {
    pub(super) fn access(&self) -> Option<&str> {
        self.tokens.as_ref().map(|tokens| tokens.access.0.as_str())
    }

    /// Whether other tokens can be had without anybody.
    pub(super) fn renews(&self) -> bool {
        self.for_itself || self.refresh().is_some()
    }

    pub(super) fn refresh(&self) -> Option<&str> {
        self.tokens.as_ref().and_then(|tokens| tokens.refresh.as_ref()).map(|refresh| refresh.0.as_str())
    }
}

impl Tokens {
    /// Whether it is time for another access token.
    pub(super) fn is_due(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= now().saturating_add(MARGIN))
    }

    pub(super) fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| ends <= now())
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::tests::client;
    use super::*;

    #[test]
    fn nothing_of_it_is_shown_and_all_of_it_comes_back() {
        let tokens = Tokens { access: Hidden("s3cret-a".to_owned()), refresh: Some(Hidden("s3cret-r".to_owned())), ends: Some(1) };
        let kept = Kept {
            address: Hidden("https://h.test/?key=s3cret-k".to_owned()),
            issuer: "https://i.test".to_owned(),
            resource: "https://h.test".to_owned(),
            token_endpoint: "https://i.test/token".to_owned(),
            revocation_endpoint: None,
            client: client("s3cret-c"),
            tokens: Some(tokens),
            scopes: vec!["a".to_owned()],
            for_itself: false,
        };
        assert!(!format!("{kept:?}").contains("s3cret"), "{kept:?}");
        assert_eq!(serde_json::from_str::<Kept>(&serde_json::to_string(&kept).unwrap()).unwrap(), kept);
    }

    #[test]
    fn a_token_is_renewed_before_it_ends() {
        let tokens = |ends| Tokens { access: Hidden(String::new()), refresh: None, ends };
        assert!(!tokens(None).is_due() && !tokens(Some(now() + 100)).is_due() && tokens(Some(now() + 10)).is_due());
        assert!(!tokens(Some(now() + 10)).is_over() && tokens(Some(now() - 1)).is_over());
    }

    #[test]
    fn its_names_are_known_however_they_are_spelled() {
        assert!(keeps(&secret_name(&"a".into())) && keeps(" MCP-Sign-In:a") && !keeps("mcp"));
    }
}
