//! JSON as values of a template, with fields in their order.

use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};

/// Fields in order.
#[derive(Debug)]
struct Fields(Vec<(String, Value)>);

impl Object for Fields {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let key = key.as_str()?;
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(name, _)| Value::from(name.as_str())).collect())
    }
}

pub(super) fn map(fields: Vec<(&str, Value)>) -> Value {
    Value::from_object(Fields(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()))
}

pub(super) fn list(values: Vec<Value>) -> Value {
    Value::from(values)
}

pub(super) fn from_json(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(yes) => Value::from(*yes),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(text) => Value::from(text.as_str()),
        serde_json::Value::Array(items) => list(items.iter().map(from_json).collect()),
        serde_json::Value::Object(fields) => {
            Value::from_object(Fields(fields.iter().map(|(name, value)| (name.clone(), from_json(value))).collect()))
        }
    }
}
