//! Spark writes to the tables of a job between two of its runs.

use std::collections::BTreeMap;

use super::divided::replayed;
use super::{Asked, Engine};
use crate::harness::{Content, Flavor, LakeReader, Server, TempJob, assert_same, source_content};

const TABLES: [&str; 4] = ["plain", "copied", "divided", "fed"];

const SETTINGS: &str = "run: { batch: { rows: 60, seconds: 60 } }
tables:
  - { match: '*.copied', merge: copy_on_write }
  - { match: '*.divided', partition_by: [region] }
  - { match: '*.fed', change_feed: on }
maintain: off
";

/// In the first, the source's changes meet Spark's files, in the second their compaction by Alluvium.
const ROUNDS: u32 = 2;

type Rows = BTreeMap<Vec<String>, Vec<Option<String>>>;

/// A table of the lake as it must be, beside the source's as it was when the lake followed it last.
struct Model {
    table: &'static str,
    source: Content,
    lake: Content,
}

impl Model {
    async fn new(server: &Server, database: &str, table: &'static str) -> Self {
        let source = source_content(&mut server.connect().await, database, table).await;
        Self { table, lake: source.clone(), source }
    }

    /// What [`spark_statements`] do.
    fn spark_wrote(&mut self, round: u32) {
        let place = |name: &str| self.source.columns.iter().position(|column| column == name).unwrap();
        let (n, region) = (place("n"), place("region"));
        let digit = |key: &[String]| key[0].parse::<u32>().unwrap() % 10;
        self.lake.rows.retain(|key, _| digit(key) != 3 + round);
        for row in self.lake.rows.iter_mut().filter(|(key, _)| digit(key) == 6 + round).map(|(_, row)| row) {
            row[n] = row[n].as_ref().map(|n| (n.parse::<u32>().unwrap() + 1000).to_string());
            row[region] = Some("spark".to_string());
        }
    }

    /// Rows that the source has changed are as the source has them; all others stay as they are in the lake.
    async fn source_changed(&mut self, server: &Server, database: &str) {
        let now = source_content(&mut server.connect().await, database, self.table).await;
        self.lake.rows.retain(|key, _| now.rows.contains_key(key) || !self.source.rows.contains_key(key));
        let changed = now.rows.iter().filter(|(key, row)| self.source.rows.get(*key) != Some(*row));
        let changed: Rows = changed.map(|(key, row)| (key.clone(), row.clone())).collect();
        assert!(changed.len() > 20, "{} rows changed", changed.len());
        self.lake.rows.extend(changed);
        self.source = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_with_tables_that_spark_has_written_to() {
    let server = Server::shared(Flavor::Mysql);
    let database = server.new_database("writes").await;
    for table in TABLES {
        create(server, &database, table).await;
    }
    let job = TempJob::live(server, &[&format!("{database}.*")], SETTINGS);
    job.run().expect_code(0);
    change(server, &database, 9).await;
    job.run().expect_code(0);
    let lake = job.lake();
    let mut models = Vec::new();
    for table in TABLES {
        models.push(Model::new(server, &database, table).await);
    }
    for round in 0..ROUNDS {
        let versions = || TABLES.map(|table| lake.commits(&database, table).len());
        let before = versions();
        Engine::spark().run(TABLES.iter().flat_map(|table| statements(&lake, &database, table, round)).collect());
        println!("engine: {}", newest_writer(&lake, &database));
        assert_eq!(versions(), before.map(|count| count + 3), "Spark made three commits to each table");
        models.iter_mut().for_each(|model| model.spark_wrote(round));
        compare(&lake, &database, &models, "after Spark's commits").await;
        if round == 0 {
            job.run().expect_code(0);
            compare(&lake, &database, &models, "after a run with nothing to read").await;
        } else {
            job.verb(&["maintain", "--now", "compact"]).expect_code(0);
            compare(&lake, &database, &models, "after a compaction of Spark's files").await;
        }
        change(server, &database, round).await;
        for model in &mut models {
            model.source_changed(server, &database).await;
        }
        job.run().expect_code(0);
        compare(&lake, &database, &models, "after the source's changes").await;
    }
    compare_by_others(&lake, &database, &models);
}

async fn create(server: &Server, database: &str, table: &str) {
    let columns =
        "id INT PRIMARY KEY, region VARCHAR(10), n INT, note VARCHAR(20), made DATETIME(6), seen TIMESTAMP(3)";
    let rows: Vec<String> = (0..240).map(|id| row(id, "first")).collect();
    server.exec(format!("CREATE TABLE `{database}`.`{table}` ({columns})")).await;
    server.exec(format!("INSERT INTO `{database}`.`{table}` VALUES {}", rows.join(", "))).await;
}

fn row(id: u32, note: &str) -> String {
    let region = ["'north'", "'south'", "NULL"][id as usize % 3];
    let (day, second) = (1 + id % 28, id % 60);
    format!(
        "({id}, {region}, {id}, '{note}', '1024-02-{day:02} 03:04:{second:02}.000001', '2024-02-{day:02} 03:04:05.006')"
    )
}

/// Rows that Spark has deleted, rows that it has changed and rows that it has left alone: each of them is updated, deleted,
/// moved to another key or left alone.
async fn change(server: &Server, database: &str, round: u32) {
    let mut statements = Vec::new();
    for table in TABLES {
        let name = format!("`{database}`.`{table}`");
        let new: Vec<String> = (0..30).map(|id| row(1000 * (round + 1) + id, "new")).collect();
        statements.extend([
            format!("UPDATE {name} SET n = n + 1, note = 'later {round}' WHERE id DIV 10 % 6 = {round} % 6"),
            format!("UPDATE {name} SET region = 'north' WHERE id DIV 10 % 6 = {round} % 6 AND id % 2 = 0"),
            format!("DELETE FROM {name} WHERE id DIV 10 % 6 = ({round} + 2) % 6"),
            format!("UPDATE {name} SET id = id + 100000 * ({round} + 1) WHERE id DIV 10 % 12 = ({round} + 4) % 12"),
            format!("INSERT INTO {name} VALUES {}", new.join(", ")),
        ]);
    }
    server.exec_all(&statements.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

/// Three commits of Spark's.
fn statements(lake: &LakeReader, database: &str, table: &str, round: u32) -> Vec<String> {
    let name = format!("delta.`{}`", lake.table_folder(database, table).display());
    vec![
        format!("OPTIMIZE {name}"),
        format!("DELETE FROM {name} WHERE id % 10 = {}", 3 + round),
        format!("UPDATE {name} SET n = n + 1000, region = 'spark' WHERE id % 10 = {}", 6 + round),
    ]
}

/// Who made the newest commit of a table, in its own words.
fn newest_writer(lake: &LakeReader, database: &str) -> String {
    let version = lake.commits(database, TABLES[0]).last().unwrap().version;
    let file = lake.table_folder(database, TABLES[0]).join(format!("_delta_log/{version:020}.json"));
    let commit = std::fs::read_to_string(file).unwrap();
    let actions = commit.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let writer = actions.filter_map(|action| action["commitInfo"]["engineInfo"].as_str().map(str::to_string)).next();
    writer.expect("Spark says who it is")
}

async fn compare(lake: &LakeReader, database: &str, models: &[Model], when: &str) {
    for Model { table, lake: wanted, .. } in models {
        let found = lake.content(database, table, &wanted.key, None).await;
        assert_same(&format!("{table} {when}"), &found, wanted);
    }
}

fn compare_by_others(lake: &LakeReader, database: &str, models: &[Model]) {
    let ask = |model: &Model| (lake.table_folder(database, model.table), None, model.source.key.clone());
    let asked: Vec<Asked> = models.iter().map(ask).collect();
    for engine in [Engine::spark(), Engine::duckdb(), Engine::polars()] {
        for (model, found) in models.iter().zip(engine.read(&asked)) {
            assert_same(&format!("{} by {}", model.table, engine.argument), &found, &model.lake);
        }
    }
    let fed = models.iter().position(|model| model.table == "fed").unwrap();
    let feed = Engine::spark().read_changes(&asked[fed..=fed]).remove(0);
    assert_same("the feed with Spark's changes", &replayed(feed), &models[fed].lake);
}
