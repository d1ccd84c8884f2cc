//! What a call gave back.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One piece of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text {
        /// The text itself.
        text: String,
    },
    /// An image, base64.
    Image {
        /// Base64 data.
        data: String,
        /// MIME type.
        mime: String,
    },
    /// A sound, base64.
    Audio {
        /// Base64 data.
        data: String,
        /// MIME type.
        mime: String,
    },
    /// A link to a resource, or an embedded resource's text.
    Resource {
        /// The resource's address.
        uri: String,
        /// Its name, where given.
        name: Option<String>,
        /// Its text, where embedded.
        text: Option<String>,
    },
}

/// The result of one call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// The pieces, in order.
    pub content: Vec<Content>,
    /// The structured result, where the tool gives one.
    pub structured: Option<Value>,
    /// Whether the tool itself says that it failed.
    pub is_error: bool,
}

impl CallResult {
    /// A result that is one text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: vec![Content::Text { text: text.into() }], ..Self::default() }
    }

    /// The whole result as plain text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut pieces: Vec<String> = self.content.iter().map(Content::to_text).collect();
        if pieces.is_empty() {
            pieces.extend(self.structured.as_ref().map(Value::to_string));
        }
        pieces.join("\n")
    }

    /// What the model reads: at most `limit` characters, cut on a character boundary, and the cut is said.
    #[must_use]
    pub fn to_model_text(&self, limit: usize) -> String {
        let text = self.to_text();
        let Some((cut, _)) = text.char_indices().nth(limit) else {
            return text;
        };
        let rest = text[cut..].chars().count();
        format!("{}\n[cut here: {rest} more characters were left out]", &text[..cut])
    }
}

impl Content {
    fn to_text(&self) -> String {
        match self {
            Self::Text { text } => text.clone(),
            Self::Image { mime, data } => format!("[image, {mime}, {} bytes]", data.len() / 4 * 3),
            Self::Audio { mime, data } => format!("[audio, {mime}, {} bytes]", data.len() / 4 * 3),
            Self::Resource { uri, name, text } => match text {
                Some(text) => text.clone(),
                None => format!("[resource {} {uri}]", name.as_deref().unwrap_or_default()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_text_is_cut_on_a_character_boundary_and_says_so() {
        let result = CallResult::text("中文字符五");
        assert_eq!(result.to_model_text(5), "中文字符五");
        let cut = result.to_model_text(3);
        assert!(cut.starts_with("中文字\n"), "{cut}");
        assert!(cut.contains("2 more characters"), "{cut}");
    }
}
