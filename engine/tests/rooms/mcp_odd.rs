//! Servers that are almost one: what they mean is understood, and what is not is told in words a person can use.

use std::path::Path;
use std::time::{Duration, Instant};

use handrail_engine::mcp::{self, State};
use handrail_engine::store::Store;
use handrail_engine::tool;
use serde_json::{Value, json};

use super::mcp::Bench;

fn odd(options: &Value) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rooms/mcp_odd.py");
    json!({ "command": "python3", "args": ["-u", script, options.to_string()] })
}

/// Whether words were made by a program for its authors.
fn is_debug(words: &str) -> bool {
    ["Some(", "Object {", "Ok(", "Err(", "None,", "Custom", "JsonRpc", "{\n"].iter().any(|mark| words.contains(mark))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_greeting_that_lacks_something_is_accepted_with_a_note() {
    let bench = Bench::new();
    let who = |info: Value| json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info});
    for (name, greeting, note) in [
        ("noversion", who(json!({"name": "n"})), "gives no version"),
        ("number", who(json!({"name": "n", "version": 2})), "no text"),
        ("nobody", json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}), "does not say who it is"),
        ("nothing", json!({"protocolVersion": "2025-06-18", "capabilities": null}), "does not say what it can do"),
    ] {
        let view = bench.add(name, odd(&json!({"greeting": greeting}))).await;
        assert_eq!((view.state, view.tools.len()), (State::Connected, 1), "{name}");
        assert!(view.notes.iter().any(|words| words.contains(note)), "{name}: {:?}", view.notes);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reason_is_a_debug_print() {
    let bench = Bench::new();
    for (name, greeting) in [
        ("tools", json!({"tools": []})),
        ("text", json!("hello")),
        ("list", json!([1, {"a": null}])),
        ("revision", json!({"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "n", "version": "1"}})),
        ("number", json!({"protocolVersion": 3, "capabilities": {}})),
    ] {
        let _ = bench.manager.paste(&json!({"mcpServers": {name: odd(&json!({"greeting": greeting}))}}).to_string()).unwrap();
        let error = bench.manager.ready(&name.into(), Duration::from_secs(60)).await.unwrap_err().to_string();
        assert!(error.contains(name) && !is_debug(&error), "{name}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_answers_in_other_shapes_keep_the_servers_words() {
    let error = |error: &str| format!(r#"{{"jsonrpc":"2.0","id":@ID@,"error":{error}}}"#);
    let result = |result: &str| format!(r#"{{"jsonrpc":"2.0","id":@ID@,"result":{result}}}"#);
    let foreign = [
        b"{\"jsonrpc\":\"2.0\",\"id\":@ID@,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"// ".as_slice(),
        // EUC-KR; two of these bytes are a character of UTF-8 by chance.
        &[0xc1, 0xd6, 0xbc, 0xae],
        b" total = 42\"}]}}",
    ]
    .concat();
    let bench = Bench::new();
    let replies = json!({
        "word": error(r#"{"code":"E42","message":"string code"}"#),
        "plain": error(r#""plain words""#),
        "broken": result(r#"{"content":oops}"#),
        "words": result(r#"{"content":"just a string"}"#),
        "one": result(r#"{"content":{"type":"text","text":"one object"}}"#),
        "wide": result(r#"{"content":[],"structuredContent":{"n":123456789012345678901234567890,"e":1e400}}"#),
        "summary": result(r#"{"content":[{"type":"text","text":"1 page"}],"structuredContent":{"text":"opens at 3.7 bar"}}"#),
        "foreign": foreign,
    });
    let view = bench.add("odd", odd(&json!({"replies": replies}))).await;
    assert_eq!(view.state, State::Connected);
    for (tool, words) in [("word", "string code (code E42)"), ("plain", "plain words"), ("broken", "no valid JSON")] {
        let begun = Instant::now();
        let error = bench.call("odd", tool, json!({})).await.unwrap_err();
        assert!(matches!(&error, tool::Error::Protocol { message, .. } if message.contains(words)), "{tool}: {error}");
        assert!(begun.elapsed() < Duration::from_secs(10) && !is_debug(&error.to_string()), "{tool}: {error}");
    }
    for (tool, text) in [
        ("words", "just a string"),
        ("one", "one object"),
        ("wide", r#"{"n":"123456789012345678901234567890","e":"1e400"}"#),
        ("summary", "1 page\n{\"text\":\"opens at 3.7 bar\"}"),
        ("foreign", "// \u{fffd}\u{5bc}\u{fffd} total = 42"),
    ] {
        assert_eq!(bench.call("odd", tool, json!({})).await.unwrap().to_text(), text, "{tool}");
    }
    let notes = bench.manager.servers().remove(0).notes;
    assert!(notes.iter().any(|note| note.contains("UTF-8")) && notes.iter().any(|note| note.contains("64 bits")), "{notes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_all_the_same_or_none_reach_the_one_call_that_waits() {
    let bench = Bench::new();
    for ids in ["zero", "null", "text"] {
        let begun = Instant::now();
        let view = bench.add(ids, odd(&json!({"ids": ids, "error_for_notifications": ids == "null"}))).await;
        assert_eq!(view.state, State::Connected, "{ids}");
        assert_eq!(bench.call(ids, "echo", json!({"a": 1})).await.unwrap().to_text(), "{\"a\": 1}", "{ids}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{ids}: {:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_with_broken_schemas_can_be_called_and_say_what_is_not_checked() {
    let tools = json!([
        {"name": "dangling", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/$defs/Nope"}, "n": {"type": "integer"}}}, "outputSchema": {"type": "object", "properties": {"s": {"$ref": "#/$defs/Screen"}}}},
        {"name": "propsarr", "inputSchema": {"type": "object", "properties": []}},
        {"name": "nullschema", "inputSchema": null},
        {"name": "", "inputSchema": {}},
        {"name": 7, "inputSchema": {}},
    ]);
    let bench = Bench::new();
    let view = bench.add("odd", odd(&json!({"tools": tools}))).await;
    let names: Vec<&str> = view.tools.iter().map(|tool| tool.id.name.as_str()).collect();
    assert_eq!(names, ["dangling", "nullschema", "propsarr"]);
    assert_eq!(view.notes.len(), 2, "{:?}", view.notes);
    let definition = bench.tool("odd", "dangling").definition().clone();
    let unchecked: Vec<String> = definition.unchecked().iter().map(ToString::to_string).collect();
    assert_eq!(unchecked.len(), 2);
    assert!(unchecked[0].starts_with("/properties/a/$ref: ") && unchecked[1].starts_with("result /properties/s/$ref: "), "{unchecked:?}");
    // The identity is that of the original.
    assert_eq!(definition.input_schema, tools[0]["inputSchema"]);
    let check = |arguments: Value| handrail_engine::turn::validate(definition.parameters(), &arguments);
    assert_eq!(check(json!({"a": {"any": ["thing"]}, "n": 1})), Ok(()));
    assert!(check(json!({"n": "x"})).is_err());
    for name in ["dangling", "propsarr", "nullschema"] {
        assert!(bench.call("odd", name, json!({})).await.is_ok() || name == "dangling", "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_entry_costs_only_itself() {
    let bench = Bench::new();
    let text = r#"{"mcpServers": {
        "good": {"command": "python3", "args": ["-c", "pass"], "env": {"N": null, "A": 1}, "active": false},
        "list": {"type": "local", "command": ["python3", "x.py"], "args": ["y"], "environment": {"K": "v"}, "enabled": false},
        "header": {"url": "http://127.0.0.1:9/mcp", "headers": {"X User": "a"}, "active": false},
        "empty": {},
        "asks": {"command": "x", "env": {"K": "${input:key}", "W": "${workspaceFolder}/m"}, "cwdd": "typo", "active": false}
    }}"#;
    let shown = bench.manager.look(text, &mcp::consent::Origin::Pasted).unwrap();
    let names: Vec<&str> = shown.servers.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(names, ["good", "list", "asks"]);
    assert_eq!(shown.servers[1].1.subject.line(), "python3 x.py y");
    let faults: Vec<String> = shown.faults.iter().map(ToString::to_string).collect();
    assert!(faults.len() == 2 && faults[0].contains("'header'") && faults[0].contains("X User"), "{faults:?}");
    assert!(faults[1].contains("'empty'") && faults[1].contains("command"), "{faults:?}");
    let notes = shown.notes.join("\n");
    for wanted in ["\"N\" has no value", "\"cwdd\" have no effect", "secret set 'asks.key'", "secret set 'asks.workspaceFolder'"] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
    assert_eq!(bench.manager.paste(text).unwrap().len(), 3);
    assert_eq!(bench.manager.servers().len(), 3);
    // As opencode has it: right under "mcp".
    let theirs = r#"{"$schema": "s", "mcp": {"oc": {"type": "local", "command": ["npx", "-y", "x@1"], "enabled": false}}}"#;
    assert_eq!(bench.manager.paste(theirs).unwrap(), ["oc".into()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_characters_in_a_path_are_shown_with_what_was_meant() {
    let bench = Bench::new();
    let text = "{\"mcpServers\": {\"files\": {\"command\": \"srv\", \"args\": [\"C:\\new\\table\", \"one\\ntwo\"]}}}";
    let shown = bench.manager.preview(text, &mcp::consent::Origin::Pasted).unwrap();
    assert_eq!(shown[0].1.subject.line(), r#"srv "C:\new\table" "one\ntwo""#);
    let warnings: Vec<String> = shown[0].1.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(warnings, [r#"this path holds a control character: "C:\new\table". Did you mean C:\\new\\table?"#]);
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_that_another_process_records_starts_the_server_within_a_second() {
    let folder = tempfile::tempdir().unwrap();
    let (file, database) = (folder.path().join("mcp_config.json"), folder.path().join("handrail.db"));
    std::fs::write(&file, json!({"mcpServers": {"odd": odd(&json!({}))}}).to_string()).unwrap();
    let window = mcp::Manager::new(file.clone(), Store::open(&database).unwrap());
    window.start_all();
    let state = || window.servers().remove(0).state;
    assert_eq!(state(), State::NeedsConsent);
    // Another connection to the same database stands for the other process.
    let line = mcp::Manager::with(file, Store::open(&database).unwrap(), mcp::Options { by_hand: true, ..mcp::Options::default() });
    let consent = line.servers().remove(0).consent.unwrap();
    line.agree(&"odd".into(), &consent).unwrap();
    let begun = Instant::now();
    while state() == State::NeedsConsent {
        assert!(begun.elapsed() < Duration::from_secs(5), "still asking");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(begun.elapsed() < Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert_eq!(window.ready(&"odd".into(), Duration::from_secs(60)).await.unwrap().state, State::Connected);
}
