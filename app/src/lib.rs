//! The Handrail window: an iced daemon over the engine.

mod app;
pub mod appearance;
pub mod desktop;
pub mod facts;
mod feed;
mod icon;
pub mod locale;
pub mod log;
mod piece;
mod screen;
pub mod smoke;
mod verb;
mod window;

pub use app::{App, Message, run};
