//! How the server is reached: standard input and output, Streamable HTTP, and the old HTTP+SSE.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::serve::ListenerExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::Failure;
use crate::script::Rule;
use crate::server::{Server, Session, is_modern, lock};

pub async fn stdio(server: Arc<Server>) -> Result<(), Failure> {
    let (out, mut messages) = unbounded_channel::<String>();
    {
        let mut stdout = std::io::stdout().lock();
        for line in &server.script.stdout_noise {
            writeln!(stdout, "{line}")?;
        }
        stdout.flush()?;
    }
    let writing = server.clone();
    // A thread of its own: a client that does not read must not hold up the reading side.
    let _writer = std::thread::spawn(move || {
        while let Some(message) = messages.blocking_recv() {
            let mut stdout = std::io::stdout().lock();
            let mut line = writing.script.stdout_noise_each.join("\n");
            if !line.is_empty() {
                line.push('\n');
            }
            line.push_str(&message);
            line.push('\n');
            if stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    });
    let session = Session::new(out.clone());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message = serde_json::from_str(&line).unwrap_or(Value::String(line));
        server.log.write(json!({ "received": message }));
        let rule = rule(&server, &message, &HeaderMap::new());
        let _answering = tokio::spawn(server.clone().take(session.clone(), message, rule, out.clone()));
    }
    if server.script.ignores_eof {
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// The rule for a message, if one is due; only requests have rules.
fn rule(server: &Server, message: &Value, headers: &HeaderMap) -> Option<Rule> {
    let method = message["method"].as_str().filter(|_| !message["id"].is_null())?;
    server.rule(method, |name| header(headers, name))
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(ToOwned::to_owned)
}

/// What the handlers share.
struct Desk {
    server: Arc<Server>,
    sessions: Mutex<HashMap<String, Client>>,
}

#[derive(Clone)]
struct Client {
    session: Arc<Session>,
    /// Held by the stream that carries what belongs to no request.
    messages: Arc<tokio::sync::Mutex<UnboundedReceiver<String>>>,
}

impl Desk {
    fn new(server: Arc<Server>) -> Arc<Self> {
        Arc::new(Self { server, sessions: Mutex::default() })
    }

    fn open(&self) -> (String, Client) {
        let (out, messages) = unbounded_channel();
        let client = Client { session: Session::new(out), messages: Arc::new(tokio::sync::Mutex::new(messages)) };
        let mut sessions = lock(&self.sessions);
        let id = format!("session-{}-{}", std::process::id(), sessions.len());
        let _ = sessions.insert(id.clone(), client.clone());
        (id, client)
    }

    fn client(&self, id: &str) -> Option<Client> {
        lock(&self.sessions).get(id).cloned()
    }
}

async fn serve(server: &Server, port: u16, path: &str, grandchild: Option<u32>, router: axum::Router) -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let port = listener.local_addr()?.port();
    server.log.write(json!({ "started": std::process::id(), "port": port, "grandchild": grandchild }));
    eprintln!("listening on http://127.0.0.1:{port}{path}");
    let listener = listener.tap_io(|stream| {
        let _ = stream.set_nodelay(true);
    });
    axum::serve(listener, router).await?;
    Ok(())
}

pub async fn http(server: Arc<Server>, port: u16, grandchild: Option<u32>) -> Result<(), Failure> {
    let router = axum::Router::new().fallback(streamable).with_state(Desk::new(server.clone()));
    serve(&server, port, "/mcp", grandchild, router).await
}

pub async fn sse(server: Arc<Server>, port: u16, grandchild: Option<u32>) -> Result<(), Failure> {
    let router = axum::Router::new().fallback(old_sse).with_state(Desk::new(server.clone()));
    serve(&server, port, "/sse", grandchild, router).await
}

/// A message of a request's body, logged, and the HTTP answer that a rule gives to it.
async fn posted(server: &Server, headers: &HeaderMap, body: &Bytes) -> (Value, Option<Rule>, Option<Response>) {
    let message: Value = serde_json::from_slice(body).unwrap_or_else(|_| Value::String(String::from_utf8_lossy(body).into_owned()));
    let shown: HashMap<&str, &str> = headers.iter().filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?))).collect();
    server.log.write(json!({ "received": message, "headers": shown }));
    let rule = rule(server, &message, headers);
    let refused = refusal(rule.as_ref()).await;
    (message, rule, refused)
}

async fn refusal(rule: Option<&Rule>) -> Option<Response> {
    let rule = rule?;
    let status = StatusCode::from_u16(rule.status?).ok()?;
    tokio::time::sleep(Duration::from_millis(rule.delay_ms)).await;
    let mut response = Response::builder().status(status);
    for (name, value) in &rule.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(rule.body.clone())).ok()
}

async fn streamable(State(desk): State<Arc<Desk>>, method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let server = &desk.server;
    let known = header(&headers, "mcp-session-id");
    if method != Method::POST {
        server.log.write(json!({ "http": format!("{method} {}", uri.path()) }));
        if let Some(refused) = refusal(server.rule(method.as_str(), |name| header(&headers, name)).as_ref()).await {
            return refused;
        }
        return match (method, known.and_then(|id| Some((desk.client(&id)?, id)))) {
            (Method::GET, Some((client, _))) => stream(None, client.messages.lock_owned().await),
            (Method::DELETE, Some((_, id))) => {
                let _ = lock(&desk.sessions).remove(&id);
                StatusCode::NO_CONTENT.into_response()
            }
            (_, None) => StatusCode::NOT_FOUND.into_response(),
            _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        };
    }
    let (message, rule, refused) = posted(server, &headers, &body).await;
    if let Some(refused) = refused {
        return refused;
    }
    let (mut opened, (out, messages)) = (None, unbounded_channel());
    let session = if is_modern(&message) {
        Session::new(out.clone())
    } else if message["method"] == "initialize" {
        let (id, client) = desk.open();
        opened = Some(id);
        client.session
    } else if message["method"] == "server/discover" {
        Session::new(out.clone())
    } else {
        match known.map(|id| desk.client(&id)) {
            Some(Some(client)) => client.session,
            Some(None) => return StatusCode::NOT_FOUND.into_response(),
            None => return (StatusCode::BAD_REQUEST, "no session").into_response(),
        }
    };
    let is_request = !message["id"].is_null() && message["method"].is_string();
    let taking = tokio::spawn(server.clone().take(session, message, rule, out));
    if !is_request {
        let _ = taking.await;
        return StatusCode::ACCEPTED.into_response();
    }
    let mut response = stream(None, messages);
    if let Some(id) = opened.and_then(|id| id.parse().ok()) {
        let _ = response.headers_mut().insert("mcp-session-id", id);
    }
    response
}

async fn old_sse(
    State(desk): State<Arc<Desk>>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let server = &desk.server;
    match (method, uri.path()) {
        (Method::GET, "/sse") => {
            server.log.write(json!({ "http": "GET /sse" }));
            if let Some(refused) = refusal(server.rule("GET", |name| header(&headers, name)).as_ref()).await {
                return refused;
            }
            let (id, client) = desk.open();
            stream(Some(format!("event: endpoint\ndata: /messages?session={id}\n\n")), client.messages.lock_owned().await)
        }
        (Method::POST, "/messages") => {
            let (message, rule, refused) = posted(server, &headers, &body).await;
            if let Some(refused) = refused {
                return refused;
            }
            let Some(client) = query.get("session").and_then(|id| desk.client(id)) else {
                return StatusCode::NOT_FOUND.into_response();
            };
            let out = client.session.out.clone();
            let _answering = tokio::spawn(server.clone().take(client.session, message, rule, out));
            StatusCode::ACCEPTED.into_response()
        }
        (method, path) => {
            server.log.write(json!({ "http": format!("{method} {path}") }));
            if path == "/sse" { StatusCode::METHOD_NOT_ALLOWED.into_response() } else { StatusCode::NOT_FOUND.into_response() }
        }
    }
}

/// What gives the next message.
trait Messages: Send + 'static {
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;
}

impl Messages for UnboundedReceiver<String> {
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send {
        self.recv()
    }
}

impl Messages for tokio::sync::OwnedMutexGuard<UnboundedReceiver<String>> {
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send {
        self.recv()
    }
}

/// An event stream of messages.
fn stream(first: Option<String>, messages: impl Messages) -> Response {
    let events = futures::stream::unfold((first, messages), |(first, mut messages)| async move {
        let event = match first {
            Some(first) => first,
            None => format!("event: message\ndata: {}\n\n", messages.next().await?),
        };
        Some((Ok::<_, std::convert::Infallible>(event), (None, messages)))
    });
    ([("content-type", "text/event-stream"), ("cache-control", "no-cache")], Body::from_stream(events)).into_response()
}
