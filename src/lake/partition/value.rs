//! Partition values as text: "Partition Value Serialization" of the Delta protocol. Null and the empty text are one value.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, StringArray, TimestampMicrosecondArray, new_null_array};
use arrow::compute::{CastOptions, DatePart as ArrowDatePart, cast, cast_with_options, date_part as arrow_date_part};
use arrow::datatypes::{DataType, Date32Type, TimeUnit, TimestampMicrosecondType};
use arrow::error::ArrowError;
use chrono::{DateTime, Datelike};

use crate::config::DatePart;

const SECONDS_PER_DAY: i64 = 86_400;

/// Whether values of the type have a text that all readers take for the same value.
pub(super) fn is_serializable(data_type: &DataType) -> bool {
    matches!(
        data_type,
        DataType::Boolean
            | DataType::Int8
            | DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Decimal128(..)
            | DataType::Date32
            | DataType::Timestamp(TimeUnit::Microsecond, _)
            | DataType::Utf8
    )
}

/// The values as the log has them.
pub(super) fn texts(values: &ArrayRef) -> Result<StringArray, ArrowError> {
    match values.data_type() {
        DataType::Utf8 => {
            Ok(values.as_string::<i32>().iter().map(|text| text.filter(|text| !text.is_empty())).collect())
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            // Without the Z, readers take the text for a time in their own zone.
            let pattern = if zone.is_some() { "%Y-%m-%dT%H:%M:%S%.6fZ" } else { "%Y-%m-%d %H:%M:%S%.6f" };
            let micros: &TimestampMicrosecondArray = values.as_primitive::<TimestampMicrosecondType>();
            let text = |value: i64| match DateTime::from_timestamp_micros(value) {
                Some(time) => Ok(time.format(pattern).to_string()),
                None => Err(ArrowError::CastError("a timestamp is beyond all calendars".to_string())),
            };
            micros.iter().map(|value| value.map(text).transpose()).collect()
        }
        _ => Ok(cast(values, &DataType::Utf8)?.as_string::<i32>().clone()),
    }
}

/// The value that a text of the log stands for, as an array of one value; `None` if it stands for none.
pub(super) fn parse(text: Option<&str>, data_type: &DataType) -> Option<ArrayRef> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Some(new_null_array(data_type, 1)) };
    let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&array, data_type, &strict).ok()
}

/// A part of dates or timestamps: the year as a number, the first day of the month, or the day. Timestamps with a zone are in UTC.
pub(super) fn date_part(values: &ArrayRef, part: DatePart) -> Result<ArrayRef, ArrowError> {
    let days = cast(values, &DataType::Date32)?;
    match part {
        DatePart::Year => arrow_date_part(&days, ArrowDatePart::Year),
        DatePart::Month => {
            let months: Date32Array = days.as_primitive::<Date32Type>().unary_opt(first_of_month);
            Ok(Arc::new(months))
        }
        DatePart::Day => Ok(days),
    }
}

fn first_of_month(days: i32) -> Option<i32> {
    let date = DateTime::from_timestamp(i64::from(days) * SECONDS_PER_DAY, 0)?.date_naive();
    days.checked_sub(i32::try_from(date.day0()).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{BooleanArray, Decimal128Array, Int16Array};

    fn check(values: ArrayRef, expected: &[Option<&str>]) {
        let found = texts(&values).unwrap();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        for (row, text) in expected.iter().enumerate() {
            let wanted = values.slice(row, 1);
            let again = parse(*text, values.data_type()).unwrap();
            let is_empty_text =
                wanted.as_string_opt::<i32>().is_some_and(|text| text.is_valid(0) && text.value(0).is_empty());
            assert!(again == wanted || is_empty_text, "{text:?}");
        }
    }

    #[test]
    fn values_have_the_texts_of_the_protocol() {
        check(Arc::new(BooleanArray::from(vec![Some(true), None])), &[Some("true"), None]);
        check(Arc::new(Int16Array::from(vec![-7, 0])), &[Some("-7"), Some("0")]);
        let decimals = Decimal128Array::from(vec![-105, 7]).with_precision_and_scale(10, 2).unwrap();
        check(Arc::new(decimals), &[Some("-1.05"), Some("0.07")]);
        check(Arc::new(Date32Array::from(vec![-1, -500_000])), &[Some("1969-12-31"), Some("0601-01-18")]);
        let times = TimestampMicrosecondArray::from(vec![-1, 1_000_000]);
        check(Arc::new(times.clone()), &[Some("1969-12-31 23:59:59.999999"), Some("1970-01-01 00:00:01.000000")]);
        check(
            Arc::new(times.with_timezone("UTC")),
            &[Some("1969-12-31T23:59:59.999999Z"), Some("1970-01-01T00:00:01.000000Z")],
        );
        check(Arc::new(StringArray::from(vec!["a/b", "", "ü= '%"])), &[Some("a/b"), None, Some("ü= '%")]);
    }

    #[test]
    fn texts_of_others_are_understood_and_nonsense_is_not() {
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into()));
        let wanted = TimestampMicrosecondArray::from(vec![1_000_000]).with_timezone("UTC");
        for text in ["1970-01-01 00:00:01", "1970-01-01T00:00:01.000Z"] {
            let found = parse(Some(text), &utc).unwrap();
            assert_eq!(found.as_primitive::<TimestampMicrosecondType>(), &wanted, "{text}");
        }
        assert!(parse(Some("x"), &DataType::Int32).is_none());
        assert!(parse(Some(""), &DataType::Int32).is_some_and(|value| value.is_null(0)));
    }

    #[test]
    fn parts_of_dates_are_taken_before_and_after_the_epoch() {
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), Some(2_678_400_000_000), None]));
        let check = |part, expected: &[Option<&str>]| {
            let found = texts(&date_part(&times, part).unwrap()).unwrap();
            assert_eq!(found.iter().collect::<Vec<_>>(), expected);
        };
        check(DatePart::Year, &[Some("1969"), Some("1970"), None]);
        check(DatePart::Month, &[Some("1969-12-01"), Some("1970-02-01"), None]);
        check(DatePart::Day, &[Some("1969-12-31"), Some("1970-02-01"), None]);
    }
}
