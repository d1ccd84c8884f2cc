//! Right-to-left lines: PDF stores them as they are seen, people search them as they are written.

/// Hebrew, Arabic and their presentation forms.
fn leftward(character: char) -> bool {
    matches!(character as u32, 0x590..=0x8ff | 0xfb1d..=0xfdff | 0xfe70..=0xfeff)
}

fn rightward(character: char) -> bool {
    character.is_alphanumeric() && !leftward(character)
}

/// Joins the parts of a number or an address, which keeps its direction within a right-to-left line.
fn joins(character: char) -> bool {
    matches!(character, '.' | ',' | ':' | '/' | '-' | '%' | '_' | '@')
}

/// Stands behind a number and keeps with it.
fn unit(character: char) -> bool {
    matches!(character, '%' | '°' | '€')
}

/// Brings a line from the order in which it is seen into the order in which it is read.
pub(super) fn logical(line: &str) -> String {
    let right_to_left = line.chars().filter(|c| leftward(*c)).count();
    if right_to_left == 0 {
        return line.to_owned();
    }
    let left_to_right = line.chars().filter(|c| c.is_alphabetic() && !leftward(*c)).count();
    let seen: Vec<char> = line.chars().collect();
    if right_to_left >= left_to_right { reversed(&seen) } else { with_reversed_runs(&seen) }
}

/// Reverses all of it and turns Latin words and numbers back.
fn reversed(seen: &[char]) -> String {
    let turned: Vec<char> = seen.iter().rev().map(|c| mirrored(*c)).collect();
    let mut line = String::new();
    let mut at = 0;
    while at < turned.len() {
        let starts = rightward(turned[at]) || (unit(turned[at]) && turned.get(at + 1).is_some_and(|c| rightward(*c)));
        if !starts {
            line.push(turned[at]);
            at += 1;
            continue;
        }
        let mut end = at + 1;
        while end < turned.len() && (rightward(turned[end]) || (joins(turned[end]) && turned.get(end + 1).is_some_and(|c| rightward(*c)))) {
            end += 1;
        }
        line.extend(turned[at..end].iter().rev());
        at = end;
    }
    line
}

/// Reverses the right-to-left runs within a left-to-right line.
fn with_reversed_runs(seen: &[char]) -> String {
    let mut line = String::new();
    let mut at = 0;
    while at < seen.len() {
        if !leftward(seen[at]) {
            line.push(seen[at]);
            at += 1;
            continue;
        }
        let (mut end, mut last) = (at, at + 1);
        while end < seen.len() && (leftward(seen[end]) || seen[end] == ' ') {
            end += 1;
            if leftward(seen[end - 1]) {
                last = end;
            }
        }
        line.extend(seen[at..last].iter().rev());
        at = last;
    }
    line
}

fn mirrored(character: char) -> char {
    match character {
        '(' => ')',
        ')' => '(',
        '[' => ']',
        ']' => '[',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hebrew_is_turned_and_its_number_is_not() {
        assert_eq!(logical("2024 ינועבר חוד"), "דוח רבעוני 2024");
        assert_eq!(logical("12.5% (רעש) תיביר"), "ריבית (שער) 12.5%");
    }

    #[test]
    fn a_hebrew_word_in_an_english_line_is_turned_alone() {
        assert_eq!(logical("The word םולש means peace"), "The word שלום means peace");
        assert_eq!(logical("plain"), "plain");
    }
}
