//! What is known about a running server, and its calls.

use handrail_engine::mcp::{Era, RunningCall, ServerView, SignIn};
use iced::widget::{Column, column, container, row, space, text};
use iced::{Center, Element, Fill};

use super::super::Look;
use super::super::chat::argument::{start, visible};
use super::log::time;
use crate::appearance::{space as gap, style};
use crate::piece;

/// Most characters of a server's instructions.
const LONGEST: usize = 8000;

/// What a person does here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    Cancel(u64),
}

/// Draws it.
pub fn view<'a>(server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
    let mut parts = Column::new().spacing(gap::M).width(Fill);
    parts = parts.push(facts(server, look));
    if !server.running.is_empty() {
        let calls = server.running.iter().map(|running| call(running, look));
        parts = parts.push(column![piece::strong(look.t("about-calls"))].extend(calls).spacing(gap::S));
    }
    if let Some(words) = server.config.description.as_deref().filter(|words| !words.trim().is_empty()) {
        parts = parts.push(block(look.t("about-description"), words, look));
    }
    if let Some(words) = server.instructions.as_deref().filter(|words| !words.trim().is_empty()) {
        parts = parts.push(block(look.t("about-instructions"), words, look));
    }
    container(parts).padding(iced::Padding::ZERO.right(gap::M)).into()
}

fn facts<'a>(server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
    let none = || look.t("about-none");
    let era = match server.era {
        Some(Era::Legacy) => look.t("about-era-legacy"),
        Some(Era::Modern) => look.t("about-era-modern"),
        None => none(),
    };
    let offers = &server.offers;
    let offered = [
        (offers.tools, look.t("about-tools")),
        (offers.prompts, look.t("about-prompts")),
        (offers.resources, look.t("about-resources")),
        (offers.completions, look.t("about-completions")),
        (offers.logging, look.t("about-logging")),
        (offers.tasks, look.t("about-tasks")),
    ];
    let offered: Vec<String> = offered.into_iter().filter(|(there, _)| *there).map(|(_, name)| name).collect();
    let sign_in = match &server.sign_in {
        SignIn::NotNeeded => look.t("about-sign-in-not-needed"),
        SignIn::Needed => look.t("server-needs-sign-in"),
        SignIn::Waiting => look.t("server-signing-in"),
        SignIn::Done { issuer } => look.locale.tv("about-signed-in", [("issuer", visible(issuer).into())]),
    };
    let lines = [
        (look.t("about-process"), server.pid.map_or_else(none, |pid| pid.to_string())),
        (look.t("about-era"), era),
        (look.t("about-protocol"), server.protocol.as_deref().map_or_else(none, visible)),
        (look.t("about-offers"), if offered.is_empty() { none() } else { offered.join(", ") }),
        (look.t("about-sign-in"), sign_in),
        (look.t("about-skipped"), server.skipped_lines.to_string()),
    ];
    let lines = lines.into_iter().map(|(name, value)| {
        let name = piece::label(name).color(look.roles.muted).width(200);
        row![name, piece::label(value).wrapping(text::Wrapping::WordOrGlyph).width(Fill)].spacing(gap::M).into()
    });
    container(Column::with_children(lines).spacing(gap::S)).padding(gap::M).width(Fill).style(style::card).into()
}

fn call<'a>(running: &'a RunningCall, look: Look<'a>) -> Element<'a, Message> {
    let cancel = piece::secondary(look.t("about-cancel"), Some(Message::Cancel(running.id)));
    let since = piece::small(look.locale.tv("about-since", [("time", time(running.since).into())]), look.roles);
    let head = row![piece::mono(visible(&running.tool)), since, space().width(Fill), cancel].spacing(gap::M).align_y(Center);
    let mut parts = column![head].spacing(gap::XS);
    match &running.progress {
        Some(progress) => {
            match progress.total.filter(|total| *total > 0.0) {
                Some(total) => parts = parts.push(piece::progress((progress.done / total) as f32)),
                None => parts = parts.push(piece::pulse(look.roles)),
            }
            if let Some(message) = &progress.message {
                parts = parts.push(piece::small(visible(start(message, 300).0), look.roles));
            }
        }
        None => parts = parts.push(piece::pulse(look.roles)),
    }
    container(parts).padding(gap::M).width(Fill).style(style::card).into()
}

fn block<'a>(name: String, words: &str, look: Look<'a>) -> Element<'a, Message> {
    let words = piece::label(visible(start(words.trim(), LONGEST).0)).color(look.roles.text).wrapping(text::Wrapping::WordOrGlyph);
    column![piece::strong(name), container(words).padding(gap::M).width(Fill).style(style::raised)].spacing(gap::S).into()
}
