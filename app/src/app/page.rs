//! How the window is drawn.

use iced::widget::{Stack, button, column, container, row, space};
use iced::{Element, Fill};

use super::{App, Message};
use crate::appearance::{self, space as gap, style};
use crate::icon::Icon;
use crate::piece;
use crate::screen::{Look, Screen, welcome};

impl App {
    /// Draws a window.
    pub fn view(&self, _window: iced::window::Id) -> Element<'_, Message> {
        let look = Look {
            locale: &self.locale,
            roles: appearance::roles(&self.theme),
            facts: &self.facts,
            today: self.today,
            narrow: self.is_narrow(),
        };
        let page = container(self.page(look)).width(Fill).height(Fill).style(style::canvas);
        if self.screen == Screen::Welcome {
            return page.into();
        }
        let sidebar = || self.sidebar.view(look, self.screen, self.chat.open()).map(Message::Sidebar);
        if look.narrow && self.sidebar.over {
            // What lies beside the sidebar closes it.
            let rest = iced::widget::mouse_area(space().width(Fill).height(Fill)).on_press(Message::Verb(crate::verb::Verb::ToggleSidebar));
            return Stack::with_children([page.into(), row![iced::widget::opaque(sidebar()), rest].into()]).into();
        }
        if look.narrow || self.sidebar.hidden { page.into() } else { row![sidebar(), page].into() }
    }

    fn page<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let screen = match self.screen {
            Screen::Welcome => welcome::view(&self.models, look).map(Message::Welcome),
            Screen::Chat => self.chat.view(look, self.window.hovered).map(Message::Chat),
            Screen::Servers => self.servers.view(look).map(Message::Servers),
            Screen::Models => self.models.view(look).map(Message::Models),
            Screen::Library => self.library.view(look).map(Message::Library),
            Screen::Settings => self.settings.view(look).map(Message::Settings),
        };
        let mut parts = column![];
        let hidden = look.narrow || self.sidebar.hidden;
        if hidden && self.screen != Screen::Welcome {
            let toggle = Message::Verb(crate::verb::Verb::ToggleSidebar);
            let toggle = button(crate::icon::icon(Icon::Sidebar)).padding(gap::S).style(style::quiet).on_press(toggle);
            parts = parts.push(container(toggle).padding(gap::XS));
        }
        if !self.facts.errors.is_empty() {
            let reasons = self.facts.errors.join("\n");
            let dismiss = vec![piece::quiet(look.t("app-dismiss"), Some(Message::DismissErrors))];
            let words = look.t("app-errors");
            let banner = piece::banner((Icon::Warning, |roles| roles.warning), words, Some(reasons), dismiss, look.roles);
            parts = parts.push(container(banner).padding(gap::M));
        }
        parts.push(screen).into()
    }
}
