//! A live MySQL or MariaDB server as a source: its catalogue, its rows by key ranges, and its log through the
//! replication protocol.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::change::{ResumePoint, SourceIdentity, TableId};
use crate::config::{MysqlConfig, ResumeBy};
use crate::schema::TableSchema;
use crate::source::mysql::binlog::{CHUNK_BYTES, Decoder, DecoderOptions, Flavor};
use crate::source::{ChangeStream, DiscoveredTable, Source, SourceError, Split, SplitKey};

mod catalogue;
mod connection;
mod log;
mod requirements;
mod split;
mod stream;

pub use requirements::{Finding, Severity};

use connection::Session;

/// How long a logged transaction may take to become visible on a MySQL server without GTIDs, which does not
/// tell. Logging and committing are one fsync apart.
const ANONYMOUS_SETTLE: Duration = Duration::from_secs(2);

/// A point that was noted longer ago than this is left: replaying all that came since would be a waste.
const ANONYMOUS_AGE_MAX: Duration = Duration::from_secs(60);

/// How long a session may rest between two splits: below every server's and every firewall's patience.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// A live server. Every call opens a connection of its own and closes it, except that splits which follow each
/// other share one; a stream keeps its own.
pub struct MysqlSource {
    config: MysqlConfig,
    keys: BTreeMap<String, Vec<String>>,
    chunk_rows: usize,
    /// Ends of the log on a MySQL server without GTIDs.
    anonymous: Mutex<Anonymous>,
    /// The session of the last split and when it ended.
    idle: Mutex<Option<(Instant, Session)>>,
}

impl MysqlSource {
    /// `keys` are the keys given by hand: `database.table` to column names. Opens nothing yet.
    pub fn new(config: MysqlConfig, keys: BTreeMap<String, Vec<String>>) -> Self {
        Self { config, keys, chunk_rows: usize::MAX, anonymous: Mutex::default(), idle: Mutex::new(None) }
    }

    /// Has a boundary come at the first end of a transaction after so many rows, or before.
    #[must_use]
    pub fn with_chunk_rows(self, chunk_rows: usize) -> Self {
        Self { chunk_rows, ..self }
    }

    /// Everything about the server, its user and its tables that stands in the way, errors first.
    ///
    /// # Errors
    /// Only if the server cannot be asked.
    pub async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let mut session = self.open().await?;
        let mut findings = requirements::check(&mut session).await?;
        let tables = catalogue::tables(&mut session, &self.config.tables, &self.keys).await?;
        let patterns: Vec<&str> = self.config.tables.patterns().collect();
        findings.extend(requirements::check_tables(&tables, &patterns.join(", ")));
        Ok(findings)
    }

    async fn open(&self) -> Result<Session, SourceError> {
        Session::open(&self.config).await
    }

    /// Whether reading resumes from a point by its GTID set.
    async fn by_gtid(&self, session: &mut Session, from: &ResumePoint) -> Result<bool, SourceError> {
        if from.gtid_set.is_none() || self.config.resume == ResumeBy::Position {
            return Ok(false);
        }
        match session.flavor {
            Flavor::MariaDb => Ok(true),
            Flavor::MySql => log::gtid_mode_is_on(session).await,
        }
    }

    /// A point before which every transaction is visible to a SELECT that starts now. `None` on MariaDB, whose
    /// snapshots bring their own.
    async fn low(&self, session: &mut Session) -> Result<Option<ResumePoint>, SourceError> {
        if session.flavor == Flavor::MariaDb {
            return Ok(None);
        }
        let head = log::head(session).await?;
        if head.gtid_set.is_some() {
            return Ok(Some(head));
        }
        Ok(Some(self.anonymous.lock().await.low(head).await))
    }
}

/// Ends of the log on a server that does not tell which of its transactions are still committing: a point is
/// good as a split's low point once it is [`ANONYMOUS_SETTLE`] old. An older point does no harm, for the log from
/// there is replayed.
#[derive(Default)]
struct Anonymous {
    settled: Option<(Instant, ResumePoint)>,
    /// Will be settled one day.
    noted: Option<(Instant, ResumePoint)>,
}

impl Anonymous {
    /// A settled point, `head` being the present end of the log. Waits only where there is none yet.
    async fn low(&mut self, head: ResumePoint) -> ResumePoint {
        let now = Instant::now();
        if self.noted.as_ref().is_some_and(|(at, _)| now - *at >= ANONYMOUS_SETTLE) {
            self.settled = self.noted.take();
        }
        let (at, noted) = self.noted.get_or_insert((now, head));
        match &self.settled {
            Some((at, settled)) if now - *at < ANONYMOUS_AGE_MAX => settled.clone(),
            _ => {
                tokio::time::sleep_until((*at + ANONYMOUS_SETTLE).into()).await;
                self.settled = Some((*at, noted.clone()));
                noted.clone()
            }
        }
    }
}

#[async_trait]
impl Source for MysqlSource {
    async fn identity(&self) -> Result<SourceIdentity, SourceError> {
        log::identity(&mut self.open().await?).await
    }

    async fn start(&self) -> Result<ResumePoint, SourceError> {
        let mut session = self.open().await?;
        requirements::require(&mut session).await?;
        log::head(&mut session).await
    }

    async fn head(&self) -> Result<ResumePoint, SourceError> {
        log::head(&mut self.open().await?).await
    }

    async fn check_held(&self, from: &ResumePoint) -> Result<(), SourceError> {
        let mut session = self.open().await?;
        let by_gtid = self.by_gtid(&mut session, from).await?;
        log::check_held(&mut session, from, by_gtid).await
    }

    async fn tables(&self) -> Result<Vec<DiscoveredTable>, SourceError> {
        catalogue::tables(&mut self.open().await?, &self.config.tables, &self.keys).await
    }

    async fn stream(
        &self,
        from: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        let mut session = self.open().await?;
        requirements::require(&mut session).await?;
        let by_gtid = self.by_gtid(&mut session, from).await?;
        let decoder = Decoder::new(DecoderOptions {
            filter: self.config.tables.clone(),
            schemas,
            skip,
            keys: self.keys.clone(),
            start: from.clone(),
            chunk_bytes: CHUNK_BYTES,
            chunk_rows: self.chunk_rows,
        });
        Ok(Box::new(stream::open(session, self.config.server_id, from, by_gtid, decoder).await?))
    }

    async fn read_split(
        &self,
        schema: &Arc<TableSchema>,
        after: Option<&SplitKey>,
        rows_max: usize,
    ) -> Result<Split, SourceError> {
        let mut session = match self.idle.lock().await.take() {
            Some((since, session)) if since.elapsed() < IDLE_MAX => session,
            _ => self.open().await?,
        };
        let low = self.low(&mut session).await?;
        let split = split::read(&mut session, schema, after, rows_max, low).await?;
        *self.idle.lock().await = Some((Instant::now(), session));
        Ok(split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::SourcePosition;

    fn point(offset: u64) -> ResumePoint {
        let position = SourcePosition { order: (1, offset), text: format!("binlog.000001:{offset}") };
        ResumePoint { position, gtid_set: None }
    }

    #[tokio::test]
    async fn without_gtids_a_low_point_is_never_younger_than_the_time_that_commits_may_take() {
        let mut anonymous = Anonymous::default();
        let started = Instant::now();
        assert_eq!(anonymous.low(point(10)).await, point(10));
        assert!(started.elapsed() >= ANONYMOUS_SETTLE);
        // The next splits do not wait: they take the settled point until a younger one has settled.
        assert_eq!(anonymous.low(point(20)).await, point(10));
        tokio::time::sleep(ANONYMOUS_SETTLE).await;
        assert!([point(10), point(20), point(30)].contains(&anonymous.low(point(30)).await));
        assert!(started.elapsed() < ANONYMOUS_SETTLE * 3);
    }
}
