//! `table_changes`, beside Spark's own and without a change feed.

use super::{content, rows, session};
use crate::demo::{SHOP, demo_files};
use crate::harness::{Content, TempJob, assert_same};
use crate::readers::Engine;

const SMALL: &str = "run: { batch: { rows: 60, seconds: 600 } }\n";

fn replay(more: &str) -> TempJob {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], &format!("{SMALL}{more}"));
    job.run().expect_code(0);
    job
}

fn names() -> Vec<&'static str> {
    SHOP.iter().map(|(table, _)| *table).collect()
}

/// A change's key: that of the row, its version and what happened.
fn change_key(key: &[&str]) -> Vec<String> {
    key.iter().chain(&["_commit_version", "_change_type"]).map(|name| name.to_string()).collect()
}

async fn changes(job: &TempJob, table: &str, key: &[&str]) -> Content {
    let sql = format!("SELECT * EXCEPT (_commit_timestamp) FROM table_changes('shop.{table}', 0)");
    content(&session(job, "shop", &names()), &sql, &change_key(key)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_changes_of_a_feed_are_those_that_spark_gives() {
    for more in [
        "tables: [{ match: '*.*', change_feed: on }]\n",
        "tables: [{ match: '*.*', change_feed: on, merge: copy_on_write }]\n",
    ] {
        let job = replay(more);
        let asked = SHOP.map(|(table, key)| {
            (job.lake().table_folder("shop", table), None, key.iter().map(|name| name.to_string()).collect())
        });
        for ((table, key), by_spark) in SHOP.iter().zip(Engine::spark().read_changes(&asked)) {
            let found = changes(&job, table, key).await;
            assert!(found.rows.len() > 20, "{table}: {} changes", found.rows.len());
            assert_same(&format!("the changes of {table}"), &found, &by_spark);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_feed_the_changes_are_computed_from_files_and_deletion_vectors() {
    let fed = replay("tables: [{ match: '*.*', change_feed: on }]\n");
    for more in ["", "tables: [{ match: '*.*', merge: copy_on_write }]\n"] {
        let job = replay(more);
        job.verb(&["maintain", "--now", "compact"]).expect_code(0);
        for (table, key) in SHOP {
            let expected = without_rewrites(changes(&fed, table, key).await);
            assert_same(&format!("the changes of {table}, {more}"), &changes(&job, table, key).await, &expected);
        }
    }
}

/// Without the updates that wrote a row as it was: files do not tell them from rows that were only moved.
fn without_rewrites(mut content: Content) -> Content {
    let place = content.columns.iter().position(|name| name == "_change_type").unwrap();
    let rest = |row: &[Option<String>]| {
        row.iter().enumerate().filter(|(index, _)| *index != place).map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let images: Vec<(String, Vec<Option<String>>)> =
        content.rows.values().map(|row| (row[place].clone().unwrap(), rest(row))).collect();
    let same = |row: &[Option<String>]| {
        let kind = row[place].as_deref().unwrap();
        let other = match kind {
            "update_preimage" => "update_postimage",
            "update_postimage" => "update_preimage",
            _ => return false,
        };
        images.contains(&(other.to_string(), rest(row)))
    };
    let all = std::mem::take(&mut content.rows);
    content.rows = all.into_iter().filter(|(_, row)| !same(row)).collect();
    content
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_asked_for_by_versions_and_times_and_joined() {
    let job = replay("");
    let session = session(&job, "shop", &names());
    let one = |sql: &'static str| {
        let session = &session;
        async move {
            match rows(session, sql).await {
                Ok(rows) => rows.iter().map(|row| row[0].clone().unwrap_or_default()).collect::<Vec<_>>().join(" "),
                Err(error) => error.to_string(),
            }
        }
    };
    let all = one("SELECT count(*) FROM table_changes('orders', 0)").await;
    let parts = one(
        "SELECT (SELECT count(*) FROM table_changes('orders', 0, 2)) + (SELECT count(*) FROM TABLE_CHANGES(shop.orders, 3) c)",
    );
    assert_eq!(parts.await, all);
    assert_eq!(one("SELECT count(*) FROM table_changes('orders', '2020-01-01')").await, all);
    assert_eq!(
        one("SELECT count(*) FROM table_changes('orders', '2099-01-01')").await.split(':').next().unwrap(),
        "table_changes of shop.orders"
    );
    assert_eq!(one("SELECT count(DISTINCT _commit_version) FROM table_changes('orders', 2, 3)").await, "2");
    assert_eq!(
        one("SELECT count(*) FROM table_changes('orders', 3, 3) c JOIN orders o USING (id) WHERE c._change_type = 'delete'").await,
        "0"
    );
    for wrong in ["'orders'", "'orders', 3, 4, 5", "3, 4", "'orders', x => 3", "'orders', -1"] {
        let sql = format!("SELECT * FROM table_changes({wrong})");
        let error = rows(&session, &sql).await.unwrap_err().to_string();
        assert!(error.starts_with("table_changes takes a table"), "{wrong}: {error}");
    }
    let gone = one("SELECT * FROM table_changes('orders', 900, 901)").await;
    assert!(gone.contains("versions 0 to"), "{gone}");
    let backwards = one("SELECT * FROM table_changes('orders', 3, 2)").await;
    assert_eq!(backwards, "table_changes of shop.orders: the first version is 3, the last 2");
}
