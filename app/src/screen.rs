//! The screens. Each is a struct with `Message`, `update` and `view`; what they need from the app comes as [`Env`]
//! for updates and as [`Look`] for views.

pub mod chat;
pub mod library;
pub mod models;
pub mod path_field;
pub mod question;
pub mod servers;
pub mod settings;
pub mod sidebar;
pub mod welcome;

use std::time::Instant;

use handrail_engine::Engine;

use crate::appearance::Roles;
use crate::facts::Facts;
use crate::locale::Locale;

/// Which screen is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    Welcome,
    Chat,
    Servers,
    Models,
    Library,
    Settings,
}

/// What an update may use.
pub struct Env<'a> {
    pub engine: &'a Engine,
    pub facts: &'a Facts,
    pub locale: &'a Locale,
    pub now: Instant,
    /// Since when the window has the focus.
    pub focused_since: Option<Instant>,
}

/// What a view may use.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    pub locale: &'a Locale,
    pub roles: &'static Roles,
    pub facts: &'a Facts,
    /// The day of today, for grouping.
    pub today: jiff::civil::Date,
    /// The moment that this is drawn for.
    pub now: Instant,
    /// Whether the window is too narrow for panels beside the page.
    pub narrow: bool,
}

impl Look<'_> {
    /// A string.
    #[must_use]
    pub fn t(&self, key: &str) -> String {
        self.locale.t(key)
    }
}
