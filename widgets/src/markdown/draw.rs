//! Drawing blocks with iced's own text widgets.

use std::rc::Rc;

use iced::widget::{Column, Row, button, column, container, rich_text, row, rule, scrollable, space, span, text};
use iced::{Background, Color, Element, Fill, Font, Padding, Pixels, Shrink, border};

use super::Content;
use super::block::{self, Block, Item, Run};
use crate::readable;

/// Lines of code in one text widget: a growing block lays out its last piece only.
const PIECE: usize = 40;

/// Colours, fonts and sizes, in logical pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Style {
    /// Text.
    pub text: Color,
    /// Numbers, bullets, languages.
    pub muted: Color,
    /// Links.
    pub link: Color,
    /// Lines around code and between rows.
    pub line: Color,
    /// Behind code.
    pub code_background: Color,
    /// The text's font.
    pub font: Font,
    /// Its bold face.
    pub bold: Font,
    /// Its italic face.
    pub italic: Font,
    /// The font of code.
    pub mono: Font,
    /// Size of text.
    pub size: f32,
    /// Line height of text.
    pub line_height: f32,
    /// Size of code.
    pub code_size: f32,
    /// Line height of code.
    pub code_line_height: f32,
    /// Corner radius of code blocks.
    pub radius: f32,
}

/// What a person did with the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Followed a link; `#n` for a number in square brackets.
    Open(String),
    /// Copied a code block.
    Copy(String),
}

/// What drawing needs beside the block.
struct Pen<'a, Message> {
    style: Style,
    copy: &'a str,
    on: Rc<dyn Fn(Action) -> Message + 'a>,
}

/// Draws a text. `copy` is the label of the copy buttons.
///
/// ```
/// use handrail_widgets::markdown::{Action, Content, Style, view};
/// use iced::{Color, Element, Font};
///
/// fn page(content: &Content) -> Element<'_, Action> {
///     let style = Style {
///         text: Color::BLACK, muted: Color::BLACK, link: Color::BLACK, line: Color::BLACK, code_background: Color::WHITE,
///         font: Font::DEFAULT, bold: Font::DEFAULT, italic: Font::DEFAULT, mono: Font::MONOSPACE,
///         size: 15.0, line_height: 24.0, code_size: 13.0, code_line_height: 20.0, radius: 6.0,
///     };
///     view(content, style, "Copy", |action| action)
/// }
/// # let _ = page(&Content::new("# Hello"));
/// ```
pub fn view<'a, Message: Clone + 'a>(
    content: &'a Content,
    style: Style,
    copy: &'a str,
    on: impl Fn(Action) -> Message + 'a,
) -> Element<'a, Message> {
    let pen = Pen { style, copy, on: Rc::new(on) };
    pen.stack(content.blocks(), style.line_height * 0.5)
}

impl<'a, Message: Clone + 'a> Pen<'a, Message> {
    fn stack(&self, blocks: impl Iterator<Item = &'a Block>, spacing: f32) -> Element<'a, Message> {
        Column::with_children(blocks.map(|block| self.block(block))).spacing(spacing).width(Fill).into()
    }

    fn block(&self, block: &'a Block) -> Element<'a, Message> {
        match block {
            Block::Paragraph(runs) => self.runs(runs, self.style.size, self.style.line_height, self.style.font),
            Block::Heading(level, runs) => self.heading(*level, runs),
            Block::Code { language, text } => self.code(language.as_deref(), text),
            Block::Quote(blocks) => self.quote(blocks),
            Block::List { start, items } => self.list(*start, items),
            Block::Table { head, rows } => self.table(head, rows),
            Block::Rule => rule::horizontal(1).style(self.rule_style()).into(),
            Block::Html(html) => text(html.as_str()).font(self.style.mono).size(self.style.code_size).color(self.style.muted).into(),
        }
    }

    fn runs(&self, runs: &'a [Run], size: f32, line_height: f32, font: Font) -> Element<'a, Message> {
        let on = self.on.clone();
        let spans: Vec<text::Span<'a, String, Font>> = runs.iter().map(|run| self.span(run, size, font)).collect();
        let rich = rich_text(spans)
            .size(size)
            .line_height(Pixels(line_height))
            .font(font)
            .color(self.style.text)
            .wrapping(text::Wrapping::WordOrGlyph)
            .on_link_click(move |link: String| on(Action::Open(link)));
        readable(rich, block::words(runs)).into()
    }

    fn span(&self, run: &'a Run, size: f32, font: Font) -> text::Span<'a, String, Font> {
        let style = &self.style;
        let mut face = match (run.code, run.bold, run.italic) {
            (true, ..) => style.mono,
            (_, true, _) => style.bold,
            (_, _, true) => style.italic,
            _ => font,
        };
        if run.bold && run.italic && !run.code {
            face.style = style.italic.style;
        }
        let mut span = span(run.text.as_str()).font(face).strikethrough(run.strike).link_maybe(run.link.clone());
        if run.link.is_some() {
            span = span.color(style.link);
        }
        if run.code {
            let highlight = Background::Color(style.code_background);
            span = span.size(size - 1.5).background(highlight).border(border::rounded(4)).padding(Padding::from([1, 3]));
        }
        span
    }

    fn heading(&self, level: u8, runs: &'a [Run]) -> Element<'a, Message> {
        let (size, line) = match level {
            1 => (self.style.size + 5.0, self.style.line_height + 4.0),
            2 => (self.style.size + 2.0, self.style.line_height),
            _ => (self.style.size, self.style.line_height),
        };
        self.runs(runs, size, line, self.style.bold)
    }

    fn quote(&self, blocks: &'a [Block]) -> Element<'a, Message> {
        let bar = rule::vertical(3).style(self.rule_style());
        row![bar, self.stack(blocks.iter(), self.style.line_height * 0.4)].spacing(12).height(Shrink).into()
    }

    fn list(&self, start: Option<u64>, items: &'a [Item]) -> Element<'a, Message> {
        let widest = start.map_or(1, |start| (start + items.len() as u64).to_string().len());
        let gutter = if start.is_some() { 12.0 + 9.0 * widest as f32 } else { 20.0 };
        let lines = items.iter().enumerate().map(|(index, item)| {
            let mark = match (item.task, start) {
                (Some(true), _) => "☑".to_owned(),
                (Some(false), _) => "☐".to_owned(),
                (None, Some(start)) => format!("{}.", start.saturating_add(index as u64)),
                (None, None) => "•".to_owned(),
            };
            let mark = text(mark).size(self.style.size).line_height(Pixels(self.style.line_height)).color(self.style.muted);
            row![container(mark).width(gutter), self.stack(item.blocks.iter(), self.style.line_height * 0.25)].into()
        });
        Column::with_children(lines).spacing(self.style.line_height * 0.15).into()
    }

    fn table(&self, head: &'a [Vec<Run>], rows: &'a [Vec<Vec<Run>>]) -> Element<'a, Message> {
        let widths: Vec<u16> = (0..head.len())
            .map(|at| {
                let cells = std::iter::once(head).chain(rows.iter().map(Vec::as_slice)).filter_map(|row| row.get(at));
                cells.map(|cell| block::words(cell).chars().count().clamp(4, 40)).max().unwrap_or(4) as u16
            })
            .collect();
        let line = |cells: &'a [Vec<Run>], font: Font| {
            Row::with_children(cells.iter().zip(&widths).map(|(cell, width)| {
                let runs = self.runs(cell, self.style.size - 1.0, self.style.line_height - 2.0, font);
                container(runs).width(iced::FillPortion(*width)).padding([4, 8]).into()
            }))
            .into()
        };
        let mut lines: Vec<Element<'a, Message>> = vec![line(head, self.style.bold)];
        for row in rows {
            lines.push(rule::horizontal(1).style(self.rule_style()).into());
            lines.push(line(row, self.style.font));
        }
        let border = border::rounded(self.style.radius).width(1).color(self.style.line);
        container(Column::with_children(lines)).style(move |_| container::Style::default().border(border)).padding(1).into()
    }

    fn code(&self, language: Option<&'a str>, code: &'a str) -> Element<'a, Message> {
        let style = self.style;
        let on = self.on.clone();
        let copy = button(text(self.copy).size(style.code_size - 1.0).color(style.muted))
            .padding([2, 8])
            .style(move |_, status| button::Style {
                background: matches!(status, button::Status::Hovered | button::Status::Pressed).then_some(style.line.into()),
                text_color: style.muted,
                border: border::rounded(style.radius),
                ..button::Style::default()
            })
            .on_press_with(move || on(Action::Copy(code.to_owned())));
        let label = text(language.unwrap_or_default()).size(style.code_size - 1.0).color(style.muted);
        let head =
            row![label, space().width(Fill), copy].align_y(iced::Center).padding(Padding { left: 12.0, right: 4.0, ..Padding::ZERO });
        let pieces = pieces(code).into_iter().map(|piece| {
            let text = text(piece).font(style.mono).size(style.code_size).line_height(Pixels(style.code_line_height));
            text.color(style.text).wrapping(text::Wrapping::None).into()
        });
        let bar = scrollable::Scrollbar::new().width(4).scroller_width(4);
        let lines =
            scrollable(container(Column::with_children(pieces)).padding(Padding { left: 12.0, right: 12.0, top: 4.0, bottom: 12.0 }))
                .direction(scrollable::Direction::Horizontal(bar))
                .width(Fill);
        let border = border::rounded(style.radius).width(1).color(style.line);
        container(column![head, lines])
            .padding(Padding { top: 4.0, ..Padding::ZERO })
            .width(Fill)
            .style(move |_| container::Style::default().background(style.code_background).border(border))
            .into()
    }

    fn rule_style(&self) -> impl Fn(&iced::Theme) -> rule::Style + 'a {
        let color = self.style.line;
        move |_| rule::Style { color, radius: 0.0.into(), fill_mode: rule::FillMode::Full, snap: true }
    }
}

/// Cuts code into pieces of at most [`PIECE`] lines.
fn pieces(code: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = code;
    while let Some((at, _)) = rest.match_indices('\n').nth(PIECE - 1) {
        pieces.push(&rest[..at]);
        rest = &rest[at + 1..];
    }
    pieces.push(rest);
    pieces
}

#[cfg(test)]
mod tests {
    use iced_test::simulator;

    use super::*;

    pub(super) const STYLE: Style = Style {
        text: Color::BLACK,
        muted: Color::BLACK,
        link: Color::BLACK,
        line: Color::BLACK,
        code_background: Color::WHITE,
        font: Font::DEFAULT,
        bold: Font::DEFAULT,
        italic: Font::DEFAULT,
        mono: Font::MONOSPACE,
        size: 15.0,
        line_height: 24.0,
        code_size: 13.0,
        code_line_height: 20.0,
        radius: 6.0,
    };

    #[test]
    fn every_kind_of_block_is_drawn_findable_and_code_can_be_copied() {
        let content = Content::new(
            "# Head\n\ntext *here*\n\n- item\n\n> said\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```rust\nfn f() {}\n```\n\n---\n",
        );
        let mut ui = simulator(view(&content, STYLE, "Copy", |action| action));
        for words in ["Head", "text here", "item", "said", "a", "2", "fn f() {}", "rust"] {
            assert!(ui.find(words).is_ok(), "{words}");
        }
        let _ = ui.click("Copy").unwrap();
        assert_eq!(ui.into_messages().collect::<Vec<_>>(), [Action::Copy("fn f() {}".to_owned())]);
    }

    #[test]
    fn pieces_keep_every_line() {
        let code: String = (0..101).map(|line| format!("line {line}\n")).collect();
        let cut = pieces(code.trim_end());
        assert_eq!(cut.len(), 3);
        assert_eq!(cut.join("\n"), code.trim_end());
    }
}
