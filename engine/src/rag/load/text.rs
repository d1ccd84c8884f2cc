//! Plain text: find the encoding, then paragraphs with their line numbers.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, ISO_2022_JP, UTF_8};

use super::{Block, Condition, Format, Kind, Line, Opened, Part, Sink, utf16};

/// Lines per part, so that progress shows and no frame is huge.
const LINES_PER_PART: usize = 5_000;

/// The longest line kept as one; longer ones are cut here so that a file without line ends stays in bounded frames.
const LINE_CHARACTERS: usize = 100_000;

/// Decodes bytes: a byte order mark, then what only UTF-16 looks like, then the escapes of ISO-2022-JP, then valid UTF-8,
/// then what the bytes are most like. Returns the text without the mark and the encoding's name.
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
    if let Some(text) = iso_2022_jp(bytes) {
        return (text, ISO_2022_JP.name());
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

/// UTF-16 with its mark, or without one where the bytes are text in no other encoding.
#[must_use]
pub fn utf16(bytes: &[u8]) -> Option<&'static Encoding> {
    match Encoding::for_bom(bytes) {
        Some((encoding, _)) => (encoding != UTF_8).then_some(encoding),
        None => utf16::order(bytes),
    }
}

/// Text with the escapes that switch to Japanese. It is ASCII byte by byte, so it must be asked for before UTF-8; escapes
/// that colour a terminal are others.
fn iso_2022_jp(bytes: &[u8]) -> Option<String> {
    let switches = |escape: &[u8]| matches!(escape, [0x1b, b'$', b'@' | b'B'] | [0x1b, b'(', b'I' | b'J']);
    if !bytes.is_ascii() || !bytes.windows(3).any(switches) {
        return None;
    }
    let (text, _) = ISO_2022_JP.decode_without_bom_handling(bytes);
    let lost = text.chars().filter(|c| *c == char::REPLACEMENT_CHARACTER).count();
    // A file that was cut off may end within a character.
    (lost * 100 <= text.chars().count() + 99).then(|| text.into_owned())
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

    const JAPANESE: &str = "顧客は水曜日に返品しました。返金額は四百二十円です。倉庫番号は B-7741。\n";
    const CHINESE: &str = "灯塔的开放时间是上午九点。请联系管理员。\r\n第二章：安全规定。\r\n";

    fn utf16_bytes(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(order).collect()
    }

    #[test]
    fn japanese_with_escapes_is_read_and_a_terminal_log_stays() {
        let (bytes, _, _) = ISO_2022_JP.encode(JAPANESE);
        assert!(bytes.is_ascii());
        assert_eq!(decode(&bytes), (JAPANESE.to_owned(), "ISO-2022-JP"));
        let cut = &bytes[..bytes.len() - 8];
        assert!(decode(cut).0.starts_with("顧客は水曜日"), "{}", decode(cut).0);
        for log in ["\x1b[31mred\x1b[0m $B 5", "price \x1b($B", "\x1b(B only ASCII"] {
            assert_eq!(decode(log.as_bytes()), (log.to_owned(), "UTF-8"));
        }
    }

    #[test]
    fn utf16_without_a_mark_is_read_in_both_orders() {
        for text in [
            JAPANESE,
            CHINESE,
            "灯塔的开放时间是上午九点。请联系管理员。",
            "第一章，总则。每一个人都有一份责任。",
            "이름,부서\n김민수,영업\n이영희,개발\n",
            "Номинальное давление насоса шесть бар.\n",
            "The relief valve opens at 3.7 bar.\r\nCall the warden.\r\n",
            "Keyword\tSearches\tBid\n灯塔 lighthouse\t5400\t1.25\nрыбак\t320\t0.40\n",
            "درجة الحرارة ثلاثون\n",
            "อุณหภูมิ สามสิบ องศา\n",
            "生僻字：\u{20000}与㐀。\n",
        ] {
            assert_eq!(decode(&utf16_bytes(text, u16::to_le_bytes)), (text.to_owned(), "UTF-16LE"));
            assert_eq!(decode(&utf16_bytes(text, u16::to_be_bytes)), (text.to_owned(), "UTF-16BE"));
        }
        // Longer than what is looked at, which then ends within a character of two units.
        let long = format!("a{}", "\u{20000}字".repeat(3_000));
        assert_eq!(decode(&utf16_bytes(&long, u16::to_le_bytes)).0, long);
    }

    #[test]
    fn other_encodings_are_not_taken_for_utf16() {
        let texts = [
            (encoding_rs::GBK, "冷却水泵的额定压力为六巴。超过时安全阀会自动打开。"),
            (encoding_rs::GBK, "安全阀压力六巴"),
            (encoding_rs::GBK, "Pump P-204 manual.\r\n额定压力：六巴\r\nEnd of the part.\r\n"),
            (encoding_rs::BIG5, "冷卻水泵的額定壓力為六巴。超過時安全閥會自動打開，請聯絡管理員。"),
            (encoding_rs::SHIFT_JIS, "冷却ポンプの定格圧力は六バールです。安全弁は自動的に開きます。"),
            (encoding_rs::SHIFT_JIS, "ひらがなとカタカナだけ"),
            (encoding_rs::EUC_JP, "冷却ポンプの定格圧力は六バールです。"),
            (encoding_rs::EUC_KR, "냉각 펌프의 정격 압력은 6바입니다. 안전밸브가 자동으로 열립니다."),
            (encoding_rs::KOI8_R, "Номинальное давление насоса шесть бар."),
            (encoding_rs::WINDOWS_1252, "für die Prüfung der Geräte in der Küche"),
            (UTF_8, "灯塔的开放时间是上午九点。请联系管理员。"),
            (UTF_8, "plain words"),
            (UTF_8, "éé"),
        ];
        for (encoding, text) in texts {
            let (bytes, _, lost) = encoding.encode(text);
            assert!(!lost);
            for bytes in [bytes.to_vec(), bytes.repeat(40)] {
                assert_eq!(utf16(&bytes), None, "{} {text}", encoding.name());
            }
        }
    }

    #[test]
    fn binary_data_is_not_taken_for_utf16() {
        let samples: Vec<u8> = (0..2_000u32).flat_map(|n| (((f64::from(n) * 0.1).sin() * 9_000.0) as i16).to_le_bytes()).collect();
        let numbers: Vec<u8> = (0..2_000u32).flat_map(u32::to_le_bytes).collect();
        let floats: Vec<u8> = (1..2_000u32).flat_map(|n| (1.0 / n as f32).to_be_bytes()).collect();
        let mut stray = b"A log of plain words, and one byte of it is zero.\n".repeat(30);
        stray[700] = 0;
        let mut chinese = CHINESE.repeat(20).into_bytes();
        chinese[77] = 0;
        for bytes in [samples, numbers, floats, stray, chinese, vec![0; 64], b"\x7fELF\x02\x01\x01\0\0\0".to_vec()] {
            assert_eq!(utf16(&bytes), None);
        }
        // Noise has zero bytes and letters of every script, and halves of pairs that stand alone.
        let mut state = 7u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .take(1 << 20)
        .collect();
        let taken = noise.chunks(256).filter(|bytes| utf16(bytes).is_some()).count();
        assert_eq!(taken, 0);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_odd_to_decode(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..600)) {
            let (text, _) = decode(&bytes);
            proptest::prop_assert!(text.len() <= bytes.len() * 3);
        }

        #[test]
        fn what_was_encoded_comes_back(lines in proptest::collection::vec("[一-龥]{3,20}[，。！]", 1..12)) {
            let text = lines.join("\n") + "\n";
            proptest::prop_assert_eq!(decode(&utf16_bytes(&text, u16::to_le_bytes)), (text.clone(), "UTF-16LE"));
            proptest::prop_assert_eq!(decode(&utf16_bytes(&text, u16::to_be_bytes)), (text.clone(), "UTF-16BE"));
            proptest::prop_assert_eq!(decode(text.as_bytes()), (text.clone(), "UTF-8"));
            proptest::prop_assert_eq!(utf16(&encoding_rs::GBK.encode(&text).0), None);
        }

        #[test]
        fn japanese_comes_back_from_its_escapes(text in "[ぁ-んァ-ン一丁七三上下不世中主乗九事二五亜 a-z0-9。]{0,60}[ぁ-ん]") {
            let (bytes, _, lost) = ISO_2022_JP.encode(&text);
            proptest::prop_assert!(!lost);
            proptest::prop_assert_eq!(decode(&bytes), (text, "ISO-2022-JP"));
        }
    }

    #[test]
    fn every_kind_of_line_end_counts_once() {
        assert_eq!(lines("a\r\nb\rc\nd").collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    }
}
