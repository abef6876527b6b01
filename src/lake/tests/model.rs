//! What the table should hold: rows as text, by key.

use std::collections::{BTreeMap, BTreeSet};

use arrow::array::RecordBatch;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::change::{ChangeBatch, Operation};

/// Stands for null, and for no text.
pub const NULL: &str = "\u{0}null";

#[derive(Debug, Default, Clone)]
pub struct Model {
    pub rows: BTreeMap<Vec<String>, Vec<String>>,
    /// Keys that the last batch left and that were not there before it.
    pub inserted: i64,
}

impl Model {
    /// Applies changes one by one, in log order.
    pub fn apply(&mut self, changes: &ChangeBatch) {
        let before: BTreeSet<_> = self.rows.keys().cloned().collect();
        let names: Vec<&str> = changes.schema.columns.iter().map(|column| column.name.as_str()).collect();
        for (operation, row) in changes.operations.iter().zip(texts(&changes.rows, &names)) {
            let key: Vec<_> = changes.schema.key.iter().map(|index| row[*index].clone()).collect();
            match operation {
                Operation::Truncate => self.rows.clear(),
                Operation::Delete => {
                    self.rows.remove(&key);
                }
                _ => {
                    self.rows.insert(key, row);
                }
            }
        }
        self.inserted = self.rows.keys().filter(|key| !before.contains(*key)).count() as i64;
    }
}

/// The rows of a batch as text, with the named columns.
pub fn texts(batch: &RecordBatch, names: &[&str]) -> Vec<Vec<String>> {
    let options = FormatOptions::default().with_null(NULL);
    let columns: Vec<_> = names.iter().map(|name| batch.column_by_name(name).expect("the column exists")).collect();
    let columns: Vec<_> =
        columns.iter().map(|array| ArrayFormatter::try_new(array.as_ref(), &options).unwrap()).collect();
    (0..batch.num_rows()).map(|row| columns.iter().map(|column| column.value(row).to_string()).collect()).collect()
}
