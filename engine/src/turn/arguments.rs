//! Arguments as a model wrote them: parsed, repaired where nothing is lost by it, checked against the schema.

use jsonschema::{PatternOptions, Retrieve, Uri};
use serde_json::Value;

/// Problems that are told to the model; more would not help it.
const PROBLEMS: usize = 3;

/// Steps that one pattern of a schema may take, so that no schema can hang a turn.
const BACKTRACKS: usize = 100_000;

/// Parses arguments. Only what loses nothing is repaired: no text at all or `null` (no arguments), a code fence around
/// the object, an object that was written as a JSON string, commas before a closing bracket. Everything else is
/// refused with a reason that the model can read; text that was cut off is never completed.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let trimmed = unfence(text.trim());
    if trimmed.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    let parsed = serde_json::from_str(trimmed).or_else(|error| serde_json::from_str(&without_trailing_commas(trimmed)).map_err(|_| error));
    match parsed {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(Value::Null) => Ok(Value::Object(serde_json::Map::new())),
        Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
            Ok(Value::Object(object)) => Ok(Value::Object(object)),
            _ => Err("the arguments must be a JSON object, not a string".to_owned()),
        },
        Ok(other) => Err(format!("the arguments must be a JSON object, not {}", kind(&other))),
        Err(error) if error.is_eof() => Err("the arguments were cut off before their end".to_owned()),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn unfence(text: &str) -> &str {
    let Some(inner) = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```")) else {
        return text;
    };
    inner.strip_prefix("json").unwrap_or(inner).trim()
}

fn without_trailing_commas(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for c in text.chars() {
        if !in_string && matches!(c, '}' | ']') {
            let kept = out.trim_end();
            if kept.ends_with(',') {
                out.truncate(kept.len() - 1);
            }
        }
        in_string = if c == '"' && !escaped { !in_string } else { in_string };
        escaped = in_string && c == '\\' && !escaped;
        out.push(c);
    }
    out
}

/// A schema may point into itself, but never out to the network or the disk.
struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("references to other documents are not followed ({uri})").into())
    }
}

/// Checks arguments against the tool's own schema. A schema that cannot be used is a reason too: nothing unchecked
/// comes before the person.
pub fn check(schema: &Value, arguments: &Value) -> Result<(), String> {
    let validator = jsonschema::options()
        .with_retriever(Nowhere)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS))
        .build(schema)
        .map_err(|error| format!("the tool's own schema cannot be used to check the arguments: {error}"))?;
    let problems: Vec<String> = validator
        .iter_errors(arguments)
        .take(PROBLEMS)
        .map(|error| {
            let place = error.instance_path().to_string();
            if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(format!("the arguments do not fit the tool's schema: {}", problems.join("; "))) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_loses_nothing_is_repaired() {
        for (text, value) in [
            ("", json!({})),
            ("null", json!({})),
            (" {\"a\": 1} ", json!({"a": 1})),
            ("```json\n{\"a\": [1, 2]}\n```", json!({"a": [1, 2]})),
            (r#""{\"a\": \"x\"}""#, json!({"a": "x"})),
            (r#"{"a": [1, 2, ], "b": ",]", "c": "\\",}"#, json!({"a": [1, 2], "b": ",]", "c": "\\"})),
        ] {
            assert_eq!(parse(text), Ok(value), "{text}");
        }
        for (text, reason) in [
            (r#"{"path": "/tmp/a"#, "cut off"),
            (r#"{"a": {"b": 1}"#, "cut off"),
            ("{'a': 1}", "not valid JSON"),
            ("[1]", "an array"),
            ("\"a\"", "a string"),
            ("3", "a number"),
            ("{\"a\": 1} {\"b\": 2}", "not valid JSON"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn arguments_are_checked_and_the_reason_names_the_place() {
        let schema = json!({
            "type": "object",
            "properties": { "n": { "$ref": "#/$defs/count" }, "name": { "type": "string", "pattern": "^(?!x)" } },
            "required": ["n"],
            "$defs": { "count": { "type": "integer", "minimum": 1 } },
        });
        assert_eq!(check(&schema, &json!({"n": 2, "name": "a"})), Ok(()));
        assert!(check(&schema, &json!({"n": 0})).unwrap_err().contains("/n"), "{:?}", check(&schema, &json!({"n": 0})));
        assert!(check(&schema, &json!({})).unwrap_err().contains("\"n\""));
        assert!(check(&schema, &json!({"n": 1, "name": "xy"})).is_err());
        assert_eq!(check(&json!({}), &json!({"anything": true})), Ok(()));
    }

    #[test]
    fn a_schema_leads_nowhere_else_and_cannot_hang() {
        for reference in ["https://example.com/schema.json", "file:///etc/passwd"] {
            let error = check(&json!({ "properties": { "a": { "$ref": reference } } }), &json!({})).unwrap_err();
            assert!(error.contains("schema cannot be used"), "{error}");
        }
        let slow = json!({ "properties": { "a": { "type": "string", "pattern": "^(a|a)*(?=b)$" } } });
        let begun = std::time::Instant::now();
        assert!(check(&slow, &json!({ "a": "a".repeat(64) })).is_err());
        assert!(begun.elapsed().as_secs() < 5);
    }
}
