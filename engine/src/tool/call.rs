//! A call that a model asked for.

use std::fmt;
use std::io::{BufWriter, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::id::ToolId;

/// Bytes that are gathered before they are hashed.
const CRUMBS: usize = 4096;

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
    let mut out = Vec::new();
    write_canonical(value, &mut out);
    // The writer of JSON writes nothing but UTF-8.
    String::from_utf8(out).unwrap_or_default()
}

/// The SHA-256 of a value's canonical JSON, which is never held as a whole: arguments may be large.
#[must_use]
pub fn canonical_digest(value: &Value) -> [u8; 32] {
    let mut hasher = Sha256::new();
    // The serializer writes in crumbs; a hasher likes whole blocks.
    let mut out = BufWriter::with_capacity(CRUMBS, &mut hasher);
    write_canonical(value, &mut out);
    let _ = out.flush();
    drop(out);
    hasher.finalize().into()
}

/// Writes to what cannot fail: memory, or a hasher.
fn write_canonical(value: &Value, out: &mut impl Write) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            for (index, (key, value)) in entries.into_iter().enumerate() {
                let _ = out.write_all(if index == 0 { b"{" } else { b"," });
                let _ = serde_json::to_writer(&mut *out, key);
                let _ = out.write_all(b":");
                write_canonical(value, out);
            }
            let _ = out.write_all(if map.is_empty() { b"{}" } else { b"}" });
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                let _ = out.write_all(if index == 0 { b"[" } else { b"," });
                write_canonical(item, out);
            }
            let _ = out.write_all(if items.is_empty() { b"[]" } else { b"]" });
        }
        other => {
            let _ = serde_json::to_writer(out, other);
        }
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
        for (value, text) in
            [(json!({}), "{}"), (json!([]), "[]"), (json!([{}, [[]]]), "[{},[[]]]"), (json!({"\"\n": -0.5}), r#"{"\"\n":-0.5}"#)]
        {
            assert_eq!(canonical_json(&value), text);
        }
    }

    #[test]
    fn a_digest_is_that_of_the_canonical_text() {
        let long = json!({"b": "é\u{1}\"".repeat(10_000), "a": [1, null, {"y": 1.5, "x": true}]});
        for value in [long, json!({}), json!("x"), json!(18_446_744_073_709_551_615_u64)] {
            assert_eq!(canonical_digest(&value), <[u8; 32]>::from(Sha256::digest(canonical_json(&value))));
        }
    }
}
