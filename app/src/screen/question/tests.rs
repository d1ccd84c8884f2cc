use std::time::Duration;

use handrail_engine::{Config, Engine};
use iced_test::simulator;
use serde_json::{Value, json};

use super::*;
use crate::appearance::LIGHT;
use crate::facts::Facts;
use crate::locale::{Language, Locale};

struct Stage {
    _folder: tempfile::TempDir,
    engine: Engine,
    facts: Facts,
    locale: Locale,
    questions: Questions,
    start: Instant,
}

impl Stage {
    fn new(ask: Ask) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine = Engine::start(Config { start_servers: false, ..Config::new(folder.path()) }).unwrap();
        let question = Question { id: QuestionId(7), server: "booking".into(), tool: Some("book".to_owned()), ask };
        let facts = Facts { questions: vec![question], ..Facts::default() };
        let mut questions = Questions::default();
        questions.asked(&facts.questions);
        Self { _folder: folder, engine, facts, locale: Locale::new(Language::English), questions, start: Instant::now() }
    }

    fn send(&mut self, message: Message, after: u64) -> Action {
        let now = self.start + Duration::from_millis(after);
        let env = Env { engine: &self.engine, facts: &self.facts, locale: &self.locale, now, focused_since: Some(self.start) };
        self.questions.update(message, &env)
    }

    /// The card was on screen long enough.
    fn seen(ask: Ask) -> Self {
        let mut stage = Self::new(ask);
        let _ = stage.send(Message::Shown(QuestionId(7)), 0);
        stage
    }

    fn look<T>(&self, work: impl FnOnce(&Questions, Look<'_>) -> T) -> T {
        let today = jiff::civil::date(2026, 1, 1);
        work(&self.questions, Look { locale: &self.locale, roles: &LIGHT, facts: &self.facts, today, now: self.start, narrow: false })
    }

    fn sees(&self, words: &str) -> bool {
        self.look(|questions, look| simulator(questions.view(look).unwrap()).find(words).is_ok())
    }

    fn pressed(&self, words: &str) -> Vec<Message> {
        self.look(|questions, look| {
            let mut ui = simulator(questions.view(look).unwrap());
            let _ = ui.click(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            ui.into_messages().filter(|message| !matches!(message, Message::Shown(_))).collect()
        })
    }
}

fn form() -> Ask {
    let schema = json!({
        "type": "object",
        "properties": {
            "guests": {"type": "integer", "title": "Guests", "minimum": 1, "maximum": 8, "default": 2},
            "name": {"type": "string", "title": "Your name"},
            "window": {"type": "boolean", "default": true}
        },
        "required": ["guests", "name"]
    });
    Ask::Form { message: "For whom is the table?".to_owned(), schema }
}

fn accepted(action: Action) -> Value {
    match action {
        Action::Answer(QuestionId(7), Answer::Accept(fields)) => Value::Object(fields),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_card_names_who_asks_and_an_answer_must_fit_the_form() {
    let mut stage = Stage::seen(form());
    assert!(stage.sees("booking asks you something") && stage.sees("For whom is the table?"));
    assert_eq!(stage.pressed("Send"), [Message::Accept(QuestionId(7))]);
    // A default alone is no answer: the name is missing, and now the field says so.
    assert!(!stage.sees("This must be filled in"));
    assert_eq!(stage.send(Message::Accept(QuestionId(7)), 500), Action::None);
    assert!(stage.sees("This must be filled in"));
    let typed = |index, text: &str| Message::Field(QuestionId(7), index, field::Message::Typed(text.to_owned()));
    let _ = stage.send(typed(1, "Ada"), 600);
    let _ = stage.send(typed(0, "9"), 600);
    assert_eq!(stage.send(Message::Accept(QuestionId(7)), 700), Action::None);
    assert!(stage.sees("At most 8"));
    let _ = stage.send(typed(0, "3"), 800);
    let answer = stage.send(Message::Accept(QuestionId(7)), 900);
    assert_eq!(accepted(answer), json!({"guests": 3, "name": "Ada", "window": true}));
}

#[test]
fn enter_in_a_field_submits() {
    let stage = Stage::seen(form());
    stage.look(|questions, look| {
        let mut ui = simulator(questions.view(look).unwrap());
        let _ = ui.click("Your name").unwrap();
        // Under its title is the field.
        let at = ui.find("Your name").unwrap();
        ui.point_at(at.visible_bounds().unwrap().center() + iced::Vector::new(0.0, 30.0));
        let _ = ui.simulate(iced_test::simulator::click());
        let _ = ui.typewrite("A");
        let _ = ui.tap_key(iced::keyboard::key::Named::Enter);
        let messages: Vec<Message> = ui.into_messages().filter(|message| !matches!(message, Message::Shown(_))).collect();
        let typed = Message::Field(QuestionId(7), 1, field::Message::Typed("A".to_owned()));
        assert_eq!(messages, [typed, Message::Accept(QuestionId(7))]);
    });
}

#[test]
fn no_press_counts_before_the_card_could_be_read_and_declining_always_does() {
    let ask = Ask::Sampling { prompt: "Summarise this.".to_owned(), system: Some("Be brief.".to_owned()), max_tokens: 100 };
    let mut stage = Stage::new(ask);
    assert_eq!(stage.send(Message::Accept(QuestionId(7)), 9000), Action::None);
    let _ = stage.send(Message::Shown(QuestionId(7)), 9000);
    assert_eq!(stage.send(Message::Accept(QuestionId(7)), 9399), Action::None);
    assert_eq!(accepted(stage.send(Message::Accept(QuestionId(7)), 9400)), json!({}));
    assert!(stage.sees("Summarise this.") && stage.sees("Be brief."));
    assert_eq!(stage.pressed("Decline"), [Message::Decline(QuestionId(7))]);
    assert_eq!(stage.send(Message::Decline(QuestionId(7)), 0), Action::Answer(QuestionId(7), Answer::Decline));
    assert_eq!(stage.send(Message::Cancel(QuestionId(7)), 0), Action::Answer(QuestionId(7), Answer::Cancel));
}

#[test]
fn a_page_is_opened_by_a_press_only_and_only_a_web_page() {
    let url = "https://good.com@evil.com/login";
    let mut stage = Stage::seen(Ask::Url { message: "Sign in here".to_owned(), url: url.to_owned() });
    assert!(stage.sees(url) && stage.sees("It goes to evil.com"));
    assert_eq!(stage.send(Message::Accept(QuestionId(7)), 500), Action::Open(QuestionId(7), url.to_owned()));
    let mut stage = Stage::seen(Ask::Url { message: String::new(), url: "file:///etc/passwd".to_owned() });
    assert_eq!(stage.pressed("Open in the browser"), []);
    assert_eq!(stage.send(Message::Accept(QuestionId(7)), 500), Action::None);
}

#[test]
fn escape_declines_what_is_shown_and_never_by_leaving_another_field() {
    let mut stage = Stage::new(form());
    let questions = stage.facts.questions.clone();
    assert_eq!(stage.questions.to_decline(&questions, false), None, "not on screen yet");
    let _ = stage.send(Message::Shown(QuestionId(7)), 0);
    assert_eq!(stage.questions.to_decline(&questions, false), Some(QuestionId(7)));
    assert_eq!(stage.questions.to_decline(&questions, true), None, "the field that was left may be another one");
    let _ = stage.send(Message::Field(QuestionId(7), 1, field::Message::Typed("A".to_owned())), 0);
    assert_eq!(stage.questions.to_decline(&questions, true), Some(QuestionId(7)));
}
