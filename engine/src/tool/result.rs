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

/// Bytes of text and data that are kept of one result; what is beyond is left out, and the result says so.
pub const KEPT: usize = 4 << 20;

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

    /// The same result within [`KEPT`] bytes: texts are cut on a character boundary, data that does not fit goes, and what
    /// was left out is said in a last piece.
    #[must_use]
    pub fn bounded(mut self) -> Self {
        let mut room = KEPT;
        let mut lost = 0;
        for piece in &mut self.content {
            // Half of an image is none; half of a text is still one.
            let (text, divisible) = match piece {
                Content::Text { text } | Content::Resource { text: Some(text), .. } => (text, true),
                Content::Image { data, .. } | Content::Audio { data, .. } => (data, false),
                Content::Resource { text: None, .. } => continue,
            };
            let whole = text.len();
            if whole > room {
                text.truncate(if divisible { text.floor_char_boundary(room) } else { 0 });
                lost += whole - text.len();
            }
            room -= text.len();
        }
        if let Some(value) = self.structured.as_ref().map(Value::to_string).filter(|value| value.len() > KEPT) {
            lost += value.len();
            self.structured = None;
        }
        if lost > 0 {
            self.content
                .push(Content::Text { text: format!("[{lost} bytes of this result were left out: more than {KEPT} are not kept]") });
        }
        self
    }

    /// The whole result as plain text: the pieces, and the structured result where they do not hold it already.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut pieces: Vec<String> = self.content.iter().map(Content::to_text).collect();
        pieces.extend(self.structured.as_ref().filter(|value| !self.repeats(value)).map(Value::to_string));
        pieces.join("\n")
    }

    /// Whether the texts say what the structured result says: as its JSON, as the one value that it wraps, or as its items one
    /// by one. Servers are asked to send both, for clients that know only texts.
    fn repeats(&self, value: &Value) -> bool {
        let texts: Vec<&str> = self.content.iter().filter_map(Content::as_text).filter(|text| !text.trim().is_empty()).collect();
        let says = |text: &str, value: &Value| {
            value.as_str() == Some(text) || serde_json::from_str::<Value>(text).is_ok_and(|said| said == *value)
        };
        // Frameworks wrap what is no object into one with a single field.
        let inner = value.as_object().filter(|fields| fields.len() == 1).and_then(|fields| fields.values().next());
        std::iter::once(value).chain(inner).any(|value| {
            let items = value.as_array().filter(|items| items.len() == texts.len());
            texts.iter().any(|text| says(text, value))
                || items.is_some_and(|items| !items.is_empty() && items.iter().zip(&texts).all(|(item, text)| says(text, item)))
        })
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
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } | Self::Resource { text: Some(text), .. } => Some(text),
            Self::Image { .. } | Self::Audio { .. } | Self::Resource { text: None, .. } => None,
        }
    }

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
    use serde_json::json;

    use super::*;

    #[test]
    fn a_result_that_is_too_large_is_cut_and_says_so() {
        let small = CallResult::text("small");
        assert_eq!(small.clone().bounded(), small);
        let mut large = CallResult::text("é".repeat(KEPT / 2 + 1000));
        large.content.push(Content::Image { data: "x".repeat(100), mime: "image/png".to_owned() });
        let bounded = large.bounded();
        assert!(matches!(&bounded.content[0], Content::Text { text } if text.len() == KEPT));
        assert!(matches!(&bounded.content[1], Content::Image { data, .. } if data.is_empty()));
        assert!(matches!(&bounded.content[2], Content::Text { text } if text.contains("2100 bytes")), "{:?}", bounded.content[2]);
    }

    #[test]
    fn a_structured_result_is_read_beside_the_text_and_once() {
        let result = |texts: &[&str], structured: Value| CallResult {
            content: texts.iter().map(|text| Content::Text { text: (*text).to_owned() }).collect(),
            structured: Some(structured),
            is_error: false,
        };
        let summary = result(&["1 page read"], json!({"pages": [{"text": "opens at 3.7 bar"}]}));
        assert_eq!(summary.to_text(), "1 page read\n{\"pages\":[{\"text\":\"opens at 3.7 bar\"}]}");
        for same in [
            result(&["{\n  \"n\": 1,\n  \"m\": [2]\n}"], json!({"m": [2], "n": 1})),
            result(&["plain words"], json!({"result": "plain words"})),
            result(&["42"], json!({"result": 42})),
            result(&["{\"a\":1}", "{\"a\":2}"], json!({"result": [{"a": 1}, {"a": 2}]})),
            result(&["x", "y"], json!({"items": ["x", "y"]})),
            result(&["note", "{\"n\":1}"], json!({"n": 1})),
        ] {
            let texts: Vec<&str> = same.content.iter().filter_map(Content::as_text).collect();
            assert_eq!(same.to_text(), texts.join("\n"));
        }
        assert_eq!(result(&[], json!({"n": 1})).to_text(), "{\"n\":1}");
    }

    #[test]
    fn model_text_is_cut_on_a_character_boundary_and_says_so() {
        let result = CallResult::text("中文字符五");
        assert_eq!(result.to_model_text(5), "中文字符五");
        let cut = result.to_model_text(3);
        assert!(cut.starts_with("中文字\n"), "{cut}");
        assert!(cut.contains("2 more characters"), "{cut}");
    }
}
