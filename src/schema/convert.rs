//! From the source's types to those that the lake's columns have, where the two are not the same: the lake's column is older,
//! and wider.

use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use arrow::util::display::FormatOptions;

use super::holds;

/// Dates and times as SQL writes them.
const MOMENT: &str = "%Y-%m-%d %H:%M:%S%.f";

/// Whether a column of type `from` can become one of type `to` with all its values.
pub fn can_become(from: &DataType, to: &DataType) -> bool {
    holds(to, from)
}

/// The same values in another type.
///
/// # Errors
/// If one has no equal there.
pub fn convert(values: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    if values.data_type() == to {
        return Ok(values.clone());
    }
    let format = FormatOptions::new().with_timestamp_format(Some(MOMENT)).with_timestamp_tz_format(Some(MOMENT));
    cast_with_options(values, to, &CastOptions { safe: false, format_options: format })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Array, AsArray, Date32Array, Decimal128Array, Int32Array, TimestampMicrosecondArray};

    use super::*;

    fn check(values: impl Array + 'static, expected: &str) {
        let values: ArrayRef = Arc::new(values);
        let text = convert(&values, &DataType::Utf8).unwrap();
        assert_eq!(text.as_string::<i32>().value(0), expected);
        // The lake's text can be read as the source's type again, for changes that leave columns out.
        assert_eq!(&convert(&text, values.data_type()).unwrap(), &values);
    }

    #[test]
    fn values_are_written_as_sql_writes_them() {
        check(Int32Array::from(vec![-7]), "-7");
        check(Date32Array::from(vec![20_000]), "2024-10-04");
        check(Decimal128Array::from(vec![-1250]).with_precision_and_scale(10, 2).unwrap(), "-12.50");
        check(TimestampMicrosecondArray::from(vec![1_500_000]), "1970-01-01 00:00:01.500");
        check(TimestampMicrosecondArray::from(vec![1_000_000]).with_timezone("UTC"), "1970-01-01 00:00:01");
    }

    #[test]
    fn a_value_that_does_not_fit_is_an_error() {
        let values: ArrayRef = Arc::new(Int32Array::from(vec![300]));
        assert!(convert(&values, &DataType::Int8).is_err());
    }
}
