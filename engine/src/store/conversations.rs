//! Conversations and their messages.
//!
//! A message is one row: its parts and its status are JSON, so that a part may gain fields without a migration.
//! Messages are ordered by id (UUID version 7). Every change of a message is one transaction; in WAL mode a killed
//! process loses nothing that was committed.

use std::collections::BTreeSet;

use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{OptionalExtension, Row, Transaction, params};
use uuid::Uuid;

use super::{Error, Store};
use crate::conversation::{CallState, Conversation, ConversationId, Message, MessageId, Part, Role, Status};
use crate::tool::ServerId;

/// Longest title taken from a first message, in characters.
const TITLE: usize = 60;

/// What becomes of a call that was proposed, but not decided, when the process ended.
pub const NEVER_DECIDED: &str = "Handrail ended before anyone decided about this call; it was not run";

/// What becomes of a call that was allowed, but not sent, when the process ended.
pub const NEVER_SENT: &str = "Handrail ended after this call was allowed and before it was sent; it was not run";

pub(super) const MIGRATIONS: &[&str] = &["
    CREATE TABLE conversation (
        id BLOB PRIMARY KEY,
        title TEXT NOT NULL,
        model TEXT,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX conversation_updated ON conversation (updated_at);
    CREATE TABLE message (
        id BLOB PRIMARY KEY,
        conversation BLOB NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
        role TEXT NOT NULL,
        parts TEXT NOT NULL,
        status TEXT NOT NULL,
        model TEXT,
        created_at INTEGER NOT NULL,
        unsettled INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX message_conversation ON message (conversation, id);
    CREATE INDEX message_unsettled ON message (id) WHERE unsettled = 1;
    CREATE TABLE offered_tool (
        conversation BLOB NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
        server TEXT NOT NULL,
        name TEXT NOT NULL,
        PRIMARY KEY (conversation, server, name)
    ) STRICT, WITHOUT ROWID;
"];

impl Store {
    /// All conversations, the last changed first.
    pub fn conversations(&self) -> Result<Vec<Conversation>, Error> {
        self.read(|connection| {
            let mut statement = connection
                .prepare_cached("SELECT id, title, model, created_at, updated_at FROM conversation ORDER BY updated_at DESC, id DESC")?;
            let rows = statement.query_map([], conversation_of)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// One conversation, where it exists.
    pub fn conversation(&self, id: ConversationId) -> Result<Option<Conversation>, Error> {
        self.read(|connection| {
            let mut statement =
                connection.prepare_cached("SELECT id, title, model, created_at, updated_at FROM conversation WHERE id = ?1")?;
            Ok(statement.query_row([id.0.as_bytes().as_slice()], conversation_of).optional()?)
        })
    }

    /// Begins a conversation.
    pub fn new_conversation(&self) -> Result<Conversation, Error> {
        let now = Timestamp::now();
        let conversation =
            Conversation { id: ConversationId::fresh(), title: String::new(), model: None, created_at: now, updated_at: now };
        self.write(|transaction| {
            let _ = transaction.execute(
                "INSERT INTO conversation (id, title, model, created_at, updated_at) VALUES (?1, '', NULL, ?2, ?2)",
                params![conversation.id.0.as_bytes().as_slice(), nanoseconds(now)],
            )?;
            Ok(())
        })?;
        Ok(conversation)
    }

    /// The messages of a conversation, oldest first.
    pub fn messages(&self, conversation: ConversationId) -> Result<Vec<Message>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT id, conversation, role, parts, status, model, created_at FROM message WHERE conversation = ?1 ORDER BY id",
            )?;
            let rows = statement.query_map([conversation.0.as_bytes().as_slice()], message_of)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Stores a message, new or changed. The conversation is touched, takes the message's model, and takes its title
    /// from the first text of the person. A message of a deleted conversation is refused with [`Error::Missing`].
    pub fn put_message(&self, message: &Message) -> Result<(), Error> {
        self.write(|transaction| put(transaction, message))
    }

    /// Renames a conversation.
    pub fn rename_conversation(&self, conversation: ConversationId, title: &str) -> Result<(), Error> {
        self.write(|transaction| {
            let changed = transaction.execute(
                "UPDATE conversation SET title = ?2, updated_at = ?3 WHERE id = ?1",
                params![conversation.0.as_bytes().as_slice(), title.trim(), nanoseconds(Timestamp::now())],
            )?;
            if changed == 0 { Err(missing(conversation)) } else { Ok(()) }
        })
    }

    /// Deletes a conversation with its messages and with what was allowed in it. The ledger keeps its rows.
    pub fn delete_conversation(&self, conversation: ConversationId) -> Result<(), Error> {
        self.write(|transaction| {
            super::approvals::forget_conversation(transaction, conversation)?;
            let _ = transaction.execute("DELETE FROM conversation WHERE id = ?1", [conversation.0.as_bytes().as_slice()])?;
            Ok(())
        })
    }

    /// The tools that were offered in a conversation so far, by server and name. The set only grows.
    pub fn offered_tools(&self, conversation: ConversationId) -> Result<BTreeSet<(ServerId, String)>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT server, name FROM offered_tool WHERE conversation = ?1")?;
            let rows = statement
                .query_map([conversation.0.as_bytes().as_slice()], |row| Ok((ServerId::new(row.get::<_, String>(0)?), row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
    }

    /// Remembers that tools were offered in a conversation.
    pub fn add_offered_tools<'a>(
        &self,
        conversation: ConversationId,
        tools: impl IntoIterator<Item = (&'a ServerId, &'a str)>,
    ) -> Result<(), Error> {
        self.write(|transaction| {
            let mut statement =
                transaction.prepare_cached("INSERT OR IGNORE INTO offered_tool (conversation, server, name) VALUES (?1, ?2, ?3)")?;
            for (server, name) in tools {
                let _ = statement.execute(params![conversation.0.as_bytes().as_slice(), server.as_str(), name])?;
            }
            Ok(())
        })
    }

    /// Settles what a killed process left unfinished, and says how many messages that were. Messages that were being
    /// written become [`Status::Stopped`] with the text that they have. A call that was sent becomes
    /// [`CallState::Unknown`] and is never sent again. One that was proposed or allowed stays visible as
    /// [`CallState::Failed`] with a reason that says that it was not run: `Sent` is stored before anything is sent.
    pub fn settle(&self) -> Result<usize, Error> {
        self.write(|transaction| {
            let mut statement =
                transaction.prepare("SELECT id, conversation, role, parts, status, model, created_at FROM message WHERE unsettled = 1")?;
            let messages: Vec<Message> = statement.query_map([], message_of)?.collect::<Result<_, _>>()?;
            for mut message in messages.iter().cloned() {
                settle(&mut message);
                write_message(transaction, &message)?;
            }
            Ok(messages.len())
        })
    }
}

/// The settled form of a message whose process ended.
fn settle(message: &mut Message) {
    if message.status == Status::Streaming {
        message.status = Status::Stopped;
    }
    for part in &mut message.parts {
        if let Part::Call(record) = part {
            match record.state {
                CallState::Sent { .. } => record.state = CallState::Unknown,
                CallState::Proposed => record.state = CallState::Failed { reason: NEVER_DECIDED.to_owned() },
                CallState::Approved { .. } => record.state = CallState::Failed { reason: NEVER_SENT.to_owned() },
                CallState::Done { .. } | CallState::Denied { .. } | CallState::Failed { .. } | CallState::Stopped | CallState::Unknown => {}
            }
        }
    }
}

fn put(transaction: &Transaction<'_>, message: &Message) -> Result<(), Error> {
    let id = message.conversation.0.as_bytes().as_slice();
    let title: Option<String> = transaction.query_row("SELECT title FROM conversation WHERE id = ?1", [id], |row| row.get(0)).optional()?;
    let Some(title) = title else { return Err(missing(message.conversation)) };
    write_message(transaction, message)?;
    let title = if title.is_empty() && message.role == Role::User { title_of(&message.text()) } else { title };
    let _ = transaction.execute(
        "UPDATE conversation SET title = ?2, updated_at = ?3, model = coalesce(?4, model) WHERE id = ?1",
        params![id, title, nanoseconds(Timestamp::now()), message.model],
    )?;
    Ok(())
}

fn write_message(transaction: &Transaction<'_>, message: &Message) -> Result<(), Error> {
    let damaged = |error: serde_json::Error| Error::Damaged { table: "message", reason: error.to_string() };
    let _ = transaction
        .prepare_cached(
            "INSERT INTO message (id, conversation, role, parts, status, model, created_at, unsettled)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
             ON CONFLICT (id) DO UPDATE SET parts = ?4, status = ?5, model = ?6, unsettled = ?8",
        )?
        .execute(params![
            message.id.0.as_bytes().as_slice(),
            message.conversation.0.as_bytes().as_slice(),
            serde_json::to_string(&message.role).map_err(damaged)?,
            serde_json::to_string(&message.parts).map_err(damaged)?,
            serde_json::to_string(&message.status).map_err(damaged)?,
            message.model,
            nanoseconds(message.created_at),
            unsettled(message),
        ])?;
    Ok(())
}

fn unsettled(message: &Message) -> bool {
    let open_call = |part: &Part| {
        matches!(
            part,
            Part::Call(record) if matches!(record.state, CallState::Proposed | CallState::Approved { .. } | CallState::Sent { .. })
        )
    };
    message.status == Status::Streaming || message.parts.iter().any(open_call)
}

/// A title from the person's first text: one line, cut at a word.
fn title_of(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let Some((cut, _)) = line.char_indices().nth(TITLE) else {
        return line;
    };
    let head = &line[..cut];
    // Text without spaces (Chinese, one long URL) is cut where it stands.
    let end = head.rfind(' ').filter(|space| *space > cut / 2).unwrap_or(cut);
    format!("{}…", head[..end].trim_end_matches([' ', ',', '.', ';', ':']))
}

fn missing(conversation: ConversationId) -> Error {
    Error::Missing { what: "conversation", id: conversation.to_string() }
}

/// Timestamps are stored as nanoseconds since 1970, which sort and come back exactly.
pub(super) fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

pub(super) fn timestamp(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    let stored: i64 = row.get(column)?;
    Timestamp::from_nanosecond(i128::from(stored)).map_err(|error| unreadable(column, Type::Integer, error))
}

pub(super) fn uuid(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    let stored: Vec<u8> = row.get(column)?;
    Uuid::from_slice(&stored).map_err(|error| unreadable(column, Type::Blob, error))
}

pub(super) fn json<T: serde::de::DeserializeOwned>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let stored: String = row.get(column)?;
    serde_json::from_str(&stored).map_err(|error| unreadable(column, Type::Text, error))
}

fn unreadable(column: usize, kind: Type, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, kind, Box::new(error))
}

fn conversation_of(row: &Row<'_>) -> rusqlite::Result<Conversation> {
    Ok(Conversation {
        id: ConversationId(uuid(row, 0)?),
        title: row.get(1)?,
        model: row.get(2)?,
        created_at: timestamp(row, 3)?,
        updated_at: timestamp(row, 4)?,
    })
}

fn message_of(row: &Row<'_>) -> rusqlite::Result<Message> {
    Ok(Message {
        id: MessageId(uuid(row, 0)?),
        conversation: ConversationId(uuid(row, 1)?),
        role: json(row, 2)?,
        parts: json(row, 3)?,
        status: json(row, 4)?,
        model: row.get(5)?,
        created_at: timestamp(row, 6)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_is_one_line_cut_at_a_word() {
        assert_eq!(title_of("  What time\nis it in Tokyo? "), "What time is it in Tokyo?");
        let long = title_of("Please compare the three proposals in the attached documents and tell me which is cheapest");
        assert!(long.ends_with('…') && long.chars().count() <= TITLE + 1, "{long}");
        assert_eq!(long, "Please compare the three proposals in the attached…");
        let chinese = title_of(&"请比较附件中的三个方案".repeat(8));
        assert_eq!(chinese.chars().count(), TITLE + 1);
    }
}
