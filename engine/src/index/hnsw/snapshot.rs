//! A graph to and from its snapshot. Holes are left out: a loaded graph is dense.

use std::path::Path;

use super::super::aligned::Aligned;
use super::super::persist::{Head, Kind, Label, Reader, Writer};
use super::super::rows::{Rows, Slot};
use super::super::{Error, Index};
use super::links::{Links, NONE, TOP_LEVEL};
use super::{Config, Hnsw};

impl Hnsw {
    /// Writes a snapshot; the file appears whole or not at all.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&self, path: &Path, label: &Label) -> Result<(), Error> {
        let mut dense = vec![NONE; self.rows.slots()];
        for (new, old) in self.rows.iter().enumerate() {
            dense[old as usize] = new as Slot;
        }
        let moved = |slot: Slot| dense.get(slot as usize).copied().unwrap_or(NONE).to_le_bytes();
        let upper = self.rows.iter().map(|slot| usize::from(self.links.level(slot)) * self.links.width(1)).sum();
        let head = Head {
            kind: Kind::Graph,
            dimension: self.dimension(),
            count: self.len(),
            label: label.clone(),
            links: self.config.links,
            build_breadth: self.config.build_breadth,
            seed: self.config.seed,
            random: self.random,
            entry: u32::from_le_bytes(moved(self.entry)),
            upper,
        };
        let mut writer = Writer::create(path, head)?;
        self.rows.save(&mut writer)?;
        writer.section(self.rows.iter().map(|slot| [self.links.level(slot)]))?;
        let padding = self.links.stride() - self.links.width(0);
        let base = self.rows.iter().flat_map(|slot| self.links.list(slot, 0).iter().copied().chain((0..padding).map(|_| NONE)));
        writer.section(base.map(moved))?;
        writer.section(self.rows.iter().map(|slot| moved(self.parents[slot as usize])))?;
        let above = self.rows.iter().flat_map(|slot| (1..=usize::from(self.links.level(slot))).map(move |layer| (slot, layer)));
        writer.section(above.flat_map(|(slot, layer)| self.links.list(slot, layer)).copied().map(moved))?;
        writer.finish()
    }

    /// Reads a snapshot and verifies all of it.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Damaged`], [`Error::Stale`], [`Error::Io`].
    pub fn load(path: &Path) -> Result<(Self, Label), Error> {
        let reader = Reader::open(path)?;
        let label = reader.head.label.clone();
        Self::read(reader).map(|graph| (graph, label))
    }

    pub(in super::super) fn read(mut reader: Reader) -> Result<Self, Error> {
        let head = reader.head.clone();
        let config = Config { links: head.links, build_breadth: head.build_breadth, seed: head.seed };
        if head.kind != Kind::Graph || config.clamped() != config {
            return Err(reader.damaged("not a graph, or one with impossible settings"));
        }
        let mut graph = Self::new(head.dimension, config);
        graph.rows = Rows::load(&mut reader)?;
        let mut levels = Vec::with_capacity(head.count);
        reader.section(head.count, |[level]: [u8; 1]| levels.push(level))?;
        let above: usize = levels.iter().map(|level| usize::from(*level) * graph.links.width(1)).sum();
        if above != head.upper || levels.iter().any(|level| *level > TOP_LEVEL) {
            return Err(reader.damaged("the levels do not fit"));
        }
        let mut base = Aligned::new();
        let numbers = head.count * graph.links.stride();
        reader.expect(numbers as u64 * 4)?;
        base.extend(numbers, NONE);
        let mut places = base.as_mut_slice().iter_mut();
        reader.section(numbers, |link| {
            if let Some(place) = places.next() {
                *place = Slot::from_le_bytes(link);
            }
        })?;
        graph.parents.reserve_exact(head.count);
        reader.section(head.count, |parent| graph.parents.push(Slot::from_le_bytes(parent)))?;
        let mut upper = Vec::with_capacity(head.upper);
        reader.section(head.upper, |link| upper.push(Slot::from_le_bytes(link)))?;
        graph.links = Links::from_parts(config.links, base, levels, upper);
        graph.entry = head.entry;
        graph.random = head.random;
        graph.check().map_err(|reason| reader.damaged(&reason))?;
        Ok(graph)
    }
}
