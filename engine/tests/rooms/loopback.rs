//! A small HTTP/1.1 server on the loopback interface that stands in for a model hub and can misbehave.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// One request as it came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub path: String,
    pub range: Option<String>,
    pub if_range: Option<String>,
}

/// What is sent back.
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub steps: Vec<Step>,
}

pub enum Step {
    Send(Vec<u8>),
    Wait(Arc<Notify>),
    /// Sends nothing more and waits for the client to go.
    Hang,
}

/// The server; it ends with the test's runtime.
pub struct Hub {
    pub url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    /// Told when a client left a reply that hangs.
    pub left: Arc<Notify>,
}

impl Hub {
    pub async fn start(answer: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (seen, left, answer) = (Arc::<Mutex<Vec<Seen>>>::default(), Arc::new(Notify::new()), Arc::new(answer));
        let hub = Self { url, seen: seen.clone(), left: left.clone() };
        let _accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, left, answer) = (seen.clone(), left.clone(), answer.clone());
                let _connection = tokio::spawn(async move {
                    let mut stream = stream;
                    let Some(request) = read_request(&mut stream).await else { return };
                    seen.lock().unwrap().push(request.clone());
                    // A client that left is no fault of the server.
                    let _ = send(&mut stream, answer(&request), &left).await;
                });
            }
        });
        hub
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Seen> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    let path = head.split(' ').nth(1)?.to_owned();
    let header = |name: &str| {
        head.lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    };
    Some(Seen { path, range: header("range"), if_range: header("if-range") })
}

async fn send(stream: &mut TcpStream, reply: Reply, left: &Notify) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).await?;
    for step in reply.steps {
        match step {
            Step::Send(bytes) => stream.write_all(&bytes).await?,
            Step::Wait(gate) => gate.notified().await,
            Step::Hang => {
                let gone = tokio::time::timeout(Duration::from_secs(30), stream.read_u8()).await;
                if gone.is_ok() {
                    left.notify_one();
                }
            }
        }
    }
    stream.flush().await
}

/// A server that does it right.
pub fn file(bytes: &[u8], etag: &str, request: &Seen) -> Reply {
    let start = request
        .range
        .as_deref()
        .filter(|_| request.if_range.as_deref().is_none_or(|wanted| wanted == etag))
        .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse::<usize>().ok());
    let from = start.unwrap_or(0);
    let mut headers = vec![("Content-Length", (bytes.len() - from).to_string()), ("ETag", etag.to_owned())];
    if start.is_some() {
        headers.push(("Content-Range", format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())));
    }
    Reply { status: if start.is_some() { 206 } else { 200 }, headers, steps: vec![Step::Send(bytes[from..].to_vec())] }
}

/// The same, but only `most` bytes of it arrive and then `then` happens.
pub fn piece(bytes: &[u8], etag: &str, request: &Seen, most: usize, then: Option<Step>) -> Reply {
    let mut reply = file(bytes, etag, request);
    if let Some(Step::Send(body)) = reply.steps.first_mut() {
        body.truncate(most);
    }
    reply.steps.extend(then);
    reply
}

pub fn status(status: u16) -> Reply {
    Reply { status, headers: vec![("Content-Length", "0".to_owned())], steps: Vec::new() }
}
