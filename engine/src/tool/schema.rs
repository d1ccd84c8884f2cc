//! JSON Schemas that servers sent: what of them can be used, and whether values fit. Bounded, and never with a look at the
//! network or the disk.

mod clean;
mod cost;
mod refs;

pub use clean::{Cleaned, Unchecked, cleaned};
use cost::Cost;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, Retrieve, Uri, ValidationError, Validator};
use serde_json::Value;

/// Largest schema that is used, as JSON text (fixed).
const BYTES: usize = 256 * 1024;
/// Deepest nesting of a schema that is used (fixed).
const DEPTH: usize = 64;
/// Problems that are named (fixed).
const PROBLEMS: usize = 5;
/// Longest words about one problem: it quotes the value.
const WORDS: usize = 300;
/// Schemas that may be looked at for one check, references followed (fixed): beyond that a value is not checked, because
/// a small schema can ask for any amount of work and a check cannot be stopped.
const WORK: u64 = 2_000_000;
/// Steps that one pattern with look-around or back references may take (fixed); others take time in proportion to the text.
const BACKTRACKS: usize = 100_000;

/// A schema may point into itself, but never out.
struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(&self, uri: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("references to other documents are not followed ({uri})").into())
    }
}

/// A schema that is ready to check values. Where it names no dialect, it is read as 2020-12.
#[derive(Debug)]
pub struct Checker {
    validator: Validator,
    cost: Cost,
}

/// Why a value has no verdict, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It does not fit; places and reasons.
    Unfit(String),
    /// Checking it would take too long.
    TooMuch,
}

impl Checker {
    /// Makes one; the error says why the schema cannot be used. `formats` decides whether "format" is held too.
    pub fn new(schema: &Value, formats: bool) -> Result<Self, String> {
        if deeper_than(schema, DEPTH) {
            return Err(format!("it is nested more than {DEPTH} levels deep"));
        }
        let bytes = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
        if bytes > BYTES {
            return Err(format!("it has {bytes} bytes, more than {BYTES}"));
        }
        let cost = Cost::of(schema)?;
        Ok(Self { validator: validator(schema, formats)?, cost })
    }

    /// Whether the value fits; the error names places and reasons.
    pub fn check(&self, value: &Value) -> Result<(), Wrong> {
        if self.cost.for_value(value) > WORK {
            return Err(Wrong::TooMuch);
        }
        let mut given_up = false;
        let problems: Vec<String> = self
            .validator
            .iter_errors(value)
            .filter(|error| {
                let without_verdict = is_given_up(error);
                given_up |= without_verdict;
                !without_verdict
            })
            .take(PROBLEMS)
            .map(|error| {
                let place = error.instance_path().to_string();
                let what: String = error.to_string().chars().take(WORDS).collect();
                if place.is_empty() { what } else { format!("{place}: {what}") }
            })
            .collect();
        match (problems.is_empty(), given_up) {
            (true, false) => Ok(()),
            (true, true) => Err(Wrong::TooMuch),
            (false, _) => Err(Wrong::Unfit(problems.join("; "))),
        }
    }
}

/// Whether a pattern was left before it had a verdict.
fn is_given_up(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::BacktrackLimitExceeded { .. } | ValidationErrorKind::RegexEngineFailure { .. })
}

/// The compiled form of a schema; the error is its first fault.
fn validator(schema: &Value, formats: bool) -> Result<Validator, String> {
    jsonschema::options()
        .with_retriever(Nowhere)
        .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS))
        .should_validate_formats(formats)
        .build(schema)
        .map_err(|error| error.to_string().chars().take(WORDS).collect::<String>())
}

fn deeper_than(value: &Value, levels: usize) -> bool {
    let inner: Box<dyn Iterator<Item = &Value>> = match value {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(fields) => Box::new(fields.values()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return false,
    };
    levels == 0 || inner.into_iter().any(|value| deeper_than(value, levels - 1))
}

/// A value's parts, and how deep it goes.
fn measure(value: &Value) -> (u64, u32) {
    let inner: Vec<(u64, u32)> = match value {
        Value::Array(items) => items.iter().map(measure).collect(),
        Value::Object(fields) => fields.values().map(measure).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    };
    let parts = inner.iter().fold(1_u64, |sum, (parts, _)| sum.saturating_add(*parts));
    (parts, inner.iter().map(|(_, depth)| depth + 1).max().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_checked_with_the_place_and_any_kind_of_root() {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } }, "required": ["n"] });
        let checker = Checker::new(&schema, false).unwrap();
        assert_eq!(checker.check(&json!({ "n": 1 })), Ok(()));
        assert!(matches!(checker.check(&json!({ "n": "x" })), Err(Wrong::Unfit(words)) if words.starts_with("/n: ")));
        assert!(checker.check(&json!({})).is_err());
        let list = Checker::new(&json!({ "type": "array", "prefixItems": [{ "const": 1 }] }), false).unwrap();
        assert!(list.check(&json!([1])).is_ok() && list.check(&json!([2])).is_err(), "2020-12 without being told");
        let Err(Wrong::Unfit(words)) = list.check(&Value::String("x".repeat(100_000))) else { panic!("it fits") };
        assert!(words.len() <= WORDS, "{}", words.len());
    }

    #[test]
    fn nothing_outside_is_read_and_monsters_are_refused() {
        for outside in ["https://example.com/s.json", "file:///etc/passwd", "other.json"] {
            let error = Checker::new(&json!({ "$ref": outside }), false).unwrap_err();
            assert!(error.contains("not followed") || error.contains("No base URI"), "{outside}: {error}");
        }
        assert!(Checker::new(&json!({ "$defs": { "a": { "type": "null" } }, "$ref": "#/$defs/a" }), false).is_ok());
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({ "not": deep });
        }
        assert!(Checker::new(&deep, false).unwrap_err().contains("deep"));
        let wide = json!({ "enum": (0..100_000).collect::<Vec<u32>>() });
        assert!(Checker::new(&wide, false).unwrap_err().contains("bytes"));
        let greedy = Checker::new(&json!({ "pattern": "^(a+)+$" }), false).unwrap();
        assert!(greedy.check(&json!(format!("{}b", "a".repeat(100_000)))).is_err(), "no pattern goes wild");
        let wild = Checker::new(&json!({ "pattern": "^(a|a)*(?=b)$" }), false).unwrap();
        assert_eq!(wild.check(&json!("a".repeat(64))), Err(Wrong::TooMuch), "nor one with look-around");
    }

    #[test]
    fn formats_are_held_only_where_asked() {
        let schema = json!({ "type": "string", "format": "email" });
        assert!(Checker::new(&schema, false).unwrap().check(&json!("no")).is_ok());
        assert!(Checker::new(&schema, true).unwrap().check(&json!("no")).is_err());
        assert!(Checker::new(&schema, true).unwrap().check(&json!("a@example.org")).is_ok());
    }
}
