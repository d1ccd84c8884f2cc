//! The script that tells the scripted MCP server how to behave: one JSON file.
//!
//! ```json
//! {
//!   "name": "weather",                  // the name it gives itself; "scripted" where not given
//!   "instructions": "…",                // its instructions
//!   "era": "both",                      // "legacy" (initialize only), "modern" (2026-07-28 only) or "both"
//!   "protocol": "2025-03-26",           // the revision that it answers to initialize, whatever was asked for
//!   "log": "/tmp/log.jsonl",            // each received message is appended here, one JSON object per line (below)
//!
//!   "start_delay_ms": 0,                // silence before it reads anything
//!   "exit_at_start": 3,                 // ends with this exit code instead of serving
//!   "exits_on_unknown_first": true,     // ends with exit code 1 where the first request is not initialize
//!   "exit_after_calls": 3,              // ends with exit code 0 once so many calls were answered
//!   "ignores_eof": true,                // stays when its standard input is closed
//!   "stderr": ["line", …],              // written to stderr at the start
//!   "stderr_flood": {"bytes": 1000000, "newlines": false},  // written to stderr while it serves, as fast as it is read
//!   "stdout_noise": ["line", …],        // written raw to stdout at the start (stdio only)
//!   "stdout_noise_each": ["line", …],   // the same before every message
//!   "fork_child": true,                 // starts a grandchild that ignores SIGTERM and holds stdout and stderr
//!   "fork_port": 0,                     // the same, and the grandchild also listens on this port (0: any free one)
//!
//!   "rules": [{                         // what happens to requests instead of an answer; the first that fits counts
//!     "method": "tools/list",           // or "*"; over HTTP also "GET" and "DELETE"
//!     "skip": 1, "times": 1,            // only from the second on, and only once; always where not given
//!     "until_ms": 12000,                // only so long after the server's start
//!     "unless_header": ["authorization", "Bearer k"],  // not for requests with this header (HTTP)
//!     "delay_ms": 500,                  // before whatever comes; alone it only delays the usual answer
//!     "silent": true,                   // no answer at all
//!     "exit": 3,                        // ends with this exit code
//!     "result": {}, "error": {"code": -32603, "message": "…", "data": …},  // an answer as it is
//!     "status": 401, "headers": {"www-authenticate": "Bearer"}, "body": "…"  // an HTTP answer as it is
//!   }],
//!
//!   "many": 256,                        // besides "tools": tool_000, tool_001, …, which answer with their name
//!   "page_size": 43,                    // tools per page; all on one page where not given
//!   "cursor": "loop",                   // or "endless" (a new cursor for ever) or "empty" (an empty one on the last page)
//!   "bad_schema_at": 3,                 // the input schema of the tool at this index is a text
//!   "tools": [{
//!     "name": "add", "title": "…", "description": "…",
//!     "inputSchema": {"type": "object"}, "outputSchema": {…}, "annotations": {"readOnlyHint": true},
//!     "reply": {"text": "3"},           // or {"structured": {…}}, {"error": "…"} (isError), {"content": [blocks]},
//!                                       // {"protocol_error": "…"} (a JSON-RPC error), "echo" (the arguments as text),
//!                                       // {"raw": {…}} (the whole result), {"rpc_error": {code, message, data}},
//!                                       // {"bytes": 1000} (a text of so many characters), {"env": "NAME"} (that
//!                                       // variable), "environment" (the names of all), "answers" (those to "asks")
//!     "delay_ms": 0,                    // before the reply; a cancellation ends the wait
//!     "progress": 4,                    // so many notifications, spread over the delay
//!     "progress_values": [3, 1, 2],     // these values at once and in this order, before the delay
//!     "hang": true,                     // never replies, until it is cancelled
//!     "ignores_cancel": true,           // takes note of a cancellation, and goes on and replies all the same
//!     "exit": 7,                        // ends with this exit code instead of a reply, after the delay
//!     "asks": [{"method": "elicitation/create", "params": {…}}, …],  // asked before the reply: as requests, or in the
//!                                       // stateless era as an input_required result
//!     "task": {"polls": 2, "poll_ms": 50, "support": "optional"}     // where the client can: a task, done after so many
//!                                       // looks at it
//!   }],
//!   "later": {"after_ms": 500, "tools": […]},  // then these are the tools, and tools/list_changed is sent
//!   "drift": {"after_calls": 3, "tools": […], "announce": false},  // after so many calls these are the tools
//!   "list_changed_burst": 5,            // so many tools/list_changed right after the handshake
//!   "asks": [{"method": "roots/list"}, …],     // requests to the client right after the handshake (initialize only)
//!   "logs": [{"level": "info", "data": "…"}, …],  // log messages: right after the handshake, or in the stateless era with each call that asks for them
//!   "prompts": [{"name": "greet", "arguments": [{"name": "who"}], "messages": [{…}]}],  // "{who}" is filled in
//!   "resources": [{"uri": "a://b", "name": "b", "contents": [{"uri": "a://b", "text": "…"}]}],
//!   "templates": [{"uriTemplate": "a://{id}", "name": "…"}],
//!   "completions": {"who": ["Anna", "Ben"]},   // by argument name; those that begin with what was typed are given
//!   "resource_updates": ["a://b"]       // notifications/resources/updated right after the handshake, or once subscribed
//! }
//! ```
//!
//! Log lines: `{"ms": since start, "received": MESSAGE}` for every message, requests, notifications and responses alike
//! (so `initialize`, `tools/call` and `notifications/cancelled` with its `requestId` and `reason`); over HTTP with
//! `"headers"`; `{"ms": …, "http": "GET /mcp"}` for HTTP requests without a message; `{"ms": …, "started": PID,
//! "port": P or null, "grandchild": PID or null}` once; `{"ms": …, "holding": PORT}` once by a grandchild with a port;
//! `{"ms": …, "cancelled": TOOL}` when a running tool noticed its cancellation; `{"ms": …, "flooded": BYTES}` once the
//! flood is through.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The whole script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    pub name: Option<String>,
    pub instructions: Option<String>,
    pub era: Era,
    pub protocol: Option<String>,
    pub log: Option<std::path::PathBuf>,
    pub start_delay_ms: u64,
    pub exit_at_start: Option<i32>,
    pub exits_on_unknown_first: bool,
    pub exit_after_calls: Option<u64>,
    pub ignores_eof: bool,
    pub stderr: Vec<String>,
    pub stderr_flood: Option<Flood>,
    pub stdout_noise: Vec<String>,
    pub stdout_noise_each: Vec<String>,
    pub fork_child: bool,
    pub fork_port: Option<u16>,
    pub rules: Vec<Rule>,
    pub many: usize,
    pub page_size: Option<usize>,
    pub cursor: Cursor,
    pub bad_schema_at: Option<usize>,
    pub tools: Vec<ToolScript>,
    pub later: Option<Later>,
    pub drift: Option<Drift>,
    pub list_changed_burst: u32,
    pub asks: Vec<Ask>,
    pub logs: Vec<Value>,
    pub prompts: Vec<Value>,
    pub resources: Vec<Value>,
    pub templates: Vec<Value>,
    pub completions: BTreeMap<String, Vec<String>>,
    pub resource_updates: Vec<String>,
}

/// Which era of the protocol a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Era {
    /// `initialize` only.
    Legacy,
    /// 2026-07-28 only.
    Modern,
    /// Both.
    #[default]
    Both,
}

/// How the pages of the tool list end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cursor {
    /// Without a cursor.
    #[default]
    Proper,
    /// Never: every page names the same next one.
    Loop,
    /// Never: every page names a new one.
    Endless,
    /// With an empty cursor.
    Empty,
}

/// What is written to stderr all the time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flood {
    pub bytes: u64,
    #[serde(default)]
    pub newlines: bool,
}

/// What happens to a request instead of an answer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Rule {
    pub method: String,
    pub skip: u64,
    pub times: Option<u64>,
    pub until_ms: Option<u64>,
    pub unless_header: Option<(String, String)>,
    pub delay_ms: u64,
    pub silent: bool,
    pub exit: Option<i32>,
    pub result: Option<Value>,
    pub error: Option<Value>,
    pub status: Option<u16>,
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

/// A change of the tools by time.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Later {
    /// How long after the handshake, in milliseconds.
    pub after_ms: u64,
    /// The tools from then on.
    pub tools: Vec<ToolScript>,
}

/// A change of the tools by number of calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Drift {
    pub after_calls: u64,
    pub tools: Vec<ToolScript>,
    #[serde(default)]
    pub announce: bool,
}

/// A request to the client.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    pub method: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Value>,
}

/// How a call becomes a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskScript {
    pub polls: u32,
    #[serde(default)]
    pub poll_ms: u64,
    #[serde(default = "optional")]
    pub support: String,
}

/// One tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolScript {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default)]
    pub description: String,
    #[serde(default = "any_object")]
    pub input_schema: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    #[serde(default)]
    pub reply: Reply,
    #[serde(default, rename = "delay_ms")]
    pub delay_ms: u64,
    #[serde(default)]
    pub progress: u32,
    #[serde(default, rename = "progress_values")]
    pub progress_values: Vec<f64>,
    #[serde(default)]
    pub hang: bool,
    #[serde(default, rename = "ignores_cancel")]
    pub ignores_cancel: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
    #[serde(default)]
    pub asks: Vec<Ask>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskScript>,
}

impl ToolScript {
    /// A tool that takes any object and answers with a text.
    #[must_use]
    pub fn text(name: &str, reply: &str) -> Self {
        Self {
            name: name.to_owned(),
            title: None,
            description: String::new(),
            input_schema: any_object(),
            output_schema: None,
            annotations: None,
            reply: Reply::Text(reply.to_owned()),
            delay_ms: 0,
            progress: 0,
            progress_values: Vec::new(),
            hang: false,
            ignores_cancel: false,
            exit: None,
            asks: Vec::new(),
            task: None,
        }
    }
}

/// What a tool answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A text.
    Text(String),
    /// A structured result.
    Structured(Value),
    /// A result that says the tool failed.
    Error(String),
    /// Content blocks as they are on the wire.
    Content(Vec<Value>),
    /// A JSON-RPC error.
    ProtocolError(String),
    /// A JSON-RPC error as it is on the wire.
    RpcError(Value),
    /// The result as it is on the wire.
    Raw(Value),
    /// A text of so many characters.
    Bytes(usize),
    /// The value of a variable of the environment.
    Env(String),
    /// The names of all variables of the environment, one a line.
    Environment,
    /// The answers to what was asked, as a JSON list.
    Answers,
    /// The arguments, as text.
    Echo,
}

impl Default for Reply {
    fn default() -> Self {
        Self::Text("ok".to_owned())
    }
}

fn any_object() -> Map<String, Value> {
    match json!({ "type": "object" }) {
        Value::Object(schema) => schema,
        _ => Map::new(),
    }
}

fn optional() -> String {
    "optional".to_owned()
}
