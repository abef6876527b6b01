//! The command line: one file for each verb, and what they share.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config::{self, Job, Setting, SourceConfig};
use crate::lake::{Lake, LakeError};
use crate::pipeline::PipelineError;
use crate::source::dynamodb::DynamoSource;
use crate::source::mysql::files::BinlogFiles;
use crate::source::mysql::live::MysqlSource;
use crate::source::{Source, SourceError};
use crate::telemetry;

pub mod check;
pub mod diff;
mod exit;
pub mod history;
pub mod init;
pub mod maintain;
pub mod output;
mod past;
pub mod progress;
mod prompt;
pub mod restore;
pub mod run;
mod schema;
pub mod sql;
pub mod status;
pub mod text;
mod wire;

pub use exit::Exit;

/// Share of the job's memory that work on one table may take; the rest is the batch's and the decoder's.
const LAKE_MEMORY_DIVISOR: usize = 4;

/// Keeps Delta tables equal to the tables of MySQL and MariaDB, exactly once.
#[derive(Debug, Parser)]
#[command(name = "alluvium", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 an error, try again; 2 wrong usage, job file or source settings; \
    3 a table was taken out; 4 the source lost the position or is another one.";

/// What every verb takes.
#[derive(Debug, Clone, clap::Args)]
pub struct Global {
    /// The job file.
    #[arg(short, long, global = true, value_name = "FILE", default_value = "alluvium.yaml", env = "ALLUVIUM_JOB")]
    pub job: PathBuf,
    /// Print the result as JSON lines on stdout, and the log as JSON lines on stderr.
    #[arg(long, global = true)]
    pub json: bool,
    /// How much is logged on stderr [default: info, or warn beside progress lines]. ALLUVIUM_LOG sets filters.
    #[arg(long, global = true, value_enum, value_name = "LEVEL", hide_default_value = true)]
    pub log_level: Option<LogLevel>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Off,
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Init(init::InitArgs),
    Check(check::CheckArgs),
    Run(run::RunArgs),
    Status(status::StatusArgs),
    Sql(sql::SqlArgs),
    History(history::HistoryArgs),
    Diff(diff::DiffArgs),
    Restore(restore::RestoreArgs),
    Maintain(maintain::MaintainArgs),
    /// Print the JSON Schema of the job file.
    #[command(hide = true)]
    Schema,
}

/// The whole program: reads the arguments, does the verb, says how it went.
pub fn main() -> ExitCode {
    telemetry::explain_panics();
    let cli = Cli::parse();
    // The panic has been explained by then; the caller gets a code that has a meaning.
    std::panic::catch_unwind(|| dispatch(&cli)).unwrap_or(Exit::Retry).into()
}

fn dispatch(cli: &Cli) -> Exit {
    // A run starts the log itself, above its progress lines.
    if !matches!(cli.verb, Verb::Run(_)) {
        start_log(&cli.global, &progress::Screen::new(false));
    }
    match &cli.verb {
        Verb::Init(args) => init::run(&cli.global, args),
        Verb::Check(args) => check::run(&cli.global, args),
        Verb::Run(args) => run::run(&cli.global, args),
        Verb::Status(_) => status::run(&cli.global),
        Verb::Sql(args) => sql::run(&cli.global, args),
        Verb::History(args) => history::run(&cli.global, args),
        Verb::Diff(args) => diff::run(&cli.global, args),
        Verb::Restore(args) => restore::run(&cli.global, args),
        Verb::Maintain(args) => maintain::run(&cli.global, args),
        Verb::Schema => schema::run(),
    }
}

/// Starts the log above the progress lines of `screen`. Progress lines show what the level info would say.
pub fn start_log(global: &Global, screen: &progress::Screen) {
    let default = if screen.has_lines() { LogLevel::Warn } else { LogLevel::Info };
    let level = global.log_level.unwrap_or(default).to_possible_value();
    let name = level.as_ref().map_or("info", |level| level.get_name());
    let screen = screen.clone();
    telemetry::start_log(name, global.json, move || screen.clone());
}

/// Runs the asynchronous part of a verb.
pub fn block_on(verb: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(verb),
        Err(error) => {
            output::complain(&format!("no threads could be started: {error}"));
            Exit::Retry
        }
    }
}

/// Says why the source could not be asked: on stderr for people, on stdout with `--json`.
pub fn source_failed(global: &Global, error: &SourceError) -> Exit {
    output::complain(&error.to_string());
    if global.json {
        output::print_json(&serde_json::json!({ "error": error.to_string() }));
    }
    error.kind.into()
}

/// Says what ended a run, with its causes.
fn pipeline_failed(global: &Global, error: &PipelineError) -> Exit {
    output::complain(&error.chain());
    if global.json {
        output::print_json(&serde_json::json!({ "error": error.chain() }));
    }
    Exit::from_code(error.exit_code())
}

/// The source that the job names. Opens nothing yet.
fn source_of(job: &Job) -> Arc<dyn Source> {
    match &job.source {
        SourceConfig::Mysql(config) => {
            Arc::new(MysqlSource::new(config.clone(), job.keys.clone()).with_chunk_rows(job.run.batch_rows))
        }
        SourceConfig::BinlogFiles(config) => {
            Arc::new(BinlogFiles::new(config.clone(), job.keys.clone()).with_chunk_rows(job.run.batch_rows))
        }
        SourceConfig::Dynamodb(config) => Arc::new(DynamoSource::new(config.clone())),
    }
}

/// The lake that the job names, with its share of the job's memory.
fn open_lake(job: &Job) -> Result<Lake, LakeError> {
    Ok(Lake::open(&job.lake)?.with_memory(job.run.memory_bytes / LAKE_MEMORY_DIVISOR).with_rules(job.tables.clone()))
}

/// Loads the job file, or says all that is wrong with it: on stderr for people, on stdout with `--json`.
///
/// # Errors
/// The exit that a wrong job file means.
pub fn load_job(global: &Global) -> Result<(Job, Vec<Setting>), Exit> {
    config::load_explained(&global.job).map_err(|problems| {
        output::complain(&problems.to_string());
        if global.json {
            output::print_json(&check::problems_json(&problems));
        }
        Exit::Usage
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_fits_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn global_arguments_stand_before_or_after_the_verb() {
        for arguments in [["alluvium", "-j", "x", "--json", "check"], ["alluvium", "check", "--json", "--job", "x"]] {
            let cli = Cli::try_parse_from(arguments).unwrap();
            assert!(cli.global.json && cli.global.job.as_os_str() == "x");
        }
        assert_eq!(Cli::try_parse_from(["alluvium", "chek"]).unwrap_err().exit_code(), 2);
    }
}
