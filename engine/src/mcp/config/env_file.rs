//! `envFile`: variables of a program in a file of their own, one `NAME=value` a line, as many projects keep their keys.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::Path;

/// Largest file that is read (fixed).
const LARGEST: u64 = 256 * 1024;

/// The variables of a file. The error says what is wrong with it, and never holds a value.
pub(super) fn read(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let file = fs::File::open(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let mut bytes = Vec::new();
    let _ = file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("{} is larger than {LARGEST} bytes", path.display()));
    }
    let text = super::decoded(bytes).map_err(|reason| format!("{}: {reason}", path.display()))?;
    parse(&text).map_err(|line| format!("{}: line {line} is not NAME=value", path.display()))
}

/// The names of the variables of a file, for people; none where it cannot be read.
pub(in crate::mcp) fn names(path: &Path) -> Vec<String> {
    read(path).map(|variables| variables.into_keys().collect()).unwrap_or_default()
}

/// The error is the number of the line that is none.
fn parse(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let mut variables = BTreeMap::new();
    for (number, line) in (1..).zip(text.trim_start_matches('\u{feff}').lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=').ok_or(number)?;
        let name = name.trim();
        if name.is_empty() || name.contains(char::is_whitespace) || name.contains('\0') || value.contains('\0') {
            return Err(number);
        }
        let _ = variables.insert(name.to_owned(), unquoted(value.trim()));
    }
    Ok(variables)
}

/// A value without its quotes; behind one without quotes a comment may stand.
fn unquoted(value: &str) -> String {
    let inside = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)).map(|(inside, _)| inside);
    if let Some(plain) = inside('\'') {
        return plain.to_owned();
    }
    match inside('"') {
        Some(text) => text.replace("\\n", "\n").replace("\\t", "\t"),
        None => value.split(" #").next().unwrap_or(value).trim_end().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_forms_are_read_and_a_line_that_is_none_is_named() {
        let text = "\u{feff}# keys\n\nA=1\nexport B = two words # why\nC='a # b'\nD=\"x\\ny\"\nE=\nF=a=b\n";
        let found = parse(text).unwrap();
        let wanted = [("A", "1"), ("B", "two words"), ("C", "a # b"), ("D", "x\ny"), ("E", ""), ("F", "a=b")];
        assert_eq!(found, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(parse("A=1\nnonsense"), Err(2));
        assert_eq!(parse("A B=1"), Err(1));
        let missing = read(Path::new("/nowhere/.env")).unwrap_err();
        assert!(missing.contains("/nowhere/.env"), "{missing}");
    }
}
