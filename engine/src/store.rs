//! SQLite: everything a person made, written before the screen shows it as done.
//!
//! One connection behind a mutex, WAL mode. Each part of the store keeps its own tables and migrations in its own
//! file; [`Store::open`] runs them in order.

mod approvals;
mod conversations;
mod documents;
mod ledger;
mod servers;
mod words;

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

pub use approvals::{Approval, Effect, Scope, Subject};
pub use documents::{ChunkId, ChunkRow, ContentId, DocumentRow, NewChunk, NewContent, Posting};
pub use ledger::{Break, Check, LedgerRow, LedgerRows, Recorded};
pub use words::words;

/// The migrations of one part of the store: entry n brings the part from version n to n + 1. Entries are only ever
/// appended.
struct Part {
    name: &'static str,
    migrations: &'static [&'static str],
    /// What cannot be said in SQL: the version that an entry leads to, and the work behind its statements.
    work: &'static [(usize, Work)],
}

type Work = fn(&Transaction<'_>) -> Result<(), Error>;

const PARTS: &[Part] = &[
    Part { name: "conversations", migrations: conversations::MIGRATIONS, work: &[] },
    Part { name: "approvals", migrations: approvals::MIGRATIONS, work: &[] },
    Part { name: "documents", migrations: documents::MIGRATIONS, work: &[(2, documents::index_anew)] },
    Part { name: "ledger", migrations: ledger::MIGRATIONS, work: &[] },
    Part { name: "servers", migrations: servers::MIGRATIONS, work: &[] },
];

/// How long a statement waits for another process that holds the database.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Store {
    connection: Arc<Mutex<Connection>>,
    transports: Arc<servers::Transports>,
    /// Held shared while the database is open, so that a process that starts knows whether it is alone.
    _presence: Option<Arc<File>>,
}

impl Store {
    /// Opens or creates the database file and brings it up to date. Where no other process has it open, what a killed
    /// process left unfinished is settled: see [`Store::settle`].
    pub fn open(path: &Path) -> Result<Self, Error> {
        make_private(path);
        let connection =
            Connection::open(path).map_err(|source| Error::Open { path: path.display().to_string(), source: Arc::new(source) })?;
        let mut store = Self::prepare(connection)?;
        let presence = File::create(path.with_extension("lock")).ok();
        // Another process that is running a turn right now owns its unfinished messages; only a lone process settles.
        // Where the file system knows no locks, the one process that is usual is assumed.
        let alone = presence.as_ref().is_none_or(|file| !matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
        if alone {
            let settled = store.settle()?;
            if settled > 0 {
                tracing::info!(settled, "messages that were being written when Handrail ended were settled");
            }
        }
        if let Some(file) = presence {
            if alone {
                let _ = file.unlock();
            }
            if let Err(error) = file.lock_shared() {
                tracing::debug!(%error, "the database's lock file cannot be locked");
            }
            store._presence = Some(Arc::new(file));
        }
        Ok(store)
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
        Ok(Self { connection: Arc::new(Mutex::new(connection)), transports: Arc::default(), _presence: None })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while holding the lock rolled its transaction back; the connection itself is sound.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a read.
    pub(crate) fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, Error>) -> Result<T, Error> {
        work(&self.lock())
    }

    /// A number that becomes another one whenever another process changes the database.
    pub(crate) fn version_elsewhere(&self) -> Result<i64, Error> {
        self.read(|connection| Ok(connection.query_row("PRAGMA data_version", [], |row| row.get(0))?))
    }

    /// Runs a write in one transaction: all of it happens or none.
    pub(crate) fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Error>) -> Result<T, Error> {
        let mut connection = self.lock();
        // Immediate: a read that turns into a write would fail at once where another process wrote in between.
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = work(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }
}

/// Makes the database readable for its owner only, before anything is in it; the files that SQLite puts beside it are like it.
/// One that is there stays as it is.
fn make_private(path: &Path) {
    let mut options = File::options();
    let _ = options.append(true).create_new(true);
    #[cfg(unix)]
    let _ = std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Where this fails, opening it as a database says why.
    let _ = options.open(path);
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
            for (_, work) in part.work.iter().filter(|(version, _)| *version == number + 1) {
                work(&transaction)?;
            }
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
    /// Something that is not there, or not any more.
    #[error("there is no {what} {id}; it may have been deleted")]
    Missing {
        /// What was looked for.
        what: &'static str,
        /// Its id.
        id: String,
    },
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
