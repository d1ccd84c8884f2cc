//! Every string that a person reads, from `resources/locales`.

use fluent_bundle::{FluentArgs, FluentBundle, FluentResource, FluentValue};
use unic_langid::LanguageIdentifier;

/// A language that Handrail speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    /// English.
    #[default]
    English,
    /// Simplified Chinese.
    Chinese,
}

impl Language {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::English, Self::Chinese];

    /// Its tag, as it stands in the settings.
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Chinese => "zh-CN",
        }
    }

    /// Its name in itself.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::English => "English",
            Self::Chinese => "简体中文",
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Self::English => include_str!("../../resources/locales/en/main.ftl"),
            Self::Chinese => include_str!("../../resources/locales/zh-CN/main.ftl"),
        }
    }

    /// The language of a setting; an empty one follows the system.
    #[must_use]
    pub fn of_setting(setting: &str) -> Self {
        if !setting.is_empty() {
            return Self::of_tag(setting);
        }
        let named = ["LC_ALL", "LC_MESSAGES", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok());
        named.filter(|value| !value.is_empty()).map(|value| Self::of_tag(&value)).next().unwrap_or_default()
    }

    fn of_tag(tag: &str) -> Self {
        if tag.to_ascii_lowercase().starts_with("zh") { Self::Chinese } else { Self::English }
    }
}

/// The strings of one language.
pub struct Locale {
    language: Language,
    bundle: FluentBundle<FluentResource>,
    copy: String,
}

impl std::fmt::Debug for Locale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Locale").field(&self.language).finish()
    }
}

impl Locale {
    /// Loads a language.
    #[must_use]
    pub fn new(language: Language) -> Self {
        let tag: LanguageIdentifier = language.tag().parse().unwrap_or_default();
        let mut bundle = FluentBundle::new(vec![tag]);
        // The marks around values would show up in copied text.
        bundle.set_use_isolating(false);
        // What is wrong with a resource is found by the test below; the good messages of it still work.
        let resource = FluentResource::try_new(language.source().to_owned()).unwrap_or_else(|(resource, _)| resource);
        if let Err(errors) = bundle.add_resource(resource) {
            tracing::warn!(?errors, "the locale has errors");
        }
        let mut locale = Self { language, bundle, copy: String::new() };
        locale.copy = locale.t("call-copy");
        locale
    }

    /// The label of copy buttons, for widgets that borrow their words.
    #[must_use]
    pub fn copy(&self) -> &str {
        &self.copy
    }

    /// Which language this is.
    #[must_use]
    pub const fn language(&self) -> Language {
        self.language
    }

    /// A string.
    #[must_use]
    pub fn t(&self, key: &str) -> String {
        self.format(key, None)
    }

    /// A string with values in it.
    #[must_use]
    pub fn tv<'v, const N: usize>(&self, key: &str, values: [(&'v str, FluentValue<'v>); N]) -> String {
        let arguments: FluentArgs<'_> = values.into_iter().collect();
        self.format(key, Some(&arguments))
    }

    fn format(&self, key: &str, arguments: Option<&FluentArgs<'_>>) -> String {
        let Some(pattern) = self.bundle.get_message(key).and_then(|message| message.value()) else {
            return key.to_owned();
        };
        let mut errors = Vec::new();
        self.bundle.format_pattern(pattern, arguments, &mut errors).into_owned()
    }

    /// Bytes for people: "98.4 MB".
    #[must_use]
    pub fn bytes(&self, bytes: u64) -> String {
        let (mut value, mut unit) = (bytes as f64, 0);
        let units = ["B", "kB", "MB", "GB", "TB"];
        while value >= 1000.0 && unit + 1 < units.len() {
            value /= 1000.0;
            unit += 1;
        }
        if unit == 0 || value >= 100.0 { format!("{value:.0} {}", units[unit]) } else { format!("{value:.1} {}", units[unit]) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn keys(language: Language) -> BTreeSet<String> {
        let source = language.source();
        let lines = source.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_lowercase()));
        lines.filter_map(|line| line.split_once('=')).map(|(key, _)| key.trim().to_owned()).collect()
    }

    fn sources(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }

    fn used() -> BTreeSet<String> {
        let mut all = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut all);
        let mut used = BTreeSet::new();
        for source in &all {
            for mark in ["t(\"", "tv(\"", "key!(\""] {
                for piece in source.split(mark).skip(1) {
                    let key = piece.split('"').next().unwrap();
                    if key.contains('-') && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-') {
                        let _ = used.insert(key.to_owned());
                    }
                }
            }
        }
        used
    }

    #[test]
    fn both_languages_have_the_same_keys_and_every_key_in_the_code_exists() {
        let (english, chinese) = (keys(Language::English), keys(Language::Chinese));
        assert_eq!(english.difference(&chinese).collect::<Vec<_>>(), Vec::<&String>::new(), "missing in Chinese");
        assert_eq!(chinese.difference(&english).collect::<Vec<_>>(), Vec::<&String>::new(), "missing in English");
        let used = used();
        assert!(used.len() > 50, "{} keys found in the code", used.len());
        assert_eq!(used.difference(&english).collect::<Vec<_>>(), Vec::<&String>::new(), "used, but not defined");
        assert_eq!(english.difference(&used).collect::<Vec<_>>(), Vec::<&String>::new(), "defined, but not used");
    }

    #[test]
    fn the_resources_have_no_errors() {
        for language in Language::ALL {
            assert!(FluentResource::try_new(language.source().to_owned()).is_ok(), "{language:?}");
        }
    }

    #[test]
    fn values_are_put_in_without_marks() {
        let locale = Locale::new(Language::English);
        assert_eq!(locale.tv("model-size", [("size", "98 MB".into())]), "98 MB");
        assert_eq!(locale.bytes(98_362_432), "98.4 MB");
        assert_eq!(locale.bytes(512), "512 B");
    }
}
