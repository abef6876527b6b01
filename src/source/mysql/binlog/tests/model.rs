//! Random transactions against a model of what tables hold.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::log::LogWriter;
use super::{drain, options};
use crate::change::{ChangeBatch, Operation, ResumePoint};
use crate::schema::TableSchema;
use crate::source::SourceEvent;
use crate::source::mysql::binlog::Decoder;
use arrow::array::AsArray;
use arrow::datatypes::Int32Type;
use std::sync::Arc;

type Tables = BTreeMap<(String, i32), String>;

/// A script of random transactions, and what the tables hold after each boundary between them.
fn script(random: &mut StdRng) -> (Vec<String>, Tables) {
    let (mut statements, mut tables) = (Vec::new(), Tables::new());
    for _ in 0..random.random_range(1..12) {
        statements.push("begin".to_string());
        let before = tables.clone();
        let mut savepoints: Vec<(String, Tables)> = Vec::new();
        for _ in 0..random.random_range(0..12) {
            match random.random_range(0..10) {
                0 => {
                    let name = format!("s{}", random.random_range(0..3));
                    savepoints.retain(|(known, _)| *known != name);
                    statements.push(format!("savepoint {name}"));
                    savepoints.push((name, tables.clone()));
                }
                1 if !savepoints.is_empty() => {
                    savepoints.truncate(random.random_range(1..=savepoints.len()));
                    let (name, state) = savepoints.last().unwrap();
                    statements.push(format!("to {name}"));
                    tables = state.clone();
                }
                _ => statements.push(row(random, &mut tables)),
            }
        }
        if random.random_bool(0.2) {
            statements.push("rollback".into());
            tables = before;
        } else {
            statements.push("commit".into());
        }
    }
    (statements, tables)
}

fn row(random: &mut StdRng, tables: &mut Tables) -> String {
    let table = ["a", "b", "c"][random.random_range(0..3)].to_string();
    let (id, other) = (random.random_range(0..6), random.random_range(0..6));
    let value = random.random_range(0..1000).to_string();
    let Some(old) = tables.remove(&(table.clone(), id)) else {
        tables.insert((table.clone(), id), value.clone());
        return format!("{table}+{id} {value}");
    };
    if random.random_bool(0.3) {
        return format!("{table}-{id}");
    }
    let new_id = if tables.contains_key(&(table.clone(), other)) { id } else { other };
    tables.insert((table.clone(), new_id), value.clone());
    format!("{table}={id}>{new_id} {old} {value}")
}

fn apply(tables: &mut Tables, batch: &ChangeBatch) {
    batch.validate().unwrap();
    let ids = batch.rows.column(0).as_primitive::<Int32Type>();
    let values = batch.rows.column(1).as_string::<i32>();
    for (row, operation) in batch.operations.iter().enumerate() {
        let key = (batch.schema.table.table.clone(), ids.value(row));
        match operation {
            Operation::Delete => assert!(tables.remove(&key).is_some(), "{key:?} is deleted, but was not there"),
            Operation::Insert => assert!(tables.insert(key, values.value(row).into()).is_none()),
            _ => assert!(tables.insert(key, values.value(row).into()).is_some()),
        }
    }
}

/// What a pipeline keeps: the tables at the last boundary, and where that is.
#[derive(Default)]
struct Kept {
    tables: Tables,
    schemas: std::collections::HashMap<crate::change::TableId, Arc<TableSchema>>,
    resume: Option<ResumePoint>,
    pending: Vec<ChangeBatch>,
}

impl Kept {
    fn take(&mut self, event: SourceEvent) {
        match event {
            SourceEvent::Rows(batch) => self.pending.push(batch),
            SourceEvent::Discard { keep } => {
                assert!(keep < self.pending.len(), "only what was handed out can be discarded");
                self.pending.truncate(keep);
            }
            SourceEvent::Boundary(boundary) => {
                for batch in std::mem::take(&mut self.pending) {
                    apply(&mut self.tables, &batch);
                }
                self.resume = Some(boundary.resume);
            }
            SourceEvent::Schema(change) => {
                self.schemas.insert(change.schema.table.clone(), change.schema);
            }
            SourceEvent::TableStopped(stopped) => panic!("{}", stopped.reason),
        }
    }
}

/// Reads the whole log, stopping after `crash_after` events and going on from the last boundary.
fn read(log: &LogWriter, chunk_bytes: usize, crash_after: usize, random: &mut StdRng) -> Tables {
    let mut kept = Kept::default();
    for last in [crash_after, log.events.len()] {
        let mut options = options(chunk_bytes);
        options.schemas.clone_from(&kept.schemas);
        if let Some(resume) = kept.resume.clone() {
            options.start = resume;
        }
        let from = options.start.position.order.1;
        let mut decoder = Decoder::new(options);
        let (mut offset, mut out) = (4, Vec::new());
        for (index, event) in log.events.iter().enumerate().take(last) {
            offset += event.len() as u64;
            if index == 0 || offset > from {
                decoder.feed_at(event, Some(if index == 0 { from.max(offset) } else { offset })).unwrap();
            }
            if random.random_bool(0.1) {
                decoder.flush().unwrap();
            }
            drain(&mut decoder, &mut out).unwrap();
        }
        if last == log.events.len() {
            decoder.flush().unwrap();
            drain(&mut decoder, &mut out).unwrap();
        }
        out.into_iter().for_each(|event| kept.take(event));
        kept.pending.clear();
    }
    kept.tables
}

#[test]
fn any_transactions_in_any_chunks_with_any_restart_give_the_same_tables() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let (statements, expected) = script(&mut random);
        let log = LogWriter::of(&statements.join(";"));
        let crash_after = random.random_range(0..=log.events.len());
        for chunk_bytes in [1, 40, 200, 1 << 20] {
            let found = read(&log, chunk_bytes, crash_after, &mut random);
            assert_eq!(found, expected, "seed {seed}, chunks of {chunk_bytes}: {}", statements.join("; "));
        }
    }
}
