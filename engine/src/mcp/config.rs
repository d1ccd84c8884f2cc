//! `mcp_config.json`: the usual `mcpServers` shape, read forgivingly and written carefully.
//!
//! Read: byte order mark, `//` and `/* */` comments and trailing commas are accepted. Written: only a file that
//! parses is ever replaced, in one step (temporary file, fsync, rename), readable by its owner only; fields that
//! Handrail does not know stay. `${NAME}` in any text field is filled in when the server is started, never in the
//! file.

mod document;
mod entry;
mod expand;
mod relaxed;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::json;

use crate::tool::SchemaHash;
pub(super) use document::{Document, pasted};
pub(super) use entry::Entry;
pub(super) use expand::expand;

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
}

impl Transport {
    /// Names everything that decides which program or address answers, and with which keys: SHA-256 over its canonical
    /// JSON, in hexadecimal. Values of `env` and `headers` are often secrets; they are in no stored text but this hash.
    pub(super) fn fingerprint(&self) -> String {
        let value = match self {
            Self::Stdio { command, args, env, cwd } => json!({ "command": command, "args": args, "env": env, "cwd": cwd }),
            Self::Http { url, headers } => json!({ "url": url, "headers": headers }),
        };
        SchemaHash::of(&value).to_hex()
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, thiserror::Error)]
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
        /// Which field, why, and what to do.
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
