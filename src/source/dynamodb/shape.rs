//! Which columns items need. DynamoDB has no schema: each item brings its own attributes, each value its own type.
//!
//! The type of a column is the join of the types of all values that it has had, in this order (to the right is wider):
//! ```text
//! long ──┬─▶ decimal(38,18) ──┬─▶ string
//!        └─▶ decimal(38,0) ───┤
//! boolean, binary ────────────┘
//! ```
//! A join does not depend on the order of the values, nor on how they are cut into batches. Columns are added in the order
//! in which their attributes are seen first, those of one item by name.

use std::collections::HashMap;

use arrow::datatypes::DataType;

use super::attribute::{Attribute, Item};
use super::number::Number;
use crate::schema::{Column, TableSchema};

/// The column of attributes that have none of their own: one JSON object.
pub(super) const EXTRA: &str = "_extra";

/// Columns of one table at most, beside [`EXTRA`]: items whose attribute names are data would make a column for each.
const COLUMNS_MAX: usize = 1_000;

/// Longest name of a column in bytes; DynamoDB allows 64 KiB.
const NAME_BYTES_MAX: usize = 255;

/// Names that belong to the columns of Delta's change feed.
const RESERVED: [&str; 4] = [EXTRA, "_change_type", "_commit_version", "_commit_timestamp"];

/// Digits and digits behind the point of a decimal column: what Spark takes for decimals of an unknown size.
const PRECISION: u8 = 38;
const SCALE: i8 = 18;

/// Digits before the point in a number for a decimal column.
const SCALE_DIGITS: u8 = 18;

/// What a column's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Bool,
    Binary,
    /// Whole numbers of 64 bits.
    Long,
    /// Numbers with up to 18 digits behind the point, and 20 before it.
    Decimal,
    /// Whole numbers of up to 38 digits.
    Whole,
    /// Anything, as text.
    Text,
}

impl Shape {
    /// The shape of one value; `None` for null, which fits everywhere.
    pub fn of(value: &Attribute<'_>) -> Option<Self> {
        Some(match value {
            Attribute::Null => return None,
            Attribute::Bool(_) => Self::Bool,
            Attribute::Binary(_) => Self::Binary,
            Attribute::Number(text) => Number::parse(&text.0).map_or(Self::Text, |number| Self::of_number(&number)),
            _ => Self::Text,
        })
    }

    fn of_number(number: &Number) -> Self {
        if number.as_i64().is_some() {
            Self::Long
        } else if number.scaled(0).is_some() {
            Self::Whole
        } else if number.scaled(SCALE_DIGITS).is_some() {
            Self::Decimal
        } else {
            Self::Text
        }
    }

    pub fn join(self, other: Self) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (Self::Long, wider @ (Self::Decimal | Self::Whole))
            | (wider @ (Self::Decimal | Self::Whole), Self::Long) => wider,
            _ => Self::Text,
        }
    }

    pub fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::Binary => DataType::Binary,
            Self::Long => DataType::Int64,
            Self::Decimal => DataType::Decimal128(PRECISION, SCALE),
            Self::Whole => DataType::Decimal128(PRECISION, 0),
            Self::Text => DataType::Utf8,
        }
    }

    /// The shape that a column of this type has; `None` for a type that no column of this source has.
    pub fn of_type(data_type: &DataType) -> Option<Self> {
        [Self::Bool, Self::Binary, Self::Long, Self::Decimal, Self::Whole, Self::Text]
            .into_iter()
            .find(|shape| shape.data_type() == *data_type)
    }

    /// What a column of this shape says of its source: the types of DynamoDB that it takes.
    fn source_type(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Binary => "B",
            Self::Long | Self::Decimal | Self::Whole => "N",
            Self::Text => "any",
        }
    }

    /// A column of this shape.
    pub fn column(self, name: &str) -> Column {
        Column::new(name, self.data_type(), self.source_type())
    }
}

/// Grows a table's schema by items.
pub(super) struct Inference {
    schema: TableSchema,
    by_name: HashMap<String, usize>,
    is_grown: bool,
}

impl Inference {
    pub fn new(schema: &TableSchema) -> Self {
        let by_name = schema.columns.iter().enumerate().map(|(index, column)| (column.name.clone(), index)).collect();
        Self { schema: schema.clone(), by_name, is_grown: false }
    }

    /// Takes in one item.
    pub fn see(&mut self, item: &Item<'_>) {
        for (name, value) in &item.0 {
            if let Some(shape) = Shape::of(value) {
                self.see_value(&name.0, shape);
            }
        }
    }

    fn see_value(&mut self, name: &str, shape: Shape) {
        if name != EXTRA
            && let Some(index) = self.by_name.get(name).copied()
        {
            self.widen(index, shape);
        } else if self.may_be_column(name) {
            self.add(shape.column(name));
        } else if !self.by_name.contains_key(EXTRA) {
            self.add(Shape::Text.column(EXTRA));
        }
    }

    fn widen(&mut self, index: usize, shape: Shape) {
        if self.schema.key.contains(&index) {
            return;
        }
        let Some(column) = self.schema.columns.get_mut(index) else { return };
        let known = Shape::of_type(&column.data_type).unwrap_or(Shape::Text);
        let joined = known.join(shape);
        if joined != known {
            *column = joined.column(&column.name);
            self.is_grown = true;
        }
    }

    /// Delta's names of columns are equal whatever their case, and have none of the characters that Parquet's do not have.
    fn may_be_column(&self, name: &str) -> bool {
        let is_plain = !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.contains(|c: char| is_forbidden(c));
        let is_reserved = RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(name));
        let columns = self.schema.columns.len() - usize::from(self.by_name.contains_key(EXTRA));
        is_plain && !is_reserved && columns < COLUMNS_MAX && !self.is_taken(name)
    }

    fn is_taken(&self, name: &str) -> bool {
        self.schema.columns.iter().any(|column| column.name.to_lowercase() == name.to_lowercase())
    }

    fn add(&mut self, column: Column) {
        self.by_name.insert(column.name.clone(), self.schema.columns.len());
        self.schema.columns.push(column);
        self.is_grown = true;
    }

    /// The schema for all items seen, if it is another one than before: the next version.
    pub fn grown(self) -> Option<TableSchema> {
        self.is_grown.then(|| TableSchema { version: self.schema.version + 1, ..self.schema })
    }
}

/// What Spark refuses in a name without column mapping, dots and backquotes, which queries would have to quote, and control characters.
fn is_forbidden(c: char) -> bool {
    c.is_control() || " ,;{}()=.`".contains(c)
}

/// The schema of a table that joins again: its key as it is now, and all columns that were known, unless the key is another one.
pub(super) fn joined(now: TableSchema, known: &TableSchema) -> TableSchema {
    let key = |schema: &TableSchema| -> Vec<(String, DataType)> {
        let columns = schema.key.iter().filter_map(|index| schema.columns.get(*index));
        columns.map(|column| (column.name.clone(), column.data_type.clone())).collect()
    };
    if key(&now) == key(known) { union(&now, known).unwrap_or(now) } else { now }
}

/// Whether all columns of `narrow` are in `wide`, each with the same type or a wider one, in any order.
pub(super) fn covers(wide: &TableSchema, narrow: &TableSchema) -> bool {
    narrow.columns.iter().all(|column| {
        let found = wide.columns.iter().find(|other| other.name == column.name);
        let shapes = |other: &Column| Some((Shape::of_type(&other.data_type)?, Shape::of_type(&column.data_type)?));
        found.is_some_and(|other| {
            other.data_type == column.data_type || shapes(other).is_some_and(|(wide, narrow)| wide.join(narrow) == wide)
        })
    })
}

/// `one` with all that `other` has beyond it: the schema for the items of both.
pub(super) fn union(one: &TableSchema, other: &TableSchema) -> Option<TableSchema> {
    let mut inference = Inference::new(one);
    for column in &other.columns {
        match Shape::of_type(&column.data_type) {
            Some(_) if column.name == EXTRA && !inference.by_name.contains_key(EXTRA) => {
                inference.add(column.clone());
            }
            Some(shape) => inference.see_value(&column.name, shape),
            None => {}
        }
    }
    inference.grown()
}
