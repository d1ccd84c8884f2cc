//! The tool loop against a scripted model and tools that note what happens to them.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handrail_engine::approval::{Decision, Gate, GatedTool, Permit};
use handrail_engine::conversation::{Attachment, CallRecord, CallState, ConversationId, DocumentId, Message, Part, Role, Status};
use handrail_engine::provider::scripted::{Scripted, Step};
use handrail_engine::provider::{self, Capabilities, ChatMessage, Delta, Provider, ToolChoice, ToolSupport};
use handrail_engine::rag::Library;
use handrail_engine::settings::Settings;
use handrail_engine::store::{Recorded, Store};
use handrail_engine::tool::{self, CallResult, Control, Definition, Progress, Tool};
use handrail_engine::turn::{Ended, Event, Input, Options, Outcome, Runner};
use serde_json::{Value, json};
use sipper::Sipper;

/// What a probe does when it is called.
#[derive(Clone, Copy, Debug)]
enum Does {
    Answer,
    Fail,
    Hang,
    Wait(Duration),
    /// As `Wait`, and it keeps its own time.
    Patient(Duration),
    Report,
    Panic,
}

/// A tool that notes its calls.
#[derive(Debug)]
struct Probe {
    definition: Arc<Definition>,
    does: Does,
    ran: Arc<Mutex<Vec<Value>>>,
    ended_early: Arc<AtomicUsize>,
}

/// Notes a call whose future was dropped before its end.
struct Early(Option<Arc<AtomicUsize>>);

impl Early {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        if let Some(count) = self.0.take() {
            let _ = count.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Tool<Permit> for Probe {
    fn definition(&self) -> &Arc<Definition> {
        &self.definition
    }

    fn keeps_time(&self) -> bool {
        matches!(self.does, Does::Patient(_))
    }

    fn call(&self, permit: Permit, control: Control) -> BoxFuture<'static, Result<CallResult, tool::Error>> {
        let (definition, does, ran) = (Arc::clone(&self.definition), self.does, Arc::clone(&self.ran));
        let early = Early(Some(Arc::clone(&self.ended_early)));
        async move {
            let arguments = permit.spend_for(&definition.id)?;
            ran.lock().unwrap().push(arguments.clone());
            let result = match does {
                Does::Answer => Ok(CallResult::text(format!("{} of {arguments}", definition.id.name))),
                Does::Fail => Ok(CallResult { is_error: true, ..CallResult::text("no such file") }),
                Does::Panic => panic!("a fault inside a tool"),
                Does::Hang => std::future::pending().await,
                Does::Wait(time) | Does::Patient(time) => {
                    tokio::time::sleep(time).await;
                    Ok(CallResult::text(format!("{} after {time:?}", definition.id.name)))
                }
                Does::Report => {
                    for done in 1..=3 {
                        let report = Progress { done: f64::from(done), total: Some(3.0), message: None };
                        control.progress.as_ref().unwrap().send(report).unwrap();
                        tokio::time::sleep(Duration::from_secs(20)).await;
                    }
                    Ok(CallResult::text("all done"))
                }
            };
            early.disarm();
            result
        }
        .boxed()
    }
}

fn probe(server: &str, name: &str, does: Does, description: &str) -> Arc<Probe> {
    let schema = json!({
        "type": "object",
        "properties": { "path": { "type": "string" }, "n": { "type": "integer" } },
        "required": ["path"],
        "additionalProperties": false,
    });
    let definition = Arc::new(Definition::new(server.into(), name, None, description, schema, None, None));
    Arc::new(Probe { definition, does, ran: Arc::default(), ended_early: Arc::default() })
}

fn reader() -> Arc<Probe> {
    probe("files", "read_file", Does::Answer, "Reads a file.")
}

/// A runner over probes, and what a person would answer.
struct Bench {
    runner: Runner,
    conversation: ConversationId,
    _folder: tempfile::TempDir,
    database: PathBuf,
}

impl Bench {
    fn new(tools: &[Arc<Probe>]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("handrail.db");
        let store = Store::open(&database).unwrap();
        let conversation = store.new_conversation().unwrap().id;
        let library = Library::new(store.clone(), PathBuf::from("no-worker"), folder.path().join("index"));
        let tools: Vec<Arc<GatedTool>> = tools.iter().map(|tool| Arc::clone(tool) as Arc<GatedTool>).collect();
        let gate = Gate::new(store.clone());
        let runner = Runner { store, gate, library, tools: Arc::new(move || tools.clone()), settings: Settings::default() };
        Self { runner, conversation, _folder: folder, database }
    }

    /// Runs a turn; each question at the gate takes the next decision.
    async fn turn(&self, model: &Scripted, text: &str, decisions: &[Decision]) -> (Outcome, Vec<Event>) {
        self.turn_with(model, Input { text: text.to_owned(), ..Input::default() }, decisions).await
    }

    async fn turn_with(&self, model: &Scripted, input: Input, decisions: &[Decision]) -> (Outcome, Vec<Event>) {
        let mut decisions: VecDeque<Decision> = decisions.iter().copied().collect();
        let mut turn = self.runner.run(Arc::new(model.clone()), self.conversation, input).pin();
        let mut events = Vec::new();
        while let Some(event) = turn.sip().await {
            if let Event::Approval { call, .. } = &event {
                let decision = decisions.pop_front().expect("asked more often than expected");
                self.runner.gate.decide(call, decision).unwrap();
            }
            events.push(event);
        }
        assert!(decisions.is_empty(), "asked less often than expected: {decisions:?} are left");
        let outcome = turn.await.unwrap();
        assert!(matches!(events.first(), Some(Event::Started { .. })));
        assert_eq!(events.last(), Some(&Event::Finished { message: outcome.message, reason: outcome.ended.clone() }));
        assert!(self.messages().iter().all(|message| message.status != Status::Streaming));
        (outcome, events)
    }

    /// Runs a turn until an event fits, then drops it: Stop.
    async fn stop_at(&self, model: &Scripted, fits: impl Fn(&Event) -> bool) {
        let input = Input { text: "read /tmp/a".to_owned(), ..Input::default() };
        let mut turn = self.runner.run(Arc::new(model.clone()), self.conversation, input).pin();
        while let Some(event) = turn.sip().await {
            if fits(&event) {
                drop(turn);
                return;
            }
        }
        panic!("the turn ended before it could be stopped");
    }

    fn messages(&self) -> Vec<Message> {
        self.runner.store.messages(self.conversation).unwrap()
    }

    fn records(&self) -> Vec<CallRecord> {
        records(&self.messages())
    }
}

fn records(messages: &[Message]) -> Vec<CallRecord> {
    let parts = messages.iter().flat_map(|message| message.parts.clone());
    parts.filter_map(|part| if let Part::Call(record) = part { Some(record) } else { None }).collect()
}

fn results(model: &Scripted, request: usize) -> Vec<String> {
    let messages = model.requests()[request].messages.clone();
    messages.into_iter().filter_map(|message| if let ChatMessage::Tool { text, .. } = message { Some(text) } else { None }).collect()
}

fn answered(outcome: &Outcome) -> bool {
    matches!(outcome.ended, Ended::Answered { .. })
}

const READ: (&str, &str) = ("read_file", r#"{"path": "/tmp/a"}"#);

#[tokio::test]
async fn text_streams_and_is_stored_with_its_title() {
    let bench = Bench::new(&[]);
    let pieces = ["Hel", "lo ", "there."].map(|piece| Step::Emit(Delta::Text(piece.to_owned())));
    let mut steps =
        vec![Step::Emit(Delta::Reasoning("a greeting".to_owned())), Step::Emit(Delta::Prefill { done: 9, total: 9, reused: 4 })];
    steps.extend(pieces.into_iter().flat_map(|piece| [piece, Step::Wait(Duration::from_millis(50))]));
    let (outcome, events) = bench.turn(&Scripted::new().answer(steps), "Hi!", &[]).await;
    assert!(answered(&outcome));
    let text: String =
        events.iter().filter_map(|event| if let Event::Text { text, .. } = event { Some(text.as_str()) } else { None }).collect();
    assert_eq!(text, "Hello there.");
    assert!(events.contains(&Event::Prefill { done: 9, total: 9, reused: 4 }));
    assert!(events.iter().any(|event| matches!(event, Event::Usage { .. })));
    let messages = bench.messages();
    assert_eq!((messages.len(), messages[1].id, messages[1].text()), (2, outcome.message, "Hello there.".to_owned()));
    assert_eq!((messages[1].model.as_deref(), &messages[1].status), (Some("scripted"), &Status::Complete));
    assert_eq!(bench.runner.store.conversation(bench.conversation).unwrap().unwrap().title, "Hi!");
}

#[tokio::test(start_paused = true)]
async fn events_come_at_most_thirty_times_a_second_and_lose_nothing() {
    let bench = Bench::new(&[]);
    let steps = (0..1000).flat_map(|_| [Step::Emit(Delta::Text("x".to_owned())), Step::Wait(Duration::from_millis(1))]);
    let (_, events) = bench.turn(&Scripted::new().answer(steps.collect()), "Hi!", &[]).await;
    let texts: Vec<usize> =
        events.iter().filter_map(|event| if let Event::Text { text, .. } = event { Some(text.len()) } else { None }).collect();
    assert_eq!(texts.iter().sum::<usize>(), 1000);
    assert!((20..=65).contains(&texts.len()), "{} events", texts.len());
}

#[tokio::test]
async fn an_allowed_call_runs_once_and_its_result_goes_back() {
    let read = reader();
    let bench = Bench::new(&[Arc::clone(&read)]);
    let model = Scripted::new().calls(READ.0, READ.1).says("It says hello.");
    let (outcome, events) = bench.turn(&model, "read /tmp/a", &[Decision::AllowOnce]).await;
    assert!(answered(&outcome));
    assert_eq!(*read.ran.lock().unwrap(), [json!({"path": "/tmp/a"})]);
    assert_eq!(results(&model, 1), [r#"read_file of {"path":"/tmp/a"}"#]);
    let states: Vec<&'static str> = events
        .iter()
        .filter_map(|event| if let Event::ToolCall { record, .. } = event { Some(word(&record.state)) } else { None })
        .collect();
    assert_eq!(states, ["proposed", "approved", "sent", "done"]);
    assert!(matches!(&bench.records()[0].state, CallState::Done { by, .. } if by == "you allowed it once"));
    let recorded: Vec<Recorded> = bench.runner.store.ledger().map(|row| row.unwrap().recorded).collect();
    assert!(
        matches!(&recorded[..], [Recorded::Decided { allowed: true, .. }, Recorded::Ended { outcome, .. }] if outcome == "done"),
        "{recorded:?}"
    );
    assert_eq!(bench.runner.store.ledger().next().unwrap().unwrap().asked_by, "scripted");
}

fn word(state: &CallState) -> &'static str {
    match state {
        CallState::Proposed => "proposed",
        CallState::Approved { .. } => "approved",
        CallState::Sent { .. } => "sent",
        CallState::Done { .. } => "done",
        CallState::Denied { .. } => "denied",
        CallState::Failed { .. } => "failed",
        CallState::Stopped => "stopped",
        CallState::Unknown => "unknown",
    }
}

#[tokio::test]
async fn a_denied_call_does_not_run_and_the_model_is_told() {
    let read = reader();
    let bench = Bench::new(&[Arc::clone(&read)]);
    let model = Scripted::new().calls(READ.0, READ.1).says("Then I cannot know.");
    let (outcome, _) = bench.turn(&model, "read /tmp/a", &[Decision::Deny]).await;
    assert!(answered(&outcome) && read.ran.lock().unwrap().is_empty());
    assert!(results(&model, 1)[0].contains("did not allow"), "{:?}", results(&model, 1));
    assert_eq!(word(&bench.records()[0].state), "denied");
}

#[tokio::test]
async fn what_is_allowed_in_a_conversation_is_asked_about_in_another() {
    let read = reader();
    let mut bench = Bench::new(&[Arc::clone(&read)]);
    let model = Scripted::new().calls(READ.0, READ.1).calls(READ.0, r#"{"path": "/tmp/b"}"#).says("Both.");
    let _ = bench.turn(&model, "read both", &[Decision::AllowInConversation]).await;
    let model = Scripted::new().calls(READ.0, READ.1).says("Again.");
    let _ = bench.turn(&model, "again", &[]).await;
    assert_eq!(read.ran.lock().unwrap().len(), 3);
    bench.conversation = bench.runner.store.new_conversation().unwrap().id;
    let model = Scripted::new().calls(READ.0, READ.1).says("No.");
    let _ = bench.turn(&model, "elsewhere", &[Decision::Deny]).await;
    assert_eq!(read.ran.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_tool_that_is_always_allowed_is_asked_about_when_its_definition_changes() {
    let mut bench = Bench::new(&[reader()]);
    let _ = bench.turn(&Scripted::new().calls(READ.0, READ.1).says("1"), "read", &[Decision::AlwaysTool]).await;
    let store = Store::open(&bench.database).unwrap();
    bench.runner.gate = Gate::new(store.clone());
    bench.runner.store = store;
    let _ = bench.turn(&Scripted::new().calls(READ.0, READ.1).says("2"), "read", &[]).await;
    let changed = probe("files", "read_file", Does::Answer, "Reads a file and sends it away.");
    let tools: Vec<Arc<GatedTool>> = vec![Arc::clone(&changed) as Arc<GatedTool>];
    bench.runner.tools = Arc::new(move || tools.clone());
    let (_, events) = bench.turn(&Scripted::new().calls(READ.0, READ.1).says("3"), "read", &[Decision::Deny]).await;
    assert!(events.iter().any(|event| matches!(event, Event::Approval { why, .. } if why.contains("changed"))), "{events:?}");
    assert!(changed.ran.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_answer_run_together_and_each_has_one_result_in_order() {
    let slow = probe("a", "slow", Does::Wait(Duration::from_secs(5)), "");
    let quick = probe("a", "quick", Does::Wait(Duration::from_secs(1)), "");
    let refused = probe("a", "refused", Does::Answer, "");
    let bench = Bench::new(&[Arc::clone(&slow), Arc::clone(&quick), Arc::clone(&refused)]);
    let path = r#"{"path": "x"}"#;
    let model = Scripted::new().calls_all(&[("slow", path), ("quick", path), ("made_up", "{}"), ("refused", path)]).says("Done.");
    let begun = tokio::time::Instant::now();
    let (outcome, _) = bench.turn(&model, "all", &[Decision::AllowOnce, Decision::AllowOnce, Decision::Deny]).await;
    assert!(answered(&outcome));
    assert!(begun.elapsed() < Duration::from_millis(5900), "one after the other: {:?}", begun.elapsed());
    let results = results(&model, 1);
    assert_eq!(results.len(), 4);
    for (result, said) in results.iter().zip(["slow after 5s", "quick after 1s", "no tool 'made_up' on offer", "did not allow"]) {
        assert!(result.contains(said), "{results:?}");
    }
    let ChatMessage::Assistant { calls, .. } = &model.requests()[1].messages[2] else { panic!() };
    assert_eq!(calls.iter().map(|call| call.name.as_str()).collect::<Vec<_>>(), ["slow", "quick", "made_up", "refused"]);
}

#[tokio::test]
async fn what_cannot_be_called_never_reaches_the_gate() {
    let read = reader();
    let bench = Bench::new(&[Arc::clone(&read)]);
    let model = Scripted::new()
        .calls(READ.0, r#"{"path": 3}"#)
        .calls(READ.0, r#"{"path": "/tmp/a", "extra": 1}"#)
        .calls(READ.0, r#"{"path": "/tmp"#)
        .calls("rm", "{}")
        .says("I give up.");
    let mut events = bench.runner.gate.subscribe();
    let (outcome, _) = bench.turn(&model, "read", &[]).await;
    assert!(answered(&outcome) && read.ran.lock().unwrap().is_empty());
    assert!(events.try_recv().is_err(), "the gate heard of it");
    let last = results(&model, 4);
    for (result, said) in last.iter().zip(["/path", "extra", "cut off", "these are: read_file"]) {
        assert!(result.contains(said), "{result} lacks {said}");
    }
    assert_eq!(bench.runner.store.ledger().count(), 0);
}

#[tokio::test]
async fn a_tool_that_was_not_offered_is_refused() {
    let (here, there) = (reader(), probe("mail", "send_mail", Does::Answer, ""));
    let bench = Bench::new(&[here, Arc::clone(&there)]);
    let model = Scripted::new().calls("send_mail", r#"{"path": "x"}"#).says("No.");
    let options = Options { servers: Some(vec!["files".into()]), ..Options::default() };
    let (_, events) = bench.turn_with(&model, Input { text: "send".to_owned(), options, ..Input::default() }, &[]).await;
    assert!(events.iter().any(|event| matches!(event, Event::Routed { offered, .. } if offered == &["read_file"])));
    assert!(there.ran.lock().unwrap().is_empty() && results(&model, 1)[0].contains("no tool 'send_mail'"));
}

#[tokio::test]
async fn the_same_call_again_is_nudged_and_then_ends_the_turn() {
    let read = reader();
    let bench = Bench::new(&[Arc::clone(&read)]);
    let spaced = r#" { "path" : "/tmp/a" } "#;
    let model = Scripted::new().calls(READ.0, READ.1).calls(READ.0, spaced).calls(READ.0, READ.1).says("never");
    let (outcome, _) = bench.turn(&model, "read", &[Decision::AllowInConversation]).await;
    assert!(matches!(&outcome.ended, Ended::Limit { reason } if reason.contains("read_file three times")), "{outcome:?}");
    assert_eq!(read.ran.lock().unwrap().len(), 2);
    assert!(!results(&model, 1)[0].contains("same call"));
    assert!(results(&model, 2)[1].contains("same call with the same arguments"));
    assert_eq!(bench.records().iter().map(|record| word(&record.state)).collect::<Vec<_>>(), ["done", "done", "failed"]);
}

#[tokio::test]
async fn the_loop_ends_at_its_limit() {
    let mut bench = Bench::new(&[reader()]);
    bench.runner.settings.turn_steps = 3;
    let model = (0..9).fold(Scripted::new(), |model, n| model.calls(READ.0, &format!(r#"{{"path": "/tmp/{n}"}}"#)));
    let (outcome, _) = bench.turn(&model, "read", &[Decision::AllowInConversation]).await;
    assert!(matches!(&outcome.ended, Ended::Limit { reason } if reason.contains("3 model steps")), "{outcome:?}");
    assert_eq!(model.requests().len(), 3);
}

#[tokio::test]
async fn stop_during_text_keeps_what_was_written() {
    let bench = Bench::new(&[]);
    let steps = vec![Step::Emit(Delta::Text("Once upon".to_owned())), Step::Wait(Duration::from_secs(60))];
    bench.stop_at(&Scripted::new().answer(steps), |event| matches!(event, Event::Text { .. })).await;
    let messages = bench.messages();
    assert_eq!((messages[1].text().as_str(), &messages[1].status), ("Once upon", &Status::Stopped));
}

#[tokio::test]
async fn stop_while_a_call_waits_takes_the_question_back() {
    let read = reader();
    let bench = Bench::new(&[Arc::clone(&read)]);
    bench.stop_at(&Scripted::new().calls(READ.0, READ.1), |event| matches!(event, Event::Approval { .. })).await;
    assert!(bench.runner.gate.pending().is_empty() && read.ran.lock().unwrap().is_empty());
    assert_eq!((&bench.messages()[1].status, word(&bench.records()[0].state)), (&Status::Stopped, "stopped"));
    let recorded: Vec<Recorded> = bench.runner.store.ledger().map(|row| row.unwrap().recorded).collect();
    assert!(matches!(&recorded[..], [Recorded::Decided { allowed: false, by }] if by.contains("stopped")), "{recorded:?}");
}

#[tokio::test]
async fn stop_while_a_tool_runs_ends_the_tool() {
    let hang = probe("files", "read_file", Does::Hang, "");
    let mut bench = Bench::new(&[Arc::clone(&hang)]);
    let _ = bench.turn(&Scripted::new().calls(READ.0, r#"{"path": "/tmp/0"}"#).says("no"), "x", &[Decision::Deny]).await;
    let always = handrail_engine::store::Subject::Tool(hang.definition.id.clone());
    bench.runner.store.put_approval(handrail_engine::store::Scope::Always, &always, handrail_engine::store::Effect::Allow, None).unwrap();
    bench.runner.settings.tool_timeout_seconds = 60;
    let model = Scripted::new().calls(READ.0, READ.1);
    bench.stop_at(&model, |event| matches!(event, Event::ToolCall { record, .. } if word(&record.state) == "sent")).await;
    // The event comes before the tool is called; whether it was is up to the moment of the stop.
    assert_eq!(hang.ran.lock().unwrap().len(), hang.ended_early.load(Ordering::SeqCst));
    assert_eq!(word(&bench.records()[1].state), "stopped");
    let running = {
        let input = Input { text: "again".to_owned(), ..Input::default() };
        let model: Arc<dyn Provider> = Arc::new(Scripted::new().calls(READ.0, READ.1));
        tokio::spawn(async move { bench_run(bench, model, input).await })
    };
    for _ in 0..2000 {
        if !hang.ran.lock().unwrap().is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ran = hang.ran.lock().unwrap().len();
    assert_eq!(ran, 1);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(hang.ended_early.load(Ordering::SeqCst), 1);
}

async fn bench_run(bench: Bench, model: Arc<dyn Provider>, input: Input) {
    let _ = bench.runner.run(model, bench.conversation, input).await;
}

/// The files of a database as a killed process would leave them.
fn as_after_a_kill(database: &std::path::Path) -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["", "-wal"] {
        let name = format!("handrail.db{ending}");
        let _ = std::fs::copy(database.with_file_name(&name), folder.path().join(&name)).unwrap();
    }
    let store = Store::open(&folder.path().join("handrail.db")).unwrap();
    (folder, store)
}

#[tokio::test]
async fn a_kill_at_any_state_leaves_the_truth_and_runs_nothing_again() {
    let read = reader();
    let bench = Bench::new(&[Arc::clone(&read)]);
    let model = Scripted::new().calls(READ.0, READ.1).says("It says hello.");
    let input = Input { text: "read /tmp/a".to_owned(), ..Input::default() };
    let mut turn = bench.runner.run(Arc::new(model), bench.conversation, input).pin();
    let mut found = Vec::new();
    while let Some(event) = turn.sip().await {
        if let Event::Approval { call, .. } = &event {
            bench.runner.gate.decide(call, Decision::AllowOnce).unwrap();
        }
        if let Event::ToolCall { record, .. } = &event {
            let (_folder, store) = as_after_a_kill(&bench.database);
            let messages = store.messages(bench.conversation).unwrap();
            let settled = records(&messages).remove(0);
            assert!(messages.iter().all(|message| message.status != Status::Streaming));
            assert_eq!(store.verify_ledger().unwrap().broken, None);
            // What is said not to have run has not run.
            assert!(word(&settled.state) != "failed" || read.ran.lock().unwrap().is_empty());
            found.push((word(&record.state), word(&settled.state)));
        }
    }
    // A turn may be ahead of its events by a step, never behind them.
    assert!(
        matches!(found[..], [("proposed", "failed"), ("approved", "failed" | "unknown"), ("sent", "unknown" | "done"), ("done", "done")]),
        "{found:?}"
    );
}

#[tokio::test]
async fn a_model_that_fails_keeps_its_text_and_says_why() {
    let bench = Bench::new(&[]);
    let broken = provider::Error::Broken("out of memory".to_owned());
    let steps = vec![Step::Emit(Delta::Text("Half an".to_owned())), Step::Fail(broken)];
    let (outcome, _) = bench.turn(&Scripted::new().answer(steps), "Hi", &[]).await;
    assert!(matches!(&outcome.ended, Ended::Failed { reason } if reason.contains("out of memory")));
    let message = &bench.messages()[1];
    assert_eq!(message.text(), "Half an");
    assert!(matches!(&message.status, Status::Failed { reason } if reason.contains("out of memory")));
    // The next turn goes on from there.
    let model = Scripted::new().says("Here I am again.");
    assert!(answered(&bench.turn(&model, "And now?", &[]).await.0));
    assert_eq!(model.requests()[0].messages.len(), 4);
}

#[tokio::test]
async fn each_request_begins_with_the_one_before() {
    let (read, failing) = (reader(), probe("files", "stat_file", Does::Fail, "Looks at a file."));
    let bench = Bench::new(&[read, failing]);
    let model =
        Scripted::new().calls(READ.0, READ.1).calls("stat_file", READ.1).says("First.").calls(READ.0, r#"{"path": "/b"}"#).says("Second.");
    let _ = bench.turn(&model, "read", &[Decision::AlwaysServer]).await;
    let _ = bench.turn(&model, "and once more", &[]).await;
    let requests = model.requests();
    assert_eq!(requests.len(), 5);
    for pair in requests.windows(2) {
        assert!(pair[1].messages.starts_with(&pair[0].messages) && pair[1].messages.len() > pair[0].messages.len());
        assert_eq!(pair[0].tools, pair[1].tools);
        assert_eq!((&pair[0].cache_key, pair[0].cache_key.as_deref()), (&pair[1].cache_key, Some(bench.conversation.to_string().as_str())));
    }
    assert!(results(&model, 2)[1].contains("reported an error: no such file"));
}

#[tokio::test]
async fn a_long_conversation_is_trimmed_and_says_so() {
    let bench = Bench::new(&[]);
    let small = Capabilities { context: 1200, tools: ToolSupport::Native };
    let mut trimmed = Vec::new();
    for turn in 0..8 {
        let model = Scripted::new().with_capabilities(small).says(&"word ".repeat(100));
        let (outcome, events) = bench.turn(&model, &format!("question {turn} {}", "why ".repeat(100)), &[]).await;
        assert!(answered(&outcome), "{outcome:?}");
        trimmed.extend(events.into_iter().filter_map(|event| if let Event::Trimmed { reason } = event { Some(reason) } else { None }));
        let ChatMessage::User(last) = model.requests()[0].messages.last().unwrap().clone() else { panic!() };
        assert!(last.starts_with(&format!("question {turn}")));
    }
    assert!(trimmed.len() > 2 && trimmed[0].contains("oldest of"), "{trimmed:?}");
    let model = Scripted::new().with_capabilities(small).says("never");
    let (outcome, _) = bench.turn(&model, &"too long ".repeat(1000), &[]).await;
    assert!(matches!(&outcome.ended, Ended::Failed { reason } if reason.contains("context holds 1200")), "{outcome:?}");
    assert!(model.requests().is_empty());
}

#[tokio::test]
async fn a_small_model_is_made_to_call_once_and_then_to_answer() {
    let bench = Bench::new(&[reader(), probe("mail", "send_mail", Does::Answer, "Sends a message.")]);
    let small = |model: Scripted| model.with_capabilities(Capabilities { context: 8192, tools: ToolSupport::Constrained });
    let model = small(Scripted::new().calls(READ.0, READ.1).says("It says hello."));
    let (outcome, events) = bench.turn(&model, "Read the file /tmp/a", &[Decision::AllowOnce]).await;
    assert!(answered(&outcome));
    let requests = model.requests();
    assert_eq!(requests.iter().map(|request| request.tool_choice.clone()).collect::<Vec<_>>(), [ToolChoice::Required, ToolChoice::None]);
    assert_eq!(requests[0].tools.iter().map(|tool| tool.name.as_str()).collect::<Vec<_>>(), ["read_file"]);
    assert_eq!(requests[0].tools, requests[1].tools);
    assert!(events.iter().any(|event| matches!(event, Event::Routed { reason, .. } if reason.contains("asks for read_file"))));
    let model = small(Scripted::new().says("Hello!"));
    let _ = bench.turn(&model, "Hello, how are you?", &[]).await;
    assert!(model.requests()[0].tools.is_empty());
    assert_eq!(model.requests()[0].tool_choice, ToolChoice::None);
}

#[tokio::test]
async fn the_caller_may_name_a_tool_or_switch_tools_off() {
    let bench = Bench::new(&[reader(), probe("mail", "send_mail", Does::Answer, "")]);
    let input = |tool_choice| Input { text: "go".to_owned(), options: Options { tool_choice, ..Options::default() }, ..Input::default() };
    let model = Scripted::new().calls(READ.0, READ.1).says("ok");
    let _ = bench.turn_with(&model, input(ToolChoice::Named("read_file".to_owned())), &[Decision::AllowOnce]).await;
    let choices: Vec<ToolChoice> = model.requests().iter().map(|request| request.tool_choice.clone()).collect();
    assert_eq!(choices, [ToolChoice::Named("read_file".to_owned()), ToolChoice::Auto]);
    let model = Scripted::new().says("ok");
    let _ = bench.turn_with(&model, input(ToolChoice::None), &[]).await;
    assert!(model.requests()[0].tools.is_empty());
    let (outcome, _) = bench.turn_with(&Scripted::new(), input(ToolChoice::Named("nothing".to_owned())), &[]).await;
    assert!(matches!(outcome.ended, Ended::Failed { reason } if reason.contains("no tool 'nothing'")));
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_times_out_and_progress_keeps_one_alive() {
    let (hang, report) = (probe("a", "hang", Does::Hang, ""), probe("a", "report", Does::Report, ""));
    let bench = Bench::new(&[Arc::clone(&hang), report]);
    let path = r#"{"path": "x"}"#;
    let model = Scripted::new().calls_all(&[("hang", path), ("report", path)]).says("Well.");
    let (outcome, events) = bench.turn(&model, "go", &[Decision::AllowOnce, Decision::AllowOnce]).await;
    assert!(answered(&outcome));
    let results = results(&model, 1);
    assert!(results[0].contains("no answer within 30s") && results[1] == "all done", "{results:?}");
    assert_eq!(hang.ended_early.load(Ordering::SeqCst), 1);
    let done: Vec<f64> =
        events.iter().filter_map(|event| if let Event::ToolProgress { done, .. } = event { Some(*done) } else { None }).collect();
    assert_eq!(done, [1.0, 2.0, 3.0]);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_keeps_its_own_time_may_wait_for_a_person() {
    let hour = Duration::from_secs(3600);
    let bench = Bench::new(&[probe("a", "ask", Does::Patient(hour), ""), probe("a", "slow", Does::Wait(hour), "")]);
    let path = r#"{"path": "x"}"#;
    let model = Scripted::new().calls_all(&[("ask", path), ("slow", path)]).says("Well.");
    let (outcome, _) = bench.turn(&model, "go", &[Decision::AllowOnce, Decision::AllowOnce]).await;
    assert!(answered(&outcome));
    let results = results(&model, 1);
    assert!(results[0].contains("ask after 3600s") && results[1].contains("no answer within 30s"), "{results:?}");
}

#[tokio::test]
async fn a_tool_that_breaks_down_is_one_failed_call() {
    let bench = Bench::new(&[probe("a", "broken", Does::Panic, ""), reader()]);
    let model = Scripted::new().calls_all(&[("broken", READ.1), READ]).says("One of them.");
    let (outcome, _) = bench.turn(&model, "go", &[Decision::AllowOnce, Decision::AllowOnce]).await;
    assert!(answered(&outcome));
    let results = results(&model, 1);
    assert!(results[0].contains("broke down") && results[1].contains("/tmp/a"), "{results:?}");
}

/// A search that finds nothing, or cannot search at all, is said and stops nothing.
#[tokio::test]
async fn documents_of_the_conversation_are_searched_and_a_miss_is_no_failure() {
    let bench = Bench::new(&[]);
    let attachment = Attachment { document: DocumentId::fresh(), name: "a.pdf".to_owned(), bytes: 10 };
    let model = Scripted::new().says("I see [1].").says("Still.");
    let input = Input { text: "What does it say?".to_owned(), attachments: vec![attachment.clone()], ..Input::default() };
    let (outcome, events) = bench.turn_with(&model, input, &[]).await;
    assert!(answered(&outcome));
    assert!(events.iter().any(|event| matches!(event, Event::Retrieved { passages, .. } if passages.is_empty())));
    assert!(!events.iter().any(|event| matches!(event, Event::Cited { .. })), "there is no passage to cite");
    assert!(bench.messages()[0].parts.contains(&Part::Attachment(attachment)));
    let (_, events) = bench.turn(&model, "And now?", &[]).await;
    assert!(events.iter().any(|event| matches!(event, Event::Retrieved { .. })), "earlier attachments count");
}

#[tokio::test]
async fn a_turn_in_a_deleted_conversation_ends_without_bringing_it_back() {
    let read = reader();
    let bench = Bench::new(&[Arc::clone(&read)]);
    let model = Scripted::new().calls(READ.0, READ.1).says("never");
    let input = Input { text: "read".to_owned(), ..Input::default() };
    let mut turn = bench.runner.run(Arc::new(model), bench.conversation, input).pin();
    while let Some(event) = turn.sip().await {
        if let Event::Approval { .. } = event {
            bench.runner.gate.forget(bench.conversation);
            bench.runner.store.delete_conversation(bench.conversation).unwrap();
        }
    }
    assert!(turn.await.is_err());
    assert!(read.ran.lock().unwrap().is_empty());
    assert!(bench.runner.store.conversations().unwrap().is_empty());
    assert_eq!(bench.messages().iter().filter(|message| message.role == Role::Assistant).count(), 0);
}
