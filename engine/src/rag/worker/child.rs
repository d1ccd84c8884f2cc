//! The child's side: bounds itself, reads, reports.

use std::io::{BufRead as _, Write as _};
use std::process::ExitCode;

use super::{Frame, Job, Limits};
use crate::rag::load::{self, Opened, Part, Sink};

/// Deeply nested files recurse deeply; this much stack is address space, not memory, until it is used.
const STACK: usize = 64 << 20;

/// The job could not be understood.
const BAD_JOB: u8 = 64;
/// The parent went away.
const ORPHANED: i32 = 65;

pub(super) fn run() -> ExitCode {
    // A panic of a parser is reported as that page's fault, not as a backtrace.
    std::panic::set_hook(Box::new(|_| {}));
    let mut line = String::new();
    if std::io::stdin().lock().read_line(&mut line).is_err() {
        return ExitCode::from(BAD_JOB);
    }
    let Ok(job) = serde_json::from_str::<Job>(&line) else { return ExitCode::from(BAD_JOB) };
    bound(&job.limits);
    let _watch = std::thread::Builder::new().name("parent".to_owned()).spawn(leave_with_parent);
    let reader = std::thread::Builder::new().name("reader".to_owned()).stack_size(STACK).spawn(move || read(&job));
    let outcome = reader.map(std::thread::JoinHandle::join);
    if matches!(outcome, Ok(Ok(()))) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn leave_with_parent() {
    let mut rest = String::new();
    while std::io::stdin().lock().read_line(&mut rest).is_ok_and(|bytes| bytes > 0) {
        rest.clear();
    }
    std::process::exit(ORPHANED);
}

fn read(job: &Job) {
    let mut reporter = Reporter { limits: job.limits, characters: 0, cut: None };
    budget(&job.limits);
    let name = job.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let result = match std::fs::read(&job.path) {
        Ok(bytes) => std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| load::read(bytes, &name, job.from, &mut reporter)))
            .unwrap_or_else(|_| Err("it crashed the reader".to_owned())),
        Err(error) => Err(format!("it cannot be opened: {error}")),
    };
    let _ = match result {
        Ok(()) => send(&Frame::Done { cut: reporter.cut }),
        Err(reason) => send(&Frame::Failed { reason }),
    };
}

struct Reporter {
    limits: Limits,
    characters: usize,
    cut: Option<String>,
}

impl Sink for Reporter {
    fn opened(&mut self, opened: Opened) -> bool {
        send(&Frame::Started(opened))
    }

    fn beginning(&mut self, _number: u32) {
        budget(&self.limits);
    }

    fn part(&mut self, part: Part) -> bool {
        self.characters = self.characters.saturating_add(part.characters());
        if self.characters > self.limits.characters {
            self.cut = Some(format!("it was cut before part {}: only {} characters are read", part.number, self.limits.characters));
            return false;
        }
        send(&Frame::Part(part))
    }
}

/// Writes a frame; `false` when nobody reads any more.
fn send(frame: &Frame) -> bool {
    let Ok(mut line) = serde_json::to_vec(frame) else { return false };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).is_ok()
}

#[cfg(unix)]
fn bound(limits: &Limits) {
    use nix::sys::resource::{Resource, setrlimit};
    // Where a limit is refused (macOS knows no address-space limit) the others and the clock still hold.
    #[cfg(not(target_os = "macos"))]
    let _ = setrlimit(Resource::RLIMIT_AS, limits.memory, limits.memory);
    #[cfg(target_os = "macos")]
    let _ = limits;
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
}

/// Gives the next part its processor time: the limit counts the whole process, so it moves with what was used.
#[cfg(unix)]
fn budget(limits: &Limits) {
    use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
    let (Ok(usage), Ok((_, hard))) = (getrusage(UsageWho::RUSAGE_SELF), getrlimit(Resource::RLIMIT_CPU)) else { return };
    let used = u64::try_from(usage.user_time().tv_sec() + usage.system_time().tv_sec()).unwrap_or(0);
    let soft = used.saturating_add(limits.cpu_seconds).saturating_add(1).min(hard);
    let _ = setrlimit(Resource::RLIMIT_CPU, soft, hard);
}

#[cfg(not(unix))]
fn bound(_: &Limits) {}

#[cfg(not(unix))]
fn budget(_: &Limits) {}
