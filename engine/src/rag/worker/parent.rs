//! The parent's side: starts the child, keeps what arrives, restarts it after a page that crashed it.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;

use sipper::{Sender, Straw, sipper};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::{ARGUMENT, Frame, Job, Limits};
use crate::rag::Error;
use crate::rag::load::{Condition, Opened, Part};

/// How much of the child's last words is kept.
const LAST_WORDS: u64 = 4096;

/// How a reading ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// What the file is.
    pub opened: Opened,
    /// Parts that arrived.
    pub parts: u32,
    /// What is not there and why, one sentence each: crashes, limits, damage.
    pub problems: Vec<String>,
}

/// Reads a file in a child of the program `worker`. The straw sips every [`Frame`] that carries something; a page that
/// crashed the child comes as a part that is [`Condition::Broken`]. It must be polled within a tokio runtime; dropping
/// it ends the child.
pub fn parse(worker: &Path, path: &Path, limits: Limits) -> impl Straw<Summary, Arc<Frame>, Error> + use<> {
    let reading = Reading {
        worker: worker.to_owned(),
        path: path.to_owned(),
        limits,
        opened: None,
        next: 1,
        parts: 0,
        characters: 0,
        problems: Vec::new(),
    };
    sipper(move |sender| reading.run(sender))
}

/// One child's end.
enum End {
    Done,
    Failed(String),
    /// It died, ran over a limit or spoke nonsense.
    Broke(String),
}

struct Reading {
    worker: PathBuf,
    path: PathBuf,
    limits: Limits,
    opened: Option<Opened>,
    /// The part that is being read.
    next: u32,
    parts: u32,
    characters: usize,
    problems: Vec<String>,
}

impl Reading {
    async fn run(mut self, mut sender: Sender<Arc<Frame>>) -> Result<Summary, Error> {
        let mut restarts = 0;
        loop {
            let reason = match self.child(&mut sender).await? {
                End::Done => break,
                End::Failed(reason) if self.parts == 0 => return Err(self.refused(reason)),
                End::Failed(reason) => {
                    self.problems.push(reason);
                    break;
                }
                End::Broke(reason) => reason,
            };
            let Some(pages) = self.opened.as_ref().map(|opened| opened.pages) else {
                return Err(self.refused(format!("opening it {reason}")));
            };
            let crashed = self.next;
            let total = pages.map_or_else(String::new, |pages| format!(" of {pages}"));
            tracing::warn!(path = %self.path.display(), part = crashed, reason, "the reader broke off");
            // Without pages there is no place to go on from.
            if pages.is_none_or(|pages| crashed >= pages) || restarts == self.limits.restarts {
                self.problems.push(format!("{}{total} pages read; page {crashed} {reason}", self.parts));
                self.send(&mut sender, broken(crashed, &reason)).await;
                break;
            }
            self.send(&mut sender, broken(crashed, &reason)).await;
            restarts += 1;
            self.next += 1;
        }
        let Some(opened) = self.opened.take() else {
            return Err(self.refused("the reader ended without a word".to_owned()));
        };
        self.problems.extend(opened.damage.clone());
        Ok(Summary { opened, parts: self.parts, problems: self.problems })
    }

    fn refused(&self, reason: String) -> Error {
        Error::Parse { path: self.path.clone(), reason }
    }

    async fn send(&self, sender: &mut Sender<Arc<Frame>>, frame: Frame) {
        sender.send(Arc::new(frame)).await;
    }

    /// Runs one child from the next part on. Whatever way this ends, the child is gone afterwards.
    async fn child(&mut self, sender: &mut Sender<Arc<Frame>>) -> Result<End, Error> {
        let (mut child, output, errors) = self.start().await?;
        let mut output = BufReader::with_capacity(64 << 10, output);
        let end = self.listen(&mut output, sender).await;
        match end {
            Some(end) => {
                // It has nothing more to say; a child that lingers is ended.
                let _ = child.kill().await;
                Ok(end)
            }
            None => {
                let mut words = String::new();
                let _ = tokio::time::timeout(self.limits.silence, errors.take(LAST_WORDS).read_to_string(&mut words)).await;
                let status = tokio::time::timeout(self.limits.silence, child.wait()).await;
                let status = status.ok().and_then(Result::ok);
                let _ = child.kill().await;
                Ok(End::Broke(self.death(status, &words)))
            }
        }
    }

    async fn start(&self) -> Result<(Child, ChildStdout, ChildStderr), Error> {
        let mut command = Command::new(&self.worker);
        let _ = command.arg(ARGUMENT).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        // Nothing of the app's environment concerns a parser.
        let _ = command.env_clear().envs(std::env::var_os("SystemRoot").map(|root| ("SystemRoot", root)));
        #[cfg(unix)]
        let _ = command.process_group(0);
        let start = |error: std::io::Error| Error::Parse {
            path: self.path.clone(),
            reason: format!("the reader {} cannot be started: {error}", self.worker.display()),
        };
        let mut child = command.spawn().map_err(start)?;
        let job = Job { path: std::path::absolute(&self.path).unwrap_or_else(|_| self.path.clone()), from: self.next, limits: self.limits };
        let mut line = serde_json::to_vec(&job).map_err(|error| self.refused(format!("its path cannot be passed on: {error}")))?;
        line.push(b'\n');
        let (Some(input), Some(output), Some(errors)) = (child.stdin.as_mut(), child.stdout.take(), child.stderr.take()) else {
            return Err(self.refused("the reader has no pipes".to_owned()));
        };
        // The input stays open in `child`: its end tells the child that the parent is gone. A child that is already
        // dead shows in its status.
        let _ = input.write_all(&line).await;
        let _ = input.flush().await;
        Ok((child, output, errors))
    }

    /// Takes frames until the child ends or breaks a bound; `None` when its output ended without a last word.
    async fn listen(&mut self, output: &mut BufReader<ChildStdout>, sender: &mut Sender<Arc<Frame>>) -> Option<End> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let bound = self.limits.frame as u64 + 1;
            let read = tokio::time::timeout(self.limits.silence, output.take(bound).read_until(b'\n', &mut line)).await;
            match read {
                Err(_) => return Some(End::Broke(format!("took longer than {} s", self.limits.silence.as_secs()))),
                Ok(Err(_) | Ok(0)) => return None,
                Ok(Ok(_)) if line.last() != Some(&b'\n') && line.len() > self.limits.frame => {
                    return Some(End::Broke("holds more text than a page can".to_owned()));
                }
                Ok(Ok(_)) => {}
            }
            let Ok(frame) = serde_json::from_slice::<Frame>(&line) else { return None };
            if let Some(end) = self.take(frame, sender).await {
                return Some(end);
            }
        }
    }

    async fn take(&mut self, frame: Frame, sender: &mut Sender<Arc<Frame>>) -> Option<End> {
        match frame {
            Frame::Failed { reason } => return Some(End::Failed(reason)),
            Frame::Done { cut } => {
                self.problems.extend(cut);
                return Some(End::Done);
            }
            Frame::Started(opened) => {
                if self.opened.is_none() {
                    self.opened = Some(opened.clone());
                    self.send(sender, Frame::Started(opened)).await;
                }
            }
            Frame::Part(part) => {
                // A child that was started again counts its characters from zero; the whole is counted here.
                self.characters = self.characters.saturating_add(part.characters());
                if self.characters > self.limits.characters {
                    self.problems.push(format!("it was cut at part {}: only {} characters are read", part.number, self.limits.characters));
                    return Some(End::Done);
                }
                self.next = part.number.saturating_add(1);
                self.parts += u32::from(!matches!(part.condition, Condition::Broken { .. }));
                self.send(sender, Frame::Part(part)).await;
            }
        }
        None
    }

    /// How the child died, as the end of a sentence that begins with the page.
    fn death(&self, status: Option<ExitStatus>, words: &str) -> String {
        if words.contains("memory allocation") {
            return format!("needs more than {} MiB of memory when unpacked", self.limits.memory >> 20);
        }
        if words.contains("overflowed its stack") {
            return "is nested too deeply and crashed the reader".to_owned();
        }
        #[cfg(unix)]
        if let Some(signal) = status.and_then(|status| std::os::unix::process::ExitStatusExt::signal(&status)) {
            return if signal == nix::sys::signal::Signal::SIGXCPU as i32 {
                format!("took more than {} s of processor time", self.limits.cpu_seconds)
            } else {
                format!("crashed the reader (signal {signal})")
            };
        }
        match status.and_then(|status| status.code()) {
            Some(code) => format!("ended the reader (status {code}); {} may be no reader", self.worker.display()),
            None => "crashed the reader".to_owned(),
        }
    }
}

fn broken(number: u32, reason: &str) -> Frame {
    Frame::Part(Part { number, condition: Condition::Broken { reason: format!("it {reason}") }, blocks: Vec::new() })
}
