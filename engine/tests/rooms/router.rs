//! The router over definitions as real servers give them: time, everything and filesystem, 29 tools.

use std::sync::Arc;

use handrail_engine::router::{Budget, Candidate, FEW, Intent, Sticky, choose, estimate_tokens, intent};
use handrail_engine::tool::{Aliases, Definition};
use serde_json::{Value, json};

fn tool(server: &str, name: &str, description: &str, schema: Value) -> Arc<Definition> {
    Arc::new(Definition::new(server.into(), name, None, description, schema, None, None))
}

fn schema(properties: &[(&str, &str, &str)], required: &[&str]) -> Value {
    let properties: serde_json::Map<String, Value> = properties
        .iter()
        .map(|(name, kind, description)| {
            let mut property = json!({ "type": kind });
            if !description.is_empty() {
                property["description"] = json!(description);
            }
            ((*name).to_owned(), property)
        })
        .collect();
    json!({ "type": "object", "properties": properties, "required": required })
}

fn time() -> Vec<Arc<Definition>> {
    let zone =
        "IANA timezone name (e.g., 'America/New_York', 'Europe/London'). Use 'Etc/UTC' as local timezone if none is provided by the user.";
    vec![
        tool(
            "time",
            "get_current_time",
            "Get current time in a specific timezones",
            schema(&[("timezone", "string", zone)], &["timezone"]),
        ),
        tool(
            "time",
            "convert_time",
            "Convert time between timezones",
            schema(
                &[
                    ("source_timezone", "string", "Source IANA timezone name"),
                    ("time", "string", "Time to convert in 24-hour format (HH:MM)"),
                    ("target_timezone", "string", "Target IANA timezone name"),
                ],
                &["source_timezone", "time", "target_timezone"],
            ),
        ),
    ]
}

fn everything() -> Vec<Arc<Definition>> {
    let none = || schema(&[], &[]);
    let t = |name: &str, description: &str, schema: Value| tool("everything", name, description, schema);
    vec![
        t("echo", "Echoes back the input string", schema(&[("message", "string", "Message to echo")], &["message"])),
        t(
            "get-annotated-message",
            "Demonstrates how annotations can be used to provide metadata about content.",
            schema(
                &[("messageType", "string", "Type of message"), ("includeImage", "boolean", "Whether to include an image")],
                &["messageType"],
            ),
        ),
        t("get-env", "Returns all environment variables, helpful for debugging MCP server configuration", none()),
        t(
            "get-resource-links",
            "Returns up to ten resource links that reference different types of resources",
            schema(&[("count", "number", "Number of resource links to return (1-10)")], &[]),
        ),
        t(
            "get-resource-reference",
            "Returns a resource reference that can be used by MCP clients",
            schema(&[("resourceType", "string", ""), ("resourceId", "number", "ID of the text resource to fetch")], &[]),
        ),
        t(
            "get-structured-content",
            "Returns structured content along with an output schema for client data validation",
            schema(&[("location", "string", "Choose city")], &["location"]),
        ),
        t(
            "get-sum",
            "Returns the sum of two numbers",
            schema(&[("a", "number", "First number"), ("b", "number", "Second number")], &["a", "b"]),
        ),
        t("get-tiny-image", "Returns a tiny MCP logo image.", none()),
        t(
            "gzip-file-as-resource",
            "Compresses a single file using gzip compression. Depending upon the selected output type, returns either the compressed data or a link to it.",
            schema(&[("name", "string", "Name of the output file"), ("data", "string", "URL or data URI of the file content")], &[]),
        ),
        t("toggle-simulated-logging", "Toggles simulated, random-leveled logging on or off.", none()),
        t("toggle-subscriber-updates", "Toggles simulated resource subscription updates on or off.", none()),
        t(
            "trigger-long-running-operation",
            "Demonstrates a long running operation with progress updates.",
            schema(&[("duration", "number", "Duration of the operation in seconds"), ("steps", "number", "Number of steps")], &[]),
        ),
        t(
            "trigger-sampling-request",
            "Trigger a Request from the Server for LLM Sampling",
            schema(&[("prompt", "string", "The prompt to send to the LLM"), ("maxTokens", "number", "Most tokens")], &["prompt"]),
        ),
    ]
}

fn filesystem() -> Vec<Arc<Definition>> {
    let path = || schema(&[("path", "string", "")], &["path"]);
    let t = |name: &str, description: &str, schema: Value| {
        tool("filesystem", name, &format!("{description} Only works within allowed directories."), schema)
    };
    let pairs = |names: &[&str]| schema(&names.iter().map(|name| (*name, "string", "")).collect::<Vec<_>>(), names);
    vec![
        t("read_file", "Read the complete contents of a file as text. DEPRECATED: Use read_text_file instead.", path()),
        t(
            "read_text_file",
            "Read the complete contents of a file from the file system as text. Handles various text encodings. Use this tool when you need to examine the contents of a single file.",
            schema(
                &[("path", "string", ""), ("tail", "number", "Only the last N lines"), ("head", "number", "Only the first N lines")],
                &["path"],
            ),
        ),
        t("read_media_file", "Read an image or audio file. Returns the base64 encoded data and MIME type.", path()),
        t(
            "read_multiple_files",
            "Read the contents of multiple files simultaneously. This is more efficient than reading files one by one.",
            schema(&[("paths", "array", "Array of file paths to read.")], &["paths"]),
        ),
        t(
            "write_file",
            "Create a new file or completely overwrite an existing file with new content. Use with caution as it will overwrite existing files.",
            pairs(&["path", "content"]),
        ),
        t(
            "edit_file",
            "Make line-based edits to a text file. Each edit replaces exact line sequences with new content. Returns a git-style diff.",
            schema(&[("path", "string", ""), ("edits", "array", ""), ("dryRun", "boolean", "Preview changes")], &["path", "edits"]),
        ),
        t(
            "create_directory",
            "Create a new directory or ensure a directory exists. Can create multiple nested directories in one operation.",
            path(),
        ),
        t(
            "list_directory",
            "Get a detailed listing of all files and directories in a specified path. Results clearly distinguish between files and directories.",
            path(),
        ),
        t(
            "list_directory_with_sizes",
            "Get a detailed listing of all files and directories in a specified path, including sizes.",
            schema(&[("path", "string", ""), ("sortBy", "string", "Sort entries by name or size")], &["path"]),
        ),
        t(
            "directory_tree",
            "Get a recursive tree view of files and directories as a JSON structure. Each entry includes 'name', 'type' and 'children'.",
            schema(&[("path", "string", ""), ("excludePatterns", "array", "")], &["path"]),
        ),
        t(
            "move_file",
            "Move or rename files and directories. Can move files between directories and rename them in a single operation.",
            pairs(&["source", "destination"]),
        ),
        t(
            "search_files",
            "Recursively search for files and directories matching a pattern. The patterns should be glob-style patterns.",
            pairs(&["path", "pattern"]),
        ),
        t(
            "get_file_info",
            "Retrieve detailed metadata about a file or directory: size, creation time, last modified time, permissions, and type.",
            path(),
        ),
        t("list_allowed_directories", "Returns the list of directories that this server is allowed to access.", schema(&[], &[])),
    ]
}

fn candidates(definitions: Vec<Arc<Definition>>) -> Vec<Candidate> {
    let aliases = Aliases::of(definitions.iter().map(|definition| &definition.id));
    let alias = |definition: &Arc<Definition>| aliases.alias(&definition.id).unwrap().to_owned();
    definitions.iter().map(|definition| Candidate { alias: alias(definition), definition: Arc::clone(definition) }).collect()
}

fn all() -> Vec<Candidate> {
    candidates([time(), everything(), filesystem()].concat())
}

fn best(text: &str) -> Option<String> {
    match intent(&all(), text) {
        Intent::Call { offered, best, .. } => {
            assert!(offered.contains(&best) && offered.len() <= FEW && offered.is_sorted(), "{offered:?}");
            Some(best)
        }
        Intent::Talk { .. } => None,
    }
}

#[test]
fn a_small_model_is_sent_to_the_tool_that_the_text_asks_for() {
    let wrong: Vec<String> = [
        ("What time is it in Tokyo?", "get_current_time"),
        ("what's the current time in New York", "get_current_time"),
        ("Convert 14:30 from London time to Tokyo time", "convert_time"),
        ("list the files in /tmp", "list_directory"),
        ("Which files are in /home/me/notes?", "list_directory"),
        ("Please read the file /tmp/notes.txt and tell me what it says", "read_text_file"),
        ("create a directory called plans in /tmp", "create_directory"),
        ("Show me the directory tree of /srv", "directory_tree"),
        ("echo the words good morning", "echo"),
        ("Use get-sum with 2 and 3", "get-sum"),
        ("search for files named report in /data", "search_files"),
        ("Move the file /tmp/a.txt to /tmp/b.txt", "move_file"),
    ]
    .into_iter()
    .filter(|(text, tool)| best(text).as_deref() != Some(tool))
    .map(|(text, tool)| format!("{text}: wanted {tool}, {:?}", intent(&all(), text)))
    .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn conversation_needs_no_tool() {
    let wrong: Vec<String> = [
        "Hello, how are you?",
        "",
        "Thanks!",
        "Write me a poem about the sea",
        "What is the time complexity of quicksort?",
        "How much time does it take to boil an egg?",
        "Explain the difference between a list and a tuple in Python",
        "Who wrote Hamlet?",
        "你好，你是谁？",
        "What does the contract say about penalties?",
    ]
    .into_iter()
    .filter(|text| best(text).is_some())
    .map(|text| format!("{text}: {:?}", intent(&all(), text)))
    .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Words are compared as they are: Chinese meets English definitions only where it names the tool.
#[test]
fn another_language_is_missed_unless_the_tool_is_named() {
    assert_eq!(best("读取文件 /tmp/a.txt"), None);
    assert_eq!(best("请用 read_text_file 读取 /tmp/a.txt").as_deref(), Some("read_text_file"));
    let chinese = candidates(vec![tool("文件", "读取文件", "读取一个文件的全部内容", schema(&[("path", "string", "")], &["path"]))]);
    assert!(matches!(intent(&chinese, "请读取文件 /tmp/a.txt"), Intent::Call { .. }));
}

#[test]
fn every_tool_is_first_when_it_is_named() {
    for candidate in all() {
        let name = &candidate.definition.id.name;
        assert_eq!(best(name).as_ref(), Some(&candidate.alias));
        if name != "echo" {
            assert_eq!(best(&format!("please use {} now", candidate.alias)).as_ref(), Some(&candidate.alias));
        }
    }
}

#[test]
fn all_tools_are_offered_while_they_are_cheap() {
    let whole = choose(&all(), "Hello", Budget { context: 131_072, share: 0.05, most: 30 }, &Sticky::new());
    assert_eq!(whole.offered.len(), 29);
    assert!(whole.offered.is_sorted() && whole.reason.starts_with("all 29 tools"), "{}", whole.reason);
    let few = choose(&candidates(time()), "Hello", Budget { context: 2048, share: 0.01, most: 30 }, &Sticky::new());
    assert_eq!(few.offered, ["convert_time", "get_current_time"]);
    assert!(choose(&[], "Hello", Budget { context: 2048, share: 0.05, most: 30 }, &Sticky::new()).offered.is_empty());
}

#[test]
fn a_budget_is_kept_and_what_was_offered_stays() {
    let tools = all();
    let budget = Budget { context: 8192, share: 0.05, most: 30 };
    let cost = |offered: &[String]| -> usize {
        tools.iter().filter(|tool| offered.contains(&tool.alias)).map(|tool| estimate_tokens(&tool.definition)).sum()
    };
    let first = choose(&tools, "What time is it in Tokyo?", budget, &Sticky::new());
    assert!(first.offered.contains(&"get_current_time".to_owned()) && cost(&first.offered) <= 409, "{first:?}");
    assert!(first.best > 0.0 && first.offered.len() < 29);
    let sticky: Sticky = tools
        .iter()
        .filter(|tool| first.offered.contains(&tool.alias))
        .map(|tool| (tool.definition.id.server.clone(), tool.definition.id.name.clone()))
        .collect();
    let second = choose(&tools, "use list_directory on /tmp", budget, &sticky);
    assert!(first.offered.iter().all(|alias| second.offered.contains(alias)), "{second:?}");
    assert!(second.offered.contains(&"list_directory".to_owned()) && second.offered.is_sorted());
    let one = choose(&tools, "list the files in /tmp", Budget { most: 1, ..budget }, &Sticky::new());
    assert_eq!(one.offered.len(), 1);
    assert!(!choose(&tools, "Hello", budget, &Sticky::new()).offered.is_empty(), "a miss must not leave the model without tools");
}

#[test]
fn the_same_text_gives_the_same_tools_whatever_the_order() {
    let mut tools = all();
    let budget = Budget { context: 8192, share: 0.05, most: 30 };
    let expected = choose(&tools, "read the file and write a summary", budget, &Sticky::new()).offered;
    for round in 0..100 {
        tools.rotate_left(1 + round % 7);
        assert_eq!(choose(&tools, "read the file and write a summary", budget, &Sticky::new()).offered, expected);
    }
}
