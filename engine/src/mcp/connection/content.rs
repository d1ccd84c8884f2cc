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
/// has no content at all.
pub(super) fn raw_result(result: &Value) -> Option<CallResult> {
    let blocks = result.get("content")?.as_array()?;
    let understood = |block: &Value| match serde_json::from_value::<ContentBlock>(block.clone()) {
        Ok(block) => content(block),
        Err(_) => Content::Text { text: block.to_string() },
    };
    Some(CallResult {
        content: blocks.iter().map(understood).collect(),
        structured: result.get("structuredContent").cloned(),
        is_error: result.get("isError").and_then(Value::as_bool).unwrap_or(false),
    })
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
        assert_eq!(raw_result(&json!({"content": "text"})), None);
        assert_eq!(raw_result(&json!([1])), None);
    }
}
