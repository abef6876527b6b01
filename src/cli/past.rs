//! What the verbs that look into the past share: a table by its name, and one of its versions.

use super::output::{complain, print_json};
use super::{Exit, Global};
use crate::change::TableId;
use crate::config::Job;
use crate::lake::Lake;
use crate::pipeline::{self, PipelineError};
use crate::query::{QueryError, QueryLimits, Session};

/// Why a look into the past failed.
pub(super) enum Failure {
    Query(QueryError),
    Pipeline(PipelineError),
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        Self::Query(error)
    }
}

impl<E: Into<PipelineError>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Pipeline(error.into())
    }
}

impl Failure {
    /// Says it.
    pub fn exit(self, global: &Global) -> Exit {
        let error = match self {
            Self::Pipeline(error) => return super::pipeline_failed(global, &error),
            Self::Query(error) => error.to_string(),
        };
        complain(&error);
        if global.json {
            print_json(&serde_json::json!({ "error": error }));
        }
        Exit::Usage
    }
}

/// A job's lake, open for a look at one table.
pub(super) struct Past {
    pub job: Job,
    pub lake: Lake,
    pub session: Session,
    pub table: TableId,
}

impl Past {
    /// Opens the lake of the job; `name` is `orders` or `shop.orders`.
    pub async fn open(job: Job, name: &str) -> Result<Self, Failure> {
        let lake = super::open_lake(&job)?;
        let tables = pipeline::tables(&job, &lake).await?;
        let limits = QueryLimits { memory_bytes: job.run.memory_bytes, spill_dir: std::env::temp_dir() };
        let session = Session::over(lake.clone(), tables, &limits)?.of_job(&job.name);
        let table = session.table(name)?;
        Ok(Self { job, lake, session, table })
    }
}
