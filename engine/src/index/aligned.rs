//! Numbers in memory that starts on a cache line, so that no wide load straddles two lines.

/// Numbers per line: 16 × 4 bytes are one 64-byte cache line.
pub(super) const LINE: usize = 16;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line<T>([T; LINE]);

/// What a line may hold: 4-byte plain numbers.
pub(super) trait Number: Copy + private::Sealed {}
impl Number for f32 {}
impl Number for u32 {}

mod private {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for u32 {}
}

/// A growing array of whole cache lines.
pub(super) struct Aligned<T> {
    lines: Vec<Line<T>>,
}

impl<T: Number> Aligned<T> {
    pub(super) fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Room for so many more numbers (whole lines). It grows by a quarter at a time: doubling would waste half the
    /// memory of a large collection.
    pub(super) fn extend(&mut self, numbers: usize, fill: T) {
        let more = numbers.div_ceil(LINE);
        if self.lines.capacity() - self.lines.len() < more {
            self.lines.reserve_exact(more.max(self.lines.len() / 4));
        }
        self.lines.resize(self.lines.len() + more, Line([fill; LINE]));
    }

    /// Makes room in one step when the final size is known.
    pub(super) fn reserve(&mut self, numbers: usize) {
        self.lines.reserve_exact(numbers.div_ceil(LINE));
    }

    #[allow(unsafe_code)]
    pub(super) fn as_slice(&self) -> &[T] {
        // SAFETY: `Line<T>` is `repr(C)` over `[T; 16]` with T of 4 bytes, so size equals alignment (64) and there is no
        // padding; the pointer and length are those of a live Vec, borrowed for as long as the result.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast::<T>(), self.lines.len() * LINE) }
    }

    #[allow(unsafe_code)]
    pub(super) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`; the exclusive borrow of self makes the result the only access.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast::<T>(), self.lines.len() * LINE) }
    }

    pub(super) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line<T>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_cache_line_and_keeps_numbers() {
        let mut numbers = Aligned::<u32>::new();
        numbers.extend(1, 7);
        numbers.extend(33, 9);
        assert_eq!(numbers.as_slice().len(), 16 + 48);
        assert_eq!(numbers.as_slice().as_ptr() as usize % 64, 0);
        numbers.as_mut_slice()[16] = 1;
        assert_eq!((numbers.as_slice()[0], numbers.as_slice()[16], numbers.as_slice()[63]), (7, 1, 9));
    }
}
