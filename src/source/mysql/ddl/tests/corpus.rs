//! The statements of `tests/data/ddl/corpus.sql`: what they make here against what they made on the servers.

use std::collections::BTreeMap;
use std::collections::HashMap;

use super::*;
use crate::schema::Column;
use crate::source::mysql::column_type::{ColumnType, split_left_out};

const CORPUS: &str = include_str!("../../../../../tests/data/ddl/corpus.sql");
const MARIADB: &str = include_str!("../../../../../tests/data/ddl/mariadb-10.11.txt");
const MYSQL: &str = include_str!("../../../../../tests/data/ddl/mysql-9.7.txt");
const DATABASE: &str = "ddl_corpus";

/// The statements of each block, by its number.
fn blocks() -> Vec<Vec<String>> {
    let block = |text: &str| {
        let mut statements: Vec<String> = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with("--")) {
            match statements.last_mut() {
                Some(last) if line.starts_with(['#', ' ']) => last.extend(["\n", line]),
                _ => statements.push(line.to_string()),
            }
        }
        statements
    };
    CORPUS.split("\n\n").map(block).collect()
}

/// What the server made of a block: its columns, and which statements it refused.
#[derive(Default)]
struct Recorded<'a> {
    columns: Vec<Vec<&'a str>>,
    refused: Vec<usize>,
}

fn recorded(record: &str) -> BTreeMap<usize, Recorded<'_>> {
    let mut blocks: BTreeMap<usize, Recorded<'_>> = BTreeMap::new();
    for line in record.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let block = blocks.entry(fields[0].parse().unwrap()).or_default();
        match fields[1] {
            "refused" => block.refused.push(fields[2].parse().unwrap()),
            _ => block.columns.push(fields[1..].to_vec()),
        }
    }
    blocks
}

/// What is made here: the tables, and what old rows of `t` hold in added columns.
#[derive(Default)]
struct Made {
    tables: HashMap<TableId, Arc<TableSchema>>,
    defaults: HashMap<String, Option<String>>,
}

impl Made {
    fn run(&mut self, statement: &str, mariadb: bool) {
        let known = |table: &TableId| self.tables.get(table).cloned();
        let context = Context { default_database: DATABASE, ..context(&known, mariadb) };
        for effect in effects(statement, &context) {
            match effect {
                Effect::CreateTable(schema) => {
                    self.tables.insert(schema.table.clone(), Arc::new(schema));
                }
                Effect::Alter { table, schema, defaults, .. } => {
                    self.tables.insert(table, Arc::new(schema));
                    self.defaults.extend(defaults);
                }
                Effect::Dml { .. } => {}
                Effect::DropTable(table) => _ = self.tables.remove(&table),
                Effect::Rename { from, to } => {
                    if let Some(schema) = self.tables.remove(&from) {
                        self.tables.insert(to, schema);
                    }
                }
                other => panic!("{statement}: {other:?}"),
            }
        }
    }

    fn check(&self, statements: &[String], recorded: &Recorded<'_>) {
        let schema = &self.tables[&TableId::new(DATABASE, "t")];
        let plain = |column: &Column| split_left_out(&column.source_type).0.to_string();
        let shown = |schema: &TableSchema| {
            let key = |index| schema.key.iter().position(|part| *part == index).map_or(0, |place| place + 1);
            let columns = schema.columns.iter().enumerate();
            columns
                .map(|(index, column)| (column.name.clone(), plain(column), column.nullable, key(index)))
                .collect::<Vec<_>>()
        };
        let expected = |fields: &Vec<&str>| {
            let charset = (fields[2] != "NULL").then_some(fields[2]);
            let column_type = ColumnType::from_information_schema(fields[1], charset).expect(fields[1]);
            (fields[0].to_string(), column_type.to_string(), fields[3] == "YES", fields[4].parse().unwrap())
        };
        let expected: Vec<(String, String, bool, usize)> = recorded.columns.iter().map(expected).collect();
        assert_eq!(shown(schema), expected, "{statements:#?}");
        for fields in recorded.columns.iter().filter(|fields| fields.len() > 5) {
            if let Some(made) = self.defaults.get(fields[0]) {
                check_default(fields, made.as_deref());
            }
        }
    }
}

fn check_default(fields: &[&str], made: Option<&str>) {
    let bytes =
        |hex: &str| (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect();
    let value = (fields[5] != "NULL").then(|| String::from_utf8(bytes(fields[5])).unwrap());
    let value = value.filter(|text| !text.starts_with("0000-00-00"));
    match (value.as_deref(), made) {
        // A number may be written in more than one way.
        (Some(value), Some(made)) if matches!(fields[1], "double" | "float") => {
            assert_eq!(value.parse::<f64>(), made.parse::<f64>(), "{fields:?}");
        }
        (Some(value), Some(made)) if fields[1].starts_with("year") => {
            assert_eq!(value.parse::<u16>(), made.parse(), "{fields:?}")
        }
        (Some(value), Some(made)) if fields[1].starts_with("datetime") => {
            assert_eq!(value.trim_end_matches('0'), made.trim_end_matches('0'), "{fields:?}");
        }
        (value, made) => assert_eq!(value, made, "{fields:?}"),
    }
}

fn check_server(record: &str, mariadb: bool) {
    let blocks = blocks();
    let recorded = recorded(record);
    assert!(recorded.len() > 60, "{} blocks", recorded.len());
    for (number, recorded) in &recorded {
        let mut made = Made::default();
        for (index, statement) in blocks[*number].iter().enumerate() {
            if !recorded.refused.contains(&index) {
                made.run(statement, mariadb);
            }
        }
        made.check(&blocks[*number], recorded);
    }
}

#[test]
fn tables_have_the_columns_that_mysql_gave_them() {
    check_server(MYSQL, false);
}

#[test]
fn tables_have_the_columns_that_mariadb_gave_them() {
    check_server(MARIADB, true);
}
