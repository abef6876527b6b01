//! While random transactions run on a live server, the lake equals it: at the end, and at every position that a
//! version of a table carries.

use crate::harness::{Flavor, READER, SMALL_BATCHES, Server, TempJob};
use crate::oracle::{Workload, assert_lake_equals, assert_versions, seed};

/// Positions that must have been compared for a run to prove anything.
const POSITIONS_MIN: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_that_is_followed_equals_the_lake_at_every_position() {
    check_followed(Flavor::Mysql, seed(1), "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mariadb_that_is_followed_equals_the_lake_at_every_position() {
    check_followed(Flavor::Mariadb, seed(2), "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resuming_by_position_loses_nothing_either() {
    for flavor in Flavor::ALL {
        check_runs(flavor, seed(3), "  resume: position\n").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_by_the_clock_end_equal_each_time() {
    for flavor in Flavor::ALL {
        check_runs(flavor, seed(4), "  resume: gtid\n").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_load_under_a_writer_ends_equal() {
    for flavor in Flavor::ALL {
        check_load_under_writer(flavor, seed(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_writers_at_once_end_equal() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let mut workload = Workload::new(seed(6), server).await;
        workload.create_tables().await;
        let job = TempJob::live(server, &[&workload.pattern()], SMALL_BATCHES);
        job.run().expect_code(0);
        let follower = job.spawn(&["run", "--follow"], &[]);
        workload.run_concurrently(server, 3, 60).await;
        follower.terminate().expect_code(0);
        job.run().expect_code(0);
        assert_lake_equals(&job.lake(), &mut workload).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lake_without_deletion_vectors_and_with_feeds_equals_the_server_at_every_position() {
    let tables = "tables:\n  - { match: '*.*', merge: copy_on_write, change_feed: on }\n";
    check_followed(Flavor::Mysql, seed(7), tables).await;
}

/// Load, then follow while the writer writes, then stop and catch up. `more` is YAML for the job file's top level.
async fn check_followed(flavor: Flavor, seed: u64, more: &str) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    workload.create_tables().await;
    workload.run_blind(40).await;
    let source = TempJob::live_source(&server, READER, &[&workload.pattern()]);
    let job = TempJob::new(&source, &format!("{SMALL_BATCHES}{more}"));
    job.run().expect_code(0);
    assert_lake_equals(&job.lake(), &mut workload).await;
    let follower = job.spawn(&["run", "--follow"], &[]);
    let recorded = workload.run(220).await;
    follower.terminate().expect_code(0);
    job.run().expect_code(0);
    assert_lake_equals(&job.lake(), &mut workload).await;
    let compared = assert_versions(&job.lake(), &workload.database, &recorded).await;
    assert!(compared >= POSITIONS_MIN, "only {compared} positions could be compared");
}

/// Runs that catch up and exit, between which the writer writes.
async fn check_runs(flavor: Flavor, seed: u64, source_more: &str) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    workload.create_tables().await;
    workload.run_blind(20).await;
    let source = TempJob::live_source(&server, READER, &[&workload.pattern()]) + source_more;
    let job = TempJob::new(&source, SMALL_BATCHES);
    let mut recorded = Vec::new();
    for round in 0..4 {
        job.run().expect_code(0);
        assert_lake_equals(&job.lake(), &mut workload).await;
        recorded.extend(workload.run_with_column(30).await);
        if round == 2 {
            server.exec("FLUSH BINARY LOGS").await;
        }
    }
    job.run().expect_code(0);
    assert_lake_equals(&job.lake(), &mut workload).await;
    assert!(assert_versions(&job.lake(), &workload.database, &recorded).await >= POSITIONS_MIN);
}

/// The writer goes on while the tables are loaded in many small splits.
async fn check_load_under_writer(flavor: Flavor, seed: u64) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    workload.create_tables().await;
    workload.run_blind(80).await;
    workload.without_ddl();
    let source = TempJob::live_source(&server, READER, &[&workload.pattern()]) + "  snapshot: { split_rows: 10 }\n";
    let job = TempJob::new(&source, SMALL_BATCHES);
    let mut loader = job.spawn(&["run"], &[]);
    while loader.is_running() {
        workload.run_blind(5).await;
    }
    loader.wait().expect_code(0);
    workload.run_blind(20).await;
    job.run().expect_code(0);
    assert_lake_equals(&job.lake(), &mut workload).await;
}
