//! Reusable iced widgets; they know no chat and no MCP.
//!
//! - [`markdown`]: Markdown that streams; closed blocks are never parsed again.
//! - [`virtual_list`]: a list that builds and lays out only what is on screen.
//! - [`readable`]: makes text that a widget draws findable by tests and by other operations.
#![deny(missing_docs)]

pub mod markdown;
pub mod readable;
pub mod virtual_list;

pub use readable::readable;
pub use virtual_list::virtual_list;
