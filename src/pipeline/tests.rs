//! The run loop on a log that is written out event by event, and a lake in memory.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::{Int32Array, RecordBatch};
use arrow::datatypes::DataType;
use async_trait::async_trait;
use futures::TryStreamExt;
use futures::future::BoxFuture;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Environment, PipelineError, RunOptions, RunOutcome, Silent, run};
use crate::batch::KeyedChanges;
use crate::change::{
    Boundary, ChangeBatch, Gap, Gaps, Losses, Moved, Operation, ResumePoint, RowKey, SourceIdentity, SourcePosition,
    TableId, TransactionSpan,
};
use crate::clock::Clock;
use crate::config::{
    BinlogFilesConfig, CompactConfig, Job, LakeConfig, MaintainConfig, MysqlConfig, PartitionBy, ResumeBy, RunConfig,
    Secret, SnapshotConfig, SourceConfig, TableFilter, TableRules, TableSettings, TlsMode,
};
use crate::lake::{CommitTag, JobState, Lake, Ledger, LedgerEntry, LedgerError, LoadState, SplitRecord, Work};
use crate::maintain::{Chore, ChoreReport};
use crate::schema::{Column, TableSchema};
use crate::source::{
    Arrival, ChangeStream, DiscoveredTable, Ending, KeyRange, SchemaChange, Source, SourceError, SourceErrorKind,
    SourceEvent, Split, SplitKey, SplitLimits, TableStopped,
};

mod faults;

/// What a stream does next.
enum Step {
    Event(SourceEvent),
    Fail(SourceErrorKind),
    /// Something happens elsewhere meanwhile.
    Act(Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>),
}

/// A source that does what it was told: each stream and each split that is asked for is the next in its list.
#[derive(Default)]
struct Scripted {
    head: u64,
    tables: Vec<TableSchema>,
    streams: Mutex<VecDeque<Vec<Step>>>,
    splits: Mutex<VecDeque<Split>>,
    /// Where the splits of a table end, nothing for the last.
    cuts: Mutex<VecDeque<&'static str>>,
    losses: Vec<(TableId, Losses)>,
    /// How often the source is too busy for a load, before it is not.
    busy: AtomicU64,
    /// Reading rows fails.
    is_unloadable: bool,
    /// The keys by which rows were asked for.
    asked: Arc<Mutex<Vec<Vec<RowKey>>>>,
}

struct ScriptedStream {
    steps: VecDeque<Step>,
    losses: Vec<(TableId, Losses)>,
}

#[async_trait]
impl Source for Scripted {
    async fn busy(&self) -> Result<Option<String>, SourceError> {
        let left = self.busy.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        Ok(left.ok().map(|_| "scripted".to_string()))
    }

    async fn identity(&self) -> Result<SourceIdentity, SourceError> {
        Ok(SourceIdentity("scripted".into()))
    }

    async fn start(&self) -> Result<ResumePoint, SourceError> {
        Ok(at(4))
    }

    async fn head(&self) -> Result<ResumePoint, SourceError> {
        Ok(at(self.head))
    }

    async fn check_held(&self, _from: &ResumePoint) -> Result<(), SourceError> {
        Ok(())
    }

    async fn tables(&self) -> Result<Vec<DiscoveredTable>, SourceError> {
        let found = self.tables.iter().map(|schema| DiscoveredTable {
            table: schema.table.clone(),
            schema: Ok(schema.clone()),
            key_advised: Vec::new(),
            rows_estimated: None,
        });
        Ok(found.collect())
    }

    async fn stream(
        &self,
        _from: &ResumePoint,
        _schemas: HashMap<TableId, Arc<TableSchema>>,
        _skip: HashSet<TableId>,
    ) -> Result<Box<dyn ChangeStream>, SourceError> {
        let steps = self.streams.lock().unwrap().pop_front().unwrap_or_default().into();
        Ok(Box::new(ScriptedStream { steps, losses: self.losses.clone() }))
    }

    async fn check_condition(&self, _schema: &TableSchema, condition: &str) -> Result<(), SourceError> {
        match condition.contains("nonsense") {
            true => Err(SourceError::new(SourceErrorKind::Misconfigured, "scripted")),
            false => Ok(()),
        }
    }

    fn condition_of(&self, _schema: &TableSchema, keys: &[RowKey]) -> Result<String, SourceError> {
        self.asked.lock().unwrap().push(keys.to_vec());
        Ok("scripted".to_string())
    }

    async fn next_cut(
        &self,
        _schema: &Arc<TableSchema>,
        _range: &KeyRange,
        _rows: usize,
    ) -> Result<Option<SplitKey>, SourceError> {
        let next = self.cuts.lock().unwrap().pop_front().filter(|cut| !cut.is_empty());
        Ok(next.map(|cut| SplitKey(cut.to_string())))
    }

    async fn read_split(
        &self,
        schema: &Arc<TableSchema>,
        _range: &KeyRange,
        _limits: SplitLimits,
    ) -> Result<Split, SourceError> {
        if self.is_unloadable {
            return Err(SourceError::new(SourceErrorKind::Unloadable, "scripted"));
        }
        let mut split = self.splits.lock().unwrap().pop_front().expect("a split that the script has");
        split.rows.iter_mut().for_each(|rows| rows.schema = schema.clone());
        Ok(split)
    }
}

#[async_trait]
impl ChangeStream for ScriptedStream {
    async fn next(&mut self) -> Result<Option<SourceEvent>, SourceError> {
        loop {
            match self.steps.pop_front() {
                None => return Ok(None),
                Some(Step::Event(event)) => return Ok(Some(event)),
                Some(Step::Fail(kind)) => return Err(SourceError::new(kind, "scripted")),
                Some(Step::Act(act)) => act().await,
            }
        }
    }

    fn losses(&self) -> Vec<(TableId, Losses)> {
        self.losses.clone()
    }
}

fn at(offset: u64) -> ResumePoint {
    let position = SourcePosition { order: (1, offset), text: format!("binlog.000001:{offset}") };
    ResumePoint { position, gtid_set: None }
}

fn id(table: &str) -> TableId {
    TableId::new("shop", table)
}

/// Integer columns, the first of which is the key.
fn schema_of(table: &str, columns: &[&str]) -> TableSchema {
    let column = |name: &&str| Column { nullable: false, ..Column::new(*name, DataType::Int32, "int") };
    TableSchema::new(id(table), columns.iter().map(column).collect(), vec![0])
}

fn schema(table: &str) -> TableSchema {
    schema_of(table, &["id"])
}

fn batch(schema: TableSchema, offset: u64, ids: &[i32], operation: Operation) -> ChangeBatch {
    let schema = Arc::new(schema);
    let column = Arc::new(Int32Array::from(ids.to_vec()));
    let columns = schema.columns.iter().map(|_| Arc::clone(&column) as _).collect();
    let span = TransactionSpan { first_row: 0, commit_time_us: 0, position: at(offset).position };
    ChangeBatch {
        rows: RecordBatch::try_new(schema.arrow_schema(), columns).unwrap(),
        operations: vec![operation; ids.len()],
        gaps: None,
        transactions: vec![span],
        schema,
    }
}

fn rows(table: &str, offset: u64, ids: &[i32]) -> Step {
    Step::Event(SourceEvent::Rows(batch(schema(table), offset, ids, Operation::Insert)))
}

fn boundary(offset: u64) -> Step {
    Step::Event(SourceEvent::Boundary(Boundary { resume: at(offset), commit_time_us: Some(0) }))
}

fn discard(keep: usize) -> Step {
    Step::Event(SourceEvent::Discard { keep })
}

fn announce(schema: TableSchema, offset: u64) -> Step {
    announce_with(schema, offset, &[])
}

fn announce_with(schema: TableSchema, offset: u64, defaults: &[(&str, &str)]) -> Step {
    let defaults = defaults.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let (schema, position) = (Arc::new(schema), at(offset).position);
    Step::Event(SourceEvent::Schema(SchemaChange {
        schema,
        position,
        arrival: Arrival::Met,
        changes: Vec::new(),
        statement: Some("scripted".into()),
        defaults,
    }))
}

fn split(low: u64, high: u64, ids: &[i32]) -> Split {
    let rows = vec![batch(schema("a"), low, ids, Operation::Read)];
    Split { low: at(low), high: at(high), rows, last_key: None, losses: Losses::default() }
}

/// The lake and the job file of a test; the source differs from run to run.
struct World {
    lake: Lake,
    tables: &'static str,
    loads: bool,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
    maintain: MaintainConfig,
    batch_rows: usize,
}

impl World {
    fn new() -> Self {
        let lake = Lake::with_store(url::Url::parse("memory:///lake/").unwrap(), Arc::new(InMemory::new()));
        let clock = Arc::new(crate::clock::SystemClock);
        let (stop, maintain) = (CancellationToken::new(), MaintainConfig::default());
        Self { lake, tables: "shop.*", loads: false, clock, stop, maintain, batch_rows: 1000 }
    }

    /// The job loads its tables; `a` is the source's only one.
    fn loading() -> Self {
        Self { loads: true, ..Self::new() }
    }

    fn job(&self) -> Job {
        let tables = TableFilter::new([self.tables]).unwrap();
        let mysql = MysqlConfig {
            host: "db".into(),
            port: 3306,
            user: "cdc".into(),
            password: Secret::new("secret"),
            tls: TlsMode::Disabled,
            ca: None,
            tables: tables.clone(),
            snapshot: SnapshotConfig { split_rows: Some(100), ..SnapshotConfig::DEFAULT },
            resume: ResumeBy::Auto,
            server_id: 7,
        };
        let files = BinlogFilesConfig { files: Vec::new(), tables };
        Job {
            name: "shop".into(),
            source: if self.loads { SourceConfig::Mysql(mysql) } else { SourceConfig::BinlogFiles(files) },
            lake: LakeConfig { url: self.lake.root().clone(), options: BTreeMap::new() },
            run: RunConfig {
                memory_bytes: 64 << 20,
                batch_rows: self.batch_rows,
                batch_bytes: 64 << 20,
                batch_age: Duration::from_secs(60),
            },
            keys: BTreeMap::new(),
            tables: TableRules::default(),
            hash_key: None,
            maintain: self.maintain.clone(),
        }
    }

    async fn run_source(&self, source: Scripted, follow: bool) -> Result<RunOutcome, PipelineError> {
        self.run_with(source, RunOptions { follow, ..RunOptions::default() }).await
    }

    async fn run_with(&self, source: Scripted, options: RunOptions) -> Result<RunOutcome, PipelineError> {
        let environment = Environment {
            source: Arc::new(source),
            lake: self.lake.clone(),
            clock: Arc::clone(&self.clock),
            observer: Arc::new(Silent),
            stop: self.stop.clone(),
        };
        run(&self.job(), options, environment).await
    }

    /// Runs up to `head`, giving the streams one after the other.
    async fn run(&self, head: u64, streams: Vec<Vec<Step>>) -> Result<RunOutcome, PipelineError> {
        self.run_loads(head, Vec::new(), streams).await
    }

    async fn run_loads(
        &self,
        head: u64,
        splits: Vec<Split>,
        streams: Vec<Vec<Step>>,
    ) -> Result<RunOutcome, PipelineError> {
        let tables = if self.loads { vec![schema("a")] } else { Vec::new() };
        let source = Scripted {
            head,
            tables,
            streams: Mutex::new(streams.into()),
            splits: Mutex::new(splits.into()),
            ..Scripted::default()
        };
        self.run_source(source, false).await
    }

    fn ledger(&self) -> Ledger {
        Ledger::new(self.lake.store(), "shop", Uuid::new_v4())
    }

    async fn state(&self) -> JobState {
        self.ledger().load().await.unwrap().unwrap()
    }

    /// An entry whose process died before it did its work.
    async fn interrupted(&self, work: Work, end: u64) {
        let ledger = self.ledger();
        let mut entry = LedgerEntry::next(&self.state().await, ledger.run(), 0, work);
        entry.end = at(end);
        ledger.put(&entry).await.unwrap();
    }

    async fn check(&self, table: &str, rows: u64) {
        let open = self.lake.open_table(&id(table)).await.unwrap().expect("the table");
        assert_eq!(open.stats().rows, rows, "rows of {table}");
    }

    /// Table `a` with the row 1; the job stands at 10.
    async fn begun(self) -> Self {
        let stream = vec![announce(schema("a"), 5), rows("a", 10, &[1]), boundary(10)];
        self.run(10, vec![stream]).await.unwrap();
        self
    }
}

/// All of table `a`, in one split.
fn split_record() -> SplitRecord {
    SplitRecord {
        table: id("a"),
        index: 0,
        after: None,
        last: None,
        rows: 1,
        condition: None,
        settling: false,
        unsettled: false,
    }
}

fn batch_of(table: &str) -> Work {
    Work::Batch { tables: vec![id(table)], splits: Vec::new() }
}

#[tokio::test]
async fn a_table_that_is_announced_within_a_transaction_costs_no_row_of_it() {
    let world = World::new();
    let first = vec![
        announce(schema("a"), 5),
        rows("a", 20, &[1, 2]),
        announce(schema("b"), 22),
        rows("b", 30, &[1]),
        rows("a", 30, &[3]),
        boundary(30),
    ];
    let again = vec![rows("a", 20, &[1, 2]), rows("b", 30, &[1]), rows("a", 30, &[3]), boundary(30)];
    world.run(30, vec![first, again]).await.unwrap();
    world.check("a", 3).await;
    world.check("b", 1).await;
}

/// Twenty seconds pass with every look.
#[derive(Default)]
struct Hasty(AtomicU64);

impl Clock for Hasty {
    fn instant(&self) -> Instant {
        static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *BEGAN.get_or_init(Instant::now) + Duration::from_secs(self.0.fetch_add(20, Ordering::SeqCst))
    }

    fn unix_us(&self) -> i64 {
        crate::clock::SystemClock.unix_us() + self.0.fetch_add(20, Ordering::SeqCst) as i64 * 1_000_000
    }
}

#[tokio::test]
async fn a_run_that_follows_saves_its_position_though_the_log_has_nothing_for_it() {
    let mut world = World::new().begun().await;
    world.clock = Arc::new(Hasty::default());
    let mut stream: Vec<Step> = (11..100).map(boundary).collect();
    stream.push(Step::Fail(SourceErrorKind::Misconfigured));
    let source = Scripted { head: 10, streams: Mutex::new(vec![stream].into()), ..Scripted::default() };
    world.run_source(source, true).await.unwrap_err();
    assert!(world.state().await.newest.end.position > at(80).position, "{:?}", world.state().await.newest.end);
}

#[tokio::test]
async fn a_table_that_is_not_selected_for_a_while_is_not_followed_when_it_is_selected_again() {
    let mut world = World::new().begun().await;
    world.tables = "shop.b";
    let outcome = world.run(20, vec![vec![boundary(20)]]).await.unwrap();
    assert_eq!(outcome.tables, []);
    world.tables = "shop.*";
    let outcome = world.run(20, vec![]).await.unwrap();
    assert!(outcome.tables[0].stopped.as_ref().is_some_and(|reason| reason.contains("select")), "{outcome:?}");
}

#[tokio::test]
async fn an_interrupted_batch_of_a_table_that_is_not_selected_any_more_is_not_taken_for_empty() {
    let mut world = World::new().begun().await;
    world.interrupted(batch_of("a"), 20).await;
    let version = world.lake.open_table(&id("a")).await.unwrap().unwrap().version();
    world.tables = "shop.b";
    world.run(20, vec![]).await.unwrap();
    assert_eq!(world.lake.open_table(&id("a")).await.unwrap().unwrap().version(), version);
    assert!(world.state().await.tables[&id("a")].stopped.is_some());
}

#[tokio::test]
async fn an_interrupted_batch_is_applied_up_to_its_end_and_no_further() {
    let world = World::new().begun().await;
    world.interrupted(batch_of("a"), 20).await;
    let again = vec![rows("a", 20, &[2]), rows("a", 30, &[3, 4]), boundary(30)];
    world.run(20, vec![again]).await.unwrap();
    world.check("a", 2).await;
}

#[tokio::test]
async fn a_run_that_is_stopped_while_it_finishes_a_batch_leaves_it_to_the_next() {
    let mut world = World::new().begun().await;
    world.interrupted(batch_of("a"), 20).await;
    world.stop.cancel();
    world.run(20, vec![vec![rows("a", 20, &[2]), boundary(20)]]).await.unwrap();
    world.check("a", 1).await;
    world.stop = CancellationToken::new();
    world.run(20, vec![vec![rows("a", 20, &[2]), boundary(20)]]).await.unwrap();
    world.check("a", 2).await;
}

#[tokio::test]
async fn news_of_a_table_after_the_end_of_an_interrupted_batch_end_it() {
    let grown = || schema_of("a", &["id", "v"]);
    let stopped = || TableStopped {
        table: id("a"),
        position: at(25).position,
        reason: "scripted".into(),
        ending: Ending::Fault,
        statement: None,
    };
    for news in [announce(grown(), 25), Step::Event(SourceEvent::TableStopped(stopped()))] {
        let world = World::new().begun().await;
        world.interrupted(batch_of("a"), 20).await;
        // The batch ended where a log file began; this time no boundary is told there.
        let again = vec![rows("a", 18, &[2]), boundary(18), news];
        world.run(20, vec![again]).await.unwrap();
        world.check("a", 2).await;
    }
}

#[tokio::test]
async fn news_of_a_table_within_an_interrupted_batch_mean_another_log() {
    let world = World::new().begun().await;
    world.interrupted(batch_of("a"), 20).await;
    let again = vec![announce(schema_of("a", &["id", "v"]), 15), boundary(20)];
    let error = world.run(20, vec![again]).await.unwrap_err();
    assert!(matches!(error, PipelineError::LogChanged { .. }), "{error}");
}

#[tokio::test]
async fn a_rollback_takes_back_no_row_of_a_first_load() {
    let world = World::loading();
    let stream = vec![rows("a", 25, &[9]), discard(0), boundary(30)];
    world.run_loads(30, vec![split(10, 30, &[1, 2])], vec![stream]).await.unwrap();
    world.check("a", 2).await;
    let world = World::loading();
    let stream = vec![rows("a", 25, &[9]), rows("a", 26, &[8]), discard(1), boundary(30)];
    world.run_loads(30, vec![split(10, 30, &[1, 2])], vec![stream]).await.unwrap();
    world.check("a", 3).await;
}

#[tokio::test]
async fn rows_of_a_first_load_that_are_older_than_the_job_are_read_again() {
    let world = World::loading();
    let streams = vec![vec![boundary(20), boundary(40)]];
    // The second was read ahead before the log went on to 20.
    let splits = || vec![Split { last_key: Some(SplitKey("2".into())), ..split(4, 20, &[1, 2]) }, split(10, 30, &[3])];
    let splits = splits().into_iter().chain([split(20, 40, &[3, 4])]).collect();
    world.run_loads(40, splits, streams).await.unwrap();
    world.check("a", 4).await;
}

/// A source with the table `a`, whose first load is cut into the given splits.
fn cut(head: u64, cuts: &[&'static str], splits: Vec<Split>, stream: Vec<Step>) -> Scripted {
    Scripted {
        head,
        tables: vec![schema("a")],
        cuts: Mutex::new(cuts.to_vec().into()),
        splits: Mutex::new(splits.into()),
        streams: Mutex::new(vec![stream].into()),
        ..Scripted::default()
    }
}

fn ending(last_key: &str, split: Split) -> Split {
    Split { last_key: Some(SplitKey(last_key.into())), ..split }
}

fn deleted(offset: u64, ids: &[i32]) -> Step {
    Step::Event(SourceEvent::Rows(batch(schema("a"), offset, ids, Operation::Delete)))
}

#[tokio::test]
async fn splits_of_one_batch_stand_each_in_its_own_place_in_the_log() {
    let world = World::loading();
    let splits = || vec![ending("2", split(15, 30, &[1, 2])), split(10, 20, &[3, 4])];
    // 3 goes after it was read; 2 before it was read, so it was there again by then; 5 comes meanwhile.
    let stream = || vec![deleted(12, &[3]), deleted(13, &[2]), rows("a", 14, &[5]), boundary(14), boundary(30)];
    let outcome = world.run_source(cut(30, &["2"], splits(), stream()), false).await.unwrap();
    world.check("a", 4).await;
    assert_eq!((outcome.batches, outcome.tables[0].rows_loaded), (1, 4));
    assert_eq!(world.state().await.tables[&id("a")].splits, 1);
    // The same with all of it in one event, and a rollback of another.
    let world = World::loading();
    let stream = vec![rows("a", 16, &[9]), discard(0), boundary(30)];
    world.run_source(cut(30, &["2"], splits(), stream), false).await.unwrap();
    world.check("a", 4).await;
}

#[tokio::test]
async fn what_comes_after_a_split_that_was_cut_short_waits_for_the_rest_of_it() {
    let world = World::loading();
    let first = vec![ending("1", split(4, 10, &[1])), split(4, 10, &[3, 4])];
    let second = vec![ending("2", split(10, 20, &[2])), split(10, 20, &[3, 4])];
    let splits = first.into_iter().chain(second).collect();
    let stream = vec![boundary(10), boundary(20)];
    let outcome = world.run_source(cut(20, &["2", "", "2"], splits, stream), false).await.unwrap();
    world.check("a", 4).await;
    assert_eq!((outcome.batches, outcome.tables[0].rows_loaded), (2, 4));
}

#[tokio::test]
async fn rows_of_a_condition_are_loaded_over_those_that_the_table_has() {
    let mut world = World::new().begun().await;
    world.loads = true;
    let again = |condition: &str| RunOptions {
        resnapshot: [(id("a"), Some(condition.to_string()))].into(),
        ..RunOptions::default()
    };
    let error = world.run_with(cut(10, &[], vec![], vec![]), again("nonsense")).await.unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    assert_eq!(world.state().await.tables[&id("a")].load, LoadState::Done);
    // The run ends after the first of two splits; the next one goes on.
    let first = vec![ending("2", split(10, 20, &[1, 2]))];
    let stream = vec![rows("a", 15, &[7]), boundary(20), Step::Fail(SourceErrorKind::Misconfigured)];
    let source = Scripted { tables: vec![schema("a")], ..cut(30, &[], first, stream) };
    source.splits.lock().unwrap().push_back(split(10, 30, &[3]));
    world.run_with(source, again("id < 9")).await.unwrap_err();
    let LoadState::Loading { condition, after, .. } = world.state().await.tables[&id("a")].load.clone() else {
        panic!("the load is over");
    };
    assert_eq!((condition.as_deref(), after.as_deref()), (Some("id < 9"), Some("2")));
    world.run_with(cut(30, &[], vec![split(20, 30, &[3])], vec![boundary(30)]), RunOptions::default()).await.unwrap();
    // 1 was there, 7 came by the log: nothing was emptied.
    world.check("a", 4).await;
    assert_eq!(world.state().await.tables[&id("a")].load, LoadState::Done);
}

#[tokio::test]
async fn a_split_that_another_process_left_out_is_read_again() {
    let world = World::loading();
    let lake = world.lake.clone();
    let other = move || -> BoxFuture<'static, ()> {
        Box::pin(async move {
            // What a process does that finds entry 3 unfinished: the log's changes without the split.
            let mut table = lake.open_table(&id("a")).await.unwrap().unwrap();
            let none = KeyedChanges::from_batches(Arc::new(schema("a")), Vec::new()).unwrap();
            let tag = CommitTag { app_ids: vec![("alluvium/shop".into(), 3)], ..CommitTag::default() };
            table.apply(none, &tag).await.unwrap();
        })
    };
    let first = vec![Step::Act(Box::new(other)), boundary(30)];
    let splits = vec![split(10, 30, &[1, 2]), split(30, 40, &[1, 2])];
    world.run_loads(30, splits, vec![first, vec![boundary(40)]]).await.unwrap();
    world.check("a", 2).await;
}

#[tokio::test]
async fn an_interrupted_load_is_finished_though_the_log_stands_still() {
    let world = World::loading();
    world
        .run_loads(4, vec![split(4, 30, &[1])], vec![vec![Step::Fail(SourceErrorKind::Misconfigured)]])
        .await
        .unwrap_err();
    let record = split_record();
    world.interrupted(Work::Batch { tables: vec![id("a")], splits: vec![record] }, 4).await;
    world.run_loads(4, vec![split(4, 4, &[1, 2])], vec![vec![], vec![boundary(4)]]).await.unwrap();
    world.check("a", 2).await;
}

/// Row 7 of `a`, which has a second column, becomes row 3; the change does not say that column.
fn moved(offset: u64) -> Step {
    let mut changes = batch(schema_of("a", &["id", "v"]), offset, &[7, 3], Operation::Delete);
    changes.operations[1] = Operation::Insert;
    let (mut away, mut here) = (Gap::none(2), Gap::none(2));
    away.set_moved(Moved::Away);
    here.set_moved(Moved::Here);
    here.set_absent(1, true);
    let mut gaps = Gaps::new(2);
    [away, here].iter().for_each(|gap| gaps.push(gap));
    changes.gaps = Some(gaps);
    Step::Event(SourceEvent::Rows(changes))
}

fn wide_split(low: u64, high: u64, ids: &[i32]) -> Split {
    Split { rows: vec![batch(schema_of("a", &["id", "v"]), low, ids, Operation::Read)], ..split(low, high, &[]) }
}

#[tokio::test]
async fn a_row_that_moves_into_the_loaded_part_is_read_by_its_key_before_the_load_is_over() {
    let begin = || vec![moved(8), boundary(10)];
    let go_on = || vec![boundary(20), boundary(30), boundary(40)];
    // All in one run, and with a crash before the second part is applied.
    for crash in [false, true] {
        let world = World::loading();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let source = |splits: Vec<Split>, steps: Vec<Step>| Scripted {
            tables: vec![schema_of("a", &["id", "v"])],
            asked: Arc::clone(&asked),
            ..cut(40, &[], splits, steps)
        };
        let first = ending("2", wide_split(4, 10, &[1, 2]));
        if crash {
            let steps = begin().into_iter().chain([Step::Fail(SourceErrorKind::Misconfigured)]).collect();
            world.run_source(source(vec![first, wide_split(10, 20, &[9])], steps), false).await.unwrap_err();
            world.check("a", 2).await;
            // Now the row is known to be missing before the second part is read: it comes with that.
            let splits = vec![wide_split(10, 15, &[3]), wide_split(10, 20, &[9]), wide_split(20, 30, &[])];
            world.run_source(source(splits, go_on()), false).await.unwrap();
        } else {
            let splits = vec![first, wide_split(10, 20, &[9]), wide_split(20, 30, &[3]), wide_split(30, 40, &[])];
            world.run_source(source(splits, begin().into_iter().chain(go_on()).collect()), false).await.unwrap();
        }
        world.check("a", 4).await;
        assert_eq!(world.state().await.tables[&id("a")].load, LoadState::Done);
        assert_eq!(asked.lock().unwrap().first(), Some(&vec![RowKey(vec!["3".to_string()])]), "crash: {crash}");
    }
}

#[tokio::test]
async fn a_split_that_is_to_be_read_again_is_noted_at_once() {
    let world = World::loading();
    let failing = || vec![Step::Fail(SourceErrorKind::Misconfigured)];
    world.run_loads(30, vec![split(10, 30, &[1])], vec![failing()]).await.unwrap_err();
    let record = split_record();
    world.interrupted(Work::Batch { tables: vec![id("a")], splits: vec![record] }, 30).await;
    assert_eq!(world.state().await.tables[&id("a")].load, LoadState::Done);
    let streams = vec![vec![boundary(30)], failing()];
    world.run_loads(30, vec![split(30, 40, &[1])], streams).await.unwrap_err();
    assert!(matches!(world.state().await.tables[&id("a")].load, LoadState::Loading { index: 0, .. }));
}

#[tokio::test]
async fn rows_of_a_table_whose_change_could_not_be_made_are_left_out() {
    let world = World::new().begun().await;
    let grown = || schema_of("a", &["id", "v"]);
    let later = SourceEvent::Rows(batch(grown(), 30, &[5], Operation::Insert));
    let stream = vec![
        announce_with(grown(), 25, &[("v", "no number")]),
        announce(schema("b"), 26),
        Step::Event(later),
        rows("b", 30, &[1]),
        boundary(30),
    ];
    let outcome = world.run(30, vec![stream]).await.unwrap();
    assert!(outcome.tables[0].stopped.is_some(), "{outcome:?}");
    world.check("a", 1).await;
    world.check("b", 1).await;
}

#[tokio::test]
async fn rows_of_a_table_that_was_never_announced_are_refused_before_anything_is_noted() {
    let world = World::new().begun().await;
    let error = world.run(20, vec![vec![rows("b", 20, &[1]), boundary(20)]]).await.unwrap_err();
    assert!(matches!(error, PipelineError::Unannounced { .. }), "{error}");
    assert_eq!(world.state().await.newest.end, at(10));
}

#[tokio::test]
async fn a_delta_table_that_was_put_back_from_a_backup_is_taken_out_before_anything_is_applied() {
    let world = World::new().begun().await;
    // The newest step is another table's: nothing else would look at this one.
    world.run(20, vec![vec![announce(schema("b"), 15), boundary(20)]]).await.unwrap();
    let (store, commits) = (world.lake.store(), object_store::path::Path::from("shop/a/_delta_log"));
    let newest: Vec<_> = store.list(Some(&commits)).map_ok(|object| object.location).try_collect().await.unwrap();
    store.delete(newest.iter().max().unwrap()).await.unwrap();
    let outcome = world.run(30, vec![vec![rows("a", 30, &[2]), rows("b", 30, &[1]), boundary(30)]]).await.unwrap();
    let stopped = outcome.tables[0].stopped.as_ref().unwrap();
    assert!(stopped.contains("put back from a backup") && stopped.contains("--resnapshot shop.a"), "{stopped}");
    world.check("b", 1).await;
}

#[tokio::test]
async fn a_schema_that_the_lake_has_already_is_noted_in_its_table() {
    let world = World::new().begun().await;
    let stream = vec![announce(schema("a"), 15), boundary(20), rows("a", 30, &[2]), boundary(30)];
    world.run(30, vec![stream]).await.unwrap();
    world.check("a", 2).await;
}

#[tokio::test]
async fn a_log_that_goes_back_ends_the_job() {
    let world = World::new().begun().await;
    let error = world.run(30, vec![vec![boundary(20), boundary(15)]]).await.unwrap_err();
    assert!(matches!(error, PipelineError::LogWentBack { .. }), "{error}");
    assert_eq!(error.exit_code(), 4);
}

#[tokio::test]
async fn a_run_that_starts_over_and_finds_steps_of_another_process_ends() {
    let world = World::new().begun().await;
    let (ledger, state) = (world.ledger(), world.state().await);
    let other = move || -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let work = Work::Batch { tables: Vec::new(), splits: Vec::new() };
            ledger.put(&LedgerEntry::next(&state, ledger.run(), 0, work)).await.unwrap();
        })
    };
    let stream = vec![Step::Act(Box::new(other)), Step::Fail(SourceErrorKind::Unavailable)];
    let error = world.run(30, vec![stream]).await.unwrap_err();
    assert!(matches!(error, PipelineError::Ledger(LedgerError::OtherWriter { .. })), "{error}");
}

#[tokio::test]
async fn what_could_not_be_kept_is_counted_once() {
    let mut world = World::new();
    let of_stream = Losses { zero_dates: 3, invalid_text: 2 };
    let stream = vec![announce(schema("a"), 5), rows("a", 10, &[1]), boundary(10), rows("a", 20, &[2]), boundary(20)];
    let source = |stream: Vec<Step>, losses: Losses| Scripted {
        head: 20,
        streams: Mutex::new(vec![stream].into()),
        losses: vec![(id("a"), losses)],
        ..Scripted::default()
    };
    let outcome = world.run_source(source(stream, of_stream), false).await.unwrap();
    assert_eq!((outcome.tables[0].zero_dates, outcome.tables[0].unmapped_texts), (3, 2));
    world = World::loading();
    let loaded = Split { losses: Losses { zero_dates: 4, invalid_text: 0 }, ..split(10, 20, &[1]) };
    let source = Scripted {
        tables: vec![schema("a")],
        splits: Mutex::new(vec![loaded].into()),
        ..source(vec![boundary(20)], of_stream)
    };
    let outcome = world.run_source(source, false).await.unwrap();
    assert_eq!((outcome.tables[0].zero_dates, outcome.tables[0].unmapped_texts), (7, 2));
}

/// Row 7 of `a` has no key; row 1 of `b` has.
fn keyless(table: &str, offset: u64) -> ChangeBatch {
    let batch = batch(schema(table), offset, &[7], Operation::Insert);
    let rows = RecordBatch::try_new(batch.schema.arrow_schema(), vec![Arc::new(Int32Array::from(vec![None]))]);
    ChangeBatch { rows: rows.unwrap(), ..batch }
}

#[tokio::test]
async fn a_row_without_a_key_takes_out_its_table_and_no_other() {
    let world = World::new().begun().await;
    let events = || {
        vec![
            announce(schema("b"), 15),
            rows("b", 20, &[1]),
            rows("a", 20, &[2]),
            boundary(20),
            rows("a", 25, &[3]),
            Step::Event(SourceEvent::Rows(keyless("a", 30))),
            rows("b", 30, &[2]),
            boundary(30),
        ]
    };
    // The transaction with the row is read again, without its table.
    let outcome = world.run(30, vec![events(), vec![rows("b", 30, &[2]), boundary(30)]]).await.unwrap();
    let stopped = outcome.tables[0].stopped.as_ref().unwrap();
    assert!(stopped.contains("no value in key column id"), "{stopped}");
    world.check("a", 2).await;
    world.check("b", 2).await;
    assert_eq!(world.state().await.newest.end, at(30));
}

#[tokio::test]
async fn a_row_without_a_key_in_a_first_load_takes_out_its_table() {
    let world = World::loading();
    let bad = Split { rows: vec![keyless("a", 10)], ..split(10, 20, &[]) };
    let outcome = world.run_loads(20, vec![bad], vec![vec![boundary(20)]]).await.unwrap();
    assert!(outcome.tables[0].stopped.is_some(), "{outcome:?}");
    assert_eq!(world.state().await.newest.end, at(20));
}

#[tokio::test]
async fn settings_that_a_table_cannot_have_take_it_out_and_no_other() {
    let mut world = World::new();
    let partition_by = vec![PartitionBy::parse("v").unwrap()];
    let settings = TableSettings { partition_by, ..TableSettings::default() };
    world.lake = world.lake.with_rules(TableRules::uniform(settings));
    let both = SourceEvent::Rows(batch(schema_of("b", &["id", "v"]), 20, &[1], Operation::Insert));
    let stream = vec![
        announce(schema("a"), 5),
        announce(schema_of("b", &["id", "v"]), 6),
        rows("a", 20, &[1]),
        Step::Event(both),
        boundary(20),
    ];
    let outcome = world.run(20, vec![stream]).await.unwrap();
    let stopped = outcome.tables[0].stopped.as_ref().unwrap();
    assert!(stopped.contains("the source has no column v; change its settings under tables"), "{stopped}");
    assert!(outcome.tables[1].stopped.is_none(), "{outcome:?}");
    world.check("b", 1).await;
    // Taken out before it was made, it can be loaded once its settings are mended.
    world.lake = world.lake.with_rules(TableRules::default());
    world.loads = true;
    let options = RunOptions { resnapshot: [(id("a"), None)].into(), ..RunOptions::default() };
    let source = Scripted {
        head: 40,
        tables: vec![schema("a")],
        splits: Mutex::new([split(40, 50, &[1, 2])].into()),
        streams: Mutex::new([vec![boundary(40)], vec![boundary(50)]].into()),
        ..Scripted::default()
    };
    let outcome = world.run_with(source, options).await.unwrap();
    assert!(outcome.tables.iter().all(|table| table.stopped.is_none()), "{outcome:?}");
    world.check("a", 2).await;
}
