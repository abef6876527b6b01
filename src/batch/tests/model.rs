//! Random scripts over tables with keys of several types, against plain maps.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::{ClosedBatch, KeyedChanges, key_converter};
use super::{SPILL_ALL, SPILL_NOTHING, batch, boundary, changes, schema};
use crate::change::{ChangeBatch, Operation, TableId};
use crate::schema::TableSchema;

/// Spills often, with rows of several pushes and transactions in one run.
const SPILL_SOME: usize = 30_000;

const SEEDS: u64 = 60;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum KeyPart {
    Integer(i64),
    /// The place of a float in their total order.
    Float(i64),
    Text(String),
}

#[derive(Debug, Clone)]
struct Change {
    operation: Operation,
    key: Vec<KeyPart>,
    value: Option<i64>,
}

#[derive(Debug, Clone)]
enum Step {
    Push(usize, Vec<Change>),
    Boundary,
    Discard(usize),
}

/// By key the last value, `None` for a deleted row; and whether the table was emptied before.
type Keyed = (bool, Vec<(Vec<KeyPart>, Option<i64>)>);
/// The last change of each key, by key.
type Rows = BTreeMap<Vec<KeyPart>, Option<i64>>;

fn tables() -> [Arc<TableSchema>; 3] {
    let (long, double, int) = (DataType::Int64, DataType::Float64, DataType::Int32);
    let pad = ("pad", DataType::Utf8);
    [
        schema("orders", &[("id", long.clone()), ("value", long.clone()), pad.clone()], &[0]),
        schema("lines", &[("n", int), ("value", long.clone()), pad.clone(), ("order", DataType::Utf8)], &[3, 0]),
        schema("points", &[("x", double), ("value", long), pad], &[0]),
    ]
}

fn total_order(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ (((bits >> 63) as u64) >> 1) as i64
}

fn random_key(random: &mut StdRng, table: usize) -> Vec<KeyPart> {
    match table {
        0 => vec![KeyPart::Integer(random.random_range(-40..40) * if random.random() { 1 } else { i64::MAX / 64 })],
        1 => {
            let length = random.random_range(0..14);
            let text = (0..length).map(|_| ['a', '\0', 'é'][random.random_range(0..3) / 2]).collect();
            vec![KeyPart::Text(text), KeyPart::Integer(random.random_range(-2..2))]
        }
        _ => {
            let values = [-0.0, 0.0, f64::NAN, -f64::NAN, f64::INFINITY, -1.5, 1e-300, random.random_range(-9.0..9.0)];
            vec![KeyPart::Float(total_order(values[random.random_range(0..values.len())]))]
        }
    }
}

fn random_change(random: &mut StdRng, table: usize, number: i64) -> Change {
    let operation = match random.random_range(0..200) {
        0 => return Change { operation: Operation::Truncate, key: vec![], value: None },
        1..50 => Operation::Delete,
        50..100 => Operation::Insert,
        100..110 => Operation::Read,
        _ => Operation::Update,
    };
    let value = (operation != Operation::Delete).then_some(number);
    Change { operation, key: random_key(random, table), value }
}

fn random_script(random: &mut StdRng) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut open, mut number) = (0, 0);
    for _ in 0..random.random_range(1..120) {
        steps.push(match random.random_range(0..10) {
            0 | 1 => {
                open = 0;
                Step::Boundary
            }
            2 => {
                open = random.random_range(0..=open);
                Step::Discard(open)
            }
            _ => {
                open += 1;
                let table = random.random_range(0..3);
                let rows = random.random_range(0..40);
                number += rows;
                Step::Push(table, (number - rows..number).map(|n| random_change(random, table, n)).collect())
            }
        });
    }
    steps.push(if random.random() { Step::Boundary } else { Step::Discard(0) });
    steps.push(Step::Boundary);
    steps
}

/// What the script comes to, by the plainest means.
fn expected(steps: &[Step]) -> BTreeMap<TableId, Keyed> {
    let mut committed: Vec<&(usize, &Vec<Change>)> = Vec::new();
    let pushes: Vec<(usize, &Vec<Change>)> = steps
        .iter()
        .filter_map(|step| if let Step::Push(table, changes) = step { Some((*table, changes)) } else { None })
        .collect();
    let (mut next, mut start) = (0, 0);
    for step in steps {
        match step {
            Step::Push(..) => {
                committed.push(&pushes[next]);
                next += 1;
            }
            Step::Boundary => start = committed.len(),
            Step::Discard(keep) => committed.truncate(start + keep),
        }
    }
    let mut maps: BTreeMap<TableId, (bool, Rows)> = BTreeMap::new();
    for (table, changes) in committed {
        for change in *changes {
            let (truncate, rows) = maps.entry(tables()[*table].table.clone()).or_default();
            if change.operation == Operation::Truncate {
                *truncate = true;
                rows.clear();
            } else {
                rows.insert(change.key.clone(), change.value);
            }
        }
    }
    maps.into_iter().map(|(id, (truncate, rows))| (id, (truncate, rows.into_iter().collect()))).collect()
}

fn column(name: &str, key_part: Option<usize>, rows: &[Change]) -> ArrayRef {
    let part = |row: &Change| row.key.get(key_part?).cloned();
    match name {
        "value" => Arc::new(rows.iter().map(|row| row.value).collect::<Int64Array>()),
        "pad" => Arc::new(rows.iter().map(|row| Some(pad(row.value?))).collect::<StringArray>()),
        "order" => Arc::new(rows.iter().map(|row| text(&part(row)?)).collect::<StringArray>()),
        "x" => Arc::new(rows.iter().map(|row| float(&part(row)?)).collect::<Float64Array>()),
        "n" => Arc::new(rows.iter().map(|row| integer(&part(row)?).map(|n| n as i32)).collect::<Int32Array>()),
        _ => Arc::new(rows.iter().map(|row| integer(&part(row)?)).collect::<Int64Array>()),
    }
}

fn pad(value: i64) -> String {
    value.to_string().repeat(value as usize % 30)
}

fn text(part: &KeyPart) -> Option<String> {
    if let KeyPart::Text(text) = part { Some(text.clone()) } else { None }
}

fn integer(part: &KeyPart) -> Option<i64> {
    if let KeyPart::Integer(number) = part { Some(*number) } else { None }
}

fn float(part: &KeyPart) -> Option<f64> {
    // The map from bits to total order is its own inverse.
    if let KeyPart::Float(place) = part {
        Some(f64::from_bits(total_order(f64::from_bits(*place as u64)) as u64))
    } else {
        None
    }
}

fn change_batch(table: usize, rows: &[Change]) -> ChangeBatch {
    let schema = &tables()[table];
    let key_part = |index: usize| schema.key.iter().position(|key| *key == index);
    let columns = schema.columns.iter().enumerate().map(|(index, c)| column(&c.name, key_part(index), rows));
    changes(schema, columns.collect(), rows.iter().map(|row| row.operation).collect())
}

fn key_part(array: &ArrayRef, row: usize) -> KeyPart {
    match array.data_type() {
        DataType::Int64 => KeyPart::Integer(array.as_primitive::<Int64Type>().value(row)),
        DataType::Int32 => KeyPart::Integer(i64::from(array.as_primitive::<Int32Type>().value(row))),
        DataType::Float64 => KeyPart::Float(total_order(array.as_primitive::<Float64Type>().value(row))),
        _ => KeyPart::Text(array.as_string::<i32>().value(row).to_string()),
    }
}

fn read(mut keyed: KeyedChanges) -> Keyed {
    let mut found = Vec::new();
    let converter = key_converter(&keyed.schema).unwrap();
    while let Some(slice) = keyed.next_slice().unwrap() {
        assert_eq!(slice.rows.schema(), keyed.schema.arrow_schema());
        let keys: Vec<ArrayRef> = keyed.schema.key.iter().map(|index| slice.rows.column(*index).clone()).collect();
        let encoded = converter.convert_columns(&keys).unwrap();
        for row in 0..slice.rows.num_rows() {
            assert_eq!(encoded.row(row).data(), slice.keys.row(row).data());
            let key = keys.iter().map(|array| key_part(array, row)).collect();
            found.push((key, value(&slice.rows, row)));
            assert_eq!(slice.deleted.value(row), slice.rows.column(1).is_null(row));
        }
    }
    (keyed.truncate, found)
}

fn value(rows: &RecordBatch, row: usize) -> Option<i64> {
    let values = rows.column(1).as_primitive::<Int64Type>();
    let value = values.is_valid(row).then(|| values.value(row));
    let pads = rows.column(2).as_string::<i32>();
    assert_eq!(pads.is_valid(row).then(|| pads.value(row).to_string()), value.map(pad));
    value
}

fn close(steps: &[Step], memory_bytes: usize) -> ClosedBatch {
    let spill = tempfile::tempdir().unwrap();
    let mut batch = batch(memory_bytes, &spill);
    for step in steps {
        match step {
            Step::Push(table, rows) => batch.push(change_batch(*table, rows)).unwrap(),
            Step::Boundary => batch.boundary(boundary()),
            Step::Discard(keep) => batch.discard(*keep).unwrap(),
        }
    }
    batch.close().unwrap()
}

#[test]
fn any_script_comes_to_what_plain_maps_say_whether_it_spills_or_not() {
    for seed in 0..SEEDS {
        let steps = random_script(&mut StdRng::seed_from_u64(seed));
        let expected = expected(&steps);
        for memory_bytes in [SPILL_NOTHING, SPILL_SOME, SPILL_ALL] {
            let closed = close(&steps, memory_bytes);
            let found = closed.tables.into_iter().map(|(id, table)| (id, read(table.into_keyed().unwrap())));
            let found: BTreeMap<TableId, Keyed> = found.collect();
            assert_eq!(found, expected, "seed {seed} with {memory_bytes} bytes of memory");
        }
    }
}

#[test]
fn keyed_changes_of_given_batches_are_those_of_a_batch() {
    let mut random = StdRng::seed_from_u64(7);
    let rows: Vec<Change> = (0..500).map(|number| random_change(&mut random, 0, number)).collect();
    let steps = [Step::Push(0, rows.clone()), Step::Boundary];
    let batches = rows.chunks(33).map(|part| change_batch(0, part)).collect();
    let keyed = KeyedChanges::from_batches(Arc::clone(&tables()[0]), batches).unwrap();
    assert_eq!(Some(&read(keyed)), expected(&steps).values().next());
}
