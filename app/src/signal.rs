//! Signals that end the program: a session that logs out or a terminal that closes means Quit, not a torn process.

use futures::channel::mpsc;
use iced::Subscription;

/// Says once for each signal that the program should end.
pub fn follow() -> Subscription<()> {
    Subscription::run(stream)
}

#[cfg(unix)]
fn stream() -> impl futures::Stream<Item = ()> {
    use futures::SinkExt as _;
    use tokio::signal::unix::{Signal, SignalKind, signal};

    async fn next(signal: &mut std::io::Result<Signal>) {
        match signal {
            Ok(signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    }
    iced::stream::channel(1, async move |mut out: mpsc::Sender<()>| {
        let [mut terminate, mut hangup, mut interrupt] =
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()].map(signal);
        for failed in [&terminate, &hangup, &interrupt].into_iter().filter_map(|signal| signal.as_ref().err()) {
            tracing::warn!(error = %failed, "a signal cannot be followed; it ends the program at once");
        }
        loop {
            tokio::select! {
                () = next(&mut terminate) => {}
                () = next(&mut hangup) => {}
                () = next(&mut interrupt) => {}
            }
            if out.send(()).await.is_err() {
                return;
            }
        }
    })
}

#[cfg(not(unix))]
fn stream() -> impl futures::Stream<Item = ()> {
    iced::stream::channel(1, async move |_: mpsc::Sender<()>| std::future::pending().await)
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;
    use std::time::Duration;

    use futures::StreamExt as _;

    use super::*;

    #[tokio::test]
    async fn each_signal_of_the_system_is_told() {
        let mut told = Box::pin(stream());
        for name in ["-HUP", "-TERM"] {
            // The stream listens from its first poll on.
            let early = tokio::time::timeout(Duration::from_millis(50), told.next()).await;
            assert!(early.is_err());
            assert!(Command::new("kill").args([name, &std::process::id().to_string()]).status().unwrap().success());
            let heard = tokio::time::timeout(Duration::from_secs(5), told.next()).await;
            assert_eq!(heard, Ok(Some(())));
        }
    }
}
