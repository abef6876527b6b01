//! What the life of shards does to a job: nothing.

use std::time::Duration;

use super::job;
use super::scripted::Scripted;
use super::workload::Workload;
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
