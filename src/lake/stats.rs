//! Per-file statistics of the Delta log ("Per-file Statistics" of the Delta protocol): those of our own files, made
//! from their Parquet footers, and the key bounds in anybody's.
//!
//! Decimals, floats and binaries get null counts only: readers pass decimals through doubles, order NaN in their own
//! ways, and have no text for bytes.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Date32Array, Int64Array, StringArray, TimestampMicrosecondArray};
use arrow::compute::{cast, max, max_string, min, min_string};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime};
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use serde_json::{Map, Value, json};

use super::locate::{KeyRange, KeySpace};

/// How many leading columns get statistics besides the key: Delta's own default (`delta.dataSkippingNumIndexedCols`).
const INDEXED_COLUMNS: usize = 32;
/// Characters kept of a string bound: Delta's own default (`delta.dataSkippingStringPrefixLength`).
const STRING_PREFIX_CHARS: usize = 32;
/// Sorts after every character that text is likely to hold, so that a cut upper bound stays one.
const TIE_BREAKER: char = '\u{10FFFF}';
/// Statistics hold milliseconds; what they cut off at the upper end is less than this.
const MILLISECOND_US: i64 = 1_000;
const DAY_US: i64 = 86_400_000_000;

/// The statistics of a file that was just written, as the text of an `add` action.
pub(super) fn of_file(schema: &Schema, metadata: &ParquetMetaData, key: &[&str]) -> Result<String, ParquetError> {
    let (mut mins, mut maxs, mut nulls) = (Map::new(), Map::new(), Map::new());
    for (index, field) in schema.fields().iter().enumerate() {
        let in_key = key.contains(&field.name().as_str());
        if (index >= INDEXED_COLUMNS && !in_key) || field.data_type().is_nested() {
            continue;
        }
        let converter = StatisticsConverter::try_new(field.name(), schema, metadata.file_metadata().schema_descr())?;
        let counts = converter.row_group_null_counts(metadata.row_groups())?;
        nulls.insert(field.name().clone(), json!(counts.iter().flatten().sum::<u64>()));
        let low = converter.row_group_mins(metadata.row_groups())?;
        let high = converter.row_group_maxes(metadata.row_groups())?;
        if let Some((low, high)) = bounds(field, &low, &high) {
            mins.insert(field.name().clone(), low);
            maxs.insert(field.name().clone(), high);
        }
    }
    let stats = json!({
        "numRecords": metadata.file_metadata().num_rows(), "tightBounds": true,
        "minValues": mins, "maxValues": maxs, "nullCount": nulls,
    });
    Ok(stats.to_string())
}

/// The bounds over all row groups; `None` where they cannot be given truly. A row group without bounds holds
/// only nulls: our writer leaves them out for no other reason in these types, but for text it may.
fn bounds(field: &Field, low: &ArrayRef, high: &ArrayRef) -> Option<(Value, Value)> {
    match field.data_type() {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            let (low, high) = integer_bounds(low, high)?;
            Some((json!(low), json!(high)))
        }
        DataType::Date32 => {
            let (low, high) = integer_bounds(low, high)?;
            Some((date_text(low)?, date_text(high)?))
        }
        DataType::Timestamp(TimeUnit::Microsecond, zone) => {
            let (low, high) = integer_bounds(low, high)?;
            let high = high.checked_add(MILLISECOND_US - 1)?;
            Some((timestamp_text(low, zone.is_some())?, timestamp_text(high, zone.is_some())?))
        }
        DataType::Utf8 => {
            if low.null_count() > 0 || high.null_count() > 0 {
                return None;
            }
            Some((cut_low(min_string(low.as_string::<i32>())?), cut_high(max_string(high.as_string::<i32>())?)?))
        }
        _ => None,
    }
}

fn integer_bounds(low: &ArrayRef, high: &ArrayRef) -> Option<(i64, i64)> {
    let (low, high) = (cast(low, &DataType::Int64).ok()?, cast(high, &DataType::Int64).ok()?);
    Some((min(low.as_primitive::<Int64Type>())?, max(high.as_primitive::<Int64Type>())?))
}

fn cut_low(text: &str) -> Value {
    json!(text.chars().take(STRING_PREFIX_CHARS).collect::<String>())
}

fn cut_high(text: &str) -> Option<Value> {
    let mut rest = text.chars();
    let mut kept: String = rest.by_ref().take(STRING_PREFIX_CHARS).collect();
    match rest.next() {
        None => {}
        Some(TIE_BREAKER) => return None,
        Some(_) => kept.push(TIE_BREAKER),
    }
    Some(json!(kept))
}

/// Dates outside the four-digit years have no text that all readers take.
fn date_text(days: i64) -> Option<Value> {
    let date = DateTime::from_timestamp_micros(days.checked_mul(DAY_US)?)?.date_naive();
    in_text_years(date).then(|| json!(date.format("%Y-%m-%d").to_string()))
}

fn timestamp_text(microseconds: i64, utc: bool) -> Option<Value> {
    let millisecond = microseconds.div_euclid(MILLISECOND_US);
    let time = DateTime::from_timestamp_millis(millisecond)?;
    let pattern = if utc { "%Y-%m-%dT%H:%M:%S%.3fZ" } else { "%Y-%m-%dT%H:%M:%S%.3f" };
    in_text_years(time.date_naive()).then(|| json!(time.format(pattern).to_string()))
}

fn in_text_years(date: NaiveDate) -> bool {
    (0..=9999).contains(&date.year())
}

/// The bounds of the first key column in the statistics of any file; `None` where they do not say.
pub(super) fn key_range(space: &KeySpace, stats: &Value) -> Option<KeyRange> {
    let first = space.columns.first()?;
    let low = stats.get("minValues")?.get(&first.name)?;
    let high = stats.get("maxValues")?.get(&first.name)?;
    let (low, high) = (bound_array(&first.data_type, low, false)?, bound_array(&first.data_type, high, true)?);
    space.ranges(&low, &high).ok()?.pop()?
}

pub(super) fn bound_array(data_type: &DataType, value: &Value, upper: bool) -> Option<ArrayRef> {
    Some(match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
            Arc::new(Int64Array::from(vec![value.as_i64()?]))
        }
        DataType::Date32 => {
            let date = NaiveDate::parse_from_str(value.as_str()?, "%Y-%m-%d").ok()?;
            let days = date.signed_duration_since(NaiveDate::from_ymd_opt(1970, 1, 1)?).num_days();
            Arc::new(Date32Array::from(vec![i32::try_from(days).ok()?]))
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            let slack = if upper { MILLISECOND_US - 1 } else { 0 };
            let microseconds = parse_timestamp(value.as_str()?)?.checked_add(slack)?;
            Arc::new(TimestampMicrosecondArray::from(vec![microseconds]))
        }
        DataType::Utf8 => {
            let mut text = value.as_str()?.to_string();
            // Some writers cut without saying so.
            if upper && text.chars().count() >= STRING_PREFIX_CHARS {
                text.push(TIE_BREAKER);
            }
            Arc::new(StringArray::from(vec![text]))
        }
        _ => return None,
    })
}

pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.timestamp_micros());
    }
    ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S%.f"]
        .iter()
        .find_map(|pattern| NaiveDateTime::parse_from_str(text, pattern).ok())
        .map(|time| time.and_utc().timestamp_micros())
}

/// The statistics of a file that has a deletion vector: `tightBounds` is false, all else stays byte for byte (numbers
/// in it may not survive being parsed and written). `rows` is used where there are none.
pub(super) fn loosened(stats: Option<&str>, rows: u64) -> String {
    let fresh = || json!({ "numRecords": rows, "tightBounds": false }).to_string();
    let Some(text) = stats else { return fresh() };
    let Ok(Value::Object(parsed)) = serde_json::from_str::<Value>(text) else { return fresh() };
    if !parsed.contains_key("numRecords") {
        return fresh();
    }
    match parsed.get("tightBounds") {
        Some(Value::Bool(false)) => text.to_string(),
        Some(_) => replace_top_level(text, "tightBounds", "false").unwrap_or_else(fresh),
        None => text.replacen('{', "{\"tightBounds\":false,", 1),
    }
}

/// Replaces the value of a key of the outermost object; the value is a word (`true`, `null`, a number).
fn replace_top_level(text: &str, key: &str, value: &str) -> Option<String> {
    let quoted = format!("\"{key}\"");
    let (mut depth, mut in_string, mut escaped) = (0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                if !in_string && depth == 1 && text.get(at..)?.starts_with(&quoted) {
                    let after = text.get(at + quoted.len()..)?;
                    if let Some(old) = after.trim_start().strip_prefix(':') {
                        let rest = old.find([',', '}'])?;
                        return Some(format!("{}{quoted}:{value}{}", text.get(..at)?, old.get(rest..)?));
                    }
                }
                in_string = !in_string;
            }
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_loosened(stats: Option<&str>, expected: &str) {
        assert_eq!(loosened(stats, 7), expected);
        assert!(serde_json::from_str::<Value>(expected).is_ok());
    }

    #[test]
    fn bounds_become_loose_and_all_else_stays() {
        check_loosened(
            Some(r#"{"numRecords":3,"minValues":{"d":1234567890123456789012345.10}}"#),
            r#"{"tightBounds":false,"numRecords":3,"minValues":{"d":1234567890123456789012345.10}}"#,
        );
        check_loosened(
            Some(r#"{"numRecords":3,"maxValues":{"tightBounds":"true,}"},"tightBounds":true}"#),
            r#"{"numRecords":3,"maxValues":{"tightBounds":"true,}"},"tightBounds":false}"#,
        );
        check_loosened(Some(r#"{"tightBounds":false,"numRecords":3}"#), r#"{"tightBounds":false,"numRecords":3}"#);
        check_loosened(None, r#"{"numRecords":7,"tightBounds":false}"#);
        check_loosened(Some("{}"), r#"{"numRecords":7,"tightBounds":false}"#);
    }

    #[test]
    fn a_cut_upper_bound_stays_one() {
        let long = "é".repeat(40);
        let cut = cut_high(&long).and_then(|value| value.as_str().map(str::to_string));
        assert!(cut.is_some_and(|cut| cut > long));
        assert_eq!(cut_high("abc"), Some(json!("abc")));
        assert_eq!(cut_high(&format!("{}{TIE_BREAKER}z", "a".repeat(32))), None);
    }

    #[test]
    fn timestamps_are_cut_downwards_and_years_without_text_are_left_out() {
        assert_eq!(timestamp_text(-1, false), Some(json!("1969-12-31T23:59:59.999")));
        assert_eq!(timestamp_text(1_999, true), Some(json!("1970-01-01T00:00:00.001Z")));
        assert_eq!(timestamp_text(i64::MAX, true), None);
        assert_eq!(date_text(-719_529), None);
        for text in ["1970-01-01T00:00:00.001Z", "1970-01-01 00:00:00.001", "1970-01-01T01:00:00.001+01:00"] {
            assert_eq!(parse_timestamp(text), Some(1_000), "{text}");
        }
    }
}
