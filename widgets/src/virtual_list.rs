//! A vertical list of items with unknown heights that builds, lays out and draws only what is on screen.
//!
//! The list keeps an anchor: the item at the top of the view, or the end, where it also begins unless told otherwise. Heights are those of the real layout as
//! soon as an item was on screen once, so nothing jumps when items above change; a reader at the end stays at the
//! end while the last item grows, and a reader anywhere else is never moved.

mod state;

use std::ops::Range;

use iced::advanced::widget::{Operation, Tree, tree};
use iced::advanced::{Clipboard, Layout, Renderer as _, Shell, Widget, layout, mouse, overlay, renderer};
use iced::keyboard::{self, key};
use iced::{Color, Element, Event, Length, Point, Rectangle, Renderer, Size, Theme, Vector, border, window};

use state::{Geometry, State};

/// Pixels that one notch of a mouse wheel scrolls.
const LINE: f32 = 60.0;
/// Width of the bar at the right edge.
const BAR: f32 = 6.0;
/// Shortest scroller.
const SCROLLER: f32 = 32.0;

/// A windowed list.
///
/// ```
/// use handrail_widgets::virtual_list;
/// use iced::{Element, widget::text};
///
/// fn view<'a>() -> Element<'a, ()> {
///     virtual_list((0..10_000).collect(), |index| text!("row {index}").into()).spacing(8.0).max_width(760.0).into()
/// }
/// # let _ = view();
/// ```
pub struct VirtualList<'a, Message> {
    id: Option<iced::widget::Id>,
    from_start: bool,
    keys: Vec<u64>,
    view: Box<dyn Fn(usize) -> Element<'a, Message> + 'a>,
    spacing: f32,
    padding: f32,
    max_width: f32,
    scroller: Color,
    on_end: Option<Box<dyn Fn(bool) -> Message + 'a>>,
    on_shown: Option<Box<dyn Fn(Range<usize>) -> Message + 'a>>,
    shown: Vec<Element<'a, Message>>,
}

/// A list of one item per key; `view` builds the item at an index. Keys are unique and stay with their items.
pub fn virtual_list<'a, Message>(keys: Vec<u64>, view: impl Fn(usize) -> Element<'a, Message> + 'a) -> VirtualList<'a, Message> {
    VirtualList {
        id: None,
        from_start: false,
        keys,
        view: Box::new(view),
        spacing: 0.0,
        padding: 0.0,
        max_width: f32::INFINITY,
        scroller: Color::from_rgba8(128, 128, 128, 0.5),
        on_end: None,
        on_shown: None,
        shown: Vec::new(),
    }
}

impl<'a, Message> VirtualList<'a, Message> {
    /// Names the list for scroll operations; snapping to a relative offset of 1 goes to the end and stays there. A list of
    /// another name in the same place begins anew.
    #[must_use]
    pub fn id(mut self, id: impl Into<iced::widget::Id>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Begins at the first item instead of the end.
    #[must_use]
    pub fn from_start(mut self) -> Self {
        self.from_start = true;
        self
    }

    /// Space between items.
    #[must_use]
    pub fn spacing(mut self, spacing: f32) -> Self {
        self.spacing = spacing;
        self
    }

    /// Space around the items on all sides.
    #[must_use]
    pub fn padding(mut self, padding: f32) -> Self {
        self.padding = padding;
        self
    }

    /// Widest item; items are centred.
    #[must_use]
    pub fn max_width(mut self, width: f32) -> Self {
        self.max_width = width;
        self
    }

    /// Colour of the scroller.
    #[must_use]
    pub fn scroller(mut self, color: Color) -> Self {
        self.scroller = color;
        self
    }

    /// Says when the reader reaches or leaves the end.
    #[must_use]
    pub fn on_end(mut self, message: impl Fn(bool) -> Message + 'a) -> Self {
        self.on_end = Some(Box::new(message));
        self
    }

    /// Says which items are on screen, by index, when that changes. An item that is not is not even built, so it cannot
    /// say itself that it was hidden.
    #[must_use]
    pub fn on_shown(mut self, message: impl Fn(Range<usize>) -> Message + 'a) -> Self {
        self.on_shown = Some(Box::new(message));
        self
    }

    fn geometry(&self, size: Size) -> Geometry {
        let width = (size.width - 2.0 * self.padding - BAR).clamp(1.0, self.max_width.max(1.0));
        Geometry { size, width, spacing: self.spacing, padding: self.padding }
    }

    /// Handles what the items left: wheel, keys and the scroller.
    fn scrolled(&self, state: &mut State, event: &Event, bounds: Rectangle, cursor: mouse::Cursor) -> bool {
        match event {
            Event::Mouse(mouse::Event::WheelScrolled { delta }) if cursor.is_over(bounds) => {
                let lines = match delta {
                    mouse::ScrollDelta::Lines { y, .. } => -y * LINE,
                    mouse::ScrollDelta::Pixels { y, .. } => -y,
                };
                state.scroll(lines)
            }
            Event::Mouse(mouse::Event::ButtonPressed(mouse::Button::Left)) => match (cursor.position_over(bounds), scroller(state, bounds))
            {
                (Some(at), Some(bar)) if at.x >= bounds.x + bounds.width - 2.0 * BAR => {
                    state.grabbed = Some(if bar.contains(Point::new(bar.x, at.y)) { at.y - bar.y } else { bar.height / 2.0 });
                    state.drag_to(&self.keys, at.y - bounds.y, bounds.height, bar.height)
                }
                _ => false,
            },
            Event::Mouse(mouse::Event::CursorMoved { position }) if state.grabbed.is_some() => {
                let height = scroller(state, bounds).map_or(SCROLLER, |bar| bar.height);
                state.drag_to(&self.keys, position.y - bounds.y, bounds.height, height)
            }
            Event::Mouse(mouse::Event::ButtonReleased(mouse::Button::Left)) => state.grabbed.take().is_some(),
            Event::Keyboard(keyboard::Event::KeyPressed { key: keyboard::Key::Named(named), .. }) => match named {
                key::Named::PageUp => state.scroll(-bounds.height * 0.9),
                key::Named::PageDown => state.scroll(bounds.height * 0.9),
                key::Named::Home => state.jump(0.0),
                key::Named::End => state.go_to_end(),
                _ => false,
            },
            _ => false,
        }
    }
}

/// Where the scroller is, when there is more than fits.
fn scroller(state: &State, bounds: Rectangle) -> Option<Rectangle> {
    (state.content > bounds.height + 1.0).then(|| {
        let height = (bounds.height * bounds.height / state.content).clamp(SCROLLER.min(bounds.height), bounds.height);
        let share = (state.position / (state.content - bounds.height)).clamp(0.0, 1.0);
        Rectangle { x: bounds.x + bounds.width - BAR - 2.0, y: bounds.y + share * (bounds.height - height), width: BAR, height }
    })
}

impl<Message> Widget<Message, Theme, Renderer> for VirtualList<'_, Message> {
    fn size(&self) -> Size<Length> {
        Size::new(Length::Fill, Length::Fill)
    }

    fn tag(&self) -> tree::Tag {
        tree::Tag::of::<State>()
    }

    fn state(&self) -> tree::State {
        tree::State::new(State::default())
    }

    fn diff(&self, _tree: &mut Tree) {
        // Items are built by the layout, so they are compared there.
    }

    fn layout(&mut self, tree: &mut Tree, renderer: &Renderer, limits: &layout::Limits) -> layout::Node {
        let size = limits.max();
        let geometry = self.geometry(size);
        let Tree { state, children, .. } = tree;
        let state = state.downcast_mut::<State>();
        if state.belongs_to(self.id.as_ref(), self.from_start) {
            children.clear();
        }
        let (items, nodes) = state.lay_out(&self.keys, &geometry, std::mem::take(children), self.view.as_ref(), renderer);
        self.shown.clear();
        for (element, tree) in items {
            self.shown.push(element);
            children.push(tree);
        }
        layout::Node::with_children(size, nodes)
    }

    fn operate(&mut self, tree: &mut Tree, layout: Layout<'_>, renderer: &Renderer, operation: &mut dyn Operation) {
        let bounds = layout.bounds();
        let state = tree.state.downcast_mut::<State>();
        let content = Rectangle { height: state.content.max(bounds.height), ..bounds };
        operation.scrollable(self.id.as_ref(), bounds, content, Vector::ZERO, state);
        operation.traverse(&mut |operation| {
            for ((item, tree), layout) in self.shown.iter_mut().zip(&mut tree.children).zip(layout.children()) {
                item.as_widget_mut().operate(tree, layout, renderer, operation);
            }
        });
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
        let bounds = layout.bounds();
        let Some(visible) = bounds.intersection(viewport) else { return };
        let inner = if cursor.is_over(bounds) { cursor } else { mouse::Cursor::Unavailable };
        let dragging = tree.state.downcast_ref::<State>().grabbed.is_some();
        if !dragging {
            for ((item, tree), layout) in self.shown.iter_mut().zip(&mut tree.children).zip(layout.children()) {
                item.as_widget_mut().update(tree, event, layout, inner, renderer, clipboard, shell, &visible);
            }
        }
        let state = tree.state.downcast_mut::<State>();
        if !shell.is_event_captured() && self.scrolled(state, event, bounds, cursor) {
            shell.capture_event();
        }
        if state.take_dirty() {
            shell.invalidate_layout();
            shell.request_redraw();
        }
        if !matches!(event, Event::Window(window::Event::RedrawRequested(_))) {
            return;
        }
        if let Some(on_end) = &self.on_end
            && let Some(at_end) = state.end_changed()
        {
            shell.publish(on_end(at_end));
        }
        if let Some(on_shown) = &self.on_shown
            && let Some(rows) = state.shown_changed(&self.keys)
        {
            shell.publish(on_shown(rows));
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
        if !cursor.is_over(layout.bounds()) {
            return mouse::Interaction::None;
        }
        let items = self.shown.iter().zip(&tree.children).zip(layout.children());
        items
            .map(|((item, tree), layout)| item.as_widget().mouse_interaction(tree, layout, cursor, viewport, renderer))
            .max()
            .unwrap_or_default()
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
        let bounds = layout.bounds();
        let Some(visible) = bounds.intersection(viewport) else { return };
        let inner = if cursor.is_over(bounds) { cursor } else { mouse::Cursor::Unavailable };
        renderer.with_layer(visible, |renderer| {
            for ((item, tree), layout) in self.shown.iter().zip(&tree.children).zip(layout.children()) {
                item.as_widget().draw(tree, renderer, theme, style, layout, inner, &visible);
            }
        });
        if let Some(bar) = scroller(tree.state.downcast_ref::<State>(), bounds) {
            renderer.with_layer(visible, |renderer| {
                let quad = renderer::Quad { bounds: bar, border: border::rounded(BAR / 2.0), ..renderer::Quad::default() };
                renderer.fill_quad(quad, self.scroller);
            });
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
        overlay::from_children(&mut self.shown, tree, layout, renderer, viewport, translation)
    }
}

impl<'a, Message: 'a> From<VirtualList<'a, Message>> for Element<'a, Message> {
    fn from(list: VirtualList<'a, Message>) -> Self {
        Self::new(list)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use iced::widget::{container, text};
    use iced_test::Simulator;

    use super::*;

    const VIEW: Size = Size::new(400.0, 300.0);

    fn list<'a>(count: u64, built: &Rc<Cell<usize>>) -> VirtualList<'a, ()> {
        let built = built.clone();
        virtual_list((0..count).collect(), move |index| {
            built.set(built.get() + 1);
            container(text!("row {index}")).height(20.0 + (index % 7) as f32 * 10.0).into()
        })
    }

    fn redraw(ui: &mut Simulator<'_, ()>) {
        let _ = ui.simulate([Event::Window(window::Event::RedrawRequested(iced::time::Instant::now()))]);
    }

    fn wheel(ui: &mut Simulator<'_, ()>, lines: f32) {
        ui.point_at(Point::new(100.0, 100.0));
        let delta = mouse::ScrollDelta::Lines { x: 0.0, y: lines };
        let _ = ui.simulate([Event::Mouse(mouse::Event::WheelScrolled { delta })]);
        redraw(ui);
    }

    #[test]
    fn a_thousand_items_build_only_what_is_on_screen_and_begin_at_the_end() {
        let built = Rc::new(Cell::new(0));
        let mut ui = Simulator::with_size(iced::Settings::default(), VIEW, list(1000, &built));
        assert!(ui.find("row 999").is_ok());
        assert!(ui.find("row 0").is_err());
        assert!(built.get() < 30, "{} built", built.get());
    }

    #[test]
    fn a_list_begins_at_the_start_where_it_wants_to_also_when_it_grows() {
        let built = Rc::new(Cell::new(0));
        let mut ui = Simulator::with_size(iced::Settings::default(), VIEW, list(1000, &built).from_start());
        assert!(ui.find("row 0").is_ok() && ui.find("row 999").is_err());
        wheel(&mut ui, -5.0);
        assert!(ui.find("row 0").is_err());
        let mut state = State::default();
        assert!(state.belongs_to(None, true) && !state.belongs_to(None, true));
        assert_eq!(state.anchor, state::Anchor::Pixels(0.0));
        assert!(state.belongs_to(Some(&iced::widget::Id::new("other")), false));
        assert_eq!(state.anchor, state::Anchor::End);
    }

    #[test]
    fn the_wheel_moves_by_pixels_and_the_ends_hold() {
        let built = Rc::new(Cell::new(0));
        let mut ui = Simulator::with_size(iced::Settings::default(), VIEW, list(100, &built));
        let before = ui.find("row 99").unwrap();
        wheel(&mut ui, 1.0);
        let after = ui.find("row 97").unwrap();
        let last = iced_test::selector::Bounded::bounds(&before);
        assert!(iced_test::selector::Bounded::bounds(&after).y > last.y - 120.0);
        wheel(&mut ui, 1000.0);
        let first = ui.find("row 0").unwrap();
        assert!(iced_test::selector::Bounded::bounds(&first).y.abs() < 0.5);
        wheel(&mut ui, -1000.0);
        let end = ui.find("row 99").unwrap();
        assert!((iced_test::selector::Bounded::bounds(&end).y - last.y).abs() < 0.5);
    }

    #[test]
    fn what_is_on_screen_is_told_when_it_changes() {
        let list = virtual_list((0..100).collect(), |index| container(text!("row {index}")).height(30.0).into());
        let mut ui = Simulator::with_size(iced::Settings::default(), VIEW, list.on_shown(|rows| rows));
        redraw_all(&mut ui);
        redraw_all(&mut ui);
        ui.point_at(Point::new(100.0, 100.0));
        let delta = mouse::ScrollDelta::Lines { x: 0.0, y: 1000.0 };
        let _ = ui.simulate([Event::Mouse(mouse::Event::WheelScrolled { delta })]);
        redraw_all(&mut ui);
        let told: Vec<Range<usize>> = ui.into_messages().collect();
        assert_eq!(told, [90..100, 0..11]);
    }

    fn redraw_all<Message>(ui: &mut Simulator<'_, Message>) {
        let _ = ui.simulate([Event::Window(window::Event::RedrawRequested(iced::time::Instant::now()))]);
    }

    #[test]
    fn few_items_start_at_the_top() {
        let built = Rc::new(Cell::new(0));
        let mut ui = Simulator::with_size(iced::Settings::default(), VIEW, list(2, &built).padding(12.0));
        let first = ui.find("row 0").unwrap();
        assert!((iced_test::selector::Bounded::bounds(&first).y - 12.0).abs() < 0.5);
    }
}
