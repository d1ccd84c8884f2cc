//! From the protocol's results to ours.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

use crate::tool::{CallResult, Content};

/// A call's result as the rest of the engine knows it.
pub(super) fn call_result(result: CallToolResult) -> CallResult {
    CallResult {
        content: result.content.into_iter().map(content).collect(),
        structured: result.structured_content,
        is_error: result.is_error.unwrap_or(false),
    }
}

/// A result that is not wholly in shape, block by block: what cannot be understood is shown as it came. None where it
/// holds nothing that a result has.
pub(super) fn raw_result(result: &Value) -> Option<CallResult> {
    let fields = result.as_object()?;
    if !["content", "structuredContent", "isError"].iter().any(|name| fields.contains_key(*name)) {
        return None;
    }
    let content = match fields.get("content") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(blocks)) => blocks.iter().filter_map(raw_block).collect(),
        Some(other) => raw_block(other).into_iter().collect(),
    };
    Some(CallResult {
        content,
        structured: fields.get("structuredContent").filter(|value| !value.is_null()).cloned(),
        is_error: fields.get("isError").and_then(Value::as_bool).unwrap_or(false),
    })
}

/// A block as well as it can be understood; none where it says nothing.
fn raw_block(block: &Value) -> Option<Content> {
    if let Ok(block) = serde_json::from_value::<ContentBlock>(block.clone()) {
        return Some(content(block));
    }
    let text = |text: &str| Some(Content::Text { text: text.to_owned() });
    match block {
        Value::Null => None,
        Value::String(words) => text(words),
        Value::Object(fields) => {
            // Some servers write a MIME type for the type, or none, or leave the address of a resource away.
            let inner = fields.get("text").or_else(|| fields.get("resource").and_then(|resource| resource.get("text")));
            let media = ["data", "blob"].iter().any(|name| fields.contains_key(*name));
            match inner {
                Some(Value::String(words)) if !media => text(words),
                Some(Value::Null) if fields.get("type").is_some_and(|kind| kind == "text") => None,
                _ => match fields.get("json").filter(|_| fields.len() == 2 && fields.get("type").is_some_and(|kind| kind == "json")) {
                    Some(json) => text(&json.to_string()),
                    None => text(&block.to_string()),
                },
            }
        }
        other => text(&other.to_string()),
    }
}

pub(super) fn content(block: ContentBlock) -> Content {
    match block {
        ContentBlock::Text(text) => Content::Text { text: text.text },
        ContentBlock::Image(image) => Content::Image { data: image.data, mime: image.mime_type },
        ContentBlock::Audio(audio) => Content::Audio { data: audio.data, mime: audio.mime_type },
        ContentBlock::ResourceLink(link) => Content::Resource { uri: link.uri, name: Some(link.title.unwrap_or(link.name)), text: None },
        ContentBlock::Resource(embedded) => resource(embedded.resource),
        // The protocol's enum may grow; what is not known is shown as it came.
        other => Content::Text { text: serde_json::to_string(&other).unwrap_or_else(|_| "[unknown content]".to_owned()) },
    }
}

pub(super) fn resource(contents: ResourceContents) -> Content {
    match contents {
        ResourceContents::TextResourceContents { uri, text, .. } => Content::Resource { uri, name: None, text: Some(text) },
        ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => match mime_type {
            Some(mime) if mime.starts_with("image/") => Content::Image { data: blob, mime },
            Some(mime) if mime.starts_with("audio/") => Content::Audio { data: blob, mime },
            mime => Content::Resource { uri, name: mime.map(|mime| format!("({mime}, {} bytes)", blob.len() / 4 * 3)), text: None },
        },
        other => Content::Text { text: serde_json::to_string(&other).unwrap_or_else(|_| "[unknown resource]".to_owned()) },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_content_arrives() {
        let result: CallToolResult = serde_json::from_value(json!({
            "content": [
                {"type": "text", "text": "hello"},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
                {"type": "resource_link", "uri": "file:///a", "name": "a", "title": "A"},
                {"type": "resource", "resource": {"uri": "file:///b", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "file:///c", "blob": "aGk=", "mimeType": "image/gif"}},
                {"type": "resource", "resource": {"uri": "file:///d", "blob": "aGkh", "mimeType": "application/zip"}}
            ],
            "structuredContent": {"n": 1},
            "isError": true
        }))
        .unwrap();
        let result = call_result(result);
        assert!(result.is_error);
        assert_eq!(result.structured, Some(json!({"n": 1})));
        assert_eq!(
            result.content,
            [
                Content::Text { text: "hello".to_owned() },
                Content::Image { data: "aGk=".to_owned(), mime: "image/png".to_owned() },
                Content::Audio { data: "aGk=".to_owned(), mime: "audio/wav".to_owned() },
                Content::Resource { uri: "file:///a".to_owned(), name: Some("A".to_owned()), text: None },
                Content::Resource { uri: "file:///b".to_owned(), name: None, text: Some("inside".to_owned()) },
                Content::Image { data: "aGk=".to_owned(), mime: "image/gif".to_owned() },
                Content::Resource { uri: "file:///d".to_owned(), name: Some("(application/zip, 3 bytes)".to_owned()), text: None },
            ]
        );
    }

    #[test]
    fn a_block_of_an_unknown_kind_costs_only_itself() {
        let raw = json!({"content": [{"type": "hologram", "x": 1}, {"type": "text", "text": "seen"}], "isError": true});
        assert!(serde_json::from_value::<CallToolResult>(raw.clone()).is_err());
        let result = raw_result(&raw).unwrap();
        assert_eq!(result.to_text(), "{\"type\":\"hologram\",\"x\":1}\nseen");
        assert!(result.is_error);
        assert_eq!(raw_result(&json!([1])), None);
        assert_eq!(raw_result(&json!({"tools": []})), None);
    }

    #[test]
    fn content_in_other_shapes_is_read_as_text() {
        for (content, text) in [
            (json!("just a string 18"), "just a string 18"),
            (json!({"type": "text", "text": "one object 19"}), "one object 19"),
            (json!([{"text": "untyped 17"}]), "untyped 17"),
            (json!([{"type": "application/json", "text": "{\"valve\": 4}"}]), "{\"valve\": 4}"),
            (json!([{"type": "json", "json": {"doi": "10.1/x"}}]), "{\"doi\":\"10.1/x\"}"),
            (json!([{"type": "resource", "resource": {"text": "at 4 bar"}}]), "at 4 bar"),
            (json!([{"type": "text", "text": null}, "words", 7, null]), "words\n7"),
            (json!(null), ""),
        ] {
            assert_eq!(raw_result(&json!({"content": content})).unwrap().to_text(), text, "{content}");
        }
        let structured = raw_result(&json!({"structuredContent": {"answer": 42}})).unwrap();
        assert_eq!(structured.to_text(), "{\"answer\":42}");
    }
}
