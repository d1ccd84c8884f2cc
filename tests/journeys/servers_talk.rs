//! What servers offer beside tools, and what they ask in the middle of a call: in both eras, over pipes and over HTTP.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use handrail_engine::mcp::offer::Completable;
use handrail_engine::mcp::question::{Answer, Ask, Question};
use handrail_engine::mcp::{Event, SampleRequest, Sampler};
use handrail_engine::tool::Content;
use handrail_tests::PATIENCE;
use handrail_tests::servers::{Bench, Listening, Log, eventually};
use serde_json::{Value, json};

/// Every way to reach a server, in each era: its name, its log, and what keeps it alive.
async fn everywhere(bench: &Bench, script: &Value) -> Vec<(String, Log, Option<Listening>)> {
    let mut servers = Vec::new();
    for era in ["legacy", "modern"] {
        let mut script = script.clone();
        script["era"] = json!(era);
        let name = format!("stdio-{era}");
        let (mut entry, log) = bench.script(&name, &script);
        entry["era"] = json!(era);
        let _ = bench.add(&name, &entry).await;
        servers.push((name, log, None));
        let name = format!("http-{era}");
        let server = bench.listening(&name, "--http", &script);
        let _ = bench.add(&name, &json!({ "url": server.url, "era": era })).await;
        servers.push((name, server.log.clone(), Some(server)));
    }
    servers
}

fn asking(method: &str, params: Option<&Value>) -> Value {
    let mut ask = json!({ "method": method });
    if let Some(params) = params {
        ask["params"] = params.clone();
    }
    json!({ "tools": [{ "name": "ask", "asks": [ask], "reply": "answers" }, { "name": "other" }] })
}

/// Calls "ask"; `answer` answers the one question that comes.
async fn with_answer(bench: &Bench, server: &str, answer: impl Fn(&Question) -> Answer) -> Result<Vec<Value>, String> {
    let answering = async {
        eventually("the question comes", || !bench.manager.questions().is_empty()).await;
        // Nothing is ever answered by itself, and nobody else waits for it.
        assert_eq!(bench.text(server, "other").await, "ok");
        tokio::time::sleep(Duration::from_millis(150)).await;
        let questions = bench.manager.questions();
        assert_eq!(questions.len(), 1, "{questions:?}");
        assert_eq!((questions[0].server.as_str(), questions[0].tool.as_deref()), (server, Some("ask")));
        assert!(bench.manager.answer(questions[0].id, answer(&questions[0])).unwrap());
    };
    let (result, ()) = limited(async { tokio::join!(bench.call(server, "ask", json!({})), answering) }).await;
    assert!(bench.manager.questions().is_empty());
    result.map(|result| serde_json::from_str(&result.to_text()).unwrap()).map_err(|error| error.to_string())
}

async fn limited<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("nothing came of it")
}

/// Log messages come by themselves in the older era, and in the stateless one as far as they are asked for.
async fn logs_are_shown(bench: &Bench, name: &str) {
    let id = name.into();
    let shows = |level: &str, text: &str| {
        let lines = bench.manager.log(&id, 100).unwrap();
        lines.iter().any(|line| line.level == Some(level) && line.text.contains(text))
    };
    if name.ends_with("modern") {
        // What matters is asked for without being told to, and no more than that.
        let _ = bench.call(name, "tool_000", json!({})).await.unwrap();
        eventually("a warning is shown", || shows("warning", "nearly full")).await;
        assert!(!shows("debug", "rows"), "{name}: nobody asked for it");
        bench.manager.set_log_level(&id, "debug").await.unwrap();
        assert_eq!(bench.view(name).log_level.as_deref(), Some("debug"));
        let _ = bench.call(name, "tool_000", json!({})).await.unwrap();
    }
    eventually(&format!("its log messages are shown ({name})"), || shows("warning", "nearly full") && shows("debug", "rows")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_resources_and_completions_are_there_everywhere() {
    let bench = Bench::new();
    let script = json!({
        "many": 1,
        "prompts": [{ "name": "greet", "description": "Greets.", "arguments": [{ "name": "who", "required": true }],
                      "messages": [{ "role": "user", "content": { "type": "text", "text": "Say hello to {who}." } }] }],
        "resources": [{ "uri": "note://1", "name": "one", "mimeType": "text/plain", "contents": [{ "uri": "note://1", "text": "buy milk" }] }],
        "templates": [{ "uriTemplate": "note://{id}", "name": "note" }],
        "completions": { "who": ["Anna", "Anton", "Ben"], "id": ["1", "2"] },
        "logs": [{ "level": "warning", "data": "the disk is nearly full" }, { "level": "debug", "logger": "db", "data": { "rows": 3 } }],
        "resource_updates": ["note://1"]
    });
    let mut events = bench.manager.subscribe();
    for (name, _log, _server) in &everywhere(&bench, &script).await {
        let id = name.as_str().into();
        let offers = bench.view(name).offers;
        assert!(offers.prompts && offers.resources && offers.completions && offers.logging, "{name}: {offers:?}");
        let prompts = bench.manager.prompts(&id).await.unwrap();
        assert_eq!((prompts.len(), prompts[0].name.as_str(), prompts[0].arguments[0].required), (1, "greet", true));
        let filled = bench.manager.prompt(&id, "greet", BTreeMap::from([("who".to_owned(), "Ada".to_owned())])).await.unwrap();
        assert!(!filled[0].assistant);
        assert_eq!(filled[0].content, Content::Text { text: "Say hello to Ada.".to_owned() });
        let (resources, templates) = bench.manager.resources(&id).await.unwrap();
        assert_eq!((resources[0].uri.as_str(), resources[0].mime.as_deref()), ("note://1", Some("text/plain")));
        assert_eq!(templates[0].uri, "note://{id}");
        let read = bench.manager.read_resource(&id, "note://1").await.unwrap();
        assert!(matches!(&read[..], [Content::Resource { text: Some(text), .. }] if text == "buy milk"), "{read:?}");
        assert!(bench.manager.read_resource(&id, "note://9").await.unwrap_err().to_string().contains("note://9"));
        let complete = |of: Completable, argument: &'static str, typed: &'static str| {
            let (manager, id) = (bench.manager.clone(), id.clone());
            async move { manager.complete(&id, &of, argument, typed, BTreeMap::new()).await.unwrap() }
        };
        assert_eq!(complete(Completable::Prompt("greet".to_owned()), "who", "An").await, ["Anna", "Anton"]);
        assert_eq!(complete(Completable::Template("note://{id}".to_owned()), "id", "").await, ["1", "2"]);
        logs_are_shown(&bench, name).await;
        limited(async {
            loop {
                if let Event::ResourceChanged { server, uri: Some(uri) } = events.recv().await.unwrap()
                    && server == id
                {
                    assert_eq!(uri, "note://1");
                    break;
                }
            }
        })
        .await;
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_form_is_answered_by_the_person_and_by_nobody_else() {
    let bench = Bench::new();
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string", "default": "Bonn" } }, "required": ["city"] });
    let params = json!({ "mode": "form", "message": "Which city?", "requestedSchema": schema });
    for (name, _log, _server) in &everywhere(&bench, &asking("elicitation/create", Some(&params))).await {
        let accepted = with_answer(&bench, name, |question| {
            assert!(matches!(&question.ask, Ask::Form { message, .. } if message == "Which city?"), "{question:?}");
            Answer::Accept(json!({ "city": "Köln" }).as_object().unwrap().clone())
        });
        assert_eq!(accepted.await.unwrap(), [json!({ "action": "accept", "content": { "city": "Köln" } })], "{name}");
        let declined = with_answer(&bench, name, |_| Answer::Decline).await.unwrap();
        assert_eq!(declined[0]["action"], "decline", "{name}");
        let cancelled = with_answer(&bench, name, |_| Answer::Cancel).await.unwrap();
        assert_eq!(cancelled[0]["action"], "cancel", "{name}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_call_takes_its_question_back() {
    let bench = Bench::new();
    let params =
        json!({ "message": "Which city?", "requestedSchema": { "type": "object", "properties": { "city": { "type": "string" } } } });
    for (name, _log, _server) in &everywhere(&bench, &asking("elicitation/create", Some(&params))).await {
        let control = handrail_tests::servers::control();
        let cancel = control.cancel.clone();
        let (stopped, ()) = limited(async {
            tokio::join!(bench.call_with(name, "ask", json!({}), control), async {
                eventually("the question comes", || !bench.manager.questions().is_empty()).await;
                cancel.cancel();
            })
        })
        .await;
        assert!(matches!(stopped, Err(handrail_engine::tool::Error::Cancelled)), "{stopped:?}");
        eventually("the question goes", || bench.manager.questions().is_empty()).await;
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_is_shown_whole_before_it_is_opened() {
    let bench = Bench::new();
    let params = json!({ "mode": "url", "message": "Please pay.", "url": "https://pay.example/1?x=2", "elicitationId": "p1" });
    for (name, _log, _server) in &everywhere(&bench, &asking("elicitation/create", Some(&params))).await {
        let accepted = with_answer(&bench, name, |question| {
            assert!(matches!(&question.ask, Ask::Url { url, .. } if url == "https://pay.example/1?x=2"), "{question:?}");
            Answer::Accept(serde_json::Map::new())
        });
        assert_eq!(accepted.await.unwrap()[0]["action"], "accept", "{name}");
    }
    // The older way: the call is refused until the page was dealt with, then made again.
    let elicitation = json!({ "mode": "url", "message": "Please pay.", "url": "https://pay.example/2", "elicitationId": "p2" });
    let error = json!({ "code": -32042, "message": "payment needed", "data": { "elicitations": [elicitation] } });
    let mut script = json!({ "era": "legacy", "tools": [{ "name": "ask", "reply": "answers" }, { "name": "other" }] });
    script["rules"] = json!([{ "method": "tools/call", "times": 1, "error": error }]);
    let log = bench.scripted("refusing", &script).await;
    let accepted = with_answer(&bench, "refusing", |question| {
        assert!(matches!(&question.ask, Ask::Url { url, .. } if url == "https://pay.example/2"), "{question:?}");
        Answer::Accept(serde_json::Map::new())
    });
    assert_eq!(accepted.await.unwrap(), [] as [Value; 0]);
    assert_eq!(log.received("tools/call").iter().filter(|call| call["params"]["name"] == "ask").count(), 2);
    bench.close().await;
}

/// A model that says how often it was used.
#[derive(Debug, Default)]
struct Model(Mutex<Vec<SampleRequest>>);

impl Sampler for Model {
    fn sample(&self, request: SampleRequest) -> BoxFuture<'static, Result<handrail_engine::mcp::Sample, String>> {
        self.0.lock().unwrap().push(request);
        async { Ok(handrail_engine::mcp::Sample { model: "test".to_owned(), text: "a haiku".to_owned(), cut: false }) }.boxed()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_writes_for_a_server_only_when_it_may() {
    let params = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "Write a haiku." } }], "maxTokens": 50 });
    let script = asking("sampling/createMessage", Some(&params));
    // Off unless somebody switched it on: no question, no text.
    let bench = Bench::new();
    for (name, _log, _server) in &everywhere(&bench, &script).await {
        match limited(bench.call(name, "ask", json!({}))).await {
            Ok(result) => assert!(!result.to_text().contains("haiku") && result.to_text().contains("code"), "{name}: {result:?}"),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
        assert!(bench.manager.questions().is_empty());
    }
    bench.close().await;

    let (bench, model) = (Bench::with_settings(&json!({ "allowSampling": true })), Arc::new(Model::default()));
    bench.manager.set_sampler(Some(model.clone()));
    for (name, _log, _server) in &everywhere(&bench, &script).await {
        let before = model.0.lock().unwrap().len();
        let denied = with_answer(&bench, name, |_| Answer::Decline).await;
        assert!(!format!("{denied:?}").contains("a haiku"), "{name}: {denied:?}");
        assert_eq!(model.0.lock().unwrap().len(), before, "{name}: the model wrote before anybody agreed");
        let written = with_answer(&bench, name, |question| {
            assert!(
                matches!(&question.ask, Ask::Sampling { prompt, max_tokens: 50, .. } if prompt.contains("Write a haiku.")),
                "{question:?}"
            );
            Answer::Accept(serde_json::Map::new())
        });
        let written = written.await.unwrap();
        assert_eq!((&written[0]["content"]["text"], &written[0]["role"]), (&json!("a haiku"), &json!("assistant")), "{name}");
        assert_eq!(model.0.lock().unwrap().len(), before + 1);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_told_the_granted_folders_and_no_others() {
    let bench = Bench::new();
    let folder = bench.folder().join("my notes");
    std::fs::create_dir(&folder).unwrap();
    bench.manager.set_roots(vec![folder.clone()]).unwrap();
    for (name, _log, _server) in &everywhere(&bench, &asking("roots/list", None)).await {
        let answer = limited(bench.call(name, "ask", json!({}))).await.unwrap().to_text();
        let answers: Vec<Value> = serde_json::from_str(&answer).unwrap();
        let roots = answers[0]["roots"].as_array().unwrap();
        assert_eq!(roots.len(), 1, "{answer}");
        let uri = roots[0]["uri"].as_str().unwrap();
        assert!(uri.starts_with("file:///") && uri.ends_with("my%20notes"), "{uri}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_becomes_a_task_is_followed_to_its_end() {
    let bench = Bench::new();
    let tools = json!([
        { "name": "long", "task": { "polls": 3, "poll_ms": 60, "support": "required" }, "reply": { "text": "done at last" } },
        { "name": "fails", "task": { "polls": 1, "poll_ms": 60 }, "reply": { "protocol_error": "out of paper" } }
    ]);
    for (name, log, _server) in &everywhere(&bench, &json!({ "tools": tools })).await {
        let done = limited(bench.call(name, "long", json!({}))).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(done.to_text(), "done at last", "{name}");
        assert!(log.received("tasks/get").len() >= 3, "{name}");
        if name == "stdio-modern" || name == "http-modern" {
            let failed = limited(bench.call(name, "fails", json!({}))).await.unwrap_err().to_string();
            assert!(failed.contains("out of paper"), "{name}: {failed}");
        }
    }
    bench.close().await;
}
