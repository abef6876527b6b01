//! What the program says, and its exit codes, on the recorded demo.

use crate::demo::demo_files;
use crate::harness::TempJob;

fn replayed() -> TempJob {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], "run: { batch: { rows: 100, seconds: 60 } }\n");
    job.run().expect_code(0);
    job
}

#[test]
fn sql_answers_in_every_format_and_travels_in_time() {
    let job = replayed();
    let csv = |query: &str| job.verb(&["sql", "--format", "csv", query]).expect_code(0).stdout;
    assert_eq!(csv("SELECT status FROM orders WHERE id = 1020"), "status\nshipped\n");
    assert_eq!(csv("SELECT status FROM orders VERSION AS OF 2 WHERE id = 1020"), "status\npaid\n");
    let json = job.verb(&["sql", "--json", "SELECT count(*) AS n FROM shop.orders"]).expect_code(0).stdout;
    assert_eq!(json, "{\"n\":150}\n");
    job.verb(&["sql", "SELECT * FROM ordres"]).expect_code(2).expect_stderr(&["ordres", "orders"]);
    job.verb(&["sql", "DELETE FROM orders"]).expect_code(2);
    job.verb(&["sql", "SELECT * FROM orders VERSION AS OF 999"]).expect_code(2).expect_stderr(&["999"]);
}

#[test]
fn status_tells_where_every_table_stands() {
    let job = replayed();
    let text = job.verb(&["status", "--json"]).expect_code(0).stdout;
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["position"], "shop-bin.000002:194491");
    let tables = status["tables"].as_array().unwrap();
    let orders = tables.iter().find(|table| table["table"]["table"] == "orders").unwrap();
    assert_eq!((&orders["rows"], &orders["progress"]["state"]), (&150.into(), &"following".into()));
    assert!(job.verb(&["status"]).expect_code(0).stdout.contains("shop.orders"));
}

#[test]
fn wrong_usage_and_a_wrong_job_file_are_told_apart_from_errors_to_retry() {
    let job = replayed();
    job.verb(&["run", "--resnapshot", "orders"]).expect_code(2).expect_stderr(&["database.table"]);
    job.verb(&["run", "--resnapshot", "shop.nothing"]).expect_code(2).expect_stderr(&["shop.nothing"]);
    job.verb(&["frobnicate"]).expect_code(2);
    std::fs::write(job.file(), "version: 1\njobb: x\n").unwrap();
    job.verb(&["run"]).expect_code(2).expect_stderr(&["jobb", "did you mean", "source"]);
}

#[test]
fn maintain_tells_what_it_does_and_changes_no_row() {
    let more = "run: { batch: { rows: 100, seconds: 60 } }\nmaintain: off\n";
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], more);
    job.run().expect_code(0);
    let rows =
        || job.verb(&["sql", "--json", "SELECT count(*) AS n, sum(id) AS s FROM shop.orders"]).expect_code(0).stdout;
    let before = rows();
    let only = |chore: &str, more: &[&str]| {
        let arguments = ["maintain", "--table", "shop.orders", "--now", chore];
        job.verb(&[&arguments[..], more].concat())
    };
    let planned = only("compact", &["--dry-run"]).expect_code(0).stdout;
    assert!(planned.starts_with("shop.orders: compact: ") && planned.contains("would be"), "{planned}");
    let done = only("compact", &[]).expect_code(0).stdout;
    assert!(done.starts_with("shop.orders: compact: ") && done.contains(" rewritten as 1 files"), "{done}");
    assert_eq!(done.lines().count(), 1, "other tables are left alone: {done}");
    assert_eq!(only("compact", &[]).expect_code(0).stdout, "shop.orders: compact: nothing to do\n");
    only("vacuum", &["--retention", "1s"]).expect_code(2).expect_stderr(&["--allow-short-retention"]);
    assert_eq!(only("vacuum", &[]).expect_code(0).stdout, "shop.orders: vacuum: nothing to do\n");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let short = ["--retention", "1s", "--allow-short-retention", "--json"];
    let report: serde_json::Value = serde_json::from_str(&only("vacuum", &short).expect_code(0).stdout).unwrap();
    assert!(report["files_before"].as_u64().unwrap() > 0 && report["chore"] == "vacuum", "{report}");
    assert!(only("checkpoint", &[]).expect_code(0).stdout.starts_with("shop.orders: checkpoint: written\n"));
    assert_eq!(rows(), before);
    job.verb(&["maintain", "--table", "shop.nothing"]).expect_code(2).expect_stderr(&["shop.nothing"]);
    assert_eq!(job.verb(&["maintain"]).expect_code(0).stdout, "nothing is due\n");
    job.run().expect_code(0);
    assert_eq!(rows(), before);
}
