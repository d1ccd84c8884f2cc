//! JSON as people write it: comments and trailing commas become blanks of the same length, so that the places in
//! error messages stay true.

/// The text as strict JSON, and whether something had to be blanked out.
pub(super) fn to_strict(text: &str) -> (String, bool) {
    let mut bytes = text.as_bytes().to_vec();
    let commented = blank_comments(&mut bytes);
    let trailing = blank_trailing_commas(&mut bytes);
    // Only whole ASCII runs and whole comments were blanked, so this is still UTF-8; the fallback keeps the error
    // message of the JSON parser.
    let strict = String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned());
    (strict, commented || trailing)
}

fn blank_comments(bytes: &mut [u8]) -> bool {
    let (mut at, mut found) = (0, false);
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => at = after_string(bytes, at),
            (b'/', Some(b'/')) => {
                let end = bytes[at..].iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |length| at + length);
                blank(&mut bytes[at..end]);
                (at, found) = (end, true);
            }
            (b'/', Some(b'*')) => {
                // An unfinished comment is left as it is: the JSON parser then points at its start.
                let Some(length) = bytes[at + 2..].windows(2).position(|pair| pair == b"*/") else {
                    return found;
                };
                let end = at + 2 + length + 2;
                blank(&mut bytes[at..end]);
                (at, found) = (end, true);
            }
            _ => at += 1,
        }
    }
    found
}

fn blank_trailing_commas(bytes: &mut [u8]) -> bool {
    let (mut at, mut found) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = after_string(bytes, at),
            b',' => {
                let next = bytes[at + 1..].iter().find(|byte| !byte.is_ascii_whitespace());
                if matches!(next, Some(b'}' | b']')) {
                    bytes[at] = b' ';
                    found = true;
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    found
}

/// The place after the string that starts at `at`.
fn after_string(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    at
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| !matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn comments_and_trailing_commas_go_and_strings_stay() {
        let text = "{ // one\n \"a\": \"http://x/*no*/,]\", /* two\n lines, ü */ \"b\": [1, 2, ], \"c\\\"//\": \"\\\\\", }";
        let (strict, changed) = to_strict(text);
        assert!(changed);
        assert_eq!(strict.len(), text.len());
        let value: Value = serde_json::from_str(&strict).unwrap();
        assert_eq!(value, json!({ "a": "http://x/*no*/,]", "b": [1, 2], "c\"//": "\\" }));
    }

    #[test]
    fn strict_text_is_unchanged_and_odd_text_does_not_panic() {
        let text = r#"{"a":[1,{"b":"c"}]}"#;
        assert_eq!(to_strict(text), (text.to_owned(), false));
        for odd in ["", "/", "/*", "//", "\"", "\"\\", ",", ", ]", "/*/", "{\"a\": /* never closed"] {
            assert_eq!(to_strict(odd).0.len(), odd.len(), "{odd}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_json_survives(text in "[\\[\\]{},:\"/*\\\\ a\\n\u{e9}]{0,60}") {
            // A text that is JSON already means the same afterwards.
            let (strict, _) = to_strict(&text);
            if let Ok(before) = serde_json::from_str::<Value>(&text) {
                proptest::prop_assert_eq!(serde_json::from_str::<Value>(&strict).unwrap(), before);
            }
        }
    }
}
