//! Column builders: each takes the bytes of one value from a row image and appends it to its Arrow array.

use arrow::array::ArrayRef;

use super::reader::Malformed;
use super::wire::{WireColumn, code};
use crate::change::Losses;
use crate::source::mysql::column_type::ColumnType;

mod bytes;
mod decimal;
mod numbers;
mod temporal;

pub use decimal::decimal_bytes;

/// Collects the values of one column.
pub trait ColumnBuilder: Send {
    /// Appends the value that the log holds as `cell`.
    ///
    /// # Errors
    /// If the bytes are no value of the column's type. The builder is then only good for [`Self::truncate`].
    fn append(&mut self, cell: &[u8]) -> Result<(), Malformed>;

    fn append_null(&mut self);

    /// Appends text as it is to be, for columns of text.
    ///
    /// # Errors
    /// If the column holds no text.
    fn append_text(&mut self, _text: &str) -> Result<(), Malformed> {
        Err(Malformed::value("text for a column that holds none"))
    }

    /// Forgets all rows from `rows` on.
    fn truncate(&mut self, rows: usize);

    /// All values, leaving the builder empty.
    fn finish(&mut self) -> ArrayRef;

    /// What was lost since the last call.
    fn take_losses(&mut self) -> Losses;

    /// Memory that one value takes apart from the bytes that the log holds for it.
    fn bytes_per_value(&self) -> usize;
}

/// The builder for a column of type `column_type` that the log gives as `wire`.
///
/// # Errors
/// What the log has instead, if the two do not go together: the schema is not the log's.
pub fn builder(wire: &WireColumn, column_type: &ColumnType) -> Result<Box<dyn ColumnBuilder>, String> {
    let found = numbers::builder(wire, column_type)
        .or_else(|| decimal::builder(wire, column_type))
        .or_else(|| temporal::builder(wire, column_type))
        .or_else(|| bytes::builder(wire, column_type));
    found.ok_or_else(|| describe(wire))
}

/// The type of a column as the log has it, for messages.
fn describe(wire: &WireColumn) -> String {
    let name = match wire.code {
        code::TINY => "TINYINT",
        code::SHORT => "SMALLINT",
        code::INT24 => "MEDIUMINT",
        code::LONG => "INT",
        code::LONGLONG => "BIGINT",
        code::FLOAT => "FLOAT",
        code::DOUBLE => "DOUBLE",
        code::NEWDECIMAL => return format!("DECIMAL({},{})", wire.meta >> 8, wire.meta & 0xff),
        code::BIT => return format!("BIT({})", wire.meta),
        code::YEAR => "YEAR",
        code::DATE | code::NEWDATE => "DATE",
        code::TIME2 => return format!("TIME({})", wire.meta),
        code::DATETIME2 => return format!("DATETIME({})", wire.meta),
        code::TIMESTAMP2 => return format!("TIMESTAMP({})", wire.meta),
        code::TIME => "TIME in the format before MySQL 5.6 (ALTER TABLE ... FORCE rewrites it)",
        code::DATETIME => "DATETIME in the format before MySQL 5.6 (ALTER TABLE ... FORCE rewrites it)",
        code::TIMESTAMP => "TIMESTAMP in the format before MySQL 5.6 (ALTER TABLE ... FORCE rewrites it)",
        code::STRING => return format!("CHAR or BINARY of {} bytes", wire.meta),
        code::VARCHAR | code::VAR_STRING => return format!("VARCHAR or VARBINARY of {} bytes", wire.meta),
        code::BLOB => "TEXT or BLOB",
        code::BLOB_COMPRESSED | code::VARCHAR_COMPRESSED => "a COMPRESSED column",
        code::ENUM => "ENUM",
        code::SET => "SET",
        code::JSON => "JSON",
        code::GEOMETRY => "GEOMETRY",
        code::VECTOR => "VECTOR",
        other => return format!("type {other}"),
    };
    name.to_string()
}
