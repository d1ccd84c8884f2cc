//! A server's log: what it wrote to stderr and sent as log messages, the newest at the bottom.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use handrail_engine::mcp::{LogLine, ServerView};
use handrail_engine::tool::ServerId;
use handrail_widgets::virtual_list;
use iced::widget::{Id, column, pick_list, row, space};
use iced::{Center, Color, Element, Fill, Task};

use super::super::chat::argument::{start, visible};
use super::super::{Env, Look};
use crate::appearance::{Roles, size, space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;

/// Lines that are read.
const LINES: usize = 2000;
/// Most characters of a line that are shown; Copy takes all.
const LONGEST: usize = 4000;
/// The list, for scrolling.
const LIST: Id = Id::new("server-log");

/// The part.
#[derive(Debug, Default)]
pub struct Log {
    lines: Arc<Vec<LogLine>>,
    search: String,
    read: bool,
    error: Option<String>,
}

/// What happens in it.
#[derive(Clone, Debug)]
pub enum Message {
    Read(Result<Arc<Vec<LogLine>>, String>),
    Search(String),
    Level(&'static str),
    Levelled(Result<(), String>),
    Copy,
}

/// The levels of log messages, from the least to the gravest.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Reads the log, off the screen.
pub fn read(server: &ServerId, env: &Env<'_>) -> Task<Message> {
    let (engine, server) = (env.engine.clone(), server.clone());
    let work =
        env.engine.handle().spawn_blocking(move || engine.servers().log(&server, LINES).map(Arc::new).map_err(|error| error.to_string()));
    Task::perform(work, |result| Message::Read(result.unwrap_or_else(|error| Err(error.to_string()))))
}

impl Log {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, server: &ServerId, env: &Env<'_>) -> Task<Message> {
        let Message::Level(level) = message else { return self.take(message) };
        let (engine, server) = (env.engine.clone(), server.clone());
        let work = env.engine.handle().spawn(async move { engine.servers().set_log_level(&server, level).await });
        Task::perform(work, |result| {
            let result = result.map_err(|error| error.to_string());
            Message::Levelled(result.and_then(|result| result.map_err(|error| error.to_string())))
        })
    }

    fn take(&mut self, message: Message) -> Task<Message> {
        match message {
            Message::Read(Ok(lines)) => {
                self.error = None;
                self.lines = lines;
                // Later the list itself stays at the end, where the reader is there.
                if std::mem::replace(&mut self.read, true) { Task::none() } else { iced::widget::operation::snap_to_end(LIST) }
            }
            Message::Read(Err(reason)) => {
                self.error = Some(reason);
                Task::none()
            }
            Message::Search(search) => {
                self.search = search;
                Task::none()
            }
            Message::Levelled(result) => {
                self.error = result.err();
                Task::none()
            }
            Message::Level(_) => Task::none(),
            Message::Copy => iced::clipboard::write(self.text()),
        }
    }

    fn shown(&self) -> Vec<&LogLine> {
        let wanted = self.search.trim().to_lowercase();
        self.lines.iter().filter(|line| wanted.is_empty() || line.text.to_lowercase().contains(&wanted)).collect()
    }

    /// The lines that are shown, whole.
    fn text(&self) -> String {
        let lines = self.shown().into_iter().map(|line| format!("{} {} {}", time(line.at), line.level.unwrap_or("-"), line.text));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Draws it.
    pub fn view<'a>(&'a self, server: &'a ServerView, look: Look<'a>) -> Element<'a, Message> {
        let shown = self.shown();
        let search = piece::input(&look.t("detail-search"), &self.search, Message::Search).width(260);
        let count = piece::label(look.locale.tv("log-lines", [("count", shown.len().into())]));
        let copy = piece::secondary(look.t("log-copy"), (!shown.is_empty()).then_some(Message::Copy));
        let mut head = row![count, space().width(Fill)].spacing(gap::M).align_y(Center);
        if server.offers.logging {
            let chosen = LEVELS.iter().copied().find(|level| server.log_level.as_deref() == Some(level));
            let menu = pick_list(LEVELS, chosen, Message::Level).placeholder(look.t("log-level-server"));
            let menu = menu.text_size(size::UI.0).padding([gap::XS, gap::S]).style(style::pick).menu_style(style::menu);
            head = head.push(piece::label(look.t("log-level")).color(look.roles.muted)).push(menu);
        }
        let head = head.push(search).push(copy);
        let fault = piece::fault(self.error.clone(), look.roles);
        if shown.is_empty() {
            return column![head, fault, piece::empty(Icon::File, look.t("log-empty"), look.roles)].spacing(gap::S).into();
        }
        let list = virtual_list(keys(&shown), move |index| line(shown[index], look));
        let list = list.id(LIST).spacing(2.0).scroller(style::mix(look.roles.line, look.roles.muted, 0.4));
        column![head, fault, list].spacing(gap::S).height(Fill).into()
    }
}

/// A key for each line that stays with it while older lines go.
fn keys(lines: &[&LogLine]) -> Vec<u64> {
    let mut seen = HashSet::with_capacity(lines.len());
    lines
        .iter()
        .map(|line| {
            let mut hasher = DefaultHasher::new();
            (line.at, &line.text).hash(&mut hasher);
            let mut key = hasher.finish();
            while !seen.insert(key) {
                key = key.wrapping_add(1);
            }
            key
        })
        .collect()
}

/// The time of day.
#[must_use]
pub fn time(at: SystemTime) -> String {
    let zoned = jiff::Timestamp::try_from(at).unwrap_or_default().to_zoned_datetime(jiff::tz::TimeZone::system());
    zoned.strftime("%H:%M:%S%.3f").to_string()
}

fn level(level: Option<&str>, look: Look<'_>) -> (String, fn(&Roles) -> Color, Option<Icon>) {
    match level {
        Some("error") => (look.t("level-error"), |roles| roles.danger, Some(Icon::Failed)),
        Some("warning") => (look.t("level-warning"), |roles| roles.warning, Some(Icon::Warning)),
        Some("info") => (look.t("level-info"), |roles| roles.info, Some(Icon::Info)),
        Some("debug") => (look.t("level-debug"), |roles| roles.muted, None),
        _ => (String::new(), |roles| roles.text, None),
    }
}

fn line<'a>(line: &'a LogLine, look: Look<'a>) -> Element<'a, Message> {
    let (word, color, picture) = level(line.level, look);
    let color = color(look.roles);
    let mark: Element<'a, Message> =
        picture.map_or_else(|| space().width(12).into(), |picture| icon(picture).size(12.0).color(color).into());
    let word = row![mark, piece::small(word, look.roles).color(color)].spacing(gap::XS).align_y(Center).width(84);
    let (text, is_cut) = start(&line.text, LONGEST);
    let text = if is_cut { format!("{}…", visible(text)) } else { visible(text) };
    let at = piece::mono(time(line.at)).size(size::SMALL.0).color(look.roles.faint).width(96);
    row![at, word, piece::mono(text).size(size::SMALL.0).width(Fill)].spacing(gap::S).into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn lines() -> Vec<LogLine> {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(5);
        [("info", "listening"), ("error", "cannot open"), ("info", "listening")]
            .map(|(level, text)| LogLine { at, level: Some(level), text: text.to_owned() })
            .to_vec()
    }

    #[test]
    fn keys_are_unique_and_stay_when_older_lines_go() {
        let lines = lines();
        let all = keys(&lines.iter().collect::<Vec<_>>());
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 3);
        assert_eq!(keys(&lines.iter().skip(1).collect::<Vec<_>>())[0], all[1]);
    }

    #[test]
    fn search_finds_lines_and_copy_takes_those_that_are_shown() {
        let mut log = Log::default();
        let _ = log.take(Message::Read(Ok(Arc::new(lines()))));
        assert_eq!(log.shown().len(), 3);
        let _ = log.take(Message::Search("OPEN".to_owned()));
        assert_eq!(log.shown().len(), 1);
        assert!(log.text().ends_with("error cannot open") && log.text().lines().count() == 1);
    }
}
