//! Arguments as a model wrote them: parsed, repaired where nothing is lost by it, checked against the schema.

use serde_json::Value;

use crate::tool::numbers::first_wide;
use crate::tool::schema::{Checker, Wrong};

/// Parses arguments. Only what loses nothing is repaired: no text at all or `null` (no arguments), a code fence around
/// the object, an object that was written as a JSON string, commas before a closing bracket. Everything else is
/// refused with a reason that the model can read; text that was cut off is never completed.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let trimmed = unfence(text.trim());
    if trimmed.is_empty() {
        return Ok(Value::Object(serde_json::Map::new()));
    }
    exact(trimmed)?;
    let parsed = serde_json::from_str(trimmed).or_else(|error| serde_json::from_str(&without_trailing_commas(trimmed)).map_err(|_| error));
    match parsed {
        Ok(Value::Object(object)) => Ok(Value::Object(object)),
        Ok(Value::Null) => Ok(Value::Object(serde_json::Map::new())),
        Ok(Value::String(inner)) => match serde_json::from_str(&inner) {
            Ok(Value::Object(object)) => exact(&inner).map(|()| Value::Object(object)),
            _ => Err("the arguments must be a JSON object, not a string".to_owned()),
        },
        Ok(other) => Err(format!("the arguments must be a JSON object, not {}", kind(&other))),
        Err(error) if error.is_eof() => Err("the arguments were cut off before their end".to_owned()),
        Err(error) => Err(format!("the arguments are not valid JSON: {error}")),
    }
}

/// Whether every number of a JSON text stays what it is when it is read. One that does not is refused: an identifier that is
/// off by one names somebody else.
pub fn exact(text: &str) -> Result<(), String> {
    match first_wide(text) {
        None => Ok(()),
        Some(number) => Err(format!(
            "the number {number:.60} has more digits than can be passed on exactly (64 bits); nothing was sent. Give it as a text where the tool takes one"
        )),
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

/// Checks arguments against a tool's schema ([`Definition::parameters`](crate::tool::Definition::parameters)). A check that
/// has no verdict is a reason too: nothing unchecked comes before the person unless its schema asks for nothing.
pub fn check(schema: &Value, arguments: &Value) -> Result<(), String> {
    let checker =
        Checker::new(schema, false).map_err(|error| format!("the tool's own schema cannot be used to check the arguments: {error}"))?;
    checker.check(arguments).map_err(|wrong| match wrong {
        Wrong::Unfit(problems) => format!("the arguments do not fit the tool's schema: {problems}"),
        Wrong::TooMuch => "checking the arguments against the tool's schema would take too long; make them smaller".to_owned(),
    })
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
            ("{\"id\": 1234567890123456789, \"u\": 18446744073709551615}", json!({"id": 1_234_567_890_123_456_789_i64, "u": u64::MAX})),
            ("{\"s\": \"123456789012345678901234567890\"}", json!({"s": "123456789012345678901234567890"})),
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
            ("{\"id\": 123456789012345678901234567890}", "64 bits"),
            ("{\"ids\": [1, 18446744073709551616]}", "64 bits"),
            ("{\"x\": 1e400}", "64 bits"),
            ("{\"x\": 1234567890123456789.0}", "64 bits"),
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
