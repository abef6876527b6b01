//! What is due when, over time and over processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::{Int64Array, RecordBatch};
use arrow::datatypes::DataType;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use object_store::path::Path;

use super::{Chore, ChoreReport, Occasion, Upkeep};
use crate::batch::KeyedChanges;
use crate::change::{ChangeBatch, Operation, SourcePosition, TableId, TransactionSpan};
use crate::clock::Clock;
use crate::config::{CompactConfig, MaintainConfig};
use crate::lake::{CommitOutcome, CommitTag, Lake, LakeTable};
use crate::schema::{Column, TableSchema};

/// A clock that stands.
struct Standing(AtomicI64);

impl Clock for Standing {
    fn instant(&self) -> Instant {
        Instant::now()
    }

    fn unix_us(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

struct World {
    lake: Lake,
    clock: Arc<Standing>,
    config: MaintainConfig,
    table: LakeTable,
    schema: Arc<TableSchema>,
    sequence: i64,
}

impl World {
    async fn new() -> Self {
        let lake = Lake::with_store(url::Url::parse("memory:///lake/").unwrap(), Arc::new(InMemory::new()));
        let id = Column { nullable: false, ..Column::new("id", DataType::Int64, "") };
        let table = TableId::new("shop", "orders");
        let schema = TableSchema::new(table, vec![id], vec![0]);
        let table = lake.create_table(&schema, &CommitTag::default()).await.unwrap();
        let clock = Arc::new(Standing(AtomicI64::new(crate::clock::SystemClock.unix_us())));
        let compact = Some(CompactConfig { small_files: 2, ..CompactConfig::DEFAULT });
        let config = MaintainConfig { compact, checkpoint_versions: 12, ..MaintainConfig::default() };
        Self { lake, clock, config, table, schema: Arc::new(schema), sequence: 0 }
    }

    async fn upkeep(&self) -> Upkeep {
        Upkeep::load("job", &self.config, &self.lake, self.clock.clone()).await
    }

    fn pass(&self, hours: u64) {
        let us = Duration::from_secs(hours * 3_600).as_micros();
        self.clock.0.fetch_add(i64::try_from(us).unwrap(), Ordering::SeqCst);
    }

    async fn batches(&mut self, number: i64) {
        for _ in 0..number {
            self.sequence += 1;
            let rows = Arc::new(Int64Array::from(vec![self.sequence]));
            let rows = RecordBatch::try_new(self.schema.arrow_schema(), vec![rows]).unwrap();
            let position = SourcePosition { order: (0, 0), text: String::new() };
            let transactions = vec![TransactionSpan { first_row: 0, commit_time_us: 0, position }];
            let operations = vec![Operation::Insert];
            let changes = ChangeBatch { schema: self.schema.clone(), rows, operations, gaps: None, transactions };
            let keyed = KeyedChanges::from_batches(self.schema.clone(), vec![changes]).unwrap();
            let tag = CommitTag { app_ids: vec![("test".into(), self.sequence)], ..CommitTag::default() };
            let outcome = self.table.apply(keyed, &tag).await.unwrap();
            assert!(matches!(outcome, CommitOutcome::Committed(_)), "{outcome:?}");
        }
    }

    /// The chores that are done, in their order.
    async fn done(&mut self, upkeep: &mut Upkeep) -> Vec<Chore> {
        let reports = upkeep.all_due(&mut self.table, false).await;
        upkeep.save().await;
        assert!(reports.iter().all(|report| report.error.is_none()), "{reports:?}");
        reports.iter().map(|report| report.chore).collect()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_chore_is_due_again_when_its_time_has_come_also_for_another_process() {
    let mut world = World::new().await;
    world.batches(4).await;
    let mut upkeep = world.upkeep().await;
    assert_eq!(world.done(&mut upkeep).await, [Chore::Compact, Chore::Log, Chore::Vacuum]);
    assert_eq!(world.done(&mut upkeep).await, []);
    world.batches(4).await;
    let mut other = world.upkeep().await;
    assert_eq!(world.done(&mut other).await, []);
    world.pass(1);
    assert_eq!(world.done(&mut other).await, [Chore::Compact]);
    world.batches(4).await;
    assert_eq!(world.done(&mut other).await, [Chore::Checkpoint], "by versions, not by the clock");
    world.pass(24);
    assert_eq!(world.done(&mut other).await, [Chore::Compact, Chore::Log, Chore::Vacuum]);
    let record = Path::from("_alluvium/job/maintain.json");
    world.lake.store().put(&record, "{".into()).await.unwrap();
    let mut third = world.upkeep().await;
    assert!(third.is_due_by_time(world.table.table()), "a damaged record is none");
    assert_eq!(world.done(&mut third).await, [Chore::Log, Chore::Vacuum]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_run_folds_what_piles_up_and_leaves_the_rest_for_later() {
    let mut world = World::new().await;
    let mut upkeep = world.upkeep().await;
    world.batches(8).await;
    assert_eq!(upkeep.piece(&mut world.table, Occasion::Busy).await, None);
    world.batches(8).await;
    let chores: Vec<_> = [
        upkeep.piece(&mut world.table, Occasion::Busy).await.map(|report| (report.chore, report.files_before)),
        upkeep.piece(&mut world.table, Occasion::Busy).await.map(|report| (report.chore, report.files_before)),
        upkeep.piece(&mut world.table, Occasion::Busy).await.map(|report| (report.chore, report.files_before)),
    ]
    .into();
    assert_eq!(chores, [Some((Chore::Compact, 16)), Some((Chore::Checkpoint, 0)), None]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_that_is_off_is_never_due_and_can_be_asked_for() {
    let mut world = World::new().await;
    world.batches(4).await;
    (world.config.compact, world.config.vacuum, world.config.log_retention) = (None, None, None);
    world.config.cluster_every = None;
    let mut upkeep = world.upkeep().await;
    assert!(!upkeep.is_due_by_time(world.table.table()));
    assert_eq!(world.done(&mut upkeep).await, []);
    let version = world.table.version();
    let planned = upkeep.now(&mut world.table, Chore::Compact, true).await;
    assert_eq!((planned.files_before, world.table.version()), (4, version), "a dry run commits nothing");
    let done = upkeep.now(&mut world.table, Chore::Compact, false).await;
    assert_eq!((done.files_before, done.files_after), (4, 1));
    world.pass(8 * 24);
    let vacuumed: ChoreReport = upkeep.now(&mut world.table, Chore::Vacuum, false).await;
    assert_eq!((vacuumed.files_before, vacuumed.error), (4, None));
}
