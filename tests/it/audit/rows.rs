//! Histories of rows, differences of versions and restored tables, beside the record of who wrote them.

use std::collections::BTreeMap;
use std::sync::Arc;

use mysql_async::prelude::Queryable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use alluvium::change::TableId;
use alluvium::config::LakeConfig;
use alluvium::lake::{Lake, RowHistory};
use alluvium::query::RowDifference;
use alluvium::query::row::rows_of;

use super::{rows, rows_at, session};
use crate::harness::{Flavor, Server, TempJob, assert_same, server_position, source_content};
use crate::oracle::seed;

/// All have the same rows, and are kept in different ways.
const TABLES: [&str; 4] = ["plain", "copied", "divided", "texts"];
const KEYS: u32 = 8;

/// Each transaction is a batch of its own; files are folded all the time.
const SETTINGS: &str = "run: { batch: { rows: 1, seconds: 600 } }
tables:
  - { match: '*.copied', merge: copy_on_write }
  - { match: '*.divided', partition_by: [region] }
maintain:
  compact: { every: 1s, small_files: 3, deleted_percent: 5 }
  checkpoint: { versions: 7 }
  vacuum: { every: 24h }
";

/// A row's values beside its key: `n` and `region`.
type Values = Option<(i64, String)>;

/// What was written: after each transaction that changed a key, its values and the end of the transaction in the log.
type Record = BTreeMap<u32, Vec<(String, Values)>>;

struct Written {
    /// Of its own: positions are compared with those after each transaction, which no one else may move.
    server: Arc<Server>,
    job: TempJob,
    database: String,
    record: Record,
}

fn key_of(table: &str, key: u32) -> String {
    if table == "texts" { format!("key {key}") } else { key.to_string() }
}

async fn write(seed: u64, transactions: usize) -> Written {
    let server = Arc::new(Server::own(Flavor::Mysql, &[]));
    let database = server.new_database("rows").await;
    for table in TABLES {
        let key = if table == "texts" { "VARCHAR(20)" } else { "INT" };
        server
            .exec(format!("CREATE TABLE {database}.{table} (id {key} PRIMARY KEY, n BIGINT, region VARCHAR(9))"))
            .await;
    }
    let job = TempJob::live(&server, &[&format!("{database}.*")], SETTINGS);
    job.run().expect_code(0);
    let mut written = Written { server: server.clone(), job, database, record: Record::new() };
    let mut random = StdRng::seed_from_u64(seed);
    for part in 0..3 {
        for _ in 0..transactions / 3 {
            written.transaction(&server, &mut random).await;
        }
        if part == 1 {
            server.exec(format!("ALTER TABLE {}.plain ADD COLUMN note VARCHAR(5) NULL", written.database)).await;
        }
        written.job.run().expect_code(0);
    }
    written
}

impl Written {
    /// One to three keys get other values, come or go.
    async fn transaction(&mut self, server: &Server, random: &mut StdRng) {
        let mut connection = server.connect().await;
        connection.query_drop("START TRANSACTION").await.unwrap();
        let mut touched = BTreeMap::new();
        for _ in 0..random.random_range(1..=3) {
            let key = random.random_range(0..KEYS);
            let region = ["north", "south"][random.random_range(0..2)].to_string();
            let values = (random.random_range(0..4) > 0).then(|| (random.random_range(0..1_000_000), region));
            for table in TABLES {
                let id = key_of(table, key);
                let sql = match &values {
                    Some((n, region)) => format!(
                        "INSERT INTO {}.{table} (id, n, region) VALUES ('{id}', {n}, '{region}') \
                         ON DUPLICATE KEY UPDATE n = {n}, region = '{region}'",
                        self.database
                    ),
                    None => format!("DELETE FROM {}.{table} WHERE id = '{id}'", self.database),
                };
                connection.query_drop(sql).await.unwrap();
            }
            touched.insert(key, values);
        }
        connection.query_drop("COMMIT").await.unwrap();
        let position = server_position(&mut connection, Flavor::Mysql).await;
        for (key, values) in touched {
            let states = self.record.entry(key).or_default();
            if states.last().is_none_or(|(_, before)| before.is_none()) && values.is_none() {
                continue;
            }
            states.push((position.clone(), values));
        }
    }

    async fn history(&self, table: &str, key: u32) -> RowHistory {
        let url = url::Url::from_directory_path(self.job.lake_folder()).unwrap();
        let lake = Lake::open(&LakeConfig { url, options: Default::default() }).unwrap();
        let open = lake.open_table(&TableId::new(&self.database, table)).await.unwrap().unwrap();
        open.history(&[key_of(table, key)]).await.unwrap()
    }

    async fn ids(&self, table: &str) -> Vec<Vec<Option<String>>> {
        let session = session(&self.job, &self.database, &TABLES);
        rows(&session, &format!("SELECT id, n, region FROM {table} ORDER BY id")).await.unwrap()
    }
}

/// The states of a history as the record has them.
fn states(history: &RowHistory) -> Vec<(String, Values)> {
    let values = |state: &alluvium::lake::RowState| {
        let row = rows_of(state.row.as_ref()?).unwrap().remove(0);
        let schema = state.row.as_ref().unwrap().schema();
        let value = |name: &str| row[schema.index_of(name).unwrap()].clone().unwrap();
        Some((value("n").parse().unwrap(), value("region")))
    };
    history.states.iter().map(|state| (state.position.clone().unwrap(), values(state))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_each_key_is_what_was_written() {
    let written = write(seed(81), 60).await;
    let mut compared = 0;
    for table in TABLES {
        for key in 0..KEYS {
            let history = written.history(table, key).await;
            let expected = written.record.get(&key).cloned().unwrap_or_default();
            assert_eq!(states(&history), expected, "key {key} of {table}: {:#?}", history.states);
            assert_eq!(history.oldest, 0);
            compared += expected.len();
            let operations: Vec<&str> = history.states.iter().map(|state| state.operation.name()).collect();
            let mut is_there = false;
            for (operation, (_, values)) in operations.iter().zip(&expected) {
                let wanted = match (is_there, values) {
                    (false, _) => "insert",
                    (true, Some(_)) => "update",
                    (true, None) => "delete",
                };
                assert_eq!(*operation, wanted, "key {key} of {table}");
                is_there = values.is_some();
            }
        }
    }
    assert!(compared > 100, "{compared} states");
    let printed = written.job.verb(&["history", "plain", "--key", "3"]).expect_code(0).stdout;
    assert_eq!(printed.lines().count(), 1 + written.record[&3].len(), "{printed}");
    let json = written.job.verb(&["history", "plain", "--key", "3", "--json"]).expect_code(0).stdout;
    for (line, (position, values)) in json.lines().zip(&written.record[&3]) {
        let state: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(state["position"].as_str(), Some(position.as_str()));
        assert_eq!(state["row"]["n"].as_i64(), values.as_ref().map(|(n, _)| *n));
    }
    let wrong = written.job.verb(&["history", "plain", "--key", "three"]).expect_code(2);
    assert!(wrong.stderr.contains("column id is a Int32"), "{wrong:#?}");
    written.job.verb(&["history", "plain", "--key", "1", "--key", "2"]).expect_code(2);
    written.job.verb(&["history", "nothing", "--key", "1"]).expect_code(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_difference_is_that_of_the_rows_of_two_versions() {
    let written = write(seed(82), 45).await;
    let session = session(&written.job, &written.database, &TABLES);
    let mut random = StdRng::seed_from_u64(5);
    for table in TABLES {
        let id = TableId::new(&written.database, table);
        let newest = session.version_of(&id, None).await.unwrap();
        for _ in 0..6 {
            let (from, to) = (random.random_range(1..=newest), random.random_range(1..=newest));
            let at = |version| {
                let sql = format!("SELECT id, n, region FROM {table}@v{version}");
                let session = &session;
                async move {
                    let all = rows(session, &sql).await.unwrap();
                    all.into_iter().map(|row| (row[0].clone().unwrap(), row)).collect::<BTreeMap<_, _>>()
                }
            };
            let (before, after) = (at(from).await, at(to).await);
            let mut found = (BTreeMap::new(), BTreeMap::new());
            let mut diff = session.diff(&id, from, to).await.unwrap();
            while let Some(row) = diff.next().await.unwrap() {
                let mut keep = |is_after: bool, mut row: Vec<Option<String>>| {
                    row.truncate(3);
                    let side = if is_after { &mut found.1 } else { &mut found.0 };
                    assert!(side.insert(row[0].clone().unwrap(), row).is_none());
                };
                match row {
                    RowDifference::Added(row) => keep(true, row),
                    RowDifference::Removed(row) => keep(false, row),
                    RowDifference::Changed { before, after } => {
                        assert_eq!(before[0], after[0]);
                        keep(false, before);
                        keep(true, after);
                    }
                }
            }
            let only = |a: &BTreeMap<String, Vec<Option<String>>>, b: &BTreeMap<String, Vec<Option<String>>>| {
                a.iter().filter(|(key, row)| b.get(*key) != Some(row)).map(|(k, v)| (k.clone(), v.clone())).collect()
            };
            let expected: (BTreeMap<_, _>, BTreeMap<_, _>) = (only(&before, &after), only(&after, &before));
            assert_eq!(found, expected, "{table} from {from} to {to}");
            let changed = expected.0.keys().filter(|key| expected.1.contains_key(*key)).count() as u64;
            assert_eq!(diff.summary.changed, changed);
            assert_eq!(diff.summary.added, expected.1.len() as u64 - changed);
        }
    }
    let printed = written.job.verb(&["diff", "plain", "--from", "1", "--limit", "2"]).expect_code(0).stdout;
    assert!(
        printed.contains(" added, 0 removed, 0 changed") && printed.contains("more rows are not shown"),
        "{printed}"
    );
    let unknown = written.job.verb(&["diff", "plain", "--from", "900"]).expect_code(2);
    assert!(unknown.stderr.contains("versions 0 to"), "{unknown:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_table_has_the_rows_of_then_and_is_out_of_the_job_until_it_is_loaded_again() {
    let written = write(seed(83), 36).await;
    let (job, server) = (&written.job, &written.server);
    for table in ["plain", "copied", "divided"] {
        let id = TableId::new(&written.database, table);
        let newest = session(job, &written.database, &TABLES).version_of(&id, None).await.unwrap();
        let then = newest / 2;
        let at = format!("SELECT id, n, region FROM {table}@v{then} ORDER BY id");
        let expected = rows(&session(job, &written.database, &TABLES), &at).await.unwrap();
        let before = written.ids(table).await;
        assert_ne!(expected, before, "nothing to restore");
        let plan = job.verb(&["restore", table, "--to", &then.to_string()]).expect_code(0).stdout;
        assert!(plan.contains("Nothing was changed"), "{plan}");
        assert_eq!(written.ids(table).await, before);
        job.verb(&["restore", table, "--to", &then.to_string(), "--yes"]).expect_code(0);
        assert_eq!(written.ids(table).await, expected, "{table} at {then}");
        let status = job.verb(&["status"]).expect_code(3).stdout;
        assert!(status.contains(&format!("restored to version {then}, the source at ")), "{status}");
        // Once more does no harm.
        job.verb(&["restore", table, "--to", &then.to_string(), "--yes"]).expect_code(0);
        // The job goes on with the other tables, and leaves this one as it is.
        for table in TABLES {
            server
                .exec(format!(
                    "INSERT INTO {}.{table} (id, n) VALUES ('99', 1) ON DUPLICATE KEY UPDATE n = n + 1",
                    written.database
                ))
                .await;
        }
        job.run().expect_code(3);
        assert_eq!(written.ids(table).await, expected, "{table} after a run");
        let position = server_position(&mut server.connect().await, Flavor::Mysql).await;
        let refused = rows_at(job, &written.database, &TABLES, &position, &format!("SELECT * FROM {table}")).await;
        assert!(refused.unwrap_err().to_string().contains("taken out of the job"));
        job.verb(&["run", "--resnapshot", &format!("{}.{table}", written.database)]).expect_code(0);
        let source = source_content(&mut server.connect().await, &written.database, table).await;
        assert_same(table, &job.lake().content(&written.database, table, &source.key, None).await, &source);
    }
    job.verb(&["restore", "plain", "--to", "9000"]).expect_code(2).expect_stderr(&["versions 0 to"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_vacuum_has_taken_is_told_with_what_is_left() {
    let written = write(seed(84), 30).await;
    let job = &written.job;
    job.verb(&["maintain", "--now", "compact"]).expect_code(0);
    let session = session(job, &written.database, &TABLES);
    let id = TableId::new(&written.database, "plain");
    let newest = session.version_of(&id, None).await.unwrap();
    let mut old = newest / 2;
    while rows(&session, &format!("SELECT * FROM plain@v{old}")).await.unwrap().is_empty() {
        old += 1;
    }
    let before = written.history("plain", 3).await;
    tokio::time::sleep(std::time::Duration::from_millis(1_200)).await;
    job.verb(&["maintain", "--now", "vacuum", "--retention", "1s", "--allow-short-retention"]).expect_code(0);
    let error = rows(&session, &format!("SELECT * FROM plain@v{old}")).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("version {old} of {id} can't be read any more")), "{error}");
    let oldest: u64 = error.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(oldest <= newest && oldest > old, "{error}");
    rows(&session, &format!("SELECT * FROM plain@v{oldest}")).await.unwrap();
    rows(&session, &format!("SELECT * FROM plain@v{}", oldest - 1)).await.unwrap_err();
    // Points at which nothing has changed since are still there, though the version that they name is not.
    let position = "SELECT position FROM alluvium.batches ORDER BY sequence DESC LIMIT 1";
    let position = rows(&session, position).await.unwrap()[0][0].clone().unwrap();
    let (_, found) = rows_at(job, &written.database, &TABLES, &position, "SELECT id, n, region FROM plain ORDER BY id")
        .await
        .unwrap();
    assert_eq!(found, written.ids("plain").await);
    let after = written.history("plain", 3).await;
    assert!(after.oldest > old && after.states.len() <= 1, "{after:#?}");
    let last = before.states.last().unwrap();
    assert_eq!(after.states.last().map(|state| state.row.is_some()).unwrap_or_default(), last.row.is_some());
    job.verb(&["restore", "plain", "--to", &old.to_string()])
        .expect_code(2)
        .expect_stderr(&["vacuum has removed its file"]);
}
