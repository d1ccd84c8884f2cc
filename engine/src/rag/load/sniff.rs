//! What a file is, by its content; the name only chooses between kinds of text.

use serde::{Deserialize, Serialize};

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// PDF.
    Pdf,
    /// Markdown.
    Markdown,
    /// Plain text and source code.
    Text,
}

/// How far into a file a PDF header may stand.
const PDF_HEADER_WITHIN: usize = 1024;

/// How much of a file is looked at.
const LOOK: usize = 64 * 1024;

/// The format, or in one sentence why the file cannot be read.
pub fn format(bytes: &[u8], name: &str) -> Result<Format, String> {
    if bytes.is_empty() {
        return Err("the file is empty".to_owned());
    }
    let head = &bytes[..bytes.len().min(LOOK)];
    if contains(&head[..head.len().min(PDF_HEADER_WITHIN)], b"%PDF-") {
        return Ok(Format::Pdf);
    }
    if let Some(what) = foreign(head) {
        return Err(format!("not supported yet: this is {what}"));
    }
    if looks_binary(head) {
        return Err("not supported yet: this is binary data of a kind that is not known".to_owned());
    }
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase()).unwrap_or_default();
    Ok(if matches!(extension.as_str(), "md" | "markdown" | "mdown" | "mkd") { Format::Markdown } else { Format::Text })
}

/// A known format that has no reader yet.
fn foreign(head: &[u8]) -> Option<&'static str> {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", "an older or a password-protected Office file; save it as PDF or text"),
        (b"{\\rtf", "an RTF file; save it as PDF or text"),
        (b"\x89PNG", "a PNG image"),
        (b"\xFF\xD8\xFF", "a JPEG image"),
        (b"GIF8", "a GIF image"),
        (b"II*\0", "a TIFF image"),
        (b"MM\0*", "a TIFF image"),
        (b"\x1F\x8B", "a gzip archive"),
        (b"BZh", "a bzip2 archive"),
        (b"\xFD7zXZ\0", "an xz archive"),
        (b"7z\xBC\xAF\x27\x1C", "a 7z archive"),
        (b"Rar!\x1A\x07", "a RAR archive"),
        (b"\x7FELF", "a program"),
        (b"MZ\x90\0", "a program"),
        (b"SQLite format 3\0", "a SQLite database"),
        (b"OggS", "an audio file"),
        (b"ID3", "an audio file"),
        (b"%!PS", "a PostScript file; save it as PDF"),
    ];
    if let Some((_, what)) = MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some(what);
    }
    if head.starts_with(b"PK\x03\x04") {
        return Some(zipped(head));
    }
    if head.starts_with(b"RIFF") {
        return Some("an image, audio or video file");
    }
    if head.get(4..8) == Some(b"ftyp") {
        return Some("a video or audio file");
    }
    let start: Vec<u8> = head.iter().copied().skip_while(|byte| byte.is_ascii_whitespace() || *byte >= 0x80).take(512).collect();
    let start = start.to_ascii_lowercase();
    if start.starts_with(b"<!doctype html") || start.starts_with(b"<html") || (start.starts_with(b"<?xml") && contains(&start, b"<html")) {
        return Some("an HTML page; save it as PDF or text");
    }
    None
}

fn zipped(head: &[u8]) -> &'static str {
    for (name, what) in [
        (&b"word/"[..], "a Word document; save it as PDF or text"),
        (b"xl/", "an Excel workbook; save it as PDF or text"),
        (b"ppt/", "a PowerPoint presentation; save it as PDF"),
        (b"application/epub+zip", "an EPUB book"),
        (b"application/vnd.oasis.opendocument", "an OpenDocument file; save it as PDF or text"),
    ] {
        if contains(head, name) {
            return what;
        }
    }
    "a zip archive"
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Zero bytes that are not one half of UTF-16, or many control characters.
fn looks_binary(head: &[u8]) -> bool {
    if super::text::utf16(head).is_some() {
        return false;
    }
    if head.contains(&0) {
        return true;
    }
    // Escape stands in ISO-2022-JP text and in terminal logs.
    let control = head.iter().filter(|byte| **byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0C | 0x1B | 0x08)).count();
    control * 20 > head.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_decides_and_not_the_name() {
        assert_eq!(format(b"%PDF-1.4\n", "report.txt").unwrap(), Format::Pdf);
        assert_eq!(format(b"junk before\n%PDF-1.4\n", "a").unwrap(), Format::Pdf);
        assert_eq!(format(b"# Title", "a.MD").unwrap(), Format::Markdown);
        assert_eq!(format(b"fn main() {}", "main.rs").unwrap(), Format::Text);
        let text = "倉庫番号は B-7741。\n第二章：安全规定。\n";
        for order in [u16::to_le_bytes, u16::to_be_bytes] {
            let bytes: Vec<u8> = text.encode_utf16().flat_map(order).collect();
            assert_eq!(format(&bytes, "a.txt").unwrap(), Format::Text);
        }
    }

    #[test]
    fn other_formats_are_named_and_never_read_as_garbage() {
        for (bytes, word) in [
            (&b"PK\x03\x04....word/document.xml"[..], "Word"),
            (b"PK\x03\x04....xl/workbook.xml", "Excel"),
            (b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1....", "Office"),
            (b"\x89PNG\r\n\x1a\n", "PNG"),
            (b"\xEF\xBB\xBF\n<!DOCTYPE html><html>", "HTML"),
            (b"abc\0\x01\x02\x03def\0\0\0\x05", "binary"),
        ] {
            let reason = format(bytes, "notes.txt").unwrap_err();
            assert!(reason.starts_with("not supported yet: ") && reason.contains(word), "{reason}");
        }
        assert_eq!(format(b"", "a.txt").unwrap_err(), "the file is empty");
    }
}
