//! A bank: accounts in two tables, transfers between them in a third, each transfer one transaction. The sum of all balances is
//! the same for ever, and no balance is what its transfers do not explain.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{Flavor, Server, server_position};

pub const TABLES: [&str; 3] = ["savings", "current", "transfers"];
/// Accounts in each of the two tables.
const ACCOUNTS: u64 = 20;
const BALANCE: i64 = 1_000;
pub const TOTAL: i64 = 2 * ACCOUNTS as i64 * BALANCE;

/// What the bank must be at every point.
pub const INVARIANTS: &str = "SELECT \
    (SELECT sum(balance) FROM savings) + (SELECT sum(balance) FROM current) AS total, \
    (SELECT count(*) FROM transfers) AS transfers, \
    (SELECT count(*) FROM transfers t LEFT JOIN savings s ON t.saver = s.id WHERE s.id IS NULL) AS orphans, \
    (SELECT count(*) FROM savings s LEFT JOIN (SELECT saver, sum(amount) AS got FROM transfers GROUP BY saver) t \
     ON t.saver = s.id WHERE s.balance <> 1000 + coalesce(t.got, 0)) AS unexplained";

pub struct Bank {
    pub database: String,
    pub flavor: Flavor,
    connection: Conn,
    random: StdRng,
    pub transfers: u64,
}

impl Bank {
    pub async fn open(server: &Server, seed: u64) -> Self {
        let database = server.new_database("bank").await;
        let mut connection = server.connect().await;
        connection.query_drop(format!("USE {database}")).await.unwrap();
        for statement in [
            "CREATE TABLE savings (id INT PRIMARY KEY, balance BIGINT NOT NULL)",
            "CREATE TABLE current (id INT PRIMARY KEY, balance BIGINT NOT NULL)",
            "CREATE TABLE transfers (id INT PRIMARY KEY, saver INT NOT NULL, account INT NOT NULL, amount BIGINT NOT NULL, \
             FOREIGN KEY (saver) REFERENCES savings (id), FOREIGN KEY (account) REFERENCES current (id))",
        ] {
            connection.query_drop(statement).await.unwrap();
        }
        let all: Vec<String> = (1..=ACCOUNTS).map(|id| format!("({id}, {BALANCE})")).collect();
        for table in ["savings", "current"] {
            connection.query_drop(format!("INSERT INTO {table} VALUES {}", all.join(", "))).await.unwrap();
        }
        Self { database, flavor: server.flavor, connection, random: StdRng::seed_from_u64(seed), transfers: 0 }
    }

    /// Transfers some money a number of times. One in eight is rolled back.
    pub async fn transfer(&mut self, times: u64) {
        for _ in 0..times {
            let (saver, account) = (self.random.random_range(1..=ACCOUNTS), self.random.random_range(1..=ACCOUNTS));
            let amount = self.random.random_range(-50..=50_i64);
            let id = self.transfers + 1;
            let is_rolled_back = self.random.random_range(0..8) == 0;
            for statement in [
                "START TRANSACTION".to_string(),
                format!("UPDATE savings SET balance = balance + {amount} WHERE id = {saver}"),
                format!(
                    "INSERT INTO transfers (id, saver, account, amount) VALUES ({id}, {saver}, {account}, {amount})"
                ),
                format!("UPDATE current SET balance = balance - {amount} WHERE id = {account}"),
                if is_rolled_back { "ROLLBACK" } else { "COMMIT" }.to_string(),
            ] {
                self.connection.query_drop(statement).await.unwrap();
            }
            self.transfers += u64::from(!is_rolled_back);
        }
    }

    pub async fn exec(&mut self, statement: &str) {
        self.connection.query_drop(statement).await.unwrap();
    }

    /// The transactions that the server has committed, as a GTID set.
    pub async fn gtids(&mut self) -> String {
        let variable = match self.flavor {
            Flavor::Mysql => "gtid_executed",
            Flavor::Mariadb => "gtid_binlog_pos",
        };
        self.connection.query_first(format!("SELECT @@GLOBAL.{variable}")).await.unwrap().unwrap()
    }

    pub async fn position(&mut self) -> String {
        server_position(&mut self.connection, self.flavor).await
    }

    pub fn pattern(&self) -> String {
        format!("{}.*", self.database)
    }
}
