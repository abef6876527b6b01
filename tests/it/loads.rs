//! First loads by several readers: keys that lie in heaps and far apart, tables that join or are loaded again while others
//! go on, and the limits that protect the source.

use std::time::{Duration, Instant};

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use crate::harness::{Flavor, Outcome, READER, Running, Server, TempJob, assert_same, source_content};

/// Many splits of few rows, in many batches.
const SMALL: &str = "run:\n  memory: 256MiB\n  batch: { rows: 900, seconds: 1 }\n";

fn job(server: &Server, database: &str, snapshot: &str) -> TempJob {
    let source = TempJob::live_source(server, READER, &[&format!("{database}.*")]);
    TempJob::new(&format!("{source}  snapshot: {snapshot}\n"), SMALL)
}

async fn assert_equal(server: &Server, job: &TempJob, database: &str, table: &str) {
    let expected = source_content(&mut server.connect().await, database, table).await;
    let found = job.lake().content(database, table, &expected.key, None).await;
    assert_same(&format!("{:?} {database}.{table}", server.flavor), &found, &expected);
}

fn loaded(outcome: &Outcome, table: &str) -> u64 {
    let outcome: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
    let tables = outcome["tables"].as_array().unwrap();
    let found = tables.iter().find(|found| found["table"]["table"] == table).expect("the table is told of");
    found["rows_loaded"].as_u64().unwrap()
}

/// Numbers `from`, `from + step`, ... as rows with a text.
fn rows(from: i128, step: i128, count: i128) -> String {
    let rows: Vec<String> = (0..count).map(|row| format!("({}, 'row {row}')", from + row * step)).collect();
    rows.join(", ")
}

#[tokio::test]
async fn keys_in_heaps_and_far_apart_are_loaded_whole() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("heaps").await;
        let (lowest, highest) = (i128::from(i64::MIN), i128::from(u64::MAX));
        let signed =
            [rows(lowest, 1, 800), rows(-5, 1, 10), rows(1 << 40, 1 << 20, 1200), rows(i64::MAX as i128 - 99, 1, 100)];
        let unsigned = [rows(0, 1, 3), rows(1 << 33, 7, 1500), rows(highest - 700, 1, 701)];
        let mut statements = vec![
            format!("CREATE TABLE {database}.signed (id BIGINT PRIMARY KEY, v VARCHAR(40))"),
            format!("CREATE TABLE {database}.unsigned (id BIGINT UNSIGNED PRIMARY KEY, v VARCHAR(40))"),
            format!("CREATE TABLE {database}.one (id INT PRIMARY KEY)"),
            format!("INSERT INTO {database}.one VALUES (7)"),
            format!("CREATE TABLE {database}.none (id INT PRIMARY KEY)"),
        ];
        statements.extend(signed.iter().map(|rows| format!("INSERT INTO {database}.signed VALUES {rows}")));
        statements.extend(unsigned.iter().map(|rows| format!("INSERT INTO {database}.unsigned VALUES {rows}")));
        statements.push(format!("ANALYZE TABLE {database}.signed, {database}.unsigned"));
        server.exec_all(&statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let job = job(server, database, "{ split_rows: 100, readers: 3 }");
        let outcome = job.verb(&["run", "--json"]).expect_code(0);
        assert_eq!((loaded(&outcome, "signed"), loaded(&outcome, "unsigned")), (2110, 2204), "{flavor:?}");
        for table in ["signed", "unsigned", "one", "none"] {
            assert_equal(server, &job, database, table).await;
        }
    }
}

/// The key of a load's last split is read by the next process, whatever character set it is in.
#[tokio::test]
async fn a_load_that_is_stopped_goes_on_with_the_splits_that_are_left() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("goes_on").await;
        let definition =
            "a VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci, b INT, v TEXT, PRIMARY KEY (a, b)";
        let values: Vec<String> = (0..3000).map(|row| format!("('{}é{}', {row}, 'v')", row % 7, row % 50)).collect();
        let insert = format!("INSERT INTO {database}.t VALUES {}", values.join(", "));
        server.exec_all(&["SET NAMES utf8mb4", &format!("CREATE TABLE {database}.t ({definition})"), &insert]).await;
        let job = job(server, database, "{ split_rows: 150, readers: 4 }");
        let killed = job.spawn(&["run"], &[("ALLUVIUM_FAILPOINT", "commit.before:3")]).wait();
        assert!(!killed.status.success(), "{killed:?}");
        let outcome = job.verb(&["run", "--json"]).expect_code(0);
        let rows = loaded(&outcome, "t");
        assert!(rows > 0 && rows < 3000, "{flavor:?}: {rows} rows were read again");
        assert_equal(server, &job, database, "t").await;
    }
}

#[tokio::test]
async fn a_table_that_changes_while_it_is_loaded_is_followed_or_taken_out() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("changes").await;
        for (table, change, code) in [
            ("grows", "ADD COLUMN w INT DEFAULT 7", 0),
            ("widens", "MODIFY u BIGINT, MODIFY v TEXT", 0),
            ("loses_its_key", "DROP PRIMARY KEY, ADD PRIMARY KEY (id, v)", 3),
        ] {
            let name = format!("{database}.{table}");
            let create = format!("CREATE TABLE {name} (id INT PRIMARY KEY, v VARCHAR(40), u INT)");
            let insert = format!("INSERT INTO {name} (id, v) VALUES {}", rows(1, 1, 3000));
            server.exec_all(&[&create, &insert]).await;
            let source = TempJob::live_source(server, READER, &[&name]);
            let job = TempJob::new(&format!("{source}  snapshot: {{ split_rows: 100 }}\n"), SMALL);
            let killed = job.spawn(&["run"], &[("ALLUVIUM_FAILPOINT", "commit.before:3")]).wait();
            assert!(!killed.status.success(), "{killed:?}");
            server
                .exec_all(&[&format!("ALTER TABLE {name} {change}"), &format!("DELETE FROM {name} WHERE id < 9")])
                .await;
            job.run().expect_code(code);
            if code == 0 {
                assert_equal(server, &job, database, table).await;
            }
        }
    }
}

#[tokio::test]
async fn rows_of_a_condition_are_loaded_again_while_their_table_is_followed() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("part").await;
        let (t, other) = (format!("{database}.t"), format!("{database}.other"));
        let create = |table: &str| format!("CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(40))");
        let insert = |table: &str| format!("INSERT INTO {table} VALUES {}", rows(1, 1, 1000));
        server.exec_all(&[&create(&t), &create(&other), &insert(&t), &insert(&other)]).await;
        let job = job(server, database, "{ split_rows: 50 }");
        job.run().expect_code(0);
        // Changes that the log does not have, and one that it has.
        let unseen = [
            "SET sql_log_bin = 0".to_string(),
            format!("UPDATE {t} SET v = 'unseen' WHERE id IN (300, 700)"),
            format!("INSERT INTO {t} VALUES (5000, 'unseen')"),
            "SET sql_log_bin = 1".to_string(),
            format!("UPDATE {t} SET v = 'seen' WHERE id IN (301, 701)"),
            format!("DELETE FROM {other} WHERE id > 500"),
        ];
        server.exec_all(&unseen.each_ref().map(String::as_str)).await;
        let again = |condition: &str| job.verb(&["run", "--json", "--resnapshot", &t, "--where", condition]);
        again("no_such_column = 1").expect_code(2).expect_stderr(&["no_such_column", "condition"]);
        again("id > ").expect_code(2);
        again("1) OR (1").expect_code(2);
        let outcome = again("id BETWEEN 200 AND 400 OR id = 5000 -- and a comment").expect_code(0);
        assert_eq!(loaded(&outcome, "t"), 202, "{flavor:?}");
        let count = format!("SELECT count(*) AS n FROM {t} WHERE v = 'unseen'");
        let found = job.verb(&["sql", "--json", &count]).expect_code(0).stdout;
        assert_eq!(found, "{\"n\":2}\n", "{flavor:?}: 300 and 5000, not 700");
        again("id = 700").expect_code(0);
        assert_equal(server, &job, database, "t").await;
        assert_equal(server, &job, database, "other").await;
        job.verb(&["run", "--resnapshot", &t, "--resnapshot", &other, "--where", "id = 1"]).expect_code(2);
        job.verb(&["run", "--where", "id = 1"]).expect_code(2);
    }
}

#[tokio::test]
async fn tables_that_come_later_are_loaded_and_nothing_else_is() {
    let server = Server::shared(Flavor::Mariadb);
    let database = &server.new_database("later").await;
    let create = |table: &str| format!("CREATE TABLE {database}.{table} (id INT PRIMARY KEY, v VARCHAR(40))");
    let insert = |table: &str| format!("INSERT INTO {database}.{table} VALUES {}", rows(1, 1, 700));
    server.exec_all(&[&create("first"), &insert("first"), &create("later"), &insert("later")]).await;
    let mut source = TempJob::live_source(server, READER, &[&format!("{database}.first")]);
    let job = TempJob::new(&source, SMALL);
    job.run().expect_code(0);
    source = TempJob::live_source(server, READER, &[&format!("{database}.*")]);
    job.write(&source, SMALL);
    server.exec(format!("UPDATE {database}.first SET v = 'x' WHERE id < 10")).await;
    let outcome = job.verb(&["run", "--json"]).expect_code(0);
    assert_eq!((loaded(&outcome, "first"), loaded(&outcome, "later")), (0, 700));
    let again = format!("{database}.first");
    let outcome = job.verb(&["run", "--json", "--resnapshot", &again]).expect_code(0);
    assert_eq!((loaded(&outcome, "first"), loaded(&outcome, "later")), (700, 0));
    for table in ["first", "later"] {
        assert_equal(server, &job, database, table).await;
    }
}

/// A query that takes too long ends where it has come to; one that gets nowhere says what is wrong.
#[tokio::test]
async fn a_query_that_takes_too_long_ends_where_it_has_come_to() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &["--max-allowed-packet=64M"]);
        let database = &server.new_database("slow").await;
        // Reading a row takes some milliseconds; all of them take longer than a second.
        let slow = "v VARCHAR(99) AS (REPEAT(SHA2(REPEAT(w, 200000), 512), 1)) VIRTUAL";
        let create =
            format!("CREATE TABLE {database}.t (id INT PRIMARY KEY, w VARCHAR(40), {})", slow.replace("99", "200"));
        let insert = format!("INSERT INTO {database}.t (id, w) VALUES {}", rows(1, 1, 900));
        server.exec_all(&[&create, &insert]).await;
        let job = job(&server, database, "{ split_rows: 900, query_time: 1s, readers: 2 }");
        let outcome = job.verb(&["run", "--json"]).expect_code(0);
        assert_eq!(loaded(&outcome, "t"), 900, "{flavor:?}");
        let told: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert!(told["batches"].as_u64() > Some(1), "{flavor:?}: no query was too long");
        assert_equal(&server, &job, database, "t").await;
    }
}

#[tokio::test]
async fn a_load_waits_for_a_source_that_is_busy() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        let database = &server.new_database("busy").await;
        let create = format!("CREATE TABLE {database}.t (id INT PRIMARY KEY)");
        server.exec_all(&[&create, &format!("INSERT INTO {database}.t VALUES (1)")]).await;
        let job = job(&server, database, "{ threads_running: 6, replica_lag: 1h }");
        if flavor == Flavor::Mariadb {
            job.run().expect_code(2).expect_stderr(&["SLAVE MONITOR", "replica_lag"]);
            let checked = job.verb(&["check"]).expect_code(2).stdout;
            assert!(checked.contains("GRANT SLAVE MONITOR ON *.* TO 'cdc'@'%'"), "{checked}");
            server.exec(format!("GRANT SLAVE MONITOR ON *.* TO '{READER}'@'%'")).await;
        }
        let sleepers = (0..8).map(|_| server.query("SELECT SLEEP(6)"));
        let busy = futures::future::join_all(sleepers);
        let started = Instant::now();
        let running = tokio::task::spawn_blocking(move || {
            std::thread::sleep(Duration::from_millis(500));
            job.run().expect_code(0);
        });
        busy.await;
        running.await.unwrap();
        assert!(started.elapsed() >= Duration::from_secs(6), "{flavor:?}: it did not wait");
    }
}

/// How far down a row moves with its key: from the part of a table that is loaded last to that which is loaded first.
const MOVED_BY: u64 = 100_000;

/// A table, the type of its key, and its key for a number, in the order of the numbers.
const MOVING: [(&str, &str, &str); 5] = [
    ("numbers", "INT", "{}"),
    ("texts", "VARCHAR(20) CHARACTER SET latin1", "CONCAT('é', LPAD({}, 6, '0'))"),
    ("bytes", "BINARY(4)", "UNHEX(LPAD(HEX({}), 8, '0'))"),
    ("times", "TIME(3)", "SEC_TO_TIME({} + 0.25)"),
    ("moments", "DATETIME(6)", "'2024-01-01 00:00:00.5' + INTERVAL {} SECOND"),
];

/// What a session that does not log whole rows does to a table while it is loaded: rows go from its end to its beginning,
/// and the documents of rows anywhere gain and lose elements.
struct Mover {
    connection: Conn,
    table: String,
    key: &'static str,
    next: u64,
}

impl Mover {
    async fn new(server: &Server, table: &str, key: &'static str) -> Self {
        let mut connection = server.connect().await;
        connection.query_drop("SET SESSION binlog_row_image = MINIMAL").await.unwrap();
        if server.flavor == Flavor::Mysql {
            connection.query_drop("SET SESSION binlog_row_value_options = PARTIAL_JSON").await.unwrap();
        }
        Self { connection, table: table.to_string(), key, next: 0 }
    }

    fn key(&self, number: u64) -> String {
        self.key.replace("{}", &number.to_string())
    }

    async fn go_on(&mut self) {
        let from = MOVED_BY + self.next;
        let (old, new) = (self.key(from), self.key(from - MOVED_BY));
        // The changes that MySQL logs in part.
        let changed = match self.next % 3 {
            0 => "JSON_REMOVE(doc, '$[0]')",
            1 => "JSON_SET(doc, '$[0]', 7)",
            _ => "JSON_SET(doc, CONCAT('$[', JSON_LENGTH(doc), ']'), 9)",
        };
        let elsewhere = self.key(MOVED_BY + self.next * 7 % 1000);
        for sql in [
            format!("UPDATE {} SET k = {new} WHERE k = {old}", self.table),
            format!("UPDATE {} SET doc = {changed} WHERE k IN ({new}, {elsewhere})", self.table),
        ] {
            self.connection.query_drop(sql).await.unwrap();
        }
        self.next += 1;
    }

    /// Goes on until the loader ends.
    async fn meanwhile(&mut self, mut loader: Running) -> Outcome {
        while loader.is_running() && self.next < 900 {
            self.go_on().await;
        }
        loader.wait()
    }
}

/// Whether some commit of the table says that rows were left out.
fn has_unsettled(job: &TempJob, database: &str, table: &str) -> bool {
    let log = job.lake_folder().join(database).join(table).join("_delta_log");
    let mut files = std::fs::read_dir(log).unwrap().map(|file| std::fs::read_to_string(file.unwrap().path()));
    files.any(|file| file.is_ok_and(|commit| commit.contains("alluvium.unsettled")))
}

#[tokio::test]
async fn rows_that_move_and_documents_that_change_in_part_while_their_table_loads_are_not_lost_or_changed_twice() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("moving").await;
        for (table, kind, key) in MOVING {
            let name = format!("{database}.{table}");
            let row = key.replace("{}", &format!("(n + {MOVED_BY})"));
            let numbers = "WITH RECURSIVE t (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n < 999) SELECT";
            let insert = format!("INSERT INTO {name} {numbers} {row}, n, JSON_ARRAY(n, 1, REPEAT('x', 300)) FROM t");
            server.exec(format!("CREATE TABLE {name} (k {kind} PRIMARY KEY, v INT, doc JSON)")).await;
            server.exec(insert).await;
            let source = TempJob::live_source(server, READER, &[&name]);
            let settings = format!("{source}  snapshot: {{ split_rows: 10, readers: 2 }}\n");
            let job = TempJob::new(&settings, "run:\n  batch: { rows: 20 }\n");
            let mut mover = Mover::new(server, &name, key).await;
            for commits in [3, 9, 27] {
                let point = format!("commit.after:{commits}");
                mover.meanwhile(job.spawn(&["run"], &[("ALLUVIUM_FAILPOINT", &point)])).await;
            }
            mover.meanwhile(job.spawn(&["run"], &[])).await.expect_code(0);
            job.run().expect_code(0);
            assert!(has_unsettled(&job, database, table), "{flavor:?} {table}: nothing was left out");
            assert_equal(server, &job, database, table).await;
        }
    }
}

/// On MySQL the place in the log of a row that was read is known only within bounds, and each change of a document within them may be in it already.
#[tokio::test(flavor = "multi_thread")]
async fn documents_that_change_in_part_while_they_are_read_are_not_changed_twice() {
    let server = Server::own(Flavor::Mysql, &[]);
    let rows = "WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 300) SELECT n, \
                JSON_OBJECT('list', JSON_ARRAY(n, 1, 2), 'pad', REPEAT('x', 20000)) FROM t";
    // Takes the first element, and appends another.
    let change = "CREATE PROCEDURE d.changes() BEGIN DECLARE i INT DEFAULT 0; REPEAT SET i = i + 1; SET @id = 1 + FLOOR(RAND() * 300); \
                  UPDATE d.t SET doc = JSON_REMOVE(doc, '$.list[0]') WHERE id = @id; \
                  UPDATE d.t SET doc = JSON_SET(doc, CONCAT('$.list[', JSON_LENGTH(doc, '$.list'), ']'), i) WHERE id = @id; \
                  UNTIL EXISTS (SELECT * FROM aside.stop) END REPEAT; END";
    let create = "CREATE TABLE d.t (id INT PRIMARY KEY, doc JSON)";
    let aside = ["CREATE DATABASE aside", "CREATE TABLE aside.stop (id INT PRIMARY KEY)"];
    server.exec_all(&aside).await;
    server.exec_all(&["CREATE DATABASE d", create, &format!("INSERT INTO d.t {rows}"), change]).await;
    let job = job(&server, "d", "{ split_rows: 1000, readers: 1 }");
    let mut writer = server.connect().await;
    for setting in ["binlog_row_image = MINIMAL", "binlog_row_value_options = PARTIAL_JSON"] {
        writer.query_drop(format!("SET SESSION {setting}")).await.unwrap();
    }
    let changes = tokio::spawn(async move { writer.query_drop("CALL d.changes()").await.unwrap() });
    job.run().expect_code(0);
    server.exec("INSERT INTO aside.stop VALUES (1)").await;
    changes.await.unwrap();
    job.run().expect_code(0);
    assert!(has_unsettled(&job, "d", "t"), "no document changed while it was read");
    assert_equal(&server, &job, "d", "t").await;
}
