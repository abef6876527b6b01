//! Batches against a model: the same script through a batch that holds everything, one that spills
//! everything, and plain maps.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Int64Type};

use super::{BatchError, BatchLimits, KeyedChanges, MicroBatch, SpillDir, key_converter};
use crate::change::{Boundary, ChangeBatch, Operation, ResumePoint, SourcePosition, TableId, TransactionSpan};
use crate::schema::{Column, TableSchema};

mod gaps;
mod model;

const SPILL_NOTHING: usize = usize::MAX;
const SPILL_ALL: usize = 0;

pub(super) fn schema(table: &str, columns: &[(&str, DataType)], key: &[usize]) -> Arc<TableSchema> {
    let column = |(name, data_type): &(&str, DataType)| Column::new(*name, data_type.clone(), "");
    let columns = columns.iter().map(column).collect();
    Arc::new(TableSchema::new(TableId::new("shop", table), columns, key.to_vec()))
}

pub(super) fn changes(schema: &Arc<TableSchema>, columns: Vec<ArrayRef>, operations: Vec<Operation>) -> ChangeBatch {
    let rows = RecordBatch::try_new(schema.arrow_schema(), columns).unwrap();
    let span = TransactionSpan { first_row: 0, commit_time_us: 0, position: position() };
    ChangeBatch { schema: Arc::clone(schema), rows, operations, gaps: None, transactions: vec![span] }
}

fn position() -> SourcePosition {
    SourcePosition { order: (1, 4), text: "log.000001:4".into() }
}

pub(super) fn boundary() -> Boundary {
    Boundary { resume: ResumePoint { position: position(), gtid_set: None }, commit_time_us: Some(7) }
}

pub(super) fn batch(memory_bytes: usize, spill: &tempfile::TempDir) -> MicroBatch {
    let limits = BatchLimits {
        rows_max: 1000,
        bytes_max: (memory_bytes as u64).saturating_mul(4),
        age_max: Duration::from_secs(60),
        memory_bytes,
    };
    MicroBatch::new(limits, SpillDir::new(spill.path().join("spill")))
}

fn orders() -> Arc<TableSchema> {
    schema("orders", &[("name", DataType::Utf8), ("id", DataType::Int64)], &[1])
}

/// One row per element: operation, id, name.
fn rows(rows: &[(Operation, Option<i64>, Option<&str>)]) -> ChangeBatch {
    let ids: Int64Array = rows.iter().map(|row| row.1).collect();
    let names: StringArray = rows.iter().map(|row| row.2).collect();
    let operations = rows.iter().map(|row| row.0).collect();
    changes(&orders(), vec![Arc::new(names), Arc::new(ids)], operations)
}

fn inserts(ids: impl Iterator<Item = i64>) -> ChangeBatch {
    rows(&ids.map(|id| (Operation::Insert, Some(id), Some("a name"))).collect::<Vec<_>>())
}

/// Runs a script of `insert 1 a`, `update 1 b`, `delete 1`, `truncate`, `commit` and `discard 2`, where each
/// change is a push of its own unless joined to the one before by a comma.
fn run(script: &str, batch: &mut MicroBatch) {
    for step in script.split(';') {
        let words: Vec<&str> = step.split_whitespace().collect();
        match words[..] {
            ["commit"] => batch.boundary(boundary()),
            ["discard", keep] => batch.discard(keep.parse().unwrap()).unwrap(),
            _ => batch.push(rows(&step.split(',').map(change).collect::<Vec<_>>())).unwrap(),
        }
    }
}

fn change(text: &str) -> (Operation, Option<i64>, Option<&str>) {
    match text.split_whitespace().collect::<Vec<_>>()[..] {
        ["insert", id, name] => (Operation::Insert, id.parse().ok(), Some(name)),
        ["update", id, name] => (Operation::Update, id.parse().ok(), Some(name)),
        ["delete", id] => (Operation::Delete, id.parse().ok(), None),
        ["truncate"] => (Operation::Truncate, None, None),
        _ => panic!("no such step: {text}"),
    }
}

fn shown(mut keyed: KeyedChanges) -> String {
    let mut parts: Vec<String> = keyed.truncate.then(|| "truncate".to_string()).into_iter().collect();
    while let Some(slice) = keyed.next_slice().unwrap() {
        let ids = slice.rows.column(1).as_primitive::<Int64Type>();
        let names = slice.rows.column(0).as_string::<i32>();
        for row in 0..slice.rows.num_rows() {
            let name = if slice.deleted.value(row) { "deleted" } else { names.value(row) };
            parts.push(format!("{} {name}", ids.value(row)));
        }
    }
    parts.join(", ")
}

/// After `script`, the keyed changes are as written, whether the rows spilled or not.
fn check(script: &str, expected: &str) {
    for memory_bytes in [SPILL_NOTHING, SPILL_ALL] {
        let spill = tempfile::tempdir().unwrap();
        let mut batch = batch(memory_bytes, &spill);
        run(script, &mut batch);
        let closed = batch.close().unwrap();
        let found = closed.tables.into_values().map(|table| shown(table.into_keyed().unwrap()));
        assert_eq!(found.collect::<Vec<_>>().join(" | "), expected, "{script} with {memory_bytes} bytes of memory");
    }
}

#[test]
fn the_last_change_of_a_key_counts_and_keys_come_in_order() {
    check("insert 2 b; insert 1 a; commit; update 2 c; commit", "1 a, 2 c");
    check("insert 2 b, insert -1 a, update 2 c, update 2 d; commit", "-1 a, 2 d");
}

#[test]
fn a_key_that_came_and_went_is_deleted() {
    check("insert 1 a; delete 1; commit", "1 deleted");
    check("delete 1; commit; insert 1 b; commit", "1 b");
}

#[test]
fn a_truncate_drops_what_came_before_it() {
    check("insert 1 a; commit; truncate; commit; insert 2 b; commit", "truncate, 2 b");
    check("insert 1 a, truncate, insert 2 b, truncate, insert 3 c; commit", "truncate, 3 c");
    check("insert 1 a; truncate; commit", "truncate");
}

#[test]
fn a_discarded_change_never_was() {
    check("insert 1 a; commit; update 1 b; insert 2 c; discard 0; commit", "1 a");
    check("insert 1 a; update 1 b; update 1 c; discard 2; insert 2 d; commit", "1 b, 2 d");
    check("insert 1 a; update 1 b; discard 1; update 1 c; update 1 d; discard 2; discard 1; commit", "1 a");
    check("insert 1 a; commit; truncate; insert 2 b; discard 0; commit", "1 a");
    check("insert 1 a; commit; truncate; insert 2 b; insert 2 c; discard 2; commit", "truncate, 2 b");
    check("insert 1 a; discard 0; commit", "");
}

#[test]
fn a_batch_counts_the_changes_it_has_read() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(SPILL_ALL, &spill);
    run("insert 1 a; insert 2 b; discard 1; update 1 c; commit", &mut batch);
    assert_eq!((batch.rows(), batch.tables()), (2, vec![TableId::new("shop", "orders")]));
    batch.boundary(Boundary { commit_time_us: None, ..boundary() });
    let closed = batch.close().unwrap();
    assert_eq!((closed.rows, closed.commit_time_us, closed.end), (2, Some(7), boundary().resume));
}

#[test]
fn a_batch_ends_by_rows_by_age_or_by_bytes() {
    let spill = tempfile::tempdir().unwrap();
    let now = Instant::now();
    let full = |memory_bytes: usize, rows: i64, age_s: u64| {
        let mut batch = batch(memory_bytes, &spill);
        batch.push_at(inserts(0..rows), now).unwrap();
        batch.boundary(boundary());
        batch.is_full(now + Duration::from_secs(age_s))
    };
    assert!(!full(SPILL_NOTHING, 999, 59));
    assert!(full(SPILL_NOTHING, 1000, 0));
    assert!(full(SPILL_NOTHING, 1, 60));
    assert!(full(1000, 900, 0));
    assert!(!full(SPILL_NOTHING, 0, 1000), "nothing to end");
}

#[test]
fn a_discard_of_all_rows_makes_the_batch_young_again() {
    let spill = tempfile::tempdir().unwrap();
    let (mut batch, now) = (batch(SPILL_NOTHING, &spill), Instant::now());
    batch.push_at(inserts(0..1), now).unwrap();
    batch.discard(0).unwrap();
    assert!(batch.is_empty());
    batch.push_at(inserts(0..1), now + Duration::from_secs(50)).unwrap();
    assert!(!batch.is_full(now + Duration::from_secs(70)));
}

#[test]
fn a_batch_holds_whole_transactions_only() {
    let spill = tempfile::tempdir().unwrap();
    let mut open = batch(SPILL_NOTHING, &spill);
    open.boundary(boundary());
    open.push(inserts(0..3)).unwrap();
    assert!(matches!(open.close(), Err(BatchError::OpenTransaction { rows: 3 })));
    assert!(matches!(batch(SPILL_NOTHING, &spill).close(), Err(BatchError::NoBoundary)));
}

#[test]
fn a_discard_beyond_the_open_transaction_is_refused() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(SPILL_NOTHING, &spill);
    run("insert 1 a; commit; insert 2 b", &mut batch);
    assert!(matches!(batch.discard(2), Err(BatchError::Discard { keep: 2, open: 1 })));
}

#[test]
fn a_null_in_a_key_is_refused_with_its_table_and_column() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(SPILL_NOTHING, &spill);
    let error = batch.push(rows(&[(Operation::Truncate, None, None), (Operation::Update, None, None)])).unwrap_err();
    assert!(error.to_string().starts_with("a change of shop.orders has no value in key column id;"), "{error}");
    assert!(batch.is_empty());
}

#[test]
fn a_table_has_one_schema_in_a_batch() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(SPILL_NOTHING, &spill);
    let mut newer = inserts(0..1);
    newer.schema = Arc::new(TableSchema { version: 2, ..(*newer.schema).clone() });
    batch.push(inserts(0..1)).unwrap();
    assert!(matches!(batch.push(newer.clone()), Err(BatchError::SchemaChanged { expected: 1, found: 2, .. })));
    batch.discard(0).unwrap();
    batch.boundary(boundary());
    batch.push(newer).unwrap();
}

#[test]
fn a_key_that_cannot_be_ordered_is_refused() {
    for key in [&[][..], &[7]] {
        let schema = schema("orders", &[("id", DataType::Int64)], key);
        assert!(matches!(key_converter(&schema), Err(BatchError::Key { .. })), "{key:?}");
    }
}

#[test]
fn memory_is_kept_within_its_limit() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(50_000, &spill);
    for part in 0..50 {
        batch.push(inserts(part * 100..part * 100 + 100)).unwrap();
        assert!(batch.held_bytes() <= 50_000, "{} bytes", batch.held_bytes());
    }
    assert!(batch.spilled_bytes() > 0);
}

#[test]
fn a_small_part_of_a_large_batch_costs_its_own_bytes() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(SPILL_NOTHING, &spill);
    let whole = inserts(0..100_000);
    let part = ChangeBatch { rows: whole.rows.slice(5, 10), operations: whole.operations[5..15].to_vec(), ..whole };
    batch.push(part).unwrap();
    assert!(batch.held_bytes() < 10_000, "{} bytes", batch.held_bytes());
}

#[test]
fn many_small_transactions_cost_little_more_than_their_rows() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(SPILL_NOTHING, &spill);
    for id in 0..5000 {
        batch.push(inserts(id..id + 1)).unwrap();
        batch.boundary(boundary());
    }
    assert!(batch.held_bytes() < 5000 * 100 + 300_000, "{} bytes", batch.held_bytes());
    let table = batch.close().unwrap().tables.into_values().next().unwrap();
    assert_eq!(shown(table.into_keyed().unwrap()).split(", ").count(), 5000);
}

#[test]
fn more_runs_than_are_merged_at_once_are_merged_in_passes() {
    let steps: Vec<String> = (0..300).map(|step| format!("update {} v{step}; commit", step % 7)).collect();
    let expected: Vec<String> =
        (0..7).map(|key| format!("{key} v{}", (293..300).find(|s| s % 7 == key).unwrap())).collect();
    check(&steps.join(";"), &expected.join(", "));
}

#[test]
fn slices_are_bounded_by_rows_and_by_bytes() {
    for memory_bytes in [SPILL_NOTHING, SPILL_ALL] {
        let spill = tempfile::tempdir().unwrap();
        let mut batch = batch(memory_bytes, &spill);
        let wide = "x".repeat(6 << 20);
        batch.push(inserts((0..70_000).rev())).unwrap();
        batch.push(rows(&[2, 1, 3, 0].map(|id| (Operation::Update, Some(id), Some(&*wide))))).unwrap();
        batch.boundary(boundary());
        let table = batch.close().unwrap().tables.into_values().next().unwrap();
        let mut keyed = table.into_keyed().unwrap();
        let mut found = Vec::new();
        while let Some(slice) = keyed.next_slice().unwrap() {
            found.push(slice.rows.num_rows());
        }
        assert_eq!(found.iter().sum::<usize>(), 70_000);
        assert_eq!(found[0], 2, "two rows of 6 MiB fit into 16 MiB");
        assert!(found.iter().all(|rows| *rows <= 65_536), "{found:?}");
    }
}

#[test]
fn spill_files_have_no_name_and_damage_to_them_is_an_error() {
    type Damage = fn(&mut std::fs::File);
    let cut: Damage = |file| file.set_len(100).unwrap();
    let flip: Damage = |file| {
        use std::io::{Seek, SeekFrom, Write};
        file.seek(SeekFrom::Start(700)).unwrap();
        file.write_all(&[0xa5; 3]).unwrap();
    };
    for (damage, expected) in [(cut, "it ends before byte"), (flip, "the checksum at byte")] {
        let spill = tempfile::tempdir().unwrap();
        let mut batch = batch(SPILL_ALL, &spill);
        batch.push(inserts(0..100)).unwrap();
        batch.boundary(boundary());
        assert_eq!(std::fs::read_dir(spill.path().join("spill")).unwrap().count(), 0);
        let table = batch.close().unwrap().tables.into_values().next().unwrap();
        table.damage(damage);
        let error = table.into_keyed().map(drop).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_error() {
    let spill = tempfile::NamedTempFile::new().unwrap();
    let limits = BatchLimits { rows_max: 1, bytes_max: u64::MAX, age_max: Duration::ZERO, memory_bytes: SPILL_ALL };
    let mut batch = MicroBatch::new(limits, SpillDir::new(spill.path()));
    let error = batch.push(inserts(0..1)).unwrap_err();
    assert!(error.to_string().starts_with("cannot create the spill file in "), "{error}");
}

#[test]
fn keyed_changes_can_go_to_another_thread() {
    fn check<T: Send>() {}
    check::<KeyedChanges>();
    check::<MicroBatch>();
    check::<super::ClosedBatch>();
}

#[test]
fn runs_of_large_rows_are_read_a_few_at_a_time() {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(SPILL_ALL, &spill);
    let wide = schema("wide", &[("id", DataType::Int64), ("value", DataType::Utf8)], &[0]);
    let value = |id: i64| format!("{id}").repeat(100_000);
    for id in 0..9 {
        let ids: ArrayRef = Arc::new(Int64Array::from(vec![id % 7]));
        let values: ArrayRef = Arc::new(StringArray::from(vec![value(id)]));
        batch.push(changes(&wide, vec![ids, values], vec![Operation::Update])).unwrap();
    }
    batch.boundary(boundary());
    let table = batch.close().unwrap().tables.remove(&wide.table).unwrap();
    let mut keyed = table.into_keyed().unwrap();
    assert_eq!(keyed.inputs(), 2, "one of what was spilled, one of what was not");
    let mut found = Vec::new();
    while let Some(slice) = keyed.next_slice().unwrap() {
        found.extend(slice.rows.column(1).as_string::<i32>().iter().flatten().map(str::to_string));
    }
    assert_eq!(found, [7, 8, 2, 3, 4, 5, 6].map(value));
}
