//! `alluvium run`: its arguments and what it says at the end.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::output::{complain, print, print_json};
use super::progress::{Progress, Screen};
use super::text::{Align, count, table, time};
use super::{Exit, Global};
use crate::change::TableId;
use crate::clock::SystemClock;
use crate::pipeline::{self, Environment, RunOptions, RunOutcome, TableOutcome};
use crate::source::Usage;

/// Reads the source's changes and applies them to the lake's tables.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// Go on for ever; otherwise the run ends at the position that the source had when it began.
    #[arg(long)]
    pub follow: bool,
    /// Load this table's rows again, for example after it was taken out; may be given several times.
    #[arg(long, value_name = "DATABASE.TABLE", value_parser = table_id)]
    pub resnapshot: Vec<TableId>,
    /// Of the one table to load again, load the rows of which this is true, over those that are there; SQL of the source.
    #[arg(long, value_name = "CONDITION", requires = "resnapshot")]
    pub r#where: Option<String>,
}

impl RunArgs {
    /// # Errors
    /// A condition on more than one table.
    fn options(&self) -> Result<RunOptions, String> {
        if self.r#where.is_some() && self.resnapshot.len() != 1 {
            return Err("--where is a condition on one table: give one --resnapshot with it".to_string());
        }
        let resnapshot = self.resnapshot.iter().map(|table| (table.clone(), self.r#where.clone())).collect();
        Ok(RunOptions { follow: self.follow, resnapshot })
    }
}

pub(super) fn table_id(text: &str) -> Result<TableId, String> {
    match text.split_once('.') {
        Some((database, table)) if !database.is_empty() && !table.is_empty() => Ok(TableId::new(database, table)),
        _ => Err("write it as database.table".to_string()),
    }
}

pub(super) fn run(global: &Global, args: &RunArgs) -> Exit {
    let screen = Screen::new(!global.json);
    super::start_log(global, &screen);
    let (job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    let progress = Progress::new(screen);
    let options = match args.options() {
        Ok(options) => options,
        Err(problem) => {
            complain(&problem);
            return Exit::Usage;
        }
    };
    super::block_on(async {
        let lake = match super::open_lake(&job) {
            Ok(lake) => lake,
            Err(error) => return super::pipeline_failed(global, &error.into()),
        };
        let stop = CancellationToken::new();
        tokio::spawn(stop_on_signal(stop.clone()));
        let (source, observer) = (super::source_of(&job), Arc::clone(&progress) as Arc<dyn pipeline::Observer>);
        let environment = Environment { source, lake, clock: Arc::new(SystemClock), observer, stop };
        let outcome = pipeline::run(&job, options, environment).await;
        progress.clear();
        match outcome {
            Ok(outcome) if global.json => {
                print_json(&outcome);
                exit_of(&outcome)
            }
            Ok(outcome) => {
                print(&summary(&job.name, &outcome));
                exit_of(&outcome)
            }
            Err(error) => super::pipeline_failed(global, &error),
        }
    })
}

/// The first signal ends the run after the batch that is being applied, the second at once: both are safe.
async fn stop_on_signal(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    tracing::info!("stopping after this batch; once more to stop at once");
    stop.cancel();
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
    std::process::exit(i32::from(Exit::Retry as u8));
}

/// What a run did: a line for each table, those that were taken out last, and where the job stands.
pub fn summary(job: &str, outcome: &RunOutcome) -> String {
    let (stopped, running): (Vec<_>, Vec<_>) = outcome.tables.iter().partition(|table| table.stopped.is_some());
    let mut rows: Vec<Vec<String>> = Vec::new();
    for table in running {
        let version = table.version.map_or("-".to_string(), |version| version.to_string());
        let counts = [table.rows_loaded, table.rows_upserted, table.rows_deleted].map(count);
        rows.push([table.table.to_string()].into_iter().chain(counts).chain([version]).collect());
    }
    for table in stopped {
        let reason = table.stopped.as_deref().unwrap_or_default();
        rows.push(vec![table.table.to_string(), format!("taken out: {reason}")]);
    }
    let heading = [
        ("TABLE", Align::Left),
        ("LOADED", Align::Right),
        ("UPSERTED", Align::Right),
        ("DELETED", Align::Right),
        ("VERSION", Align::Right),
    ];
    let tables = if rows.is_empty() { String::new() } else { table(&heading, &rows) };
    let losses: String = outcome.tables.iter().filter_map(losses).collect();
    let position = outcome.position.as_deref().unwrap_or("no position yet");
    let committed = outcome.source_commit_time_us.map(|us| format!(", source commit time {}", time(us)));
    let upkeep: String = outcome.maintained.iter().map(|report| super::maintain::line(report, false)).collect();
    let usage = outcome.usage.as_ref().map(usage).unwrap_or_default();
    format!(
        "{tables}{losses}{upkeep}{usage}{job}: batches {}, at {position}{}\n",
        outcome.batches,
        committed.unwrap_or_default()
    )
}

/// What of a table's values could not be kept, if anything.
fn losses(table: &TableOutcome) -> Option<String> {
    let parts = [
        (table.zero_dates, "dates such as 0000-00-00 became null"),
        (table.unmapped_texts, "texts have bytes outside of their character set, now replacement characters"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, what)| format!("{} {what}", count(number)))
        .collect();
    (!parts.is_empty()).then(|| format!("{}: {}\n", table.table, parts.join("; ")))
}

/// What the source was asked.
fn usage(usage: &Usage) -> String {
    let [requests, again, log, units] =
        [usage.requests, usage.sent_again, usage.log_reads, usage.read_units].map(count);
    format!("asked of the source: {requests} requests ({again} again), {log} reads of its log, {units} read units\n")
}

/// What the outcome means for the caller.
pub fn exit_of(outcome: &RunOutcome) -> Exit {
    let is_stopped = outcome.tables.iter().any(|table| table.stopped.is_some());
    if is_stopped { Exit::TableStopped } else { Exit::Done }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table_outcome(name: &str, rows: u64, stopped: Option<&str>) -> TableOutcome {
        TableOutcome {
            table: TableId::new("shop", name),
            rows_loaded: rows,
            rows_upserted: 12,
            rows_deleted: 3,
            zero_dates: 0,
            unmapped_texts: 0,
            version: Some(7),
            stopped: stopped.map(str::to_string),
        }
    }

    #[test]
    fn a_summary_has_a_line_for_each_table_and_the_position() {
        let outcome = RunOutcome {
            batches: 2,
            tables: vec![table_outcome("log", 0, Some("DROP TABLE")), table_outcome("orders", 1_234_567, None)],
            position: Some("bin.000003:77".into()),
            source_commit_time_us: Some(1_767_225_600_000_000),
            ..RunOutcome::default()
        };
        assert_eq!(
            summary("shop", &outcome),
            "TABLE           LOADED  UPSERTED  DELETED  VERSION\n\
             shop.orders  1,234,567        12        3        7\n\
             shop.log     taken out: DROP TABLE\n\
             shop: batches 2, at bin.000003:77, source commit time 2026-01-01T00:00:00Z\n"
        );
        assert_eq!(exit_of(&outcome), Exit::TableStopped);
    }

    #[test]
    fn what_could_not_be_kept_is_told_where_there_is_any() {
        let mut orders = table_outcome("orders", 0, None);
        (orders.zero_dates, orders.unmapped_texts) = (1200, 1);
        let outcome = RunOutcome { tables: vec![table_outcome("log", 0, None), orders], ..RunOutcome::default() };
        let text = summary("shop", &outcome);
        let expected = "shop.orders: 1,200 dates such as 0000-00-00 became null; \
                        1 texts have bytes outside of their character set, now replacement characters\n";
        assert!(text.contains(expected) && !text.contains("shop.log:"), "{text}");
        let json = serde_json::to_value(&outcome).unwrap();
        assert_eq!(
            (json["tables"][1]["zero_dates"].as_u64(), json["tables"][1]["unmapped_texts"].as_u64()),
            (Some(1200), Some(1))
        );
    }

    #[test]
    fn what_a_source_was_asked_is_told_where_it_is_paid_for() {
        let usage = Usage { requests: 1200, sent_again: 3, log_reads: 900, read_units: 64 };
        let outcome = RunOutcome { usage: Some(usage), ..RunOutcome::default() };
        let expected = "asked of the source: 1,200 requests (3 again), 900 reads of its log, 64 read units\n";
        assert!(summary("shop", &outcome).starts_with(expected), "{}", summary("shop", &outcome));
    }

    #[test]
    fn a_run_without_tables_has_a_summary_too() {
        assert_eq!(exit_of(&RunOutcome::default()), Exit::Done);
        assert_eq!(summary("shop", &RunOutcome::default()), "shop: batches 0, at no position yet\n");
    }
}
