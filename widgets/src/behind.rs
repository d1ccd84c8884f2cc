//! A part that something else lies over. It is laid out and drawn as before and keeps its state, but the keyboard does
//! not reach it: no operation finds a field or a button in it, and no key is told to it.

use iced::advanced::widget::{Operation, Tree, tree};
use iced::advanced::{Clipboard, Layout, Shell, Widget, layout, mouse, overlay, renderer};
use iced::{Element, Event, Length, Rectangle, Renderer, Size, Theme, Vector};

/// The part.
///
/// ```
/// use handrail_widgets::behind;
/// use iced::{Element, widget::text};
///
/// fn view<'a>(covered: bool) -> Element<'a, ()> {
///     behind(text("page"), covered).into()
/// }
/// # let _ = view(true);
/// ```
pub struct Behind<'a, Message> {
    content: Element<'a, Message>,
    covered: bool,
}

/// Wraps a part that is covered or not; wrapped both times it keeps its state.
pub fn behind<'a, Message>(content: impl Into<Element<'a, Message>>, covered: bool) -> Behind<'a, Message> {
    Behind { content: content.into(), covered }
}

impl<Message> Widget<Message, Theme, Renderer> for Behind<'_, Message> {
    fn size(&self) -> Size<Length> {
        self.content.as_widget().size()
    }

    fn size_hint(&self) -> Size<Length> {
        self.content.as_widget().size_hint()
    }

    fn tag(&self) -> tree::Tag {
        tree::Tag::stateless()
    }

    fn children(&self) -> Vec<Tree> {
        vec![Tree::new(&self.content)]
    }

    fn diff(&self, tree: &mut Tree) {
        tree.diff_children(std::slice::from_ref(&self.content));
    }

    fn layout(&mut self, tree: &mut Tree, renderer: &Renderer, limits: &layout::Limits) -> layout::Node {
        self.content.as_widget_mut().layout(&mut tree.children[0], renderer, limits)
    }

    fn operate(&mut self, tree: &mut Tree, layout: Layout<'_>, renderer: &Renderer, operation: &mut dyn Operation) {
        if !self.covered {
            self.content.as_widget_mut().operate(&mut tree.children[0], layout, renderer, operation);
        }
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
        if self.covered && matches!(event, Event::Keyboard(_) | Event::InputMethod(_)) {
            return;
        }
        self.content.as_widget_mut().update(&mut tree.children[0], event, layout, cursor, renderer, clipboard, shell, viewport);
    }

    fn mouse_interaction(
        &self,
        tree: &Tree,
        layout: Layout<'_>,
        cursor: mouse::Cursor,
        viewport: &Rectangle,
        renderer: &Renderer,
    ) -> mouse::Interaction {
        self.content.as_widget().mouse_interaction(&tree.children[0], layout, cursor, viewport, renderer)
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
        self.content.as_widget().draw(&tree.children[0], renderer, theme, style, layout, cursor, viewport);
    }

    fn overlay<'b>(
        &'b mut self,
        tree: &'b mut Tree,
        layout: Layout<'b>,
        renderer: &Renderer,
        viewport: &Rectangle,
        translation: Vector,
    ) -> Option<overlay::Element<'b, Message, Theme, Renderer>> {
        self.content.as_widget_mut().overlay(&mut tree.children[0], layout, renderer, viewport, translation)
    }
}

impl<'a, Message: 'a> From<Behind<'a, Message>> for Element<'a, Message> {
    fn from(behind: Behind<'a, Message>) -> Self {
        Self::new(behind)
    }
}

#[cfg(test)]
mod tests {
    use iced::widget::{button, text_input};
    use iced_test::simulator;

    use super::*;
    use crate::focusable;

    #[test]
    fn what_is_covered_hears_no_key_and_is_not_found_and_the_mouse_reaches_it() {
        let field =
            |covered: bool| -> Element<'static, String> { behind(text_input("hint", "value").on_input(|text| text), covered).into() };
        let typed = |covered: bool| {
            let mut ui = simulator(field(covered));
            // Pressed at its place: a covered one is found by no name.
            ui.point_at(iced::Point::new(20.0, 10.0));
            let _ = ui.simulate(iced_test::simulator::click());
            let _ = ui.typewrite("x");
            ui.into_messages().count()
        };
        assert_eq!((typed(false), typed(true)), (1, 0));
        let pressed = |covered: bool| {
            let one = focusable(button("press").on_press(()), Some(()), |theme| theme.palette().primary);
            let mut ui = simulator(Element::from(behind(one, covered)));
            let found = ui.find("press").is_ok();
            ui.point_at(iced::Point::new(20.0, 15.0));
            let _ = ui.simulate(iced_test::simulator::click());
            (found, ui.into_messages().count())
        };
        assert_eq!((pressed(false), pressed(true)), ((true, 1), (false, 1)));
    }
}
