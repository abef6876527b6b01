//! A transaction much larger than the memory that a run may use.

use std::time::Duration;

use crate::harness::{Flavor, Server, TempJob};

/// Rows of the transaction, and characters in each.
const ROWS: u32 = 120_000;
const PAD_CHARS: u32 = 3_200;
/// What `run.memory` says, and what the whole process may take: the program itself, without optimisation, and what
/// the allocator keeps come on top.
const MEMORY_MIB: u64 = 64;
const PEAK_MIB_MAX: u64 = 320;

#[tokio::test]
async fn a_transaction_larger_than_the_memory_commits_whole() {
    let server = Server::own(Flavor::Mysql, &[]);
    let database = server.new_database("huge").await;
    server.exec(format!("CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT, pad TEXT)")).await;
    let job = TempJob::live(&server, &[&format!("{database}.*")], &format!("run: {{ memory: {MEMORY_MIB}MiB }}\n"));
    job.run().expect_code(0);
    let commits_before = job.lake().commits(&database, "t").len();

    let repeats = PAD_CHARS / 64;
    server
        .exec_all(&[
            &format!("SET SESSION cte_max_recursion_depth = {ROWS}"),
            &format!("USE {database}"),
            "BEGIN",
            &format!(
                "INSERT INTO {database}.t WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {ROWS}) \
                 SELECT i, i, REPEAT(SHA2(i, 256), {repeats}) FROM s"
            ),
            &format!("UPDATE {database}.t SET n = n + 1 WHERE id % 10 = 0"),
            &format!("DELETE FROM {database}.t WHERE id % 10 = 1"),
            "COMMIT",
        ])
        .await;
    let (peak, outcome) = job.spawn(&["run"], &[]).wait_with_peak(Duration::from_millis(20));
    outcome.expect_code(0);

    assert_eq!(job.lake().commits(&database, "t").len(), commits_before + 1, "one commit for one transaction");
    let query = "SELECT COUNT(*) AS rows_now, SUM(n) AS total, COUNT(DISTINCT LEFT(pad, 64)) AS pads, SUM(LENGTH(pad)) AS chars FROM";
    let expected = server.query(format!("{query} {database}.t")).await;
    let expected: Vec<String> = expected[0].iter().flatten().cloned().collect();
    let answer = job.verb(&["sql", "--format", "csv", &format!("{query} t")]).expect_code(0).stdout;
    assert_eq!(answer.lines().last(), Some(expected.join(",").as_str()), "{answer}");
    println!("peak {peak} MiB with run.memory {MEMORY_MIB}MiB");
    assert!(peak <= PEAK_MIB_MAX, "the run took {peak} MiB");
}
