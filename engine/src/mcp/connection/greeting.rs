//! A greeting that is not wholly in shape: what it lacks is filled in, because a server without a version number works as well
//! as one with it.

use rmcp::RoleClient;
use rmcp::model::{JsonRpcMessage, ServerResult};
use rmcp::service::RxJsonRpcMessage;
use serde_json::{Map, Value, json};

/// Where the stateless era says who a server is.
const IDENTITY: &str = "io.modelcontextprotocol/serverInfo";

/// The message, with a greeting in the protocol's shape; `note` hears what was filled in.
pub(super) fn mended(message: RxJsonRpcMessage<RoleClient>, note: &mut dyn FnMut(String)) -> RxJsonRpcMessage<RoleClient> {
    let JsonRpcMessage::Response(mut answer) = message else { return message };
    if let ServerResult::CustomResult(custom) = &answer.result
        && let Some((greeting, notes)) = in_shape(&custom.0)
    {
        notes.into_iter().for_each(|words| note(format!("its greeting {words}")));
        answer.result = greeting;
    }
    JsonRpcMessage::Response(answer)
}

fn in_shape(value: &Value) -> Option<(ServerResult, Vec<String>)> {
    let fields = value.as_object()?;
    let older = fields.contains_key("protocolVersion");
    if !older && !fields.contains_key("supportedVersions") {
        return None;
    }
    let (mut fields, mut notes) = (fields.clone(), Vec::new());
    if older {
        let who = identity(fields.get("serverInfo"), &mut notes);
        let _ = fields.insert("serverInfo".to_owned(), who);
    } else if let Some(who) = fields.get_mut("_meta").and_then(|meta| meta.get_mut(IDENTITY)) {
        *who = identity(Some(who), &mut notes);
    }
    capabilities(&mut fields, &mut notes);
    if fields.get("instructions").is_some_and(|words| !words.is_string() && !words.is_null()) {
        notes.push("gives instructions that are no text; they are left out".to_owned());
        let _ = fields.remove("instructions");
    }
    if fields.get("_meta").is_some_and(|meta| !meta.is_object()) {
        let _ = fields.remove("_meta");
    }
    let result: ServerResult = serde_json::from_value(fields.into()).ok()?;
    matches!(result, ServerResult::InitializeResult(_) | ServerResult::DiscoverResult(_)).then_some((result, notes))
}

/// Who the server says that it is.
fn identity(given: Option<&Value>, notes: &mut Vec<String>) -> Value {
    let Some(fields) = given.and_then(Value::as_object) else {
        notes.push("does not say who it is".to_owned());
        return json!({ "name": "", "version": "" });
    };
    let mut out: Map<String, Value> = fields.clone();
    for field in ["name", "version"] {
        let text = match fields.get(field) {
            Some(Value::String(_)) => continue,
            Some(other @ (Value::Number(_) | Value::Bool(_))) => {
                notes.push(format!("gives its {field} as {other}, which is no text"));
                other.to_string()
            }
            _ => {
                notes.push(format!("gives no {field}"));
                String::new()
            }
        };
        let _ = out.insert(field.to_owned(), text.into());
    }
    for field in ["title", "description", "websiteUrl"] {
        if out.get(field).is_some_and(|value| !value.is_string()) {
            let _ = out.remove(field);
        }
    }
    if out.get("icons").is_some_and(|icons| !icons.is_array())
        || serde_json::from_value::<rmcp::model::Implementation>(out.clone().into()).is_err()
    {
        let _ = out.remove("icons");
    }
    out.into()
}

/// What the server can do. One that says nothing of it is asked for its tools all the same.
fn capabilities(fields: &mut Map<String, Value>, notes: &mut Vec<String>) {
    let given = fields.get("capabilities").and_then(Value::as_object).cloned();
    if given.is_none() {
        notes.push("does not say what it can do; it is asked for its tools all the same".to_owned());
    }
    let mut out = given.unwrap_or_else(|| Map::from_iter([("tools".to_owned(), json!({}))]));
    for (name, value) in &mut out {
        // `true`, and an empty list as PHP writes an empty object, mean that it is there; null and false that it is not.
        if matches!(value, Value::Bool(true)) || value.as_array().is_some_and(Vec::is_empty) {
            *value = json!({});
        }
        if value.is_object() {
            for flag in ["listChanged", "subscribe"] {
                if value.get(flag).is_some_and(|flag| !flag.is_boolean()) {
                    notes.push(format!("says \"{flag}\" of its {name:.40} in a way that is neither true nor false"));
                    let _ = value.as_object_mut().and_then(|value| value.remove(flag));
                }
            }
        }
    }
    out.retain(|_, value| value.is_object());
    let _ = fields.insert("capabilities".to_owned(), out.into());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeted(result: &Value) -> (rmcp::model::InitializeResult, Vec<String>) {
        match in_shape(result).unwrap() {
            (ServerResult::InitializeResult(greeting), notes) => (greeting, notes),
            (other, _) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_greeting_without_this_or_that_is_a_greeting() {
        for (who, name, version, noted) in [
            (json!({"name": "n"}), "n", "", "gives no version"),
            (json!({"name": "n", "version": 3}), "n", "3", "is no text"),
            (json!({"name": "n", "version": "1", "title": null, "icons": "x"}), "n", "1", ""),
            (json!({"version": "1"}), "", "1", "gives no name"),
            (json!(null), "", "", "does not say who it is"),
        ] {
            let (greeting, notes) = greeted(&json!({"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": who}));
            assert_eq!((greeting.server_info.name.as_str(), greeting.server_info.version.as_str()), (name, version), "{who}");
            assert!(noted.is_empty() == notes.is_empty() && notes.concat().contains(noted), "{notes:?}");
        }
        let (greeting, _) = greeted(&json!({"protocolVersion": "2025-06-18"}));
        assert!(greeting.capabilities.tools.is_some(), "one that says nothing is asked");
        for (said, has) in [
            (json!(null), true),
            (json!({}), false),
            (json!({"tools": true}), true),
            (json!({"tools": []}), true),
            (json!({"tools": null}), false),
        ] {
            let (greeting, _) =
                greeted(&json!({"protocolVersion": "2025-06-18", "capabilities": said, "serverInfo": {"name": "n", "version": "1"}}));
            assert_eq!(greeting.capabilities.tools.is_some(), has, "{said}");
        }
        assert!(in_shape(&json!({"content": []})).is_none() && in_shape(&json!("x")).is_none());
    }
}
