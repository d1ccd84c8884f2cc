//! How well each tool fits a text.
//!
//! Each distinct term of the text counts once per tool, with its inverse document frequency over the tools at hand
//! (BM25's, with its term-frequency part saturated: definitions are short, and a word that is repeated there says no
//! more) times the weight of the best field that holds it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Candidate;
use super::words::{is_stop, split, stem, terms};
use crate::tool::Definition;

const NAME: f32 = 1.0;
const TITLE: f32 = 0.8;
const DESCRIPTION: f32 = 0.5;
const SERVER: f32 = 0.4;
const PARAMETER: f32 = 0.3;

/// What a hint adds that is not a word: a path that the tool takes, the kind of a file.
const HINT: f32 = 0.5;

/// Words that a tool's name begins with and that many tools share: what is done, not to what.
const VERBS: &[&str] = &[
    "add", "append", "check", "convert", "copy", "count", "create", "delete", "edit", "export", "fetch", "find", "get", "import", "insert",
    "list", "look", "make", "move", "open", "query", "read", "remove", "rename", "run", "save", "search", "send", "set", "show", "start",
    "stop", "update", "write",
];

/// Verbs that change nothing: what a question asks for.
const READING: &[&str] = &["check", "count", "fetch", "find", "get", "list", "look", "query", "read", "search", "show"];

/// How one tool fits.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fit {
    /// Position among the candidates.
    pub index: usize,
    /// The text names the tool, exactly or by its first words.
    pub named: bool,
    /// The score; 0 where no term meets.
    pub score: f32,
    /// The share of the text's terms that the tool knows, each by the weight of its field.
    pub coverage: f32,
    /// A term of the text is a word of the tool's name that is not merely its verb.
    pub object: bool,
    /// The text has the verb of the tool's name.
    pub verb: bool,
    /// How many terms of the text the tool knows.
    pub met: usize,
    /// Whether the tool takes a path or an address, when the text has one.
    pub takes_value: bool,
}

/// A text, ready to be compared.
#[derive(Debug)]
pub(super) struct Query {
    text: String,
    /// The terms that say what is wanted.
    pub terms: BTreeSet<String>,
    /// The first word of the text that says something.
    pub first: Option<String>,
    /// Whether it is a question.
    pub question: bool,
    /// What the endings of its paths say about their content.
    kinds: BTreeSet<&'static str>,
    path: bool,
    address: bool,
}

impl Query {
    pub(super) fn of(text: &str) -> Self {
        let (mut wanted, mut first, mut kinds) = (BTreeSet::new(), None, BTreeSet::new());
        let (mut path, mut address, mut begins, mut quoted) = (false, false, true, false);
        for token in text.split_whitespace() {
            let bare = token.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '/' | '~' | '_'));
            let is_path = bare.starts_with('/') || bare.starts_with("~/") || token.contains(":\\");
            let is_address = bare.starts_with("http://") || bare.starts_with("https://");
            path |= is_path;
            kinds.extend(kind(bare));
            address |= is_address;
            // A capital within a sentence, a number, a path or a quotation is a value for the tool, not a word about it.
            let capital = bare.chars().next().is_some_and(char::is_uppercase) && !begins;
            quoted |= token.starts_with(['"', '“', '«', '`']);
            let value = is_path || is_address || capital || quoted || bare.parse::<f64>().is_ok();
            quoted &= !token.trim_end_matches(['.', ',', '?', '!', ';', ':']).ends_with(['"', '”', '»', '`']);
            begins = token.ends_with(['.', '!', '?', ':', '\n']);
            if value {
                continue;
            }
            for word in split(bare).into_iter().filter(|word| !is_stop(word)) {
                let term = stem(&word);
                let _ = first.get_or_insert_with(|| term.clone());
                let _ = wanted.insert(term);
            }
        }
        let opening = split(text).into_iter().next().unwrap_or_default();
        if opening == "which" && !wanted.is_empty() {
            // *Which files are there?* asks for a list.
            let _ = wanted.insert("list".to_owned());
        }
        let question = text.trim_end().ends_with(['?', '？'])
            || matches!(opening.as_str(), "what" | "when" | "where" | "which" | "who" | "how" | "is" | "are" | "does");
        Self { text: text.to_lowercase(), terms: wanted, first, question, kinds, path, address }
    }
}

/// What kind of content a file's ending promises.
fn kind(file: &str) -> Option<&'static str> {
    let (_, ending) = file.rsplit_once('.')?;
    match ending.to_lowercase().as_str() {
        "txt" | "md" | "log" | "csv" | "json" | "toml" | "yaml" | "yml" | "xml" | "html" | "rs" | "py" | "js" | "ts" | "c" | "h" | "sh" => {
            Some("text")
        }
        "png" | "jpg" | "jpeg" | "gif" | "webp" | "svg" => Some("imag"),
        "mp3" | "wav" | "ogg" | "flac" => Some("audio"),
        _ => None,
    }
}

/// One tool's terms by field.
struct Indexed {
    verb: Option<String>,
    name: BTreeSet<String>,
    fields: Vec<(f32, BTreeSet<String>)>,
}

impl Indexed {
    fn of(definition: &Definition) -> Self {
        let words = split(&definition.id.name);
        let verb = words.first().filter(|word| VERBS.binary_search(&word.as_str()).is_ok()).cloned();
        let name: BTreeSet<String> = words.iter().map(|word| stem(word)).collect();
        let fields = vec![
            (NAME, name.clone()),
            (TITLE, definition.title.as_deref().map(terms).unwrap_or_default()),
            (DESCRIPTION, terms(&definition.description)),
            (SERVER, terms(definition.id.server.as_str())),
            (PARAMETER, terms(&parameters(&definition.input_schema).join(" "))),
        ];
        Self { verb, name, fields }
    }

    fn weight(&self, term: &str) -> f32 {
        self.fields.iter().filter(|(_, terms)| terms.contains(term)).map(|(weight, _)| *weight).fold(0.0, f32::max)
    }
}

/// Names of a tool's parameters.
fn parameters(schema: &Value) -> Vec<&str> {
    schema.get("properties").and_then(Value::as_object).map(|all| all.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// How well each candidate fits, the best first; equal ones by alias.
pub(super) fn fits(candidates: &[Candidate], query: &Query) -> Vec<Fit> {
    let indexed: Vec<Indexed> = candidates.iter().map(|candidate| Indexed::of(&candidate.definition)).collect();
    let rarity: BTreeMap<&str, f32> = query.terms.iter().map(|term| (term.as_str(), rarity(term, &indexed))).collect();
    let mut fits: Vec<Fit> = (0..candidates.len()).map(|index| fit(index, &candidates[index], &indexed[index], query, &rarity)).collect();
    fits.sort_by(|left, right| {
        let order = right.named.cmp(&left.named).then(right.score.total_cmp(&left.score));
        order.then_with(|| candidates[left.index].alias.cmp(&candidates[right.index].alias))
    });
    fits
}

/// BM25's inverse document frequency of a term over the tools.
#[allow(clippy::cast_precision_loss)] // Counts of tools are far below 2^24.
fn rarity(term: &str, indexed: &[Indexed]) -> f32 {
    let (all, with) = (indexed.len() as f32, indexed.iter().filter(|tool| tool.weight(term) > 0.0).count() as f32);
    (1.0 + (all - with + 0.5) / (with + 0.5)).ln()
}

#[allow(clippy::cast_precision_loss)] // Counts of words.
fn fit(index: usize, candidate: &Candidate, tool: &Indexed, query: &Query, rarity: &BTreeMap<&str, f32>) -> Fit {
    let definition = &candidate.definition;
    let (mut score, mut known, mut met, mut object) = (0.0, 0.0, 0, false);
    let verb_term = tool.verb.as_deref().map(stem);
    for term in &query.terms {
        let weight = tool.weight(term);
        if weight > 0.0 {
            score += weight * rarity.get(term.as_str()).copied().unwrap_or_default();
            // A term that a tool merely speaks of counts for more of the coverage than of the score.
            known += f32::max(weight, if weight >= DESCRIPTION { 0.75 } else { 0.0 });
            met += 1;
            object |= tool.name.contains(term) && verb_term.as_ref() != Some(term);
        }
    }
    let schema = &definition.input_schema;
    let takes = |words: &[&str]| parameters(schema).iter().any(|name| split(name).iter().any(|word| words.contains(&word.as_str())));
    let takes_value =
        (query.path && takes(&["path", "paths", "file", "directory", "folder", "source"])) || (query.address && takes(&["url", "uri"]));
    if takes_value && score > 0.0 {
        score += HINT;
    }
    score += query.kinds.iter().map(|kind| HINT * tool.weight(kind)).sum::<f32>();
    // Values that the tool needs and that the person is less likely to have said.
    let required = schema.get("required").and_then(Value::as_array).map_or(0, Vec::len);
    score /= 1.0 + 0.1 * required as f32;
    if query.question && tool.verb.as_deref().is_some_and(|verb| READING.contains(&verb)) {
        score *= 1.2;
    }
    if definition.description.to_lowercase().contains("deprecated") {
        score *= 0.6;
    }
    let verb = verb_term.is_some_and(|verb| query.terms.contains(&verb));
    let coverage = if query.terms.is_empty() { 0.0 } else { known / query.terms.len() as f32 };
    Fit { index, named: named(candidate, query), score, coverage, object, verb, met, takes_value }
}

/// Whether the text spells the tool's name out: a name of several words anywhere, or a single word that begins the text.
fn named(candidate: &Candidate, query: &Query) -> bool {
    [candidate.definition.id.name.to_lowercase(), candidate.alias.to_lowercase()].iter().any(|name| {
        if name.is_empty() {
            return false;
        }
        let parts = split(name);
        let begins = parts.len() == 1 && query.first.as_deref() == Some(stem(&parts[0]).as_str());
        let several = name.contains(['_', '-', '.', '/']) || !name.is_ascii() || split(&candidate.definition.id.name).len() > 1;
        begins || query.text.trim() == name || (several && spelled(&query.text, name))
    })
}

/// Whether `name` stands in `text` as a whole word.
fn spelled(text: &str, name: &str) -> bool {
    let joins = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    text.match_indices(name).any(|(at, _)| {
        let (before, after) = (text[..at].chars().next_back(), text[at + name.len()..].chars().next());
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_values_are_not_words() {
        assert!(VERBS.is_sorted());
        let query = Query::of("What time is it in Tokyo? See /tmp/notes.txt and \"quoted words\" 42");
        let words: Vec<&str> = query.terms.iter().map(String::as_str).collect();
        assert_eq!(words, ["see", "tim"]);
        assert!(query.question && query.path && !query.address);
        assert!(spelled("use read_file now", "read_file"));
        assert!(!spelled("use read_files now", "read_file"));
    }
}
