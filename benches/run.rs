//! The whole path: a binlog file to a Delta table, through the real program with `memory: 256MiB`. Prints rows per
//! second and the peak of the process's memory, which must stay within 512 MiB. `BENCH_MB` sets the log's size in
//! megabytes (500).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::Path;

mod program;
mod sysbench;

use program::{Run, median};

const REPEATS: usize = 3;
const PEAK_MIB_MAX: f64 = 512.0;

fn main() {
    let megabytes: usize = std::env::var("BENCH_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("bench.000001");
    let written = sysbench::write_log(&log, megabytes * 1_000_000);
    let runs: Vec<Run> = (0..REPEATS).map(|number| run(folder.path(), &log, number)).collect();
    let seconds = median(runs.iter().map(|run| run.seconds).collect());
    let peak = runs.iter().map(|run| run.peak_mib).fold(0.0, f64::max);
    let rows = written.rows as f64 / seconds;
    println!("{} changes in {seconds:.2} s (median of {REPEATS}), peak {peak:.0} MiB", written.rows);
    println!("bench name=run ratio={:.2} ours={rows:.0} unit=rows/s peak_mib={peak:.0}", PEAK_MIB_MAX / peak);
}

/// One run into a lake of its own.
fn run(folder: &Path, log: &Path, number: usize) -> Run {
    let job = folder.join(format!("job{number}.yaml"));
    let text = format!(
        "version: 1\njob: bench\nsource:\n  type: binlog_files\n  files: [{log:?}]\n  tables: [\"shop.*\"]\n\
         lake:\n  path: {:?}\nrun: {{ memory: 256MiB }}\n",
        folder.join(format!("lake{number}"))
    );
    std::fs::write(&job, text).unwrap();
    program::run(&job, "")
}
