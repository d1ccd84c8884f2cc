//! The settings: what applies at once, without a Save button.

use handrail_engine::settings::Settings as Values;
use iced::widget::{column, container, pick_list, row, scrollable};
use iced::{Center, Element, Fill, Task};

use super::{Env, Look};
use crate::appearance::{size, space as gap, style, width};
use crate::icon::Icon;
use crate::locale::Language;
use crate::piece;

/// The screen.
#[derive(Debug, Default)]
pub struct Settings {
    error: Option<String>,
}

/// A number that can be stepped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    Steps,
    AnswerTokens,
    Passages,
    ToolTimeout,
    Threads,
}

/// What happens on the screen.
#[derive(Clone, Debug)]
pub enum Message {
    Theme(&'static str),
    Language(&'static str),
    Model(String),
    Step(Number, bool),
    Saved(Result<(), String>),
    Dismiss,
}

/// What the app must do about it.
#[derive(Debug)]
pub enum Action {
    None,
    /// These values hold from now on; the task writes them.
    Apply(Box<Values>, Task<Message>),
    Refresh,
}

/// One choice of a menu.
#[derive(Clone, Debug, PartialEq)]
struct Offer<T> {
    value: T,
    name: String,
}

impl<T> std::fmt::Display for Offer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Number {
    const ALL: [Self; 5] = [Self::Steps, Self::AnswerTokens, Self::Passages, Self::ToolTimeout, Self::Threads];

    fn step(self, values: &mut Values, up: bool) {
        let step = |value: usize, by: usize, least: usize, most: usize| {
            if up { value.saturating_add(by).min(most) } else { value.saturating_sub(by).max(least) }
        };
        match self {
            Self::Steps => values.turn_steps = step(values.turn_steps, 1, 1, 100),
            Self::AnswerTokens => values.max_answer_tokens = step(values.max_answer_tokens, 256, 256, 32_768),
            Self::Passages => values.passages = step(values.passages, 1, 1, 30),
            Self::ToolTimeout => values.tool_timeout_seconds = step(values.tool_timeout_seconds as usize, 5, 5, 600) as u64,
            Self::Threads => values.threads = step(values.threads, 1, 0, 64),
        }
    }

    fn words(self, values: &Values, look: Look<'_>) -> (String, String, String) {
        match self {
            Self::Steps => (look.t("settings-steps"), look.t("settings-steps-about"), values.turn_steps.to_string()),
            Self::AnswerTokens => (look.t("settings-tokens"), look.t("settings-tokens-about"), values.max_answer_tokens.to_string()),
            Self::Passages => (look.t("settings-passages"), look.t("settings-passages-about"), values.passages.to_string()),
            Self::ToolTimeout => {
                (look.t("settings-timeout"), look.t("settings-timeout-about"), format!("{} s", values.tool_timeout_seconds))
            }
            Self::Threads => {
                let value = if values.threads == 0 { look.t("settings-automatic") } else { values.threads.to_string() };
                (look.t("settings-threads"), look.t("settings-threads-about"), value)
            }
        }
    }
}

impl Settings {
    /// Takes a message in.
    pub fn update(&mut self, message: Message, env: &Env<'_>) -> Action {
        match message {
            Message::Theme(theme) => change(env, |values| theme.clone_into(&mut values.theme)),
            Message::Language(language) => change(env, |values| language.clone_into(&mut values.language)),
            Message::Model(model) => change(env, |values| values.chat_model = model),
            Message::Step(number, up) => change(env, |values| number.step(values, up)),
            Message::Saved(result) => self.saved(result),
            Message::Dismiss => self.dismiss(),
        }
    }

    fn saved(&mut self, result: Result<(), String>) -> Action {
        self.error = result.err();
        Action::Refresh
    }

    fn dismiss(&mut self) -> Action {
        self.error = None;
        Action::None
    }

    /// Draws the screen.
    pub fn view<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let values = &look.facts.settings;
        let mut list = column![piece::page(look.t("settings-title"))];
        if let Some(reason) = &self.error {
            let actions = vec![piece::quiet(look.t("app-dismiss"), Some(Message::Dismiss))];
            list = list.push(piece::banner(
                (Icon::Warning, |roles| roles.danger),
                look.t("settings-error"),
                Some(reason.clone()),
                actions,
                look.roles,
            ));
        }
        list = list.push(piece::title(look.t("settings-look"))).push(theme(values, look)).push(language(values, look));
        list = list.push(piece::title(look.t("settings-answers"))).push(model(values, look));
        list = list.extend(Number::ALL.into_iter().map(|number| stepper(number, values, look)));
        let list = container(list.spacing(gap::M).max_width(width::READING)).center_x(Fill).padding(gap::XL);
        scrollable(list).style(style::scroll).height(Fill).into()
    }
}

/// Changes the values: they hold at once, and are written behind the screen.
pub fn change(env: &Env<'_>, work: impl FnOnce(&mut Values)) -> Action {
    let mut values = env.facts.settings.clone();
    work(&mut values);
    let (engine, written) = (env.engine.clone(), values.clone());
    let work = env.engine.handle().spawn_blocking(move || engine.set_settings(written).map_err(|error| error.to_string()));
    let task = Task::perform(work, |result| Message::Saved(result.unwrap_or_else(|error| Err(error.to_string()))));
    Action::Apply(Box::new(values), task)
}

fn line<'a>(name: String, about: String, control: Element<'a, Message>, look: Look<'a>) -> Element<'a, Message> {
    let words = column![piece::label(name), piece::small(about, look.roles)].spacing(2).width(Fill);
    container(row![words, control].spacing(gap::L).align_y(Center)).padding([gap::S, gap::M]).width(Fill).style(style::card).into()
}

fn menu<'a, T: Clone + PartialEq + 'a>(
    offers: Vec<Offer<T>>,
    chosen: Option<Offer<T>>,
    message: impl Fn(T) -> Message + 'a,
) -> Element<'a, Message> {
    pick_list(offers, chosen, move |offer: Offer<T>| message(offer.value))
        .text_size(size::UI.0)
        .padding([gap::S - 2.0, gap::M])
        .width(220)
        .style(style::pick)
        .menu_style(style::menu)
        .into()
}

fn theme<'a>(values: &Values, look: Look<'a>) -> Element<'a, Message> {
    let offers = vec![
        Offer { value: "", name: look.t("settings-system") },
        Offer { value: "light", name: look.t("settings-light") },
        Offer { value: "dark", name: look.t("settings-dark") },
    ];
    let chosen = offers.iter().find(|offer| offer.value == values.theme).cloned();
    line(look.t("settings-theme"), look.t("settings-theme-about"), menu(offers, chosen, Message::Theme), look)
}

fn language<'a>(values: &Values, look: Look<'a>) -> Element<'a, Message> {
    let mut offers = vec![Offer { value: "", name: look.t("settings-system") }];
    offers.extend(Language::ALL.map(|language| Offer { value: language.tag(), name: language.name().to_owned() }));
    let chosen = offers.iter().find(|offer| offer.value == values.language).cloned();
    line(look.t("settings-language"), look.t("settings-language-about"), menu(offers, chosen, Message::Language), look)
}

fn model<'a>(values: &Values, look: Look<'a>) -> Element<'a, Message> {
    let mut offers: Vec<Offer<String>> =
        look.facts.ready_chat_models().map(|model| Offer { value: model.entry.id.clone(), name: model.entry.name.clone() }).collect();
    let chosen = Offer { value: values.chat_model.clone(), name: look.facts.chat_model_name() };
    if !offers.contains(&chosen) {
        offers.push(chosen.clone());
    }
    line(look.t("settings-model"), look.t("settings-model-about"), menu(offers, Some(chosen), Message::Model), look)
}

fn stepper<'a>(number: Number, values: &Values, look: Look<'a>) -> Element<'a, Message> {
    let (name, about, value) = number.words(values, look);
    let value = container(piece::label(value)).center_x(90);
    let control = row![
        piece::secondary("−".to_owned(), Some(Message::Step(number, false))),
        value,
        piece::secondary("+".to_owned(), Some(Message::Step(number, true)))
    ];
    line(name, about, control.align_y(Center).into(), look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_stay_in_their_bounds() {
        let mut values = Values { turn_steps: 1, tool_timeout_seconds: 5, ..Values::default() };
        for number in Number::ALL {
            for _ in 0..1000 {
                number.step(&mut values, false);
            }
        }
        assert_eq!((values.turn_steps, values.passages, values.max_answer_tokens, values.tool_timeout_seconds), (1, 1, 256, 5));
        Number::Steps.step(&mut values, true);
        assert_eq!(values.turn_steps, 2);
    }
}
