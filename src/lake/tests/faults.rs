//! A store that fails before or after a write, and what comes of it.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::Int64Array;
use arrow::datatypes::DataType;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions,
    PutOptions, PutPayload, PutResult, Result,
};

use super::upkeep::RULES;
use super::world::{KeyKind, World, copy_on_write, memory_lake, partitioned};
use crate::change::TableId;
use crate::config::{TableRules, TableSettings};
use crate::lake::{CommitOutcome, Lake, LakeError};

/// Where a write fails, as its caller sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing was written.
    Before,
    /// All was written, but the reply was lost.
    After,
    /// All was written; the store repeated the request by itself and saw its own first one.
    AfterAsExisting,
}

/// Fails the write that `countdown` reaches, once.
#[derive(Debug)]
struct FaultyStore {
    inner: InMemory,
    fault: Fault,
    /// Writes left until the fault; negative: none.
    countdown: AtomicI64,
    /// Deletions left until one fails, once; negative: none.
    deletions: AtomicI64,
    /// Data files of which something was read: the path, and whether it was more than the file's end.
    reads: Mutex<BTreeSet<(String, bool)>>,
}

impl FaultyStore {
    fn new(fault: Fault, countdown: i64) -> Arc<Self> {
        let countdown = AtomicI64::new(countdown);
        let deletions = AtomicI64::new(-1);
        Arc::new(Self { inner: InMemory::new(), fault, countdown, deletions, reads: Mutex::default() })
    }

    fn note_read(&self, path: &Path, pages: bool) {
        if path.as_ref().ends_with(".parquet") && !path.as_ref().contains("_delta_log") {
            self.reads.lock().unwrap().insert((path.to_string(), pages));
        }
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStore")
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        if self.countdown.fetch_sub(1, Ordering::SeqCst) != 1 {
            return self.inner.put_opts(path, payload, options).await;
        }
        if self.fault != Fault::Before {
            self.inner.put_opts(path, payload, options).await?;
        }
        Err(match self.fault {
            Fault::AfterAsExisting => {
                object_store::Error::AlreadyExists { path: path.to_string(), source: "fault".into() }
            }
            _ => object_store::Error::Generic { store: "faulty", source: "fault".into() },
        })
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.note_read(path, false);
        self.inner.get_opts(path, options).await
    }

    async fn get_ranges(&self, path: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.note_read(path, true);
        self.inner.get_ranges(path, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let left = self.deletions.swap(-1, Ordering::SeqCst);
        if left < 0 {
            return self.inner.delete_stream(paths);
        }
        let some = self.inner.delete_stream(paths.take(usize::try_from(left).unwrap()).boxed());
        let fault = object_store::Error::Generic { store: "faulty", source: "fault".into() };
        some.chain(stream::once(async { Err(fault) })).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

/// Two batches; the `nth` write after the first fails. The second batch is applied until it is in.
async fn check(fault: Fault, nth: i64, settings: TableSettings) {
    let store = FaultyStore::new(fault, -1);
    let lake = memory_lake(store.clone()).with_rules(TableRules::uniform(settings));
    let mut world = World::new(lake, TableId::new("shop", "orders"), KeyKind::Long, 20).await;
    world.apply_random(40, 60).await;
    let version = world.table.version();
    let batch = world.random_batch(40, 60);
    store.countdown.store(nth, Ordering::SeqCst);
    let mut applied = false;
    for _ in 0..3 {
        match world.apply(batch.clone(), 2).await {
            Ok(CommitOutcome::Committed(_)) => applied = true,
            Ok(CommitOutcome::AlreadyApplied { .. }) => {
                world.believe(&batch, 2);
                applied = true;
            }
            Ok(CommitOutcome::Conflict) => panic!("{fault:?} {nth}: a conflict without another writer"),
            Err(error) => assert!(
                matches!(error, LakeError::Store { .. } | LakeError::Delta { .. } | LakeError::Parquet { .. }),
                "{error}"
            ),
        }
        if applied {
            break;
        }
    }
    assert!(applied, "{fault:?} {nth}");
    assert_eq!(world.table.version(), version + 1, "{fault:?} {nth}: committed more than once");
    world.compare(&format!("{fault:?} at write {nth}")).await;
    store.countdown.store(-1, Ordering::SeqCst);
    world.apply_random(40, 60).await;
    world.compare(&format!("{fault:?} at write {nth}, one batch later")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_fails_loses_and_doubles_nothing() {
    for fault in [Fault::Before, Fault::After, Fault::AfterAsExisting] {
        // Data file, deletion vectors, commit; then none.
        for nth in 1..=4 {
            check(fault, nth, TableSettings::default()).await;
        }
        // The new data file, what stays of the old one, commit; then none.
        for nth in 1..=4 {
            check(fault, nth, copy_on_write(TableSettings::default())).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_to_a_partition_that_fails_loses_and_doubles_nothing() {
    for fault in [Fault::Before, Fault::After, Fault::AfterAsExisting] {
        for nth in [1, 3, 5, 6, 7, 8, 9] {
            check(fault, nth, partitioned(&["year(at)"])).await;
            check(fault, nth, copy_on_write(partitioned(&["year(at)"]))).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_of_the_change_feed_that_fails_loses_and_doubles_nothing() {
    for fault in [Fault::Before, Fault::After, Fault::AfterAsExisting] {
        for nth in 1..=5 {
            let feed = TableSettings { change_feed: true, ..TableSettings::default() };
            check(fault, nth, copy_on_write(feed.clone())).await;
            check(fault, nth, feed).await;
        }
    }
}

/// The `nth` write of a change of the merge mode, or of the batch after it, fails.
async fn check_mode_change(fault: Fault, nth: i64, from: TableSettings, to: TableSettings) {
    let store = FaultyStore::new(fault, -1);
    let lake = memory_lake(store.clone()).with_rules(TableRules::uniform(from));
    let mut world = World::new(lake, TableId::new("shop", "orders"), KeyKind::Long, 24).await;
    world.apply_random(40, 60).await;
    world.apply_random(40, 60).await;
    world.set(to).await;
    let batch = world.random_batch(40, 60);
    store.countdown.store(nth, Ordering::SeqCst);
    for _ in 0..3 {
        match world.apply(batch.clone(), 3).await {
            Ok(CommitOutcome::AlreadyApplied { .. }) => world.believe(&batch, 3),
            Ok(outcome) => assert!(matches!(outcome, CommitOutcome::Committed(_)), "{fault:?} {nth}: {outcome:?}"),
            Err(_) => continue,
        }
        break;
    }
    world.compare(&format!("{fault:?} at write {nth} of a change of the merge mode")).await;
    store.countdown.store(-1, Ordering::SeqCst);
    world.apply_random(40, 60).await;
    world.compare(&format!("{fault:?} at write {nth} of a change of the merge mode, one batch later")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_merge_mode_survives_a_failed_write_and_a_lost_reply() {
    for fault in [Fault::Before, Fault::After, Fault::AfterAsExisting] {
        for nth in 1..=7 {
            let (read, write) = (TableSettings::default(), copy_on_write(TableSettings::default()));
            check_mode_change(fault, nth, read.clone(), write.clone()).await;
            check_mode_change(fault, nth, write, read).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_creation_whose_reply_is_lost_is_found_again() {
    for fault in [Fault::After, Fault::AfterAsExisting] {
        let store = FaultyStore::new(fault, 1);
        let world = World::new(memory_lake(store), TableId::new("shop", "orders"), KeyKind::Long, 21).await;
        assert_eq!(world.table.version(), 0);
        world.compare("created").await;
    }
}

/// The `nth` write of filling a new column fails; the evolution carries no transaction to be found by.
async fn check_filling(fault: Fault, nth: i64) {
    let store = FaultyStore::new(fault, -1);
    let mut world = World::new(memory_lake(store.clone()), TableId::new("shop", "orders"), KeyKind::Long, 23).await;
    world.apply_ids(&[1, 2, 3, 4], &[]).await;
    world.apply_ids(&[], &[2]).await;
    store.countdown.store(nth, Ordering::SeqCst);
    world.add_column("counted", DataType::Int64, Some(Arc::new(Int64Array::from(vec![7])))).await;
    world.compare(&format!("{fault:?} at write {nth} of a filling")).await;
    store.countdown.store(-1, Ordering::SeqCst);
    world.apply_random(5, 6).await;
    world.reopen().await;
    world.compare(&format!("{fault:?} at write {nth} of a filling, one batch later")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filling_a_column_survives_a_failed_write_and_a_lost_reply() {
    for fault in [Fault::Before, Fault::After, Fault::AfterAsExisting] {
        // Data file, commit; then none.
        for nth in 1..=3 {
            check_filling(fault, nth).await;
        }
    }
}

/// The `nth` write of a compaction fails; it is asked for until nothing is left to do.
async fn check_compaction(fault: Fault, nth: i64) {
    let context = format!("{fault:?} at write {nth} of a compaction");
    let store = FaultyStore::new(fault, -1);
    let mut world = World::new(memory_lake(store.clone()), TableId::new("shop", "orders"), KeyKind::Long, 24).await;
    for _ in 0..4 {
        world.apply_random(30, 60).await;
    }
    let version = world.table.version();
    store.countdown.store(nth, Ordering::SeqCst);
    let mut folded = 0;
    for _ in 0..20 {
        match world.table.compact(&RULES).await {
            Ok(None) => break,
            Ok(Some(_)) => folded += 1,
            Err(error) => assert!(!matches!(error, LakeError::Changes { .. }), "{context}: {error}"),
        }
        world.compare(&context).await;
    }
    assert_eq!(world.table.version(), version + folded, "{context}: each folding is one commit");
    assert_eq!(world.table.compactions_due(&RULES), [], "{context}");
    store.countdown.store(-1, Ordering::SeqCst);
    world.apply_random(30, 60).await;
    world.compare(&format!("{context}, one batch later")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_whose_write_fails_loses_and_doubles_nothing() {
    for fault in [Fault::Before, Fault::After, Fault::AfterAsExisting] {
        // Data files and commits of as many foldings as there are, and one more.
        for nth in 1..=6 {
            check_compaction(fault, nth).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vacuum_that_ends_anywhere_has_deleted_what_nothing_needs() {
    for nth in 0..6 {
        let store = FaultyStore::new(Fault::Before, -1);
        let mut world = World::new(memory_lake(store.clone()), TableId::new("shop", "orders"), KeyKind::Long, 25).await;
        for _ in 0..8 {
            world.apply_random(30, 40).await;
        }
        let later_ms = chrono::Utc::now().timestamp_millis() + 10_000;
        let retention = std::time::Duration::from_secs(1);
        let all = world.table.vacuum(later_ms, retention, true).await.unwrap();
        assert!(all.files > 6, "{all:?}");
        store.deletions.store(nth, Ordering::SeqCst);
        let error = world.table.vacuum(later_ms, retention, false).await.err().unwrap();
        assert!(matches!(error, LakeError::Store { .. }), "{error}");
        world.compare("a vacuum that failed").await;
        let rest = world.table.vacuum(later_ms, retention, false).await.unwrap();
        assert_eq!(rest.files, all.files - nth.unsigned_abs());
        world.compare("a vacuum that failed, and another").await;
    }
}

/// A store that lets every create win.
#[derive(Debug)]
struct CarelessStore(InMemory);

impl fmt::Display for CarelessStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CarelessStore")
    }
}

#[async_trait]
impl ObjectStore for CarelessStore {
    async fn put_opts(&self, path: &Path, payload: PutPayload, _: PutOptions) -> Result<PutResult> {
        self.0.put_opts(path, payload, PutOptions::default()).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

async fn check_probe(lake: Lake, accepted: bool) {
    let outcome = lake.probe().await;
    assert_eq!(outcome.is_ok(), accepted, "{outcome:?}");
    let left: Vec<_> = futures::TryStreamExt::try_collect(lake.store().list(None)).await.unwrap();
    assert_eq!(left, Vec::<ObjectMeta>::new());
}

#[tokio::test]
async fn a_store_without_conditional_puts_is_refused() {
    check_probe(memory_lake(Arc::new(InMemory::new())), true).await;
    check_probe(memory_lake(Arc::new(CarelessStore(InMemory::new()))), false).await;
}

/// Ten files of ascending keys; a change to one key opens `footers` of them and reads keys of `files`.
async fn check_pruning(kind: KeyKind, footers: usize, files: usize) {
    let store = FaultyStore::new(Fault::Before, -1);
    let mut world = World::new(memory_lake(store.clone()), TableId::new("shop", "orders"), kind, 22).await;
    for from in (0..250).step_by(25) {
        world.apply_ids(&(from..from + 25).collect::<Vec<_>>(), &[]).await;
    }
    assert_eq!(world.table.stats().files, 10);
    world.reopen().await;
    store.reads.lock().unwrap().clear();
    world.apply_ids(&[130], &[]).await;
    let reads = store.reads.lock().unwrap().clone();
    let opened: BTreeSet<_> = reads.iter().map(|(path, _)| path).collect();
    let read: BTreeSet<_> = reads.iter().filter(|(_, pages)| *pages).map(|(path, _)| path).collect();
    assert_eq!((opened.len(), read.len()), (footers, files), "{kind:?}");
    world.compare("pruned").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_files_that_may_hold_a_key_are_read() {
    for kind in [KeyKind::Long, KeyKind::Integer, KeyKind::Date, KeyKind::Timestamp] {
        check_pruning(kind, 1, 1).await;
    }
    // No statistics in the log for these, but true ones in the footers.
    check_pruning(KeyKind::Decimal, 10, 1).await;
    check_pruning(KeyKind::Binary, 10, 1).await;
    // Statistics of floats say nothing of NaN.
    check_pruning(KeyKind::Double, 10, 10).await;
}
