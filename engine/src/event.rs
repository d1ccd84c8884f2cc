//! One feed over each room's own events. A receiver takes a snapshot from the rooms first, then follows the feed;
//! one that lags takes a new snapshot.

use crate::{approval, local, mcp, rag};

/// Something endless changed.
#[derive(Clone, Debug)]
pub enum Event {
    /// An MCP server.
    Server(mcp::Event),
    /// The approval gate.
    Approval(approval::Event),
    /// A model: its download or its state.
    Model(local::ModelView),
    /// A document of the library.
    Document(rag::Document),
    /// More happened than could be told: whoever keeps a picture asks the rooms again.
    Missed,
}
