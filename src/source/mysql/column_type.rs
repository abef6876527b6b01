//! Column types of MySQL and MariaDB and the Arrow types that their values become.
//!
//! The text form (`information_schema.columns.column_type`, with the character set after it) is what a
//! [`crate::schema::Column`] keeps as its `source_type`; `docs/types.md` has the whole table.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::schema::Column;

mod left_out;
mod text;

pub use left_out::LeftOut;
pub use left_out::split as split_left_out;

pub use text::ColumnTypeError;
pub(super) use text::GEOMETRIES;

/// A column type with all that decoding a value needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnType {
    TinyInt {
        unsigned: bool,
    },
    SmallInt {
        unsigned: bool,
    },
    MediumInt {
        unsigned: bool,
    },
    Int {
        unsigned: bool,
    },
    BigInt {
        unsigned: bool,
    },
    /// `precision` 1 to 65, `scale` 0 to 30.
    Decimal {
        precision: u8,
        scale: u8,
        unsigned: bool,
    },
    Float,
    Double,
    /// 1 to 64 bits.
    Bit {
        bits: u8,
    },
    Year,
    Date,
    /// Fractional digits, 0 to 6; the same for the next two.
    DateTime {
        digits: u8,
    },
    Timestamp {
        digits: u8,
    },
    Time {
        digits: u8,
    },
    /// CHAR, VARCHAR, TEXT of any length. `charset` is the server's name of it (`latin1`).
    Text {
        kind: TextKind,
        charset: String,
    },
    /// BINARY(n): values are padded with zero bytes to `length`.
    Binary {
        length: u32,
    },
    /// VARBINARY and BLOB of any length.
    Blob {
        kind: BlobKind,
    },
    /// Members in order, in UTF-8. `charset` matters where the members come from the log's metadata.
    Enum {
        members: Vec<String>,
        charset: String,
    },
    Set {
        members: Vec<String>,
        charset: String,
    },
    /// MySQL's binary JSON. (MariaDB's JSON is a LONGTEXT.)
    Json,
    /// Any geometry type, by the name of the type (`point`).
    Geometry {
        kind: String,
    },
    /// MySQL 9 and MariaDB 11.7: a list of 32-bit floats.
    Vector {
        dimensions: u32,
    },
    /// MariaDB.
    Inet4,
    Inet6,
    Uuid,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextKind {
    /// Length in characters.
    Char(u32),
    VarChar(u32),
    TinyText,
    Text,
    MediumText,
    LongText,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlobKind {
    /// Length in bytes.
    VarBinary(u32),
    TinyBlob,
    Blob,
    MediumBlob,
    LongBlob,
}

/// Largest precision that Arrow and Delta decimals of 128 bits hold; wider ones become strings.
pub const DECIMAL_PRECISION_MAX: u8 = 38;

impl ColumnType {
    /// A column of this type as the rest of Alluvium sees it.
    pub fn column(&self, name: impl Into<String>, nullable: bool) -> Column {
        self.column_left_out(name, nullable, &LeftOut::Unknown)
    }

    /// The same for a column of which it is known what rows get that leave it out.
    pub fn column_left_out(&self, name: impl Into<String>, nullable: bool, left_out: &LeftOut) -> Column {
        let source_type = format!("{self}{}", left_out.suffix());
        Column { nullable, ..Column::new(name, self.data_type(), source_type) }
    }

    /// The Arrow type of the column's values, everywhere in Alluvium.
    pub fn data_type(&self) -> DataType {
        match self {
            Self::TinyInt { unsigned: false } => DataType::Int8,
            Self::TinyInt { unsigned: true } | Self::SmallInt { unsigned: false } | Self::Year => DataType::Int16,
            Self::SmallInt { unsigned: true } | Self::MediumInt { .. } | Self::Int { unsigned: false } => {
                DataType::Int32
            }
            Self::Int { unsigned: true } | Self::BigInt { unsigned: false } => DataType::Int64,
            Self::BigInt { unsigned: true } => DataType::Decimal128(20, 0),
            Self::Decimal { precision, scale, .. } if *precision <= DECIMAL_PRECISION_MAX => {
                DataType::Decimal128(*precision, *scale as i8)
            }
            Self::Decimal { .. } => DataType::Utf8,
            Self::Float => DataType::Float32,
            Self::Double => DataType::Float64,
            Self::Bit { bits: 1 } => DataType::Boolean,
            Self::Bit { bits: 64 } => DataType::Decimal128(20, 0),
            // TIME reaches from -838 to 838 hours, more than a time of day: microseconds, with a sign.
            Self::Bit { .. } | Self::Time { .. } => DataType::Int64,
            Self::Date => DataType::Date32,
            Self::DateTime { .. } => DataType::Timestamp(TimeUnit::Microsecond, None),
            Self::Timestamp { .. } => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Self::Text { .. } | Self::Enum { .. } | Self::Set { .. } | Self::Json => DataType::Utf8,
            Self::Inet4 | Self::Inet6 | Self::Uuid => DataType::Utf8,
            // Well-known binary, without the server's leading SRID.
            Self::Binary { .. } | Self::Blob { .. } | Self::Geometry { .. } => DataType::Binary,
            Self::Vector { .. } => DataType::List(Arc::new(Field::new("element", DataType::Float32, true))),
        }
    }
}
