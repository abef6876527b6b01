//! `alluvium sql`: a query over the job's tables.

use clap::ValueEnum;

use super::output::{complain, print_json};
use super::{Exit, Global};
use crate::config::Job;
use crate::pipeline;
use crate::query::{self, QueryError, QueryLimits, output};

/// Answers a SQL query over the job's tables.
#[derive(Debug, clap::Args)]
pub struct SqlArgs {
    /// The query, for example "select * from orders version as of 12".
    pub query: String,
    /// How the rows are printed; --json means json.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

pub(super) fn run(global: &Global, args: &SqlArgs) -> Exit {
    let (job, _) = match super::load_job(global) {
        Ok(loaded) => loaded,
        Err(exit) => return exit,
    };
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
        let answered = answer(&job, query::Session::over(lake, tables, &limits), &args.query, format).await;
        answered.map_or_else(|error| failed(global, &error), |()| Exit::Done)
    })
}

async fn answer(
    job: &Job,
    session: Result<query::Session, QueryError>,
    sql: &str,
    format: output::Format,
) -> Result<(), QueryError> {
    tracing::debug!(job = job.name, "query");
    let (_, rows) = session?.sql(sql).await?;
    let mut out = std::io::BufWriter::new(std::io::stdout());
    output::write(rows, format, &mut out).await?;
    Ok(())
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
