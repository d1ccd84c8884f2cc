//! `mcpSettings`: what holds for all servers, value by value. One that is wrong is named, and its default is used.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Error;

const TIMEOUT: &str = "toolCallTimeoutSeconds";
const BASE: &str = "baseRestartDelayMs";
const LONGEST: &str = "maxRestartDelayMs";
const MULTIPLIER: &str = "backoffMultiplier";
const ROUTING: &str = "enableSmartToolRouting";
const SHARE: &str = "routingShare";
const TOOLS: &str = "maxRoutedTools";
const ROUTER: &str = "routerModel";
const OUTPUT: &str = "maxToolOutputCharacters";
const SAMPLING: &str = "allowSampling";
const ROOTS: &str = "roots";

/// Most folders that servers are told of.
const MOST_ROOTS: usize = 100;

/// What holds for all servers: the file's `mcpSettings`.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// How long a call may stay silent; at least one second.
    pub tool_call_timeout: Duration,
    /// The first pause before a reconnect.
    pub base_restart_delay: Duration,
    /// The longest pause before a reconnect.
    pub max_restart_delay: Duration,
    /// By what the pause grows each time; at least 1.
    pub backoff_multiplier: f64,
    /// Whether a model is shown only the tools that fit.
    pub enable_smart_tool_routing: bool,
    /// Tools are chosen when the definitions of all cost more than this share of the context.
    pub routing_share: f64,
    /// Most tools shown to a model while they are chosen.
    pub max_routed_tools: usize,
    /// How much of a tool's result is kept in the context, in characters.
    pub max_tool_output_characters: usize,
    /// The model that routes, where not the chat model.
    pub router_model: Option<String>,
    /// Whether servers may ask our model to write (sampling). Each time the person is asked all the same.
    pub allow_sampling: bool,
    /// The folders that the person granted: servers that ask for roots are told these. A server is not kept from others by
    /// that; it is told where it is wanted.
    pub roots: Vec<PathBuf>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            tool_call_timeout: Duration::from_secs(30),
            base_restart_delay: Duration::from_millis(1000),
            max_restart_delay: Duration::from_millis(30_000),
            backoff_multiplier: 2.0,
            enable_smart_tool_routing: true,
            routing_share: 0.05,
            max_routed_tools: 30,
            max_tool_output_characters: 40_000,
            router_model: None,
            allow_sampling: false,
            roots: Vec::new(),
        }
    }
}

impl Settings {
    /// Reads the values over `base`, which holds what is used where the file says nothing or something wrong.
    pub(in crate::mcp) fn read(found: Option<&Value>, base: &Self) -> (Self, Vec<Error>) {
        let nothing = Map::new();
        let mut reader = Reader { found: found.and_then(Value::as_object).unwrap_or(&nothing), errors: Vec::new() };
        if found.is_some_and(|found| !found.is_object()) {
            reader.wrong("mcpSettings", "it must be an object { … }");
        }
        let mut settings = Self {
            tool_call_timeout: reader.seconds(TIMEOUT, 1.0..=86_400.0).unwrap_or(base.tool_call_timeout),
            base_restart_delay: reader.milliseconds(BASE, 10..=3_600_000).unwrap_or(base.base_restart_delay),
            max_restart_delay: reader.milliseconds(LONGEST, 10..=86_400_000).unwrap_or(base.max_restart_delay),
            backoff_multiplier: reader.number(MULTIPLIER, 1.0..=100.0).unwrap_or(base.backoff_multiplier),
            enable_smart_tool_routing: reader.truth(ROUTING).unwrap_or(base.enable_smart_tool_routing),
            routing_share: reader.number(SHARE, 0.0..=1.0).unwrap_or(base.routing_share),
            max_routed_tools: reader.count(TOOLS, 1..=1000).unwrap_or(base.max_routed_tools),
            max_tool_output_characters: reader.count(OUTPUT, 100..=10_000_000).unwrap_or(base.max_tool_output_characters),
            router_model: reader.text(ROUTER).or_else(|| base.router_model.clone()),
            allow_sampling: reader.truth(SAMPLING).unwrap_or(base.allow_sampling),
            roots: reader.folders(ROOTS).unwrap_or_else(|| base.roots.clone()),
        };
        if settings.max_restart_delay < settings.base_restart_delay {
            reader.wrong(LONGEST, &format!("it must not be less than \"{BASE}\""));
            settings.max_restart_delay = base.max_restart_delay.max(settings.base_restart_delay);
        }
        (settings, reader.errors)
    }

    /// Writes the values that are others than `before`; what the file holds beside them stays.
    pub(in crate::mcp) fn write(&self, before: &Self, into: &mut Map<String, Value>) {
        let milliseconds = |delay: Duration| json!(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        let seconds = |settings: &Self| {
            let seconds = settings.tool_call_timeout;
            if seconds.subsec_nanos() == 0 { json!(seconds.as_secs()) } else { json!(seconds.as_secs_f64()) }
        };
        let values = |settings: &Self| {
            [
                (TIMEOUT, seconds(settings)),
                (BASE, milliseconds(settings.base_restart_delay)),
                (LONGEST, milliseconds(settings.max_restart_delay)),
                (MULTIPLIER, json!(settings.backoff_multiplier)),
                (ROUTING, json!(settings.enable_smart_tool_routing)),
                (SHARE, json!(settings.routing_share)),
                (TOOLS, json!(settings.max_routed_tools)),
                (OUTPUT, json!(settings.max_tool_output_characters)),
                (ROUTER, json!(settings.router_model)),
                (SAMPLING, json!(settings.allow_sampling)),
                (ROOTS, json!(settings.roots)),
            ]
        };
        for ((name, now), (_, old)) in values(self).into_iter().zip(values(before)) {
            if now.is_null() {
                let _ = into.shift_remove(name);
            } else if now != old {
                let _ = into.insert(name.to_owned(), now);
            }
        }
    }
}

struct Reader<'a> {
    found: &'a Map<String, Value>,
    errors: Vec<Error>,
}

impl Reader<'_> {
    fn wrong(&mut self, field: &str, reason: &str) {
        self.errors.push(Error::Setting { field: field.to_owned(), reason: reason.to_owned() });
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.found.get(field).filter(|value| !value.is_null())
    }

    fn number(&mut self, field: &str, range: RangeInclusive<f64>) -> Option<f64> {
        let value = self.get(field)?.as_f64().filter(|number| range.contains(number));
        if value.is_none() {
            self.wrong(field, &format!("it must be a number from {} to {}; the default is used", range.start(), range.end()));
        }
        value
    }

    fn count(&mut self, field: &str, range: RangeInclusive<u64>) -> Option<usize> {
        // A whole number may be written as 40000.0.
        let number = self.get(field)?;
        let whole = number
            .as_u64()
            .or_else(|| number.as_f64().filter(|number| number.fract() == 0.0 && *number >= 0.0).map(|number| number as u64));
        let value = whole.filter(|number| range.contains(number)).and_then(|number| usize::try_from(number).ok());
        if value.is_none() {
            self.wrong(field, &format!("it must be a whole number from {} to {}; the default is used", range.start(), range.end()));
        }
        value
    }

    fn seconds(&mut self, field: &str, range: RangeInclusive<f64>) -> Option<Duration> {
        self.number(field, range).map(Duration::from_secs_f64)
    }

    fn milliseconds(&mut self, field: &str, range: RangeInclusive<u64>) -> Option<Duration> {
        self.count(field, range).map(|number| Duration::from_millis(number as u64))
    }

    fn folders(&mut self, field: &str) -> Option<Vec<PathBuf>> {
        let listed = self.get(field)?.as_array().filter(|listed| listed.len() <= MOST_ROOTS);
        let folder = |value: &Value| value.as_str().map(PathBuf::from).filter(|folder| folder.is_absolute());
        let folders = listed.and_then(|listed| listed.iter().map(folder).collect());
        if folders.is_none() {
            self.wrong(field, &format!("it must be a list of at most {MOST_ROOTS} whole paths of folders; none is used"));
        }
        folders
    }

    fn truth(&mut self, field: &str) -> Option<bool> {
        let value = self.get(field)?.as_bool();
        if value.is_none() {
            self.wrong(field, "it must be true or false; the default is used");
        }
        value
    }

    fn text(&mut self, field: &str) -> Option<String> {
        let value = self.get(field)?.as_str().map(|text| text.trim().to_owned());
        if value.is_none() {
            self.wrong(field, "it must be a text; the default is used");
        }
        value.filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(value: &Value) -> (Settings, Vec<String>) {
        let (settings, errors) = Settings::read(Some(value), &Settings::default());
        let fields = errors.into_iter().map(|error| if let Error::Setting { field, .. } = error { field } else { panic!("{error}") });
        (settings, fields.collect())
    }

    #[test]
    fn every_value_is_read() {
        let (settings, wrong) = read(&json!({
            "toolCallTimeoutSeconds": 5, "baseRestartDelayMs": 20, "maxRestartDelayMs": 50, "backoffMultiplier": 1.5,
            "enableSmartToolRouting": false, "routingShare": 0.1, "maxRoutedTools": 7, "maxToolOutputCharacters": 1000.0,
            "routerModel": "small", "allowSampling": true, "roots": ["/a/b"], "theme": "kept"
        }));
        assert_eq!(wrong, Vec::<String>::new());
        let wanted = Settings {
            tool_call_timeout: Duration::from_secs(5),
            base_restart_delay: Duration::from_millis(20),
            max_restart_delay: Duration::from_millis(50),
            backoff_multiplier: 1.5,
            enable_smart_tool_routing: false,
            routing_share: 0.1,
            max_routed_tools: 7,
            max_tool_output_characters: 1000,
            router_model: Some("small".to_owned()),
            allow_sampling: true,
            roots: vec!["/a/b".into()],
        };
        assert_eq!(settings, wanted);
        assert_eq!(Settings::read(None, &wanted).0, wanted);
    }

    #[test]
    fn a_wrong_value_is_named_and_the_default_runs() {
        for (value, field) in [
            (json!({"toolCallTimeoutSeconds": 0}), "toolCallTimeoutSeconds"),
            (json!({"toolCallTimeoutSeconds": "30"}), "toolCallTimeoutSeconds"),
            (json!({"baseRestartDelayMs": -1}), "baseRestartDelayMs"),
            (json!({"maxRestartDelayMs": 1e30}), "maxRestartDelayMs"),
            (json!({"maxRestartDelayMs": 500}), "maxRestartDelayMs"),
            (json!({"backoffMultiplier": 0.5}), "backoffMultiplier"),
            (json!({"enableSmartToolRouting": "no"}), "enableSmartToolRouting"),
            (json!({"routingShare": 2}), "routingShare"),
            (json!({"maxRoutedTools": 0}), "maxRoutedTools"),
            (json!({"maxToolOutputCharacters": 1.5}), "maxToolOutputCharacters"),
            (json!({"routerModel": 3}), "routerModel"),
            (json!({"allowSampling": 1}), "allowSampling"),
            (json!({"roots": ["relative"]}), "roots"),
            (json!({"roots": "/one"}), "roots"),
            (json!([]), "mcpSettings"),
        ] {
            let (settings, wrong) = read(&value);
            assert_eq!(wrong, [field], "{value}");
            assert_eq!(settings, Settings::default(), "{value}");
        }
        // The right ones beside a wrong one count.
        let (settings, wrong) = read(&json!({"toolCallTimeoutSeconds": 0, "backoffMultiplier": 3}));
        assert_eq!((wrong.len(), settings.backoff_multiplier), (1, 3.0));
    }

    #[test]
    fn only_what_changed_is_written() {
        let mut file = json!({"theme": 1, "routerModel": "old", "backoffMultiplier": 3.0});
        let (before, _) = read(&file);
        let after = Settings { tool_call_timeout: Duration::from_secs(9), router_model: None, allow_sampling: true, ..before.clone() };
        after.write(&before, file.as_object_mut().unwrap());
        assert_eq!(file, json!({"theme": 1, "backoffMultiplier": 3.0, "toolCallTimeoutSeconds": 9, "allowSampling": true}));
        assert_eq!(read(&file).0, after);
    }
}
