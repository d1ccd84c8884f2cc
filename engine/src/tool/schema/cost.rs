//! How much work a schema can ask for, found out before any value is checked.
//!
//! References let a small schema stand for a huge one: one that names two others of the same kind, each of which names two
//! more, doubles with each step. Where they lead back to where they came from, the value's depth is what ends it, and each
//! level may multiply the work by the number of ways back. So the cost of a check is bounded by (schemas, references
//! followed) × (ways back)^(depth of the value) × (parts of the value); a reference that leads back without a step into
//! the value would never end.

use serde_json::Value;

use super::measure;
use super::refs::decoded;

/// Schemas that are looked at to find out a cost, references followed each time (fixed).
const MOST: u64 = 100_000;
/// References that may lead through one another (fixed).
pub(super) const CHAIN: usize = 64;
/// Keywords that hold schemas by the names of properties, which may look like keywords.
pub(super) const NAMED: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];
/// Keywords whose schemas hold for a part of the value, not for the value itself.
pub(super) const INTO: [&str; 10] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
];
/// Keywords that hold no schema, or one that is reached only by references.
pub(super) const PLAIN: [&str; 8] = ["const", "enum", "default", "examples", "required", "type", "$defs", "definitions"];

/// What a check may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    schemas: u64,
    ways_back: u64,
}

impl Cost {
    /// The cost of a schema; the error says why it cannot be told.
    pub(super) fn of(schema: &Value) -> Result<Self, String> {
        let mut walk = Walk { root: schema, open: Vec::new(), schemas: 0, ways_back: 0 };
        walk.reference("#", false)?;
        Ok(Self { schemas: walk.schemas, ways_back: walk.ways_back })
    }

    /// The most schemas that are looked at for this value.
    pub(super) fn for_value(self, value: &Value) -> u64 {
        let (parts, depth) = measure(value);
        self.schemas.saturating_mul(self.ways_back.max(1).saturating_pow(depth)).saturating_mul(parts)
    }
}

struct Walk<'a> {
    root: &'a Value,
    /// The references that are being followed, and whether the next one is behind a step into the value.
    open: Vec<(&'a str, bool)>,
    schemas: u64,
    ways_back: u64,
}

impl<'a> Walk<'a> {
    fn reference(&mut self, reference: &'a str, into: bool) -> Result<(), String> {
        if let Some(last) = self.open.last_mut() {
            last.1 = into;
        }
        if let Some(at) = self.open.iter().position(|(open, _)| *open == reference) {
            if self.open[at..].iter().all(|(_, into)| !into) {
                return Err(format!("the reference {reference:.100} leads back to itself"));
            }
            self.ways_back += 1;
            return Ok(());
        }
        if self.open.len() == CHAIN {
            return Err(format!("more than {CHAIN} references lead through one another"));
        }
        let pointer = reference.strip_prefix('#').filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let pointer = pointer.ok_or_else(|| format!("references to other documents or names are not followed ({reference:.100})"))?;
        let found = self.root.pointer(&decoded(pointer)).ok_or_else(|| format!("the reference {reference:.100} leads nowhere"))?;
        self.open.push((reference, false));
        self.schema(found, false)?;
        let _ = self.open.pop();
        Ok(())
    }

    fn schema(&mut self, schema: &'a Value, into: bool) -> Result<(), String> {
        self.schemas += 1;
        if self.schemas > MOST {
            return Err(format!("it stands for more than {MOST} schemas"));
        }
        match schema {
            Value::Array(schemas) => schemas.iter().try_for_each(|inner| self.schema(inner, into)),
            Value::Object(keywords) => keywords.iter().try_for_each(|(keyword, inner)| {
                let into = into || INTO.contains(&keyword.as_str());
                match (keyword.as_str(), inner) {
                    ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(reference)) => self.reference(reference, into),
                    (keyword, Value::Object(named)) if NAMED.contains(&keyword) => {
                        named.values().try_for_each(|inner| self.schema(inner, into))
                    }
                    (keyword, _) if PLAIN.contains(&keyword) => Ok(()),
                    (_, inner) => self.schema(inner, into),
                }
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn doubling(steps: usize) -> Value {
        let defs = (0..steps).map(|step| {
            let next = json!({ "$ref": format!("#/$defs/s{}", step + 1) });
            (format!("s{step}"), json!({ "allOf": [next, next] }))
        });
        let mut defs: serde_json::Map<String, Value> = defs.collect();
        let _ = defs.insert(format!("s{steps}"), json!({ "type": "object" }));
        json!({ "$defs": defs, "$ref": "#/$defs/s0" })
    }

    #[test]
    fn references_that_double_are_refused_before_they_cost_anything() {
        assert!(Cost::of(&doubling(4)).unwrap().for_value(&json!({})) < 500);
        for steps in [27, 50, 1000] {
            assert!(Cost::of(&doubling(steps)).unwrap_err().contains("more than"));
        }
        // A name may look like a keyword.
        let hidden = json!({ "$defs": doubling(27)["$defs"], "properties": { "enum": { "$ref": "#/$defs/s0" } } });
        assert!(Cost::of(&hidden).is_err());
    }

    #[test]
    fn ways_back_cost_by_the_depth_of_the_value() {
        let tree = json!({ "type": "object", "properties": { "left": { "$ref": "#" }, "right": { "$ref": "#" } } });
        let cost = Cost::of(&tree).unwrap();
        assert_eq!(cost.ways_back, 2);
        assert!(cost.for_value(&json!({ "left": { "right": {} } })) < 1000);
        let deep = (0..40).fold(json!({}), |inner, _| json!({ "left": inner }));
        assert!(cost.for_value(&deep) > 1 << 40);
        let list = json!({ "properties": { "next": { "$ref": "#" } } });
        assert!(Cost::of(&list).unwrap().for_value(&deep) < 10_000);
    }

    #[test]
    fn what_never_ends_or_leads_elsewhere_is_refused() {
        for endless in [
            json!({ "$ref": "#" }),
            json!({ "allOf": [{ "$ref": "#" }] }),
            json!({ "$defs": { "a": { "anyOf": [{ "$ref": "#/$defs/b" }] }, "b": { "not": { "$ref": "#/$defs/a" } } }, "$ref": "#/$defs/a" }),
        ] {
            assert!(Cost::of(&endless).unwrap_err().contains("back to itself"), "{endless}");
        }
        let fine =
            json!({ "$defs": { "a": { "items": { "$ref": "#/$defs/a" } } }, "allOf": [{ "$ref": "#/$defs/a" }, { "$ref": "#/$defs/a" }] });
        assert!(Cost::of(&fine).is_ok());
        assert!(Cost::of(&json!({ "$ref": "#/nothing" })).unwrap_err().contains("nowhere"));
        assert!(Cost::of(&json!({ "properties": { "$ref": { "type": "string" } }, "enum": [{ "$ref": "x" }] })).is_ok());
    }
}
