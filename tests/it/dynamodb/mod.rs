//! Tables of DynamoDB on moto: whatever a writer does and wherever the job is killed, the lake equals a scan of the source.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use alluvium::failpoint;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{SMALL_BATCHES, Service, TempJob};
use crate::oracle::seed;

mod api;
mod scripted;
mod shards;
mod workload;

use api::Api;
use workload::Workload;

/// A workload with tables of its own on the server that all tests share.
async fn workload(default_seed: u64) -> (Workload, TempJob) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let prefix = format!("t{}_", COUNT.fetch_add(1, Ordering::SeqCst));
    let api = Api::new(Service::dynamodb().port);
    let job = job(&api, &format!("{prefix}*"), SMALL_BATCHES);
    (Workload::new(seed(default_seed), api, &prefix).await, job)
}

fn job(api: &Api, tables: &str, more: &str) -> TempJob {
    job_with(api, tables, "", more)
}

/// `source` are more keys of the section.
fn job_with(api: &Api, tables: &str, source: &str, more: &str) -> TempJob {
    let source = format!(
        "source:\n  type: dynamodb\n  tables: [{tables:?}]\n  region: us-east-1\n  endpoint_url: {}\n  snapshot: {{ split_rows: 15 }}\n{source}",
        api.url()
    );
    let mut job = TempJob::new(&source, more);
    job.set_env("AWS_ACCESS_KEY_ID", "test");
    job.set_env("AWS_SECRET_ACCESS_KEY", "test");
    job
}

#[tokio::test(flavor = "multi_thread")]
async fn items_that_are_there_are_loaded_and_changes_follow() {
    let (mut workload, job) = workload(51).await;
    workload.run(200).await;
    job.verb(&["check"]).expect_code(0);
    for _ in 0..3 {
        job.run().expect_code(0);
        workload.assert_lake_equals(&job.lake()).await;
        workload.run(60).await;
    }
    job.run().expect_code(0);
    workload.assert_lake_equals(&job.lake()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_step_loses_nothing() {
    let (mut workload, job) = workload(52).await;
    workload.run(60).await;
    let mut not_reached = failpoint::ALL.to_vec();
    for step in failpoint::ALL {
        for times in [1, 3] {
            workload.run(50).await;
            workload.put_attribute(&step.replace('.', "_")).await;
            let armed = format!("{step}:{times}");
            let outcome = job.spawn(&["run"], &[(failpoint::VARIABLE, &armed)]).wait();
            match outcome.status.code() {
                Some(0) => {}
                Some(_) => panic!("a run armed with {armed} ended otherwise: {outcome:#?}"),
                None => not_reached.retain(|other| *other != step),
            }
        }
        job.run().expect_code(0);
        workload.assert_lake_equals(&job.lake()).await;
    }
    assert!(not_reached.is_empty(), "no run came to {not_reached:?}: the test proves nothing about them");
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_under_a_writer_lose_nothing() {
    let (mut workload, job) = workload(53).await;
    let mut random = StdRng::seed_from_u64(seed(53));
    workload.run(100).await;
    for _ in 0..8 {
        let follower = job.spawn(&["run", "--follow"], &[]);
        for _ in 0..10 {
            workload.run(10).await;
            tokio::time::sleep(Duration::from_millis(random.random_range(0..300))).await;
        }
        let outcome = follower.kill9();
        assert!(outcome.status.code().is_none(), "the job ended by itself: {outcome:#?}");
    }
    job.run().expect_code(0);
    workload.assert_lake_equals(&job.lake()).await;
}
