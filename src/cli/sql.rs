//! `alluvium sql`: its arguments.

use clap::ValueEnum;

use crate::query::output;

/// Answers a SQL query over the job's tables.
#[derive(Debug, clap::Args)]
pub struct SqlArgs {
    /// The query, for example "select * from orders version as of 12".
    pub query: String,
    /// How the rows are printed; --json means json.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
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
