//! PDF through `hayro`: each page is drawn onto a device that keeps text and places instead of pixels.

mod device;
mod direction;
mod layout;

use std::panic::{AssertUnwindSafe, catch_unwind};

use hayro_interpret::{Context, InterpreterCache, InterpreterSettings, interpret_page};
use hayro_syntax::page::Page;
use hayro_syntax::{DecryptionError, LoadPdfError, Pdf};
use kurbo::{Affine, Rect};

use super::{Condition, Format, Opened, Part, Sink};
use device::{Fonts, TextDevice};

/// A page with a larger share of glyphs that no table maps to a character is not readable.
const UNKNOWN_SHARE: f64 = 0.3;

/// More pages than this are not read; `/Count` in a file is only a claim, but the list of pages is real.
const PAGES: usize = 50_000;

/// Reads the pages from `from` (1 is the first) on.
pub fn read(bytes: Vec<u8>, from: u32, sink: &mut dyn Sink) -> Result<(), String> {
    let damage = damage(&bytes);
    let pdf = catch_unwind(AssertUnwindSafe(|| Pdf::new(bytes)))
        .map_err(|_| "the PDF is damaged: its table of objects cannot be read".to_owned())?
        .map_err(refusal)?;
    let pages = pdf.pages();
    let count = pages.len();
    if count == 0 {
        return Err("the PDF is damaged or cut off: no page was found in it".to_owned());
    }
    if count > PAGES {
        return Err(format!("the PDF has {count} pages, more than the {PAGES} that are read"));
    }
    let total = u32::try_from(count).unwrap_or(u32::MAX);
    if !sink.opened(Opened { format: Format::Pdf, pages: Some(total), encoding: None, damage }) {
        return Ok(());
    }
    let mut cache = InterpreterCache::new();
    let mut fonts = Fonts::default();
    let first = usize::try_from(from.max(1) - 1).unwrap_or(usize::MAX);
    for (index, page) in pages.iter().enumerate().skip(first) {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        sink.beginning(number);
        let read = catch_unwind(AssertUnwindSafe(|| read_page(page, &pdf, &cache, &mut fonts, number)));
        let part = read.unwrap_or_else(|_| {
            // What the panic left half done must not reach the next page.
            cache = InterpreterCache::new();
            fonts = Fonts::default();
            Part { number, condition: Condition::Broken { reason: "it crashed the reader".to_owned() }, blocks: Vec::new() }
        });
        if !sink.part(part) {
            return Ok(());
        }
    }
    Ok(())
}

fn read_page<'a>(page: &Page<'a>, pdf: &'a Pdf, cache: &InterpreterCache<'a>, fonts: &mut Fonts, number: u32) -> Part {
    let (width, height) = page.render_dimensions();
    let area = Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
    let transform = Affine::new(page.initial_transform(true).as_coeffs());
    let mut context = Context::new(transform, area, cache, pdf.xref(), InterpreterSettings::default());
    let mut device = TextDevice::new(fonts);
    interpret_page(page, &mut context, &mut device);
    let text = device.finish();
    if let Some(reason) = text.overflow {
        return Part { number, condition: Condition::Broken { reason: reason.to_owned() }, blocks: Vec::new() };
    }
    let share = if text.glyphs == 0 { 0.0 } else { f64::from(text.unknown) / f64::from(text.glyphs) };
    if share > UNKNOWN_SHARE {
        return Part { number, condition: Condition::Unreadable { percent: percent(share) }, blocks: Vec::new() };
    }
    let blocks = layout::blocks(text.segments);
    let condition = match (blocks.is_empty(), text.images) {
        (false, _) => Condition::Read,
        (true, 0) => Condition::Empty,
        (true, _) => Condition::ImageOnly,
    };
    Part { number, condition, blocks }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn percent(share: f64) -> u8 {
    (share * 100.0).round().clamp(0.0, 100.0) as u8
}

fn refusal(error: LoadPdfError) -> String {
    match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => {
            "the PDF needs a password; save a copy without one and attach that".to_owned()
        }
        LoadPdfError::Decryption(DecryptionError::UnsupportedAlgorithm) => "the PDF is encrypted in a way that is not supported".to_owned(),
        LoadPdfError::Decryption(DecryptionError::MissingIDEntry | DecryptionError::InvalidEncryption) => {
            "the PDF is encrypted and its encryption is damaged".to_owned()
        }
        LoadPdfError::Invalid => "the PDF is damaged or cut off: no page was found in it".to_owned(),
    }
}

/// A whole PDF ends with `%%EOF`, though some writers put a little after it.
fn damage(bytes: &[u8]) -> Option<String> {
    let tail = &bytes[bytes.len().saturating_sub(2048)..];
    let ends = tail.windows(5).any(|window| window == b"%%EOF");
    (!ends).then(|| "the file is damaged: its end is missing, so text may be missing".to_owned())
}
