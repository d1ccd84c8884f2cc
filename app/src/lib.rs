//! The Handrail window: an iced daemon over the engine.

mod app;
pub mod appearance;
pub mod desktop;
pub mod facts;
pub mod fault;
mod feed;
mod icon;
pub mod locale;
pub mod log;
mod piece;
mod screen;
mod signal;
pub mod smoke;
mod verb;
mod window;

pub use app::{App, Message, run};

/// The folder of the models: the one given, else the one of the environment; none for the usual place.
#[must_use]
pub fn models_dir(given: Option<std::path::PathBuf>, environment: Option<std::ffi::OsString>) -> Option<std::path::PathBuf> {
    given.or_else(|| environment.filter(|folder| !folder.is_empty()).map(Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_comes_before_the_environment_and_an_empty_variable_is_none() {
        assert_eq!(models_dir(Some("/a".into()), Some("/b".into())), Some("/a".into()));
        assert_eq!(models_dir(None, Some("/b".into())), Some("/b".into()));
        assert_eq!(models_dir(None, Some("".into())), None);
        assert_eq!(models_dir(None, None), None);
    }
}
