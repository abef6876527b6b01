//! Rows in memory in the order of their keys, without moving them.

use std::collections::{HashMap, HashSet};

use arrow::array::RecordBatch;
use arrow::row::{RowConverter, Rows};

use super::BatchError;
use super::combine::{self, Older, Part, Place, Sequences, Walk};
use super::held::{HeldRows, RowWidths};
use super::key::key_columns;
use crate::change::{Gaps, Operation};
use crate::schema::TableSchema;

/// Rows by ascending key and, within a key, descending sequence number.
#[derive(Debug)]
pub(super) struct Block {
    pub rows: RecordBatch,
    pub operations: Vec<Operation>,
    pub sequences: Vec<u64>,
    /// `None` where every row is whole.
    pub gaps: Option<Gaps>,
}

/// How large a block or slice may be: it ends before the row that would pass a limit, but has at least one.
#[derive(Debug, Clone, Copy)]
pub(super) struct BlockLimits {
    pub rows_max: usize,
    pub bytes_max: usize,
}

/// Held rows with the order in which they are to be read.
#[derive(Debug)]
pub(super) struct SortedRows {
    held: Vec<HeldRows>,
    widths: Vec<RowWidths>,
    /// The number of the first row of each of `held`.
    starts: Vec<u32>,
    /// Numbers of rows, by key, the later change first.
    order: Order,
    next: usize,
}

/// In which order rows are read.
#[derive(Debug, Default)]
struct Order {
    rows: Vec<u32>,
    /// By the number of a row, the numbers of older rows that fill its gaps.
    older: HashMap<u32, Vec<u32>>,
    /// Rows that say what a key was before its row moved away; they go with the row before them.
    history: HashSet<u32>,
}

impl SortedRows {
    /// Sorts `held` and drops each row that has a later change of the same key and the same group. `held` has
    /// ascending sequence numbers and at most `u32::MAX` rows; `group` tells which rows are kept or discarded
    /// together.
    pub fn new(
        schema: &TableSchema,
        converter: &RowConverter,
        held: Vec<HeldRows>,
        group: impl Fn(&HeldRows) -> u64,
    ) -> Result<Self, BatchError> {
        let mut starts = Vec::with_capacity(held.len());
        let mut rows = 0;
        for part in &held {
            starts.push(rows as u32);
            rows += part.operations.len();
        }
        let keys = encode(schema, converter, &held, rows)
            .map_err(|source| BatchError::Columns { table: schema.table.clone(), source })?;
        let groups: Vec<u64> = held.iter().map(group).collect();
        let one_group = groups.windows(2).all(|pair| pair[0] == pair[1]);
        let group_of = |row: u32| groups[part_of(&starts, row)];
        let gives_way = |one, other| one_group || group_of(one) == group_of(other);
        let order = if held.iter().all(|part| part.gaps.is_none()) {
            Order { rows: last_of_each(&keys, gives_way), ..Order::default() }
        } else {
            combined(&keys, &held, &starts, gives_way)
        };
        drop(keys);
        let widths = held.iter().map(|part| RowWidths::new(&part.rows)).collect();
        Ok(Self { held, widths, starts, order, next: 0 })
    }

    /// Reads all rows once more.
    pub fn rewind(&mut self) {
        self.next = 0;
    }

    /// The part of a row and its number in there.
    fn at(&self, row: u32) -> combine::At {
        let part = part_of(&self.starts, row);
        (part, (row - self.starts[part]) as usize)
    }

    /// The next rows, or `None` after the last.
    pub fn next_block(&mut self, schema: &TableSchema, limits: BlockLimits) -> Result<Option<Block>, BatchError> {
        let (mut picks, mut older) = (Vec::new(), Older::new());
        let mut bytes = 0;
        for row in &self.order.rows[self.next..] {
            let (part, index) = self.at(*row);
            let below = self.order.older.get(row).map_or(&[][..], Vec::as_slice);
            let below: Vec<combine::At> = below.iter().map(|row| self.at(*row)).collect();
            let width: usize = self.widths[part].of(index)
                + below.iter().map(|(part, row)| self.widths[*part].of(*row)).sum::<usize>();
            let is_full = picks.len() >= limits.rows_max || bytes + width > limits.bytes_max;
            if !picks.is_empty() && is_full && !self.order.history.contains(row) {
                break;
            }
            bytes += width;
            if !below.is_empty() {
                older.insert(picks.len(), below);
            }
            picks.push((part, index));
        }
        if picks.is_empty() {
            return Ok(None);
        }
        self.next += picks.len();
        let parts: Vec<_> = self.held.iter().map(as_part).collect();
        combine::block(schema, &parts, &picks, &older).map(Some)
    }
}

fn as_part(held: &HeldRows) -> Part<'_> {
    Part {
        rows: &held.rows,
        operations: &held.operations,
        gaps: held.gaps.as_ref(),
        sequences: Sequences::From(held.first_sequence),
    }
}

fn part_of(starts: &[u32], row: u32) -> usize {
    if starts.len() == 1 { 0 } else { starts.partition_point(|start| *start <= row) - 1 }
}

fn encode(
    schema: &TableSchema,
    converter: &RowConverter,
    held: &[HeldRows],
    rows: usize,
) -> Result<Rows, arrow::error::ArrowError> {
    let mut keys = converter.empty_rows(rows, 0);
    for part in held {
        converter.append(&mut keys, &key_columns(schema, &part.rows))?;
    }
    Ok(keys)
}

/// A row's number beside the first eight bytes of its key that are not the same in all keys: nearly all
/// comparisons end there, without a visit to the key itself.
#[derive(Clone, Copy)]
struct Entry {
    prefix: u64,
    row: u32,
}

/// The numbers of the rows by key, the later change first, without those that `gives_way` to the one before.
fn last_of_each(keys: &Rows, gives_way: impl Fn(u32, u32) -> bool) -> Vec<u32> {
    let skip = common_prefix(keys);
    let exact = keys.lengths().all(|length| length <= skip + 8);
    let entry = |(row, key): (usize, arrow::row::Row<'_>)| Entry { prefix: prefix(key.data(), skip), row: row as u32 };
    let mut entries: Vec<Entry> = keys.iter().enumerate().map(entry).collect();
    let key = |entry: &Entry| keys.row(entry.row as usize).data();
    if exact {
        entries.sort_unstable_by_key(|entry| (entry.prefix, !entry.row));
    } else {
        entries.sort_unstable_by(|a, b| {
            let by_key = a.prefix.cmp(&b.prefix).then_with(|| key(a).cmp(key(b)));
            by_key.then(b.row.cmp(&a.row))
        });
    }
    let same_key = |a: &Entry, b: &Entry| a.prefix == b.prefix && (exact || key(a) == key(b));
    entries.dedup_by(|older, newer| same_key(older, newer) && gives_way(older.row, newer.row));
    entries.into_iter().map(|entry| entry.row).collect()
}

/// The same where rows have gaps.
fn combined(keys: &Rows, held: &[HeldRows], starts: &[u32], gives_way: impl Fn(u32, u32) -> bool) -> Order {
    let all = last_of_each(keys, |_, _| false);
    let mut order = Order::default();
    let (mut walk, mut before) = (Walk::default(), None);
    for row in all {
        let part = part_of(starts, row);
        let index = (row - starts[part]) as usize;
        let gap = held[part].gaps.as_ref().map(|gaps| gaps.get(index));
        let is_same = |before: u32| keys.row(before as usize) == keys.row(row as usize) && gives_way(row, before);
        let starts_anew = !before.is_some_and(is_same);
        match (walk.step(starts_anew, held[part].operations[index], gap.as_ref()), order.rows.last()) {
            (Place::Fill, Some(head)) => order.older.entry(*head).or_default().push(row),
            (Place::Drop, _) => {}
            _ => {
                order.rows.push(row);
                if !starts_anew {
                    order.history.insert(row);
                }
            }
        }
        before = Some(row);
    }
    order
}

/// How many bytes all keys begin with alike.
fn common_prefix(keys: &Rows) -> usize {
    let mut all = keys.iter().map(|key| key.data());
    let Some(first) = all.next() else { return 0 };
    all.fold(first.len(), |common, key| {
        if key.get(..common) == first.get(..common) {
            common
        } else {
            first.iter().zip(key).take_while(|(a, b)| a == b).count()
        }
    })
}

/// Eight bytes of `key` from `skip` on, as a number; what is missing counts as zero. No key's encoding begins
/// with the whole of another's, so keys of up to eight such bytes differ where their numbers do.
fn prefix(key: &[u8], skip: usize) -> u64 {
    let rest = key.get(skip..).unwrap_or_default();
    rest.first_chunk::<8>().map_or_else(|| short_prefix(rest), |bytes| u64::from_be_bytes(*bytes))
}

fn short_prefix(rest: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(bytes)
}
