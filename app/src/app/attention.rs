//! What wants the person's attention or gets it: questions of servers, Escape, counted seconds, the tray.

use std::time::Instant;

use handrail_engine::mcp::question::Answer;
use iced::Task;

use super::{App, Message, env};
use crate::desktop::tray;
use crate::screen::servers::{self, Servers};
use crate::screen::{Screen, chat, question};

impl App {
    pub(super) fn question(&mut self, message: question::Message, now: Instant) -> Task<Message> {
        let env = env(&self.engine, &self.facts, &self.locale, &self.window, now);
        let (question, answer, opened) = match self.questions.update(message, &env) {
            question::Action::None => return Task::none(),
            question::Action::Answer(question, answer) => (question, answer, Task::none()),
            question::Action::Open(question, url) => (question, Answer::Accept(serde_json::Map::new()), crate::desktop::open_address(&url)),
        };
        if let Err(error) = self.engine.servers().answer(question, answer) {
            self.facts.errors.push(error.to_string());
        }
        // One that was taken back meanwhile is gone, and one whose answer does not fit is still there.
        self.facts.questions = self.engine.servers().questions();
        self.facts_changed(now);
        opened
    }

    /// Escape: what is nearest to the person goes first.
    pub(super) fn escape(&mut self, now: Instant) -> Task<Message> {
        if let Some(question) = self.questions.to_decline(&self.facts.questions, false) {
            return self.question(question::Message::Decline(question), now);
        }
        match self.screen {
            Screen::Servers => {
                self.servers.back();
                Task::none()
            }
            Screen::Chat if self.chat.leaves() => Task::none(),
            Screen::Welcome | Screen::Chat | Screen::Models | Screen::Library | Screen::Settings => self.chat(chat::Message::Stop, now),
        }
    }

    /// Escape that left a field.
    pub(super) fn leave(&mut self, now: Instant) -> Task<Message> {
        if let Some(question) = self.questions.to_decline(&self.facts.questions, true) {
            return self.question(question::Message::Decline(question), now);
        }
        if self.screen == Screen::Chat {
            let _ = self.chat.leaves();
        }
        Task::none()
    }

    pub(super) fn ticked(&mut self, now: Instant) -> Task<Message> {
        self.now = now;
        if self.screen == Screen::Servers { self.with_servers(now, Servers::ticked) } else { Task::none() }
    }

    /// Whether something on screen counts seconds.
    pub(super) fn counts(&self) -> bool {
        match self.screen {
            Screen::Servers => true,
            Screen::Chat => self.chat.is_running(),
            Screen::Welcome | Screen::Models | Screen::Library | Screen::Settings => false,
        }
    }

    pub(super) fn tray_told(&mut self, told: tray::Told, now: Instant) -> Task<Message> {
        let raise = Task::batch([iced::window::minimize(self.window.id, false), iced::window::gain_focus(self.window.id)]);
        match told {
            tray::Told::Show => raise,
            tray::Told::Server(server) => {
                let shown = self.show(Screen::Servers);
                Task::batch([raise, shown, self.servers(servers::Message::Open(server), now)])
            }
            tray::Told::Quit => self.quit(),
        }
    }
}
