//! The tool card: one component for all states of a call.

use std::sync::Arc;
use std::time::Instant;

use handrail_engine::approval::Decision;
use handrail_engine::conversation::{CallRecord, CallState};
use handrail_engine::tool::Definition;
use iced::widget::{Column, Row, button, column, container, row, sensor, space};
use iced::{Center, Color, Element, Fill};

use super::super::Look;
use super::argument::{self, Argument};
use crate::appearance::{space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// Most characters that a card keeps and shows of a result, and of each argument of a call that is decided; Copy takes
/// all. What a person is asked to allow is never cut.
const SHOWN: usize = 6000;

/// Most characters of a progress message.
const SAID: usize = 400;

/// Most broken parts of a schema that a card names.
const UNCHECKED: usize = 5;

/// One call on the screen.
#[derive(Clone, Debug)]
pub struct Card {
    pub record: CallRecord,
    arguments: Vec<Argument>,
    /// Parts of the tool's schema that are broken, so that nothing was checked against them.
    unchecked: Vec<String>,
    raw: String,
    result: Option<Shown>,
    /// Why the person is asked; only while the gate waits for them.
    pub waiting: Option<String>,
    /// Since when the question is on screen.
    pub shown_at: Option<Instant>,
    progress: Option<(f64, Option<f64>, Option<String>)>,
    /// Since when the call runs.
    since: Option<Instant>,
    /// The person cancelled it; the server has not said so yet.
    pub cancelled: bool,
    shows_raw: bool,
    shows_result: bool,
    shows_always: bool,
}

/// What a card shows of a result.
#[derive(Clone, Debug)]
struct Shown {
    text: String,
    /// Size of the whole, in bytes.
    bytes: usize,
    is_cut: bool,
    is_error: bool,
}

/// What a person does with a card.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The card came on screen.
    Shown,
    /// It left the screen.
    Hidden,
    Decide(Decision),
    Raw,
    Result,
    Always,
    Stop,
    Copy,
}

impl Card {
    /// A card for a call.
    #[must_use]
    pub fn new(record: CallRecord, definition: Option<&Arc<Definition>>) -> Self {
        let arguments = argument::list(&record.call.arguments, definition.map(|definition| definition.parameters()));
        let parts = definition.map(|definition| definition.unchecked()).unwrap_or_default();
        let unchecked = parts.iter().take(UNCHECKED).map(|part| argument::visible(argument::start(&part.to_string(), SAID).0)).collect();
        let raw = serde_json::to_string_pretty(&record.call.arguments).unwrap_or_default();
        let mut card = Self {
            record,
            arguments,
            unchecked,
            raw,
            result: None,
            waiting: None,
            shown_at: None,
            progress: None,
            since: None,
            cancelled: false,
            shows_raw: false,
            shows_result: false,
            shows_always: false,
        };
        card.settle();
        card
    }

    /// Takes the call's new state.
    pub fn changed(&mut self, record: CallRecord) {
        self.record = record;
        self.settle();
    }

    /// The gate asks, or stops asking.
    pub fn ask(&mut self, why: Option<String>) {
        if self.waiting.is_none() {
            self.shown_at = None;
        }
        self.waiting = why;
    }

    /// A running call said how far it is.
    pub fn progressed(&mut self, done: f64, total: Option<f64>, message: Option<String>) {
        let (before, known, said) = self.progress.take().unwrap_or((0.0, None, None));
        // What is late or out of order must not move the bar back.
        let done = if done.is_finite() { done.max(before) } else { before };
        let newer = done >= before;
        let total = total.filter(|total| total.is_finite() && *total > 0.0).or(known);
        self.progress = Some((done, total, message.filter(|_| newer).or(said)));
    }

    fn settle(&mut self) {
        if matches!(self.record.state, CallState::Approved { .. } | CallState::Sent { .. }) {
            self.since = self.since.or_else(|| Some(Instant::now()));
        }
        if !matches!(self.record.state, CallState::Proposed) {
            self.waiting = None;
            self.arguments.iter_mut().for_each(|argument| argument.cut(SHOWN));
            let (start, is_cut) = argument::start(&self.raw, SHOWN);
            if is_cut {
                self.raw = format!("{start}…");
            }
        }
        if let CallState::Done { result, .. } = &self.record.state {
            let text = result.to_text();
            let (start, is_cut) = argument::start(&text, SHOWN);
            self.result = Some(Shown { text: argument::visible(start), bytes: text.len(), is_cut, is_error: result.is_error });
        }
    }

    /// The whole result as text, or the reason of its absence; for the clipboard.
    #[must_use]
    pub fn details(&self) -> String {
        let outcome = match &self.record.state {
            CallState::Done { result, .. } => result.to_text(),
            CallState::Failed { reason } => reason.clone(),
            CallState::Denied { by } => by.clone(),
            CallState::Proposed | CallState::Approved { .. } | CallState::Sent { .. } | CallState::Stopped | CallState::Unknown => {
                String::new()
            }
        };
        let arguments = serde_json::to_string_pretty(&self.record.call.arguments).unwrap_or_default();
        format!("{}\n{arguments}\n{outcome}", self.record.call.tool)
    }

    /// Opens or closes a part of the card.
    pub fn toggle(&mut self, message: &Message) {
        match message {
            Message::Raw => self.shows_raw = !self.shows_raw,
            Message::Result => self.shows_result = !self.shows_result,
            Message::Always => self.shows_always = !self.shows_always,
            Message::Shown | Message::Hidden | Message::Decide(_) | Message::Stop | Message::Copy => {}
        }
    }

    /// Draws the card.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        match (&self.record.state, &self.waiting) {
            (CallState::Proposed, Some(why)) => self.question(why, look),
            (CallState::Proposed, None) => self.line(Icon::Clock, look.roles.muted, look.t("call-proposed"), None, look),
            (CallState::Approved { by } | CallState::Sent { by }, _) => self.running(by, look),
            (CallState::Done { milliseconds, .. }, _) => self.done(*milliseconds, look),
            (CallState::Denied { by }, _) => self.line(Icon::Denied, look.roles.muted, look.t("call-denied"), Some(by.clone()), look),
            (CallState::Failed { reason }, _) => {
                self.line(Icon::Failed, look.roles.danger, look.t("call-failed"), Some(argument::visible(reason)), look)
            }
            (CallState::Stopped, _) => self.line(Icon::Stop, look.roles.muted, look.t("call-stopped"), None, look),
            (CallState::Unknown, _) => {
                self.line(Icon::Unknown, look.roles.warning, look.t("call-unknown"), Some(look.t("call-unknown-why")), look)
            }
        }
    }

    /// `server · tool`, which is who the call really goes to.
    fn name<'a>(&self) -> Element<'a, Message> {
        let tool = &self.record.call.tool;
        row![
            piece::label(argument::visible(tool.server.as_str())),
            piece::label("·"),
            piece::strong(argument::visible(&tool.name)).wrapping(iced::widget::text::Wrapping::WordOrGlyph)
        ]
        .spacing(gap::XS)
        .into()
    }

    fn question<'a>(&'a self, why: &'a str, look: Look<'a>) -> Element<'a, Message> {
        let roles = look.roles;
        let head = row![
            icon(Icon::Shield).color(roles.warning),
            self.name(),
            space().width(Fill),
            piece::label(look.t("call-asks")).color(roles.warning)
        ];
        let mut parts = column![head.spacing(gap::S).align_y(Center)].spacing(gap::M);
        if !why.is_empty() {
            parts = parts.push(piece::small(why, roles));
        }
        let mut parts = parts.push(self.arguments(look));
        for part in &self.unchecked {
            let words = look.locale.tv("tool-unchecked", [("part", part.clone().into())]);
            parts = parts.push(piece::small(words, roles).color(roles.warning).wrapping(iced::widget::text::Wrapping::WordOrGlyph));
        }
        let parts = parts.push(self.buttons(look));
        let parts = if self.shows_always { parts.push(self.always(look)) } else { parts };
        let card = container(parts).padding(gap::L).width(Fill).style(style::waiting);
        sensor(card).on_show(|_| Message::Shown).on_hide(Message::Hidden).key(self.record.call.id.as_str().to_owned()).into()
    }

    fn buttons<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let with_key =
            |words: String, key: &'static str| row![piece::label(words), piece::small(key, look.roles)].spacing(gap::S).align_y(Center);
        let press = |content: Row<'a, Message>, decision: Decision| {
            piece::pressed(button(content).padding([gap::S - 1.0, gap::M]).style(style::secondary), Some(Message::Decide(decision)))
        };
        let always = row![piece::label(look.t("call-always")), icon(Icon::Down).size(12.0)].spacing(gap::XS).align_y(Center);
        row![
            press(with_key(look.t("call-deny"), "D"), Decision::Deny),
            press(with_key(look.t("call-allow-once"), "A"), Decision::AllowOnce),
            press(row![piece::label(look.t("call-allow-conversation"))], Decision::AllowInConversation),
            piece::pressed(button(always).padding([gap::S - 1.0, gap::M]).style(style::secondary), Some(Message::Always)),
        ]
        .spacing(gap::S)
        .wrap()
        .into()
    }

    /// Says exactly what would be remembered.
    fn always<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let tool = &self.record.call.tool;
        let (server, name) = (argument::visible(tool.server.as_str()), argument::visible(&tool.name));
        let this = look.locale.tv("call-always-tool", [("tool", name.into()), ("server", server.clone().into())]);
        let every = look.locale.tv("call-always-server", [("server", server.into())]);
        let entry = |words: String, decision: Decision| {
            button(piece::label(words)).width(Fill).padding([gap::S, gap::M]).style(style::entry(false)).on_press(Message::Decide(decision))
        };
        let entries = column![entry(this, Decision::AlwaysTool), entry(every, Decision::AlwaysServer)];
        container(entries).padding(gap::XS).width(Fill).style(style::card).into()
    }

    fn arguments<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let shown: Element<'a, Message> = if self.shows_raw {
            piece::mono(argument::visible(&self.raw)).into()
        } else if self.arguments.is_empty() {
            piece::small(look.t("call-no-arguments"), look.roles).into()
        } else {
            Column::with_children(self.arguments.iter().map(|argument| argument.view(look))).spacing(gap::S).into()
        };
        let words = if self.shows_raw { look.t("call-list") } else { look.t("call-raw") };
        column![shown, piece::quiet(words, Some(Message::Raw))].spacing(gap::XS).into()
    }

    fn running<'a>(&'a self, by: &'a str, look: Look<'a>) -> Element<'a, Message> {
        let roles = look.roles;
        let words = match &self.progress {
            _ if self.cancelled => look.t("call-cancelling"),
            Some((done, Some(total), _)) => look.locale.tv("call-progress-of", [("done", (*done).into()), ("total", (*total).into())]),
            Some((done, None, _)) => look.locale.tv("call-progress", [("done", (*done).into())]),
            None => look.t("call-running"),
        };
        let elapsed = self.since.map(|since| look.now.saturating_duration_since(since).as_secs()).unwrap_or_default();
        let elapsed = look.locale.tv("call-elapsed", [("seconds", elapsed.into())]);
        let head = row![
            icon(Icon::Working).color(roles.info),
            self.name(),
            space().width(Fill),
            piece::label(words).color(roles.info),
            piece::small(elapsed, roles),
            piece::secondary(look.t("call-cancel"), (!self.cancelled).then_some(Message::Stop)),
        ];
        let bar = match &self.progress {
            Some((done, Some(total), _)) => piece::progress((done / total.max(f64::MIN_POSITIVE)) as f32),
            _ => piece::pulse(roles),
        };
        let mut parts = column![head.spacing(gap::S).align_y(Center), bar].spacing(gap::S);
        if let Some((_, _, Some(message))) = &self.progress {
            let message = argument::visible(argument::start(message, SAID).0);
            parts = parts.push(piece::small(message, roles).wrapping(iced::widget::text::Wrapping::WordOrGlyph));
        }
        parts = parts.push(piece::small(look.locale.tv("call-allowed-by", [("by", by.into())]), roles));
        container(parts).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
    }

    fn done<'a>(&'a self, milliseconds: u64, look: Look<'a>) -> Element<'a, Message> {
        let (bytes, is_error) = self.result.as_ref().map_or((0, false), |result| (result.bytes, result.is_error));
        let seconds = format!("{:.1} s · {}", milliseconds as f64 / 1000.0, look.locale.bytes(bytes as u64));
        if is_error {
            self.line(Icon::Failed, look.roles.danger, look.t("call-tool-error"), Some(seconds), look)
        } else {
            self.line(Icon::Done, look.roles.success, look.t("call-done"), Some(seconds), look)
        }
    }

    /// The folded card of a call that is over.
    fn line<'a>(&'a self, picture: Icon, color: Color, word: String, aside: Option<String>, look: Look<'a>) -> Element<'a, Message> {
        let arrow = icon(if self.shows_result { Icon::Down } else { Icon::Right }).size(14.0).color(look.roles.muted);
        let head = row![icon(picture).color(color), self.name(), space().width(Fill), piece::label(word).color(color), arrow];
        let head = button(head.spacing(gap::S).align_y(Center)).padding(0).width(Fill).style(style::quiet).on_press(Message::Result);
        let mut parts = column![head].spacing(gap::XS);
        if let Some(aside) = aside {
            parts = parts.push(piece::small(aside, look.roles));
        }
        if self.shows_result {
            parts = parts.push(self.arguments(look));
            if let Some(result) = &self.result {
                parts = parts.push(container(piece::mono(result.text.as_str())).padding(gap::S).width(Fill).style(style::raised));
                if result.is_cut {
                    parts = parts.push(piece::small(look.t("call-result-cut"), look.roles));
                }
            }
            parts = parts.push(piece::quiet(look.t("call-copy"), Some(Message::Copy)));
        }
        container(parts).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
    }
}

#[cfg(test)]
mod tests {
    use handrail_engine::tool::{Call, CallId, CallResult, SchemaHash, ToolId};
    use iced_test::simulator;
    use serde_json::json;

    use super::*;
    use crate::appearance::LIGHT;
    use crate::facts::Facts;
    use crate::locale::{Language, Locale};

    pub fn card(state: CallState) -> Card {
        let definition = Arc::new(Definition::new(
            "files".into(),
            "write_file",
            None,
            "",
            json!({"type": "object", "properties": {"path": {"title": "Path"}, "content": {}}}),
            None,
            None,
        ));
        let call = Call {
            id: CallId::new("call_1"),
            tool: ToolId { server: "files".into(), name: "write_file".to_owned(), schema: SchemaHash::of(&json!({})) },
            alias: "write_file".to_owned(),
            arguments: json!({"content": "safe\u{202e}txt.exe", "path": "/tmp/a"}),
        };
        Card::new(CallRecord { call, state }, Some(&definition))
    }

    fn with_look<T>(work: impl FnOnce(Look<'_>) -> T) -> T {
        let (locale, facts) = (Locale::new(Language::English), Facts::default());
        work(Look {
            locale: &locale,
            roles: &LIGHT,
            facts: &facts,
            today: jiff::civil::date(2026, 1, 1),
            now: Instant::now(),
            narrow: false,
        })
    }

    fn pressed(card: &Card, words: &str) -> Vec<Message> {
        with_look(|look| {
            let mut ui = simulator(card.view(look));
            let _ = ui.click(words).unwrap_or_else(|error| panic!("{words}: {error}"));
            ui.into_messages().collect()
        })
    }

    #[test]
    fn the_four_buttons_make_the_four_decisions() {
        let mut card = card(CallState::Proposed);
        card.ask(Some("no rule allows this tool yet".to_owned()));
        assert_eq!(pressed(&card, "Deny"), [Message::Decide(Decision::Deny)]);
        assert_eq!(pressed(&card, "Allow once"), [Message::Decide(Decision::AllowOnce)]);
        assert_eq!(pressed(&card, "Allow in this conversation"), [Message::Decide(Decision::AllowInConversation)]);
        assert_eq!(pressed(&card, "Always"), [Message::Always]);
        card.toggle(&Message::Always);
        assert_eq!(pressed(&card, "write_file of files, as it is now"), [Message::Decide(Decision::AlwaysTool)]);
        assert_eq!(pressed(&card, "Every tool of files"), [Message::Decide(Decision::AlwaysServer)]);
    }

    #[test]
    fn arguments_stand_in_the_schemas_order_with_invisible_characters_shown() {
        let mut card = card(CallState::Proposed);
        card.ask(Some(String::new()));
        assert_eq!(card.arguments.iter().map(|argument| argument.label.as_str()).collect::<Vec<_>>(), ["Path", "content"]);
        with_look(|look| {
            let mut ui = simulator(card.view(look));
            assert!(ui.find("safe⟨U+202E⟩txt.exe").is_ok());
        });
    }

    #[test]
    fn a_card_says_what_was_not_checked() {
        let record = card(CallState::Proposed).record;
        let schema = json!({"type": "object", "properties": {"path": {"$ref": "#/$defs/Nope"}}});
        let definition = Arc::new(Definition::new("files".into(), "write_file", None, "", schema, None, None));
        let mut card = Card::new(record, Some(&definition));
        card.ask(Some(String::new()));
        let words = "Not checked: /properties/path/$ref: the reference #/$defs/Nope leads nowhere";
        with_look(|look| assert!(simulator(card.view(look)).find(words).is_ok()));
    }

    #[test]
    fn a_call_that_nobody_waits_for_has_no_buttons() {
        for state in [CallState::Proposed, CallState::Unknown, CallState::Stopped, CallState::Denied { by: "you".to_owned() }] {
            let card = card(state);
            with_look(|look| {
                let mut ui = simulator(card.view(look));
                assert!(ui.find("Allow once").is_err());
                assert!(ui.find("write_file").is_ok());
            });
        }
    }

    #[test]
    fn a_card_keeps_the_start_of_a_long_result_and_copies_all_of_it() {
        let mut card = card(CallState::Proposed);
        let long = "é".repeat(3 * SHOWN);
        card.record.call.arguments = json!({"content": long});
        let mut waiting = Card::new(card.record.clone(), None);
        waiting.ask(Some(String::new()));
        // What is to be allowed is there to the last character.
        assert!(waiting.raw.contains(&long) && !waiting.arguments[0].is_cut());
        let state = CallState::Done { by: "you".to_owned(), result: CallResult::text(&long), milliseconds: 1 };
        waiting.changed(CallRecord { state, ..card.record });
        let shown = waiting.result.as_ref().unwrap();
        assert_eq!((shown.text.chars().count(), shown.bytes, shown.is_cut), (SHOWN, long.len(), true));
        assert!(waiting.raw.len() < 3 * SHOWN && waiting.arguments[0].is_cut());
        assert_eq!(waiting.details().matches(&long).count(), 2);
    }

    #[test]
    fn progress_never_goes_back_and_a_total_that_was_said_stays() {
        let mut card = card(CallState::Sent { by: "you".to_owned() });
        let sees = |card: &Card, words: &str| with_look(|look| simulator(card.view(look)).find(words).is_ok());
        assert!(sees(&card, "running") && sees(&card, "0 s"));
        card.progressed(5.0, Some(10.0), Some("five".to_owned()));
        card.progressed(3.0, None, Some("three".to_owned()));
        card.progressed(f64::NAN, Some(0.0), None);
        assert!(sees(&card, "5 of 10"));
        card.progressed(7.0, Some(10.0), None);
        assert!(sees(&card, "7 of 10"));
        assert_eq!(pressed(&card, "Cancel"), [Message::Stop]);
        card.cancelled = true;
        assert!(sees(&card, "cancelling") && pressed(&card, "Cancel").is_empty());
    }

    #[test]
    fn a_decided_call_folds_and_its_result_opens() {
        let mut card = card(CallState::Proposed);
        card.ask(Some(String::new()));
        let state = CallState::Done { by: "you".to_owned(), result: CallResult::text("12 bytes written"), milliseconds: 400 };
        card.changed(CallRecord { state, ..card.record.clone() });
        assert!(card.waiting.is_none());
        with_look(|look| assert!(simulator(card.view(look)).find("12 bytes written").is_err()));
        card.toggle(&Message::Result);
        with_look(|look| assert!(simulator(card.view(look)).find("12 bytes written").is_ok()));
    }
}
