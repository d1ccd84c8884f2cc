//! Plain text: find the encoding, then paragraphs with their line numbers.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

use super::{Block, Condition, Format, Kind, Line, Opened, Part, Sink};

/// Lines per part, so that progress shows and no frame is huge.
const LINES_PER_PART: usize = 5_000;

/// The longest line kept as one; longer ones are cut here so that a file without line ends stays in bounded frames.
const LINE_CHARACTERS: usize = 100_000;

/// Decodes bytes: a byte order mark, then the pattern of UTF-16, then valid UTF-8, then what the bytes are most like.
/// Returns the text without the mark and the encoding's name.
#[must_use]
pub fn decode(bytes: &[u8]) -> (String, &'static str) {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[mark..]);
        return (text.into_owned(), encoding.name());
    }
    if let Some(encoding) = utf16(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(bytes);
        return (text.into_owned(), encoding.name());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return (text.to_owned(), UTF_8.name());
    }
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Allow);
    let _ = detector.feed(bytes, true);
    let encoding = detector.guess(None, Utf8Detection::Deny);
    let (text, _) = encoding.decode_without_bom_handling(bytes);
    (text.into_owned(), encoding.name())
}

/// UTF-16 with its mark, or without one when the zero bytes stand on one side only, as Latin letters and line ends do.
#[must_use]
pub fn utf16(bytes: &[u8]) -> Option<&'static Encoding> {
    if let Some((encoding, _)) = Encoding::for_bom(bytes) {
        return (encoding != UTF_8).then_some(encoding);
    }
    let head = &bytes[..bytes.len().min(4096) & !1];
    if head.len() < 4 {
        return None;
    }
    let zeros = |offset: usize| head.iter().skip(offset).step_by(2).filter(|byte| **byte == 0).count();
    let (high, low, pairs) = (zeros(0), zeros(1), head.len() / 2);
    let enough = pairs.div_ceil(4);
    let encoding = if low == 0 && high >= enough {
        UTF_16BE
    } else if high == 0 && low >= enough {
        UTF_16LE
    } else {
        return None;
    };
    // Binary data can have the pattern too, but hardly decodes without control characters.
    let (text, broken) = encoding.decode_without_bom_handling(head);
    let odd = text.chars().filter(|c| c.is_control() && !c.is_whitespace()).count();
    (!broken && odd * 50 <= pairs).then_some(encoding)
}

/// Splits into lines at LF, CR LF and CR.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split('\n').flat_map(|line| line.strip_suffix('\r').unwrap_or(line).split('\r'))
}

/// Removes what no reader should see: zero characters and other control characters but the tab.
pub(super) fn clean(line: &str) -> String {
    line.chars().filter(|c| *c == '\t' || !c.is_control()).filter(|c| *c != '\u{feff}').collect()
}

/// Reads plain text.
pub fn read(bytes: &[u8], sink: &mut dyn Sink) -> Result<(), String> {
    let (text, encoding) = decode(bytes);
    if !sink.opened(Opened { format: Format::Text, pages: None, encoding: Some(encoding.to_owned()), damage: None }) {
        return Ok(());
    }
    let (mut number, mut blocks, mut block, mut count) = (1, Vec::new(), Vec::new(), 0);
    for (row, line) in lines(&text).enumerate() {
        let row = u32::try_from(row + 1).ok();
        let line = clean(line);
        if line.trim().is_empty() {
            close(&mut blocks, &mut block);
            if count >= LINES_PER_PART {
                if !send(&mut number, &mut blocks, sink) {
                    return Ok(());
                }
                count = 0;
            }
            continue;
        }
        for piece in pieces(&line) {
            block.push(Line { text: piece, row, area: None });
            count += 1;
        }
        // A file without empty lines must not become one endless block.
        if block.len() >= LINES_PER_PART {
            close(&mut blocks, &mut block);
        }
    }
    close(&mut blocks, &mut block);
    if blocks.is_empty() && number == 1 {
        return Err("the file holds no text".to_owned());
    }
    if !blocks.is_empty() {
        let _ = send(&mut number, &mut blocks, sink);
    }
    Ok(())
}

fn pieces(line: &str) -> Vec<String> {
    if line.len() <= LINE_CHARACTERS {
        return vec![line.to_owned()];
    }
    let characters: Vec<char> = line.chars().collect();
    characters.chunks(LINE_CHARACTERS).map(|piece| piece.iter().collect()).collect()
}

fn close(blocks: &mut Vec<Block>, lines: &mut Vec<Line>) {
    if !lines.is_empty() {
        blocks.push(Block { kind: Kind::Paragraph, lines: std::mem::take(lines), section: Vec::new() });
    }
}

fn send(number: &mut u32, blocks: &mut Vec<Block>, sink: &mut dyn Sink) -> bool {
    sink.beginning(*number);
    let part = Part { number: *number, condition: Condition::Read, blocks: std::mem::take(blocks) };
    *number += 1;
    sink.part(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_without_a_mark_is_read_as_it_was_written() {
        let text = "错误代码 E-4021：冷却泵压力过低。";
        let (bytes, _, _) = encoding_rs::GBK.encode(text);
        let (decoded, encoding) = decode(&bytes);
        assert_eq!(decoded, text);
        assert!(encoding == "GBK" || encoding == "gb18030", "{encoding}");
        let (short, _, _) = encoding_rs::GBK.encode("冷却泵压力过低。冷却");
        assert_eq!(short.len(), 20);
        assert_eq!(decode(&short).0, "冷却泵压力过低。冷却");
    }

    #[test]
    fn japanese_in_shift_jis_is_found() {
        let text = "部品番号,数量\r\nAB-1021,12\r\n";
        let (bytes, _, _) = encoding_rs::SHIFT_JIS.encode(text);
        assert_eq!(decode(&bytes), (text.to_owned(), "Shift_JIS"));
    }

    #[test]
    fn every_unicode_form_gives_the_same_text() {
        let text = "Résumé – naïve café";
        let units = |order: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(order).collect::<Vec<u8>>();
        let marked = [b"\xFF\xFE".to_vec(), units(u16::to_le_bytes)].concat();
        let utf8 = [b"\xEF\xBB\xBF".to_vec(), text.as_bytes().to_vec()].concat();
        for bytes in [marked, units(u16::to_be_bytes), utf8] {
            assert_eq!(decode(&bytes).0, text);
        }
    }

    #[test]
    fn every_kind_of_line_end_counts_once() {
        assert_eq!(lines("a\r\nb\rc\nd").collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }
}
