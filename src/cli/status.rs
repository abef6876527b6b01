//! `alluvium status`: where the job and each of its tables stand.

use std::time::Duration;

use super::output::{print, print_json};
use super::text::{Align, bytes, count, duration, table, time};
use super::{Exit, Global};
use crate::clock::SystemClock;
use crate::maintain::LastDone;
use crate::pipeline::{self, JobStatus, TableProgress, TableStatus};

/// Shows where the job and its tables stand; asks the lake alone, not the source.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {}

pub(super) fn run(global: &Global) -> Exit {
    let (job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    super::block_on(async {
        let status = match super::open_lake(&job) {
            Ok(lake) => pipeline::status(&job, &lake, &SystemClock).await,
            Err(error) => Err(error.into()),
        };
        match status {
            Ok(status) if global.json => {
                print_json(&status);
                exit_of(&status)
            }
            Ok(status) => {
                print(&render(&status));
                exit_of(&status)
            }
            Err(error) => super::pipeline_failed(global, &error),
        }
    })
}

/// The status for people.
pub fn render(status: &JobStatus) -> String {
    let none = || "none yet".to_string();
    let line = |name: &str, value: String| format!("{name:<12}{value}\n");
    let mut text = line("job", status.job.clone());
    text += &line("lake", status.lake.clone());
    text += &line("source", status.identity.as_ref().map_or_else(none, |identity| identity.to_string()));
    text += &line("position", status.position.clone().unwrap_or_else(none));
    text += &line("committed", status.commit_time_us.map_or_else(none, time));
    text += &line("lag", status.lag.map_or("unknown".to_string(), duration));
    if let Some(left) = status.held_for {
        text +=
            &line("forgotten", format!("in {}, if the job is not run", duration(Duration::from_secs(left.as_secs()))));
    }
    if status.identity.is_none() {
        return text + "\nThe job has not run yet: start it with alluvium run\n";
    }
    let now_ms = status.now_us.div_euclid(1_000);
    let rows: Vec<_> = status.tables.iter().map(|table| row(table, now_ms)).collect();
    let heading = [
        ("TABLE", Align::Left),
        ("VERSION", Align::Right),
        ("ROWS", Align::Right),
        ("FILES", Align::Right),
        ("SIZE", Align::Right),
        ("POSITION", Align::Left),
        ("LAG", Align::Right),
        ("UPKEEP", Align::Left),
        ("STATE", Align::Left),
    ];
    text + "\n" + &table(&heading, &rows)
}

fn row(status: &TableStatus, now_ms: i64) -> Vec<String> {
    let state = match &status.progress {
        TableProgress::Loading { rows } => format!("loading, {} rows so far", count(*rows)),
        TableProgress::Following => "following".to_string(),
        TableProgress::Stopped { reason, .. } => format!("taken out: {reason}"),
        TableProgress::Gone { reason, .. } => reason.clone(),
        TableProgress::Unreadable { reason } => format!("cannot be read: {reason}"),
    };
    let version = status.version.map_or("-".to_string(), |version| version.to_string());
    let lag = status.lag.map_or("-".to_string(), duration);
    let (rows, files, size) = (count(status.rows), count(status.files), bytes(status.bytes));
    let upkeep = upkeep(&status.upkeep, now_ms);
    vec![status.table.to_string(), version, rows, files, size, status.position.clone(), lag, upkeep, state]
}

/// The chore that was done last, and how long ago.
fn upkeep(done: &LastDone, now_ms: i64) -> String {
    let Some((chore, at_ms)) = done.iter().max_by_key(|(_, at_ms)| **at_ms) else { return "-".to_string() };
    let ago = Duration::from_millis(now_ms.saturating_sub(*at_ms).max(0).unsigned_abs());
    format!("{chore} {} ago", duration(Duration::from_secs(ago.as_secs())))
}

/// What the status means for the caller.
pub fn exit_of(status: &JobStatus) -> Exit {
    let is_out =
        |progress: &TableProgress| matches!(progress, TableProgress::Stopped { .. } | TableProgress::Unreadable { .. });
    let is_stopped = status.tables.iter().any(|table| is_out(&table.progress));
    if is_stopped { Exit::TableStopped } else { Exit::Done }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{SourceIdentity, TableId};

    fn status(tables: Vec<TableProgress>) -> JobStatus {
        let table = |progress| TableStatus {
            table: TableId::new("shop", "orders"),
            version: Some(12),
            rows: 1_000_000,
            files: 3,
            bytes: 1 << 30,
            position: "bin.000003:77".into(),
            commit_time_us: None,
            lag: Some(Duration::from_secs(75)),
            progress,
            upkeep: [("compact".to_string(), 1_767_225_540_000), ("vacuum".to_string(), 1_767_225_000_000)].into(),
        };
        JobStatus {
            job: "shop".into(),
            lake: "file:///lake/".into(),
            identity: Some(SourceIdentity("mysql:1".into())),
            sequence: 4,
            position: Some("bin.000003:77".into()),
            commit_time_us: Some(1_767_225_600_000_000),
            now_us: 1_767_225_600_000_000,
            lag: Some(Duration::from_secs(75)),
            held_for: None,
            tables: tables.into_iter().map(table).collect(),
        }
    }

    #[test]
    fn a_status_shows_where_everything_stands() {
        let stopped = TableProgress::Stopped { position: "bin.000002:4".into(), reason: "DROP COLUMN".into() };
        let status = status(vec![TableProgress::Following, stopped, TableProgress::Loading { rows: 5000 }]);
        assert_eq!(
            render(&status),
            "job         shop\nlake        file:///lake/\nsource      mysql:1\nposition    bin.000003:77\n\
             committed   2026-01-01T00:00:00Z\nlag         1m 15s\n\n\
             TABLE        VERSION       ROWS  FILES     SIZE  POSITION          LAG  UPKEEP             STATE\n\
             shop.orders       12  1,000,000      3  1.0 GiB  bin.000003:77  1m 15s  compact 1m 0s ago  following\n\
             shop.orders       12  1,000,000      3  1.0 GiB  bin.000003:77  1m 15s  compact 1m 0s ago  taken out: DROP COLUMN\n\
             shop.orders       12  1,000,000      3  1.0 GiB  bin.000003:77  1m 15s  compact 1m 0s ago  loading, 5,000 rows so far\n"
        );
        assert_eq!(exit_of(&status), Exit::TableStopped);
    }

    #[test]
    fn a_source_that_forgets_by_the_clock_has_its_time_shown() {
        let status = JobStatus { held_for: Some(Duration::from_secs(5 * 3600)), ..status(vec![]) };
        assert!(render(&status).contains("forgotten   in 5h 0m, if the job is not run\n"), "{}", render(&status));
    }

    #[test]
    fn a_job_that_never_ran_says_how_to_start_it() {
        let mut status = status(vec![]);
        (status.identity, status.position, status.commit_time_us, status.lag) = (None, None, None, None);
        let text = render(&status);
        assert!(text.contains("lag         unknown") && text.ends_with("start it with alluvium run\n"), "{text}");
        assert_eq!(exit_of(&status), Exit::Done);
    }
}
