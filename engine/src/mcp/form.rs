//! A typed form: what a bundle or a gallery entry must be told before it is a server, and what a person answered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tool::SchemaHash;

/// Longest answer; a whole list of folders may be one.
const LONGEST: usize = 32 * 1024;
/// Most answers of one field.
const MOST: usize = 256;

/// One field of a form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Field {
    /// Names it in the entry and on the command line.
    #[serde(default)]
    pub key: String,
    /// Its label.
    #[serde(default)]
    pub title: String,
    /// What it is for.
    #[serde(default)]
    pub description: String,
    /// What may be answered.
    #[serde(rename = "type", default)]
    pub kind: Kind,
    /// Whether there is no server without an answer.
    #[serde(default)]
    pub required: bool,
    /// What counts where nothing is answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// Whether the answer is a secret: it is kept in the keyring, and the entry only names it.
    #[serde(default)]
    pub sensitive: bool,
    /// Whether there may be several answers.
    #[serde(default)]
    pub multiple: bool,
    /// The least number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The greatest number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
}

/// What may be answered to a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A text.
    #[default]
    String,
    /// A number.
    Number,
    /// Yes or no.
    Boolean,
    /// A folder that is there.
    Directory,
    /// A file that is there.
    File,
}

/// What a person answered: a text, number, truth value, or a list of them, by key.
pub type Answers = BTreeMap<String, Value>;

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The field's key.
    pub field: String,
    /// Why, and what to do.
    pub reason: String,
}

impl Field {
    /// The label, or the key where there is none.
    #[must_use]
    pub fn label(&self) -> &str {
        if self.title.is_empty() { &self.key } else { &self.title }
    }

    /// The answers to this field as texts; none where there is none and none is needed.
    fn texts(&self, answer: Option<&Value>) -> Result<Vec<String>, String> {
        let blank = |value: &&Value| value.is_null() || value.as_str().is_some_and(|text| text.trim().is_empty());
        let given: Vec<&Value> = match answer.filter(|answer| !blank(answer)).or(self.default.as_ref()) {
            None => Vec::new(),
            Some(Value::Array(list)) => list.iter().filter(|value| !blank(value)).collect(),
            Some(value) => Some(value).into_iter().filter(|value| !blank(value)).collect(),
        };
        if given.is_empty() && self.required {
            return Err("it is needed".to_owned());
        }
        if given.len() > 1 && !self.multiple {
            return Err("it takes one value".to_owned());
        }
        if given.len() > MOST {
            return Err(format!("it takes at most {MOST} values"));
        }
        given.into_iter().map(|value| self.text(value)).collect()
    }

    fn text(&self, value: &Value) -> Result<String, String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Bool(truth) => truth.to_string(),
            Value::Null | Value::Array(_) | Value::Object(_) => return Err("it must be a text, a number or yes or no".to_owned()),
        };
        if text.len() > LONGEST || text.contains('\0') {
            return Err(format!("it is longer than {LONGEST} bytes, or holds a NUL character"));
        }
        match self.kind {
            Kind::String => Ok(text),
            Kind::Number => self.number(&text),
            Kind::Boolean => match text.trim().to_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Ok("true".to_owned()),
                "false" | "no" | "off" | "0" => Ok("false".to_owned()),
                _ => Err("it must be true or false".to_owned()),
            },
            Kind::Directory | Kind::File => self.place(&text),
        }
    }

    fn number(&self, text: &str) -> Result<String, String> {
        let number: f64 = text.trim().parse().map_err(|_| "it must be a number".to_owned())?;
        let (min, max) = (self.min.unwrap_or(f64::NEG_INFINITY), self.max.unwrap_or(f64::INFINITY));
        if !number.is_finite() || number < min || number > max {
            let least = self.min.map(|min| format!(" from {min}")).unwrap_or_default();
            let most = self.max.map(|max| format!(" to {max}")).unwrap_or_default();
            return Err(format!("it must be a number{least}{most}"));
        }
        Ok(text.trim().to_owned())
    }

    fn place(&self, text: &str) -> Result<String, String> {
        let path = std::path::PathBuf::from(known_folders(text.trim()));
        let (there, what) = if self.kind == Kind::Directory { (path.is_dir(), "folder") } else { (path.is_file(), "file") };
        if !there {
            return Err(format!("there is no {what} {}", path.display()));
        }
        // A server is started in another folder, where a relative name means something else.
        let path = std::path::absolute(&path).map_err(|error| format!("{} cannot be used: {error}", path.display()))?;
        path.to_str().map(str::to_owned).ok_or_else(|| format!("{} is no text", path.display()))
    }
}

/// The answers to all fields, checked, as texts: none, one, or many by key. Everything that is wrong is named.
pub(super) fn check(fields: &[Field], answers: &Answers) -> Result<BTreeMap<String, Vec<String>>, Vec<Wrong>> {
    let mut wrong: Vec<Wrong> = answers
        .keys()
        .filter(|key| !fields.iter().any(|field| field.key == **key))
        .map(|key| Wrong {
            field: key.clone(),
            reason: format!("there is no such field; there are {}", list(fields.iter().map(|field| field.key.as_str()))),
        })
        .collect();
    let mut texts = BTreeMap::new();
    for field in fields {
        match field.texts(answers.get(&field.key)) {
            Ok(found) => drop(texts.insert(field.key.clone(), found)),
            Err(reason) => wrong.push(Wrong { field: field.key.clone(), reason: format!("{}: {reason}", field.label()) }),
        }
    }
    if wrong.is_empty() { Ok(texts) } else { Err(wrong) }
}

fn list<'a>(keys: impl Iterator<Item = &'a str>) -> String {
    let keys: Vec<&str> = keys.collect();
    if keys.is_empty() { "none".to_owned() } else { keys.join(", ") }
}

/// `${HOME}` and its like, and `~`, which bundles may use in defaults.
pub(super) fn known_folders(text: &str) -> String {
    let Some(dirs) = directories::UserDirs::new() else { return text.to_owned() };
    let home = dirs.home_dir();
    let mut text = text.to_owned();
    if let Some(rest) = text.strip_prefix("~/") {
        text = home.join(rest).display().to_string();
    } else if text == "~" {
        text = home.display().to_string();
    }
    for (name, folder) in [
        ("${HOME}", Some(home)),
        ("${DESKTOP}", dirs.desktop_dir()),
        ("${DOCUMENTS}", dirs.document_dir()),
        ("${DOWNLOADS}", dirs.download_dir()),
    ] {
        if text.contains(name) {
            text = text.replace(name, &folder.unwrap_or(home).display().to_string());
        }
    }
    text
}

/// The name of the secret that answers a field of a server; `number` counts from 0.
pub(super) fn secret_name(server: &str, key: &str, number: usize) -> String {
    let end = if number == 0 { format!(".{key}") } else { format!(".{key}.{}", number + 1) };
    format!("{}{end}", secret_start(server))
}

/// What the names of a server's own secrets start with. Keyrings take letters, digits and a few signs; a name that has to
/// be changed for that gets a hash, so that two servers never share their secrets.
pub(super) fn secret_start(server: &str) -> String {
    /// Enough of the hash that names of one person's servers do not meet.
    const HASH: usize = 8;
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    let plain: String = server.chars().map(fits).take(60).collect();
    if plain == server { plain } else { format!("{plain}-{}", &SchemaHash::of(&Value::from(server)).to_hex()[..HASH]) }
}

/// Keeps a text from being filled in when the server is started.
pub(super) fn literally(text: &str) -> String {
    text.replace("${", "$${")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(value: Value) -> Field {
        serde_json::from_value(value).unwrap()
    }

    fn answer(field: &Field, value: Value) -> Result<Vec<String>, String> {
        field.texts(Some(&value))
    }

    #[test]
    fn each_kind_takes_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("f");
        std::fs::write(&file, "").unwrap();
        let number = field(json!({"key": "n", "type": "number", "min": 1, "max": 10}));
        assert_eq!(answer(&number, json!(5)).unwrap(), ["5"]);
        assert_eq!(answer(&number, json!(" 2.5 ")).unwrap(), ["2.5"]);
        for wrong in [json!(0), json!(11), json!("many"), json!("NaN"), json!([1, 2]), json!({})] {
            assert!(answer(&number, wrong.clone()).is_err(), "{wrong}");
        }
        let truth = field(json!({"key": "b", "type": "boolean"}));
        assert_eq!(answer(&truth, json!("Yes")).unwrap(), ["true"]);
        assert_eq!(answer(&truth, json!(false)).unwrap(), ["false"]);
        assert!(answer(&truth, json!("maybe")).is_err());
        let folders = field(json!({"key": "d", "type": "directory", "multiple": true}));
        assert_eq!(answer(&folders, json!([folder.path(), folder.path()])).unwrap().len(), 2);
        assert!(answer(&folders, json!([file])).unwrap_err().contains("no folder"));
        let one = field(json!({"key": "f", "type": "file"}));
        assert_eq!(answer(&one, json!(file)).unwrap(), [file.display().to_string()]);
        assert!(answer(&one, json!(folder.path())).unwrap_err().contains("no file"));
    }

    #[test]
    fn what_is_needed_must_be_there_and_defaults_count() {
        let needed = field(json!({"key": "k", "required": true}));
        for nothing in [Value::Null, json!(""), json!("  "), json!([]), json!([null])] {
            assert!(answer(&needed, nothing.clone()).is_err(), "{nothing}");
        }
        let preset = field(json!({"key": "k", "required": true, "default": "d"}));
        assert_eq!(preset.texts(None).unwrap(), ["d"]);
        assert_eq!(answer(&preset, json!("")).unwrap(), ["d"]);
        assert_eq!(answer(&preset, json!("mine")).unwrap(), ["mine"]);
        assert_eq!(field(json!({"key": "k"})).texts(None).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn everything_that_is_wrong_is_named() {
        let fields = [field(json!({"key": "a", "required": true, "title": "Key"})), field(json!({"key": "n", "type": "number"}))];
        let answers = Answers::from([("n".to_owned(), json!("x")), ("other".to_owned(), json!(1))]);
        let wrong = check(&fields, &answers).unwrap_err();
        assert_eq!(wrong.iter().map(|wrong| wrong.field.as_str()).collect::<Vec<_>>(), ["other", "a", "n"]);
        assert!(wrong[0].reason.contains("a, n") && wrong[1].reason.contains("Key"), "{wrong:?}");
    }

    #[test]
    fn a_secrets_name_is_plain() {
        assert_eq!(secret_name("my_server", "key", 0), "my_server.key");
        assert_eq!(secret_name("b", "key", 1), "b.key.2");
        let (blank, chinese) = (secret_name("my server", "key", 0), secret_name("文件", "key", 0));
        assert!(blank.starts_with("my_server-") && chinese.starts_with("__-") && chinese.is_ascii(), "{blank} {chinese}");
        assert_ne!(chinese, secret_name("日历", "key", 0));
    }

    #[test]
    fn an_answer_is_never_filled_in() {
        assert_eq!(literally("a${secret:x}b"), "a$${secret:x}b");
    }
}
