//! The whole client surface of MCP through the manager and the gate: against real servers, and against a mock for what
//! those will not do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use handrail_engine::approval::{self, Decision, Gate, GatedTool, Permit};
use handrail_engine::conversation::ConversationId;
use handrail_engine::mcp::offer::Completable;
use handrail_engine::mcp::question::{Answer, Ask, fields};
use handrail_engine::mcp::{self, Era, Manager, Question, Sample, SampleRequest, Sampler};
use handrail_engine::store::Store;
use handrail_engine::tool::{self, Call, CallId, CallResult, Content, Control};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;

/// Generous: the machine that runs this may be busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

struct Bench {
    folder: tempfile::TempDir,
    gate: Gate,
    conversation: ConversationId,
    manager: Manager,
}

impl Bench {
    fn new() -> Self {
        let (folder, store) = (tempfile::tempdir().unwrap(), Store::in_memory().unwrap());
        let options = mcp::Options { consent: mcp::consent::Policy::Trust, ..mcp::Options::default() };
        let manager = Manager::with(folder.path().join("mcp_config.json"), store.clone(), options);
        let conversation = store.new_conversation().unwrap().id;
        Self { folder, gate: Gate::new(store), conversation, manager }
    }

    async fn add(&self, name: &str, entry: Value) -> mcp::ServerView {
        let _ = self.manager.paste(&json!({ "mcpServers": { name: entry } }).to_string()).unwrap();
        self.manager.ready(&name.into(), PATIENCE).await.unwrap()
    }

    /// The mock in both eras, as "old" and "new", with the files that hold what they received.
    async fn both(&self, more: Value) -> [(&'static str, PathBuf); 2] {
        let mut servers = Vec::new();
        for (name, modern) in [("old", false), ("new", true)] {
            let log = self.folder.path().join(name);
            let mut options = json!({ "modern": modern, "log": log });
            options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let view = self.add(name, mock(&options)).await;
            assert_eq!(view.era, Some(if modern { Era::Modern } else { Era::Legacy }));
            servers.push((name, log));
        }
        servers.try_into().unwrap()
    }

    fn view(&self, server: &str) -> mcp::ServerView {
        self.manager.servers().into_iter().find(|view| view.id.as_str() == server).unwrap()
    }

    fn tool(&self, server: &str, name: &str) -> Arc<GatedTool> {
        let found = self.manager.tools().into_iter().find(|tool| {
            let id = &tool.definition().id;
            id.server.as_str() == server && id.name == name
        });
        found.unwrap_or_else(|| panic!("no tool {name} at {server}"))
    }

    async fn permit(&self, tool: &Arc<GatedTool>, arguments: Value) -> Permit {
        let definition = tool.definition().clone();
        let call = Call { id: CallId::fresh(), tool: definition.id.clone(), alias: definition.id.name.clone(), arguments };
        let (mut events, cancel, id) = (self.gate.subscribe(), CancellationToken::new(), call.id.clone());
        let deciding = async {
            loop {
                if let Ok(approval::Event::Asked(request)) = events.recv().await
                    && request.call.id == id
                {
                    return self.gate.decide(&request.call.id, Decision::AllowOnce).unwrap();
                }
            }
        };
        let (permit, ()) = tokio::join!(self.gate.admit(&call, &definition, self.conversation, &cancel), deciding);
        permit.unwrap()
    }

    async fn call_with(&self, server: &str, name: &str, arguments: Value, control: Control) -> Result<CallResult, tool::Error> {
        let tool = self.tool(server, name);
        let permit = self.permit(&tool, arguments).await;
        tool.call(permit, control).await
    }

    async fn call(&self, server: &str, name: &str) -> Result<CallResult, tool::Error> {
        self.call_with(server, name, json!({}), control(20)).await
    }

    /// A call, and what answers the questions that come up in it, in order.
    async fn answered(
        &self,
        server: &str,
        name: &str,
        arguments: Value,
        answers: Vec<Answer>,
    ) -> (Result<CallResult, tool::Error>, Vec<Question>) {
        let mut events = self.manager.subscribe();
        let answering = async {
            let mut asked = Vec::new();
            for answer in answers {
                let question = next_question(&mut events).await;
                assert!(self.manager.answer(question.id, answer).unwrap());
                asked.push(question);
            }
            asked
        };
        tokio::join!(self.call_with(server, name, arguments, control(20)), answering)
    }
}

fn control(seconds: u64) -> Control {
    Control { cancel: CancellationToken::new(), timeout: Duration::from_secs(seconds), progress: None }
}

fn mock(options: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_surface_mock.py");
    json!({ "command": "python3", "args": ["-u", script, options.to_string()] })
}

fn npm(name: &str) -> PathBuf {
    let cache = directories::BaseDirs::new().unwrap().cache_dir().join("handrail/test-servers");
    let path = cache.join(format!("npm/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
    assert!(path.exists(), "{} is missing; the project's test command installs the test servers there", path.display());
    path
}

fn everything() -> Value {
    json!({ "command": "node", "args": [npm("everything"), "stdio"] })
}

async fn next_question(events: &mut broadcast::Receiver<mcp::Event>) -> Question {
    next(events, |event| match event {
        mcp::Event::Asked(question) => Some(*question),
        _ => None,
    })
    .await
}

async fn next<T>(events: &mut broadcast::Receiver<mcp::Event>, wanted: impl Fn(mcp::Event) -> Option<T>) -> T {
    let waiting = async {
        loop {
            match events.recv().await {
                Ok(event) => {
                    if let Some(found) = wanted(event) {
                        return found;
                    }
                }
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => panic!("the manager is gone"),
            }
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap()
}

async fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < PATIENCE, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn received(log: &Path, method: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    // The last line may be half written.
    text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).filter(|message| message["method"] == method).collect()
}

fn accept(value: Value) -> Answer {
    Answer::Accept(value.as_object().unwrap().clone())
}

fn parsed(result: &CallResult) -> Value {
    serde_json::from_str(&result.to_text()).unwrap_or_else(|error| panic!("{error}: {result:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_servers_prompts_resources_templates_and_completions() {
    let bench = Bench::new();
    let view = bench.add("e", everything()).await;
    assert!(view.offers.prompts && view.offers.resources && view.offers.completions && view.offers.logging && view.offers.tasks);
    let server = "e".into();

    let prompts = bench.manager.prompts(&server).await.unwrap();
    let with_arguments = prompts.iter().find(|prompt| prompt.name == "args-prompt").unwrap();
    let arguments: Vec<(&str, bool)> =
        with_arguments.arguments.iter().map(|argument| (argument.name.as_str(), argument.required)).collect();
    assert_eq!(arguments, [("city", true), ("state", false)]);
    let given = BTreeMap::from([("city".to_owned(), "Oslo".to_owned())]);
    let messages = bench.manager.prompt(&server, "args-prompt", given).await.unwrap();
    assert!(matches!(&messages[0].content, Content::Text { text } if text.contains("Oslo")) && !messages[0].assistant, "{messages:?}");
    let error = bench.manager.prompt(&server, "args-prompt", BTreeMap::new()).await.unwrap_err().to_string();
    assert!(error.starts_with("server 'e':") && error.contains("city"), "{error}");

    let (resources, templates) = bench.manager.resources(&server).await.unwrap();
    assert!(!resources.is_empty() && templates.iter().any(|template| template.uri.contains("{resourceId}")), "{resources:?} {templates:?}");
    let content = bench.manager.read_resource(&server, &resources[0].uri).await.unwrap();
    assert!(matches!(&content[0], Content::Resource { text: Some(text), .. } if !text.is_empty()), "{content:?}");
    let blob = bench.manager.read_resource(&server, "demo://resource/dynamic/blob/1").await.unwrap();
    assert!(matches!(&blob[0], Content::Resource { name: Some(name), text: None, .. } if name.contains("bytes")), "{blob:?}");
    assert!(bench.manager.read_resource(&server, "demo://nowhere").await.is_err());

    let prompt = Completable::Prompt("completable-prompt".to_owned());
    let departments = bench.manager.complete(&server, &prompt, "department", "S", BTreeMap::new()).await.unwrap();
    assert_eq!(departments, ["Sales", "Support"]);
    let others = BTreeMap::from([("department".to_owned(), "Sales".to_owned())]);
    assert_eq!(bench.manager.complete(&server, &prompt, "name", "", others).await.unwrap(), ["David", "Eve", "Frank"]);
    let template = Completable::Template("demo://resource/dynamic/text/{resourceId}".to_owned());
    assert_eq!(bench.manager.complete(&server, &template, "resourceId", "7", BTreeMap::new()).await.unwrap(), ["7"]);

    bench.manager.set_log_level(&server, "debug").await.unwrap();
    assert!(bench.manager.set_log_level(&server, "shout").await.is_err());
    let _ = bench.call("e", "toggle-simulated-logging").await.unwrap();
    eventually("a log message", || {
        let lines = bench.manager.log(&server, 100).unwrap();
        lines.iter().any(|line| line.level.is_some() && line.text.contains("message"))
    })
    .await;
    assert!(matches!(bench.manager.prompts(&"nobody".into()).await, Err(mcp::Error::Unknown(_))));
    bench.manager.stop(&server).await.unwrap();
    assert!(bench.manager.prompts(&server).await.unwrap_err().to_string().contains("not connected"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_servers_form_is_shown_checked_and_answered_or_declined() {
    let bench = Bench::new();
    let _ = bench.add("e", everything()).await;
    let mut events = bench.manager.subscribe();
    let calling = bench.call_with("e", "trigger-elicitation-request", json!({}), control(20));
    let answering = async {
        let question = next_question(&mut events).await;
        assert_eq!((question.server.as_str(), question.tool.as_deref()), ("e", Some("trigger-elicitation-request")));
        let Ask::Form { schema, .. } = &question.ask else { panic!("{question:?}") };
        let fields = fields(schema);
        assert_eq!((fields[0].name.as_str(), fields[0].required, fields.len() > 8), ("name", true, true), "{fields:?}");
        let wrong = accept(json!({ "name": "Ada", "integer": 1000 }));
        let error = bench.manager.answer(question.id, wrong).unwrap_err().to_string();
        assert!(error.contains("/integer"), "{error}");
        assert_eq!(bench.manager.questions(), std::slice::from_ref(&question), "it stays open");
        assert!(bench.manager.answer(question.id, accept(json!({ "name": "Ada", "integer": 7, "email": "ada@example.org" }))).unwrap());
        assert!(!bench.manager.answer(question.id, Answer::Decline).unwrap(), "only once");
    };
    let (result, ()) = tokio::join!(calling, answering);
    let text = result.unwrap().to_text();
    assert!(text.contains("Ada") && text.contains("ada@example.org"), "{text}");
    assert!(bench.manager.questions().is_empty());

    let (result, _) = bench.answered("e", "trigger-elicitation-request", json!({}), vec![Answer::Decline]).await;
    assert!(result.unwrap().to_text().contains("declined"));
    let (result, _) = bench.answered("e", "trigger-elicitation-request", json!({}), vec![Answer::Cancel]).await;
    assert!(result.unwrap().to_text().contains("cancel"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_has_pages_opened_by_request_and_by_error() {
    let bench = Bench::new();
    let _ = bench.add("e", everything()).await;
    let arguments = json!({ "url": "https://example.org/sign", "message": "Sign here" });
    let (result, asked) = bench.answered("e", "trigger-url-elicitation", arguments.clone(), vec![accept(json!({}))]).await;
    assert!(matches!(&asked[0].ask, Ask::Url { url, message } if url == "https://example.org/sign" && message == "Sign here"), "{asked:?}");
    assert!(!result.unwrap().is_error);
    // The error way: asked for the page, made again once, and asked again by request.
    let arguments = json!({ "url": "https://example.org/other", "errorPath": true, "elicitationId": "x1" });
    let mut events = bench.manager.subscribe();
    let answering = async {
        for _ in 0..2 {
            let question = next_question(&mut events).await;
            assert!(bench.manager.answer(question.id, accept(json!({}))).unwrap());
        }
    };
    let (result, ()) = tokio::join!(bench.call_with("e", "trigger-url-elicitation", arguments, control(2)), answering);
    assert!(!result.unwrap().is_error);
}

#[derive(Debug, Default)]
struct Poet(Mutex<Vec<SampleRequest>>);

impl Sampler for Poet {
    fn sample(&self, request: SampleRequest) -> BoxFuture<'static, Result<Sample, String>> {
        self.0.lock().unwrap().push(request);
        Box::pin(std::future::ready(Ok(Sample { model: "poet".to_owned(), text: "a rose".to_owned(), cut: false })))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sampling_is_offered_only_when_allowed_and_asked_about_each_time() {
    let bench = Bench::new();
    let poet = Arc::new(Poet::default());
    bench.manager.set_sampler(Some(poet.clone()));
    let view = bench.add("e", everything()).await;
    assert!(!view.tools.iter().any(|tool| tool.id.name.contains("sampling")), "off by default");

    bench.manager.set_settings(&mcp::config::Settings { allow_sampling: true, ..bench.manager.settings() }).unwrap();
    bench.manager.restart(&"e".into()).await.unwrap();
    let _ = bench.manager.ready(&"e".into(), PATIENCE).await.unwrap();
    let arguments = json!({ "prompt": "a flower", "maxTokens": 9 });
    let (result, asked) = bench.answered("e", "trigger-sampling-request", arguments.clone(), vec![accept(json!({}))]).await;
    assert!(result.unwrap().to_text().contains("a rose"));
    assert!(matches!(&asked[0].ask, Ask::Sampling { prompt, max_tokens: 9, .. } if prompt.contains("a flower")), "{asked:?}");
    assert_eq!(poet.0.lock().unwrap().len(), 1);
    let (result, _) = bench.answered("e", "trigger-sampling-request", arguments, vec![Answer::Decline]).await;
    assert!(result.is_err() || result.unwrap().is_error);
    assert_eq!(poet.0.lock().unwrap().len(), 1, "the model never heard of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_asked_where_nobody_is() {
    let bench = Bench::new();
    bench.manager.set_attended(false);
    let view = bench.add("e", everything()).await;
    assert!(!view.tools.iter().any(|tool| tool.id.name.contains("elicitation")), "{:?}", view.tools.len());
    let _ = bench.add("old", mock(&json!({}))).await;
    let answer = parsed(&bench.call("old", "ask").await.unwrap());
    assert!(answer["message"].as_str().unwrap().contains("nobody"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn granted_folders_reach_real_servers_and_changes_are_told() {
    let bench = Bench::new();
    let (first, second) = (bench.folder.path().join("first"), bench.folder.path().join("second"));
    for folder in [&first, &second] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("note.txt"), "inside").unwrap();
    }
    let (first, second) = (first.canonicalize().unwrap(), second.canonicalize().unwrap());
    bench.manager.set_roots(vec![first.clone()]).unwrap();
    let _ = bench.add("files", json!({ "command": "node", "args": [npm("filesystem"), "/usr"] })).await;
    let _ = bench.add("e", everything()).await;
    let allowed = async || bench.call("files", "list_allowed_directories").await.unwrap().to_text();
    let read = async |folder: &Path| {
        let arguments = json!({ "path": folder.join("note.txt") });
        bench.call_with("files", "read_text_file", arguments, control(20)).await.unwrap()
    };
    let started = Instant::now();
    while !allowed().await.contains("/first") {
        assert!(started.elapsed() < PATIENCE);
    }
    assert!(read(&first).await.to_text().contains("inside") && read(&second).await.is_error);
    bench.manager.set_roots(vec![second.clone()]).unwrap();
    while !allowed().await.contains("/second") {
        assert!(started.elapsed() < PATIENCE);
    }
    assert!(read(&second).await.to_text().contains("inside") && read(&first).await.is_error);
    let roots = bench.call("e", "get-roots-list").await.unwrap().to_text();
    assert!(roots.contains("/second"), "{roots}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_calls_progress_is_seen_on_the_call_and_on_the_server() {
    let bench = Bench::new();
    let _ = bench.add("e", everything()).await;
    let (sender, mut progress) = mpsc::unbounded_channel();
    let mut events = bench.manager.subscribe();
    let watching = async {
        next(&mut events, |event| match event {
            mcp::Event::Changed(view) => view.running.first().filter(|call| call.progress.is_some()).cloned(),
            _ => None,
        })
        .await
    };
    let control = Control { progress: Some(sender), ..control(20) };
    let arguments = json!({ "duration": 3, "steps": 6 });
    let (result, running) = tokio::join!(bench.call_with("e", "trigger-long-running-operation", arguments, control), watching);
    assert!(result.unwrap().to_text().contains("completed"));
    assert_eq!(running.tool, "trigger-long-running-operation");
    let mut done = Vec::new();
    while let Ok(step) = progress.try_recv() {
        done.push(step.done);
    }
    assert!(done.len() >= 3 && done.is_sorted() && done.last() == Some(&6.0), "{done:?}");
    assert!(bench.view("e").running.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_runs_a_task_of_the_older_revision_with_a_question_in_it() {
    let bench = Bench::new();
    let _ = bench.add("e", everything()).await;
    let (sender, mut progress) = mpsc::unbounded_channel();
    let mut events = bench.manager.subscribe();
    let answering = async {
        let question = next_question(&mut events).await;
        assert_eq!(question.tool.as_deref(), Some("simulate-research-query"));
        let Ask::Form { schema, .. } = &question.ask else { panic!("{question:?}") };
        let value = schema.pointer("/properties/interpretation/oneOf/0/const").unwrap().clone();
        assert!(bench.manager.answer(question.id, accept(json!({ "interpretation": value }))).unwrap());
        value
    };
    let arguments = json!({ "topic": "python", "ambiguous": true });
    let control = Control { progress: Some(sender), ..control(20) };
    let (result, value) = tokio::join!(bench.call_with("e", "simulate-research-query", arguments, control), answering);
    let text = result.unwrap().to_text();
    assert!(text.contains("Research Report") && text.contains(value.as_str().unwrap()), "{text}");
    let mut words = Vec::new();
    while let Ok(step) = progress.try_recv() {
        words.extend(step.message);
    }
    assert!(
        words.iter().any(|words| words.contains("Gathering")) && words.iter().any(|words| words.contains("clarification")),
        "{words:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_of_input_are_answered_and_end() {
    let bench = Bench::new();
    bench.manager.set_roots(vec!["/srv".into(), "/opt".into()]).unwrap();
    let [_, (_, log)] = bench.both(json!({})).await;
    let (result, asked) = bench.answered("new", "rounds", json!({ "a": 1 }), vec![accept(json!({ "n": 4 })), Answer::Decline]).await;
    let told = parsed(&result.unwrap());
    assert_eq!(told["state"], "two [{\"action\": \"accept\", \"content\": {\"n\": 4}}, 2]");
    assert_eq!(told["second"]["action"], "decline");
    assert_eq!(asked.iter().map(|question| question.tool.as_deref()).collect::<Vec<_>>(), [Some("rounds"); 2]);
    let calls = received(&log, "tools/call");
    let ids: std::collections::BTreeSet<i64> = calls.iter().map(|call| call["id"].as_i64().unwrap()).collect();
    assert_eq!((calls.len(), ids.len()), (3, 3), "each round has its own id");
    assert!(calls.iter().all(|call| call["params"]["arguments"] == json!({ "a": 1 })));
    assert!(calls[0]["params"].get("requestState").is_none() && calls[1]["params"]["requestState"] == "one");

    let roots = parsed(&bench.call("new", "roots_in").await.unwrap());
    assert_eq!(roots["where"]["roots"][0]["uri"], "file:///srv");
    let error = bench.call("new", "wish_in").await.unwrap_err().to_string();
    assert!(error.contains("sampling is switched off"), "{error}");
    let before = received(&log, "tools/call").len();
    let error = bench.call("new", "forever").await.unwrap_err().to_string();
    assert!(error.contains("more than 10 times"), "{error}");
    assert_eq!(received(&log, "tools/call").len() - before, 11);

    let mut events = bench.manager.subscribe();
    let answering = async {
        let question = next_question(&mut events).await;
        assert_eq!((question.server.as_str(), question.tool), ("new", None));
        assert!(bench.manager.answer(question.id, accept(json!({ "n": 1 }))).unwrap());
    };
    let given = BTreeMap::from([("who".to_owned(), "me".to_owned())]);
    let server = "new".into();
    let (messages, ()) = tokio::join!(bench.manager.prompt(&server, "p0", given), answering);
    assert!(
        matches!(&messages.unwrap()[0].content, Content::Text { text } if text.contains("\"n\": 1") && text.contains("\"who\": \"me\""))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_may_take_longer_than_the_call_and_stop_works_meanwhile() {
    let bench = Bench::new();
    let servers = bench.both(json!({})).await;
    for (server, name) in [("old", "ask"), ("new", "rounds")] {
        let mut events = bench.manager.subscribe();
        let slowly = async {
            let question = next_question(&mut events).await;
            tokio::time::sleep(Duration::from_millis(2500)).await;
            assert!(bench.manager.answer(question.id, accept(json!({ "n": 2 }))).unwrap());
            if name == "rounds" {
                let question = next_question(&mut events).await;
                assert!(bench.manager.answer(question.id, Answer::Cancel).unwrap());
            }
        };
        // Two seconds are the call's whole patience with the server.
        let (result, ()) = tokio::join!(bench.call_with(server, name, json!({}), control(2)), slowly);
        assert!(result.unwrap().to_text().contains("accept"), "{server}");
    }
    for (server, name) in [("old", "ask_hang"), ("new", "rounds"), ("new", "task_input")] {
        let control = control(30);
        let (mut events, stop) = (bench.manager.subscribe(), control.cancel.clone());
        let stopping = async {
            let question = next_question(&mut events).await;
            stop.cancel();
            question
        };
        let (result, question) = tokio::join!(bench.call_with(server, name, json!({}), control), stopping);
        assert!(matches!(result, Err(tool::Error::Cancelled)), "{server} {name}");
        next(&mut events, |event| matches!(event, mcp::Event::Settled(id) if id == question.id).then_some(())).await;
        assert!(bench.manager.questions().is_empty() && !bench.manager.answer(question.id, Answer::Decline).unwrap());
    }
    eventually("the server hears of it", || !received(&servers[0].1, "notifications/cancelled").is_empty()).await;
    eventually("the task is cancelled", || !received(&servers[1].1, "tasks/cancel").is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_take_its_question_back_and_a_lost_one_does() {
    let bench = Bench::new();
    let _ = bench.add("old", mock(&json!({}))).await;
    let mut events = bench.manager.subscribe();
    let calling = bench.call_with("old", "ask_hang", json!({ "withdraw": true }), control(20));
    let withdrawn = async {
        let question = next_question(&mut events).await;
        next(&mut events, |event| matches!(event, mcp::Event::Settled(id) if id == question.id).then_some(())).await;
    };
    let (result, ()) = tokio::join!(calling, withdrawn);
    assert!(result.unwrap().to_text().contains("withdrawn"));

    let calling = bench.call("old", "ask_hang");
    let stopping = async {
        let _ = next_question(&mut events).await;
        bench.manager.stop(&"old".into()).await.unwrap();
    };
    let (result, ()) = tokio::join!(calling, stopping);
    assert!(result.is_err());
    eventually("no question is left", || bench.manager.questions().is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_while_the_person_thinks_ends_call_and_question() {
    let bench = Bench::new();
    let _ = bench.both(json!({})).await;
    for (server, name) in [("old", "ask_hang"), ("new", "rounds"), ("old", "page")] {
        let mut events = bench.manager.subscribe();
        let calling = bench.call_with(server, name, json!({}), control(50));
        let killing = async {
            let question = next_question(&mut events).await;
            let pid = bench.view(server).pid.unwrap().to_string();
            assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
            (question, Instant::now())
        };
        let (result, (question, killed)) = tokio::join!(calling, killing);
        assert!(matches!(result, Err(tool::Error::Unavailable { .. })), "{server} {name}: {result:?}");
        assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
        eventually("the question is gone", || bench.manager.questions().is_empty()).await;
        assert!(!bench.manager.answer(question.id, Answer::Decline).unwrap());
        let _ = bench.manager.ready(&server.into(), PATIENCE).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_beyond_the_protocol_still_is_a_form() {
    let bench = Bench::new();
    let _ = bench.add("old", mock(&json!({}))).await;
    let answer = accept(json!({ "deep": { "x": "y" } }));
    let (result, asked) = bench.answered("old", "odd_form", json!({}), vec![answer]).await;
    assert!(matches!(&asked[0].ask, Ask::Form { message, .. } if message == "odd"));
    assert_eq!(parsed(&result.unwrap())["content"]["deep"]["x"], "y");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_both_eras_are_followed_to_their_end() {
    let bench = Bench::new();
    let [(_, old), (_, new)] = bench.both(json!({})).await;
    assert!(bench.view("old").offers.tasks && bench.view("new").offers.tasks);
    for (server, log, plain, asks) in [("new", &new, "task", "task_input"), ("old", &old, "old_task", "old_task_input")] {
        let (sender, mut progress) = mpsc::unbounded_channel();
        let control = Control { progress: Some(sender), ..control(20) };
        let result = bench.call_with(server, plain, json!({}), control).await.unwrap();
        assert_eq!(parsed(&result)["polls"], 3, "{server}");
        let mut words = Vec::new();
        while let Ok(step) = progress.try_recv() {
            words.extend(step.message);
        }
        assert_eq!(words, ["begun", "poll 1", "poll 2"], "{server}");

        let (result, asked) = bench.answered(server, asks, json!({}), vec![accept(json!({ "n": 3 }))]).await;
        let responses = parsed(&result.unwrap())["responses"].to_string();
        assert!(responses.contains("\"n\":3") && asked[0].tool.as_deref() == Some(asks), "{server}: {responses} {asked:?}");
        assert!(received(log, "tasks/cancel").is_empty(), "{server}: nothing that ended is cancelled");
    }
    assert_eq!(received(&new, "tasks/update").len(), 1);
    let failed = bench.call("new", "task_fail").await.unwrap_err();
    assert!(matches!(&failed, tool::Error::Protocol { message, .. } if message == "it broke"), "{failed}");
    assert!(bench.call("old", "old_optional").await.unwrap().to_text().contains("at once"), "the plain way where there is one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_call_stops_its_task() {
    let bench = Bench::new();
    let [(_, old), (_, new)] = bench.both(json!({})).await;
    for (server, log, name) in [("new", &new, "hang_task"), ("old", &old, "old_hang")] {
        let calling = bench.call_with(server, name, json!({}), control(20));
        let stopping = async {
            eventually("it is asked about", || received(log, "tasks/get").len() > 1).await;
            let running = bench.view(server).running;
            assert_eq!(running.iter().map(|call| call.tool.as_str()).collect::<Vec<_>>(), [name]);
            assert!(bench.manager.cancel_call(&server.into(), running[0].id).unwrap());
        };
        let (result, ()) = tokio::join!(calling, stopping);
        assert!(matches!(result, Err(tool::Error::Cancelled)), "{result:?}");
        eventually("the task is cancelled", || received(log, "tasks/cancel").len() == 1).await;
        assert!(bench.view(server).running.is_empty() && !bench.manager.cancel_call(&server.into(), 1).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_runs_only_as_a_task_is_found_out_where_nothing_says_so() {
    let bench = Bench::new();
    let log = bench.folder.path().join("log");
    let _ = bench.add("old", mock(&json!({ "hide_support": true, "log": log }))).await;
    assert_eq!(parsed(&bench.call("old", "old_task").await.unwrap())["polls"], 3);
    let calls = received(&log, "tools/call");
    assert_eq!(calls.iter().map(|call| call["params"].get("task").is_some()).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn structured_results_are_held_against_the_tools_own_schema() {
    let bench = Bench::new();
    let _ = bench.add("old", mock(&json!({}))).await;
    let fits = bench.call("old", "fits").await.unwrap();
    assert_eq!((fits.is_error, fits.structured), (false, Some(json!({ "n": 1 }))));
    let wrong = bench.call("old", "wrong").await.unwrap();
    assert!(wrong.is_error && wrong.structured == Some(json!({ "n": "one" })), "what came is still there: {wrong:?}");
    let text = wrong.to_text();
    assert!(text.contains("does not fit") && text.contains("/n") && text.contains("the words"), "{text}");
    let missing = bench.call("old", "missing").await.unwrap();
    assert!(missing.is_error && missing.to_text().contains("only words"), "{missing:?}");
    let refuses = bench.call("old", "refuses").await.unwrap();
    assert_eq!((refuses.is_error, refuses.to_text().as_str()), (true, "sorry"), "an error needs no structure");
    let outside = bench.call("old", "outside").await.unwrap();
    assert!(!outside.is_error, "a schema that would have to be fetched is not, and costs the result nothing: {outside:?}");

    let _ = bench.add("e", everything()).await;
    let real = bench.call_with("e", "get-structured-content", json!({ "location": "Chicago" }), control(20)).await.unwrap();
    assert!(!real.is_error && real.structured.is_some(), "{real:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outdated_list_is_fetched_again_and_the_call_made_once_more() {
    let bench = Bench::new();
    let [_, (_, log)] = bench.both(json!({})).await;
    let lists = received(&log, "tools/list").len();
    assert!(bench.call("new", "header").await.unwrap().to_text().contains("matched"));
    assert!(received(&log, "tools/list").len() > lists);
    let changed = bench.call("new", "header_drift").await.unwrap_err();
    assert!(matches!(&changed, tool::Error::Permit(reason) if reason.contains("changed")), "{changed}");
    assert_eq!(received(&log, "tools/call").len(), 3, "not called again as another tool than was approved");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_must_be_opened_first_is_asked_for_and_the_call_made_again_once() {
    let bench = Bench::new();
    let log = bench.folder.path().join("log");
    let _ = bench.add("old", mock(&json!({ "completes": true, "log": log }))).await;
    let (result, asked) = bench.answered("old", "page", json!({}), vec![accept(json!({}))]).await;
    assert_eq!(result.unwrap().to_text(), "signed");
    assert!(matches!(&asked[0].ask, Ask::Url { url, .. } if url == "https://example.org/sign"));
    let (result, _) = bench.answered("old", "page_again", json!({}), vec![Answer::Decline]).await;
    assert!(matches!(&result, Err(tool::Error::Protocol { message, .. }) if message.contains("not opened")), "{result:?}");
    let again = bench.call_with("old", "page_again", json!({}), control(1));
    let mut events = bench.manager.subscribe();
    let opening = async {
        let question = next_question(&mut events).await;
        assert!(bench.manager.answer(question.id, accept(json!({}))).unwrap());
    };
    let (result, ()) = tokio::join!(again, opening);
    assert!(matches!(&result, Err(tool::Error::Protocol { message, .. }) if message.contains("open the page")), "{result:?}");
    assert_eq!(received(&log, "tools/call").len(), 5, "two, one, and two");

    // The server says that it was done before anybody clicked: nothing waits any more.
    let other = bench.folder.path().join("other");
    let _ = bench.add("early", mock(&json!({ "completes": true, "log": other }))).await;
    assert_eq!(bench.call("early", "page").await.unwrap().to_text(), "signed");
    assert!(bench.manager.questions().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_huge_line_ends_its_own_call_only_and_noise_is_counted() {
    let bench = Bench::new();
    let noise = json!(["Welcome to the server!", "{\"level\":\"info\"}", "42", ""]);
    let log = bench.folder.path().join("log");
    let _ = bench.add("old", mock(&json!({ "noise": noise, "log": log }))).await;
    assert_eq!(bench.view("old").skipped_lines, 3);
    let lines = bench.view("old").stderr;
    assert_eq!(lines.iter().filter(|line| line.contains("Welcome to the server!")).count(), 1, "{lines:?}");
    assert!(received(&log, "nothing").is_empty() && std::fs::read_to_string(&log).unwrap().lines().all(|line| !line.contains("-32600")));

    for name in ["long", "longid", "malformed"] {
        let beside = bench.call_with("old", "slow", json!({}), control(3));
        let started = Instant::now();
        let (result, beside) = tokio::join!(
            async {
                let result = bench.call_with("old", name, json!({}), control(50)).await;
                (result, started.elapsed())
            },
            beside
        );
        let (result, took) = result;
        let wanted = if name == "malformed" { "broken" } else { "bytes on one line" };
        assert!(matches!(&result, Err(tool::Error::Protocol { message, .. }) if message.contains(wanted)), "{name}: {result:?}");
        assert!(took < Duration::from_secs(45), "well before its timeout: {took:?}");
        assert!(matches!(beside, Err(tool::Error::Timeout(_))), "the call beside it went on: {beside:?}");
    }
    assert!(!bench.call("old", "fits").await.unwrap().is_error);
    assert!(bench.view("old").stderr.iter().any(|line| line.contains("is too long and was dropped; it answers request")));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_offers_end_and_a_bad_entry_costs_only_itself() {
    let bench = Bench::new();
    let servers = bench.both(json!({})).await;
    for (server, _) in &servers {
        let id = (*server).into();
        let prompts = bench.manager.prompts(&id).await.unwrap();
        assert_eq!(prompts.iter().map(|prompt| prompt.name.as_str()).collect::<Vec<_>>(), ["p0", "p1", "p2"]);
        let (resources, templates) = bench.manager.resources(&id).await.unwrap();
        assert_eq!((resources.len(), templates.len()), (3, 3));
        assert!(bench.view(server).stderr.iter().any(|line| line.contains("\"prompts\" are malformed")));
        let values = bench.manager.complete(&id, &Completable::Prompt("p0".to_owned()), "who", "x", BTreeMap::new()).await.unwrap();
        assert_eq!((values.len(), values[0].as_str()), (100, "x0"));
    }
    let _ = bench.add("loop", mock(&json!({ "looping": true }))).await;
    assert!(bench.manager.prompts(&"loop".into()).await.unwrap().len() <= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn log_levels_are_set_in_the_way_of_each_era_and_messages_are_logged() {
    let bench = Bench::new();
    let servers = bench.both(json!({})).await;
    for (server, log) in &servers {
        let id = (*server).into();
        // In the stateless era a server says nothing unless it is asked, so that is asked for from the start.
        let unasked = if *server == "old" { "None" } else { "info" };
        assert_eq!(bench.call(server, "logs").await.unwrap().to_text(), unasked, "{server}");
        bench.manager.set_log_level(&id, "warning").await.unwrap();
        assert_eq!(bench.call(server, "logs").await.unwrap().to_text(), "warning", "{server}");
        assert_eq!(received(log, "logging/setLevel").len(), usize::from(*server == "old"));
        eventually("both messages", || {
            let lines = bench.manager.log(&id, 50).unwrap();
            let has = |level: &str, text: &str| lines.iter().any(|line| line.level == Some(level) && line.text.contains(text));
            has("warning", "db: it is late") && has("error", "{\"disk\":\"full\"}")
        })
        .await;
    }
    // The next start remembers it.
    bench.manager.restart(&"old".into()).await.unwrap();
    let _ = bench.manager.ready(&"old".into(), PATIENCE).await.unwrap();
    eventually("it is told again", || received(&servers[0].1, "logging/setLevel").len() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_heard_in_both_eras_once_per_burst() {
    let bench = Bench::new();
    let servers = bench.both(json!({})).await;
    for (server, log) in &servers {
        let id: tool::ServerId = (*server).into();
        assert_eq!(bench.manager.read_resource(&id, "mock://a").await.unwrap().len(), 1);
        if *server == "old" {
            eventually("it is watched", || received(log, "resources/subscribe").len() == 1).await;
        } else {
            let watched = |message: &Value| message["params"]["notifications"]["resourceSubscriptions"] == json!(["mock://a"]);
            eventually("it is listened for", || received(log, "subscriptions/listen").iter().any(watched)).await;
            // The stream is open when the acknowledgement has come back.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let mut events = bench.manager.subscribe();
        let _ = bench.call(server, "change").await.unwrap();
        let mut heard = [0; 3];
        while heard.contains(&0) {
            let kind = next(&mut events, |event| match event {
                mcp::Event::PromptsChanged(server) => (server == id).then_some(0),
                mcp::Event::ResourceChanged { uri: None, .. } => Some(1),
                mcp::Event::ResourceChanged { uri: Some(uri), .. } => (uri == "mock://a").then_some(2),
                _ => None,
            })
            .await;
            heard[kind] += 1;
        }
        assert!(heard.iter().all(|events| *events <= 2), "{server}: five announcements are no five events ({heard:?})");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_changes_that_breaks_is_opened_again_and_nothing_is_missed() {
    let bench = Bench::new();
    let log = bench.folder.path().join("log");
    let _ = bench.add("new", mock(&json!({ "modern": true, "log": log }))).await;
    let listens = || received(&log, "subscriptions/listen").len();
    eventually("it listens", || listens() == 1).await;
    let lists = received(&log, "tools/list").len();
    let mut events = bench.manager.subscribe();
    let _ = bench.call("new", "drop_stream").await.unwrap();
    // What may have changed meanwhile counts as changed.
    next(&mut events, |event| matches!(event, mcp::Event::PromptsChanged(_)).then_some(())).await;
    eventually("it listens again", || listens() == 2).await;
    eventually("the tools are listed again", || received(&log, "tools/list").len() > lists).await;
    next(&mut events, |event| matches!(event, mcp::Event::ResourceChanged { uri: None, .. }).then_some(())).await;
}

struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_over_http_with_a_real_server() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = std::process::Command::new("node")
        .arg(npm("everything"))
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let _server = Child(server);
    let bench = Bench::new();
    let granted = bench.folder.path().join("granted");
    std::fs::create_dir(&granted).unwrap();
    bench.manager.set_roots(vec![granted]).unwrap();
    let entry = json!({ "url": format!("http://127.0.0.1:{port}/mcp"), "headers": { "X-Key": "very-secret" } });
    let _ = bench.add("http", entry).await;
    let id = "http".into();

    // Two calls at once: the question is known to belong to the one, and the other one's clock goes on.
    let beside = bench.call_with("http", "trigger-long-running-operation", json!({ "duration": 2, "steps": 4 }), control(20));
    let asking = bench.answered("http", "trigger-elicitation-request", json!({}), vec![accept(json!({ "name": "Ada" }))]);
    let (beside, (result, asked)) = tokio::join!(beside, asking);
    assert!(beside.unwrap().to_text().contains("completed") && result.unwrap().to_text().contains("Ada"));
    assert_eq!(asked[0].tool.as_deref(), Some("trigger-elicitation-request"));

    let roots = bench.call("http", "get-roots-list").await.unwrap().to_text();
    assert!(roots.contains("granted"), "{roots}");
    assert!(bench.manager.prompts(&id).await.unwrap().len() > 2);
    let (resources, _) = bench.manager.resources(&id).await.unwrap();
    assert!(!bench.manager.read_resource(&id, &resources[0].uri).await.unwrap().is_empty());
    // Nothing tells here that the tool runs only as a task; its refusal does.
    let report = bench.call_with("http", "simulate-research-query", json!({ "topic": "bees" }), control(20)).await.unwrap();
    assert!(!report.is_error && report.to_text().contains("Research Report"), "{report:?}");

    let trace = bench.manager.trace(&id).unwrap();
    assert!(trace.iter().any(|line| !line.received && line.message.contains("tools/call")));
    assert!(trace.iter().any(|line| line.received && line.message.contains("elicitation/create")));
    assert!(trace.iter().all(|line| !line.message.contains("very-secret")), "headers are no part of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_trace_shows_both_directions_and_no_secrets() {
    let bench = Bench::new();
    let mut entry = mock(&json!({}));
    entry["env"] = json!({ "TOKEN": "very-secret" });
    let _ = bench.add("old", entry).await;
    let _ = bench.call("old", "fits").await.unwrap();
    let lines = bench.manager.trace(&"old".into()).unwrap();
    assert!(lines.iter().any(|line| !line.received && line.message.contains("\"initialize\"")), "{lines:?}");
    assert!(lines.iter().any(|line| line.received && line.message.contains("taskSupport")), "as it came, not as it was understood");
    let call = lines.iter().position(|line| !line.received && line.message.contains("tools/call")).unwrap();
    assert!(lines[call..].iter().any(|line| line.received && line.message.contains("structuredContent")));
    let all: String = lines.iter().map(|line| line.message.as_str()).collect();
    assert!(!all.contains("very-secret"));
    assert!(lines.iter().all(|line| line.message.len() < 4200) && lines.is_sorted_by_key(|line| line.at));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_is_switched_off_is_shown_to_nobody_but_the_person() {
    let bench = Bench::new();
    let before = bench.add("old", mock(&json!({}))).await;
    let tool = bench.tool("old", "fits");
    let permit = bench.permit(&tool, json!({})).await;
    bench.manager.set_tool_enabled(&"old".into(), "fits", false).unwrap();
    let _ = bench.manager.ready(&"old".into(), PATIENCE).await.unwrap();
    assert_eq!(bench.view("old").tools.len(), before.tools.len());
    assert!(!bench.manager.tools().iter().any(|tool| tool.definition().id.name == "fits"));
    let refused = tool.call(permit, control(20)).await.unwrap_err();
    assert!(matches!(&refused, tool::Error::Permit(reason) if reason.contains("switched off")), "{refused}");
    bench.manager.set_tool_enabled(&"old".into(), "fits", true).unwrap();
    assert!(!bench.call("old", "fits").await.unwrap().is_error);
}
