//! The small pieces that every screen is put together from.

use handrail_widgets::focusable;
use iced::widget::{Button, Id, Row, Text, button, column, container, progress_bar, row, space as gap, text, text_input};
use iced::{Center, Color, Element, Fill, Pixels, Theme};

use crate::appearance::{self, MONO, Roles, SANS, STRONG, size, space, style};
use crate::icon::{Icon, icon};

fn sized<'a>(content: impl text::IntoFragment<'a>, (size, line): (f32, f32)) -> Text<'a> {
    text(content).size(size).line_height(Pixels(line)).font(SANS)
}

/// The name of a page.
pub fn page<'a>(content: impl text::IntoFragment<'a>) -> Text<'a> {
    sized(content, size::PAGE).font(STRONG)
}

/// The name of a part.
pub fn title<'a>(content: impl text::IntoFragment<'a>) -> Text<'a> {
    sized(content, size::TITLE).font(STRONG)
}

/// Text to read.
pub fn body<'a>(content: impl text::IntoFragment<'a>) -> Text<'a> {
    sized(content, size::BODY)
}

/// Text of the interface.
pub fn label<'a>(content: impl text::IntoFragment<'a>) -> Text<'a> {
    sized(content, size::UI)
}

/// Text of the interface that stands out.
pub fn strong<'a>(content: impl text::IntoFragment<'a>) -> Text<'a> {
    sized(content, size::UI).font(STRONG)
}

/// An aside.
pub fn small<'a>(content: impl text::IntoFragment<'a>, roles: &Roles) -> Text<'a> {
    sized(content, size::SMALL).color(roles.muted)
}

/// A value, a path, a line of a log.
pub fn mono<'a>(content: impl text::IntoFragment<'a>) -> Text<'a> {
    sized(content, size::CODE).font(MONO).wrapping(text::Wrapping::WordOrGlyph)
}

/// The colour of the focus ring.
fn ring(theme: &Theme) -> Color {
    appearance::roles(theme).focus
}

/// Lets a button be reached and pressed by keyboard.
pub fn pressed<'a, M: Clone + 'a>(button: Button<'a, M>, message: Option<M>) -> Element<'a, M> {
    focusable(button.on_press_maybe(message.clone()), message, ring).into()
}

/// The one thing to do.
pub fn primary<'a, M: Clone + 'a>(content: String, message: Option<M>) -> Element<'a, M> {
    pressed(button(label(content)).padding([space::S, space::L]).style(style::primary), message)
}

/// Something else to do.
pub fn secondary<'a, M: Clone + 'a>(content: String, message: Option<M>) -> Element<'a, M> {
    pressed(button(label(content)).padding([space::S - 2.0, space::M]).style(style::secondary), message)
}

/// Something to do that stays in the background.
pub fn quiet<'a, M: Clone + 'a>(content: String, message: Option<M>) -> Element<'a, M> {
    pressed(button(label(content)).padding([space::XS, space::S]).style(style::quiet), message)
}

/// The same with a name by which it is given the focus.
pub fn quiet_named<'a, M: Clone + 'a>(id: Id, content: String, message: M) -> Element<'a, M> {
    let button = button(label(content)).padding([space::XS, space::S]).style(style::quiet).on_press(message.clone());
    focusable(button, Some(message), ring).id(id).into()
}

/// A button that is an icon, with its name as a tip.
pub fn icon_button<'a, M: Clone + 'a>(picture: Icon, name: String, message: Option<M>) -> Element<'a, M> {
    tip(pressed(button(icon(picture)).padding(space::S - 2.0).style(style::quiet), message), name)
}

/// One of several pages that lie behind each other.
pub fn tab<'a, M: Clone + 'a>(content: String, shown: bool, message: M) -> Element<'a, M> {
    let words = if shown { strong(content) } else { label(content) };
    pressed(button(words).padding([space::S - 2.0, space::M]).style(style::entry(shown)), Some(message))
}

/// A line to write in.
pub fn input<'a, M: Clone + 'a>(hint: &str, value: &str, typed: impl Fn(String) -> M + 'a) -> iced::widget::TextInput<'a, M> {
    text_input(hint, value).on_input(typed).font(SANS).size(size::UI.0).padding([space::S - 1.0, space::M]).style(style::input)
}

/// A line with what is wrong in a field; nothing where all is well.
pub fn fault<'a, M: 'a>(reason: Option<String>, roles: &Roles) -> Element<'a, M> {
    match reason {
        Some(reason) => {
            let words = small(reason, roles).color(roles.danger).wrapping(text::Wrapping::WordOrGlyph);
            row![icon(Icon::Warning).size(12.0).color(roles.danger), words].spacing(space::XS).align_y(Center).into()
        }
        None => gap().into(),
    }
}

/// Buttons beside each other, that go to the next line where they do not fit.
pub fn buttons<'a, M: 'a>(buttons: impl IntoIterator<Item = Element<'a, M>>) -> Element<'a, M> {
    Row::with_children(buttons).spacing(space::S).align_y(Center).wrap().into()
}

/// A chip that says a word.
pub fn tag<'a, M: 'a>(content: impl text::IntoFragment<'a>, roles: &Roles) -> Element<'a, M> {
    container(small(content, roles)).padding([0.0, space::S]).style(style::tag).into()
}

/// A tip over something.
pub fn tip<'a, M: 'a>(content: impl Into<Element<'a, M>>, name: String) -> Element<'a, M> {
    let words = container(label(name)).padding([space::XS, space::S]).style(style::overlay);
    iced::widget::tooltip(content, words, iced::widget::tooltip::Position::Top).gap(space::XS).into()
}

/// An icon and a word in a colour: a state is never a colour alone.
pub fn state<'a, M: 'a>(picture: Icon, word: String, color: Color) -> Element<'a, M> {
    row![icon(picture).size(14.0).color(color), label(word).color(color)].spacing(space::XS + 2.0).align_y(Center).into()
}

/// A thin progress bar; `share` from 0 to 1.
pub fn progress<'a, M: 'a>(share: f32) -> Element<'a, M> {
    progress_bar(0.0..=1.0, share.clamp(0.0, 1.0)).length(Fill).girth(6).style(style::progress).into()
}

/// A sentence, its reason and what can be done.
pub fn banner<'a, M: Clone + 'a>(
    (picture, color): (Icon, fn(&Roles) -> Color),
    sentence: String,
    reason: Option<String>,
    actions: Vec<Element<'a, M>>,
    roles: &Roles,
) -> Element<'a, M> {
    let mut words = column![label(sentence).font(STRONG)].spacing(space::XS).width(Fill);
    if let Some(reason) = reason.filter(|reason| !reason.is_empty()) {
        words = words.push(label(reason).color(roles.text).wrapping(text::Wrapping::WordOrGlyph));
    }
    if !actions.is_empty() {
        words = words.push(iced::widget::Row::with_children(actions).spacing(space::S));
    }
    container(row![icon(picture).color(color(roles)), words].spacing(space::M))
        .padding(space::M)
        .width(Fill)
        .style(style::banner(color))
        .into()
}

/// What a screen without content says.
pub fn empty<'a, M: 'a>(picture: Icon, words: String, roles: &Roles) -> Element<'a, M> {
    let words = label(words).color(roles.muted).align_x(Center);
    container(column![icon(picture).size(28.0).color(roles.faint), words].spacing(space::M).align_x(Center).max_width(420.0))
        .center_x(Fill)
        .padding(space::XXL)
        .into()
}

/// A bar for work whose end is not known.
pub fn pulse<'a, M: 'a>(roles: &Roles) -> Element<'a, M> {
    handrail_widgets::pulse(6.0, roles.accent, roles.raised).into()
}
