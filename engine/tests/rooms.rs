//! Tests of whole rooms on real input.

#[path = "rooms/rag.rs"]
mod rag;
#[path = "rooms/rag_pdf.rs"]
mod rag_pdf;
#[path = "rooms/rag_worker.rs"]
mod rag_worker;
