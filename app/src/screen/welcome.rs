//! The first-run page: the two default models, and the way past them.

use iced::widget::{column, container, row, scrollable, space};
use iced::{Center, Element, Fill};

use super::Look;
use super::models::{self, Models};
use crate::appearance::{space as gap, style};
use crate::icon::Icon;
use crate::piece;

/// What happens on the page.
#[derive(Clone, Debug)]
pub enum Message {
    Models(models::Message),
    /// Fetches what is missing of the two.
    FetchBoth,
    /// Leaves the page.
    Leave,
}

/// Draws the page.
pub fn view<'a>(models: &'a Models, look: Look<'a>) -> Element<'a, Message> {
    let settings = &look.facts.settings;
    let wanted = [settings.chat_model.as_str(), settings.embedding_model.as_str()];
    let cards = wanted.iter().filter_map(|id| look.facts.model(id)).map(|model| models.card(model, look).map(Message::Models));
    let missing = wanted.iter().any(|id| look.facts.model(id).is_some() && !look.facts.is_ready(id));
    let head = column![piece::page(look.t("welcome-title")), piece::body(look.t("welcome-about")).color(look.roles.muted),];
    let mut parts = column![head.spacing(gap::S)].spacing(gap::L).max_width(640.0);
    parts = parts.extend(models.error(look).map(|error| error.map(Message::Models)));
    if look.facts.gathered && look.facts.models.is_empty() {
        parts = parts.push(piece::empty(Icon::Models, look.t("welcome-no-catalogue"), look.roles));
    }
    parts = parts.extend(cards);
    let act = if look.facts.can_chat() {
        row![piece::primary(look.t("welcome-start"), Some(Message::Leave))]
    } else {
        row![
            piece::primary(look.t("welcome-fetch"), missing.then_some(Message::FetchBoth)),
            piece::secondary(look.t("models-choose"), Some(Message::Models(models::Message::Choose))),
            space().width(Fill),
            piece::quiet(look.t("welcome-skip"), Some(Message::Leave))
        ]
    };
    parts = parts.push(act.spacing(gap::S).align_y(Center));
    parts = parts.extend(models.path(look).map(|field| field.map(Message::Models)));
    parts = parts.push(piece::small(look.t("welcome-offline"), look.roles));
    scrollable(container(parts).center_x(Fill).padding(gap::XXL)).style(style::scroll).height(Fill).into()
}
