//! The sidebar: new chat, conversations by date, the state of the servers, the other screens.

use handrail_engine::conversation::{Conversation, ConversationId};
use iced::widget::{Column, button, column, container, row, rule, scrollable, space, text};
use iced::{Center, Element, Fill};
use jiff::ToSpan as _;

use super::{Look, Screen};
use crate::appearance::{space as gap, style, width};
use crate::icon::{Icon, icon};
use crate::piece;

/// The sidebar.
#[derive(Debug, Default)]
pub struct Sidebar {
    /// The person's wish; a narrow window starts without it.
    pub hidden: bool,
    pub over: bool,
    doomed: Option<ConversationId>,
}

/// What happens in the sidebar.
#[derive(Clone, Debug)]
pub enum Message {
    New,
    Open(ConversationId),
    Show(Screen),
    /// Asks whether a conversation may go.
    Ask(ConversationId),
    Keep,
    Delete(ConversationId),
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    New,
    Open(ConversationId),
    Show(Screen),
    Delete(ConversationId),
}

/// When a conversation last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Age {
    Today,
    Yesterday,
    Week,
    Older,
}

impl Age {
    fn of(conversation: &Conversation, today: jiff::civil::Date) -> Self {
        let day = conversation.updated_at.to_zoned_datetime(jiff::tz::TimeZone::system()).date();
        let before = |days: i32| today.checked_sub(days.days()).unwrap_or(today);
        if day >= today {
            Self::Today
        } else if day >= before(1) {
            Self::Yesterday
        } else if day >= before(7) {
            Self::Week
        } else {
            Self::Older
        }
    }

    fn name(self, look: Look<'_>) -> String {
        match self {
            Self::Today => look.t("sidebar-today"),
            Self::Yesterday => look.t("sidebar-yesterday"),
            Self::Week => look.t("sidebar-week"),
            Self::Older => look.t("sidebar-older"),
        }
    }
}

impl Sidebar {
    /// Takes a message in.
    pub fn update(&mut self, message: Message) -> Action {
        self.doomed = None;
        match message {
            Message::New => Action::New,
            Message::Open(conversation) => Action::Open(conversation),
            Message::Show(screen) => Action::Show(screen),
            Message::Ask(conversation) => {
                self.doomed = Some(conversation);
                Action::None
            }
            Message::Keep => Action::None,
            Message::Delete(conversation) => Action::Delete(conversation),
        }
    }

    /// Shows or hides it.
    pub fn toggle(&mut self, narrow: bool) {
        if narrow {
            self.over = !self.over;
        } else {
            self.hidden = !self.hidden;
        }
    }

    /// Draws it.
    pub fn view<'a>(&'a self, look: Look<'a>, screen: Screen, open: Option<ConversationId>) -> Element<'a, Message> {
        let new = row![icon(Icon::Plus), piece::strong(look.t("sidebar-new"))].spacing(gap::S).align_y(Center);
        let new = button(new).width(Fill).padding([gap::S, gap::M]).style(style::secondary).on_press(Message::New);
        let list =
            scrollable(self.conversations(look, open.filter(|_| screen == Screen::Chat))).style(style::scroll).height(Fill).spacing(2);
        let screens = [
            (Screen::Library, Icon::Library, look.t("sidebar-library")),
            (Screen::Models, Icon::Models, look.t("sidebar-models")),
            (Screen::Settings, Icon::Settings, look.t("sidebar-settings")),
        ];
        let entries = screens.into_iter().map(|(target, picture, name)| {
            let words = row![icon(picture).color(look.roles.muted), piece::label(name)].spacing(gap::S + 2.0).align_y(Center);
            entry(words.into(), screen == target, Message::Show(target))
        });
        let servers = entry(servers(look), screen == Screen::Servers, Message::Show(Screen::Servers));
        let below = column![servers].extend(entries).spacing(2);
        let line = rule::horizontal(1).style(style::line);
        let all = column![new, list, line, below].spacing(gap::M).padding(gap::M);
        row![container(all).width(width::SIDEBAR).height(Fill).style(style::side), rule::vertical(1).style(style::line)].into()
    }

    fn conversations<'a>(&'a self, look: Look<'a>, open: Option<ConversationId>) -> Element<'a, Message> {
        let mut list = Column::new().spacing(2).width(Fill);
        let mut age = None;
        for conversation in &look.facts.conversations {
            let next = Age::of(conversation, look.today);
            if age != Some(next) {
                let head = container(piece::small(next.name(look), look.roles));
                list = list.push(head.padding(iced::Padding { top: gap::S, bottom: 2.0, left: gap::M, right: 0.0 }));
                age = Some(next);
            }
            list = list.push(self.conversation(conversation, open == Some(conversation.id), look));
        }
        list.into()
    }

    fn conversation<'a>(&'a self, conversation: &'a Conversation, open: bool, look: Look<'a>) -> Element<'a, Message> {
        let id = conversation.id;
        if self.doomed == Some(id) {
            let ask = piece::label(look.t("sidebar-delete-ask"));
            let delete = piece::quiet(look.t("sidebar-delete"), Some(Message::Delete(id)));
            let keep = piece::quiet(look.t("sidebar-keep"), Some(Message::Keep));
            return container(row![ask, space().width(Fill), delete, keep].align_y(Center).spacing(2))
                .padding([2.0, gap::M])
                .style(style::raised)
                .into();
        }
        let title = if conversation.title.is_empty() { look.t("chat-new") } else { conversation.title.clone() };
        let words = container(piece::label(title).wrapping(text::Wrapping::None)).width(Fill).clip(true);
        let row = button(words).width(Fill).padding([gap::S - 2.0, gap::M]).style(style::entry(open)).on_press(Message::Open(id));
        if !open {
            return row.into();
        }
        row![row, piece::icon_button(Icon::Delete, look.t("sidebar-delete"), Some(Message::Ask(id)))].align_y(Center).spacing(2).into()
    }
}

fn entry<'a>(words: Element<'a, Message>, selected: bool, message: Message) -> Element<'a, Message> {
    button(words).width(Fill).padding([gap::S - 1.0, gap::M]).style(style::entry(selected)).on_press(message).into()
}

/// One line: how many servers are there, and how many need someone.
fn servers<'a>(look: Look<'a>) -> Element<'a, Message> {
    let (connected, failed) = look.facts.server_counts();
    let dot = if connected > 0 { look.roles.success } else { look.roles.muted };
    let words = look.locale.tv("sidebar-servers", [("count", connected.into())]);
    let mut line = row![icon(Icon::Servers).color(dot), piece::label(words), space().width(Fill)].spacing(gap::S + 2.0).align_y(Center);
    if failed > 0 {
        let words = piece::label(failed.to_string()).color(look.roles.warning);
        line = line.push(row![icon(Icon::Warning).size(14.0).color(look.roles.warning), words].spacing(gap::XS).align_y(Center));
    }
    line.into()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn conversations_are_grouped_by_their_last_change() {
        let zone = jiff::tz::TimeZone::system();
        let today = jiff::civil::date(2026, 3, 1);
        let at = |days: i32| {
            let day = today.checked_sub(days.days()).unwrap();
            let updated_at: Timestamp = day.at(12, 0, 0, 0).to_zoned_datetime(zone.clone()).unwrap().timestamp();
            let id = ConversationId::fresh();
            Age::of(&Conversation { id, title: String::new(), model: None, created_at: updated_at, updated_at }, today)
        };
        assert_eq!([at(-1), at(0), at(1), at(2), at(7), at(8)], [Age::Today, Age::Today, Age::Yesterday, Age::Week, Age::Week, Age::Older]);
    }

    #[test]
    fn deleting_asks_first() {
        let mut sidebar = Sidebar::default();
        let id = ConversationId::fresh();
        assert!(matches!(sidebar.update(Message::Ask(id)), Action::None));
        assert_eq!(sidebar.doomed, Some(id));
        assert!(matches!(sidebar.update(Message::Delete(id)), Action::Delete(deleted) if deleted == id));
        assert_eq!(sidebar.doomed, None);
    }
}
