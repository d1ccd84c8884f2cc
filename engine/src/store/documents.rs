//! Documents: their content once, the names they were attached under, chunks, vectors and the lexical index.
//!
//! The lexical index is an FTS5 table without content over text that is tokenised here ([`words()`]), so SQLite's own
//! tokenizer only splits at spaces. Scores are computed from its postings ([`Store::postings`]).

use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params, params_from_iter};
use uuid::Uuid;

use super::words::{indexed, words};
use super::{Error, Store};
use crate::conversation::DocumentId;

pub(super) const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE content (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    sha256 TEXT NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    pages INTEGER,
    text TEXT NOT NULL,
    anchors TEXT NOT NULL,
    page_starts TEXT NOT NULL,
    missing TEXT,
    counter TEXT NOT NULL,
    chunks INTEGER NOT NULL
) STRICT;
CREATE TABLE document (
    id TEXT PRIMARY KEY,
    content INTEGER NOT NULL REFERENCES content (id),
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    added TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX document_content ON document (content);
CREATE TABLE chunk (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    content INTEGER NOT NULL REFERENCES content (id),
    number INTEGER NOT NULL,
    first INTEGER NOT NULL,
    last INTEGER NOT NULL,
    words INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX chunk_content ON chunk (content, number);
CREATE TABLE chunk_vector (
    chunk INTEGER PRIMARY KEY REFERENCES chunk (id),
    model TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    vector BLOB NOT NULL
) STRICT;
CREATE VIRTUAL TABLE chunk_words USING fts5 (words, content = '', tokenize = \"ascii tokenchars '_'\");
INSERT INTO chunk_words (chunk_words, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE chunk_terms USING fts5vocab (chunk_words, 'instance');
",
    WORDS_ANEW,
];

/// The tokenizer changed, and with it every term: an index without content cannot take out what another tokenizer put in.
/// [`index_anew`] fills it. The pragma makes the old pages empty, so that no deleted document lives on in them.
const WORDS_ANEW: &str = "
PRAGMA secure_delete = ON;
DROP TABLE chunk_terms;
DROP TABLE chunk_words;
CREATE VIRTUAL TABLE chunk_words USING fts5 (words, content = '', tokenize = \"ascii tokenchars '_'\");
INSERT INTO chunk_words (chunk_words, rank) VALUES ('secure-delete', 1);
CREATE VIRTUAL TABLE chunk_terms USING fts5vocab (chunk_words, 'instance');
";

/// A stored content's row id.
pub type ContentId = i64;

/// A chunk's row id; never used again after a deletion.
pub type ChunkId = i64;

/// What is stored of a file's content.
#[derive(Clone, Debug)]
pub struct NewContent<'a> {
    /// The hash of the file, in hexadecimal.
    pub sha256: &'a str,
    /// The size of the file.
    pub bytes: u64,
    /// Its pages.
    pub pages: Option<u32>,
    /// Its text.
    pub text: &'a str,
    /// Where its lines are, as JSON.
    pub anchors: &'a str,
    /// The first character of each page with text and the page, as JSON.
    pub page_starts: &'a str,
    /// What is not in the text and why.
    pub missing: Option<&'a str>,
    /// What counted the tokens of the chunks.
    pub counter: &'a str,
    /// The chunks: characters `[start, end)` and text.
    pub chunks: &'a [NewChunk<'a>],
}

/// A chunk to store.
#[derive(Clone, Debug)]
pub struct NewChunk<'a> {
    /// Its characters `[start, end)` in the document's text.
    pub span: (usize, usize),
    /// Its text.
    pub text: &'a str,
}

/// A document and its content without the text.
#[derive(Clone, Debug)]
pub struct DocumentRow {
    /// Its id.
    pub id: DocumentId,
    /// Its content.
    pub content: ContentId,
    /// The file name.
    pub name: String,
    /// Where it was read.
    pub path: PathBuf,
    /// The file's size.
    pub bytes: u64,
    /// Its pages.
    pub pages: Option<u32>,
    /// Its chunks.
    pub chunks: usize,
    /// How many of them have a vector.
    pub vectors: usize,
    /// What is not in the text and why.
    pub missing: Option<String>,
}

/// A stored chunk.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkRow {
    /// Its id.
    pub id: ChunkId,
    /// Its content.
    pub content: ContentId,
    /// Its position among the chunks of the content.
    pub number: usize,
    /// Its characters `[start, end)`.
    pub span: (usize, usize),
    /// Its text.
    pub text: String,
}

/// A term's occurrences in one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// The chunk.
    pub chunk: ChunkId,
    /// How often the term occurs in it.
    pub count: u32,
    /// How many terms the chunk has.
    pub words: u32,
}

/// Work of a migration that statements alone cannot do: fills the index anew, for all chunks.
pub(super) fn index_anew(transaction: &Transaction<'_>) -> Result<(), Error> {
    let mut chunks = transaction.prepare("SELECT id, text FROM chunk ORDER BY id")?;
    let mut index = transaction.prepare("INSERT INTO chunk_words (rowid, words) VALUES (?1, ?2)")?;
    let mut count = transaction.prepare("UPDATE chunk SET words = ?2 WHERE id = ?1")?;
    let mut found = chunks.query([])?;
    while let Some(row) = found.next()? {
        let (id, text): (ChunkId, String) = (row.get(0)?, row.get(1)?);
        let _ = index.execute(params![id, indexed(&text).join(" ")])?;
        let _ = count.execute(params![id, number(words(&text).len())])?;
    }
    Ok(())
}

/// Contents, documents.
impl Store {
    /// Makes deletions overwrite what they delete; once per connection.
    pub fn overwrite_deleted(&self) -> Result<(), Error> {
        // The pragma answers with its new value, which `execute_batch` passes over.
        self.read(|connection| Ok(connection.execute_batch("PRAGMA secure_delete = ON")?))
    }

    /// Puts a content that is stored already into the library under a name; `None` when it is not stored.
    pub fn attach_known(&self, sha256: &str, name: &str, path: &Path) -> Result<Option<DocumentId>, Error> {
        self.write(|transaction| known(transaction, sha256)?.map(|content| attach(transaction, content, name, path)).transpose())
    }

    /// Stores a content with its chunks and their postings and puts it into the library under a name, all or nothing. A
    /// content that is stored already is kept as it is; the same content from the same path is one document.
    pub fn put_document(&self, content: &NewContent<'_>, name: &str, path: &Path) -> Result<DocumentId, Error> {
        self.write(|transaction| {
            let id = match known(transaction, content.sha256)? {
                Some(id) => id,
                None => insert_content(transaction, content)?,
            };
            attach(transaction, id, name, path)
        })
    }

    /// Cuts a content anew: its chunks, postings and vectors are replaced.
    pub fn replace_chunks(&self, content: ContentId, counter: &str, chunks: &[NewChunk<'_>]) -> Result<(), Error> {
        self.write(|transaction| {
            delete_chunks(transaction, content)?;
            insert_chunks(transaction, content, chunks)?;
            let _ = transaction
                .execute("UPDATE content SET counter = ?2, chunks = ?3 WHERE id = ?1", params![content, counter, number(chunks.len())])?;
            Ok(())
        })
    }

    /// The contents whose chunks were counted by something else.
    pub fn contents_not_counted_by(&self, counter: &str) -> Result<Vec<ContentId>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT id FROM content WHERE counter <> ?1 ORDER BY id DESC")?;
            Ok(statement.query_map([counter], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    /// Every document, newest first. Vectors are counted of this model, or of any.
    pub fn document_rows(&self, model: Option<&str>) -> Result<Vec<DocumentRow>, Error> {
        self.read(|connection| rows(connection, "ORDER BY document.id DESC", params![model]))
    }

    /// One document.
    pub fn document_row(&self, id: DocumentId, model: Option<&str>) -> Result<Option<DocumentRow>, Error> {
        self.read(|connection| Ok(rows(connection, "WHERE document.id = ?2", params![model, id.to_string()])?.pop()))
    }

    /// The documents that share a content.
    pub fn documents_of(&self, content: ContentId, model: Option<&str>) -> Result<Vec<DocumentRow>, Error> {
        self.read(|connection| rows(connection, "WHERE document.content = ?2 ORDER BY document.id", params![model, content]))
    }

    /// A content's text.
    pub fn content_text(&self, content: ContentId) -> Result<String, Error> {
        self.read(|connection| Ok(connection.query_row("SELECT text FROM content WHERE id = ?1", [content], |row| row.get(0))?))
    }

    /// The places of a content's lines, as JSON.
    pub fn content_anchors(&self, content: ContentId) -> Result<String, Error> {
        self.read(|connection| Ok(connection.query_row("SELECT anchors FROM content WHERE id = ?1", [content], |row| row.get(0))?))
    }

    /// The first character of each page with text and the page, as JSON.
    pub fn content_page_starts(&self, content: ContentId) -> Result<String, Error> {
        self.read(|connection| Ok(connection.query_row("SELECT page_starts FROM content WHERE id = ?1", [content], |row| row.get(0))?))
    }

    /// Removes a document and, when no other one has the same content, the content with its chunks, postings and
    /// vectors; then the log is folded in, so that the bytes are gone from the files. Says whether there was one.
    pub fn remove_document(&self, id: DocumentId) -> Result<bool, Error> {
        let removed = self.write(|transaction| {
            let content: Option<ContentId> = transaction
                .query_row("DELETE FROM document WHERE id = ?1 RETURNING content", [id.to_string()], |row| row.get(0))
                .optional()?;
            let Some(content) = content else { return Ok(false) };
            remove_unused(transaction, content)?;
            Ok(true)
        })?;
        if removed {
            self.read(|connection| Ok(connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?))?;
        }
        Ok(removed)
    }
}

/// Chunks, postings and vectors.
impl Store {
    /// The first chunks after `after` without a vector of this model, of one content or of all.
    pub fn chunks_without_vector(
        &self,
        model: &str,
        content: Option<ContentId>,
        after: ChunkId,
        most: usize,
    ) -> Result<Vec<ChunkRow>, Error> {
        // Two statements, so that each uses its index.
        let which = if content.is_some() { "chunk.content = ?4 AND" } else { "?4 IS NULL AND" };
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT chunk.id, chunk.content, chunk.number, chunk.first, chunk.last, chunk.text FROM chunk
                 LEFT JOIN chunk_vector ON chunk_vector.chunk = chunk.id AND chunk_vector.model = ?1
                 WHERE {which} chunk.id > ?2 AND chunk_vector.chunk IS NULL ORDER BY chunk.id LIMIT ?3"
            ))?;
            Ok(statement.query_map(params![model, after, number(most), content], chunk)?.collect::<Result<_, _>>()?)
        })
    }

    /// Stores vectors; one of another model is replaced, and a chunk that is gone is passed over.
    pub fn put_vectors(&self, model: &str, vectors: &[(ChunkId, Vec<f32>)]) -> Result<(), Error> {
        self.write(|transaction| {
            let mut statement = transaction.prepare_cached(
                "INSERT INTO chunk_vector (chunk, model, dimension, vector) SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM chunk WHERE id = ?1)
                 ON CONFLICT (chunk) DO UPDATE SET model = excluded.model, dimension = excluded.dimension, vector = excluded.vector",
            )?;
            for (chunk, vector) in vectors {
                let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
                let _ = statement.execute(params![chunk, model, number(vector.len()), bytes])?;
            }
            Ok(())
        })
    }

    /// The vectors of one model over these contents.
    pub fn vectors(&self, model: &str, contents: &[ContentId]) -> Result<Vec<(ChunkId, Vec<f32>)>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(
                "SELECT chunk_vector.chunk, chunk_vector.vector FROM chunk JOIN chunk_vector ON chunk_vector.chunk = chunk.id
                 WHERE chunk.content = ?1 AND chunk_vector.model = ?2",
            )?;
            let mut vectors = Vec::new();
            for content in contents {
                let mut found = statement.query(params![content, model])?;
                while let Some(row) = found.next()? {
                    let bytes = row.get_ref(1)?.as_blob().map_err(|error| damaged("chunk_vector", &error.to_string()))?;
                    let values = bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
                    vectors.push((row.get(0)?, values.collect()));
                }
            }
            Ok(vectors)
        })
    }

    /// Every vector of one model.
    pub fn all_vectors(&self, model: &str) -> Result<Vec<(ChunkId, Vec<f32>)>, Error> {
        let contents = self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT id FROM content ORDER BY id")?;
            Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<ContentId>, _>>()?)
        })?;
        self.vectors(model, &contents)
    }

    /// A number that is another one after every change of a model's set of vectors: chunk ids are never used twice, so
    /// the number of vectors and their highest chunk tell two sets apart.
    pub fn vectors_stamp(&self, model: &str) -> Result<u64, Error> {
        self.read(|connection| {
            let sql = "SELECT COUNT(*), COALESCE(MAX(chunk), 0) FROM chunk_vector WHERE model = ?1";
            let (count, highest): (i64, i64) = connection.query_row(sql, [model], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(highest.unsigned_abs().rotate_left(32) ^ count.unsigned_abs())
        })
    }

    /// The chunks of these contents.
    pub fn chunk_ids(&self, contents: &[ContentId]) -> Result<Vec<ChunkId>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT id FROM chunk WHERE content = ?1")?;
            let mut ids = Vec::new();
            for content in contents {
                let found = statement.query_map([content], |row| row.get(0))?;
                ids.extend(found.collect::<Result<Vec<ChunkId>, _>>()?);
            }
            Ok(ids)
        })
    }

    /// How many chunks these contents have, and how many terms in all.
    pub fn chunk_totals(&self, contents: &[ContentId]) -> Result<(u64, u64), Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT COUNT(*), COALESCE(SUM(words), 0) FROM chunk WHERE content = ?1")?;
            let (mut chunks, mut words) = (0, 0);
            for content in contents {
                let (more, terms): (i64, i64) = statement.query_row([content], |row| Ok((row.get(0)?, row.get(1)?)))?;
                chunks += u64::try_from(more).unwrap_or(0);
                words += u64::try_from(terms).unwrap_or(0);
            }
            Ok((chunks, words))
        })
    }

    /// Where a term of [`words()`] occurs within these contents.
    pub fn postings(&self, term: &str, contents: &[ContentId]) -> Result<Vec<Posting>, Error> {
        if contents.is_empty() {
            return Ok(Vec::new());
        }
        self.read(|connection| {
            let holders = vec!["?"; contents.len()].join(", ");
            let mut statement = connection.prepare_cached(&format!(
                "SELECT found.doc, found.times, chunk.words FROM
                     (SELECT doc, COUNT(*) AS times FROM chunk_terms WHERE term = ? GROUP BY doc) AS found
                 JOIN chunk ON chunk.id = found.doc WHERE chunk.content IN ({holders})"
            ))?;
            let values = std::iter::once(rusqlite::types::Value::from(term.to_owned())).chain(contents.iter().map(|id| (*id).into()));
            let found = statement
                .query_map(params_from_iter(values), |row| Ok(Posting { chunk: row.get(0)?, count: row.get(1)?, words: row.get(2)? }))?;
            Ok(found.collect::<Result<_, _>>()?)
        })
    }

    /// These chunks, in no order.
    pub fn chunk_rows(&self, ids: &[ChunkId]) -> Result<Vec<ChunkRow>, Error> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT id, content, number, first, last, text FROM chunk WHERE id = ?1")?;
            let mut chunks = Vec::with_capacity(ids.len());
            for id in ids {
                chunks.extend(statement.query_row([id], chunk).optional()?);
            }
            Ok(chunks)
        })
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn damaged(table: &'static str, reason: &str) -> Error {
    Error::Damaged { table, reason: reason.to_owned() }
}

fn document_id(text: &str) -> Result<DocumentId, Error> {
    Uuid::parse_str(text).map(DocumentId).map_err(|error| damaged("document", &error.to_string()))
}

fn chunk(row: &rusqlite::Row<'_>) -> rusqlite::Result<ChunkRow> {
    let position = |column: usize| Ok::<_, rusqlite::Error>(usize::try_from(row.get::<_, i64>(column)?).unwrap_or(0));
    Ok(ChunkRow { id: row.get(0)?, content: row.get(1)?, number: position(2)?, span: (position(3)?, position(4)?), text: row.get(5)? })
}

fn rows(connection: &Connection, which: &str, values: &[&dyn rusqlite::ToSql]) -> Result<Vec<DocumentRow>, Error> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT document.id, document.content, document.name, document.path, content.bytes, content.pages, content.chunks, content.missing,
             (SELECT COUNT(*) FROM chunk JOIN chunk_vector ON chunk_vector.chunk = chunk.id
              WHERE chunk.content = content.id AND (?1 IS NULL OR chunk_vector.model = ?1))
         FROM document JOIN content ON content.id = document.content {which}"
    ))?;
    let mut found = statement.query(values)?;
    let mut documents = Vec::new();
    while let Some(row) = found.next()? {
        let id: String = row.get(0)?;
        documents.push(DocumentRow {
            id: document_id(&id)?,
            content: row.get(1)?,
            name: row.get(2)?,
            path: PathBuf::from(row.get::<_, String>(3)?),
            bytes: u64::try_from(row.get::<_, i64>(4)?).unwrap_or(0),
            pages: row.get(5)?,
            chunks: usize::try_from(row.get::<_, i64>(6)?).unwrap_or(0),
            missing: row.get(7)?,
            vectors: usize::try_from(row.get::<_, i64>(8)?).unwrap_or(0),
        });
    }
    Ok(documents)
}

fn known(transaction: &Transaction<'_>, sha256: &str) -> Result<Option<ContentId>, Error> {
    Ok(transaction.query_row("SELECT id FROM content WHERE sha256 = ?1", [sha256], |row| row.get(0)).optional()?)
}

fn insert_content(transaction: &Transaction<'_>, content: &NewContent<'_>) -> Result<ContentId, Error> {
    let _ = transaction.execute(
        "INSERT INTO content (sha256, bytes, pages, text, anchors, page_starts, missing, counter, chunks)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        params![
            content.sha256,
            i64::try_from(content.bytes).unwrap_or(i64::MAX),
            content.pages,
            content.text,
            content.anchors,
            content.page_starts,
            content.missing,
            content.counter,
            number(content.chunks.len())
        ],
    )?;
    let id = transaction.last_insert_rowid();
    insert_chunks(transaction, id, content.chunks)?;
    Ok(id)
}

fn attach(transaction: &Transaction<'_>, content: ContentId, name: &str, path: &Path) -> Result<DocumentId, Error> {
    let path = path.to_string_lossy();
    let known: Option<String> = transaction
        .query_row("SELECT id FROM document WHERE content = ?1 AND path = ?2", params![content, path], |row| row.get(0))
        .optional()?;
    if let Some(known) = known {
        return document_id(&known);
    }
    let id = DocumentId::fresh();
    let _ = transaction.execute(
        "INSERT INTO document (id, content, name, path, added) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![id.to_string(), content, name, path, jiff::Timestamp::now().to_string()],
    )?;
    Ok(id)
}

fn insert_chunks(transaction: &Transaction<'_>, content: ContentId, chunks: &[NewChunk<'_>]) -> Result<(), Error> {
    let mut insert =
        transaction.prepare_cached("INSERT INTO chunk (content, number, first, last, words, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
    let mut index = transaction.prepare_cached("INSERT INTO chunk_words (rowid, words) VALUES (?1, ?2)")?;
    for (position, chunk) in chunks.iter().enumerate() {
        let _ = insert.execute(params![
            content,
            number(position),
            number(chunk.span.0),
            number(chunk.span.1),
            number(words(chunk.text).len()),
            chunk.text
        ])?;
        let _ = index.execute(params![transaction.last_insert_rowid(), indexed(chunk.text).join(" ")])?;
    }
    Ok(())
}

fn delete_chunks(transaction: &Transaction<'_>, content: ContentId) -> Result<(), Error> {
    let mut statement = transaction.prepare_cached("SELECT id, text FROM chunk WHERE content = ?1")?;
    let chunks: Vec<(ChunkId, String)> = statement.query_map([content], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    // A table without content must be told what to take out: the same words that went in.
    let mut index = transaction.prepare_cached("INSERT INTO chunk_words (chunk_words, rowid, words) VALUES ('delete', ?1, ?2)")?;
    for (id, text) in chunks {
        let _ = index.execute(params![id, indexed(&text).join(" ")])?;
    }
    let _ = transaction.execute("DELETE FROM chunk_vector WHERE chunk IN (SELECT id FROM chunk WHERE content = ?1)", [content])?;
    let _ = transaction.execute("DELETE FROM chunk WHERE content = ?1", [content])?;
    Ok(())
}

fn remove_unused(transaction: &Transaction<'_>, content: ContentId) -> Result<(), Error> {
    let used: bool = transaction.query_row("SELECT EXISTS (SELECT 1 FROM document WHERE content = ?1)", [content], |row| row.get(0))?;
    if !used {
        delete_chunks(transaction, content)?;
        let _ = transaction.execute("DELETE FROM content WHERE id = ?1", [content])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content<'a>(sha256: &'a str, chunks: &'a [NewChunk<'a>]) -> NewContent<'a> {
        let text = "text";
        NewContent { sha256, bytes: 1, pages: None, text, anchors: "[]", page_starts: "[]", missing: None, counter: "test", chunks }
    }

    fn put(store: &Store, content: &NewContent<'_>, path: &str) -> (DocumentId, ContentId) {
        let id = store.put_document(content, path, Path::new(path)).unwrap();
        (id, store.document_row(id, None).unwrap().unwrap().content)
    }

    #[test]
    fn a_database_of_the_old_tokenizer_is_indexed_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("handrail.db");
        {
            let connection = Connection::open(&path).unwrap();
            connection.execute_batch("CREATE TABLE migration (part TEXT PRIMARY KEY, version INTEGER NOT NULL) STRICT").unwrap();
            connection.execute_batch(MIGRATIONS[0]).unwrap();
            connection.execute_batch("INSERT INTO migration VALUES ('documents', 1)").unwrap();
            connection
                .execute_batch(
                    "INSERT INTO content VALUES (1, 'abc', 1, NULL, 'text', '[]', '[]', NULL, 'test', 2);
                     INSERT INTO document VALUES ('0197f000-0000-7000-8000-000000000001', 1, 'a', '/a', '2026-01-01T00:00:00Z');
                     INSERT INTO chunk VALUES (5, 1, 0, 0, 9, 2, 'Wert\u{ad}papier 冷却泵');
                     INSERT INTO chunk_words (rowid, words) VALUES (5, 'wert papier 冷却 却泵');
                     INSERT INTO chunk VALUES (6, 1, 1, 9, 20, 2, 'code E-4711');
                     INSERT INTO chunk_words (rowid, words) VALUES (6, 'code e 4711');
                     INSERT INTO chunk_vector VALUES (5, 'm', 1, x'0000803f');",
                )
                .unwrap();
        }
        let store = Store::open(&path).unwrap();
        let found = |term: &str| store.postings(term, &[1]).unwrap().iter().map(|posting| posting.chunk).collect::<Vec<_>>();
        for (term, chunks) in
            [("wertpapier", vec![5]), ("wert", vec![]), ("泵", vec![5]), ("却泵", vec![5]), ("e4711", vec![6]), ("4711", vec![6])]
        {
            assert_eq!(found(term), chunks, "{term}");
        }
        assert_eq!(store.chunk_totals(&[1]).unwrap(), (2, 3 + 4));
        assert_eq!(store.vectors("m", &[1]).unwrap(), [(5, vec![1.0])]);
        let document = store.document_rows(None).unwrap().remove(0);
        assert!(store.remove_document(document.id).unwrap());
        assert!(found("wertpapier").is_empty() && found("泵").is_empty());
        drop(store);
        assert!(Store::open(&path).is_ok(), "it happens once");
    }

    proptest! {
        #[test]
        fn every_indexed_term_is_found_again(text in "\\PC{1,60}") {
            let store = Store::in_memory().unwrap();
            let chunks = [NewChunk { span: (0, 1), text: &text }];
            let (_, id) = put(&store, &content("a", &chunks), "a");
            for word in words(&text).into_iter().chain(indexed(&text)) {
                prop_assert_eq!(store.postings(&word, &[id]).unwrap().len(), 1, "{}", word);
            }
            prop_assert!(store.postings("\" OR *", &[id]).unwrap().is_empty());
        }
    }

    #[test]
    fn the_same_content_is_stored_once_and_goes_with_its_last_document() {
        let store = Store::in_memory().unwrap();
        let chunks = [NewChunk { span: (0, 5), text: "alpha beta alpha" }];
        let (one, first) = put(&store, &content("same", &chunks), "/a.txt");
        assert_eq!(put(&store, &content("same", &chunks), "/a.txt").0, one);
        let two = store.attach_known("same", "b.txt", Path::new("/b.txt")).unwrap().unwrap();
        assert_eq!(store.document_rows(None).unwrap().len(), 2);
        assert_eq!(store.postings("alpha", &[first]).unwrap()[0].count, 2);
        assert!(store.remove_document(one).unwrap());
        assert_eq!(store.postings("beta", &[first]).unwrap().len(), 1);
        assert!(store.remove_document(two).unwrap());
        assert!(store.postings("beta", &[first]).unwrap().is_empty());
        assert!(!store.remove_document(two).unwrap());
        assert_eq!(store.attach_known("same", "a.txt", Path::new("/a.txt")).unwrap(), None);
    }

    #[test]
    fn a_deleted_document_leaves_no_byte_in_the_files() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(&folder.path().join("handrail.db")).unwrap();
        store.overwrite_deleted().unwrap();
        let text = "the xyzzyplugh sentinel stands here, nothing else does";
        let chunks = [NewChunk { span: (0, text.len()), text }];
        let kept = [NewChunk { span: (0, 4), text: "other words, quuxfoo" }];
        let _ = put(&store, &NewContent { text: "other", ..content("other", &kept) }, "/o.txt");
        let (document, id) = put(&store, &NewContent { text, ..content("secret", &chunks) }, "/secret.txt");
        let chunk = store.chunks_without_vector("m", Some(id), 0, 10).unwrap()[0].id;
        store.put_vectors("m", &[(chunk, vec![0.123_456_7; 16])]).unwrap();
        let holds = |sentinel: &[u8]| {
            let files = std::fs::read_dir(folder.path()).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap());
            files.filter(|bytes| bytes.windows(sentinel.len()).any(|window| window == sentinel)).count()
        };
        let vector = 0.123_456_7_f32.to_le_bytes().repeat(4);
        assert!(holds(b"xyzzyplugh") > 0 && holds(&vector) > 0);
        assert!(store.remove_document(document).unwrap());
        assert_eq!((holds(b"xyzzyplugh"), holds(b"xyzzy"), holds(&vector)), (0, 0, 0));
        assert!(holds(b"quuxfoo") > 0);
    }

    #[test]
    fn vectors_follow_their_model() {
        let store = Store::in_memory().unwrap();
        let chunks = [NewChunk { span: (0, 1), text: "a" }, NewChunk { span: (1, 2), text: "b" }];
        let (_, id) = put(&store, &content("c", &chunks), "c");
        let missing = store.chunks_without_vector("one", None, 0, 10).unwrap();
        assert_eq!(missing.len(), 2);
        store.put_vectors("one", &[(missing[0].id, vec![1.0, 0.0]), (999, vec![1.0])]).unwrap();
        assert_eq!(store.chunks_without_vector("one", None, 0, 10).unwrap().len(), 1);
        assert_eq!(store.vectors("one", &[id]).unwrap(), [(missing[0].id, vec![1.0, 0.0])]);
        assert!(store.vectors("two", &[id]).unwrap().is_empty());
        assert_eq!(store.chunks_without_vector("two", None, 0, 10).unwrap().len(), 2);
    }
}
