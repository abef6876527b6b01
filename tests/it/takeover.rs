//! A replica takes the place of its primary: the job goes on with it, by the transactions that it has read.

use crate::harness::{Flavor, READER, SMALL_BATCHES, Server, TempJob, assert_same, source_content};

/// A primary and its replica, which logs what it replicates.
struct Pair {
    primary: Server,
    replica: Server,
}

impl Pair {
    async fn new(flavor: Flavor) -> Self {
        let primary = Server::own(flavor, &[]);
        let replica = Server::own(flavor, &["--server-id=2", "--log-slave-updates=1"]);
        let port = primary.port;
        let follow = match flavor {
            Flavor::Mysql => format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'root', \
                 SOURCE_PASSWORD = 'alluvium', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1"
            ),
            Flavor::Mariadb => format!(
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'root', \
                 MASTER_PASSWORD = 'alluvium', MASTER_USE_GTID = slave_pos"
            ),
        };
        replica.exec_all(&[&follow, "START SLAVE".replace("SLAVE", word(flavor)).as_str()]).await;
        Self { primary, replica }
    }

    /// Waits until the replica has all that the primary has.
    async fn catch_up(&self) {
        let (set, wait) = match self.primary.flavor {
            Flavor::Mysql => ("SELECT @@global.gtid_executed", "SELECT WAIT_FOR_EXECUTED_GTID_SET('{}', 60)"),
            Flavor::Mariadb => ("SELECT @@global.gtid_binlog_pos", "SELECT MASTER_GTID_WAIT('{}', 60)"),
        };
        let set = self.primary.query(set).await[0][0].clone().unwrap();
        let waited = self.replica.query(wait.replace("{}", &set)).await[0][0].clone();
        assert_eq!(waited.as_deref(), Some("0"), "the replica does not follow");
    }

    /// The replica becomes the primary; the old one is gone.
    async fn switch(&self) {
        self.primary.stop();
        let word = word(self.replica.flavor);
        self.replica.exec_all(&[&format!("STOP {word}"), &format!("RESET {word} ALL")]).await;
    }
}

fn word(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Mysql => "REPLICA",
        Flavor::Mariadb => "SLAVE",
    }
}

fn source_of(server: &Server, resume: &str) -> String {
    TempJob::live_source(server, READER, &["d.*"]) + &format!("  resume: {resume}\n  snapshot: {{ split_rows: 20 }}\n")
}

async fn assert_equal(server: &Server, job: &TempJob) {
    for table in ["t", "u"] {
        let expected = source_content(&mut server.connect().await, "d", table).await;
        let found = job.lake().content("d", table, &expected.key, None).await;
        assert_same(&format!("{:?} d.{table}", server.flavor), &found, &expected);
    }
}

/// Some transactions over both tables.
async fn change(server: &Server, from: usize) {
    for number in from..from + 60 {
        server
            .exec_all(&[
                &format!("INSERT INTO d.t VALUES ({number}, 'row {number}')"),
                &format!("UPDATE d.t SET v = CONCAT(v, '+') WHERE id % 7 = {}", number % 7),
                &format!("REPLACE INTO d.u VALUES ({}, 'row {number}')", number % 13),
                &format!("DELETE FROM d.t WHERE id = {}", number / 2),
            ])
            .await;
    }
}

async fn create(server: &Server) {
    server
        .exec_all(&[
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, v VARCHAR(200))",
            "CREATE TABLE d.u (id INT PRIMARY KEY, v VARCHAR(200))",
        ])
        .await;
}

/// The job was killed with a batch that it had begun: that is finished with the new primary's log.
#[tokio::test]
async fn a_replica_that_became_the_primary_is_followed_on_whatever_the_job_had_begun() {
    for flavor in Flavor::ALL {
        for point in ["checkpoint.after:3", "commit.after:2", "point.before:2"] {
            let pair = Pair::new(flavor).await;
            create(&pair.primary).await;
            change(&pair.primary, 0).await;
            let job = TempJob::new(&source_of(&pair.primary, "gtid"), SMALL_BATCHES);
            job.run().expect_code(0);
            change(&pair.primary, 100).await;
            let killed = job.spawn(&["run"], &[("ALLUVIUM_FAILPOINT", point)]).wait();
            assert!(!killed.status.success(), "{killed:?}");
            pair.catch_up().await;
            pair.switch().await;
            change(&pair.replica, 200).await;

            job.write(&source_of(&pair.replica, "gtid"), SMALL_BATCHES);
            let checked = job.verb(&["check"]).stdout;
            assert!(checked.contains("the next run goes on with it"), "{checked}");
            job.run().expect_code(0).expect_stderr(&["another server has taken over"]);
            assert_equal(&pair.replica, &job).await;
            let status = job.verb(&["status", "--json"]).expect_code(0).stdout;
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            assert!(status["position"].as_str().unwrap().ends_with("@1"), "{status}");
            // And on, as with any server.
            change(&pair.replica, 300).await;
            job.run().expect_code(0);
            assert_equal(&pair.replica, &job).await;
        }
    }
}

/// The tables' rows are read from one server, and the rest of them from the other.
#[tokio::test]
async fn a_first_load_goes_on_with_the_replica() {
    for flavor in Flavor::ALL {
        let pair = Pair::new(flavor).await;
        create(&pair.primary).await;
        let rows: Vec<String> = (1000..1600).map(|id| format!("({id}, 'row {id}')")).collect();
        pair.primary.exec(format!("INSERT INTO d.t VALUES {}", rows.join(", "))).await;
        let job = TempJob::new(&source_of(&pair.primary, "gtid"), "run:\n  batch: { rows: 20 }\n");
        let killed = job.spawn(&["run"], &[("ALLUVIUM_FAILPOINT", "commit.before:3")]).wait();
        assert!(!killed.status.success(), "{killed:?}");
        change(&pair.primary, 200).await;
        pair.catch_up().await;
        pair.switch().await;
        job.write(&source_of(&pair.replica, "gtid"), "run:\n  batch: { rows: 20 }\n");
        job.run().expect_code(0);
        assert_equal(&pair.replica, &job).await;
    }
}

/// The primary's last transactions were read, and never came to the replica.
#[tokio::test]
async fn a_replica_that_lacks_transactions_that_were_read_is_refused() {
    for flavor in Flavor::ALL {
        let pair = Pair::new(flavor).await;
        create(&pair.primary).await;
        change(&pair.primary, 0).await;
        pair.catch_up().await;
        pair.replica.exec(format!("STOP {}", word(flavor))).await;
        pair.primary.exec("INSERT INTO d.t VALUES (1000, 'lost')").await;
        let job = TempJob::new(&source_of(&pair.primary, "gtid"), SMALL_BATCHES);
        job.run().expect_code(0);
        pair.switch().await;
        change(&pair.replica, 100).await;
        job.write(&source_of(&pair.replica, "gtid"), SMALL_BATCHES);
        job.run().expect_code(4).expect_stderr(&["that were read before"]);
        let found = job.lake().content("d", "t", &["id".to_string()], None).await;
        assert!(
            found.rows.contains_key(&["1000".to_string()][..]) && !found.rows.contains_key(&["159".to_string()][..])
        );
    }
}

/// MariaDB's server ids may be those of servers that have nothing to do with each other, and a position means nothing to another server.
#[tokio::test]
async fn a_server_that_cannot_be_known_by_its_transactions_is_refused() {
    for (flavor, resume) in [(Flavor::Mariadb, "auto"), (Flavor::Mysql, "position")] {
        let pair = Pair::new(flavor).await;
        create(&pair.primary).await;
        change(&pair.primary, 0).await;
        let job = TempJob::new(&source_of(&pair.primary, resume), SMALL_BATCHES);
        job.run().expect_code(0);
        pair.catch_up().await;
        pair.switch().await;
        job.write(&source_of(&pair.replica, resume), SMALL_BATCHES);
        job.run().expect_code(4).expect_stderr(&["resume"]);
    }
}

#[tokio::test]
async fn a_log_that_was_reset_stops_the_job_before_anything_is_applied() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        create(&server).await;
        change(&server, 0).await;
        let job = TempJob::new(&source_of(&server, "auto"), SMALL_BATCHES);
        job.run().expect_code(0);
        let before = job.lake().content("d", "t", &["id".to_string()], None).await;
        let reset = match flavor {
            Flavor::Mysql => "RESET BINARY LOGS AND GTIDS",
            Flavor::Mariadb => "RESET MASTER",
        };
        server.exec(reset).await;
        change(&server, 100).await;
        job.verb(&["check"]).expect_code(2);
        job.run().expect_code(4).expect_stderr(&["resnapshot"]);
        let after = job.lake().content("d", "t", &["id".to_string()], None).await;
        assert_same(&format!("{flavor:?}"), &after, &before);
    }
}

/// The server comes back from a crash without the transactions that it had acknowledged, and the job read, last.
#[tokio::test]
async fn a_server_that_lost_its_last_transactions_stops_the_job() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        create(&server).await;
        change(&server, 0).await;
        server.stop();
        let (data, kept) = (server.data_folder(), server.data_folder().with_extension("kept"));
        copy(&data, &kept);
        server.start();
        server.exec("INSERT INTO d.t VALUES (1000, 'lost')").await;
        let job = TempJob::new(&source_of(&server, "auto"), SMALL_BATCHES);
        job.run().expect_code(0);
        server.stop();
        std::fs::remove_dir_all(&data).unwrap();
        copy(&kept, &data);
        std::fs::remove_dir_all(&kept).unwrap();
        server.start();
        // Others take the place of those that were lost.
        server.exec_all(&["INSERT INTO d.t VALUES (2000, 'other')", "INSERT INTO d.t VALUES (2001, 'other')"]).await;
        job.run().expect_code(4).expect_stderr(&["resnapshot"]);
        let found = job.lake().content("d", "t", &["id".to_string()], None).await;
        let has = |id: &str| found.rows.contains_key(&[id.to_string()][..]);
        assert!(has("1000") && !has("2000"), "{flavor:?}: nothing may be applied");
    }
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    let copied = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}
