//! Says which version of which table a missing file belonged to, and which versions are left.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::StreamExt;

use super::QueryError;
use super::names::TableAt;
use super::tables::OpenTable;
use crate::change::TableId;
use crate::lake::{Lake, table_path};

/// The old versions that one query reads.
pub(super) struct Gone {
    lake: Lake,
    old: Vec<(TableId, u64)>,
}

impl Gone {
    pub fn new(lake: &Lake, tables: &BTreeMap<TableAt, OpenTable>) -> Self {
        let old = tables.iter().filter_map(|(at, open)| Some((at.table.clone(), open.version?)));
        Self { lake: lake.clone(), old: old.collect() }
    }

    /// The same rows; an error of a missing file says what is left.
    pub fn watch(self: Arc<Self>, rows: SendableRecordBatchStream) -> SendableRecordBatchStream {
        if self.old.is_empty() {
            return rows;
        }
        let schema = rows.schema();
        let watched = rows.then(move |batch| {
            let gone = Arc::clone(&self);
            async move {
                match batch {
                    Ok(batch) => Ok(batch),
                    Err(error) => Err(DataFusionError::External(Box::new(gone.explain(error.into()).await))),
                }
            }
        });
        Box::pin(RecordBatchStreamAdapter::new(schema, watched))
    }

    /// The error in the words of time travel, if it is one of a file that vacuum has taken.
    pub async fn explain(&self, error: QueryError) -> QueryError {
        let QueryError::FileGone { path } = &error else { return error };
        let of_table = |(table, _): &&(TableId, u64)| path.contains(table_path(table).as_ref());
        // Of several versions of one table the oldest is the one that is gone.
        let Some((table, version)) = self.old.iter().filter(of_table).min() else { return error };
        match self.lake.oldest_whole_version(table).await {
            Ok(Some(oldest)) if oldest > *version => {
                QueryError::Vacuumed { table: table.to_string(), version: *version, oldest }
            }
            _ => error,
        }
    }
}
