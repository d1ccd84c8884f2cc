//! What a server says about one of its tools.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::id::{SchemaHash, ServerId, ToolId};

/// A tool as its server defines it. The identity covers every field, so any change gives another [`ToolId`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Server, name and the hash of all that follows.
    pub id: ToolId,
    /// A title for people.
    pub title: Option<String>,
    /// What the tool does, in the server's words.
    pub description: String,
    /// JSON schema of the arguments; the original, never a cleaned copy.
    pub input_schema: Value,
    /// JSON schema of the structured result.
    pub output_schema: Option<Value>,
    /// Hints such as `readOnlyHint`: untrusted, they may sort and warn but never skip the gate.
    pub annotations: Option<Value>,
}

impl Definition {
    /// Makes a definition and computes its identity.
    #[must_use]
    pub fn new(
        server: ServerId,
        name: impl Into<String>,
        title: Option<String>,
        description: impl Into<String>,
        input_schema: Value,
        output_schema: Option<Value>,
        annotations: Option<Value>,
    ) -> Self {
        let (name, description) = (name.into(), description.into());
        let schema = SchemaHash::of(&json!({
            "name": name,
            "title": title,
            "description": description,
            "inputSchema": input_schema,
            "outputSchema": output_schema,
            "annotations": annotations,
        }));
        Self { id: ToolId { server, name, schema }, title, description, input_schema, output_schema, annotations }
    }

    /// The title, or the name where there is none.
    #[must_use]
    pub fn label(&self) -> &str {
        self.title.as_deref().filter(|title| !title.trim().is_empty()).unwrap_or(&self.id.name)
    }

    /// Whether the server claims that the tool changes nothing. A hint only.
    #[must_use]
    pub fn claims_read_only(&self) -> bool {
        self.annotations.as_ref().and_then(|hints| hints.get("readOnlyHint")).and_then(Value::as_bool).unwrap_or(false)
    }
}
