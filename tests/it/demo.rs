//! The recorded demo: replayed without a server, it gives what the servers held.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{Content, LakeReader, TempJob, assert_same};

pub const SHOP: [(&str, &[&str]); 4] =
    [("customers", &["id"]), ("products", &["sku"]), ("orders", &["id"]), ("order_items", &["order_id", "line"])];
pub const WAREHOUSE: [(&str, &[&str]); 2] = [("stock", &["sku", "site"]), ("shipments", &["id"])];

#[tokio::test]
async fn the_shop_recorded_from_mysql_replays_to_what_the_server_held() {
    check("shop", &SHOP, "").await;
}

#[tokio::test]
async fn the_warehouse_recorded_from_mariadb_replays_to_what_the_server_held() {
    check("warehouse", &WAREHOUSE, "").await;
}

#[tokio::test]
async fn small_batches_give_the_same_tables() {
    check("shop", &SHOP, "run: { batch: { rows: 50, seconds: 60 } }\n").await;
    check("warehouse", &WAREHOUSE, "run: { batch: { rows: 7, seconds: 60 } }\n").await;
}

#[tokio::test]
async fn a_second_run_changes_nothing() {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], "");
    job.run().expect_code(0);
    let versions = |table| job.lake().commits("shop", table).len();
    let before = SHOP.map(|(table, _)| versions(table));
    job.run().expect_code(0);
    assert_eq!(SHOP.map(|(table, _)| versions(table)), before);
}

#[test]
fn make_demo_shows_the_shop_and_a_look_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shown = Command::new(root.join("tests/data/demo.sh")).arg(env!("CARGO_BIN_EXE_alluvium")).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    assert!(shown.status.success(), "{stdout}\n{stderr}");
    for words in ["Teapot", "VERSION AS OF", "alluvium status", "Hamburg"] {
        assert!(stdout.contains(words), "{words:?} is not in\n{stdout}\n{stderr}");
    }
}

async fn check(database: &str, tables: &[(&str, &[&str])], run: &str) {
    let job = TempJob::files(&demo_files(database), &[&format!("{database}.*")], run);
    job.run().expect_code(0);
    check_demo_tables(&job, database, tables).await;
}

/// The lake of a job that has replayed all of a database's files holds what the server held.
pub async fn check_demo_tables(job: &TempJob, database: &str, tables: &[(&str, &[&str])]) {
    check_demo_lake(&job.lake(), database, tables).await;
}

/// The same of a lake.
pub async fn check_demo_lake(lake: &LakeReader, database: &str, tables: &[(&str, &[&str])]) {
    for (table, key) in tables {
        let expected = expected(database, table, key);
        let found = lake.content(database, table, &expected.key, None).await;
        assert_same(&format!("{database}.{table}"), &found, &expected);
    }
}

/// The recorded binlog files of a database, in order.
pub fn demo_files(database: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/demo");
    [1, 2].map(|number| folder.join(format!("{database}-bin.{number:06}"))).to_vec()
}

/// What the server's own SELECT gave at the end of the recording.
pub fn expected(database: &str, table: &str, key: &[&str]) -> Content {
    let key: Vec<String> = key.iter().map(|name| name.to_string()).collect();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/demo/expected/{database}.{table}.tsv"));
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines = text.lines();
    let columns = lines.next().unwrap().split('\t').map(str::to_string).collect();
    let rows = lines.map(|line| line.split('\t').map(unescaped).collect()).collect();
    Content::new(&file.display().to_string(), columns, &key, rows)
}

/// A value as the client's batch mode writes it.
fn unescaped(text: &str) -> Option<String> {
    (text != "\\N").then(|| text.replace("\\n", "\n").replace("\\t", "\t").replace("\\\\", "\\"))
}
