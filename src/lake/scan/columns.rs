//! The columns of a scan: those that are in the files, and those that the log gives for a whole file.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::utils::collect_columns;
use deltalake::kernel::Add;

use crate::change::TableId;
use crate::lake::{LakeError, stats};

/// The columns of a table in its order, and in that of the scan: partition columns last.
pub(super) struct ScanColumns {
    /// The table's order.
    pub schema: SchemaRef,
    /// The scan's order.
    pub scan: TableSchema,
    /// For each column of the table its position in the scan.
    positions: Vec<usize>,
}

impl ScanColumns {
    pub fn new(schema: SchemaRef, partition_columns: &[String]) -> Self {
        let is_partition = |field: &&FieldRef| partition_columns.contains(field.name());
        let in_files: Vec<FieldRef> = schema.fields().iter().filter(|field| !is_partition(field)).cloned().collect();
        let by_partition: Vec<FieldRef> = schema.fields().iter().filter(is_partition).cloned().collect();
        let (mut file, mut partition) = (0..in_files.len(), in_files.len()..schema.fields().len());
        let positions = schema
            .fields()
            .iter()
            .filter_map(|field| if is_partition(&field) { partition.next() } else { file.next() });
        let positions = positions.collect();
        let scan =
            TableSchema::builder(Arc::new(Schema::new(in_files))).with_table_partition_cols(by_partition).build();
        Self { schema, scan, positions }
    }

    /// All columns in the scan's order.
    pub fn scan_schema(&self) -> &SchemaRef {
        self.scan.table_schema()
    }

    /// How many columns are in the files: those of the log come behind them.
    pub fn in_files(&self) -> usize {
        self.scan.file_schema().fields().len()
    }

    /// From positions in the table to positions in the scan; of all columns if there are none given.
    pub fn in_scan_order(&self, projection: Option<&Vec<usize>>) -> Vec<usize> {
        match projection {
            Some(columns) => columns.iter().filter_map(|column| self.positions.get(*column).copied()).collect(),
            None => self.positions.clone(),
        }
    }

    /// The columns that a query reads or filters by, ascending, by position in the scan.
    pub fn wanted(&self, projection: Option<&Vec<usize>>, predicate: Option<&Arc<dyn PhysicalExpr>>) -> Vec<usize> {
        let filtered = predicate.map(collect_columns).unwrap_or_default();
        let filtered: Vec<usize> = filtered.iter().map(|column| column.index()).collect();
        let wanted: BTreeSet<usize> =
            self.in_scan_order(projection).into_iter().chain(self.in_scan_order(Some(&filtered))).collect();
        wanted.into_iter().collect()
    }

    /// A file's values of the partition columns, in their order.
    ///
    /// # Errors
    /// [`LakeError::Damaged`] if one is missing or not of its column's type.
    pub fn partition_values(&self, table: &TableId, add: &Add) -> Result<Vec<ScalarValue>, LakeError> {
        let value = |field: &FieldRef| {
            let damaged = |reason: String| LakeError::Damaged { table: table.clone(), file: add.path.clone(), reason };
            let text = add.partition_values.get(field.name());
            let text = text.ok_or_else(|| damaged(format!("the log gives it no value of {}", field.name())))?;
            partition_value(field.data_type(), text.as_deref().unwrap_or_default())
                .ok_or_else(|| damaged(format!("the log's value of {} is not a {}", field.name(), field.data_type())))
        };
        self.scan.table_partition_cols().iter().map(value).collect()
    }
}

/// Reads a value as the Delta protocol writes it ("Partition Value Serialization"): no text stands for null.
fn partition_value(data_type: &DataType, text: &str) -> Option<ScalarValue> {
    if text.is_empty() {
        return ScalarValue::try_new_null(data_type).ok();
    }
    match data_type {
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            Some(ScalarValue::TimestampMicrosecond(Some(stats::parse_timestamp(text)?), zone.clone()))
        }
        // Each byte is the character of its number.
        DataType::Binary | DataType::BinaryView => {
            let bytes: Option<Vec<u8>> = text.chars().map(|byte| u8::try_from(u32::from(byte)).ok()).collect();
            ScalarValue::Binary(bytes.map(Some)?).cast_to(data_type).ok()
        }
        data_type if data_type.is_nested() => None,
        _ => ScalarValue::try_from_string(text.to_string(), data_type).ok().filter(|value| !value.is_null()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;

    fn check(data_type: DataType, text: &str, expected: Option<&str>) {
        let found = partition_value(&data_type, text);
        assert_eq!(found.as_ref().map(ToString::to_string).as_deref(), expected, "{data_type} {text:?}");
        assert!(found.is_none_or(|value| value.data_type() == data_type), "{data_type} {text:?}");
    }

    #[test]
    fn values_are_read_as_the_protocol_writes_them() {
        check(DataType::Utf8View, "a b%/ü", Some("a b%/ü"));
        check(DataType::Utf8, "", Some("NULL"));
        check(DataType::Int32, "-7", Some("-7"));
        check(DataType::Int32, "seven", None);
        check(DataType::Int8, "300", None);
        check(DataType::Boolean, "true", Some("true"));
        check(DataType::Float64, "1.5E10", Some("15000000000"));
        check(DataType::Decimal128(10, 2), "-12.30", Some("-12.30"));
        check(DataType::Date32, "2026-01-31", Some("2026-01-31"));
        check(DataType::Binary, "\u{1}\u{ff}", Some("01FF"));
        check(DataType::Binary, "\u{100}", None);
        let zoned = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        for text in ["1970-01-01 00:00:01", "1970-01-01T00:00:01.000000Z", "1970-01-01 00:00:01.0"] {
            check(zoned.clone(), text, Some("1000000"));
        }
        check(DataType::Timestamp(TimeUnit::Microsecond, None), "1970-01-01 00:00:00.25", Some("250000"));
    }

    #[test]
    fn partition_columns_are_last_in_the_scan_and_in_their_place_in_the_table() {
        let field = |name: &str| Field::new(name, DataType::Int64, true);
        let schema = Arc::new(Schema::new(vec![field("p"), field("a"), field("q"), field("b")]));
        let columns = ScanColumns::new(schema.clone(), &["q".into(), "p".into()]);
        let names = |schema: &Schema| schema.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
        assert_eq!(names(columns.scan_schema()), ["a", "b", "p", "q"]);
        let all = columns.in_scan_order(None);
        assert_eq!(names(&columns.scan_schema().project(&all).unwrap()), names(&schema));
        assert_eq!(columns.in_scan_order(Some(&vec![3, 0])), [1, 2]);
        assert_eq!(columns.in_files(), 2);
    }
}
