//! Random scripts in which changes leave columns out, patch documents and move rows to other keys, against a map.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};

use super::super::{KeyedChanges, KeyedSlice};
use super::{SPILL_ALL, SPILL_NOTHING, batch, boundary, changes, schema};
use crate::change::{ChangeBatch, Gap, Gaps, Moved, Operation, json_patch};
use crate::schema::TableSchema;

const SPILL_SOME: usize = 6_000;
const SEEDS: u64 = 400;
const KEYS: i64 = 12;

/// A row without its key.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Row {
    value: i64,
    document: String,
}

type Table = BTreeMap<i64, Row>;

/// One row of a change batch.
#[derive(Clone)]
struct Change {
    operation: Operation,
    key: Option<i64>,
    value: Option<i64>,
    document: Option<String>,
    gap: Gap,
}

impl std::fmt::Debug for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let left_out = |column| match (self.gap.is_absent(column), self.gap.is_patched(column)) {
            (true, _) => "-",
            (_, true) => "~",
            _ => "",
        };
        let (value, document) = (self.value, self.document.as_ref().map(|text| text.split(',').next()));
        let (key, moved) = (self.key, self.gap.moved());
        write!(f, "{:?} {key:?} {moved:?} {}{value:?} {}{document:?}", self.operation, left_out(1), left_out(2))
    }
}

#[derive(Debug, Clone)]
enum Step {
    Push(Vec<Change>),
    Boundary,
    Discard(usize),
}

fn table() -> Arc<TableSchema> {
    let columns = [("id", DataType::Int64), ("value", DataType::Int64), ("document", DataType::Utf8)];
    schema("documents", &columns, &[0])
}

fn document(number: i64) -> String {
    format!("{{\"n\": {number}, \"pad\": \"{}\"}}", "p".repeat(number as usize % 40))
}

fn change(operation: Operation, key: i64) -> Change {
    Change { operation, key: Some(key), value: None, document: None, gap: Gap::none(3) }
}

/// Writes changes as a log would, and keeps what the table holds.
struct Writer {
    random: StdRng,
    now: Table,
    number: i64,
}

impl Writer {
    fn changes(&mut self) -> Vec<Change> {
        let count = self.random.random_range(1..7);
        (0..count).flat_map(|_| self.change()).collect()
    }

    fn change(&mut self) -> Vec<Change> {
        self.number += 1;
        let key = self.random.random_range(0..KEYS);
        let known = self.now.keys().copied().choose(&mut self.random);
        let free = (0..KEYS).filter(|key| !self.now.contains_key(key)).choose(&mut self.random);
        match (self.random.random_range(0..100), known, free) {
            (0, ..) => {
                self.now.clear();
                vec![Change { key: None, ..change(Operation::Truncate, 0) }]
            }
            (1..20, Some(known), _) => {
                self.now.remove(&known);
                vec![change(Operation::Delete, known)]
            }
            (20..40, Some(known), Some(free)) => self.move_row(known, free),
            (40..80, Some(known), _) => {
                let mut updated = change(Operation::Update, known);
                self.set(known, &mut updated);
                vec![updated]
            }
            _ => {
                let row = Row { value: self.number, document: document(self.number) };
                let is_new = self.now.insert(key, row.clone()).is_none();
                let operation = if is_new { Operation::Insert } else { Operation::Update };
                vec![Change { value: Some(row.value), document: Some(row.document), ..change(operation, key) }]
            }
        }
    }

    fn move_row(&mut self, from: i64, to: i64) -> Vec<Change> {
        let row = self.now.remove(&from).unwrap();
        self.now.insert(to, row);
        let (mut away, mut here) = (change(Operation::Delete, from), change(Operation::Insert, to));
        self.set(to, &mut here);
        if here.gap.is_open() {
            away.gap.set_moved(Moved::Away);
            here.gap.set_moved(Moved::Here);
        }
        vec![away, here]
    }

    /// Gives the row of `key` new values, of which the change says some.
    fn set(&mut self, key: i64, change: &mut Change) {
        let row = self.now.get_mut(&key).unwrap();
        if self.random.random() {
            row.value = self.number;
            change.value = Some(row.value);
        } else if self.random.random() {
            change.value = Some(row.value);
        } else {
            change.gap.set_absent(1, true);
        }
        match self.random.random_range(0..3) {
            0 => {
                row.document = document(self.number);
                change.document = Some(row.document.clone());
            }
            1 => {
                let mut patch = String::new();
                json_patch::push(&mut patch, json_patch::Step::Replace, "$.n", &self.number.to_string()).unwrap();
                row.document = json_patch::apply(&row.document, &patch).unwrap();
                change.document = Some(patch);
                change.gap.set_patched(2, true);
            }
            _ => change.gap.set_absent(2, true),
        }
    }
}

fn script(seed: u64, before: &Table) -> (Vec<Step>, Table) {
    let mut writer = Writer { random: StdRng::seed_from_u64(seed), now: before.clone(), number: 100 };
    let (mut steps, mut undo) = (Vec::new(), vec![writer.now.clone()]);
    for _ in 0..writer.random.random_range(1..60) {
        steps.push(match writer.random.random_range(0..10) {
            0 | 1 => {
                undo = vec![writer.now.clone()];
                Step::Boundary
            }
            2 => {
                let keep = writer.random.random_range(0..undo.len());
                undo.truncate(keep + 1);
                writer.now = undo[keep].clone();
                Step::Discard(keep)
            }
            _ => {
                let changes = writer.changes();
                undo.push(writer.now.clone());
                Step::Push(changes)
            }
        });
    }
    steps.push(Step::Boundary);
    (steps, writer.now)
}

fn change_batch(rows: &[Change]) -> ChangeBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.value).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.document.clone()).collect::<StringArray>()),
    ];
    let mut gaps = Gaps::new(3);
    rows.iter().for_each(|row| gaps.push(&row.gap));
    let whole = changes(&table(), columns, rows.iter().map(|row| row.operation).collect());
    ChangeBatch { gaps: gaps.slice(0, rows.len()), ..whole }
}

fn keyed(steps: &[Step], memory_bytes: usize) -> Option<KeyedChanges> {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(memory_bytes, &spill);
    for step in steps {
        match step {
            Step::Push(rows) => batch.push(change_batch(rows)).unwrap(),
            Step::Boundary => batch.boundary(boundary()),
            Step::Discard(keep) => batch.discard(*keep).unwrap(),
        }
    }
    batch.close().unwrap().tables.into_values().next().map(|changes| changes.into_keyed().unwrap())
}

/// The rows of a slice that need old values, by their number, with the key under which the table has those.
fn old_keys(slice: &KeyedSlice) -> HashMap<usize, i64> {
    let Some(moved) = &slice.moved_from else { return HashMap::new() };
    let keys = moved.keys.rows.column(0).as_primitive::<Int64Type>();
    assert!(keys.values().is_sorted_by(|one, other| one < other), "{keys:?}");
    moved.rows.iter().copied().zip(keys.values().iter().copied()).collect()
}

/// What a table becomes that had the rows `before`.
fn applied(mut keyed: KeyedChanges, before: &Table) -> Table {
    let before = if keyed.truncate { Table::new() } else { before.clone() };
    let mut after = before.clone();
    while let Some(slice) = keyed.next_slice().unwrap() {
        let (ids, values) = (slice.rows.column(0).as_primitive::<Int64Type>(), slice.rows.column(1));
        let (values, documents) = (values.as_primitive::<Int64Type>(), slice.rows.column(2).as_string::<i32>());
        let moved = old_keys(&slice);
        for row in 0..slice.rows.num_rows() {
            let gap = slice.gaps.as_ref().map_or_else(|| Gap::none(3), |gaps| gaps.get(row));
            let id = ids.value(row);
            after.remove(&id);
            if slice.deleted.value(row) {
                continue;
            }
            let old = || &before[moved.get(&row).unwrap_or(&id)];
            let value = if gap.is_absent(1) { old().value } else { values.value(row) };
            let own = || documents.value(row).to_string();
            let document = match (gap.is_absent(2), gap.is_patched(2)) {
                (true, _) => old().document.clone(),
                (_, true) => json_patch::apply(&old().document, &own()).unwrap(),
                _ => own(),
            };
            after.insert(id, Row { value, document });
        }
    }
    after
}

#[test]
fn rows_with_gaps_come_to_what_a_map_says_whether_they_spill_or_not() {
    let mut moves = 0;
    for seed in 0..SEEDS {
        let before: Table = (0..KEYS).step_by(2).map(|id| (id, Row { value: id, document: document(id) })).collect();
        let (steps, expected) = script(seed, &before);
        for memory_bytes in [SPILL_NOTHING, SPILL_SOME, SPILL_ALL] {
            let Some(keyed) = keyed(&steps, memory_bytes) else { continue };
            moves += usize::from(keyed.moved.is_some());
            assert_eq!(applied(keyed, &before), expected, "seed {seed} with {memory_bytes} bytes: {steps:#?}");
        }
    }
    assert!(moves > 100, "only {moves} scripts move a row");
}

#[test]
fn a_patch_of_a_row_that_was_read_leaves_it_unsettled_until_a_change_says_all() {
    let patched = || {
        let mut patch = String::new();
        json_patch::push(&mut patch, json_patch::Step::Replace, "$.n", "5").unwrap();
        let mut patched = Change { document: Some(patch), ..change(Operation::Update, 1) };
        patched.gap.set_patched(2, true);
        patched.gap.set_absent(1, true);
        patched
    };
    let whole = |operation| Change { value: Some(1), document: Some(document(1)), ..change(operation, 1) };
    let check = |changes: Vec<Change>, expected: Moved| {
        for memory_bytes in [SPILL_NOTHING, SPILL_ALL] {
            let steps: Vec<Step> = changes.iter().map(|change| Step::Push(vec![change.clone()])).collect();
            let steps = [steps, vec![Step::Boundary]].concat();
            let mut keyed = keyed(&steps, memory_bytes).expect("rows");
            let slice = keyed.next_slice().unwrap().expect("a row");
            let gap = slice.gaps.map_or_else(|| Gap::none(3), |gaps| gaps.get(0));
            assert_eq!((gap.moved(), gap.is_open()), (expected, expected != Moved::No), "{changes:#?}");
        }
    };
    check(vec![whole(Operation::Read), patched()], Moved::Unsettled);
    check(vec![whole(Operation::Read), patched(), patched()], Moved::Unsettled);
    check(vec![whole(Operation::Read), patched(), whole(Operation::Update)], Moved::No);
    check(vec![whole(Operation::Insert), patched()], Moved::No);
    check(vec![patched(), whole(Operation::Read)], Moved::No);
}
