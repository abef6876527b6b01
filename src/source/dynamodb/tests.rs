//! A model of inference: however the items are cut into batches, the columns are the same, and hold the same values.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Decimal128Type, Int64Type};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::attribute::Item;
use super::record::RecordsAnswer;
use super::rows::RowsBuilder;
use super::shape::{EXTRA, Inference, Shape, covers, joined, union};
use crate::change::{ChangeBatch, Operation, TableId};
use crate::schema::TableSchema;

fn key_schema() -> TableSchema {
    let columns = vec![Shape::Text.column("id")];
    TableSchema::new(TableId::new("dynamodb", "t"), columns, vec![0])
}

/// The schema that these items grow `schema` into.
fn seen(schema: &TableSchema, items: &[Item<'_>]) -> Option<TableSchema> {
    let mut inference = Inference::new(schema);
    items.iter().for_each(|item| inference.see(item));
    inference.grown()
}

fn parsed(items: &[String]) -> Vec<Item<'_>> {
    items.iter().map(|item| serde_json::from_str(item).unwrap()).collect()
}

fn rows(schema: &TableSchema, items: &[Item<'_>]) -> ChangeBatch {
    let mut rows = RowsBuilder::new(&Arc::new(schema.clone())).unwrap();
    items.iter().for_each(|item| rows.push(Operation::Insert, item));
    rows.finish().unwrap()
}

/// Names and types, in order.
fn columns(schema: &TableSchema) -> Vec<(String, DataType)> {
    schema.columns.iter().map(|column| (column.name.clone(), column.data_type.clone())).collect()
}

fn check(items: &[&str], expected: &[(&str, DataType)]) {
    let items: Vec<String> = items.iter().map(|item| item.to_string()).collect();
    let schema = seen(&key_schema(), &parsed(&items)).unwrap_or_else(key_schema);
    let expected: Vec<_> = expected.iter().map(|(name, data_type)| (name.to_string(), data_type.clone())).collect();
    assert_eq!(columns(&schema)[1..], expected, "{items:?}");
}

#[test]
fn a_column_has_the_narrowest_type_that_holds_all_of_its_values() {
    let (decimal, whole) = (DataType::Decimal128(38, 18), DataType::Decimal128(38, 0));
    check(&[r#"{"a": {"N": "1"}}"#, r#"{"a": {"N": "-9223372036854775808"}}"#], &[("a", DataType::Int64)]);
    check(&[r#"{"a": {"N": "1"}}"#, r#"{"a": {"N": "1.5"}}"#], &[("a", decimal.clone())]);
    check(&[r#"{"a": {"N": "12345678901234567890123456789012345678"}}"#, r#"{"a": {"N": "1"}}"#], &[("a", whole)]);
    check(&[r#"{"a": {"N": "9223372036854775808"}}"#, r#"{"a": {"N": "1.5"}}"#], &[("a", DataType::Utf8)]);
    check(&[r#"{"a": {"N": "1E-130"}}"#], &[("a", DataType::Utf8)]);
    check(&[r#"{"a": {"BOOL": true}}"#, r#"{"a": {"NULL": true}}"#], &[("a", DataType::Boolean)]);
    check(&[r#"{"a": {"BOOL": true}}"#, r#"{"a": {"N": "1"}}"#], &[("a", DataType::Utf8)]);
    check(&[r#"{"a": {"B": "AA=="}}"#], &[("a", DataType::Binary)]);
    check(&[r#"{"a": {"M": {}}}"#, r#"{"b": {"L": []}}"#], &[("a", DataType::Utf8), ("b", DataType::Utf8)]);
    check(&[r#"{"a": {"NULL": true}}"#], &[]);
}

#[test]
fn an_attribute_whose_name_cannot_be_a_column_s_is_kept_aside() {
    let items = vec![
        r#"{"id": {"S": "1"}, "name": {"S": "a"}, "Name": {"S": "b"}, "a b": {"N": "7"}, "_extra": {"BOOL": false}}"#
            .to_string(),
        r#"{"id": {"S": "2"}, "a.b": {"NULL": true}}"#.to_string(),
    ];
    let items = parsed(&items);
    let schema = seen(&key_schema(), &items).unwrap();
    // Sorted by name, capitals come first.
    assert_eq!(columns(&schema)[1..], [("Name".into(), DataType::Utf8), (EXTRA.into(), DataType::Utf8)]);
    let batch = rows(&schema, &items);
    let extra = batch.rows.column(2).as_string::<i32>();
    assert_eq!(extra.value(0), r#"{"_extra":false,"a b":7,"name":"a"}"#);
    assert!(extra.is_null(1));
}

#[test]
fn no_more_columns_are_made_than_a_table_can_have() {
    let items: Vec<String> = (0..1_200).map(|n| format!(r#"{{"id": {{"S": "x"}}, "a{n}": {{"N": "1"}}}}"#)).collect();
    let items = parsed(&items);
    let schema = seen(&key_schema(), &items).unwrap();
    assert_eq!(schema.columns.len(), 1_001);
    assert_eq!(schema.columns[1_000].name, EXTRA);
    assert_eq!(rows(&schema, &items).rows.column(1_000).null_count(), 999);
}

#[test]
fn deletes_carry_the_key_alone() {
    let items = vec![r#"{"id": {"S": "1"}, "a": {"N": "7"}}"#.to_string()];
    let items = parsed(&items);
    let schema = Arc::new(seen(&key_schema(), &items).unwrap());
    let mut rows = RowsBuilder::new(&schema).unwrap();
    rows.push_delete(&items[0]);
    let batch = rows.finish().unwrap();
    assert_eq!(batch.operations, [Operation::Delete]);
    assert!(batch.rows.column(0).is_valid(0) && batch.rows.column(1).is_null(0));
}

#[test]
fn a_table_that_joins_again_keeps_its_columns_unless_it_has_another_key() {
    let items = vec![r#"{"id": {"S": "1"}, "a": {"N": "1.5"}, "A": {"N": "7"}}"#.to_string()];
    let known = seen(&key_schema(), &parsed(&items)).unwrap();
    assert_eq!(columns(&joined(key_schema(), &known)), columns(&known));
    let other = TableSchema { columns: vec![Shape::Long.column("id")], ..key_schema() };
    assert_eq!(columns(&joined(other.clone(), &known)), columns(&other));
}

/// One value of a random type.
fn random_value(random: &mut StdRng) -> String {
    match random.random_range(0..9) {
        0..3 => format!(r#"{{"N": "{}"}}"#, random.random_range(-9..9)),
        3 => format!(r#"{{"N": "{}.{}"}}"#, random.random_range(0..9), random.random_range(1..9)),
        4 => format!(r#"{{"N": "9{}"}}"#, "1".repeat(random.random_range(17..38))),
        5 => format!(r#"{{"S": "{}"}}"#, random.random_range(0..9)),
        6 => format!(r#"{{"BOOL": {}}}"#, random.random_bool(0.5)),
        7 => r#"{"NULL": true}"#.to_string(),
        _ => r#"{"M": {"x": {"N": "1.50"}}}"#.to_string(),
    }
}

fn random_item(random: &mut StdRng, id: usize, names: &[&str]) -> String {
    let mut attributes = BTreeMap::from([("id", format!(r#"{{"S": "{id}"}}"#))]);
    for _ in 0..random.random_range(0..4) {
        attributes.insert(names[random.random_range(0..names.len())], random_value(random));
    }
    let members: Vec<String> = attributes.iter().map(|(name, value)| format!("{name:?}: {value}")).collect();
    format!("{{{}}}", members.join(", "))
}

#[test]
fn bytes_from_outside_are_refused_or_read_and_never_a_panic() {
    let record = r#"{"eventName": "INSERT", "dynamodb": {"ApproximateCreationDateTime": 1.5E9, "SequenceNumber": "12",
        "Keys": {"id": {"S": "a"}}, "NewImage": {"id": {"S": "a"}, "n": {"N": "-1.5E-7"}, "b": {"B": "AA=="}, "l": {"L": [{"NS": ["1"]}]}}}}"#;
    let answer = format!(r#"{{"Records": [{record}], "NextShardIterator": "i"}}"#).into_bytes();
    let pieces = ["\"", "{", "}", "[", "9", "E9999999999", "-", ".", "\\u0000", "\\", ":", "é", "null", "1e400", "=="];
    for seed in 0..20_000 {
        let (mut random, mut bytes) = (StdRng::seed_from_u64(seed), answer.clone());
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..bytes.len());
            match random.random_range(0..3) {
                0 => bytes[at] = random.random(),
                1 => drop(bytes.remove(at)),
                _ => drop(bytes.splice(at..at, pieces[random.random_range(0..pieces.len())].bytes())),
            }
        }
        let Ok(answer) = serde_json::from_slice::<RecordsAnswer<'_>>(&bytes) else { continue };
        let items = || answer.records.iter().filter_map(|record| record.dynamodb.new_image.as_ref());
        let mut inference = Inference::new(&key_schema());
        items().for_each(|item| inference.see(item));
        let schema = inference.grown().unwrap_or_else(key_schema);
        let mut rows = RowsBuilder::new(&Arc::new(schema)).unwrap();
        answer.records.iter().for_each(|record| rows.push_delete(&record.dynamodb.keys));
        items().for_each(|item| rows.push(Operation::Insert, item));
        rows.finish().unwrap();
    }
}

/// A value as the text that DynamoDB's own value has.
fn text_of(array: &ArrayRef, row: usize) -> Option<String> {
    array.is_valid(row).then(|| match array.data_type() {
        DataType::Int64 => array.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Decimal128(_, 0) => array.as_primitive::<Decimal128Type>().value(row).to_string(),
        DataType::Decimal128(_, scale) => {
            let text = format!("{}E-{scale}", array.as_primitive::<Decimal128Type>().value(row));
            super::number::Number::parse(&text).unwrap().canonical()
        }
        DataType::Boolean => array.as_boolean().value(row).to_string(),
        _ => array.as_string::<i32>().value(row).to_string(),
    })
}

/// Every value of the items is in its column, or in that of the rest, and no other value is.
fn assert_values(schema: &TableSchema, items: &[Item<'_>]) {
    let batch = rows(schema, items);
    batch.validate().unwrap_or_else(|error| assert!(error.what.contains("transaction"), "{error}"));
    for (row, item) in items.iter().enumerate() {
        for (index, column) in schema.columns.iter().enumerate().filter(|(_, column)| column.name != EXTRA) {
            let expected = item.get(&column.name).and_then(|value| value.to_text());
            assert_eq!(text_of(batch.rows.column(index), row), expected, "{} of {item:?}", column.name);
        }
    }
}

#[test]
fn the_columns_do_not_depend_on_how_the_items_are_cut_into_batches() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let names = ["a", "b", "B", "c", "d d", "e"];
        let count = random.random_range(1..40);
        let texts: Vec<String> = (0..count).map(|id| random_item(&mut random, id, &names)).collect();
        let items = parsed(&texts);
        let whole = seen(&key_schema(), &items).unwrap_or_else(key_schema);
        let (mut by_batches, mut rest, mut batches) = (key_schema(), items.as_slice(), Vec::new());
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(random.random_range(1..=rest.len()));
            batches.push(batch);
            if let Some(grown) = seen(&by_batches, batch) {
                assert!(covers(&grown, &by_batches), "seed {seed}: a column became narrower");
                by_batches = grown;
            }
            rest = after;
        }
        assert_eq!(columns(&by_batches), columns(&whole), "seed {seed}: {texts:?}");
        assert_values(&whole, &items);
        // Readers that see different parts at once agree on the types too, if not on the order.
        let of_parts = batches.iter().filter_map(|batch| seen(&key_schema(), batch));
        let united = of_parts.fold(key_schema(), |all, part| union(&all, &part).unwrap_or(all));
        let sorted = |schema: &TableSchema| BTreeMap::from_iter(columns(schema));
        if !sorted(&whole).contains_key("b") && !sorted(&whole).contains_key("B") {
            assert_eq!(sorted(&united), sorted(&whole), "seed {seed}: {texts:?}");
        }
    }
}
