//! Single rows as text and JSON, for histories and differences.

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};

use super::QueryError;
use super::output::Cells;

/// A row's values as text; `None` is null.
pub type Row = Vec<Option<String>>;

/// All rows of a batch.
///
/// # Errors
/// A value that has no text.
pub fn rows_of(batch: &RecordBatch) -> Result<Vec<Row>, QueryError> {
    let cells = Cells::new(batch)?;
    (0..batch.num_rows()).map(|row| cells.row(row)).collect()
}

/// A row as a JSON object: whole numbers and decimals as numbers with all digits, all else but null and booleans as text.
pub fn json_object(schema: &Schema, row: &Row) -> String {
    let fields = schema.fields().iter().zip(row);
    let members =
        fields.map(|(field, value)| format!("{}:{}", json_text(field.name()), json_value(field.data_type(), value)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(","))
}

/// A value in JSON.
pub fn json_value(data_type: &DataType, value: &Option<String>) -> String {
    match value {
        None => "null".to_string(),
        Some(text) if is_number(data_type, text) || *data_type == DataType::Boolean => text.clone(),
        Some(text) => json_text(text),
    }
}

/// A float may be no number that JSON has.
fn is_number(data_type: &DataType, text: &str) -> bool {
    let is_finite = !data_type.is_floating() || text.parse::<f64>().is_ok_and(f64::is_finite);
    data_type.is_numeric() && is_finite
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A row for people: `id=42, note=NULL`.
pub fn listed(schema: &Schema, row: &Row) -> String {
    let values = schema.fields().iter().zip(row);
    values.map(|(field, value)| format!("{}={}", field.name(), shown(value))).collect::<Vec<_>>().join(", ")
}

/// What became another value: `total: 1.50 -> 2.50`.
pub fn changes(schema: &Schema, before: &Row, after: &Row) -> String {
    let all = changed_columns(before, after);
    let change = |index: usize| {
        let name = schema.fields().get(index).map_or("", |field| field.name());
        format!("{name}: {} -> {}", shown(&before[index]), shown(&after[index]))
    };
    all.into_iter().map(change).collect::<Vec<_>>().join(", ")
}

/// The columns, by position, that differ.
pub fn changed_columns(before: &Row, after: &Row) -> Vec<usize> {
    let pairs = before.iter().zip(after).enumerate();
    pairs.filter(|(_, (before, after))| before != after).map(|(index, _)| index).collect()
}

/// On one line, without what controls a terminal.
fn shown(value: &Option<String>) -> String {
    match value {
        None => "NULL".to_string(),
        Some(text) => text.chars().flat_map(printable).collect(),
    }
}

fn printable(letter: char) -> Vec<char> {
    if letter.is_control() { letter.escape_default().collect() } else { vec![letter] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::Field;

    #[test]
    fn rows_are_written_for_people_and_for_programs() {
        let field = |name: &str, data_type| Field::new(name, data_type, true);
        let schema = Schema::new(vec![
            field("id", DataType::Int32),
            field("total", DataType::Decimal128(10, 2)),
            field("no\"te", DataType::Utf8),
            field("weight", DataType::Float64),
        ]);
        let row = |total: &str, note: Option<&str>, weight: &str| {
            vec![Some("42".into()), Some(total.into()), note.map(str::to_string), Some(weight.into())]
        };
        let (before, after) = (row("1.50", None, "NaN"), row("12345678.90", Some("a\nb"), "0.5"));
        assert_eq!(listed(&schema, &before), "id=42, total=1.50, no\"te=NULL, weight=NaN");
        assert_eq!(
            changes(&schema, &before, &after),
            "total: 1.50 -> 12345678.90, no\"te: NULL -> a\\nb, weight: NaN -> 0.5"
        );
        assert_eq!(json_object(&schema, &before), r#"{"id":42,"total":1.50,"no\"te":null,"weight":"NaN"}"#);
        assert_eq!(json_object(&schema, &after), r#"{"id":42,"total":12345678.90,"no\"te":"a\nb","weight":0.5}"#);
    }
}
