//! A turn as a stream of messages: events are gathered for a moment, because every batch that reaches the screen
//! builds and lays out a frame.

use std::time::Duration;

use futures::SinkExt as _;
use futures::channel::mpsc;
use handrail_engine::Engine;
use handrail_engine::conversation::ConversationId;
use handrail_engine::turn::{self, Event, Input};
use iced::Task;
use iced::task::Handle;
use sipper::Sipper as _;
use tokio::time::Instant;

use super::Message;

/// Longest time that an event waits for others: 30 frames a second.
const FRAME: Duration = Duration::from_millis(33);

/// Runs a turn; dropping the handle stops it.
pub fn run(engine: &Engine, conversation: ConversationId, input: Input, id: u64) -> (Task<Message>, Handle) {
    let work = engine.turn(conversation, input);
    let stream = iced::stream::channel(4, async move |mut out: mpsc::Sender<Message>| {
        let mut work = work.pin();
        let mut held: Vec<Event> = Vec::new();
        let mut sent_at = Instant::now().checked_sub(FRAME).unwrap_or_else(Instant::now);
        loop {
            let due = tokio::time::sleep_until(sent_at + FRAME);
            tokio::select! {
                event = work.sip() => match event {
                    Some(event) => join(&mut held, event),
                    None => break,
                },
                () = due, if !held.is_empty() => {
                    sent_at = Instant::now();
                    // The receiver only goes when this stream is being dropped.
                    let _ = out.send(Message::Turn(id, std::mem::take(&mut held))).await;
                }
            }
        }
        let result: Result<turn::Outcome, turn::Error> = work.await;
        let _ = out.send(Message::Turn(id, held)).await;
        let _ = out.send(Message::Ended(id, result)).await;
    });
    let (task, handle) = Task::stream(stream).abortable();
    (task, handle.abort_on_drop())
}

/// Appends an event; text joins the text before it, and only the newest reading of the prompt matters.
fn join(held: &mut Vec<Event>, event: Event) {
    match (held.last_mut(), event) {
        (Some(Event::Text { message, text }), Event::Text { message: other, text: more }) if *message == other => text.push_str(&more),
        (Some(Event::Reasoning { message, text }), Event::Reasoning { message: other, text: more }) if *message == other => {
            text.push_str(&more);
        }
        (Some(last @ Event::Prefill { .. }), event @ Event::Prefill { .. }) => *last = event,
        (_, event) => held.push(event),
    }
}

#[cfg(test)]
mod tests {
    use handrail_engine::conversation::MessageId;

    use super::*;

    #[test]
    fn text_joins_text_of_the_same_message_and_order_stays() {
        let (a, b) = (MessageId::fresh(), MessageId::fresh());
        let text = |message, text: &str| Event::Text { message, text: text.to_owned() };
        let mut held = Vec::new();
        for event in [text(a, "x"), text(a, "y"), Event::Answering { message: b }, text(b, "z")] {
            join(&mut held, event);
        }
        assert_eq!(held, [text(a, "xy"), Event::Answering { message: b }, text(b, "z")]);
    }
}
