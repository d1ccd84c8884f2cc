//! Something that is pressed, reachable by keyboard: iced's buttons take no focus. Wrapped, a button is found by the
//! focus operations, shows a ring when it was reached by key, and is pressed by Enter and by the space bar.

use iced::advanced::widget::{Id, Operation, Tree, operation, tree};
use iced::advanced::{Clipboard, Layout, Renderer as _, Shell, Widget, layout, mouse, overlay, renderer};
use iced::keyboard::{self, key};
use iced::{Color, Element, Event, Length, Rectangle, Renderer, Shadow, Size, Theme, Vector, border};

/// Width of the ring, and its distance from what it surrounds.
const RING: f32 = 2.0;
/// Corner radius of the ring.
const RADIUS: f32 = 8.0;

/// A widget that can be pressed by key.
///
/// ```
/// use handrail_widgets::focusable;
/// use iced::{Element, widget::button};
///
/// fn view<'a>() -> Element<'a, ()> {
///     focusable(button("Press").on_press(()), Some(()), |theme| theme.palette().primary).into()
/// }
/// # let _ = view();
/// ```
pub struct Focusable<'a, Message> {
    id: Option<Id>,
    content: Element<'a, Message>,
    press: Option<Message>,
    ring: fn(&Theme) -> Color,
}

/// Wraps a widget that sends `press`; without one it takes no focus. `ring` is the colour of the focus ring.
pub fn focusable<'a, Message>(
    content: impl Into<Element<'a, Message>>,
    press: Option<Message>,
    ring: fn(&Theme) -> Color,
) -> Focusable<'a, Message> {
    Focusable { id: None, content: content.into(), press, ring }
}

impl<Message> Focusable<'_, Message> {
    /// Gives it a name by which it can be given the focus.
    #[must_use]
    pub fn id(mut self, id: impl Into<Id>) -> Self {
        self.id = Some(id.into());
        self
    }
}

#[derive(Default)]
struct State {
    focused: bool,
}

impl operation::Focusable for State {
    fn is_focused(&self) -> bool {
        self.focused
    }

    fn focus(&mut self) {
        self.focused = true;
    }

    fn unfocus(&mut self) {
        self.focused = false;
    }
}

impl<Message: Clone> Widget<Message, Theme, Renderer> for Focusable<'_, Message> {
    fn size(&self) -> Size<Length> {
        self.content.as_widget().size()
    }

    fn size_hint(&self) -> Size<Length> {
        self.content.as_widget().size_hint()
    }

    fn tag(&self) -> tree::Tag {
        tree::Tag::of::<State>()
    }

    fn state(&self) -> tree::State {
        tree::State::new(State::default())
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
        let Tree { state, children, .. } = tree;
        if self.press.is_some() {
            operation.focusable(self.id.as_ref(), layout.bounds(), state.downcast_mut::<State>());
        }
        self.content.as_widget_mut().operate(&mut children[0], layout, renderer, operation);
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
        let Tree { state, children, .. } = tree;
        self.content.as_widget_mut().update(&mut children[0], event, layout, cursor, renderer, clipboard, shell, viewport);
        let state = state.downcast_mut::<State>();
        match event {
            // Who uses the mouse needs no ring.
            Event::Mouse(mouse::Event::ButtonPressed(_)) if state.focused => {
                state.focused = false;
                shell.request_redraw();
            }
            Event::Keyboard(keyboard::Event::KeyPressed { key, .. }) if state.focused && !shell.is_event_captured() => {
                let presses = matches!(key, keyboard::Key::Named(key::Named::Enter | key::Named::Space));
                if let Some(press) = self.press.as_ref().filter(|_| presses) {
                    shell.publish(press.clone());
                    shell.capture_event();
                }
            }
            _ => {}
        }
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
        if tree.state.downcast_ref::<State>().focused && self.press.is_some() {
            let ring = border::rounded(RADIUS).width(RING).color((self.ring)(theme));
            let quad = renderer::Quad { bounds: layout.bounds().expand(RING), border: ring, shadow: Shadow::default(), snap: true };
            renderer.with_layer(viewport.expand(2.0 * RING), |renderer| renderer.fill_quad(quad, Color::TRANSPARENT));
        }
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

impl<'a, Message: Clone + 'a> From<Focusable<'a, Message>> for Element<'a, Message> {
    fn from(focusable: Focusable<'a, Message>) -> Self {
        Self::new(focusable)
    }
}

#[cfg(test)]
mod tests {
    use iced::widget::{button, column};
    use iced_test::simulator;

    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Pressed(u8);

    fn two<'a>() -> Element<'a, Pressed> {
        let one = |number: u8| focusable(button("press").on_press(Pressed(number)), Some(Pressed(number)), |theme| theme.palette().primary);
        let off = focusable(button("off"), None, |theme| theme.palette().primary);
        column![off, one(1), one(2)].into()
    }

    #[test]
    fn only_what_can_be_pressed_takes_focus_and_keys_press_only_the_focused_one() {
        let mut ui = simulator(two());
        let _ = ui.tap_key(key::Named::Enter);
        assert_eq!(ui.into_messages().collect::<Vec<_>>(), []);
        let mut ui = simulator(two());
        let _ = ui.click("press").unwrap();
        assert_eq!(ui.into_messages().collect::<Vec<_>>(), [Pressed(1)]);
    }

    /// A renderer without a window.
    fn renderer() -> Renderer {
        let made = <Renderer as renderer::Headless>::new(iced::Font::DEFAULT, 16.0.into(), Some("tiny-skia"));
        let std::task::Poll::Ready(made) = std::pin::pin!(made).poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) else {
            panic!("a software renderer waits for nothing");
        };
        made.unwrap()
    }

    #[test]
    fn the_focused_one_is_pressed_by_enter_and_by_the_space_bar() {
        use operation::Focusable as _;
        for named in [key::Named::Enter, key::Named::Space] {
            let mut element = two();
            let mut tree = Tree::new(&element);
            tree.children[2].state.downcast_mut::<State>().focus();
            let renderer = renderer();
            let layout = element.as_widget_mut().layout(&mut tree, &renderer, &layout::Limits::new(Size::ZERO, Size::new(200.0, 200.0)));
            let event = Event::Keyboard(keyboard::Event::KeyPressed {
                key: keyboard::Key::Named(named),
                modified_key: keyboard::Key::Named(named),
                physical_key: key::Physical::Unidentified(key::NativeCode::Unidentified),
                location: keyboard::Location::Standard,
                modifiers: keyboard::Modifiers::empty(),
                text: None,
                repeat: false,
            });
            let mut messages = Vec::new();
            let mut shell = Shell::new(&mut messages);
            let (cursor, mut clipboard) = (mouse::Cursor::Unavailable, iced::advanced::clipboard::Null);
            let bounds = Rectangle::with_size(Size::new(200.0, 200.0));
            element.as_widget_mut().update(&mut tree, &event, Layout::new(&layout), cursor, &renderer, &mut clipboard, &mut shell, &bounds);
            assert_eq!(messages, [Pressed(2)]);
        }
    }
}
