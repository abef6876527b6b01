//! While random transactions run on a live server, the lake equals it: at the end, and at every position that a
//! version of a table carries.

use crate::harness::{Flavor, READER, SMALL_BATCHES, Server, TempJob, assert_same, source_content};
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

/// What a session of MySQL may change of how its changes are logged.
pub const MYSQL_SETTINGS: [&str; 10] = [
    "SET SESSION binlog_row_image = MINIMAL",
    "SET SESSION binlog_row_image = MINIMAL",
    "SET SESSION binlog_row_image = NOBLOB",
    "SET SESSION binlog_row_image = FULL",
    "SET SESSION binlog_row_value_options = PARTIAL_JSON",
    "SET SESSION binlog_row_value_options = ''",
    "SET SESSION binlog_transaction_compression = ON",
    "SET SESSION binlog_transaction_compression = OFF",
    "SET SESSION binlog_rows_query_log_events = ON",
    "SET SESSION gtid_next = 'AUTOMATIC:tagged'",
];

pub const MARIADB_SETTINGS: [&str; 6] = [
    "SET SESSION binlog_row_image = MINIMAL",
    "SET SESSION binlog_row_image = MINIMAL",
    "SET SESSION binlog_row_image = NOBLOB",
    "SET SESSION binlog_row_image = FULL",
    "SET SESSION binlog_annotate_row_events = OFF",
    "SET SESSION binlog_annotate_row_events = ON",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_mysql_whose_sessions_log_each_in_its_own_way_equals_the_lake_at_every_position() {
    check_settings(Flavor::Mysql, seed(8), &MYSQL_SETTINGS, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mariadb_whose_sessions_log_each_in_their_own_way_equals_the_lake_at_every_position() {
    check_settings(Flavor::Mariadb, seed(9), &MARIADB_SETTINGS, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn minimal_images_end_equal_without_deletion_vectors_and_with_feeds_and_while_tables_load() {
    let tables = "tables:\n  - { match: '*.*', merge: copy_on_write, change_feed: on }\n";
    check_settings(Flavor::Mysql, seed(10), &MYSQL_SETTINGS[..1], tables).await;
    for flavor in Flavor::ALL {
        check_load(flavor, seed(11), &MYSQL_SETTINGS[..1]).await;
    }
}

/// Two transactions are prepared; others change the same tables before one of them is committed and the other rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_are_prepared_count_from_their_commit_on() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        server.exec_all(&["CREATE DATABASE xa", "CREATE TABLE xa.t (id INT PRIMARY KEY, v INT)"]).await;
        let source = TempJob::live_source(&server, READER, &["xa.*"]);
        let job = TempJob::new(&source, SMALL_BATCHES);
        job.run().expect_code(0);
        let follower = job.spawn(&["run", "--follow"], &[]);
        for (id, name) in [(1, "kept"), (2, "dropped")] {
            let insert = format!("INSERT INTO xa.t VALUES ({id}, 0)");
            let prepare =
                [format!("XA START '{name}'"), insert, format!("XA END '{name}'"), format!("XA PREPARE '{name}'")];
            server.exec_all(&prepare.each_ref().map(String::as_str)).await;
        }
        server.exec_all(&["INSERT INTO xa.t VALUES (10, 1)", "UPDATE xa.t SET v = 2 WHERE id = 10"]).await;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        follower.terminate().expect_code(0);
        server.exec_all(&["XA COMMIT 'kept'", "XA ROLLBACK 'dropped'", "UPDATE xa.t SET v = 3 WHERE id = 1"]).await;
        job.run().expect_code(0);
        let mut connection = server.connect().await;
        let expected = source_content(&mut connection, "xa", "t").await;
        assert_eq!(expected.rows.len(), 2);
        let found = job.lake().content("xa", "t", &expected.key, None).await;
        assert_same(&format!("{flavor:?}"), &found, &expected);
    }
}

async fn check_settings(flavor: Flavor, seed: u64, settings: &[&'static str], more: &str) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    workload.create_tables().await;
    workload.with_settings(settings);
    workload.run_blind(40).await;
    check_workload(&server, workload, more).await;
}

async fn check_followed(flavor: Flavor, seed: u64, more: &str) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    workload.create_tables().await;
    workload.run_blind(40).await;
    check_workload(&server, workload, more).await;
}

/// Load, then follow while the writer writes, then stop and catch up. `more` is YAML for the job file's top level.
pub async fn check_workload(server: &Server, mut workload: Workload, more: &str) {
    let source = TempJob::live_source(server, READER, &[&workload.pattern()]);
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
    check_load(flavor, seed, &[]).await;
}

async fn check_load(flavor: Flavor, seed: u64, settings: &[&'static str]) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    workload.create_tables().await;
    workload.with_settings(settings);
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
