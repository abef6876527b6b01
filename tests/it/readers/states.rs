//! One lake with a table for each state that a table can be in; each reader gives the rows of `alluvium sql`.

use std::time::Duration;

use serde_json::Value;

use super::divided::replayed;
use super::{Asked, Engine};
use crate::harness::{Content, Flavor, LakeReader, Server, TempJob, assert_same, source_content};

/// The tables, each named by its state. All have the same columns and, until a round leaves some out, the same rows.
const TABLES: [&str; 12] = [
    "fresh",
    "upserted",
    "copied",
    "divided",
    "widened",
    "fed",
    "fed_copied",
    "compacted",
    "clustered",
    "vacuumed",
    "checkpointed",
    "everything",
];
const COPIED: [&str; 2] = ["copied", "fed_copied"];
const FED: [&str; 2] = ["fed", "fed_copied"];
/// These stay as upkeep has left them.
const ENDED: [&str; 4] = ["fresh", "compacted", "clustered", "vacuumed"];

const SETTINGS: &str = "run: { batch: { rows: 100, seconds: 60 } }
tables:
  - { match: '*.*copied', merge: copy_on_write }
  - { match: '*.fed*', change_feed: on }
  - { match: '*.divided', partition_by: [region, 'month(created)'] }
  - { match: '*.clustered', cluster_by: [n, region] }
  - { match: '*.everything', partition_by: [region, 'month(created)'], cluster_by: [n, paid], change_feed: on }
maintain:
  compact: off
  cluster: off
  vacuum: { every: 24h, retention: 1s, allow_short_retention: true }
  log: { retention: 1s }
";

/// Longer than the retention of the log, and of the vacuum.
const LATER: Duration = Duration::from_millis(1_200);

const COLUMNS: &str = "id, name, region, n, paid, weight, created, seen, raw_bytes, is_open";

#[tokio::test(flavor = "multi_thread")]
async fn each_reader_gives_the_rows_of_alluvium_in_every_state_of_a_table() {
    let server = Server::shared(Flavor::Mysql);
    let database = server.new_database("states").await;
    let job = make(server, &database).await;
    let lake = job.lake();
    prove_states(&lake, &database);
    let mut own = Vec::new();
    for table in TABLES {
        own.push(own_rows(&job, &database, table));
        let mut source = source_content(&mut server.connect().await, &database, table).await;
        source.key = own[own.len() - 1].key.clone();
        assert_same(&format!("{table} by alluvium sql"), &without(&own[own.len() - 1], "created_month"), &source);
    }
    let asked: Vec<Asked> = TABLES.iter().map(|table| ask(&lake, &database, table)).collect();
    for engine in [Engine::duckdb(), Engine::deltalake(), Engine::polars(), Engine::spark()] {
        compare(&engine, &TABLES, &engine.read(&asked), &own);
        let some: Vec<Content> = own.iter().map(northern).collect();
        compare(&engine, &TABLES, &engine.read_where("id > 150 AND region = 'north'", &asked), &some);
    }
    let place = |table: &str| TABLES.iter().position(|name| *name == table).unwrap();
    let copied: Vec<Content> = COPIED.iter().map(|table| own[place(table)].clone()).collect();
    let engine = Engine::pyarrow();
    compare(&engine, &COPIED, &engine.read(&COPIED.map(|table| ask(&lake, &database, table))), &copied);
    let feeds = FED.map(|table| ask(&lake, &database, table));
    let (by_spark, by_deltalake) = (Engine::spark().read_changes(&feeds), Engine::deltalake().read_changes(&feeds));
    compare(&Engine::deltalake(), &FED, &by_deltalake, &by_spark);
    for (table, feed) in FED.iter().zip(by_spark) {
        assert_same(&format!("the feed of {table}, replayed"), &replayed(feed), &own[place(table)]);
    }
}

fn ask(lake: &LakeReader, database: &str, table: &str) -> Asked {
    (lake.table_folder(database, table), None, vec!["id".to_string()])
}

fn compare(engine: &Engine, tables: &[&str], found: &[Content], wanted: &[Content]) {
    for ((table, found), wanted) in tables.iter().zip(found).zip(wanted) {
        assert!(!wanted.rows.is_empty(), "{table} is empty");
        assert_same(&format!("{table} by {}", engine.argument), found, wanted);
    }
}

/// Runs the job again and again while the tables change, with the upkeep that makes the states.
async fn make(server: &Server, database: &str) -> TempJob {
    for table in TABLES {
        create(server, database, table).await;
    }
    let job = TempJob::live(server, &[&format!("{database}.*")], SETTINGS);
    let run = || drop(job.run().expect_code(0));
    let changing = |without: &[&str]| TABLES.into_iter().filter(|table| !without.contains(table)).collect::<Vec<_>>();
    run();
    change(server, database, &changing(&["fresh"]), 1).await;
    run();
    for table in ["widened", "everything"] {
        let added = "ADD COLUMN extra INT NOT NULL DEFAULT 7, ADD COLUMN note VARCHAR(9) DEFAULT 'né'";
        server.exec(format!("ALTER TABLE `{database}`.`{table}` {added}")).await;
        server.exec(format!("UPDATE `{database}`.`{table}` SET extra = id, note = NULL WHERE id % 6 = 1")).await;
    }
    change(server, database, &changing(&["fresh"]), 2).await;
    run();
    maintain(&job, database, "compact", &["compacted", "vacuumed", "everything"]);
    maintain(&job, database, "cluster", &["clustered"]);
    maintain(&job, database, "checkpoint", &["checkpointed", "everything"]);
    std::thread::sleep(LATER);
    maintain(&job, database, "vacuum", &["vacuumed", "everything"]);
    change(server, database, &changing(&ENDED), 3).await;
    run();
    std::thread::sleep(LATER);
    // Now the first checkpoint is old enough to start from, and what lies before it goes.
    maintain(&job, database, "checkpoint", &["checkpointed", "everything"]);
    change(server, database, &["checkpointed", "everything"], 4).await;
    run();
    job
}

/// # Panics
/// When one of the tables was left as it was.
fn maintain(job: &TempJob, database: &str, chore: &str, tables: &[&str]) {
    let mut arguments = vec!["maintain".to_string(), "--json".to_string(), "--now".to_string(), chore.to_string()];
    arguments.extend(tables.iter().flat_map(|table| ["--table".to_string(), format!("{database}.{table}")]));
    let done = job.verb(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).expect_code(0).stdout;
    let done = done.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let worked = done.filter(|report| report["chore"] == chore && report["files_before"] != report["files_after"]);
    assert_eq!(worked.count(), tables.len(), "{chore} of {tables:?}");
}

async fn create(server: &Server, database: &str, table: &str) {
    let columns = "id INT PRIMARY KEY, name VARCHAR(40), region VARCHAR(10), n INT, paid DECIMAL(12,2), weight DOUBLE, \
                   created DATETIME(6), seen TIMESTAMP(3) NULL, raw_bytes VARBINARY(8), is_open BOOLEAN";
    server.exec(format!("CREATE TABLE `{database}`.`{table}` ({columns}) CHARACTER SET utf8mb4")).await;
    server.exec(insert(database, table, 0..240)).await;
}

fn insert(database: &str, table: &str, ids: std::ops::Range<u32>) -> String {
    let rows: Vec<String> = ids.map(row).collect();
    format!("INSERT INTO `{database}`.`{table}` ({COLUMNS}) VALUES {}", rows.join(", "))
}

fn row(id: u32) -> String {
    let or_null = |is_null: bool, text: String| if is_null { "NULL".to_string() } else { text };
    let name = or_null(id.is_multiple_of(7), format!("'nàme {id}'"));
    let region = ["'north'", "'south'", "NULL", "'a b/c=%d'"][id as usize % 4];
    let (month, day) = (1 + id % 3, 1 + id % 28);
    let created = or_null(id.is_multiple_of(17), format!("'2024-{month:02}-{day:02} 23:59:59.{:06}'", id * 7));
    let seen = or_null(id.is_multiple_of(13), format!("'2025-{month:02}-{day:02} 01:02:03.{:03}'", id % 1000));
    let (n, paid, weight) = (id % 20, f64::from(id) * 3.25, f64::from(id) / 8.0);
    format!("({id}, {name}, {region}, {n}, {paid:.2}, {weight}, {created}, {seen}, X'{:04X}FF', {})", id, id % 2)
}

/// Rows change, move between partitions, go and come.
async fn change(server: &Server, database: &str, tables: &[&str], round: u32) {
    let mut statements = Vec::new();
    for table in tables {
        let name = format!("`{database}`.`{table}`");
        statements.extend([
            format!("UPDATE {name} SET n = n + 100, name = CONCAT('round {round} ', id) WHERE id % 5 = {round}"),
            format!("UPDATE {name} SET region = 'north', created = created + INTERVAL 1 MONTH WHERE id % 13 = {round}"),
            format!("UPDATE {name} SET paid = -paid, weight = NULL, seen = NULL WHERE id % 19 = {round}"),
            format!("DELETE FROM {name} WHERE id % 11 = {round}"),
            insert(database, table, 1000 * round..1000 * round + 20),
        ]);
    }
    server.exec_all(&statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Each table is in its state, as its log says: else the comparison would prove little.
fn prove_states(lake: &LakeReader, database: &str) {
    let log = |table: &str| commits(lake, database, table).join("\n");
    let vector = "\"deletionVector\":{";
    for table in TABLES {
        let is_without = table == "fresh" || COPIED.contains(&table);
        assert_eq!(log(table).contains(vector), !is_without, "deletion vectors of {table}");
    }
    for (table, part) in [
        ("divided", "\"created_month\":\"2024-0"),
        ("fed", "\"cdc\":{"),
        ("fed_copied", "\"cdc\":{"),
        ("compacted", "\"operation\":\"OPTIMIZE\""),
        ("vacuumed", "\"operation\":\"OPTIMIZE\""),
        ("clustered", "alluvium.curve"),
        ("everything", "alluvium.curve"),
        ("everything", "\"cdc\":{"),
    ] {
        assert!(log(table).contains(part), "no {part} in the log of {table}: {}", log(table));
    }
    assert!(log("widened").matches("\"metaData\":{").count() > 1, "{}", log("widened"));
    for table in ["checkpointed", "everything"] {
        let folder = lake.table_folder(database, table).join("_delta_log");
        assert!(!folder.join(format!("{:020}.json", 0)).exists(), "the log of {table} is still whole");
        assert!(folder.join("_last_checkpoint").exists(), "{table} has no checkpoint");
    }
}

/// The commits of a table, as far as its log still has them.
fn commits(lake: &LakeReader, database: &str, table: &str) -> Vec<String> {
    let log = std::fs::read_dir(lake.table_folder(database, table).join("_delta_log")).unwrap();
    let paths = log.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|end| end == "json")).map(read).collect()
}

fn read(path: std::path::PathBuf) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A table as `alluvium sql` prints it.
fn own_rows(job: &TempJob, database: &str, table: &str) -> Content {
    let query = format!("SELECT * FROM {database}.{table}");
    let printed = job.verb(&["sql", "--json", &query]).expect_code(0).stdout;
    let rows: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let columns: Vec<String> = rows[0].as_object().unwrap().keys().cloned().collect();
    let values = rows.iter().map(|row| columns.iter().map(|name| canonical(name, &row[name])).collect()).collect();
    Content::new(&format!("{table} by alluvium sql"), columns, &["id".to_string()], values)
}

/// The canonical text of a value of `alluvium sql --json`.
fn canonical(column: &str, value: &Value) -> Option<String> {
    match (column, value) {
        (_, Value::Null) => None,
        ("paid", number) => Some(format!("{:.2}", number.as_f64().unwrap())),
        ("weight", number) => Some(format!("{:?}", number.as_f64().unwrap())),
        ("created" | "seen", time) => {
            let time = time.as_str().unwrap().trim_end_matches('Z').replace('T', " ");
            let (whole, fraction) = time.split_once('.').unwrap_or((&time, ""));
            Some(format!("{whole}.{fraction:0<6}"))
        }
        ("raw_bytes", hex) => Some(hex.as_str().unwrap().to_uppercase()),
        (_, Value::Bool(set)) => Some(u8::from(*set).to_string()),
        (_, Value::String(text)) => Some(text.clone()),
        (_, other) => Some(other.to_string()),
    }
}

fn without(content: &Content, column: &str) -> Content {
    let mut content = content.clone();
    if let Some(index) = content.columns.iter().position(|name| name == column) {
        content.columns.remove(index);
        content.rows.values_mut().for_each(|row| drop(row.remove(index)));
    }
    content
}

/// The rows that the condition of the test chooses.
fn northern(content: &Content) -> Content {
    let region = content.columns.iter().position(|name| name == "region").unwrap();
    let mut content = content.clone();
    let is_chosen = |key: &[String], row: &[Option<String>]| {
        key[0].parse::<u32>().unwrap() > 150 && row[region].as_deref() == Some("north")
    };
    content.rows.retain(|key, row| is_chosen(key, row));
    content
}
