//! Tables that are divided by columns, and tables without deletion vectors, as other engines read them.

use super::Engine;
use crate::harness::{Content, Flavor, LakeReader, Server, TempJob, assert_same, source_content};

/// Values that are hard to put into a path, or to tell apart.
const AWKWARD: [&str; 12] = [
    "''",
    "' '",
    "'a/b'",
    "'%'",
    "'a%2Fb'",
    "'ü='",
    "'it''s'",
    "'..'",
    "'\\\"'",
    "'new\\nline'",
    "'__HIVE_DEFAULT_PARTITION__'",
    "'null'",
];

const TABLES: &str = "tables:
  - { match: '*.regions', partition_by: [region], change_feed: on }
  - { match: '*.kinds', partition_by: [kind], merge: copy_on_write, change_feed: on }
  - { match: '*.moments', partition_by: ['day(created)', 'month(seen)', 'year(born)'] }
  - { match: '*.plain', merge: copy_on_write }
  - { match: '*.born', partition_by: ['year(day)'], merge: copy_on_write }
";

/// Each table with its partition columns.
const DIVIDED: [(&str, &[&str]); 5] = [
    ("regions", &["region"]),
    ("kinds", &["kind"]),
    ("moments", &["created_day", "seen_month", "born_year"]),
    ("plain", &[]),
    ("born", &["day_year"]),
];

async fn create(server: &Server, database: &str) {
    let text = "varchar(40) character set utf8mb4 collate utf8mb4_0900_bin";
    for (table, columns) in [
        ("regions", format!("id int primary key, region {text}, n int")),
        ("kinds", format!("kind {text}, id int, n int, primary key (kind, id)")),
        ("moments", "id int primary key, created datetime(6), seen timestamp(3) null, born date, n int".to_string()),
        ("plain", "id int primary key, name varchar(40), n int".to_string()),
        ("born", "id int primary key, day date, n int".to_string()),
    ] {
        server.exec(format!("CREATE TABLE `{database}`.`{table}` ({columns})")).await;
    }
    let mut statements = Vec::new();
    for id in 0..60 {
        let value = AWKWARD.get(id % 13).copied().unwrap_or("NULL");
        let kind = AWKWARD[id % 12];
        let (day, month) = (1 + id % 28, 1 + id % 12);
        let moment = if id % 11 == 0 {
            "NULL".to_string()
        } else {
            format!("'{}-{month:02}-{day:02} 23:59:59.999'", 1999 + id % 4)
        };
        statements.extend([
            format!("INSERT INTO `{database}`.regions VALUES ({id}, {value}, 0)"),
            format!("INSERT INTO `{database}`.kinds VALUES ({kind}, {id}, 0)"),
            format!("INSERT INTO `{database}`.moments VALUES ({id}, {moment}, {moment}, DATE({moment}), 0)"),
            format!("INSERT INTO `{database}`.plain VALUES ({id}, {value}, 0)"),
            format!("INSERT INTO `{database}`.born VALUES ({id}, DATE({moment}), 0)"),
        ]);
    }
    server.exec_all(&statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Rows move between partitions, change within one, and go.
async fn change(server: &Server, database: &str, round: usize) {
    for statement in [
        format!("UPDATE `{database}`.regions SET region = {}, n = n + 1 WHERE id % 7 = {round}", AWKWARD[round + 2]),
        format!("UPDATE `{database}`.kinds SET kind = {}, n = n + 1 WHERE id % 7 = {round}", AWKWARD[round + 2]),
        format!("UPDATE `{database}`.moments SET created = created + interval 40 day, n = 9 WHERE id % 7 = {round}"),
        format!("UPDATE `{database}`.moments SET seen = seen - interval 1 year WHERE id % 5 = {round}"),
        format!("UPDATE `{database}`.plain SET n = n + 1 WHERE id % 7 = {round}"),
        format!("UPDATE `{database}`.born SET day = day + interval 1 year WHERE id % 7 = {round}"),
    ] {
        server.exec(statement).await;
    }
    for (table, _) in DIVIDED {
        server.exec(format!("DELETE FROM `{database}`.`{table}` WHERE id % 9 = {round}")).await;
    }
}

/// The server's rows as the lake has them: the empty text of a partition column is null, and parts of dates are columns.
async fn expected(server: &Server, database: &str, table: &str) -> Content {
    let source = source_content(&mut server.connect().await, database, table).await;
    let mut columns = source.columns.clone();
    let position = |name: &str| source.columns.iter().position(|column| column == name);
    let mut rows: Vec<Vec<Option<String>>> = source.rows.values().cloned().collect();
    for name in DIVIDED.iter().find(|(name, _)| *name == table).unwrap().1 {
        if let Some(index) = position(name) {
            rows.iter_mut().filter(|row| row[index].as_deref() == Some("")).for_each(|row| row[index] = None);
            continue;
        }
        let (column, part) = name.rsplit_once('_').unwrap();
        let index = position(column).unwrap();
        columns.push(name.to_string());
        rows.iter_mut().for_each(|row| {
            let date = row[index].clone();
            row.push(date.map(|date| match part {
                "year" => date[..4].to_string(),
                "month" => format!("{}-01", &date[..7]),
                _ => date[..10].to_string(),
            }));
        });
    }
    Content::new(table, columns, &["id".to_string()], rows)
}

async fn compare(engine: &Engine, server: &Server, database: &str, lake: &LakeReader) {
    let key = vec!["id".to_string()];
    let asked: Vec<_> =
        DIVIDED.iter().map(|(table, _)| (lake.table_folder(database, table), None, key.clone())).collect();
    for (found, (table, _)) in engine.read(&asked).iter().zip(DIVIDED) {
        let wanted = expected(server, database, table).await;
        assert_same(&format!("{table} by {}", engine.argument), found, &wanted);
        assert_same(
            &format!("{table} by the deltalake crate"),
            &lake.content(database, table, &key, None).await,
            &wanted,
        );
    }
}

/// Conditions that an engine may turn into conditions on partition columns.
async fn compare_pruned(engine: &Engine, server: &Server, database: &str, lake: &LakeReader) {
    let key = vec!["id".to_string()];
    let later = |row: &Vec<Option<String>>, column: usize| row[column].as_deref().is_some_and(|at| at >= "2001-06-15");
    for column in ["created", "seen", "born"] {
        let mut wanted = expected(server, database, "moments").await;
        let index = wanted.columns.iter().position(|name| name == column).unwrap();
        wanted.rows.retain(|_, row| later(row, index));
        assert!(!wanted.rows.is_empty());
        let kind = if column == "born" { "DATE" } else { "TIMESTAMP" };
        let time = if column == "born" { "" } else { " 00:00:00" };
        let condition = format!("{column} >= {kind} '2001-06-15{time}'");
        let asked = (lake.table_folder(database, "moments"), None, key.clone());
        let found = engine.read_where(&condition, &[asked]).remove(0);
        assert_same(&format!("{condition} by {}", engine.argument), &found, &wanted);
    }
}

/// The feed, replayed from the table's first version on, makes the table.
async fn compare_feed(server: &Server, database: &str, table: &str, lake: &LakeReader) {
    let asked = (lake.table_folder(database, table), None, vec!["id".to_string()]);
    let found = replayed(Engine::spark().read_changes(&[asked]).remove(0));
    assert_same(&format!("the feed of {table} by Spark"), &found, &expected(server, database, table).await);
}

/// The table that a change data feed makes, of a table with the key `id`.
///
/// # Panics
/// When a row is inserted twice, or is not what it was before it is changed.
pub fn replayed(feed: Content) -> Content {
    let position = |name: &str| feed.columns.iter().position(|column| column == name).unwrap();
    let (id, version, kind) = (position("id"), position("_commit_version"), position("_change_type"));
    let text = |row: &[Option<String>], index: usize| row[index].clone().unwrap();
    let mut changes: Vec<_> = feed.rows.into_values().collect();
    let order = ["update_preimage", "delete", "insert", "update_postimage"];
    let place = |row: &[Option<String>]| order.iter().position(|kind_| *kind_ == text(row, kind)).unwrap();
    changes.sort_by_key(|row| (text(row, version).parse::<u64>().unwrap(), place(row)));
    let mut rows: std::collections::BTreeMap<String, Vec<Option<String>>> = std::collections::BTreeMap::new();
    for row in changes {
        let values: Vec<_> =
            (0..row.len()).filter(|at| *at != version && *at != kind).map(|at| row[at].clone()).collect();
        let known = rows.get(&text(&row, id)) == Some(&values);
        match text(&row, kind).as_str() {
            "insert" => assert!(rows.insert(text(&row, id), values).is_none(), "inserted twice: {row:?}"),
            "update_preimage" => assert!(known, "not what was there: {row:?}"),
            "delete" => assert!(known && rows.remove(&text(&row, id)).is_some(), "not what was there: {row:?}"),
            _ => assert!(rows.insert(text(&row, id), values).is_some(), "not there: {row:?}"),
        }
    }
    let columns = feed.columns.into_iter().filter(|name| !name.starts_with('_')).collect();
    Content::new("the feed", columns, &["id".to_string()], rows.into_values().collect())
}

/// Divided tables after some changes.
async fn changed(server: &Server) -> (TempJob, String) {
    let database = server.new_database("divided").await;
    create(server, &database).await;
    let job = TempJob::live(server, &[&format!("{database}.*")], TABLES);
    job.run().expect_code(0);
    for round in 0..3 {
        change(server, &database, round).await;
        job.run().expect_code(0);
    }
    (job, database)
}

async fn check(engine: &Engine) -> (TempJob, String) {
    let server = Server::shared(Flavor::Mysql);
    let (job, database) = changed(server).await;
    let lake = job.lake();
    compare(engine, server, &database, &lake).await;
    compare_pruned(engine, server, &database, &lake).await;
    (job, database)
}

#[tokio::test(flavor = "multi_thread")]
async fn duckdb_reads_divided_tables_and_those_without_deletion_vectors() {
    check(&Engine::duckdb()).await;
}

/// `scan_delta` takes the values of partition columns from paths.
#[tokio::test(flavor = "multi_thread")]
async fn polars_reads_divided_tables_without_deletion_vectors() {
    let server = Server::shared(Flavor::Mysql);
    let (job, database) = changed(server).await;
    let asked = (job.lake().table_folder(&database, "born"), None, vec!["id".to_string()]);
    let found = Engine::polars_scan_delta().read(&[asked]).remove(0);
    assert_same("born by scan_delta", &found, &expected(server, &database, "born").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn deltalake_reads_divided_tables_and_those_without_deletion_vectors() {
    check(&Engine::deltalake()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spark_reads_divided_tables_those_without_deletion_vectors_and_change_feeds() {
    let (job, database) = check(&Engine::spark()).await;
    for table in ["regions", "kinds"] {
        compare_feed(Server::shared(Flavor::Mysql), &database, table, &job.lake()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_with_divided_tables_that_spark_has_compacted() {
    let server = Server::shared(Flavor::Mysql);
    let database = server.new_database("divided").await;
    create(server, &database).await;
    server.exec(format!("DELETE FROM `{database}`.regions WHERE region = 'ü='")).await;
    server.exec(format!("DELETE FROM `{database}`.kinds WHERE kind = 'ü='")).await;
    let job = TempJob::live(server, &[&format!("{database}.*")], TABLES);
    job.run().expect_code(0);
    let lake = job.lake();
    let folders = DIVIDED.map(|(table, _)| lake.table_folder(&database, table).display().to_string());
    let optimize = || Engine::spark().optimize(&folders);
    for round in 0..2 {
        change(server, &database, round).await;
        job.run().expect_code(0);
        optimize();
    }
    change(server, &database, 2).await;
    job.run().expect_code(0);
    compare(&Engine::spark(), server, &database, &lake).await;
    // Names that the log could not tell apart from others are refused before anything is written.
    for n in 0..2 {
        server.exec(format!("INSERT INTO `{database}`.kinds VALUES ('ü=', {}, 0)", 1000 + n)).await;
        job.run().expect_code(0);
    }
    optimize();
    job.run().expect_code(3).expect_stderr(&["beyond ASCII", "RESTORE TABLE"]);
}
