//! Values of the binary protocol into Arrow columns, just as the log's decoder fills them.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BooleanBuilder, Date32Builder, Decimal128Builder, Float32Builder, Float64Builder,
    Int8Builder, Int16Builder, Int32Builder, Int64Builder, ListBuilder, StringBuilder, TimestampMicrosecondBuilder,
};
use arrow::datatypes::{DataType, Field};
use chrono::{Datelike, NaiveDate};
use mysql_async::Value;

use crate::source::mysql::column_type::ColumnType;

/// Bytes of the spatial reference id that both servers put before a geometry's well-known binary.
const SRID_BYTES: usize = 4;

/// Days from 0001-01-01 (day 1) to 1970-01-01, as chrono counts them.
const EPOCH_DAY: i32 = 719_163;

/// A value that the column's type cannot have; the value itself is not told.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a value of {kind} came as something else ({found})")]
pub(super) struct Unreadable {
    kind: String,
    found: &'static str,
}

/// Collects one column.
pub(super) struct ColumnReader {
    kind: ColumnType,
    builder: Builder,
    /// Dates with a zero in them, which became null.
    pub zero_dates: u64,
}

enum Builder {
    Int8(Int8Builder),
    Int16(Int16Builder),
    Int32(Int32Builder),
    Int64(Int64Builder),
    Decimal(Decimal128Builder),
    Float32(Float32Builder),
    Float64(Float64Builder),
    Boolean(BooleanBuilder),
    Date(Date32Builder),
    Timestamp(TimestampMicrosecondBuilder),
    Text(StringBuilder),
    Binary(BinaryBuilder),
    Vector(ListBuilder<Float32Builder>),
}

impl Builder {
    fn new(data_type: &DataType) -> Self {
        match data_type {
            DataType::Int8 => Self::Int8(Int8Builder::new()),
            DataType::Int16 => Self::Int16(Int16Builder::new()),
            DataType::Int32 => Self::Int32(Int32Builder::new()),
            DataType::Int64 => Self::Int64(Int64Builder::new()),
            DataType::Decimal128(..) => Self::Decimal(Decimal128Builder::new().with_data_type(data_type.clone())),
            DataType::Float32 => Self::Float32(Float32Builder::new()),
            DataType::Float64 => Self::Float64(Float64Builder::new()),
            DataType::Boolean => Self::Boolean(BooleanBuilder::new()),
            DataType::Date32 => Self::Date(Date32Builder::new()),
            DataType::Timestamp(..) => {
                Self::Timestamp(TimestampMicrosecondBuilder::new().with_data_type(data_type.clone()))
            }
            DataType::Binary => Self::Binary(BinaryBuilder::new()),
            DataType::List(_) => {
                let field = Arc::new(Field::new("element", DataType::Float32, true));
                Self::Vector(ListBuilder::new(Float32Builder::new()).with_field(field))
            }
            _ => Self::Text(StringBuilder::new()),
        }
    }

    fn append_null(&mut self) {
        match self {
            Self::Int8(builder) => builder.append_null(),
            Self::Int16(builder) => builder.append_null(),
            Self::Int32(builder) => builder.append_null(),
            Self::Int64(builder) => builder.append_null(),
            Self::Decimal(builder) => builder.append_null(),
            Self::Float32(builder) => builder.append_null(),
            Self::Float64(builder) => builder.append_null(),
            Self::Boolean(builder) => builder.append_null(),
            Self::Date(builder) => builder.append_null(),
            Self::Timestamp(builder) => builder.append_null(),
            Self::Text(builder) => builder.append_null(),
            Self::Binary(builder) => builder.append_null(),
            Self::Vector(builder) => builder.append_null(),
        }
    }
}

impl ColumnReader {
    pub fn new(kind: ColumnType) -> Self {
        let builder = Builder::new(&kind.data_type());
        Self { kind, builder, zero_dates: 0 }
    }

    /// # Errors
    /// If the value is none that the type can have.
    pub fn append(&mut self, value: &Value) -> Result<(), Unreadable> {
        if *value == Value::NULL {
            self.builder.append_null();
            return Ok(());
        }
        let appended = match &mut self.builder {
            Builder::Date(_) | Builder::Timestamp(_) => self.append_date(value),
            Builder::Text(builder) => append_text(builder, &self.kind, value),
            Builder::Binary(builder) => append_binary(builder, &self.kind, value),
            Builder::Decimal(builder) => decimal(&self.kind, value).map(|number| builder.append_value(number)),
            Builder::Vector(builder) => append_vector(builder, value),
            Builder::Float32(builder) => float(value).map(|number| builder.append_value(number as f32)),
            Builder::Float64(builder) => float(value).map(|number| builder.append_value(number)),
            _ => self.append_integer(value),
        };
        appended.ok_or_else(|| Unreadable { kind: self.kind.to_string(), found: shape(value) })
    }

    fn append_integer(&mut self, value: &Value) -> Option<()> {
        let number = match self.kind {
            ColumnType::Bit { .. } => i64::try_from(bits(value)?).ok()?,
            ColumnType::Time { .. } => time_us(value)?,
            _ => integer(value)?,
        };
        match &mut self.builder {
            Builder::Int8(builder) => builder.append_value(i8::try_from(number).ok()?),
            Builder::Int16(builder) => builder.append_value(i16::try_from(number).ok()?),
            Builder::Int32(builder) => builder.append_value(i32::try_from(number).ok()?),
            Builder::Int64(builder) => builder.append_value(number),
            Builder::Boolean(builder) => builder.append_value(number != 0),
            _ => return None,
        }
        Some(())
    }

    fn append_date(&mut self, value: &Value) -> Option<()> {
        let Value::Date(year, month, day, hour, minute, second, us) = *value else { return None };
        let date = NaiveDate::from_ymd_opt(i32::from(year), u32::from(month), u32::from(day));
        let days = date.map(|date| date.num_days_from_ce() - EPOCH_DAY);
        if days.is_none() {
            self.zero_dates += 1;
        }
        let seconds = (i64::from(hour) * 60 + i64::from(minute)) * 60 + i64::from(second);
        match &mut self.builder {
            Builder::Date(builder) => builder.append_option(days),
            Builder::Timestamp(builder) => {
                let instant = days.map(|days| (i64::from(days) * 86_400 + seconds) * 1_000_000 + i64::from(us));
                builder.append_option(instant);
            }
            _ => return None,
        }
        Some(())
    }

    /// The values since the last call.
    pub fn finish(&mut self) -> ArrayRef {
        match &mut self.builder {
            Builder::Int8(builder) => Arc::new(builder.finish()),
            Builder::Int16(builder) => Arc::new(builder.finish()),
            Builder::Int32(builder) => Arc::new(builder.finish()),
            Builder::Int64(builder) => Arc::new(builder.finish()),
            Builder::Decimal(builder) => Arc::new(builder.finish()),
            Builder::Float32(builder) => Arc::new(builder.finish()),
            Builder::Float64(builder) => Arc::new(builder.finish()),
            Builder::Boolean(builder) => Arc::new(builder.finish()),
            Builder::Date(builder) => Arc::new(builder.finish()),
            Builder::Timestamp(builder) => Arc::new(builder.finish()),
            Builder::Text(builder) => Arc::new(builder.finish()),
            Builder::Binary(builder) => Arc::new(builder.finish()),
            Builder::Vector(builder) => Arc::new(builder.finish()),
        }
    }
}

fn shape(value: &Value) -> &'static str {
    match value {
        Value::NULL => "null",
        Value::Bytes(_) => "bytes",
        Value::Int(_) | Value::UInt(_) => "an integer",
        Value::Float(_) | Value::Double(_) => "a float",
        Value::Date(..) => "a date",
        Value::Time(..) => "a time",
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::UInt(number) => i64::try_from(*number).ok(),
        _ => text(value)?.parse().ok(),
    }
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Float(number) => Some(f64::from(*number)),
        Value::Double(number) => Some(*number),
        _ => None,
    }
}

/// BIT comes as its bytes, the highest first.
fn bits(value: &Value) -> Option<u64> {
    match value {
        Value::Bytes(bytes) if bytes.len() <= 8 => {
            Some(bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte)))
        }
        _ => None,
    }
}

fn time_us(value: &Value) -> Option<i64> {
    let Value::Time(negative, days, hours, minutes, seconds, us) = *value else { return None };
    let hours = i64::from(days) * 24 + i64::from(hours);
    let total = ((hours * 60 + i64::from(minutes)) * 60 + i64::from(seconds)) * 1_000_000 + i64::from(us);
    Some(if negative { -total } else { total })
}

/// The unscaled number of a DECIMAL, a BIGINT UNSIGNED or a BIT(64).
fn decimal(kind: &ColumnType, value: &Value) -> Option<i128> {
    match (kind, value) {
        (ColumnType::Bit { .. }, _) => bits(value).map(i128::from),
        (_, Value::UInt(number)) => Some(i128::from(*number)),
        (_, Value::Int(number)) => Some(i128::from(*number)),
        (ColumnType::Decimal { scale, .. }, _) => unscaled(text(value)?, usize::from(*scale)),
        _ => text(value)?.parse().ok(),
    }
}

/// `-1.5` at scale 2 is -150.
fn unscaled(text: &str, scale: usize) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.len() > scale || !whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let padding = std::iter::repeat_n(b'0', scale - fraction.len());
    let number = whole
        .bytes()
        .chain(fraction.bytes())
        .chain(padding)
        .try_fold(0i128, |number, digit| number.checked_mul(10)?.checked_add(i128::from(digit - b'0')))?;
    Some(if negative { -number } else { number })
}

fn append_text(builder: &mut StringBuilder, kind: &ColumnType, value: &Value) -> Option<()> {
    let Value::Bytes(bytes) = value else { return None };
    match kind {
        ColumnType::Decimal { .. } => builder.append_value(without_leading_zeros(std::str::from_utf8(bytes).ok()?)),
        _ => builder.append_value(String::from_utf8_lossy(bytes)),
    }
    Some(())
}

/// ZEROFILL pads what SELECT shows; the value is the same without.
fn without_leading_zeros(text: &str) -> &str {
    let trimmed = text.trim_start_matches('0');
    let kept = if trimmed.is_empty() || trimmed.starts_with('.') { trimmed.len() + 1 } else { trimmed.len() };
    text.get(text.len().saturating_sub(kept)..).unwrap_or(text)
}

fn append_binary(builder: &mut BinaryBuilder, kind: &ColumnType, value: &Value) -> Option<()> {
    let Value::Bytes(bytes) = value else { return None };
    match kind {
        ColumnType::Geometry { .. } => builder.append_value(bytes.get(SRID_BYTES..)?),
        _ => builder.append_value(bytes),
    }
    Some(())
}

fn append_vector(builder: &mut ListBuilder<Float32Builder>, value: &Value) -> Option<()> {
    let Value::Bytes(bytes) = value else { return None };
    let (numbers, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    for number in numbers {
        builder.values().append_value(f32::from_le_bytes(*number));
    }
    builder.append(true);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::util::display::array_value_to_string;

    fn check(kind: &str, value: Value, expected: &str) {
        let mut reader = ColumnReader::new(kind.parse().unwrap());
        reader.append(&value).unwrap();
        reader.append(&Value::NULL).unwrap();
        let array = reader.finish();
        assert_eq!(array_value_to_string(&array, 0).unwrap(), expected, "{kind}");
        assert!(array.is_null(1), "{kind}");
    }

    fn bytes(text: &str) -> Value {
        Value::Bytes(text.as_bytes().to_vec())
    }

    #[test]
    fn numbers_keep_their_values_to_the_ends_of_their_ranges() {
        check("tinyint", Value::Int(-128), "-128");
        check("tinyint unsigned", Value::UInt(255), "255");
        check("bigint", Value::Int(i64::MIN), "-9223372036854775808");
        check("bigint unsigned", Value::UInt(u64::MAX), "18446744073709551615");
        check("decimal(10,3)", bytes("-0.5"), "-0.500");
        check("decimal(38,0)", bytes(&"9".repeat(38)), &"9".repeat(38));
        check("decimal(65,30) unsigned", bytes("000.50"), "0.50");
        check("decimal(65,0)", bytes("-12"), "-12");
        check("decimal(65,0)", bytes("0000"), "0");
        check("bit(1)", Value::Bytes(vec![1]), "true");
        check("bit(12)", Value::Bytes(vec![0x0f, 0xff]), "4095");
        check("bit(64)", Value::Bytes(vec![255; 8]), "18446744073709551615");
        check("year", Value::UInt(2155), "2155");
    }

    #[test]
    fn times_may_be_negative_and_longer_than_a_day() {
        check("time(6)", Value::Time(true, 34, 22, 59, 59, 0), "-3020399000000");
        check("date", Value::Date(1969, 12, 31, 0, 0, 0, 0), "1969-12-31");
        check("datetime(6)", Value::Date(9999, 12, 31, 23, 59, 59, 999_999), "9999-12-31T23:59:59.999999");
    }

    #[test]
    fn dates_with_a_zero_in_them_are_null_and_counted() {
        let mut reader = ColumnReader::new("datetime".parse().unwrap());
        for (month, day) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            reader.append(&Value::Date(2024, month, day, 0, 0, 0, 0)).unwrap();
        }
        assert_eq!((reader.finish().null_count(), reader.zero_dates), (3, 3));
    }

    #[test]
    fn a_geometry_loses_its_reference_id_and_a_vector_is_a_list() {
        check("point", Value::Bytes(vec![1, 0, 0, 0, 0xab, 0xcd]), "abcd");
        check("vector(2)", Value::Bytes([1.5f32, -2.0].iter().flat_map(|n| n.to_le_bytes()).collect()), "[1.5, -2.0]");
    }

    #[test]
    fn a_value_of_another_kind_is_an_error_that_does_not_tell_it() {
        let mut reader = ColumnReader::new("int".parse().unwrap());
        let error = reader.append(&bytes("secret")).unwrap_err().to_string();
        assert!(error.contains("int") && !error.contains("secret"), "{error}");
        assert!(ColumnReader::new("tinyint".parse().unwrap()).append(&Value::Int(128)).is_err());
    }
}
