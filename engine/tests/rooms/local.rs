//! The local chat model against its real file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use handrail_engine::local::{TemplateChoice, chat};
use handrail_engine::provider::{
    ChatMessage, Delta, Error, Finish, Provider, Request, Sampling, ToolChoice, ToolSpec, ToolSupport, Usage, WireCall,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

#[path = "../../src/local/test_model.rs"]
pub(super) mod test_model;

use test_model::path;

/// One model for the tests that do not look at its cache.
fn shared() -> Arc<dyn Provider> {
    static MODEL: OnceLock<Arc<dyn Provider>> = OnceLock::new();
    Arc::clone(MODEL.get_or_init(|| chat::load("smollm2", &path(), 0).unwrap()))
}

#[derive(Debug, Default)]
struct Answer {
    text: String,
    calls: Vec<(String, String)>,
    prefill: Vec<(usize, usize, usize)>,
    finish: Option<(Finish, Usage)>,
}

impl Answer {
    fn reason(&self) -> Finish {
        self.finish.unwrap().0
    }

    fn usage(&self) -> Usage {
        self.finish.unwrap().1
    }

    fn add(&mut self, delta: Delta) {
        assert!(self.finish.is_none(), "{delta:?} comes behind the end");
        match delta {
            Delta::Prefill { done, total, reused } => self.prefill.push((done, total, reused)),
            Delta::Text(text) => self.text += &text,
            Delta::Reasoning(text) => panic!("this model does not reason: {text}"),
            Delta::CallStarted { index, name, .. } => {
                assert_eq!(index, self.calls.len());
                self.calls.push((name, String::new()));
            }
            Delta::CallArguments { index, fragment } => self.calls[index].1 += &fragment,
            Delta::Finished { reason, usage } => self.finish = Some((reason, usage)),
        }
    }
}

async fn drain(mut stream: impl Stream<Item = Result<Delta, Error>> + Unpin) -> Result<Answer, Error> {
    let mut answer = Answer::default();
    while let Some(delta) = stream.next().await {
        answer.add(delta?);
    }
    assert!(answer.finish.is_some());
    Ok(answer)
}

async fn ask(model: &Arc<dyn Provider>, request: Request) -> Result<Answer, Error> {
    drain(model.stream(request, CancellationToken::new())).await
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::User(text.to_owned())
}

fn greedy() -> Sampling {
    Sampling { temperature: 0.0, ..Sampling::default() }
}

fn says(text: &str, most: usize) -> Request {
    Request { messages: vec![user(text)], sampling: greedy(), max_tokens: Some(most), ..Request::default() }
}

fn tool(name: &str, description: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: description.to_owned(), parameters }
}

/// Schemas as real servers publish them, and two that use what the others do not. Texts are kept short, because the time of
/// these tests is that of the tokens; [`a_call_never_runs_away`] and [`a_small_limit_still_gives_a_whole_call`] have free ones.
fn tools() -> Vec<ToolSpec> {
    vec![
        tool(
            "add_place",
            "Add a place to the map",
            json!({ "type": "object", "required": ["place"], "properties": { "place": { "$ref": "#/$defs/Place" } }, "$defs": {
                "Place": { "type": "object", "required": ["name", "at"], "properties": {
                    "name": { "type": "string", "minLength": 1, "maxLength": 20 },
                    "at": { "type": "array", "prefixItems": [{ "type": "number" }, { "type": "number" }], "items": false, "minItems": 2 },
                    "inside": { "anyOf": [{ "$ref": "#/$defs/Place" }, { "type": "null" }] },
                } },
            } }),
        ),
        tool(
            "convert_time",
            "Convert time between timezones",
            json!({ "type": "object", "properties": {
                "source_timezone": { "type": "string", "maxLength": 20, "description": "Source IANA timezone name" },
                "time": { "type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$" },
                "target_timezone": { "type": "string", "maxLength": 20 },
            }, "required": ["source_timezone", "time", "target_timezone"] }),
        ),
        tool(
            "edit_file",
            "Make line-based edits to a text file",
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false,
                "required": ["path", "edits"], "properties": {
                "path": { "type": "string", "maxLength": 30 },
                "edits": { "type": "array", "minItems": 1, "maxItems": 2, "items": { "type": "object", "properties": {
                    "oldText": { "type": "string", "maxLength": 20, "description": "Text to search for - must match exactly" },
                    "newText": { "type": "string", "maxLength": 20 },
                }, "required": ["oldText", "newText"], "additionalProperties": false } },
                "dryRun": { "type": "boolean", "default": false },
            } }),
        ),
        tool(
            "get_weather",
            "Weather of a city",
            json!({ "type": "object", "properties": {
                "city": { "type": "string", "maxLength": 30 },
                "unit": { "type": "string", "enum": ["celsius", "fahrenheit"] },
                "days": { "type": "integer", "minimum": 1, "maximum": 7 },
            }, "required": ["city", "unit"] }),
        ),
        tool("list_allowed_directories", "List the folders", json!({ "type": "object", "properties": {} })),
        tool(
            "read_text_file",
            "Read a file as text",
            json!({ "type": "object", "properties": {
                "path": { "type": "string", "maxLength": 30 },
                "tail": { "type": "number" },
                "head": { "type": "number" },
            }, "required": ["path"], "$schema": "http://json-schema.org/draft-07/schema#" }),
        ),
        tool(
            "search",
            "Search the index",
            json!({ "type": "object", "properties": {
                "query": { "anyOf": [{ "type": "string", "maxLength": 20 }, { "type": "array", "items": { "type": "string", "maxLength": 20 }, "minItems": 1, "maxItems": 3 }] },
                "since": { "type": ["string", "null"], "format": "date" },
                "order": { "const": "newest" },
                "filter": { "oneOf": [{ "type": "object", "properties": { "tag": { "type": "string", "maxLength": 20 } }, "required": ["tag"] }, { "type": "null" }] },
            }, "required": ["query", "order", "filter"] }),
        ),
    ]
}

fn time_tool() -> ToolSpec {
    let zone = json!({ "type": "string", "description": "IANA timezone name (e.g., 'America/New_York', 'Europe/London')" });
    let schema = json!({ "type": "object", "properties": { "timezone": zone }, "required": ["timezone"] });
    tool("get_current_time", "Get current time in a specific timezone", schema)
}

fn check(tools: &[ToolSpec], call: &(String, String)) {
    let tool = tools.iter().find(|tool| tool.name == call.0).unwrap_or_else(|| panic!("{} is not on offer", call.0));
    let arguments: Value = serde_json::from_str(&call.1).unwrap_or_else(|e| panic!("{e}: {}", call.1));
    if let Err(error) = jsonschema::validate(&tool.parameters, &arguments) {
        panic!("{}: {error}: {arguments}", tool.name);
    }
}

#[tokio::test]
async fn it_knows_the_capital_of_france() {
    // A model of its own: how a prompt was cut into batches shows in the last digits, and so sometimes in the words.
    let model = chat::load("a", &path(), 0).unwrap();
    let answer = ask(&model, says("What is the capital of France?", 40)).await.unwrap();
    assert!(answer.text.contains("Paris"), "{}", answer.text);
    assert_eq!(answer.reason(), Finish::Stop);
    let usage = answer.usage();
    assert_eq!(Some(usage.prompt_tokens), model.count(&says("What is the capital of France?", 40)));
    assert!(usage.completion_tokens > 2 && usage.first_token_ms > 0.0 && usage.tokens_per_second > 0.0, "{usage:?}");
    let (done, total, _) = *answer.prefill.last().unwrap();
    assert_eq!((done, total), (usage.prompt_tokens, usage.prompt_tokens));
}

#[tokio::test]
async fn it_tells_what_it_can_do() {
    let model = shared();
    assert_eq!(model.id(), "smollm2");
    assert_eq!((model.capabilities().context, model.capabilities().tools), (8192, ToolSupport::Constrained));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_text() {
    let request = |seed| {
        let sampling = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed, ..Sampling::default() };
        Request { sampling, ..says("Tell me a story about a lighthouse.", 30) }
    };
    let (first, second) = (chat::load("a", &path(), 0).unwrap(), chat::load("b", &path(), 0).unwrap());
    let text = ask(&first, request(1)).await.unwrap().text;
    assert_eq!(ask(&second, request(1)).await.unwrap().text, text);
    assert_ne!(ask(&second, request(2)).await.unwrap().text, text);
    assert_eq!(ask(&second, request(1)).await.unwrap().text, text, "a warm cache changes nothing");
}

#[tokio::test]
async fn a_demanded_call_is_always_valid() {
    let (model, tools) = (shared(), tools());
    for tool in &tools {
        for (seed, temperature) in [(1, 1.0), (2, 1.5), (3, 0.0)] {
            let sampling = Sampling { temperature, seed, top_k: 0, top_p: 1.0, min_p: 0.0, ..Sampling::default() };
            let request = Request {
                messages: vec![user("Do something with /tmp/notes.txt in Zürich at noon.")],
                // Alone, so that the prompt is short.
                tools: vec![tool.clone()],
                tool_choice: ToolChoice::Named(tool.name.clone()),
                sampling,
                max_tokens: Some(100),
                ..Request::default()
            };
            let answer = ask(&model, request).await.unwrap();
            assert_eq!((answer.calls.len(), answer.text.as_str(), answer.reason()), (1, "", Finish::Calls));
            assert_eq!(answer.calls[0].0, tool.name);
            check(&tools, &answer.calls[0]);
        }
    }
}

#[tokio::test]
async fn one_of_the_tools_is_called_where_that_is_required() {
    let (model, tools) = (shared(), tools());
    for seed in 0..3 {
        let request = Request {
            messages: vec![user("How is the weather in Bern?")],
            tools: tools.clone(),
            tool_choice: ToolChoice::Required,
            sampling: Sampling { temperature: 1.0, seed, ..Sampling::default() },
            max_tokens: Some(100),
            ..Request::default()
        };
        let answer = ask(&model, request).await.unwrap();
        assert_eq!((answer.calls.len(), answer.reason()), (1, Finish::Calls));
        check(&tools, &answer.calls[0]);
    }
}

/// A history in which the model always called, so that it begins to write a call by itself.
fn habit() -> Vec<ChatMessage> {
    let cities = [("Tokyo", "Asia/Tokyo"), ("Paris", "Europe/Paris"), ("Lima", "America/Lima"), ("Cairo", "Africa/Cairo")];
    let mut messages = Vec::new();
    for (city, zone) in cities {
        let call = WireCall { id: city.to_owned(), name: "get_current_time".to_owned(), arguments: json!({ "timezone": zone }) };
        messages.push(user(&format!("What time is it in {city}?")));
        messages.push(ChatMessage::Assistant { text: String::new(), calls: vec![call] });
        let text = "12:00".to_owned();
        messages.push(ChatMessage::Tool { call_id: city.to_owned(), name: "get_current_time".to_owned(), text });
        messages.push(ChatMessage::Assistant { text: format!("It is 12:00 in {city}."), calls: Vec::new() });
    }
    messages.push(user("What time is it in London?"));
    messages
}

#[tokio::test]
async fn a_call_that_the_model_begins_comes_under_the_grammar() {
    let request = |choice| Request {
        messages: habit(),
        tools: vec![time_tool()],
        tool_choice: choice,
        sampling: Sampling { repeat_penalty: 1.0, ..greedy() },
        max_tokens: Some(120),
        ..Request::default()
    };
    let answer = ask(&shared(), request(ToolChoice::Auto)).await.unwrap();
    assert!(!answer.calls.is_empty() && answer.reason() == Finish::Calls, "{answer:?}");
    for call in &answer.calls {
        check(&[time_tool()], call);
    }
    assert!(!answer.text.contains("<tool"), "{}", answer.text);
    // The same history, but no call allowed: the answer is text, and the mark does not show in it.
    let answer = ask(&shared(), request(ToolChoice::None)).await.unwrap();
    assert!(answer.calls.is_empty() && !answer.text.is_empty() && answer.reason() != Finish::Calls, "{answer:?}");
    assert!(!answer.text.contains("<tool_call>"), "{}", answer.text);
}

#[tokio::test]
async fn a_call_never_runs_away() {
    let free = tool(
        "write",
        "Write a text",
        json!({ "type": "object", "properties": { "text": { "type": "string" }, "more": {} }, "required": ["text", "more"] }),
    );
    let request = Request {
        messages: vec![user("Write the word no as often as you can.")],
        tools: vec![free.clone()],
        tool_choice: ToolChoice::Required,
        sampling: greedy(),
        max_tokens: Some(160),
        ..Request::default()
    };
    let answer = ask(&shared(), request).await.unwrap();
    assert_eq!(answer.reason(), Finish::Calls);
    check(&[free], &answer.calls[0]);
}

#[tokio::test]
async fn a_small_limit_still_gives_a_whole_call() {
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] });
    let list = tool("list_directory", "List the files and folders in a folder", schema);
    let request =
        Request { tools: vec![list.clone()], tool_choice: ToolChoice::Required, ..says("List the files in /srv/project/engine", 40) };
    let answer = ask(&shared(), request).await.unwrap();
    assert_eq!((answer.calls.len(), answer.reason()), (1, Finish::Calls), "{answer:?}");
    check(&[list], &answer.calls[0]);
    let arguments: Value = serde_json::from_str(&answer.calls[0].1).unwrap();
    assert!(arguments["path"].as_str().unwrap().len() > 3, "the limit closed the text at once: {arguments}");
}

#[tokio::test]
async fn what_a_grammar_cannot_express_the_check_before_the_gate_refuses() {
    // No text fits this pattern.
    let schema = json!({ "type": "object", "properties": { "x": { "type": "string", "pattern": "^(?=b)a$" } }, "required": ["x"] });
    let odd = tool("odd", "Does something", schema.clone());
    let request = Request { tools: vec![odd], tool_choice: ToolChoice::Required, ..says("Do it.", 40) };
    let answer = ask(&shared(), request).await.unwrap();
    assert_eq!(answer.reason(), Finish::Calls);
    let arguments: Value = serde_json::from_str(&answer.calls[0].1).unwrap();
    assert!(arguments["x"].is_string(), "{arguments}");
    let refused = handrail_engine::turn::validate(&schema, &arguments).unwrap_err();
    assert!(refused.contains("/x"), "{refused}");
}

#[tokio::test]
async fn cancel_ends_the_stream_at_once() {
    let model = chat::load("a", &path(), 0).unwrap();
    // While it writes.
    let cancel = CancellationToken::new();
    let mut stream = model.stream(says("Count from one to one thousand.", 2_000), cancel.clone());
    let mut answer = Answer::default();
    while answer.text.len() < 10 {
        answer.add(stream.next().await.unwrap().unwrap());
    }
    cancel.cancel();
    let mut texts = 0;
    while let Some(delta) = stream.next().await {
        let delta = delta.unwrap();
        texts += usize::from(matches!(delta, Delta::Text(_)));
        answer.add(delta);
    }
    assert_eq!(answer.reason(), Finish::Cancelled);
    assert!(texts <= 1, "{texts} more texts behind the cancel");
    // While it reads a long prompt: no further chunk is told of.
    let cancel = CancellationToken::new();
    let mut stream = model.stream(says(&"word ".repeat(4_000), 10), cancel.clone());
    let _ = stream.next().await.unwrap().unwrap();
    cancel.cancel();
    let answer = drain(stream).await.unwrap();
    assert_eq!(answer.reason(), Finish::Cancelled);
    assert!(answer.prefill.len() <= 1 && answer.text.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn a_request_in_line_can_be_cancelled_and_a_dropped_one_makes_room() {
    let model = chat::load("a", &path(), 0).unwrap();
    let mut long = model.stream(says("Count from one to one thousand.", 4_000), CancellationToken::new());
    let _ = long.next().await.unwrap().unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let waiting = drain(model.stream(says("Hi", 5), cancel)).await.unwrap();
    assert_eq!((waiting.reason(), waiting.usage()), (Finish::Cancelled, Usage::default()));
    drop(long);
    let begun = Instant::now();
    assert!(ask(&model, says("Hi", 3)).await.is_ok());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_longer_history_is_read_from_where_it_is_new() {
    let model = chat::load("a", &path(), 0).unwrap();
    let first = says("What is the capital of France?", 12);
    let answer = ask(&model, first.clone()).await.unwrap();
    assert_eq!((answer.usage().cached_tokens, answer.prefill[0].2), (0, 0));
    let mut second = first.clone();
    second.messages.push(ChatMessage::Assistant { text: answer.text.clone(), calls: Vec::new() });
    second.messages.push(user("And of Italy?"));
    let again = ask(&model, second.clone()).await.unwrap();
    let (kept, prompt) = (again.usage().cached_tokens, answer.usage().prompt_tokens);
    assert!(kept >= prompt, "{kept} of the first {prompt} tokens and the answer were kept");
    assert_eq!(again.prefill[0], (kept, again.usage().prompt_tokens, kept));
    assert!(!again.text.is_empty());
}

#[tokio::test]
async fn impossible_requests_are_told_apart() {
    let model = shared();
    let long = ask(&model, says(&"word ".repeat(9_000), 5)).await.unwrap_err();
    assert!(matches!(long, Error::TooLong { needed, context: 8192 } if needed > 9_000), "{long}");
    let named = Request { tool_choice: ToolChoice::Named("nothing".to_owned()), tools: tools(), ..says("Hi", 5) };
    assert!(matches!(ask(&model, named).await.unwrap_err(), Error::Request(what) if what.contains("'nothing'")));
    let required = Request { tool_choice: ToolChoice::Required, ..says("Hi", 5) };
    assert!(matches!(ask(&model, required).await.unwrap_err(), Error::Request(_)));
    // The model is still there.
    assert!(ask(&model, says("Hi", 2)).await.is_ok());
}

#[tokio::test]
async fn a_limit_ends_the_answer() {
    let answer = ask(&shared(), says("Tell me a long story.", 7)).await.unwrap();
    assert_eq!((answer.reason(), answer.usage().completion_tokens), (Finish::Length, 7));
}

#[test]
fn broken_files_are_errors() {
    let whole = std::fs::read(path()).unwrap();
    let noise: Vec<u8> = (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut counts = whole[..200_000].to_vec();
    counts[8..24].fill(0x7f);
    let mut flipped = whole[..3_000_000].to_vec();
    flipped[24..4_000].reverse();
    let cases: [(&str, &[u8]); 7] = [
        ("empty", &[]),
        ("magic only", b"GGUF"),
        ("noise", &noise),
        ("cut in the header", &whole[..100_000]),
        ("cut in the weights", &whole[..50_000_000]),
        ("huge counts", &counts),
        ("a header upside down", &flipped),
    ];
    for (what, bytes) in cases {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        match chat::load("broken", file.path(), 0) {
            Err(Error::Unavailable { model, reason }) => {
                assert!(model == "broken" && reason.contains(&*file.path().to_string_lossy()), "{what}: {reason}");
            }
            other => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn another_architecture_is_named() {
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend(1u64.to_le_bytes());
    for (text, kind) in [("general.architecture", Some(8u32)), ("mamba", None)] {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend(kind.into_iter().flat_map(u32::to_le_bytes));
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let error = chat::load("m", file.path(), 0).unwrap_err().to_string();
    assert!(error.contains("'mamba'") && error.contains("llama, qwen2, qwen3"), "{error}");
}

#[test]
fn the_bench_counts() {
    let report = handrail_engine::local::bench::run(&path(), 40, 5, 1, &TemplateChoice::Own).unwrap();
    assert_eq!((report.prompt_tokens, report.new_tokens, report.threads), (40, 5, 1));
    assert!(report.prefill_tokens_per_second > 1.0 && report.decode_tokens_per_second > 1.0, "{report:?}");
    assert!(report.first_token_ms > 0.0 && report.load_ms > 0.0);
    assert!(report.peak_memory_bytes.is_none_or(|bytes| bytes > 50 << 20), "{report:?}");
    assert!(matches!(handrail_engine::local::bench::run(&path(), 9_000, 1, 1, &TemplateChoice::Own), Err(Error::TooLong { .. })));
}
