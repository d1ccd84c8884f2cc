//! Messages out of shape, read as what they mean. Servers in many languages write errors whose code is a word, numbers that no
//! reader keeps, bytes of another encoding; each of these would otherwise cost a call its answer.

use std::borrow::Cow;

use rmcp::RoleClient;
use rmcp::model::{ErrorCode, ErrorData, JsonRpcMessage, RequestId};
use rmcp::service::RxJsonRpcMessage;
use serde_json::{Map, Value, json};

use crate::tool::numbers;

/// The code of an answer that we made up because the real one could not be read.
pub(in crate::mcp) const UNREADABLE: ErrorCode = ErrorCode(-32603);
/// The code of an error whose own code is no number, as the protocol has it for servers.
const SERVER: i64 = -32000;
/// The id of an answer that names none: it is given to whoever waits (`connection::waiting`). No request has it.
pub(in crate::mcp) const NOBODY: &str = "\u{0}nobody";
/// Messages of one batch (revision 2025-03-26) that are taken.
const BATCH: usize = 1000;
/// Bytes at either end of a line that cannot be read in which an answer is looked for.
const LOOK: usize = 4096;

type Message = RxJsonRpcMessage<RoleClient>;

/// What was read.
#[derive(Debug, Default)]
pub(in crate::mcp) struct Read {
    /// The messages; empty where there are none.
    pub(in crate::mcp) messages: Vec<Message>,
    /// Whether it is of the protocol at all.
    pub(in crate::mcp) is_rpc: bool,
    /// What was not taken as it came.
    pub(in crate::mcp) note: Option<&'static str>,
}

/// Reads a text that should be a message, or a batch of them.
pub(in crate::mcp) fn read(bytes: &[u8]) -> Read {
    let text = String::from_utf8_lossy(bytes);
    let foreign = matches!(text, Cow::Owned(_));
    let exact = numbers::exact(&text);
    let note = match (foreign, &exact) {
        (true, _) => Some("an answer holds bytes that are no UTF-8; each of them is shown as U+FFFD"),
        (false, Cow::Owned(_)) => Some("an answer holds numbers that do not fit 64 bits; they are passed on as texts, digit by digit"),
        (false, Cow::Borrowed(_)) => None,
    };
    if exact.trim_start().starts_with('{')
        && let Ok(message) = serde_json::from_str(&exact)
    {
        return Read { messages: vec![message], is_rpc: true, note };
    }
    match serde_json::from_str::<Value>(&exact) {
        Ok(Value::Array(batch)) if !batch.is_empty() && batch.iter().all(is_rpc) => {
            Read { messages: batch.into_iter().take(BATCH).filter_map(understood).collect(), is_rpc: true, note }
        }
        Ok(value) if is_rpc(&value) => Read { messages: understood(value).into_iter().collect(), is_rpc: true, note },
        Ok(_) => Read::default(),
        Err(error) => unreadable(&exact, &error),
    }
}

fn is_rpc(value: &Value) -> bool {
    value.get("jsonrpc").is_some_and(|version| version == "2.0")
}

/// A line that is no JSON still ends the request that it answers, at once.
fn unreadable(text: &str, error: &serde_json::Error) -> Read {
    let (start, end) = (&text[..text.floor_char_boundary(LOOK)], &text[text.ceil_char_boundary(text.len().saturating_sub(LOOK))..]);
    let answers = text.starts_with('{') && [start, end].iter().any(|part| part.contains("\"jsonrpc\"")) && !start.contains("\"method\"");
    if !answers {
        return Read::default();
    }
    let id = id_in_head(start.as_bytes()).or_else(|| id_in_tail(end.as_bytes()));
    let what = format!("the answer is no valid JSON: {error}");
    let message = JsonRpcMessage::error(ErrorData::new(UNREADABLE, what, None), id);
    Read { messages: vec![message], is_rpc: true, note: None }
}

/// A message whose shape is not quite the protocol's. An answer always ends the request that it belongs to.
fn understood(mut value: Value) -> Option<Message> {
    if value.get("method").is_none() && (value.get("result").is_some() || value.get("error").is_some()) {
        answer(&mut value);
    }
    let id = value.get("id").filter(|_| value.get("method").is_none()).and_then(|id| serde_json::from_value(id.clone()).ok());
    match (serde_json::from_value(value), id) {
        (Ok(message), _) => Some(message),
        (Err(error), Some(id)) => {
            let what = format!("the answer is no valid JSON-RPC: {error}");
            Some(JsonRpcMessage::error(ErrorData::new(UNREADABLE, what, None), Some(id)))
        }
        (Err(error), None) => {
            tracing::debug!(%error, "a message that cannot be understood is left out");
            None
        }
    }
}

/// Brings an answer's id and error into shape.
fn answer(value: &mut Value) {
    let Some(fields) = value.as_object_mut() else { return };
    match fields.get("error") {
        Some(Value::Null) => drop(fields.remove("error")),
        Some(_) => drop(fields.remove("result")),
        None => {}
    }
    let named = fields.get("id").is_some_and(|id| serde_json::from_value::<RequestId>(id.clone()).is_ok());
    if !named {
        let _ = if fields.contains_key("error") { fields.remove("id") } else { fields.insert("id".to_owned(), NOBODY.into()) };
    }
    if let Some(error) = fields.get_mut("error") {
        *error = said(error);
    }
}

/// An error in the shape of the protocol, with the server's own words.
fn said(error: &Value) -> Value {
    let fields = match error {
        Value::Object(fields) => fields,
        Value::String(words) => return json!({ "code": SERVER, "message": words }),
        other => return json!({ "code": SERVER, "message": other.to_string() }),
    };
    let code = fields.get("code");
    let number = code.and_then(|code| code.as_i64().or_else(|| whole(code))).filter(|code| i32::try_from(*code).is_ok());
    let mut words = words(fields).unwrap_or_else(|| error.to_string());
    if number.is_none()
        && let Some(code) = code.filter(|code| !code.is_null())
    {
        let code = code.as_str().map_or_else(|| code.to_string(), str::to_owned);
        words = format!("{words} (code {code})");
    }
    let mut out = Map::from_iter([("code".to_owned(), number.unwrap_or(SERVER).into()), ("message".to_owned(), words.into())]);
    out.extend(fields.get("data").map(|data| ("data".to_owned(), data.clone())));
    out.into()
}

/// A whole number that was written as a fraction or as a text.
fn whole(code: &Value) -> Option<i64> {
    let number = code.as_f64().or_else(|| code.as_str().and_then(|text| text.trim().parse().ok()))?;
    #[allow(clippy::cast_possible_truncation, reason = "it is whole and small")]
    (number.fract() == 0.0 && number.abs() < 1e9).then_some(number as i64)
}

/// What an error says: under the names that servers use for it.
fn words(fields: &Map<String, Value>) -> Option<String> {
    let found = ["message", "msg", "detail", "description", "error", "reason"].iter().filter_map(|name| fields.get(*name));
    found.filter(|words| !words.is_null()).map(|words| words.as_str().map_or_else(|| words.to_string(), str::to_owned)).next()
}

/// The value of `"id"` among the fields that stand before the long one. A request (`"method"`) has an id of the other side.
pub(super) fn id_in_head(head: &[u8]) -> Option<RequestId> {
    let mut rest = head.trim_ascii_start().strip_prefix(b"{")?;
    loop {
        let (key, after) = next_value(rest)?;
        rest = after.trim_ascii_start().strip_prefix(b":")?;
        let (value, after) = next_value(rest)?;
        match key {
            Value::String(key) if key == "id" => return serde_json::from_value(value).ok(),
            Value::String(key) if key == "method" => return None,
            _ => rest = after.trim_ascii_start().strip_prefix(b",")?,
        }
    }
}

/// The first whole JSON value, and what follows it.
fn next_value(text: &[u8]) -> Option<(Value, &[u8])> {
    let mut values = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    let value = values.next()?.ok()?;
    let used = values.byte_offset();
    Some((value, text.get(used..)?))
}

/// The value of `"id"` where it is the last field, or the last but `"jsonrpc"`.
pub(super) fn id_in_tail(tail: &[u8]) -> Option<RequestId> {
    let place = tail.windows(4).rposition(|window| window == b"\"id\"")?;
    let (value, after) = next_value(tail[place + 4..].trim_ascii_start().strip_prefix(b":")?)?;
    let mut after = after.trim_ascii();
    if let Some(more) = after.strip_prefix(b",") {
        let (key, rest) = next_value(more)?;
        let (_, rest) = next_value(rest.trim_ascii_start().strip_prefix(b":")?)?;
        if key != "jsonrpc" {
            return None;
        }
        after = rest.trim_ascii();
    }
    if after == b"}" { serde_json::from_value(value).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &[u8]) -> Value {
        let read = read(text);
        assert!(read.is_rpc && read.messages.len() == 1, "{}", String::from_utf8_lossy(text));
        serde_json::to_value(&read.messages[0]).unwrap()
    }

    #[test]
    fn an_error_in_any_shape_keeps_the_servers_words() {
        for (error, code, message) in [
            (r#"{"code":"E42","message":"string code"}"#, SERVER, "string code (code E42)"),
            (r#""plain words""#, SERVER, "plain words"),
            (r#"{"code":-32602.0,"message":"a fraction"}"#, -32602, "a fraction"),
            (r#"{"code":"-32602","message":"digits"}"#, -32602, "digits"),
            (r#"{"code":99999999999,"message":"large"}"#, SERVER, "large (code 99999999999)"),
            (r#"{"message":{"why":"nested"}}"#, SERVER, r#"{"why":"nested"}"#),
            (r#"{"code":null,"detail":"elsewhere"}"#, SERVER, "elsewhere"),
            (r#"{"status":500}"#, SERVER, r#"{"status":500}"#),
            ("[1]", SERVER, "[1]"),
            ("true", SERVER, "true"),
        ] {
            let answer = one(format!(r#"{{"jsonrpc":"2.0","id":7,"error":{error}}}"#).as_bytes());
            assert_eq!((answer["id"].as_i64(), answer["error"]["code"].as_i64()), (Some(7), Some(code)), "{error}");
            assert_eq!(answer["error"]["message"], message, "{error}");
        }
        assert_eq!(one(br#"{"jsonrpc":"2.0","id":7,"error":{"code":"x","message":"m","data":[1]}}"#)["error"]["data"], json!([1]));
        let both = one(br#"{"jsonrpc":"2.0","id":7,"result":{},"error":null}"#);
        assert_eq!(both["result"], json!({}));
        assert_eq!(one(br#"{"jsonrpc":"2.0","id":7,"result":null,"error":"no"}"#)["error"]["message"], "no");
    }

    #[test]
    fn an_answer_without_an_id_is_kept_for_whoever_waits() {
        for id in [r#""id":null,"#, r#""id":1.5,"#, ""] {
            assert_eq!(one(format!(r#"{{"jsonrpc":"2.0",{id}"result":{{"a":1}}}}"#).as_bytes())["id"], NOBODY, "{id}");
            let error = one(format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-1,"message":"m"}}}}"#).as_bytes());
            assert!(error.get("id").is_none_or(Value::is_null), "{id}");
        }
    }

    #[test]
    fn a_line_that_is_no_json_ends_its_request_and_noise_does_not() {
        let answer = one(br#"{"jsonrpc":"2.0","id":5,"result":{"a":oops}}"#);
        assert_eq!((answer["id"].as_i64(), answer["error"]["code"].as_i64()), (Some(5), Some(-32603)));
        assert!(answer["error"]["message"].as_str().unwrap().contains("no valid JSON"));
        assert_eq!(one(br#"{"result":{"a":oops},"jsonrpc":"2.0","id":"x"}"#)["id"], "x");
        assert!(one(br#"{"jsonrpc":"2.0","result":{"a":oops},"b":1}"#).get("id").is_none_or(Value::is_null));
        for noise in [&b"{oops"[..], b"starting 2.0", b"{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"id\":3,\"params\":oops}", b"[1,2]", b"42"] {
            assert!(!read(noise).is_rpc, "{}", String::from_utf8_lossy(noise));
        }
    }

    #[test]
    fn foreign_bytes_and_wide_numbers_cost_nothing_but_a_note() {
        let found = read(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"a \xc1\xd6 b\"}]}}");
        assert!(found.note.unwrap().contains("UTF-8"));
        assert_eq!(serde_json::to_value(&found.messages[0]).unwrap()["result"]["content"][0]["text"], "a \u{fffd}\u{fffd} b");
        let found = read(br#"{"jsonrpc":"2.0","id":1,"result":{"structuredContent":{"n":123456789012345678901234567890,"u":18446744073709551615,"e":1e400},"content":[]}}"#);
        assert!(found.note.unwrap().contains("64 bits"));
        let found = serde_json::to_value(&found.messages[0]).unwrap();
        assert_eq!(
            found["result"]["structuredContent"],
            json!({"n": "123456789012345678901234567890", "u": 18_446_744_073_709_551_615_u64, "e": "1e400"})
        );
    }
}
