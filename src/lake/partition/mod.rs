//! How a table is divided by the values of columns ("Partition Values" and "Partition Value Serialization" of the
//! Delta protocol).
//!
//! Data files leave the partition columns out: `partitionValues` of the log says which partition a file belongs to. The folder
//! that it lies in says so too, for readers that look there (folder.rs), and is never read here.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Schema, SchemaRef, TimeUnit};
use deltalake::kernel::Add;
use deltalake::table::state::DeltaTableState;
use serde_json::{Value, json};

use super::{LakeError, schema};
use crate::change::TableId;
use crate::config::{DatePart, PartitionBy};
use crate::schema::TableSchema;

mod folder;
mod spill;
mod value;
mod writer;

pub(super) use folder::folder;
pub(super) use writer::PartitionedWriter;

/// The values of a file's partition columns as the log has them, by column name.
pub(super) type PartitionValues = HashMap<String, Option<String>>;

/// The partition columns of one table; none for a table that is not partitioned.
#[derive(Debug, Clone)]
pub(super) struct Partitioning {
    table: TableId,
    pub columns: Vec<PartitionColumn>,
}

/// One partition column.
#[derive(Debug, Clone)]
pub(super) struct PartitionColumn {
    /// In the Delta table: the source's column, or one that only the Delta table has.
    pub name: String,
    pub data_type: DataType,
    /// The source column that the value comes from, and the part of its date.
    pub by: PartitionBy,
    /// The type of the source column.
    source_type: DataType,
}

impl Partitioning {
    /// The partitions that a new table of `schema` gets.
    ///
    /// # Errors
    /// [`LakeError::Settings`] if a column is missing, has a type that cannot divide a table, or is the only kind
    /// that there is; or if a column of the source has the name of one that a date part makes.
    pub fn plan(schema: &TableSchema, by: &[PartitionBy]) -> Result<Self, LakeError> {
        let refused = |what: String| LakeError::Settings { table: schema.table.clone(), what };
        let mut columns: Vec<PartitionColumn> = Vec::new();
        for by in by {
            let index = schema.column_index(&by.column);
            let index = index.ok_or_else(|| refused(format!("the source has no column {}", by.column)))?;
            let source = &schema.columns[index];
            let by = PartitionBy { column: source.name.clone(), part: by.part };
            let column = PartitionColumn::new(by, source.data_type.clone()).map_err(refused)?;
            if columns.iter().any(|other| other.name.eq_ignore_ascii_case(&column.name)) {
                return Err(refused(format!("{} is named twice", column.by)));
            }
            columns.push(column);
        }
        let partitioning = Self { table: schema.table.clone(), columns };
        partitioning.check_free(schema)?;
        let is_whole = |name: &str| partitioning.column(name).is_some();
        if schema.columns.iter().all(|column| is_whole(&column.name)) && !partitioning.is_empty() {
            return Err(refused("a table needs a column beside its partition columns".to_string()));
        }
        Ok(partitioning)
    }

    /// What the log gives for all rows of a file, by column name: arrays of one value.
    pub fn values_of_file(&self, add: &Add) -> BTreeMap<String, ArrayRef> {
        self.columns.iter().filter_map(|column| Some((column.name.clone(), column.of_file(add)?))).collect()
    }

    /// No partitions.
    pub fn none(table: &TableId) -> Self {
        Self { table: table.clone(), columns: Vec::new() }
    }

    /// The partitions of a table that is there.
    ///
    /// # Errors
    /// [`LakeError::Unsupported`] if the log's partition columns are not those of the table's own record.
    pub fn of_table(table: &TableId, state: &DeltaTableState) -> Result<Self, LakeError> {
        let metadata = state.metadata();
        let text = metadata.configuration().get(schema::PARTITION_BY).map_or("[]", String::as_str);
        let arrow = state.snapshot().arrow_schema();
        let column = |by: PartitionBy| {
            let source = arrow.field_with_name(&by.column).ok()?.data_type().clone();
            PartitionColumn::new(by, source).ok()
        };
        let parse = |text: &str| -> Option<Vec<PartitionColumn>> {
            let list: Value = serde_json::from_str(text).ok()?;
            list.as_array()?.iter().map(|by| column(PartitionBy::parse(by.as_str()?)?)).collect()
        };
        let columns = parse(text).unwrap_or_default();
        let names: Vec<&String> = columns.iter().map(|column| &column.name).collect();
        if metadata.partition_columns().iter().eq(names) {
            return Ok(Self { table: table.clone(), columns });
        }
        let found = metadata.partition_columns().join(", ");
        let reason = format!("it is partitioned by ({found}), and its property {} is {text}", schema::PARTITION_BY);
        Err(LakeError::Unsupported { table: table.clone(), reason })
    }

    /// No column of the source may have the name of a column that only the Delta table has.
    ///
    /// # Errors
    /// [`LakeError::Settings`]
    pub fn check_free(&self, schema: &TableSchema) -> Result<(), LakeError> {
        for column in self.columns.iter().filter(|column| column.by.part.is_some()) {
            if schema.column_index(&column.name).is_some() {
                let what = format!("the source has a column {}, the name that {} needs", column.name, column.by);
                return Err(LakeError::Settings { table: self.table.clone(), what });
            }
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.columns.iter().map(|column| column.name.as_str())
    }

    pub fn column(&self, name: &str) -> Option<&PartitionColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The columns of the data files among those of the table.
    pub fn file_schema(&self, table: &SchemaRef) -> SchemaRef {
        if self.is_empty() {
            return table.clone();
        }
        let kept = table.fields().iter().filter(|field| self.column(field.name()).is_none()).cloned();
        Arc::new(Schema::new(kept.collect::<Vec<_>>()))
    }

    /// The table's own record of its partitions.
    pub fn property(&self) -> String {
        json!(self.texts()).to_string()
    }

    /// Says so if the job file asks for other partitions than the table has: they hold from its creation on.
    pub fn warn_unless(&self, wanted: &[PartitionBy]) {
        let (known, wanted) = (self.texts(), wanted.iter().map(ToString::to_string).collect::<Vec<_>>());
        let same = known.len() == wanted.len() && known.iter().zip(&wanted).all(|(a, b)| a.eq_ignore_ascii_case(b));
        if !same {
            tracing::warn!(
                table = %self.table, partitioned_by = known.join(", "), partition_by = wanted.join(", "),
                "the table keeps the partitions that it was made with; move it away and load it again for others"
            );
        }
    }

    fn texts(&self) -> Vec<String> {
        self.columns.iter().map(|column| column.by.to_string()).collect()
    }

    /// The serialized values of all rows, one array for each of `columns`; `rows` has the source's columns.
    pub fn values<'a>(
        &self,
        columns: impl IntoIterator<Item = &'a PartitionColumn>,
        rows: &RecordBatch,
    ) -> Result<Vec<StringArray>, LakeError> {
        let failed = LakeError::arrow(&self.table, "find the partitions of rows");
        let column = |column: &PartitionColumn| {
            let same_name = |field: &Arc<arrow::datatypes::Field>| field.name().eq_ignore_ascii_case(&column.by.column);
            match rows.schema_ref().fields().iter().position(same_name) {
                Some(index) => column.texts(rows.column(index)),
                None => Ok(StringArray::new_null(rows.num_rows())),
            }
        };
        columns.into_iter().map(column).collect::<Result<Vec<_>, _>>().map_err(failed)
    }
}

impl PartitionColumn {
    /// # Errors
    /// Why a column of that type cannot divide a table so.
    fn new(by: PartitionBy, source_type: DataType) -> Result<Self, String> {
        let is_moment = matches!(source_type, DataType::Date32 | DataType::Timestamp(TimeUnit::Microsecond, _));
        let (name, data_type) = match by.part {
            None if value::is_serializable(&source_type) => (by.column.clone(), source_type.clone()),
            None => return Err(format!("column {} is {source_type}, which cannot divide a table", by.column)),
            Some(_) if !is_moment => return Err(format!("column {} is {source_type}, not a date", by.column)),
            Some(part) => {
                let data_type = if part == DatePart::Year { DataType::Int32 } else { DataType::Date32 };
                (format!("{}_{}", by.column, part.word()), data_type)
            }
        };
        Ok(Self { name, data_type, by, source_type })
    }

    fn texts(&self, source: &ArrayRef) -> Result<StringArray, arrow::error::ArrowError> {
        match self.by.part {
            None => value::texts(source),
            Some(part) => value::texts(&value::date_part(source, part)?),
        }
    }

    /// The value of one file as an array of one value of the column's type; `None` where the log has no such value.
    pub fn of_file(&self, add: &Add) -> Option<ArrayRef> {
        let text = add.partition_values.get(&self.name)?.as_deref();
        value::parse(text, &self.data_type)
    }

    /// The same, as the table's own files have it in the log.
    pub fn text_of_file(&self, add: &Add) -> Option<Option<String>> {
        let texts = value::texts(&self.of_file(add)?).ok()?;
        Some(texts.is_valid(0).then(|| texts.value(0).to_string()))
    }

    /// The same where the column belongs to the key, which is never null: the empty text is null in the log.
    pub fn key_of_file(&self, add: &Add) -> Option<ArrayRef> {
        let value = self.of_file(add)?;
        match value.as_string_opt::<i32>() {
            Some(text) if text.is_null(0) => Some(Arc::new(StringArray::from(vec![""]))),
            _ => Some(value),
        }
    }

    /// Whether null stands for a value that the source has.
    pub fn is_text(&self) -> bool {
        self.data_type == DataType::Utf8
    }

    /// The SQL expression by which other engines may find the column's value, where all of them find the same: the
    /// date of a timestamp in UTC depends on their time zone.
    pub fn generation_expression(&self) -> Option<String> {
        let part = self.by.part.filter(|_| !matches!(self.source_type, DataType::Timestamp(_, Some(_))))?;
        let column = format!("`{}`", self.by.column.replace('`', "``"));
        Some(match part {
            DatePart::Year => format!("YEAR({column})"),
            DatePart::Month => format!("TRUNC({column}, 'MONTH')"),
            DatePart::Day => format!("CAST({column} AS DATE)"),
        })
    }
}
