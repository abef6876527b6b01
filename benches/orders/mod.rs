//! The table of orders that the benches of the lake write to.

use std::sync::Arc;

use alluvium::batch::KeyedChanges;
use alluvium::change::{ChangeBatch, Operation, SourcePosition, TransactionSpan};
use alluvium::lake::{CommitOutcome, CommitTag, CompactRules, LakeTable};
use alluvium::schema::TableSchema;
use arrow::array::RecordBatch;

/// What the job file's defaults come to.
#[allow(dead_code)]
pub const RULES: CompactRules =
    CompactRules { file_bytes: 256 << 20, small_files: 8, deleted_percent: 20, by_level: true };

/// The upkeep that is due after a batch, as a job does it.
#[allow(dead_code)]
pub async fn look_after(table: &mut LakeTable) {
    if !table.compactions_due(&RULES).is_empty() {
        table.compact(&RULES).await.unwrap();
    }
}

/// Applies one batch, which must be new to the table.
pub async fn upsert(
    table: &mut LakeTable,
    schema: &Arc<TableSchema>,
    rows: RecordBatch,
    operation: Operation,
    sequence: i64,
) {
    let span = TransactionSpan {
        first_row: 0,
        commit_time_us: sequence,
        position: SourcePosition { order: (0, 0), text: String::new() },
    };
    let operations = vec![operation; rows.num_rows()];
    let changes = ChangeBatch { schema: schema.clone(), rows, operations, gaps: None, transactions: vec![span] };
    let keyed = KeyedChanges::from_batches(schema.clone(), vec![changes]).unwrap();
    let tag = CommitTag { app_ids: vec![("alluvium/bench".into(), sequence)], ..CommitTag::default() };
    let outcome = table.apply(keyed, &tag).await.unwrap();
    assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
