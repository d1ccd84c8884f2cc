//! A bar for work whose end is not known: a piece of it moves, so that one sees that something happens.

use std::time::{Duration, Instant};

use iced::advanced::widget::{Tree, tree};
use iced::advanced::{Clipboard, Layout, Renderer as _, Shell, Widget, layout, mouse, renderer};
use iced::{Color, Element, Event, Length, Rectangle, Renderer, Shadow, Size, Theme, border, window};

/// How long the piece takes from one end to the other.
const ROUND: Duration = Duration::from_millis(1600);
/// Time between two frames: this is no film.
const FRAME: Duration = Duration::from_millis(50);
/// Part of the bar that moves.
const PIECE: f32 = 0.3;

/// The bar.
///
/// ```
/// use handrail_widgets::pulse;
/// use iced::{Color, Element};
///
/// fn view<'a>() -> Element<'a, ()> {
///     pulse(6.0, Color::BLACK, Color::WHITE).into()
/// }
/// # let _ = view();
/// ```
#[derive(Debug)]
pub struct Pulse {
    girth: f32,
    piece: Color,
    ground: Color,
}

/// A bar of this height; `piece` moves over `ground`.
#[must_use]
pub const fn pulse(girth: f32, piece: Color, ground: Color) -> Pulse {
    Pulse { girth, piece, ground }
}

struct State {
    start: Instant,
    now: Instant,
}

impl<Message> Widget<Message, Theme, Renderer> for Pulse {
    fn size(&self) -> Size<Length> {
        Size::new(Length::Fill, Length::Fixed(self.girth))
    }

    fn tag(&self) -> tree::Tag {
        tree::Tag::of::<State>()
    }

    fn state(&self) -> tree::State {
        let now = Instant::now();
        tree::State::new(State { start: now, now })
    }

    fn layout(&mut self, _tree: &mut Tree, _renderer: &Renderer, limits: &layout::Limits) -> layout::Node {
        layout::atomic(limits, Length::Fill, Length::Fixed(self.girth))
    }

    fn update(
        &mut self,
        tree: &mut Tree,
        event: &Event,
        _layout: Layout<'_>,
        _cursor: mouse::Cursor,
        _renderer: &Renderer,
        _clipboard: &mut dyn Clipboard,
        shell: &mut Shell<'_, Message>,
        _viewport: &Rectangle,
    ) {
        if let Event::Window(window::Event::RedrawRequested(now)) = event {
            tree.state.downcast_mut::<State>().now = *now;
            shell.request_redraw_at(*now + FRAME);
        }
    }

    fn draw(
        &self,
        tree: &Tree,
        renderer: &mut Renderer,
        _theme: &Theme,
        _style: &renderer::Style,
        layout: Layout<'_>,
        _cursor: mouse::Cursor,
        _viewport: &Rectangle,
    ) {
        let state = tree.state.downcast_ref::<State>();
        let bounds = layout.bounds();
        let quad = |bounds| renderer::Quad { bounds, border: border::rounded(self.girth / 2.0), shadow: Shadow::default(), snap: true };
        renderer.fill_quad(quad(bounds), self.ground);
        let (from, to) = piece(state.now.saturating_duration_since(state.start));
        let bar = Rectangle { x: bounds.x + from * bounds.width, width: (to - from) * bounds.width, ..bounds };
        renderer.fill_quad(quad(bar), self.piece);
    }
}

/// Where the piece is after a time, as shares of the bar: it goes to the end and comes back.
fn piece(after: Duration) -> (f32, f32) {
    let round = ROUND.as_millis();
    let share = (after.as_millis() % (2 * round)) as f32 / round as f32;
    let share = if share > 1.0 { 2.0 - share } else { share };
    let from = share * (1.0 - PIECE);
    (from, from + PIECE)
}

impl<'a, Message: 'a> From<Pulse> for Element<'a, Message> {
    fn from(pulse: Pulse) -> Self {
        Self::new(pulse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_piece_stays_on_the_bar_and_comes_back() {
        assert_eq!(piece(Duration::ZERO), (0.0, PIECE));
        let (from, to) = piece(ROUND);
        assert!((from - (1.0 - PIECE)).abs() < 1e-4 && (to - 1.0).abs() < 1e-4);
        assert_eq!(piece(2 * ROUND), (0.0, PIECE));
        for step in 0..200 {
            let (from, to) = piece(Duration::from_millis(step * 37));
            assert!(from >= 0.0 && to <= 1.0001 && to > from);
        }
    }
}
