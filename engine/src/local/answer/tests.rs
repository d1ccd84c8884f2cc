use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::local::memory::CHUNK;
use crate::local::{chat, test_model};
use crate::provider::{ChatMessage, Sampling};

/// Listens inside the send of each delta, on the thread of the model, so that a cancel comes at an exact token.
struct Ear {
    deltas: Mutex<UnboundedReceiver<Result<Delta, Error>>>,
    heard: Mutex<Vec<Delta>>,
    cancel: CancellationToken,
    /// Says of what was heard whether it is time to cancel.
    enough: fn(&[Delta]) -> bool,
}

impl Ear {
    fn listen(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut deltas = self.deltas.lock().unwrap();
        while let Poll::Ready(Some(delta)) = deltas.poll_recv(&mut Context::from_waker(&waker)) {
            let mut heard = self.heard.lock().unwrap();
            heard.push(delta.unwrap());
            if (self.enough)(&heard) {
                self.cancel.cancel();
            }
        }
    }
}

impl Wake for Ear {
    fn wake(self: Arc<Self>) {
        self.listen();
    }
}

/// What a request sends where it is cancelled as soon as `enough` says so.
fn cancelled_when(request: Request, enough: fn(&[Delta]) -> bool) -> (Vec<Delta>, Memory) {
    let model = chat::model(&test_model::path(), &super::super::template::TemplateChoice::Own).unwrap();
    let mut memory = Memory::new(&model.decoder).unwrap();
    let (sender, deltas) = mpsc::unbounded_channel();
    let cancel = CancellationToken::new();
    let ear = Arc::new(Ear { deltas: Mutex::new(deltas), heard: Mutex::default(), cancel: cancel.clone(), enough });
    if enough(&[]) {
        cancel.cancel();
    }
    let job = Job { request, out: Outlet { deltas: sender, cancel }, started: Arc::new(AtomicBool::new(true)), asked: Instant::now() };
    ear.listen();
    answer(&model, &mut memory, &job).unwrap();
    assert!(job.out.is_stopped() && job.started.load(Ordering::Relaxed));
    let heard = std::mem::take(&mut *ear.heard.lock().unwrap());
    (heard, memory)
}

fn says(text: &str) -> Request {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    Request { messages: vec![ChatMessage::User(text.to_owned())], sampling, max_tokens: Some(60), ..Request::default() }
}

fn texts(heard: &[Delta]) -> usize {
    heard.iter().filter(|delta| matches!(delta, Delta::Text(_))).count()
}

#[test]
fn a_cancel_while_it_writes_ends_before_the_next_token() {
    let (heard, memory) = cancelled_when(says("Count from one to one thousand."), |heard| texts(heard) >= 3);
    assert_eq!(texts(&heard), 3, "{heard:?}");
    let Some(Delta::Finished { reason: Finish::Cancelled, usage }) = heard.last() else { panic!("{heard:?}") };
    let written = usage.completion_tokens;
    // Tokens and texts may differ by one that was held back; none was read behind the cancel.
    assert!((3..=4).contains(&written), "{usage:?}");
    assert_eq!(memory.tokens().len(), usage.prompt_tokens + written - 1);
}

#[test]
fn a_cancel_while_it_reads_ends_within_a_chunk() {
    let read = |heard: &[Delta]| heard.iter().any(|delta| matches!(delta, Delta::Prefill { done, .. } if *done >= CHUNK));
    let (heard, memory) = cancelled_when(says(&"word ".repeat(1_000)), read);
    let done: Vec<usize> = heard.iter().filter_map(|d| if let Delta::Prefill { done, .. } = d { Some(*done) } else { None }).collect();
    assert_eq!(done, [0, CHUNK], "{heard:?}");
    assert!(matches!(heard.last(), Some(Delta::Finished { reason: Finish::Cancelled, .. })), "{heard:?}");
    assert_eq!((texts(&heard), memory.tokens().len()), (0, CHUNK));
}

#[test]
fn a_cancel_before_a_demanded_call_builds_no_grammar() {
    let tool = ToolSpec { name: "t".to_owned(), description: String::new(), parameters: serde_json::json!({ "type": "object" }) };
    let request = Request { tools: vec![tool], tool_choice: ToolChoice::Required, ..says("Hi") };
    let (heard, memory) = cancelled_when(request, |_| true);
    assert!(matches!(&heard[..], [Delta::Finished { reason: Finish::Cancelled, .. }]), "{heard:?}");
    assert!(memory.tokens().is_empty());
}
