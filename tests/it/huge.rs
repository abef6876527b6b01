//! Tables that are large in other ways than by their rows: many columns, many of them, long values.

use std::time::Duration;

use crate::harness::{Flavor, READER, Server, TempJob, assert_same, source_content};

/// Columns beside the key; MySQL takes 1,017 in all.
const COLUMNS: u32 = 1_000;
const TABLES: u32 = 300;
const VALUE_BYTES: u32 = 16 << 20;
const VALUES: u32 = 6;
/// What `run.memory` says of long values, and what the whole process may take, see the memory test.
const MEMORY_MIB: u64 = 256;
const PEAK_MIB_MAX: u64 = 512;

fn job(server: &Server, database: &str, memory_mib: u64) -> TempJob {
    let source = TempJob::live_source(server, READER, &[&format!("{database}.*")]);
    TempJob::new(&source, &format!("run: {{ memory: {memory_mib}MiB }}\n"))
}

async fn assert_equal(server: &Server, job: &TempJob, database: &str, table: &str) {
    let expected = source_content(&mut server.connect().await, database, table).await;
    let found = job.lake().content(database, table, &expected.key, None).await;
    assert_same(&format!("{:?} {database}.{table}", server.flavor), &found, &expected);
}

#[tokio::test]
async fn a_table_of_a_thousand_columns_equals_the_lake() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("wide").await;
        let columns: String = (0..COLUMNS).map(|column| format!(", c{column} INT DEFAULT {column}")).collect();
        let ids = |from: u32| (from..from + 20).map(|id| format!("({id})")).collect::<Vec<_>>().join(", ");
        let create = format!("CREATE TABLE {database}.t (id INT PRIMARY KEY{columns})");
        server.exec_all(&[&create, &format!("INSERT INTO {database}.t (id) VALUES {}", ids(0))]).await;
        let job = job(server, database, MEMORY_MIB);
        job.run().expect_code(0);
        assert_equal(server, &job, database, "t").await;
        server
            .exec_all(&[
                &format!("INSERT INTO {database}.t (id) VALUES {}", ids(20)),
                &format!("UPDATE {database}.t SET c7 = id, c999 = NULL WHERE id % 3 = 0"),
                "SET SESSION binlog_row_image = MINIMAL",
                &format!("UPDATE {database}.t SET c500 = -id WHERE id % 5 = 0"),
                &format!("DELETE FROM {database}.t WHERE id % 7 = 0"),
            ])
            .await;
        job.run().expect_code(0);
        assert_equal(server, &job, database, "t").await;
    }
}

#[tokio::test]
async fn one_transaction_changes_hundreds_of_tables() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("many").await;
        let each = |statement: &dyn Fn(u32) -> String| (0..TABLES).map(statement).collect::<Vec<_>>();
        let exec = async |statements: Vec<String>| {
            server.exec_all(&statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
        };
        exec(each(&|table| format!("CREATE TABLE {database}.t{table} (id INT PRIMARY KEY, v VARCHAR(20))"))).await;
        exec(each(&|table| format!("INSERT INTO {database}.t{table} VALUES (1, 'a'), (2, 'b')"))).await;
        let job = job(server, database, MEMORY_MIB);
        job.run().expect_code(0);
        let commits = job.lake().commits(database, "t0").len();
        let mut transaction = each(&|table| format!("UPDATE {database}.t{table} SET v = 'c{table}' WHERE id = 2"));
        transaction.insert(0, "BEGIN".into());
        transaction.push("COMMIT".into());
        exec(transaction).await;
        job.run().expect_code(0);
        assert_eq!(job.lake().commits(database, "t0").len(), commits + 1, "one commit for one transaction");
        for table in [0, 1, TABLES / 2, TABLES - 1] {
            assert_equal(server, &job, database, &format!("t{table}")).await;
        }
    }
}

#[tokio::test]
async fn long_values_are_loaded_and_followed_within_the_memory() {
    let server = Server::own(Flavor::Mysql, &["--max-allowed-packet=1G"]);
    let database = &server.new_database("long").await;
    let parts = VALUE_BYTES / 128;
    // Digits without an order, which no compression makes short.
    let insert = |id: u32| {
        format!(
            "INSERT INTO {database}.t WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {parts}) \
             SELECT {id}, GROUP_CONCAT(SHA2(CONCAT({id}, '-', i), 512) SEPARATOR '') FROM s"
        )
    };
    let settings = format!("SET SESSION group_concat_max_len = 1 << 30, SESSION cte_max_recursion_depth = {parts}");
    let transaction = |from: u32| {
        let inserts = (from..from + VALUES).map(insert);
        let all = [settings.clone(), "BEGIN".into()].into_iter().chain(inserts).chain(["COMMIT".into()]);
        all.collect::<Vec<_>>()
    };
    let exec = async |statements: Vec<String>| {
        server.exec_all(&statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
    };
    server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY, v LONGTEXT)")).await;
    exec(transaction(0)).await;
    let job = job(&server, database, MEMORY_MIB);
    for from in [VALUES, 2 * VALUES] {
        let (peak, outcome) = job.spawn(&["run"], &[]).wait_with_peak(Duration::from_millis(20));
        outcome.expect_code(0);
        println!("peak {peak} MiB with run.memory {MEMORY_MIB}MiB");
        assert!(peak <= PEAK_MIB_MAX, "the run took {peak} MiB");
        exec(transaction(from)).await;
    }
    job.run().expect_code(0);
    let query =
        "SELECT COUNT(*), COUNT(DISTINCT RIGHT(v, 64)), SUM(LENGTH(v)), MIN(LEFT(v, 64)), MAX(RIGHT(v, 64)) FROM";
    let expected = server.query(format!("{query} {database}.t")).await;
    let expected: Vec<String> = expected[0].iter().flatten().cloned().collect();
    let answer = job.verb(&["sql", "--format", "csv", &format!("{query} t")]).expect_code(0).stdout;
    assert_eq!(answer.lines().last(), Some(expected.join(",").as_str()), "{answer}");
}
