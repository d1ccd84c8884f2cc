//! The desktop beyond the window: file dialogs and the browser.

use std::path::PathBuf;

use iced::Task;

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
