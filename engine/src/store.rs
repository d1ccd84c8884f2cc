//! SQLite: everything a person made, written before the screen shows it as done.
//!
//! One connection behind a mutex, WAL mode. Each part of the store keeps its own tables and migrations in its own
//! file; [`Store::open`] runs them in order.

mod conversations;
mod approvals;
mod documents;
mod ledger;
mod servers;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, params};


pub use documents::{ChunkId, ChunkRow, ContentId, DocumentRow, NewChunk, NewContent, Posting, words};
pub use ledger::LedgerRow;

/// The migrations of one part of the store: entry n brings the part from version n to n + 1. Entries are only ever
/// appended.
struct Part {
    name: &'static str,
    migrations: &'static [&'static str],
}

const PARTS: &[Part] = &[
    Part { name: "conversations", migrations: conversations::MIGRATIONS },
    Part { name: "approvals", migrations: approvals::MIGRATIONS },
    Part { name: "documents", migrations: documents::MIGRATIONS },
    Part { name: "ledger", migrations: ledger::MIGRATIONS },
    Part { name: "servers", migrations: servers::MIGRATIONS },
];

/// How long a statement waits for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    connection: Arc<Mutex<Connection>>,
}

impl Store {
    /// Opens or creates the database file and brings it up to date.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let connection = Connection::open(path).map_err(|source| Error::Open { path: path.display().to_string(), source: Arc::new(source) })?;
        Self::prepare(connection)
    }

    /// A database that lives in memory, for tests.
    pub fn in_memory() -> Result<Self, Error> {
        Self::prepare(Connection::open_in_memory()?)
    }

    fn prepare(mut connection: Connection) -> Result<Self, Error> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // WAL with NORMAL survives a killed process; only a power cut may cost the last transactions.
        let _mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        connection.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;")?;
        migrate(&mut connection)?;
        Ok(Self { connection: Arc::new(Mutex::new(connection)) })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while holding the lock rolled its transaction back; the connection itself is sound.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a read.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        work(&self.lock())
    }

    /// Runs a write in one transaction: all of it happens or none.
    pub(crate) fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }
}

fn migrate(connection: &mut Connection) -> Result<(), Error> {
    connection.execute_batch("CREATE TABLE IF NOT EXISTS migration (part TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT")?;
    for part in PARTS {
        let version: usize = connection
            .query_row("SELECT version FROM migration WHERE part = ?1", [part.name], |row| row.get::<_, i64>(0))
            .optional()?
            .map_or(0, |version| usize::try_from(version).unwrap_or(usize::MAX));
        if version > part.migrations.len() {
            return Err(Error::Newer { part: part.name });
        }
        for (number, statements) in part.migrations.iter().enumerate().skip(version) {
            let transaction = connection.transaction()?;
            transaction.execute_batch(statements)?;
            let _ = transaction.execute(
                "INSERT INTO migration (part, version) VALUES (?1, ?2) ON CONFLICT (part) DO UPDATE SET version = ?2",
                params![part.name, i64::try_from(number + 1).unwrap_or(i64::MAX)],
            )?;
            transaction.commit()?;
        }
    }
    Ok(())
}

/// Why the database could not do something.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The file could not be opened.
    #[error("the database {path} cannot be opened: {source}")]
    Open {
        /// The file.
        path: String,
        /// Why.
        source: Arc<rusqlite::Error>,
    },
    /// The file was written by a newer Handrail.
    #[error("the database was written by a newer version of Handrail (its {part} are newer); it is left as it is")]
    Newer {
        /// Which part of the store.
        part: &'static str,
    },
    /// A statement failed.
    #[error("the database refused: {0}")]
    Sqlite(Arc<rusqlite::Error>),
    /// A row holds what it should not.
    #[error("the database holds a damaged row in {table}: {reason}")]
    Damaged {
        /// Which table.
        table: &'static str,
        /// What is wrong.
        reason: String,
    },
}

impl From<rusqlite::Error> for Error {
    fn from(source: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(source))
    }
}
