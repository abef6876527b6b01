//! The real program, run as a process of its own and looked at until it ends.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The variable from which the jobs of benches take the server's password.
pub const PASSWORD_VARIABLE: &str = "BENCH_DB_PASSWORD";

/// Of the kernel's clock in /proc: USER_HZ, 100 on every Linux that runs this.
const TICKS_PER_SECOND: f64 = 100.0;
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A run that succeeded.
#[allow(dead_code)]
pub struct Run {
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// The most that was resident at a time, MiB.
    pub peak_mib: f64,
    /// What `run --json` said at its end.
    pub outcome: Value,
}

impl Run {
    /// A number of the outcome, of all tables together.
    #[allow(dead_code)]
    pub fn of_all_tables(&self, field: &str) -> u64 {
        self.outcome["tables"].as_array().unwrap().iter().filter_map(|table| table[field].as_u64()).sum()
    }
}

/// `alluvium run --json` of a job file, which must succeed.
pub fn run(job: &Path, password: &str) -> Run {
    // A file: a pipe that nobody reads before the end would hold the program up.
    let printed = tempfile::NamedTempFile::new().unwrap();
    let started = Instant::now();
    let mut program = Command::new(env!("CARGO_BIN_EXE_alluvium"))
        .args(["run", "--json", "-j"])
        .arg(job)
        .env(PASSWORD_VARIABLE, password)
        .stdout(printed.reopen().unwrap())
        .spawn()
        .unwrap();
    let (cpu_seconds, peak_mib) = watch(&mut program);
    let seconds = started.elapsed().as_secs_f64();
    assert!(program.wait().unwrap().success(), "the run must succeed");
    let text = std::fs::read_to_string(printed.path()).unwrap();
    let outcome = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()).next_back();
    Run { seconds, cpu_seconds, peak_mib, outcome: outcome.expect("run --json prints its outcome") }
}

/// CPU time in seconds and peak memory in MiB of a process, looked at until it ends.
fn watch(program: &mut Child) -> (f64, f64) {
    let (mut ticks, mut peak_kib) = (0.0f64, 0.0f64);
    let proc = Path::new("/proc").join(program.id().to_string());
    while program.try_wait().unwrap().is_none() {
        // Linux keeps the peak of what was resident.
        let status = std::fs::read_to_string(proc.join("status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        peak_kib = peak_kib.max(kib.unwrap_or(0.0));
        let stat = std::fs::read_to_string(proc.join("stat")).unwrap_or_default();
        // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
        let fields: Vec<&str> = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
        ticks = ticks.max(field(11) + field(12));
        std::thread::sleep(LOOK_EVERY);
    }
    (ticks / TICKS_PER_SECOND, peak_kib / 1024.0)
}

#[allow(dead_code)]
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
