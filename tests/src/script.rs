//! The script that tells the scripted MCP server how to behave: one JSON file.
//!
//! ```json
//! {
//!   "name": "weather",                  // the name it gives itself; "scripted" where not given
//!   "instructions": "…",                // its instructions
//!   "era": "both",                      // "legacy" (initialize only), "modern" (2026-07-28 only) or "both"
//!   "log": "/tmp/log.jsonl",            // each received message is appended here, one JSON object per line (below)
//!   "start_delay_ms": 0,                // silence before it reads anything
//!   "stderr": ["line", …],              // written to stderr at the start
//!   "stdout_noise": ["line", …],        // written raw to stdout at the start (stdio only)
//!   "exit_at_start": 3,                 // ends with this exit code instead of serving
//!   "fork_child": true,                 // starts a grandchild that ignores SIGTERM and holds stdout and stderr
//!   "tools": [{
//!     "name": "add", "title": "…", "description": "…",
//!     "inputSchema": {"type": "object"}, "outputSchema": {…}, "annotations": {"readOnlyHint": true},
//!     "reply": {"text": "3"},           // or {"structured": {…}}, {"error": "…"} (isError), {"content": [blocks]},
//!                                       // {"protocol_error": "…"} (a JSON-RPC error), "echo" (the arguments as text)
//!     "delay_ms": 0,                    // before the reply; a cancellation ends the wait
//!     "progress": 4,                    // so many notifications, spread over the delay
//!     "hang": true,                     // never replies, until it is cancelled
//!     "exit": 7                         // ends with this exit code instead of a reply, after the delay
//!   }],
//!   "later": {"after_ms": 500, "tools": […]}  // then these are the tools, and tools/list_changed is sent
//! }
//! ```
//!
//! Log lines: `{"ms": since start, "received": MESSAGE}` for every message, requests and notifications alike (so
//! `initialize`, `tools/call` and `notifications/cancelled` with its `requestId` and `reason`);
//! `{"ms": …, "started": PID, "port": P or null, "grandchild": PID or null}` once; `{"ms": …, "cancelled": TOOL}` when a
//! running tool noticed its cancellation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The whole script.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The name it gives itself.
    pub name: Option<String>,
    /// Its instructions.
    pub instructions: Option<String>,
    /// What it speaks.
    pub era: Era,
    /// Where received messages are appended.
    pub log: Option<std::path::PathBuf>,
    /// Silence before it reads anything, in milliseconds.
    pub start_delay_ms: u64,
    /// Lines for stderr at the start.
    pub stderr: Vec<String>,
    /// Raw lines for stdout at the start.
    pub stdout_noise: Vec<String>,
    /// Ends with this code instead of serving.
    pub exit_at_start: Option<i32>,
    /// Starts a stubborn grandchild.
    pub fork_child: bool,
    /// Its tools.
    pub tools: Vec<ToolScript>,
    /// What its tools become.
    pub later: Option<Later>,
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

/// A change of the tools.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Later {
    /// How long after the handshake, in milliseconds.
    pub after_ms: u64,
    /// The tools from then on.
    pub tools: Vec<ToolScript>,
}

/// One tool.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolScript {
    /// Its name.
    pub name: String,
    /// Its title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its description.
    #[serde(default)]
    pub description: String,
    /// The schema of its arguments.
    #[serde(default = "any_object")]
    pub input_schema: Map<String, Value>,
    /// The schema of its structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
    /// Its hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Value>,
    /// What it answers.
    #[serde(default)]
    pub reply: Reply,
    /// How long it takes, in milliseconds.
    #[serde(default, rename = "delay_ms")]
    pub delay_ms: u64,
    /// How many progress notifications it sends.
    #[serde(default)]
    pub progress: u32,
    /// Whether it never answers.
    #[serde(default)]
    pub hang: bool,
    /// The exit code with which the server ends instead of an answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<i32>,
}

impl ToolScript {
    /// A tool that takes any object and answers with a text.
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
            hang: false,
            exit: None,
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
