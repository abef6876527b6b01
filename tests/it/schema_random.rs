//! Random changes of a table's columns between random changes of its rows, by a printed seed: whatever the order, and wherever
//! the job was killed, the lake's columns equal the source's.

use std::collections::BTreeMap;

use alluvium::failpoint;
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use crate::harness::{Content, Flavor, SMALL_BATCHES, Server, TempJob, source_content};
use crate::oracle::seed;

/// Types from narrow to wide, a value of each, and whether a strict server checks the way back.
const LADDERS: [(&[&str], [&str; 2], bool); 4] = [
    (&["TINYINT", "SMALLINT", "INT", "INT UNSIGNED", "BIGINT"], ["7", "100"], true),
    (&["VARCHAR(3)", "VARCHAR(60)", "TEXT", "LONGTEXT"], ["'x'", "'three'"], true),
    (&["DECIMAL(4,1)", "DECIMAL(8,3)", "DECIMAL(20,6)"], ["1.5", "-99.9"], false),
    (&["FLOAT", "DOUBLE"], ["0.1", "-2.5"], false),
];
const STEPS: usize = 120;

#[derive(Clone)]
struct Column {
    name: String,
    ladder: usize,
    rung: usize,
}

impl Column {
    fn definition(&self) -> String {
        format!("{} {}", self.name, LADDERS[self.ladder].0[self.rung])
    }
}

struct Table {
    random: StdRng,
    columns: Vec<Column>,
    connection: Conn,
    names: usize,
}

impl Table {
    fn name(&mut self) -> String {
        self.names += 1;
        // Some names come back.
        let number = if self.random.random_bool(0.3) { self.random.random_range(0..self.names) } else { self.names };
        format!("c{number}")
    }

    fn place(&mut self) -> String {
        match self.random.random_range(0..3) {
            0 => String::new(),
            1 => " FIRST".to_string(),
            _ => " AFTER id".to_string(),
        }
    }

    /// A statement, and the columns after it.
    fn change(&mut self) -> (String, Vec<Column>) {
        let mut columns = self.columns.clone();
        let at = self.random.random_range(0..columns.len());
        let clause = match self.random.random_range(0..8) {
            0 | 1 => {
                let ladder = self.random.random_range(0..LADDERS.len());
                let column = Column { name: self.name(), ladder, rung: 0 };
                let value = LADDERS[ladder].1[0];
                let default = if self.random.random() { format!(" NOT NULL DEFAULT {value}") } else { String::new() };
                let clause = format!("ADD COLUMN {}{default}{}", column.definition(), self.place());
                columns.push(column);
                clause
            }
            2 if columns.len() > 2 => format!("DROP COLUMN {}", columns.remove(at).name),
            3 => {
                let from = std::mem::replace(&mut columns[at].name, self.name());
                format!("RENAME COLUMN {from} TO {}", columns[at].name)
            }
            4 => {
                let from = std::mem::replace(&mut columns[at].name, self.name());
                columns[at].rung = (columns[at].rung + 1).min(LADDERS[columns[at].ladder].0.len() - 1);
                format!("CHANGE {from} {}{}", columns[at].definition(), self.place())
            }
            5 if LADDERS[columns[at].ladder].2 => {
                columns[at].rung = columns[at].rung.saturating_sub(1);
                format!("MODIFY {}{}", columns[at].definition(), self.place())
            }
            6 if at > 0 => {
                let (one, other) = (columns[0].name.clone(), columns[at].name.clone());
                (columns[0].name, columns[at].name) = (other.clone(), one.clone());
                format!("RENAME COLUMN {one} TO {other}, RENAME COLUMN {other} TO {one}")
            }
            _ => {
                columns[at].rung = (columns[at].rung + 1).min(LADDERS[columns[at].ladder].0.len() - 1);
                format!("MODIFY {}{}, COMMENT 'changed'", columns[at].definition(), self.place())
            }
        };
        (format!("ALTER TABLE t {clause}"), columns)
    }

    fn write(&mut self) -> String {
        let column = self.columns.choose(&mut self.random).unwrap().clone();
        let value = LADDERS[column.ladder].1.choose(&mut self.random).unwrap();
        let id = self.random.random_range(0..30);
        match self.random.random_range(0..4) {
            0 => format!("UPDATE t SET {} = {value} WHERE id = {id}", column.name),
            1 => format!("DELETE FROM t WHERE id = {id}"),
            _ => format!("REPLACE INTO t (id, {}) VALUES ({id}, {value})", column.name),
        }
    }

    /// One step. What the server refuses has changed nothing.
    async fn step(&mut self) -> String {
        if self.random.random_bool(0.7) {
            let statement = self.write();
            let _ = self.connection.query_drop(statement.as_str()).await;
            return statement;
        }
        let (statement, columns) = self.change();
        match self.connection.query_drop(statement.as_str()).await {
            Ok(()) => self.columns = columns,
            Err(_) => return format!("refused: {statement}"),
        }
        statement
    }
}

/// The lake's name of each column of the source, by the newest version of the schema.
fn lake_names(job: &TempJob) -> BTreeMap<String, String> {
    let sql = "SELECT columns FROM alluvium.schema_history WHERE table_name = 't' ORDER BY schema_version DESC LIMIT 1";
    let found = job.verb(&["sql", "--json", sql]).expect_code(0).stdout;
    let row: serde_json::Value = serde_json::from_str(found.trim()).unwrap();
    let row = row.as_array().map_or(&row, |rows| &rows[0]);
    let columns: Vec<serde_json::Value> = serde_json::from_str(row["columns"].as_str().unwrap()).unwrap();
    let text = |column: &serde_json::Value, key: &str| column[key].as_str().unwrap().to_string();
    columns.iter().map(|column| (text(column, "name"), text(column, "lake_name"))).collect()
}

async fn assert_equal(server: &Server, job: &TempJob, database: &str, steps: &[String]) {
    let expected = source_content(&mut server.connect().await, database, "t").await;
    let names = lake_names(job);
    let found = job.lake().content(database, "t", &expected.key, None).await;
    let place = |name: &String| found.columns.iter().position(|column| *column == names[name]).unwrap();
    let places: Vec<usize> = expected.columns.iter().map(place).collect();
    let row = |row: &Vec<Option<String>>| places.iter().map(|place| row[*place].clone()).collect();
    let rows = found.rows.iter().map(|(key, values)| (key.clone(), row(values))).collect();
    let found = Content { columns: expected.columns.clone(), key: expected.key.clone(), rows };
    let differences = found.differences(&expected);
    assert!(differences.is_empty(), "{:?}: {differences:#?} after {steps:#?}", server.flavor);
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_of_columns_between_random_rows_end_equal_wherever_the_job_was_killed() {
    let seed = seed(71);
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("random").await;
        let mut connection = server.connect().await;
        connection.query_drop(format!("USE {database}")).await.unwrap();
        connection.query_drop("CREATE TABLE t (id INT PRIMARY KEY, c0 TINYINT, c1 VARCHAR(3))").await.unwrap();
        let column = |number: usize| Column { name: format!("c{number}"), ladder: number, rung: 0 };
        let columns = vec![column(0), column(1)];
        let mut table = Table { random: StdRng::seed_from_u64(seed), columns, connection, names: 1 };
        let job = TempJob::live(server, &[&format!("{database}.*")], SMALL_BATCHES);
        job.run().expect_code(0);
        let mut steps = Vec::new();
        for _ in 0..STEPS {
            steps.push(table.step().await);
            if table.random.random_bool(0.1) {
                let step = *failpoint::ALL.choose(&mut table.random).unwrap();
                let armed = format!("{step}:{}", table.random.random_range(1..4));
                job.spawn(&["run"], &[(failpoint::VARIABLE, &armed)]).wait();
                job.run().expect_code(0);
                assert_equal(server, &job, database, &steps).await;
            }
        }
        job.run().expect_code(0);
        assert_equal(server, &job, database, &steps).await;
        let changes = steps.iter().filter(|step| step.starts_with("ALTER")).count();
        assert!(changes > STEPS / 8, "{changes} changes of columns prove little: {steps:#?}");
    }
}
