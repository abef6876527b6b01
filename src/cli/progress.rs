//! How far a run has come: a line for each table on a terminal, log lines elsewhere.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::text::{count, duration};
use crate::change::TableId;
use crate::maintain::ChoreReport;
use crate::pipeline::{BatchReport, Observer};

/// A first load writes a log line for each table this often, not one for each split.
const LOG_EVERY: Duration = Duration::from_secs(10);

/// The first moments of a load say little about its speed.
const RATE_AFTER: Duration = Duration::from_secs(1);

/// Shows the progress of one run.
pub struct Progress {
    screen: Screen,
    state: Mutex<State>,
}

/// The terminal, shared by the progress lines and the log.
#[derive(Clone)]
pub struct Screen {
    lines: Option<MultiProgress>,
}

#[derive(Default)]
struct State {
    loads: BTreeMap<TableId, Load>,
    /// The line about batches; made with the first one.
    batches: Option<ProgressBar>,
    rows_applied: u64,
}

struct Load {
    started: Instant,
    logged: Instant,
    /// Rows that were there when this run began to look: an interrupted load goes on.
    rows_before: u64,
    line: Option<ProgressBar>,
}

impl Screen {
    /// Progress lines if stderr is a terminal and they are wanted, else none.
    pub fn new(is_wanted: bool) -> Self {
        let lines = is_wanted && io::stderr().is_terminal();
        Self { lines: lines.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr())) }
    }

    /// Whether there are progress lines.
    pub fn has_lines(&self) -> bool {
        self.lines.is_some()
    }

    fn line(&self) -> Option<ProgressBar> {
        let line = self.lines.as_ref()?.add(ProgressBar::no_length());
        line.set_style(
            ProgressStyle::with_template("{prefix}  {msg}").unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Some(line)
    }
}

/// Log lines to stderr, above the progress lines.
impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.lines {
            Some(lines) => lines.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl Progress {
    pub fn new(screen: Screen) -> Arc<Self> {
        Arc::new(Self { screen, state: Mutex::new(State::default()) })
    }

    /// Takes the progress lines off the screen; call it before the summary.
    pub fn clear(&self) {
        if let Some(lines) = &self.screen.lines {
            // A terminal that is gone needs no tidying.
            let _ = lines.clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counters and lines are whole after every statement, so a panic elsewhere spoils nothing here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say_on_batch_line(&self, message: String) {
        let mut state = self.state();
        if state.batches.is_none() {
            state.batches = self.screen.line();
        }
        if let Some(line) = &state.batches {
            line.set_prefix("changes");
            line.set_message(message);
        }
    }
}

impl Observer for Progress {
    fn load_progress(&self, table: &TableId, rows_done: u64, rows_estimated: Option<u64>) {
        let mut state = self.state();
        let now = Instant::now();
        let load = state.loads.entry(table.clone()).or_insert_with(|| {
            let line = self.screen.line();
            Load { started: now, logged: now, rows_before: rows_done, line }
        });
        let rate = rate(rows_done.saturating_sub(load.rows_before), load.started.elapsed());
        let message = load_line(rows_done, rows_estimated, rate);
        if let Some(line) = &load.line {
            line.set_prefix(table.to_string());
            line.set_message(message);
        } else if load.logged.elapsed() >= LOG_EVERY {
            load.logged = now;
            tracing::info!(%table, rows = rows_done, "loading: {message}");
        }
    }

    fn load_done(&self, table: &TableId, rows: u64) {
        let load = self.state().loads.remove(table);
        match load.and_then(|load| load.line) {
            Some(line) => line.finish_with_message(format!("loaded {} rows", count(rows))),
            None => tracing::info!(%table, rows, "loaded"),
        }
    }

    fn batch_committed(&self, report: &BatchReport) {
        if !self.screen.has_lines() {
            let (sequence, rows, tables, position) = (report.sequence, report.rows, report.tables, &report.position);
            tracing::info!(sequence, rows, tables, %position, seconds = report.took.as_secs_f32(), "batch applied");
            return;
        }
        let rows_applied = {
            let mut state = self.state();
            state.rows_applied += report.rows;
            state.rows_applied
        };
        self.say_on_batch_line(batch_line(report, rows_applied));
    }

    fn maintained(&self, report: &ChoreReport) {
        // What went wrong has been logged where it did.
        if report.is_worth_telling() && report.error.is_none() {
            tracing::info!(
                table = %report.table,
                chore = report.chore.name(),
                files_before = report.files_before,
                files_after = report.files_after,
                "upkeep done"
            );
        }
    }

    fn waiting(&self, position: &str) {
        if self.screen.has_lines() {
            let rows_applied = self.state().rows_applied;
            self.say_on_batch_line(format!("waiting at {position}, rows so far {}", count(rows_applied)));
        }
    }
}

/// Rows a second, once there is enough to tell.
fn rate(rows: u64, elapsed: Duration) -> Option<u64> {
    let milliseconds = u64::try_from(elapsed.as_millis()).ok()?;
    (elapsed >= RATE_AFTER && rows > 0).then(|| rows.saturating_mul(1000) / milliseconds)
}

/// The line of a table that is being loaded: rows, of how many (the source's guess), rate, time left.
fn load_line(rows: u64, estimated: Option<u64>, rate: Option<u64>) -> String {
    // A guess that has been passed says nothing any more.
    let estimated = estimated.filter(|total| *total > rows);
    let mut line = format!("{} rows", count(rows));
    if let Some(total) = estimated {
        line += &format!(" of about {} ({}%)", count(total), u128::from(rows) * 100 / u128::from(total));
    }
    if let Some(rate) = rate.filter(|rate| *rate > 0) {
        line += &format!(", {} rows/s", count(rate));
        if let Some(total) = estimated {
            line += &format!(", {} left", duration(Duration::from_secs((total - rows) / rate)));
        }
    }
    line
}

/// The line about changes: all so far, the last batch, where the log has been applied to.
fn batch_line(report: &BatchReport, rows_applied: u64) -> String {
    let rate = rate(report.rows, report.took.max(RATE_AFTER)).unwrap_or(0);
    format!(
        "{} rows; batch {} with {} rows into {} tables, {} rows/s; at {}",
        count(rows_applied),
        report.sequence,
        count(report.rows),
        report.tables,
        count(rate),
        report.position
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: u64, estimated: Option<u64>, rate: Option<u64>, expected: &str) {
        assert_eq!(load_line(rows, estimated, rate), expected);
    }

    #[test]
    fn a_load_shows_rows_rate_and_time_left_as_far_as_they_are_known() {
        check(0, None, None, "0 rows");
        check(5000, Some(20_000), None, "5,000 rows of about 20,000 (25%)");
        check(5000, Some(20_000), Some(100), "5,000 rows of about 20,000 (25%), 100 rows/s, 2m 30s left");
        check(5000, Some(4000), Some(100), "5,000 rows, 100 rows/s");
        check(5000, Some(u64::MAX), Some(0), "5,000 rows of about 18,446,744,073,709,551,615 (0%)");
    }

    #[test]
    fn a_rate_needs_a_second() {
        assert_eq!(rate(500, Duration::from_millis(999)), None);
        assert_eq!(rate(500, Duration::from_millis(2000)), Some(250));
        assert_eq!(rate(0, Duration::from_secs(5)), None);
        assert_eq!(rate(u64::MAX, Duration::from_secs(1)), Some(u64::MAX / 1000));
    }

    #[test]
    fn a_batch_shows_what_it_did() {
        let took = Duration::from_millis(500);
        let report = BatchReport { sequence: 3, rows: 1200, tables: 2, position: "bin.1:4".into(), took };
        assert_eq!(
            batch_line(&report, 5000),
            "5,000 rows; batch 3 with 1,200 rows into 2 tables, 1,200 rows/s; at bin.1:4"
        );
    }

    #[test]
    fn progress_without_a_terminal_draws_nothing_and_keeps_no_lines() {
        let progress = Progress::new(Screen::new(false));
        let table = TableId::new("shop", "orders");
        progress.load_progress(&table, 10, Some(20));
        progress.load_done(&table, 20);
        progress.waiting("bin.1:4");
        progress.clear();
        assert!(progress.state().loads.is_empty() && progress.state().batches.is_none());
    }
}
