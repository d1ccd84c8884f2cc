//! Who issues tokens for an address: the address' own metadata (RFC 9728), and then the authorization server's (RFC 8414,
//! or OpenID Connect Discovery). Servers of the revision 2025-03-26 are their own authorization server.

use reqwest::Url;
use serde::Deserialize;

use super::challenge::Challenge;
use super::web::{Answer, Web, place};

/// Authorization servers of one address that are looked at (fixed).
const ISSUERS: usize = 4;
/// Scopes of one list that are read (fixed).
const SCOPES: usize = 200;

const PROTECTED: &str = "/.well-known/oauth-protected-resource";
const OAUTH: &str = "/.well-known/oauth-authorization-server";
const OPENID: &str = "/.well-known/openid-configuration";

/// What was found out.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// What tokens are asked for: the address as its server names it.
    pub(super) resource: String,
    /// What may be asked for, in the words of the server.
    pub(super) scopes: Vec<String>,
    pub(super) issuer: Issuer,
    /// Whether there was no metadata, and the endpoints are those of the revision 2025-03-26.
    pub(super) guessed: bool,
}

/// An authorization server's metadata.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Issuer {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) registration_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) scopes_supported: Option<Vec<String>>,
    response_types_supported: Option<Vec<String>>,
    code_challenge_methods_supported: Option<Vec<String>>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) client_id_metadata_document_supported: bool,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

#[derive(Debug, Deserialize)]
struct Protected {
    resource: String,
    #[serde(default)]
    authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Option<Vec<String>>,
}

/// Finds out who issues tokens for an address.
pub(super) async fn discover(web: &Web, address: &Url, challenge: &Challenge) -> Result<Found, String> {
    let mut look = Look { web, trouble: None };
    let protected = look.protected(address, challenge).await?;
    let (resource, scopes, named) = match protected {
        Some(protected) => (protected.resource, protected.scopes_supported.unwrap_or_default(), protected.authorization_servers),
        None => (plain(address), Vec::new(), Vec::new()),
    };
    let scopes = scopes.into_iter().take(SCOPES).collect();
    if named.is_empty() {
        let (issuer, guessed) = look.own(address).await?;
        return Ok(Found { resource, scopes, issuer, guessed });
    }
    for name in named.iter().take(ISSUERS) {
        let base = match web.allowed(name, "the authorization server") {
            Ok(base) => base,
            Err(reason) => {
                let _ = look.trouble.get_or_insert(reason);
                continue;
            }
        };
        if let Some(issuer) = look.issuer(&base, name).await? {
            return Ok(Found { resource, scopes, issuer, guessed: false });
        }
    }
    let names = named.iter().take(ISSUERS).map(|name| super::shown(name, &[])).collect::<Vec<_>>().join(", ");
    let why = look.trouble.map(|trouble| format!(" ({trouble})")).unwrap_or_default();
    Err(format!("its authorization server {names} says nowhere how to sign in{why}"))
}

struct Look<'a> {
    web: &'a Web,
    /// The first thing that went wrong on the way and may pass.
    trouble: Option<String>,
}

impl Look<'_> {
    /// The address' own metadata: where the challenge says, else at the usual places.
    async fn protected(&mut self, address: &Url, challenge: &Challenge) -> Result<Option<Protected>, String> {
        let named = challenge.resource_metadata.as_deref().and_then(|text| Url::parse(text).or_else(|_| address.join(text)).ok());
        let named = named.map(|url| self.web.allowed(url.as_str(), "the place of its metadata"));
        let mut places: Vec<Url> = Vec::new();
        match named {
            Some(Ok(place)) => places.push(place),
            // Servers behind a proxy often name themselves wrongly; the usual places are left.
            Some(Err(reason)) => self.trouble = Some(reason),
            None => {}
        }
        let path = address.path().trim_end_matches('/');
        for place in [at(address, &format!("{PROTECTED}{path}")), at(address, PROTECTED)] {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        for place in places {
            let Some(protected) = self.document::<Protected>(&place).await else { continue };
            if !covers(&protected.resource, address) {
                return Err(format!(
                    "its metadata speaks for another address ({}), so its tokens could be meant for somebody else",
                    super::shown(&protected.resource, &[])
                ));
            }
            return Ok(Some(protected));
        }
        Ok(None)
    }

    /// The metadata of an issuer, from the places where it may be.
    async fn issuer(&mut self, base: &Url, name: &str) -> Result<Option<Issuer>, String> {
        let path = base.path().trim_end_matches('/');
        let places = if path.is_empty() {
            vec![at(base, OAUTH), at(base, OPENID)]
        } else {
            vec![at(base, &format!("{OAUTH}{path}")), at(base, &format!("{OPENID}{path}")), at(base, &format!("{path}{OPENID}"))]
        };
        for place in places {
            let Some(issuer) = self.document::<Issuer>(&place).await else { continue };
            if rooted(&issuer.issuer) != rooted(name) {
                return Err(format!(
                    "the metadata of {} belongs to another issuer ({}); nobody is to sign in there",
                    super::shown(name, &[]),
                    super::shown(&issuer.issuer, &[])
                ));
            }
            return Ok(Some(issuer));
        }
        Ok(None)
    }

    /// The address as its own authorization server, as in the revision 2025-03-26.
    async fn own(&mut self, address: &Url) -> Result<(Issuer, bool), String> {
        let origin = address.origin().ascii_serialization();
        if let Some(issuer) = self.issuer(&at(address, "/"), &origin).await? {
            return Ok((issuer, false));
        }
        if let Some(trouble) = self.trouble.take() {
            return Err(format!("it could not be found out where to sign in: {trouble}"));
        }
        let issuer = Issuer {
            authorization_endpoint: format!("{origin}/authorize"),
            token_endpoint: format!("{origin}/token"),
            registration_endpoint: Some(format!("{origin}/register")),
            issuer: origin,
            revocation_endpoint: None,
            scopes_supported: None,
            response_types_supported: None,
            code_challenge_methods_supported: None,
            token_endpoint_auth_methods_supported: None,
            client_id_metadata_document_supported: false,
            authorization_response_iss_parameter_supported: false,
        };
        Ok((issuer, true))
    }

    /// A document, where there is one of that kind.
    async fn document<T: serde::de::DeserializeOwned>(&mut self, url: &Url) -> Option<T> {
        match self.web.get(url).await {
            Ok(answer) if answer.status.is_success() => answer.json(),
            Ok(Answer { status, .. }) if status.is_server_error() || status.as_u16() == 429 => {
                let _ = self.trouble.get_or_insert_with(|| format!("{} answered with HTTP {}", place(url), status.as_u16()));
                None
            }
            Ok(_) => None,
            Err(reason) => {
                let _ = self.trouble.get_or_insert(reason);
                None
            }
        }
    }
}

impl Found {
    /// Whether it does what is needed. PKCE is what keeps a stolen code from being of use.
    pub(super) fn check(&self) -> Result<(), String> {
        let issuer = &self.issuer;
        let lists = |list: &Option<Vec<String>>, wanted: &str| list.as_ref().is_some_and(|list| list.iter().any(|item| item == wanted));
        if issuer.response_types_supported.is_some() && !lists(&issuer.response_types_supported, "code") {
            return Err(format!("{} does not give authorization codes, the only safe way", super::shown(&issuer.issuer, &[])));
        }
        if !self.guessed && !lists(&issuer.code_challenge_methods_supported, "S256") {
            return Err(format!(
                "{} does not say that it supports PKCE with S256; without it, others on this machine could use the sign-in",
                super::shown(&issuer.issuer, &[])
            ));
        }
        Ok(())
    }
}

/// Another path at the same place.
fn at(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_query(None);
    url.set_fragment(None);
    url.set_path(path);
    url
}

/// The address as it is named in requests: without what may be a key.
fn plain(address: &Url) -> String {
    let url = at(address, address.path());
    if url.path() == "/" { url.as_str().trim_end_matches('/').to_owned() } else { url.to_string() }
}

/// An issuer's name; a slash behind nothing but a host makes no difference.
fn rooted(name: &str) -> &str {
    name.strip_suffix('/').filter(|rest| Url::parse(rest).is_ok_and(|url| url.path() == "/")).unwrap_or(name)
}

/// Whether a resource is the address or what it is a part of.
fn covers(resource: &str, address: &Url) -> bool {
    let Ok(resource) = Url::parse(resource) else { return false };
    if resource.fragment().is_some() || resource.origin() != address.origin() {
        return false;
    }
    let (outer, inner) = (resource.path().trim_end_matches('/'), address.path());
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_covers_its_own_paths_only() {
        let address = Url::parse("https://h.test/mcp/a?key=1").unwrap();
        for good in ["https://h.test/mcp/a", "https://h.test/mcp/", "https://h.test/mcp", "https://h.test", "https://H.test:443/"] {
            assert!(covers(good, &address), "{good}");
        }
        for bad in [
            "https://h.test/mc",
            "https://h.test/mcp/a/b",
            "http://h.test/mcp",
            "https://h.test:8443/",
            "https://x.test/",
            "mcp",
            "https://h.test/#x",
        ] {
            assert!(!covers(bad, &address), "{bad}");
        }
        assert_eq!(
            (plain(&address).as_str(), plain(&Url::parse("https://h.test/").unwrap()).as_str()),
            ("https://h.test/mcp/a", "https://h.test")
        );
    }

    #[test]
    fn issuers_are_compared_letter_by_letter_but_for_a_bare_slash() {
        assert_eq!(rooted("https://a.test/"), rooted("https://a.test"));
        for (one, other) in
            [("https://a.test/t/", "https://a.test/t"), ("https://A.test", "https://a.test"), ("https://a.test:443", "https://a.test")]
        {
            assert_ne!(rooted(one), rooted(other));
        }
    }

    fn found(issuer: serde_json::Value) -> Found {
        let mut whole = serde_json::json!({ "issuer": "i", "authorization_endpoint": "a", "token_endpoint": "t" });
        whole.as_object_mut().unwrap().extend(issuer.as_object().unwrap().clone());
        Found { resource: String::new(), scopes: Vec::new(), issuer: serde_json::from_value(whole).unwrap(), guessed: false }
    }

    #[test]
    fn codes_and_pkce_are_needed() {
        assert!(found(serde_json::json!({ "code_challenge_methods_supported": ["plain", "S256"] })).check().is_ok());
        for lacking in [
            serde_json::json!({}),
            serde_json::json!({ "code_challenge_methods_supported": ["plain"] }),
            serde_json::json!({ "code_challenge_methods_supported": ["S256"], "response_types_supported": ["token"] }),
        ] {
            assert!(found(lacking.clone()).check().is_err(), "{lacking}");
        }
        assert!(Found { guessed: true, ..found(serde_json::json!({})) }.check().is_ok());
    }
}
