//! The names under which tools are shown to a model: `^[a-zA-Z0-9_-]{1,64}$`, stable and reversible.

use std::collections::{BTreeMap, HashMap};

use super::id::ToolId;

/// Longest name that the remote APIs accept.
const LONGEST: usize = 64;

/// A two-way map between tools and the names that a model sees.
#[derive(Clone, Debug, Default)]
pub struct Aliases {
    by_alias: BTreeMap<String, ToolId>,
    by_tool: HashMap<ToolId, String>,
}

impl Aliases {
    /// Names each tool. A tool keeps its bare name where that is legal and unique; else the server comes in front;
    /// where that still clashes or was changed by cleaning, a piece of the identity's hash is appended.
    #[must_use]
    pub fn of<'a>(tools: impl IntoIterator<Item = &'a ToolId>) -> Self {
        let mut tools: Vec<&ToolId> = tools.into_iter().collect();
        tools.sort();
        tools.dedup();
        let mut uses: HashMap<String, usize> = HashMap::new();
        for tool in &tools {
            *uses.entry(clean(&tool.name)).or_default() += 1;
        }
        let mut aliases = Self::default();
        for tool in tools {
            let bare = clean(&tool.name);
            let alias = if bare == tool.name && uses[&bare] == 1 {
                bare
            } else {
                let long = clean(&format!("{}-{}", tool.server, tool.name));
                let faithful = bare == tool.name && clean(tool.server.as_str()) == tool.server.as_str();
                if faithful && !aliases.by_alias.contains_key(&long) && !uses.contains_key(&long) { long } else { with_hash(&long, tool) }
            };
            let _ = aliases.by_tool.insert(tool.clone(), alias.clone());
            let _ = aliases.by_alias.insert(alias, tool.clone());
        }
        aliases
    }

    /// The tool behind a name that the model used.
    #[must_use]
    pub fn tool(&self, alias: &str) -> Option<&ToolId> {
        self.by_alias.get(alias)
    }

    /// The name of a tool.
    #[must_use]
    pub fn alias(&self, tool: &ToolId) -> Option<&str> {
        self.by_tool.get(tool).map(String::as_str)
    }
}

fn clean(name: &str) -> String {
    let cleaned: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).take(LONGEST).collect();
    if cleaned.is_empty() { "_".to_owned() } else { cleaned }
}

fn with_hash(name: &str, tool: &ToolId) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(format!("{}\0{}", tool.server, tool.name));
    let suffix = format!("_{:02x}{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2], digest[3]);
    let keep: String = name.chars().take(LONGEST - suffix.len()).collect();
    keep + &suffix
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tool::SchemaHash;

    fn id(server: &str, name: &str) -> ToolId {
        ToolId { server: server.into(), name: name.to_owned(), schema: SchemaHash::of(&json!({})) }
    }

    #[test]
    fn names_are_legal_unique_and_reversible() {
        let tools = [
            id("a", "search"),
            id("b", "search"),
            id("时间", "当前时间"),
            id("时间", "当前日期"),
            id("c", "read_file"),
            id("d", &"x".repeat(90)),
            id("e", &"x".repeat(91)),
            id("c", "b-search"),
            id("f", ""),
        ];
        let aliases = Aliases::of(&tools);
        let mut seen = std::collections::HashSet::new();
        for tool in &tools {
            let alias = aliases.alias(tool).unwrap();
            assert!((1..=64).contains(&alias.len()), "{alias}");
            assert!(alias.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-'), "{alias}");
            assert!(seen.insert(alias.to_owned()), "{alias} twice");
            assert_eq!(aliases.tool(alias), Some(tool));
        }
        assert_eq!(aliases.alias(&tools[4]), Some("read_file"));
        assert_eq!(aliases.alias(&tools[0]), Some("a-search"));
    }
}
