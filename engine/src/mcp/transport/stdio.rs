//! The framing of stdio: one JSON-RPC message per line, read with a cap and without being thrown by anything else that a
//! program writes to its stdout.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::{ErrorData, JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::sync::Mutex;

use super::mend::{self, UNREADABLE, id_in_head, id_in_tail};

/// Longest line that is read as a message (fixed): what fits over HTTP fits here as well. A longer one is dropped, and
/// only the call that it answers fails.
pub(in crate::mcp) const LINE: usize = 16 * 1024 * 1024;
/// Bytes that are read at once: what a pipe holds on Linux.
const READ: usize = 64 * 1024;
/// Bytes at both ends of a dropped line that are searched for the id.
const ENDS: usize = 4096;

/// What the framing tells about beside messages.
pub(in crate::mcp) trait Observer: Send + Sync + 'static {
    /// A whole message, as it passed.
    fn message(&self, received: bool, text: &[u8]);
    /// An answer that may hold more than the protocol's types do: a greeting, or a list of tools.
    fn rich(&self, text: &[u8]);
    /// A line that is no JSON-RPC.
    fn skipped(&self, line: &[u8]);
    /// An answer that was not taken as it came.
    fn mended(&self, note: &'static str);
    /// A line beyond the cap: its length, and whose answer it was.
    fn dropped(&self, bytes: u64, id: Option<&RequestId>);
}

/// A process' pipes as a transport.
pub(in crate::mcp) struct Stdio<R, W> {
    read: BufReader<R>,
    line: Vec<u8>,
    /// A line beyond the cap, while its rest is read.
    long: Option<Long>,
    ready: VecDeque<RxJsonRpcMessage<RoleClient>>,
    write: Arc<Mutex<Option<W>>>,
    observer: Arc<dyn Observer>,
    cap: usize,
}

struct Long {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    bytes: u64,
}

impl<R: AsyncRead, W> Stdio<R, W> {
    pub(in crate::mcp) fn new(read: R, write: W, observer: Arc<dyn Observer>) -> Self {
        let write = Arc::new(Mutex::new(Some(write)));
        Self {
            read: BufReader::with_capacity(READ, read),
            line: Vec::new(),
            long: None,
            ready: VecDeque::new(),
            write,
            observer,
            cap: LINE,
        }
    }
}

impl<R: AsyncRead + Unpin + Send, W> Stdio<R, W> {
    /// Reads on until something is ready; false at the end. What was read so far is kept in `self`, because `receive` is
    /// dropped in the middle whenever something else happens first.
    async fn read_on(&mut self) -> bool {
        let available = match self.read.fill_buf().await {
            Ok([]) | Err(_) => return false,
            Ok(available) => available,
        };
        let end = memchr::memchr(b'\n', available);
        let piece = &available[..end.unwrap_or(available.len())];
        let used = piece.len() + usize::from(end.is_some());
        if let Some(long) = &mut self.long {
            long.push(piece);
        } else if self.line.len() + piece.len() > self.cap {
            let mut long = Long { head: Vec::new(), tail: VecDeque::new(), bytes: 0 };
            long.push(&std::mem::take(&mut self.line));
            long.push(piece);
            self.long = Some(long);
        } else {
            self.line.extend_from_slice(piece);
        }
        self.read.consume(used);
        if end.is_some() {
            match self.long.take() {
                Some(long) => self.dropped(&long),
                None => self.take_line(),
            }
        }
        true
    }

    fn take_line(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        {
            let text = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(&line).trim_ascii();
            if !text.is_empty() {
                self.understand(text);
            }
        }
        // The buffer is used again, unless a large message blew it up.
        line.clear();
        line.shrink_to(64 * 1024);
        self.line = line;
    }

    fn understand(&mut self, text: &[u8]) {
        let read = mend::read(text);
        if !read.is_rpc {
            self.observer.skipped(text);
            return;
        }
        self.observer.message(true, text);
        if let Some(note) = read.note {
            self.observer.mended(note);
        }
        if read.messages.len() == 1 && is_rich(&read.messages[0]) {
            self.observer.rich(text);
        }
        self.ready.extend(read.messages);
    }

    fn dropped(&mut self, long: &Long) {
        let id = long.id();
        self.observer.dropped(long.bytes, id.as_ref());
        if let Some(id) = id {
            let what = format!("the answer has {} bytes on one line, more than the {} that are read", long.bytes, self.cap);
            self.ready.push_back(JsonRpcMessage::error(ErrorData::new(UNREADABLE, what, None), Some(id)));
        }
    }
}

fn is_rich(message: &RxJsonRpcMessage<RoleClient>) -> bool {
    use ServerResult::{CustomResult, InitializeResult, ListToolsResult};
    matches!(message, JsonRpcMessage::Response(answer) if matches!(answer.result, InitializeResult(_) | ListToolsResult(_) | CustomResult(_)))
}

impl Long {
    fn push(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        let room = ENDS - self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(room)]);
        let last = &piece[piece.len().saturating_sub(ENDS)..];
        self.tail.extend(last);
        let surplus = self.tail.len().saturating_sub(ENDS);
        drop(self.tail.drain(..surplus));
    }

    fn id(&self) -> Option<RequestId> {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        id_in_head(&self.head).or_else(|| id_in_tail(&tail))
    }
}

impl<R, W> Transport<RoleClient> for Stdio<R, W>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    type Error = io::Error;

    fn name() -> std::borrow::Cow<'static, str> {
        "stdio".into()
    }

    fn send(&mut self, item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (write, observer) = (self.write.clone(), self.observer.clone());
        async move {
            let mut line = serde_json::to_vec(&item)?;
            // Under the lock, so that messages are seen in the order in which they are sent.
            let mut write = write.lock().await;
            let Some(pipe) = &mut *write else {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the connection is closed"));
            };
            observer.message(false, &line);
            line.push(b'\n');
            pipe.write_all(&line).await?;
            pipe.flush().await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Some(message);
            }
            if !self.read_on().await {
                return None;
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        drop(self.write.lock().await.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as Locked;

    use serde_json::Value;

    use super::*;

    #[derive(Default)]
    struct Seen(Locked<Vec<String>>);

    impl Observer for Seen {
        fn message(&self, received: bool, text: &[u8]) {
            self.0.lock().unwrap().push(format!("{received} {}", String::from_utf8_lossy(text)));
        }
        fn rich(&self, text: &[u8]) {
            self.0.lock().unwrap().push(format!("rich {}", text.len()));
        }
        fn skipped(&self, line: &[u8]) {
            self.0.lock().unwrap().push(format!("skipped {}", String::from_utf8_lossy(line)));
        }
        fn mended(&self, note: &'static str) {
            self.0.lock().unwrap().push(format!("mended {note}"));
        }
        fn dropped(&self, bytes: u64, id: Option<&RequestId>) {
            self.0.lock().unwrap().push(format!("dropped {bytes} {id:?}"));
        }
    }

    async fn all(input: &[u8], cap: usize) -> (Vec<Value>, Vec<String>) {
        let seen = Arc::new(Seen::default());
        let mut stdio = Stdio::new(std::io::Cursor::new(input.to_vec()), tokio::io::sink(), seen.clone());
        stdio.cap = cap;
        let mut messages = Vec::new();
        while let Some(message) = stdio.receive().await {
            messages.push(serde_json::to_value(&message).unwrap());
        }
        let seen = seen.0.lock().unwrap().clone();
        (messages, seen)
    }

    #[tokio::test]
    async fn noise_is_skipped_and_told_and_messages_pass() {
        let input = b"\xEF\xBB\xBFhello there\n{\"level\":\"info\"}\n42\n\n  \n[1,2]\n{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n[{\"jsonrpc\":\"2.0\",\"method\":\"notifications/x\"},{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{\"tools\":[]}}]\nhalf a li";
        let (messages, seen) = all(input, LINE).await;
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert_eq!((messages[0]["id"].clone(), messages[2]["id"].clone()), (1.into(), "a".into()));
        let skipped: Vec<&String> = seen.iter().filter(|line| line.starts_with("skipped")).collect();
        assert_eq!(skipped, ["skipped hello there", "skipped {\"level\":\"info\"}", "skipped 42", "skipped [1,2]"]);
        assert_eq!(seen.iter().filter(|line| line.starts_with("true")).count(), 2);
    }

    #[tokio::test]
    async fn an_answer_out_of_shape_ends_its_own_request() {
        let (messages, _) = all(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"error\":\"broken\"}\n{\"jsonrpc\":\"2.0\",\"id\":8}\n", LINE).await;
        let ends: Vec<_> =
            messages.iter().map(|message| (message["id"].as_i64().unwrap(), message["error"]["code"].as_i64().unwrap())).collect();
        assert_eq!(ends, [(7, -32000), (8, -32603)]);
    }

    #[tokio::test]
    async fn a_long_line_is_dropped_in_bounded_memory_and_names_its_request() {
        let filler = "x".repeat(20_000);
        for (line, id) in [
            (format!("{{\"jsonrpc\":\"2.0\",\"id\":5,\"result\":{{\"a\":\"{filler}\"}}}}"), Some("Number(5)")),
            (format!("{{\"result\": {{\"a\": \"{filler}\"}}, \"jsonrpc\": \"2.0\", \"id\": \"abc\"}}"), Some("String(\"abc\")")),
            (format!("{{\"result\":{{\"a\":\"{filler}\"}},\"id\":9,\"jsonrpc\":\"2.0\"}} "), Some("Number(9)")),
            (format!("{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"id\":5,\"params\":{{\"a\":\"{filler}\"}}}}"), None),
            (format!("{{\"result\":{{\"a\":\"{filler}\",\"id\":3}}}}"), None),
            (filler.clone(), None),
        ] {
            let (messages, seen) = all(format!("{line}\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{}}}}\n").as_bytes(), 10_000).await;
            let wanted = id.map_or_else(|| "None".to_owned(), |id| format!("Some({id})"));
            assert_eq!(seen[0], format!("dropped {} {wanted}", line.len()));
            assert_eq!(messages.len(), 1 + usize::from(id.is_some()), "what follows is read");
            assert!(id.is_none() || messages[0]["error"]["message"].as_str().unwrap().contains("bytes on one line"));
        }
    }

    #[tokio::test]
    async fn the_rest_of_a_long_line_is_never_kept() {
        let mut long = Long { head: Vec::new(), tail: VecDeque::new(), bytes: 0 };
        for _ in 0..1000 {
            long.push(&[b'y'; 8192]);
        }
        assert_eq!((long.head.len(), long.tail.len(), long.bytes), (ENDS, ENDS, 8_192_000));
        assert!(long.tail.capacity() <= 4 * ENDS);
    }

    #[tokio::test]
    async fn messages_are_sent_as_lines_until_closed() {
        let (ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let mut stdio = Stdio::new(tokio::io::empty(), ours, Arc::new(Seen::default()));
        let message = || JsonRpcMessage::error(ErrorData::new(UNREADABLE, "no", None), Some(RequestId::Number(1)));
        stdio.send(message()).await.unwrap();
        stdio.close().await.unwrap();
        assert_eq!(stdio.send(message()).await.unwrap_err().kind(), io::ErrorKind::NotConnected);
        let mut text = String::new();
        let _ = tokio::io::AsyncReadExt::read_to_string(&mut theirs, &mut text).await.unwrap();
        assert!(text.ends_with("}\n") && text.matches('\n').count() == 1 && text.contains("\"id\":1"), "{text}");
    }
}
