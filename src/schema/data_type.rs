//! Arrow types as text in stored schemas: the names that Delta gives them where it has one.

use arrow::datatypes::{DataType, Field, TimeUnit};
use serde::{Deserialize, Deserializer, Serializer, de::Error as _};
use std::sync::Arc;

pub fn serialize<S: Serializer>(data_type: &DataType, serializer: S) -> Result<S::Ok, S::Error> {
    match to_text(data_type) {
        Some(text) => serializer.serialize_str(&text),
        None => Err(serde::ser::Error::custom(format!("{data_type} is not a type of a column"))),
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<DataType, D::Error> {
    let text = String::deserialize(deserializer)?;
    from_text(&text).ok_or_else(|| D::Error::custom(format!("{text} is not a type of a column")))
}

fn to_text(data_type: &DataType) -> Option<String> {
    Some(match data_type {
        DataType::Decimal128(precision, scale) => format!("decimal({precision},{scale})"),
        DataType::Timestamp(TimeUnit::Microsecond, Some(zone)) if &**zone == "UTC" => "timestamp".to_string(),
        DataType::List(item) => format!("array<{}>", to_text(item.data_type())?),
        other => SIMPLE.iter().find(|(_, simple)| simple == other)?.0.to_string(),
    })
}

fn from_text(text: &str) -> Option<DataType> {
    if let Some(inner) = text.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')')) {
        let (precision, scale) = inner.split_once(',')?;
        return Some(DataType::Decimal128(precision.parse().ok()?, scale.parse().ok()?));
    }
    if let Some(inner) = text.strip_prefix("array<").and_then(|rest| rest.strip_suffix('>')) {
        return Some(DataType::List(Arc::new(Field::new("element", from_text(inner)?, true))));
    }
    if text == "timestamp" {
        return Some(DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())));
    }
    SIMPLE.iter().find(|(name, _)| *name == text).map(|(_, simple)| simple.clone())
}

const SIMPLE: &[(&str, DataType)] = &[
    ("boolean", DataType::Boolean),
    ("byte", DataType::Int8),
    ("short", DataType::Int16),
    ("integer", DataType::Int32),
    ("long", DataType::Int64),
    ("float", DataType::Float32),
    ("double", DataType::Float64),
    ("string", DataType::Utf8),
    ("binary", DataType::Binary),
    ("date", DataType::Date32),
    ("timestamp_ntz", DataType::Timestamp(TimeUnit::Microsecond, None)),
];
