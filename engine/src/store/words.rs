//! The one way from text to terms, for the index and for questions.

use unicode_normalization::UnicodeNormalization as _;

/// Runs of letters and of digits in a word, more than which are no code but noise (a hash).
const RUNS: usize = 4;

/// The terms of a text as they are searched: NFKC, lower case, runs of letters, digits, marks and `_`; runs of Chinese,
/// Japanese kana, Korean and Thai as pairs of characters, a single one alone. What nobody sees (soft hyphens, joiners,
/// marks of byte order) parts no word. A code is found whole and in parts: `E-4711` is also `e4711`, `e4711` also `4711`.
#[must_use]
pub fn words(text: &str) -> Vec<String> {
    terms(text, false)
}

/// The terms under which a text is found: [`words`], and each character of a run of Chinese, Japanese and Korean, for
/// questions of a single one.
pub(super) fn indexed(text: &str) -> Vec<String> {
    terms(text, true)
}

fn terms(text: &str, singles: bool) -> Vec<String> {
    let mut reader = Reader { singles, ..Reader::default() };
    for character in text.chars().filter(|character| !unseen(*character)).nfkc().flat_map(char::to_lowercase) {
        reader.take(character);
    }
    reader.end_of_word();
    reader.end_of_code();
    reader.end_of_run();
    reader.terms
}

/// What was read and is not over yet.
#[derive(Default)]
struct Reader {
    singles: bool,
    terms: Vec<String>,
    word: String,
    /// The words of a code so far.
    code: Vec<String>,
    /// Whether the last character may go on with it.
    joint: bool,
    run: Vec<char>,
}

impl Reader {
    fn take(&mut self, character: char) {
        if unspaced(character) {
            self.end_of_word();
            self.end_of_code();
            self.run.push(character);
        } else if character.is_alphanumeric() || character == '_' || mark(character) {
            self.end_of_run();
            self.joint = false;
            self.word.push(character);
        } else {
            self.joint = !self.word.is_empty() && joins(character);
            self.end_of_word();
            if !self.joint {
                self.end_of_code();
            }
            self.end_of_run();
        }
    }

    fn end_of_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        self.terms.push(self.word.clone());
        self.terms.extend(parts(&self.word));
        self.code.push(std::mem::take(&mut self.word));
    }

    /// Words that hyphens or slashes join, with letters and digits among them, are one term more.
    fn end_of_code(&mut self) {
        let holds = |kind: fn(char) -> bool| self.code.iter().any(|word| word.chars().any(kind));
        if self.code.len() > 1 && holds(char::is_alphabetic) && holds(char::is_numeric) {
            self.terms.push(self.code.concat());
        }
        self.code.clear();
        self.joint = false;
    }

    fn end_of_run(&mut self) {
        match self.run.as_slice() {
            [] => {}
            [one] => self.terms.push(one.to_string()),
            run => {
                self.terms.extend(run.windows(2).map(|pair| pair.iter().collect::<String>()));
                if self.singles {
                    self.terms.extend(run.iter().filter(|character| alone(**character)).map(char::to_string));
                }
            }
        }
        self.run.clear();
    }
}

/// The runs of letters and of digits in a word that has both; runs of one character tell nothing.
fn parts(word: &str) -> Vec<String> {
    let digit = |character: char| character.is_numeric();
    let mut runs: Vec<String> = Vec::new();
    let mut before = None;
    for character in word.chars() {
        let kind = (character != '_').then(|| digit(character));
        match runs.last_mut() {
            Some(run) if kind.is_some() && kind == before => run.push(character),
            _ if kind.is_some() => runs.push(character.to_string()),
            _ => {}
        }
        before = kind;
    }
    let both = word.chars().any(digit) && word.chars().any(char::is_alphabetic);
    if !both || runs.len() > RUNS {
        return Vec::new();
    }
    runs.retain(|run| run.chars().nth(1).is_some() && run != word);
    runs
}

/// What stands between the parts of a code.
fn joins(character: char) -> bool {
    matches!(character, '-' | '\u{2010}' | '\u{2212}' | '/')
}

/// Characters that Unicode calls default-ignorable: they steer how others are drawn, joined or broken.
fn unseen(character: char) -> bool {
    matches!(character as u32, 0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfff8 | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

/// Written without spaces between words.
fn unspaced(character: char) -> bool {
    matches!(character as u32, 0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x3005..=0x3007 | 0x3040..=0x30ff | 0x31f0..=0x31ff | 0x3400..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0x20000..=0x3ffff)
        && (character.is_alphanumeric() || mark(character))
}

/// A character that can be a word, unlike a letter of Thai or Khmer.
fn alone(character: char) -> bool {
    u32::from(character) >= 0x3005 && !mark(character)
}

fn mark(character: char) -> bool {
    unicode_normalization::char::is_combining_mark(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_folded_and_unspaced_scripts_become_pairs() {
        assert_eq!(words("The Pump's ﬁlter_X, E-4021!"), ["the", "pump", "s", "filter_x", "e", "4021", "e4021"]);
        assert_eq!(words("冷却泵 低"), ["冷却", "却泵", "低"]);
        assert_eq!(words("ＡＢ１ カメラ"), ["ab1", "ab", "カメ", "メラ"]);
        assert_eq!(words("ÉTÉ e\u{301}"), ["été", "é"]);
    }

    #[test]
    fn what_nobody_sees_parts_no_word() {
        for unseen in ['\u{ad}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}', '\u{feff}', '\u{34f}', '\u{fe0f}', '\u{e0001}', '\u{202e}']
        {
            assert_eq!(
                words(&format!("Wert{unseen}papier 冷却{unseen}泵 E{unseen}-4711")),
                words("Wertpapier 冷却泵 E-4711"),
                "{unseen:?}"
            );
            assert_eq!(words(&format!("e{unseen}\u{301}t{unseen}")), ["ét"], "{unseen:?}");
        }
        assert_eq!(words("a 👩\u{200d}👧 b ❤\u{fe0f}"), ["a", "b"]);
        assert_eq!(words("\u{feff}Wert\u{a0}papier"), ["wert", "papier"], "a space that does not break is one");
    }

    #[test]
    fn codes_are_whole_and_in_parts() {
        assert_eq!(words("E-4711"), ["e", "4711", "e4711"]);
        assert_eq!(words("e4711"), ["e4711", "4711"]);
        assert_eq!(words("E\u{2011}4711"), words("E-4711"));
        assert_eq!(words("AB-102-X/7"), ["ab", "102", "x", "7", "ab102x7"]);
        assert_eq!(words("ZD421, zd 421"), ["zd421", "zd", "421", "zd", "421"]);
        assert_eq!(words("well-known 2023-2024 3.7 - a -1"), ["well", "known", "2023", "2024", "3", "7", "a", "1"]);
        assert_eq!(words("E--4711 E- 4711"), ["e", "4711", "e", "4711"], "one joint, and nothing beside it");
        assert_eq!(words("filter_x2 _ a_b"), ["filter_x2", "filter", "_", "a_b"]);
        assert_eq!(words("deadb3ef5a1c"), ["deadb3ef5a1c"]);
        assert_eq!(words("代码E-4711过热"), ["代码", "e", "4711", "e4711", "过热"]);
    }

    #[test]
    fn a_single_character_is_indexed_beside_its_pairs() {
        assert_eq!(indexed("冷却泵"), ["冷却", "却泵", "冷", "却", "泵"]);
        assert_eq!(indexed("泵"), ["泵"]);
        assert_eq!(indexed("ตา a"), ["ตา", "a"]);
        assert_eq!(words("冷却泵"), ["冷却", "却泵"]);
    }
}
