//! The binary is killed at every named step of a batch and at random moments; after a restart the lake equals
//! the server as if nothing had happened.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use alluvium::failpoint;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{BUSY_UPKEEP, Flavor, Outcome, READER, Server, TempJob};
use crate::oracle::{Workload, assert_lake_equals, assert_versions, seed};

/// What `std::process::abort` ends a process with.
const SIGABRT: i32 = 6;

#[tokio::test(flavor = "multi_thread")]
async fn mysql_a_crash_at_the_first_passing_of_a_step_loses_nothing() {
    check_every_step(Flavor::Mysql, 1, seed(11)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mysql_a_crash_at_a_later_passing_of_a_step_loses_nothing() {
    check_every_step(Flavor::Mysql, 3, seed(12)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_a_crash_at_a_step_loses_nothing() {
    check_every_step(Flavor::Mariadb, 2, seed(13)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_during_the_first_load_loses_nothing() {
    let server = Server::own(Flavor::Mysql, &[]);
    let mut workload = Workload::new(seed(14), &server).await;
    workload.create_tables().await;
    workload.without_ddl();
    workload.run_blind(80).await;
    let source = TempJob::live_source(&server, READER, &[&workload.pattern()]) + "  snapshot: { split_rows: 15 }\n";
    for step in failpoint::ALL {
        let job = TempJob::new(&source, BUSY_UPKEEP);
        for times in [1, 2, 5] {
            run_armed(&job, step, times);
            workload.run_blind(4).await;
        }
        job.run().expect_code(0);
        assert_lake_equals(&job.lake(), &mut workload).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_at_random_moments_under_a_writer_lose_nothing() {
    for flavor in Flavor::ALL {
        check_random_kills(flavor, seed(15)).await;
    }
}

/// One crash per step, each in the midst of a catch-up of several batches.
async fn check_every_step(flavor: Flavor, times: u32, seed: u64) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    workload.create_tables().await;
    workload.run_blind(40).await;
    let job = TempJob::live(&server, &[&workload.pattern()], BUSY_UPKEEP);
    job.run().expect_code(0);
    let (mut recorded, mut not_reached) = (Vec::new(), Vec::new());
    for step in failpoint::ALL {
        for _ in 0..times {
            recorded.extend(workload.run_with_column(16).await);
        }
        if !run_armed(&job, step, times) {
            not_reached.push(step);
        }
        job.run().expect_code(0);
        assert_lake_equals(&job.lake(), &mut workload).await;
    }
    assert!(not_reached.is_empty(), "no run came to {not_reached:?} {times} times: the test proves nothing about them");
    assert_versions(&job.lake(), &workload.database, &recorded).await;
}

async fn check_random_kills(flavor: Flavor, seed: u64) {
    let server = Server::own(flavor, &[]);
    let mut workload = Workload::new(seed, &server).await;
    let mut random = StdRng::seed_from_u64(seed);
    workload.create_tables().await;
    workload.run_blind(40).await;
    let job = TempJob::live(&server, &[&workload.pattern()], BUSY_UPKEEP);
    job.run().expect_code(0);
    let mut recorded = Vec::new();
    for _ in 0..8 {
        let follower = job.spawn(&["run", "--follow"], &[]);
        recorded.extend(workload.run(15).await);
        tokio::time::sleep(Duration::from_millis(random.random_range(0..1500))).await;
        let outcome = follower.kill9();
        assert!(outcome.status.code().is_none(), "the job ended by itself: {outcome:#?}");
    }
    job.run().expect_code(0);
    assert_lake_equals(&job.lake(), &mut workload).await;
    assert_versions(&job.lake(), &workload.database, &recorded).await;
}

/// A run that dies when it comes to `step` for the `times`-th time. False when it never came there.
fn run_armed(job: &TempJob, step: &str, times: u32) -> bool {
    let armed = format!("{step}:{times}");
    let outcome: Outcome = job.spawn(&["run"], &[(failpoint::VARIABLE, &armed)]).wait();
    match (outcome.status.signal(), outcome.status.code()) {
        (Some(SIGABRT), _) => true,
        (_, Some(0)) => false,
        _ => panic!("a run armed with {armed} ended otherwise: {outcome:#?}"),
    }
}
