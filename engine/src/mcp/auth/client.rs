//! As whom we ask for tokens: a client from the configuration, a metadata document that stands for one, or one that is
//! registered on the spot. What was registered with one issuer is never shown to another.

use base64::Engine as _;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::super::config::OAuth;
use super::discovery::Found;
use super::kept::{Hidden, Kept};
use super::web::Web;
use super::{form, now, shown};

/// The name that people see at the authorization server.
const NAME: &str = "Handrail";

/// A client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Client {
    pub(super) id: String,
    #[serde(default)]
    pub(super) secret: Option<Hidden>,
    pub(super) method: Method,
    pub(super) how: How,
    /// The port that it was registered with: the browser must come back there.
    #[serde(default)]
    pub(super) port: Option<u16>,
    /// When its secret ends, in seconds since 1970.
    #[serde(default)]
    ends: Option<u64>,
    /// Whether somebody set out to sign in as this client and was not back yet.
    #[serde(default)]
    pub(super) tried: bool,
}

/// How it shows who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Method {
    None,
    Basic,
    Post,
}

/// Where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    Configured,
    Document,
    Registered,
}

#[derive(Deserialize)]
struct Registration {
    client_id: String,
    client_secret: Option<String>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

impl Client {
    /// The client that needs no registration now: from the configuration, a document, or an earlier registration with this
    /// issuer.
    pub(super) fn known(oauth: &OAuth, found: &Found, before: Option<&Kept>) -> Result<Option<Self>, String> {
        if let Some(id) = &oauth.client_id {
            moved(id, found, before)?;
            let secret = oauth.client_secret.clone().filter(|secret| !secret.is_empty()).map(Hidden);
            let method = if secret.is_some() { method(found, None) } else { Method::None };
            return Ok(Some(Self {
                id: id.clone(),
                secret,
                method,
                how: How::Configured,
                port: oauth.callback_port,
                ends: None,
                tried: false,
            }));
        }
        if let Some(document) = &oauth.client_metadata_url
            && found.issuer.client_id_metadata_document_supported
        {
            let (id, port) = (document.clone(), oauth.callback_port);
            return Ok(Some(Self { id, secret: None, method: Method::None, how: How::Document, port, ends: None, tried: false }));
        }
        let registered = before.filter(|kept| kept.issuer == found.issuer.issuer).map(|kept| &kept.client);
        let usable =
            registered.filter(|client| client.how == How::Registered && !client.tried && client.ends.is_none_or(|ends| ends > now()));
        Ok(usable.cloned())
    }

    /// Registers a client whose browser comes back to `redirect`.
    pub(super) async fn register(web: &Web, found: &Found, redirect: &str, port: u16, scopes: &[String]) -> Result<Self, String> {
        let issuer = shown(&found.issuer.issuer, &[]);
        let Some(endpoint) = &found.issuer.registration_endpoint else {
            return Err(format!(
                "{issuer} registers no clients by itself; have one registered there and put it into \"oauth\" as \"clientId\""
            ));
        };
        let endpoint = web.allowed(endpoint, "the registration address")?;
        let mut wish = json!({
            "client_name": NAME,
            "application_type": "native",
            "redirect_uris": [redirect],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": wanted(found),
        });
        if !scopes.is_empty() {
            wish["scope"] = scopes.join(" ").into();
        }
        let answer = web.post_json(&endpoint, &wish).await?;
        let registration: Option<Registration> = if answer.status.is_success() { answer.json() } else { None };
        let Some(registration) = registration.filter(|registration| !registration.client_id.is_empty()) else {
            return Err(if found.guessed {
                "it says nowhere how to sign in; where it takes a key, put that into \"headers\"".to_owned()
            } else {
                let said = super::grant::refusal(&answer, &[]);
                format!("{issuer} did not register this program: {said}")
            });
        };
        // Some send an empty secret to clients that have none.
        let secret = registration.client_secret.filter(|secret| !secret.is_empty()).map(Hidden);
        let method = if secret.is_some() { method(found, registration.token_endpoint_auth_method.as_deref()) } else { Method::None };
        let ends = registration.client_secret_expires_at.filter(|ends| *ends > 0 && secret.is_some());
        Ok(Self { id: registration.client_id, secret, method, how: How::Registered, port: Some(port), ends, tried: false })
    }

    /// The fields of a form with what names the client, and the header that does where it is done so.
    pub(super) fn sign(&self, fields: &[(&str, &str)]) -> (String, Option<HeaderValue>) {
        let mut fields = fields.to_vec();
        let secret = self.secret.as_ref().map(|secret| secret.0.as_str());
        let basic = match (self.method, secret) {
            (Method::Basic, Some(secret)) => {
                let pair = format!("{}:{}", encoded(&self.id), encoded(secret));
                HeaderValue::from_str(&format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(pair))).ok()
            }
            (Method::Post, Some(secret)) => {
                fields.extend([("client_id", self.id.as_str()), ("client_secret", secret)]);
                None
            }
            (Method::None | Method::Basic | Method::Post, _) => {
                fields.push(("client_id", &self.id));
                None
            }
        };
        (form(&fields), basic)
    }
}

/// A client from the configuration, and its secret, belong to the issuer that it was used with first.
fn moved(id: &str, found: &Found, before: Option<&Kept>) -> Result<(), String> {
    let Some(before) = before.filter(|kept| kept.client.how == How::Configured && kept.client.id == *id) else { return Ok(()) };
    if before.issuer == found.issuer.issuer {
        return Ok(());
    }
    Err(format!(
        "it now sends people to {} to sign in, no longer to {}, where the client in \"oauth\" was used before; if that is right, sign out first (handrail-cli servers sign-out)",
        shown(&found.issuer.issuer, &[]),
        shown(&before.issuer, &[])
    ))
}

fn supported<'a>(found: &'a Found, method: &str) -> Option<&'a str> {
    let methods = found.issuer.token_endpoint_auth_methods_supported.as_deref().unwrap_or_default();
    methods.iter().map(String::as_str).find(|supported| *supported == method)
}

/// How a new client is to show who it is. A program on a desktop keeps no secret from its user, so without one where that is
/// possible.
fn wanted(found: &Found) -> &str {
    let supported = ["none", "client_secret_basic", "client_secret_post"].iter().find_map(|method| supported(found, method));
    supported.unwrap_or("none")
}

/// How a client with a secret shows who it is.
fn method(found: &Found, given: Option<&str>) -> Method {
    match given {
        Some("client_secret_post") => Method::Post,
        Some("client_secret_basic") => Method::Basic,
        Some("none") => Method::None,
        _ if supported(found, "client_secret_basic").is_none() && supported(found, "client_secret_post").is_some() => Method::Post,
        _ => Method::Basic,
    }
}

fn encoded(text: &str) -> String {
    form(&[("", text)]).trim_start_matches('=').to_owned()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn client(secret: &str) -> Client {
        let secret = Some(Hidden(secret.to_owned()));
        Client { id: "me".to_owned(), secret, method: Method::Basic, how: How::Registered, port: Some(1), ends: None, tried: false }
    }

    fn found(issuer: &str, methods: &[&str]) -> Found {
        let issuer = json!({
            "issuer": issuer, "authorization_endpoint": "a", "token_endpoint": "t", "token_endpoint_auth_methods_supported": methods,
            "client_id_metadata_document_supported": true,
        });
        Found { resource: String::new(), scopes: Vec::new(), issuer: serde_json::from_value(issuer).unwrap(), guessed: false }
    }

    fn kept(issuer: &str, client: Client) -> Kept {
        Kept {
            address: Hidden(String::new()),
            issuer: issuer.to_owned(),
            resource: String::new(),
            token_endpoint: String::new(),
            revocation_endpoint: None,
            client,
            tokens: None,
            scopes: Vec::new(),
            for_itself: false,
        }
    }

    #[test]
    fn a_registration_is_used_again_with_its_own_issuer_only_and_not_when_it_is_over() {
        let (here, there) = (found("https://a.test", &[]), found("https://b.test", &[]));
        let before = kept("https://a.test", client("s"));
        assert_eq!(Client::known(&OAuth::default(), &here, Some(&before)).unwrap(), Some(client("s")));
        assert_eq!(Client::known(&OAuth::default(), &there, Some(&before)).unwrap(), None);
        let over = kept("https://a.test", Client { ends: Some(1), ..client("s") });
        assert_eq!(Client::known(&OAuth::default(), &here, Some(&over)).unwrap(), None);
        let tried = kept("https://a.test", Client { tried: true, ..client("s") });
        assert_eq!(Client::known(&OAuth::default(), &here, Some(&tried)).unwrap(), None, "it may be what went wrong");
    }

    #[test]
    fn a_configured_client_comes_first_then_a_document_and_its_secret_stays_with_its_issuer() {
        let document = OAuth { client_metadata_url: Some("https://h.test/c.json".to_owned()), ..OAuth::default() };
        let known = Client::known(&document, &found("https://a.test", &[]), None).unwrap().unwrap();
        assert_eq!((known.id.as_str(), known.how), ("https://h.test/c.json", How::Document));
        let own = OAuth { client_id: Some("me".to_owned()), client_secret: Some("s".to_owned()), ..document };
        let known = Client::known(&own, &found("https://a.test", &["client_secret_post"]), None).unwrap().unwrap();
        assert_eq!((known.how, known.method), (How::Configured, Method::Post));
        let before = kept("https://a.test", known);
        assert!(Client::known(&own, &found("https://a.test", &[]), Some(&before)).is_ok());
        let refused = Client::known(&own, &found("https://b.test", &[]), Some(&before)).unwrap_err();
        assert!(refused.contains("https://b.test") && refused.contains("sign out"), "{refused}");
    }

    #[test]
    fn each_method_puts_the_secret_where_it_belongs() {
        let signed = |method| Client { method, ..client("s e:c") }.sign(&[("grant_type", "x")]);
        let (body, header) = signed(Method::Basic);
        assert_eq!(body, "grant_type=x");
        let expected = base64::engine::general_purpose::STANDARD.encode("me:s+e%3Ac");
        assert_eq!(header.unwrap().to_str().unwrap(), format!("Basic {expected}"));
        assert_eq!(signed(Method::Post), ("grant_type=x&client_id=me&client_secret=s+e%3Ac".to_owned(), None));
        assert_eq!(signed(Method::None), ("grant_type=x&client_id=me".to_owned(), None));
        for (methods, asked) in
            [(&[][..], "none"), (&["client_secret_post"], "client_secret_post"), (&["none", "client_secret_basic"], "none")]
        {
            assert_eq!(wanted(&found("i", methods)), asked);
        }
    }
}
