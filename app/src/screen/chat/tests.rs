use std::sync::Arc;
use std::time::{Duration, Instant};

use handrail_engine::approval::Request;
use handrail_engine::conversation::{CallRecord, CallState, Role, Status};
use handrail_engine::tool::{Call, CallId, Definition};
use handrail_engine::turn::Ended;
use handrail_engine::{Config, Engine};
use iced_test::simulator;
use serde_json::json;

use super::*;
use crate::appearance::LIGHT;
use crate::facts::Facts;
use crate::locale::{Language, Locale};
use crate::screen::Look;

struct Stage {
    _folder: tempfile::TempDir,
    engine: Engine,
    facts: Facts,
    locale: Locale,
    chat: Chat,
    start: Instant,
}

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(Config { start_servers: false, ..Config::new(folder.path()) }).unwrap();
        let mut facts = Facts { gathered: true, ..Facts::default() };
        // A file of the person's own counts as usable; no turn here reaches it.
        facts.settings.chat_model = "/nowhere/model.gguf".to_owned();
        Self { _folder: folder, engine, facts, locale: Locale::new(Language::English), chat: Chat::default(), start: Instant::now() }
    }

    fn send(&mut self, message: Message, after: Duration) -> Action {
        let env = Env {
            engine: &self.engine,
            facts: &self.facts,
            locale: &self.locale,
            now: self.start + after,
            focused_since: Some(self.start),
        };
        self.chat.update(message, &env)
    }

    /// Opens a conversation with a turn that is only written by the test.
    fn with_turn(&mut self) -> (ConversationId, MessageId) {
        let conversation = self.engine.new_conversation().unwrap();
        let input = Box::new(Input { text: "What time is it?".to_owned(), ..Input::default() });
        let _ = self.send(Message::Begun(Ok(conversation.clone()), input), Duration::ZERO);
        let (user, answer) = (MessageId::fresh(), MessageId::fresh());
        let events =
            vec![Event::Started { conversation: conversation.id, user, model: "m".to_owned() }, Event::Answering { message: answer }];
        let _ = self.send(Message::Turn(1, events), Duration::ZERO);
        (conversation.id, answer)
    }

    fn look<T>(&self, work: impl FnOnce(&Chat, Look<'_>) -> T) -> T {
        let today = jiff::civil::date(2026, 1, 1);
        work(&self.chat, Look { locale: &self.locale, roles: &LIGHT, facts: &self.facts, today, narrow: false })
    }

    fn sees(&self, words: &str) -> bool {
        self.look(|chat, look| simulator(chat.view(look, false)).find(words).is_ok())
    }
}

#[test]
fn enter_sends_unless_an_input_method_is_composing() {
    let mut stage = Stage::new();
    stage.chat.composer.typed("ni hao");
    let _ = stage.send(Message::Composer(composer::Message::Composing(true)), Duration::ZERO);
    assert!(matches!(stage.send(Message::Composer(composer::Message::Submit), Duration::ZERO), Action::None));
    assert_eq!(stage.chat.composer.written(), "ni hao");
    let _ = stage.send(Message::Composer(composer::Message::Composing(false)), Duration::ZERO);
    assert!(matches!(stage.send(Message::Composer(composer::Message::Submit), Duration::ZERO), Action::Run(_)));
    assert_eq!(stage.chat.composer.written(), "");
}

#[test]
fn an_answer_streams_into_the_transcript_and_stop_keeps_what_is_there() {
    let mut stage = Stage::new();
    let (_, answer) = stage.with_turn();
    for text in ["It is ", "**noon**."] {
        let _ = stage.send(Message::Turn(1, vec![Event::Text { message: answer, text: text.to_owned() }]), Duration::ZERO);
    }
    assert!(stage.chat.is_running());
    assert!(stage.sees("What time is it?") && stage.sees("It is noon.") && stage.sees("Stop"));
    let _ = stage.send(Message::Stop, Duration::ZERO);
    assert!(!stage.chat.is_running());
    // What comes after Stop is dropped.
    let late = Message::Turn(1, vec![Event::Text { message: answer, text: "late".to_owned() }]);
    let _ = stage.send(late, Duration::ZERO);
    assert!(stage.sees("It is noon.") && stage.sees("Stopped") && stage.sees("Send"));
}

#[test]
fn a_failed_turn_says_why_and_offers_another_try() {
    let mut stage = Stage::new();
    let (_, answer) = stage.with_turn();
    let reason = Ended::Failed { reason: "the model stopped: out of memory".to_owned() };
    let _ = stage.send(Message::Turn(1, vec![Event::Finished { message: answer, reason }]), Duration::ZERO);
    assert!(stage.sees("the model stopped: out of memory") && stage.sees("Try again"));
}

#[test]
fn a_decision_counts_only_after_the_card_was_seen_long_enough() {
    let mut stage = Stage::new();
    let (conversation, answer) = stage.with_turn();
    let definition = Arc::new(Definition::new("time".into(), "now", None, "", json!({"type": "object"}), None, None));
    let call = Call { id: CallId::new("call_1"), tool: definition.id.clone(), alias: "now".to_owned(), arguments: json!({}) };
    let record = CallRecord { call: call.clone(), state: CallState::Proposed };
    let asked_at = jiff::Timestamp::now();
    stage.facts.pending.push(Request { call: call.clone(), conversation, definition, why: "no rule yet".to_owned(), asked_at });
    let _ = stage.send(Message::Turn(1, vec![Event::ToolCall { message: answer, record }]), Duration::ZERO);
    assert!(stage.sees("Allow once") && stage.sees("no rule yet"));

    let decide = || Message::Card(call.id.clone(), tool_call::Message::Decide(Decision::AllowOnce));
    let seconds = Duration::from_secs;
    // Never shown: a message alone, without a window that drew the card, cannot approve.
    assert!(matches!(stage.send(decide(), seconds(9)), Action::None));
    let _ = stage.send(Message::Card(call.id.clone(), tool_call::Message::Shown), seconds(10));
    assert!(matches!(stage.send(decide(), seconds(10) + Duration::from_millis(399)), Action::None));
    assert!(matches!(stage.send(decide(), seconds(10) + Duration::from_millis(400)), Action::Run(_)));
    assert!(matches!(stage.send(Message::Decide(Decision::Deny), seconds(11)), Action::Run(_)));
}

#[test]
fn citations_open_the_passage_that_was_found_for_the_question() {
    let mut stage = Stage::new();
    let (_, answer) = stage.with_turn();
    let passage = |number: usize, text: &str| Passage {
        number,
        document: handrail_engine::conversation::DocumentId::fresh(),
        name: "report.pdf".to_owned(),
        page: Some(3),
        span: (10, 40),
        text: text.to_owned(),
        score: 1.0,
    };
    let events = vec![
        Event::Retrieved { passages: vec![passage(1, "It rained in May."), passage(2, "June was dry.")], reason: String::new() },
        Event::Text { message: answer, text: "Rain fell in May [1].".to_owned() },
        Event::Cited { message: answer, passages: vec![1] },
    ];
    let _ = stage.send(Message::Turn(1, events), Duration::ZERO);
    assert!(stage.sees("[1] report.pdf · p. 3") && !stage.sees("[2] report.pdf · p. 3") && !stage.sees("It rained in May."));
    let _ = stage.send(Message::Text(answer, markdown::Action::Open("#1".to_owned())), Duration::ZERO);
    assert!(stage.sees("It rained in May.") && !stage.sees("June was dry."));
    let _ = stage.send(Message::CloseInspector, Duration::ZERO);
    assert!(!stage.sees("It rained in May."));
}

#[test]
fn a_message_of_the_database_that_was_still_streaming_reads_as_interrupted() {
    let mut stage = Stage::new();
    let conversation = stage.engine.new_conversation().unwrap().id;
    stage.chat.open = Some(conversation);
    let part = handrail_engine::conversation::Part::Text { text: "Half an ans".to_owned() };
    let stored = Stored::new(conversation, Role::Assistant, vec![part], Status::Streaming);
    let _ = stage.send(Message::Loaded(conversation, Ok(vec![stored])), Duration::ZERO);
    assert!(stage.sees("Half an ans") && stage.sees("Interrupted when the app closed"));
}

#[test]
fn a_thousand_messages_build_a_frame_quickly() {
    let mut stage = Stage::new();
    let conversation = stage.engine.new_conversation().unwrap().id;
    stage.chat.open = Some(conversation);
    let text = "A paragraph of **some** length with `code` in it.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n";
    let stored = (0..1000).map(|_| {
        let part = handrail_engine::conversation::Part::Text { text: text.repeat(3) };
        Stored::new(conversation, Role::Assistant, vec![part], Status::Complete)
    });
    let _ = stage.send(Message::Loaded(conversation, Ok(stored.collect())), Duration::ZERO);
    let start = Instant::now();
    stage.look(|chat, look| drop(simulator(chat.view(look, false))));
    // A first build that laid out everything would take seconds.
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}
