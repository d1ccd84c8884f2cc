//! References of a schema: what they lead to, and which lead back to themselves without an end.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::cost::{CHAIN, INTO, NAMED, PLAIN};

/// Keywords that name a schema or a place in one.
const NAMES: [&str; 4] = ["$anchor", "$dynamicAnchor", "$id", "id"];

/// The places of a schema that have a name of their own.
#[derive(Debug, Default)]
pub(super) struct Names(HashMap<String, String>);

impl Names {
    /// Collects the names of a schema and of all its parts.
    pub(super) fn of(schema: &Value) -> Self {
        let mut names = Self::default();
        names.collect(schema, String::new());
        names
    }

    fn collect(&mut self, schema: &Value, at: String) {
        match schema {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value {
                        Value::String(name) if NAMES.contains(&key.as_str()) => {
                            let name = if key.ends_with("nchor") { format!("#{name}") } else { name.clone() };
                            let _ = self.0.entry(name.trim_end_matches('#').to_owned()).or_insert_with(|| at.clone());
                        }
                        value => self.collect(value, child(&at, key)),
                    }
                }
            }
            Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| self.collect(item, child(&at, &index.to_string()))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// The place that a reference leads to, as a pointer from the root; `base` is the part of the schema with an `$id` of
    /// its own that the reference stands in. The error says what is wrong with it.
    pub(super) fn resolve(&self, root: &Value, base: &str, reference: &str) -> Result<String, String> {
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let start = match document {
            "" => base,
            document => self
                .0
                .get(document)
                .ok_or_else(|| format!("the reference {reference:.100} leads to another document, which is not followed"))?,
        };
        let fragment = decoded(fragment);
        let pointer = if fragment.is_empty() || fragment.starts_with('/') {
            format!("{start}{fragment}")
        } else {
            self.0.get(&format!("#{fragment}")).ok_or_else(|| nowhere(reference))?.clone()
        };
        match root.pointer(&pointer) {
            Some(Value::Object(_) | Value::Bool(_)) => Ok(pointer),
            Some(_) => Err(format!("the reference {reference:.100} leads to something that is no schema")),
            None => Err(nowhere(reference)),
        }
    }
}

fn nowhere(reference: &str) -> String {
    format!("the reference {reference:.100} leads nowhere")
}

/// A URI's fragment without its percent encoding; what is no encoding stays.
pub(super) fn decoded(fragment: &str) -> String {
    let mut bytes = Vec::with_capacity(fragment.len());
    let mut rest = fragment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = (first == b'%').then(|| after.get(..2)).flatten().and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| fragment.to_owned())
}

/// A pointer one step further.
pub(super) fn child(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// The places whose `$ref` closes a circle that never ends: one in which no step goes into the value, so that the check would
/// go on for ever, or one in which each value must hold the next, so that no value is ever whole. Also those at the end of a
/// chain of references that is too long. All references must be pointers that lead somewhere.
pub(super) fn endless(root: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for inwards in [false, true] {
        let mut circles = Circles { root, inwards, done: HashSet::new(), open: Vec::new(), found };
        circles.everywhere(root, "");
        found = circles.found;
    }
    found
}

struct Circles<'a> {
    root: &'a Value,
    /// Whether steps into parts that must be there count as well.
    inwards: bool,
    done: HashSet<String>,
    open: Vec<String>,
    found: BTreeSet<String>,
}

impl<'a> Circles<'a> {
    /// Follows each reference of the schema, wherever it stands.
    fn everywhere(&mut self, value: &'a Value, at: &str) {
        match value {
            Value::Object(fields) => {
                self.reference(value, at);
                for (key, value) in fields {
                    self.everywhere(value, &child(at, key));
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.everywhere(item, &child(at, &index.to_string()));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn reference(&mut self, schema: &Value, at: &str) {
        let Some(target) = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#')) else { return };
        if self.open.len() == CHAIN || self.open.iter().any(|open| open == target) {
            let _ = self.found.insert(at.to_owned());
            return;
        }
        if !self.done.insert(target.to_owned()) {
            return;
        }
        if let Some(found) = self.root.pointer(&decoded(target)) {
            self.open.push(target.to_owned());
            self.here(found, target);
            let _ = self.open.pop();
        }
    }

    /// The references that hold for the same value as this schema.
    fn here(&mut self, schema: &'a Value, at: &str) {
        let Some(fields) = schema.as_object() else { return };
        self.reference(schema, at);
        for (key, value) in fields {
            match value {
                Value::Object(_) if key == "dependentSchemas" => self.each(value, &child(at, key)),
                _ if INTO.contains(&key.as_str()) || PLAIN.contains(&key.as_str()) || NAMED.contains(&key.as_str()) => {}
                // One of them is enough, so none of them must be.
                Value::Array(_) if self.inwards && matches!(key.as_str(), "anyOf" | "oneOf") => {}
                _ if self.inwards && matches!(key.as_str(), "not" | "if" | "then" | "else") => {}
                Value::Array(_) => self.each(value, &child(at, key)),
                value => self.here(value, &child(at, key)),
            }
        }
        if self.inwards {
            self.needed(fields, at);
        }
    }

    /// The parts that a value must have. One that may be something else than an object or a list need not have them.
    fn needed(&mut self, fields: &'a Map<String, Value>, at: &str) {
        match fields.get("type").and_then(Value::as_str) {
            Some("object") => {
                let names = fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
                for name in names {
                    if let Some(part) = fields.get("properties").and_then(|properties| properties.get(name)) {
                        self.here(part, &child(&child(at, "properties"), name));
                    }
                }
            }
            Some("array") if fields.get("minItems").and_then(Value::as_u64).is_some_and(|least| least > 0) => {
                if let Some(items) = fields.get("items") {
                    self.here(items, &child(at, "items"));
                }
            }
            _ => {}
        }
    }

    fn each(&mut self, values: &'a Value, at: &str) {
        match values {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.here(item, &child(at, &index.to_string()));
                }
            }
            Value::Object(fields) => {
                for (key, value) in fields {
                    self.here(value, &child(at, key));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}
