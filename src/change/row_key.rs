//! The key of a row as text.

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde::{Deserialize, Serialize};

/// The values of a row's key columns, in key order: numbers, dates (`2024-02-29`), times (`2024-02-29T01:02:03.5`, in UTC with a `Z`) and texts
/// as they are written, bytes in hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RowKey(pub Vec<String>);

impl RowKey {
    /// The keys of the rows with the numbers `picks`; `key` are the numbers of the key columns.
    ///
    /// # Errors
    /// A column of a type that has no text.
    pub fn of_rows(rows: &RecordBatch, key: &[usize], picks: &[usize]) -> Result<Vec<Self>, ArrowError> {
        let mut keys = vec![Self(Vec::with_capacity(key.len())); picks.len()];
        let options = FormatOptions::default();
        for column in key {
            let array = rows.column(*column);
            let formatter = ArrayFormatter::try_new(array.as_ref(), &options)?;
            for (key, row) in keys.iter_mut().zip(picks) {
                // A text is not formatted: its control characters stay what they are.
                let value = match array.data_type() {
                    DataType::Utf8 if array.is_valid(*row) => array.as_string::<i32>().value(*row).to_string(),
                    _ => formatter.value(*row).try_to_string()?,
                };
                key.0.push(value);
            }
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, BinaryArray, Date32Array, Decimal128Array, Int64Array, StringArray};
    use arrow::array::{BooleanArray, TimestampMicrosecondArray};
    use std::sync::Arc;

    #[test]
    fn keys_of_every_type_are_text() {
        let instant = 1_709_168_523_500_000;
        let columns: [(&str, ArrayRef, &str); 8] = [
            ("i", Arc::new(Int64Array::from(vec![0, -5])), "-5"),
            ("s", Arc::new(StringArray::from(vec!["", "a'\n\u{1f980}"])), "a'\n\u{1f980}"),
            ("b", Arc::new(BinaryArray::from(vec![&b""[..], &[0, 255]])), "00ff"),
            ("t", Arc::new(BooleanArray::from(vec![false, true])), "true"),
            ("d", Arc::new(Date32Array::from(vec![0, 19_782])), "2024-02-29"),
            ("m", Arc::new(TimestampMicrosecondArray::from(vec![0, instant])), "2024-02-29T01:02:03.500"),
            (
                "u",
                Arc::new(TimestampMicrosecondArray::from(vec![0, instant]).with_timezone("UTC")),
                "2024-02-29T01:02:03.500Z",
            ),
            (
                "n",
                Arc::new(Decimal128Array::from(vec![0, -150]).with_precision_and_scale(10, 2).expect("fits")),
                "-1.50",
            ),
        ];
        let rows = RecordBatch::try_from_iter(columns.iter().map(|(name, array, _)| (*name, array.clone())));
        let keys = RowKey::of_rows(&rows.expect("columns"), &[0, 1, 2, 3, 4, 5, 6, 7], &[1]).expect("texts");
        assert_eq!(keys, [RowKey(columns.iter().map(|(.., expected)| expected.to_string()).collect())]);
    }
}
