//! What is large in some way, through the real program from a MySQL of this bench's own: a transaction of 5 million rows and an
//! update of all of them in one statement, 2,000 tables, tables of 1,000 columns, rows of 64 MiB. Prints for each the time and the peak of the
//! process's memory beside what `run.memory` allows. `BENCH_ROWS` sets the rows (5 million), `BENCH_TABLES` the tables (2,000),
//! `BENCH_SHAPES` which of `rows,tables,columns,blobs` are run (all).
#![allow(clippy::panic, clippy::print_stdout, clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;

mod program;
mod server;

use program::Run;
use server::{PASSWORD, Server};

/// `run.memory` of the jobs.
const MEMORY_MIB: u32 = 256;
/// The same where one row has 64 MiB: some copies of the largest row are held at a time.
const BLOB_MEMORY_MIB: u32 = 1024;
const COLUMNS: u32 = 1_000;
/// Rows of the wide table, and statements that each change some of them.
const WIDE_ROWS: u32 = 2_000;
const BLOBS: u32 = 6;
const BLOB_BYTES: u32 = 64 << 20;

fn main() {
    let rows = number("BENCH_ROWS", 5_000_000);
    let tables = number("BENCH_TABLES", 2_000);
    let shapes = std::env::var("BENCH_SHAPES").unwrap_or_else(|_| "rows,tables,columns,blobs".into());
    let folder = tempfile::tempdir().unwrap();
    let options = ["--innodb-buffer-pool-size=1G", "--innodb-redo-log-capacity=2G", "--max-allowed-packet=1G"];
    let server = Server::start("mysql", &folder.path().join("server"), &options);
    for shape in shapes.split(',') {
        let job = Job::new(folder.path(), &server, shape);
        match shape {
            "rows" => one_transaction(&server, &job, rows),
            "tables" => many_tables(&server, &job, tables),
            "columns" => many_columns(&server, &job),
            "blobs" => large_values(&server, &job),
            other => panic!("no shape {other}"),
        }
    }
}

fn number(name: &str, default: u32) -> u32 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

/// A job of one database, which has the shape's name.
struct Job<'a> {
    shape: &'a str,
    memory_mib: u32,
    file: PathBuf,
}

impl<'a> Job<'a> {
    fn new(folder: &Path, server: &Server, shape: &'a str) -> Self {
        let file = folder.join(format!("{shape}.yaml"));
        let memory_mib = if shape == "blobs" { BLOB_MEMORY_MIB } else { MEMORY_MIB };
        let text = format!(
            "version: 1\njob: bench\nsource:\n  type: mysql\n  url: mysql://root@127.0.0.1:{}\n  password: {{ env: BENCH_DB_PASSWORD }}\n  \
             tables: [\"{shape}.*\"]\nlake:\n  path: {:?}\nrun: {{ memory: {memory_mib}MiB }}\n",
            server.port,
            folder.join(format!("{shape}-lake"))
        );
        std::fs::write(&file, text).unwrap();
        server.run(&format!("CREATE DATABASE `{shape}` CHARACTER SET utf8mb4"));
        Self { shape, memory_mib, file }
    }

    /// One run, and its line.
    fn run(&self, what: &str) -> Run {
        let run = program::run(&self.file, PASSWORD);
        println!(
            "bench name=huge ratio={:.2} shape={} what={what} seconds={:.1} peak_mib={:.0} memory_mib={}",
            f64::from(self.memory_mib) / run.peak_mib,
            self.shape,
            run.seconds,
            run.peak_mib,
            self.memory_mib
        );
        run
    }

    /// What a query of the lake gives, a line.
    fn ask(&self, query: &str) -> String {
        let mut program = Command::new(env!("CARGO_BIN_EXE_alluvium"));
        program.args(["sql", "--format", "csv", query, "-j"]).arg(&self.file).env("BENCH_DB_PASSWORD", PASSWORD);
        let output = program.output().unwrap();
        assert!(output.status.success(), "{query}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().lines().last().unwrap_or_default().to_string()
    }
}

fn one_transaction(server: &Server, job: &Job, rows: u32) {
    server.run(
        "CREATE TABLE `rows`.t (id INT PRIMARY KEY, k INT NOT NULL, c VARCHAR(40) NOT NULL);
         CREATE TABLE `rows`.hundred (n INT PRIMARY KEY);
         INSERT INTO `rows`.hundred WITH RECURSIVE t (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n < 99) SELECT n FROM t",
    );
    job.run("load");
    server.run(&format!(
        "INSERT INTO `rows`.t SELECT n, n % 1000, LEFT(SHA2(n, 224), 40) FROM
           (SELECT ((a.n * 100 + b.n) * 100 + c.n) * 100 + d.n AS n
            FROM `rows`.hundred a, `rows`.hundred b, `rows`.hundred c, `rows`.hundred d WHERE a.n <= {rows} DIV 1000000) AS s WHERE n < {rows}"
    ));
    job.run("insert");
    server.run("UPDATE `rows`.t SET k = k + 1");
    job.run("update");
    let query = "SELECT COUNT(*), SUM(k) FROM";
    assert_eq!(job.ask(&format!("{query} t")), server.run(&format!("{query} `rows`.t")).trim().replace('\t', ","));
}

fn many_tables(server: &Server, job: &Job, tables: u32) {
    for first in (0..tables).step_by(100) {
        let create = |table: u32| {
            format!(
                "CREATE TABLE tables.t{table} (id INT PRIMARY KEY, v VARCHAR(20)); INSERT INTO tables.t{table} VALUES (1, 'a'), (2, 'b');"
            )
        };
        server.run(&(first..tables.min(first + 100)).map(create).collect::<String>());
    }
    job.run("load");
    let update = |table: u32| format!("UPDATE tables.t{table} SET v = 'c' WHERE id = 1;");
    server.run(&format!("BEGIN; {} COMMIT", (0..tables).map(update).collect::<String>()));
    let run = job.run("transaction");
    assert_eq!(run.of_all_tables("rows_upserted"), u64::from(tables), "{}", run.outcome);
    job.run("idle");
}

fn many_columns(server: &Server, job: &Job) {
    let columns: String = (0..COLUMNS).map(|column| format!(", c{column} INT NOT NULL DEFAULT {column}")).collect();
    server.run(&format!("CREATE TABLE columns.t (id INT PRIMARY KEY{columns})"));
    let insert = |from: u32| {
        let rows: Vec<String> = (from..from + WIDE_ROWS).map(|id| format!("({id})")).collect();
        format!("INSERT INTO columns.t (id) VALUES {}", rows.join(", "))
    };
    server.run(&insert(0));
    job.run("load");
    server.run(&insert(WIDE_ROWS));
    server.run("UPDATE columns.t SET c7 = id, c999 = id + 1 WHERE id % 2 = 0");
    job.run("changes");
    let query = "SELECT COUNT(*), SUM(c7), SUM(c999), SUM(c500) FROM";
    assert_eq!(job.ask(&format!("{query} t")), server.run(&format!("{query} columns.t")).trim().replace('\t', ","));
}

fn large_values(server: &Server, job: &Job) {
    server.run("CREATE TABLE blobs.t (id INT PRIMARY KEY, v LONGTEXT)");
    // Digits without an order, which a compressor halves at most.
    let parts = BLOB_BYTES / 128;
    let value = |id: u32| {
        format!(
            "INSERT INTO blobs.t WITH RECURSIVE s (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {parts})
             SELECT {id}, GROUP_CONCAT(SHA2(CONCAT({id}, '-', i), 512) SEPARATOR '') FROM s;"
        )
    };
    let insert = |from: u32| -> String {
        let values: String = (from..from + BLOBS).map(value).collect();
        format!("SET group_concat_max_len = 1 << 30, cte_max_recursion_depth = {parts}; BEGIN; {values} COMMIT")
    };
    server.run(&insert(0));
    job.run("load");
    server.run(&insert(BLOBS));
    job.run("transaction");
    let query = "SELECT COUNT(*), SUM(LENGTH(v)) FROM";
    assert_eq!(job.ask(&format!("{query} t")), server.run(&format!("{query} blobs.t")).trim().replace('\t', ","));
}
