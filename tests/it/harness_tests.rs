//! Tests of the harness itself: what it claims of servers and of comparing must hold before anything is proven by it.

use crate::harness::{Flavor, Server, TempJob, source_content};
use crate::oracle::Workload;

#[tokio::test]
async fn a_server_of_each_flavor_answers_as_root() {
    for flavor in Flavor::ALL {
        let rows = Server::shared(flavor).query("SELECT @@log_bin, CAST(@@binlog_row_metadata AS CHAR), NULL").await;
        assert_eq!(rows, vec![vec![Some("1".into()), Some("FULL".into()), None]]);
    }
}

#[tokio::test]
async fn a_killed_server_starts_again_on_its_data() {
    let server = Server::own(Flavor::Mariadb, &["--binlog-checksum=NONE"]);
    server.exec("CREATE DATABASE test").await;
    server.exec("CREATE TABLE test.t (id INT PRIMARY KEY)").await;
    server.exec("INSERT INTO test.t VALUES (1)").await;
    server.kill9();
    server.start();
    let rows = server.query("SELECT id, CAST(@@binlog_checksum AS CHAR) FROM test.t").await;
    assert_eq!(rows, vec![vec![Some("1".into()), Some("NONE".into())]]);
    server.stop();
}

#[tokio::test]
async fn values_of_a_server_are_canonical() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = server.new_database("canonical").await;
        server
            .exec_all(&[
                &format!(
                    "CREATE TABLE {database}.t (id INT PRIMARY KEY, f FLOAT, b BIT(9), d DATETIME(3), t TIME(1), g POINT, x BINARY(3), z DATE)"
                ),
                &format!(
                    "INSERT INTO {database}.t VALUES (7, 0.1, b'100000001', '2024-02-29 01:02:03.5', '-838:59:58.5', \
                     ST_GeomFromText('POINT(1 2)'), 'a', '0000-00-00')"
                ),
            ])
            .await;
        let content = source_content(&mut server.connect().await, &database, "t").await;
        let point = "0101000000000000000000F03F0000000000000040";
        let expected = [
            ("b", Some("257")),
            ("d", Some("2024-02-29 01:02:03.500000")),
            ("f", Some("0.10000000149011612")),
            ("g", Some(point)),
            ("id", Some("7")),
            ("t", Some("-3020398500000")),
            ("x", Some("610000")),
            ("z", None),
        ];
        let row = content.rows[&vec!["7".to_string()]].iter().map(Option::as_deref);
        let found: Vec<_> = content.columns.iter().map(String::as_str).zip(row).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn a_run_of_the_binary_gives_its_exit_code_and_output() {
    let job = TempJob::new("source:\n  type: nonsense\n", "");
    let outcome = job.run().expect_code(2);
    assert!(outcome.stdout.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_seed_gives_one_content() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let mut contents = Vec::new();
        for _ in 0..2 {
            let mut workload = Workload::new(7, server).await;
            workload.create_tables().await;
            let recorded = workload.run(150).await;
            assert_eq!(*recorded.last().unwrap().tables, workload.content().await);
            let mut content = workload.content().await;
            // One of its columns is the server's clock.
            content.remove("defaults");
            contents.push(content);
        }
        assert_eq!(contents[0], contents[1]);
        let rows: Vec<(&String, usize)> =
            contents[0].iter().map(|(table, content)| (table, content.rows.len())).collect();
        println!("{flavor:?}: {rows:?}");
        assert!(rows.iter().filter(|(_, rows)| *rows > 3).count() >= 6, "the writer left too little: {rows:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_writers_write() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let mut workload = Workload::new(8, server).await;
        workload.create_tables().await;
        workload.run_concurrently(server, 3, 30).await;
        assert!(workload.content().await.values().any(|content| !content.rows.is_empty()));
    }
}
