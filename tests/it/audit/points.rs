//! Reads of all tables at consistent points, under upkeep, crashes and a schema change.

use alluvium::failpoint;

use alluvium::query::MomentAsOf;

use super::bank::{Bank, INVARIANTS, TABLES, TOTAL};
use super::{rows, rows_as_of, rows_at, session};
use crate::harness::{Flavor, Server, TempJob};
use crate::oracle::seed;

/// More points would only take time.
const POINTS_MAX: usize = 24;

/// A batch is a few transfers, and upkeep is always due.
const SETTINGS: &str = "run:\n  memory: 256MiB\n  batch: { rows: 12, seconds: 1 }\nmaintain:\n  \
    compact: { every: 1s, small_files: 2, deleted_percent: 5 }\n  vacuum: { every: 1s }\n  checkpoint: { versions: 3 }\n  \
    cluster: { every: 1s }\ntables:\n  - { match: '*.current', cluster_by: [balance] }\n";

#[tokio::test(flavor = "multi_thread")]
async fn mysql_every_consistent_point_of_a_bank_is_right() {
    check(Flavor::Mysql, seed(71)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mariadb_every_consistent_point_of_a_bank_is_right() {
    check(Flavor::Mariadb, seed(72)).await;
}

async fn check(flavor: Flavor, seed: u64) {
    let server = Server::own(flavor, &[]);
    let mut bank = Bank::open(&server, seed).await;
    let job = TempJob::live(&server, &[&bank.pattern()], SETTINGS);
    job.run().expect_code(0);
    let mut recorded = Vec::new();
    for round in 0..6 {
        if round == 3 {
            bank.exec("ALTER TABLE savings ADD COLUMN note VARCHAR(20) NULL").await;
        }
        bank.transfer(30).await;
        recorded.push(Pause { position: bank.position().await, gtids: bank.gtids().await, transfers: bank.transfers });
        let step = failpoint::ALL[(round * 7 + 3) % failpoint::ALL.len()];
        let armed = format!("{step}:2");
        let _ = job.spawn(&["run"], &[(failpoint::VARIABLE, &armed)]).wait();
        job.run().expect_code(0);
    }
    check_all_points(&job, &bank).await;
    check_recorded(&job, &bank, &recorded).await;
    fold(&job).await;
    check_all_points(&job, &bank).await;
    check_recorded(&job, &bank, &recorded).await;
}

/// At every point at which all tables are loaded the invariants hold, and transfers only grow.
async fn check_all_points(job: &TempJob, bank: &Bank) {
    let session = session(job, &bank.database, &TABLES);
    let all = rows(&session, "SELECT position FROM alluvium.batches GROUP BY position ORDER BY max(sequence)");
    let positions: Vec<String> = all.await.unwrap().into_iter().map(|row| row[0].clone().unwrap()).collect();
    assert!(positions.len() > 20, "{positions:?}");
    let (mut before, mut read) = (0, 0);
    // From the last one backwards, so that it is among them.
    let mut some: Vec<&String> = positions.iter().rev().step_by(positions.len().div_ceil(POINTS_MAX)).collect();
    some.reverse();
    for position in some {
        let found = rows_at(job, &bank.database, &TABLES, position, INVARIANTS).await;
        let (point, found) = match found {
            Ok(found) => found,
            Err(error)
                if read == 0 && (error.to_string().contains("loaded") || error.to_string().contains("not part")) =>
            {
                continue;
            }
            Err(error) => panic!("at {position}: {error}"),
        };
        assert_eq!(&point.position, position);
        let row: Vec<i64> = found[0].iter().map(|value| value.as_ref().unwrap().parse().unwrap()).collect();
        let expected = [TOTAL, row[1], 0, 0];
        assert_eq!(row, expected, "total, transfers, orphans, unexplained at {position}");
        assert!(row[1] >= before, "{} transfers at {position}, {before} before", row[1]);
        before = row[1];
        read += 1;
    }
    assert!(read > 10, "only {read} of {} points could be read", positions.len());
    assert_eq!(before, i64::try_from(bank.transfers).unwrap(), "transfers at the last point");
}

/// Where the bank paused, and how many transfers it had made.
struct Pause {
    position: String,
    gtids: String,
    transfers: u64,
}

/// Each pause has all the transfers up to there: by its position, by its transactions, and by the time of the last of them.
async fn check_recorded(job: &TempJob, bank: &Bank, recorded: &[Pause]) {
    let sql = "SELECT count(*) FROM transfers";
    for pause in recorded {
        for at in [&pause.position, &pause.gtids] {
            let (point, found) = rows_at(job, &bank.database, &TABLES, at, sql).await.unwrap();
            assert_eq!(found[0][0], Some(pause.transfers.to_string()), "at {at}, read at {point}");
        }
        let position = &pause.position;
        let time = format!("SELECT max(commit_time) FROM alluvium.batches WHERE position = '{position}'");
        let time = rows(&session(job, &bank.database, &TABLES), &time).await.unwrap().remove(0).remove(0).unwrap();
        let moment = MomentAsOf::time(&time).unwrap();
        let (point, found) = rows_as_of(job, &bank.database, &TABLES, &moment, sql).await.unwrap();
        let found: u64 = found[0][0].as_ref().unwrap().parse().unwrap();
        // MariaDB's times are whole seconds: the point is the last one of its second.
        let is_right = found == pause.transfers || (bank.flavor == Flavor::Mariadb && found > pause.transfers);
        assert!(is_right, "{found} transfers at {time}, read at {point}, not {}", pause.transfers);
        let told = job.verb(&["sql", "--as-of", &time, sql]).expect_code(0);
        assert!(told.stdout.contains(&found.to_string()) && told.stderr.contains(&point.position), "{told:?}");
    }
}

/// Maintenance moves the points into a Delta table, and their files go.
async fn fold(job: &TempJob) {
    let folder = job.lake_folder().join("_alluvium").join(job.name()).join("points");
    let files = || std::fs::read_dir(&folder).map_or(0, |files| files.count());
    assert!(files() > 20);
    job.verb(&["maintain", "--now", "compact"]).expect_code(0);
    assert_eq!(files(), 0);
    let nothing = rows(&session(job, "x", &[]), "SELECT count(DISTINCT sequence) FROM Alluvium.Batches").await.unwrap();
    assert!(nothing[0][0].as_ref().unwrap().parse::<u64>().unwrap() > 20);
}
