//! `alluvium maintain`: the upkeep of tables, without reading the source.

use std::sync::Arc;
use std::time::Duration;

use super::output::{print, print_json};
use super::text::{bytes, count};
use super::{Exit, Global};
use crate::change::TableId;
use crate::clock::SystemClock;
use crate::config::{self, Job, VacuumConfig};
use crate::lake::{FOLD_POINTS_MIN, Lake, LakeError, Points};
use crate::maintain::{Chore, ChoreReport, Upkeep};
use crate::pipeline::{self, PipelineError};

/// Compacts, clusters and vacuums the tables, and tends their logs, as far as that is due.
#[derive(Debug, clap::Args)]
pub struct MaintainArgs {
    /// Do this, whether it is due or not, and nothing else.
    #[arg(long, value_enum, value_name = "CHORE")]
    pub now: Option<NowArg>,
    /// Only this table; may be given several times.
    #[arg(long, value_name = "DATABASE.TABLE", value_parser = super::run::table_id)]
    pub table: Vec<TableId>,
    /// Change nothing, and tell what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// With `--now vacuum`: for how long a replaced version can still be read [default: maintain.vacuum.retention].
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub retention: Option<Duration>,
    /// Allow a retention under 7 days, though it takes files from under readers and writers that are at work.
    #[arg(long)]
    pub allow_short_retention: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NowArg {
    Compact,
    Cluster,
    Vacuum,
    /// A checkpoint of each log, and its old parts deleted.
    Checkpoint,
}

fn period(text: &str) -> Result<Duration, String> {
    config::parse_period(text).ok_or_else(|| "write a whole number with s, m, h or d: 12h".to_string())
}

impl NowArg {
    fn chores(self) -> &'static [Chore] {
        match self {
            Self::Compact => &[Chore::Compact],
            Self::Cluster => &[Chore::Cluster],
            Self::Vacuum => &[Chore::Vacuum],
            Self::Checkpoint => &[Chore::Checkpoint, Chore::Log],
        }
    }
}

pub(super) fn run(global: &Global, args: &MaintainArgs) -> Exit {
    let (mut job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    if let Err(problem) = set_retention(&mut job, args) {
        super::output::complain(&problem);
        return Exit::Usage;
    }
    super::block_on(async {
        let lake = match super::open_lake(&job) {
            Ok(lake) => lake,
            Err(error) => return super::pipeline_failed(global, &error.into()),
        };
        match maintain(&job, &lake, args).await {
            Ok(reports) => {
                if global.json {
                    reports.iter().for_each(print_json);
                } else {
                    print(&summary(&reports, args.dry_run));
                }
                exit_of(&reports)
            }
            Err(error) => super::pipeline_failed(global, &error),
        }
    })
}

/// The retention of the command line holds over that of the job file.
fn set_retention(job: &mut Job, args: &MaintainArgs) -> Result<(), String> {
    let Some(retention) = args.retention else { return Ok(()) };
    if args.now != Some(NowArg::Vacuum) {
        return Err("--retention is for --now vacuum".to_string());
    }
    if retention < VacuumConfig::RETENTION_MIN && !args.allow_short_retention {
        return Err("a retention under 7d takes files from under readers and writers that are at work; \
                    --allow-short-retention allows it"
            .to_string());
    }
    let every = job.maintain.vacuum.map_or(Duration::ZERO, |vacuum| vacuum.every);
    job.maintain.vacuum = Some(VacuumConfig { every, retention, allow_short_retention: args.allow_short_retention });
    Ok(())
}

async fn maintain(job: &Job, lake: &Lake, args: &MaintainArgs) -> Result<Vec<ChoreReport>, PipelineError> {
    let known = pipeline::tables(job, lake).await?;
    if let Some(missing) = args.table.iter().find(|table| !known.contains(table)) {
        let reason = "the job does not hold it; alluvium status lists its tables".to_string();
        return Err(PipelineError::NoSuchTable { table: missing.clone(), reason });
    }
    let mut upkeep = Upkeep::load(&job.name, &job.maintain, lake, Arc::new(SystemClock)).await;
    let mut reports = Vec::new();
    for table in known.iter().filter(|table| args.table.is_empty() || args.table.contains(table)) {
        match keep(lake, table, &mut upkeep, args).await {
            Ok(done) => reports.extend(done),
            // The other tables need not wait for this one.
            Err(error) => reports.push(ChoreReport::failed(table, Chore::Compact, &error)),
        }
    }
    upkeep.save().await;
    fold_points(job, lake, args).await?;
    Ok(reports)
}

/// The job's points of old batches go where its queries find them faster.
async fn fold_points(job: &Job, lake: &Lake, args: &MaintainArgs) -> Result<(), LakeError> {
    let min = match args.now {
        _ if args.dry_run || !args.table.is_empty() => return Ok(()),
        None => FOLD_POINTS_MIN,
        Some(NowArg::Compact) => 1,
        Some(_) => return Ok(()),
    };
    Points::new(lake, &job.name).fold(min).await.map(|_| ())
}

async fn keep(
    lake: &Lake,
    table: &TableId,
    upkeep: &mut Upkeep,
    args: &MaintainArgs,
) -> Result<Vec<ChoreReport>, LakeError> {
    let Some(mut open) = lake.open_table(table).await? else { return Ok(Vec::new()) };
    let Some(now) = args.now else { return Ok(upkeep.all_due(&mut open, args.dry_run).await) };
    let mut reports = Vec::new();
    for chore in now.chores() {
        reports.push(upkeep.now(&mut open, *chore, args.dry_run).await);
    }
    Ok(reports)
}

/// A line for each table and chore, and under it the files that a dry run would delete.
pub fn summary(reports: &[ChoreReport], dry_run: bool) -> String {
    if reports.is_empty() {
        return "nothing is due\n".to_string();
    }
    let files = |report: &ChoreReport| -> String {
        let shown = report.paths.iter().filter(|_| dry_run);
        shown.map(|path| format!("  {path}\n")).collect()
    };
    reports.iter().map(|report| line(report, dry_run) + &files(report)).collect()
}

/// What was done to a table, in one line.
pub fn line(report: &ChoreReport, dry_run: bool) -> String {
    let (table, chore) = (&report.table, report.chore.name());
    if let Some(error) = &report.error {
        return format!("{table}: {chore} failed: {error}\n");
    }
    let before = format!("{} files ({})", count(report.files_before), bytes(report.bytes_before));
    let would = if dry_run { "would have been " } else { "" };
    match report.chore {
        Chore::Checkpoint => format!("{table}: {chore}: {would}written\n"),
        _ if report.files_before == 0 => format!("{table}: {chore}: nothing to do\n"),
        Chore::Log | Chore::Vacuum => format!("{table}: {chore}: {before} {would}deleted\n"),
        Chore::Compact | Chore::Cluster if dry_run => format!("{table}: {chore}: {before} would be rewritten\n"),
        Chore::Compact | Chore::Cluster => {
            let after = format!("{} files ({})", count(report.files_after), bytes(report.bytes_after));
            format!("{table}: {chore}: {before} rewritten as {after}\n")
        }
    }
}

/// What the reports mean for the caller.
fn exit_of(reports: &[ChoreReport]) -> Exit {
    if reports.iter().any(|report| report.error.is_some()) { Exit::Retry } else { Exit::Done }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(chore: Chore, files_before: u64, files_after: u64) -> ChoreReport {
        let table = TableId::new("shop", "orders");
        ChoreReport { files_before, bytes_before: files_before << 20, files_after, ..ChoreReport::new(&table, chore) }
    }

    #[test]
    fn every_chore_has_a_line_that_says_what_it_did() {
        let vacuumed = ChoreReport { paths: vec!["part-0.parquet".into()], ..report(Chore::Vacuum, 12, 0) };
        let failed = ChoreReport { error: Some("no store".into()), ..report(Chore::Log, 0, 0) };
        let reports = [report(Chore::Compact, 9, 1), report(Chore::Checkpoint, 0, 1), vacuumed, failed.clone()];
        assert_eq!(
            summary(&reports, false),
            "shop.orders: compact: 9 files (9.0 MiB) rewritten as 1 files (0 B)\n\
             shop.orders: checkpoint: written\nshop.orders: vacuum: 12 files (12.0 MiB) deleted\n\
             shop.orders: log failed: no store\n"
        );
        assert_eq!(
            summary(&reports[..3], true),
            "shop.orders: compact: 9 files (9.0 MiB) would be rewritten\n\
             shop.orders: checkpoint: would have been written\n\
             shop.orders: vacuum: 12 files (12.0 MiB) would have been deleted\n  part-0.parquet\n"
        );
        assert_eq!(summary(&[], false), "nothing is due\n");
        assert_eq!((exit_of(&reports[..3]), exit_of(&[failed])), (Exit::Done, Exit::Retry));
    }
}
