//! A server's card: where it stands, why, and what can be done about it.

use std::time::{Duration, Instant};

use handrail_engine::mcp::config::Transport;
use handrail_engine::mcp::{ServerView, SignIn, State};
use iced::widget::{Column, button, column, container, row, space, text};
use iced::{Center, Color, Element, Fill};

use super::super::Look;
use super::super::chat::argument::{start, visible};
use super::{Known, Message, Verb};
use crate::appearance::{Roles, size, space as gap, style};
use crate::icon::{Icon, icon};
use crate::locale::Locale;
use crate::piece;

/// What the engine puts between a reason and the lines that a server wrote last.
const LINES_FOLLOW: &str = "; its last lines on stderr:\n";
/// Lines of stderr that are shown.
const LAST_LINES: usize = 12;
/// Most characters of a command or address on a card.
const HOW: usize = 70;
/// Most characters of a reason or a line.
const LONGEST: usize = 2000;

/// A state's icon and colour; the word comes from [`word`].
#[must_use]
pub fn dot(state: &State) -> (Icon, fn(&Roles) -> Color) {
    match state {
        State::Stopped => (Icon::Dot, |roles| roles.muted),
        State::Starting { .. } => (Icon::Working, |roles| roles.info),
        State::NeedsConsent | State::NeedsSignIn { .. } => (Icon::Shield, |roles| roles.warning),
        State::Slow { .. } => (Icon::Clock, |roles| roles.warning),
        State::Connected => (Icon::Done, |roles| roles.success),
        State::Reconnecting { .. } => (Icon::Retry, |roles| roles.warning),
        State::Failed { .. } => (Icon::Failed, |roles| roles.danger),
    }
}

/// A state in words.
#[must_use]
pub fn word(state: &State, locale: &Locale) -> String {
    match state {
        State::Stopped => locale.t("server-stopped"),
        State::Starting { .. } => locale.t("server-starting"),
        State::NeedsConsent => locale.t("server-needs-consent"),
        State::NeedsSignIn { .. } => locale.t("server-needs-sign-in"),
        State::Slow { .. } => locale.t("server-slow"),
        State::Connected => locale.t("server-connected"),
        State::Reconnecting { attempt, .. } => locale.tv("server-reconnecting", [("attempt", (*attempt).into())]),
        State::Failed { .. } => locale.t("server-failed"),
    }
}

/// The dot and the word; while reconnecting also how long until the next try.
fn state<'a>(server: &ServerView, known: Option<&Known>, look: Look<'a>) -> Element<'a, Message> {
    let (picture, color) = dot(&server.state);
    let mut words = word(&server.state, look.locale);
    if let (State::Reconnecting { after, .. }, Some(known)) = (&server.state, known) {
        let left = seconds_left(*after, known.since, look.now);
        words = look.locale.tv("server-next-try", [("state", words.into()), ("seconds", left.into())]);
    }
    piece::state(picture, words, color(look.roles))
}

/// Whole seconds until something that was `after` away `since`, rounded up.
fn seconds_left(after: Duration, since: Instant, now: Instant) -> u64 {
    let left = after.saturating_sub(now.saturating_duration_since(since));
    left.as_secs() + u64::from(left.subsec_nanos() > 0)
}

/// Most notes of a card, and most characters of each; the log has them all.
const NOTES: usize = 5;
const NOTE: usize = 300;

/// A card of the list; pressing it opens the details.
pub fn view<'a>(server: &'a ServerView, known: Option<&'a Known>, doomed: bool, look: Look<'a>) -> Element<'a, Message> {
    let name = piece::strong(visible(server.id.as_str())).wrapping(text::Wrapping::WordOrGlyph);
    let mut words = column![row![name, state(server, known, look)].spacing(gap::M).align_y(Center)].spacing(2).width(Fill);
    if let Some(about) = server.config.description.as_deref().filter(|about| !about.trim().is_empty()) {
        words = words.push(piece::label(cut(about, 200)).color(look.roles.muted).wrapping(text::Wrapping::WordOrGlyph));
    }
    let arrow = icon(Icon::Right).size(14.0).color(look.roles.muted);
    let open = row![words.push(facts(server, known, look)), arrow].spacing(gap::S).align_y(Center);
    let open = button(open.width(Fill)).padding([gap::XS, 0.0]).width(Fill).style(style::quiet);
    let parts = column![piece::pressed(open, Some(Message::Open(server.id.clone())))]
        .spacing(gap::S)
        .extend(trouble(server, look))
        .push(actions(server, doomed, look));
    container(parts).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
}

/// The head of the page of details.
pub fn head<'a>(server: &'a ServerView, known: Option<&'a Known>, doomed: bool, look: Look<'a>) -> Element<'a, Message> {
    let back = piece::quiet(format!("‹ {}", look.t("servers-back")), Some(Message::ShowList));
    let name = piece::page(visible(server.id.as_str())).wrapping(text::Wrapping::WordOrGlyph);
    let line = row![name, state(server, known, look)].spacing(gap::M).align_y(Center);
    column![row![back], line].spacing(gap::S).extend(trouble(server, look)).push(actions(server, doomed, look)).into()
}

/// The start of a text, with a sign where it goes on.
pub fn cut(words: &str, most: usize) -> String {
    let (shown, is_cut) = start(words.trim(), most);
    if is_cut { format!("{}…", visible(shown)) } else { visible(shown) }
}

/// The command or the address of a server.
pub fn how(server: &ServerView) -> String {
    match &server.config.transport {
        Transport::Stdio { command, args, .. } => std::iter::once(command).chain(args).cloned().collect::<Vec<_>>().join(" "),
        Transport::Http { url, .. } | Transport::Sse { url, .. } => url.clone(),
    }
}

/// How it is reached, its tools and what they cost.
fn facts<'a>(server: &ServerView, known: Option<&Known>, look: Look<'a>) -> Element<'a, Message> {
    let mut words = vec![cut(&how(server), HOW)];
    if !server.tools.is_empty() {
        words.push(look.locale.tv("servers-tools", [("count", server.tools.len().into())]));
        words.push(look.locale.tv("servers-tokens", [("count", known.map_or(0, |known| cost(server, known)).into())]));
    }
    if !server.running.is_empty() {
        words.push(look.locale.tv("servers-running", [("count", server.running.len().into())]));
    }
    piece::small(words.join(" · "), look.roles).wrapping(text::Wrapping::WordOrGlyph).into()
}

/// What the tools that are on cost, in tokens.
pub fn cost(server: &ServerView, known: &Known) -> usize {
    let on = known.tools.iter().zip(&known.costs).filter(|(tool, _)| !server.config.disabled_tools.contains(&tool.id.name));
    on.map(|(_, cost)| cost).sum()
}

fn actions<'a>(server: &'a ServerView, doomed: bool, look: Look<'a>) -> Element<'a, Message> {
    let id = || server.id.clone();
    if doomed {
        return piece::buttons([
            piece::label(look.t("servers-remove-ask")).into(),
            piece::secondary(look.t("servers-remove"), Some(Message::Remove(id()))),
            piece::quiet(look.t("sidebar-keep"), Some(Message::Keep)),
        ]);
    }
    let act = |words: String, verb: Verb| piece::secondary(words, Some(Message::Do(id(), verb)));
    let mut line: Vec<Element<'a, Message>> = Vec::new();
    match &server.state {
        State::NeedsConsent => line.push(piece::primary(look.t("servers-review"), server.consent.is_some().then(|| Message::Review(id())))),
        State::NeedsSignIn { .. } if server.sign_in != SignIn::Waiting => {
            line.push(piece::primary(look.t("servers-sign-in"), Some(Message::Do(id(), Verb::SignIn))));
        }
        State::NeedsSignIn { .. } => line.push(act(look.t("servers-sign-in-again"), Verb::SignIn)),
        State::Stopped | State::Failed { .. } => line.push(act(look.t("servers-start"), Verb::Start)),
        State::Starting { .. } => {
            line.push(act(look.t("servers-wait"), Verb::WaitLonger));
            line.push(act(look.t("servers-stop"), Verb::Stop));
        }
        State::Reconnecting { .. } => {
            line.push(act(look.t("servers-start-now"), Verb::Restart));
            line.push(act(look.t("servers-stop"), Verb::Stop));
        }
        State::Connected | State::Slow { .. } => {
            // It works, but asks for more rights than it was given.
            match server.sign_in {
                SignIn::Needed => line.push(piece::primary(look.t("servers-sign-in"), Some(Message::Do(id(), Verb::SignIn)))),
                SignIn::Waiting => line.push(act(look.t("servers-sign-in-again"), Verb::SignIn)),
                SignIn::NotNeeded | SignIn::Done { .. } => {}
            }
            line.push(act(look.t("servers-restart"), Verb::Restart));
            line.push(act(look.t("servers-stop"), Verb::Stop));
        }
    }
    if matches!(server.sign_in, SignIn::Done { .. }) || (server.sign_in == SignIn::Needed && server.state.is_usable()) {
        line.push(piece::quiet(look.t("servers-sign-out"), Some(Message::Do(id(), Verb::SignOut))));
    }
    line.push(space().width(Fill).into());
    line.push(piece::icon_button(Icon::Delete, look.t("servers-remove"), Some(Message::Ask(id()))));
    iced::widget::Row::with_children(line).spacing(gap::S).align_y(Center).into()
}

/// Why a server is not usable, and the last lines that it wrote.
fn trouble<'a>(server: &'a ServerView, look: Look<'a>) -> Vec<Element<'a, Message>> {
    let words =
        |reason: &str, color: Color| piece::label(visible(start(reason, LONGEST).0)).color(color).wrapping(text::Wrapping::WordOrGlyph);
    let mut parts: Vec<Element<'a, Message>> = Vec::new();
    match &server.state {
        State::Starting { note } => {
            // A package runner says here how far its download is.
            if let Some(line) = note.as_ref().or(server.stderr.last()) {
                parts.push(piece::mono(visible(start(line, 300).0)).size(size::SMALL.0).color(look.roles.muted).into());
            }
        }
        State::Reconnecting { reason, .. } | State::Slow { reason } | State::NeedsSignIn { reason } => {
            parts.push(words(reason, look.roles.warning).into());
        }
        State::Failed { reason, exit_code } => {
            // The reason ends with the last lines; where they have a place of their own it is said without them.
            let reason = reason.split_once(LINES_FOLLOW).filter(|_| !server.stderr.is_empty()).map_or(reason.as_str(), |(what, _)| what);
            parts.push(words(reason, look.roles.danger).into());
            // A reason that tells of the end tells how it ended.
            if let Some(code) = exit_code.filter(|code| !reason.contains(&format!("exit code {code}"))) {
                parts.push(piece::small(look.locale.tv("server-exit-code", [("code", code.into())]), look.roles).into());
            }
            if !server.stderr.is_empty() {
                parts.push(lines(server, look));
            }
        }
        State::NeedsConsent => parts.push(piece::small(look.t("server-consent-why"), look.roles).into()),
        State::Stopped | State::Connected => {}
    }
    if server.state.is_usable() && !server.notes.is_empty() {
        parts.push(notes(&server.notes, look));
    }
    if server.sign_in == SignIn::Waiting {
        parts.push(piece::state(Icon::Working, look.t("server-signing-in"), look.roles.info));
    }
    parts
}

/// What of the server's lists and answers was left out, or not taken as it came.
fn notes<'a>(notes: &'a [String], look: Look<'a>) -> Element<'a, Message> {
    let line = |note: &'a String| piece::small(cut(note, NOTE), look.roles).wrapping(text::Wrapping::WordOrGlyph).into();
    let rest = notes.len().saturating_sub(NOTES);
    let more = (rest > 0).then(|| piece::small(look.locale.tv("server-notes-more", [("count", rest.into())]), look.roles).into());
    let head = piece::label(look.t("server-notes")).color(look.roles.warning);
    Column::with_children(std::iter::once(head.into()).chain(notes.iter().take(NOTES).map(line)).chain(more)).spacing(2).into()
}

fn lines<'a>(server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
    let skip = server.stderr.len().saturating_sub(LAST_LINES);
    let lines = server.stderr.iter().skip(skip).map(|line| piece::mono(visible(start(line, LONGEST).0)).size(size::SMALL.0).into());
    let lines = container(Column::with_children(lines)).padding(gap::S).width(Fill).style(style::raised);
    column![piece::small(look.t("server-stderr"), look.roles), lines].spacing(gap::XS).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_countdown_ends_at_zero_and_rounds_up() {
        let start = Instant::now();
        let after = Duration::from_millis(4200);
        assert_eq!(seconds_left(after, start, start), 5);
        assert_eq!(seconds_left(after, start, start + Duration::from_millis(200)), 4);
        assert_eq!(seconds_left(after, start, start + Duration::from_secs(60)), 0);
    }
}
