//! How the chat screen is drawn.

use std::hash::{DefaultHasher, Hash, Hasher};

use handrail_engine::local::TemplateChoice;
use handrail_engine::mcp::State;
use handrail_widgets::virtual_list;
use iced::widget::{Stack, column, container, row, space, text};
use iced::{Center, Color, Element, Fill};

use super::super::{Look, question};
use super::argument::{start, visible};
use super::transcript::Transcript;
use super::{Chat, LIST, Message, inspector};
use crate::appearance::{Roles, space as gap, style, width};
use crate::icon::Icon;
use crate::piece;

/// Most characters of the names of servers in a notice.
const NAMES: usize = 200;

impl Chat {
    /// Draws the screen. `hovered` says that a file hovers over the window.
    pub fn view<'a>(&'a self, look: Look<'a>, hovered: bool, questions: Option<Element<'a, question::Message>>) -> Element<'a, Message> {
        let transcript = match self.talk() {
            Some(talk) if !talk.entries.is_empty() => self.transcript(talk, look),
            _ => self.empty(look),
        };
        let composer = self.composer.view(look, self.is_running(), hovered).map(Message::Composer);
        // Each part keeps its place, shown or not: a part that moved would lose its state, such as focus and scroll.
        let notices = column![].extend(self.notices(look)).spacing(gap::S);
        let questions = questions.map_or_else(|| Element::from(space()), |questions| questions.map(Message::Question));
        let below = column![notices, questions, composer].spacing(gap::S).max_width(width::READING);
        let below = container(below).center_x(Fill).padding([gap::M, gap::XL]);
        let page = column![self.head(look), transcript, below].width(Fill).height(Fill);
        let panel = self.inspected().map(|passages| inspector::view(passages, look));
        let (beside, over) = if look.narrow { (None, panel) } else { (panel, None) };
        let nothing = || Element::from(space());
        let over = over.map_or_else(nothing, |panel| container(iced::widget::opaque(panel)).align_right(Fill).height(Fill).into());
        Stack::with_children([row![page, beside.unwrap_or_else(nothing)].into(), over]).into()
    }

    fn head<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let open = look.facts.conversations.iter().find(|conversation| Some(conversation.id) == self.open());
        let title = open.map(|conversation| conversation.title.clone()).filter(|title| !title.is_empty());
        let title = piece::strong(title.unwrap_or_else(|| look.t("chat-new"))).wrapping(text::Wrapping::None);
        let title = container(title).clip(true).width(Fill);
        let line = row![title, piece::small(look.facts.chat_model_name(), look.roles)].spacing(gap::M).align_y(Center);
        container(line).padding([gap::M, gap::XL]).height(48).center_y(48).into()
    }

    fn transcript<'a>(&'a self, talk: &'a Transcript, look: Look<'a>) -> Element<'a, Message> {
        let live = talk.live.as_ref();
        // A last row of its own says that the model reads, until its answer begins.
        let waits = live.filter(|live| !live.answering || live.prefill.is_some());
        let last = talk.entries.len();
        let mut keys: Vec<u64> = (0..last as u64).collect();
        let conversation = self.open().map(|id| {
            let mut hasher = DefaultHasher::new();
            id.hash(&mut hasher);
            hasher.finish() << 20
        });
        keys.iter_mut().for_each(|key| *key ^= conversation.unwrap_or_default());
        if waits.is_some() {
            keys.push(u64::MAX);
        }
        let list = virtual_list(keys, move |index| match talk.entries.get(index) {
            Some(entry) => entry.view(look, talk.passages_for(index), live.is_some() && index + 1 == last),
            None => reading(waits.and_then(|live| live.prefill), look),
        });
        let list = list.id(LIST).spacing(gap::XL).padding(gap::XL).max_width(width::READING).scroller(style::mix(
            look.roles.line,
            look.roles.muted,
            0.4,
        ));
        let list: Element<'a, Message> = list.on_end(Message::AtEnd).on_shown(Message::InView).into();
        let jump: Element<'a, Message> = if self.away {
            let button = piece::secondary(look.t("chat-to-end"), Some(Message::ToEnd));
            container(button).center_x(Fill).align_bottom(Fill).padding(gap::S).into()
        } else {
            space().into()
        };
        Stack::with_children([list, jump]).height(Fill).into()
    }

    fn empty<'a>(&'a self, look: Look<'a>) -> Element<'a, Message> {
        let words =
            column![piece::page(look.t("chat-empty-title")), piece::body(look.t("chat-empty")).color(look.roles.muted).align_x(Center)];
        let words = words.spacing(gap::S).align_x(Center).max_width(480.0);
        container(words).center(Fill).padding(gap::XL).into()
    }

    /// What went wrong, above the composer.
    fn notices<'a>(&'a self, look: Look<'a>) -> Vec<Element<'a, Message>> {
        let mut notices = Vec::new();
        if look.facts.gathered && !look.facts.can_chat() {
            let actions = vec![piece::secondary(look.t("chat-show-models"), Some(Message::ShowModels))];
            let reason = look.locale.tv("chat-no-model-why", [("model", look.facts.chat_model_name().into())]);
            notices.push(piece::banner((Icon::Info, |roles| roles.info), look.t("chat-no-model"), Some(reason), actions, look.roles));
        }
        // Without a word a model would make its answer up, and nothing would hint at the tools it could have had.
        let waits = |server: &&handrail_engine::mcp::ServerView| server.config.active && server.state == State::NeedsConsent;
        let waiting: Vec<String> = look.facts.servers.iter().filter(waits).map(|server| visible(server.id.as_str())).collect();
        if !waiting.is_empty() {
            let actions = vec![piece::secondary(look.t("chat-show-servers"), Some(Message::ShowServers))];
            let title = look.locale.tv("chat-servers-wait", [("count", waiting.len().into())]);
            let names = Some(start(&waiting.join(", "), NAMES).0.to_owned());
            notices.push(piece::banner((Icon::Shield, |roles| roles.warning), title, names, actions, look.roles));
        }
        notices.extend(template(look));
        let failed = self.talk().and_then(|talk| talk.error.clone());
        for (reason, retry) in [(failed, true), (self.error.clone(), false)] {
            let Some(reason) = reason else { continue };
            let mut actions = Vec::new();
            if retry {
                actions.push(piece::secondary(look.t("chat-retry"), Some(Message::Retry)));
            }
            actions.push(piece::quiet(look.t("app-dismiss"), Some(Message::Dismiss)));
            notices.push(piece::banner((Icon::Warning, |roles| roles.danger), look.t("chat-failed"), Some(reason), actions, look.roles));
        }
        notices
    }
}

/// Which template stands in for the chat model's own one, or that its own does not work.
fn template<'a>(look: Look<'a>) -> Option<Element<'a, Message>> {
    let view = &look.facts.model(&look.facts.settings.chat_model)?.template;
    let (own, instead) = (Message::Template(TemplateChoice::Own), Message::Template(TemplateChoice::ChatMl));
    let (picture, words, button, message): ((Icon, fn(&Roles) -> Color), _, _, _) = match (&view.choice, &view.fault) {
        (TemplateChoice::Own, None) => return None,
        (TemplateChoice::Own, Some(_)) => {
            ((Icon::Warning, |roles| roles.danger), look.t("chat-template-broken"), look.t("model-use-chatml"), instead)
        }
        (TemplateChoice::ChatMl, _) => {
            ((Icon::Info, |roles| roles.info), look.t("model-template-chatml"), look.t("model-use-own-template"), own)
        }
        (TemplateChoice::File(_), _) => {
            ((Icon::Info, |roles| roles.info), look.t("chat-template-file"), look.t("model-use-own-template"), own)
        }
    };
    let actions = vec![piece::secondary(button, Some(message)), piece::quiet(look.t("chat-show-models"), Some(Message::ShowModels))];
    Some(piece::banner(picture, words, None, actions, look.roles))
}

/// The line under the last message while the model reads the prompt.
fn reading<'a>(prefill: Option<(usize, usize, usize)>, look: Look<'a>) -> Element<'a, Message> {
    let (words, share) = match prefill {
        Some((done, total, _)) if total > 0 => {
            let words = look.locale.tv("chat-reading", [("done", done.into()), ("total", total.into())]);
            (words, Some(done as f32 / total as f32))
        }
        _ => (look.t("chat-thinking"), None),
    };
    let mut line = row![piece::state(Icon::Working, words, look.roles.muted)].spacing(gap::M).align_y(Center);
    if let Some(share) = share {
        line = line.push(container(piece::progress(share)).width(160));
    }
    line.push(space().width(Fill)).into()
}
