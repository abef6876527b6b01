//! A first load of sysbench's table from a server on this machine into a Delta table, beside MariaDB's own client, which
//! throws the rows away: `mariadb --quick -e 'select *' > /dev/null`. Prints rows per second of both, the peak of the
//! process's memory and its CPU time per row. `BENCH_SERVER` is the server (`mariadb`, or `mysql`), `BENCH_ROWS` sets the
//! rows (10 million), `BENCH_MEMORY` the job's `run.memory` (192MiB), `BENCH_READERS` its readers. Programs that others write for the same work run beside it where
//! `tests/servers/install.sh peers` has put them.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

mod program;
mod server;

use program::{Run, median};
use server::{PASSWORD, Server};

const REPEATS: usize = 3;
/// Rows of one insert: keeps the server's undo log small.
const FILL_ROWS: u64 = 250_000;

fn main() {
    let rows: u64 = variable("BENCH_ROWS", "10000000").parse().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kind = variable("BENCH_SERVER", "mariadb");
    let server = Server::start(&kind, &folder.path().join("server"), &["--innodb-buffer-pool-size=4G"]);
    let started = Instant::now();
    fill(&server, rows);
    println!("filled {rows} rows in {:.0} s", started.elapsed().as_secs_f64());
    let peer = median((0..REPEATS).map(|_| read_and_forget(&server)).collect());
    let ours: Vec<Run> = (0..REPEATS).map(|number| load(folder.path(), &server, number, rows)).collect();
    let seconds = median(ours.iter().map(|run| run.seconds).collect());
    let cpu_us = median(ours.iter().map(|run| run.cpu_seconds).collect()) * 1e6 / rows as f64;
    let peak = ours.iter().map(|run| run.peak_mib).fold(0.0, f64::max);
    let per_second = |seconds: f64| rows as f64 / seconds;
    println!(
        "mariadb --quick: {peer:.2} s; alluvium: {seconds:.2} s, {cpu_us:.2} us of CPU per row (medians of {REPEATS})"
    );
    for name in ["rivet", "duckdb", "dlt"] {
        if let Some(other) = run_peer(name, folder.path(), &server, rows) {
            println!("{name}: {other:.2} s, {:.2} times ours", other / seconds);
        }
    }
    println!(
        "bench name=snapshot ratio={:.2} ours={:.0} peer={:.0} unit=rows/s peak_mib={peak:.0} cpu_us_per_row={cpu_us:.2}",
        peer / seconds,
        per_second(seconds),
        per_second(peer)
    );
}

fn variable(name: &str, default: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| default.to_string())
}

/// sysbench's table, with its groups of digits. The log has none of it: it would only take room.
fn fill(server: &Server, rows: u64) {
    let group = "LPAD(FLOOR(RAND() * 100000000000), 11, '0')";
    let groups = |count: usize| format!("CONCAT_WS('-', {})", vec![group; count].join(", "));
    server.run(
        "CREATE DATABASE bench CHARACTER SET utf8mb4; CREATE TABLE bench.sbtest1 (id INT NOT NULL PRIMARY KEY, \
         k INT NOT NULL DEFAULT 0, c CHAR(120) NOT NULL DEFAULT '', pad CHAR(60) NOT NULL DEFAULT '', KEY k_1 (k)); \
         CREATE TABLE bench.thousand (n INT PRIMARY KEY); SET sql_log_bin = 0; \
         INSERT INTO bench.thousand WITH RECURSIVE t (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM t WHERE n < 999) \
         SELECT n FROM t",
    );
    for first in (1..=rows).step_by(usize::try_from(FILL_ROWS).unwrap()) {
        let last = (first + FILL_ROWS - 1).min(rows);
        server.run(&format!(
            "SET sql_log_bin = 0; INSERT INTO bench.sbtest1 SELECT {first} + a.n * 1000 + b.n AS id, \
             FLOOR(RAND() * {rows}), {}, {} FROM bench.thousand a, bench.thousand b \
             WHERE a.n < {FILL_ROWS} / 1000 HAVING id <= {last}",
            groups(10),
            groups(5)
        ));
    }
    server.run("ANALYZE TABLE bench.sbtest1");
}

/// Seconds in which the server's own client reads all rows.
fn read_and_forget(server: &Server) -> f64 {
    let started = Instant::now();
    let status = server
        .client()
        .args(["--quick", "-e", "select * from bench.sbtest1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "the client failed");
    started.elapsed().as_secs_f64()
}

/// One first load into a lake of its own.
fn load(folder: &Path, server: &Server, number: usize, rows: u64) -> Run {
    let (job, lake) = (folder.join(format!("job{number}.yaml")), folder.join(format!("lake{number}")));
    let (memory, readers) = (variable("BENCH_MEMORY", "192MiB"), variable("BENCH_READERS", "4"));
    let text = format!(
        "version: 1\njob: bench{number}\nsource:\n  type: mariadb\n  url: mysql://root@127.0.0.1:{}\n  \
         password: {{ env: BENCH_DB_PASSWORD }}\n  tables: [\"bench.sbtest1\"]\n  snapshot: {{ readers: {readers} }}\n\
         lake:\n  path: {lake:?}\nrun: {{ memory: {memory} }}\nmaintain: off\n",
        server.port
    );
    std::fs::write(&job, text).unwrap();
    let run = program::run(&job, PASSWORD);
    assert_eq!(run.of_all_tables("rows_loaded"), rows, "{}", run.outcome);
    std::fs::remove_dir_all(&lake).unwrap();
    run
}

/// Seconds of one run of another program, `None` where it is not installed.
fn run_peer(name: &str, folder: &Path, server: &Server, rows: u64) -> Option<f64> {
    let cache = std::env::var("ALLUVIUM_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|_| std::env::var("HOME").map(|home| Path::new(&home).join(".cache/alluvium"))).ok()?;
    let python = cache.join("peers-venv/bin/python");
    if !python.exists() {
        println!("{name} is left out: tests/servers/install.sh peers installs it");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/snapshot-peers.py");
    let out = folder.join(format!("{name}-out"));
    std::fs::create_dir_all(&out).unwrap();
    let started = Instant::now();
    let output = Command::new(python)
        .arg(script)
        .args([name, &server.port.to_string(), PASSWORD, &rows.to_string()])
        .arg(&out)
        .current_dir(&out)
        .output()
        .unwrap();
    let seconds = started.elapsed().as_secs_f64();
    std::fs::remove_dir_all(&out).unwrap();
    if output.status.success() {
        return Some(seconds);
    }
    let words = String::from_utf8_lossy(&output.stderr);
    println!("{name} failed: {}", words.lines().last().unwrap_or_default());
    None
}
