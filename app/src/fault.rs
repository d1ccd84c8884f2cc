//! The window of a program that cannot start: what is wrong, where, and the way out.

use std::path::PathBuf;

use iced::widget::{column, container, row, space};
use iced::{Element, Fill, Size, Task, Theme, window};

use crate::appearance::{self, space as gap, style};
use crate::icon::Icon;
use crate::locale::{Language, Locale};
use crate::piece;

/// The page.
struct Fault {
    locale: Locale,
    theme: Theme,
    reason: String,
    folder: Option<PathBuf>,
}

/// What happens on it.
#[derive(Clone, Copy, Debug)]
enum Message {
    System(iced::theme::Mode),
    Quit,
}

/// Shows why the program cannot start, until the person quits.
pub fn run(reason: String, folder: Option<PathBuf>) -> iced::Result {
    let boot = move || (Fault::new(reason.clone(), folder.clone()), iced::system::theme().map(Message::System));
    let mut application = iced::application(boot, Fault::update, Fault::view)
        .title(|fault: &Fault| fault.locale.t("app-name"))
        .theme(|fault: &Fault| fault.theme.clone())
        .default_font(appearance::SANS)
        .window(window::Settings { size: Size::new(640.0, 400.0), ..window::Settings::default() });
    for font in appearance::FONTS {
        application = application.font(font);
    }
    application.run()
}

impl Fault {
    fn new(reason: String, folder: Option<PathBuf>) -> Self {
        // There are no settings without an engine, so the system's language and look are used.
        Self { locale: Locale::new(Language::of_setting("")), theme: appearance::theme(false), reason, folder }
    }

    fn update(&mut self, message: Message) -> Task<Message> {
        match message {
            Message::System(mode) => {
                self.theme = appearance::theme(mode == iced::theme::Mode::Dark);
                Task::none()
            }
            Message::Quit => iced::exit(),
        }
    }

    fn view(&self) -> Element<'_, Message> {
        let roles = appearance::roles(&self.theme);
        let banner =
            piece::banner((Icon::Warning, |roles| roles.danger), self.locale.t("fault-why"), Some(self.reason.clone()), Vec::new(), roles);
        let mut parts = column![piece::page(self.locale.t("fault-title")), banner].spacing(gap::L).max_width(640.0);
        if let Some(folder) = &self.folder {
            let place = column![
                piece::small(self.locale.t("fault-folder"), roles),
                piece::mono(folder.display().to_string()),
                piece::small(self.locale.t("fault-folder-about"), roles)
            ];
            parts = parts.push(place.spacing(gap::XS));
        }
        let quit = row![space().width(Fill), piece::primary(self.locale.t("fault-quit"), Some(Message::Quit))];
        container(parts.push(quit)).center_x(Fill).height(Fill).padding(gap::XL).style(style::canvas).into()
    }
}

#[cfg(test)]
mod tests {
    use iced_test::simulator;

    use super::*;

    #[test]
    fn the_page_says_what_where_and_lets_go() {
        let mut fault = Fault::new("the database is newer than this program".to_owned(), Some("/data/handrail".into()));
        fault.locale = Locale::new(Language::English);
        let mut ui = simulator(fault.view());
        assert!(ui.find("the database is newer than this program").is_ok());
        assert!(ui.find("/data/handrail").is_ok());
        let _ = ui.click("Quit").unwrap();
        let messages: Vec<Message> = ui.into_messages().collect();
        assert!(matches!(messages[..], [Message::Quit]));
    }
}
