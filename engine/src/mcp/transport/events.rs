//! Server-sent events, within bounds: an event that is too long costs itself, not the stream.

use std::collections::VecDeque;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt as _};
use sse_stream::Sse;

/// Bytes of an event that is too long which are kept, to see whose it is.
const START: usize = 1024;

/// What a stream brings.
#[derive(Debug, PartialEq)]
pub(super) enum Found {
    /// An event.
    Event(Sse),
    /// One that was longer than allowed; the start of its data.
    TooLong(String),
}

/// Reads events of at most `most` bytes each. What is unfinished at the end is no event.
pub(super) fn read<E: Send + 'static>(
    bytes: impl Stream<Item = Result<impl AsRef<[u8]> + Send, E>> + Send + 'static,
    most: usize,
) -> BoxStream<'static, Result<Found, E>> {
    let state = (Box::pin(bytes), Parser::new(most));
    futures::stream::unfold(state, |(mut bytes, mut parser)| async move {
        loop {
            if let Some(found) = parser.found.pop_front() {
                return Some((Ok(found), (bytes, parser)));
            }
            match bytes.next().await? {
                Ok(chunk) => parser.feed(chunk.as_ref()),
                Err(error) => return Some((Err(error), (bytes, parser))),
            }
        }
    })
    .boxed()
}

#[derive(Debug)]
struct Parser {
    most: usize,
    line: Vec<u8>,
    /// Bytes of the line so far, kept or not.
    length: usize,
    event: Sse,
    data: Option<Vec<u8>>,
    /// Bytes of the event's finished lines.
    size: usize,
    too_long: bool,
    after_return: bool,
    first: bool,
    found: VecDeque<Found>,
}

impl Parser {
    fn new(most: usize) -> Self {
        Self {
            most,
            line: Vec::new(),
            length: 0,
            event: Sse::default(),
            data: None,
            size: 0,
            too_long: false,
            after_return: false,
            first: true,
            found: VecDeque::new(),
        }
    }

    fn feed(&mut self, chunk: &[u8]) {
        let mut rest = chunk;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            match rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
                Some(end) => {
                    self.take(&rest[..end]);
                    self.after_return = rest[end] == b'\r';
                    self.end_line();
                    rest = &rest[end + 1..];
                }
                None => {
                    self.take(rest);
                    break;
                }
            }
        }
    }

    fn take(&mut self, piece: &[u8]) {
        let comment = self.line.first().or(piece.first()) == Some(&b':');
        self.length = self.length.saturating_add(piece.len());
        if comment {
            // Its first byte is enough to know the rest of it.
            if self.line.is_empty() {
                self.line.push(b':');
            }
        } else if self.too_long || self.size.saturating_add(self.length) > self.most {
            self.drop_event(piece);
        } else {
            self.line.extend_from_slice(piece);
        }
    }

    fn drop_event(&mut self, piece: &[u8]) {
        if self.too_long {
            return;
        }
        self.too_long = true;
        if self.data.is_none() {
            self.line.extend_from_slice(&piece[..piece.len().min(START)]);
            let line = std::mem::take(&mut self.line);
            self.field(&line);
        }
        self.line = Vec::new();
        if let Some(data) = &mut self.data {
            data.truncate(START);
            data.shrink_to_fit();
        }
    }

    fn end_line(&mut self) {
        let (mut line, length) = (std::mem::take(&mut self.line), std::mem::take(&mut self.length));
        if std::mem::take(&mut self.first) && line.starts_with(b"\xef\xbb\xbf") {
            let _ = line.drain(..3);
            if line.is_empty() {
                return;
            }
        }
        if length == 0 {
            return self.dispatch();
        }
        if line.first() != Some(&b':') && !self.too_long {
            self.size += line.len() + 1;
            self.field(&line);
        }
        // The buffer is used again.
        line.clear();
        self.line = line;
    }

    fn field(&mut self, line: &[u8]) {
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..])),
            None => (line, &[][..]),
        };
        let text = || String::from_utf8_lossy(value).into_owned();
        match name {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            b"event" => self.event.event = Some(text()),
            b"id" if !value.contains(&0) => self.event.id = Some(text()),
            b"retry" if value.iter().all(u8::is_ascii_digit) => self.event.retry = text().parse().ok(),
            _ => {}
        }
    }

    fn dispatch(&mut self) {
        let mut event = std::mem::take(&mut self.event);
        let data = self.data.take().map(|data| match String::from_utf8(data) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        });
        self.size = 0;
        if std::mem::take(&mut self.too_long) {
            self.found.push_back(Found::TooLong(data.unwrap_or_default()));
            return;
        }
        event.data = data;
        // An event without data still carries the id and the pause for the next attempt.
        if event != Sse::default() {
            self.found.push_back(Found::Event(event));
        }
    }
}
