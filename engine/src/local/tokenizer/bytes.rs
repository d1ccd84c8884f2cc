//! How vocabularies spell bytes.

/// The byte that a character stands for in a byte-level vocabulary: printable Latin-1 stands for itself, the other bytes
/// for the characters from U+0100 on, in order (Radford et al., "Language Models are Unsupervised Multitask Learners",
/// 2019, and the vocabulary files that came with it).
pub(super) fn of_char(c: char) -> Option<u8> {
    let code = u32::from(c);
    if let Ok(byte) = u8::try_from(code) {
        return printable(byte).then_some(byte);
    }
    let nth = usize::try_from(code.checked_sub(0x100)?).ok()?;
    (0..=u8::MAX).filter(|byte| !printable(*byte)).nth(nth)
}

fn printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

/// The bytes of a token of a byte-level vocabulary. Characters outside its alphabet stand for themselves.
pub(super) fn of_byte_level(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match of_char(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// The bytes of a token of a SentencePiece vocabulary: `<0x0A>` is a byte, U+2581 a space.
pub(super) fn of_piece(text: &str) -> Vec<u8> {
    let hex = text.strip_prefix("<0x").and_then(|rest| rest.strip_suffix('>')).filter(|hex| hex.len() == 2);
    match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
        Some(byte) => vec![byte],
        None => text.replace('\u{2581}', " ").into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_covers_every_byte_once() {
        let mut seen: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(of_char).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..=u8::MAX).collect::<Vec<_>>());
    }

    #[test]
    fn known_spellings() {
        assert_eq!(of_byte_level("Ġthe"), b" the");
        assert_eq!(of_byte_level("Ċ"), b"\n");
        assert_eq!(of_byte_level("ĠcafÃ©"), " café".as_bytes());
        assert_eq!(of_piece("\u{2581}the"), b" the");
        assert_eq!(of_piece("<0x0A>"), b"\n");
        assert_eq!(of_piece("<0xZZ>"), b"<0xZZ>");
    }
}
