//! The shape of a table, independent of any source or store. Pure: no I/O.

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

use crate::change::{SourcePosition, TableId};

mod convert;
mod data_type;
mod evolution;
mod rules;
mod treat;

pub use convert::{can_become, convert};
pub use evolution::{ColumnChange, Evolution, Plan, Policy, WhenIncompatible, holds, plan};
pub use rules::{Added, ColumnRules, Treatment};
pub use treat::{HashKey, treated};

/// One column of a source table and the Arrow type that its values have everywhere in Alluvium.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    pub name: String,
    #[serde(with = "data_type")]
    pub data_type: DataType,
    /// Whether the source allows null. The lake's column is nullable unless it is part of the key, so that
    /// a value that has no equal there (a zero date) can be null.
    pub nullable: bool,
    /// The type as the source writes it, with all that decoding needs: `varchar(20) character set latin1`,
    /// `enum('a','b')`. Its grammar belongs to the source.
    pub source_type: String,
    /// The lake's column for its values, where that has another name or type. `None`: the same name, the same type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lake: Option<LakeColumn>,
    /// What comes into the lake of its values.
    #[serde(default, skip_serializing_if = "Treatment::is_kept")]
    pub treatment: Treatment,
}

/// A column of the lake's table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LakeColumn {
    pub name: String,
    /// Every value of the source's column has an equal in this type.
    #[serde(with = "data_type")]
    pub data_type: DataType,
}

impl Column {
    /// A column that may be null, under its own name in the lake.
    pub fn new(name: impl Into<String>, data_type: DataType, source_type: impl Into<String>) -> Self {
        let (name, source_type) = (name.into(), source_type.into());
        Self { name, data_type, nullable: true, source_type, lake: None, treatment: Treatment::Kept }
    }

    /// The name of the lake's column.
    pub fn lake_name(&self) -> &str {
        self.lake.as_ref().map_or(&self.name, |lake| &lake.name)
    }

    /// The type of the lake's column.
    pub fn lake_type(&self) -> &DataType {
        self.lake.as_ref().map_or(&self.data_type, |lake| &lake.data_type)
    }
}

/// A source table as it stands from one position of the log on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    pub table: TableId,
    /// In the source's order, which is also the order of the values in its log.
    pub columns: Vec<Column>,
    /// Indexes into `columns` of the key, in key order. Never empty.
    pub key: Vec<usize>,
    /// The character set, by the source's name, that a new text column gets when its statement names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_charset: Option<String>,
    /// 1 for the first shape that Alluvium saw of the table, then counted up.
    pub version: u32,
    /// The end of the statement that gave the table this shape: the statements up to there have been followed. `None`
    /// where no statement was seen: the shape is the catalogue's, or the log's own description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<SourcePosition>,
    /// The lake's columns that no column of the source fills any more: their names are not given again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<String>,
    /// What the job wants of the columns; the treatment of each that is there follows from it.
    #[serde(default, skip_serializing_if = "ColumnRules::is_empty")]
    pub rules: Box<ColumnRules>,
}

impl TableSchema {
    /// A table's first shape, of which no statement is known. `key` are indexes into `columns`.
    pub fn new(table: TableId, columns: Vec<Column>, key: Vec<usize>) -> Self {
        let rules = Box::default();
        Self { table, columns, key, default_charset: None, version: 1, since: None, retired: Vec::new(), rules }
    }

    /// The Arrow schema of a change batch: the lake's names, the source's types, all fields nullable.
    pub fn arrow_schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|column| Field::new(column.lake_name(), column.data_type.clone(), true));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }

    /// The lake's names of the key columns, in key order.
    pub fn key_names(&self) -> Vec<&str> {
        self.key.iter().map(|index| self.columns[*index].lake_name()).collect()
    }

    pub fn column_index(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }
}
