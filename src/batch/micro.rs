//! The batch that is being filled.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::BatchError;
use super::project::Projection;
use super::spill::{SpillDir, SpillFile};
use super::table::{HELD_ROWS_MAX, PendingTable, TableChanges, block_limits};
use crate::change::{Boundary, ChangeBatch, ResumePoint, TableId};
use crate::schema::HashKey;

/// When a batch is large enough. Transactions are never cut: a batch may pass every limit by one transaction.
#[derive(Debug, Clone)]
pub struct BatchLimits {
    pub rows_max: u64,
    /// In memory and spilled.
    pub bytes_max: u64,
    /// Since the first row.
    pub age_max: Duration,
    /// Of all tables of the batch together; rows beyond it spill to disk.
    pub memory_bytes: usize,
}

/// Rows of the open transaction.
#[derive(Debug)]
struct OpenPush {
    table: TableId,
    first_sequence: u64,
    rows: u64,
}

/// Whole transactions of many tables, and at its end a transaction that may still be open. After an error it
/// is of no use. Pushing may write to the local disk: not for an async worker thread.
#[derive(Debug)]
pub struct MicroBatch {
    limits: BatchLimits,
    spill: SpillDir,
    spill_file: Option<Arc<SpillFile>>,
    tables: BTreeMap<TableId, PendingTable>,
    hash_key: Option<HashKey>,
    /// Of tables whose rows do not come into the lake as they are.
    projections: BTreeMap<TableId, Projection>,
    /// The pushes since the last boundary.
    open: Vec<OpenPush>,
    rows: u64,
    held_bytes: usize,
    spilled_bytes: u64,
    first_row_at: Option<Instant>,
    end: Option<ResumePoint>,
    commit_time_us: Option<i64>,
}

impl MicroBatch {
    pub fn new(limits: BatchLimits, spill: SpillDir) -> Self {
        Self {
            limits,
            spill,
            spill_file: None,
            tables: BTreeMap::new(),
            hash_key: None,
            projections: BTreeMap::new(),
            open: Vec::new(),
            rows: 0,
            held_bytes: 0,
            spilled_bytes: 0,
            first_row_at: None,
            end: None,
            commit_time_us: None,
        }
    }

    /// With the key by which columns are hashed.
    #[must_use]
    pub fn with_hash_key(self, hash_key: Option<HashKey>) -> Self {
        Self { hash_key, ..self }
    }

    /// Adds rows of a transaction that may still be open. Log order is the order of pushes, and of the rows
    /// in them.
    ///
    /// # Errors
    /// Changes that do not fit together, a key that is null, another schema version than that of the table's
    /// changes so far; a disk that is full.
    pub fn push(&mut self, changes: ChangeBatch) -> Result<(), BatchError> {
        self.push_at(changes, Instant::now())
    }

    /// [`MicroBatch::push`] at the given time.
    pub fn push_at(&mut self, changes: ChangeBatch, now: Instant) -> Result<(), BatchError> {
        changes.validate()?;
        let changes = self.as_of_lake(changes)?;
        let id = changes.schema.table.clone();
        let rows = changes.operations.len() as u64;
        let table = match self.tables.entry(id.clone()) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(PendingTable::new(Arc::clone(&changes.schema))?),
        };
        let before = table.held_bytes;
        let first_sequence = table.push(changes)?;
        self.held_bytes = self.held_bytes - before + table.held_bytes;
        let too_many = table.held_rows > HELD_ROWS_MAX;
        self.rows += rows;
        if rows > 0 {
            self.first_row_at.get_or_insert(now);
        }
        if too_many {
            self.spill_table(&id)?;
        }
        self.open.push(OpenPush { table: id, first_sequence, rows });
        self.spill_largest()
    }

    fn as_of_lake(&mut self, changes: ChangeBatch) -> Result<ChangeBatch, BatchError> {
        if changes.schema.is_plain() {
            return Ok(changes);
        }
        let projection = match self.projections.entry(changes.schema.table.clone()) {
            Entry::Occupied(known) if known.get().is_of(&changes.schema) => known.into_mut(),
            Entry::Occupied(mut known) => {
                known.insert(Projection::new(&changes.schema));
                known.into_mut()
            }
            Entry::Vacant(place) => place.insert(Projection::new(&changes.schema)),
        };
        projection.project(&changes, self.hash_key.as_ref())
    }

    /// All pushed so far is committed, and reading may go on from `boundary`.
    pub fn boundary(&mut self, boundary: Boundary) {
        let touched: BTreeSet<_> = self.open.drain(..).map(|push| push.table).collect();
        for id in touched {
            let Some(table) = self.tables.get_mut(&id) else { continue };
            let before = table.held_bytes;
            table.boundary();
            self.held_bytes = self.held_bytes - before + table.held_bytes;
            if table.rows == 0 {
                // It may come back with another schema.
                self.tables.remove(&id);
            }
        }
        self.end = Some(boundary.resume);
        self.commit_time_us = boundary.commit_time_us.or(self.commit_time_us);
    }

    /// Of the pushes since the last boundary only the first `keep` remain; the transaction stays open.
    ///
    /// # Errors
    /// There are fewer than `keep`.
    pub fn discard(&mut self, keep: usize) -> Result<(), BatchError> {
        if keep > self.open.len() {
            return Err(BatchError::Discard { keep, open: self.open.len() });
        }
        let mut discarded: BTreeMap<TableId, (u64, u64)> = BTreeMap::new();
        for push in self.open.drain(keep..) {
            discarded.entry(push.table).or_insert((push.first_sequence, 0)).1 += push.rows;
        }
        for (id, (from, rows)) in discarded {
            let Some(table) = self.tables.get_mut(&id) else { continue };
            let before = table.held_bytes;
            table.discard(from, rows);
            self.held_bytes = self.held_bytes - before + table.held_bytes;
            self.rows -= rows;
            if table.rows == 0 && self.open.iter().all(|push| push.table != id) {
                self.tables.remove(&id);
            }
        }
        if self.rows == 0 {
            self.first_row_at = None;
        }
        Ok(())
    }

    /// Whether the batch is to end here. Only at a boundary has this a meaning.
    pub fn is_full(&self, now: Instant) -> bool {
        let bytes = self.held_bytes as u64 + self.spilled_bytes;
        let age = self.first_row_at.map(|first| now.saturating_duration_since(first));
        self.rows > 0
            && (self.rows >= self.limits.rows_max
                || bytes >= self.limits.bytes_max
                || age.is_some_and(|age| age >= self.limits.age_max))
    }

    /// All changes so far, those of an open transaction with them.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Bytes of the rows held in memory, at most `memory_bytes` after each push.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Bytes written to disk so far.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled_bytes
    }

    /// The last boundary.
    pub fn end(&self) -> Option<&ResumePoint> {
        self.end.as_ref()
    }

    /// The commit time of the last transaction, in microseconds since 1970-01-01 UTC.
    pub fn commit_time_us(&self) -> Option<i64> {
        self.commit_time_us
    }

    /// The tables that have changes, by name.
    pub fn tables(&self) -> Vec<TableId> {
        self.tables.iter().filter(|(_, table)| table.rows > 0).map(|(id, _)| id.clone()).collect()
    }

    /// The committed changes, ready to be read.
    ///
    /// # Errors
    /// Rows of an open transaction remain, or there never was a boundary.
    pub fn close(self) -> Result<ClosedBatch, BatchError> {
        let open = self.open.iter().map(|push| push.rows).sum();
        if open > 0 {
            return Err(BatchError::OpenTransaction { rows: open });
        }
        let end = self.end.ok_or(BatchError::NoBoundary)?;
        let changed = self.tables.into_iter().filter(|(_, table)| table.rows > 0);
        let close = |table: PendingTable| table.close(self.spill.clone(), self.limits.memory_bytes);
        let tables = changed.map(|(id, table)| (id, close(table))).collect();
        Ok(ClosedBatch { end, commit_time_us: self.commit_time_us, rows: self.rows, tables })
    }

    /// Spills the largest tables until half of the memory is free, so that runs are few and large.
    fn spill_largest(&mut self) -> Result<(), BatchError> {
        if self.held_bytes <= self.limits.memory_bytes {
            return Ok(());
        }
        while self.held_bytes > self.limits.memory_bytes / 2 {
            let largest = self.tables.iter().max_by_key(|(_, table)| table.held_bytes);
            let Some(id) = largest.map(|(id, _)| id.clone()) else { break };
            self.spill_table(&id)?;
        }
        Ok(())
    }

    fn spill_table(&mut self, id: &TableId) -> Result<(), BatchError> {
        let Some(table) = self.tables.get_mut(id) else { return Ok(()) };
        let file = match &self.spill_file {
            Some(file) => file,
            None => self.spill_file.insert(self.spill.file()?),
        };
        self.held_bytes -= table.held_bytes;
        self.spilled_bytes += table.spill(file, block_limits(self.limits.memory_bytes))?;
        Ok(())
    }
}

/// Whole transactions, to be committed to the lake at once.
#[derive(Debug)]
pub struct ClosedBatch {
    /// Where reading goes on after this batch.
    pub end: ResumePoint,
    /// Of the last transaction, in microseconds since 1970-01-01 UTC.
    pub commit_time_us: Option<i64>,
    /// How many changes were read.
    pub rows: u64,
    /// The tables that have changes; one whose changes all were truncated away again among them.
    pub tables: BTreeMap<TableId, TableChanges>,
}
