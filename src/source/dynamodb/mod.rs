//! Tables of Amazon DynamoDB as a source: their streams, and their items by parallel scans.
//!
//! ```text
//! GetRecords ─▶ record.rs ─▶ shape.rs (which columns) ─▶ rows.rs (Arrow) ─▶ stream.rs (events, in order)
//! Scan       ─▶ scan.rs   ─▶ the same two             ─▶ splits of first loads
//! ```
//! A resume point holds how far each shard has been read (`progress.rs`). Its position has two numbers: the time up to which all
//! streams were known to have been read, and the count of records read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use arrow::error::ArrowError;
use async_trait::async_trait;
use tokio::sync::Mutex;

use crate::change::{Losses, ResumePoint, SourceIdentity, TableId};
use crate::clock::{Clock, SystemClock};
use crate::config::{DynamodbConfig, ReadUnits};
use crate::schema::TableSchema;
use crate::source::{
    ChangeStream, DiscoveredTable, KeyRange, Source, SourceError, SourceErrorKind, Split, SplitKey, SplitLimits, Usage,
};

mod attribute;
mod base64;
mod catalogue;
mod client;
mod number;
mod progress;
mod record;
mod requirements;
mod rows;
mod scan;
mod shape;
mod shard;
mod stream;
#[cfg(test)]
mod tests;

pub use requirements::{Finding, policy, time_left};

use catalogue::TableInfo;
use client::Client;
use progress::{Progress, StreamProgress, position};
use scan::{Budget, Outcome, Scan, Size};
use shard::TableStream;
use stream::{DynamoStream, Plan, Shared};

/// Records made so long before a stream is first read are left out: the rows of the first load, which are read later, hold
/// what they did. It has to be more than the clocks of this machine and of the service can be apart; signatures allow
/// them five minutes.
const SINCE_SPARE_MS: i64 = 15 * 60 * 1000;

/// Tables of one account and region. Nothing is opened before the first call.
pub struct DynamoSource {
    config: DynamodbConfig,
    client: Arc<Client>,
    shared: Arc<Shared>,
    /// What tables said of themselves when they were asked last, and the read units that scans of them may use.
    tables: Mutex<BTreeMap<TableId, (TableInfo, Arc<Budget>)>>,
}

impl DynamoSource {
    pub fn new(config: DynamodbConfig) -> Self {
        let client = Arc::new(Client::new(config.clone()));
        Self { config, client, shared: Arc::default(), tables: Mutex::default() }
    }

    /// Everything about the tables that stands in the way, or will soon: `standing` is whose streams the job reads, and how far
    /// it has read them.
    ///
    /// # Errors
    /// Only if the service cannot be asked.
    pub async fn check(&self, standing: Option<(&SourceIdentity, &ResumePoint)>) -> Result<Vec<Finding>, SourceError> {
        let tables = catalogue::tables(&self.client, &self.config).await?;
        let mut findings = requirements::of_tables(&tables, &self.config.tables);
        let (Some((known, at)), Some(first)) = (standing, tables.first()) else { return Ok(findings) };
        let found = owner(first);
        if found == *known {
            findings.extend(requirements::of_position(&Progress::of(at)?, at, &tables));
        } else {
            findings.push(requirements::other_account(known, &found));
        }
        Ok(findings)
    }

    /// Asks for the tables anew.
    async fn refresh(&self) -> Result<Vec<TableInfo>, SourceError> {
        let found = catalogue::tables(&self.client, &self.config).await?;
        let mut tables = self.tables.lock().await;
        for info in &found {
            let budget = || Arc::new(Budget::new(units_per_second(self.config.read_units, info.read_units())));
            let known = tables.remove(&info.table()).map(|(_, budget)| budget);
            tables.insert(info.table(), (info.clone(), known.unwrap_or_else(budget)));
        }
        Ok(found)
    }

    async fn info(&self, table: &TableId) -> Result<(TableInfo, Arc<Budget>), SourceError> {
        if let Some(known) = self.tables.lock().await.get(table) {
            return Ok(known.clone());
        }
        self.refresh().await?;
        let known = self.tables.lock().await.get(table).cloned();
        known.ok_or_else(|| SourceError::new(SourceErrorKind::Misconfigured, format!("there is no table {table}")))
    }

    async fn open(
        &self,
        from: &ResumePoint,
        upto: Option<&ResumePoint>,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        self.shared.clock.tell(from.position.order.0);
        let (mut known, end) = (Progress::of(from)?, upto.map(Progress::of).transpose()?);
        let streams: HashMap<TableId, Option<String>> = match upto {
            // What is read again was read from the streams that are named there.
            Some(_) => HashMap::new(),
            None => {
                let found = self.refresh().await?;
                found.iter().map(|info| (info.table(), info.stream().map(str::to_string))).collect()
            }
        };
        let (mut tables, mut stopped) = (Vec::new(), Vec::new());
        for (table, schema) in schemas.into_iter().filter(|(table, _)| !skip.contains(table)) {
            let known = known.0.remove(&table.table);
            let end = match end.as_ref().map(|end| end.0.get(&table.table)) {
                Some(None) => {
                    let message = format!("the end of a batch of {table}, which is to be read again, is not known");
                    return Err(SourceError::new(SourceErrorKind::Lost, message));
                }
                end => end.flatten(),
            };
            match plan(known, end, streams.get(&table), schema) {
                Ok(stream) => tables.push(stream),
                Err(reason) => {
                    stopped.push((
                        table.clone(),
                        format!("{reason}; load it again with: alluvium run --resnapshot {table}"),
                    ));
                }
            }
        }
        Ok(Box::new(DynamoStream::open(Plan {
            client: Arc::clone(&self.client),
            shared: Arc::clone(&self.shared),
            from: from.clone(),
            tables,
            stopped,
            upto: upto.cloned(),
            keep_expired: self.config.keep_expired,
        })))
    }
}

/// Account and region, from the ARN of one of their tables.
fn owner(table: &TableInfo) -> SourceIdentity {
    SourceIdentity(table.table_arn.split(":table/").next().unwrap_or_default().to_string())
}

/// How one table's stream is read: `known` is how far it has been, `end` up to where it is to be read again, `now` the stream
/// that is switched on; `None` for a table that is not there.
fn plan(
    known: Option<StreamProgress>,
    end: Option<&StreamProgress>,
    now: Option<&Option<String>>,
    schema: Arc<TableSchema>,
) -> Result<TableStream, String> {
    if let Some(end) = end {
        let mut stream = match known {
            Some(known) if known.stream == end.stream => TableStream::resumed(schema, known),
            _ => TableStream::new(schema, end.stream.clone(), end.since_ms),
        };
        stream.stop_at(end);
        return Ok(stream);
    }
    let now = now.and_then(Option::as_ref);
    match (known, now) {
        (Some(known), Some(now)) if known.stream != *now => {
            Err("the table was made anew, or its stream was switched off and on: changes in between are not known"
                .into())
        }
        // A stream that has been switched off can be read to its end.
        (Some(known), _) => Ok(TableStream::resumed(schema, known)),
        (None, Some(now)) => {
            let since_ms = SystemClock.unix_us() / 1000 - SINCE_SPARE_MS;
            Ok(TableStream::new(schema, now.clone(), since_ms))
        }
        (None, None) => Err("the table is not there, or its stream is off".into()),
    }
}

/// What scans of a table may use.
fn units_per_second(wanted: ReadUnits, provisioned: Option<u64>) -> Option<f64> {
    match wanted {
        ReadUnits::Unlimited => None,
        ReadUnits::PerSecond(units) => Some(units as f64),
        // A table that is paid by the request has no capacity to take a share of.
        ReadUnits::Percent(percent) => provisioned.map(|units| units as f64 * f64::from(percent) / 100.0),
    }
}

/// A column of a type that this source does not have: the ledger is not its own.
fn unreadable(error: ArrowError) -> SourceError {
    SourceError::new(SourceErrorKind::Corrupt, format!("a table's columns are not those of DynamoDB: {error}"))
}

#[async_trait]
impl Source for DynamoSource {
    /// Account and region.
    async fn identity(&self) -> Result<SourceIdentity, SourceError> {
        let tables = self.refresh().await?;
        let Some(first) = tables.first() else {
            let patterns: Vec<&str> = self.config.tables.patterns().collect();
            let message = format!(
                "region {} has no table that the job asks for ({}); see source.tables and source.region",
                self.client.region().await?,
                patterns.join(", ")
            );
            return Err(SourceError::new(SourceErrorKind::Misconfigured, message));
        };
        Ok(owner(first))
    }

    /// Streams are read from when their tables join.
    async fn start(&self) -> Result<ResumePoint, SourceError> {
        Ok(Progress::default().at(position(self.shared.clock.tick(), 0)))
    }

    /// A time: it has come when all shards have been read to their ends after it.
    async fn head(&self) -> Result<ResumePoint, SourceError> {
        Ok(ResumePoint { position: position(self.shared.clock.tick(), 0), gtid_set: None })
    }

    /// Whether records are gone is told for each table, by [`Self::stream`]: that of one does not stop the others.
    async fn check_held(&self, from: &ResumePoint) -> Result<(), SourceError> {
        self.shared.clock.tell(from.position.order.0);
        Progress::of(from).map(|_| ())
    }

    async fn tables(&self) -> Result<Vec<DiscoveredTable>, SourceError> {
        let found = self.refresh().await?;
        Ok(found.iter().map(|info| info.discovered(self.config.number_keys)).collect())
    }

    fn joined_schema(&self, now: TableSchema, known: &TableSchema) -> TableSchema {
        shape::joined(now, known)
    }

    async fn stream(
        &self,
        from: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        self.open(from, None, schemas, skip).await
    }

    async fn stream_again(
        &self,
        from: &ResumePoint,
        upto: &ResumePoint,
        schemas: HashMap<TableId, Arc<TableSchema>>,
        skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        self.open(from, Some(upto), schemas, skip).await
    }

    fn usage(&self) -> Option<Usage> {
        Some(self.client.usage())
    }

    async fn check_condition(&self, schema: &TableSchema, _condition: &str) -> Result<(), SourceError> {
        let message = format!(
            "items of {} cannot be loaded by a condition: load the whole table, alluvium run --resnapshot without --where",
            schema.table
        );
        Err(SourceError::new(SourceErrorKind::Misconfigured, message))
    }

    /// Scans keep within their budget of read units instead.
    async fn busy(&self) -> Result<Option<String>, SourceError> {
        Ok(None)
    }

    async fn next_cut(
        &self,
        schema: &Arc<TableSchema>,
        range: &KeyRange,
        rows: usize,
    ) -> Result<Option<SplitKey>, SourceError> {
        let (info, _) = self.info(&schema.table).await?;
        let size = Size { items: info.item_count, bytes: info.table_size_bytes };
        scan::next_cut(range, rows, size, self.config.snapshot.readers)
    }

    async fn read_split(
        &self,
        schema: &Arc<TableSchema>,
        range: &KeyRange,
        limits: SplitLimits,
    ) -> Result<Split, SourceError> {
        let (_, budget) = self.info(&schema.table).await?;
        // All that the stream has given out was made before the scan begins, and nothing that it gives out later is lost.
        let low = self.shared.given_out().unwrap_or_else(|| position(self.shared.clock.tick(), 0));
        let now_us = SystemClock.unix_us();
        let scan = Scan { client: &self.client, budget: &budget, schema, limits, position: &low, now_us };
        let scanned = match scan.read(range).await? {
            Outcome::Rows(scanned) => scanned,
            Outcome::Grown(grown) => {
                self.shared.note_grown(grown);
                let message = format!("items of {} have attributes that were not known yet", schema.table);
                return Err(SourceError::new(SourceErrorKind::Changed, message));
            }
        };
        Ok(Split {
            low: ResumePoint { position: low, gtid_set: None },
            high: self.head().await?,
            rows: vec![scanned.rows],
            last_key: scanned.last_key,
            losses: Losses::default(),
        })
    }
}
