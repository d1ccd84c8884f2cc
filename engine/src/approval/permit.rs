//! The permit: minted only by the gate, for exactly one call.

use serde_json::{Value, json};

use crate::tool::{self, Call, ToolId, canonical_digest};

/// Leave to run one call, with the arguments inside. It cannot be made outside this room, copied, or used twice.
///
/// It carries a seal: SHA-256 over the canonical JSON of the tool's identity, what its server stood for, the call's id
/// and the digest of the arguments, taken from the request that the person (or the rule) decided about. Spending it checks the call against the seal.
#[derive(Debug)]
pub struct Permit {
    call: Call,
    transport: String,
    by: String,
    seal: Seal,
}

/// What binds a decision to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::approval) struct Seal([u8; 32]);

impl Seal {
    pub(in crate::approval) fn of(call: &Call, transport: &str) -> Self {
        let bound = json!({
            "server": call.tool.server,
            "tool": call.tool.name,
            "schema": call.tool.schema,
            "transport": transport,
            "call": call.id,
            // By their digest: they may be large, and are never copied for this.
            "arguments": canonical_digest(&call.arguments),
        });
        Self(canonical_digest(&bound))
    }
}

impl Permit {
    /// Mints a permit, unless the call is not the one that was sealed.
    pub(in crate::approval) fn mint(call: Call, transport: String, by: String, seal: Seal) -> Result<Self, tool::Error> {
        let permit = Self { call, transport, by, seal };
        permit.check()?;
        Ok(permit)
    }

    /// What allowed the call, in words.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }

    /// The permitted call, by reference.
    #[must_use]
    pub fn call(&self) -> &Call {
        &self.call
    }

    /// What the tool's server stood for when the call was asked for ([`crate::store::Store::server_transport`]).
    #[must_use]
    pub fn transport(&self) -> &str {
        &self.transport
    }

    /// Spends the permit for exactly this tool and gives the arguments that may run.
    pub fn spend_for(self, tool: &ToolId) -> Result<Value, tool::Error> {
        if self.call.tool != *tool {
            return Err(tool::Error::Permit(format!("it is for {} and not for {tool} as it is now", self.call.tool)));
        }
        self.check()?;
        Ok(self.call.arguments)
    }

    fn check(&self) -> Result<(), tool::Error> {
        if Seal::of(&self.call, &self.transport) == self.seal {
            Ok(())
        } else {
            Err(tool::Error::Permit("the call is not the one that was decided about".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::{CallId, SchemaHash};

    fn call() -> Call {
        let tool = ToolId { server: "files".into(), name: "write".to_owned(), schema: SchemaHash::of(&json!({})) };
        Call { id: CallId::new("call_1"), tool, alias: "write".to_owned(), arguments: json!({"path": "/tmp/a", "text": "é"}) }
    }

    #[test]
    fn a_seal_fits_only_the_call_it_was_made_for() {
        let seal = Seal::of(&call(), "npx files");
        let mint = |call: Call, transport: &str| Permit::mint(call, transport.to_owned(), String::new(), seal);
        assert!(mint(call(), "npx files").is_ok());
        assert!(mint(call(), "npx others").is_err());
        let changes: [fn(&mut Call); 5] = [
            |call| call.arguments["path"] = json!("/tmp/b"),
            |call| call.id = CallId::new("call_2"),
            |call| call.tool.server = "other".into(),
            |call| call.tool.name = "read".to_owned(),
            |call| call.tool.schema = SchemaHash::of(&json!(1)),
        ];
        for change in changes {
            let mut other = call();
            change(&mut other);
            assert!(mint(other, "npx files").is_err());
        }
    }

    #[test]
    fn a_permit_is_spent_only_for_its_tool() {
        let permit = |call: Call| Permit::mint(call.clone(), String::new(), "allowed once".to_owned(), Seal::of(&call, "")).unwrap();
        assert_eq!(permit(call()).spend_for(&call().tool).unwrap(), call().arguments);
        let changed = ToolId { schema: SchemaHash::of(&json!({"type": "object"})), ..call().tool };
        assert!(matches!(permit(call()).spend_for(&changed), Err(tool::Error::Permit(_))));
    }
}
