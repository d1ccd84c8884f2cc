//! Vectors: in batches, each stored as it is made, by whoever comes first: the reading of a document or the pass in
//! the background.

use std::sync::{Arc, PoisonError, Weak};

use super::{Inner, cut, new_chunks};
use crate::embedding::Embedder;
use crate::rag::{Error, chunk};
use crate::store::{ChunkId, ContentId};

/// Chunks embedded at once: enough to keep the processor busy, few enough to stop soon.
const BATCH: usize = 32;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) embedder: Option<Arc<dyn Embedder>>,
    /// Why the embedder gave no vectors.
    failure: Option<String>,
    /// Rises with every change; a pass of an older one ends.
    generation: u64,
    running: bool,
}

impl State {
    pub(super) fn model(&self) -> Option<String> {
        self.embedder.as_ref().map(|embedder| embedder.model().to_owned())
    }

    pub(super) fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// Records a failure, unless the embedder was changed meanwhile.
    pub(super) fn failed(&mut self, embedder: &Arc<dyn Embedder>, reason: String) {
        if self.embedder.as_ref().is_some_and(|current| Arc::ptr_eq(current, embedder)) {
            tracing::warn!(reason, model = embedder.model(), "no vectors");
            self.failure = Some(reason);
        }
    }
}

/// What one batch did.
pub(super) struct Batch {
    pub(super) chunks: usize,
    pub(super) last: ChunkId,
    pub(super) contents: Vec<ContentId>,
}

impl Inner {
    /// Embeds the next chunks without a vector; `None` when there are none. [`Error::Index`] says that the embedder
    /// failed.
    pub(super) fn embed_batch(&self, embedder: &dyn Embedder, content: Option<ContentId>, after: ChunkId) -> Result<Option<Batch>, Error> {
        let _batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        let chunks = self.store.chunks_without_vector(embedder.model(), content, after, BATCH)?;
        let Some(last) = chunks.last().map(|chunk| chunk.id) else { return Ok(None) };
        let texts: Vec<&str> = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
        let vectors = embedder.embed(&texts).map_err(|error| Error::Index(error.to_string()))?;
        if vectors.len() != chunks.len() || vectors.iter().any(|vector| vector.len() != embedder.dimension()) {
            return Err(Error::Index(format!("{} gave vectors of a wrong number or length", embedder.model())));
        }
        let vectors: Vec<(ChunkId, Vec<f32>)> = chunks.iter().map(|chunk| chunk.id).zip(vectors).collect();
        self.store.put_vectors(embedder.model(), &vectors)?;
        self.collections.added(embedder.model(), &vectors)?;
        let mut contents: Vec<ContentId> = chunks.iter().map(|chunk| chunk.content).collect();
        contents.dedup();
        Ok(Some(Batch { chunks: chunks.len(), last, contents }))
    }

    /// Cuts anew what was cut for another embedder.
    fn recut(&self, embedder: &dyn Embedder, content: ContentId) -> Result<(), Error> {
        let _batch = self.batch.lock().unwrap_or_else(PoisonError::into_inner);
        let text = self.store.content_text(content)?;
        let (chunks, counter) = cut(&text, Some(embedder));
        if counter == chunk::counter(Some(embedder)) {
            let old = self.store.chunk_ids(&[content])?;
            self.store.replace_chunks(content, &counter, &new_chunks(&text, &chunks))?;
            self.collections.removed(&old);
        }
        Ok(())
    }
}

/// Sets the embedder and starts the pass over what has no vectors of it.
pub(super) fn set(inner: &Arc<Inner>, embedder: Option<Arc<dyn Embedder>>) {
    let mut state = inner.embedding();
    let same = matches!((&state.embedder, &embedder), (Some(old), Some(new)) if Arc::ptr_eq(old, new));
    // The engine gives the same embedder again and again; a pass that runs or that failed is not begun anew for it.
    if same && (state.running || state.failure.is_some()) {
        return;
    }
    if !same {
        state.generation += 1;
        state.failure = None;
        state.embedder.clone_from(&embedder);
    }
    let Some(embedder) = embedder else { return };
    state.running = true;
    let (generation, weak) = (state.generation, Arc::downgrade(inner));
    drop(state);
    let pass = move || Pass { inner: weak, embedder, generation }.run();
    if let Err(error) = std::thread::Builder::new().name("handrail-embed".to_owned()).spawn(pass) {
        tracing::warn!(%error, "no vectors are made in the background");
        inner.embedding().running = false;
    }
}

/// One pass over the library; it ends when the library goes or gets another embedder.
struct Pass {
    inner: Weak<Inner>,
    embedder: Arc<dyn Embedder>,
    generation: u64,
}

impl Pass {
    fn run(self) {
        let result = self.recut().and_then(|()| self.embed());
        let Some(inner) = self.inner.upgrade() else { return };
        let mut state = inner.embedding();
        if state.generation != self.generation {
            return;
        }
        state.running = false;
        if let Err(error) = result {
            state.failed(&self.embedder, error.to_string());
            drop(state);
            if let Ok(rows) = inner.store.document_rows(Some(self.embedder.model())) {
                rows.iter().filter(|row| row.vectors < row.chunks).for_each(|row| inner.changed(row.content));
            }
        }
    }

    /// The library while it is there and still wants this pass.
    fn inner(&self) -> Option<Arc<Inner>> {
        self.inner.upgrade().filter(|inner| inner.embedding().generation == self.generation)
    }

    fn recut(&self) -> Result<(), Error> {
        let Some(inner) = self.inner() else { return Ok(()) };
        let contents = inner.store.contents_not_counted_by(&chunk::counter(Some(&*self.embedder)))?;
        drop(inner);
        for content in contents {
            let Some(inner) = self.inner() else { return Ok(()) };
            inner.recut(&*self.embedder, content)?;
        }
        Ok(())
    }

    fn embed(&self) -> Result<(), Error> {
        let (mut after, mut open) = (0, None);
        loop {
            let Some(inner) = self.inner() else { return Ok(()) };
            let batch = inner.embed_batch(&*self.embedder, None, after)?;
            let contents = batch.as_ref().map(|batch| batch.contents.clone()).unwrap_or_default();
            // A content is done when the next one begins, or nothing follows.
            for content in contents.iter().copied().map(Some).chain(batch.is_none().then_some(None)) {
                if content != open {
                    if let Some(done) = open {
                        inner.changed(done);
                    }
                    open = content;
                }
            }
            match batch {
                Some(batch) => after = batch.last,
                None => {
                    inner.collections.save(&inner.store);
                    return Ok(());
                }
            }
        }
    }
}
