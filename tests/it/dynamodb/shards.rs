//! What the life of shards does to a job: nothing.

use std::time::Duration;

use serde_json::json;

use super::api::Table;
use super::scripted::Scripted;
use super::workload::Workload;
use super::{job, job_with};
use crate::harness::{SMALL_BATCHES, TempJob};
use crate::oracle::seed;

async fn scripted(default_seed: u64) -> (Scripted, Workload, TempJob) {
    let seed = seed(default_seed);
    let server = Scripted::start(seed).await;
    let workload = Workload::new(seed, server.api.clone(), "").await;
    let job = job(&server.api, "*", SMALL_BATCHES);
    (server, workload, job)
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_that_end_and_split_lose_nothing_and_mix_up_nothing() {
    let (server, mut workload, job) = scripted(61).await;
    for _ in 0..6 {
        for _ in 0..4 {
            workload.run(20).await;
            server.live_on();
        }
        job.run().expect_code(0);
        workload.assert_lake_equals(&job.lake()).await;
        // All of it was read: what is forgotten now is not missed.
        server.forget();
    }
    assert!(server.shards("orders") > 5, "no shard ended: the test proves nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_while_shards_end_and_split_lose_nothing() {
    let (server, mut workload, job) = scripted(62).await;
    workload.run(60).await;
    for _ in 0..8 {
        let follower = job.spawn(&["run", "--follow"], &[]);
        for _ in 0..8 {
            workload.run(15).await;
            server.live_on();
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        let outcome = follower.kill9();
        assert!(outcome.status.code().is_none(), "the job ended by itself: {outcome:#?}");
    }
    job.run().expect_code(0);
    workload.assert_lake_equals(&job.lake()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_change_between_the_pages_of_a_scan_end_as_they_are() {
    for default_seed in 66..70 {
        let (server, mut workload, job) = scripted(default_seed).await;
        workload.run(250).await;
        server.interfere();
        server.live_on();
        job.run().expect_code(0);
        workload.assert_lake_equals(&job.lake()).await;
        server.live_on();
        job.verb(&["run", "--resnapshot", "dynamodb.orders"]).expect_code(0);
        workload.assert_lake_equals(&job.lake()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_with_another_stream_is_taken_out_and_can_be_loaded_again() {
    let (server, mut workload, job) = scripted(63).await;
    workload.run(80).await;
    job.run().expect_code(0);
    server.renew_stream("orders");
    workload.run(40).await;
    job.run().expect_code(3).expect_stderr(&["dynamodb.orders", "switched off and on", "--resnapshot"]);
    job.verb(&["check"]).expect_code(0);
    job.verb(&["run", "--resnapshot", "dynamodb.orders"]).expect_code(0);
    workload.assert_lake_equals(&job.lake()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_items_are_told_from_deleted_ones() {
    let server = Scripted::start(seed(64)).await;
    let table = Table::new("sessions", &[("id", "S")]);
    server.api.create(&table).await;
    let item = |id: u32| json!({ "id": { "S": id.to_string() } });
    for id in 0..10 {
        server.api.put(&table, &item(id)).await;
    }
    let keeps = job_with(&server.api, "sessions", "  expired: keep\n", "");
    let deletes = job_with(&server.api, "sessions", "", "");
    keeps.run().expect_code(0);
    deletes.run().expect_code(0);
    server.expire("sessions", &item(3));
    server.api.delete(&table, &item(4)).await;
    for (job, rows) in [(keeps, 9), (deletes, 8)] {
        job.run().expect_code(0);
        let content = job.lake().content("dynamodb", "sessions", &table.key_names(), None).await;
        assert_eq!(content.rows.len(), rows);
        assert!(!content.rows.contains_key(&["4".to_string()][..]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_gone_before_they_were_read_take_their_table_out() {
    let (server, mut workload, job) = scripted(65).await;
    workload.run(80).await;
    job.run().expect_code(0);
    let outcome = job.verb(&["check"]).expect_code(0);
    assert!(outcome.stdout.contains("is forgotten in 23h 5"), "{outcome:#?}");
    put_back_the_position(&job, Duration::from_secs(25 * 3600));
    let outcome = job.verb(&["check"]);
    assert!(outcome.stdout.contains("0.0 h are left"), "{outcome:#?}");
    workload.run(40).await;
    server.forget();
    let before = workload.versions(&job.lake());
    job.run().expect_code(3).expect_stderr(&["dynamodb.orders", "any more", "--resnapshot dynamodb.orders"]);
    assert_eq!(workload.versions(&job.lake()), before, "something was applied after a gap");
    job.verb(&["run", "--resnapshot", "dynamodb.orders", "--resnapshot", "dynamodb.users.v2"]).expect_code(0);
    workload.assert_lake_equals(&job.lake()).await;
}

/// Makes the job's position that much older than it is, as if it had not run since.
fn put_back_the_position(job: &TempJob, by: Duration) {
    let by_ms = u64::try_from(by.as_millis()).unwrap();
    let ledger = job.lake_folder().join(format!("_alluvium/{}/ledger", job.name()));
    for entry in std::fs::read_dir(ledger).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let mut parts = text.split("\"order\":[");
        let mut older = parts.next().unwrap().to_string();
        for part in parts {
            let (number, rest) = part.split_once(',').unwrap();
            let time: u64 = number.parse().unwrap();
            older += &format!("\"order\":[{},{rest}", time.saturating_sub(by_ms));
        }
        // The time since which records count is older too.
        let since = |text: &str| text.replace("\\\"since_ms\\\":1", "\\\"since_ms\\\":-1");
        std::fs::write(&path, since(&older)).unwrap();
    }
}
