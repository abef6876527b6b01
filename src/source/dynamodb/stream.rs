//! Reads the streams of all tables of a job, many shards at once, and gives their changes as one sequence.
//!
//! Within a shard the order is the service's, a shard is read after its parent, and an item's changes are in one shard and its
//! descendants: so the changes of one item come in order. Shards have no order among each other. What a batch holds is told by
//! the numbers of its first and last records in each shard, so that the same batch can be read again.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::attribute::Item;
use super::catalogue::parse;
use super::client::{Client, Operation, Refusal};
use super::progress::{Progress, ShardProgress, position};
use super::record::{EventName, Record, RecordsAnswer};
use super::rows::RowsBuilder;
use super::shape::{Inference, covers, union};
use super::shard::{Gap, Shard, TableStream};
use super::unreadable;
use crate::change::{Ending, Losses, Operation as Change, ResumePoint, SourcePosition, TableId};
use crate::clock::{Clock, SystemClock};
use crate::schema::TableSchema;
use crate::source::{
    Arrival, Boundary, ChangeStream, SchemaChange, SourceError, SourceErrorKind, SourceEvent, TableStopped,
};

/// Pages that are fetched at once: each is up to a few MB as JSON.
const PAGES_AT_ONCE: usize = 8;

/// Events that are read ahead of their use, each of about one page.
const EVENTS_AHEAD_MAX: usize = 8;

/// For how long the service keeps records, and how much of that is not relied on.
pub(super) const RETENTION: Duration = Duration::from_secs(24 * 3600);
const RETENTION_SPARE: Duration = Duration::from_secs(1800);

/// Longest sleep between two rounds.
const ROUND_PAUSE_MAX: Duration = Duration::from_millis(500);

/// A clock in milliseconds since 1970-01-01 UTC that never shows a time twice, and goes on from what it is told.
#[derive(Debug, Default)]
pub(super) struct LogicalClock(AtomicU64);

impl LogicalClock {
    /// Now: after everything that was told or asked before.
    pub fn tick(&self) -> u64 {
        let now = wall_ms();
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).unwrap_or_default();
        now.max(last.saturating_add(1))
    }

    /// Goes on from this time.
    pub fn tell(&self, at_ms: u64) {
        self.0.fetch_max(at_ms, Ordering::SeqCst);
    }
}

/// Milliseconds since 1970-01-01 UTC.
pub(super) fn wall_ms() -> u64 {
    u64::try_from(SystemClock.unix_us() / 1000).unwrap_or(0)
}

/// What a source's streams, scans and questions share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub clock: LogicalClock,
    /// The last boundary that a stream has given out.
    given_out: Mutex<Option<SourcePosition>>,
    /// Schemas that scans have found to be needed, until a stream has told of them.
    grown: Mutex<BTreeMap<TableId, TableSchema>>,
}

impl Shared {
    pub fn given_out(&self) -> Option<SourcePosition> {
        self.given_out.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn give_out(&self, position: &SourcePosition) {
        *self.given_out.lock().unwrap_or_else(PoisonError::into_inner) = Some(position.clone());
    }

    /// A scan needs this schema.
    pub fn note_grown(&self, schema: TableSchema) {
        let mut grown = self.grown.lock().unwrap_or_else(PoisonError::into_inner);
        let known = grown.remove(&schema.table);
        let both = known.as_ref().and_then(|known| union(known, &schema)).or(known).unwrap_or(schema);
        grown.insert(both.table.clone(), both);
    }

    /// What scans need beyond `schema`.
    fn take_grown(&self, schema: &TableSchema) -> Option<TableSchema> {
        let wanted = self.grown.lock().unwrap_or_else(PoisonError::into_inner).remove(&schema.table)?;
        if covers(schema, &wanted) { None } else { union(schema, &wanted) }
    }
}

/// How a stream is to be read.
pub(super) struct Plan {
    pub client: Arc<Client>,
    pub shared: Arc<Shared>,
    pub from: ResumePoint,
    pub tables: Vec<TableStream>,
    /// Tables that cannot be followed from here on.
    pub stopped: Vec<(TableId, String)>,
    /// Read up to here, and no further: a batch is read again.
    pub upto: Option<ResumePoint>,
    /// Whether the deletes of expired items are left out.
    pub keep_expired: bool,
}

/// A running read.
pub(super) struct DynamoStream {
    events: mpsc::Receiver<Result<SourceEvent, SourceError>>,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl DynamoStream {
    pub fn open(plan: Plan) -> Self {
        let (sender, events) = mpsc::channel(EVENTS_AHEAD_MAX);
        let shared = Arc::clone(&plan.shared);
        shared.give_out(&plan.from.position);
        Self { events, shared, task: tokio::spawn(Reading::new(plan, sender).run()) }
    }
}

impl Drop for DynamoStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl ChangeStream for DynamoStream {
    async fn next(&mut self) -> Result<Option<SourceEvent>, SourceError> {
        // A stream goes on for ever, and one that is read again ends with the boundary that its reader stops at.
        let broken_off = || SourceError::new(SourceErrorKind::Unavailable, "reading of DynamoDB's streams broke off");
        let event = self.events.recv().await.ok_or_else(broken_off)??;
        if let SourceEvent::Boundary(boundary) = &event {
            self.shared.give_out(&boundary.resume.position);
        }
        Ok(Some(event))
    }

    fn losses(&self) -> Vec<(TableId, Losses)> {
        Vec::new()
    }
}

/// The reader has gone: nobody wants the rest.
struct Unwanted;

/// Why reading ends.
enum End {
    Unwanted,
    Failed(SourceError),
}

impl From<Unwanted> for End {
    fn from(_: Unwanted) -> Self {
        Self::Unwanted
    }
}

impl From<SourceError> for End {
    fn from(error: SourceError) -> Self {
        Self::Failed(error)
    }
}

/// What a request for a page brought.
enum Page {
    Records(Bytes),
    /// The iterator is of no use any more; ask again with another.
    Again,
    Gap(Gap),
}

/// A page that was asked for.
struct Fetched {
    table: TableId,
    shard: String,
    asked_ms: u64,
    page: Page,
}

/// The task behind a stream.
struct Reading {
    plan: Plan,
    events: mpsc::Sender<Result<SourceEvent, SourceError>>,
    tables: BTreeMap<TableId, TableStream>,
    /// All streams have been read up to this time, in milliseconds.
    read_until_ms: u64,
    /// Records read over the life of the job.
    records: u64,
    /// Of the last record that was given out.
    commit_time_us: Option<i64>,
}

impl Reading {
    fn new(mut plan: Plan, events: mpsc::Sender<Result<SourceEvent, SourceError>>) -> Self {
        let (read_until_ms, records) = plan.from.position.order;
        let tables = std::mem::take(&mut plan.tables).into_iter().map(|table| (table.table.clone(), table)).collect();
        Self { plan, events, tables, read_until_ms, records, commit_time_us: None }
    }

    async fn run(mut self) {
        if let Err(End::Failed(error)) = self.read().await {
            // Nobody is left to be told if this fails.
            let _ = self.events.send(Err(error)).await;
        }
    }

    async fn read(&mut self) -> Result<(), End> {
        for (table, reason) in std::mem::take(&mut self.plan.stopped) {
            self.stop(table, reason).await?;
        }
        if self.plan.upto.is_none() {
            self.announce_grown().await?;
        }
        loop {
            self.list().await?;
            self.read_round().await?;
            if let Some(upto) = self.plan.upto.clone() {
                if self.tables.values().all(|table| table.shards.values().all(Shard::is_done)) {
                    return Ok(self.send(boundary(upto, self.commit_time_us)).await?);
                }
            } else {
                self.stop_disabled().await?;
                self.advance();
                self.boundary().await?;
            }
            self.pause().await;
        }
    }

    async fn send(&self, event: SourceEvent) -> Result<(), Unwanted> {
        self.events.send(Ok(event)).await.map_err(|_| Unwanted)
    }

    /// Where reading stands: behind all records so far.
    fn position(&self) -> SourcePosition {
        match &self.plan.upto {
            Some(upto) => upto.position.clone(),
            None => position(self.read_until_ms, self.records),
        }
    }

    async fn boundary(&mut self) -> Result<(), Unwanted> {
        let streams = self.tables.iter().map(|(table, stream)| (table.table.clone(), stream.progress()));
        let resume = Progress(streams.collect()).at(self.position());
        let commit_time_us = self.commit_time_us.take();
        self.send(boundary(resume, commit_time_us)).await
    }

    /// Tells of the schemas that scans need.
    async fn announce_grown(&mut self) -> Result<(), End> {
        let known: Vec<_> = self.tables.values().map(|stream| Arc::clone(&stream.schema)).collect();
        for schema in known {
            if let Some(grown) = self.plan.shared.take_grown(&schema) {
                self.change_schema(grown).await?;
            }
        }
        Ok(())
    }

    async fn change_schema(&mut self, grown: TableSchema) -> Result<(), End> {
        if self.plan.upto.is_some() {
            let message =
                format!("records of {} that are read again hold values that they did not hold before", grown.table);
            return Err(SourceError::new(SourceErrorKind::Corrupt, message).into());
        }
        self.boundary().await?;
        let schema = Arc::new(grown);
        if let Some(stream) = self.tables.get_mut(&schema.table) {
            stream.schema = Arc::clone(&schema);
        }
        let change = SchemaChange {
            schema,
            position: self.position(),
            arrival: Arrival::Met,
            changes: Vec::new(),
            statement: None,
            defaults: Vec::new(),
        };
        Ok(self.send(SourceEvent::Schema(change)).await?)
    }

    async fn stop(&mut self, table: TableId, reason: String) -> Result<(), End> {
        if self.plan.upto.is_some() {
            return Err(SourceError::new(SourceErrorKind::Lost, format!("{table}: {reason}")).into());
        }
        // With the table still in it: a batch that ends here has rows of it, and may have to be read again.
        self.boundary().await?;
        self.tables.remove(&table);
        let stopped = TableStopped { table, position: self.position(), reason, ending: Ending::Fault, statement: None };
        Ok(self.send(SourceEvent::TableStopped(stopped)).await?)
    }

    async fn stop_for(&mut self, table: TableId, gap: &Gap) -> Result<(), End> {
        let what = match gap {
            Gap::Trimmed(what) => format!(
                "its stream does not hold all changes since {} any more ({what}; records are kept for 24 hours)",
                position(self.read_until_ms, self.records).text
            ),
            Gap::Gone => {
                "its stream is not there any more: the table was deleted, or its stream switched off".to_string()
            }
        };
        let reason = format!("{what}; load it again with: alluvium run --resnapshot {table}");
        self.stop(table, reason).await
    }

    async fn stop_disabled(&mut self) -> Result<(), End> {
        let over: Vec<TableId> =
            self.tables.values().filter(|stream| stream.is_over()).map(|stream| stream.table.clone()).collect();
        for table in over {
            let reason = format!(
                "its stream was switched off, and all of it has been read; switch it on and load the table again with: alluvium run \
                 --resnapshot {table}"
            );
            self.stop(table, reason).await?;
        }
        Ok(())
    }

    /// Whether records that were not read may be gone by now.
    fn is_late(&self, stream: &TableStream) -> bool {
        let known_until_ms = self.read_until_ms.max(u64::try_from(stream.since_ms).unwrap_or(0));
        let age = Duration::from_millis(wall_ms().saturating_sub(known_until_ms));
        age >= RETENTION - RETENTION_SPARE
    }

    /// Asks streams for their shards where that is due.
    async fn list(&mut self) -> Result<(), End> {
        let due: Vec<TableId> =
            self.tables.values().filter(|stream| stream.is_listing_due()).map(|s| s.table.clone()).collect();
        for table in due {
            let Some(mut stream) = self.tables.remove(&table) else { continue };
            let listed = stream.list(&self.plan.client, self.is_late(&stream)).await?;
            self.tables.insert(table.clone(), stream);
            if let Err(gap) = listed {
                self.stop_for(table, &gap).await?;
            }
        }
        Ok(())
    }

    /// Reads a page of each shard that has one.
    async fn read_round(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let ready: Vec<(TableId, String)> = self
            .tables
            .iter()
            .flat_map(|(table, stream)| stream.ready(now).into_iter().map(|shard| (table.clone(), shard)))
            .collect();
        for group in ready.chunks(PAGES_AT_ONCE) {
            let requests: Vec<_> = group
                .iter()
                .filter_map(|(table, shard)| {
                    let stream = self.tables.get(table)?;
                    let known = stream.shards.get(shard)?;
                    let (iterator, progress) = (known.iterator.clone(), known.progress.clone());
                    Some(self.fetch(table.clone(), stream.stream.clone(), shard.clone(), iterator, progress))
                })
                .collect();
            let pages: Vec<_> = futures::stream::iter(requests).buffered(PAGES_AT_ONCE).collect().await;
            for fetched in pages {
                self.take(fetched?).await?;
            }
            if self.plan.upto.is_none() {
                self.boundary().await?;
            }
        }
        Ok(())
    }

    fn fetch(
        &self,
        table: TableId,
        stream: String,
        shard: String,
        iterator: Option<String>,
        progress: ShardProgress,
    ) -> impl Future<Output = Result<Fetched, SourceError>> + use<> {
        let (client, asked_ms) = (Arc::clone(&self.plan.client), self.plan.shared.clock.tick());
        let is_late = self.tables.get(&table).is_some_and(|stream| self.is_late(stream));
        async move {
            let page = fetch_page(&client, &stream, &shard, iterator, &progress, is_late).await?;
            Ok(Fetched { table, shard, asked_ms, page })
        }
    }

    async fn take(&mut self, fetched: Fetched) -> Result<(), End> {
        let Fetched { table, shard, asked_ms, page } = fetched;
        match page {
            Page::Records(answer) => self.take_records(&table, &shard, asked_ms, &answer).await,
            Page::Gap(gap) if self.tables.contains_key(&table) => self.stop_for(table, &gap).await,
            Page::Gap(_) => Ok(()),
            Page::Again => {
                if let Some(known) = self.tables.get_mut(&table).and_then(|stream| stream.shards.get_mut(&shard)) {
                    known.iterator = None;
                }
                Ok(())
            }
        }
    }

    async fn take_records(&mut self, table: &TableId, shard: &str, asked_ms: u64, answer: &[u8]) -> Result<(), End> {
        let answer: RecordsAnswer<'_> = parse(Operation::GetRecords, answer)?;
        let Some(stream) = self.tables.get(table) else { return Ok(()) };
        let Some(known) = stream.shards.get(shard) else { return Ok(()) };
        let (progress, upto) = (known.progress.clone(), known.upto.clone());
        let is_new = |record: &&Record<'_>| {
            let number = &record.dynamodb.sequence_number;
            !progress.covers(number) && upto.as_ref().is_none_or(|upto| upto.covers(number))
        };
        let new: Vec<&Record<'_>> = answer.records.iter().filter(is_new).collect();
        let since_us = stream.since_ms.saturating_mul(1000);
        let wanted: Vec<&Record<'_>> = new
            .iter()
            .filter(|record| record.commit_time_us() >= since_us && !(self.plan.keep_expired && record.is_expiry()))
            .copied()
            .collect();
        if !self.give(table, &wanted).await? {
            return Ok(());
        }
        let last = new.last().map(|record| record.dynamodb.sequence_number.clone());
        self.records += new.len() as u64;
        let Some(stream) = self.tables.get_mut(table) else { return Ok(()) };
        let Some(known) = stream.shards.get_mut(shard) else { return Ok(()) };
        if let Some(number) = last {
            known.progress = ShardProgress::After(number);
        }
        known.note_page(answer.records.len(), answer.next_shard_iterator, asked_ms);
        let has_ended = known.progress == ShardProgress::End;
        if has_ended {
            stream.look_for_children();
        }
        Ok(())
    }

    /// Gives records out as rows, behind the schema that they need. False if the table was stopped instead.
    async fn give(&mut self, table: &TableId, records: &[&Record<'_>]) -> Result<bool, End> {
        let Some(stream) = self.tables.get(table) else { return Ok(false) };
        if records.is_empty() {
            return Ok(true);
        }
        if records.iter().any(|record| image_of(record).is_none()) {
            let reason = format!(
                "a record of its stream holds the key alone, and not the new item: switch its stream off, and on again with the view \
                 NEW_IMAGE, then load the table again with: alluvium run --resnapshot {table}"
            );
            self.stop(table.clone(), reason).await?;
            return Ok(false);
        }
        let mut inference = Inference::new(&stream.schema);
        records.iter().filter_map(|record| record.dynamodb.new_image.as_ref()).for_each(|item| inference.see(item));
        if let Some(grown) = inference.grown() {
            self.change_schema(grown).await?;
        }
        let Some(stream) = self.tables.get(table) else { return Ok(false) };
        let position = match &self.plan.upto {
            Some(upto) => upto.position.clone(),
            None => position(self.read_until_ms, self.records + records.len() as u64),
        };
        let mut rows = RowsBuilder::new(&stream.schema).map_err(unreadable)?;
        for record in records {
            rows.begin(record.commit_time_us(), &position);
            match (record.event_name, &record.dynamodb.new_image) {
                (EventName::Insert, Some(item)) => rows.push(Change::Insert, item),
                (EventName::Modify, Some(item)) => rows.push(Change::Update, item),
                _ => rows.push_delete(&record.dynamodb.keys),
            }
            self.commit_time_us = self.commit_time_us.max(Some(record.commit_time_us()));
        }
        self.send(SourceEvent::Rows(rows.finish().map_err(unreadable)?)).await?;
        Ok(true)
    }

    /// Moves the time up to which everything has been read.
    fn advance(&mut self) {
        let mut tips = self.tables.values().map(TableStream::tip_ms);
        let now = self.plan.shared.clock.tick();
        if let Some(tip) = tips.try_fold(now, |least, tip| Some(least.min(tip?))) {
            self.read_until_ms = self.read_until_ms.max(tip);
        }
    }

    async fn pause(&self) {
        let now = Instant::now();
        let due = self.tables.values().filter_map(TableStream::due_at).min();
        let until = due.unwrap_or(now + ROUND_PAUSE_MAX).min(now + ROUND_PAUSE_MAX);
        tokio::time::sleep_until(until.into()).await;
    }
}

/// The item that a record says there is now; the key of one that is gone.
fn image_of<'r, 'a>(record: &'r Record<'a>) -> Option<&'r Item<'a>> {
    match record.event_name {
        EventName::Remove => Some(&record.dynamodb.keys),
        EventName::Insert | EventName::Modify => record.dynamodb.new_image.as_ref(),
    }
}

fn boundary(resume: ResumePoint, commit_time_us: Option<i64>) -> SourceEvent {
    SourceEvent::Boundary(Boundary { resume, commit_time_us })
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct IteratorAnswer {
    shard_iterator: String,
}

/// Asks for the page behind `iterator`, or where there is none, behind what has been read.
async fn fetch_page(
    client: &Client,
    stream: &str,
    shard: &str,
    iterator: Option<String>,
    progress: &ShardProgress,
    is_late: bool,
) -> Result<Page, SourceError> {
    let iterator = match iterator {
        Some(iterator) => iterator,
        None => match new_iterator(client, stream, shard, progress, is_late).await? {
            Ok(iterator) => iterator,
            Err(gap) => return Ok(Page::Gap(gap)),
        },
    };
    match client.ask(Operation::GetRecords, &json!({ "ShardIterator": iterator })).await? {
        Ok(answer) => Ok(Page::Records(answer)),
        Err(error) => match error.refusal {
            Refusal::IteratorExpired => Ok(Page::Again),
            Refusal::Trimmed => Ok(Page::Gap(Gap::Trimmed(format!("shard {shard}: {error}")))),
            Refusal::NotFound => Ok(Page::Gap(Gap::Gone)),
            _ => Err(error.into()),
        },
    }
}

/// Of a shard whose last read record has been forgotten, all that is left is new, unless reading is late: then what came in
/// between may be gone too.
async fn new_iterator(
    client: &Client,
    stream: &str,
    shard: &str,
    progress: &ShardProgress,
    is_late: bool,
) -> Result<Result<String, Gap>, SourceError> {
    let oldest = json!({ "StreamArn": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON" });
    let body = match progress {
        ShardProgress::After(number) => json!({
            "StreamArn": stream, "ShardId": shard, "ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": number,
        }),
        ShardProgress::Start | ShardProgress::End => oldest.clone(),
    };
    let mut answer = client.ask(Operation::GetShardIterator, &body).await?;
    if answer.as_ref().is_err_and(|error| error.refusal == Refusal::Trimmed) && !is_late {
        answer = client.ask(Operation::GetShardIterator, &oldest).await?;
    }
    match answer {
        Ok(answer) => Ok(Ok(parse::<IteratorAnswer>(Operation::GetShardIterator, &answer)?.shard_iterator)),
        Err(error) => match error.refusal {
            Refusal::Trimmed => Ok(Err(Gap::Trimmed(format!("shard {shard}: {error}")))),
            Refusal::NotFound => Ok(Err(Gap::Gone)),
            _ => Err(error.into()),
        },
    }
}
