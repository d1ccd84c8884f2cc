//! Files of a model hub over HTTPS, resumed with `Range` and `If-Range`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, ETAG, IF_RANGE, RANGE};
use reqwest::{Client, Response, StatusCode};
use tokio::sync::mpsc;

use super::part::{self, Part};
use super::{Failure, Job, Meter, whole};
use crate::local::catalogue::File;

/// A hub that does not answer by then is taken as out of reach, so that the next source gets its turn.
const CONNECT: Duration = Duration::from_secs(10);
/// A body that brings nothing for this long is broken off.
const SILENCE: Duration = Duration::from_secs(60);
/// How often one file is asked for while each answer brings it further.
const TRIES: u32 = 4;
/// Chunks between network and disk.
const QUEUE: usize = 64;

/// How one request for a file ended.
enum Answer {
    Whole,
    /// Worth another request.
    Again(String),
}

/// Fetches the files of a repository that are not whole yet.
pub(super) async fn fetch(job: &Job, repo: &str, revision: &str, paths: &[String], meter: &Arc<Meter>) -> Result<(), Failure> {
    let base = job.endpoints.hub.trim_end_matches('/');
    let client = client(base)?;
    for (file, path) in job.offer.files.iter().zip(paths) {
        if whole(&job.folder, file) {
            continue;
        }
        let url = format!("{base}/{repo}/resolve/{revision}/{path}");
        let mut tries = 1;
        while let Answer::Again(reason) = request(job, &client, file, &url, meter).await? {
            if tries == TRIES {
                return Err(Failure::Source(reason));
            }
            tokio::time::sleep(Duration::from_millis(250) * tries).await;
            tries += 1;
        }
    }
    Ok(())
}

fn client(base: &str) -> Result<Client, Failure> {
    // A second call finds a provider installed; that is no fault.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder();
    // A proxy cannot reach this machine's own loopback, whatever the environment says.
    let builder = if loopback(base) { builder.no_proxy() } else { builder };
    builder
        .connect_timeout(CONNECT)
        .read_timeout(SILENCE)
        .user_agent(concat!("handrail/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| Failure::Source(format!("no HTTPS client: {}", chain(&error))))
}

fn loopback(base: &str) -> bool {
    let host = reqwest::Url::parse(base).ok().and_then(|url| url.host_str().map(|host| host.trim_matches(['[', ']']).to_owned()));
    host.is_some_and(|host| host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback()))
}

async fn request(job: &Job, client: &Client, file: &File, url: &str, meter: &Arc<Meter>) -> Result<Answer, Failure> {
    let part = open(job, file).await?;
    if part.missing() == 0 {
        // A whole part that an earlier run did not get to name; were it wrong, it is gone now and fetched again.
        return finish(job, part).await.map(|()| Answer::Whole).or_else(again);
    }
    part::room(&job.folder, part.missing())?;
    let (etag, start) = (Etag::of(&job.folder, file), part.done());
    let mut asked = client.get(url);
    if start > 0 {
        asked = asked.header(RANGE, format!("bytes={start}-"));
        if let Some(etag) = etag.read() {
            asked = asked.header(IF_RANGE, etag);
        }
    }
    let response = asked.send().await.map_err(|error| Failure::Source(unreachable(url, &error)))?;
    match response.status() {
        StatusCode::OK | StatusCode::PARTIAL_CONTENT => receive(job, response, file, part, meter).await,
        StatusCode::RANGE_NOT_SATISFIABLE if start > 0 => {
            let mut part = part;
            part.restart()?;
            Ok(Answer::Again(format!("the hub refused to go on at byte {start}")))
        }
        status => Err(Failure::Source(refused(status, url))),
    }
}

async fn receive(job: &Job, response: Response, file: &File, mut part: Part, meter: &Arc<Meter>) -> Result<Answer, Failure> {
    let partial = response.status() == StatusCode::PARTIAL_CONTENT;
    if partial && range_start(&response) != Some(part.done()) {
        part.restart()?;
        return Ok(Answer::Again("the hub sent another part of the file than was asked for".to_owned()));
    }
    let start = if partial { part.done() } else { 0 };
    if let Some(length) = length(&response).filter(|length| length + start != file.bytes) {
        return Err(Failure::Source(format!("{} has {} bytes there, {} are expected", file.name, length + start, file.bytes)));
    }
    if start == 0 {
        part.restart()?;
    }
    Etag::of(&job.folder, file).keep(&response);
    let (chunks, queue) = mpsc::channel(QUEUE);
    let writer = write(job, part, file, queue, meter.clone());
    let mut body = response.bytes_stream();
    let mut broken = None;
    while let Some(chunk) = body.next().await {
        match chunk {
            // The writer has gone when it failed; it tells why below.
            Ok(chunk) => {
                if chunks.send(chunk).await.is_err() {
                    break;
                }
            }
            Err(error) => {
                broken = Some(chain(&error));
                break;
            }
        }
    }
    drop(chunks);
    let part = writer.await.map_err(|error| Failure::Source(format!("the writer broke off: {error}")))??;
    if part.missing() == 0 {
        let finished = finish(job, part).await.map(|()| Answer::Whole);
        // What was resumed may have been of another version: with the wrong part gone it deserves a whole try.
        return if start > 0 { finished.or_else(again) } else { finished };
    }
    let reason = broken.unwrap_or_else(|| "the hub closed the connection".to_owned());
    let reason = format!("{} broke off after {} of {} bytes: {reason}", file.name, part.done(), file.bytes);
    if part.done() > start { Ok(Answer::Again(reason)) } else { Err(Failure::Source(reason)) }
}

/// Writes and hashes off the async threads. It takes in what is queued even after the fetch was dropped, so that
/// nothing received is lost.
fn write<B: AsRef<[u8]> + Send + 'static>(
    job: &Job,
    mut part: Part,
    file: &File,
    mut queue: mpsc::Receiver<B>,
    meter: Arc<Meter>,
) -> tokio::task::JoinHandle<Result<Part, Failure>> {
    let hold = job.hold.clone();
    let others: u64 =
        job.offer.files.iter().filter(|other| other.name != file.name && whole(&job.folder, other)).map(|other| other.bytes).sum();
    tokio::task::spawn_blocking(move || {
        let _hold = hold;
        while let Some(chunk) = queue.blocking_recv() {
            part.write(chunk.as_ref())?;
            meter.at(others + part.done());
        }
        Ok(part)
    })
}

async fn open(job: &Job, file: &File) -> Result<Part, Failure> {
    let (path, target, file, hold) = (part::part_path(&job.folder, file), job.folder.join(&file.name), file.clone(), job.hold.clone());
    let opened = tokio::task::spawn_blocking(move || {
        let _hold = hold;
        Part::open(path, target, &file)
    });
    opened.await.map_err(|error| Failure::Source(format!("reading the part broke off: {error}")))?
}

async fn finish(job: &Job, part: Part) -> Result<(), Failure> {
    let hold = job.hold.clone();
    let etags: Vec<Etag> = job.offer.files.iter().map(|file| Etag::of(&job.folder, file)).collect();
    let finished = tokio::task::spawn_blocking(move || {
        let _hold = hold;
        let result = part.finish();
        etags.iter().filter(|etag| !etag.has_part()).for_each(Etag::forget);
        result
    });
    finished.await.map_err(|error| Failure::Source(format!("checking the download broke off: {error}")))?
}

fn again(failure: Failure) -> Result<Answer, Failure> {
    match failure {
        Failure::Source(reason) => Ok(Answer::Again(reason)),
        disk @ Failure::Disk { .. } => Err(disk),
    }
}

/// The ETag of what the part holds, in `<file>.part.etag`.
struct Etag {
    path: PathBuf,
    part: PathBuf,
}

impl Etag {
    fn of(folder: &Path, file: &File) -> Self {
        Self { path: folder.join(format!("{}.part.etag", file.name)), part: part::part_path(folder, file) }
    }

    fn read(&self) -> Option<String> {
        std::fs::read_to_string(&self.path).ok().filter(|etag| !etag.is_empty())
    }

    /// Keeps the response's ETag. A weak one says nothing about bytes (RFC 9110, 13.1.5), so it is as good as none.
    fn keep(&self, response: &Response) {
        let etag = response.headers().get(ETAG).and_then(|value| value.to_str().ok()).filter(|value| !value.starts_with("W/"));
        match etag {
            // Without it the next fetch resumes unasked, and the checksum still guards the result.
            Some(etag) => drop(std::fs::write(&self.path, etag)),
            None => self.forget(),
        }
    }

    fn forget(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    fn has_part(&self) -> bool {
        self.part.exists()
    }
}

fn length(response: &Response) -> Option<u64> {
    response.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The first byte that a `Content-Range: bytes 5-9/10` announces.
fn range_start(response: &Response) -> Option<u64> {
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.trim().parse().ok()
}

fn refused(status: StatusCode, url: &str) -> String {
    let words = match status.as_u16() {
        401 | 403 => "the hub does not give this file to everyone",
        404 | 410 => "the hub does not have this file",
        408 | 504 => "the hub took too long",
        429 => "the hub asks to wait, too many requests",
        500..=599 => "the hub has a fault of its own",
        _ => "the hub refused",
    };
    format!("{words} (HTTP {}, {url})", status.as_u16())
}

fn unreachable(url: &str, error: &reqwest::Error) -> String {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_else(|| url.to_owned());
    let why = if error.is_timeout() { format!("no answer in {} s", CONNECT.as_secs()) } else { chain(error) };
    format!("{host} cannot be reached: {why}")
}

/// The innermost cause says most; the outer ones repeat the URL.
fn chain(error: &dyn std::error::Error) -> String {
    let mut inner = error;
    while let Some(source) = inner.source() {
        inner = source;
    }
    inner.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for (base, is) in [
            ("http://127.0.0.1:9", true),
            ("http://[::1]:9/x", true),
            ("http://localhost", true),
            ("https://hub.example", false),
            ("", false),
        ] {
            assert_eq!(loopback(base), is, "{base}");
        }
    }

    #[test]
    fn refusals_are_plain_words_with_the_status() {
        let text = refused(StatusCode::NOT_FOUND, "http://hub/a");
        assert!(text.contains("does not have this file") && text.contains("404") && text.contains("http://hub/a"), "{text}");
        assert!(refused(StatusCode::BAD_GATEWAY, "u").contains("fault of its own"));
    }
}
