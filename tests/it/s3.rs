//! The whole of a job on a lake in a real S3 store: conditional puts, restarts and a second copy included.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use alluvium::failpoint;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

use crate::demo::{SHOP, check_demo_lake, demo_files};
use crate::harness::{Content, LakeReader, Outcome, Service, TempJob, assert_same};

/// The keys that `tests/servers/s3.sh` gives.
const KEY_ID: &str = "alluvium";
const SECRET: &str = "alluvium-secret";

/// The variable that the job file takes the secret from.
const SECRET_VARIABLE: &str = "ALLUVIUM_TEST_S3_SECRET";

/// What `std::process::abort` ends a process with.
const SIGABRT: i32 = 6;

/// Two copies that start at once may still miss each other on a busy machine, so they get some rounds.
const COPIES_ROUNDS_MAX: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_on_s3_equals_the_server_and_a_second_run_changes_nothing() {
    let lake = S3Lake::new();
    lake.job.run().expect_code(0);
    check_demo_lake(&lake.reader(), "shop", &SHOP).await;
    let before = lake.objects().await;
    assert!(before.keys().any(|path| path.contains("/_alluvium/")), "{before:#?}");
    lake.job.run().expect_code(0);
    assert_eq!(lake.objects().await, before);

    let status = lake.job.verb(&["status"]).expect_code(0).stdout;
    assert!(status.contains("shop-bin.000002") && status.contains("shop.order_items"), "{status}");
    let count = |suffix: &str| {
        let query = format!("select count(*) as n from orders {suffix}");
        lake.job.verb(&["sql", &query]).expect_code(0).stdout
    };
    assert!(count("").contains("150"), "{}", count(""));
    assert!(count("version as of 0").contains(" 0 "), "{}", count("version as of 0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_on_s3_one_stops_and_the_lake_is_right() {
    for _ in 0..COPIES_ROUNDS_MAX {
        let lake = S3Lake::new();
        let copies = [lake.job.spawn(&["run"], &[]), lake.job.spawn(&["run"], &[])];
        let outcomes = copies.map(|copy| copy.wait());
        lake.job.run().expect_code(0);
        check_demo_lake(&lake.reader(), "shop", &SHOP).await;
        let (losers, winners): (Vec<Outcome>, Vec<Outcome>) =
            outcomes.into_iter().partition(|outcome| outcome.status.code() != Some(0));
        assert!(!winners.is_empty(), "both copies stopped: {losers:#?}");
        if let Some(loser) = losers.into_iter().next() {
            loser.expect_code(1).expect_stderr(&["another"]);
            return;
        }
    }
    panic!("in {COPIES_ROUNDS_MAX} rounds two copies never met");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_killed_at_any_step_on_s3_is_finished_by_the_next() {
    for step in failpoint::ALL {
        // That step belongs to a live source.
        if step == failpoint::READ_BEFORE {
            continue;
        }
        let lake = S3Lake::new();
        let killed = lake.job.spawn(&["run"], &[(failpoint::VARIABLE, &format!("{step}:2"))]).wait();
        assert_eq!(killed.status.signal(), Some(SIGABRT), "{step}: {killed:#?}");
        lake.job.run().expect_code(0);
        check_demo_lake(&lake.reader(), "shop", &SHOP).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_key_is_told_at_once_and_the_secret_is_not() {
    let mut lake = S3Lake::new();
    lake.job.set_env(SECRET_VARIABLE, "not-the-secret");
    let refused = lake.job.run().expect_code(2).expect_stderr(&["refused", "keys"]);
    let printed = format!("{}{}", refused.stdout, refused.stderr);
    assert!(!printed.contains("not-the-secret") && !printed.contains("starting over"), "{printed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn upkeep_on_s3_folds_files_and_deletes_those_that_no_version_needs() {
    let settings = "run: { batch: { rows: 100, seconds: 60 } }\n\
                    maintain: { compact: { every: 1s, small_files: 2 }, vacuum: off, log: off }\n";
    let lake = S3Lake::new();
    lake.write(1, settings);
    lake.job.run().expect_code(0);
    assert!(lake.log_contains("orders", "\"operation\":\"OPTIMIZE\"").await, "nothing was compacted");
    // No version but the newest is needed after that.
    std::thread::sleep(Duration::from_millis(2_200));
    let (before, rows) = (lake.tables().await, lake.rows().await);
    let planned = lake.vacuum(&["--dry-run"]);
    assert_eq!(lake.tables().await, before, "a dry run deletes nothing");
    let deleted = lake.vacuum(&[]);
    assert_eq!(deleted, planned);
    let after = lake.tables().await;
    let gone: BTreeSet<&String> = before.keys().filter(|path| !after.contains_key(*path)).collect();
    assert!(gone.iter().all(|path| !path.contains("/_delta_log/")), "{gone:#?}");
    assert!(after.iter().all(|(path, tag)| before.get(path) == Some(tag)), "a vacuum writes nothing to a table");
    assert!(deleted > 0 && gone.len() as u64 == deleted, "{deleted} files were told, and these are gone: {gone:#?}");
    assert_eq!(lake.vacuum(&[]), 0);
    lake.job.verb(&["maintain", "--now", "checkpoint"]).expect_code(0);
    for (found, wanted) in lake.rows().await.iter().zip(&rows) {
        assert_same("a table after the upkeep", found, wanted);
    }
    // The job goes on with what is left.
    lake.write(2, settings);
    lake.job.run().expect_code(0);
    check_demo_lake(&lake.reader(), "shop", &SHOP).await;
}

/// A job that replays the shop to a prefix of its own.
struct S3Lake {
    job: TempJob,
    prefix: String,
    endpoint: String,
}

impl S3Lake {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("demo-{}", COUNT.fetch_add(1, Ordering::SeqCst));
        let endpoint = format!("http://127.0.0.1:{}", Service::s3().port);
        let mut job = TempJob::files(&demo_files("shop"), &["shop.*"], "");
        job.set_env(SECRET_VARIABLE, SECRET);
        let lake = Self { job, prefix, endpoint };
        lake.write(2, "run: { batch: { rows: 100, seconds: 60 } }\n");
        lake
    }

    /// Writes the job file, for the first so many of the shop's binlog files.
    fn write(&self, files: usize, more: &str) {
        let Self { prefix, endpoint, .. } = self;
        let source = TempJob::files_source(&demo_files("shop")[..files], &["shop.*"]);
        let section = format!(
            "lake:\n  path: s3://lake/{prefix}\n  options:\n    aws_endpoint: {endpoint}\n    aws_allow_http: \"true\"\n    \
             aws_region: us-east-1\n    aws_access_key_id: {KEY_ID}\n    aws_secret_access_key: ${{{SECRET_VARIABLE}}}\n"
        );
        self.job.write_with_lake(&source, &section, more);
    }

    /// Vacuums all tables and gives the number of files that were deleted, or would be.
    fn vacuum(&self, more: &[&str]) -> u64 {
        let now = ["maintain", "--json", "--now", "vacuum", "--retention", "1s", "--allow-short-retention"];
        let reports = self.job.verb(&[&now, more].concat()).expect_code(0).stdout;
        let report = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        reports.lines().map(|line| report(line)["files_before"].as_u64().unwrap()).sum()
    }

    fn reader(&self) -> LakeReader {
        let options = [
            ("aws_endpoint", self.endpoint.as_str()),
            ("aws_allow_http", "true"),
            ("aws_region", "us-east-1"),
            ("aws_access_key_id", KEY_ID),
            ("aws_secret_access_key", SECRET),
        ];
        let options = options.map(|(name, value)| (name.to_string(), value.to_string()));
        LakeReader::on_s3(&format!("s3://lake/{}/", self.prefix), HashMap::from(options))
    }

    /// All rows of the shop's tables.
    async fn rows(&self) -> Vec<Content> {
        let (reader, mut rows) = (self.reader(), Vec::new());
        for (table, key) in SHOP {
            let key: Vec<String> = key.iter().map(|name| name.to_string()).collect();
            rows.push(reader.content("shop", table, &key, None).await);
        }
        rows
    }

    fn store(&self) -> AmazonS3 {
        AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name("lake")
            .with_access_key_id(KEY_ID)
            .with_secret_access_key(SECRET)
            .build()
            .unwrap()
    }

    /// All objects of the lake with their tags: equal exactly when nothing was written or removed.
    async fn objects(&self) -> BTreeMap<String, Option<String>> {
        let prefix = Path::from(self.prefix.as_str());
        let objects: Vec<_> = self.store().list(Some(&prefix)).try_collect().await.unwrap();
        objects.into_iter().map(|object| (object.location.to_string(), object.e_tag)).collect()
    }

    /// The objects of tables.
    async fn tables(&self) -> BTreeMap<String, Option<String>> {
        let mut objects = self.objects().await;
        objects.retain(|path, _| !path.contains("/_alluvium/"));
        objects
    }

    /// Whether a commit of a table of the shop has such a part.
    async fn log_contains(&self, table: &str, part: &str) -> bool {
        let (store, prefix) = (self.store(), format!("{}/shop/{table}/_delta_log/", self.prefix));
        for path in self.objects().await.keys().filter(|path| path.starts_with(&prefix) && path.ends_with(".json")) {
            let commit = store.get(&Path::from(path.as_str())).await.unwrap().bytes().await.unwrap();
            if String::from_utf8_lossy(&commit).contains(part) {
                return true;
            }
        }
        false
    }
}
