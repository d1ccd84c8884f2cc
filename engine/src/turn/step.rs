//! One answer of the model: its deltas become the draft, and events at a rate that a screen can follow.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use tokio::time::Instant;

use super::draft::{Draft, Kind};
use super::run::{Feed, Turn};
use super::{Error, Event};
use crate::provider::{self, Delta, Finish, Request};

/// The shortest time between two events of one kind: 30 a second.
pub(super) const EVENT_EVERY: Duration = Duration::from_millis(33);

/// A call as the model wrote it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RawCall {
    pub name: String,
    pub arguments: String,
}

/// How an answer ended, and the calls it made.
#[derive(Debug)]
pub(super) struct Answer {
    pub finish: Finish,
    pub calls: Vec<RawCall>,
}

/// Text that waits for the next event.
struct Pace {
    waiting: Option<(Kind, String)>,
    sent: Option<Instant>,
    prefill: Option<Instant>,
}

impl Pace {
    fn due(&self) -> Instant {
        self.sent.map_or_else(Instant::now, |sent| sent + EVENT_EVERY)
    }

    /// Stores what was written and then shows it: what a person has seen survives a killed process.
    async fn flush(&mut self, draft: &Draft, feed: &mut Feed) -> Result<(), Error> {
        let Some((kind, text)) = self.waiting.take() else { return Ok(()) };
        draft.save()?;
        let message = draft.id();
        self.sent = Some(Instant::now());
        feed.send(match kind {
            Kind::Text => Event::Text { message, text },
            Kind::Reasoning => Event::Reasoning { message, text },
        })
        .await;
        Ok(())
    }

    async fn push(&mut self, kind: Kind, piece: &str, draft: &Draft, feed: &mut Feed) -> Result<(), Error> {
        draft.append(kind, piece);
        if self.waiting.as_ref().is_some_and(|(waiting, _)| *waiting != kind) {
            self.flush(draft, feed).await?;
        }
        self.waiting.get_or_insert_with(|| (kind, String::new())).1.push_str(piece);
        if Instant::now() >= self.due() {
            self.flush(draft, feed).await?;
        }
        Ok(())
    }
}

/// Asks the model and follows its answer to the end.
pub(super) async fn follow(turn: &Turn, request: Request, draft: &Draft, feed: &mut Feed) -> Result<Answer, Error> {
    let mut deltas = turn.provider.stream(request, turn.cancel.child_token());
    let mut pace = Pace { waiting: None, sent: None, prefill: None };
    let mut calls: BTreeMap<usize, RawCall> = BTreeMap::new();
    let ended = loop {
        let delta = tokio::select! {
            biased;
            delta = deltas.next() => delta,
            () = tokio::time::sleep_until(pace.due()), if pace.waiting.is_some() => {
                pace.flush(draft, feed).await?;
                continue;
            }
        };
        match delta {
            Some(Ok(Delta::Text(text))) => pace.push(Kind::Text, &text, draft, feed).await?,
            Some(Ok(Delta::Reasoning(text))) => pace.push(Kind::Reasoning, &text, draft, feed).await?,
            Some(Ok(Delta::Prefill { done, total, reused })) => {
                if done >= total || pace.prefill.is_none_or(|sent| sent.elapsed() >= EVENT_EVERY) {
                    pace.prefill = Some(Instant::now());
                    feed.send(Event::Prefill { done, total, reused }).await;
                }
            }
            // The model's own ids repeat from one conversation to the next; calls get ids of ours.
            Some(Ok(Delta::CallStarted { index, name, .. })) => calls.entry(index).or_default().name = name,
            Some(Ok(Delta::CallArguments { index, fragment })) => calls.entry(index).or_default().arguments.push_str(&fragment),
            Some(Ok(Delta::Finished { reason, usage })) => break Ok((reason, usage)),
            Some(Err(error)) => break Err(error),
            None => break Err(provider::Error::Broken("its answer broke off without an end".to_owned())),
        }
    };
    pace.flush(draft, feed).await?;
    draft.save()?;
    let (finish, usage) = ended?;
    feed.send(Event::Usage { usage }).await;
    Ok(Answer { finish, calls: calls.into_values().collect() })
}
