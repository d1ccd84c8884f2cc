//! Bytes of tokens to text, without ever giving half a character.

/// Collects bytes and gives the text that is whole.
#[derive(Clone, Debug, Default)]
pub struct Detokenizer {
    pending: Vec<u8>,
}

impl Detokenizer {
    /// Takes bytes and gives the text that they complete. Bytes that can never become UTF-8 become U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::new();
        loop {
            match std::str::from_utf8(&self.pending) {
                Ok(rest) => {
                    text.push_str(rest);
                    self.pending.clear();
                    return text;
                }
                Err(error) => {
                    let (good, rest) = self.pending.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(good));
                    let Some(bad) = error.error_len() else {
                        self.pending = rest.to_vec();
                        return text;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    self.pending = rest[bad..].to_vec();
                }
            }
        }
    }

    /// The end: a character that was begun and never finished becomes U+FFFD.
    pub fn finish(&mut self) -> String {
        let text = String::from_utf8_lossy(&self.pending).into_owned();
        self.pending.clear();
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn half_a_character_waits() {
        let mut stream = Detokenizer::default();
        assert_eq!(stream.push(&[b'a', 0xf0, 0x9f]), "a");
        assert_eq!(stream.push(&[0xa6]), "");
        assert_eq!(stream.push(&[0x80, b'!']), "🦀!");
        assert_eq!(stream.push(&[0xff, b'x', 0xe2]), "\u{fffd}x");
        assert_eq!(stream.finish(), "\u{fffd}");
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_text(text in "\\PC{0,40}", cut in 1usize..5) {
            let mut stream = Detokenizer::default();
            let mut joined = String::new();
            for piece in text.as_bytes().chunks(cut) {
                joined += &stream.push(piece);
            }
            joined += &stream.finish();
            prop_assert_eq!(joined, text);
        }
    }
}
