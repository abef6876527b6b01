//! Several sorted runs as one, the last change of each key only.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow::row::{RowConverter, Rows};

use super::BatchError;
use super::combine::{self, Older, Part, Place, Walk};
use super::held::{RowWidths, used_bytes};
use super::key::encode_keys;
use super::sorted::{Block, BlockLimits, SortedRows};
use super::spill::Run;
use crate::change::Operation;
use crate::schema::TableSchema;

/// What a merge reads.
#[derive(Debug)]
pub(super) enum Input {
    Held(SortedRows, BlockLimits),
    Spilled { run: Run, next: usize },
}

impl Input {
    pub fn spilled(run: Run) -> Self {
        Self::Spilled { run, next: 0 }
    }

    fn next_block(&mut self, schema: &TableSchema) -> Result<Option<Block>, BatchError> {
        match self {
            Self::Held(sorted, limits) => sorted.next_block(schema, *limits),
            Self::Spilled { run, next } => {
                let block = run.read(schema, *next)?;
                *next += 1;
                Ok(block)
            }
        }
    }

    /// Reads all rows once more.
    fn rewind(&mut self) {
        match self {
            Self::Held(sorted, _) => sorted.rewind(),
            Self::Spilled { next, .. } => *next = 0,
        }
    }

    fn is_dead(&self, sequence: u64) -> bool {
        matches!(self, Self::Spilled { run, .. } if run.is_dead(sequence))
    }
}

/// A block that is being read, and the row it is at.
#[derive(Debug)]
struct Current {
    block: Arc<Block>,
    keys: Rows,
    widths: RowWidths,
    bytes: usize,
    row: usize,
    /// The block's number among those that the slice being made takes rows from.
    slot: Option<usize>,
}

impl Current {
    fn operation(&self) -> Operation {
        self.block.operations[self.row]
    }
}

#[derive(Debug)]
struct Cursor {
    input: Input,
    /// `None` at the end.
    current: Option<Current>,
}

impl Cursor {
    /// The key and sequence number of the present row; the end comes after everything.
    fn rank(&self) -> Option<(&[u8], u64)> {
        let current = self.current.as_ref()?;
        let sequence = current.block.sequences[current.row];
        Some((current.keys.row(current.row).data(), sequence))
    }

    fn cmp(&self, other: &Self) -> Ordering {
        match (self.rank(), other.rank()) {
            (Some((key, sequence)), Some((other_key, other_sequence))) => {
                key.cmp(other_key).then(other_sequence.cmp(&sequence))
            }
            (one, other) => one.is_none().cmp(&other.is_none()),
        }
    }
}

/// The rows that the next slice is made of.
#[derive(Debug, Default)]
struct Picks {
    blocks: Vec<Arc<Block>>,
    rows: Vec<combine::At>,
    older: Older,
    bytes: usize,
    /// Bytes of blocks that are held for this slice alone, having been read to their end.
    retired_bytes: usize,
}

impl Picks {
    fn is_full(&self, width: usize, limits: BlockLimits) -> bool {
        !self.rows.is_empty()
            && (self.rows.len() >= limits.rows_max
                || self.bytes + width > limits.bytes_max
                || self.retired_bytes > limits.bytes_max)
    }

    fn add(&mut self, current: &mut Current, place: Place) {
        if place == Place::Drop {
            return;
        }
        let slot = *current.slot.get_or_insert_with(|| {
            self.blocks.push(Arc::clone(&current.block));
            self.blocks.len() - 1
        });
        self.bytes += current.widths.of(current.row);
        match self.rows.len().checked_sub(1).filter(|_| place == Place::Fill) {
            Some(head) => self.older.entry(head).or_default().push((slot, current.row)),
            None => self.rows.push((slot, current.row)),
        }
    }
}

/// A running merge. Holds one block of each input, and what the slice being made needs.
#[derive(Debug)]
pub(super) struct Merge {
    cursors: Vec<Cursor>,
    /// A binary heap of numbers of cursors, the smallest first.
    heap: Vec<usize>,
    /// The key that was taken last. Its older changes are skipped. Empty before the first, as no key is.
    last_key: Vec<u8>,
    walk: Walk,
}

impl Merge {
    pub fn new(schema: &TableSchema, converter: &RowConverter, inputs: Vec<Input>) -> Result<Self, BatchError> {
        let cursors = inputs.into_iter().map(|input| Cursor { input, current: None }).collect::<Vec<_>>();
        let mut merge = Self { cursors, heap: Vec::new(), last_key: Vec::new(), walk: Walk::default() };
        merge.rewind(schema, converter)?;
        Ok(merge)
    }

    #[cfg(test)]
    pub fn inputs(&self) -> usize {
        self.cursors.len()
    }

    /// Reads all rows once more.
    pub fn rewind(&mut self, schema: &TableSchema, converter: &RowConverter) -> Result<(), BatchError> {
        self.last_key.clear();
        self.heap = (0..self.cursors.len()).collect();
        for number in 0..self.cursors.len() {
            self.cursors[number].input.rewind();
            self.open_block(schema, converter, number)?;
        }
        for at in (0..self.heap.len()).rev() {
            self.sift_down(at);
        }
        Ok(())
    }

    /// The next rows, each key once, or `None` after the last.
    pub fn next_block(
        &mut self,
        schema: &TableSchema,
        converter: &RowConverter,
        limits: BlockLimits,
    ) -> Result<Option<Block>, BatchError> {
        let mut picks = Picks::default();
        for cursor in &mut self.cursors {
            if let Some(current) = &mut cursor.current {
                current.slot = None;
            }
        }
        while let Some(top) = self.heap.first().copied() {
            let Some(current) = &mut self.cursors[top].current else { break };
            let key = current.keys.row(current.row).data();
            let is_new = self.last_key != key;
            if is_new {
                if picks.is_full(current.widths.of(current.row), limits) {
                    break;
                }
                self.last_key.clear();
                self.last_key.extend_from_slice(key);
            }
            let gap = current.block.gaps.as_ref().map(|gaps| gaps.get(current.row));
            let place = self.walk.step(is_new, current.operation(), gap.as_ref());
            picks.add(current, place);
            self.advance(schema, converter, top, &mut picks)?;
        }
        if picks.rows.is_empty() {
            return Ok(None);
        }
        let parts: Vec<_> = picks.blocks.iter().map(|block| Part::of(block)).collect();
        combine::block(schema, &parts, &picks.rows, &picks.older).map(Some)
    }

    /// Moves the first cursor of the heap on by one living row.
    fn advance(
        &mut self,
        schema: &TableSchema,
        converter: &RowConverter,
        top: usize,
        picks: &mut Picks,
    ) -> Result<(), BatchError> {
        let cursor = &mut self.cursors[top];
        if let Some(current) = &mut cursor.current {
            current.row += 1;
            if !skip_dead(&cursor.input, current) {
                picks.retired_bytes += current.slot.map_or(0, |_| current.bytes);
                self.open_block(schema, converter, top)?;
            }
        }
        self.sift_down(0);
        Ok(())
    }

    /// Opens the next block that has a living row.
    fn open_block(&mut self, schema: &TableSchema, converter: &RowConverter, number: usize) -> Result<(), BatchError> {
        let cursor = &mut self.cursors[number];
        cursor.current = None;
        while let Some(block) = cursor.input.next_block(schema)? {
            let keys = encode_keys(converter, schema, &block.rows)?;
            let widths = RowWidths::new(&block.rows);
            let bytes = used_bytes(&block.rows)
                .map_err(|source| BatchError::Columns { table: schema.table.clone(), source })?;
            let block = Arc::new(block);
            let mut current = Current { block, keys, widths, bytes, row: 0, slot: None };
            if skip_dead(&cursor.input, &mut current) {
                cursor.current = Some(current);
                break;
            }
        }
        Ok(())
    }

    fn sift_down(&mut self, mut at: usize) {
        loop {
            let children = [2 * at + 1, 2 * at + 2].into_iter().filter(|child| *child < self.heap.len());
            let Some(least) = children.min_by(|a, b| self.compare(*a, *b)) else { break };
            if self.compare(at, least) != Ordering::Greater {
                break;
            }
            self.heap.swap(at, least);
            at = least;
        }
    }

    fn compare(&self, one: usize, other: usize) -> Ordering {
        self.cursors[self.heap[one]].cmp(&self.cursors[self.heap[other]])
    }
}

/// Moves on to a row that was neither discarded nor truncated; false if the block has none left.
fn skip_dead(input: &Input, current: &mut Current) -> bool {
    while let Some(sequence) = current.block.sequences.get(current.row) {
        if !input.is_dead(*sequence) {
            return true;
        }
        current.row += 1;
    }
    false
}
