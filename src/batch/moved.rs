//! Rows that moved to another key with columns that the log left out: their values are those that the row had under
//! the key before, at the moment at which it moved.

use std::collections::HashMap;

use arrow::array::{BooleanArray, RecordBatch};
use arrow::compute::take_record_batch;
use arrow::row::RowConverter;

use super::BatchError;
use super::combine::{self, Older, Part};
use super::held::gather;
use super::key::encode_keys;
use super::keyed::KeyedSlice;
use super::sorted::Block;
use crate::change::{Gaps, Moved, Operation};
use crate::schema::TableSchema;

/// Where rows were that are looked for in the table: row `rows[i]` of a slice was under the `i`-th key.
#[derive(Debug)]
pub struct MovedFrom {
    pub rows: Vec<usize>,
    /// Unique keys, ascending; the other columns are null.
    pub keys: Box<KeyedSlice>,
}

/// What the batch knows of rows at the moments at which they moved. Held in memory: a row's old key, and the columns of it that the
/// batch changed before it moved.
#[derive(Debug, Default)]
pub(super) struct MovedRows {
    /// Rows of blocks; those that moved away, and behind each what the batch knew of it.
    parts: Vec<Block>,
    /// By the sequence number of the delete.
    by_sequence: HashMap<u64, State>,
    bytes: usize,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// The delete, which has the key.
    key: combine::At,
    /// The row as it was, as far as the batch knows.
    row: Option<combine::At>,
}

/// How often a row may move within a batch: a bound on the work for one row, far above what programs do.
const MOVES_MAX: usize = 10_000;

impl MovedRows {
    /// Keeps what a block says of rows that moved away. Rows of one key are in one block.
    ///
    /// # Errors
    /// [`BatchError::Moved`] if they take more than `bytes_max`.
    pub fn note(
        &mut self,
        schema: &TableSchema,
        converter: &RowConverter,
        block: &Block,
        bytes_max: usize,
    ) -> Result<(), BatchError> {
        let Some(gaps) = &block.gaps else { return Ok(()) };
        let keys = encode_keys(converter, schema, &block.rows)?;
        let (mut picks, mut states) = (Vec::new(), Vec::new());
        for row in (0..block.operations.len()).filter(|row| gaps.get(*row).moved() == Moved::Away) {
            let is_same = |next: &usize| *next < keys.num_rows() && keys.row(*next) == keys.row(row);
            let before = Some(row + 1).filter(is_same).filter(|next| gaps.get(*next).moved() != Moved::Away);
            states.push((block.sequences[row], picks.len(), before.is_some()));
            picks.push((0, row));
            picks.extend(before.map(|before| (0, before)));
        }
        if picks.is_empty() {
            return Ok(());
        }
        let kept = combine::block(schema, &[Part::of(block)], &picks, &Older::new())?;
        self.bytes += kept.rows.get_array_memory_size() + kept.operations.len() * size_of::<(u64, State)>();
        if self.bytes > bytes_max {
            return Err(BatchError::Moved { table: schema.table.clone(), bytes_max });
        }
        let number = self.parts.len();
        self.by_sequence.extend(states.into_iter().map(|(sequence, at, has_row)| {
            (sequence, State { key: (number, at), row: has_row.then_some((number, at + 1)) })
        }));
        self.parts.push(kept);
        Ok(())
    }

    /// Gives rows that moved here the values that they had before, as far as the batch knows them, and tells where
    /// to look for the rest.
    pub fn resolve(
        &self,
        schema: &TableSchema,
        converter: &RowConverter,
        block: Block,
    ) -> Result<(Block, Option<MovedFrom>), BatchError> {
        let Some(gaps) = &block.gaps else { return Ok((block, None)) };
        let (mut older, mut looked_for) = (Older::new(), Vec::new());
        for row in 0..block.operations.len() {
            let gap = gaps.get(row);
            if gap.moved() != Moved::Here || !gap.is_open() {
                continue;
            }
            let (chain, root) = self.chain(gap.origin());
            older.insert(row, chain.into_iter().map(|(part, row)| (part + 1, row)).collect());
            looked_for.push((row, root));
        }
        if looked_for.is_empty() {
            return Ok((block, None));
        }
        let parts: Vec<Part<'_>> = std::iter::once(&block).chain(&self.parts).map(Part::of).collect();
        let picks: Vec<_> = (0..block.operations.len()).map(|row| (0, row)).collect();
        let mut filled = combine::block(schema, &parts, &picks, &older)?;
        let mut wanted = Vec::new();
        let mut gaps = Gaps::new(schema.columns.len());
        let mut roots = looked_for.into_iter().peekable();
        for row in 0..picks.len() {
            let mut gap =
                filled.gaps.as_ref().map_or_else(|| crate::change::Gap::none(schema.columns.len()), |g| g.get(row));
            if let Some((_, root)) = roots.next_if(|(wanted, _)| *wanted == row)
                && gap.is_open()
            {
                match root {
                    Some(root) if gap.moved() != Moved::Lost => {
                        gap.set_moved(Moved::Here);
                        wanted.push((row, root));
                    }
                    _ => gap.set_moved(Moved::Lost),
                }
            }
            gaps.push(&gap);
        }
        filled.gaps = gaps.slice(0, picks.len());
        let from = self.moved_from(schema, converter, &wanted)?;
        Ok((filled, from))
    }

    /// The rows that a row was before it moved, the newest first, and the key under which the table had it; `None`
    /// where that is not known.
    fn chain(&self, origin: u64) -> (Vec<combine::At>, Option<combine::At>) {
        let (mut rows, mut origin) = (Vec::new(), origin);
        for _ in 0..MOVES_MAX {
            // The delete stands just before the row that moved.
            let Some(state) = origin.checked_sub(1).and_then(|delete| self.by_sequence.get(&delete)) else { break };
            let Some(row) = state.row else { return (rows, Some(state.key)) };
            rows.push(row);
            let part = &self.parts[row.0];
            let gap = part.gaps.as_ref().map(|gaps| gaps.get(row.1));
            match gap.filter(|gap| gap.is_open()) {
                Some(gap) if gap.moved() == Moved::Here => origin = gap.origin(),
                Some(gap) if gap.moved() == Moved::No && part.operations[row.1] == Operation::Update => {
                    return (rows, Some(state.key));
                }
                _ => return (rows, None),
            }
        }
        (rows, None)
    }

    /// The keys at `wanted`, ascending.
    fn moved_from(
        &self,
        schema: &TableSchema,
        converter: &RowConverter,
        wanted: &[(usize, combine::At)],
    ) -> Result<Option<MovedFrom>, BatchError> {
        if wanted.is_empty() {
            return Ok(None);
        }
        let failed = |source| BatchError::Columns { table: schema.table.clone(), source };
        let batches: Vec<&RecordBatch> = self.parts.iter().map(|part| &part.rows).collect();
        let picks: Vec<_> = wanted.iter().map(|(_, at)| *at).collect();
        let rows = gather(schema, &batches, &picks)?;
        let encoded = encode_keys(converter, schema, &rows)?;
        let mut order: Vec<u32> = (0..picks.len() as u32).collect();
        order.sort_by(|a, b| encoded.row(*a as usize).cmp(&encoded.row(*b as usize)));
        let rows = take_record_batch(&rows, &arrow::array::UInt32Array::from(order.clone())).map_err(failed)?;
        let keys = encode_keys(converter, schema, &rows)?;
        let deleted = BooleanArray::from(vec![false; order.len()]);
        let rows_of: Vec<usize> = order.iter().map(|index| wanted[*index as usize].0).collect();
        let keys = KeyedSlice { rows, deleted, keys, gaps: None, moved_from: None };
        Ok(Some(MovedFrom { rows: rows_of, keys: Box::new(keys) }))
    }
}
