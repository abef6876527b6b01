//! Values of Arrow in the two formats of the PostgreSQL protocol: text, and the binary one of each type.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType,
};
use arrow::error::ArrowError;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use pgwire::api::Type;
use pgwire::api::results::{DataRowEncoder, FieldFormat, FieldInfo};
use pgwire::error::{PgWireError, PgWireResult};
use pgwire::messages::data::DataRow;
use pgwire::types::format::FormatOptions as WireOptions;

/// The binary formats count from 2000-01-01: days and microseconds after 1970-01-01.
pub(super) const EPOCH_DAYS: i32 = 10_957;
pub(super) const EPOCH_US: i64 = 946_684_800_000_000;
/// Binary decimals are digits of this base.
const NUMERIC_BASE: u128 = 10_000;
const NUMERIC_DIGITS: usize = 4;

/// The protocol's type of a column.
pub(super) fn type_of(data_type: &DataType) -> Type {
    match data_type {
        DataType::Boolean => Type::BOOL,
        DataType::Int8 | DataType::UInt8 | DataType::Int16 => Type::INT2,
        DataType::UInt16 | DataType::Int32 => Type::INT4,
        DataType::UInt32 | DataType::Int64 => Type::INT8,
        DataType::UInt64 | DataType::Decimal128(..) => Type::NUMERIC,
        DataType::Float16 | DataType::Float32 => Type::FLOAT4,
        DataType::Float64 => Type::FLOAT8,
        DataType::Date32 => Type::DATE,
        DataType::Timestamp(_, None) => Type::TIMESTAMP,
        DataType::Timestamp(_, Some(_)) => Type::TIMESTAMPTZ,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => Type::BYTEA,
        _ => Type::TEXT,
    }
}

/// All rows of a batch.
///
/// # Errors
/// A value that has no text.
pub(super) fn encode(batch: &RecordBatch, fields: &Arc<Vec<FieldInfo>>) -> PgWireResult<Vec<DataRow>> {
    let columns = batch.columns().iter().zip(fields.iter()).map(|(column, field)| Column::new(column, field));
    let columns = columns.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    let mut encoder = DataRowEncoder::new(Arc::clone(fields));
    let options = WireOptions::default();
    let mut rows = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        for column in &columns {
            match column.format {
                FieldFormat::Text => {
                    let text = column.text(row).map_err(failed)?;
                    encoder.encode_field_with_type_and_format(&text, &Type::TEXT, FieldFormat::Text, &options)?;
                }
                FieldFormat::Binary => {
                    let bytes = column.bytes(row).map_err(failed)?;
                    encoder.encode_field_with_type_and_format(&bytes, &Type::BYTEA, FieldFormat::Binary, &options)?;
                }
            }
        }
        rows.push(encoder.take_row());
    }
    Ok(rows)
}

fn failed(error: ArrowError) -> PgWireError {
    PgWireError::ApiError(Box::new(error))
}

/// A column in the few types that the protocol is spoken in.
struct Column {
    values: ArrayRef,
    format: FieldFormat,
}

impl Column {
    fn new(values: &ArrayRef, field: &FieldInfo) -> Result<Self, ArrowError> {
        let zone = match values.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        let plain = match *field.datatype() {
            Type::BOOL => DataType::Boolean,
            Type::INT2 => DataType::Int16,
            Type::INT4 => DataType::Int32,
            Type::INT8 => DataType::Int64,
            Type::NUMERIC if *values.data_type() == DataType::UInt64 => DataType::Decimal128(20, 0),
            Type::FLOAT4 => DataType::Float32,
            Type::FLOAT8 => DataType::Float64,
            Type::DATE => DataType::Date32,
            Type::TIMESTAMP | Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, zone),
            Type::BYTEA => DataType::Binary,
            Type::NUMERIC => values.data_type().clone(),
            _ if values.data_type().is_nested() => values.data_type().clone(),
            _ => DataType::Utf8,
        };
        Ok(Self { values: cast(values, &plain)?, format: field.format() })
    }

    /// As PostgreSQL prints it; `None` is null.
    fn text(&self, row: usize) -> Result<Option<String>, ArrowError> {
        const OPTIONS: FormatOptions<'static> = FormatOptions::new().with_display_error(false);
        if self.values.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match self.values.data_type() {
            DataType::Boolean => if self.values.as_boolean().value(row) { "t" } else { "f" }.to_string(),
            DataType::Binary => {
                let bytes = self.values.as_binary::<i32>().value(row);
                bytes.iter().fold("\\x".to_string(), |text, byte| text + &format!("{byte:02x}"))
            }
            DataType::Float32 => float(f64::from(self.values.as_primitive::<Float32Type>().value(row)), |_| {
                self.values.as_primitive::<Float32Type>().value(row).to_string()
            }),
            DataType::Float64 => float(self.values.as_primitive::<Float64Type>().value(row), |value| value.to_string()),
            DataType::Timestamp(_, zone) => {
                let times = self.values.as_primitive::<TimestampMicrosecondType>();
                let time = times.value_as_datetime(row).map(|time| time.format("%Y-%m-%d %H:%M:%S%.6f").to_string());
                time.unwrap_or_default() + if zone.is_some() { "+00" } else { "" }
            }
            _ => ArrayFormatter::try_new(self.values.as_ref(), &OPTIONS)?.value(row).try_to_string()?,
        }))
    }

    fn bytes(&self, row: usize) -> Result<Option<Vec<u8>>, ArrowError> {
        if self.values.is_null(row) {
            return Ok(None);
        }
        Ok(Some(match self.values.data_type() {
            DataType::Boolean => vec![u8::from(self.values.as_boolean().value(row))],
            DataType::Int16 => self.values.as_primitive::<Int16Type>().value(row).to_be_bytes().to_vec(),
            DataType::Int32 => self.values.as_primitive::<Int32Type>().value(row).to_be_bytes().to_vec(),
            DataType::Int64 => self.values.as_primitive::<Int64Type>().value(row).to_be_bytes().to_vec(),
            DataType::Float32 => self.values.as_primitive::<Float32Type>().value(row).to_be_bytes().to_vec(),
            DataType::Float64 => self.values.as_primitive::<Float64Type>().value(row).to_be_bytes().to_vec(),
            DataType::Date32 => {
                let days = self.values.as_primitive::<Date32Type>().value(row);
                days.saturating_sub(EPOCH_DAYS).to_be_bytes().to_vec()
            }
            DataType::Timestamp(..) => {
                let micros = self.values.as_primitive::<TimestampMicrosecondType>().value(row);
                micros.saturating_sub(EPOCH_US).to_be_bytes().to_vec()
            }
            DataType::Binary => self.values.as_binary::<i32>().value(row).to_vec(),
            DataType::Decimal128(_, scale) => {
                numeric(self.values.as_primitive::<Decimal128Type>().value(row), usize::try_from(*scale).unwrap_or(0))
            }
            _ => self.text(row)?.unwrap_or_default().into_bytes(),
        }))
    }
}

/// JSON has no words for these, PostgreSQL has.
fn float(value: f64, finite: impl Fn(f64) -> String) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_string(),
        _ if value.is_infinite() => if value > 0.0 { "Infinity" } else { "-Infinity" }.to_string(),
        _ => finite(value),
    }
}

/// A decimal in the binary format of `numeric`: how many digits of base 10,000 there are, the weight of the first, the sign,
/// how many decimal digits stand behind the point, then the digits.
pub(super) fn numeric(value: i128, scale: usize) -> Vec<u8> {
    // The point has to stand between two digits of the large base.
    let padding = (NUMERIC_DIGITS - scale % NUMERIC_DIGITS) % NUMERIC_DIGITS;
    let digits = format!("{}{}", value.unsigned_abs(), "0".repeat(padding));
    let digits = "0".repeat((NUMERIC_DIGITS - digits.len() % NUMERIC_DIGITS) % NUMERIC_DIGITS) + &digits;
    let groups: Vec<u16> = digits
        .as_bytes()
        .chunks(NUMERIC_DIGITS)
        .map(|group| group.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
        .collect();
    debug_assert!(groups.iter().all(|group| u128::from(*group) < NUMERIC_BASE));
    let behind = (scale + padding) / NUMERIC_DIGITS;
    let weight = groups.len() as i64 - behind as i64 - 1;
    let sign: u16 = if value < 0 { 0x4000 } else { 0 };
    let mut bytes = Vec::with_capacity(8 + 2 * groups.len());
    bytes.extend_from_slice(&u16::try_from(groups.len()).unwrap_or(u16::MAX).to_be_bytes());
    bytes.extend_from_slice(&i16::try_from(weight).unwrap_or(i16::MAX).to_be_bytes());
    bytes.extend_from_slice(&sign.to_be_bytes());
    bytes.extend_from_slice(&u16::try_from(scale).unwrap_or(u16::MAX).to_be_bytes());
    groups.iter().for_each(|group| bytes.extend_from_slice(&group.to_be_bytes()));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_in_digits_of_ten_thousand() {
        let words = |value, scale| -> Vec<i16> {
            numeric(value, scale).chunks(2).map(|word| i16::from_be_bytes([word[0], word[1]])).collect()
        };
        // 12345.67 is 1 * 10000 + 2345, and 6700 / 10000.
        assert_eq!(words(1_234_567, 2), [3, 1, 0, 2, 1, 2345, 6700]);
        assert_eq!(words(-5, 0), [1, 0, 0x4000, 0, 5]);
        // 100 / 10000 / 10000.
        assert_eq!(words(1, 6), [1, -2, 0, 6, 100]);
        assert_eq!(words(0, 2), [1, -1, 0, 2, 0]);
    }
}
