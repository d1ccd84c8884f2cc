//! What passes on the wire: the last messages for people who look for a fault, and facts that the protocol's types drop.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use rmcp::RoleClient;
use rmcp::model::RequestId;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::super::TraceLine;
use super::super::process::Tail;
use super::super::transport::stdio::Observer;
use super::greeting;
use super::waiting::Waiting;

/// Messages that are kept (fixed).
const LINES: usize = 200;
/// Bytes of all kept messages together (fixed).
const BYTES: usize = 1 << 20;
/// Bytes of one message that are kept (fixed).
const LINE: usize = 4096;
/// Bytes of the end of a longer message that are kept: some servers write there which request they answer (fixed).
const ENDING: usize = 64;
/// Characters of a skipped line that the log shows.
const SHOWN: usize = 200;
/// Kinds of answers that were not taken as they came, of which a note is kept (fixed).
const MENDED: usize = 20;
/// Tools whose way of running is remembered.
const TOOLS: usize = 4096;

/// The wire of one server. It holds no headers and no tokens: those belong to the transport, not to the messages.
#[derive(Debug)]
pub(super) struct Wire {
    tail: Arc<Tail>,
    ring: Mutex<Ring>,
    skipped: AtomicU64,
    /// Whether a skipped line was shown since the start.
    told: AtomicBool,
    tasks: Mutex<Tasks>,
    /// What of the server's answers was not taken as it came, each kind once.
    mended: Mutex<Vec<String>>,
}

#[derive(Debug, Default)]
struct Ring {
    lines: VecDeque<TraceLine>,
    bytes: usize,
}

/// What revision 2025-11-25 says about tasks, and the protocol's types do not hold.
#[derive(Debug, Default)]
struct Tasks {
    calls: bool,
    tools: HashMap<String, TaskSupport>,
}

/// Whether a tool runs as a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskSupport {
    /// It may.
    Optional,
    /// It runs in no other way.
    Required,
}

impl Wire {
    pub(super) fn new(tail: Arc<Tail>) -> Self {
        Self {
            tail,
            ring: Mutex::default(),
            skipped: AtomicU64::new(0),
            told: AtomicBool::new(false),
            tasks: Mutex::default(),
            mended: Mutex::default(),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tasks(&self) -> MutexGuard<'_, Tasks> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server is started anew: what was counted and learned belongs to the last one. The trace goes on.
    pub(super) fn renew(&self) {
        self.skipped.store(0, Ordering::Relaxed);
        self.told.store(false, Ordering::Relaxed);
        *self.tasks() = Tasks::default();
        self.mended().clear();
    }

    fn mended(&self) -> MutexGuard<'_, Vec<String>> {
        self.mended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something that the server sent was read as what it means; said once.
    pub(super) fn mend(&self, note: String) {
        let mut mended = self.mended();
        if mended.len() < MENDED && !mended.contains(&note) {
            self.tail.note(&note);
            mended.push(note);
        }
    }

    /// What of the server's answers was not taken as it came, since it was started.
    pub(super) fn mends(&self) -> Vec<String> {
        self.mended().clone()
    }

    /// Adds a line to the server's log.
    pub(super) fn note(&self, text: &str) {
        self.tail.note(text);
    }

    /// Lines that were no JSON-RPC.
    pub(super) fn skipped_lines(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// The kept messages, the oldest first.
    pub(super) fn lines(&self) -> Vec<TraceLine> {
        self.ring().lines.iter().cloned().collect()
    }

    /// Whether the server said that calls may run as tasks, in the older way.
    pub(super) fn runs_tasks(&self) -> bool {
        self.tasks().calls
    }

    /// What the server said about a tool; none where it said nothing, or nothing could be read.
    pub(super) fn task_support(&self, tool: &str) -> Option<TaskSupport> {
        self.tasks().tools.get(tool).copied()
    }

    fn keep(&self, received: bool, start: &[u8], end: &[u8], whole: Option<usize>) {
        let cut = whole.is_none_or(|whole| whole > start.len());
        let mut message = String::from_utf8_lossy(start).into_owned();
        if cut {
            // The cut may be inside a character.
            message.truncate(message.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
            message.push_str(&whole.map_or_else(|| " [cut]".to_owned(), |whole| format!(" [cut, {whole} bytes]")));
            if !end.is_empty() {
                message.push(' ');
                message.push_str(String::from_utf8_lossy(end).trim_start_matches(char::REPLACEMENT_CHARACTER));
            }
        }
        let mut ring = self.ring();
        ring.bytes += message.len();
        ring.lines.push_back(TraceLine { at: SystemTime::now(), received, message });
        while ring.lines.len() > LINES || ring.bytes > BYTES {
            let gone = ring.lines.pop_front().map_or(0, |line| line.message.len());
            ring.bytes -= gone;
        }
    }

    /// Keeps a message that is not there as text. Writing stops where keeping does, however long it is.
    fn keep_value(&self, received: bool, message: &impl serde::Serialize) {
        let mut start = Start(Vec::with_capacity(512));
        let whole = serde_json::to_writer(&mut start, message).is_ok().then_some(start.0.len());
        self.keep(received, &start.0, &[], whole);
    }

    /// Reads what the protocol's types do not hold.
    fn learn(&self, text: &[u8]) {
        let Ok(message) = serde_json::from_slice::<Value>(text) else { return };
        let Some(result) = message.get("result") else { return };
        let mut tasks = self.tasks();
        if result.pointer("/capabilities/tasks/requests/tools/call").is_some() && result.get("serverInfo").is_some() {
            tasks.calls = true;
        }
        for tool in result.get("tools").and_then(Value::as_array).into_iter().flatten() {
            let support = match tool.pointer("/execution/taskSupport").and_then(Value::as_str) {
                Some("required") => TaskSupport::Required,
                Some("optional") => TaskSupport::Optional,
                _ => continue,
            };
            if let Some(name) = tool.get("name").and_then(Value::as_str)
                && tasks.tools.len() < TOOLS
            {
                let _ = tasks.tools.insert(name.to_owned(), support);
            }
        }
    }
}

/// Takes the first bytes and then refuses.
struct Start(Vec<u8>);

impl Write for Start {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LINE - self.0.len();
        if room == 0 && !bytes.is_empty() {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let taken = bytes.len().min(room);
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Observer for Wire {
    fn message(&self, received: bool, text: &[u8]) {
        let (start, rest) = text.split_at(text.len().min(LINE));
        self.keep(received, start, &rest[rest.len().saturating_sub(ENDING)..], Some(text.len()));
    }

    fn rich(&self, text: &[u8]) {
        self.learn(text);
    }

    fn skipped(&self, line: &[u8]) {
        let _ = self.skipped.fetch_add(1, Ordering::Relaxed);
        if !self.told.swap(true, Ordering::Relaxed) {
            let start = String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN)]);
            let start: String = start.chars().filter(|character| !character.is_control()).take(SHOWN).collect();
            self.tail.note(&format!("its stdout holds lines that are no messages; they are skipped and counted. The first one: {start}"));
        }
    }

    fn mended(&self, note: &'static str) {
        self.mend(note.to_owned());
    }

    fn dropped(&self, bytes: u64, id: Option<&RequestId>) {
        let whose = id.map_or_else(|| "it cannot be seen whose answer it was".to_owned(), |id| format!("it answers request {id}"));
        self.tail.note(&format!("a line of {bytes} bytes is too long and was dropped; {whose}"));
    }
}

/// A transport that shows the wire what passes.
#[derive(Debug)]
pub(super) struct Traced<T> {
    pub(super) inner: T,
    /// None where the transport shows its messages itself.
    pub(super) wire: Option<Arc<Wire>>,
    /// Fired when nothing more can be received: before that is acted on, what the server asked is still answered.
    pub(super) over: CancellationToken,
    /// Where it is said what was not taken as it came.
    pub(super) notes: Arc<Wire>,
    waiting: Waiting,
    ready: VecDeque<RxJsonRpcMessage<RoleClient>>,
}

impl<T> Traced<T> {
    pub(super) fn new(inner: T, wire: Option<Arc<Wire>>, over: CancellationToken, notes: Arc<Wire>) -> Self {
        Self { inner, wire, over, notes, waiting: Waiting::default(), ready: VecDeque::new() }
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for Traced<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let Some(wire) = &self.wire {
            wire.keep_value(false, &item);
        }
        self.waiting.sent(&item);
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            let Some(message) = self.inner.receive().await else {
                self.over.cancel();
                return None;
            };
            if let Some(wire) = &self.wire {
                wire.keep_value(true, &message);
            }
            let message = greeting::mended(message, &mut |note| self.notes.mend(note));
            self.ready.extend(self.waiting.heard(message, &mut |note| self.notes.mend(note)));
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wire() -> Wire {
        Wire::new(Arc::new(Tail::default()))
    }

    #[test]
    fn the_last_messages_are_kept_within_all_three_bounds() {
        let wire = wire();
        for number in 0..300 {
            wire.message(number % 2 == 0, format!("{{\"n\":{number}}}").as_bytes());
        }
        let lines = wire.lines();
        assert_eq!((lines.len(), lines[0].message.as_str(), lines[0].received), (LINES, "{\"n\":100}", true));
        let long = json!({ "text": "é".repeat(100_000) });
        wire.message(true, long.to_string().as_bytes());
        wire.keep_value(false, &long);
        let lines = wire.lines();
        let (raw, typed) = (&lines[LINES - 2].message, &lines[LINES - 1].message);
        assert!(
            raw.len() < LINE + 40 + ENDING && raw.contains("[cut, 200011 bytes] é") && raw.ends_with("é\"}") && !raw.contains('\u{fffd}'),
            "{raw}"
        );
        assert!(typed.len() < LINE + 40 && typed.ends_with("é [cut]"), "{typed}");
        for _ in 0..1000 {
            wire.keep_value(true, &long);
        }
        let kept: usize = wire.lines().iter().map(|line| line.message.len()).sum();
        let counted = wire.ring().bytes;
        assert!(counted == kept && kept <= BYTES, "{counted} {kept}");
    }

    #[test]
    fn noise_is_counted_and_shown_once_per_start() {
        let wire = wire();
        for _ in 0..3 {
            wire.skipped("\u{1b}[1mWelcome ".repeat(100).as_bytes());
        }
        assert_eq!((wire.skipped_lines(), wire.tail.lines().len()), (3, 1));
        let line = wire.tail.lines().remove(0);
        assert!(line.contains("[1mWelcome ") && line.len() < SHOWN + 150, "{line}");
        wire.renew();
        wire.skipped(b"again");
        assert_eq!((wire.skipped_lines(), wire.tail.lines().len()), (1, 2));
    }

    #[test]
    fn what_the_types_drop_about_tasks_is_learned() {
        let wire = wire();
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "result": { "serverInfo": { "name": "s" }, "capabilities": { "tasks": { "requests": { "tools": { "call": {} } } } } } });
        wire.rich(hello.to_string().as_bytes());
        let tools = json!([{ "name": "r", "execution": { "taskSupport": "required" } }, { "name": "o", "execution": { "taskSupport": "optional" } }, { "name": "f", "execution": { "taskSupport": "forbidden" } }, { "name": "n" }]);
        wire.rich(json!({ "jsonrpc": "2.0", "id": 1, "result": { "tools": tools } }).to_string().as_bytes());
        let support: Vec<_> = ["r", "o", "f", "n"].map(|name| wire.task_support(name)).to_vec();
        assert_eq!(support, [Some(TaskSupport::Required), Some(TaskSupport::Optional), None, None]);
        assert!(wire.runs_tasks());
        wire.renew();
        assert!(!wire.runs_tasks() && wire.task_support("r").is_none());
    }
}
