//! Random transactions on a live server.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Error};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::statements::{Key, Statements};
use super::tables::{Column, Table, tables};
use super::values::Kind;
use crate::harness::{Content, Flavor, Server, server_position, source_content};

/// What the server held after a transaction.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// The end of the log then, `file:offset`.
    pub position: String,
    pub tables: Arc<BTreeMap<String, Arc<Content>>>,
}

/// Columns are added to a table up to this many, so that rows stay readable in a failure.
const COLUMNS_MAX: usize = 18;

/// Errors that a random statement may meet; it then changed nothing. The numbers are the server's.
const EXPECTED_ERRORS: [u16; 4] = [
    1062, // duplicate key
    1264, // a key moved out of its type's range
    1690, // the same for BIGINT UNSIGNED
    1205, // lock wait, with several writers
];
/// A deadlock rolls back the whole transaction.
const DEADLOCK: u16 = 1213;

/// A writer with a connection of its own.
pub struct Workload {
    pub database: String,
    flavor: Flavor,
    random: StdRng,
    tables: Vec<Table>,
    keys: Vec<BTreeSet<Key>>,
    connection: Conn,
    last: BTreeMap<String, Arc<Content>>,
    with_ddl: bool,
    /// Settings that the writer's session changes between them.
    settings: Vec<&'static str>,
}

impl Workload {
    /// Uses a new database of the server. Nothing else may write to the server if positions are to be compared.
    pub async fn new(seed: u64, server: &Server) -> Self {
        let database = server.new_database("oracle").await;
        Self::in_database(seed, server, database).await
    }

    async fn in_database(seed: u64, server: &Server, database: String) -> Self {
        let mut connection = server.connect().await;
        connection.query_drop(format!("USE {database}")).await.unwrap();
        let tables = tables(server.flavor);
        let keys = vec![BTreeSet::new(); tables.len()];
        let random = StdRng::seed_from_u64(seed);
        let (flavor, last, with_ddl) = (server.flavor, BTreeMap::new(), true);
        let settings = Vec::new();
        Self { database, flavor, random, tables, keys, connection, last, with_ddl, settings }
    }

    pub async fn create_tables(&mut self) {
        for table in self.tables.clone() {
            self.must(&table.create_statement()).await;
        }
    }

    /// Leaves ADD COLUMN and TRUNCATE out from now on.
    pub fn without_ddl(&mut self) {
        self.with_ddl = false;
    }

    /// From now on the session sets one of these before every few transactions.
    pub fn with_settings(&mut self, settings: &[&'static str]) {
        self.settings = settings.to_vec();
    }

    /// The pattern that selects the tables in a job file.
    pub fn pattern(&self) -> String {
        format!("{}.*", self.database)
    }

    /// Runs this many transactions, and tells what the server held after each.
    pub async fn run(&mut self, transactions: usize) -> Vec<Recorded> {
        let mut recorded = Vec::with_capacity(transactions);
        for _ in 0..transactions {
            let touched = self.transaction().await;
            recorded.push(self.record(&touched).await);
        }
        recorded
    }

    /// Runs this many transactions and records nothing.
    pub async fn run_blind(&mut self, transactions: usize) {
        for _ in 0..transactions {
            self.transaction().await;
        }
    }

    /// As [`Workload::run`], with a column added to some table before the last transaction.
    pub async fn run_with_column(&mut self, transactions: usize) -> Vec<Recorded> {
        let mut recorded = self.run(transactions - 1).await;
        let touched = self.add_column().await;
        recorded.push(self.record(&touched).await);
        recorded.extend(self.run(1).await);
        recorded
    }

    /// Several writers at once, each with this many transactions; none of them changes a table's shape.
    pub async fn run_concurrently(&mut self, server: &'static Server, writers: u64, transactions: usize) {
        let mut tasks = Vec::new();
        for _ in 0..writers {
            let mut writer = Self::in_database(self.random.random(), server, self.database.clone()).await;
            writer.tables = self.tables.clone();
            writer.without_ddl();
            tasks.push(tokio::spawn(async move { writer.run_blind(transactions).await }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    }

    /// All tables as the server has them now.
    pub async fn content(&mut self) -> BTreeMap<String, Arc<Content>> {
        let mut content = BTreeMap::new();
        for table in &self.tables {
            let rows = source_content(&mut self.connection, &self.database, table.name).await;
            content.insert(table.name.to_string(), Arc::new(rows));
        }
        content
    }

    async fn record(&mut self, touched: &BTreeSet<usize>) -> Recorded {
        if self.last.is_empty() {
            self.last = self.content().await;
        }
        for index in touched {
            let name = self.tables[*index].name;
            let rows = source_content(&mut self.connection, &self.database, name).await;
            self.last.insert(name.to_string(), Arc::new(rows));
        }
        let position = server_position(&mut self.connection, self.flavor).await;
        Recorded { position, tables: Arc::new(self.last.clone()) }
    }

    /// One transaction; gives the indexes of the tables that it may have changed.
    async fn transaction(&mut self) -> BTreeSet<usize> {
        if !self.settings.is_empty() && self.random.random_bool(0.3) {
            let setting = *self.settings.choose(&mut self.random).expect("there are some");
            self.must(setting).await;
        }
        match self.random.random_range(0..100) {
            0..3 if self.with_ddl => self.add_column().await,
            3..4 if self.with_ddl => self.truncate().await,
            0..12 => self.one_statement().await,
            12..17 => self.many_rows().await,
            _ => self.several_statements().await,
        }
    }

    async fn one_statement(&mut self) -> BTreeSet<usize> {
        let (index, statement) = self.statement();
        self.may(&statement).await;
        BTreeSet::from([index])
    }

    async fn many_rows(&mut self) -> BTreeSet<usize> {
        let index = self.random.random_range(0..self.tables.len());
        let rows = self.random.random_range(20..120);
        let statement = self.statements(index).insert_many(rows);
        self.may(&statement).await;
        BTreeSet::from([index])
    }

    async fn several_statements(&mut self) -> BTreeSet<usize> {
        let mut touched = BTreeSet::new();
        let mut savepoints = 0;
        let xa = !self.settings.is_empty() && self.random.random_bool(0.2);
        self.must(if xa { "XA START 'oracle'" } else { "BEGIN" }).await;
        for _ in 0..self.random.random_range(1..10) {
            if self.random.random_bool(0.12) {
                savepoints += 1;
                self.must(&format!("SAVEPOINT s{savepoints}")).await;
            } else if savepoints > 0 && self.random.random_bool(0.15) {
                savepoints = self.random.random_range(1..=savepoints);
                self.must(&format!("ROLLBACK TO SAVEPOINT s{savepoints}")).await;
            }
            let (index, statement) = self.statement();
            touched.insert(index);
            if !self.may(&statement).await {
                break;
            }
        }
        let end = if self.random.random_bool(0.15) { "ROLLBACK" } else { "COMMIT" };
        if xa {
            self.must("XA END 'oracle'").await;
            self.must("XA PREPARE 'oracle'").await;
            self.must(&format!("XA {end} 'oracle'")).await;
        } else {
            self.must(end).await;
        }
        touched
    }

    async fn add_column(&mut self) -> BTreeSet<usize> {
        let free: Vec<usize> = (0..self.tables.len()).filter(|i| self.tables[*i].columns.len() < COLUMNS_MAX).collect();
        let Some(&index) = free.choose(&mut self.random) else { return self.one_statement().await };
        let count = self.tables[index].columns.len();
        let name = format!("added{count}");
        let (sql, definition, kind, nullable) = match self.random.random_range(0..3) {
            0 => ("INT", "INT NOT NULL DEFAULT 7", Kind::Int { min: -9, max: 9 }, false),
            1 => ("VARCHAR(30)", "VARCHAR(30) NULL", Kind::Text(30), true),
            _ => ("DECIMAL(8,3)", "DECIMAL(8,3) NULL", Kind::Decimal { precision: 8, scale: 3, unsigned: false }, true),
        };
        self.must(&format!("ALTER TABLE {} ADD COLUMN {name} {definition}", self.tables[index].name)).await;
        self.tables[index].columns.push(Column { name, sql: sql.to_string(), kind, nullable, default: None });
        BTreeSet::from([index])
    }

    async fn truncate(&mut self) -> BTreeSet<usize> {
        let index = self.random.random_range(0..self.tables.len());
        self.must(&format!("TRUNCATE TABLE {}", self.tables[index].name)).await;
        BTreeSet::from([index])
    }

    fn statement(&mut self) -> (usize, String) {
        let index = self.random.random_range(0..self.tables.len());
        (index, self.statements(index).any())
    }

    fn statements(&mut self, index: usize) -> Statements<'_> {
        let flavor = self.flavor;
        let keys = &mut self.keys[index];
        Statements { table: &self.tables[index], keys, random: &mut self.random, flavor }
    }

    /// A statement that must work.
    async fn must(&mut self, statement: &str) {
        self.connection.query_drop(statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }

    /// A statement that may fail as random ones do. False when its whole transaction is gone.
    async fn may(&mut self, statement: &str) -> bool {
        match self.connection.query_drop(statement).await {
            Ok(()) => true,
            Err(Error::Server(error)) if EXPECTED_ERRORS.contains(&error.code) => true,
            Err(Error::Server(error)) if error.code == DEADLOCK => false,
            Err(error) => panic!("{statement}: {error}"),
        }
    }
}
