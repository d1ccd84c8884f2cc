//! One sign-in, from the address to tokens that are kept.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use super::super::config::OAuth;
use super::account::Account;
use super::challenge::Challenge;
use super::client::{Client, How};
use super::discovery::{Found, discover};
use super::kept::{Hidden, Kept};
use super::loopback::{Back, Loopback};
use super::web::Web;
use super::{grant, random, shown};

/// How long the person may take in the browser (fixed).
const PATIENCE: Duration = Duration::from_secs(300);
/// How long finding out where to sign in may take (fixed).
const DISCOVERY: Duration = Duration::from_secs(60);
/// What asks for a refresh token, where the issuer knows it.
const OFFLINE: &str = "offline_access";

/// What is to be signed in to.
pub(in crate::mcp) struct Errand {
    /// The server's address, filled in.
    pub(in crate::mcp) address: String,
    /// How, filled in.
    pub(in crate::mcp) oauth: OAuth,
    /// What the server said when it asked.
    pub(in crate::mcp) challenge: Option<String>,
}

/// Signs in; `open` is given the page for the person. Dropping it closes the listener that the browser comes back to.
pub(in crate::mcp) async fn run(account: &Arc<Account>, errand: Errand, open: impl FnOnce(&str) + Send) -> Result<(), String> {
    let address = Url::parse(&errand.address).map_err(|error| format!("\"url\" is not an address: {error}"))?;
    let web = Web::new(&address)?;
    let challenge = Challenge::read(errand.challenge.as_deref().unwrap_or_default());
    let found = tokio::time::timeout(DISCOVERY, discover(&web, &address, &challenge));
    let found = found.await.map_err(|_| format!("where to sign in could not be found out within {} s", DISCOVERY.as_secs()))??;
    let before = account.kept(&errand.address).await?;
    let scopes = scopes(account, &errand.oauth, &challenge, &found, before.as_deref())?;
    if errand.oauth.for_itself {
        return alone(account, &web, &found, &errand, before.as_deref(), &scopes).await;
    }
    found.check()?;
    let (client, loopback) = client(account, &web, &errand.oauth, &found, before.as_deref(), &scopes).await?;
    let trip = Trip { state: random(), verifier: random(), redirect: loopback.address(), client, scopes };
    let page = trip.page(&web, &found)?;
    open(page.as_str());
    let back = tokio::time::timeout(PATIENCE, loopback.back(&trip.state));
    let back = back.await.map_err(|_| format!("nobody came back from the browser within {} minutes", PATIENCE.as_secs() / 60))?;
    let outcome = trip.arrive(account, &web, &found, &errand, &back).await;
    back.show(outcome.as_ref().err().map(String::as_str)).await;
    outcome
}

/// The client signs in for itself.
async fn alone(
    account: &Arc<Account>,
    web: &Web,
    found: &Found,
    errand: &Errand,
    before: Option<&Kept>,
    scopes: &[String],
) -> Result<(), String> {
    let client = Client::known(&errand.oauth, found, before)?.ok_or_else(|| "\"oauth\" names no client".to_owned())?;
    let grant = grant::for_itself(web, &found.issuer.token_endpoint, &client, &found.resource, scopes).await;
    keep(account, found, errand, client, grant.map_err(grant::Trouble::into_words)?, scopes).await
}

async fn keep(
    account: &Arc<Account>,
    found: &Found,
    errand: &Errand,
    client: Client,
    grant: grant::Grant,
    scopes: &[String],
) -> Result<(), String> {
    let kept = Kept {
        address: Hidden(errand.address.clone()),
        issuer: found.issuer.issuer.clone(),
        resource: found.resource.clone(),
        token_endpoint: found.issuer.token_endpoint.clone(),
        revocation_endpoint: found.issuer.revocation_endpoint.clone(),
        client,
        tokens: Some(grant.tokens),
        scopes: grant.scopes.unwrap_or_else(|| scopes.to_vec()),
        for_itself: errand.oauth.for_itself,
    };
    account.keep(kept).await
}

/// What is asked for: what the server says now, else what it says in general, and what was configured; and what was granted
/// already, where it wants more than that.
fn scopes(account: &Account, oauth: &OAuth, challenge: &Challenge, found: &Found, before: Option<&Kept>) -> Result<Vec<String>, String> {
    let before = before.filter(|kept| kept.issuer == found.issuer.issuer && kept.tokens.is_some());
    let mut scopes: Vec<String> = Vec::new();
    if let (true, Some(before)) = (challenge.insufficient, before) {
        account.round(&challenge.scopes)?;
        scopes.extend(before.scopes.iter().cloned());
    }
    scopes.extend(if challenge.scopes.is_empty() { found.scopes.clone() } else { challenge.scopes.clone() });
    scopes.extend(oauth.scopes.iter().cloned());
    let supported = found.issuer.scopes_supported.as_ref().is_some_and(|scopes| scopes.iter().any(|scope| scope == OFFLINE));
    // Alone it would take the place of what is granted where nothing is asked for.
    if supported && !scopes.is_empty() && !oauth.for_itself {
        scopes.push(OFFLINE.to_owned());
    }
    let mut once: Vec<String> = Vec::new();
    for scope in scopes {
        if !scope.contains(char::is_whitespace) && !scope.is_empty() && !once.contains(&scope) {
            once.push(scope);
        }
    }
    Ok(once)
}

/// As whom, and where the browser comes back to.
async fn client(
    account: &Arc<Account>,
    web: &Web,
    oauth: &OAuth,
    found: &Found,
    before: Option<&Kept>,
    scopes: &[String],
) -> Result<(Client, Loopback), String> {
    if let Some(client) = Client::known(oauth, found, before)? {
        let registered = client.how == How::Registered;
        match Loopback::open(client.port).await {
            Ok(loopback) => {
                if let (true, Some(before)) = (registered, before) {
                    // An issuer that has forgotten it shows that to the person only; the next attempt then registers anew.
                    account.try_client(&before.address.0, &client.id).await?;
                }
                return Ok((client, loopback));
            }
            // Somebody else listens there now: another registration has another port.
            Err(_) if registered => {}
            Err(reason) => return Err(reason),
        }
    }
    let loopback = Loopback::open(oauth.callback_port).await?;
    let client = Client::register(web, found, &loopback.address(), loopback.port, scopes).await?;
    Ok((client, loopback))
}

/// The way through the browser and back.
struct Trip {
    state: String,
    verifier: String,
    redirect: String,
    client: Client,
    scopes: Vec<String>,
}

impl Trip {
    /// The page for the person.
    fn page(&self, web: &Web, found: &Found) -> Result<Url, String> {
        let mut page = web.allowed(&found.issuer.authorization_endpoint, "the page for signing in")?;
        let challenge = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()));
        let mut pairs = page.query_pairs_mut();
        let _ = pairs
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.id)
            .append_pair("redirect_uri", &self.redirect)
            .append_pair("state", &self.state)
            .append_pair("code_challenge", &challenge)
            .append_pair("code_challenge_method", "S256")
            .append_pair("resource", &found.resource);
        if !self.scopes.is_empty() {
            let _ = pairs.append_pair("scope", &self.scopes.join(" "));
        }
        if self.scopes.iter().any(|scope| scope == OFFLINE) {
            // OpenID Connect gives a refresh token only to those whom the person agreed to just now.
            let _ = pairs.append_pair("prompt", "consent");
        }
        drop(pairs);
        Ok(page)
    }

    /// Takes what the browser brought, and keeps the tokens for it.
    async fn arrive(&self, account: &Arc<Account>, web: &Web, found: &Found, errand: &Errand, back: &Back) -> Result<(), String> {
        // Before anything else in it is believed, also an error.
        came_from(found, back.issuer.as_deref())?;
        if let Some(error) = &back.error {
            return Err(refused(error, back.description.as_deref()));
        }
        let code = back.code.as_deref().ok_or_else(|| "the browser came back without an answer".to_owned())?;
        let fields = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.redirect),
            ("code_verifier", &self.verifier),
            ("resource", &found.resource),
        ];
        let grant = grant::ask(web, &found.issuer.token_endpoint, &self.client, &fields, &[code, &self.verifier]).await;
        let grant = grant.map_err(grant::Trouble::into_words)?;
        keep(account, found, errand, self.client.clone(), grant, &self.scopes).await
    }
}

/// Whether an answer came from the issuer that was asked (RFC 9207): another one's code must not get to this one.
fn came_from(found: &Found, issuer: Option<&str>) -> Result<(), String> {
    let expected = &found.issuer.issuer;
    match issuer {
        Some(issuer) if issuer == expected => Ok(()),
        Some(issuer) => {
            Err(format!("the answer came from {}, but {} was asked; nothing of it was used", shown(issuer, &[]), shown(expected, &[])))
        }
        None if found.issuer.authorization_response_iss_parameter_supported => {
            Err(format!("the answer does not say that it came from {}, as it should; nothing of it was used", shown(expected, &[])))
        }
        None => Ok(()),
    }
}

/// An issuer's refusal in words.
fn refused(error: &str, description: Option<&str>) -> String {
    let words = match error {
        "access_denied" => "it was not allowed",
        "invalid_scope" => "it does not give the rights that were asked for",
        "server_error" | "temporarily_unavailable" => "its authorization server is out of order for now",
        "unauthorized_client" | "invalid_client" => "its authorization server does not know this program",
        _ => "its authorization server refused",
    };
    match description.map(|text| shown(text, &[])).filter(|text| !text.is_empty()) {
        Some(said) => format!("{words}: {said} ({})", shown(error, &[])),
        None => format!("{words} ({})", shown(error, &[])),
    }
}
