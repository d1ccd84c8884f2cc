//! Notices when somebody else changes the configuration file.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use notify::{RecursiveMode, Watcher as _};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use super::{Inner, Manager};

/// An editor writes, renames and touches in a burst; the file is read once it has been quiet for so long.
const QUIET: Duration = Duration::from_millis(200);
/// A burst that never ends is cut off here.
const BURST: Duration = Duration::from_secs(2);
/// How often the file is looked at where the system cannot tell of changes.
const POLL: Duration = Duration::from_secs(2);
/// And where it can: its folder may have been replaced, or be on a file system that tells nothing.
const SLOW_POLL: Duration = Duration::from_secs(30);

/// How often it is asked whether another process wrote down that somebody agreed to a server.
const CONSENT: Duration = Duration::from_millis(400);

/// Watches until the manager is gone or shut down.
pub(super) fn begin(manager: &Manager) {
    let (Some(runtime), Some(path)) = (&manager.inner.runtime, &manager.inner.path) else { return };
    let _agreeing = runtime.spawn(agreed_elsewhere(Arc::downgrade(&manager.inner), manager.inner.watching.clone()));
    let (tell, told) = mpsc::unbounded_channel();
    // Made here and not in the task, so that no change after this goes unheard.
    let watcher = watcher(path, tell);
    let pause = if watcher.is_some() { SLOW_POLL } else { POLL };
    let follow = follow(Arc::downgrade(&manager.inner), manager.inner.watching.clone(), told, pause);
    let _task = runtime.spawn(async move {
        follow.await;
        drop(watcher);
    });
}

/// Watches the folder: most programs replace a file, and a watch on the file itself would stay with the old one.
fn watcher(path: &Path, tell: UnboundedSender<()>) -> Option<notify::RecommendedWatcher> {
    // The changes to what a link points to happen elsewhere.
    if path.is_symlink() {
        return None;
    }
    let name = path.file_name()?.to_owned();
    let folder: PathBuf = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new(".")).to_owned();
    let heard = move |event: notify::Result<notify::Event>| {
        let ours = match &event {
            // Reading the file is no change; without this each look would cause the next one.
            Ok(event) if event.kind.is_access() => false,
            Ok(event) => event.paths.is_empty() || event.paths.iter().any(|path| path.file_name() == Some(&name)),
            Err(_) => true,
        };
        if ours {
            let _ = tell.send(());
        }
    };
    let watching = notify::recommended_watcher(heard).and_then(|mut watcher| {
        watcher.watch(&folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    match watching {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::info!(%error, folder = %folder.display(), "the server configuration is looked at every {POLL:?}: it cannot be watched");
            None
        }
    }
}

async fn follow(inner: Weak<Inner>, stop: CancellationToken, mut told: UnboundedReceiver<()>, pause: Duration) {
    // Where nothing watches, the channel is closed from the start.
    let mut open = true;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            heard = told.recv(), if open => match heard {
                Some(()) => quiet(&mut told).await,
                None => {
                    open = false;
                    continue;
                }
            },
            () = tokio::time::sleep(pause) => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        // The manager's last handle may go in here; what it holds is dropped on that thread then.
        if tokio::task::spawn_blocking(move || Manager { inner }.reload()).await.is_err() {
            tracing::error!("the server configuration could not be read again");
        }
    }
}

/// Takes over what was agreed to on the command line, or in another window.
async fn agreed_elsewhere(inner: Weak<Inner>, stop: CancellationToken) {
    let mut seen = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(CONSENT) => {}
        }
        let Some(inner) = inner.upgrade() else { return };
        let looking = tokio::task::spawn_blocking(move || {
            let version = inner.store.version_elsewhere().ok();
            if version.is_some() && version != seen {
                // Before the first look nothing is known to have changed; looking costs next to nothing.
                Manager { inner }.take_over_consent();
            }
            version
        });
        match looking.await {
            Ok(version) => seen = version.or(seen),
            Err(error) => tracing::error!(%error, "what was agreed to elsewhere could not be read"),
        }
    }
}

async fn quiet(told: &mut UnboundedReceiver<()>) {
    let burst = async { while let Ok(Some(())) = tokio::time::timeout(QUIET, told.recv()).await {} };
    let _ = tokio::time::timeout(BURST, burst).await;
}
