//! The device: glyphs become words and stretches of a line, with their boxes.

use std::collections::{HashMap, HashSet};

use hayro_interpret::font::{Glyph, GlyphRun};
use hayro_interpret::hayro_cmap::{BfString, WritingMode};
use hayro_interpret::{BlendMode, ClipPath, Device, DrawMode, DrawProps, Image, ImageDrawProps, SoftMask};
use kurbo::{Affine, BezPath, Point, Rect, Vec2};
use skrifa::{FontRef, MetadataProvider};
use unicode_normalization::UnicodeNormalization;

/// A gap along the baseline that parts two words, in font sizes. Measured: at 0.18 six charts lost their spaces.
const WORD_GAP: f64 = 0.14;
/// The same between two Chinese, Japanese or Korean characters, which are often set loosely.
const WIDE_WORD_GAP: f64 = 0.6;
/// A gap that may be the gutter between two columns or two cells.
const COLUMN_GAP: f64 = 1.2;
/// A glyph this near to an equal one, in font sizes, was drawn twice to look bold or outlined.
const SAME_PLACE: f64 = 0.05;
/// More glyphs than this are no page.
const GLYPHS: u32 = 2_000_000;

/// A stretch of a line without a wide gap.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub(super) text: String,
    pub(super) area: Rect,
    pub(super) size: f64,
    /// Whether it continues the line of the segment before it, after a wide gap.
    pub(super) continues: bool,
    pub(super) vertical: bool,
}

/// What was on a page.
pub(super) struct PageText {
    pub(super) segments: Vec<Segment>,
    pub(super) glyphs: u32,
    pub(super) unknown: u32,
    pub(super) images: u32,
    pub(super) overflow: Option<&'static str>,
}

/// For embedded fonts without a table to Unicode: their own character map read backwards. Kept from page to page.
#[derive(Default)]
pub(super) struct Fonts(HashMap<u128, Option<HashMap<u32, char>>>);

impl Fonts {
    fn character(&mut self, glyph: &Glyph<'_>) -> Option<char> {
        let Glyph::Outline(outline) = glyph else { return None };
        let data = outline.font_data()?;
        let map = self.0.entry(data.cache_key).or_insert_with(|| {
            let bytes: &[u8] = (*data.data).as_ref();
            let font = FontRef::new(bytes).ok()?;
            let mut map = HashMap::new();
            for (code, glyph) in font.charmap().mappings() {
                if let Some(character) = char::from_u32(code).filter(|c| !private(*c)) {
                    let _ = map.entry(glyph.to_u32()).or_insert(character);
                }
            }
            Some(map)
        });
        map.as_ref()?.get(&outline.glyph_id().to_u32()).copied()
    }
}

fn private(character: char) -> bool {
    ('\u{e000}'..='\u{f8ff}').contains(&character)
}

/// Chinese, Japanese or Korean: written without spaces.
pub(super) fn wide(character: char) -> bool {
    matches!(character as u32, 0x2e80..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0xff00..=0xffef | 0x20000..=0x3ffff)
}

/// Where the glyph before ended.
struct Pen {
    end: Point,
    along: Vec2,
    size: f64,
}

pub(super) struct TextDevice<'f> {
    fonts: &'f mut Fonts,
    page: PageText,
    open: Option<Segment>,
    pen: Option<Pen>,
    seen: HashSet<(char, i64, i64)>,
}

/// A glyph in page coordinates.
struct Placed {
    start: Point,
    end: Point,
    along: Vec2,
    size: f64,
    area: Rect,
}

impl<'f> TextDevice<'f> {
    pub(super) fn new(fonts: &'f mut Fonts) -> Self {
        let page = PageText { segments: Vec::new(), glyphs: 0, unknown: 0, images: 0, overflow: None };
        Self { fonts, page, open: None, pen: None, seen: HashSet::new() }
    }

    pub(super) fn finish(mut self) -> PageText {
        self.close();
        self.page
    }

    fn close(&mut self) {
        if let Some(segment) = self.open.take().filter(|segment| !segment.text.trim().is_empty()) {
            self.page.segments.push(segment);
        }
    }

    /// The glyph's text, healed: ligatures taken apart, private and control characters dropped.
    fn text(&mut self, glyph: &Glyph<'_>) -> Option<String> {
        let given = match glyph.as_unicode() {
            Some(BfString::Char(character)) => character.to_string(),
            Some(BfString::String(text)) => text,
            None => String::new(),
        };
        let readable = given.chars().any(|c| c != '\0' && c != '\u{fffd}' && !private(c));
        let text = if readable { given } else { self.fonts.character(glyph)?.to_string() };
        let mut healed = String::with_capacity(text.len());
        for character in text.chars() {
            match character {
                // Latin and Armenian ligatures; other compatibility forms mean something and stay.
                '\u{fb00}'..='\u{fb17}' => healed.extend(std::iter::once(character).nfkc()),
                '\t' | '\n' | '\r' | '\u{a0}' => healed.push(' '),
                _ if character.is_control() => {}
                _ => healed.push(character),
            }
        }
        Some(healed)
    }

    fn glyph(&mut self, glyph: &Glyph<'_>, transform: Affine, vertical: bool) {
        if self.page.glyphs >= GLYPHS {
            self.page.overflow = Some("it holds more text than a page can");
            return;
        }
        self.page.glyphs += 1;
        let Some(placed) = place(glyph, transform, vertical) else { return };
        let Some(text) = self.text(glyph) else {
            self.page.unknown += 1;
            self.pen = Some(Pen { end: placed.end, along: placed.along, size: placed.size });
            return;
        };
        let Some(first) = text.chars().next() else { return };
        if first != ' ' && self.drawn_before(first, &placed) {
            return;
        }
        self.advance(first, &placed, vertical);
        if let Some(open) = &mut self.open {
            open.text.push_str(&text);
            open.area = open.area.union(placed.area);
            open.size = open.size.max(placed.size);
        }
        self.pen = Some(Pen { end: placed.end, along: placed.along, size: placed.size });
    }

    fn drawn_before(&mut self, character: char, placed: &Placed) -> bool {
        let cell = (placed.size * SAME_PLACE).max(1e-3);
        #[allow(clippy::cast_possible_truncation)]
        let (x, y) = ((placed.start.x / cell).round() as i64, (placed.start.y / cell).round() as i64);
        let near = |dx: i64, dy: i64| self.seen.contains(&(character, x.saturating_add(dx), y.saturating_add(dy)));
        if (-1..=1).any(|dx| (-1..=1).any(|dy| near(dx, dy))) {
            return true;
        }
        let _ = self.seen.insert((character, x, y));
        false
    }

    /// Ends the word, the segment or the line before the glyph, as the gap says.
    fn advance(&mut self, first: char, placed: &Placed, vertical: bool) {
        let mut continues = false;
        if let (Some(pen), Some(open)) = (&self.pen, &mut self.open) {
            let gap = placed.start - pen.end;
            let (along, off) = (gap.dot(pen.along), gap.cross(pen.along).abs());
            let (large, small) = (pen.size.max(placed.size), pen.size.min(placed.size));
            let last = open.text.chars().last().unwrap_or(' ');
            if pen.along.dot(placed.along) > 0.95 && off < 0.5 * large && along > -0.6 * large {
                if along <= COLUMN_GAP * small {
                    let limit = if wide(last) && wide(first) { WIDE_WORD_GAP } else { WORD_GAP };
                    if along > limit * small && last != ' ' && first != ' ' {
                        open.text.push(' ');
                    }
                    return;
                }
                continues = true;
            }
        }
        // A segment of spaces alone breaks no line.
        let blank = self.open.as_ref().is_some_and(|open| open.text.trim().is_empty());
        let continues = continues && !(blank && self.open.as_ref().is_some_and(|open| !open.continues));
        self.close();
        self.open = Some(Segment { text: String::new(), area: placed.area, size: placed.size, continues, vertical });
    }
}

/// Where a glyph stands; `None` where its matrix makes no sense.
fn place(glyph: &Glyph<'_>, transform: Affine, vertical: bool) -> Option<Placed> {
    let origin = transform * Point::ZERO;
    let right = transform * Point::new(1000.0, 0.0) - origin;
    let up = transform * Point::new(0.0, 1000.0) - origin;
    let advance = match glyph {
        Glyph::Outline(outline) => outline.advance_width(),
        Glyph::Type3(glyph) => glyph.advance_width(),
    };
    let advance = f64::from(advance.unwrap_or(500.0));
    let size = if vertical { up.hypot() } else { right.hypot() };
    if !size.is_finite() || !origin.is_finite() || size < 1e-6 || !advance.is_finite() {
        return None;
    }
    let (start, along, end) = if vertical {
        let along = up * (-1.0) / size;
        let start = origin + right * 0.5;
        (start, along, start + along * size)
    } else {
        (origin, right / size, origin + right * (advance / 1000.0))
    };
    let (low, high) = if vertical { (right * -0.5, right * 0.5) } else { (up * -0.2, up * 0.8) };
    let area = Rect::from_points(start + low, end + high).union(Rect::from_points(start + high, end + low));
    Some(Placed { start, end, along, size, area })
}

impl Device<'_> for TextDevice<'_> {
    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {}
    fn draw_rect(&mut self, _: &Rect, _: DrawProps<'_>, _: &DrawMode) {}
    fn push_clip_path(&mut self, _: &ClipPath) {}
    fn push_clip_rect(&mut self, _: &Rect) {}
    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}

    // Invisible text is what OCR put under a scanned page: it is kept like any other.
    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        let vertical = run.writing_mode() == WritingMode::Vertical;
        for glyph in run.glyphs() {
            self.glyph(glyph, props.transform * glyph.transform(), vertical);
        }
    }

    fn draw_image(&mut self, _: Image<'_, '_>, _: ImageDrawProps<'_>) {
        self.page.images = self.page.images.saturating_add(1);
    }

    fn pop_clip(&mut self) {}
    fn pop_transparency_group(&mut self) {}
}
