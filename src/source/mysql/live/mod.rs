//! A live MySQL or MariaDB server as a source: its catalogue, its rows by key ranges, and its log through the
//! replication protocol.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::change::{ResumePoint, RowKey, SourceIdentity, TableId};
use crate::config::{MysqlConfig, ResumeBy};
use crate::schema::TableSchema;
use crate::source::mysql::binlog::{CHUNK_BYTES, Decoder, DecoderOptions, Flavor, Place};
use crate::source::{
    ChangeStream, DiscoveredTable, KeyRange, Source, SourceError, SourceErrorKind, Split, SplitKey, SplitLimits,
    Standing,
};

mod catalogue;
mod connection;
mod governor;
mod log;
mod requirements;
mod split;
mod stream;
mod takeover;
mod xa;

pub use requirements::{Finding, Severity};

use connection::Session;
use takeover::{Incumbent, Retold};

/// How long a logged transaction may take to become visible on a MySQL server without GTIDs, which does not
/// tell. Logging and committing are one fsync apart.
const ANONYMOUS_SETTLE: Duration = Duration::from_secs(2);

/// How long a session may rest between two splits: below every server's and every firewall's patience.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// A live server. Every call opens a connection of its own and closes it, except that splits which follow each
/// other share them; a stream keeps its own.
pub struct MysqlSource {
    config: MysqlConfig,
    keys: BTreeMap<String, Vec<String>>,
    chunk_rows: usize,
    /// Ends of the log on a MySQL server without GTIDs.
    anonymous: Mutex<Anonymous>,
    given_out: stream::GivenOut,
    /// The sessions of the last splits and when each ended.
    idle: Mutex<Vec<(Instant, Session)>>,
    prepared: xa::Prepared,
    /// The server of the job, once it has been taken up.
    incumbent: std::sync::Mutex<Option<Incumbent>>,
}

impl MysqlSource {
    /// `keys` are the keys given by hand: `database.table` to column names. Opens nothing yet.
    pub fn new(config: MysqlConfig, keys: BTreeMap<String, Vec<String>>) -> Self {
        Self {
            config,
            keys,
            chunk_rows: usize::MAX,
            anonymous: Mutex::default(),
            given_out: stream::GivenOut::default(),
            idle: Mutex::default(),
            prepared: xa::Prepared::default(),
            incumbent: std::sync::Mutex::default(),
        }
    }

    fn incumbent(&self) -> Option<Incumbent> {
        self.incumbent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_incumbent(&self, incumbent: Option<Incumbent>) {
        *self.incumbent.lock().unwrap_or_else(PoisonError::into_inner) = incumbent;
    }

    /// A stream of the log behind `from`.
    async fn open_stream(
        &self,
        from: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<stream::LiveStream, SourceError> {
        let mut session = self.open().await?;
        requirements::require(&mut session).await?;
        let by_gtid = self.by_gtid(&mut session, from).await?;
        let charsets = catalogue::database_charsets(&mut session).await?;
        let mut decoder = Decoder::new(DecoderOptions {
            filter: self.config.tables.clone(),
            schemas,
            skip,
            keys: self.keys.clone(),
            start: from.clone(),
            chunk_bytes: CHUNK_BYTES,
            chunk_rows: self.chunk_rows,
        });
        decoder.know_charsets(charsets);
        stream::open(session, self.config.server_id, from, by_gtid, decoder, self.given_out.clone()).await
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
        if self.config.snapshot.replica_lag_max.is_some() {
            findings.extend(requirements::lag_grant(&mut session).await?);
        }
        let tables = catalogue::tables(&mut session, &self.config.tables, &self.keys).await?;
        let patterns: Vec<&str> = self.config.tables.patterns().collect();
        findings.extend(requirements::check_tables(&tables, &patterns.join(", ")));
        Ok(findings)
    }

    /// What stands in the way of going on from `position`, or will soon: `behind` is the age of what was read last.
    ///
    /// # Errors
    /// Only if the server cannot be asked.
    pub async fn check_position(
        &self,
        identity: &SourceIdentity,
        position: &ResumePoint,
        behind: Option<Duration>,
    ) -> Result<Vec<Finding>, SourceError> {
        match self.take_up(identity, position).await? {
            Standing::Same => {}
            Standing::Successor { identity: found, .. } => return Ok(vec![requirements::successor(identity, &found)]),
            Standing::Other { found, why_not } => {
                return Ok(vec![requirements::other_server(identity, &found, &why_not)]);
            }
        }
        let mut session = self.open().await?;
        let by_gtid = self.by_gtid(&mut session, position).await?;
        match log::check_held(&mut session, position, by_gtid).await {
            Ok(()) => requirements::check_lag(&mut session, position, behind).await,
            Err(error) if error.kind == SourceErrorKind::Lost => Ok(vec![requirements::lost(position, &error)]),
            Err(error) => Err(error),
        }
    }

    async fn open(&self) -> Result<Session, SourceError> {
        Session::open(&self.config, self.incumbent()).await
    }

    /// A session for rows of first loads: one that rests, or a new one.
    async fn reader(&self) -> Result<Session, SourceError> {
        let rested = {
            let mut idle = self.idle.lock().await;
            idle.retain(|(since, _)| since.elapsed() < IDLE_MAX);
            idle.pop()
        };
        match rested {
            Some((_, session)) => Ok(session),
            None => Session::open_reader(&self.config, self.incumbent()).await,
        }
    }

    /// Lets a session rest until the next split.
    async fn rest(&self, session: Session) {
        self.idle.lock().await.push((Instant::now(), session));
    }

    /// Whether reading resumes from a point by its GTID set.
    async fn by_gtid(&self, session: &mut Session, from: &ResumePoint) -> Result<bool, SourceError> {
        if log::is_of_another(session, from) {
            return Ok(true);
        }
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
        Ok(Some(self.anonymous.lock().await.low(head, &self.given_out).await))
    }
}

/// The end of the log on a server that does not tell which of its transactions are still committing: it is good as a
/// split's low point once it is [`ANONYMOUS_SETTLE`] old, as long as no stream has gone past it.
#[derive(Default)]
struct Anonymous {
    noted: Option<(Instant, ResumePoint)>,
}

impl Anonymous {
    /// A settled point, `head` being the present end of the log. Waits where the last one has been passed.
    async fn low(&mut self, head: ResumePoint, given_out: &stream::GivenOut) -> ResumePoint {
        let last = self.noted.take().filter(|(_, noted)| given_out.is_reached_by(&noted.position));
        let (at, noted) = self.noted.insert(last.unwrap_or((Instant::now(), head)));
        tokio::time::sleep_until((*at + ANONYMOUS_SETTLE).into()).await;
        noted.clone()
    }
}

#[async_trait]
impl Source for MysqlSource {
    async fn identity(&self) -> Result<SourceIdentity, SourceError> {
        self.set_incumbent(None);
        let identity = log::identity(&mut self.open().await?).await?;
        self.set_incumbent(Some(Incumbent { identity: identity.clone(), era: 0 }));
        Ok(identity)
    }

    async fn take_up(&self, known: &SourceIdentity, from: &ResumePoint) -> Result<Standing, SourceError> {
        self.set_incumbent(None);
        self.idle.lock().await.clear();
        let mut session = self.open().await?;
        let era = takeover::era_of(from);
        let standing = takeover::standing(&mut session, known, from, self.config.resume).await?;
        match &standing {
            Standing::Same => self.set_incumbent(Some(Incumbent { identity: known.clone(), era })),
            Standing::Successor { identity, at } => {
                self.set_incumbent(Some(Incumbent { identity: identity.clone(), era: takeover::era_of(at) }));
            }
            Standing::Other { .. } => {}
        }
        Ok(standing)
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
        Ok(Box::new(self.open_stream(from, schemas, skip).await?))
    }

    async fn stream_again(
        &self,
        from: &ResumePoint,
        upto: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        let era = self.incumbent().map_or(0, |incumbent| incumbent.era);
        if takeover::era_of(upto) == era {
            return self.stream(from, schemas, skip).await;
        }
        let behind = ResumePoint { position: Place::takeover(era).position(), gtid_set: from.gtid_set.clone() };
        let stream = self.open_stream(&behind, schemas, skip).await?;
        Ok(Box::new(Retold::new(stream, from.clone(), upto.clone())?))
    }

    async fn check_condition(&self, schema: &TableSchema, condition: &str) -> Result<(), SourceError> {
        let mut session = self.reader().await?;
        let checked = split::check_condition(&mut session, schema, condition).await;
        self.rest(session).await;
        checked
    }

    fn condition_of(&self, schema: &TableSchema, keys: &[RowKey]) -> Result<String, SourceError> {
        split::condition_of(schema, keys)
    }

    async fn busy(&self) -> Result<Option<String>, SourceError> {
        let mut session = self.reader().await?;
        let reason = governor::busy(&mut session, &self.config.snapshot).await?;
        self.rest(session).await;
        Ok(reason)
    }

    async fn next_cut(
        &self,
        schema: &Arc<TableSchema>,
        range: &KeyRange,
        rows: usize,
    ) -> Result<Option<SplitKey>, SourceError> {
        let mut session = self.reader().await?;
        let cut = split::next_cut(&mut session, schema, range, rows).await?;
        self.rest(session).await;
        Ok(cut)
    }

    async fn read_split(
        &self,
        schema: &Arc<TableSchema>,
        range: &KeyRange,
        limits: SplitLimits,
    ) -> Result<Split, SourceError> {
        let mut session = self.reader().await?;
        self.prepared.wait_before(&mut session, &schema.table, range).await?;
        let low = self.low(&mut session).await?;
        let split = split::read(&mut session, &self.config, schema, range, limits, low, &self.given_out).await?;
        self.rest(session).await;
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
    async fn without_gtids_a_low_point_is_settled_and_never_before_what_was_given_out() {
        let (mut anonymous, given_out) = (Anonymous::default(), stream::GivenOut::default());
        let started = Instant::now();
        assert_eq!(anonymous.low(point(10), &given_out).await, point(10));
        assert!(started.elapsed() >= ANONYMOUS_SETTLE);
        // The next splits do not wait, until a stream has gone past the point.
        given_out.pass(&point(10).position);
        assert_eq!(anonymous.low(point(20), &given_out).await, point(10));
        assert!(started.elapsed() < ANONYMOUS_SETTLE * 2);
        given_out.pass(&point(15).position);
        assert_eq!(anonymous.low(point(20), &given_out).await, point(20));
        assert!(started.elapsed() >= ANONYMOUS_SETTLE * 2);
    }
}
