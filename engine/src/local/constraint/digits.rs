//! How long a number may grow in a call. A grammar lets a number go on for ever, and a weak model does.
//!
//! The end comes so late that a number which was brought to it is refused by everyone who reads it: it is never taken for
//! a shorter one that was meant.

/// Digits in a row, at most: twice what 64 bits hold, so that nothing that is cut here passes for a number.
const MOST: usize = 40;
/// Digits of an exponent, at most: more are beyond every reader (1e308), and two are what people write.
const EXPONENT: usize = 2;

/// Where in the JSON text of a call the writer is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Digits {
    in_text: bool,
    escaped: bool,
    run: usize,
    exponent: bool,
}

impl Digits {
    /// Takes what was written.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.in_text {
                match (self.escaped, byte) {
                    (true, _) => self.escaped = false,
                    (false, b'\\') => self.escaped = true,
                    (false, b'"') => self.in_text = false,
                    (false, _) => {}
                }
                continue;
            }
            match byte {
                b'"' => *self = Self { in_text: true, ..Self::default() },
                b'0'..=b'9' => self.run += 1,
                // Only behind digits these are parts of a number; elsewhere they are letters of `true` and `false`.
                b'e' | b'E' if self.run > 0 => (self.run, self.exponent) = (0, true),
                b'-' | b'+' | b'.' => self.run = 0,
                _ => (self.run, self.exponent) = (0, false),
            }
        }
    }

    /// Whether no further digit may come.
    pub(super) fn full(&self) -> bool {
        !self.in_text && self.run >= if self.exponent { EXPONENT } else { MOST }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(text: &str) -> bool {
        let mut digits = Digits::default();
        digits.push(text.as_bytes());
        digits.full()
    }

    #[test]
    fn only_numbers_come_to_an_end() {
        let long = "1".repeat(MOST);
        assert!(full(&format!("{{\"a\": {long}")) && full(&format!("[-{long}")) && full(&format!("[0.{long}")));
        assert!(full("[1e10") && full("[1.5E-30"));
        assert!(!full(&format!("{{\"a\": \"{long}")) && !full(&format!("[\"\\\"{long}")) && !full(&format!("[{}", &long[1..])));
        assert!(!full("[1e1") && !full(&format!("[{long}, 1")) && !full("[true, false, 123"));
    }
}
