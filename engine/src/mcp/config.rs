//! `mcp_config.json`: the usual `mcpServers` shape, read forgivingly and written carefully.
//!
//! Read: byte order mark, `//` and `/* */` comments and trailing commas are accepted. Written: only a file that
//! parses is ever replaced, in one step (temporary file, fsync, rename), readable by its owner only; fields that
//! Handrail does not know stay. `${NAME}` in any text field is filled in when the server is started, never in the
//! file.

mod disk;
mod document;
mod entry;
mod env_file;
mod expand;
mod relaxed;
mod settings;
mod shape;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use crate::tool::SchemaHash;
pub use disk::decoded;
pub(super) use disk::{alone, beside, keep_beside, read_text, replaceable, write_text};
pub(super) use document::{Document, parse_any, parse_entry, pasted};
pub(super) use entry::{Entry, flat};
pub(super) use env_file::names as env_file_names;
pub(super) use expand::{Name, expand, expand_oauth};
pub use settings::Settings;
pub(super) use shape::free_name;

/// One server as configured.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerConfig {
    /// How to reach it.
    pub transport: Transport,
    /// Whether it is started with the app.
    pub active: bool,
    /// Seconds a call may stay silent; the general setting where not given.
    pub timeout: Option<u64>,
    /// Seconds the start may take.
    pub startup_timeout: Option<u64>,
    /// A description for people and for routing.
    pub description: Option<String>,
    /// What it is good for, in single words; for routing.
    pub capabilities: Vec<String>,
    /// Which era of the protocol is spoken.
    pub era: EraChoice,
    /// The port that the program listens on, where it declares one.
    pub port: Option<u16>,
    /// Tools that are switched off: they are shown to no model.
    pub disabled_tools: Vec<String>,
    /// How to sign in, where that is not found out.
    pub oauth: Option<OAuth>,
    /// A file with variables for the program, read when it is started; those of the entry itself come before them.
    pub env_file: Option<String>,
}

/// Which era of the protocol a server is spoken to in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// Found out, and remembered.
    #[default]
    Auto,
    /// `initialize` only.
    Legacy,
    /// 2026-07-28 and later only.
    Modern,
}

/// How somebody signs in: a client that was registered with an authorization server beforehand, and what is asked for. Texts may hold `${NAME}` and `${secret:NAME}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OAuth {
    /// The client's id.
    pub client_id: Option<String>,
    /// Its secret, where it has one.
    pub client_secret: Option<String>,
    /// What is asked for, beyond what the server asks for.
    pub scopes: Vec<String>,
    /// The address of a client metadata document that stands for the client's id, at servers that take one. Handrail has no
    /// document of its own: whoever hosts one for it names it here.
    pub client_metadata_url: Option<String>,
    /// The port on 127.0.0.1 that the browser comes back to, where the client is registered with one. Else any free one.
    pub callback_port: Option<u16>,
    /// Whether the client signs in for itself (`client_credentials`): no person and no browser is needed.
    pub for_itself: bool,
}

/// How a server is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Transport {
    /// A child process.
    Stdio {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Variables added to its environment.
        env: BTreeMap<String, String>,
        /// Its working folder.
        cwd: Option<PathBuf>,
    },
    /// A Streamable HTTP endpoint.
    Http {
        /// Its address.
        url: String,
        /// Headers sent with each request.
        headers: BTreeMap<String, String>,
    },
    /// A legacy HTTP+SSE endpoint (revision 2024-11-05).
    Sse {
        /// The address of its event stream.
        url: String,
        /// Headers sent with each request.
        headers: BTreeMap<String, String>,
    },
}

impl Transport {
    /// Names everything that decides which program or address answers, and with which keys: SHA-256 over its canonical
    /// JSON, in hexadecimal. Values of `env` and `headers` are often secrets; they are in no stored text but this hash.
    pub(super) fn fingerprint(&self) -> String {
        let value = match self {
            Self::Stdio { command, args, env, cwd } => json!({ "command": command, "args": args, "env": env, "cwd": cwd }),
            // The two are one: an address that turns out to be the older kind stays what was agreed to.
            Self::Http { url, headers } | Self::Sse { url, headers } => json!({ "url": url, "headers": headers }),
        };
        SchemaHash::of(&value).to_hex()
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The text is not JSON. A file is left untouched.
    #[error("{place} does not parse at line {line}, column {column}: {reason}")]
    Parse {
        /// The file, or "the pasted text".
        place: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
        /// What was expected.
        reason: String,
    },
    /// A field is missing or wrong.
    #[error("server '{server}': {reason}")]
    Field {
        /// Which server.
        server: String,
        /// The field, for a form to show the reason at it; one of `env`, `headers` or `oauth` with a dot and its name.
        field: Option<String>,
        /// Which field, why, and what to do.
        reason: String,
    },
    /// A value of `mcpSettings` is wrong; its default is used meanwhile.
    #[error("mcpSettings: \"{field}\": {reason}")]
    Setting {
        /// Which value.
        field: String,
        /// Why, and what to do.
        reason: String,
    },
    /// There is no server in it.
    #[error("{place} names no server; expected an object \"mcpServers\" with one entry per server")]
    Empty {
        /// The file, or "the pasted text".
        place: String,
    },
    /// The file cannot be read or written.
    #[error("{path} cannot be used: {reason}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}
