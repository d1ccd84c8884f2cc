//! The token endpoint: a code for tokens, a refresh token for newer ones, and tokens given back.

use http::HeaderValue;
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use super::client::Client;
use super::kept::{Hidden, Kept, Tokens};
use super::web::{Answer, Web};
use super::{now, shown};

/// Longest token that is taken (fixed); headers are no longer anywhere.
const LONGEST: usize = 16 * 1024;

/// What came back.
pub(super) struct Grant {
    pub(super) tokens: Tokens,
    /// What was granted, where that was said.
    pub(super) scopes: Option<Vec<String>>,
}

/// Why there are no tokens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Trouble {
    /// They are refused, for good.
    Refused(String),
    /// It may work later.
    Later(String),
}

impl Trouble {
    pub(super) fn into_words(self) -> String {
        match self {
            Self::Refused(words) | Self::Later(words) => words,
        }
    }
}

#[derive(Deserialize)]
struct Given {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Value>,
    refresh_token: Option<String>,
    scope: Option<String>,
}

/// Sends a form as the client and takes the tokens from the answer. `secrets` is what must not be in what is told.
pub(super) async fn ask(web: &Web, endpoint: &str, client: &Client, fields: &[(&str, &str)], secrets: &[&str]) -> Result<Grant, Trouble> {
    let endpoint = web.allowed(endpoint, "the address for tokens").map_err(Trouble::Refused)?;
    let (body, basic) = client.sign(fields);
    let answer = web.post_form(&endpoint, body, basic).await.map_err(Trouble::Later)?;
    let mut hidden = secrets.to_vec();
    hidden.extend(client.secret.as_ref().map(|secret| secret.0.as_str()));
    if !answer.status.is_success() {
        let words = refusal(&answer, &hidden);
        let passes = answer.status.is_server_error() || matches!(answer.status.as_u16(), 408 | 429);
        return Err(if passes { Trouble::Later(words) } else { Trouble::Refused(words) });
    }
    let given: Given = answer.json().ok_or_else(|| Trouble::Refused(refusal(&answer, &hidden)))?;
    taken(given).map_err(|reason| Trouble::Refused(format!("{} gave a token that cannot be used: {reason}", answer.place)))
}

fn taken(given: Given) -> Result<Grant, &'static str> {
    if given.token_type.is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer")) {
        return Err("it is no bearer token");
    }
    let carried = |token: &str| !token.is_empty() && token.len() <= LONGEST && HeaderValue::from_str(token).is_ok();
    if !carried(&given.access_token) {
        return Err("a header cannot carry it");
    }
    // A number by the book; some write it as a text.
    let seconds = given.expires_in.and_then(|value| value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok())));
    let refresh = given.refresh_token.filter(|token| !token.is_empty() && token.len() <= LONGEST).map(Hidden);
    let tokens = Tokens { access: Hidden(given.access_token), refresh, ends: seconds.map(|seconds| now().saturating_add(seconds)) };
    let scopes = given.scope.filter(|scope| !scope.trim().is_empty());
    Ok(Grant { tokens, scopes: scopes.map(|scope| scope.split_whitespace().map(str::to_owned).collect()) })
}

/// Tokens for the client itself.
pub(super) async fn for_itself(web: &Web, endpoint: &str, client: &Client, resource: &str, scopes: &[String]) -> Result<Grant, Trouble> {
    let scopes = scopes.join(" ");
    let mut fields = vec![("grant_type", "client_credentials"), ("resource", resource)];
    if !scopes.is_empty() {
        fields.push(("scope", &scopes));
    }
    ask(web, endpoint, client, &fields, &[]).await
}

/// Newer tokens for older ones. What is not given anew stays.
pub(super) async fn refresh(kept: &Kept) -> Result<Kept, Trouble> {
    let address = Url::parse(&kept.address.0).map_err(|error| Trouble::Refused(error.to_string()))?;
    let web = Web::new(&address).map_err(Trouble::Refused)?;
    let Some(token) = kept.refresh().filter(|_| !kept.for_itself) else {
        let grant = for_itself(&web, &kept.token_endpoint, &kept.client, &kept.resource, &kept.scopes).await?;
        return Ok(Kept { tokens: Some(grant.tokens), ..kept.clone() });
    };
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token), ("resource", &kept.resource)];
    let mut grant = ask(&web, &kept.token_endpoint, &kept.client, &fields, &[token]).await?;
    if grant.tokens.refresh.is_none() {
        grant.tokens.refresh = Some(Hidden(token.to_owned()));
    }
    let scopes = grant.scopes.unwrap_or_else(|| kept.scopes.clone());
    Ok(Kept { tokens: Some(grant.tokens), scopes, ..kept.clone() })
}

/// Gives the tokens back where that is possible (RFC 7009).
pub(super) async fn revoke(kept: &Kept) -> Result<(), String> {
    let (Some(tokens), Some(endpoint)) = (&kept.tokens, &kept.revocation_endpoint) else { return Ok(()) };
    let address = Url::parse(&kept.address.0).map_err(|error| error.to_string())?;
    let web = Web::new(&address)?;
    let endpoint = web.allowed(endpoint, "the address that takes tokens back")?;
    let refresh = tokens.refresh.as_ref().map(|token| (token, "refresh_token"));
    for (token, kind) in refresh.into_iter().chain([(&tokens.access, "access_token")]) {
        let (body, basic) = kept.client.sign(&[("token", &token.0), ("token_type_hint", kind)]);
        let answer = web.post_form(&endpoint, body, basic).await?;
        if !answer.status.is_success() {
            return Err(refusal(&answer, &[&token.0]));
        }
    }
    Ok(())
}

/// A refusal in words: the issuer's own, where it has any.
pub(super) fn refusal(answer: &Answer, secrets: &[&str]) -> String {
    let said: Value = answer.json().unwrap_or_default();
    let text = |field: &str| said[field].as_str().map(|text| shown(text, secrets)).filter(|text| !text.is_empty());
    let words = match (text("error_description"), text("error")) {
        (Some(words), Some(error)) => format!(": {words} ({error})"),
        (Some(words), None) | (None, Some(words)) => format!(": {words}"),
        (None, None) => String::new(),
    };
    // Some refuse with a status of success.
    match (answer.status.is_success(), words.is_empty()) {
        (true, true) => format!("the answer of {} makes no sense", answer.place),
        (true, false) => format!("{} refused{words}", answer.place),
        (false, _) => format!("{} answered with HTTP {}{words}", answer.place, answer.status.as_u16()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(value: Value) -> Result<Grant, &'static str> {
        taken(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn tokens_are_taken_as_far_as_they_can_be_used() {
        let grant =
            given(json!({ "access_token": "a", "token_type": "bearer", "expires_in": "60", "scope": "x y", "refresh_token": "" })).unwrap();
        assert_eq!((grant.tokens.refresh, grant.scopes), (None, Some(vec!["x".to_owned(), "y".to_owned()])));
        assert!(grant.tokens.ends.is_some_and(|ends| ends > now() + 30));
        assert_eq!(given(json!({ "access_token": "a" })).unwrap().tokens.ends, None);
        for bad in [
            json!({ "access_token": "a", "token_type": "DPoP" }),
            json!({ "access_token": "" }),
            json!({ "access_token": "a\nb" }),
            json!({ "access_token": "a".repeat(LONGEST + 1) }),
        ] {
            assert!(given(bad).is_err());
        }
    }

    #[test]
    fn a_refusal_is_told_without_what_was_sent() {
        let answer = |status: u16, body: &str| Answer {
            status: http::StatusCode::from_u16(status).unwrap(),
            body: body.as_bytes().to_vec(),
            place: "h".to_owned(),
        };
        let words = refusal(&answer(400, r#"{"error":"invalid_grant","error_description":"code s3cret is over"}"#), &["s3cret"]);
        assert_eq!(words, "h answered with HTTP 400: code … is over (invalid_grant)");
        assert_eq!(refusal(&answer(200, "<html>"), &[]), "the answer of h makes no sense");
        assert_eq!(refusal(&answer(200, r#"{"error":"bad_verification_code"}"#), &[]), "h refused: bad_verification_code");
    }
}
