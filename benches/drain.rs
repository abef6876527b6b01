//! The whole path from a live server's log to a Delta table: a MySQL of this bench's own, on the same machine, holds a log of
//! sysbench-like inserts and updates that the job has not read yet; `alluvium run` catches up with it. Prints rows per second,
//! the peak of the process's memory, and where its time went. `BENCH_ROWS` sets the rows of the log (3 million),
//! `BENCH_MEMORY` the job's `run.memory` (256MiB).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::Path;

mod program;
mod server;

use program::{Run, median};
use server::{PASSWORD, Server};

const REPEATS: usize = 3;
const GOAL_ROWS_PER_SECOND: f64 = 300_000.0;
/// Rows of one statement.
const STATEMENT_ROWS: u64 = 10_000;
/// Of the rows, those that are changed after they came.
const UPDATED_PERCENT: u64 = 25;

fn main() {
    let rows: u64 = std::env::var("BENCH_ROWS").map_or(3_000_000, |text| text.parse().unwrap());
    let memory = std::env::var("BENCH_MEMORY").unwrap_or_else(|_| "256MiB".into());
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start("mysql", &folder.path().join("server"), &["--innodb-buffer-pool-size=1G"]);
    server.run(
        "CREATE DATABASE bench CHARACTER SET utf8mb4;
         CREATE TABLE bench.t (id INT PRIMARY KEY, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL);
         CREATE TABLE bench.hundred (n INT PRIMARY KEY);
         INSERT INTO bench.hundred WITH RECURSIVE t (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n < 99) SELECT n FROM t;",
    );
    // Every repeat is a job of its own, that has joined before the rows came.
    for number in 0..REPEATS {
        run(folder.path(), &server, number, &memory);
    }
    let changes = write(&server, rows);
    let runs: Vec<Run> = (0..REPEATS).map(|number| run(folder.path(), &server, number, &memory)).collect();
    let seconds = median(runs.iter().map(|run| run.seconds).collect());
    let peak = runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max);
    let slowest = &runs[REPEATS - 1];
    println!("{changes} changes in {seconds:.2} s (median of {REPEATS}), peak {peak:.0} MiB");
    for stage in ["read", "reduce", "write", "upkeep"] {
        let time = &slowest.outcome["stages"][stage];
        let spent = time["secs"].as_f64().unwrap() + time["nanos"].as_f64().unwrap() / 1e9;
        println!("  {stage:<7} {spent:6.2} s {:5.1} %", 100.0 * spent / slowest.seconds);
    }
    let per_second = changes as f64 / seconds;
    println!(
        "bench name=drain ratio={:.2} ours={per_second:.0} unit=rows/s peak_mib={peak:.0}",
        per_second / GOAL_ROWS_PER_SECOND
    );
}

/// Inserts rows and changes some; how many row changes that makes.
fn write(server: &Server, rows: u64) -> u64 {
    let mut changes = 0;
    for first in (0..rows * 100 / (100 + UPDATED_PERCENT)).step_by(usize::try_from(STATEMENT_ROWS).unwrap()) {
        let updated = STATEMENT_ROWS * UPDATED_PERCENT / 100;
        server.run(&format!(
            "INSERT INTO bench.t SELECT {first} + a.n * 100 + b.n, a.n, REPEAT(LEFT(SHA2({first} + a.n * 100 + b.n, 256), 40), 3),
               LEFT(REPEAT(LEFT(SHA2({first} + a.n, 256), 32), 2), 59) FROM bench.hundred a, bench.hundred b;
             UPDATE bench.t SET k = k + 1 WHERE id BETWEEN {first} AND {first} + {updated} - 1;"
        ));
        changes += STATEMENT_ROWS + updated;
    }
    changes
}

fn run(folder: &Path, server: &Server, number: usize, memory: &str) -> Run {
    let job = folder.join(format!("job{number}.yaml"));
    let text = format!(
        "version: 1\njob: bench\nsource:\n  type: mysql\n  url: mysql://root@127.0.0.1:{}\n  password: {{ env: BENCH_DB_PASSWORD }}\n  \
         tables: [\"bench.t\"]\nlake:\n  path: {:?}\nrun: {{ memory: {memory} }}\n",
        server.port,
        folder.join(format!("lake{number}"))
    );
    std::fs::write(&job, text).unwrap();
    program::run(&job, PASSWORD)
}
