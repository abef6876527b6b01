//! Finds the rows of a query that names the keys it wants, in the way in which a batch finds the rows that it replaces: a page
//! of key columns for each file that may have one, where opening the file for the query costs ten times as much.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::{Guarantee, LiteralGuarantee};

use crate::lake::LakeError;
use crate::lake::files::FileEntry;
use crate::lake::locate::{KeySet, KeySpace, Prober};

/// Most keys that are looked for one by one; a query for more reads as any other.
const KEYS_MAX: usize = 1_000;

/// Keys, and what finds them.
#[derive(Clone)]
pub(super) struct NamedKeys {
    prober: Arc<Prober>,
    keys: Arc<KeySet>,
}

impl NamedKeys {
    /// The only keys for which `predicate` (over the columns of `schema`) can be true; `None` if it does not name them all.
    pub fn new(prober: &Arc<Prober>, schema: &SchemaRef, predicate: &Arc<dyn PhysicalExpr>) -> Option<Self> {
        if prober.exhaustive {
            return None;
        }
        let values = values(&prober.space, schema, &LiteralGuarantee::analyze(predicate))?;
        let keys = KeySet::of_values(&prober.space, &values).ok()?;
        Some(Self { prober: prober.clone(), keys: Arc::new(keys) })
    }

    /// The live rows of a file that have one of the keys, ascending, and how many rows it has in all. Decodes on a thread that
    /// other files are not waiting for.
    pub async fn rows(&self, file: &Arc<FileEntry>) -> Result<(Vec<u64>, u64), LakeError> {
        let (named, file) = (self.clone(), file.clone());
        let task = tokio::spawn(async move { named.prober.rows(file, &named.keys).await });
        task.await.unwrap_or_else(|error| Err(LakeError::Task { what: "look for keys", source: error }))
    }
}

/// Every combination of the values that the key columns are said to have, column by column.
fn values(space: &KeySpace, schema: &SchemaRef, said: &[LiteralGuarantee]) -> Option<Vec<ArrayRef>> {
    let mut columns: Vec<Vec<ScalarValue>> = Vec::new();
    for column in &space.columns {
        // Numbers that are equal and not the same (-0.0, NaN) are not found by their bytes.
        if column.data_type.is_floating() {
            return None;
        }
        let of_column = |one: &&LiteralGuarantee| one.guarantee == Guarantee::In && one.column.name == column.name;
        let literals = &said.iter().find(of_column)?.literals;
        let data_type = schema.field_with_name(&column.name).ok()?.data_type();
        if literals.iter().any(|value| value.is_null() || value.data_type() != *data_type) {
            return None;
        }
        columns = combined(&columns, literals)?;
    }
    let arrays = columns.into_iter().map(|values| ScalarValue::iter_to_array(values).ok());
    arrays.collect::<Option<Vec<_>>>().filter(|arrays| !arrays.is_empty())
}

/// Each of the combinations so far with each of the values of one more column.
fn combined(columns: &[Vec<ScalarValue>], values: &HashSet<ScalarValue>) -> Option<Vec<Vec<ScalarValue>>> {
    let before = columns.first().map_or(1, Vec::len);
    if before * values.len() > KEYS_MAX {
        return None;
    }
    let repeated = |column: &Vec<ScalarValue>| {
        column.iter().flat_map(|value| std::iter::repeat_n(value.clone(), values.len())).collect()
    };
    let mut all: Vec<Vec<ScalarValue>> = columns.iter().map(repeated).collect();
    all.push((0..before).flat_map(|_| values.iter().cloned()).collect());
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_combined_value_by_value() {
        let values = |numbers: &[i32]| numbers.iter().map(|number| ScalarValue::from(*number)).collect::<HashSet<_>>();
        let all = combined(&[], &values(&[1, 2])).unwrap();
        let all = combined(&all, &values(&[7, 8, 9])).unwrap();
        let pairs: HashSet<String> = all[0].iter().zip(&all[1]).map(|(a, b)| format!("{a} {b}")).collect();
        let expected = ["1 7", "1 8", "1 9", "2 7", "2 8", "2 9"];
        assert_eq!(pairs, expected.map(str::to_string).into());
        assert!(combined(&all, &(0..200).map(ScalarValue::from).collect()).is_none());
    }
}
