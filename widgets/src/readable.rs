//! Text that operations can find. iced's rich text draws words that no [`Operation`] ever sees; wrapped, it can be
//! found by tests and read by whatever else walks the widgets.

use std::borrow::Cow;

use iced::advanced::widget::{Operation, Tree, tree};
use iced::advanced::{Clipboard, Layout, Shell, Widget, layout, mouse, overlay, renderer};
use iced::{Element, Event, Length, Rectangle, Renderer, Size, Theme, Vector};

/// A widget together with the text that it draws.
///
/// ```
/// use handrail_widgets::readable;
/// use iced::widget::rich_text;
/// use iced::{Element, never};
///
/// fn view<'a>() -> Element<'a, ()> {
///     readable(rich_text![iced::widget::span("hello")].on_link_click(never), "hello").into()
/// }
/// # let _ = view();
/// ```
pub struct Readable<'a, Message> {
    content: Element<'a, Message>,
    text: Cow<'a, str>,
}

/// Wraps a widget that draws `text`.
pub fn readable<'a, Message>(content: impl Into<Element<'a, Message>>, text: impl Into<Cow<'a, str>>) -> Readable<'a, Message> {
    Readable { content: content.into(), text: text.into() }
}

impl<Message> Widget<Message, Theme, Renderer> for Readable<'_, Message> {
    fn size(&self) -> Size<Length> {
        self.content.as_widget().size()
    }

    fn size_hint(&self) -> Size<Length> {
        self.content.as_widget().size_hint()
    }

    fn tag(&self) -> tree::Tag {
        self.content.as_widget().tag()
    }

    fn state(&self) -> tree::State {
        self.content.as_widget().state()
    }

    fn children(&self) -> Vec<Tree> {
        self.content.as_widget().children()
    }

    fn diff(&self, tree: &mut Tree) {
        self.content.as_widget().diff(tree);
    }

    fn layout(&mut self, tree: &mut Tree, renderer: &Renderer, limits: &layout::Limits) -> layout::Node {
        self.content.as_widget_mut().layout(tree, renderer, limits)
    }

    fn operate(&mut self, tree: &mut Tree, layout: Layout<'_>, renderer: &Renderer, operation: &mut dyn Operation) {
        operation.text(None, layout.bounds(), &self.text);
        self.content.as_widget_mut().operate(tree, layout, renderer, operation);
    }

    fn update(
        &mut self,
        tree: &mut Tree,
        event: &Event,
        layout: Layout<'_>,
        cursor: mouse::Cursor,
        renderer: &Renderer,
        clipboard: &mut dyn Clipboard,
        shell: &mut Shell<'_, Message>,
        viewport: &Rectangle,
    ) {
        self.content.as_widget_mut().update(tree, event, layout, cursor, renderer, clipboard, shell, viewport);
    }

    fn mouse_interaction(
        &self,
        tree: &Tree,
        layout: Layout<'_>,
        cursor: mouse::Cursor,
        viewport: &Rectangle,
        renderer: &Renderer,
    ) -> mouse::Interaction {
        self.content.as_widget().mouse_interaction(tree, layout, cursor, viewport, renderer)
    }

    fn draw(
        &self,
        tree: &Tree,
        renderer: &mut Renderer,
        theme: &Theme,
        style: &renderer::Style,
        layout: Layout<'_>,
        cursor: mouse::Cursor,
        viewport: &Rectangle,
    ) {
        self.content.as_widget().draw(tree, renderer, theme, style, layout, cursor, viewport);
    }

    fn overlay<'b>(
        &'b mut self,
        tree: &'b mut Tree,
        layout: Layout<'b>,
        renderer: &Renderer,
        viewport: &Rectangle,
        translation: Vector,
    ) -> Option<overlay::Element<'b, Message, Theme, Renderer>> {
        self.content.as_widget_mut().overlay(tree, layout, renderer, viewport, translation)
    }
}

impl<'a, Message: 'a> From<Readable<'a, Message>> for Element<'a, Message> {
    fn from(readable: Readable<'a, Message>) -> Self {
        Self::new(readable)
    }
}

#[cfg(test)]
mod tests {
    use iced::widget::{rich_text, span};
    use iced_test::simulator;

    use super::*;

    #[test]
    fn wrapped_rich_text_is_found_and_bare_rich_text_is_not() {
        let bare = || rich_text![span("hello "), span("world")].on_link_click(iced::never);
        let mut ui = simulator::<(), Theme, Renderer>(bare());
        assert!(ui.find("hello world").is_err());
        let mut ui = simulator::<(), Theme, Renderer>(readable(bare(), "hello world"));
        assert!(ui.find("hello world").is_ok());
    }
}
