//! A call that a model asked for.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::id::ToolId;

/// The id of one call; unique across conversations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(String);

impl CallId {
    /// A fresh id.
    #[must_use]
    pub fn fresh() -> Self {
        Self(format!("call_{}", Uuid::now_v7().simple()))
    }

    /// Wraps an id that came from elsewhere (a remote model, the database).
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One call: which tool, under which name the model knew it, with which arguments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Unique id; each gets exactly one result.
    pub id: CallId,
    /// The tool's identity.
    pub tool: ToolId,
    /// The name that the model used.
    pub alias: String,
    /// The arguments, always a JSON object.
    pub arguments: Value,
}

/// JSON with sorted keys and no white space: equal values give equal bytes.
#[must_use]
pub fn canonical_json(value: &Value) -> String {
    let mut out = String::new();
    write_canonical(value, &mut out);
    out
}

fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(map) => {
            let mut keys: Vec<&String> = map.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write_canonical(&map[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_json_does_not_depend_on_key_order() {
        let left: Value = serde_json::from_str(r#"{"b":[1,{"y":2,"x":"é"}],"a":null}"#).unwrap();
        let right: Value = serde_json::from_str(r#"{ "a": null, "b": [1, {"x": "é", "y": 2}] }"#).unwrap();
        assert_eq!(canonical_json(&left), canonical_json(&right));
        assert_eq!(canonical_json(&left), r#"{"a":null,"b":[1,{"x":"é","y":2}]}"#);
        assert_ne!(canonical_json(&json!([1, 2])), canonical_json(&json!([2, 1])));
    }
}
