//! `(server id, tool name, schema hash)`: the identity every approval, toggle and ledger row uses.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::call::canonical_digest;

/// The key of a server's entry in the configuration; never the name that the server claims for itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ServerId(String);

impl ServerId {
    /// Wraps a configuration key.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for ServerId {
    fn from(id: &str) -> Self {
        Self::new(id)
    }
}

/// SHA-256 over the canonical JSON of everything a tool says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SchemaHash([u8; 32]);

impl SchemaHash {
    /// Hashes a JSON value independently of the order of its keys.
    #[must_use]
    pub fn of(value: &Value) -> Self {
        Self(canonical_digest(value))
    }

    /// The hash as 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        use fmt::Write as _;
        self.0.iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }

    /// Reads 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        if hex.len() != 64 || !hex.is_ascii() {
            return None;
        }
        let mut bytes = [0; 32];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self(bytes))
    }
}

impl fmt::Debug for SchemaHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SchemaHash({})", &self.to_hex()[..12])
    }
}

impl Serialize for SchemaHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> Deserialize<'de> for SchemaHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let hex = String::deserialize(deserializer)?;
        Self::from_hex(&hex).ok_or_else(|| serde::de::Error::custom("a schema hash is 64 hexadecimal digits"))
    }
}

/// A tool's whole identity. Two servers' `search` are two tools; a changed schema is another tool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ToolId {
    /// The configured server it belongs to.
    pub server: ServerId,
    /// The name the server gave it.
    pub name: String,
    /// The hash of its definition.
    pub schema: SchemaHash,
}

impl fmt::Display for ToolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {}", self.server, self.name)
    }
}
