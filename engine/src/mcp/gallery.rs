//! The gallery: well-known servers, what each is good for, what it needs, and what it asks.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::config::{Entry, Error};
use super::form::{self, Answers, Field, literally};
use crate::secret::Secret;

const SHIPPED: &str = include_str!("../../../resources/gallery.toml");

/// A server of the gallery.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offer {
    /// Names it, and its entry.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// What it does.
    pub description: String,
    /// What it is good for, in single words.
    pub capabilities: Vec<String>,
    /// Where more stands about it.
    pub homepage: String,
    /// The program that starts it; none for an address.
    pub command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Its address, where it is no program.
    pub url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Other programs that it needs.
    #[serde(default)]
    pub needs: Vec<String>,
    startup_timeout: Option<u64>,
    #[serde(default)]
    fields: Vec<Asked>,
}

/// A field, and how its answer stands in the entry.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Asked {
    #[serde(flatten)]
    field: Field,
    /// What stands in the entry where the answer is yes; nothing where it is no.
    when_true: Option<String>,
}

/// Whether a server of the gallery could be started here.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Check {
    /// Which one.
    pub id: String,
    /// Whether everything that it needs is there.
    pub ready: bool,
    /// The programs that were found, and where.
    pub found: Vec<(String, String)>,
    /// What is missing, where it was looked for, and what to do.
    pub missing: Vec<String>,
    /// The answers that it needs, by key.
    pub asks: Vec<String>,
}

/// What a server of the gallery becomes with a person's answers.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) value: Value,
    pub(super) entry: Entry,
    pub(super) secrets: Vec<(String, Secret)>,
}

#[derive(Deserialize)]
struct File {
    server: Vec<Offer>,
}

/// All servers of the gallery.
#[must_use]
pub fn offers() -> Vec<Offer> {
    match toml::from_str::<File>(SHIPPED) {
        Ok(file) => file.server,
        // A test holds the shipped file against this.
        Err(error) => {
            tracing::error!(%error, "the gallery is broken");
            Vec::new()
        }
    }
}

impl Offer {
    /// What it asks for.
    #[must_use]
    pub fn fields(&self) -> Vec<Field> {
        self.fields.iter().map(|asked| asked.field.clone()).collect()
    }

    /// The programs that must be there.
    #[must_use]
    pub fn programs(&self) -> Vec<&str> {
        self.command.iter().chain(&self.needs).map(String::as_str).collect()
    }

    /// The server's entry, switched off.
    pub(super) fn make(&self, id: &str, answers: &Answers) -> Result<Made, Error> {
        let wrong = |wrong: form::Wrong| Error::Field { server: id.to_owned(), field: Some(wrong.field), reason: wrong.reason };
        let texts = form::check(&self.fields(), answers).map_err(|all| match all.into_iter().next() {
            Some(first) => wrong(first),
            None => wrong(form::Wrong { field: String::new(), reason: "the answers do not fit".to_owned() }),
        })?;
        let mut secrets = Vec::new();
        let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for Asked { field, when_true } in &self.fields {
            let given = texts.get(&field.key).cloned().unwrap_or_default();
            let shown = match when_true {
                Some(text) => given.iter().filter(|answer| *answer == "true").map(|_| text.clone()).collect(),
                None if field.sensitive => given
                    .into_iter()
                    .enumerate()
                    .map(|(number, text)| {
                        let name = form::secret_name(id, &field.key, number);
                        secrets.push((name.clone(), Secret::new(text)));
                        format!("${{secret:{name}}}")
                    })
                    .collect(),
                None => given.iter().map(|text| literally(text)).collect(),
            };
            let _ = values.insert(&field.key, shown);
        }
        let value = self.value(&values);
        let entry = Entry::read(id, &value).checked(id)?;
        Ok(Made { value, entry, secrets })
    }

    fn value(&self, values: &BTreeMap<&str, Vec<String>>) -> Value {
        let filled = |pairs: &BTreeMap<String, String>| -> Map<String, Value> {
            let whole = |text: &str| fill(text, values).into_iter().next();
            pairs.iter().filter_map(|(name, text)| Some((name.clone(), json!(whole(text)?)))).collect()
        };
        let mut entry = Map::new();
        let mut put = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
        if let Some(command) = &self.command {
            put("command", json!(command));
            put("args", json!(self.args.iter().flat_map(|text| fill(text, values)).collect::<Vec<_>>()));
        }
        if let Some(url) = &self.url {
            put("type", json!("http"));
            put("url", json!(url));
        }
        for (name, pairs) in [("env", filled(&self.env)), ("headers", filled(&self.headers))] {
            if !pairs.is_empty() {
                put(name, Value::Object(pairs));
            }
        }
        put("description", json!(self.description));
        put("capabilities", json!(self.capabilities));
        if let Some(seconds) = self.startup_timeout {
            put("startupTimeout", json!(seconds));
        }
        put("active", json!(false));
        Value::Object(entry)
    }
}

/// `{KEY}` with its answers. A text that is nothing but that becomes as many as there are; elsewhere the first one counts.
fn fill(text: &str, values: &BTreeMap<&str, Vec<String>>) -> Vec<String> {
    for (key, answers) in values {
        let place = format!("{{{key}}}");
        if text == place {
            return answers.clone();
        }
        if text.contains(&place) {
            return answers.first().map(|answer| text.replace(&place, answer)).into_iter().collect();
        }
    }
    vec![text.to_owned()]
}

#[cfg(test)]
mod tests {
    use super::super::config::Transport;
    use super::*;

    #[test]
    fn the_shipped_gallery_is_whole() {
        let offers = offers();
        for wanted in [
            "filesystem",
            "fetch",
            "git",
            "time",
            "memory",
            "sequential-thinking",
            "everything",
            "browser",
            "brave-search",
            "tavily",
            "exa",
        ] {
            assert!(offers.iter().any(|offer| offer.id == wanted), "{wanted}");
        }
        let mut ids: Vec<&str> = offers.iter().map(|offer| offer.id.as_str()).collect();
        ids.dedup();
        assert_eq!(ids.len(), offers.len());
        let folder = tempfile::tempdir().unwrap();
        for offer in &offers {
            assert!(
                !offer.description.is_empty() && !offer.capabilities.is_empty() && offer.homepage.starts_with("https://"),
                "{}",
                offer.id
            );
            assert!(offer.command.is_some() != offer.url.is_some(), "{}", offer.id);
            let fields = offer.fields();
            // Every field stands somewhere, and nothing stands for a field that is not there.
            let answers: Answers = fields
                .iter()
                .map(|field| {
                    let value = match field.kind {
                        form::Kind::Directory => json!(folder.path()),
                        form::Kind::Boolean => json!(true),
                        form::Kind::String | form::Kind::Number | form::Kind::File => json!(format!("answer-{}", field.key)),
                    };
                    (field.key.clone(), value)
                })
                .collect();
            let made = offer.make(&offer.id, &answers).unwrap();
            assert_eq!(made.entry.problem, None, "{}", offer.id);
            assert!(!made.entry.config.active, "{}", offer.id);
            let text = made.value.to_string();
            for field in &fields {
                let shown = match (field.kind, field.sensitive) {
                    (_, true) => format!("${{secret:{}.{}}}", offer.id, field.key),
                    (form::Kind::Directory, _) => folder.path().display().to_string(),
                    (form::Kind::Boolean, _) => "--".to_owned(),
                    _ => format!("answer-{}", field.key),
                };
                assert!(text.contains(&shown), "{}: {text}", offer.id);
                assert!(!text.contains(&format!("{{{}}}", field.key)), "{}: {text}", offer.id);
            }
            assert_eq!(made.secrets.len(), fields.iter().filter(|field| field.sensitive).count());
        }
    }

    #[test]
    fn answers_go_where_they_belong() {
        let offers = offers();
        let offer = |id: &str| offers.iter().find(|offer| offer.id == id).unwrap();
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let made = offer("filesystem").make("filesystem", &Answers::from([("folders".to_owned(), json!([a.path(), b.path()]))])).unwrap();
        let Transport::Stdio { args, .. } = &made.entry.config.transport else { panic!() };
        assert_eq!(args[2..], [a.path().display().to_string(), b.path().display().to_string()]);
        let Error::Field { field, .. } = offer("filesystem").make("filesystem", &Answers::new()).unwrap_err() else { panic!() };
        assert_eq!(field.as_deref(), Some("folders"));
        let made = offer("tavily").make("mine", &Answers::from([("key".to_owned(), json!("topsecret"))])).unwrap();
        assert!(!made.value.to_string().contains("topsecret"));
        assert_eq!((made.secrets[0].0.as_str(), made.secrets[0].1.reveal()), ("mine.key", "topsecret"));
        // Without an answer there is no variable at all.
        let made = offer("memory").make("memory", &Answers::new()).unwrap();
        assert_eq!(made.value.get("env"), None);
        let made = offer("browser").make("browser", &Answers::new()).unwrap();
        assert_eq!(made.value["args"], json!(["-y", "@playwright/mcp@latest"]));
    }
}
