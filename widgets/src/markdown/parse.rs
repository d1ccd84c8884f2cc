//! From pulldown-cmark's events to blocks, with a stack of our own that is never deeper than [`DEEPEST`].

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

use super::block::{Block, Item, Run};

/// Deepest nesting of quotes and lists that is kept; what is deeper joins the level above. It bounds the recursion
/// of drawing and dropping.
const DEEPEST: usize = 16;

/// Parses a text into its top-level blocks, each with the byte at which the line of its start begins.
pub(super) fn parse(source: &str) -> Vec<(usize, Block)> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut builder = Builder::default();
    for (event, range) in Parser::new_ext(source, options).into_offset_iter() {
        if builder.frames.is_empty() && builder.begun.is_none() {
            builder.begun = Some(source[..range.start].rfind('\n').map_or(0, |at| at + 1));
        }
        builder.event(event);
    }
    builder.flush();
    builder.blocks
}

#[derive(Debug)]
enum Frame {
    Quote(Vec<Block>),
    List(Option<u64>, Vec<Item>),
    Item(Item),
}

#[derive(Debug, Default)]
struct Builder {
    blocks: Vec<(usize, Block)>,
    begun: Option<usize>,
    frames: Vec<Frame>,
    /// Containers that were not opened because they are too deep.
    skipped: usize,
    runs: Vec<Run>,
    look: Run,
    bold: usize,
    italic: usize,
    strike: usize,
    heading: Option<u8>,
    code: Option<(Option<String>, String)>,
    html: Option<String>,
    head: Vec<Vec<Run>>,
    rows: Vec<Vec<Vec<Run>>>,
    image: Option<(String, usize)>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => self.text(&text, false),
            Event::Code(text) => self.text(&text, true),
            Event::Html(text) | Event::InlineHtml(text) => self.html(&text),
            Event::SoftBreak => self.soft_break(),
            Event::HardBreak => self.text("\n", false),
            Event::Rule => {
                self.flush();
                self.push(Block::Rule);
            }
            Event::TaskListMarker(done) => {
                if let Some(Frame::Item(item)) = self.frames.last_mut() {
                    item.task = Some(done);
                }
            }
            // Not enabled; kept as text should they ever come.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => self.text(&text, false),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Heading { level, .. } => {
                self.flush();
                self.heading = Some(level as u8);
            }
            Tag::BlockQuote(_) => self.open(Frame::Quote(Vec::new())),
            Tag::List(start) => self.open(Frame::List(start, Vec::new())),
            Tag::Item => self.open(Frame::Item(Item::default())),
            Tag::CodeBlock(kind) => {
                self.flush();
                let language = match kind {
                    CodeBlockKind::Fenced(info) => Some(info.trim().to_owned()).filter(|info| !info.is_empty()),
                    CodeBlockKind::Indented => None,
                };
                self.code = Some((language, String::new()));
            }
            Tag::HtmlBlock => {
                self.flush();
                self.html = Some(String::new());
            }
            Tag::Table(_) => {
                self.flush();
                (self.head, self.rows) = (Vec::new(), Vec::new());
            }
            Tag::TableRow => self.rows.push(Vec::new()),
            Tag::Emphasis => self.italic += 1,
            Tag::Strong => self.bold += 1,
            Tag::Strikethrough => self.strike += 1,
            Tag::Link { dest_url, .. } => self.look.link = Some(dest_url.into_string()),
            Tag::Image { dest_url, .. } => self.image = Some((dest_url.into_string(), self.runs.len())),
            Tag::Paragraph => self.flush(),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::Heading(_) => self.flush(),
            TagEnd::BlockQuote(_) | TagEnd::List(_) | TagEnd::Item => self.close(),
            TagEnd::CodeBlock => {
                if let Some((language, mut text)) = self.code.take() {
                    if text.ends_with('\n') {
                        let _ = text.pop();
                    }
                    self.push(Block::Code { language, text });
                }
            }
            TagEnd::HtmlBlock => {
                if let Some(html) = self.html.take() {
                    self.push(Block::Html(html.trim_end().to_owned()));
                }
            }
            TagEnd::TableCell => {
                let cell = self.take_runs();
                match self.rows.last_mut() {
                    Some(row) => row.push(cell),
                    None => self.head.push(cell),
                }
            }
            TagEnd::Table => {
                let table = Block::Table { head: std::mem::take(&mut self.head), rows: std::mem::take(&mut self.rows) };
                self.push(table);
            }
            TagEnd::Emphasis => self.italic = self.italic.saturating_sub(1),
            TagEnd::Strong => self.bold = self.bold.saturating_sub(1),
            TagEnd::Strikethrough => self.strike = self.strike.saturating_sub(1),
            TagEnd::Link => self.look.link = None,
            TagEnd::Image => self.image_ends(),
            _ => {}
        }
    }

    /// An image is its description, linked to where it lies; without a description it is the address.
    fn image_ends(&mut self) {
        let Some((address, first)) = self.image.take() else { return };
        if self.runs.len() <= first {
            self.text(&address.clone(), false);
        }
        for run in self.runs.iter_mut().skip(first) {
            run.link = Some(address.clone());
        }
    }

    fn open(&mut self, frame: Frame) {
        self.flush();
        if self.skipped > 0 || self.frames.len() >= DEEPEST && !matches!(frame, Frame::Item(_)) {
            self.skipped += 1;
        } else {
            self.frames.push(frame);
        }
    }

    fn close(&mut self) {
        self.flush();
        if self.skipped > 0 {
            self.skipped -= 1;
            return;
        }
        match self.frames.pop() {
            Some(Frame::Quote(blocks)) => self.push(Block::Quote(blocks)),
            Some(Frame::List(start, items)) => self.push(Block::List { start, items }),
            Some(Frame::Item(item)) => {
                if let Some(Frame::List(_, items)) = self.frames.last_mut() {
                    items.push(item);
                }
            }
            None => {}
        }
    }

    fn text(&mut self, text: &str, code: bool) {
        if let Some((_, block)) = &mut self.code {
            block.push_str(text);
            return;
        }
        if let Some(html) = &mut self.html {
            html.push_str(text);
            return;
        }
        let run = Run {
            text: text.to_owned(),
            bold: self.bold > 0,
            italic: self.italic > 0,
            strike: self.strike > 0,
            code,
            link: self.look.link.clone(),
        };
        // An image's description begins a run of its own, or the text before it would become part of the link.
        let count = self.runs.len();
        let may_join = self.image.as_ref().is_none_or(|(_, first)| *first < count);
        match self.runs.last_mut() {
            Some(last) if may_join && last.looks_like(&run) => last.text.push_str(text),
            _ => self.runs.push(run),
        }
    }

    fn html(&mut self, text: &str) {
        match &mut self.html {
            Some(html) => html.push_str(text),
            None => self.text(text, false),
        }
    }

    /// A line break inside a paragraph is a space, except between characters that are written without spaces.
    fn soft_break(&mut self) {
        let wide = self.runs.last().and_then(|run| run.text.chars().next_back()).is_some_and(|c| ('\u{2e80}'..'\u{fb00}').contains(&c));
        if !wide {
            self.text(" ", false);
        }
    }

    fn take_runs(&mut self) -> Vec<Run> {
        std::mem::take(&mut self.runs).into_iter().flat_map(references).collect()
    }

    /// Ends the paragraph or heading that is being written.
    fn flush(&mut self) {
        let heading = self.heading.take();
        if self.runs.is_empty() {
            return;
        }
        let runs = self.take_runs();
        self.push(match heading {
            Some(level) => Block::Heading(level, runs),
            None => Block::Paragraph(runs),
        });
    }

    fn push(&mut self, block: Block) {
        match self.frames.last_mut() {
            Some(Frame::Quote(blocks)) => blocks.push(block),
            Some(Frame::Item(item)) => item.blocks.push(block),
            Some(Frame::List(_, items)) => items.push(Item { task: None, blocks: vec![block] }),
            None => self.blocks.push((self.begun.take().unwrap_or(0), block)),
        }
    }
}

/// Cuts a run at numbers in square brackets, which become links to `#n`.
fn references(run: Run) -> Vec<Run> {
    if run.code || run.link.is_some() || !run.text.contains('[') {
        return vec![run];
    }
    let mut runs = Vec::new();
    let (mut plain, mut rest) = (0, 0);
    while let Some(open) = run.text[rest..].find('[').map(|at| rest + at) {
        rest = open + 1;
        let digits = run.text[rest..].bytes().take_while(u8::is_ascii_digit).count();
        if digits == 0 || digits > 3 || run.text.as_bytes().get(rest + digits) != Some(&b']') {
            continue;
        }
        let end = rest + digits + 1;
        if plain < open {
            runs.push(Run { text: run.text[plain..open].to_owned(), ..run.clone() });
        }
        let link = Some(format!("#{}", &run.text[rest..rest + digits]));
        runs.push(Run { text: run.text[open..end].to_owned(), link, ..run.clone() });
        (plain, rest) = (end, end);
    }
    if plain < run.text.len() {
        runs.push(Run { text: run.text[plain..].to_owned(), ..run });
    }
    runs
}
