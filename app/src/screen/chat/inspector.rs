//! The panel at the right: passages with their places.

use handrail_engine::conversation::Passage;
use iced::widget::{Column, column, container, row, scrollable, space, text};
use iced::{Center, Element, Fill};

use super::super::Look;
use super::Message;
use super::turn::citation;
use crate::appearance::{space as gap, style, width};
use crate::icon::Icon;
use crate::piece;

/// Draws the panel.
pub fn view<'a>(passages: Vec<&'a Passage>, look: Look<'a>) -> Element<'a, Message> {
    let head = row![
        piece::title(look.t("inspector-title")),
        space().width(Fill),
        piece::icon_button(Icon::Close, look.t("inspector-close"), Some(Message::CloseInspector))
    ];
    let cards = passages.into_iter().map(|passage| {
        let place = match passage.page {
            Some(page) => look
                .locale
                .tv("inspector-place-page", [("page", page.into()), ("start", passage.span.0.into()), ("end", passage.span.1.into())]),
            None => look.locale.tv("inspector-place", [("start", passage.span.0.into()), ("end", passage.span.1.into())]),
        };
        let words = piece::label(passage.text.as_str()).wrapping(text::Wrapping::WordOrGlyph);
        let card = column![piece::strong(citation(passage, look)), piece::small(place, look.roles), words].spacing(gap::S);
        container(card).padding(gap::M).width(Fill).style(style::card).into()
    });
    let list = scrollable(Column::with_children(cards).spacing(gap::M)).style(style::scroll).height(Fill).spacing(gap::S);
    let panel = column![head.align_y(Center), list].spacing(gap::M);
    container(panel).padding(gap::L).width(width::INSPECTOR).height(Fill).style(style::side).into()
}
