//! A writer of random changes, and the comparison of the lake with what is left.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Map, Value, json};

use super::api::{Api, Table};
use crate::harness::{Content, LakeReader, assert_same};

/// Keys are few, so that items are changed and deleted again and again.
const KEYS: u32 = 30;

/// Writes to some tables of one server.
pub struct Workload {
    pub api: Api,
    pub tables: Vec<Table>,
    random: StdRng,
}

impl Workload {
    pub async fn new(seed: u64, api: Api, prefix: &str) -> Self {
        let tables = vec![
            Table::new(&format!("{prefix}orders"), &[("id", "S"), ("line", "N")]),
            Table::new(&format!("{prefix}users.v2"), &[("email", "S")]),
        ];
        for table in &tables {
            api.create(table).await;
        }
        Self { api, tables, random: StdRng::seed_from_u64(seed) }
    }

    /// Makes so many changes, one after the other.
    pub async fn run(&mut self, changes: usize) {
        for _ in 0..changes {
            let table = self.tables[self.random.random_range(0..self.tables.len())].clone();
            let key = self.random_key(&table);
            if self.random.random_bool(0.3) {
                self.api.delete(&table, &Value::Object(key)).await;
            } else {
                let mut item = key;
                self.add_attributes(&mut item);
                self.api.put(&table, &Value::Object(item)).await;
            }
        }
    }

    /// Puts an item with an attribute of this name into each table.
    pub async fn put_attribute(&mut self, name: &str) {
        for table in self.tables.clone() {
            let mut item = self.random_key(&table);
            item.insert(format!("at_{name}"), json!({ "S": "new" }));
            self.api.put(&table, &Value::Object(item)).await;
        }
    }

    fn random_key(&mut self, table: &Table) -> Map<String, Value> {
        let random = &mut self.random;
        let value = |kind: &str, random: &mut StdRng| match kind {
            "N" => json!({ "N": random.random_range(0..3).to_string() }),
            _ => json!({ "S": format!("k{}", random.random_range(0..KEYS)) }),
        };
        table.key.iter().map(|(name, kind)| (name.clone(), value(kind, random))).collect()
    }

    /// Each attribute has a type of its own, and is there or not; one comes newly now and then.
    fn add_attributes(&mut self, item: &mut Map<String, Value>) {
        let random = &mut self.random;
        let number: i32 = random.random_range(-1000..1000);
        let values = [
            ("text", json!({ "S": format!("é\"\n{number}") })),
            ("count", json!({ "N": number.to_string() })),
            ("price", json!({ "N": format!("{}.25", number.abs()) })),
            ("large", json!({ "N": format!("12345678901234567890123456789{:04}", number.abs()) })),
            ("flag", json!({ "BOOL": number % 2 == 0 })),
            ("bytes", json!({ "B": "AAEC/w==" })),
            ("nothing", json!({ "NULL": true })),
            ("tags", json!({ "SS": ["a", format!("b{number}")] })),
            (
                "nested",
                json!({ "M": { "list": { "L": [{ "N": number.to_string() }, { "S": "x" }] }, "none": { "NULL": true } } }),
            ),
        ];
        for (name, value) in values {
            if random.random_bool(0.6) {
                item.insert(name.to_string(), value);
            }
        }
        if random.random_bool(0.05) {
            item.insert(format!("new_{}", random.random_range(0..20)), json!({ "S": "first" }));
        }
    }

    /// The newest version of each table.
    pub fn versions(&self, lake: &LakeReader) -> Vec<Option<u64>> {
        let newest = |table: &Table| lake.commits("dynamodb", &table.name).last().map(|commit| commit.version);
        self.tables.iter().map(newest).collect()
    }

    /// # Panics
    /// When a table in the lake is not what a scan of the source gives, item by item.
    pub async fn assert_lake_equals(&self, lake: &LakeReader) {
        for table in &self.tables {
            let mut found = lake.content("dynamodb", &table.name, &table.key_names(), None).await;
            let items = self.api.items(table).await;
            let expected = expected(table, &found.columns, &items);
            for row in found.rows.values_mut() {
                row.iter_mut().for_each(|value| *value = value.take().map(|text| normalized(&text)));
            }
            assert_same(&table.name, &found, &expected);
        }
    }
}

/// JSON documents in one spelling; all else as it is.
fn normalized(text: &str) -> String {
    if !text.starts_with(['{', '[']) {
        return text.to_string();
    }
    serde_json::from_str::<Value>(text).map_or_else(|_| text.to_string(), |value| value.to_string())
}

/// The items as rows with these columns.
fn expected(table: &Table, columns: &[String], items: &[Value]) -> Content {
    let rows = items.iter().map(|item| {
        let item = item.as_object().unwrap();
        for name in item.keys().filter(|name| *name != "nothing") {
            assert!(columns.contains(name), "{}: there is no column {name}", table.name);
        }
        columns.iter().map(|column| item.get(column).and_then(canonical)).collect()
    });
    Content::new(&table.name, columns.to_vec(), &table.key_names(), rows.collect())
}

/// The canonical text of one attribute, as the harness has it of the column that the attribute should have.
fn canonical(value: &Value) -> Option<String> {
    let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
    match kind.as_str() {
        "NULL" => None,
        "S" => Some(normalized(value.as_str().unwrap())),
        "N" => Some(number(value.as_str().unwrap())),
        "BOOL" => Some(if value == &json!(true) { "1" } else { "0" }.to_string()),
        "B" => Some(if value == "AAEC/w==" { "000102FF".to_string() } else { panic!("other bytes: {value}") }),
        kind => Some(plain(kind, value).to_string()),
    }
}

/// A number with a point is in a column of 18 digits behind it.
fn number(text: &str) -> String {
    match text.split_once('.') {
        Some((_, fraction)) => format!("{text}{}", "0".repeat(18 - fraction.len())),
        None => text.to_string(),
    }
}

/// Plain JSON.
fn plain(kind: &str, value: &Value) -> Value {
    let inner = |value: &Value| {
        let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
        plain(kind, value)
    };
    match kind {
        "NULL" => Value::Null,
        "N" => json!(value.as_str().unwrap().parse::<i64>().unwrap()),
        "M" => value.as_object().unwrap().iter().map(|(name, value)| (name.clone(), inner(value))).collect(),
        "L" => value.as_array().unwrap().iter().map(inner).collect(),
        "SS" => {
            let mut texts: Vec<Value> = value.as_array().unwrap().clone();
            texts.sort_by_key(|text| text.to_string());
            Value::Array(texts)
        }
        _ => value.clone(),
    }
}
