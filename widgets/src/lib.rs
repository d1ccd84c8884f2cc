//! Reusable iced widgets; they know no chat and no MCP.
//!
//! - [`markdown`]: Markdown that streams; closed blocks are never parsed again.
//! - [`virtual_list`]: a list that builds and lays out only what is on screen.
//! - [`behind`]: keeps the keyboard from what something else lies over.
//! - [`focusable`]: buttons that are reached and pressed by keyboard.
//! - [`pulse`]: a bar for work whose end is not known.
//! - [`readable`]: makes text that a widget draws findable by tests and by other operations.
#![deny(missing_docs)]

pub mod behind;
pub mod focusable;
pub mod markdown;
pub mod pulse;
pub mod readable;
pub mod virtual_list;

pub use behind::behind;
pub use focusable::focusable;
pub use pulse::pulse;
pub use readable::readable;
pub use virtual_list::virtual_list;
