//! What was learned about servers: which era of the protocol each configuration speaks, what a person agreed to start,
//! and where an entry came from. And, in memory only, which command or address each server of this process stands for.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension as _, params};
use tokio::sync::watch;

use super::{Error, Store};
use crate::tool::ServerId;

pub(super) const MIGRATIONS: &[&str] = &[
    "CREATE TABLE server_era (
    -- A hash over what decides which program or address answers; a changed configuration is asked anew.
    configuration TEXT PRIMARY KEY,
    era TEXT NOT NULL,
    seen_at TEXT NOT NULL
) STRICT;",
    "CREATE TABLE server_consent (
    server TEXT PRIMARY KEY,
    -- A hash over the command or address that a person saw and agreed to; another one is asked about anew.
    hash TEXT NOT NULL,
    agreed_at TEXT NOT NULL
) STRICT;
CREATE TABLE server_origin (
    server TEXT PRIMARY KEY,
    -- Where the entry came from, as JSON; no row: it was written into the file.
    origin TEXT NOT NULL
) STRICT;",
    "CREATE TABLE server_sign_in (
    server TEXT PRIMARY KEY,
    -- Who issued the tokens that are kept in the keyring; nothing secret. No row: there are none, and nobody looks there.
    issuer TEXT NOT NULL,
    signed_in_at TEXT NOT NULL
) STRICT;",
];

/// Hashes of the commands and addresses, by server. Other processes may use other ones under the same names, so
/// this is no table.
pub(super) type Transports = watch::Sender<BTreeMap<ServerId, String>>;

fn of<'a>(transports: &'a BTreeMap<ServerId, String>, server: &ServerId) -> &'a str {
    transports.get(server).map_or("", String::as_str)
}

impl Store {
    /// The hash of the command or address that a server stands for in this process; empty where there is none.
    #[must_use]
    pub fn server_transport(&self, server: &ServerId) -> String {
        of(&self.transports.borrow(), server).to_owned()
    }

    /// Says what a server stands for from now on (none: it is gone). Rules given for something else do not hold then,
    /// and calls that wait for a decision about something else are denied.
    pub fn set_server_transport(&self, server: &ServerId, transport: Option<String>) {
        let _changed = self.transports.send_if_modified(|transports| {
            let changed = of(transports, server) != transport.as_deref().unwrap_or_default();
            let _ = match transport {
                Some(transport) => transports.insert(server.clone(), transport),
                None => transports.remove(server),
            };
            changed
        });
    }

    /// Waits until a server stands for something else than `transport`.
    pub(crate) async fn server_transport_left(&self, server: &ServerId, transport: &str) {
        let mut transports = self.transports.subscribe();
        // The sender lives as long as this store.
        let _ = transports.wait_for(|transports| of(transports, server) != transport).await;
    }

    /// The era that a server configuration spoke last, as it was given to [`Store::set_server_era`].
    pub fn server_era(&self, configuration: &str) -> Result<Option<String>, Error> {
        self.read(|connection| {
            Ok(connection.query_row("SELECT era FROM server_era WHERE configuration = ?1", [configuration], |row| row.get(0)).optional()?)
        })
    }

    /// Remembers the era that a server configuration speaks.
    pub fn set_server_era(&self, configuration: &str, era: &str) -> Result<(), Error> {
        self.write(|transaction| {
            let _ = transaction.execute(
                "INSERT INTO server_era (configuration, era, seen_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (configuration) DO UPDATE SET era = ?2, seen_at = ?3",
                params![configuration, era, jiff::Timestamp::now().to_string()],
            )?;
            Ok(())
        })
    }
}

/// Consent.
impl Store {
    /// The hash that was agreed to last for a server.
    pub fn server_consent(&self, server: &ServerId) -> Result<Option<String>, Error> {
        self.read(|connection| {
            let found = connection.query_row("SELECT hash FROM server_consent WHERE server = ?1", [server.as_str()], |row| row.get(0));
            Ok(found.optional()?)
        })
    }

    /// Records that a person agreed to start this.
    pub fn set_server_consent(&self, server: &ServerId, hash: &str) -> Result<(), Error> {
        self.write(|transaction| {
            let _ = transaction.execute(
                "INSERT INTO server_consent (server, hash, agreed_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (server) DO UPDATE SET hash = ?2, agreed_at = ?3",
                params![server.as_str(), hash, jiff::Timestamp::now().to_string()],
            )?;
            Ok(())
        })
    }

    /// Where a server's entry came from, as it was given to [`Store::set_server_origin`].
    pub fn server_origin(&self, server: &ServerId) -> Result<Option<String>, Error> {
        self.read(|connection| {
            let found = connection.query_row("SELECT origin FROM server_origin WHERE server = ?1", [server.as_str()], |row| row.get(0));
            Ok(found.optional()?)
        })
    }

    /// Remembers where a server's entry came from.
    pub fn set_server_origin(&self, server: &ServerId, origin: &str) -> Result<(), Error> {
        self.write(|transaction| {
            let _ = transaction.execute(
                "INSERT INTO server_origin (server, origin) VALUES (?1, ?2) ON CONFLICT (server) DO UPDATE SET origin = ?2",
                params![server.as_str(), origin],
            )?;
            Ok(())
        })
    }

    /// Every server that something was agreed to for, or whose origin is known.
    pub fn servers_agreed(&self) -> Result<Vec<ServerId>, Error> {
        self.read(|connection| {
            let mut rows = connection.prepare("SELECT server FROM server_consent UNION SELECT server FROM server_origin ORDER BY 1")?;
            let servers = rows.query_map([], |row| row.get::<_, String>(0))?;
            servers.map(|server| Ok(ServerId::new(server?))).collect()
        })
    }

    /// Forgets what was agreed to for a server that is gone, and where it came from.
    pub fn forget_server_consent(&self, server: &ServerId) -> Result<(), Error> {
        self.write(|transaction| {
            let _ = transaction.execute("DELETE FROM server_consent WHERE server = ?1", [server.as_str()])?;
            let _ = transaction.execute("DELETE FROM server_origin WHERE server = ?1", [server.as_str()])?;
            Ok(())
        })
    }
}

/// Sign-in.
impl Store {
    /// Who issued the tokens that are kept for a server.
    pub fn server_sign_in(&self, server: &ServerId) -> Result<Option<String>, Error> {
        self.read(|connection| {
            let found = connection.query_row("SELECT issuer FROM server_sign_in WHERE server = ?1", [server.as_str()], |row| row.get(0));
            Ok(found.optional()?)
        })
    }

    /// Remembers that tokens of this issuer are kept for a server; none: there are none any more.
    pub fn set_server_sign_in(&self, server: &ServerId, issuer: Option<&str>) -> Result<(), Error> {
        self.write(|transaction| {
            let _ = match issuer {
                Some(issuer) => transaction.execute(
                    "INSERT INTO server_sign_in (server, issuer, signed_in_at) VALUES (?1, ?2, ?3)
                     ON CONFLICT (server) DO UPDATE SET issuer = ?2, signed_in_at = ?3",
                    params![server.as_str(), issuer, jiff::Timestamp::now().to_string()],
                )?,
                None => transaction.execute("DELETE FROM server_sign_in WHERE server = ?1", [server.as_str()])?,
            };
            Ok(())
        })
    }

    /// Every server that tokens are kept for.
    pub fn servers_signed_in(&self) -> Result<Vec<ServerId>, Error> {
        self.read(|connection| {
            let mut rows = connection.prepare("SELECT server FROM server_sign_in ORDER BY 1")?;
            let servers = rows.query_map([], |row| row.get::<_, String>(0))?;
            servers.map(|server| Ok(ServerId::new(server?))).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_signed_in_where_is_known_until_it_is_forgotten() {
        let store = Store::in_memory().unwrap();
        let (a, b) = (ServerId::from("a"), ServerId::from("b"));
        store.set_server_sign_in(&b, Some("https://one.test")).unwrap();
        store.set_server_sign_in(&a, Some("https://one.test")).unwrap();
        store.set_server_sign_in(&a, Some("https://two.test")).unwrap();
        assert_eq!(store.server_sign_in(&a).unwrap().as_deref(), Some("https://two.test"));
        assert_eq!(store.servers_signed_in().unwrap(), [a.clone(), b.clone()]);
        store.set_server_sign_in(&a, None).unwrap();
        assert_eq!((store.server_sign_in(&a).unwrap(), store.servers_signed_in().unwrap()), (None, vec![b]));
    }

    #[test]
    fn the_last_era_is_remembered_per_configuration() {
        let store = Store::in_memory().unwrap();
        assert_eq!(store.server_era("a").unwrap(), None);
        store.set_server_era("a", "legacy").unwrap();
        store.set_server_era("b", "modern").unwrap();
        store.set_server_era("a", "modern").unwrap();
        assert_eq!(store.server_era("a").unwrap().as_deref(), Some("modern"));
        assert_eq!(store.server_era("b").unwrap().as_deref(), Some("modern"));
    }

    #[test]
    fn one_agreement_holds_per_server_until_it_is_forgotten() {
        let store = Store::in_memory().unwrap();
        let (a, b) = (ServerId::from("a"), ServerId::from("b"));
        assert_eq!((store.server_consent(&a).unwrap(), store.server_origin(&a).unwrap()), (None, None));
        store.set_server_consent(&a, "1").unwrap();
        store.set_server_consent(&b, "1").unwrap();
        store.set_server_consent(&a, "2").unwrap();
        store.set_server_origin(&a, "\"link\"").unwrap();
        assert_eq!(store.server_consent(&a).unwrap().as_deref(), Some("2"));
        assert_eq!(store.server_origin(&a).unwrap().as_deref(), Some("\"link\""));
        assert_eq!(store.servers_agreed().unwrap(), [a.clone(), b.clone()]);
        store.forget_server_consent(&a).unwrap();
        assert_eq!((store.server_consent(&a).unwrap(), store.server_origin(&a).unwrap()), (None, None));
        assert_eq!(store.server_consent(&b).unwrap().as_deref(), Some("1"));
    }

    #[test]
    fn a_database_of_the_version_before_learns_to_keep_consent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("handrail.db");
        let store = Store::open(&path).unwrap();
        store.set_server_era("a", "legacy").unwrap();
        drop(store);
        let connection = rusqlite::Connection::open(&path).unwrap();
        connection
            .execute_batch(
                "DROP TABLE server_consent; DROP TABLE server_origin; DROP TABLE server_sign_in;
                 UPDATE migration SET version = 1 WHERE part = 'servers'",
            )
            .unwrap();
        drop(connection);
        let store = Store::open(&path).unwrap();
        // What ran before is known, and was agreed to by nobody.
        assert_eq!(store.server_era("a").unwrap().as_deref(), Some("legacy"));
        assert_eq!(store.server_consent(&"a".into()).unwrap(), None);
        store.set_server_consent(&"a".into(), "1").unwrap();
    }

    #[tokio::test]
    async fn whoever_waits_hears_that_a_server_stands_for_something_else() {
        let store = Store::in_memory().unwrap();
        let server = ServerId::from("a");
        store.set_server_transport(&server, Some("1".to_owned()));
        store.set_server_transport(&"b".into(), Some("2".to_owned()));
        assert_eq!((store.server_transport(&server), store.server_transport(&"c".into())), ("1".to_owned(), String::new()));
        let (waiting, id) = (store.clone(), server.clone());
        let waiting = tokio::spawn(async move { waiting.server_transport_left(&id, "1").await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        store.set_server_transport(&server, None);
        waiting.await.unwrap();
        assert_eq!(store.server_transport(&server), "");
    }
}
