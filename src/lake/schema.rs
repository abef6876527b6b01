//! From a source's table schema to Delta's schema, protocol and table metadata.

use std::collections::HashMap;

use delta_kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake::kernel::{DataType, Metadata, Protocol, StructField, StructType, contains_timestampntz, new_metadata};
use serde_json::{Value, json};

use super::LakeError;
use super::partition::{PartitionColumn, Partitioning};
use crate::change::TableId;
use crate::schema::{Column, TableSchema};

/// Table properties by which Alluvium knows its tables.
pub(super) const SOURCE: &str = "alluvium.source";
pub(super) const KEY: &str = "alluvium.key";
pub(super) const PARTITION_BY: &str = "alluvium.partition_by";
pub(super) const SCHEMA_VERSION: &str = "alluvium.schema_version";
/// Field metadata: what the source says of the column.
const FIELD_NULLABLE: &str = "alluvium.nullable";
const FIELD_SOURCE_TYPE: &str = "alluvium.source_type";

/// The feature name of timestamps without a time zone in the Delta protocol.
const TIMESTAMP_NTZ: &str = "timestampNtz";
/// The feature name of deletion vectors in the Delta protocol.
const DELETION_VECTORS: &str = "deletionVectors";
/// The feature name of generated columns, and the field metadata that makes a column one.
const GENERATED_COLUMNS: &str = "generatedColumns";
const GENERATION_EXPRESSION: &str = "delta.generationExpression";
/// The feature name of column invariants in the Delta protocol. Spark counts NOT NULL among them, and refuses to read
/// a table with NOT NULL columns whose writer features lack it.
const INVARIANTS: &str = "invariants";

/// The Delta field of one column. Key columns are NOT NULL, all others are nullable: a value that has no equal
/// in the lake (a zero date) becomes null.
pub(super) fn field(table: &TableId, column: &Column, in_key: bool) -> Result<StructField, LakeError> {
    let data_type: Result<DataType, _> = (&column.data_type).try_into_kernel();
    let data_type = data_type.map_err(LakeError::arrow(table, "map a column's type to Delta"))?;
    let metadata = [
        (FIELD_NULLABLE, delta_kernel::schema::MetadataValue::Boolean(column.nullable)),
        (FIELD_SOURCE_TYPE, delta_kernel::schema::MetadataValue::String(column.source_type.clone())),
    ];
    Ok(StructField::new(&column.name, data_type, !in_key).with_metadata(metadata))
}

/// The Delta field of a partition column that the source does not have.
fn derived_field(table: &TableId, column: &PartitionColumn) -> Result<StructField, LakeError> {
    let data_type: Result<DataType, _> = (&column.data_type).try_into_kernel();
    let data_type = data_type.map_err(LakeError::arrow(table, "map a partition column's type to Delta"))?;
    let expression = column.generation_expression().map(delta_kernel::schema::MetadataValue::String);
    Ok(StructField::new(&column.name, data_type, true)
        .with_metadata(expression.map(|expression| (GENERATION_EXPRESSION, expression))))
}

/// The Delta schema of a new table: the source's columns, then the partition columns that only the table has.
pub(super) fn delta_schema(schema: &TableSchema, partitioning: &Partitioning) -> Result<StructType, LakeError> {
    // The empty text of a partition column is null in the lake.
    let may_be_null = |column: &Column| partitioning.column(&column.name).is_some_and(PartitionColumn::is_text);
    let source = schema
        .columns
        .iter()
        .enumerate()
        .map(|(index, column)| field(&schema.table, column, schema.key.contains(&index) && !may_be_null(column)));
    let derived = partitioning.columns.iter().filter(|column| column.by.part.is_some());
    let derived = derived.map(|column| derived_field(&schema.table, column));
    let fields = source.chain(derived).collect::<Result<Vec<_>, _>>()?;
    StructType::try_new(fields).map_err(|error| unsupported(&schema.table, &error))
}

/// Table metadata with a new table id.
pub(super) fn new_table_metadata(
    schema: &TableSchema,
    delta: &StructType,
    partitioning: &Partitioning,
) -> Result<Metadata, LakeError> {
    let mut properties = properties(schema);
    if !partitioning.is_empty() {
        properties.insert(PARTITION_BY, partitioning.property());
    }
    properties.insert("delta.enableDeletionVectors", "true".to_string());
    new_metadata(delta, partitioning.names(), properties).map_err(|error| unsupported(&schema.table, &error))
}

/// The properties that follow the source's schema.
pub(super) fn properties(schema: &TableSchema) -> HashMap<&'static str, String> {
    HashMap::from([
        (SOURCE, schema.table.to_string()),
        (KEY, json!(schema.key_names()).to_string()),
        (SCHEMA_VERSION, schema.version.to_string()),
    ])
}

/// Reader version 3 and writer version 7 with the features that the schema needs.
pub(super) fn new_protocol(table: &TableId, delta: &StructType) -> Result<Protocol, LakeError> {
    let protocol = json!({
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": [DELETION_VECTORS], "writerFeatures": [DELETION_VECTORS],
    });
    let protocol = serde_json::from_value(protocol).map_err(|error| unsupported(table, &error))?;
    Ok(grown_protocol(table, &protocol, delta)?.unwrap_or(protocol))
}

/// `protocol` with what `delta` needs beyond it; `None` if that is nothing.
pub(super) fn grown_protocol(
    table: &TableId,
    protocol: &Protocol,
    delta: &StructType,
) -> Result<Option<Protocol>, LakeError> {
    let mut value = serde_json::to_value(protocol).map_err(|error| unsupported(table, &error))?;
    let mut grown = false;
    if contains_timestampntz(delta.fields()) {
        for list in ["readerFeatures", "writerFeatures"] {
            grown |= add_feature(&mut value, list, TIMESTAMP_NTZ);
        }
    }
    if delta.fields().any(|field| !field.is_nullable()) {
        grown |= add_feature(&mut value, "writerFeatures", INVARIANTS);
    }
    if delta.fields().any(|field| field.metadata().contains_key(GENERATION_EXPRESSION)) {
        grown |= add_feature(&mut value, "writerFeatures", GENERATED_COLUMNS);
    }
    if !grown {
        return Ok(None);
    }
    serde_json::from_value(value).map(Some).map_err(|error| unsupported(table, &error))
}

fn add_feature(protocol: &mut Value, list: &str, feature: &str) -> bool {
    let Some(features) = protocol.get_mut(list).and_then(Value::as_array_mut) else { return false };
    let missing = !features.iter().any(|known| known == feature);
    if missing {
        features.push(json!(feature));
    }
    missing
}

pub(super) fn unsupported(table: &TableId, error: &dyn std::fmt::Display) -> LakeError {
    LakeError::Unsupported { table: table.clone(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::{DataType, TimeUnit};

    fn check(data_type: DataType, reader: &[&str], writer: &[&str]) {
        let column = |name: &str, data_type: DataType| Column {
            name: name.to_string(),
            data_type,
            nullable: true,
            source_type: String::new(),
        };
        let columns = vec![column("id", DataType::Int64), column("value", data_type)];
        let schema =
            TableSchema { table: TableId::new("shop", "t"), columns, key: vec![0], default_charset: None, version: 1 };
        let delta = delta_schema(&schema, &Partitioning::plan(&schema, &[]).unwrap()).unwrap();
        let protocol = new_protocol(&schema.table, &delta).unwrap();
        let value = serde_json::to_value(&protocol).unwrap();
        let expected = json!({
            "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer,
        });
        assert_eq!(value, expected);
        assert_eq!(grown_protocol(&schema.table, &protocol, &delta).unwrap(), None);
    }

    #[test]
    fn a_table_names_the_features_that_its_schema_needs() {
        let timestamp_ntz = DataType::Timestamp(TimeUnit::Microsecond, None);
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        check(DataType::Utf8, &["deletionVectors"], &["deletionVectors", "invariants"]);
        check(timestamp, &["deletionVectors"], &["deletionVectors", "invariants"]);
        let reader = ["deletionVectors", "timestampNtz"];
        check(timestamp_ntz, &reader, &["deletionVectors", "timestampNtz", "invariants"]);
    }
}
