//! The text of calls under the grammar, as it becomes deltas.

use crate::provider::Delta;

const NAME: &str = "{\"name\": ";
const ARGUMENTS: &str = ", \"arguments\": ";

/// A position inside JSON text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    depth: u32,
    text: bool,
    escaped: bool,
}

impl Position {
    /// Whether it is inside of a string, and whether a backslash stands before it.
    #[must_use]
    pub fn in_text(self) -> Option<bool> {
        self.text.then_some(self.escaped)
    }

    /// Moves over a byte; true for the brace that closes more than was opened.
    fn take(&mut self, byte: u8) -> bool {
        if self.text {
            self.text = self.escaped || byte != b'"';
            self.escaped = !self.escaped && byte == b'\\';
            return false;
        }
        match byte {
            b'"' => self.text = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' if self.depth == 0 => return true,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        false
    }
}

/// Follows calls `<tool_call>\n{"name": NAME, "arguments": ARGUMENTS}\n</tool_call>`, which the grammar holds to exactly
/// this form.
#[derive(Debug, Default)]
pub struct CallText {
    held: String,
    /// `None` before the arguments.
    arguments: Option<Position>,
    finished: usize,
}

impl CallText {
    /// The position inside the arguments, if it is there.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.arguments
    }

    /// Takes more text.
    pub fn push(&mut self, text: &str) -> Vec<Delta> {
        self.held.push_str(text);
        let mut deltas = Vec::new();
        loop {
            let moved = match self.arguments {
                None => self.head(&mut deltas),
                Some(position) => self.arguments(position, &mut deltas),
            };
            if !moved {
                return deltas;
            }
        }
    }

    fn head(&mut self, deltas: &mut Vec<Delta>) -> bool {
        let Some(at) = self.held.find(NAME) else { return false };
        let rest = &self.held[at + NAME.len()..];
        let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let Some(Ok(name)) = names.next() else { return false };
        let Some(arguments) = rest[names.byte_offset()..].strip_prefix(ARGUMENTS) else { return false };
        let arguments = arguments.to_owned();
        deltas.push(Delta::CallStarted { index: self.finished, id: None, name });
        self.held = arguments;
        self.arguments = Some(Position::default());
        true
    }

    fn arguments(&mut self, mut position: Position, deltas: &mut Vec<Delta>) -> bool {
        let end = self.held.bytes().position(|byte| position.take(byte));
        let fragment: String = self.held.drain(..end.unwrap_or(self.held.len())).collect();
        if !fragment.is_empty() {
            deltas.push(Delta::CallArguments { index: self.finished, fragment });
        }
        self.arguments = end.is_none().then_some(position);
        self.finished += usize::from(end.is_some());
        end.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(parts: &[&str]) -> (Vec<String>, Vec<String>, usize) {
        let mut call = CallText::default();
        let (mut names, mut arguments) = (Vec::new(), Vec::new());
        for delta in parts.iter().flat_map(|part| call.push(part)) {
            match delta {
                Delta::CallStarted { name, .. } => {
                    names.push(name);
                    arguments.push(String::new());
                }
                Delta::CallArguments { index, fragment } => arguments[index] += &fragment,
                other => panic!("{other:?}"),
            }
        }
        (names, arguments, call.finished)
    }

    #[test]
    fn calls_come_out_at_any_cut() {
        let text = "<tool_call>\n{\"name\": \"a \\\"b\\\"\", \"arguments\": {\"x\": \"}\\\\\\\"}{ü\", \"y\": [{}, 1]}}\n</tool_call>\n\
                    <tool_call>\n{\"name\": \"c\", \"arguments\": {}}\n</tool_call>";
        for cut in 1..30 {
            let chars: Vec<String> = text.chars().collect::<Vec<_>>().chunks(cut).map(|c| c.iter().collect()).collect();
            let (names, arguments, finished) = run(&chars.iter().map(String::as_str).collect::<Vec<_>>());
            assert_eq!(names, ["a \"b\"", "c"]);
            assert_eq!(arguments, ["{\"x\": \"}\\\\\\\"}{ü\", \"y\": [{}, 1]}", "{}"]);
            assert_eq!(finished, 2);
        }
    }

    #[test]
    fn a_string_is_known_as_one() {
        let mut call = CallText::default();
        let _ = call.push("<tool_call>\n{\"name\": \"c\", \"arguments\": {\"a\": \"x\\");
        assert_eq!(call.position().unwrap().in_text(), Some(true));
        let _ = call.push("\"y");
        assert_eq!(call.position().unwrap().in_text(), Some(false));
        let _ = call.push("\"");
        assert_eq!(call.position().unwrap().in_text(), None);
        assert_eq!(call.finished, 0);
    }
}
