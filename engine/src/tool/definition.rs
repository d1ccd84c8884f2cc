//! What a server says about one of its tools.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::id::{SchemaHash, ServerId, ToolId};
use super::schema::{Cleaned, Unchecked, cleaned};

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
    #[serde(skip)]
    usable: Usable,
}

/// What of the schemas can be used, found out when it is first asked for. It follows from the other fields.
#[derive(Clone, Debug, Default)]
struct Usable(OnceLock<(Cleaned, Option<Cleaned>)>);

impl PartialEq for Usable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
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
        Self {
            id: ToolId { server, name, schema },
            title,
            description,
            input_schema,
            output_schema,
            annotations,
            usable: Usable::default(),
        }
    }

    fn usable(&self) -> &(Cleaned, Option<Cleaned>) {
        self.usable.0.get_or_init(|| (cleaned(&self.input_schema, true), self.output_schema.as_ref().map(|schema| cleaned(schema, false))))
    }

    /// The schema of the arguments without its broken parts: what models, grammars and checks get. The identity stays
    /// bound to the original.
    #[must_use]
    pub fn parameters(&self) -> &Value {
        &self.usable().0.schema
    }

    /// The schema of the structured result without its broken parts.
    #[must_use]
    pub fn structure(&self) -> Option<&Value> {
        self.usable().1.as_ref().map(|cleaned| &cleaned.schema)
    }

    /// What of its schemas is broken and so not checked, in the arguments and in the result.
    #[must_use]
    pub fn unchecked(&self) -> Vec<Unchecked> {
        let (input, output) = self.usable();
        let result = output.iter().flat_map(|cleaned| &cleaned.unchecked);
        let result =
            result.map(|part| Unchecked { place: format!("result {}", part.place).trim_end().to_owned(), reason: part.reason.clone() });
        input.unchecked.iter().cloned().chain(result).collect()
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
