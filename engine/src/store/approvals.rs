//! What a person allowed, and what is denied: plain rows that `approval` turns into a verdict.

use jiff::Timestamp;
use rusqlite::{Row, Transaction, params};

use super::conversations::{nanoseconds, timestamp};
use super::{Error, Store};
use crate::conversation::ConversationId;
use crate::tool::{SchemaHash, ServerId, ToolId};

pub(super) const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE approval (
        id INTEGER PRIMARY KEY,
        -- Empty: everywhere.
        conversation TEXT NOT NULL,
        server TEXT NOT NULL,
        -- Both empty: every tool of the server.
        tool TEXT NOT NULL,
        schema TEXT NOT NULL,
        effect TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        UNIQUE (conversation, server, tool, schema, effect)
    ) STRICT;
    CREATE INDEX approval_server ON approval (server);
",
    "
    ALTER TABLE approval RENAME TO approval_before;
    CREATE TABLE approval (
        id INTEGER PRIMARY KEY,
        -- Empty: everywhere.
        conversation TEXT NOT NULL,
        server TEXT NOT NULL,
        -- Both empty: every tool of the server.
        tool TEXT NOT NULL,
        schema TEXT NOT NULL,
        effect TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        -- A hash over the command or address that the server stood for. Nobody knows it for older rows: empty, which
        -- no configured server has, so that they are asked about once more.
        transport TEXT NOT NULL,
        UNIQUE (conversation, server, tool, schema, effect, transport)
    ) STRICT;
    INSERT INTO approval SELECT id, conversation, server, tool, schema, effect, created_at, '' FROM approval_before;
    DROP TABLE approval_before;
    CREATE INDEX approval_server ON approval (server);
",
];

const COLUMNS: &str = "id, conversation, server, tool, schema, effect, created_at, transport";

/// Where a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In one conversation.
    Conversation(ConversationId),
    /// Everywhere.
    Always,
}

/// What a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// One tool, as it was defined then.
    Tool(ToolId),
    /// Every tool of a server.
    Server(ServerId),
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It allows.
    Allow,
    /// It denies.
    Deny,
    /// It allows nothing: it records how a tool was defined when a rule for its whole server let it run, so that a
    /// later change is noticed.
    Seen,
}

impl Effect {
    fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Seen => "seen",
        }
    }
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its row.
    pub id: i64,
    /// Where it holds.
    pub scope: Scope,
    /// What it is about.
    pub subject: Subject,
    /// What it does.
    pub effect: Effect,
    /// Since when.
    pub created_at: Timestamp,
    /// What the server stood for then ([`Store::server_transport`]). A rule that allows holds for nothing else.
    pub transport: String,
}

impl Store {
    /// Every rule, oldest first.
    pub fn approvals(&self) -> Result<Vec<Approval>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM approval ORDER BY id"))?;
            collect(statement.query([])?)
        })
    }

    /// The rules that concern a server's tools in a conversation, oldest first. A row that cannot be read is an error:
    /// a rule that nobody understands must not let anything run.
    pub fn approvals_for(&self, server: &ServerId, conversation: ConversationId) -> Result<Vec<Approval>, Error> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached(&format!("SELECT {COLUMNS} FROM approval WHERE server = ?1 AND conversation IN ('', ?2) ORDER BY id"))?;
            collect(statement.query(params![server.as_str(), conversation.to_string()])?)
        })
    }

    /// Stores a rule for what its server stands for now; see [`Store::put_approval_under`].
    pub fn put_approval(&self, scope: Scope, subject: &Subject, effect: Effect, accepts: Option<&ToolId>) -> Result<(), Error> {
        let (Subject::Tool(ToolId { server, .. }) | Subject::Server(server)) = subject;
        self.put_approval_under(&self.server_transport(server), scope, subject, effect, accepts)
    }

    /// Stores a rule that was given while the server stood for `transport`; an equal one is stored once. A rule that
    /// allows a tool or its server everywhere accepts the tool `accepts` as it is now: what was stored about its earlier
    /// definitions is dropped.
    pub fn put_approval_under(
        &self,
        transport: &str,
        scope: Scope,
        subject: &Subject,
        effect: Effect,
        accepts: Option<&ToolId>,
    ) -> Result<(), Error> {
        self.write(|transaction| {
            if let Some(tool) = accepts {
                let _ = transaction.execute(
                    "DELETE FROM approval WHERE server = ?1 AND tool = ?2 AND schema <> ?3 AND effect <> 'deny' AND transport = ?4",
                    params![tool.server.as_str(), tool.name, tool.schema.to_hex(), transport],
                )?;
            }
            let conversation = match scope {
                Scope::Conversation(id) => id.to_string(),
                Scope::Always => String::new(),
            };
            let (server, tool, schema) = match subject {
                Subject::Tool(tool) => (&tool.server, tool.name.as_str(), tool.schema.to_hex()),
                Subject::Server(server) => (server, "", String::new()),
            };
            let _ = transaction.execute(
                "INSERT OR IGNORE INTO approval (conversation, server, tool, schema, effect, created_at, transport)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![conversation, server.as_str(), tool, schema, effect.as_str(), nanoseconds(Timestamp::now()), transport],
            )?;
            Ok(())
        })
    }

    /// Takes a rule back.
    pub fn remove_approval(&self, id: i64) -> Result<(), Error> {
        self.write(|transaction| {
            let _ = transaction.execute("DELETE FROM approval WHERE id = ?1", [id])?;
            Ok(())
        })
    }

    /// Takes back everything that was allowed for a server: what was consented to for one command or address does not
    /// hold for another one under the same name. Denials stay.
    pub fn forget_server_approvals(&self, server: &ServerId) -> Result<(), Error> {
        self.write(|transaction| {
            let _ = transaction.execute("DELETE FROM approval WHERE server = ?1 AND effect <> 'deny'", [server.as_str()])?;
            Ok(())
        })
    }
}

pub(super) fn forget_conversation(transaction: &Transaction<'_>, conversation: ConversationId) -> Result<(), Error> {
    let _ = transaction.execute("DELETE FROM approval WHERE conversation = ?1", [conversation.to_string()])?;
    Ok(())
}

fn collect(mut rows: rusqlite::Rows<'_>) -> Result<Vec<Approval>, Error> {
    let mut approvals = Vec::new();
    while let Some(row) = rows.next()? {
        approvals.push(approval_of(row)?);
    }
    Ok(approvals)
}

fn approval_of(row: &Row<'_>) -> Result<Approval, Error> {
    let id: i64 = row.get(0)?;
    let damaged = |what: &str| Error::Damaged { table: "approval", reason: format!("row {id} has no readable {what}") };
    let conversation: String = row.get(1)?;
    let (server, name, schema): (String, String, String) = (row.get(2)?, row.get(3)?, row.get(4)?);
    let scope = if conversation.is_empty() {
        Scope::Always
    } else {
        Scope::Conversation(ConversationId(conversation.parse().map_err(|_| damaged("conversation"))?))
    };
    let server = ServerId::new(server);
    let subject = if schema.is_empty() && name.is_empty() {
        Subject::Server(server)
    } else {
        Subject::Tool(ToolId { server, name, schema: SchemaHash::from_hex(&schema).ok_or_else(|| damaged("schema hash"))? })
    };
    let effect = match row.get::<_, String>(5)?.as_str() {
        "allow" => Effect::Allow,
        "deny" => Effect::Deny,
        "seen" => Effect::Seen,
        _ => return Err(damaged("effect")),
    };
    Ok(Approval { id, scope, subject, effect, created_at: timestamp(row, 6)?, transport: row.get(7)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(schema: &str) -> ToolId {
        ToolId { server: "files".into(), name: "read".to_owned(), schema: SchemaHash::of(&json!(schema)) }
    }

    #[test]
    fn a_rule_is_stored_once_and_goes_with_its_conversation() {
        let store = Store::in_memory().unwrap();
        let (here, there) = (store.new_conversation().unwrap().id, store.new_conversation().unwrap().id);
        for _ in 0..2 {
            store.put_approval(Scope::Conversation(here), &Subject::Tool(tool("1")), Effect::Allow, None).unwrap();
        }
        assert_eq!(store.approvals_for(&"files".into(), here).unwrap().len(), 1);
        assert!(store.approvals_for(&"files".into(), there).unwrap().is_empty());
        store.delete_conversation(here).unwrap();
        assert!(store.approvals().unwrap().is_empty());
    }

    #[test]
    fn accepting_a_tool_drops_its_earlier_definitions_but_no_denial() {
        let store = Store::in_memory().unwrap();
        store.put_approval(Scope::Always, &Subject::Tool(tool("1")), Effect::Allow, None).unwrap();
        store.put_approval(Scope::Always, &Subject::Tool(tool("0")), Effect::Deny, None).unwrap();
        store.put_approval(Scope::Always, &Subject::Tool(tool("2")), Effect::Allow, Some(&tool("2"))).unwrap();
        let left: Vec<(Subject, Effect)> = store.approvals().unwrap().into_iter().map(|a| (a.subject, a.effect)).collect();
        assert_eq!(left, [(Subject::Tool(tool("0")), Effect::Deny), (Subject::Tool(tool("2")), Effect::Allow)]);
    }

    #[test]
    fn rules_from_before_transports_were_known_are_kept_but_for_none() {
        let mut connection = rusqlite::Connection::open_in_memory().unwrap();
        connection.execute_batch(MIGRATIONS[0]).unwrap();
        let row = "INSERT INTO approval (conversation, server, tool, schema, effect, created_at) VALUES ('', 'files', '', '', 'allow', 7)";
        connection.execute_batch(row).unwrap();
        let transaction = connection.transaction().unwrap();
        transaction.execute_batch(MIGRATIONS[1]).unwrap();
        transaction.commit().unwrap();
        let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM approval")).unwrap();
        let rules = collect(statement.query([]).unwrap()).unwrap();
        assert_eq!((rules.len(), &rules[0].subject, rules[0].transport.as_str()), (1, &Subject::Server("files".into()), ""));
    }

    #[test]
    fn a_damaged_rule_is_an_error() {
        let store = Store::in_memory().unwrap();
        store.put_approval(Scope::Always, &Subject::Tool(tool("1")), Effect::Allow, None).unwrap();
        store.write(|t| Ok(t.execute_batch("UPDATE approval SET schema = 'x'")?)).unwrap();
        let here = ConversationId::fresh();
        assert!(matches!(store.approvals_for(&"files".into(), here), Err(Error::Damaged { table: "approval", .. })));
    }
}
