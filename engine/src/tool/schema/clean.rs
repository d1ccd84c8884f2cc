//! A schema without its broken parts. A part that means nothing (a reference to nowhere, a Boolean where a number belongs, a
//! pattern that is none) counts as "anything goes", and is named; the rest still checks.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::cost::Cost;
use super::refs::{Names, child, endless};
use super::{BYTES, DEPTH, deeper_than, validator};

/// Parts that are named (fixed).
const NAMED: usize = 20;
/// How often a schema is gone through again because mending a part moved or broke another (fixed).
const ROUNDS: usize = 4;
/// The kinds of a value.
const KINDS: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Dialects that are known, by what their address holds.
const DIALECTS: [&str; 5] = ["/draft-04/", "/draft-06/", "/draft-07/", "/2019-09/", "/2020-12/"];

/// A part of a schema that checks nothing because it is broken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unchecked {
    /// Where it stands, as a JSON pointer; empty for the whole schema.
    pub place: String,
    /// What is wrong with it.
    pub reason: String,
}

impl fmt::Display for Unchecked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { "the whole schema" } else { &self.place };
        write!(f, "{place}: {}", self.reason)
    }
}

/// What of a schema can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Cleaned {
    /// The schema without what is broken. References in it are pointers into itself.
    pub schema: Value,
    /// The broken parts.
    pub unchecked: Vec<Unchecked>,
}

/// Takes the broken parts out of a schema. What comes out compiles, costs a bounded amount of work, and takes every value that
/// the unbroken parts of the original take. `arguments` says that it is for the arguments of a call, which are an object.
#[must_use]
pub fn cleaned(schema: &Value, arguments: bool) -> Cleaned {
    let anything = || if arguments { json!({ "type": "object" }) } else { json!({}) };
    let whole = |reason: String| Cleaned { schema: anything(), unchecked: vec![Unchecked { place: String::new(), reason }] };
    if schema.is_null() || schema.as_array().is_some_and(Vec::is_empty) {
        return Cleaned { schema: anything(), unchecked: Vec::new() };
    }
    if deeper_than(schema, DEPTH) {
        return whole(format!("it is nested more than {DEPTH} levels deep"));
    }
    let bytes = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
    if bytes > BYTES {
        return whole(format!("it has {bytes} bytes, more than {BYTES}"));
    }
    let mut notes = Notes::default();
    let mut schema = mended(schema, &mut notes);
    if arguments {
        notes.takes_objects(&mut schema);
    }
    if let Err(reason) = Cost::of(&schema) {
        return whole(reason);
    }
    if let Err(reason) = validator(&schema, false) {
        notes.by_property(&mut schema);
        if validator(&schema, false).is_err() {
            return whole(reason);
        }
    }
    Cleaned { schema, unchecked: notes.0 }
}

/// Goes through a schema until nothing changes any more.
fn mended(schema: &Value, notes: &mut Notes) -> Value {
    let mut schema = schema.clone();
    let mut endings = BTreeSet::new();
    for _ in 0..ROUNDS {
        let next = {
            let mut pass = Pass { root: &schema, names: Names::of(&schema), endings: &endings, older: is_older(&schema), notes };
            pass.schema(&schema, "", "").unwrap_or_else(|| json!({}))
        };
        endings = endless(&next);
        if next == schema && endings.is_empty() {
            break;
        }
        schema = next;
    }
    schema
}

/// Whether it names the dialect draft 4, whose exclusive bounds are Booleans.
fn is_older(schema: &Value) -> bool {
    schema.get("$schema").and_then(Value::as_str).is_some_and(|dialect| dialect.contains("/draft-04/"))
}

/// Whether it names a dialect in which what stands beside a `$ref` does not count, and lists hold schemas by position.
fn is_before_2019(schema: &Value) -> bool {
    let dialect = schema.get("$schema").and_then(Value::as_str);
    dialect.is_some_and(|dialect| ["/draft-04/", "/draft-06/", "/draft-07/"].iter().any(|name| dialect.contains(name)))
}

#[derive(Default)]
struct Notes(Vec<Unchecked>);

impl Notes {
    fn add(&mut self, place: &str, reason: impl Into<String>) {
        let note = Unchecked { place: place.to_owned(), reason: reason.into() };
        match self.0.len() {
            _ if self.0.contains(&note) => {}
            count if count < NAMED => self.0.push(note),
            count if count == NAMED => {
                self.0.push(Unchecked { place: String::new(), reason: "more parts are broken than are named here".to_owned() });
            }
            _ => {}
        }
    }

    /// Arguments are an object, whatever the schema says of its root.
    fn takes_objects(&mut self, schema: &mut Value) {
        let Some(fields) = schema.as_object_mut() else {
            if *schema == json!(false) {
                self.add("", "it refuses every value");
            }
            *schema = json!({ "type": "object" });
            return;
        };
        let fits = match fields.get("type") {
            Some(Value::String(kind)) => kind == "object",
            Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "object"),
            _ => true,
        };
        if !fits {
            self.add("/type", "arguments are always an object");
            let _ = fields.insert("type".to_owned(), "object".into());
        }
    }

    /// The last resort: properties that cannot be compiled, each for itself.
    fn by_property(&mut self, schema: &mut Value) {
        let Some(names) =
            schema.get("properties").and_then(Value::as_object).map(|properties| properties.keys().cloned().collect::<Vec<_>>())
        else {
            return;
        };
        for name in names {
            let mut alone = schema.clone();
            if let Some(properties) = alone.get_mut("properties").and_then(Value::as_object_mut) {
                properties.retain(|key, _| *key == name);
            }
            if let Err(reason) = validator(&alone, false) {
                self.add(&child("/properties", &name), reason);
                schema["properties"][&name] = json!({});
            }
        }
    }
}

/// One way through a schema.
struct Pass<'a> {
    root: &'a Value,
    names: Names,
    endings: &'a BTreeSet<String>,
    older: bool,
    notes: &'a mut Notes,
}

/// What a keyword becomes.
enum Kept {
    As(Value),
    /// It says nothing, or nothing that could be checked.
    Gone,
}

impl Pass<'_> {
    /// A schema without its broken parts; none where it is no schema at all.
    fn schema(&mut self, schema: &Value, at: &str, base: &str) -> Option<Value> {
        let fields = match schema {
            Value::Bool(_) => return Some(schema.clone()),
            Value::Object(fields) => fields,
            Value::Array(items) if items.is_empty() => return Some(json!({})),
            other => {
                self.notes.add(at, format!("{} is no schema", kind(other)));
                return None;
            }
        };
        let own = !at.is_empty() && fields.get("$id").and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
        let base = if own { at } else { base };
        let before = self.notes.0.len();
        let mut out = Map::new();
        for (key, value) in fields {
            if let Kept::As(value) = self.keyword(key, value, &child(at, key), base, at) {
                let _ = out.insert(key.clone(), value);
            }
        }
        if fields.contains_key("$ref") && !out.contains_key("$ref") && is_before_2019(self.root) {
            // What stands beside a reference did not count before it went, and must not now.
            out.retain(|key, _| matches!(key.as_str(), "$schema" | "$defs" | "definitions" | "title" | "description" | "default"));
        }
        self.by_position(&mut out);
        if self.notes.0.len() > before {
            self.loosened(fields, &mut out, at);
        }
        Some(Value::Object(out))
    }

    /// Lists of schemas by position have another name since 2020-12.
    fn by_position(&self, out: &mut Map<String, Value>) {
        let dialect = self.root.get("$schema").and_then(Value::as_str);
        if dialect.is_some_and(|dialect| DIALECTS[..4].iter().any(|name| dialect.contains(name)))
            || !out.get("items").is_some_and(Value::is_array)
        {
            return;
        }
        if let (Some(items), false) = (out.remove("items"), out.contains_key("prefixItems")) {
            let rest = out.remove("additionalItems");
            // An empty list says nothing; it must have a part where it is written.
            if items.as_array().is_some_and(|items| !items.is_empty()) {
                let _ = out.insert("prefixItems".to_owned(), items);
            }
            if let Some(rest) = rest {
                let _ = out.insert("items".to_owned(), rest);
            }
        }
    }

    /// Parts that would refuse more, now that a part below or beside them takes anything.
    fn loosened(&mut self, original: &Map<String, Value>, out: &mut Map<String, Value>, at: &str) {
        let changed = |key: &str, out: &Map<String, Value>| original.get(key).is_some() && original.get(key) != out.get(key);
        if changed("not", out) {
            let _ = out.remove("not");
        }
        if changed("if", out) {
            for key in ["if", "then", "else"] {
                let _ = out.remove(key);
            }
        }
        if changed("oneOf", out)
            && let Some(choices) = out.remove("oneOf")
            && !out.contains_key("anyOf")
        {
            let _ = out.insert("anyOf".to_owned(), choices);
        }
        if changed("contains", out) {
            let _ = out.remove("maxContains");
        }
        if ["properties", "patternProperties"].iter().any(|key| original.contains_key(*key) && !out.contains_key(*key)) {
            let _ = out.remove("additionalProperties");
        }
        if ["unevaluatedProperties", "unevaluatedItems"].iter().any(|key| out.contains_key(*key)) {
            self.notes.add(at, "what is not described cannot be told, because a part that describes it is broken");
            let _ = (out.remove("unevaluatedProperties"), out.remove("unevaluatedItems"));
        }
    }

    fn keyword(&mut self, key: &str, value: &Value, at: &str, base: &str, holder: &str) -> Kept {
        match key {
            "$ref" | "$dynamicRef" | "$recursiveRef" => self.reference(value, at, base, holder),
            "properties" | "$defs" | "definitions" | "dependentSchemas" | "patternProperties" | "dependencies" => {
                self.named(key, value, at, base)
            }
            "items" if value.is_array() => self.list(value, at, base, true),
            "anyOf" | "oneOf" | "allOf" | "prefixItems" => self.list(value, at, base, false),
            "items"
            | "additionalItems"
            | "unevaluatedItems"
            | "contains"
            | "additionalProperties"
            | "unevaluatedProperties"
            | "propertyNames"
            | "not"
            | "if"
            | "then"
            | "else" => self.schema(value, at, base).map_or(Kept::Gone, Kept::As),
            // Names lead to places, and the references say the places by now.
            "$id" | "$anchor" | "$dynamicAnchor" | "$recursiveAnchor" | "$vocabulary" => Kept::Gone,
            "title" | "description" | "$comment" | "contentEncoding" | "contentMediaType" => quiet(value.is_string(), value),
            "examples" => quiet(value.is_array(), value),
            "readOnly" | "writeOnly" | "deprecated" => quiet(value.is_boolean(), value),
            _ => self.plain(key, value, at),
        }
    }

    /// Keywords that hold no schema.
    fn plain(&mut self, key: &str, value: &Value, at: &str) -> Kept {
        let wrong = match key {
            "$schema" => return self.dialect(value, at),
            "type" => return self.kinds(value, at),
            "required" => return self.required(value, at),
            "enum" if value.as_array().is_none_or(Vec::is_empty) => Some("is no list of values".to_owned()),
            "exclusiveMinimum" | "exclusiveMaximum" if *value == json!(false) => {
                return if self.older { as_it_is(value) } else { Kept::Gone };
            }
            "exclusiveMinimum" | "exclusiveMaximum" if self.older => {
                (!value.is_boolean()).then(|| "is no Boolean, as draft 4 has it".to_owned())
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                (!value.is_number()).then(|| format!("{} is no bound", kind(value)))
            }
            "multipleOf" => value.as_f64().is_none_or(|step| step <= 0.0).then(|| "is no number above 0".to_owned()),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minContains" | "maxContains" => {
                (!is_count(value)).then(|| format!("{} is no count", kind(value)))
            }
            "uniqueItems" => (!value.is_boolean()).then(|| format!("{} is no Boolean", kind(value))),
            "format" => (!value.is_string()).then(|| format!("{} is no name", kind(value))),
            "pattern" => match value {
                Value::String(_) => {
                    validator(&json!({ "pattern": value }), false).is_err().then(|| "this pattern cannot be read".to_owned())
                }
                other => Some(format!("{} is no pattern", kind(other))),
            },
            "dependentRequired" => (!value.as_object().is_some_and(|all| all.values().all(is_names))).then(|| "lists no names".to_owned()),
            _ => None,
        };
        match wrong {
            None => as_it_is(value),
            Some(reason) => {
                self.notes.add(at, reason);
                Kept::Gone
            }
        }
    }

    fn dialect(&mut self, value: &Value, at: &str) -> Kept {
        let known =
            value.as_str().is_some_and(|name| name.contains("json-schema.org/") && DIALECTS.iter().any(|known| name.contains(known)));
        // Only the root's counts: a part of another dialect would need a name of its own.
        if at != "/$schema" {
            return Kept::Gone;
        }
        if !known {
            // Said only where it is a name: some servers write the empty text.
            if let Some(name) = value.as_str().filter(|name| !name.is_empty() && !name.contains("json-schema.org/schema")) {
                self.notes.add(at, format!("the dialect {name:.100} is not known; the schema is read as 2020-12"));
            }
            return Kept::Gone;
        }
        as_it_is(value)
    }

    fn kinds(&mut self, value: &Value, at: &str) -> Kept {
        let known = |value: &Value| value.as_str().is_some_and(|name| KINDS.contains(&name));
        match value {
            value if known(value) => as_it_is(value),
            Value::Array(names) if !names.is_empty() && names.iter().all(known) => Kept::As(once(names).into()),
            other => {
                self.notes.add(at, format!("{:.100} is no type", shown(other)));
                Kept::Gone
            }
        }
    }

    fn required(&mut self, value: &Value, at: &str) -> Kept {
        match value {
            Value::Array(names) if names.is_empty() => Kept::Gone,
            Value::Array(names) if is_names(value) => Kept::As(once(names).into()),
            other => {
                self.notes.add(at, format!("{} is no list of names", kind(other)));
                Kept::Gone
            }
        }
    }

    fn reference(&mut self, value: &Value, at: &str, base: &str, holder: &str) -> Kept {
        let Some(reference) = value.as_str() else {
            self.notes.add(at, format!("{} is no reference", kind(value)));
            return Kept::Gone;
        };
        let pointer = if self.endings.contains(holder) {
            Err(format!("the reference {reference:.100} leads back to itself without an end"))
        } else {
            self.names.resolve(self.root, base, reference)
        };
        match pointer {
            Ok(pointer) => Kept::As(format!("#{}", encoded(&pointer)).into()),
            Err(reason) => {
                self.notes.add(at, reason);
                Kept::Gone
            }
        }
    }

    /// Schemas by the names of properties, by patterns, or by names of their own.
    fn named(&mut self, key: &str, value: &Value, at: &str, base: &str) -> Kept {
        let fields = match value {
            Value::Object(fields) => fields,
            // How PHP writes an object that is empty.
            Value::Array(items) if items.is_empty() => return Kept::As(json!({})),
            other => {
                self.notes.add(at, format!("{} holds no schemas", kind(other)));
                return Kept::Gone;
            }
        };
        let mut out = Map::new();
        for (name, value) in fields {
            let place = child(at, name);
            if key == "patternProperties" && validator(&json!({ "pattern": name }), false).is_err() {
                self.notes.add(&place, "this pattern cannot be read");
                continue;
            }
            let value = if key == "dependencies" && is_names(value) { Some(value.clone()) } else { self.schema(value, &place, base) };
            let _ = out.insert(name.clone(), value.unwrap_or_else(|| json!({})));
        }
        Kept::As(out.into())
    }

    fn list(&mut self, value: &Value, at: &str, base: &str, may_be_empty: bool) -> Kept {
        match value {
            Value::Array(items) if may_be_empty || !items.is_empty() => {
                let schemas = items.iter().enumerate().map(|(index, item)| self.schema(item, &child(at, &index.to_string()), base));
                Kept::As(schemas.map(|schema| schema.unwrap_or_else(|| json!({}))).collect::<Vec<_>>().into())
            }
            other => {
                self.notes.add(at, format!("{} holds no schemas", kind(other)));
                Kept::Gone
            }
        }
    }
}

fn as_it_is(value: &Value) -> Kept {
    Kept::As(value.clone())
}

/// Keywords that check nothing go without a word where they are not in shape.
fn quiet(good: bool, value: &Value) -> Kept {
    if good { as_it_is(value) } else { Kept::Gone }
}

fn is_names(value: &Value) -> bool {
    value.as_array().is_some_and(|names| names.iter().all(Value::is_string))
}

fn is_count(value: &Value) -> bool {
    value.as_u64().is_some() || value.as_f64().is_some_and(|count| count >= 0.0 && count.fract() == 0.0)
}

fn once(values: &[Value]) -> Vec<Value> {
    let mut out: Vec<Value> = Vec::with_capacity(values.len());
    for value in values {
        if !out.contains(value) {
            out.push(value.clone());
        }
    }
    out
}

/// A pointer as it stands in a URI.
fn encoded(pointer: &str) -> String {
    let mut out = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        match byte {
            b'a'..=b'z'
            | b'A'..=b'Z'
            | b'0'..=b'9'
            | b'/'
            | b'~'
            | b'-'
            | b'.'
            | b'_'
            | b'$'
            | b'!'
            | b'&'
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b','
            | b';'
            | b'='
            | b':'
            | b'@'
            | b'\''
            | b'?' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(100).collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a Boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::super::Checker;
    use super::*;

    /// Cleans the arguments' schema and says which values it takes.
    fn takes(schema: &Value, good: &[Value], bad: &[Value]) -> Vec<String> {
        let cleaned = cleaned(schema, true);
        let checker = Checker::new(&cleaned.schema, false).unwrap_or_else(|error| panic!("{schema}: {error}"));
        for value in good {
            assert_eq!(checker.check(value), Ok(()), "{value} under {}", cleaned.schema);
        }
        for value in bad {
            assert!(checker.check(value).is_err(), "{value} under {}", cleaned.schema);
        }
        cleaned.unchecked.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_schema_stays_as_it_is() {
        for schema in [
            json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": {"$ref": "#/definitions/A"}}, "definitions": {"A": {"type": "string", "pattern": "^(?!x)"}}}),
            json!({"$schema": "http://json-schema.org/draft-04/schema#", "type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": true}}}),
            json!({"type": "object", "properties": {"tree": {"$ref": "#/$defs/T"}}, "$defs": {"T": {"type": "object", "properties": {"parts": {"type": "array", "items": {"$ref": "#/$defs/T"}}}}}}),
            json!({"type": "object", "properties": {"nodes": {"type": "array", "items": {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/properties/nodes/items"}}}}}}}),
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "unevaluatedProperties": false, "x-own": [1]}),
        ] {
            let cleaned = cleaned(&schema, true);
            assert_eq!((cleaned.schema, cleaned.unchecked), (schema, Vec::new()));
        }
    }

    #[test]
    fn a_reference_that_leads_nowhere_takes_anything_and_the_rest_checks() {
        let schema = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/Nope"}, "n": {"type": "integer"}}, "required": ["n"]});
        let notes = takes(&schema, &[json!({"n": 1, "a": [{}]}), json!({"n": 1})], &[json!({"n": "x"}), json!({"a": 1})]);
        assert_eq!(notes, ["/properties/a/$ref: the reference #/$defs/Nope leads nowhere"]);
        for reference in ["https://example.com/s.json", "other.json#/a", "#/properties/n/type", "#name"] {
            let notes = takes(
                &json!({"properties": {"a": {"$ref": reference}, "n": {"type": "integer"}}}),
                &[json!({"a": 1})],
                &[json!({"n": "x"})],
            );
            assert_eq!(notes.len(), 1, "{reference}");
        }
    }

    #[test]
    fn names_inside_the_schema_are_followed() {
        let by_anchor = json!({"properties": {"a": {"$ref": "#item"}}, "$defs": {"I": {"$anchor": "item", "type": "integer"}}});
        let by_id = json!({"$id": "https://e.org/root", "properties": {"a": {"$ref": "https://e.org/root#/$defs/I"}, "b": {"$ref": "i.json"}}, "$defs": {"I": {"$id": "i.json", "type": "integer"}}});
        let within = json!({"properties": {"a": {"$ref": "#/$defs/O"}}, "$defs": {"O": {"$id": "o.json", "$ref": "#/$defs/I", "$defs": {"I": {"type": "integer"}}}}});
        let written = json!({"properties": {"a": {"$ref": "#/$defs/A%20b~1c"}}, "$defs": {"A b/c": {"type": "integer"}}});
        let chinese = json!({"properties": {"a": {"$ref": "#/$defs/数"}}, "$defs": {"数": {"type": "integer"}}});
        for schema in [by_anchor, by_id, within, written, chinese] {
            assert_eq!(takes(&schema, &[json!({"a": 1})], &[json!({"a": "x"})]), Vec::<String>::new(), "{schema}");
        }
    }

    #[test]
    fn references_without_an_end_are_cut_where_they_close() {
        for schema in [
            json!({"properties": {"x": {"$ref": "#/$defs/A"}, "n": {"type": "integer"}}, "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}),
            json!({"properties": {"x": {"$ref": "#/$defs/A"}, "n": {"type": "integer"}}, "$defs": {"A": {"allOf": [{"$ref": "#/$defs/A"}]}}}),
            json!({"properties": {"n": {"type": "integer"}}, "allOf": [{"$ref": "#"}]}),
        ] {
            let notes = takes(&schema, &[json!({"x": {"any": "thing"}, "n": 1})], &[json!({"n": "x"})]);
            assert!(notes.len() == 1 && notes[0].contains("back to itself"), "{notes:?}");
        }
    }

    #[test]
    fn a_value_that_must_hold_itself_for_ever_is_asked_for_once() {
        let leaf = json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"], "$defs": {"N": {"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}}});
        let notes = takes(&leaf, &[json!({"n": {"n": {}}}), json!({"n": {"n": 1}})], &[json!({}), json!({"n": {}})]);
        assert_eq!(notes, ["/$defs/N/properties/n/$ref: the reference #/$defs/N leads back to itself without an end"]);
        let lists = json!({"type": "object", "properties": {"l": {"$ref": "#/$defs/L"}}, "$defs": {"L": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/L"}}}});
        assert_eq!(takes(&lists, &[json!({"l": [1]})], &[json!({"l": []})]).len(), 1);
        for fine in [
            json!({"type": "object", "properties": {"n": {"$ref": "#/$defs/N"}}, "$defs": {"N": {"type": ["object", "null"], "properties": {"n": {"$ref": "#/$defs/N"}}, "required": ["n"]}}}),
            json!({"$defs": {"N": {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}}, "required": ["n"]}}, "properties": {"n": {"$ref": "#/$defs/N"}}}),
        ] {
            assert_eq!(cleaned(&fine, true).unchecked, Vec::new(), "{fine}");
        }
    }

    #[test]
    fn keywords_out_of_shape_check_nothing_and_are_named() {
        let part = |part: Value| json!({"type": "object", "properties": {"v": part, "n": {"type": "integer"}}});
        for (broken, values) in [
            (json!({"type": "integer", "exclusiveMinimum": true, "minimum": 0}), json!([0, 5])),
            (json!({"type": "string", "pattern": "^(unclosed"}), json!(["a"])),
            (json!({"type": "string", "enum": null}), json!(["a"])),
            (json!({"type": "any"}), json!([1, "a"])),
            (json!({"type": "array", "items": "string"}), json!([[1]])),
            (json!({"maxLength": "10"}), json!(["a long text"])),
            (json!({"minimum": null}), json!([-1])),
            (json!({"required": true, "type": "string"}), json!(["a"])),
            (json!({"anyOf": []}), json!([1])),
            (json!("string"), json!([1, "a"])),
            (json!(null), json!([1])),
            (json!({"not": {"$ref": "#/nowhere"}}), json!([1, {}])),
            (json!({"oneOf": [{"$ref": "#/nowhere"}, {"type": "integer"}]}), json!([1, "a"])),
            (json!({"if": {"pattern": "("}, "then": false}), json!(["a"])),
            (json!({"type": "object", "properties": "none", "additionalProperties": false}), json!([{"a": 1}])),
            (json!({"patternProperties": {"(": {"type": "null"}, "^x": {"type": "null"}}}), json!([{"a": 1}, {"x": null}])),
        ] {
            let good: Vec<Value> = values.as_array().unwrap().iter().map(|value| json!({"v": value, "n": 1})).collect();
            let notes = takes(&part(broken.clone()), &good, &[json!({"n": "x"})]);
            assert!(!notes.is_empty() && notes.iter().all(|note| note.starts_with("/properties/v")), "{broken}: {notes:?}");
        }
        let bound = part(json!({"type": "integer", "exclusiveMinimum": true, "minimum": 0}));
        let _ = takes(&bound, &[], &[json!({"v": -1})]);
    }

    #[test]
    fn what_is_only_unusual_is_read_without_a_word() {
        for (schema, good, bad) in [
            (json!({"type": "object", "properties": []}), json!({"a": 1}), json!(3)),
            (json!(null), json!({}), json!(3)),
            (json!([]), json!({}), json!(3)),
            (json!({}), json!({"a": 1}), json!(null)),
            (
                json!({"properties": {"a": {"type": "integer", "description": null, "title": 3, "examples": "x"}}}),
                json!({"a": 1}),
                json!({"a": "x"}),
            ),
            (json!({"properties": {"a": {"items": [{"type": "integer"}]}}}), json!({"a": [1, "x"]}), json!({"a": ["x"]})),
            (json!({"required": ["a", "a"], "properties": {"a": {"type": ["integer", "integer"]}}}), json!({"a": 1}), json!({})),
            (json!({"properties": {"a": {"exclusiveMaximum": false, "maximum": 3}}}), json!({"a": 3}), json!({"a": 4})),
        ] {
            let cleaned = cleaned(&schema, true);
            assert_eq!(cleaned.unchecked, Vec::new(), "{schema}");
            let checker = Checker::new(&cleaned.schema, false).unwrap();
            assert_eq!(checker.check(&good), Ok(()), "{schema}");
            assert!(!bad.is_object() || checker.check(&bad).is_err(), "{schema}");
        }
    }

    #[test]
    fn arguments_are_an_object_and_monsters_are_left_out_whole() {
        assert_eq!(takes(&json!({"type": "string"}), &[json!({"a": 1})], &[json!("x")]), ["/type: arguments are always an object"]);
        assert_eq!(takes(&json!(false), &[json!({})], &[]).len(), 1);
        let deep = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
        let wide = json!({"enum": (0..100_000).collect::<Vec<u32>>()});
        let step = |step: usize| {
            (format!("s{step}"), json!({"allOf": [{"$ref": format!("#/$defs/s{}", step + 1)}, {"$ref": format!("#/$defs/s{}", step + 1)}]}))
        };
        let mut steps: Map<String, Value> = (0..40).map(step).collect();
        let _ = steps.insert("s40".to_owned(), json!({}));
        for monster in [deep, wide, json!({"$ref": "#/$defs/s0", "$defs": steps})] {
            let cleaned = cleaned(&monster, true);
            assert_eq!((cleaned.schema, cleaned.unchecked.len()), (json!({"type": "object"}), 1));
        }
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(500))]
        #[test]
        fn whatever_a_server_sends_gives_a_schema_that_can_be_used(schema in any_schema()) {
            let first = cleaned(&schema, true);
            proptest::prop_assert!(Checker::new(&first.schema, false).is_ok(), "{}", first.schema);
            let again = cleaned(&first.schema, true);
            proptest::prop_assert_eq!(&again.schema, &first.schema);
            proptest::prop_assert_eq!(again.unchecked, Vec::new());
            proptest::prop_assert!(first.schema.is_object());
        }
    }

    /// Schemas with any keyword and any value behind it.
    fn any_schema() -> impl proptest::strategy::Strategy<Value = Value> {
        use proptest::prelude::*;
        let key = prop::sample::select(vec![
            "type",
            "properties",
            "items",
            "required",
            "enum",
            "$ref",
            "anyOf",
            "oneOf",
            "not",
            "if",
            "then",
            "pattern",
            "minimum",
            "exclusiveMinimum",
            "maxLength",
            "additionalProperties",
            "$defs",
            "$id",
            "$schema",
            "patternProperties",
            "contains",
            "minItems",
            "uniqueItems",
            "multipleOf",
            "dependencies",
            "unevaluatedProperties",
            "prefixItems",
            "x",
        ]);
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            (-3_i64..20).prop_map(Value::from),
            prop::sample::select(vec!["object", "string", "any", "#", "#/$defs/x", "#/properties/type", "(", "^a", ""])
                .prop_map(Value::from),
            Just(json!({})),
            Just(json!([])),
        ];
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec((key.clone(), inner.clone()), 0..5).prop_map(|fields| fields
                    .into_iter()
                    .map(|(key, value)| (key.to_owned(), value))
                    .collect::<Map<_, _>>()
                    .into()),
                prop::collection::vec(inner, 0..3).prop_map(Value::from),
            ]
        })
    }
}
