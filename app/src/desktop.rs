//! The desktop beyond the window: file dialogs, the browser, the tray.

pub mod tray;

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use iced::Task;

/// Whether the system can show a file dialog at all. Where it cannot, asking for one gives nothing and says nothing,
/// which looks like a dead button.
#[cfg(target_os = "linux")]
#[must_use]
pub fn has_file_dialog() -> bool {
    offers_dialog(std::env::var_os("DBUS_SESSION_BUS_ADDRESS"), std::env::var_os("XDG_RUNTIME_DIR"), std::env::var_os("PATH"))
}

/// Whether the system can show a file dialog at all.
#[cfg(not(target_os = "linux"))]
#[must_use]
pub const fn has_file_dialog() -> bool {
    true
}

/// A portal needs the session bus, at its named address or its usual place; without one, zenity is what is left.
#[cfg(target_os = "linux")]
fn offers_dialog(bus: Option<OsString>, runtime: Option<OsString>, path: Option<OsString>) -> bool {
    let named = bus.is_some_and(|address| !address.is_empty());
    let usual = || runtime.is_some_and(|folder| !folder.is_empty() && PathBuf::from(folder).join("bus").exists());
    let zenity = || path.is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join("zenity").is_file()));
    named || usual() || zenity()
}

/// Lets the person choose files.
pub fn choose_files<M: Send + 'static>(title: String, chosen: impl Fn(Vec<PathBuf>) -> M + Send + 'static) -> Task<M> {
    let dialog = rfd::AsyncFileDialog::new().set_title(title);
    Task::perform(async move { dialog.pick_files().await }, move |files| {
        chosen(files.unwrap_or_default().iter().map(|file| file.path().to_owned()).collect())
    })
}

/// Lets the person choose one file.
pub fn choose_file<M: Send + 'static>(title: String, chosen: impl Fn(Option<PathBuf>) -> M + Send + 'static) -> Task<M> {
    let dialog = rfd::AsyncFileDialog::new().set_title(title);
    Task::perform(async move { dialog.pick_file().await }, move |file| chosen(file.map(|file| file.path().to_owned())))
}

/// Lets the person choose a folder.
pub fn choose_folder<M: Send + 'static>(title: String, chosen: impl Fn(Option<PathBuf>) -> M + Send + 'static) -> Task<M> {
    let dialog = rfd::AsyncFileDialog::new().set_title(title);
    Task::perform(async move { dialog.pick_folder().await }, move |folder| chosen(folder.map(|folder| folder.path().to_owned())))
}

/// Opens a web address in the person's browser. Other kinds of address are not opened: a model's text must not
/// start programs.
pub fn open_address<M: Send + 'static>(address: &str) -> Task<M> {
    let known = ["http://", "https://", "mailto:"].iter().any(|scheme| address.to_ascii_lowercase().starts_with(scheme));
    if !known {
        tracing::warn!(address, "not opened: only web and mail addresses are");
        return Task::none();
    }
    let address = address.to_owned();
    Task::future(async move {
        if let Err(error) = open::that_detached(&address) {
            tracing::warn!(%error, address, "the browser cannot be started");
        }
    })
    .discard()
}

/// Opens an address of a sign-in in the person's browser.
pub fn browse(address: &str) {
    let known = ["http://", "https://"].iter().any(|scheme| address.to_ascii_lowercase().starts_with(scheme));
    if !known {
        tracing::warn!(address, "not opened: a sign-in is a web page");
    } else if let Err(error) = open::that_detached(address) {
        tracing::warn!(%error, "the browser cannot be started");
    }
}

/// Opens a file of ours in the program that the person has for such files.
pub fn open_file<M: Send + 'static>(path: &Path) -> Task<M> {
    let path = path.to_owned();
    Task::future(async move {
        if let Err(error) = open::that_detached(&path) {
            tracing::warn!(%error, path = %path.display(), "the file cannot be opened");
        }
    })
    .discard()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_bus_or_zenity_offers_a_dialog_and_nothing_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let place = || Some(folder.path().as_os_str().to_owned());
        assert!(!offers_dialog(None, None, None));
        assert!(!offers_dialog(Some("".into()), place(), place()));
        assert!(offers_dialog(Some("unix:path=/run/bus".into()), None, None));
        std::fs::write(folder.path().join("zenity"), "").unwrap();
        assert!(offers_dialog(None, None, place()));
        assert!(!offers_dialog(None, place(), None));
        std::fs::write(folder.path().join("bus"), "").unwrap();
        assert!(offers_dialog(None, place(), None));
    }
}
