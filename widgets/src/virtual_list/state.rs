//! Where the reader is, which heights are known, and the layout that follows from both.

use std::collections::HashMap;
use std::ops::Range;

use iced::advanced::layout::{Limits, Node};
use iced::advanced::widget::Tree;
use iced::advanced::widget::operation::scrollable::{AbsoluteOffset, RelativeOffset, Scrollable};
use iced::widget::Id;
use iced::{Element, Point, Rectangle, Renderer, Size};

/// What the reader holds on to.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) enum Anchor {
    /// The end, wherever it moves.
    #[default]
    End,
    /// The item with this key: the top of the view is `offset` pixels below the item's top.
    Item { key: u64, offset: f32 },
    /// A place by estimated pixels, until the next layout turns it into an item.
    Pixels(f32),
    /// A share of the whole, until the next layout turns it into an item.
    Share(f32),
}

/// The measures of one layout.
pub(super) struct Geometry {
    pub(super) size: Size,
    pub(super) width: f32,
    pub(super) spacing: f32,
    pub(super) padding: f32,
}

/// What the list remembers between frames.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) anchor: Anchor,
    pub(super) content: f32,
    pub(super) position: f32,
    pub(super) grabbed: Option<f32>,
    heights: HashMap<u64, f32>,
    width: f32,
    spacing: f32,
    padding: f32,
    top: Option<(u64, f32)>,
    shown: Vec<u64>,
    dirty: bool,
    reported: Option<bool>,
    reported_shown: Vec<u64>,
    /// The list that this belongs to; another one in its place begins anew.
    owner: Option<Id>,
    from_start: bool,
}

/// One item that was laid out.
struct Item<'a, Message> {
    element: Element<'a, Message>,
    tree: Tree,
    node: Node,
}

/// Builds and measures items on demand, each at most once per layout.
struct Measure<'a, 'b, Message> {
    keys: &'b [u64],
    width: f32,
    view: &'b (dyn Fn(usize) -> Element<'a, Message> + 'a),
    renderer: &'b Renderer,
    trees: HashMap<u64, Tree>,
    items: HashMap<usize, Item<'a, Message>>,
}

impl<Message> Measure<'_, '_, Message> {
    fn height(&mut self, index: usize, heights: &mut HashMap<u64, f32>) -> f32 {
        let key = self.keys[index];
        let item = self.items.entry(index).or_insert_with(|| {
            let mut element = (self.view)(index);
            let mut tree = self.trees.remove(&key).unwrap_or_else(Tree::empty);
            tree.diff(element.as_widget());
            let limits = Limits::new(Size::ZERO, Size::new(self.width, f32::INFINITY));
            let node = element.as_widget_mut().layout(&mut tree, self.renderer, &limits);
            Item { element, tree, node }
        });
        let height = item.node.size().height;
        let _ = heights.insert(key, height);
        height
    }
}

/// The built items with their trees, and the placed nodes.
type LaidOut<'a, Message> = (Vec<(Element<'a, Message>, Tree)>, Vec<Node>);

impl State {
    /// A list begins where it wants to; whether this is another list than before.
    pub(super) fn belongs_to(&mut self, owner: Option<&Id>, from_start: bool) -> bool {
        if self.owner.as_ref() == owner && self.from_start == from_start {
            return false;
        }
        *self = Self { owner: owner.cloned(), from_start, ..Self::default() };
        self.anchor = self.home();
        true
    }

    /// Where a reader is who never scrolled.
    fn home(&self) -> Anchor {
        if self.from_start { Anchor::Pixels(0.0) } else { Anchor::End }
    }

    /// Scrolls by pixels, down when positive. Says whether there was anything to scroll.
    pub(super) fn scroll(&mut self, pixels: f32) -> bool {
        let Some((key, offset)) = self.top else { return false };
        if pixels == 0.0 || (self.anchor == Anchor::End && pixels > 0.0) {
            return false;
        }
        self.anchor = Anchor::Item { key, offset: offset + pixels };
        // Several events may come before the next layout.
        self.top = Some((key, offset + pixels));
        self.dirty = true;
        true
    }

    /// Goes to a place by pixels from the start.
    pub(super) fn jump(&mut self, pixels: f32) -> bool {
        self.anchor = Anchor::Pixels(pixels);
        self.dirty = true;
        true
    }

    /// Goes to the end and stays there.
    pub(super) fn go_to_end(&mut self) -> bool {
        self.anchor = Anchor::End;
        self.dirty = true;
        true
    }

    /// Follows the grabbed scroller.
    pub(super) fn drag_to(&mut self, keys: &[u64], y: f32, view: f32, scroller: f32) -> bool {
        let Some(grabbed) = self.grabbed else { return false };
        let share = ((y - grabbed) / (view - scroller).max(1.0)).clamp(0.0, 1.0);
        if keys.is_empty() {
            return false;
        }
        if share >= 0.999 { self.go_to_end() } else { self.jump(share * (self.content - view).max(0.0)) }
    }

    pub(super) fn take_dirty(&mut self) -> bool {
        std::mem::take(&mut self.dirty)
    }

    /// Whether the reader is at the end, when that is news.
    pub(super) fn end_changed(&mut self) -> Option<bool> {
        let at_end = self.anchor == Anchor::End;
        (self.reported.replace(at_end) != Some(at_end)).then_some(at_end)
    }

    /// The indices of the items that are on screen, when that is news.
    pub(super) fn shown_changed(&mut self, keys: &[u64]) -> Option<Range<usize>> {
        if self.shown == self.reported_shown {
            return None;
        }
        self.reported_shown.clone_from(&self.shown);
        let first = self.shown.first().and_then(|first| keys.iter().position(|key| key == first)).unwrap_or(0);
        Some(first..first + self.shown.len())
    }

    fn estimate(&self) -> f32 {
        if self.heights.is_empty() { 80.0 } else { self.heights.values().sum::<f32>() / self.heights.len() as f32 }
    }

    /// The item at an estimated place.
    fn item_at(&self, keys: &[u64], pixels: f32) -> Anchor {
        let estimate = self.estimate();
        let mut rest = pixels - self.padding;
        for key in keys {
            let height = self.heights.get(key).copied().unwrap_or(estimate) + self.spacing;
            if rest < height {
                return Anchor::Item { key: *key, offset: rest };
            }
            rest -= height;
        }
        Anchor::End
    }

    /// Lays out what is on screen.
    pub(super) fn lay_out<'a, Message>(
        &mut self,
        keys: &[u64],
        geometry: &Geometry,
        trees: Vec<Tree>,
        view: &(dyn Fn(usize) -> Element<'a, Message> + 'a),
        renderer: &Renderer,
    ) -> LaidOut<'a, Message> {
        if (self.width - geometry.width).abs() > 0.5 {
            self.heights.clear();
            self.width = geometry.width;
        }
        (self.spacing, self.padding) = (geometry.spacing, geometry.padding);
        let trees = std::mem::take(&mut self.shown).into_iter().zip(trees).collect();
        let mut measure = Measure { keys, width: geometry.width, view, renderer, trees, items: HashMap::new() };
        let first = self.settle(&mut measure, geometry);
        let placed = self.place(&mut measure, geometry, first);
        self.summarise(keys, geometry, first);
        let x = ((geometry.size.width - geometry.width) / 2.0).max(0.0);
        let mut items = Vec::with_capacity(placed.len());
        let mut nodes = Vec::with_capacity(placed.len());
        for (index, y) in placed {
            if let Some(item) = measure.items.remove(&index) {
                self.shown.push(keys[index]);
                items.push((item.element, item.tree));
                nodes.push(item.node.move_to(Point::new(x, y)));
            }
        }
        (items, nodes)
    }

    /// Finds the first item on screen and where its top is. Empty lists give nothing.
    fn settle<Message>(&mut self, measure: &mut Measure<'_, '_, Message>, geometry: &Geometry) -> Option<(usize, f32)> {
        let count = measure.keys.len();
        if count == 0 {
            self.anchor = self.home();
            return None;
        }
        match self.anchor {
            Anchor::Pixels(pixels) => self.anchor = self.item_at(measure.keys, pixels),
            Anchor::Share(share) if share >= 1.0 => self.anchor = Anchor::End,
            Anchor::Share(share) => self.anchor = self.item_at(measure.keys, share * (self.content - geometry.size.height).max(0.0)),
            Anchor::End | Anchor::Item { .. } => {}
        }
        if let Anchor::Item { key, offset } = self.anchor
            && let Some(index) = measure.keys.iter().position(|other| *other == key)
        {
            let (index, offset) = self.normalise(measure, geometry, index, offset);
            if !self.ends_within(measure, geometry, index, offset) {
                self.anchor = Anchor::Item { key: measure.keys[index], offset };
                return Some((index, -offset));
            }
        }
        let (index, y) = self.rest_on_end(measure, geometry);
        // Where all of it fits nobody scrolled to the end.
        let fits = index == 0 && y >= geometry.padding;
        self.anchor = if fits { self.home() } else { Anchor::End };
        Some((index, y))
    }

    /// Moves an anchor to the item that really is at the top.
    fn normalise<Message>(
        &mut self,
        measure: &mut Measure<'_, '_, Message>,
        geometry: &Geometry,
        mut index: usize,
        mut offset: f32,
    ) -> (usize, f32) {
        while offset < 0.0 && index > 0 {
            index -= 1;
            offset += measure.height(index, &mut self.heights) + geometry.spacing;
        }
        if index == 0 {
            offset = offset.max(-geometry.padding);
        }
        while index + 1 < measure.keys.len() {
            let height = measure.height(index, &mut self.heights) + geometry.spacing;
            if offset < height {
                break;
            }
            offset -= height;
            index += 1;
        }
        (index, offset)
    }

    /// Whether the last item's end is on screen.
    fn ends_within<Message>(&mut self, measure: &mut Measure<'_, '_, Message>, geometry: &Geometry, index: usize, offset: f32) -> bool {
        let mut y = -offset;
        for index in index..measure.keys.len() {
            y += measure.height(index, &mut self.heights) + geometry.spacing;
            if y > geometry.size.height {
                return false;
            }
        }
        y - geometry.spacing + geometry.padding <= geometry.size.height + 0.5
    }

    /// The first item on screen when the end is at the bottom; everything starts at the top when it fits.
    fn rest_on_end<Message>(&mut self, measure: &mut Measure<'_, '_, Message>, geometry: &Geometry) -> (usize, f32) {
        let mut y = geometry.size.height - geometry.padding + geometry.spacing;
        let mut index = measure.keys.len();
        while index > 0 && y > 0.0 {
            index -= 1;
            y -= measure.height(index, &mut self.heights) + geometry.spacing;
        }
        if index == 0 && y > geometry.padding { (0, geometry.padding) } else { (index, y) }
    }

    /// Stacks items from the first one to the bottom of the view.
    fn place<Message>(
        &mut self,
        measure: &mut Measure<'_, '_, Message>,
        geometry: &Geometry,
        first: Option<(usize, f32)>,
    ) -> Vec<(usize, f32)> {
        let mut placed = Vec::new();
        let Some((first, mut y)) = first else { return placed };
        for index in first..measure.keys.len() {
            if y > geometry.size.height {
                break;
            }
            placed.push((index, y));
            y += measure.height(index, &mut self.heights) + geometry.spacing;
        }
        placed
    }

    /// Sums up for the scroller.
    fn summarise(&mut self, keys: &[u64], geometry: &Geometry, first: Option<(usize, f32)>) {
        let estimate = self.estimate();
        let height = |key: &u64| self.heights.get(key).copied().unwrap_or(estimate) + geometry.spacing;
        let (index, y) = first.unwrap_or((0, 0.0));
        let before: f32 = keys[..index].iter().map(height).sum();
        let after: f32 = keys[index..].iter().map(height).sum();
        self.position = before - y + geometry.padding;
        self.content = before + after - geometry.spacing.min(before + after) + 2.0 * geometry.padding;
        self.top = keys.get(index).map(|key| (*key, -y));
    }
}

impl Scrollable for State {
    fn snap_to(&mut self, offset: RelativeOffset<Option<f32>>) {
        if let Some(share) = offset.y {
            self.anchor = Anchor::Share(share);
            self.dirty = true;
        }
    }

    fn scroll_to(&mut self, offset: AbsoluteOffset<Option<f32>>) {
        if let Some(pixels) = offset.y {
            let _ = self.jump(pixels);
        }
    }

    fn scroll_by(&mut self, offset: AbsoluteOffset, _bounds: Rectangle, _content_bounds: Rectangle) {
        let _ = self.scroll(offset.y);
    }
}
