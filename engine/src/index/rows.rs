//! The vectors themselves: one contiguous block of rows, each a whole number of cache lines, and which id sits where.

use std::collections::HashMap;

use super::aligned::{Aligned, LINE};
use super::metric::Metric;
use super::persist::{Reader, Writer};
use super::{Error, VectorId};

/// A row's number. 31 bits: the graph walk uses the highest bit as a mark.
pub(super) type Slot = u32;

/// The most rows of one index.
pub(super) const SLOT_LIMIT: usize = (1 << 31) - 1;

/// A squared length this near to 1 counts as normalised and is stored bit for bit.
const UNIT_TOLERANCE: f64 = 1e-3;

/// Rows with ids. A removed row is zeroed and used again by the next insertion.
pub(super) struct Rows {
    dimension: usize,
    stride: usize,
    numbers: Aligned<f32>,
    ids: Vec<VectorId>,
    live: Vec<bool>,
    free: Vec<Slot>,
    slots: HashMap<VectorId, Slot>,
}

impl Rows {
    pub(super) fn new(dimension: usize) -> Self {
        let stride = dimension.max(1).next_multiple_of(LINE);
        Self { dimension, stride, numbers: Aligned::new(), ids: Vec::new(), live: Vec::new(), free: Vec::new(), slots: HashMap::new() }
    }

    pub(super) fn reserve(&mut self, rows: usize) {
        self.numbers.reserve(rows * self.stride);
        self.ids.reserve_exact(rows);
        self.live.reserve_exact(rows);
        self.slots.reserve(rows);
    }

    pub(super) fn dimension(&self) -> usize {
        self.dimension
    }

    /// Numbers per row, the padding of zeros included.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Live rows.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Rows, holes included.
    pub(super) fn slots(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn is_live(&self, slot: Slot) -> bool {
        self.live[slot as usize]
    }

    /// Live slots in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        (0..self.slots() as Slot).filter(|slot| self.is_live(*slot))
    }

    pub(super) fn id(&self, slot: Slot) -> VectorId {
        self.ids[slot as usize]
    }

    pub(super) fn slot(&self, id: VectorId) -> Option<Slot> {
        self.slots.get(&id).copied()
    }

    /// The padded row.
    #[inline]
    pub(super) fn row(&self, slot: Slot) -> &[f32] {
        let start = slot as usize * self.stride;
        &self.numbers.as_slice()[start..start + self.stride]
    }

    /// The row without its padding.
    pub(super) fn vector(&self, slot: Slot) -> &[f32] {
        &self.row(slot)[..self.dimension]
    }

    /// A checked, normalised, padded copy of a vector.
    pub(super) fn prepare(&self, vector: &[f32]) -> Result<Aligned<f32>, Error> {
        let length = squared_length(vector, self.dimension)?;
        let mut padded = Aligned::new();
        padded.extend(self.stride, 0.0);
        let row = &mut padded.as_mut_slice()[..self.dimension];
        row.copy_from_slice(vector);
        if length > 0.0 && (length - 1.0).abs() > UNIT_TOLERANCE {
            let scale = length.sqrt();
            for number in row {
                *number = (f64::from(*number) / scale) as f32;
            }
        }
        Ok(padded)
    }

    /// Stores a prepared vector under an id that is not there yet.
    pub(super) fn add(&mut self, id: VectorId, padded: &[f32]) -> Result<Slot, Error> {
        let slot = if let Some(slot) = self.free.pop() {
            self.ids[slot as usize] = id;
            self.live[slot as usize] = true;
            slot
        } else {
            if self.slots() >= SLOT_LIMIT {
                return Err(Error::Full { limit: SLOT_LIMIT });
            }
            self.numbers.extend(self.stride, 0.0);
            self.ids.push(id);
            self.live.push(true);
            (self.slots() - 1) as Slot
        };
        self.write(slot, padded);
        let _ = self.slots.insert(id, slot);
        Ok(slot)
    }

    /// Puts a prepared vector in the place of a live one.
    pub(super) fn write(&mut self, slot: Slot, padded: &[f32]) {
        let start = slot as usize * self.stride;
        self.numbers.as_mut_slice()[start..start + self.stride].copy_from_slice(&padded[..self.stride]);
    }

    /// Frees a live row and wipes it.
    pub(super) fn release(&mut self, slot: Slot) {
        let _ = self.slots.remove(&self.ids[slot as usize]);
        self.ids[slot as usize] = 0;
        self.live[slot as usize] = false;
        self.free.push(slot);
        let start = slot as usize * self.stride;
        self.numbers.as_mut_slice()[start..start + self.stride].fill(0.0);
    }

    /// Inner products of a prepared query with some rows.
    #[inline]
    pub(super) fn scores(&self, metric: Metric, query: &[f32], slots: &[Slot], mut each: impl FnMut(Slot, f32)) {
        let (fours, rest) = slots.as_chunks::<4>();
        for four in fours {
            let scores = metric.dot4(query, four.map(|slot| self.row(slot)));
            for (slot, score) in four.iter().zip(scores) {
                each(*slot, score);
            }
        }
        for slot in rest {
            each(*slot, metric.dot(query, self.row(*slot)));
        }
    }

    /// Writes the live rows: their ids, then their numbers.
    pub(super) fn save(&self, writer: &mut Writer) -> Result<(), Error> {
        writer.section(self.iter().map(|slot| self.id(slot).to_le_bytes()))?;
        writer.section(self.iter().flat_map(|slot| self.row(slot)).map(|number| number.to_le_bytes()))
    }

    /// Reads what `save` wrote and verifies that ids are unique and vectors normalised.
    pub(super) fn load(reader: &mut Reader) -> Result<Self, Error> {
        let count = reader.head.count;
        let mut rows = Self::new(reader.head.dimension);
        reader.expect(count as u64 * size_of::<VectorId>() as u64)?;
        rows.ids.reserve_exact(count);
        reader.section(count, |id| rows.ids.push(VectorId::from_le_bytes(id)))?;
        rows.slots = rows.ids.iter().zip(0..).map(|(id, slot)| (*id, slot)).collect();
        if rows.slots.len() != count {
            return Err(reader.damaged("an id occurs twice"));
        }
        rows.live = vec![true; count];
        let numbers = count.saturating_mul(rows.stride);
        reader.expect((numbers as u64).saturating_mul(4))?;
        rows.numbers.extend(numbers, 0.0);
        let mut places = rows.numbers.as_mut_slice().iter_mut();
        reader.section(numbers, |number| {
            if let Some(place) = places.next() {
                *place = f32::from_le_bytes(number);
            }
        })?;
        for slot in rows.iter() {
            let (vector, padding) = rows.row(slot).split_at(rows.dimension);
            let length = squared_length(vector, rows.dimension).unwrap_or(f64::NAN);
            let sound = length == 0.0 || (length - 1.0).abs() <= 2.0 * UNIT_TOLERANCE;
            if !sound || padding.iter().any(|number| *number != 0.0) {
                return Err(reader.damaged(&format!("vector {slot} is not normalised")));
            }
        }
        Ok(rows)
    }

    pub(super) fn bytes(&self) -> usize {
        let map = self.slots.capacity() * (size_of::<(VectorId, Slot)>() + 1);
        self.numbers.bytes() + self.ids.capacity() * size_of::<VectorId>() + self.live.capacity() + self.free.capacity() * 4 + map
    }
}

/// Checks a vector and gives its squared length.
fn squared_length(vector: &[f32], dimension: usize) -> Result<f64, Error> {
    if vector.len() != dimension {
        return Err(Error::Dimension { expected: dimension, found: vector.len() });
    }
    if let Some(position) = vector.iter().position(|number| !number.is_finite()) {
        return Err(Error::NotFinite { position });
    }
    Ok(vector.iter().map(|number| f64::from(*number) * f64::from(*number)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_normalised_once_and_zeros_stay() {
        let rows = Rows::new(3);
        assert_eq!(rows.prepare(&[3.0, 0.0, 4.0]).unwrap().as_slice()[..4], [0.6, 0.0, 0.8, 0.0]);
        assert_eq!(rows.prepare(&[0.0; 3]).unwrap().as_slice()[..3], [0.0; 3]);
        let near = [0.600_01, 0.0, 0.8];
        assert_eq!(rows.prepare(&near).unwrap().as_slice()[..3], near);
        let huge = rows.prepare(&[f32::MAX, 0.0, f32::MAX]).unwrap();
        assert!((huge.as_slice()[0] - 0.707_106_77).abs() < 1e-6);
        let tiny = rows.prepare(&[f32::MIN_POSITIVE, 0.0, 0.0]).unwrap();
        assert_eq!(tiny.as_slice()[0], 1.0);
    }

    #[test]
    fn wrong_vectors_are_named() {
        let rows = Rows::new(2);
        assert_eq!(rows.prepare(&[1.0]).err(), Some(Error::Dimension { expected: 2, found: 1 }));
        assert_eq!(rows.prepare(&[1.0, f32::NAN]).err(), Some(Error::NotFinite { position: 1 }));
        assert_eq!(rows.prepare(&[f32::INFINITY, 0.0]).err(), Some(Error::NotFinite { position: 0 }));
    }

    #[test]
    fn a_released_row_is_wiped_and_used_again() {
        let mut rows = Rows::new(2);
        let vector = rows.prepare(&[0.0, 1.0]).unwrap();
        let first = rows.add(10, vector.as_slice()).unwrap();
        let second = rows.add(11, vector.as_slice()).unwrap();
        rows.release(first);
        assert_eq!(rows.vector(first), [0.0, 0.0]);
        assert_eq!((rows.len(), rows.slots(), rows.slot(10)), (1, 2, None));
        assert_eq!(rows.add(12, vector.as_slice()).unwrap(), first);
        assert_eq!(rows.iter().collect::<Vec<_>>(), [first, second]);
    }
}
