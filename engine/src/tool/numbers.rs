//! Numbers in JSON text, exact to the last digit. A reader keeps 64 bits: what is wider would be rounded without a word
//! (RFC 8259, section 6), and an identifier that is off by one names somebody else.

use std::borrow::Cow;

/// Digits that 64 bits always hold.
const SAFE: usize = 18;
/// The largest whole number up to which fractions are exact to the unit.
const UNIT: f64 = 9_007_199_254_740_992.0;

/// The text with each number that no reader keeps written as a string of the same characters.
#[must_use]
pub fn exact(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    for (start, end) in wide(text) {
        out.push_str(&text[copied..start]);
        out.push('"');
        out.push_str(&text[start..end]);
        out.push('"');
        copied = end;
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// The first number of a text that no reader keeps.
#[must_use]
pub fn first_wide(text: &str) -> Option<&str> {
    wide(text).next().map(|(start, end)| &text[start..end])
}

/// The places of numbers that would not survive. The text need not be valid JSON: what is in no string and looks like a
/// number counts as one.
fn wide(text: &str) -> impl Iterator<Item = (usize, usize)> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(&byte) = bytes.get(at) {
            match byte {
                b'"' => at = string_end(bytes, at + 1),
                b'-' | b'0'..=b'9' => {
                    let start = at;
                    let length =
                        bytes[start..].iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count();
                    at += length;
                    if !survives(&text[start..at]) {
                        return Some((start, at));
                    }
                }
                _ => at += 1,
            }
        }
        None
    })
}

fn string_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
        at += found;
        if bytes[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    bytes.len()
}

/// Whether a reader keeps this number. Fractions are rounded by every reader, which is what fractions are for; only one
/// that stands for a whole number beyond 2^53 counts as cut.
fn survives(number: &str) -> bool {
    if number.len() <= 15 && !number.contains(['e', 'E']) {
        return true;
    }
    if !number.contains(['.', 'e', 'E']) {
        let digits = number.trim_start_matches('-').len();
        return digits <= SAFE || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    }
    match number.parse::<f64>() {
        Ok(value) if !value.is_finite() => false,
        Ok(value) if value.abs() < UNIT => true,
        Ok(value) => significant(number) == significant(&format!("{value:e}")) || significant(number).len() <= 15,
        // No number at all; the reader says so.
        Err(_) => true,
    }
}

/// The digits that count.
fn significant(number: &str) -> String {
    let mantissa = number.split(['e', 'E']).next().unwrap_or_default();
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    digits.trim_start_matches('0').trim_end_matches('0').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_would_be_cut_becomes_a_text() {
        for kept in [
            r#"{"a":1,"b":-2.5e10,"c":18446744073709551615,"d":-9223372036854775808,"e":"123456789012345678901234567890","f":3.14159265358979323846}"#,
            r#"["\"12345678901234567890123\\",1e30,0.1,1234567890123456789]"#,
            "",
            "\"open 99999999999999999999999",
        ] {
            assert!(matches!(exact(kept), Cow::Borrowed(_)), "{kept}: {}", exact(kept));
        }
        assert_eq!(exact("{\"a\":18446744073709551616}"), "{\"a\":\"18446744073709551616\"}");
        assert_eq!(exact("[-9223372036854775809,1e400,5]"), "[\"-9223372036854775809\",\"1e400\",5]");
        assert_eq!(exact("[1234567890123456789.0]"), "[\"1234567890123456789.0\"]");
        assert_eq!(first_wide("{\"a\":1,\"b\":99999999999999999999}"), Some("99999999999999999999"));
        assert_eq!(first_wide("{\"b\":\"99999999999999999999\"}"), None);
    }

    proptest::proptest! {
        #[test]
        fn whole_numbers_are_kept_exactly_where_they_fit(number in proptest::num::i128::ANY) {
            let text = number.to_string();
            let fits = i64::try_from(number).is_ok() || u64::try_from(number).is_ok();
            proptest::prop_assert_eq!(first_wide(&text).is_none(), fits);
            if fits {
                proptest::prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap().to_string(), text);
            }
        }

        #[test]
        fn any_text_is_read_without_a_fault(text in "[-+0-9eE.\"\\\\{}\\[\\],:a-zé ]{0,60}") {
            let _ = exact(&text);
        }
    }
}
