//! An MCP server and its authorization servers, on this machine, with everything that can go wrong with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;

type Fields = BTreeMap<String, String>;

/// How they behave.
#[derive(Clone, Debug)]
pub struct Manners {
    /// Whether a 401 says where to look.
    pub challenge: bool,
    /// Whether the server has metadata of its own.
    pub protected: bool,
    /// Whether the authorization servers have metadata.
    pub metadata: bool,
    /// What the server's metadata says to be about, where that is another address.
    pub resource: Option<String>,
    pub pkce: bool,
    pub says_iss: bool,
    pub iss: Option<&'static str>,
    pub denies: bool,
    /// Seconds that the first token of a sign-in lives, and every later one.
    pub lives: (u64, u64),
    pub refreshes: bool,
    /// Answers every request for tokens with this status.
    pub broken: Option<u16>,
    pub methods: &'static [&'static str],
    /// Which authorization server counts.
    pub issuer: usize,
    /// What a call of the tool needs.
    pub needs: Option<&'static str>,
    pub grants: bool,
    /// Whether the token endpoint repeats in its refusal what it was sent.
    pub blabs: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self {
            challenge: true,
            protected: true,
            metadata: true,
            resource: None,
            pkce: true,
            says_iss: true,
            iss: None,
            denies: false,
            lives: (3600, 3600),
            refreshes: true,
            broken: None,
            methods: &["none"],
            issuer: 0,
            needs: None,
            grants: true,
            blabs: false,
        }
    }
}

#[derive(Default)]
struct Facts {
    manners: Manners,
    count: u32,
    /// Access tokens that are good: their issuer and scopes.
    access: BTreeMap<String, (usize, String)>,
    refresh: BTreeMap<String, (usize, String)>,
    codes: BTreeMap<String, Fields>,
    /// Every request: "METHOD path", and its fields.
    seen: Vec<(usize, String, Fields)>,
    /// What came with calls in `Authorization`.
    keys: BTreeSet<String>,
}

/// All of them.
#[derive(Clone)]
pub struct World {
    facts: Arc<Mutex<Facts>>,
    /// The server's address, then those of its authorization servers.
    origins: Arc<Vec<String>>,
}

impl World {
    pub async fn new(manners: Manners) -> Self {
        let facts = Arc::new(Mutex::new(Facts { manners, ..Facts::default() }));
        let mut listeners = Vec::new();
        for _ in 0..3 {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let origins = listeners.iter().map(|listener| format!("http://{}", listener.local_addr().unwrap())).collect();
        let world = Self { facts, origins: Arc::new(origins) };
        for (place, listener) in listeners.into_iter().enumerate() {
            let router = axum::Router::new().fallback(answer).with_state((world.clone(), place));
            let _serving = tokio::spawn(async move { axum::serve(listener, router).await });
        }
        world
    }

    pub fn url(&self) -> String {
        format!("{}/mcp", self.origins[0])
    }

    pub fn issuer(&self, number: usize) -> String {
        self.origins[number + 1].clone()
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap()
    }

    pub fn change(&self, change: impl FnOnce(&mut Manners)) {
        change(&mut self.facts().manners);
    }

    /// No access token is good any more.
    pub fn take_back(&self) {
        self.facts().access.clear();
    }

    pub fn take_back_refresh(&self) {
        self.facts().refresh.clear();
    }

    /// The fields of the requests to this path of an authorization server (0 and 1), or of the server itself (none).
    pub fn seen(&self, issuer: Option<usize>, path: &str) -> Vec<Fields> {
        let place = issuer.map_or(0, |issuer| issuer + 1);
        let facts = self.facts();
        facts.seen.iter().filter(|(at, asked, _)| *at == place && asked.ends_with(path)).map(|(_, _, fields)| fields.clone()).collect()
    }

    /// The requests for tokens of one kind.
    pub fn asked(&self, issuer: usize, kind: &str) -> Vec<Fields> {
        let mut asked = self.seen(Some(issuer), "/token");
        asked.retain(|fields| fields["grant_type"] == kind);
        asked
    }

    /// Whether a text was in any request to an authorization server.
    pub fn heard(&self, issuer: usize, text: &str) -> bool {
        self.facts().seen.iter().any(|(at, _, fields)| *at == issuer + 1 && fields.values().any(|value| value.contains(text)))
    }

    pub fn keys(&self) -> BTreeSet<String> {
        self.facts().keys.clone()
    }
}

impl Facts {
    fn fresh(&mut self, what: &str) -> String {
        self.count += 1;
        format!("{what}-{}-s3cret", self.count)
    }
}

async fn answer(
    State((world, place)): State<(World, usize)>,
    method: Method,
    uri: Uri,
    Query(query): Query<Fields>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let mut fields = query;
    let text = String::from_utf8_lossy(&body).into_owned();
    let json: Value = serde_json::from_str(&text).unwrap_or_default();
    if json.is_object() {
        fields.extend(
            json.as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().map_or_else(|| value.to_string(), str::to_owned))),
        );
    } else if !text.is_empty() {
        let form = reqwest::Url::parse(&format!("http://x/?{text}")).unwrap();
        fields.extend(form.query_pairs().into_owned());
    }
    if let Some(authorization) = headers.get("authorization") {
        let _ = fields.insert("authorization".to_owned(), authorization.to_str().unwrap().to_owned());
    }
    let mut facts = world.facts();
    facts.seen.push((place, format!("{method} {}", uri.path()), fields.clone()));
    let manners = facts.manners.clone();
    match (place, uri.path()) {
        (0, "/mcp") if method == Method::POST => mcp(&world, &mut facts, &fields, &json),
        (0, "/mcp") => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        (0, "/.well-known/oauth-protected-resource/mcp") if manners.protected => {
            let resource = manners.resource.unwrap_or_else(|| world.url());
            document(
                &json!({ "resource": resource, "authorization_servers": [world.issuer(manners.issuer)], "scopes_supported": ["files:read"] }),
            )
        }
        (0, "/.well-known/oauth-authorization-server") if manners.protected => StatusCode::NOT_FOUND.into_response(),
        (_, "/.well-known/oauth-authorization-server") if manners.metadata => document(&metadata(&world, place, &manners)),
        (_, "/register") => {
            facts.count += 1;
            document(&json!({ "client_id": format!("client-of-{place}-{}", facts.count) }))
        }
        (_, "/authorize") => authorize(&mut facts, &world.origins[place], fields),
        (_, "/token") => token(&mut facts, place, &fields),
        (_, "/revoke") => {
            let _ = facts.refresh.remove(&fields["token"]);
            let _ = facts.access.remove(&fields["token"]);
            StatusCode::OK.into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn document(value: &Value) -> Response {
    axum::Json(value).into_response()
}

fn metadata(world: &World, place: usize, manners: &Manners) -> Value {
    let origin = &world.origins[place];
    let mut metadata = json!({
        "issuer": origin,
        "authorization_endpoint": format!("{origin}/authorize"),
        "token_endpoint": format!("{origin}/token"),
        "registration_endpoint": format!("{origin}/register"),
        "revocation_endpoint": format!("{origin}/revoke"),
        "response_types_supported": ["code"],
        "scopes_supported": ["files:read", "files:write", "offline_access"],
        "token_endpoint_auth_methods_supported": manners.methods,
        "authorization_response_iss_parameter_supported": manners.says_iss,
    });
    if manners.pkce {
        metadata["code_challenge_methods_supported"] = json!(["S256"]);
    }
    metadata
}

/// The page that somebody agrees to at once.
fn authorize(facts: &mut Facts, origin: &str, fields: Fields) -> Response {
    let mut back = reqwest::Url::parse(&fields["redirect_uri"]).unwrap();
    let _ = back.query_pairs_mut().append_pair("state", &fields["state"]);
    let iss = facts.manners.iss.unwrap_or(if facts.manners.says_iss { origin } else { "" });
    if !iss.is_empty() {
        let _ = back.query_pairs_mut().append_pair("iss", iss);
    }
    if facts.manners.denies {
        let _ = back.query_pairs_mut().append_pair("error", "access_denied").append_pair("error_description", "<b>not today</b>");
    } else {
        let code = facts.fresh("code");
        let _ = back.query_pairs_mut().append_pair("code", &code);
        let _ = facts.codes.insert(code, fields);
    }
    (StatusCode::FOUND, [("location", back.to_string())]).into_response()
}

fn refusal(status: u16, error: &str, words: &str) -> Response {
    let body = json!({ "error": error, "error_description": words });
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

fn token(facts: &mut Facts, place: usize, fields: &Fields) -> Response {
    use base64::Engine as _;
    use sha2::Digest as _;
    let manners = facts.manners.clone();
    if let Some(status) = manners.broken {
        let words = if manners.blabs { format!("{fields:?}") } else { "out of order".to_owned() };
        return refusal(status, "invalid_grant", &words);
    }
    let (scope, lives) = match fields["grant_type"].as_str() {
        "client_credentials" => (fields.get("scope").cloned().unwrap_or_default(), manners.lives.0),
        "refresh_token" => match facts.refresh.remove(&fields["refresh_token"]) {
            Some((issuer, scope)) if issuer == place && manners.refreshes => (scope, manners.lives.1),
            _ => return refusal(400, "invalid_grant", "that refresh token is over"),
        },
        _ => {
            let Some(asked) = facts.codes.remove(&fields["code"]) else { return refusal(400, "invalid_grant", "no such code") };
            let digest = sha2::Sha256::digest(fields["code_verifier"].as_bytes());
            let challenge = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest);
            let same = |field: &str| asked[field] == fields[field];
            if challenge != asked["code_challenge"]
                || asked["code_challenge_method"] != "S256"
                || !same("redirect_uri")
                || !same("resource")
            {
                return refusal(400, "invalid_grant", "not the one who asked");
            }
            (asked.get("scope").cloned().unwrap_or_default(), manners.lives.0)
        }
    };
    let (access, refresh) = (facts.fresh("access"), facts.fresh("refresh"));
    let granted = if manners.grants { scope } else { "files:read".to_owned() };
    let _ = facts.access.insert(access.clone(), (place, granted.clone()));
    let mut given = json!({ "access_token": access, "token_type": "Bearer", "expires_in": lives, "scope": granted });
    if fields["grant_type"] != "client_credentials" {
        given["refresh_token"] = refresh.clone().into();
        let _ = facts.refresh.insert(refresh, (place, granted));
    }
    document(&given)
}

fn mcp(world: &World, facts: &mut Facts, fields: &Fields, message: &Value) -> Response {
    let manners = facts.manners.clone();
    let key = fields.get("authorization").cloned().unwrap_or_default();
    let _ = facts.keys.insert(key.clone());
    let known = key
        .strip_prefix("Bearer ")
        .and_then(|token| facts.access.get(token))
        .filter(|(issuer, _)| *issuer == manners.issuer + 1 || *issuer == 0);
    let refused = |status: StatusCode, said: String| {
        let mut response = (status, "no").into_response();
        if manners.challenge {
            let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", world.origins[0]);
            let said = format!("Bearer realm=\"x\", {said}resource_metadata=\"{metadata}\"");
            let _ = response.headers_mut().insert("www-authenticate", said.parse().unwrap());
        }
        response
    };
    let Some((_, scopes)) = known else { return refused(StatusCode::UNAUTHORIZED, String::new()) };
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => {
            json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} }, "serverInfo": { "name": "world", "version": "1" } })
        }
        "tools/list" => json!({ "tools": [{ "name": "read", "inputSchema": { "type": "object" } }] }),
        "tools/call" => {
            if let Some(needed) = manners.needs.filter(|needed| !scopes.split(' ').any(|scope| scope == *needed)) {
                return refused(StatusCode::FORBIDDEN, format!("error=\"insufficient_scope\", scope=\"{needed}\", "));
            }
            json!({ "content": [{ "type": "text", "text": "done" }] })
        }
        "ping" => json!({}),
        _ => return StatusCode::ACCEPTED.into_response(),
    };
    document(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
}
