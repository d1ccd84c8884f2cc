//! Tool schemas as the grammar takes them: bounded, so that a weak model comes to an end, and relaxed where the grammar
//! compiler cannot follow. The original stays what the call is checked against.

use serde_json::{Map, Value, json};

/// Longest free text in characters; about 500 tokens.
pub(super) const TEXT: u64 = 2_000;
/// Most items of a free list.
pub(super) const ITEMS: u64 = 32;
/// Largest bound that the grammar compiler keeps exactly: it counts in 64-bit fractions.
const EXACT: f64 = 9_007_199_254_740_991.0;

/// Keywords that the grammar compiler may refuse and that only narrow a value.
const NARROWING: [&str; 21] = [
    "pattern",
    "format",
    "minLength",
    "maxLength",
    "not",
    "if",
    "then",
    "else",
    "patternProperties",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "multipleOf",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
];
const APPLICATORS: [&str; 8] = ["anyOf", "oneOf", "allOf", "$ref", "if", "not", "patternProperties", "propertyNames"];
const FIXED: [&str; 6] = ["enum", "const", "pattern", "format", "$ref", "maxLength"];

/// Forms of a schema from the strictest to the loosest; each is tried until one compiles. What only fits a looser form is
/// JSON, but not yet arguments of the tool: the check against the original, before the gate, decides that.
pub(super) fn forms(schema: &Value) -> Vec<Value> {
    let schema = if schema.is_object() { schema.clone() } else { json!({ "type": "object" }) };
    let strict = bounded(&schema, Side::Outer);
    let bare = bounded(&without(&schema, &NARROWING), Side::Outer);
    vec![
        with_options(strict.clone(), false),
        with_options(strict, true),
        with_options(bare, true),
        with_options(json!({ "type": "object" }), true),
    ]
}

fn with_options(mut schema: Value, lenient: bool) -> Value {
    if let Some(fields) = schema.as_object_mut() {
        let options = json!({
            "whitespace_flexible": false,
            "item_separator": ", ",
            "key_separator": ": ",
            "coerce_one_of": lenient,
            "lenient": lenient,
        });
        let _ = fields.insert("x-guidance".to_owned(), options);
    }
    schema
}

/// Where a schema stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// It alone describes its value.
    Outer,
    /// It is one of several that describe the same value, so closing it would contradict the others.
    Shared,
}

/// A copy with a bound on everything that has none. Objects that list their properties are closed: the model shall not
/// invent arguments, and a call without them is still valid.
fn bounded(schema: &Value, side: Side) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let own = fields.contains_key("properties");
    let mut result: Map<String, Value> = Map::new();
    for (key, value) in fields {
        let value = match (key.as_str(), value) {
            ("properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas", Value::Object(children)) => {
                let inner = if key.contains("def") || key == "$defs" { Side::Shared } else { Side::Outer };
                children.iter().map(|(name, child)| (name.clone(), bounded(child, inner))).collect::<Map<_, _>>().into()
            }
            ("items" | "additionalProperties" | "contains", Value::Object(_)) => bounded(value, Side::Outer),
            ("anyOf" | "oneOf", Value::Array(children)) => {
                let inner = if own { Side::Shared } else { side };
                children.iter().map(|child| bounded(child, inner)).collect::<Vec<_>>().into()
            }
            ("allOf", Value::Array(children)) => children.iter().map(|child| bounded(child, Side::Shared)).collect::<Vec<_>>().into(),
            ("prefixItems", Value::Array(children)) => children.iter().map(|child| bounded(child, Side::Outer)).collect::<Vec<_>>().into(),
            _ => value.clone(),
        };
        let _ = result.insert(key.clone(), value);
    }
    bound_text(&mut result);
    bound_list(&mut result);
    unbound_number(&mut result);
    let open = ["additionalProperties", "unevaluatedProperties"].iter().any(|key| result.contains_key(*key));
    if side == Side::Outer && own && !open && !APPLICATORS.iter().any(|key| result.contains_key(*key)) {
        let _ = result.insert("additionalProperties".to_owned(), false.into());
    }
    result.into()
}

fn may_be(fields: &Map<String, Value>, kind: &str) -> bool {
    match fields.get("type") {
        Some(Value::String(name)) => name == kind,
        Some(Value::Array(names)) => names.iter().any(|name| name == kind),
        _ => false,
    }
}

fn bound_text(fields: &mut Map<String, Value>) {
    let least = fields.get("minLength").and_then(Value::as_u64).unwrap_or(0);
    let most = fields.get("maxLength").and_then(Value::as_u64);
    let free = may_be(fields, "string") && !FIXED.iter().any(|key| fields.contains_key(*key));
    if (free || most.is_some_and(|most| most > TEXT)) && least <= TEXT {
        let _ = fields.insert("maxLength".to_owned(), TEXT.into());
    }
}

fn bound_list(fields: &mut Map<String, Value>) {
    let least = fields.get("minItems").and_then(Value::as_u64).unwrap_or(0);
    let most = fields.get("maxItems").and_then(Value::as_u64);
    if may_be(fields, "array") && most.is_none_or(|most| most > ITEMS) && least <= ITEMS {
        let _ = fields.insert("maxItems".to_owned(), ITEMS.into());
    }
}

/// A bound that is rounded would end a number early, and the call would run with another one. Such a bound is left to the
/// check of the arguments; how long a number may grow is held by [`super::digits`].
fn unbound_number(fields: &mut Map<String, Value>) {
    for name in ["minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"] {
        if fields.get(name).and_then(Value::as_f64).is_some_and(|bound| bound.abs() > EXACT) {
            let _ = fields.shift_remove(name);
        }
    }
}

/// A copy without these keywords, wherever a schema stands.
fn without(schema: &Value, keywords: &[&str]) -> Value {
    let Some(fields) = schema.as_object() else { return schema.clone() };
    let mut result: Map<String, Value> = Map::new();
    for (key, value) in fields.iter().filter(|(key, _)| !keywords.contains(&key.as_str())) {
        let value = match (key.as_str(), value) {
            ("properties" | "$defs" | "definitions", Value::Object(children)) => {
                children.iter().map(|(name, child)| (name.clone(), without(child, keywords))).collect::<Map<_, _>>().into()
            }
            ("items" | "additionalProperties", Value::Object(_)) => without(value, keywords),
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Value::Array(children)) => {
                children.iter().map(|child| without(child, keywords)).collect::<Vec<_>>().into()
            }
            _ => value.clone(),
        };
        let _ = result.insert(key.clone(), value);
    }
    result.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_free_gets_a_bound() {
        let schema = json!({ "type": "object", "properties": {
            "path": { "type": "string" },
            "kind": { "type": "string", "enum": ["a"] },
            "tags": { "type": "array", "items": { "type": ["string", "null"] } },
            "huge": { "type": "string", "maxLength": 1_000_000 },
            "count": { "type": "integer", "minimum": 1 },
            "wide": { "type": "integer", "minimum": 0, "maximum": u64::MAX },
            "share": { "type": "number", "exclusiveMaximum": 1 },
            "enum": { "type": "string", "default": { "type": "string" } },
        } });
        let bound = bounded(&schema, Side::Outer);
        let at = |pointer: &str| bound.pointer(pointer).cloned();
        assert_eq!(at("/properties/path/maxLength"), Some(TEXT.into()));
        assert_eq!(at("/properties/kind/maxLength"), None);
        assert_eq!(at("/properties/tags/maxItems"), Some(ITEMS.into()));
        assert_eq!(at("/properties/tags/items/maxLength"), Some(TEXT.into()));
        assert_eq!(at("/properties/huge/maxLength"), Some(TEXT.into()));
        assert_eq!((at("/properties/count/minimum"), at("/properties/count/maximum")), (Some(1.into()), None));
        assert_eq!((at("/properties/share/minimum"), at("/properties/share/exclusiveMaximum")), (None, Some(1.into())));
        assert_eq!((at("/properties/wide/minimum"), at("/properties/wide/maximum")), (Some(0.into()), None));
        assert_eq!(at("/properties/enum/default/maxLength"), None, "a default is no schema");
        assert_eq!(at("/additionalProperties"), Some(false.into()));
    }

    #[test]
    fn parts_of_one_value_stay_open() {
        let part = json!({ "properties": { "a": { "type": "integer" } } });
        let bound = bounded(&json!({ "allOf": [part, part] }), Side::Outer);
        assert_eq!(bound.pointer("/allOf/0/additionalProperties"), None);
        let bound = bounded(&json!({ "type": "object", "additionalProperties": { "type": "string" } }), Side::Outer);
        assert_eq!(bound.pointer("/additionalProperties/maxLength"), Some(&TEXT.into()));
    }

    #[test]
    fn the_loosest_form_takes_any_object() {
        assert_eq!(forms(&Value::Null).last().and_then(|form| form.get("type").cloned()), Some("object".into()));
        let bare = &forms(&json!({ "type": "string", "format": "x", "properties": { "format": { "pattern": "(" } } }))[2];
        assert!(bare.get("format").is_none() && bare.pointer("/properties/format").is_some());
        assert!(bare.pointer("/properties/format/pattern").is_none());
    }
}
