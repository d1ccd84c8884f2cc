//! Where in a text the servers are: every program and every age has its own place for them.

use serde_json::{Map, Value};

use super::entry::is_command;

/// How programs name the object that holds the servers; the first one that is there is used.
const SECTIONS: [&[&str]; 6] = [&["mcpServers"], &["servers"], &["mcp", "servers"], &["mcp", "mcpServers"], &["context_servers"], &["mcp"]];

/// Where Handrail itself puts them.
pub(super) const OWN: &[&str] = SECTIONS[0];

/// A text's content, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// What is there beside the servers.
    pub(super) root: Map<String, Value>,
    /// Where in the root the servers are, and stay when it is written.
    pub(super) section: &'static [&'static str],
    pub(super) servers: Map<String, Value>,
    /// Whether the servers stood elsewhere: in a list, or right at the top.
    pub(super) older: bool,
}

impl Shape {
    /// Takes a value apart; the error says what was expected instead.
    pub(super) fn of(value: Value) -> Result<Self, String> {
        let root = match value {
            Value::Object(root) => root,
            Value::Array(list) => return Ok(Self { root: Map::new(), section: OWN, servers: named(list)?, older: true }),
            _ => return Err("expected an object { … }".to_owned()),
        };
        // "mcp" is also the name of other things; with servers in it, it is theirs.
        let holds = |keys: &[&str], found: &Value| {
            keys != ["mcp"] || found.as_object().is_some_and(|found| found.values().any(|value| value.as_object().is_some_and(is_server)))
        };
        let Some(section) = SECTIONS.into_iter().find(|keys| lookup(&root, keys).is_some_and(|found| holds(keys, found))) else {
            return Ok(Self::without_section(root));
        };
        match lookup(&root, section).cloned() {
            Some(Value::Object(servers)) => Ok(Self { root, section, servers, older: false }),
            Some(Value::Array(list)) => {
                let servers = named(list)?;
                let mut root = root;
                take(&mut root, section);
                Ok(Self { root, section: OWN, servers, older: true })
            }
            _ => Err(format!("\"{}\" must be an object with one entry per server", section.join("."))),
        }
    }

    fn without_section(root: Map<String, Value>) -> Self {
        let (mut rest, mut servers) = (Map::new(), Map::new());
        for (name, value) in root {
            let place = if value.as_object().is_some_and(is_server) { &mut servers } else { &mut rest };
            let _ = place.insert(name, value);
        }
        let older = !servers.is_empty();
        Self { root: rest, section: OWN, servers, older }
    }

    /// The whole again, with the servers at their place.
    pub(super) fn whole(&self) -> Map<String, Value> {
        let mut root = self.root.clone();
        set(&mut root, self.section, self.servers.clone());
        root
    }
}

/// Whether an entry says how a server is reached.
pub(super) fn is_server(entry: &Map<String, Value>) -> bool {
    let program = entry.get("command").and_then(|command| command.get("path")).is_some_and(Value::is_string);
    program
        || entry.get("command").is_some_and(is_command)
        || ["command", "url", "serverUrl", "httpUrl"].iter().any(|key| entry.get(*key).is_some_and(Value::is_string))
}

/// A list of entries that carry their names.
fn named(list: Vec<Value>) -> Result<Map<String, Value>, String> {
    let mut servers = Map::new();
    for (number, item) in list.into_iter().enumerate() {
        let Value::Object(mut entry) = item else {
            return Err(format!("entry {} of the list of servers must be an object {{ … }}", number + 1));
        };
        let given =
            ["name", "id"].into_iter().find_map(|key| entry.get(key).and_then(Value::as_str).map(|name| (key, name.trim().to_owned())));
        let name = match given {
            Some((key, name)) if !name.is_empty() => {
                let _ = entry.shift_remove(key);
                name
            }
            _ => format!("server-{}", number + 1),
        };
        let free = free_name(&name, |name| servers.contains_key(name));
        let _ = servers.insert(free, Value::Object(entry));
    }
    Ok(servers)
}

/// The name, with a number behind it where it is taken.
pub(in crate::mcp) fn free_name(name: &str, taken: impl Fn(&str) -> bool) -> String {
    if !taken(name) {
        return name.to_owned();
    }
    (2_u64..).map(|number| format!("{name}-{number}")).find(|name| !taken(name)).unwrap_or_else(|| name.to_owned())
}

fn lookup<'a>(root: &'a Map<String, Value>, keys: &[&str]) -> Option<&'a Value> {
    let (first, rest) = keys.split_first()?;
    let found = root.get(*first)?;
    if rest.is_empty() { Some(found) } else { lookup(found.as_object()?, rest) }
}

fn take(root: &mut Map<String, Value>, keys: &[&str]) {
    let Some((first, rest)) = keys.split_first() else { return };
    if rest.is_empty() {
        let _ = root.shift_remove(*first);
    } else if let Some(inner) = root.get_mut(*first).and_then(Value::as_object_mut) {
        take(inner, rest);
    }
}

fn set(root: &mut Map<String, Value>, keys: &[&str], servers: Map<String, Value>) {
    let Some((first, rest)) = keys.split_first() else { return };
    let value = if rest.is_empty() {
        servers
    } else {
        let mut inner = root.get(*first).and_then(Value::as_object).cloned().unwrap_or_default();
        set(&mut inner, rest, servers);
        inner
    };
    // A key that is there keeps its place.
    let _ = root.insert((*first).to_owned(), Value::Object(value));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_shape_gives_the_same_servers() {
        let wanted = json!({"a": {"command": "x"}, "b": {"url": "http://h"}});
        for (text, older) in [
            (json!({"mcpServers": wanted}), false),
            (json!({"servers": wanted}), false),
            (json!({"mcp": {"servers": wanted}}), false),
            (json!({"context_servers": wanted}), false),
            (json!({"$schema": "s", "mcp": wanted}), false),
            (wanted.clone(), true),
            (json!([{"name": "a", "command": "x"}, {"id": "b", "url": "http://h"}]), true),
            (json!({"servers": [{"name": "a", "command": "x"}, {"name": "b", "url": "http://h"}]}), true),
            (json!({"mcp": {"servers": [{"name": "a", "command": "x"}, {"name": "b", "url": "http://h"}]}}), true),
        ] {
            let shape = Shape::of(text.clone()).unwrap();
            assert_eq!((Value::Object(shape.servers.clone()), shape.older), (wanted.clone(), older), "{text}");
            if older {
                assert_eq!(shape.whole().get("mcpServers"), Some(&wanted), "{text}");
            } else {
                assert_eq!(Value::Object(shape.whole()), text);
            }
        }
    }

    #[test]
    fn what_stands_beside_the_servers_stays_beside_them() {
        let shape = Shape::of(json!({"theme": 1, "a": {"command": "x"}, "mcpSettings": {"x": 1}})).unwrap();
        assert_eq!(Value::Object(shape.whole()), json!({"theme": 1, "mcpSettings": {"x": 1}, "mcpServers": {"a": {"command": "x"}}}));
        let shape = Shape::of(
            json!({"mcp": {"servers": [{"command": "x"}, {"name": "n", "command": "y"}, {"name": "n", "command": "z"}], "inputs": []}}),
        )
        .unwrap();
        assert_eq!(shape.servers.keys().collect::<Vec<_>>(), ["server-1", "n", "n-2"]);
        assert_eq!(shape.root["mcp"], json!({"inputs": []}));
    }

    #[test]
    fn what_is_none_is_an_error() {
        for wrong in [json!(3), json!([1]), json!({"mcpServers": 3}), json!({"mcpServers": ["x"]}), json!({"servers": null, "x": 1})] {
            assert!(Shape::of(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
