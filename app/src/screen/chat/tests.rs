use std::sync::Arc;
use std::time::{Duration, Instant};

use handrail_engine::approval::Request;
use handrail_engine::conversation::{Attachment, CallRecord, CallState, DocumentId, Message as Stored, Part, Role, Status};
use handrail_engine::provider::ToolChoice;
use handrail_engine::tool::{Call, CallId, Definition};
use handrail_engine::turn::{Ended, Options};
use handrail_engine::{Config, Engine};
use iced_test::simulator;
use serde_json::json;

use super::*;
use crate::appearance::LIGHT;
use crate::facts::Facts;
use crate::locale::{Language, Locale};
use crate::screen::{Look, path_field};

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

    fn with_env<T>(&mut self, work: impl FnOnce(&mut Chat, &Env<'_>) -> T) -> T {
        let env = Env { engine: &self.engine, facts: &self.facts, locale: &self.locale, now: self.start, focused_since: Some(self.start) };
        work(&mut self.chat, &env)
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
        work(&self.chat, Look { locale: &self.locale, roles: &LIGHT, facts: &self.facts, today, now: self.start, narrow: false })
    }

    fn sees(&self, words: &str) -> bool {
        self.look(|chat, look| simulator(chat.view(look, false, None)).find(words).is_ok())
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

    // Off screen, nothing counts, and back on screen it must be seen anew.
    let shown = || Message::Card(call.id.clone(), tool_call::Message::Shown);
    let hidings = [Message::InView(0..1), Message::Card(call.id.clone(), tool_call::Message::Hidden), Message::New];
    for (hiding, at) in hidings.into_iter().zip([20, 30, 40]) {
        let _ = stage.send(Message::InView(0..2), seconds(at));
        assert!(matches!(stage.send(decide(), seconds(at)), Action::Run(_)));
        let _ = stage.send(hiding, seconds(at));
        stage.chat.open = Some(conversation);
        assert!(matches!(stage.send(Message::Decide(Decision::AllowOnce), seconds(at + 1)), Action::None));
        let _ = stage.send(shown(), seconds(at + 2));
        assert!(matches!(stage.send(decide(), seconds(at + 2)), Action::None));
    }
}

#[test]
fn citations_open_the_passage_that_was_found_for_the_question() {
    let mut stage = Stage::new();
    let (_, answer) = stage.with_turn();
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
    let part = Part::Text { text: "Half an ans".to_owned() };
    let stored = Stored::new(conversation, Role::Assistant, vec![part], Status::Streaming);
    let _ = stage.send(Message::Loaded(conversation, Ok(Transcript::build(vec![stored], &[]))), Duration::ZERO);
    assert!(stage.sees("Half an ans") && stage.sees("Interrupted when the app closed"));
}

#[test]
fn a_thousand_messages_are_parsed_off_the_screen_and_build_a_frame_quickly() {
    let mut stage = Stage::new();
    let conversation = stage.engine.new_conversation().unwrap().id;
    stage.chat.open = Some(conversation);
    let text = "A paragraph of **some** length with `code` in it.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n";
    let stored = (0..1000).map(|_| {
        let part = Part::Text { text: text.repeat(3) };
        Stored::new(conversation, Role::Assistant, vec![part], Status::Complete)
    });
    // What the blocking task does.
    let history = Transcript::build(stored.collect(), &[]);
    let start = Instant::now();
    let _ = stage.send(Message::Loaded(conversation, Ok(history)), Duration::ZERO);
    // A frame of 60 a second is 16 ms; parsing here took many of them.
    assert!(start.elapsed() < Duration::from_millis(16), "{:?}", start.elapsed());
    assert_eq!(stage.chat.talk().unwrap().entries.len(), 1000);
    let start = Instant::now();
    stage.look(|chat, look| drop(simulator(chat.view(look, false, None))));
    // A first build that laid out everything would take seconds.
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
}

fn passage(number: usize, text: &str) -> Passage {
    Passage {
        number,
        document: DocumentId::fresh(),
        name: "report.pdf".to_owned(),
        page: Some(3),
        span: (10, 40),
        text: text.to_owned(),
        score: 1.0,
    }
}

#[test]
fn citations_of_a_stored_answer_are_found_again_with_and_without_markers() {
    let mut stage = Stage::new();
    let conversation = stage.engine.new_conversation().unwrap().id;
    stage.chat.open = Some(conversation);
    let said = |role, parts| Stored::new(conversation, role, parts, Status::Complete);
    let text = |text: &str| Part::Text { text: text.to_owned() };
    let passages = vec![passage(1, "The budget was approved in March."), passage(2, "The coolant pump must run at a pressure of 4.2 bar.")];
    let history = Transcript::build(
        vec![
            said(Role::User, vec![text("What pressure?"), Part::Passages { passages }]),
            said(Role::Assistant, vec![text("The coolant pump runs at a pressure of 4.2 bar.")]),
            said(Role::User, vec![text("And array[1]?")]),
            said(Role::Assistant, vec![text("That is array[1] of [1].")]),
        ],
        &[],
    );
    assert_eq!(history.iter().map(|entry| entry.cited.clone()).collect::<Vec<_>>(), [vec![], vec![2], vec![], vec![]]);
    let _ = stage.send(Message::Loaded(conversation, Ok(history)), Duration::ZERO);
    assert!(stage.sees("[2] report.pdf · p. 3") && !stage.sees("[1] report.pdf · p. 3"));
}

#[test]
fn a_message_sent_before_the_history_is_here_comes_after_it() {
    let mut stage = Stage::new();
    let conversation = stage.engine.new_conversation().unwrap().id;
    let old = Stored::new(conversation, Role::User, vec![Part::Text { text: "An old question".to_owned() }], Status::Complete);
    stage.chat.open = Some(conversation);
    let input = Input { text: "A new question".to_owned(), ..Input::default() };
    stage.with_env(|chat, env| drop(chat.send(input, env)));
    let (user, answer) = (MessageId::fresh(), MessageId::fresh());
    let _ = stage.send(Message::Turn(1, vec![Event::Started { conversation, user, model: "m".to_owned() }]), Duration::ZERO);
    // The database is read while the turn runs: it has the new question too, once under its real id and once as it
    // would be had its id not been told yet.
    let again = |id| Stored {
        id,
        ..Stored::new(conversation, Role::User, vec![Part::Text { text: "A new question".to_owned() }], Status::Complete)
    };
    let history = Transcript::build(vec![old, again(user), again(MessageId::fresh())], &[]);
    let _ = stage.send(Message::Loaded(conversation, Ok(history)), Duration::ZERO);
    let sources = |stage: &Stage| stage.chat.talk().unwrap().entries.iter().map(Entry::source).collect::<Vec<_>>();
    assert_eq!(sources(&stage), ["An old question", "A new question"]);
    // The turn goes on after the new question.
    let _ = stage.send(Message::Turn(1, vec![Event::Text { message: answer, text: "Yes.".to_owned() }]), Duration::ZERO);
    assert_eq!(sources(&stage), ["An old question", "A new question", "Yes."]);
    assert!(stage.chat.is_running());
}

fn attachment() -> Attachment {
    Attachment { document: DocumentId::fresh(), name: "report.pdf".to_owned(), bytes: 3 }
}

fn with_file(text: &str) -> Input {
    let options = Options { tool_choice: ToolChoice::None, ..Options::default() };
    Input { text: text.to_owned(), attachments: vec![attachment()], options }
}

/// What the composer would send, taken out of it.
fn composed(stage: &mut Stage) -> (String, Vec<String>, composer::Choice) {
    let text = stage.chat.composer.written();
    let (files, choice) = std::mem::take(&mut stage.chat.composer).ready();
    (text, files.into_iter().map(|file| file.name).collect(), choice)
}

#[test]
fn what_cannot_be_sent_is_back_in_the_composer() {
    let expected = |text: &str| (text.to_owned(), vec!["report.pdf".to_owned()], composer::Choice::None);
    // While a turn runs.
    let mut stage = Stage::new();
    let _ = stage.with_turn();
    stage.with_env(|chat, env| drop(chat.send(with_file("first"), env)));
    assert_eq!(composed(&mut stage), expected("first"));
    // When no conversation can be begun; what was written meanwhile stays after it.
    stage.chat.composer.typed("second");
    let _ = stage.send(Message::Begun(Err("the disk is full".to_owned()), Box::new(with_file("first"))), Duration::ZERO);
    assert_eq!(composed(&mut stage), expected("first\n\nsecond"));
    assert!(stage.sees("the disk is full"));
}

#[test]
fn another_try_sends_the_files_and_the_choice_again() {
    let mut stage = Stage::new();
    let conversation = stage.engine.new_conversation().unwrap();
    let sent = with_file("What does it say?");
    let _ = stage.send(Message::Begun(Ok(conversation), Box::new(sent.clone())), Duration::ZERO);
    let failed = Error::Provider(handrail_engine::provider::Error::Broken("out of memory".to_owned()));
    let _ = stage.send(Message::Ended(1, Err(failed)), Duration::ZERO);
    assert!(stage.sees("Try again"));
    assert_eq!(stage.chat.talk().unwrap().last_question(), Some(sent.clone()));
    assert!(matches!(stage.send(Message::Retry, Duration::ZERO), Action::Changed(_)));
    assert_eq!(stage.chat.talk().unwrap().last_question(), Some(sent));
    assert_eq!(stage.chat.talk().unwrap().entries.len(), 2);
}

#[test]
fn a_path_that_is_written_attaches_its_file() {
    let mut stage = Stage::new();
    let _ = stage.send(Message::Composer(composer::Message::AttachPath), Duration::ZERO);
    let path = |message| Message::Composer(composer::Message::Path(message));
    stage.look(|chat, look| {
        let mut ui = simulator(chat.view(look, false, None));
        assert!(ui.find("Attach").is_ok() && ui.find("This system offers no file dialog").is_err());
    });
    let _ = stage.send(path(path_field::Message::Typed("/tmp/a.pdf".to_owned())), Duration::ZERO);
    let _ = stage.send(path(path_field::Message::Enter), Duration::ZERO);
    assert_eq!(stage.chat.composer.attached_count(), 1);
    assert!(stage.sees("a.pdf") && !stage.sees("Attach"));
}

#[test]
fn only_an_answer_with_text_is_an_answer() {
    use handrail_engine::provider::Finish;
    let mut stage = Stage::new();
    let (_, answer) = stage.with_turn();
    let ended = |ended| Ok(Outcome { message: answer, ended });
    let answered = || ended(Ended::Answered { finish: Finish::Stop });
    assert!(stage.chat.verdict(&answered()).is_err());
    let _ = stage.send(Message::Turn(1, vec![Event::Text { message: answer, text: "Noon.".to_owned() }]), Duration::ZERO);
    assert_eq!(stage.chat.verdict(&answered()), Ok(()));
    assert_eq!(stage.chat.verdict(&ended(Ended::Failed { reason: "no memory".to_owned() })), Err("no memory".to_owned()));
    assert!(stage.chat.verdict(&ended(Ended::Stopped)).is_err());
    let broken = Error::Provider(handrail_engine::provider::Error::Broken("gone".to_owned()));
    assert!(stage.chat.verdict(&Err(broken)).is_err());
}

fn prompt(name: &str, argument: Option<&str>) -> handrail_engine::mcp::offer::Prompt {
    use handrail_engine::mcp::offer::{Argument, Prompt};
    let argument = argument.map(|name| Argument { name: name.to_owned(), title: None, description: None, required: true });
    let about = Some(format!("About {name}"));
    Prompt { name: name.to_owned(), title: None, description: about, arguments: argument.into_iter().collect() }
}

#[test]
fn a_slash_lists_prompts_asks_for_arguments_and_shows_the_text_before_it_is_sent() {
    use handrail_engine::mcp::offer::PromptMessage;
    use handrail_engine::tool::Content;
    let mut stage = Stage::new();
    stage.chat.composer.slash().listed_for_test("everything", vec![prompt("review", Some("language")), prompt("hello", None)]);
    let slash = |message| Message::Composer(composer::Message::Slash(message));
    let type_in = |stage: &mut Stage, text: &str| {
        stage.chat.composer.typed("");
        for c in text.chars() {
            let edit = iced::widget::text_editor::Action::Edit(iced::widget::text_editor::Edit::Insert(c));
            let _ = stage.send(Message::Composer(composer::Message::Edited(edit)), Duration::ZERO);
        }
    };
    type_in(&mut stage, "/");
    assert!(stage.sees("/hello") && stage.sees("/review") && stage.sees("everything"));
    type_in(&mut stage, "/rev");
    assert!(stage.sees("/review") && !stage.sees("/hello"));
    // Its argument is asked for, and must be given.
    let _ = stage.send(slash(slash::Message::Choose), Duration::ZERO);
    assert!(stage.sees("language") && stage.sees("required"));
    let submit = || slash(slash::Message::Blanks(blanks::Message::Submit));
    assert!(matches!(stage.send(submit(), Duration::ZERO), Action::None));
    assert!(stage.sees("This must be filled in"));
    let _ = stage.send(slash(slash::Message::Blanks(blanks::Message::Typed(0, "Rust".to_owned()))), Duration::ZERO);
    assert!(matches!(stage.send(submit(), Duration::ZERO), Action::Run(_)));
    let said = PromptMessage { assistant: false, content: Content::Text { text: "Review this Rust code.".to_owned() } };
    let _ = stage.send(slash(slash::Message::Filled(1, Ok(vec![said]))), Duration::ZERO);
    assert_eq!(stage.chat.composer.written().trim_end(), "Review this Rust code.");
    assert!(!stage.chat.is_running() && !stage.sees("/review"));
    // What is no command is a message.
    type_in(&mut stage, "/etc/hosts is");
    assert!(!stage.sees("/review"));
    // Escape closes the list.
    type_in(&mut stage, "/h");
    assert!(stage.sees("/hello") && stage.chat.leaves() && !stage.sees("/hello"));
}

#[test]
fn servers_that_wait_for_consent_are_named_above_the_composer() {
    let mut stage = Stage::new();
    assert!(!stage.sees("One server is on, but waits for your consent: its tools are not used"));
    let added = stage.engine.servers().paste(r#"{"mcpServers": {"notes": {"command": "notes-server"}}}"#).unwrap();
    stage.facts.servers = stage.engine.servers().servers();
    assert_eq!((stage.facts.servers.len(), added.len()), (1, 1));
    assert!(stage.sees("One server is on, but waits for your consent: its tools are not used") && stage.sees("notes"));
    assert!(matches!(stage.send(Message::ShowServers, Duration::ZERO), Action::ShowServers));
    stage.facts.servers[0].config.active = false;
    assert!(!stage.sees("notes"));
}

#[test]
fn a_template_that_does_not_work_and_one_that_stands_in_are_said_over_the_composer() {
    let mut stage = Stage::new();
    let file = stage._folder.path().join("mine.gguf");
    std::fs::write(&file, b"GGUF and more").unwrap();
    let mut view = stage.engine.models().adopt(&file).unwrap();
    stage.facts.settings.chat_model = "mine".to_owned();
    view.template.fault = Some("only for poets".to_owned());
    for (words, button, choice) in [
        ("This model's chat template does not work", "Use ChatML instead", TemplateChoice::ChatMl),
        ("ChatML is used instead of the model's own chat template", "Use its own template", TemplateChoice::Own),
    ] {
        stage.facts.models = vec![view.clone()];
        let messages: Vec<Message> = stage.look(|chat, look| {
            let mut ui = simulator(chat.view(look, false, None));
            assert!(ui.find(words).is_ok(), "{words}");
            let _ = ui.click(button).unwrap();
            ui.into_messages().collect()
        });
        assert!(matches!(&messages[..], [Message::Template(chosen)] if *chosen == choice), "{messages:?}");
        (view.template.choice, view.template.fault) = (choice, None);
    }
    stage.facts.models = vec![view];
    assert!(!stage.sees("Use its own template"));
}
