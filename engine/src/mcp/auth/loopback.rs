//! Where the browser comes back to: one page on 127.0.0.1, for as long as somebody waits for it.

use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Longest request that is read, and how long reading and answering may take (fixed).
const LONGEST: u64 = 16 * 1024;
const READ: Duration = Duration::from_secs(10);
/// Connections at a time (fixed): browsers open some in advance.
const MOST: usize = 16;
const PATH: &str = "/callback";

/// The listener. Dropping it closes it.
pub(super) struct Loopback {
    listener: TcpListener,
    pub(super) port: u16,
}

/// The browser is back, and waits for a page.
pub(super) struct Back {
    pub(super) code: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) error: Option<String>,
    pub(super) description: Option<String>,
    stream: TcpStream,
}

impl Loopback {
    /// Listens on this port, or any free one.
    pub(super) async fn open(port: Option<u16>) -> Result<Self, String> {
        let wrong = |error: std::io::Error| match port {
            Some(port) => format!("nothing can listen on 127.0.0.1:{port}, where the browser has to come back to: {error}"),
            None => format!("nothing can listen on 127.0.0.1, where the browser has to come back to: {error}"),
        };
        let listener = TcpListener::bind(("127.0.0.1", port.unwrap_or(0))).await.map_err(wrong)?;
        let port = listener.local_addr().map_err(wrong)?.port();
        Ok(Self { listener, port })
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for the browser that carries this state. Whoever else comes is sent away, and nothing ends by it: any page in any
    /// browser can reach this port.
    pub(super) async fn back(self, state: &str) -> Back {
        let (sender, mut arrived) = mpsc::channel(1);
        let mut guests = JoinSet::new();
        loop {
            tokio::select! {
                Some(back) = arrived.recv() => return back,
                accepted = self.listener.accept(), if guests.len() < MOST => match accepted {
                    Ok((stream, _)) => {
                        let (sender, state) = (sender.clone(), state.to_owned());
                        let _ = guests.spawn(async move {
                            if let Some(back) = tokio::time::timeout(READ, receive(stream, &state)).await.ok().flatten() {
                                let _ = sender.send(back).await;
                            }
                        });
                    }
                    Err(error) => {
                        tracing::debug!(%error, "a connection could not be accepted");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                Some(_) = guests.join_next() => {}
            }
        }
    }
}

impl Back {
    /// Shows the person how it went: what went wrong, if anything did.
    pub(super) async fn show(mut self, wrong: Option<&str>) {
        let page = match wrong {
            None => page("You are signed in", "Handrail has what it needs. You may close this window."),
            Some(reason) => page("You are not signed in", &format!("{reason}. You may close this window and try again in Handrail.")),
        };
        let _ = tokio::time::timeout(READ, answer(&mut self.stream, "200 OK", &page)).await;
    }
}

/// Reads one request; the browser that was waited for is given, any other is answered.
async fn receive(mut stream: TcpStream, state: &str) -> Option<Back> {
    let target = target(&mut stream).await?;
    let url = Url::parse(&format!("http://127.0.0.1{target}")).ok().filter(|url| url.path() == PATH);
    let Some(url) = url else {
        answer(&mut stream, "404 Not Found", &page("Nothing here", "This address is only for coming back from a sign-in.")).await;
        return None;
    };
    let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    // A parameter that is there twice means nothing.
    let one = |name: &str| {
        let mut values = pairs.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone());
        values.next().filter(|value| values.next().is_none() && !value.is_empty())
    };
    if one("state").as_deref() != Some(state) {
        let words = "This answer belongs to another sign-in, or to none. Handrail did not use it.";
        answer(&mut stream, "400 Bad Request", &page("Not this sign-in", words)).await;
        return None;
    }
    Some(Back { code: one("code"), issuer: one("iss"), error: one("error"), description: one("error_description"), stream })
}

/// What a GET asks for; the rest of the request is read and left alone, as far as it goes.
async fn target(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut piece) = (Vec::new(), [0; 2048]);
    let mut limited = stream.take(LONGEST);
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let read = limited.read(&mut piece).await.ok().filter(|read| *read > 0)?;
        head.extend_from_slice(&piece[..read]);
    }
    let head = String::from_utf8_lossy(&head);
    let mut words = head.lines().next()?.split(' ');
    (words.next()? == "GET").then(|| words.next().filter(|target| target.starts_with('/')).map(str::to_owned))?
}

async fn answer(stream: &mut TcpStream, status: &str, page: &str) {
    // Nothing is loaded, kept or run by this page, and it stays out of every other address' sight.
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nContent-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n\r\n",
        page.len()
    );
    // A browser that left is no fault.
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(page.as_bytes()).await;
    let _ = stream.shutdown().await;
}

fn page(title: &str, text: &str) -> String {
    let (title, text) = (escaped(title), escaped(text));
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>:root{{color-scheme:light dark}}body{{font:17px/1.5 system-ui,sans-serif;max-width:34rem;margin:18vh auto;padding:0 1.5rem}}</style>\
         <h1>{title}</h1><p>{text}</p></html>"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    }

    #[tokio::test]
    async fn strangers_are_sent_away_and_the_right_one_gets_a_page() {
        let loopback = Loopback::open(None).await.unwrap();
        let (port, address) = (loopback.port, loopback.address());
        assert_eq!(address, format!("http://127.0.0.1:{port}/callback"));
        let waiting = tokio::spawn(async move { loopback.back("right").await });
        let _idle = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        for (request, status) in [
            ("GET /favicon.ico HTTP/1.1\r\n\r\n", "404"),
            ("GET /callback?code=x HTTP/1.1\r\n\r\n", "400"),
            ("GET /callback?code=x&state=wrong HTTP/1.1\r\n\r\n", "400"),
            ("GET /callback?code=x&state=right&state=right HTTP/1.1\r\n\r\n", "400"),
            ("POST /callback?code=x&state=right HTTP/1.1\r\n\r\n", ""),
            ("nonsense\r\n\r\n", ""),
        ] {
            let answer = get(port, request).await;
            assert!(answer.strip_prefix("HTTP/1.1 ").unwrap_or(&answer).starts_with(status), "{request}: {answer}");
        }
        let _ = get(port, &format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(20_000))).await;
        assert!(!waiting.is_finished());
        let asking = tokio::spawn(async move { get(port, "GET /callback?code=a%20b&state=right&iss=i HTTP/1.1\r\n\r\n").await });
        let back = waiting.await.unwrap();
        assert_eq!((back.code.as_deref(), back.issuer.as_deref(), back.error.as_deref()), (Some("a b"), Some("i"), None));
        back.show(Some("<script>")).await;
        let shown = asking.await.unwrap();
        assert!(shown.contains("&lt;script&gt;") && !shown.contains("<script>"), "{shown}");
        assert!(TcpStream::connect(("127.0.0.1", port)).await.is_err(), "closed");
    }
}
