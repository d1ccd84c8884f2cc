//! How the window is drawn.

use handrail_widgets::behind;
use iced::widget::{Stack, button, column, container, row, space};
use iced::{Element, Fill};

use super::{App, Message};
use crate::appearance::{self, space as gap, style};
use crate::icon::{Icon, icon};
use crate::piece;
use crate::screen::{Look, Screen, welcome};
use crate::verb::Verb;

impl App {
    /// Draws a window.
    pub fn view(&self, _window: iced::window::Id) -> Element<'_, Message> {
        let look = Look {
            locale: &self.locale,
            roles: appearance::roles(&self.theme),
            facts: &self.facts,
            today: self.today,
            now: self.now,
            narrow: self.is_narrow(),
        };
        let page = container(self.page(look)).width(Fill).height(Fill).style(style::canvas);
        if self.screen == Screen::Welcome {
            return page.into();
        }
        // Each part keeps its place, shown or not, so that none loses its state when another comes or goes.
        let covered = self.screen == Screen::Servers && self.servers.is_covered();
        let sidebar = || -> Element<'_, Message> {
            behind(self.sidebar.view(look, self.screen, self.chat.open()).map(Message::Sidebar), covered).into()
        };
        let nothing = || Element::from(space());
        let beside = if look.narrow || self.sidebar.hidden { nothing() } else { sidebar() };
        let over = if look.narrow && self.sidebar.over {
            // What lies beside the sidebar closes it.
            let rest = iced::widget::mouse_area(space().width(Fill).height(Fill)).on_press(Message::Verb(Verb::ToggleSidebar));
            row![iced::widget::opaque(sidebar()), rest].into()
        } else {
            nothing()
        };
        Stack::with_children([row![beside, page].into(), over]).into()
    }

    fn page<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let screen = match self.screen {
            Screen::Welcome => welcome::view(&self.models, look).map(Message::Welcome),
            Screen::Chat => self.chat.view(look, self.window.hovered, self.questions.view(look)).map(Message::Chat),
            Screen::Servers => self.servers.view(look, self.questions.view(look)).map(Message::Servers),
            Screen::Models => self.models.view(look).map(Message::Models),
            Screen::Library => self.library.view(look).map(Message::Library),
            Screen::Settings => self.settings.view(look).map(Message::Settings),
        };
        let nothing = || Element::from(space());
        let hidden = look.narrow || self.sidebar.hidden;
        let toggle = if hidden && self.screen != Screen::Welcome {
            let toggle = button(icon(Icon::Sidebar)).padding(gap::S).style(style::quiet).on_press(Message::Verb(Verb::ToggleSidebar));
            container(toggle).padding(gap::XS).into()
        } else {
            nothing()
        };
        let banner = if self.facts.errors.is_empty() {
            nothing()
        } else {
            let dismiss = vec![piece::quiet(look.t("app-dismiss"), Some(Message::DismissErrors))];
            let reasons = Some(self.facts.errors.join("\n"));
            let banner = piece::banner((Icon::Warning, |roles| roles.warning), look.t("app-errors"), reasons, dismiss, look.roles);
            container(banner).padding(gap::M).into()
        };
        column![toggle, banner, screen].into()
    }
}
