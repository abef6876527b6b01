//! What is wrong outside ends in its own message and exit code, with nothing lost and nothing half written.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::demo::{SHOP, check_demo_tables, demo_files};
use crate::harness::{Flavor, READER, SMALL_BATCHES, Server, TempJob};
use crate::oracle::{Workload, assert_lake_equals, seed};

#[tokio::test]
async fn a_wrong_password_is_named_and_never_shown() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let mut job = TempJob::live(server, &["shop.*"], "");
        job.set_env("ALLUVIUM_TEST_PASSWORD", "not the password");
        let outcome = job.run().expect_code(2).expect_stderr(&[READER, "127.0.0.1", "password"]);
        assert!(!outcome.stderr.contains("not the password") && !outcome.stdout.contains("not the password"));
    }
}

#[tokio::test]
async fn missing_grants_are_named_with_the_statement_that_gives_them() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = table_with_rows(server).await;
        let user = format!("reader_{database}");
        server.create_user(&user, &[&format!("SELECT ON {database}.*")]).await;
        let job = TempJob::live_as(server, &user, &[&format!("{database}.*")], "");
        job.run().expect_code(2).expect_stderr(&["REPLICATION SLAVE"]);
        assert!(!job.lake().has_table(&database, "t"));
    }
}

#[tokio::test]
async fn a_server_that_logs_statements_is_refused_with_the_statement_that_mends_it() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &["--binlog-format=STATEMENT"]);
        let database = table_with_rows(&server).await;
        let job = TempJob::live(&server, &[&format!("{database}.*")], "");
        job.run().expect_code(2).expect_stderr(&["binlog_format", "ROW"]);
    }
}

#[tokio::test]
async fn a_table_without_a_key_is_left_out_and_the_others_are_loaded() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = table_with_rows(server).await;
        server.exec(format!("CREATE TABLE {database}.keyless (a INT)")).await;
        let job = TempJob::live(server, &[&format!("{database}.*")], "");
        let outcome = job.run().expect_code(3);
        let said = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(said.contains("keyless") && said.contains("key"), "{said}");
        let rows = job.lake().content(&database, "t", &["id".to_string()], None).await.rows;
        assert_eq!(rows.len(), 2);
    }
}

/// A file that a replica reads is not purged, and a server needs a moment to find out that its replica is gone.
async fn purge_all_but_the_last(server: &Server) {
    for _ in 0..100 {
        let files = server.query("SHOW BINARY LOGS").await;
        if files.len() == 1 {
            return;
        }
        let last = files.last().unwrap()[0].clone().unwrap();
        server.exec(format!("PURGE BINARY LOGS TO '{last}'")).await;
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the log is not purged");
}

#[tokio::test]
async fn a_purged_log_stops_the_job_with_what_is_left() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        let database = table_with_rows(&server).await;
        let job = TempJob::live(&server, &[&format!("{database}.*")], "");
        job.run().expect_code(0);
        let insert = format!("INSERT INTO {database}.t VALUES (3, 'lost')");
        server.exec_all(&[&insert, "FLUSH BINARY LOGS", "FLUSH BINARY LOGS"]).await;
        purge_all_but_the_last(&server).await;
        let checked = job.verb(&["check"]).expect_code(2).stdout;
        assert!(checked.contains("resnapshot") && checked.contains("position"), "{checked}");
        job.run().expect_code(4).expect_stderr(&["start again", "resnapshot"]);
        let rows = job.lake().content(&database, "t", &["id".to_string()], None).await.rows;
        assert_eq!(rows.len(), 2, "nothing may be applied");
    }
}

#[tokio::test]
async fn another_server_behind_the_address_stops_the_job() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        let database = table_with_rows(&server).await;
        let job = TempJob::live(&server, &[&format!("{database}.*")], "");
        job.run().expect_code(0);
        server.stop();
        std::fs::remove_dir_all(server.data_folder()).unwrap();
        server.start();
        server.exec(format!("CREATE DATABASE {database}")).await;
        fill_table(&server, &database).await;
        server.exec(format!("INSERT INTO {database}.t VALUES (3, 'other')")).await;
        job.verb(&["check"]).expect_code(2);
        job.run().expect_code(4);
        let rows = job.lake().content(&database, "t", &["id".to_string()], None).await.rows;
        assert_eq!(rows.len(), 2, "nothing may be applied");
    }
}

#[tokio::test]
async fn a_server_that_is_down_is_an_error_to_retry() {
    let server = Server::own(Flavor::Mariadb, &[]);
    let database = table_with_rows(&server).await;
    let job = TempJob::live(&server, &[&format!("{database}.*")], "");
    job.run().expect_code(0);
    server.stop();
    job.run().expect_code(1).expect_stderr(&["127.0.0.1"]);
    server.start();
    server.exec(format!("INSERT INTO {database}.t VALUES (3, 'later')")).await;
    job.run().expect_code(0);
    assert_eq!(job.lake().content(&database, "t", &["id".to_string()], None).await.rows.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_break_in_the_middle_lose_nothing() {
    for flavor in Flavor::ALL {
        let server = Server::own(flavor, &[]);
        let mut workload = Workload::new(seed(31), &server).await;
        workload.create_tables().await;
        workload.run_blind(30).await;
        let source = TempJob::live_source(&server, READER, &[&workload.pattern()]);
        let job = TempJob::new(&source, SMALL_BATCHES);
        job.run().expect_code(0);
        let breaking = source.replace(&server.port.to_string(), &breaking_proxy(server.port, 31).to_string());
        job.write(&breaking, SMALL_BATCHES);
        for _ in 0..6 {
            workload.run_blind(20).await;
            let code = job.run().status.code();
            assert!(matches!(code, Some(0 | 1)), "{code:?}");
        }
        job.write(&source, SMALL_BATCHES);
        job.run().expect_code(0);
        assert_lake_equals(&job.lake(), &mut workload).await;
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_binlog_file_is_found_and_named() {
    let flip = |bytes: &mut Vec<u8>| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x10;
    };
    check_damaged(1, &["checksum", "shop-bin.000002"], flip).await;
}

#[tokio::test]
async fn a_binlog_file_that_ends_within_an_event_is_named_with_the_offset() {
    check_damaged(1, &["shop-bin.000002"], |bytes| bytes.truncate(bytes.len() * 2 / 3 + 1)).await;
}

#[tokio::test]
async fn a_file_that_is_no_binlog_is_refused() {
    check_damaged(1, &["shop-bin.000002"], |bytes| bytes[..4].copy_from_slice(b"PAR1")).await;
}

#[tokio::test]
async fn an_encrypted_binlog_is_refused_by_name() {
    check_damaged(2, &["encrypt"], |bytes| bytes[..4].copy_from_slice(b"\xfdbin")).await;
}

/// The second file of the demo is damaged: the run fails with this code and these words, and once the file is whole
/// again the job goes on as if nothing had been.
async fn check_damaged(code: i32, words: &[&str], damage: impl Fn(&mut Vec<u8>)) {
    let recorded = demo_files("shop");
    let job = TempJob::new("source:\n  type: binlog_files\n", "");
    let files: Vec<PathBuf> = recorded.iter().map(|file| job.folder().join(file.file_name().unwrap())).collect();
    std::fs::copy(&recorded[0], &files[0]).unwrap();
    let whole = std::fs::read(&recorded[1]).unwrap();
    let mut damaged = whole.clone();
    damage(&mut damaged);
    std::fs::write(&files[1], damaged).unwrap();
    let source = format!("source:\n  type: binlog_files\n  files: {files:?}\n  tables: [\"shop.*\"]\n");
    job.write(&source, "");
    job.run().expect_code(code).expect_stderr(words);
    std::fs::write(&files[1], whole).unwrap();
    job.run().expect_code(0);
    check_demo_tables(&job, "shop", &SHOP).await;
}

/// A database with the table `t` and two rows.
async fn table_with_rows(server: &Server) -> String {
    let database = server.new_database("bad").await;
    fill_table(server, &database).await;
    database
}

async fn fill_table(server: &Server, database: &str) {
    server
        .exec_all(&[
            &format!("CREATE TABLE {database}.t (id INT PRIMARY KEY, word VARCHAR(20))"),
            &format!("INSERT INTO {database}.t VALUES (1, 'one'), (2, 'two')"),
        ])
        .await;
}

/// A port that forwards to the server and cuts most connections after a random number of the server's bytes.
fn breaking_proxy(server_port: u16, seed: u64) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut random = StdRng::seed_from_u64(seed);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server_port)) else { continue };
            let bytes_max = if random.random_bool(0.2) { usize::MAX } else { random.random_range(200..20_000) };
            let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || forward(from_client, to_server, usize::MAX));
            std::thread::spawn(move || forward(server, client, bytes_max));
        }
    });
    port
}

fn forward(mut from: TcpStream, mut to: TcpStream, bytes_max: usize) {
    let mut buffer = [0; 4096];
    let mut left = bytes_max;
    while let Ok(count) = from.read(&mut buffer)
        && count > 0
        && to.write_all(&buffer[..count.min(left)]).is_ok()
        && left > count
    {
        left -= count;
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
