//! Requests to authorization servers: bounded in time and size, and only to where a server may send us.

use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use reqwest::{RequestBuilder, Url};
use serde::de::DeserializeOwned;

/// Longest wait for a connection, and for a whole answer (fixed).
const CONNECT: Duration = Duration::from_secs(10);
const WHOLE: Duration = Duration::from_secs(20);
/// Longest answer that is read (fixed).
const LONGEST: usize = 256 * 1024;
/// Redirects that are followed, all within one origin (fixed).
const HOPS: usize = 3;

/// The way to the authorization servers of one address.
pub(super) struct Web {
    http: reqwest::Client,
    /// What the address is: on this machine, in the network around it, or out there.
    reach: Reach,
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reach {
    Out,
    /// A private address, or one of the link.
    Around,
    Here,
}

/// An answer, read whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
    pub(super) place: String,
}

impl Answer {
    pub(super) fn json<T: DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(&self.body).ok()
    }
}

impl Web {
    /// The way for a server's address. An address that would show tokens to the network is an error.
    pub(super) fn new(address: &Url) -> Result<Self, String> {
        // The first provider stays; a second installation is no fault.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let same = reqwest::redirect::Policy::custom(|attempt| {
            let same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
            if same && attempt.previous().len() <= HOPS { attempt.follow() } else { attempt.stop() }
        });
        let http = reqwest::Client::builder().connect_timeout(CONNECT).timeout(WHOLE).redirect(same).build();
        let http = http.map_err(|error| format!("no HTTP client can be made: {error}"))?;
        let web = Self { http, reach: reach(address) };
        let _ = web.allowed(address.as_str(), "its address")?;
        Ok(web)
    }

    /// An address that a server named, where it may send us there: over https, or over http within this machine; and from
    /// out there never into this machine or the network around it.
    pub(super) fn allowed(&self, address: &str, what: &str) -> Result<Url, String> {
        let url = Url::parse(address).map_err(|error| format!("{what} is not an address: {error}"))?;
        let there = reach(&url);
        if url.host_str().is_none_or(str::is_empty) || !url.username().is_empty() || url.password().is_some() {
            return Err(format!("{what} is no plain web address"));
        }
        match url.scheme() {
            "https" => {}
            "http" if there == Reach::Here => {}
            "http" => return Err(format!("{what} ({}) must be https: over http anybody on the way could read the tokens", place(&url))),
            other => return Err(format!("{what} must be a web address, not {other}:")),
        }
        if there > self.reach {
            return Err(format!("{what} ({}) leads into this machine or its network, which a server out there may not do", place(&url)));
        }
        Ok(url)
    }

    /// Fetches a document.
    pub(super) async fn get(&self, url: &Url) -> Result<Answer, String> {
        self.send(self.http.get(url.clone()), url).await
    }

    /// Sends a form; `basic` goes into the header that names the client.
    pub(super) async fn post_form(&self, url: &Url, body: String, basic: Option<HeaderValue>) -> Result<Answer, String> {
        let mut request = self.http.post(url.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        if let Some(mut basic) = basic {
            basic.set_sensitive(true);
            request = request.header(AUTHORIZATION, basic);
        }
        self.send(request, url).await
    }

    pub(super) async fn post_json(&self, url: &Url, body: &serde_json::Value) -> Result<Answer, String> {
        self.send(self.http.post(url.clone()).json(body), url).await
    }

    async fn send(&self, request: RequestBuilder, url: &Url) -> Result<Answer, String> {
        let place = place(url);
        let lost = |error: reqwest::Error| format!("{place} cannot be reached: {}", chain(&error.without_url()));
        let response = request.header(ACCEPT, "application/json").send().await.map_err(lost)?;
        let status = response.status();
        let (mut body, mut chunks) = (Vec::new(), response.bytes_stream());
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(lost)?;
            if chunk.len() > LONGEST - body.len() {
                return Err(format!("{place} answered with more than {LONGEST} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Answer { status, body, place })
    }
}

/// Host and port, for people. The rest of an address may hold keys.
pub(super) fn place(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn reach(url: &Url) -> Reach {
    let host = url.host_str().unwrap_or_default().trim_end_matches('.').to_ascii_lowercase();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match literal.map(|address| address.to_canonical()) {
        Ok(address) if address.is_loopback() || address.is_unspecified() => Reach::Here,
        Ok(IpAddr::V4(address)) if address.is_private() || address.is_link_local() => Reach::Around,
        Ok(IpAddr::V6(address)) if address.is_unique_local() || address.is_unicast_link_local() => Reach::Around,
        Err(_) if host == "localhost" || host.ends_with(".localhost") => Reach::Here,
        Ok(_) | Err(_) => Reach::Out,
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    super::shown(&text, &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(address: &str) -> Result<Web, String> {
        Web::new(&Url::parse(address).unwrap())
    }

    #[test]
    fn a_server_sends_us_only_where_it_may() {
        let out = web("https://mcp.example/x").unwrap();
        for good in ["https://auth.example/t", "https://auth.example:8443", "https://93.184.216.34/"] {
            assert!(out.allowed(good, "it").is_ok(), "{good}");
        }
        for bad in [
            "http://auth.example/t",
            "https://localhost/t",
            "https://sso.localhost./t",
            "http://127.0.0.1:9/t",
            "https://[::1]/t",
            "https://[::ffff:127.0.0.1]/t",
            "https://10.0.0.1/t",
            "https://169.254.169.254/latest",
            "https://0.0.0.0/",
            "https://[fe80::1]/",
            "https://me:secret@auth.example/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "handrail://x",
            "/t",
        ] {
            let refused = out.allowed(bad, "it").unwrap_err();
            assert!(!refused.contains("secret"), "{refused}");
        }
        let around = web("https://192.168.1.2/mcp").unwrap();
        assert!(around.allowed("https://10.0.0.1/t", "it").is_ok() && around.allowed("https://127.0.0.1/t", "it").is_err());
        let here = web("http://localhost:3000/mcp").unwrap();
        assert!(here.allowed("http://127.0.0.1:9/t", "it").is_ok() && here.allowed("https://auth.example/t", "it").is_ok());
        assert!(here.allowed("http://auth.example/t", "it").is_err());
        assert!(web("http://mcp.example/x").is_err_and(|reason| reason.contains("https")));
    }
}
