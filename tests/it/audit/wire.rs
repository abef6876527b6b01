//! `alluvium sql --serve` and the prompt: psql, a Python driver and a pipe get the rows that `alluvium sql` gives.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::demo::demo_files;
use crate::harness::TempJob;
use crate::readers::cache;

const QUERIES: [&str; 4] = [
    "SELECT id, customer_id, status, total, note, channel FROM orders ORDER BY id",
    "SELECT id, name, created_at FROM customers VERSION AS OF 5 ORDER BY id",
    "SELECT sku, price, stock, stock > 100 AS much, price * 1.5e0 AS more, updated_at, CAST(updated_at AS DATE) AS day \
     FROM products ORDER BY sku",
    "SELECT _change_type, count(*) AS n FROM table_changes('orders', 0) GROUP BY 1 ORDER BY 1",
];

struct Served {
    child: Child,
    port: String,
}

impl Served {
    fn start(job: &TempJob) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_alluvium"))
            .args(["sql", "--serve", "127.0.0.1:0", "-j"])
            .arg(job.file())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(' ').next().unwrap().to_string();
        assert!(line.starts_with("listening") && port.parse::<u16>().is_ok(), "{line}");
        Self { child, port }
    }

    /// What psql prints, one row a line.
    fn psql(&self, sql: &str) -> (bool, String) {
        let output = Command::new("psql")
            .args(["-h", "127.0.0.1", "-p", &self.port, "-U", "reader", "-d", "lake", "-X", "-A", "-t", "-F", "|"])
            .args(["-P", "null=NULL", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .expect("psql is there: run tests/servers/install.sh pg");
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// What a driver gets that asks for the binary format of each value.
    fn driver(&self, arguments: &[&str]) -> String {
        let output = Command::new(cache().join("pg-venv/bin/python"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/ask_postgres.py"))
            .arg(&self.port)
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn psql_and_a_python_driver_get_the_rows_of_alluvium() {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], "run: { batch: { rows: 100, seconds: 600 } }\n");
    job.run().expect_code(0);
    let served = Served::start(&job);
    for sql in QUERIES {
        let (is_right, by_psql) = served.psql(sql);
        assert!(is_right, "{sql}: {by_psql}");
        assert_eq!(by_psql, served.driver(&[sql]), "{sql}");
        let own = job.verb(&["sql", "--json", sql]).expect_code(0).stdout;
        let (_, count) = served.psql(&format!("SELECT count(*) FROM ({sql})"));
        assert_eq!(count.trim(), own.lines().count().to_string(), "{sql}");
    }
    let (is_right, refused) = served.psql("DELETE FROM orders");
    assert!(!is_right && refused.contains("is not allowed"), "{refused}");
    let (is_right, unknown) = served.psql("SELECT * FROM oders");
    assert!(!is_right && unknown.contains("did you mean shop.orders"), "{unknown}");
    job.verb(&["sql", "--serve", "0.0.0.0:0"]).expect_code(2).expect_stderr(&["other machines"]);
}

#[test]
fn a_driver_gives_values_for_parameters() {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], "");
    job.run().expect_code(0);
    let served = Served::start(&job);
    let same = |query: &str, values: &[&str], plain: &str| {
        let by_values = served.driver(&[&[query], values].concat());
        assert!(!by_values.is_empty(), "{query}");
        assert_eq!(by_values, served.psql(plain).1, "{query} {values:?}");
    };
    let plain =
        "SELECT id, status FROM orders WHERE id = 7 OR (status = 'paid' AND placed_at < '2026-09-10') ORDER BY id";
    let query = "SELECT id, status FROM orders WHERE id = $1 OR (status = $2 AND placed_at < $3) ORDER BY id";
    same(query, &["decimal:7", "text:paid", "time:2026-09-10"], plain);
    // A value with more digits than the column has must not be rounded to one that is there.
    let (query, cheaper) =
        ("SELECT count(*) FROM orders WHERE total < $1", "SELECT count(*) FROM orders WHERE total < 100.001");
    same(query, &["decimal:100.001"], cheaper);
    let (query, limited) = ("SELECT id FROM orders ORDER BY id LIMIT $1", "SELECT id FROM orders ORDER BY id LIMIT 3");
    same(query, &["int:3"], limited);
    same(
        "SELECT $1::date AS day, $2::bytea AS b, $3::bigint IS NULL AS n",
        &["date:2026-01-31", "bytes:00ff", "null:"],
        "SELECT date '2026-01-31', X'00ff', true",
    );
    same(
        "SELECT max(id) FROM orders VERSION AS OF 3 WHERE customer_id <> $1",
        &["int:-1"],
        "SELECT max(id) FROM orders VERSION AS OF 3",
    );
}

#[test]
fn psql_lists_and_describes_the_tables() {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], "");
    job.run().expect_code(0);
    let served = Served::start(&job);
    let (is_right, tables) = served.psql("\\dt");
    let names: Vec<&str> = tables.lines().filter_map(|line| line.split('|').nth(1)).collect();
    assert!(is_right && names == ["customers", "order_items", "orders", "products"], "{tables}");
    let (is_right, columns) = served.psql("\\d shop.orders");
    assert!(is_right && columns.contains("customer_id|bigint") && columns.contains("total|numeric"), "{columns}");
    let catalogue = "SELECT a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relname = $1 AND a.attnum = 1";
    assert_eq!(served.driver(&[catalogue, "text:orders"]), "id\n");
    let (is_right, several) = served.psql("BEGIN; SELECT count(*) FROM orders; SELECT ';'; COMMIT");
    assert!(is_right && several == "BEGIN\n150\n;\nCOMMIT\n", "{several}");
}

#[test]
fn statements_are_read_from_a_pipe() {
    let job = TempJob::files(&demo_files("shop"), &["shop.*"], "");
    job.run().expect_code(0);
    let ask = |text: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_alluvium"))
            .args(["sql", "--format", "csv", "-j"])
            .arg(job.file())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, stdout, stderr) = ask("\\timing\nselect count(*) as n\nfrom orders;\nselect 2 as b;\n\\q\nselect 3;\n");
    assert_eq!((code, stdout.as_str()), (Some(0), "n\n150\nb\n2\n"), "{stderr}");
    assert_eq!(stderr.matches("time: ").count(), 2, "{stderr}");
    let (code, stdout, stderr) = ask("select 1 as a; select ';' as b; -- all\nselect 'x\n;' as c; -- more");
    assert_eq!((code, stdout.as_str()), (Some(0), "a\n1\nb\n;\nc\n\"x\n;\"\n"), "{stderr}");
    let (code, stdout, _) = ask("\\d orders\n");
    assert!(code == Some(0) && stdout.contains("channel"), "{stdout}");
    let (code, stdout, stderr) = ask("select wrong from orders;\nselect 1 as a");
    assert_eq!((code, stdout.as_str()), (Some(2), "a\n1\n"), "{stderr}");
}
