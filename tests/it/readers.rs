//! Engines of others read the tables: DuckDB, the Python packages of deltalake and polars, and Spark with Delta Lake's own
//! implementation. Spark writes to them too.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::demo::{SHOP, WAREHOUSE, demo_files, expected};
use crate::harness::{Content, Flavor, Server, Service, TempJob, assert_same};
use crate::oracle::{Workload, assert_lake_equals, seed};

mod divided;
mod states;
mod writes;

/// A table as an engine is asked for it: its folder, its version (`None` is the newest) and its key.
pub type Asked = (PathBuf, Option<u64>, Vec<String>);

/// An engine and how `tests/scripts/read_delta.py` is asked for it.
pub struct Engine {
    /// The folder of its Python environment in the cache.
    environment: &'static str,
    argument: String,
}

impl Engine {
    fn duckdb() -> Self {
        Self { environment: "duckdb-venv", argument: "duckdb".to_string() }
    }

    /// The deltalake package for Python, by SQL.
    fn deltalake() -> Self {
        Self { environment: "delta-venv", argument: "deltalake".to_string() }
    }

    /// The same package, by pyarrow: without deletion vectors.
    fn pyarrow() -> Self {
        Self { environment: "delta-venv", argument: "pyarrow".to_string() }
    }

    /// Polars by `scan_delta`, and by the deltalake package where a table is divided.
    fn polars() -> Self {
        Self { environment: "delta-venv", argument: "polars".to_string() }
    }

    /// Polars by `scan_delta` alone.
    fn polars_scan_delta() -> Self {
        Self { environment: "delta-venv", argument: "polars:scan_delta".to_string() }
    }

    pub fn spark() -> Self {
        Self { environment: "spark-venv", argument: format!("spark:{}", Service::spark().port) }
    }

    /// Tables as the engine gives them.
    fn read(&self, tables: &[Asked]) -> Vec<Content> {
        self.contents(&[], tables)
    }

    /// The rows of tables for which an SQL condition holds.
    fn read_where(&self, condition: &str, tables: &[Asked]) -> Vec<Content> {
        self.contents(&["--where", condition], tables)
    }

    /// The change data feeds of tables; the key of each is the table's, and the version and type of the change.
    pub fn read_changes(&self, tables: &[Asked]) -> Vec<Content> {
        let more = ["_commit_version".to_string(), "_change_type".to_string()];
        let with = |(folder, version, key): &Asked| (folder.clone(), *version, [&key[..], &more].concat());
        self.contents(&["--changes"], &tables.iter().map(with).collect::<Vec<_>>())
    }

    fn contents(&self, options: &[&str], tables: &[Asked]) -> Vec<Content> {
        let name = |(folder, version, _): &Asked| match version {
            Some(version) => format!("{}@{version}", folder.display()),
            None => folder.display().to_string(),
        };
        let options = options.iter().map(|option| option.to_string());
        let stdout = self.script(options.chain(tables.iter().map(name)).collect());
        let contents: Vec<Content> = stdout
            .lines()
            .zip(tables)
            .map(|(line, (folder, version, key))| {
                content(&format!("{} {version:?} by {}", folder.display(), self.argument), line, key)
            })
            .collect();
        assert_eq!(contents.len(), tables.len(), "{stdout}");
        contents
    }

    /// Lets the engine run SQL statements.
    fn run(&self, statements: Vec<String>) {
        self.script([vec!["--run".to_string()], statements].concat());
    }

    fn optimize(&self, folders: &[String]) {
        self.run(folders.iter().map(|folder| format!("OPTIMIZE delta.`{folder}`")).collect());
    }

    /// What `read_delta.py` prints. The engine's name and version go to the test's own output.
    pub fn script(&self, arguments: Vec<String>) -> String {
        let python = cache().join(self.environment).join("bin/python");
        assert!(python.exists(), "{} is not there: run make test (or tests/servers/install.sh)", python.display());
        let output = Command::new(python)
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/read_delta.py"))
            .arg(&self.argument)
            .args(arguments)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {stderr}", self.argument);
        stderr.lines().filter(|line| line.starts_with("engine: ")).for_each(|line| println!("{line}"));
        String::from_utf8(output.stdout).unwrap()
    }
}

#[tokio::test]
async fn duckdb_reads_what_the_servers_held() {
    check(&Engine::duckdb()).await;
}

#[tokio::test]
async fn spark_reads_what_the_servers_held() {
    check(&Engine::spark()).await;
}

#[tokio::test]
async fn deltalake_and_polars_read_what_the_servers_held() {
    check(&Engine::deltalake()).await;
    check(&Engine::polars()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deltalake_reads_every_type_as_the_servers_have_it() {
    check_types(&Engine::deltalake(), seed(34)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn polars_reads_every_type_as_the_servers_have_it() {
    check_types(&Engine::polars(), seed(35)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn duckdb_reads_every_type_as_the_servers_have_it() {
    check_types(&Engine::duckdb(), seed(31)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spark_reads_every_type_as_the_servers_have_it() {
    check_types(&Engine::spark(), seed(32)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_goes_on_with_tables_that_spark_has_compacted() {
    let mut workload = Workload::new(seed(33), Server::shared(Flavor::Mysql)).await;
    workload.create_tables().await;
    workload.run_blind(60).await;
    let job = TempJob::live(Server::shared(Flavor::Mysql), &[&workload.pattern()], "");
    job.run().expect_code(0);
    workload.run_blind(40).await;
    job.run().expect_code(0);
    let lake = job.lake();
    let versions = |table: &str| lake.commits(&workload.database, table).len();
    let tables = ["decimals", "moments"];
    let before = tables.map(versions);
    let folders = tables.map(|table| lake.table_folder(&workload.database, table).display().to_string());
    Engine::spark().optimize(&folders);
    assert!(tables.map(versions).iter().zip(before).all(|(after, before)| *after > before), "nothing to compact");
    assert_lake_equals(&lake, &mut workload).await;
    workload.run_blind(60).await;
    job.run().expect_code(0);
    assert_lake_equals(&lake, &mut workload).await;
}

/// Tables of random rows of all types, changed after the first load and widened.
async fn check_types(engine: &Engine, seed: u64) {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let mut workload = Workload::new(seed, server).await;
        workload.create_tables().await;
        workload.run_blind(120).await;
        let job = TempJob::live(server, &[&workload.pattern()], "");
        job.run().expect_code(0);
        workload.run_with_column(60).await;
        job.run().expect_code(0);
        let (lake, wanted) = (job.lake(), workload.content().await);
        let folder = |table: &String| lake.table_folder(&workload.database, table);
        let asked: Vec<_> = wanted.iter().map(|(table, rows)| (folder(table), None, rows.key.clone())).collect();
        for (found, (table, wanted)) in engine.read(&asked).iter().zip(&wanted) {
            assert_same(&format!("{flavor:?} {table} by {}", engine.argument), found, wanted);
        }
    }
}

/// All tables of the demo now, and at each version: the rows of now are the server's own, those of older versions are
/// what the deltalake crate reads.
async fn check(engine: &Engine) {
    for (database, tables) in [("shop", &SHOP[..]), ("warehouse", &WAREHOUSE[..])] {
        let job = TempJob::files(&demo_files(database), &[&format!("{database}.*")], "");
        job.run().expect_code(0);
        let lake = job.lake();
        let (mut asked, mut wanted) = (Vec::new(), Vec::new());
        for (table, key) in tables {
            let now = expected(database, table, key);
            let folder = lake.table_folder(database, table);
            for commit in lake.commits(database, table) {
                asked.push((folder.clone(), Some(commit.version), now.key.clone()));
                wanted.push(lake.content(database, table, &now.key, Some(commit.version)).await);
            }
            asked.push((folder, None, now.key.clone()));
            wanted.push(now);
        }
        for ((found, wanted), table) in engine.read(&asked).iter().zip(&wanted).zip(&asked) {
            assert_same(&format!("{table:?} by {}", engine.argument), found, wanted);
        }
        if database == "shop" {
            check_is_no_plain_table(&lake.table_folder("shop", "orders"));
        }
    }
}

/// What was folded, clustered and vacuumed, read from its checkpoint.
async fn check_upkept(engine: &Engine) {
    let more = "run: { batch: { rows: 7, seconds: 60 } }\nmaintain: off\n\
                tables: [{ match: warehouse.stock, cluster_by: [site, sku] }]\n";
    let job = TempJob::files(&demo_files("warehouse"), &["warehouse.*"], more);
    job.run().expect_code(0);
    let folded = job.verb(&["maintain", "--now", "compact"]).expect_code(0).stdout;
    assert!(folded.contains("warehouse.stock: compact: ") && folded.contains(" rewritten as "), "{folded}");
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let short = ["--retention", "1s", "--allow-short-retention"];
    job.verb(&[&["maintain", "--now", "vacuum"], &short[..]].concat()).expect_code(0);
    job.verb(&["maintain", "--now", "checkpoint"]).expect_code(0);
    let wanted: Vec<Content> = WAREHOUSE.iter().map(|(table, key)| expected("warehouse", table, key)).collect();
    let folders = WAREHOUSE.iter().map(|(table, _)| job.lake().table_folder("warehouse", table));
    let asked: Vec<_> = folders.zip(&wanted).map(|(folder, wanted)| (folder, None, wanted.key.clone())).collect();
    for (found, wanted) in engine.read(&asked).iter().zip(&wanted) {
        assert_same(&format!("upkept, by {}", engine.argument), found, wanted);
    }
}

#[tokio::test]
async fn duckdb_reads_tables_after_their_upkeep() {
    check_upkept(&Engine::duckdb()).await;
}

#[tokio::test]
async fn spark_reads_tables_after_their_upkeep() {
    check_upkept(&Engine::spark()).await;
}

/// The comparison proves nothing of deletion vectors and added columns unless the table has them.
fn check_is_no_plain_table(folder: &Path) {
    let log = std::fs::read_dir(folder.join("_delta_log")).unwrap().map(|entry| entry.unwrap().path());
    let log: Vec<String> = log.filter_map(|path| std::fs::read_to_string(path).ok()).collect();
    assert!(log.iter().any(|commit| commit.contains("\"deletionVector\":{")), "{log:#?}");
    assert!(log.iter().filter(|commit| commit.contains("\"metaData\":{")).count() > 1, "{log:#?}");
}

fn content(what: &str, line: &str, key: &[String]) -> Content {
    let table: Value = serde_json::from_str(line).unwrap();
    let columns = table["columns"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_string()).collect();
    let rows = table["rows"].as_array().unwrap().iter();
    let rows = rows.map(|row| row.as_array().unwrap().iter().map(canonical).collect()).collect();
    Content::new(what, columns, key, rows)
}

fn canonical(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::Object(number) => Some(format!("{:?}", number["float"].as_str().unwrap().parse::<f64>().unwrap())),
        text => Some(text.as_str().unwrap().to_string()),
    }
}

/// Where `tests/servers/install.sh` puts everything.
pub fn cache() -> PathBuf {
    let set = std::env::var_os("ALLUVIUM_CACHE").map(PathBuf::from);
    set.unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/alluvium"))
}
