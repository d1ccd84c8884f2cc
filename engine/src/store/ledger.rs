//! The ledger: what was decided about each call and what came of it. Rows are only ever appended, and each carries
//! the hash of the one before, so that an edited, removed or inserted row is found.
//!
//! A row's hash is SHA-256 over the previous row's hash in hexadecimal, a line feed, and the canonical JSON of the row
//! without its own hash. The first row follows 64 zeros. What a chain alone cannot show is that its newest rows were
//! cut off: keep an export to compare with.

use jiff::Timestamp;
use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::conversations::{json, nanoseconds, timestamp};
use super::{Error, Store};
use crate::conversation::ConversationId;
use crate::tool::{Call, CallId, SchemaHash, ServerId, ToolId, canonical_digest, canonical_json};

pub(super) const MIGRATIONS: &[&str] = &["
    CREATE TABLE ledger (
        number INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        asked_by TEXT NOT NULL,
        conversation TEXT NOT NULL,
        call TEXT NOT NULL,
        server TEXT NOT NULL,
        tool TEXT NOT NULL,
        schema TEXT NOT NULL,
        arguments TEXT NOT NULL,
        recorded TEXT NOT NULL,
        previous TEXT NOT NULL,
        hash TEXT NOT NULL
    ) STRICT;
    CREATE TRIGGER ledger_is_never_edited BEFORE UPDATE ON ledger BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END;
    CREATE TRIGGER ledger_is_never_cut BEFORE DELETE ON ledger BEGIN SELECT raise(ABORT, 'the ledger is append-only'); END;
"];

/// Rows that one read of an export takes.
const PAGE: i64 = 500;

const COLUMNS: &str = "number, at, asked_by, conversation, call, server, tool, schema, arguments, recorded, previous, hash";

/// One row of the ledger.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LedgerRow {
    /// Its number, from 1, without gaps.
    pub number: u64,
    /// When it was written.
    pub at: Timestamp,
    /// Who asked: a model, the command line.
    pub asked_by: String,
    /// The conversation that the call belongs to.
    pub conversation: ConversationId,
    /// The call.
    pub call: CallId,
    /// The tool's identity.
    pub tool: ToolId,
    /// SHA-256 of the canonical JSON of the arguments, in hexadecimal.
    pub arguments: String,
    /// What is recorded.
    pub recorded: Recorded,
    /// The hash of the row before.
    pub previous: String,
    /// The hash of this row.
    pub hash: String,
}

/// What a row records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Recorded {
    /// The call was decided.
    Decided {
        /// Whether it may run.
        allowed: bool,
        /// The click or the rule, in words.
        by: String,
    },
    /// The call ended.
    Ended {
        /// How, in words.
        outcome: String,
        /// How long it ran.
        milliseconds: u64,
    },
}

/// What a check of the whole chain found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Rows that were read and fit.
    pub rows: u64,
    /// The first row that does not fit.
    pub broken: Option<Break>,
}

/// The first row that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Break {
    /// Its number.
    pub number: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// The rows of the ledger, oldest first; read page by page, so that the database is free in between.
#[derive(Debug)]
pub struct LedgerRows {
    store: Store,
    page: std::vec::IntoIter<LedgerRow>,
    after: i64,
    done: bool,
}

impl Iterator for LedgerRows {
    type Item = Result<LedgerRow, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.page.len() == 0 && !self.done {
            match self.store.ledger_page(self.after) {
                Ok(page) => {
                    self.done = page.is_empty();
                    self.page = page.into_iter();
                }
                Err(error) => {
                    self.done = true;
                    return Some(Err(error));
                }
            }
        }
        let row = self.page.next()?;
        self.after = i64::try_from(row.number).unwrap_or(i64::MAX);
        Some(Ok(row))
    }
}

impl Store {
    /// Appends a row about a call.
    pub fn append_ledger(&self, asked_by: &str, conversation: ConversationId, call: &Call, recorded: Recorded) -> Result<(), Error> {
        self.write(|transaction| {
            let last: Option<(i64, String)> = transaction
                .query_row("SELECT number, hash FROM ledger ORDER BY number DESC LIMIT 1", [], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let (last, previous) = last.unwrap_or_else(|| (0, "0".repeat(64)));
            let mut row = LedgerRow {
                number: u64::try_from(last).unwrap_or_default() + 1,
                at: Timestamp::now(),
                asked_by: asked_by.to_owned(),
                conversation,
                call: call.id.clone(),
                tool: call.tool.clone(),
                arguments: hex(&canonical_digest(&call.arguments)),
                recorded,
                previous,
                hash: String::new(),
            };
            row.hash = hash_of(&row)?;
            let recorded = serde_json::to_string(&row.recorded).map_err(|error| damaged(&error.to_string()))?;
            let _ = transaction.execute(
                &format!("INSERT INTO ledger ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"),
                params![
                    last + 1,
                    nanoseconds(row.at),
                    row.asked_by,
                    row.conversation.to_string(),
                    row.call.as_str(),
                    row.tool.server.as_str(),
                    row.tool.name,
                    row.tool.schema.to_hex(),
                    row.arguments,
                    recorded,
                    row.previous,
                    row.hash
                ],
            )?;
            Ok(())
        })
    }

    /// All rows, oldest first.
    #[must_use]
    pub fn ledger(&self) -> LedgerRows {
        LedgerRows { store: self.clone(), page: Vec::new().into_iter(), after: i64::MIN, done: false }
    }

    /// Checks the whole chain and names the first row that does not fit.
    pub fn verify_ledger(&self) -> Result<Check, Error> {
        let (mut rows, mut previous) = (0, "0".repeat(64));
        for row in self.ledger() {
            let row = match row {
                Ok(row) => row,
                Err(Error::Sqlite(error)) if !matches!(*error, rusqlite::Error::SqliteFailure(..)) => {
                    return Ok(Check { rows, broken: Some(Break { number: rows + 1, reason: format!("it cannot be read: {error}") }) });
                }
                Err(Error::Damaged { reason, .. }) => {
                    return Ok(Check { rows, broken: Some(Break { number: rows + 1, reason: format!("it cannot be read: {reason}") }) });
                }
                Err(error) => return Err(error),
            };
            let reason = if row.number != rows + 1 {
                Some(format!("row {} is missing before it", rows + 1))
            } else if row.previous != previous {
                Some("it does not follow the row before it".to_owned())
            } else if hash_of(&row)? != row.hash {
                Some("its content does not fit its hash".to_owned())
            } else {
                None
            };
            if let Some(reason) = reason {
                return Ok(Check { rows, broken: Some(Break { number: row.number, reason }) });
            }
            rows += 1;
            previous = row.hash;
        }
        Ok(Check { rows, broken: None })
    }

    fn ledger_page(&self, after: i64) -> Result<Vec<LedgerRow>, Error> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached(&format!("SELECT {COLUMNS} FROM ledger WHERE number > ?1 ORDER BY number LIMIT {PAGE}"))?;
            let mut rows = statement.query([after])?;
            let mut page = Vec::new();
            while let Some(row) = rows.next()? {
                match row_of(row) {
                    Ok(row) => page.push(row),
                    // What was read before the damaged row comes out first, so that the check can name the row.
                    Err(error) if page.is_empty() => return Err(error),
                    Err(_) => break,
                }
            }
            Ok(page)
        })
    }
}

fn row_of(row: &Row<'_>) -> Result<LedgerRow, Error> {
    let number: i64 = row.get(0)?;
    let schema: String = row.get(7)?;
    Ok(LedgerRow {
        number: u64::try_from(number).map_err(|_| damaged(&format!("row number {number}")))?,
        at: timestamp(row, 1)?,
        asked_by: row.get(2)?,
        conversation: ConversationId(row.get::<_, String>(3)?.parse().map_err(|_| damaged("conversation"))?),
        call: CallId::new(row.get::<_, String>(4)?),
        tool: ToolId {
            server: ServerId::new(row.get::<_, String>(5)?),
            name: row.get(6)?,
            schema: SchemaHash::from_hex(&schema).ok_or_else(|| damaged("schema hash"))?,
        },
        arguments: row.get(8)?,
        recorded: json(row, 9)?,
        previous: row.get(10)?,
        hash: row.get(11)?,
    })
}

fn hash_of(row: &LedgerRow) -> Result<String, Error> {
    let mut value = serde_json::to_value(row).map_err(|error| damaged(&error.to_string()))?;
    if let Some(fields) = value.as_object_mut() {
        let _ = fields.remove("hash");
    }
    Ok(hex(&Sha256::digest(format!("{}\n{}", row.previous, canonical_json(&value)))))
}

fn damaged(reason: &str) -> Error {
    Error::Damaged { table: "ledger", reason: reason.to_owned() }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(rows: usize) -> Store {
        let store = Store::in_memory().unwrap();
        let tool = ToolId { server: "files".into(), name: "read".to_owned(), schema: SchemaHash::of(&json!({})) };
        for n in 0..rows {
            let call = Call { id: CallId::fresh(), tool: tool.clone(), alias: "read".to_owned(), arguments: json!({ "n": n }) };
            let recorded = Recorded::Decided { allowed: true, by: "allowed once".to_owned() };
            store.append_ledger("test", ConversationId::fresh(), &call, recorded).unwrap();
        }
        store
    }

    fn tamper(store: &Store, statement: &str) {
        store
            .write(|t| {
                t.execute_batch("DROP TRIGGER ledger_is_never_edited; DROP TRIGGER ledger_is_never_cut")?;
                Ok(t.execute_batch(statement)?)
            })
            .unwrap();
    }

    #[test]
    fn a_whole_chain_verifies_over_several_pages() {
        let store = filled(3);
        assert_eq!(store.verify_ledger().unwrap(), Check { rows: 3, broken: None });
        let long = filled(usize::try_from(PAGE).unwrap() + 3);
        assert_eq!(long.verify_ledger().unwrap(), Check { rows: 503, broken: None });
        assert_eq!(long.ledger().count(), 503);
    }

    #[test]
    fn rows_cannot_be_edited_or_removed_by_accident() {
        let store = filled(2);
        assert!(store.write(|t| Ok(t.execute("UPDATE ledger SET asked_by = 'x'", [])?)).is_err());
        assert!(store.write(|t| Ok(t.execute("DELETE FROM ledger", [])?)).is_err());
    }

    #[test]
    fn the_first_broken_row_is_named() {
        for (statement, number, reason) in [
            ("UPDATE ledger SET recorded = replace(recorded, 'true', 'false') WHERE number = 3", 3, "content"),
            ("DELETE FROM ledger WHERE number = 2", 3, "missing"),
            ("UPDATE ledger SET previous = hash WHERE number = 4", 4, "follow"),
            ("UPDATE ledger SET schema = 'zz' WHERE number = 2", 2, "cannot be read"),
            ("UPDATE ledger SET at = at + 1 WHERE number = 1", 1, "content"),
        ] {
            let store = filled(5);
            tamper(&store, statement);
            let broken = store.verify_ledger().unwrap().broken.unwrap();
            assert_eq!(broken.number, number, "{statement}: {}", broken.reason);
            assert!(broken.reason.contains(reason), "{statement}: {}", broken.reason);
        }
    }
}
