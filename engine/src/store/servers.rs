//! What was learned about servers: which era of the protocol each configuration speaks. And, in memory only, which
//! command or address each server of this process stands for.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension as _, params};
use tokio::sync::watch;

use super::{Error, Store};
use crate::tool::ServerId;

pub(super) const MIGRATIONS: &[&str] = &["CREATE TABLE server_era (
    -- A hash over what decides which program or address answers; a changed configuration is asked anew.
    configuration TEXT PRIMARY KEY,
    era TEXT NOT NULL,
    seen_at TEXT NOT NULL
) STRICT;"];

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

#[cfg(test)]
mod tests {
    use super::*;

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
