//! Signing in to servers: OAuth 2.1 as the protocol has it, with the system's browser and a listener on this machine.
//!
//! Our own, and not the protocol library's: what is kept (tokens with the client that they were given to, bound to one
//! address and one issuer), what is fetched (bounded, and only over safe ways) and what is said when something goes wrong
//! are decided here.

mod account;
mod challenge;
mod client;
mod discovery;
mod flow;
mod grant;
mod kept;
mod loopback;
mod web;

pub(super) use account::Account;
pub(super) use flow::{Errand, run};
pub(super) use kept::keeps;
#[cfg(test)]
pub(super) use kept::secret_name;

/// Longest text of a foreign server that is shown.
const SHOWN: usize = 200;

/// A foreign text as it may be shown: short, on one line, and without the values that were sent.
fn shown(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| secret.len() > 3) {
        text = text.replace(secret, "…");
    }
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).take(SHOWN).collect::<String>().trim().to_owned()
}

/// Random text that nobody guesses: 256 bits.
fn random() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>())
}

/// Seconds since 1970.
fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Fields as the body of a form.
fn form(fields: &[(&str, &str)]) -> String {
    let mut carrier = reqwest::Url::parse("http://form").ok();
    if let Some(carrier) = &mut carrier {
        let _ = carrier.query_pairs_mut().extend_pairs(fields);
    }
    carrier.as_ref().and_then(reqwest::Url::query).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_words_are_short_plain_and_hold_nothing_that_was_sent() {
        assert_eq!(shown("no\r\n code-123 \u{1b}[31m", &["code-123", ""]), "no   …  [31m");
        assert_eq!(shown(&"x".repeat(5000), &[]).len(), SHOWN);
    }

    #[test]
    fn a_form_is_encoded_and_random_texts_differ() {
        assert_eq!(form(&[("a", "1 &="), ("b", "ü")]), "a=1+%26%3D&b=%C3%BC");
        assert!(random() != random() && random().len() == 43);
    }
}
