//! Queries over Delta tables that the deltalake crate wrote, in a temporary folder.

mod vectors;

use std::path::Path as FilePath;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, Date32Array, Decimal128Array, Int64Array, RecordBatch, StringArray,
    TimestampMicrosecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use deltalake::DeltaTable;
use deltalake::protocol::SaveMode;
use futures::StreamExt;

use super::output::{Format, write};
use super::{QueryError, QueryLimits, Session};
use crate::change::TableId;
use crate::config::LakeConfig;
use crate::lake::Lake as CrateLake;

const MEMORY_BYTES: usize = 64 * 1024 * 1024;

/// A lake with `shop.orders` at versions 0 to 3 (one more order each; order n costs n.50), committed at 10:00:00, 10:00:01,
/// 10:00:01 and 10:00:03; `shop.Customers`, with a column `Id`; `crm.orders`; `crm.empty`, which was never written.
struct Lake {
    folder: tempfile::TempDir,
    session: Session,
}

impl Lake {
    async fn new() -> Self {
        Self::with_memory(MEMORY_BYTES).await
    }

    async fn with_memory(memory_bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for order in 1..=4 {
            append(folder.path(), "shop.orders", orders(&[order])).await;
        }
        for (version, second) in [(0, 0), (1, 1), (2, 1), (3, 3)] {
            set_commit_time(folder.path(), "shop/orders", version, second);
        }
        append(folder.path(), "shop.Customers", customers()).await;
        append(folder.path(), "crm.log book", orders(&[7])).await;
        append(folder.path(), "crm.people", customers()).await;
        let session = session(folder.path(), memory_bytes);
        Self { folder, session }
    }

    async fn text(&self, sql: &str, format: Format) -> Result<String, QueryError> {
        let (_, stream) = self.session.sql(sql).await?;
        let mut text = Vec::new();
        write(stream, format, &mut text).await?;
        Ok(String::from_utf8(text).unwrap())
    }

    async fn check(&self, sql: &str, expected: &str) {
        let found = match self.text(sql, Format::Csv).await {
            Ok(csv) => csv.trim_end().replace('\n', " "),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(found, expected, "{sql}");
    }
}

fn config(folder: &FilePath) -> LakeConfig {
    LakeConfig { url: url::Url::from_directory_path(folder).unwrap(), options: std::collections::BTreeMap::new() }
}

fn table(name: &str) -> TableId {
    let (database, table) = name.split_once('.').unwrap();
    TableId::new(database, table)
}

fn session(folder: &FilePath, memory_bytes: usize) -> Session {
    let tables = ["shop.orders", "shop.Customers", "crm.log book", "crm.people", "crm.empty"].map(table);
    let limits = QueryLimits { memory_bytes, spill_dir: folder.join("spill") };
    Session::open(&config(folder), tables.to_vec(), &limits).unwrap()
}

async fn append(folder: &FilePath, name: &str, rows: RecordBatch) {
    let log_store = CrateLake::open(&config(folder)).unwrap().log_store(&table(name));
    let mut table = DeltaTable::new(log_store);
    // A table that is not there yet is made by the write.
    let _ = table.load().await;
    table.write([rows]).with_save_mode(SaveMode::Append).await.unwrap();
}

fn log_file(folder: &FilePath, table: &str, version: u64) -> std::path::PathBuf {
    folder.join(table).join("_delta_log").join(format!("{version:020}.json"))
}

/// Puts a version's commit at a second past 2026-01-01 10:00 UTC.
fn set_commit_time(folder: &FilePath, table: &str, version: u64, second: i64) {
    let path = log_file(folder, table, version);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| {
        let mut action: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(info) = action.get_mut("commitInfo") {
            info["timestamp"] = (1_767_261_600_000 + second * 1000).into();
        }
        action.to_string()
    });
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
}

fn orders(ids: &[i64]) -> RecordBatch {
    let totals = ids.iter().map(|id| i128::from(id * 100 + 50));
    let totals = Decimal128Array::from_iter_values(totals).with_precision_and_scale(10, 2).unwrap();
    let notes = ids.iter().map(|id| (id % 2 == 0).then(|| format!("note {id}")));
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(ids.to_vec())) as ArrayRef, false),
        ("total", Arc::new(totals) as ArrayRef, true),
        ("note", Arc::new(StringArray::from_iter(notes)) as ArrayRef, true),
    ])
    .unwrap()
}

fn customers() -> RecordBatch {
    RecordBatch::try_from_iter([
        ("Id", Arc::new(Int64Array::from(vec![1, 2])) as ArrayRef),
        ("FullName", Arc::new(StringArray::from(vec!["Ann", "Bob"])) as ArrayRef),
    ])
    .unwrap()
}

#[tokio::test]
async fn a_table_is_read_by_its_name_with_and_without_database_in_any_case() {
    let lake = Lake::new().await;
    for name in ["orders", "ORDERS", "shop.orders", "Shop.Orders", "`orders`", "\"shop\".\"orders\""] {
        lake.check(&format!("SELECT count(*) AS n FROM {name}"), "n 4").await;
    }
    lake.check("SELECT id FROM crm.`log book`", "id 7").await;
    lake.check("SELECT orders.id, shop.orders.total FROM orders WHERE Orders.id = 1", "id,total 1,1.50").await;
}

#[tokio::test]
async fn every_way_to_name_a_version_reads_that_version() {
    let lake = Lake::new().await;
    for clause in [
        "orders VERSION AS OF 1",
        "shop.orders FOR VERSION AS OF 1",
        "orders@v1",
        "shop.orders@v1",
        "orders TIMESTAMP AS OF '2026-01-01 10:00:00.999' o",
        "orders FOR TIMESTAMP AS OF '2026-01-01T12:00:00+02:00'",
        "orders FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01 10:00'",
    ] {
        let expected = if clause.contains("2026") { "n 1" } else { "n 2" };
        lake.check(&format!("SELECT count(*) AS n FROM {clause}"), expected).await;
    }
}

#[tokio::test]
async fn versions_of_one_table_are_joined_and_used_in_subqueries_and_with() {
    let lake = Lake::new().await;
    lake.check(
        "SELECT n.id FROM orders n LEFT JOIN orders VERSION AS OF 2 old ON n.id = old.id WHERE old.id IS NULL",
        "id 4",
    )
    .await;
    lake.check("SELECT id FROM orders WHERE id NOT IN (SELECT id FROM orders@v1) ORDER BY id", "id 3 4").await;
    lake.check(
        "WITH old AS (SELECT * FROM orders VERSION AS OF 0), orders AS (SELECT * FROM orders WHERE id > 2) \
         SELECT (SELECT count(*) FROM old) a, (SELECT count(*) FROM orders) b",
        "a,b 1,2",
    )
    .await;
    lake.check("SELECT orders.id FROM orders VERSION AS OF 0 WHERE orders.total > 1", "id 1").await;
}

#[tokio::test]
async fn versions_stand_wherever_a_table_can_stand() {
    let lake = Lake::new().await;
    for (sql, expected) in [
        ("SELECT count(*) n FROM (orders VERSION AS OF 1 a JOIN orders b ON a.id = b.id)", "n 2"),
        ("SELECT count(*) n FROM orders@v0 a, orders VERSION AS OF 1 AS b, customers", "n 4"),
        ("SELECT id FROM orders@v0 UNION ALL SELECT Id FROM customers ORDER BY ID", "id 1 1 2"),
        ("SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM orders@v1 x WHERE x.id = o.id) ORDER BY id", "id 1 2"),
        ("SELECT (SELECT max(id) FROM orders VERSION AS OF 2) - max(id) AS grown FROM orders@v0", "grown 2"),
        (
            "WITH RECURSIVE up AS (SELECT 1 AS k UNION ALL SELECT k + 1 FROM up WHERE k < 3) SELECT sum(K) s FROM Up",
            "s 6",
        ),
        ("SELECT o.* FROM orders@v0 AS o", "id,total,note 1,1.50,"),
        ("SELECT orders.* FROM orders VERSION AS OF 0", "id,total,note 1,1.50,"),
    ] {
        lake.check(sql, expected).await;
    }
}

#[tokio::test]
async fn an_old_version_has_its_old_columns() {
    let lake = Lake::new().await;
    let schema = deltalake::kernel::StructField::new("City", deltalake::kernel::DataType::STRING, true);
    lake.delta("shop/Customers").await.add_columns().with_fields([schema]).await.unwrap();
    lake.check("SELECT * FROM customers ORDER BY id LIMIT 1", "Id,FullName,City 1,Ann,").await;
    lake.check("SELECT * FROM customers@v0 ORDER BY id LIMIT 1", "Id,FullName 1,Ann").await;
    lake.check("SELECT count(n.CITY) c FROM customers n JOIN customers@v0 o USING (id)", "c 0").await;
    lake.check(
        "SELECT city FROM customers@v0",
        "error: the query can't be run: no column city; there are: Id, FullName (text is written in single quotes)",
    )
    .await;
}

#[tokio::test]
async fn a_time_means_the_newest_version_that_is_not_later() {
    let lake = Lake::new().await;
    for (time, expected) in [
        ("10:00:00", "n 1"),
        ("10:00:00.999", "n 1"),
        ("10:00:01", "n 3"),
        ("10:00:02.999", "n 3"),
        ("10:00:03", "n 4"),
        ("23:00:00", "n 4"),
    ] {
        let sql = format!("SELECT count(*) n FROM orders TIMESTAMP AS OF '2026-01-01 {time}'");
        lake.check(&sql, expected).await;
    }
    lake.check(
        "SELECT * FROM orders TIMESTAMP AS OF '2026-01-01 09:59:59'",
        "error: shop.orders did not exist at 2026-01-01T09:59:59Z: its first version is 0, committed at 2026-01-01T10:00:00Z",
    )
    .await;
}

#[tokio::test]
async fn a_version_that_is_not_there_is_answered_with_those_that_are() {
    let lake = Lake::new().await;
    lake.check(
        "SELECT * FROM orders VERSION AS OF 4",
        "error: version 4 of shop.orders can't be read: versions 0 to 3 can",
    )
    .await;
    let table = Lake::delta(&lake, "shop/orders").await;
    deltalake::checkpoints::create_checkpoint(&table, None).await.unwrap();
    for version in 0..3 {
        std::fs::remove_file(log_file(lake.folder.path(), "shop/orders", version)).unwrap();
    }
    lake.check("SELECT count(*) n FROM orders@v3", "n 4").await;
    lake.check("SELECT * FROM orders@v1", "error: version 1 of shop.orders can't be read: versions 3 to 3 can").await;
    lake.check(
        "SELECT * FROM orders TIMESTAMP AS OF '2026-01-01 10:00:02'",
        "error: shop.orders did not exist at 2026-01-01T10:00:02Z: its first version is 3, committed at 2026-01-01T10:00:03Z",
    )
    .await;
}

impl Lake {
    async fn delta(&self, table: &str) -> DeltaTable {
        deltalake::open_table(url::Url::from_directory_path(self.folder.path().join(table)).unwrap()).await.unwrap()
    }
}

#[tokio::test]
async fn the_case_of_names_does_not_matter_where_it_tells_nothing_apart() {
    let lake = Lake::new().await;
    lake.check("SELECT Id, NOTE FROM Orders WHERE ID = 2", "id,note 2,note 2").await;
    lake.check("SELECT fullname FROM customers WHERE `id` = 2", "FullName Bob").await;
    lake.check("SELECT O.id FROM orders o JOIN customers C ON c.ID = o.Id ORDER BY 1", "id 1 2").await;
    lake.check("SELECT id FROM orders JOIN Customers USING (ID) ORDER BY id", "id 1 2").await;
    lake.check("SELECT sum(total) AS Spent FROM orders HAVING SPENT > 1", "Spent 12.00").await;
    lake.check("SELECT x.ID FROM (SELECT id AS Id FROM orders) X WHERE x.iD = 3", "id 3").await;
    lake.check("SELECT Count(*) AS Count FROM orders GROUP BY note IS NULL ORDER BY COUNT", "Count 2 2").await;
    lake.check("SELECT CUSTOMERS.id FROM customers ORDER BY Customers.FULLNAME DESC LIMIT 1", "Id 2").await;
}

#[tokio::test]
async fn numbers_and_nulls_behave_as_in_mysql() {
    let lake = Lake::new().await;
    lake.check("SELECT id FROM orders WHERE total = 2.50", "id 2").await;
    lake.check("SELECT 0.1 + 0.2 = 0.3 AS exact", "exact true").await;
    lake.check("SELECT id, note FROM orders ORDER BY note, id LIMIT 3", "id,note 1, 3, 2,note 2").await;
}

#[tokio::test]
async fn what_writes_is_refused() {
    let lake = Lake::new().await;
    for (sql, found) in [
        ("DELETE FROM orders", "DELETE"),
        ("INSERT INTO orders VALUES (1, 2.0, 'secret')", "INSERT"),
        ("UPDATE orders SET id = 1", "UPDATE"),
        ("DROP TABLE orders", "DROP"),
        ("CREATE TABLE t AS SELECT * FROM orders", "CREATE"),
        ("COPY orders TO '/tmp/x'", "COPY"),
        ("SET datafusion.execution.batch_size = 1", "SET"),
        ("EXPLAIN DELETE FROM orders", "DELETE"),
        ("WITH o AS (SELECT 1) INSERT INTO orders SELECT * FROM o", "INSERT"),
        ("SELECT * INTO t FROM orders", "SELECT ... INTO"),
        ("TRUNCATE TABLE orders", "TRUNCATE"),
    ] {
        let error = lake.text(sql, Format::Csv).await.unwrap_err();
        assert!(matches!(&error, QueryError::NotReadOnly { found: what } if what == found), "{sql}: {error}");
        assert!(!error.to_string().contains("secret"));
    }
    lake.check("SELECT 1; SELECT 2", "error: found 2 statements, expected one; send them one by one").await;
    lake.check(" ; ", "error: found 0 statements, expected one; send them one by one").await;
    lake.check("SELECT count(*) n FROM orders;", "n 4").await;
}

#[tokio::test]
async fn show_and_describe_tell_what_there_is() {
    let lake = Lake::new().await;
    let all = "table,database empty,crm log book,crm people,crm Customers,shop orders,shop";
    lake.check("SHOW TABLES", all).await;
    lake.check("SHOW TABLES FROM shop", "table,database Customers,shop orders,shop").await;
    lake.check("SHOW TABLES LIKE '%o%'", "table,database log book,crm people,crm Customers,shop orders,shop").await;
    lake.check("SHOW DATABASES", "database crm shop").await;
    let columns = "column,type,null,key id,long,NO,\"\" total,\"decimal(10,2)\",YES,\"\" note,string,YES,\"\"";
    for sql in ["DESCRIBE Orders", "DESC shop.orders", "SHOW COLUMNS FROM orders", "DESCRIBE orders VERSION AS OF 1"] {
        lake.check(sql, columns).await;
    }
    lake.check(
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE table_schema = 'shop' ORDER BY table_name",
        "table_name Customers orders",
    )
    .await;
    lake.check(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'people' ORDER BY 1",
        "column_name FullName Id",
    )
    .await;
    let plan = lake.text("EXPLAIN SELECT id FROM orders@v1 WHERE id = 1", Format::Csv).await.unwrap();
    assert!(plan.contains("orders@v1"), "{plan}");
}

#[tokio::test]
async fn mistakes_are_told_in_the_words_of_the_query() {
    let lake = Lake::new().await;
    for (sql, expected) in [
        ("SELECT * FROM order_s", "no table order_s in this lake; did you mean shop.orders?"),
        ("SELECT * FROM empty", "table crm.empty has no data in the lake yet; fill it with: alluvium run"),
        ("SELECT totl FROM orders", "the query can't be run: no column totl; did you mean total?"),
        (
            "SELECT o.price FROM orders o",
            "the query can't be run: no column o.price; there are: id, total, note (text is written in single quotes)",
        ),
        (
            "SELECT id FROM orders o JOIN customers c ON o.id = c.id",
            "the query can't be run: column id is in more than one table; write the table's name in front of it",
        ),
        ("SELEC 1", "syntax error in the query: Expected: an SQL statement, found: SELEC at Line: 1, Column: 1"),
        ("SELECT 'a", "syntax error in the query: Unterminated string literal at Line: 1, Column: 8"),
        ("SELECT roundd(1)", "the query can't be run: Invalid function 'roundd'. Did you mean 'round'?"),
    ] {
        lake.check(sql, &format!("error: {expected}")).await;
    }
}

#[tokio::test]
async fn data_that_vacuum_removed_is_told_from_other_failures() {
    let lake = Lake::new().await;
    let folder = lake.folder.path().join("shop/Customers");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "parquet") {
            std::fs::remove_file(path).unwrap();
        }
    }
    let error = lake.text("SELECT * FROM customers", Format::Csv).await.unwrap_err();
    assert!(matches!(error, QueryError::FileGone { .. }), "{error:?}");
}

#[tokio::test]
async fn a_query_keeps_to_its_memory_by_spilling_or_says_that_it_can_not() {
    let lake = Lake::with_memory(16 * 1024 * 1024).await;
    let many = "(SELECT value * 7919 % 400009 AS k, repeat('x', 40) AS pad FROM generate_series(1, 400000))";
    lake.check(
        &format!(
            "SELECT count(*) n FROM (SELECT k, pad, row_number() OVER (ORDER BY pad, k) r FROM {many}) WHERE r > 5"
        ),
        "n 399995",
    )
    .await;
    let join = format!("SELECT count(*) FROM {many} a JOIN {many} b ON a.k = b.k AND a.pad = b.pad");
    let error = lake.text(&join, Format::Csv).await.unwrap_err();
    assert!(matches!(error, QueryError::OutOfMemory), "{error:?}");
}

fn every_kind() -> RecordBatch {
    let micros = 1_767_261_600_500_000;
    RecordBatch::try_from_iter([
        (
            "d",
            Arc::new(
                Decimal128Array::from(vec![Some(12_345_678_901_234_567_890_123_456_789_012_345_678), None])
                    .with_precision_and_scale(38, 10)
                    .unwrap(),
            ) as ArrayRef,
        ),
        ("t", Arc::new(TimestampMicrosecondArray::from(vec![Some(micros), None]).with_timezone("UTC")) as ArrayRef),
        ("n", Arc::new(TimestampMicrosecondArray::from(vec![Some(micros), None])) as ArrayRef),
        ("day", Arc::new(Date32Array::from(vec![Some(0), None])) as ArrayRef),
        ("b", Arc::new(BinaryArray::from_opt_vec(vec![Some(&[0, 255]), None])) as ArrayRef),
        ("s", Arc::new(StringArray::from(vec![Some("a\"b,\nc"), Some("")])) as ArrayRef),
        ("big", Arc::new(Int64Array::from(vec![Some(i64::MAX), None])) as ArrayRef),
    ])
    .unwrap()
}

async fn check_output(batch: RecordBatch, format: Format, expected: &str) {
    let stream = datafusion::physical_plan::stream::RecordBatchStreamAdapter::new(
        batch.schema(),
        futures::stream::iter([Ok(batch)]),
    );
    let mut text = Vec::new();
    write(Box::pin(stream), format, &mut text).await.unwrap();
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[tokio::test]
async fn csv_has_every_digit_and_tells_null_from_the_empty_text() {
    let expected = "d,t,n,day,b,s,big\n\
        1234567890123456789012345678.9012345678,2026-01-01T10:00:00.500Z,2026-01-01T10:00:00.500,1970-01-01,00ff,\
        \"a\"\"b,\nc\",9223372036854775807\n,,,,,\"\",\n";
    check_output(every_kind(), Format::Csv, expected).await;
}

#[tokio::test]
async fn json_has_one_object_a_line_with_every_digit() {
    let expected = "{\"d\":1234567890123456789012345678.9012345678,\"t\":\"2026-01-01T10:00:00.500Z\",\
        \"n\":\"2026-01-01T10:00:00.500\",\"day\":\"1970-01-01\",\"b\":\"00ff\",\"s\":\"a\\\"b,\\nc\",\
        \"big\":9223372036854775807}\n\
        {\"d\":null,\"t\":null,\"n\":null,\"day\":null,\"b\":null,\"s\":\"\",\"big\":null}\n";
    check_output(every_kind(), Format::Json, expected).await;
}

#[tokio::test]
async fn a_table_is_aligned_and_counted_and_control_characters_are_escaped() {
    let batch = RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(Int64Array::from(vec![1, 100])) as ArrayRef, true),
        ("name", Arc::new(StringArray::from(vec![Some("a\u{1b}[31m\nb"), None])) as ArrayRef, true),
    ])
    .unwrap();
    let expected = "+-----+-------------+\n\
                    |  id | name        |\n\
                    +-----+-------------+\n\
                    |   1 | a\\u{1b}[31m |\n\
                    |     | b           |\n\
                    | 100 | NULL        |\n\
                    +-----+-------------+\n\
                    2 rows\n";
    check_output(batch, Format::Table, expected).await;
    let none = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new(
        "at",
        DataType::Timestamp(TimeUnit::Microsecond, None),
        true,
    )])));
    check_output(none, Format::Table, "+----+\n| at |\n+----+\n0 rows\n").await;
}

#[tokio::test]
async fn rows_come_while_the_query_runs() {
    let lake = Lake::new().await;
    let endless = "SELECT a.value FROM generate_series(1, 1000000000000) a";
    let (_, mut stream) = lake.session.sql(endless).await.unwrap();
    assert!(stream.next().await.unwrap().unwrap().num_rows() > 0);
}
