//! From items to Arrow columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Decimal128Builder, Int64Builder, RecordBatch, StringBuilder,
};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;

use super::attribute::{Attribute, Item, push_item};
use super::base64;
use super::number::Number;
use super::shape::EXTRA;
use crate::change::{ChangeBatch, Operation, SourcePosition, TransactionSpan};
use crate::schema::TableSchema;

/// Collects changes to one table under one schema.
pub(super) struct RowsBuilder {
    schema: Arc<TableSchema>,
    columns: Vec<ColumnBuilder>,
    by_name: HashMap<String, usize>,
    extra: Option<usize>,
    operations: Vec<Operation>,
    transactions: Vec<TransactionSpan>,
}

enum ColumnBuilder {
    Bool(BooleanBuilder),
    Binary(BinaryBuilder),
    Long(Int64Builder),
    /// With the digits behind the point.
    Decimal(Decimal128Builder, u8),
    Text(StringBuilder),
}

impl ColumnBuilder {
    fn new(data_type: &DataType) -> Result<Self, ArrowError> {
        Ok(match data_type {
            DataType::Boolean => Self::Bool(BooleanBuilder::new()),
            DataType::Binary => Self::Binary(BinaryBuilder::new()),
            DataType::Int64 => Self::Long(Int64Builder::new()),
            DataType::Decimal128(_, scale) => {
                let builder = Decimal128Builder::new().with_data_type(data_type.clone());
                Self::Decimal(builder, u8::try_from(*scale).unwrap_or(0))
            }
            DataType::Utf8 => Self::Text(StringBuilder::new()),
            other => return Err(ArrowError::SchemaError(format!("no attribute has a column of type {other}"))),
        })
    }

    /// A value that does not fit is null: the schema was inferred from these values, so it fits unless it is part of a key.
    fn append(&mut self, value: Option<&Attribute<'_>>) {
        match self {
            Self::Bool(builder) => builder.append_option(value.and_then(as_bool)),
            Self::Binary(builder) => builder.append_option(value.and_then(as_bytes)),
            Self::Long(builder) => builder.append_option(value.and_then(as_number).and_then(|number| number.as_i64())),
            Self::Decimal(builder, scale) => {
                builder.append_option(value.and_then(as_number).and_then(|number| number.scaled(*scale)));
            }
            Self::Text(builder) => append_text(builder, value),
        }
    }

    fn append_json(&mut self, json: Option<String>) {
        match self {
            Self::Text(builder) => builder.append_option(json),
            other => other.append(None),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        match self {
            Self::Bool(builder) => Arc::new(builder.finish()),
            Self::Binary(builder) => Arc::new(builder.finish()),
            Self::Long(builder) => Arc::new(builder.finish()),
            Self::Decimal(builder, _) => Arc::new(builder.finish()),
            Self::Text(builder) => Arc::new(builder.finish()),
        }
    }
}

/// Plain text is the common case, and is not copied on its way.
fn append_text(builder: &mut StringBuilder, value: Option<&Attribute<'_>>) {
    match value {
        Some(Attribute::Text(text)) => builder.append_value(&text.0),
        other => builder.append_option(other.and_then(Attribute::to_text)),
    }
}

fn as_bool(value: &Attribute<'_>) -> Option<bool> {
    match value {
        Attribute::Bool(value) => Some(*value),
        _ => None,
    }
}

fn as_bytes(value: &Attribute<'_>) -> Option<Vec<u8>> {
    match value {
        Attribute::Binary(text) => base64::decode(&text.0),
        _ => None,
    }
}

fn as_number(value: &Attribute<'_>) -> Option<Number> {
    match value {
        Attribute::Number(text) => Number::parse(&text.0),
        _ => None,
    }
}

impl RowsBuilder {
    /// # Errors
    /// A column whose type no attribute has.
    pub fn new(schema: &Arc<TableSchema>) -> Result<Self, ArrowError> {
        let columns = schema.columns.iter().map(|column| ColumnBuilder::new(&column.data_type));
        let by_name: HashMap<String, usize> =
            schema.columns.iter().enumerate().map(|(index, column)| (column.name.clone(), index)).collect();
        Ok(Self {
            schema: Arc::clone(schema),
            columns: columns.collect::<Result<_, _>>()?,
            extra: by_name.get(EXTRA).copied(),
            by_name,
            operations: Vec::new(),
            transactions: Vec::new(),
        })
    }

    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// A change whose row is the whole item. The schema has been inferred from it.
    pub fn push(&mut self, operation: Operation, item: &Item<'_>) {
        let mut values = vec![None; self.columns.len()];
        let mut rest = Vec::new();
        for (name, value) in &item.0 {
            match self.by_name.get(name.0.as_ref()) {
                Some(index) if Some(*index) != self.extra => values[*index] = Some(value),
                _ if *value == Attribute::Null => {}
                _ => rest.push((name.0.as_ref(), value)),
            }
        }
        for (index, (column, value)) in self.columns.iter_mut().zip(values).enumerate() {
            if Some(index) == self.extra {
                column.append_json(json_of(&rest));
            } else {
                column.append(value);
            }
        }
        self.operations.push(operation);
    }

    /// A delete of the row with this key.
    pub fn push_delete(&mut self, key: &Item<'_>) {
        for (index, (column, known)) in self.columns.iter_mut().zip(&self.schema.columns).enumerate() {
            let value = if self.schema.key.contains(&index) { key.get(&known.name) } else { None };
            column.append(value);
        }
        self.operations.push(Operation::Delete);
    }

    /// From the next row on, changes were made at this time (microseconds since 1970-01-01 UTC).
    pub fn begin(&mut self, commit_time_us: i64, position: &SourcePosition) {
        let last = self.transactions.last();
        if last.is_none_or(|last| last.commit_time_us != commit_time_us) {
            let (first_row, position) = (self.operations.len(), position.clone());
            self.transactions.push(TransactionSpan { first_row, commit_time_us, position });
        }
    }

    /// # Errors
    /// Arrow's, if the columns do not fit together: a fault of this module.
    pub fn finish(mut self) -> Result<ChangeBatch, ArrowError> {
        let columns = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        Ok(ChangeBatch {
            rows: RecordBatch::try_new(self.schema.arrow_schema(), columns)?,
            schema: self.schema,
            operations: self.operations,
            gaps: None,
            transactions: self.transactions,
        })
    }
}

fn json_of(members: &[(&str, &Attribute<'_>)]) -> Option<String> {
    if members.is_empty() {
        return None;
    }
    let mut json = String::new();
    push_item(&mut json, members.iter().copied());
    Some(json)
}
