//! The queries of `sql/audit`: each runs on a lake of the demo, on DataFusion and on Spark, and both give the same rows.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{ordered, session};
use crate::demo::{SHOP, demo_files};
use crate::harness::TempJob;
use crate::readers::Engine;

/// The batches of the demo's own job file; Spark needs a feed to tell changes.
const SETTINGS: &str = "run: { batch: { rows: 100, seconds: 600 } }\ntables: [{ match: '*.*', change_feed: on }]\n";

/// A column that says how old something is now.
const AGE: &str = "age_seconds";

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_queries_give_the_same_rows_on_datafusion_and_on_spark() {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], SETTINGS);
    job.run().expect_code(0);
    job.verb(&["maintain", "--now", "compact"]).expect_code(0);
    let names = queries("datafusion");
    assert_eq!(names, queries("spark"), "each query is there for both engines");
    assert!(names.len() >= 7, "{names:?}");
    let by_spark = on_spark(&job, &names);
    let tables: Vec<&str> = SHOP.iter().map(|(table, _)| *table).collect();
    let session = session(&job, "shop", &tables);
    for (name, expected) in names.iter().zip(by_spark) {
        let found = ordered(&session, &text("datafusion", name), AGE).await;
        assert!(!expected.is_empty(), "{name} gives nothing");
        assert_eq!(found, expected, "{name}");
    }
    let file = folder("datafusion").join("compare-counts.sql");
    let printed = job.verb(&["sql", "--file", file.to_str().unwrap()]).expect_code(0).stdout;
    assert!(printed.contains("order_items"), "{printed}");
    job.verb(&["sql", "--file", "missing.sql"]).expect_code(2).expect_stderr(&["missing.sql"]);
}

fn folder(engine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/audit").join(engine)
}

fn queries(engine: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder(engine)).unwrap();
    let mut names: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn text(engine: &str, name: &str) -> String {
    let text = std::fs::read_to_string(folder(engine).join(name)).unwrap();
    let head: Vec<&str> = text.lines().take_while(|line| line.starts_with("--")).collect();
    assert!(!head.is_empty(), "{name} does not say what it tells");
    text
}

fn on_spark(job: &TempJob, names: &[String]) -> Vec<Vec<Vec<Option<String>>>> {
    let schema = format!("shop_{}", std::process::id());
    let table = |name: &str, folder: PathBuf| {
        [
            format!("DROP TABLE IF EXISTS {name}"),
            format!("CREATE TABLE {name} USING DELTA LOCATION '{}'", folder.display()),
        ]
    };
    let mut statements = vec!["CREATE SCHEMA IF NOT EXISTS alluvium".to_string(), format!("CREATE SCHEMA {schema}")];
    let points = job.lake_folder().join("_alluvium").join(job.name()).join("batches");
    statements.extend(table("alluvium.batches", points));
    statements.push(format!("USE {schema}"));
    for (name, _) in SHOP {
        statements.extend(table(name, job.lake().table_folder("shop", name)));
    }
    statements.extend(names.iter().map(|name| text("spark", name)));
    let printed = Engine::spark().script([vec!["--sql".to_string()], statements].concat());
    let results: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(results.len(), names.len(), "{printed}");
    results.iter().map(rows).collect()
}

fn rows(result: &Value) -> Vec<Vec<Option<String>>> {
    let columns = result["columns"].as_array().unwrap();
    let row = |row: &Value| {
        let values = row.as_array().unwrap().iter().zip(columns).filter(|(_, column)| *column != AGE);
        values.map(|(value, _)| value.as_str().map(str::to_string)).collect()
    };
    result["rows"].as_array().unwrap().iter().map(row).collect()
}
