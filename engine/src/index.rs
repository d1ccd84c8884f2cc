//! Vectors by nearness: an HNSW graph of our own and a linear scan behind the same trait. Knows no text.

/// A vector's id, chosen by the caller (a chunk's row id).
pub type VectorId = u64;

/// One found vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Which vector.
    pub id: VectorId,
    /// Inner product with the query: the cosine for normalised vectors.
    pub score: f32,
}
