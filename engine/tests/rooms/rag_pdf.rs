//! A small PDF writer for tests: text at places in a standard font, images, and files that mean harm.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fmt::Write as _;

/// A file made of numbered objects; object 1 is the catalogue.
pub struct Pdf {
    objects: Vec<Vec<u8>>,
}

impl Pdf {
    /// A file with these pages' content streams; all use Helvetica as `/F1` and a one-pixel image as `/I1`.
    pub fn pages(contents: &[String]) -> Self {
        let mut pdf = Self { objects: Vec::new() };
        let kids: Vec<String> = (0..contents.len()).map(|n| format!("{} 0 R", 5 + 2 * n)).collect();
        pdf.object("<< /Type /Catalog /Pages 2 0 R >>");
        pdf.object(&format!("<< /Type /Pages /Kids [{}] /Count {} >>", kids.join(" "), contents.len()));
        pdf.object("<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>");
        pdf.stream("/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8", b"\x80");
        for (n, content) in contents.iter().enumerate() {
            pdf.object(&format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {} 0 R \
                 /Resources << /Font << /F1 3 0 R >> /XObject << /I1 4 0 R >> >> >>",
                6 + 2 * n
            ));
            pdf.stream("", content.as_bytes());
        }
        pdf
    }

    /// One page of running text per item, a line each, beginning at the top.
    pub fn of_text(pages: &[&[&str]]) -> Self {
        Self::pages(&pages.iter().map(|lines| text(lines)).collect::<Vec<_>>())
    }

    /// An empty file to put objects into.
    pub fn raw(objects: &[&str]) -> Self {
        Self { objects: objects.iter().map(|object| object.as_bytes().to_vec()).collect() }
    }

    /// Adds an object.
    pub fn object(&mut self, object: &str) {
        self.objects.push(object.as_bytes().to_vec());
    }

    /// Adds a stream with these entries.
    pub fn stream(&mut self, entries: &str, data: &[u8]) {
        let mut object = format!("<< {entries} /Length {} >>\nstream\n", data.len()).into_bytes();
        object.extend_from_slice(data);
        object.extend_from_slice(b"\nendstream");
        self.objects.push(object);
    }

    /// Replaces an object, numbered from 1.
    pub fn replace(&mut self, number: usize, object: &str) {
        self.objects[number - 1] = object.as_bytes().to_vec();
    }

    /// The file, with extra entries in its trailer.
    pub fn bytes_with(&self, trailer: &str) -> Vec<u8> {
        let mut file = b"%PDF-1.7\n%\xE2\xE3\xCF\xD3\n".to_vec();
        let mut table = String::new();
        for (n, object) in self.objects.iter().enumerate() {
            let _ = writeln!(table, "{:010} 00000 n ", file.len());
            file.extend_from_slice(format!("{} 0 obj\n", n + 1).as_bytes());
            file.extend_from_slice(object);
            file.extend_from_slice(b"\nendobj\n");
        }
        let (at, count) = (file.len(), self.objects.len() + 1);
        let end = format!(
            "xref\n0 {count}\n0000000000 65535 f \n{table}trailer\n<< /Size {count} /Root 1 0 R {trailer} >>\nstartxref\n{at}\n%%EOF\n"
        );
        file.extend_from_slice(end.as_bytes());
        file
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes_with("")
    }
}

/// Lines of 11 points from the top of a page down.
pub fn text(lines: &[&str]) -> String {
    lines.iter().enumerate().map(|(n, line)| at(72.0, 720.0 - 14.0 * n as f64, line)).collect()
}

/// A line of 11 points at a place.
pub fn at(x: f64, y: f64, line: &str) -> String {
    let escaped: String = line
        .chars()
        .map(|c| match c {
            '(' | ')' | '\\' => format!("\\{c}"),
            _ => c.to_string(),
        })
        .collect();
    format!("BT /F1 11 Tf 1 0 0 1 {x} {y} Tm ({escaped}) Tj ET\n")
}

/// An image over a whole page.
pub fn image() -> String {
    "q 500 0 0 700 50 50 cm /I1 Do Q\n".to_owned()
}

/// A zlib stream of one byte repeated so many times, made of stored copies and back references without a compressor:
/// fixed Huffman codes, one literal and then matches of length 258 at distance 1.
pub fn bomb(byte: u8, times: u64) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.put(1, 1);
    bits.put(1, 2);
    let literal = |byte: u8| if byte < 144 { (0x30 + u32::from(byte), 8) } else { (0x190 + u32::from(byte) - 144, 9) };
    let (code, length) = literal(byte);
    bits.huffman(code, length);
    for _ in 0..(times.saturating_sub(1) / 258) {
        bits.huffman(0b1100_0101, 8); // length 258
        bits.huffman(0, 5); // distance 1
    }
    bits.huffman(0, 7);
    let mut data = vec![0x78, 0x9C];
    data.extend(bits.done());
    data.extend([0, 0, 0, 1]);
    data
}

#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    open: u8,
    count: u8,
}

impl Bits {
    fn put(&mut self, value: u32, length: u8) {
        for bit in 0..length {
            self.open |= u8::from(value >> bit & 1 == 1) << self.count;
            self.count += 1;
            if self.count == 8 {
                self.bytes.push(self.open);
                (self.open, self.count) = (0, 0);
            }
        }
    }

    fn huffman(&mut self, code: u32, length: u8) {
        for bit in (0..length).rev() {
            self.put(code >> bit & 1, 1);
        }
    }

    fn done(mut self) -> Vec<u8> {
        if self.count > 0 {
            self.bytes.push(self.open);
        }
        self.bytes
    }
}
