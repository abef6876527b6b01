//! Servers that write and keep their log in other ways than most, and connections that do not hold: the lake equals the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{Flavor, Proxy, READER, SMALL_BATCHES, Server, TempJob};
use crate::oracle::{Workload, assert_lake_equals, seed};
use crate::oracle_tests::{MARIADB_SETTINGS, MYSQL_SETTINGS, check_workload};

/// Bytes after which connections break: from within the log-in to some batches.
const BYTES_MIN: u64 = 200;
const BYTES_MAX: u64 = 60_000;
/// Exit code of a run that gave up for now.
const RETRY: i32 = 1;

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_mysql_with_semi_synchronous_commits_equals_the_lake() {
    let options = [
        "--plugin-load-add=semisync_source.so",
        "--loose-rpl-semi-sync-source-enabled=1",
        "--loose-rpl-semi-sync-source-timeout=10",
        "--binlog-transaction-compression=ON",
        "--binlog-rows-query-log-events=ON",
    ];
    let server = Server::own(Flavor::Mysql, &options);
    server.stop();
    let folder = server.data_folder();
    std::fs::write(folder.join("mysqld.my"), r#"{ "components": "file://component_keyring_file" }"#).unwrap();
    let keys = format!(r#"{{ "path": {:?}, "read_only": false }}"#, folder.join("keys"));
    std::fs::write(folder.join("component_keyring_file.cnf"), keys).unwrap();
    server.start();
    server.exec_all(&["SET PERSIST binlog_encryption = ON", "FLUSH BINARY LOGS"]).await;
    let mut workload = Workload::new(seed(20), &server).await;
    workload.create_tables().await;
    workload.with_settings(&MYSQL_SETTINGS);
    workload.run_blind(20).await;
    check_workload(&server, workload, "").await;
    let logs = server.query("SHOW BINARY LOGS").await;
    assert_eq!(logs.last().unwrap()[2].as_deref(), Some("Yes"), "the log is encrypted: {logs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_mariadb_with_domains_and_semi_synchronous_commits_equals_the_lake() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, "1;770A8A65DA156D24EE2A093277530142A5F7E9C5A5F3B1D0E4A1B2C3D4E5F607\n").unwrap();
    let options = [
        "--plugin-load-add=file_key_management",
        &format!("--file-key-management-filename={}", keys.display()),
        "--encrypt-binlog=ON",
        "--log-bin-compress=ON",
        "--log-bin-compress-min-len=10",
        "--rpl-semi-sync-master-enabled=ON",
        "--rpl-semi-sync-master-timeout=10",
    ];
    let server = Server::own(Flavor::Mariadb, &options);
    let mut workload = Workload::new(seed(21), &server).await;
    workload.create_tables().await;
    let domains =
        ["SET SESSION gtid_domain_id = 7", "SET SESSION gtid_domain_id = 4294967295", "SET SESSION server_id = 9"];
    workload.with_settings(&[&MARIADB_SETTINGS[..], &domains].concat());
    workload.run_blind(20).await;
    check_workload(&server, workload, "").await;
    let encrypted = server.query("SELECT @@encrypt_binlog").await;
    assert_eq!(encrypted[0][0].as_deref(), Some("1"));
    let set = server.query("SELECT @@gtid_binlog_pos").await[0][0].clone().unwrap();
    assert!(set.contains("7-") && set.contains(','), "several domains: {set}");
}

/// Every connection of the job breaks after some bytes, in the first load and while it follows; it goes on by itself, or by the next run.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_all_the_time_lose_and_double_nothing() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &["--max-connections=2000"]);
        let seed = seed(22);
        let mut workload = Workload::new(seed, &server).await;
        workload.create_tables().await;
        workload.run_blind(60).await;
        workload.without_ddl();
        let (breaking, mut random) = (Arc::new(AtomicBool::new(true)), StdRng::seed_from_u64(seed));
        let limit = {
            let breaking = breaking.clone();
            move || breaking.load(Ordering::SeqCst).then(|| random.random_range(BYTES_MIN..BYTES_MAX))
        };
        let proxy = Proxy::start(server.port, limit).await;
        let source = TempJob::live_source(&server, READER, &[&workload.pattern()]);
        let source = source.replace(&format!(":{}", server.port), &format!(":{}", proxy.port));
        let job = TempJob::new(&(source + "  snapshot: { split_rows: 10 }\n"), SMALL_BATCHES);
        let (mut follower, mut gave_up) = (job.spawn(&["run", "--follow"], &[]), 0);
        for _ in 0..50 {
            workload.run_blind(3).await;
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            if !follower.is_running() {
                follower.wait().expect_code(RETRY);
                gave_up += 1;
                follower = job.spawn(&["run", "--follow"], &[]);
            }
        }
        breaking.store(false, Ordering::SeqCst);
        let outcome = follower.terminate();
        assert!([0, RETRY].contains(&outcome.status.code().unwrap()), "{outcome:?}");
        println!("{flavor:?}: {} bytes through broken connections, {gave_up} runs gave up", proxy.passed());
        job.run().expect_code(0);
        assert_lake_equals(&job.lake(), &mut workload).await;
    }
}
