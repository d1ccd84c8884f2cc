use std::collections::BTreeMap;
use std::time::Duration;

use handrail_engine::mcp::config::{EraChoice, Transport};
use handrail_engine::mcp::consent::{Consent, Origin, Subject, Warning};
use handrail_engine::mcp::{self, Offers, RunningCall, ServerConfig, ServerView, SignIn};
use handrail_engine::tool::CallId;
use handrail_engine::{Config, Engine};
use iced_test::simulator;
use serde_json::json;

use super::*;
use crate::appearance::LIGHT;
use crate::facts::Facts;
use crate::locale::{Language, Locale};

struct Stage {
    _folder: tempfile::TempDir,
    engine: Engine,
    facts: Facts,
    locale: Locale,
    screen: Servers,
    start: Instant,
}

fn server(name: &str, state: State) -> ServerView {
    let transport =
        Transport::Stdio { command: "npx".to_owned(), args: vec!["-y".to_owned(), "files".to_owned()], env: BTreeMap::new(), cwd: None };
    let config = ServerConfig {
        transport,
        active: true,
        timeout: None,
        startup_timeout: None,
        description: None,
        capabilities: Vec::new(),
        era: EraChoice::Auto,
        port: None,
        disabled_tools: Vec::new(),
        oauth: None,
        env_file: None,
    };
    let tool = |tool: &str, about: &str| Arc::new(Definition::new(name.into(), tool, None, about, json!({"type": "object"}), None, None));
    ServerView {
        id: name.into(),
        config,
        state,
        tools: vec![tool("read_file", "Reads a file"), tool("write_file", "Writes a file")],
        notes: Vec::new(),
        offers: Offers::default(),
        instructions: Some("Use with care.".to_owned()),
        pid: Some(4711),
        era: None,
        protocol: Some("2025-11-25".to_owned()),
        stderr: vec!["downloading files@1.2".to_owned()],
        running: Vec::new(),
        skipped_lines: 3,
        log_level: None,
        sign_in: SignIn::NotNeeded,
        consent: None,
    }
}

impl Stage {
    fn new(servers: Vec<ServerView>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(Config { start_servers: false, ..Config::new(folder.path()) }).unwrap();
        let facts = Facts { servers, gathered: true, ..Facts::default() };
        let locale = Locale::new(Language::English);
        let mut stage = Self { _folder: folder, engine, facts, locale, screen: Servers::default(), start: Instant::now() };
        stage.changed(Duration::ZERO);
        stage
    }

    fn with<T>(&mut self, after: Duration, work: impl FnOnce(&mut Servers, &Env<'_>) -> T) -> T {
        let now = self.start + after;
        let env = Env { engine: &self.engine, facts: &self.facts, locale: &self.locale, now, focused_since: Some(self.start) };
        work(&mut self.screen, &env)
    }

    fn changed(&mut self, after: Duration) {
        self.with(after, Servers::facts_changed);
    }

    fn send(&mut self, message: Message) -> Action {
        self.with(Duration::ZERO, |screen, env| screen.update(message, env))
    }

    fn look<T>(&self, after: Duration, work: impl FnOnce(&Servers, Look<'_>) -> T) -> T {
        let (today, now) = (jiff::civil::date(2026, 1, 1), self.start + after);
        work(&self.screen, Look { locale: &self.locale, roles: &LIGHT, facts: &self.facts, today, now, narrow: false })
    }

    fn sees(&self, words: &str) -> bool {
        self.sees_after(words, Duration::ZERO)
    }

    fn sees_after(&self, words: &str, after: Duration) -> bool {
        self.look(after, |screen, look| simulator(screen.view(look, None)).find(words).is_ok())
    }

    fn pressed(&self, words: &str) -> Vec<Message> {
        self.look(Duration::ZERO, |screen, look| {
            let mut ui = simulator(screen.view(look, None));
            let _ = ui.click(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            ui.into_messages().collect()
        })
    }
}

fn consent() -> Consent {
    let subject = Subject::Program {
        command: "npx".to_owned(),
        args: vec!["-y".to_owned(), "two words".to_owned()],
        env: vec!["API_KEY".to_owned()],
        folder: Some("/tmp/work".into()),
    };
    let warnings = vec![Warning::Unpinned { package: "files".to_owned() }];
    Consent { origin: Origin::Imported("Cursor".to_owned()), hash: "h".to_owned(), subject, warnings }
}

#[test]
fn every_state_has_a_word_and_what_helps() {
    let reason = || "the pipe broke".to_owned();
    for (state, word, button) in [
        (State::Stopped, "stopped", "Start"),
        (State::Starting { note: None }, "starting", "Wait longer"),
        (State::Connected, "connected", "Restart"),
        (State::Slow { reason: reason() }, "slow", "Restart"),
        (State::NeedsSignIn { reason: reason() }, "needs sign-in", "Sign in"),
        (State::Failed { reason: reason(), exit_code: Some(3) }, "failed", "Start"),
        (State::NeedsConsent, "waits for your consent", "Look and decide"),
    ] {
        let stage = Stage::new(vec![server("files", state.clone())]);
        assert!(stage.sees(word) && stage.sees(button), "{state:?}");
    }
    // The runner's last line says how far the start is.
    assert!(Stage::new(vec![server("files", State::Starting { note: None })]).sees("downloading files@1.2"));
    let failed = Stage::new(vec![server("files", State::Failed { reason: reason(), exit_code: Some(3) })]);
    assert!(failed.sees("the pipe broke") && failed.sees("Exit code 3"));
}

#[test]
fn the_next_try_counts_down() {
    let state = State::Reconnecting { attempt: 2, after: Duration::from_secs(8), reason: "it ended".to_owned() };
    let mut stage = Stage::new(vec![server("files", state)]);
    assert!(stage.sees("reconnecting, attempt 2 · next try in 8 s"));
    // The same state again is no new countdown.
    stage.changed(Duration::from_secs(3));
    assert!(stage.sees_after("reconnecting, attempt 2 · next try in 5 s", Duration::from_secs(3)));
}

#[test]
fn the_sheet_shows_everything_that_is_agreed_to_and_cancel_leaves_it() {
    let mut stage = Stage::new(vec![ServerView { consent: Some(consent()), ..server("files", State::NeedsConsent) }]);
    assert!(matches!(stage.pressed("Look and decide")[..], [Message::Review(_)]));
    let _ = stage.send(Message::Review("files".into()));
    for words in ["npx", "-y", "\"two words\"", "API_KEY", "/tmp/work", "Taken over from Cursor"] {
        assert!(stage.sees(words), "{words}");
    }
    assert!(stage.sees("“files” names no version: another program may be downloaded and run next time."));
    assert!(matches!(stage.pressed("Agree and start")[..], [Message::Sheet(consent::Message::Agree(true))]));
    let _ = stage.send(Message::Sheet(consent::Message::Cancel));
    assert!(!stage.sees("Agree and start"));
}

#[test]
fn what_is_pasted_is_shown_before_anything_is_added() {
    let mut stage = Stage::new(Vec::new());
    let _ = stage.send(Message::ShowAdd);
    stage.screen.add.typed(r#"{"mcpServers": {"files": {"command": "npx"}}}"#);
    assert!(matches!(stage.pressed("Look at it")[..], [Message::Add(add::Message::Look)]));
    assert!(matches!(stage.send(Message::Add(add::Message::Look)), Action::Run(_)));
    let source = consent::Source::Text("{}".to_owned(), Origin::Pasted);
    let _ = stage.send(Message::Add(add::Message::Looked(source, Ok((vec![("files".into(), consent())], Vec::new())))));
    assert!(stage.sees("Add and start") && stage.sees("Add without starting"));
    assert!(stage.engine.servers().servers().is_empty());
    let _ = stage.send(Message::Sheet(consent::Message::Cancel));
    assert!(stage.engine.servers().servers().is_empty());
    // What is wrong with a text is said beside it, and it stays.
    let source = consent::Source::Text("{".to_owned(), Origin::Pasted);
    let error = stage.engine.servers().preview("{", &Origin::Pasted).unwrap_err();
    let _ = stage.send(Message::Add(add::Message::Looked(source, Err(error.clone()))));
    assert!(error.to_string().contains("line 1") && stage.sees(&error.to_string()));
}

#[test]
fn a_link_opens_the_sheet_and_adds_nothing_by_itself() {
    let mut stage = Stage::new(Vec::new());
    let link = "handrail://mcp/install?name=time&command=uvx&args=mcp-server-time".to_owned();
    assert!(matches!(stage.with(Duration::ZERO, |screen, env| screen.link(link.clone(), env)), Action::Run(_)));
    let text = handrail_engine::mcp::link::read(&link).unwrap();
    let entries = stage.engine.servers().preview(&text, &Origin::Link).unwrap();
    let source = consent::Source::Text(text, Origin::Link);
    let _ = stage.send(Message::Add(add::Message::Looked(source, Ok((entries, Vec::new())))));
    assert!(stage.sees("From a link on a web page or in another program") && stage.sees("uvx") && stage.sees("mcp-server-time"));
    assert!(stage.engine.servers().servers().is_empty());
    // What is no such link says so.
    let mut stage = Stage::new(Vec::new());
    let _ = stage.with(Duration::ZERO, |screen, env| screen.link("handrail://other".to_owned(), env));
    assert!(!stage.sees("Add and start"));
}

#[test]
fn the_gallery_asks_what_a_server_needs_and_adds_it_only_through_the_sheet() {
    let mut stage = Stage::new(Vec::new());
    let _ = stage.send(Message::ShowAdd);
    let gallery = |message| Message::Add(add::Message::Gallery(message));
    let _ = stage.send(gallery(add::gallery::Message::Open("filesystem".to_owned())));
    assert!(matches!(stage.send(gallery(add::gallery::Message::Take)), Action::None), "a folder is needed");
    assert!(stage.sees("This must be filled in"));
    assert!(stage.engine.servers().servers().is_empty());
}

#[test]
fn the_tabs_show_tools_facts_and_calls() {
    let mut stage = Stage::new(vec![server("files", State::Connected)]);
    stage.facts.servers[0].config.disabled_tools = vec!["write_file".to_owned(), "old_tool".to_owned()];
    let _ = stage.send(Message::Open("files".into()));
    assert!(stage.sees("read_file") && stage.sees("Reads a file") && stage.sees("old_tool") && stage.sees("not offered any more"));
    let cost = router::estimate_tokens(&stage.facts.servers[0].tools[0]);
    assert!(stage.sees(&format!("1 of 2 tools on · about {cost} tokens in the context")));
    let _ = stage.send(Message::Detail(detail::Message::Tools(tools::Message::Search("WRITES".to_owned()))));
    assert!(stage.sees("write_file") && !stage.sees("read_file"));
    let _ = stage.send(Message::Detail(detail::Message::Show(detail::Tab::About)));
    assert!(stage.sees("4711") && stage.sees("2025-11-25") && stage.sees("Use with care."));
    for (tab, words) in [(detail::Tab::Log, "Nothing written yet"), (detail::Tab::Traffic, "Nothing passed yet")] {
        assert!(matches!(stage.send(Message::Detail(detail::Message::Show(tab))), Action::Run(_)));
        assert!(stage.sees(words), "{words}");
    }
    // A server that is gone takes its page along.
    stage.facts.servers.clear();
    stage.changed(Duration::ZERO);
    assert!(stage.sees("Servers") && !stage.sees("4711"));
}

#[test]
fn a_switch_turns_one_tool_off() {
    let mut tools = tools::Tools::default();
    let action = tools.update(tools::Message::Switch("write_file".to_owned(), false));
    assert_eq!(action, tools::Action::Switch("write_file".to_owned(), false));
    let mut stage = Stage::new(vec![server("files", State::Connected)]);
    let _ = stage.send(Message::Open("files".into()));
    let message = Message::Detail(detail::Message::Tools(tools::Message::Switch("write_file".to_owned(), false)));
    assert!(matches!(stage.send(message), Action::Run(_)));
}

#[test]
fn of_two_calls_of_one_tool_the_right_one_is_found() {
    let calls = [CallId::fresh(), CallId::fresh()];
    let running = |(id, call): (u64, &CallId)| RunningCall {
        id,
        call: call.clone(),
        tool: "read_file".to_owned(),
        since: std::time::SystemTime::now(),
        progress: None,
    };
    let view = ServerView { running: (7..).zip(&calls).map(running).collect(), ..server("files", State::Connected) };
    let facts = Facts { servers: vec![view], ..Facts::default() };
    assert_eq!(calls.map(|call| facts.running(&"files".into(), &call)), [Some(7), Some(8)]);
    assert_eq!(facts.running(&"files".into(), &CallId::fresh()), None);
}

#[test]
fn removing_asks_first() {
    let mut stage = Stage::new(vec![server("files", State::Connected)]);
    let _ = stage.send(Message::Ask("files".into()));
    assert!(stage.sees("Remove it?"));
    assert!(matches!(stage.pressed("Keep")[..], [Message::Keep]));
    assert!(matches!(stage.pressed("Remove")[..], [Message::Remove(_)]));
}

#[test]
fn a_broken_file_is_said_with_its_place_and_what_can_be_done() {
    let mut stage = Stage::new(Vec::new());
    stage.facts.config_error = Some("mcp_config.json does not parse at line 4, column 9: expected a comma".to_owned());
    assert!(stage.sees("mcp_config.json does not parse at line 4, column 9: expected a comma"));
    assert!(matches!(stage.pressed("Open the file")[..], [Message::OpenFile]));
    assert!(matches!(stage.pressed("Restore the backup")[..], [Message::Restore]));
    let configured = |wrong: &[&str]| {
        let wrong = wrong.iter().map(|reason| (*reason).to_owned()).collect();
        handrail_engine::Event::Server(mcp::Event::Configured { settings: Box::default(), wrong })
    };
    stage.facts.apply(configured(&["\"backoffMultiplier\" must be from 1 to 100"]));
    assert!(!stage.sees("Restore the backup") && stage.sees("\"backoffMultiplier\" must be from 1 to 100"));
    stage.facts.apply(configured(&[]));
    assert!(!stage.sees("\"backoffMultiplier\" must be from 1 to 100"));
}

#[test]
fn the_keyboard_stays_on_the_sheet_and_servers_shows_the_list_again() {
    let mut stage = Stage::new(vec![ServerView { consent: Some(consent()), ..server("files", State::NeedsConsent) }]);
    assert!(matches!(stage.send(Message::Review("files".into())), Action::Run(_)), "the focus goes to Cancel");
    assert!(stage.screen.is_covered() && !stage.sees("Look and decide"), "what lies behind is not found");
    stage.screen.show_list();
    assert!(!stage.screen.is_covered() && stage.sees("Look and decide"));
    // What a sheet that was left did in the end is said.
    let _ = stage.send(Message::Sheet(consent::Message::Agreed(Err("the disk is full".to_owned()))));
    assert!(stage.sees("the disk is full"));
}

#[test]
fn a_long_tool_name_is_cut_and_shown_whole_below() {
    let mut stage = Stage::new(vec![server("files", State::Connected)]);
    let long = "n".repeat(120);
    stage.facts.servers[0].tools = vec![Arc::new(Definition::new(
        "files".into(),
        &long,
        Some("A title".to_owned()),
        "About it",
        json!({"type": "object"}),
        None,
        None,
    ))];
    stage.changed(Duration::ZERO);
    let _ = stage.send(Message::Open("files".into()));
    let cost = router::estimate_tokens(&stage.facts.servers[0].tools[0]);
    assert!(stage.sees(&format!("{}…", "n".repeat(64))) && stage.sees(&long) && stage.sees("A title"));
    assert!(stage.sees(&format!("{cost} tokens")));
}

#[test]
fn a_failed_server_says_its_lines_once() {
    let reason = "its process ended; its last lines on stderr:\ndownloading files@1.2".to_owned();
    let stage = Stage::new(vec![server("files", State::Failed { reason: reason.clone(), exit_code: None })]);
    assert!(stage.sees("its process ended") && stage.sees("downloading files@1.2") && !stage.sees(&reason));
}

#[test]
fn a_link_that_cannot_be_used_is_said_on_the_list() {
    let mut stage = Stage::new(Vec::new());
    let _ = stage.with(Duration::ZERO, |screen, env| screen.link("handrail://bogus".to_owned(), env));
    assert!(stage.screen.error.as_ref().is_some_and(|error| error.contains("handrail://mcp/install")));
    assert!(stage.screen.page == Page::List && stage.sees("That did not work"));
}

#[test]
fn the_sheet_says_what_it_replaces() {
    let mut stage = Stage::new(vec![server("files", State::Connected)]);
    let looked = |source| Message::Add(add::Message::Looked(source, Ok((vec![("files".into(), consent())], Vec::new()))));
    let said = "It replaces the server of this name, which is now: npx -y files";
    let _ = stage.send(looked(consent::Source::Text("{}".to_owned(), Origin::Pasted)));
    assert!(stage.sees(said));
    let _ = stage.send(looked(consent::Source::Import(Vec::new())));
    assert!(!stage.sees(said));
}

#[test]
fn what_was_written_stays_until_it_is_saved_or_taken_back() {
    let mut stage = Stage::new(vec![server("files", State::Connected), server("other", State::Connected)]);
    let edit = |message| Message::Detail(detail::Message::Edit(message));
    let entry = |text: &str| edit(edit::Message::Loaded(Ok(text.into())));
    let _ = stage.send(Message::Open("files".into()));
    let _ = stage.send(Message::Detail(detail::Message::Show(detail::Tab::Edit)));
    let _ = stage.send(entry(r#"{"command": "npx"}"#));
    assert!(stage.sees("Save") && !stage.sees("changed, not saved"));
    // The two ways to write the same are no change.
    let _ = stage.send(edit(edit::Message::Raw(true)));
    assert!(!stage.sees("changed, not saved"));
    assert!(stage.pressed("Save").is_empty(), "nothing to save");
    let typed = iced::widget::text_editor::Edit::Insert('x');
    let _ = stage.send(edit(edit::Message::Json(iced::widget::text_editor::Action::Edit(typed))));
    assert!(stage.sees("changed, not saved"));
    // A text that does not parse stays where it is, with the reason.
    let _ = stage.send(edit(edit::Message::Raw(false)));
    assert!(stage.sees("Line 1, column 1: expected value"));
    let _ = stage.send(Message::Open("other".into()));
    let _ = stage.send(Message::Open("files".into()));
    let _ = stage.send(Message::Detail(detail::Message::Show(detail::Tab::Edit)));
    let _ = stage.send(entry(r#"{"command": "npx"}"#));
    assert!(stage.sees("changed, not saved"));
    assert!(matches!(stage.pressed("Revert")[..], [Message::Detail(detail::Message::Edit(edit::Message::Revert))]));
    assert!(matches!(stage.send(edit(edit::Message::Revert)), Action::Run(_)));
    let _ = stage.send(entry(r#"{"command": "npx"}"#));
    assert!(!stage.sees("changed, not saved"));
    // What the form cannot show has a reason as well.
    let _ = stage.send(entry(r#"{"command": "sh", "args": [1]}"#));
    let _ = stage.send(edit(edit::Message::Raw(false)));
    assert!(stage.sees("The form cannot show this entry: an argument is empty, no text, or has several lines. Edit it as JSON."));
}
