//! From a source's table schema to Delta's schema, protocol and table metadata.

use std::collections::HashMap;

use delta_kernel::engine::arrow_conversion::TryIntoKernel;
use deltalake::kernel::{DataType, Metadata, Protocol, StructField, StructType, contains_timestampntz, new_metadata};
use serde_json::{Value, json};

use super::LakeError;
use super::partition::{PartitionColumn, Partitioning};
use crate::change::TableId;
use crate::config::{MergeMode, TableSettings};
use crate::schema::{Column, TableSchema};

/// Table properties by which Alluvium knows its tables.
pub(super) const SOURCE: &str = "alluvium.source";
pub(super) const KEY: &str = "alluvium.key";
pub(super) const PARTITION_BY: &str = "alluvium.partition_by";
pub(super) const SCHEMA_VERSION: &str = "alluvium.schema_version";
/// Field metadata: what the source says of the column.
const FIELD_NULLABLE: &str = "alluvium.nullable";
const FIELD_SOURCE_TYPE: &str = "alluvium.source_type";

/// Delta's own property: whether writers may make deletion vectors.
pub(super) const ENABLE_DELETION_VECTORS: &str = "delta.enableDeletionVectors";

/// Delta's own property: whether commits say which rows they changed.
pub(super) const ENABLE_CHANGE_FEED: &str = "delta.enableChangeDataFeed";

/// The newest writer version that all engines know: it stands for NOT NULL columns and nothing else of ours.
const PLAIN_WRITER: i64 = 2;
/// The feature name of timestamps without a time zone in the Delta protocol.
const TIMESTAMP_NTZ: &str = "timestampNtz";
/// The feature name of deletion vectors in the Delta protocol.
const DELETION_VECTORS: &str = "deletionVectors";
/// The feature name of the change data feed in the Delta protocol.
const CHANGE_DATA_FEED: &str = "changeDataFeed";
/// The feature name of generated columns, and the field metadata that makes a column one.
const GENERATED_COLUMNS: &str = "generatedColumns";
const GENERATION_EXPRESSION: &str = "delta.generationExpression";
/// The feature name of column invariants in the Delta protocol. Spark counts NOT NULL among them, and refuses to read
/// a table with NOT NULL columns whose writer features lack it.
const INVARIANTS: &str = "invariants";

/// The Delta field of one column. Key columns are NOT NULL, all others are nullable: a value that has no equal
/// in the lake (a zero date) becomes null.
pub(super) fn field(table: &TableId, column: &Column, in_key: bool) -> Result<StructField, LakeError> {
    let data_type: Result<DataType, _> = column.lake_type().try_into_kernel();
    let data_type = data_type.map_err(LakeError::arrow(table, "map a column's type to Delta"))?;
    let metadata = [
        (FIELD_NULLABLE, delta_kernel::schema::MetadataValue::Boolean(column.nullable)),
        (FIELD_SOURCE_TYPE, delta_kernel::schema::MetadataValue::String(column.source_type.clone())),
    ];
    Ok(StructField::new(column.lake_name(), data_type, !in_key).with_metadata(metadata))
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
    let may_be_null = |column: &Column| partitioning.column(column.lake_name()).is_some_and(PartitionColumn::is_text);
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
    settings: &TableSettings,
) -> Result<Metadata, LakeError> {
    let mut properties = properties(schema);
    if settings.merge == MergeMode::OnRead {
        properties.insert(ENABLE_DELETION_VECTORS, "true".to_string());
    }
    if settings.change_feed {
        properties.insert(ENABLE_CHANGE_FEED, "true".to_string());
    }
    if !partitioning.is_empty() {
        properties.insert(PARTITION_BY, partitioning.property());
    }
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

/// What a table needs of its readers and writers.
struct Features {
    reader: Vec<&'static str>,
    writer: Vec<&'static str>,
}

impl Features {
    fn needed(delta: &StructType, settings: &TableSettings) -> Self {
        let mut features = Self { reader: Vec::new(), writer: Vec::new() };
        if settings.merge == MergeMode::OnRead {
            features.reader.push(DELETION_VECTORS);
        }
        if contains_timestampntz(delta.fields()) {
            features.reader.push(TIMESTAMP_NTZ);
        }
        features.writer.clone_from(&features.reader);
        if delta.fields().any(|field| !field.is_nullable()) {
            features.writer.push(INVARIANTS);
        }
        if delta.fields().any(|field| field.metadata().contains_key(GENERATION_EXPRESSION)) {
            features.writer.push(GENERATED_COLUMNS);
        }
        if settings.change_feed {
            features.writer.push(CHANGE_DATA_FEED);
        }
        features
    }
}

/// The features that a writer version without a list of them stands for, from the table in "Protocol Evolution".
fn implied_features(writer_version: i64) -> Vec<&'static str> {
    let by_version = [
        (2, "appendOnly"),
        (2, INVARIANTS),
        (3, "checkConstraints"),
        (4, CHANGE_DATA_FEED),
        (4, GENERATED_COLUMNS),
        (5, "columnMapping"),
        (6, "identityColumns"),
    ];
    by_version.into_iter().filter(|(version, _)| *version <= writer_version).map(|(_, feature)| feature).collect()
}

/// The protocol of a new table: reader version 1 and writer version 2 if they are enough, else the versions that list
/// features, with those that the table needs.
pub(super) fn new_protocol(
    table: &TableId,
    delta: &StructType,
    settings: &TableSettings,
) -> Result<Protocol, LakeError> {
    let needed = Features::needed(delta, settings);
    let plain = implied_features(PLAIN_WRITER);
    let is_plain = needed.reader.is_empty() && needed.writer.iter().all(|feature| plain.contains(feature));
    let protocol = if is_plain {
        json!({ "minReaderVersion": 1, "minWriterVersion": PLAIN_WRITER })
    } else if needed.reader.is_empty() {
        json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": needed.writer })
    } else {
        json!({
            "minReaderVersion": 3, "minWriterVersion": 7,
            "readerFeatures": needed.reader, "writerFeatures": needed.writer,
        })
    };
    serde_json::from_value(protocol).map_err(|error| unsupported(table, &error))
}

/// `protocol` with what `delta` needs beyond it; `None` if that is nothing.
pub(super) fn grown_protocol(
    table: &TableId,
    protocol: &Protocol,
    delta: &StructType,
    settings: &TableSettings,
) -> Result<Option<Protocol>, LakeError> {
    let needed = Features::needed(delta, settings);
    let mut value = serde_json::to_value(protocol).map_err(|error| unsupported(table, &error))?;
    let mut grown = false;
    if let Some(implied) = implied_by(&value) {
        let enough = needed.writer.iter().all(|feature| implied.contains(feature)) && needed.reader.is_empty();
        if enough {
            return Ok(None);
        }
        value["minWriterVersion"] = json!(7);
        value["writerFeatures"] = json!(implied);
        grown = true;
    }
    if !needed.reader.is_empty() && value["minReaderVersion"] != json!(3) {
        let mapped = value["minReaderVersion"] == json!(2);
        value["minReaderVersion"] = json!(3);
        value["readerFeatures"] = if mapped { json!(["columnMapping"]) } else { json!([]) };
    }
    for (list, features) in [("readerFeatures", &needed.reader), ("writerFeatures", &needed.writer)] {
        for feature in features {
            grown |= add_feature(&mut value, list, feature);
        }
    }
    if !grown {
        return Ok(None);
    }
    serde_json::from_value(value).map(Some).map_err(|error| unsupported(table, &error))
}

/// The features of a protocol that lists none.
fn implied_by(protocol: &Value) -> Option<Vec<&'static str>> {
    let version = protocol.get("minWriterVersion").and_then(Value::as_i64).filter(|version| *version < 7)?;
    Some(implied_features(version))
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

    fn delta(data_type: DataType, partition_by: &[&str]) -> (TableId, StructType) {
        let column = |name: &str, data_type: DataType| Column::new(name, data_type, "");
        let columns = vec![column("id", DataType::Int64), column("value", data_type)];
        let schema = TableSchema::new(TableId::new("shop", "t"), columns, vec![0]);
        let by: Vec<_> = partition_by.iter().map(|by| crate::config::PartitionBy::parse(by).unwrap()).collect();
        let delta = delta_schema(&schema, &Partitioning::plan(&schema, &by).unwrap()).unwrap();
        (schema.table, delta)
    }

    fn check(data_type: DataType, merge: MergeMode, partition_by: &[&str], expected: Value) {
        let (table, delta) = delta(data_type, partition_by);
        let settings = TableSettings { merge, ..TableSettings::default() };
        let protocol = new_protocol(&table, &delta, &settings).unwrap();
        assert_eq!(serde_json::to_value(&protocol).unwrap(), expected);
        assert_eq!(grown_protocol(&table, &protocol, &delta, &settings).unwrap(), None);
    }

    fn listed(reader: &[&str], writer: &[&str]) -> Value {
        json!({ "minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer })
    }

    fn timestamp_ntz() -> DataType {
        DataType::Timestamp(TimeUnit::Microsecond, None)
    }

    #[test]
    fn a_table_names_the_features_that_its_schema_needs() {
        let timestamp = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let (vectors, ntz) = ("deletionVectors", "timestampNtz");
        check(DataType::Utf8, MergeMode::OnRead, &[], listed(&[vectors], &[vectors, "invariants"]));
        check(timestamp.clone(), MergeMode::OnRead, &["day(value)"], listed(&[vectors], &[vectors, "invariants"]));
        let writer = [vectors, ntz, "invariants"];
        check(timestamp_ntz(), MergeMode::OnRead, &[], listed(&[vectors, ntz], &writer));
        let plain = json!({ "minReaderVersion": 1, "minWriterVersion": 2 });
        check(timestamp, MergeMode::CopyOnWrite, &[], plain);
        check(timestamp_ntz(), MergeMode::CopyOnWrite, &[], listed(&[ntz], &[ntz, "invariants"]));
        let features = ["invariants", "generatedColumns"];
        let generated = json!({ "minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features });
        check(DataType::Date32, MergeMode::CopyOnWrite, &["day(value)"], generated);
    }

    #[test]
    fn a_protocol_without_lists_grows_into_one_with_what_it_stood_for() {
        let plain = |reader: i64, writer: i64| -> Protocol {
            serde_json::from_value(json!({ "minReaderVersion": reader, "minWriterVersion": writer })).unwrap()
        };
        let check = |from: Protocol, data_type: DataType, merge: MergeMode, expected: Value| {
            let (table, delta) = delta(data_type, &[]);
            let settings = TableSettings { merge, ..TableSettings::default() };
            let grown = grown_protocol(&table, &from, &delta, &settings).unwrap();
            assert_eq!(serde_json::to_value(grown).unwrap(), expected);
        };
        check(plain(1, 2), DataType::Utf8, MergeMode::CopyOnWrite, Value::Null);
        let writer = ["appendOnly", "invariants", "timestampNtz"];
        check(plain(1, 2), timestamp_ntz(), MergeMode::CopyOnWrite, listed(&["timestampNtz"], &writer));
        let writer = ["appendOnly", "invariants", "checkConstraints", "deletionVectors"];
        check(plain(1, 3), DataType::Utf8, MergeMode::OnRead, listed(&["deletionVectors"], &writer));
    }
}
