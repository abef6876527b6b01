//! `alluvium sql`: a query over the job's tables, a prompt for many, or a server for others.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;

use super::output::{complain, print_json};
use super::{Exit, Global};
use crate::config::Job;
use crate::pipeline;
use crate::query::{self, MomentAsOf, QueryError, QueryLimits, output};

/// Answers a SQL query over the job's tables.
#[derive(Debug, clap::Args)]
pub struct SqlArgs {
    /// The query, for example "select * from orders version as of 12". Without one, queries are asked for one by one.
    pub query: Option<String>,
    /// Take the query from this file; - is the standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// How the rows are printed; --json means json.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Read all tables as they were when the source committed at this time, for example "2026-01-31 10:00:00" (UTC).
    #[arg(long, value_name = "TIME", conflicts_with = "as_of_position")]
    pub as_of: Option<String>,
    /// Read all tables as they were at this position: mysql-bin.000007:1234, or a GTID set.
    #[arg(long, value_name = "POSITION")]
    pub as_of_position: Option<String>,
    /// Answer psql and other programs over the PostgreSQL protocol, on this machine only; nobody is asked for a password.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = SERVED_AT, conflicts_with_all = ["query", "file"])]
    pub serve: Option<SocketAddr>,
}

/// One port above that of a PostgreSQL server.
const SERVED_AT: &str = "127.0.0.1:5433";

pub(super) fn run(global: &Global, args: &SqlArgs) -> Exit {
    let (job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
    if let Some(address) = args.serve.filter(|address| !address.ip().is_loopback()) {
        complain(&format!(
            "{address} can be reached from other machines, and nobody is asked for a password; use 127.0.0.1"
        ));
        return Exit::Usage;
    }
    let format = if global.json { output::Format::Json } else { args.format.into() };
    super::block_on(async {
        let lake = match super::open_lake(&job) {
            Ok(lake) => lake,
            Err(error) => return super::pipeline_failed(global, &error.into()),
        };
        let tables = match pipeline::tables(&job, &lake).await {
            Ok(tables) => tables,
            Err(error) => return super::pipeline_failed(global, &error),
        };
        let limits = QueryLimits { memory_bytes: job.run.memory_bytes, spill_dir: std::env::temp_dir() };
        let answered = answer(global, &job, query::Session::over(lake, tables, &limits), args, format).await;
        answered.unwrap_or_else(|error| failed(global, &error))
    })
}

async fn answer(
    global: &Global,
    job: &Job,
    session: Result<query::Session, QueryError>,
    args: &SqlArgs,
    format: output::Format,
) -> Result<Exit, QueryError> {
    tracing::debug!(job = job.name, "query");
    let mut session = session?.of_job(&job.name);
    if let Some(as_of) = moment(args)? {
        let point = session.read_at(&as_of).await?;
        if global.json {
            complain(&serde_json::json!({ "as_of": point }).to_string());
        } else {
            complain(&format!("as of {point}"));
        }
    }
    if let Some(address) = args.serve {
        let ready = |at: SocketAddr| complain(&format!("listening: psql -h {} -p {}", at.ip(), at.port()));
        let served = super::wire::serve(session, address, ready).await;
        served.map_err(|error| QueryError::Listen { address, source: error })?;
        return Ok(Exit::Done);
    }
    if args.query.is_none() && args.file.is_none() {
        let is_right = super::prompt::run(&session, format).await;
        return Ok(if is_right { Exit::Done } else { Exit::Usage });
    }
    let (_, rows) = session.sql(&query_of(args)?).await?;
    let mut out = std::io::BufWriter::new(std::io::stdout());
    output::write(rows, format, &mut out).await?;
    Ok(Exit::Done)
}

fn query_of(args: &SqlArgs) -> Result<String, QueryError> {
    let Some(file) = &args.file else { return Ok(args.query.clone().unwrap_or_default()) };
    let is_stdin = file.as_os_str() == "-";
    let text = if is_stdin { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(file) };
    text.map_err(|source| QueryError::QueryFile { file: file.display().to_string(), source })
}

/// The moment of the source that is asked for.
fn moment(args: &SqlArgs) -> Result<Option<MomentAsOf>, QueryError> {
    match (&args.as_of, &args.as_of_position) {
        (Some(time), _) => MomentAsOf::time(time).map(Some),
        (None, Some(position)) => MomentAsOf::position(position).map(Some),
        (None, None) => Ok(None),
    }
}

/// A query that cannot be answered is wrong usage, as far as anyone can tell.
fn failed(global: &Global, error: &QueryError) -> Exit {
    if matches!(error, QueryError::Write(cause) if cause.kind() == std::io::ErrorKind::BrokenPipe) {
        return Exit::Done;
    }
    complain(&error.to_string());
    if global.json {
        print_json(&serde_json::json!({ "error": error.to_string() }));
    }
    Exit::Usage
}

/// How rows are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Csv,
    /// A JSON object on a line for each row.
    Json,
}

impl From<Format> for output::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Table => Self::Table,
            Format::Csv => Self::Csv,
            Format::Json => Self::Json,
        }
    }
}
