//! What was learned about servers: which era of the protocol each configuration speaks.

use rusqlite::{OptionalExtension as _, params};

use super::{Error, Store};

pub(super) const MIGRATIONS: &[&str] = &["CREATE TABLE server_era (
    -- A hash over what decides which program or address answers; a changed configuration is asked anew.
    configuration TEXT PRIMARY KEY,
    era TEXT NOT NULL,
    seen_at TEXT NOT NULL
) STRICT;"];

impl Store {
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
}
