//! `alluvium check`: the job file, and what the source lacks.

use std::time::Duration;

use serde::Serialize;

use super::output::{print, print_json};
use super::text::{Align, duration, table};
use super::{Exit, Global};
use crate::clock::{Clock, SystemClock};
use crate::config::{DynamodbConfig, Job, Problems, Setting, SourceConfig};
use crate::pipeline::{self, PipelineError};
use crate::source::SourceError;
use crate::source::dynamodb;
use crate::source::mysql::live;

/// Checks the job file and the source, and prints what is wrong with them.
#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// Print every key of the job with the value that holds, defaults included, and connect to nothing.
    #[arg(long)]
    pub explain: bool,
    /// Check the job file alone, connect to nothing.
    #[arg(long)]
    pub offline: bool,
}

/// One thing that the source lacks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// A setting, a grant or a table.
    pub subject: String,
    pub found: String,
    pub wanted: String,
    /// The SQL statement that mends it, where there is one.
    pub fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The job cannot run.
    Error,
    /// The job can run, with less than it could have.
    Warning,
}

impl From<live::Finding> for Finding {
    fn from(finding: live::Finding) -> Self {
        let live::Finding { subject, found, wanted, fix, severity } = finding;
        let severity = match severity {
            live::Severity::Error => Severity::Error,
            live::Severity::Warning => Severity::Warning,
        };
        Self { severity, subject, found, wanted, fix }
    }
}

impl From<dynamodb::Finding> for Finding {
    fn from(finding: dynamodb::Finding) -> Self {
        let dynamodb::Finding { is_warning, subject, found, wanted } = finding;
        let severity = if is_warning { Severity::Warning } else { Severity::Error };
        Self { severity, subject, found, wanted, fix: None }
    }
}

pub(super) fn run(global: &Global, args: &CheckArgs) -> Exit {
    let (job, settings) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    match &job.source {
        _ if args.explain => {
            if global.json {
                print_json(&serde_json::json!({ "job": job.name, "settings": settings }));
            } else {
                print(&explain(&settings));
            }
            Exit::Done
        }
        SourceConfig::Mysql(config) if !args.offline => {
            let source = live::MysqlSource::new(config.clone(), job.keys.clone());
            super::block_on(async {
                let mut found = match source.check().await {
                    Ok(found) => found,
                    Err(error) => return super::source_failed(global, &error),
                };
                match position(&job, &source).await {
                    Ok(more) => found.extend(more),
                    Err(exit) => return exit.report(global),
                }
                say(global, &job.name, &found.into_iter().map(Finding::from).collect::<Vec<_>>())
            })
        }
        SourceConfig::Dynamodb(config) if !args.offline => super::block_on(async {
            match of_dynamodb(&job, config).await {
                Ok((found, held_for)) => say_of_dynamodb(global, &job.name, config, &found, held_for),
                Err(failure) => failure.report(global),
            }
        }),
        // The files of a log were looked for when the job file was read.
        SourceConfig::Mysql(_) | SourceConfig::BinlogFiles(_) | SourceConfig::Dynamodb(_) => {
            say(global, &job.name, &[])
        }
    }
}

/// Why the job's position could not be looked at.
enum Failure {
    Source(SourceError),
    Lake(PipelineError),
}

impl Failure {
    fn report(&self, global: &Global) -> Exit {
        match self {
            Self::Source(error) => super::source_failed(global, error),
            Self::Lake(error) => super::pipeline_failed(global, error),
        }
    }
}

/// What stands in the way of going on from where the job stands, for one that has run before.
async fn position(job: &Job, source: &live::MysqlSource) -> Result<Vec<live::Finding>, Failure> {
    let lake = super::open_lake(job).map_err(|error| Failure::Lake(error.into()))?;
    let Some(standing) = pipeline::standing(job, &lake).await.map_err(Failure::Lake)? else { return Ok(Vec::new()) };
    let now_us = SystemClock.unix_us();
    let behind =
        standing.commit_time_us.map(|us| Duration::from_micros(now_us.saturating_sub(us).max(0).unsigned_abs()));
    let found = source.check_position(&standing.identity, &standing.position, behind).await;
    found.map_err(Failure::Source)
}

/// What stands in the way of following tables of DynamoDB, and of going on from where the job stands; and for how long that can be
/// gone on from, for a job that has run before.
async fn of_dynamodb(job: &Job, config: &DynamodbConfig) -> Result<(Vec<Finding>, Option<Duration>), Failure> {
    let lake = super::open_lake(job).map_err(|error| Failure::Lake(error.into()))?;
    let standing = pipeline::standing(job, &lake).await.map_err(Failure::Lake)?;
    let source = dynamodb::DynamoSource::new(config.clone());
    let standing = standing.as_ref().map(|standing| (&standing.identity, &standing.position));
    let found = source.check(standing).await.map_err(Failure::Source)?;
    let held_for = standing.map(|(_, position)| dynamodb::time_left(position));
    Ok((found.into_iter().map(Finding::from).collect(), held_for))
}

fn say_of_dynamodb(
    global: &Global,
    job: &str,
    config: &DynamodbConfig,
    found: &[Finding],
    held_for: Option<Duration>,
) -> Exit {
    let policy = dynamodb::policy(&config.tables);
    if global.json {
        let hours = held_for.map(|left| left.as_secs_f64() / 3600.0);
        print_json(&serde_json::json!({
            "job": job, "problems": [], "findings": found, "hours_held": hours, "policy": policy,
        }));
        return exit_of(found);
    }
    let exit = say(global, job, found);
    if let Some(left) = held_for {
        let left = duration(Duration::from_secs(left.as_secs()));
        print(&format!("what comes after the job's position is forgotten in {left}, if the job is not run\n"));
    }
    print(&format!("the policy that the job needs:\n{policy:#}\n"));
    exit
}

fn say(global: &Global, job: &str, found: &[Finding]) -> Exit {
    if global.json {
        print_json(&serde_json::json!({ "job": job, "problems": [], "findings": found }));
    } else {
        print(&format!("{}: the job file is right\n{}", global.job.display(), findings(found)));
    }
    exit_of(found)
}

/// Every key with its value, a line each, and whether it is from the file or a default.
pub fn explain(settings: &[Setting]) -> String {
    let rows: Vec<Vec<String>> = settings
        .iter()
        .map(|setting| {
            let origin = if setting.is_default { "default" } else { "file" };
            vec![setting.key.clone(), origin.to_string(), setting.value.clone()]
        })
        .collect();
    table(&[("KEY", Align::Left), ("FROM", Align::Left), ("VALUE", Align::Left)], &rows)
}

/// The problems of a job file as one JSON object.
pub fn problems_json(problems: &Problems) -> serde_json::Value {
    let list: Vec<_> = problems
        .list
        .iter()
        .map(|problem| {
            serde_json::json!({
                "line": problem.at.map(|at| at.line),
                "column": problem.at.map(|at| at.column),
                "key": problem.key,
                "message": problem.message,
            })
        })
        .collect();
    serde_json::json!({ "file": problems.file, "problems": list })
}

/// What the source lacks: a line for each finding, and under it the statement that mends it. Errors first.
pub fn findings(findings: &[Finding]) -> String {
    let of = |severity| findings.iter().filter(move |finding| finding.severity == severity);
    let mut text = String::new();
    for finding in of(Severity::Error).chain(of(Severity::Warning)) {
        let word = if finding.severity == Severity::Error { "ERROR  " } else { "warning" };
        text += &format!("{word}  {}: found {}, wanted {}\n", finding.subject, finding.found, finding.wanted);
        if let Some(fix) = &finding.fix {
            text += &format!("         mend it with:  {fix};\n").replace(";;", ";");
        }
    }
    let errors = of(Severity::Error).count();
    text + &match (errors, findings.len() - errors) {
        (0, 0) => "nothing stands in the way\n".to_string(),
        (0, warnings) => format!("the job can run; warnings: {warnings}\n"),
        (errors, warnings) => format!("the job cannot run yet; errors: {errors}, warnings: {warnings}\n"),
    }
}

/// What the findings mean for the caller.
pub fn exit_of(findings: &[Finding]) -> Exit {
    if findings.iter().any(|finding| finding.severity == Severity::Error) { Exit::Usage } else { Exit::Done }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: Severity, subject: &str, fix: Option<&str>) -> Finding {
        let (found, wanted) = ("OFF".to_string(), "ON".to_string());
        Finding { severity, subject: subject.into(), found, wanted, fix: fix.map(str::to_string) }
    }

    #[test]
    fn findings_come_with_the_statement_that_mends_them_and_errors_come_first() {
        let list = [
            finding(Severity::Warning, "binlog_row_metadata", None),
            finding(Severity::Error, "log_bin", Some("SET GLOBAL x = 1;")),
        ];
        assert_eq!(
            findings(&list),
            "ERROR    log_bin: found OFF, wanted ON\n         mend it with:  SET GLOBAL x = 1;\n\
             warning  binlog_row_metadata: found OFF, wanted ON\n\
             the job cannot run yet; errors: 1, warnings: 1\n"
        );
        assert_eq!(exit_of(&list), Exit::Usage);
        assert_eq!(exit_of(&list[..1]), Exit::Done);
        assert_eq!(findings(&[]), "nothing stands in the way\n");
    }

    #[test]
    fn explain_marks_what_is_a_default() {
        let settings = [
            Setting { key: "job".into(), value: "shop".into(), is_default: false },
            Setting { key: "run.memory".into(), value: "1GiB".into(), is_default: true },
        ];
        assert_eq!(
            explain(&settings),
            "KEY         FROM     VALUE\njob         file     shop\nrun.memory  default  1GiB\n"
        );
    }
}
