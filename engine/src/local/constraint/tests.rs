use serde_json::json;

use super::*;
use crate::local::gguf::Gguf;
use crate::local::sampler::Sampler;
use crate::local::test_model;
use crate::provider::Sampling;

fn tokenizer() -> Tokenizer {
    Tokenizer::read(&Gguf::open(&test_model::path()).unwrap()).unwrap()
}

fn tool(name: &str, parameters: Value) -> ToolSpec {
    ToolSpec { name: name.to_owned(), description: String::new(), parameters }
}

/// Walks a grammar with dice instead of a model: every token that is allowed is equally likely.
fn wander(constraint: &mut Constraint, tokenizer: &Tokenizer, seed: u64) -> String {
    let mut dice = Sampler::new(Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repeat_penalty: 1.0, seed });
    let mut tokens = Vec::new();
    while tokens.len() < 4_000 {
        let forced = constraint.forced();
        if !forced.is_empty() {
            constraint.take(&forced).unwrap();
            tokens.extend(forced);
            continue;
        }
        if constraint.is_over() {
            return tokenizer.decode(&tokens);
        }
        let mut logits = vec![0.0; tokenizer.len()];
        constraint.filter(&mut logits).unwrap();
        let token = dice.pick(&logits).unwrap();
        if tokenizer.is_end(token) {
            return tokenizer.decode(&tokens);
        }
        constraint.take(&[token]).unwrap();
        tokens.push(token);
    }
    panic!("no end: {}", tokenizer.decode(&tokens));
}

fn parse(text: &str) -> (String, Value) {
    let json = text.strip_prefix(CALL.0).and_then(|rest| rest.strip_suffix(CALL.1)).unwrap_or_else(|| panic!("{text}"));
    let call: Value = serde_json::from_str(json).unwrap();
    (call["name"].as_str().unwrap().to_owned(), call["arguments"].clone())
}

#[test]
fn even_dice_write_valid_calls() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let tools = [
        tool(
            "plain",
            json!({ "type": "object", "properties": { "on": { "type": "boolean" }, "n": { "type": "integer", "minimum": 1, "maximum": 9 } }, "required": ["n"] }),
        ),
        tool(
            "unit \"x\"",
            json!({ "type": "object", "properties": { "unit": { "enum": ["c", "f", 3, null] } }, "required": ["unit"], "additionalProperties": false }),
        ),
        tool("none", json!({ "type": "object", "properties": {} })),
    ];
    let mut names = std::collections::BTreeSet::new();
    for seed in 0..30 {
        let mut constraint = grammars.calls(&tools.iter().collect::<Vec<_>>(), false, &|| false).unwrap();
        let (name, arguments) = parse(&wander(&mut constraint, &tokenizer, seed));
        let tool = tools.iter().find(|tool| tool.name == name).unwrap();
        jsonschema::validate(&tool.parameters, &arguments).unwrap();
        let _ = names.insert(name);
    }
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn several_calls_end_at_the_limit() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let none = tool("none", json!({ "type": "object", "properties": {} }));
    let mut constraint = grammars.calls(&[&none], true, &|| false).unwrap();
    let one = "<tool_call>\n{\"name\": \"none\", \"arguments\": {}}\n</tool_call>";
    for nth in 0..CALLS {
        let text = if nth == 0 { one.to_owned() } else { format!("\n{one}") };
        constraint.take(&tokenizer.encode(&text).unwrap()).unwrap();
        if nth + 1 < CALLS {
            let mut logits = vec![0.0; tokenizer.len()];
            constraint.filter(&mut logits).unwrap();
            assert!(logits[2].is_finite() && logits.iter().filter(|logit| logit.is_finite()).count() > 1);
        }
    }
    assert!(constraint.is_over());
}

#[test]
fn schemas_that_cannot_be_followed_are_relaxed() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let odd = [
        json!({ "type": "object", "properties": { "x": { "type": "string", "format": "made-up" } }, "required": ["x"] }),
        json!({ "type": "object", "properties": { "x": { "type": "string", "pattern": "(?<=a)b" } }, "required": ["x"] }),
        json!({ "type": "object", "properties": { "x": { "type": "string", "maxLength": 4_000_000_000u64 } } }),
        json!({ "type": "object", "properties": { "x": { "not": { "type": "null" } } }, "if": {}, "then": {} }),
        json!({ "type": "object", "properties": { "x": { "$ref": "https://example.com/x.json" } } }),
        json!({ "type": "object", "minProperties": 2, "maxProperties": 3 }),
        json!(null),
        json!(true),
        json!({ "type": "banana" }),
    ];
    for schema in odd {
        let tool = tool("odd", schema.clone());
        let mut constraint = grammars.calls(&[&tool], false, &|| false).unwrap_or_else(|e| panic!("{schema}: {e:?}"));
        constraint.take(&tokenizer.encode("<tool_call>\n{\"name\": \"odd\", \"arguments\": {").unwrap()).unwrap();
    }
}

#[test]
fn a_relaxed_form_still_gives_json_and_the_original_still_refuses_it() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    // No text fits this pattern, and no grammar can express it: only a form without it compiles.
    let pattern = json!({ "type": "object", "properties": { "x": { "type": "string", "pattern": "^(?=b)a$" }, "n": { "type": "integer", "minimum": 1, "maximum": 3 } }, "required": ["x", "n"] });
    let never = tool("never", pattern);
    let form = grammars.fitting(&never).unwrap();
    assert!(form.pointer("/properties/x/pattern").is_none() && form.pointer("/properties/n/maximum").is_some(), "{form}");
    for seed in 0..5 {
        let mut constraint = grammars.calls(&[&never], false, &|| false).unwrap();
        let (_, arguments) = parse(&wander(&mut constraint, &tokenizer, seed));
        jsonschema::validate(&form, &arguments).unwrap();
        let error = jsonschema::validate(&never.parameters, &arguments).unwrap_err();
        assert_eq!(error.instance_path().to_string(), "/x", "{error}");
    }
    // The loosest form takes any object, and only JSON.
    let banana = tool("banana", json!({ "type": "banana" }));
    assert_eq!(grammars.fitting(&banana).unwrap().get("type"), Some(&"object".into()));
    let head = "<tool_call>\n{\"name\": \"banana\", \"arguments\": ";
    let spelled = |arguments: &str| {
        let mut constraint = grammars.calls(&[&banana], false, &|| false).unwrap();
        let text = format!("{head}{arguments}}}\n</tool_call>");
        constraint.take(&tokenizer.encode(&text).unwrap()).map(|()| constraint.is_over())
    };
    assert_eq!(spelled("{\"a\": [1, {\"b\": null}]}"), Ok(true));
    for no in ["{a: 1}", "[1]", "{\"a\": 1,}", "3"] {
        assert!(spelled(no).is_err(), "{no}");
    }
}

#[test]
fn what_was_built_is_kept_and_a_stop_is_seen_before_building() {
    let tokenizer = tokenizer();
    let grammars = Grammars::new(&tokenizer).unwrap();
    let tools: Vec<ToolSpec> = (0..3).map(|n| tool(&format!("t{n}"), json!({ "type": "object", "properties": {} }))).collect();
    let tools: Vec<&ToolSpec> = tools.iter().collect();
    let asked = std::cell::Cell::new(0);
    let count = |most: usize| {
        asked.set(asked.get() + 1);
        asked.get() > most
    };
    assert!(matches!(grammars.calls(&tools, false, &|| count(0)), Err(Halt::Stopped)));
    asked.set(0);
    assert!(matches!(grammars.calls(&tools, false, &|| count(2)), Err(Halt::Stopped)));
    asked.set(0);
    let mut first = grammars.calls(&tools, false, &|| count(usize::MAX)).unwrap();
    assert_eq!(asked.get(), 4);
    // The second time nothing is built, and the two go their own ways.
    asked.set(0);
    let mut second = grammars.calls(&tools, false, &|| count(0)).unwrap();
    assert_eq!(asked.get(), 0);
    assert_eq!(parse(&wander(&mut first, &tokenizer, 1)), parse(&wander(&mut second, &tokenizer, 1)));
    let mut third = grammars.calls(&tools, false, &|| count(0)).unwrap();
    assert!(first.is_over() && !third.is_over());
    assert_eq!(parse(&wander(&mut third, &tokenizer, 2)).1, json!({}));
    // The same tools for several calls, or one tool less, are another grammar.
    for (tools, more) in [(&tools[..], true), (&tools[..2], false)] {
        asked.set(0);
        assert!(matches!(grammars.calls(tools, more, &|| count(0)), Err(Halt::Stopped)));
    }
}
