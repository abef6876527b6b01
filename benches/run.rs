//! The whole path: a binlog file to a Delta table, through the real program with `memory: 256MiB`. Prints rows per
//! second and the peak of the process's memory, which must stay within 512 MiB. `BENCH_MB` sets the log's size in
//! megabytes (500).
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

mod sysbench;

const REPEATS: usize = 3;
const PEAK_MIB_MAX: f64 = 512.0;

fn main() {
    let megabytes: usize = std::env::var("BENCH_MB").ok().and_then(|text| text.parse().ok()).unwrap_or(500);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("bench.000001");
    let written = sysbench::write_log(&log, megabytes * 1_000_000);
    let runs: Vec<(f64, f64)> = (0..REPEATS).map(|number| run(folder.path(), &log, number)).collect();
    let seconds = median(runs.iter().map(|(seconds, _)| *seconds).collect());
    let peak = runs.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
    let rows = written.rows as f64 / seconds;
    println!("{} changes in {seconds:.2} s (median of {REPEATS}), peak {peak:.0} MiB", written.rows);
    println!("bench name=run ratio={:.2} ours={rows:.0} unit=rows/s peak_mib={peak:.0}", PEAK_MIB_MAX / peak);
}

/// Seconds and peak memory in MiB of one run into a lake of its own.
fn run(folder: &Path, log: &Path, number: usize) -> (f64, f64) {
    let job = folder.join(format!("job{number}.yaml"));
    let text = format!(
        "version: 1\njob: bench\nsource:\n  type: binlog_files\n  files: [{log:?}]\n  tables: [\"shop.*\"]\n\
         lake:\n  path: {:?}\nrun: {{ memory: 256MiB }}\n",
        folder.join(format!("lake{number}"))
    );
    std::fs::write(&job, text).unwrap();
    let start = Instant::now();
    let mut program = Command::new(env!("CARGO_BIN_EXE_alluvium")).arg("run").arg("-j").arg(&job).spawn().unwrap();
    let peak = peak_mib(&mut program);
    let seconds = start.elapsed().as_secs_f64();
    assert!(program.wait().unwrap().success(), "the run must succeed");
    (seconds, peak)
}

/// Looks at the process until it ends. Linux keeps the peak of what was resident.
fn peak_mib(program: &mut Child) -> f64 {
    let mut peak_kib: f64 = 0.0;
    while program.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", program.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0.0);
        peak_kib = peak_kib.max(kib);
        std::thread::sleep(Duration::from_millis(20));
    }
    peak_kib / 1024.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
