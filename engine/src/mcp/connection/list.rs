//! A server's tools: all pages, within bounds, and one bad tool costs only itself.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult, Tool};
use rmcp::{Peer, RoleClient};
use serde_json::{Map, Value, json};

use crate::tool::{Definition, ServerId};

/// Most pages that are read (fixed): a server that pages for ever is cut off here.
const PAGES: usize = 64;
/// Most tools of one server, and the most bytes of their definitions (fixed).
const TOOLS: usize = 10_000;
const BYTES: usize = 32 * 1024 * 1024;
/// Notes about tools that are left out (fixed).
const NOTES: usize = 50;
/// Longest time for all pages together (fixed).
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// What a server offers.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The tools, sorted by name.
    pub(super) tools: Vec<Arc<Definition>>,
    /// What was left out, and why.
    pub(super) notes: Vec<String>,
}

/// Asks for all tools.
pub(super) async fn list(server: &ServerId, peer: &Peer<RoleClient>) -> Result<Listing, String> {
    if peer.peer_info().is_some_and(|info| info.capabilities.tools.is_none()) {
        return Ok(Listing::default());
    }
    match tokio::time::timeout(LIMIT, pages(server, peer)).await {
        Ok(listing) => listing,
        Err(_) => Err(format!("no whole tool list within {LIMIT:?}")),
    }
}

/// Reads page after page, at most [`PAGES`]; an empty cursor, or one that was there before, ends. Gives a note where
/// something was left out.
pub(super) async fn walk(
    peer: &Peer<RoleClient>,
    request: impl Fn(Option<PaginatedRequestParams>) -> ClientRequest,
    mut page: impl FnMut(ServerResult) -> Result<Option<String>, String>,
) -> Result<Option<String>, String> {
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for number in 1.. {
        let request = request(cursor.take().map(|cursor| PaginatedRequestParams::default().with_cursor(Some(cursor))));
        // Not the typed helpers: those lose the whole list with one malformed entry, and answer errors from a cache.
        let answer = peer.send_request(request).await.map_err(|error| super::explain(&error))?;
        match page(answer)?.filter(|next| !next.is_empty()) {
            Some(next) if number == PAGES => {
                return Ok(Some(format!("the list goes on after {PAGES} pages (cursor {next:.40}); the rest is left out")));
            }
            // A cursor that was there before would go round for ever.
            Some(next) if !cursors.insert(next.clone()) => break,
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(None)
}

async fn pages(server: &ServerId, peer: &Peer<RoleClient>) -> Result<Listing, String> {
    let mut collected = Collected::default();
    #[allow(clippy::field_reassign_with_default, reason = "the request is non-exhaustive: it has no other way to be made")]
    let request = |params| {
        let mut request = ListToolsRequest::default();
        request.params = params;
        ClientRequest::ListToolsRequest(request)
    };
    let cut = walk(peer, request, |answer| match answer {
        ServerResult::ListToolsResult(result) => {
            result.tools.into_iter().for_each(|tool| collected.add(server, tool));
            Ok(result.next_cursor)
        }
        other => collected.add_raw(server, &serde_json::to_value(&other).map_err(|error| error.to_string())?),
    })
    .await?;
    collected.notes.extend(cut);
    let mut tools = collected.tools;
    tools.sort_by(|left, right| left.id.name.cmp(&right.id.name));
    Ok(Listing { tools, notes: collected.notes })
}

#[derive(Default)]
struct Collected {
    names: HashSet<String>,
    bytes: usize,
    tools: Vec<Arc<Definition>>,
    notes: Vec<String>,
}

impl Collected {
    fn add(&mut self, server: &ServerId, tool: Tool) {
        let size = serde_json::to_vec(&tool).map_or(usize::MAX, |text| text.len());
        if self.tools.len() == TOOLS || self.bytes.saturating_add(size) > BYTES {
            self.note(|| format!("more than {TOOLS} tools or {BYTES} bytes of them are listed; the rest is left out"));
            return;
        }
        self.bytes += size;
        let name = tool.name.into_owned();
        if name.trim().is_empty() {
            self.note(|| "a tool without a name is left out: it could not be called".to_owned());
            return;
        }
        if !self.names.insert(name.clone()) {
            self.note(|| format!("the tool '{name:.80}' is listed twice; the first one is used"));
            return;
        }
        self.tools.push(Arc::new(Definition::new(
            server.clone(),
            name,
            tool.title,
            tool.description.unwrap_or_default(),
            Value::Object(Arc::unwrap_or_clone(tool.input_schema)),
            tool.output_schema.map(|schema| Value::Object(Arc::unwrap_or_clone(schema))),
            tool.annotations.and_then(|hints| serde_json::to_value(hints).ok()),
        )));
    }

    fn note(&mut self, words: impl FnOnce() -> String) {
        if self.notes.len() < NOTES {
            let words = words();
            if self.notes.last() != Some(&words) {
                self.notes.push(words);
            }
        }
    }

    /// A page that is not wholly in shape: tool by tool.
    fn add_raw(&mut self, server: &ServerId, page: &Value) -> Result<Option<String>, String> {
        let Some(tools) = page.get("tools").and_then(Value::as_array) else {
            return Err("the answer to tools/list holds no list of tools".to_owned());
        };
        for (index, tool) in tools.iter().enumerate() {
            match serde_json::from_value::<Tool>(tool.clone()).or_else(|_| serde_json::from_value(mended(tool))) {
                Ok(tool) => self.add(server, tool),
                Err(error) => {
                    let name = tool
                        .get("name")
                        .and_then(Value::as_str)
                        .map_or_else(|| format!("number {}", index + 1), |name| format!("'{name:.80}'"));
                    let error: String = error.to_string().chars().take(300).collect();
                    self.note(|| format!("the tool {name} is malformed and left out: {error}"));
                }
            }
        }
        Ok(page.get("nextCursor").and_then(Value::as_str).map(str::to_owned))
    }
}

/// A tool without what is out of shape beside its name and what it takes: that must not cost the tool. A schema of the
/// arguments that is not there asks for nothing.
fn mended(tool: &Value) -> Value {
    let Some(fields) = tool.as_object() else { return tool.clone() };
    let mut fields = fields.clone();
    if fields.get("inputSchema").is_none_or(|schema| schema.is_null() || schema.is_boolean() || *schema == json!([])) {
        let _ = fields.insert("inputSchema".to_owned(), json!({}));
    }
    for (field, fits) in
        [("title", Value::is_string as fn(&Value) -> bool), ("description", Value::is_string), ("outputSchema", Value::is_object)]
    {
        if fields.get(field).is_some_and(|value| !fits(value)) {
            let _ = fields.remove(field);
        }
    }
    if let Some(hints) = fields.remove("annotations").and_then(|hints| hints.as_object().cloned()) {
        let hints: Map<String, Value> = hints.into_iter().filter_map(|(name, value)| Some((name.clone(), hint(&name, value)?))).collect();
        let _ = fields.insert("annotations".to_owned(), hints.into());
    }
    // What the protocol adds from version to version is not needed for a call.
    if serde_json::from_value::<Tool>(fields.clone().into()).is_err() {
        fields.retain(|field, _| ["name", "title", "description", "inputSchema", "outputSchema", "annotations"].contains(&field.as_str()));
    }
    fields.into()
}

/// A hint as it is meant: some servers write their Booleans as texts.
fn hint(name: &str, value: Value) -> Option<Value> {
    match &value {
        Value::Bool(_) => Some(value),
        Value::String(text) if name.ends_with("Hint") => match text.to_ascii_lowercase().as_str() {
            "true" => Some(true.into()),
            "false" => Some(false.into()),
            _ => None,
        },
        Value::String(_) => Some(value),
        _ => (!name.ends_with("Hint") && name != "title").then_some(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_end_is_cut() {
        let mut collected = Collected::default();
        let tool = |number: usize, words: usize| {
            serde_json::from_value(
                json!({"name": format!("t{number}"), "description": "x".repeat(words), "inputSchema": {"type": "object"}}),
            )
            .unwrap()
        };
        for number in 0..TOOLS + 100 {
            collected.add(&"s".into(), tool(number, 1));
        }
        assert_eq!((collected.tools.len(), collected.notes.len()), (TOOLS, 1));
        let mut collected = Collected::default();
        for number in 0..40 {
            collected.add(&"s".into(), tool(number, 1024 * 1024));
        }
        assert!(collected.tools.len() < 32 && collected.notes.len() == 1);
    }

    #[test]
    fn what_is_out_of_shape_beside_the_name_costs_no_tool() {
        let page = json!({"tools": [
            {"name": "none"},
            {"name": "null", "title": null, "description": null, "inputSchema": null, "outputSchema": null, "annotations": null, "icons": null, "_meta": null},
            {"name": "list", "inputSchema": []},
            {"name": "words", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": "true", "destructiveHint": "maybe", "title": null}},
            {"name": "odd", "inputSchema": {"type": "object"}, "title": 3, "icons": "x.png", "execution": 7},
            {"name": "", "inputSchema": {}},
            {"name": " \t", "inputSchema": {}},
        ]});
        let mut collected = Collected::default();
        assert_eq!(collected.add_raw(&"s".into(), &page).unwrap(), None);
        let names: Vec<&str> = collected.tools.iter().map(|tool| tool.id.name.as_str()).collect();
        assert_eq!(names, ["none", "null", "list", "words", "odd"]);
        assert!(collected.tools[..3].iter().all(|tool| tool.input_schema == json!({})), "nothing is asked for");
        assert!(collected.tools[3].claims_read_only());
        assert_eq!(collected.notes.len(), 1);
        assert!(collected.notes[0].contains("without a name"));
    }

    #[test]
    fn a_malformed_or_double_tool_costs_only_itself_and_the_hash_is_the_same_either_way() {
        let good = json!({"name": "good", "description": "d", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": true, "x-new": 1}});
        let page = json!({"tools": [good, {"name": "bad", "inputSchema": "none"}, {"noname": 1}, good], "nextCursor": "2"});
        let mut collected = Collected::default();
        assert_eq!(collected.add_raw(&"s".into(), &page).unwrap().as_deref(), Some("2"));
        assert_eq!(collected.tools.len(), 1);
        assert_eq!(collected.notes.len(), 3);
        assert!(collected.notes[0].contains("'bad'") && collected.notes[1].contains("number 3") && collected.notes[2].contains("twice"));

        let mut typed = Collected::default();
        typed.add(&"s".into(), serde_json::from_value(page["tools"][0].clone()).unwrap());
        assert_eq!(typed.tools[0].id, collected.tools[0].id);
        assert!(Collected::default().add_raw(&"s".into(), &json!({"tools": 3})).is_err());
    }
}
