//! Values that a client gives for `$1`, `$2`, ...: in the two formats of the PostgreSQL protocol.

use arrow::datatypes::{DataType, TimeUnit};
use datafusion::scalar::ScalarValue;
use pgwire::api::Type;
use pgwire::api::portal::Portal;
use pgwire::error::PgWireResult;

use super::value::{EPOCH_DAYS, EPOCH_US, type_of};
use super::{INVALID_PARAMETER, error};

/// The most digits behind the point of a decimal.
const SCALE_MAX: usize = 38;

/// The types of a statement's parameters: what the client says, else what the statement tells, else text.
pub(super) fn types(declared: &[Option<Type>], inferred: &[Option<DataType>]) -> Vec<Type> {
    let count = declared.len().max(inferred.len());
    let known = |index: usize| {
        let declared = declared.get(index).cloned().flatten().filter(|declared| *declared != Type::UNKNOWN);
        declared.or_else(|| inferred.get(index)?.as_ref().map(type_of)).unwrap_or(Type::TEXT)
    };
    (0..count).map(known).collect()
}

/// The values of a portal. Each keeps the type that the protocol gave it: comparing it with a column is the planner's business,
/// and 19.999 must not become 20.00 before.
///
/// # Errors
/// A value that is none of its type, or a type whose binary format is not read.
pub(super) fn values<S: Clone>(portal: &Portal<S>, types: &[Type]) -> PgWireResult<Vec<ScalarValue>> {
    let values = portal.parameters.iter().enumerate();
    let value = |(index, bytes): (usize, &Option<bytes::Bytes>)| {
        let value_type = types.get(index).unwrap_or(&Type::TEXT);
        let Some(bytes) = bytes else { return Ok(null(value_type)) };
        let read =
            if portal.parameter_format.is_binary(index) { binary(bytes, value_type) } else { text(bytes, value_type) };
        read.ok_or_else(|| error(INVALID_PARAMETER, format!("the value of ${} is no {value_type}", index + 1)))
    };
    values.map(value).collect()
}

fn null(value_type: &Type) -> ScalarValue {
    let data_type = plain(value_type).unwrap_or(DataType::Utf8);
    ScalarValue::try_from(&data_type).unwrap_or(ScalarValue::Null)
}

/// The Arrow type of a parameter; `None` for text and whatever is given as text.
fn plain(value_type: &Type) -> Option<DataType> {
    Some(match *value_type {
        Type::BOOL => DataType::Boolean,
        Type::INT2 | Type::INT4 | Type::INT8 => DataType::Int64,
        Type::FLOAT4 | Type::FLOAT8 => DataType::Float64,
        Type::BYTEA => DataType::Binary,
        Type::DATE => DataType::Date32,
        Type::TIMESTAMP => DataType::Timestamp(TimeUnit::Microsecond, None),
        Type::TIMESTAMPTZ => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        _ => return None,
    })
}

fn text(bytes: &[u8], value_type: &Type) -> Option<ScalarValue> {
    let text = std::str::from_utf8(bytes).ok()?;
    match *value_type {
        Type::BYTEA => hexadecimal(text.strip_prefix("\\x")?).map(|bytes| ScalarValue::Binary(Some(bytes))),
        Type::NUMERIC => decimal(text),
        _ => {
            let value = ScalarValue::Utf8(Some(text.to_string()));
            plain(value_type).map_or(Some(value.clone()), |data_type| value.cast_to(&data_type).ok())
        }
    }
}

fn hexadecimal(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = digits.chunks(2).map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?));
    pairs.collect()
}

/// A decimal with as many digits behind its point as are written.
fn decimal(text: &str) -> Option<ScalarValue> {
    let scale = text.split_once('.').map_or(0, |(_, behind)| behind.len());
    let scale = i8::try_from(scale.min(SCALE_MAX)).ok()?;
    ScalarValue::Utf8(Some(text.to_string())).cast_to(&DataType::Decimal128(38, scale)).ok()
}

fn binary(bytes: &[u8], value_type: &Type) -> Option<ScalarValue> {
    Some(match *value_type {
        Type::BOOL => ScalarValue::Boolean(Some(*bytes.first()? != 0)),
        Type::INT2 => ScalarValue::Int64(Some(i16::from_be_bytes(bytes.try_into().ok()?).into())),
        Type::INT4 => ScalarValue::Int64(Some(i32::from_be_bytes(bytes.try_into().ok()?).into())),
        Type::INT8 => ScalarValue::Int64(Some(i64::from_be_bytes(bytes.try_into().ok()?))),
        Type::FLOAT4 => ScalarValue::Float64(Some(f32::from_be_bytes(bytes.try_into().ok()?).into())),
        Type::FLOAT8 => ScalarValue::Float64(Some(f64::from_be_bytes(bytes.try_into().ok()?))),
        Type::BYTEA => ScalarValue::Binary(Some(bytes.to_vec())),
        Type::DATE => {
            let days = i32::from_be_bytes(bytes.try_into().ok()?).checked_add(EPOCH_DAYS)?;
            ScalarValue::Date32(Some(days))
        }
        Type::TIMESTAMP | Type::TIMESTAMPTZ => {
            let micros = i64::from_be_bytes(bytes.try_into().ok()?).checked_add(EPOCH_US)?;
            let zone = (*value_type == Type::TIMESTAMPTZ).then(|| "UTC".into());
            ScalarValue::TimestampMicrosecond(Some(micros), zone)
        }
        Type::NUMERIC => decimal(&numeric(bytes)?)?,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::JSON => {
            ScalarValue::Utf8(Some(std::str::from_utf8(bytes).ok()?.to_string()))
        }
        _ => return None,
    })
}

/// The binary format of `numeric` as text: the count of digits of base 10,000, the weight of the first, the sign, the count of decimal
/// digits behind the point, the digits. `None` for what is not a number.
fn numeric(bytes: &[u8]) -> Option<String> {
    let mut words = bytes.chunks_exact(2).map(|word| i16::from_be_bytes([word[0], word[1]]));
    let (count, weight, sign, scale) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let groups: Vec<i16> = words.collect();
    let scale = usize::try_from(scale).ok().filter(|scale| *scale <= SCALE_MAX)?;
    if usize::try_from(count).ok()? != groups.len() || weight.unsigned_abs() > 10 || !matches!(sign, 0 | 0x4000) {
        return None;
    }
    let group = |place: i16| {
        let index = usize::try_from(i32::from(weight) - i32::from(place)).ok();
        format!("{:04}", index.and_then(|index| groups.get(index)).copied().unwrap_or(0))
    };
    let whole: String = (0..=weight.max(0)).rev().map(group).collect();
    let places = i16::try_from(scale.div_ceil(4)).ok()?;
    let behind: String = (1..=places).map(|place| group(-place)).collect();
    let (sign, behind) = (if sign == 0 { "" } else { "-" }, behind.get(..scale)?);
    Some(if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{behind}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::wire::value;

    #[test]
    fn decimals_come_back_as_they_were_written() {
        let cases =
            [(1_234_567, 2, "12345.67"), (-5, 0, "-5"), (1, 6, "0.000001"), (0, 2, "0.00"), (-199_990, 4, "-19.9990")];
        for (number, scale, written) in cases {
            let read = numeric(&value::numeric(number, scale)).unwrap();
            let (read, sign) = read.strip_prefix('-').map_or((read.as_str(), ""), |digits| (digits, "-"));
            let digits = read.trim_start_matches('0');
            let digits =
                if digits.is_empty() || digits.starts_with('.') { format!("0{digits}") } else { digits.to_string() };
            assert_eq!(format!("{sign}{digits}"), written);
        }
        assert_eq!(numeric(&[0, 1, 0]), None);
        assert_eq!(numeric(&[0, 0, 0, 0, 0xC0, 0, 0, 0]), None, "not a number");
    }

    #[test]
    fn text_is_read_by_the_type_of_its_parameter() {
        let read = |text_given: &str, value_type: Type| text(text_given.as_bytes(), &value_type);
        assert_eq!(read("t", Type::BOOL), Some(ScalarValue::Boolean(Some(true))));
        assert_eq!(read("42", Type::INT4), Some(ScalarValue::Int64(Some(42))));
        assert_eq!(read("4x", Type::INT4), None);
        assert_eq!(read("19.999", Type::NUMERIC), Some(ScalarValue::Decimal128(Some(19_999), 38, 3)));
        assert_eq!(read("\\x00ff", Type::BYTEA), Some(ScalarValue::Binary(Some(vec![0, 255]))));
        assert_eq!(read("\\x0", Type::BYTEA), None);
        assert_eq!(read("2026-01-31", Type::DATE), Some(ScalarValue::Date32(Some(20_484))));
        let zoned = read("2026-01-31 10:00:00+00", Type::TIMESTAMPTZ);
        assert_eq!(zoned, Some(ScalarValue::TimestampMicrosecond(Some(1_769_853_600_000_000), Some("UTC".into()))));
        assert_eq!(read("it's", Type::VARCHAR), Some(ScalarValue::Utf8(Some("it's".to_string()))));
    }

    #[test]
    fn what_the_client_says_comes_before_what_the_statement_tells() {
        let declared = [Some(Type::INT8), Some(Type::UNKNOWN), None];
        let inferred = [Some(DataType::Int32), Some(DataType::Boolean), None, Some(DataType::Date32)];
        assert_eq!(types(&declared, &inferred), [Type::INT8, Type::BOOL, Type::TEXT, Type::DATE]);
    }
}
