//! Handing out what is held, and taking it back.

use std::collections::VecDeque;
use std::sync::Arc;

use super::buffer::{RowBuffer, Taken};
use super::decoder::{Decoder, Failure};
use super::derive;
use super::reader::Malformed;
use super::table_map::TableMap;
use super::xa::Kept;
use crate::change::{ChangeBatch, ResumePoint, TableId};
use crate::schema::TableSchema;
use crate::source::{Arrival, Boundary, Ending, SchemaChange, SourceEvent, TableStopped};

/// Hands out rows of the open transaction; those of an XA transaction are kept.
fn give(ready: &mut VecDeque<SourceEvent>, xa: &mut Option<Kept>, batch: ChangeBatch) {
    match xa {
        Some(kept) => kept.push(batch),
        None => ready.push_back(SourceEvent::Rows(batch)),
    }
}

/// Characters of a statement that a message shows.
const STATEMENT_CHARS_MAX: usize = 500;

fn shortened(statement: String) -> String {
    match statement.char_indices().nth(STATEMENT_CHARS_MAX) {
        Some((end, _)) => format!("{} ...", statement.get(..end).unwrap_or_default()),
        None => statement,
    }
}

impl Decoder {
    /// Hands out the rows of ended transactions and their boundary, then `between`, then the rows of the open
    /// transaction. What is `between` comes straight after a boundary, unless rows of the open transaction have
    /// been handed out before.
    pub(super) fn hand_out(&mut self, between: Vec<SourceEvent>) -> Result<(), Malformed> {
        let mut open = Vec::new();
        for (index, buffer) in self.tables.full_buffers() {
            let taken = buffer.take()?;
            let ended = taken.slice(0, taken.committed_rows).map(SourceEvent::Rows);
            self.prepared.handed += usize::from(ended.is_some());
            self.ready.extend(ended);
            if taken.rows() > taken.committed_rows {
                open.push((index, taken));
            }
        }
        if std::mem::take(&mut self.boundary_due) {
            self.prepared.handed = 0;
            self.ready.push_back(SourceEvent::Boundary(Boundary {
                resume: ResumePoint {
                    position: self.boundary.position(),
                    gtid_set: self.gtids.as_ref().map(ToString::to_string),
                },
                commit_time_us: self.boundary_time_us.take(),
            }));
        }
        self.ready.extend(between);
        self.hand_out_open(&open);
        self.held_bytes = 0;
        self.held_rows = 0;
        Ok(())
    }

    /// The rows of the open transaction, cut where a savepoint stands between them.
    fn hand_out_open(&mut self, open: &[(usize, Taken)]) {
        let mut from: Vec<usize> = open.iter().map(|(_, taken)| taken.committed_rows).collect();
        let handed = self.transaction.handed;
        for savepoint in &mut self.transaction.savepoints {
            if savepoint.handed < handed {
                continue;
            }
            for ((index, taken), from) in open.iter().zip(&mut from) {
                let mark = savepoint.rows.iter().find(|(table, _)| table == index).map_or(*from, |(_, rows)| *rows);
                if let Some(batch) = taken.slice(*from, mark.max(*from)) {
                    give(&mut self.ready, &mut self.transaction.xa, batch);
                    self.transaction.handed += 1;
                }
                *from = mark.max(*from);
            }
            savepoint.handed = self.transaction.handed;
            savepoint.rows.clear();
        }
        for ((_, taken), from) in open.iter().zip(from) {
            if let Some(batch) = taken.slice(from, taken.rows()) {
                give(&mut self.ready, &mut self.transaction.xa, batch);
                self.transaction.handed += 1;
            }
        }
    }

    /// Forgets the rows of the open transaction that have not been handed out.
    pub(super) fn roll_back_held(&mut self) {
        for index in std::mem::take(&mut self.transaction.touched) {
            if let Some(buffer) = self.tables.buffer(index) {
                buffer.roll_back();
            }
        }
    }

    /// Of the `Rows` events of the open transaction only the first `keep` remain.
    fn discard(&mut self, keep: usize) {
        self.ready.push_back(SourceEvent::Discard { keep: self.prepared.handed + keep });
    }

    /// Takes the open transaction back; its id still counts as read.
    pub(super) fn roll_back(&mut self) -> Result<(), Failure> {
        self.roll_back_held();
        let is_kept = self.transaction.xa.take().is_some();
        if std::mem::take(&mut self.transaction.handed) > 0 && !is_kept {
            self.discard(0);
        }
        self.transaction.savepoints.clear();
        self.transaction.open = false;
        Ok(())
    }

    /// Takes back what followed a savepoint.
    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<(), Failure> {
        let Some(savepoint) = self.transaction.return_to(name) else {
            return Err(Malformed::value("a rollback to a savepoint that the transaction does not have").into());
        };
        let (handed, marks) = (savepoint.handed, savepoint.rows.clone());
        for index in &self.transaction.touched {
            let mark = marks.iter().find(|(table, _)| table == index).map_or(0, |(_, rows)| *rows);
            if let Some(buffer) = self.tables.buffer(*index) {
                buffer.truncate(mark);
            }
        }
        if handed < self.transaction.handed {
            match &mut self.transaction.xa {
                Some(kept) => kept.truncate(handed),
                None => self.discard(handed),
            }
            self.transaction.handed = handed;
        }
        Ok(())
    }

    /// Makes a table ready for rows as `map` describes them; returns its number. The inner error is why the table
    /// cannot be followed.
    pub(super) fn prepare(&mut self, map: &TableMap) -> Result<Result<usize, String>, Failure> {
        let index = self.tables.index(&map.table);
        let schema = match self.tables.find(&map.table).and_then(|table| table.schema.clone()) {
            Some(schema) => schema,
            None => match derive::schema(map, self.given_key(&map.table), self.flavor()) {
                Ok(schema) => {
                    let schema = Arc::new(schema);
                    self.announce(SchemaChange {
                        schema: Arc::clone(&schema),
                        position: self.here.position(),
                        arrival: Arrival::Met,
                        changes: Vec::new(),
                        statement: None,
                        defaults: Vec::new(),
                    })?;
                    schema
                }
                Err(reason) => return Ok(Err(reason)),
            },
        };
        let builders = match derive::builders(map, &schema) {
            Ok(builders) => builders,
            Err(reason) => return Ok(Err(self.with_statement(&map.table, reason))),
        };
        let fits = self.tables.buffer(index).is_some_and(|buffer| buffer.fits(&map.columns));
        if !fits {
            if self.tables.buffer(index).is_some_and(|buffer| buffer.rows() > 0) {
                self.hand_out(Vec::new())?;
            }
            self.tables.set_buffer(index, RowBuffer::new(schema, map.columns.clone(), builders));
        }
        Ok(Ok(index))
    }

    /// The key that the job gives for a table.
    pub(super) fn given_key(&self, table: &TableId) -> Option<&[String]> {
        self.keys.get(&table.to_string()).map(Vec::as_slice)
    }

    /// `reason` with the statement after which the log's own description of the table should be another one.
    fn with_statement(&self, table: &TableId, reason: String) -> String {
        match self.tables.find(table).and_then(|table| table.last_statement.as_ref()) {
            Some(statement) => format!("{reason}. The last statement that changed its columns was: {statement}"),
            None => reason,
        }
    }

    /// Gives a table a schema and says so.
    pub(super) fn announce(&mut self, change: SchemaChange) -> Result<(), Failure> {
        let (schema, statement) = (Arc::clone(&change.schema), change.statement.clone());
        self.hand_out(vec![SourceEvent::Schema(change)])?;
        self.tables.set_schema(&schema);
        let index = self.tables.index(&schema.table);
        if let Some(table) = self.tables.get(index) {
            table.last_statement = statement.map(shortened);
        }
        Ok(())
    }

    /// Takes a table out.
    pub(super) fn stop(&mut self, table: &TableId, reason: String) -> Result<(), Failure> {
        let index = self.tables.index(table);
        self.stop_index(index, reason)
    }

    /// Takes a table out: its rows of the open transaction are dropped. Where some of those have been handed out, whoever
    /// reads goes back to the last boundary.
    pub(super) fn stop_index(&mut self, index: usize, reason: String) -> Result<(), Failure> {
        self.end_index(index, reason, Ending::Fault)
    }

    /// The same with how it ended. The name of a table that is gone is free for another one.
    pub(super) fn end_index(&mut self, index: usize, reason: String, ending: Ending) -> Result<(), Failure> {
        let position = self.here.position();
        let Some(table) = self.tables.get(index) else { return Ok(()) };
        if let Some(buffer) = &mut table.buffer {
            buffer.roll_back();
        }
        let (table, statement) = (table.id.clone(), self.statement_read.clone());
        let stopped = TableStopped { table, position, reason, ending, statement };
        self.hand_out(vec![SourceEvent::TableStopped(stopped)])?;
        self.transaction.touched.retain(|touched| *touched != index);
        match ending {
            Ending::Gone => self.tables.forget(index),
            Ending::Fault | Ending::Replaced => self.tables.stop(index),
        }
        Ok(())
    }

    /// Whether the table has a schema under which changes have been, or will be, read.
    pub(super) fn known(&self, table: &TableId) -> Option<Arc<TableSchema>> {
        self.tables.find(table).and_then(|table| table.schema.clone())
    }
}
