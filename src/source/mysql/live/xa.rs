//! XA transactions that were prepared before the job began to read the log: their rows stand in a part of it that is
//! never read, so a first load must not read its rows before they are finished.

use std::collections::HashSet;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

use super::connection::{Session, TextRow};
use crate::change::TableId;
use crate::source::{KeyRange, SourceError, SourceErrorKind};

/// How long transactions may stay prepared before a load gives up for now. A transaction manager finishes them at once.
const WAIT_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);

/// What has been done about them.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Tables before whose first load all of them have been waited for.
    waited: Mutex<HashSet<TableId>>,
    /// Why the user may not see them. It is not asked again: rights count from a user's next start on.
    refusal: OnceLock<SourceError>,
    /// Whether that has been told.
    told: AtomicBool,
}

impl Prepared {
    /// Waits, before a table's first rows are read, until all transactions that are prepared now are committed or rolled back:
    /// what is prepared later stands in the part of the log that is read for it.
    ///
    /// # Errors
    /// `Unavailable`, with what to do, if some are not in time.
    pub(super) async fn wait_before(
        &self,
        session: &mut Session,
        table: &TableId,
        range: &KeyRange,
    ) -> Result<(), SourceError> {
        if range.after.is_some() && self.waited.lock().await.contains(table) {
            return Ok(());
        }
        if self.refusal.get().is_none() {
            match prepared(session).await {
                Ok(waiting) => wait_for(session, waiting).await?,
                Err(error) if error.kind == SourceErrorKind::Unavailable => return Err(error),
                Err(error) => drop(self.refusal.set(error)),
            }
        }
        if let Some(refusal) = self.refusal.get() {
            self.tell_unseen(session, refusal).await?;
        }
        self.waited.lock().await.insert(table.clone());
        Ok(())
    }

    /// The counters begin anew with the server, and transactions outlive it: they tell only whether a warning is due.
    async fn tell_unseen(&self, session: &mut Session, refusal: &SourceError) -> Result<(), SourceError> {
        if !self.told.load(Ordering::Relaxed) && has_xa(session).await? && !self.told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                error = %refusal,
                "the user may not see prepared XA transactions: one that was prepared before the load began and is committed \
                 while it runs would be missed; on MySQL: GRANT XA_RECOVER_ADMIN ON *.* to the job's user"
            );
        }
        Ok(())
    }
}

async fn wait_for(session: &mut Session, mut waiting: HashSet<TextRow>) -> Result<(), SourceError> {
    let deadline = Instant::now() + WAIT_MAX;
    while !waiting.is_empty() {
        if Instant::now() > deadline {
            let message = format!(
                "{} XA transactions are prepared on {} and not finished: commit or roll them back (XA RECOVER lists them), \
                 then run again",
                waiting.len(),
                session.endpoint
            );
            return Err(SourceError::new(SourceErrorKind::Unavailable, message));
        }
        tokio::time::sleep(POLL).await;
        let left = prepared(session).await?;
        waiting.retain(|transaction| left.contains(transaction));
    }
    Ok(())
}

/// Whether XA is in use on the server, as far as its counters tell.
async fn has_xa(session: &mut Session) -> Result<bool, SourceError> {
    let rows = session.rows("SHOW GLOBAL STATUS WHERE variable_name IN ('Com_xa_prepare', 'Com_xa_commit', 'Com_xa_rollback', 'Com_xa_recover')").await?;
    let is_used = |row: &TextRow| row.get(1).is_some_and(|value| value.as_deref() != Some("0"));
    Ok(rows.iter().any(is_used))
}

/// Fails where the user may not see them (MySQL: XA_RECOVER_ADMIN).
async fn prepared(session: &mut Session) -> Result<HashSet<TextRow>, SourceError> {
    Ok(session.rows("XA RECOVER").await?.into_iter().collect())
}
