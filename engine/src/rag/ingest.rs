//! The library: documents in, searchable text out.

mod embed;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};
use sipper::{Sender, Sipper as _, Straw, sipper};
use tokio::sync::broadcast;

use super::collection::Collections;
use super::load::assemble::{Anchor, Assembled, assemble};
use super::load::{Format, Part};
use super::retrieve::{self, Meaning, Retrieved};
use super::worker::{self, Frame, Limits, Summary};
use super::{Document, DocumentState, Error, Progress, chunk};
use crate::conversation::DocumentId;
use crate::embedding::Embedder;
use crate::store::{ContentId, DocumentRow, NewChunk, NewContent, Store};

/// The library; cheap to clone, one per engine.
#[derive(Clone, Debug)]
pub struct Library {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    worker: PathBuf,
    collections: Collections,
    limits: Limits,
    events: broadcast::Sender<Document>,
    embedding: Mutex<embed::State>,
    /// Held while a batch is chosen, embedded and stored, so that no chunk is embedded twice.
    batch: Mutex<()>,
}

impl Library {
    /// A library over the store. `worker` is the program that parses files when started with
    /// [`super::worker::ARGUMENT`]; `index` is the folder for index snapshots.
    #[must_use]
    pub fn new(store: Store, worker: PathBuf, index: PathBuf) -> Self {
        Self::with_limits(store, worker, index, Limits::default())
    }

    /// A library whose reader has other bounds.
    #[must_use]
    pub fn with_limits(store: Store, worker: PathBuf, index: PathBuf, limits: Limits) -> Self {
        if let Err(error) = store.overwrite_deleted() {
            tracing::warn!(%error, "deleted text may stay in the database file until it is used again");
        }
        let (events, embedding) = (broadcast::channel(256).0, Mutex::default());
        let collections = Collections::new(index);
        Self { inner: Arc::new(Inner { store, worker, collections, limits, events, embedding, batch: Mutex::new(()) }) }
    }

    /// Gives the library an embedder, or takes it away: then search is lexical only. Chunks without vectors of this
    /// embedder get them in the background; text that was cut for another one is cut anew.
    pub fn set_embedder(&self, embedder: Option<Arc<dyn Embedder>>) {
        embed::set(&self.inner, embedder);
    }

    /// Changed documents from now on.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Document> {
        self.inner.events.subscribe()
    }

    /// Every document, newest first.
    pub fn documents(&self) -> Result<Vec<Document>, Error> {
        let state = self.inner.embedding();
        let (model, failure) = (state.model(), state.failure());
        drop(state);
        let rows = self.inner.store.document_rows(model.as_deref())?;
        Ok(rows.into_iter().map(|row| document(row, model.as_deref(), failure.as_deref())).collect())
    }

    /// One document.
    pub fn document(&self, id: DocumentId) -> Result<Document, Error> {
        self.inner.document(id)
    }

    /// Reads, cuts, embeds and stores a file of at most `limit` bytes. The same content is stored once. Words can be
    /// searched as soon as the text is stored; without an embedder, or when it fails, the document is
    /// [`DocumentState::Partly`] ready. Poll it within a tokio runtime; dropping it ends the reader, and what was
    /// stored by then is whole.
    pub fn ingest(&self, path: &Path, limit: u64) -> impl Straw<Document, Progress, Error> + use<> {
        let (inner, path) = (self.inner.clone(), path.to_owned());
        sipper(move |mut sender| async move {
            let id = inner.clone().stored(path, limit, &mut sender).await?;
            let row = inner.row(id)?;
            inner.clone().embed(&row, &mut sender).await?;
            let document = inner.document(id)?;
            // Nobody may be listening.
            let _ = inner.events.send(document.clone());
            Ok(document)
        })
    }

    /// The best passages of these documents for a query, numbered from 1. Blocks for as long as the embedder needs for
    /// the query; documents that are gone are passed over and named in the reason.
    pub fn retrieve(&self, documents: &[DocumentId], query: &str, most: usize) -> Result<Retrieved, Error> {
        let embedder = self.inner.embedding().embedder.clone();
        let mut rows = Vec::with_capacity(documents.len());
        for id in documents {
            rows.extend(self.inner.store.document_row(*id, None)?);
        }
        let meaning = embedder.as_deref().map(|embedder| Meaning { embedder, collections: &self.inner.collections });
        let mut found = retrieve::search(&self.inner.store, meaning.as_ref(), &rows, query, most)?;
        if rows.len() < documents.len() {
            found.reason.push_str(&format!("; {} of the documents are no longer in the library", documents.len() - rows.len()));
        }
        Ok(found)
    }

    /// The whole text of a document, for showing a passage in its place.
    pub fn text(&self, document: DocumentId) -> Result<String, Error> {
        Ok(self.inner.store.content_text(self.inner.row(document)?.content)?)
    }

    /// Where the characters `[start, end)` of a document are: one anchor per line, the boxes on the page for a PDF.
    pub fn places(&self, document: DocumentId, span: (usize, usize)) -> Result<Vec<Anchor>, Error> {
        let json = self.inner.store.content_anchors(self.inner.row(document)?.content)?;
        let anchors: Vec<Anchor> =
            serde_json::from_str(&json).map_err(|error| crate::store::Error::Damaged { table: "content", reason: error.to_string() })?;
        let first = anchors.partition_point(|anchor| anchor.at <= span.0).saturating_sub(1);
        Ok(anchors.into_iter().skip(first).take_while(|anchor| anchor.at < span.1).collect())
    }

    /// Removes a document with its text, chunks and vectors.
    pub fn remove(&self, document: DocumentId) -> Result<(), Error> {
        // Not while a batch of its chunks is being embedded.
        let _batch = self.inner.batch.lock().unwrap_or_else(PoisonError::into_inner);
        let content = self.inner.row(document)?.content;
        let chunks = self.inner.store.chunk_ids(&[content])?;
        let removed = self.inner.store.remove_document(document)?;
        if self.inner.store.chunk_ids(&[content])?.is_empty() {
            self.inner.collections.removed(&chunks);
            self.inner.collections.save(&self.inner.store);
        }
        if removed { Ok(()) } else { Err(Error::Unknown(document)) }
    }
}

impl Inner {
    fn embedding(&self) -> MutexGuard<'_, embed::State> {
        self.embedding.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn row(&self, id: DocumentId) -> Result<DocumentRow, Error> {
        let model = self.embedding().model();
        self.store.document_row(id, model.as_deref())?.ok_or(Error::Unknown(id))
    }

    fn document(&self, id: DocumentId) -> Result<Document, Error> {
        let state = self.embedding();
        let (model, failure) = (state.model(), state.failure());
        drop(state);
        let row = self.store.document_row(id, model.as_deref())?.ok_or(Error::Unknown(id))?;
        Ok(document(row, model.as_deref(), failure.as_deref()))
    }

    /// Tells the listeners about the documents of a content.
    fn changed(&self, content: ContentId) {
        let state = self.embedding();
        let (model, failure) = (state.model(), state.failure());
        drop(state);
        match self.store.documents_of(content, model.as_deref()) {
            Ok(rows) => rows.into_iter().for_each(|row| drop(self.events.send(document(row, model.as_deref(), failure.as_deref())))),
            Err(error) => tracing::warn!(%error, "a changed document cannot be shown"),
        }
    }

    /// The id of the file's document, read and stored unless its content is known.
    async fn stored(self: Arc<Self>, path: PathBuf, limit: u64, sender: &mut Sender<Progress>) -> Result<DocumentId, Error> {
        let name = path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned());
        let (file, store, title) = (path.clone(), self.store.clone(), name.clone());
        let (hash, known) = blocking(move || {
            let hash = hash(&file, limit)?;
            let known = store.attach_known(&hash.0, &title, &file)?;
            Ok((hash, known))
        })
        .await?;
        if let Some(known) = known {
            return Ok(known);
        }
        let (summary, parts) = self.parsed(&path, sender).await?;
        blocking(move || {
            let embedder = self.embedding().embedder.clone();
            let read = Read { path, name, sha256: hash.0, bytes: hash.1, summary, parts };
            read.store(&self.store, embedder.as_deref())
        })
        .await
    }

    async fn parsed(&self, path: &Path, sender: &mut Sender<Progress>) -> Result<(Summary, Vec<Part>), Error> {
        let mut reading = worker::parse(&self.worker, path, self.limits).pin();
        let (mut parts, mut total) = (Vec::new(), None);
        while let Some(frame) = reading.sip().await {
            match Arc::unwrap_or_clone(frame) {
                Frame::Started(opened) => total = opened.pages,
                Frame::Part(part) => parts.push(part),
                Frame::Done { .. } | Frame::Failed { .. } => {}
            }
            let done = u32::try_from(parts.len()).unwrap_or(u32::MAX);
            sender.send(Progress::Reading { done, total }).await;
        }
        Ok((reading.await?, parts))
    }

    /// Embeds what has no vectors yet. A failing embedder is recorded and is no error of the document.
    async fn embed(self: Arc<Self>, row: &DocumentRow, sender: &mut Sender<Progress>) -> Result<(), Error> {
        let Some(embedder) = self.embedding().embedder.clone() else { return Ok(()) };
        let (content, total, mut done, mut after) = (row.content, row.chunks, row.vectors, 0);
        while done < total {
            sender.send(Progress::Embedding { done, total }).await;
            let (inner, with) = (self.clone(), embedder.clone());
            match blocking(move || inner.embed_batch(&*with, Some(content), after)).await {
                Ok(Some(batch)) => (done, after) = (done + batch.chunks, batch.last),
                Ok(None) => break,
                Err(Error::Index(reason)) => {
                    self.embedding().failed(&embedder, reason);
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        sender.send(Progress::Embedding { done: total, total }).await;
        blocking(move || {
            self.collections.save(&self.store);
            Ok(())
        })
        .await
    }
}

/// A file that was read.
struct Read {
    path: PathBuf,
    name: String,
    sha256: String,
    bytes: u64,
    summary: Summary,
    parts: Vec<Part>,
}

impl Read {
    fn store(self, store: &Store, embedder: Option<&dyn Embedder>) -> Result<DocumentId, Error> {
        let paged = self.summary.opened.format == Format::Pdf;
        let whole = assemble(self.parts, paged);
        let mut missing = whole.missing.clone();
        for problem in &self.summary.problems {
            if !missing.contains(problem) {
                missing.push(problem.clone());
            }
        }
        let missing = missing.join("; ");
        if whole.text.trim().is_empty() {
            let reason =
                if missing.is_empty() { "there is no text in it".to_owned() } else { format!("there is no text in it: {missing}") };
            return Err(Error::Parse { path: self.path, reason });
        }
        let (chunks, counter) = cut(&whole.text, embedder);
        let chunks: Vec<NewChunk<'_>> = new_chunks(&whole.text, &chunks);
        let json = |error: serde_json::Error| Error::Parse { path: self.path.clone(), reason: error.to_string() };
        let content = NewContent {
            sha256: &self.sha256,
            bytes: self.bytes,
            pages: self.summary.opened.pages,
            text: &whole.text,
            anchors: &serde_json::to_string(&whole.anchors).map_err(json)?,
            page_starts: &serde_json::to_string(&page_starts(&whole)).map_err(json)?,
            missing: (!missing.is_empty()).then_some(missing.as_str()),
            counter: &counter,
            chunks: &chunks,
        };
        Ok(store.put_document(&content, &self.name, &self.path)?)
    }
}

/// Cuts a text by the embedder's tokens, or by the estimate where its tokenizer fails.
fn cut(text: &str, embedder: Option<&dyn Embedder>) -> (Vec<chunk::Chunk>, String) {
    match chunk::chunks(text, embedder) {
        Ok(chunks) => (chunks, chunk::counter(embedder)),
        Err(error) => {
            tracing::warn!(%error, "the text is cut by an estimate of its tokens");
            (chunk::chunks(text, None).unwrap_or_default(), chunk::counter(None))
        }
    }
}

fn new_chunks<'a>(text: &'a str, chunks: &[chunk::Chunk]) -> Vec<NewChunk<'a>> {
    chunks.iter().map(|chunk| NewChunk { span: (chunk.span.start, chunk.span.end), text: &text[chunk.bytes.clone()] }).collect()
}

fn page_starts(whole: &Assembled) -> Vec<(usize, u32)> {
    let mut starts: Vec<(usize, u32)> = Vec::new();
    for anchor in &whole.anchors {
        if let Some(page) = anchor.page.filter(|page| starts.last().is_none_or(|(_, last)| last != page)) {
            starts.push((anchor.at, page));
        }
    }
    starts
}

/// The hash of a file in hexadecimal and its size.
fn hash(path: &Path, limit: u64) -> Result<(String, u64), Error> {
    let refuse = |reason: String| Error::File { path: path.to_owned(), reason };
    let failed = |error: std::io::Error| refuse(error.to_string());
    let mut file = std::fs::File::open(path).map_err(failed)?;
    let about = file.metadata().map_err(failed)?;
    if !about.is_file() {
        return Err(refuse("it is not a file".to_owned()));
    }
    let large = |bytes: u64| refuse(format!("it has {} MB, more than the {} MB that are read", bytes / 1_000_000, limit / 1_000_000));
    if about.len() > limit {
        return Err(large(about.len()));
    }
    let (mut hasher, mut buffer, mut bytes) = (Sha256::new(), vec![0; 64 << 10], 0_u64);
    loop {
        let read = file.read(&mut buffer).map_err(failed)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        if bytes > limit {
            return Err(large(bytes));
        }
        hasher.update(&buffer[..read]);
    }
    Ok((hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect(), bytes))
}

/// Runs work that blocks on a thread that may.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) if error.is_panic() => Err(Error::Index(format!("it broke off: {error}"))),
        Err(_) => Err(Error::Cancelled),
    }
}

fn document(row: DocumentRow, model: Option<&str>, failure: Option<&str>) -> Document {
    let mut reasons: Vec<String> = row.missing.into_iter().collect();
    if row.vectors < row.chunks {
        reasons.push(match (failure, model) {
            (Some(failure), _) => format!("searchable by words only: {failure}"),
            (None, None) => "searchable by words only: there is no embedding model".to_owned(),
            (None, Some(_)) => format!("searchable by words; by meaning {} of {} passages so far", row.vectors, row.chunks),
        });
    }
    let state = if reasons.is_empty() { DocumentState::Ready } else { DocumentState::Partly { reason: reasons.join("; ") } };
    Document { id: row.id, name: row.name, path: row.path, bytes: row.bytes, pages: row.pages, chunks: row.chunks, state }
}
