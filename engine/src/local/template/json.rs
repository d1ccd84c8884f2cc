//! JSON as models were trained to read it: one line, `", "` and `": "` between the parts, nothing escaped for HTML.

use std::io;

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, json};

use crate::provider::ToolSpec;

/// Deepest value that a template may print.
const DEPTH: usize = 64;

struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: io::Write + ?Sized>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// A value on one line.
#[must_use]
pub fn spaced(value: &serde_json::Value) -> String {
    let mut bytes = Vec::new();
    match value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Spaced)) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(_) => value.to_string(),
    }
}

/// The filter `tojson`, as Python's `json.dumps` does it.
#[allow(clippy::needless_pass_by_value)]
pub(super) fn filter(value: &Value, kwargs: Kwargs) -> Result<String, Error> {
    let json = to_json(value, 0)?;
    let indent = kwargs.get::<Option<usize>>("indent").unwrap_or_default();
    let _ = (kwargs.get::<Option<Value>>("ensure_ascii"), kwargs.get::<Option<Value>>("separators"));
    let Some(indent) = indent else { return Ok(spaced(&json)) };
    let indent = vec![b' '; indent.min(16)];
    let mut bytes = Vec::new();
    let pretty = serde_json::ser::PrettyFormatter::with_indent(&indent);
    let written = json.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, pretty));
    written.map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn to_json(value: &Value, depth: usize) -> Result<serde_json::Value, Error> {
    if depth > DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "the value is nested too deeply"));
    }
    Ok(match value.kind() {
        ValueKind::Undefined | ValueKind::None => serde_json::Value::Null,
        ValueKind::Bool => value.is_true().into(),
        ValueKind::Number => number(value),
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.map(|item| to_json(&item, depth + 1)).collect::<Result<Vec<_>, _>>()?.into()
        }
        ValueKind::Map => {
            let mut fields = Map::new();
            for key in value.try_iter()? {
                let _ = fields.insert(key.to_string(), to_json(&value.get_item(&key)?, depth + 1)?);
            }
            fields.into()
        }
        _ => value.to_string().into(),
    })
}

fn number(value: &Value) -> serde_json::Value {
    match value.as_i64() {
        Some(number) if value.is_integer() => number.into(),
        _ => f64::try_from(value.clone()).ok().map_or(serde_json::Value::Null, Into::into),
    }
}

/// A tool as templates take it.
pub(super) fn of_tool(tool: &ToolSpec) -> serde_json::Value {
    json!({ "type": "function", "function": of_function(tool) })
}

/// A tool's name, description and parameters.
pub(super) fn of_function(tool: &ToolSpec) -> serde_json::Value {
    json!({ "name": tool.name, "description": tool.description, "parameters": tool.parameters })
}

/// A value with every text in it, keys included, changed by `change`.
pub(super) fn mapped(value: &serde_json::Value, change: &dyn Fn(&str) -> String) -> serde_json::Value {
    match value {
        serde_json::Value::String(text) => change(text).into(),
        serde_json::Value::Array(items) => items.iter().map(|item| mapped(item, change)).collect::<Vec<_>>().into(),
        serde_json::Value::Object(fields) => {
            fields.iter().map(|(name, value)| (change(name), mapped(value, change))).collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}
