use std::time::Duration;

use handrail_engine::Config;
use handrail_engine::conversation::{Attachment, DocumentId};
use handrail_engine::turn::{Event as Turn, Input};
use iced_test::simulator;

use super::*;

fn app() -> (App, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { start_servers: false, ..Config::new(folder.path()) };
    let engine = Engine::start(config).unwrap();
    let (mut app, _) = App::new(engine, None);
    app.facts.settings.language = "en".to_owned();
    app.facts.gathered = true;
    app.applied();
    (app, folder)
}

#[test]
fn the_first_snapshot_without_a_model_shows_the_first_run_page() {
    let (mut app, _folder) = app();
    app.facts.gathered = false;
    let facts = Facts { settings: app.facts.settings.clone(), gathered: true, ..Facts::default() };
    let _ = app.update(Message::Feed(feed::Message::Snapshot(Arc::new(facts))));
    assert_eq!(app.screen, Screen::Welcome);
    {
        let mut ui = simulator(app.view(app.window.id));
        assert!(ui.find("Skip for now").is_ok());
        let _ = ui.click("Skip for now").unwrap();
        let messages: Vec<Message> = ui.into_messages().collect();
        assert!(matches!(messages[..], [Message::Welcome(welcome::Message::Leave)]));
    }
    let _ = app.update(Message::Welcome(welcome::Message::Leave));
    assert_eq!(app.screen, Screen::Chat);
}

#[test]
fn every_screen_is_reached_from_the_sidebar_and_draws_in_both_languages() {
    let (mut app, _folder) = app();
    for language in ["en", "zh-CN"] {
        app.facts.settings.language = language.to_owned();
        app.applied();
        for (screen, key) in [
            (Screen::Servers, "servers-title"),
            (Screen::Models, "models-title"),
            (Screen::Library, "library-title"),
            (Screen::Settings, "settings-title"),
        ] {
            let _ = app.update(Message::Sidebar(sidebar::Message::Show(screen)));
            assert_eq!(app.screen, screen);
            let title = app.locale.t(key);
            let mut ui = simulator(app.view(app.window.id));
            assert!(ui.find(title.as_str()).is_ok(), "{title}");
        }
    }
}

#[test]
fn settings_apply_at_once_and_are_written() {
    let (mut app, _folder) = app();
    let _ = app.update(Message::Settings(settings::Message::Theme("dark")));
    assert_eq!(appearance::roles(&app.theme), &appearance::DARK);
    let _ = app.update(Message::Settings(settings::Message::Language("zh-CN")));
    assert_eq!(app.locale.language(), Language::Chinese);
}

#[test]
fn without_a_model_a_message_is_not_lost() {
    let (mut app, _folder) = app();
    let now = Instant::now();
    let attachment = Attachment { document: DocumentId::fresh(), name: "report.pdf".to_owned(), bytes: 3 };
    let input = Input { text: "hello there".to_owned(), attachments: vec![attachment], ..Input::default() };
    let _ = app.with_chat(now, |chat, env| chat.send(input, env));
    assert_eq!(app.screen, Screen::Models);
    app.screen = Screen::Chat;
    let mut ui = simulator(app.view(app.window.id));
    assert!(ui.find("No model to answer yet").is_ok());
    // Both wait in the composer: the text, and the chip of the file.
    assert_eq!(app.chat.written(), "hello there");
    assert!(ui.find("report.pdf").is_ok());
}

#[test]
fn a_signal_quits_once_and_in_order() {
    let (mut app, _folder) = app();
    let _ = app.update(Message::Signalled);
    assert!(app.closing);
    assert_eq!(app.update(Message::Signalled).units(), 0);
}

#[test]
fn single_letters_decide_only_on_the_chat_screen_and_late_turn_events_are_dropped() {
    let (mut app, _folder) = app();
    app.window.focused_since = Instant::now().checked_sub(Duration::from_secs(5));
    app.screen = Screen::Servers;
    let _ = app.update(Message::Verb(Verb::Approve));
    assert_eq!(app.screen, Screen::Servers);
    let late = Turn::Started {
        conversation: ConversationId::fresh(),
        user: handrail_engine::conversation::MessageId::fresh(),
        model: "m".to_owned(),
    };
    let _ = app.update(Message::Chat(chat::Message::Turn(77, vec![late])));
    assert!(!app.chat.is_running());
}

#[test]
fn a_narrow_window_puts_the_sidebar_over_the_page() {
    let (mut app, _folder) = app();
    let _ = app.update(Message::Window(app.window.id, Told::Sized(iced::Size::new(800.0, 600.0))));
    assert!(simulator(app.view(app.window.id)).find("New chat").is_ok());
    assert!(simulator(app.view(app.window.id)).find("Settings").is_err());
    let _ = app.update(Message::Verb(Verb::ToggleSidebar));
    assert!(simulator(app.view(app.window.id)).find("Settings").is_ok());
}
