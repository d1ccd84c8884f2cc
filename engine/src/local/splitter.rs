//! The running text of a model cut into answer, reasoning and the mark of a call, without showing half a mark.

const CALL: &str = "<tool_call>";
const THINK: &str = "<think>";
const THOUGHT: &str = "</think>";

/// A piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Answer.
    Text(String),
    /// Reasoning.
    Reasoning(String),
    /// `<tool_call>` begins at this byte of the whole text. Everything behind it is forgotten.
    Call(usize),
}

/// Cuts a stream of text.
#[derive(Clone, Debug)]
pub struct Splitter {
    held: String,
    /// Byte of the whole text at which `held` begins.
    at: usize,
    watch: bool,
    thinking: bool,
    /// Whether a thought may still begin: only white space came before.
    fresh: bool,
    /// Whether the line breaks behind a thought are still to be dropped.
    trim: bool,
}

impl Splitter {
    /// `watch`: whether calls are looked for. `thinking`: whether the prompt has already opened a thought.
    #[must_use]
    pub fn new(watch: bool, thinking: bool) -> Self {
        Self { held: String::new(), at: 0, watch, thinking, fresh: true, trim: false }
    }

    /// Takes more text and gives the pieces that are certain.
    pub fn push(&mut self, text: &str) -> Vec<Piece> {
        self.held.push_str(text);
        let mut pieces = Vec::new();
        loop {
            let marks = self.marks();
            let found = marks.iter().filter_map(|mark| self.held.find(mark).map(|at| (at, *mark))).min();
            let Some((at, mark)) = found else {
                let certain = self.held.len() - begun(&self.held, &marks);
                self.release(certain, &mut pieces);
                return pieces;
            };
            self.release(at, &mut pieces);
            if mark == CALL {
                pieces.push(Piece::Call(self.at));
                self.held.clear();
                return pieces;
            }
            self.thinking = mark == THINK;
            self.trim = mark == THOUGHT;
            self.fresh = false;
            self.at += mark.len();
            drop(self.held.drain(..mark.len()));
        }
    }

    /// The end of the text: what was held back was no mark.
    pub fn finish(&mut self) -> Vec<Piece> {
        let mut pieces = Vec::new();
        self.release(self.held.len(), &mut pieces);
        pieces
    }

    fn marks(&self) -> Vec<&'static str> {
        if self.thinking {
            return vec![THOUGHT];
        }
        let think =
            (self.fresh && self.held.trim_start().starts_with(&THINK[..self.held.trim_start().len().min(THINK.len())])).then_some(THINK);
        think.into_iter().chain(self.watch.then_some(CALL)).collect()
    }

    fn release(&mut self, count: usize, pieces: &mut Vec<Piece>) {
        if count == 0 {
            return;
        }
        let text: String = self.held.drain(..count).collect();
        self.at += count;
        if self.thinking {
            pieces.push(Piece::Reasoning(text));
            return;
        }
        let text = if self.trim { text.trim_start_matches('\n').to_owned() } else { text };
        self.fresh = self.fresh && text.trim().is_empty();
        self.trim = self.trim && text.is_empty();
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
    }
}

/// Bytes at the end of a text that may be the beginning of a mark.
fn begun(text: &str, marks: &[&str]) -> usize {
    let longest = |mark: &&str| (1..mark.len()).rev().find(|n| text.as_bytes().ends_with(&mark.as_bytes()[..*n]));
    marks.iter().filter_map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run(splitter: &mut Splitter, parts: &[&str]) -> (String, String, Option<usize>) {
        let mut pieces: Vec<Piece> = parts.iter().flat_map(|part| splitter.push(part)).collect();
        pieces.extend(splitter.finish());
        let (mut text, mut thought, mut call) = (String::new(), String::new(), None);
        for piece in pieces {
            match piece {
                Piece::Text(piece) => text += &piece,
                Piece::Reasoning(piece) => thought += &piece,
                Piece::Call(at) => call = Some(at),
            }
        }
        (text, thought, call)
    }

    #[test]
    fn a_mark_in_pieces_never_shows() {
        let mut splitter = Splitter::new(true, false);
        assert_eq!(splitter.push("Look: <to"), [Piece::Text("Look: ".to_owned())]);
        assert_eq!(splitter.push("ol_ca"), []);
        assert_eq!(splitter.push("ll>\n{"), [Piece::Call(6)]);
        assert_eq!(splitter.push("x < y <tool_cat"), [Piece::Text("x < y <tool_cat".to_owned())]);
    }

    #[test]
    fn what_only_looked_like_a_mark_comes_out() {
        assert_eq!(run(&mut Splitter::new(true, false), &["a <tool", "box> <"]), ("a <toolbox> <".to_owned(), String::new(), None));
        assert_eq!(run(&mut Splitter::new(false, false), &["<tool_call>"]).0, "<tool_call>");
    }

    #[test]
    fn thoughts_are_apart() {
        let parts = ["\n<th", "ink>\nhm <tool_call>", "</thi", "nk>\n", "\nYes", " <think>"];
        let expected = ("\nYes <think>".to_owned(), "\nhm <tool_call>".to_owned(), None);
        assert_eq!(run(&mut Splitter::new(true, false), &parts), expected);
        assert_eq!(run(&mut Splitter::new(true, true), &["a</think>\n\nb"]), ("b".to_owned(), "a".to_owned(), None));
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(text in "(<tool_call>|<think>|</think>|<|tool|a|\n|ü){0,12}", cut in 1usize..4) {
            let chars: Vec<String> = text.chars().collect::<Vec<_>>().chunks(cut).map(|c| c.iter().collect()).collect();
            let parts: Vec<&str> = chars.iter().map(String::as_str).collect();
            let whole = run(&mut Splitter::new(true, false), &[&text]);
            let mut cutter = Splitter::new(true, false);
            let mut pieces = Vec::new();
            for part in parts {
                pieces.extend(cutter.push(part));
                if pieces.iter().any(|piece| matches!(piece, Piece::Call(_))) { break; }
            }
            pieces.extend(cutter.finish());
            let shown: String = pieces.iter().filter_map(|p| if let Piece::Text(t) = p { Some(t.as_str()) } else { None }).collect();
            prop_assert_eq!(whole.0, shown);
        }
    }
}
