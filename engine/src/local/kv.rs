//! The KV cache: what the model has read, as keys and values, in buffers that grow by doubling.

use candle_core::{DType, Device, Result, Tensor};

/// Positions of the first buffer; each following one is twice as long, up to the context.
const FIRST: usize = 256;

/// Shape of one block's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Heads of keys and values.
    pub heads: usize,
    /// Numbers per head and position.
    pub width: usize,
    /// Most positions.
    pub context: usize,
}

/// Keys and values of one block, each `[heads, capacity, width]`; positions from `len` on are unused.
#[derive(Debug)]
struct Lane {
    keys: Tensor,
    values: Tensor,
}

/// The keys and values of every block for the positions `0..len()`.
///
/// Blocks are appended one after the other within a step; the step counts once [`Cache::commit`] ends it. A step that
/// fails or is stopped leaves the cache as it was.
#[derive(Debug)]
pub struct Cache {
    shape: Shape,
    lanes: Vec<Lane>,
    capacity: usize,
    len: usize,
}

impl Cache {
    /// An empty cache for this many blocks.
    pub fn new(blocks: usize, shape: Shape) -> Result<Self> {
        let capacity = FIRST.min(shape.context);
        let lanes = (0..blocks).map(|_| Lane::new(shape, capacity)).collect::<Result<Vec<_>>>()?;
        Ok(Self { shape, lanes, capacity, len: 0 })
    }

    /// Positions it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds nothing.
    #[must_use]
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets everything from position `len` on; a longer `len` changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Forgets everything.
    #[cfg_attr(not(test), expect(dead_code, reason = "requests append and truncate so far; branches of a conversation will need it"))]
    pub fn reset(&mut self) {
        self.len = 0;
    }

    /// An independent copy.
    #[cfg_attr(not(test), expect(dead_code, reason = "requests append and truncate so far; branches of a conversation will need it"))]
    pub fn fork(&self) -> Result<Self> {
        let lanes = self.lanes.iter().map(|lane| lane.resized(self.shape, self.capacity, self.len)).collect::<Result<Vec<_>>>()?;
        Ok(Self { shape: self.shape, lanes, capacity: self.capacity, len: self.len })
    }

    /// Makes room for `more` positions.
    pub fn reserve(&mut self, more: usize) -> Result<()> {
        let needed = self.len + more;
        if needed > self.shape.context {
            candle_core::bail!("{needed} positions do not fit a context of {}", self.shape.context);
        }
        if needed <= self.capacity {
            return Ok(());
        }
        let capacity = needed.next_power_of_two().max(FIRST).min(self.shape.context);
        for lane in &mut self.lanes {
            *lane = lane.resized(self.shape, capacity, self.len)?;
        }
        self.capacity = capacity;
        Ok(())
    }

    /// Writes keys and values `[heads, n, width]` of one block behind the committed positions and returns all of them,
    /// `[heads, len + n, width]`, as views without a copy.
    pub fn append(&self, block: usize, keys: &Tensor, values: &Tensor) -> Result<(Tensor, Tensor)> {
        let Some(lane) = self.lanes.get(block) else { candle_core::bail!("there is no block {block}") };
        let count = keys.dim(1)?;
        lane.keys.slice_set(&keys.contiguous()?, 1, self.len)?;
        lane.values.slice_set(&values.contiguous()?, 1, self.len)?;
        Ok((lane.keys.narrow(1, 0, self.len + count)?, lane.values.narrow(1, 0, self.len + count)?))
    }

    /// Counts the positions that every block has appended.
    pub fn commit(&mut self, count: usize) {
        self.len = (self.len + count).min(self.capacity);
    }
}

impl Lane {
    fn new(shape: Shape, capacity: usize) -> Result<Self> {
        let zeros = || Tensor::zeros((shape.heads, capacity, shape.width), DType::F32, &Device::Cpu);
        Ok(Self { keys: zeros()?, values: zeros()? })
    }

    fn resized(&self, shape: Shape, capacity: usize, len: usize) -> Result<Self> {
        let lane = Self::new(shape, capacity)?;
        if len > 0 {
            lane.keys.slice_set(&self.keys.narrow(1, 0, len)?.contiguous()?, 1, 0)?;
            lane.values.slice_set(&self.values.narrow(1, 0, len)?.contiguous()?, 1, 0)?;
        }
        Ok(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { heads: 2, width: 4, context: 1000 };

    fn step(cache: &mut Cache, count: usize, mark: f32) -> Tensor {
        cache.reserve(count).unwrap();
        let fresh = Tensor::full(mark, (2, count, 4), &Device::Cpu).unwrap();
        let (keys, _) = cache.append(0, &fresh, &fresh).unwrap();
        cache.commit(count);
        keys
    }

    fn marks(keys: &Tensor) -> Vec<f32> {
        keys.narrow(0, 1, 1).unwrap().narrow(2, 3, 1).unwrap().flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn growth_keeps_what_was_read() {
        let mut cache = Cache::new(1, SHAPE).unwrap();
        let _ = step(&mut cache, 200, 1.0);
        let keys = step(&mut cache, 200, 2.0);
        assert_eq!(cache.len(), 400);
        assert_eq!(marks(&keys), [[1.0; 200], [2.0; 200]].concat());
    }

    #[test]
    fn truncate_forgets_the_end_only() {
        let mut cache = Cache::new(1, SHAPE).unwrap();
        let _ = step(&mut cache, 3, 1.0);
        cache.truncate(2);
        cache.truncate(9);
        assert_eq!(marks(&step(&mut cache, 2, 2.0)), [1.0, 1.0, 2.0, 2.0]);
        cache.reset();
        assert!(cache.is_empty());
    }

    #[test]
    fn a_fork_does_not_see_later_steps() {
        let mut cache = Cache::new(1, SHAPE).unwrap();
        let _ = step(&mut cache, 2, 1.0);
        let mut fork = cache.fork().unwrap();
        let _ = step(&mut cache, 1, 2.0);
        assert_eq!(marks(&step(&mut fork, 1, 3.0)), [1.0, 1.0, 3.0]);
        assert_eq!(marks(&step(&mut cache, 1, 4.0)), [1.0, 1.0, 2.0, 4.0]);
    }

    #[test]
    fn the_context_is_the_limit() {
        let mut cache = Cache::new(1, SHAPE).unwrap();
        assert!(cache.reserve(1000).is_ok());
        assert!(cache.reserve(1001).is_err());
    }
}
