//! Two copies of one job at once: one wins, the other stops with a message, and nothing is applied twice.

use std::time::{Duration, Instant};

use crate::harness::{BUSY_UPKEEP, Flavor, Server, TempJob};
use crate::oracle::{Workload, assert_lake_equals, seed};

/// The loser finds out at its next batch, which is at most a second old.
const LOSER_TIME_MAX: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn of_two_copies_of_a_job_one_stops_and_the_lake_stays_right() {
    let server = Server::shared(Flavor::Mysql);
    let mut workload = Workload::new(seed(21), server).await;
    workload.create_tables().await;
    workload.run_blind(20).await;
    let job = TempJob::live(server, &[&workload.pattern()], BUSY_UPKEEP);
    job.run().expect_code(0);
    let mut copies = vec![job.spawn(&["run", "--follow"], &[]), job.spawn(&["run", "--follow"], &[])];
    let started = Instant::now();
    let loser = loop {
        workload.run_blind(5).await;
        if let Some(index) = copies.iter_mut().position(|copy| !copy.is_running()) {
            break copies.remove(index).wait();
        }
        assert!(started.elapsed() < LOSER_TIME_MAX, "two copies still run after {LOSER_TIME_MAX:?}");
    };
    assert_eq!(loser.status.code(), Some(1), "{loser:#?}");
    assert!(loser.stderr.contains("another"), "the message should say that another copy runs: {loser:#?}");
    let mut winner = copies.remove(0);
    assert!(winner.is_running(), "both copies stopped");
    workload.run_blind(20).await;
    winner.terminate().expect_code(0);
    job.run().expect_code(0);
    assert_lake_equals(&job.lake(), &mut workload).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_copies_that_catch_up_at_once_leave_the_lake_right() {
    let server = Server::shared(Flavor::Mariadb);
    let mut workload = Workload::new(seed(22), server).await;
    workload.create_tables().await;
    let job = TempJob::live(server, &[&workload.pattern()], BUSY_UPKEEP);
    for _ in 0..4 {
        workload.run_blind(25).await;
        let copies = [job.spawn(&["run"], &[]), job.spawn(&["run"], &[])];
        let codes = copies.map(|copy| copy.wait()).map(|outcome| outcome.status.code());
        assert!(codes.iter().all(|code| matches!(code, Some(0 | 1))), "{codes:?}");
        job.run().expect_code(0);
        assert_lake_equals(&job.lake(), &mut workload).await;
    }
}
