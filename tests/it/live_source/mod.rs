//! A live server as a source: the same values by SELECT and from the log, and every way to fail.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use alluvium::change::{ChangeBatch, ResumePoint, TableId};
use alluvium::config::{MysqlConfig, ResumeBy, Secret, SnapshotConfig, TableFilter, TlsMode};
use alluvium::schema::TableSchema;
use alluvium::source::mysql::live::MysqlSource;
use alluvium::source::{ChangeStream, KeyRange, Source, SourceError, SourceErrorKind, SourceEvent, Split, SplitLimits};
use arrow::array::{Array, RecordBatch};
use arrow::compute::concat_batches;
use arrow::util::display::array_value_to_string;

use crate::harness::{Flavor, PASSWORD, Server};

mod cases;
mod failures;
mod resuming;

use cases::Case;

/// Longest wait for something that the server has already done.
const PATIENCE: Duration = Duration::from_secs(30);

fn config(server: &Server, pattern: &str) -> MysqlConfig {
    MysqlConfig {
        host: "127.0.0.1".into(),
        port: server.port,
        user: "root".into(),
        password: Secret::new(PASSWORD),
        tls: TlsMode::Disabled,
        ca: None,
        tables: TableFilter::new([pattern]).unwrap(),
        snapshot: SnapshotConfig::DEFAULT,
        resume: ResumeBy::Auto,
        server_id: 900_000 + std::process::id() % 100_000 + rand::random_range(0..1_000_000),
    }
}

fn source(server: &Server, pattern: &str) -> MysqlSource {
    MysqlSource::new(config(server, pattern), BTreeMap::new())
}

async fn schemas(source: &MysqlSource) -> HashMap<TableId, Arc<TableSchema>> {
    let tables = source.tables().await.unwrap();
    let schema = |table: alluvium::source::DiscoveredTable| {
        let schema = table.schema.unwrap_or_else(|reason| panic!("{reason}"));
        (table.table, Arc::new(schema))
    };
    tables.into_iter().map(schema).collect()
}

async fn open(source: &MysqlSource, from: &ResumePoint) -> Box<dyn ChangeStream> {
    source.stream(from, schemas(source).await, HashSet::new()).await.unwrap()
}

/// All rows up to `until`, and the last boundary.
async fn read_to(stream: &mut dyn ChangeStream, until: &ResumePoint) -> (Vec<ChangeBatch>, ResumePoint) {
    let (mut batches, mut seen) = (Vec::new(), None);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        let event = tokio::time::timeout_at(deadline, stream.next()).await;
        let event = event.unwrap_or_else(|_| panic!("read up to {seen:?} only, not to {until:?}")).unwrap();
        match event.expect("a live stream has no end") {
            SourceEvent::Rows(batch) => batches.push(batch),
            SourceEvent::Boundary(boundary) if boundary.resume.position >= until.position => {
                return (batches, boundary.resume);
            }
            SourceEvent::Boundary(boundary) => seen = Some(boundary.resume),
            // Its rows will be missed by the caller.
            SourceEvent::TableStopped(stopped) => println!("{}: {}", stopped.table, stopped.reason),
            other => panic!("{other:?}"),
        }
    }
}

fn rows_of(table: &TableSchema, batches: &[ChangeBatch]) -> RecordBatch {
    let of_table = batches.iter().filter(|batch| batch.schema.table == table.table);
    let rows: Vec<&RecordBatch> =
        of_table.inspect(|batch| batch.validate().unwrap()).map(|batch| &batch.rows).collect();
    concat_batches(&table.arrow_schema(), rows).unwrap()
}

/// The whole of a table, at most so many rows.
async fn read_some(source: &MysqlSource, schema: &Arc<TableSchema>, rows_max: usize) -> Split {
    let limits = SplitLimits { rows_max, bytes_max: usize::MAX };
    source.read_split(schema, &KeyRange::default(), limits).await.unwrap()
}

/// All rows of a table, by splits that a limit ends after `rows_max` rows.
async fn read_splits(source: &MysqlSource, schema: &Arc<TableSchema>, rows_max: usize) -> RecordBatch {
    let (mut batches, mut range) = (Vec::new(), KeyRange::default());
    loop {
        let limits = SplitLimits { rows_max, bytes_max: usize::MAX };
        let split = source.read_split(schema, &range, limits).await.unwrap();
        assert!(split.low.position <= split.high.position, "{split:?}");
        batches.extend(split.rows);
        range.after = match split.last_key {
            Some(key) => Some(key),
            None => return rows_of(schema, &batches),
        };
    }
}

/// All rows of a table, by splits that are cut beforehand to have about `rows` rows.
async fn read_cuts(source: &MysqlSource, schema: &Arc<TableSchema>, rows: usize) -> RecordBatch {
    let (mut batches, mut range) = (Vec::new(), KeyRange::default());
    loop {
        range.upto = source.next_cut(schema, &range, rows).await.unwrap();
        let limits = SplitLimits { rows_max: 1_000_000, bytes_max: usize::MAX };
        let split = source.read_split(schema, &range, limits).await.unwrap();
        assert_eq!(split.last_key, range.upto, "no limit was met");
        batches.extend(split.rows);
        range.after = match range.upto.take() {
            Some(key) => Some(key),
            None => return rows_of(schema, &batches),
        };
    }
}

/// The differences between two columns, a line each.
fn differences(what: &str, selected: &dyn Array, logged: &dyn Array) -> Vec<String> {
    if selected.len() != logged.len() {
        return vec![format!("{what}: {} rows by SELECT, {} from the log", selected.len(), logged.len())];
    }
    let show = |array: &dyn Array, row: usize| match array.is_null(row) {
        true => "NULL".to_string(),
        false => format!("{:?}", array_value_to_string(array, row).unwrap()),
    };
    let differs =
        (0..selected.len()).filter(|row| selected.slice(*row, 1).to_data() != logged.slice(*row, 1).to_data());
    differs
        .map(|row| format!("{what} row {row}: {} by SELECT, {} from the log", show(selected, row), show(logged, row)))
        .collect()
}

/// Runs statements with everything allowed that a server can be talked into.
async fn run(server: &Server, statements: Vec<String>) {
    let lenient = ["SET sql_mode = ''".to_string()];
    let all: Vec<&str> = lenient.iter().chain(&statements).map(String::as_str).collect();
    server.exec_all(&all).await;
}

async fn fill(server: &Server, database: &str, cases: &[Case]) {
    let statement = |(number, case): (usize, &Case)| {
        let values = case.values.iter().enumerate().map(|(id, value)| format!("({id}, {value})"));
        let values: Vec<String> = values.collect();
        format!("INSERT IGNORE INTO {database}.t{number} (id, v) VALUES {}", values.join(", "))
    };
    run(server, cases.iter().enumerate().map(statement).collect()).await;
}

async fn create(server: &Server, database: &str, cases: &[Case]) {
    let statement = |(number, case): (usize, &Case)| {
        format!("CREATE TABLE {database}.t{number} (id INT PRIMARY KEY, v {})", case.definition)
    };
    run(server, cases.iter().enumerate().map(statement).collect()).await;
}

async fn check_values(server: &Server, cases: Vec<Case>) {
    let database = &server.new_database("same_values").await;
    create(server, database, &cases).await;
    let source = source(server, &format!("{database}.*"));
    let start = source.start().await.unwrap();
    let schemas = schemas(&source).await;
    let mut stream = source.stream(&start, schemas.clone(), HashSet::new()).await.unwrap();
    fill(server, database, &cases).await;
    let (batches, _) = read_to(stream.as_mut(), &source.head().await.unwrap()).await;

    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let schema = &schemas[&TableId::new(database, format!("t{number}"))];
        let logged = rows_of(schema, &batches);
        let selected = read_splits(&source, schema, 7).await;
        assert_eq!(selected.num_rows(), case.values.len(), "{} by SELECT", case.definition);
        for (index, column) in schema.columns.iter().enumerate() {
            let what = format!("{} {}", case.definition, column.name);
            wrong.extend(differences(&what, selected.column(index), logged.column(index)));
        }
    }
    assert!(wrong.is_empty(), "{} differences:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test]
async fn mysql_gives_the_same_values_by_select_and_from_the_log_for_every_type() {
    let server = Server::shared(Flavor::Mysql);
    check_values(server, cases::all(server).await).await;
}

#[tokio::test]
async fn mariadb_gives_the_same_values_by_select_and_from_the_log_for_every_type() {
    let server = Server::shared(Flavor::Mariadb);
    check_values(server, cases::all(server).await).await;
}

/// Row metadata numbers the columns of a kind: each kind counts some and passes over others.
#[tokio::test]
async fn columns_of_all_kinds_in_one_table_keep_their_character_sets() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("all_kinds").await;
        let own = match flavor {
            Flavor::Mysql => "own VECTOR(2), doc JSON",
            Flavor::Mariadb => "own UUID, doc INET6",
        };
        let value = match flavor {
            Flavor::Mysql => "STRING_TO_VECTOR('[1,2]'), '{\"é\": 1}'",
            Flavor::Mariadb => "UUID(), '::1'",
        };
        let columns = format!(
            "id INT PRIMARY KEY, g1 GEOMETRY, a VARCHAR(9) CHARACTER SET latin1, {own}, e ENUM('é', 'ü') CHARACTER SET \
             latin1, b TEXT CHARACTER SET utf8mb4, c BLOB, g2 POINT, d CHAR(5) CHARACTER SET cp1251, s SET('é', '🍯') \
             CHARACTER SET utf8mb4, f VARCHAR(9) CHARACTER SET greek, n DECIMAL(9, 2), h VARBINARY(9)"
        );
        server.exec(format!("CREATE TABLE {database}.t ({columns})")).await;
        let source = source(server, &format!("{database}.*"));
        let start = source.start().await.unwrap();
        let schemas = schemas(&source).await;
        let mut stream = source.stream(&start, schemas.clone(), HashSet::new()).await.unwrap();
        let point = "ST_GeomFromText('POINT(1 2)')";
        let values = format!("1, {point}, 'é', {value}, 'ü', '🍯é', x'00ff', {point}, 'жи', 'é,🍯', 'αβ', 1.5, x'e9'");
        server.exec_all(&["SET NAMES utf8mb4", &format!("INSERT INTO {database}.t VALUES ({values})")]).await;
        let (batches, _) = read_to(stream.as_mut(), &source.head().await.unwrap()).await;
        let schema = &schemas[&TableId::new(database, "t")];
        let (logged, selected) = (rows_of(schema, &batches), read_splits(&source, schema, 7).await);
        let columns = schema.columns.iter().enumerate();
        let wrong =
            columns.flat_map(|(index, column)| differences(&column.name, selected.column(index), logged.column(index)));
        let wrong: Vec<_> = wrong.collect();
        assert!(wrong.is_empty() && logged.num_rows() == 1, "{flavor:?}:\n{}", wrong.join("\n"));
    }
}

/// Servers write their log in other ways than the test servers' own; the values are the same.
#[tokio::test]
async fn settings_of_the_log_do_not_change_the_values() {
    for (flavor, options) in [
        (Flavor::Mysql, ["--binlog-checksum=NONE", "--binlog-transaction-compression=ON"].as_slice()),
        (Flavor::Mysql, &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-row-metadata=MINIMAL"]),
        (Flavor::Mysql, &["--binlog-rows-query-log-events=ON", "--character-set-server=latin1", "--sql-mode=ANSI"]),
        (Flavor::Mariadb, &["--binlog-checksum=NONE", "--log-bin-compress=ON", "--log-bin-compress-min-len=10"]),
        (Flavor::Mariadb, &["--binlog-row-metadata=NO_LOG", "--binlog-annotate-row-events=OFF", "--sql-mode=ANSI"]),
    ] {
        let server = Server::own(flavor, options);
        check_values(&server, cases::few()).await;
    }
}

/// Every type that can be a key as a key: splits of every size meet each row once, in the server's order.
async fn check_keys(server: &Server) {
    let database = &server.new_database("every_key").await;
    let cases: Vec<Case> = cases::all(server).await.into_iter().filter(Case::is_key).collect();
    let mut statements = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let definition = case.definition.replace(" NULL", " NOT NULL");
        let table = format!("{database}.t{number}");
        statements.push(format!("CREATE TABLE {table} (v {definition}, n INT, PRIMARY KEY (v, n))"));
        let values = case.values.iter().filter(|value| *value != "NULL");
        let rows: Vec<String> = values.map(|value| format!("({value}, 1), ({value}, 2)")).collect();
        statements.push(format!("INSERT IGNORE INTO {table} (v, n) VALUES {}", rows.join(", ")));
    }
    run(server, statements).await;
    let source = source(server, &format!("{database}.*"));
    for (table, schema) in schemas(&source).await {
        let whole = read_splits(&source, &schema, 1_000_000).await;
        assert!(whole.num_rows() > 0, "{table}");
        for rows_max in [3] {
            let parts = read_splits(&source, &schema, rows_max).await;
            let kind = &schema.columns[0].source_type;
            assert_eq!(parts, whole, "{table} ({kind}) by splits of {rows_max}");
            let parts = read_cuts(&source, &schema, rows_max).await;
            assert_eq!(parts, whole, "{table} ({kind}) cut into splits of about {rows_max}");
        }
    }
}

#[tokio::test]
async fn splits_of_mysql_meet_every_row_once_whatever_the_key() {
    check_keys(Server::shared(Flavor::Mysql)).await;
}

#[tokio::test]
async fn splits_of_mariadb_meet_every_row_once_whatever_the_key() {
    check_keys(Server::shared(Flavor::Mariadb)).await;
}
