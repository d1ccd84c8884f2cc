//! UTF-16 without a mark of its byte order: told from other encodings and from binary data by what it decodes to.
//!
//! Every pair of bytes is some character, so a wrong guess gives text too, only an unlikely one. What tells is how many
//! characters belong to scripts in use, and how many are those that every text has: spaces, line ends, digits, the stops
//! of Chinese.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

/// How much is looked at.
const LOOK: usize = 4096;
/// Fewer bytes say too little.
const LEAST: usize = 4;
/// From this share of printable ASCII bytes on it is a text of one byte per character, with or without a stray zero.
const ASCII_SHARE: f32 = 0.85;
/// How many of a hundred characters must belong to scripts in use.
const COMMON: usize = 90;
/// The same where no zero byte speaks for UTF-16: only Chinese and Japanese without a space or a line end get there.
const COMMON_WITHOUT_ZEROS: usize = 98;
/// Code points that pairs of Shift-JIS bytes make lie here and above; those of Chinese text mostly lie below.
const SHIFT_JIS: u16 = 0x8140;

/// What a stretch of bytes is as UTF-16 of one byte order.
#[derive(Debug, Default)]
struct Reading {
    units: usize,
    /// Of scripts and signs in use.
    common: usize,
    /// Spaces, line ends, ASCII letters and digits, Chinese stops.
    anchors: usize,
    /// Stops of Chinese and Japanese.
    stops: usize,
    /// Controls, private characters and others that no text holds.
    wrong: usize,
    /// Chinese characters, and those below [`SHIFT_JIS`].
    han: (usize, usize),
}

/// The byte order of UTF-16 without a mark; nothing for other encodings and for binary data.
pub(super) fn order(bytes: &[u8]) -> Option<&'static Encoding> {
    // A whole text has an even number of bytes; one byte too many at the very end is forgiven where much else speaks for it.
    let head = &bytes[..bytes.len().min(LOOK) & !1];
    if head.len() < LEAST {
        return None;
    }
    let zeros = head.contains(&0);
    let text = |byte: &&u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    #[allow(clippy::cast_precision_loss)]
    let ascii = head.iter().filter(text).count() as f32 / head.len() as f32;
    if ascii >= ASCII_SHARE || (!zeros && (bytes.len() % 2 == 1 || is_utf8(head))) {
        return None;
    }
    let readings = [(UTF_16LE, reading(head, u16::from_le_bytes)), (UTF_16BE, reading(head, u16::from_be_bytes))];
    let plausible = readings.into_iter().filter_map(|(encoding, reading)| Some((encoding, reading.filter(|found| found.is_text(zeros))?)));
    plausible.max_by_key(|(_, reading)| reading.common + reading.anchors).map(|(encoding, _)| encoding)
}

/// Whether bytes are UTF-8, perhaps with a character cut off at their end.
fn is_utf8(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true)
}

impl Reading {
    fn is_text(&self, zeros: bool) -> bool {
        if self.wrong * 50 > self.units {
            return false;
        }
        if zeros {
            return self.anchors > 0 && self.common * 100 >= self.units * COMMON;
        }
        let (han, low) = self.han;
        self.stops > 0 && self.common * 100 >= self.units * COMMON_WITHOUT_ZEROS && han > 0 && low * 3 >= han
    }
}

/// Nothing where the bytes are no UTF-16 of this order at all.
fn reading(head: &[u8], unit: fn([u8; 2]) -> u16) -> Option<Reading> {
    let mut units: Vec<u16> = head.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    // The first half of a pair may be the last thing that is looked at.
    let _half = units.pop_if(|unit| matches!(unit, 0xd800..=0xdbff));
    let mut reading = Reading::default();
    for character in char::decode_utf16(units) {
        match character {
            Ok('\0') | Err(_) => return None,
            Ok(character) => reading.count(character),
        }
    }
    (reading.units > 0).then_some(reading)
}

impl Reading {
    fn count(&mut self, character: char) {
        self.units += 1;
        let stop = matches!(
            character as u32,
            0x3001 | 0x3002 | 0xff01 | 0xff08 | 0xff09 | 0xff0c | 0xff1a | 0xff1b | 0xff1f | 0x201c | 0x201d | 0x2026
        );
        self.stops += usize::from(stop);
        self.anchors += usize::from(stop || matches!(character, '\t' | '\n' | '\r' | ' '..='~'));
        let common = is_common(character);
        self.common += usize::from(common);
        self.wrong += usize::from(!common && !character.is_alphanumeric() && !is_sign(character));
        if let 0x4e00..=0x9fff = character as u32 {
            self.han.0 += 1;
            self.han.1 += usize::from((character as u32) < u32::from(SHIFT_JIS));
        }
    }
}

/// Scripts and signs of most texts that people have.
fn is_common(character: char) -> bool {
    match character as u32 {
        0x09 | 0x0a | 0x0d | 0x20..=0x7e | 0xa0..=0x24f | 0x300..=0x36f => true,
        // Greek, Cyrillic, Armenian, Hebrew, Arabic, the scripts of India, Thai, Lao, Georgian.
        0x370..=0x6ff | 0x900..=0xeff | 0x10a0..=0x10ff | 0x1e00..=0x1fff => character.is_alphanumeric() || is_mark(character),
        // Dashes, quotes, dots; not the invisible ones behind them.
        0x2010..=0x205e | 0x20a0..=0x20bf | 0x2100..=0x214f | 0x2190..=0x21ff | 0x2460..=0x24ff | 0x2500..=0x25ff => true,
        0x3000..=0x303f | 0x3041..=0x30ff | 0x3400..=0x4dbf | 0x4e00..=0x9fff | 0xac00..=0xd7a3 | 0xff01..=0xff9f | 0xffe0..=0xffe6 => true,
        0x1f300..=0x1faff | 0x20000..=0x2ffff => true,
        _ => false,
    }
}

fn is_mark(character: char) -> bool {
    unicode_normalization::char::is_combining_mark(character) || matches!(character as u32, 0x60c | 0x61b | 0x61f | 0x640 | 0x964 | 0x965)
}

/// A rare sign that a text may hold.
fn is_sign(character: char) -> bool {
    matches!(character as u32, 0x0c | 0xfeff | 0x200b..=0x200f | 0x2000..=0x2bff | 0x2e00..=0x2e7f | 0x31c0..=0x33ff | 0xfe00..=0xfe6f)
        || is_mark(character)
}
