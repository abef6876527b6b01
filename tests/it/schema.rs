//! The source's columns change under a job: every statement that is followed, every policy, tables that come, go and change
//! their names. What the lake has is compared with the source, column by column.

use std::collections::BTreeMap;

use alluvium::failpoint;

use crate::harness::{BUSY_UPKEEP, Content, Flavor, SMALL_BATCHES, Server, TempJob, source_content};

/// The lake's rows of a table, reduced to the source's columns: `names` has the lake's name where it is another one.
async fn of_source(job: &TempJob, expected: &Content, database: &str, table: &str, names: &Names) -> Content {
    let lake_name = |name: &String| names.get(name.as_str()).map_or(name.clone(), |lake| (*lake).to_string());
    let key: Vec<String> = expected.key.iter().map(lake_name).collect();
    let found = job.lake().content(database, table, &key, None).await;
    let place = |name: &String| found.columns.iter().position(|column| *column == lake_name(name));
    let places: Vec<Option<usize>> = expected.columns.iter().map(place).collect();
    assert!(places.iter().all(Option::is_some), "{:?} of {:?}", expected.columns, found.columns);
    let row = |row: &Vec<Option<String>>| places.iter().map(|place| row[place.unwrap()].clone()).collect();
    let rows = found.rows.iter().map(|(key, values)| (key.clone(), row(values))).collect();
    Content { columns: expected.columns.clone(), key: expected.key.clone(), rows }
}

type Names = BTreeMap<&'static str, &'static str>;

/// All rows of the source's table are in the lake, in the columns that are meant for them.
async fn assert_equal(server: &Server, job: &TempJob, database: &str, table: &str, names: &Names, when: &str) {
    let expected = source_content(&mut server.connect().await, database, table).await;
    let found = of_source(job, &expected, database, table, names).await;
    let differences = found.differences(&expected);
    assert!(differences.is_empty(), "{:?} after {when}: {differences:#?}", server.flavor);
}

async fn exec(server: &Server, database: &str, statements: &[&str]) {
    let text: Vec<String> =
        std::iter::once(format!("USE {database}")).chain(statements.iter().map(|text| text.to_string())).collect();
    server.exec_all(&text.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

async fn is_out(job: &TempJob, database: &str, table: &str) -> Option<String> {
    let status = job.verb(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
    let tables = status["tables"].as_array().unwrap();
    let found = tables.iter().find(|found| found["table"]["table"] == table && found["table"]["database"] == database);
    let progress = &found.unwrap_or_else(|| panic!("{table} is not in the status: {status:#}"))["progress"];
    let reason = progress["reason"].as_str().unwrap_or_default();
    (progress["state"] != "following").then(|| format!("{}: {reason}", progress["state"].as_str().unwrap()))
}

/// Rows of a query, their values with `|` between them.
fn notes(job: &TempJob, sql: &str) -> Vec<String> {
    let found = job.verb(&["sql", "--format", "json", sql]).expect_code(0);
    let stream = serde_json::Deserializer::from_str(&found.stdout).into_iter::<serde_json::Value>();
    let lines = stream.map(Result::unwrap).flat_map(|value| match value {
        serde_json::Value::Array(rows) => rows,
        row => vec![row],
    });
    let row = |row: serde_json::Value| {
        let values = row.as_object().unwrap().values();
        values.map(|value| value.as_str().unwrap_or_default().to_string()).collect::<Vec<_>>().join("|")
    };
    lines.map(row).collect()
}

/// One statement, rows that are written after it, and the lake's names of columns from there on.
struct Change {
    statement: &'static str,
    rows: &'static [&'static str],
    names: &'static [(&'static str, &'static str)],
}

const fn change(
    statement: &'static str,
    rows: &'static [&'static str],
    names: &'static [(&'static str, &'static str)],
) -> Change {
    Change { statement, rows, names }
}

const MADE: &[&str] = &[
    "CREATE TABLE t (id INT PRIMARY KEY, a INT, b VARCHAR(10) DEFAULT 'b', c DECIMAL(5,2), d FLOAT, e INT, \
     f ENUM('x','y') CHARACTER SET latin1, g DATETIME(3), h DATE DEFAULT '2024-05-06')",
    "INSERT INTO t (id, a, b, c, d, e, f, g) VALUES (1, -1, 'one', 1.25, 0.1, 1, 'x', '2024-01-02 03:04:05.678'), \
     (2, 2147483647, 'two', -999.99, -1.5, 2, 'y', NULL), (3, NULL, NULL, NULL, 3, NULL, NULL, NULL)",
];

const FOLLOWED: &[Change] = &[
    change(
        "ALTER TABLE t DROP COLUMN e, ADD INDEX (a), COMMENT 'no e'",
        &[
            "INSERT INTO t (id, a, b, c, d, f, g) VALUES (4, 4, 'four', 4, 4, 'x', NOW(3))",
            "UPDATE t SET a = 7 WHERE id = 1",
        ],
        &[],
    ),
    change("ALTER TABLE t RENAME COLUMN b TO b2", &["INSERT INTO t (id, d) VALUES (5, 5)"], &[]),
    change(
        "ALTER TABLE t MODIFY a BIGINT FIRST",
        &["UPDATE t SET a = 9223372036854775807 WHERE id = 2", "INSERT INTO t (a, id, d) VALUES (6, 6, 6)"],
        &[],
    ),
    change(
        "ALTER TABLE t MODIFY c DECIMAL(9,4) AFTER id",
        &["INSERT INTO t (id, c, d) VALUES (7, 12345.6789, 7)"],
        &[],
    ),
    change("ALTER TABLE t MODIFY d DOUBLE NOT NULL DEFAULT 0.25", &["INSERT INTO t (id) VALUES (8)"], &[]),
    change(
        "ALTER TABLE t CHANGE a amount BIGINT COMMENT 'was a', MODIFY f ENUM('x','y','z') CHARACTER SET utf8mb4",
        &["INSERT INTO t (id, amount, f) VALUES (9, -9, 'z')"],
        &[],
    ),
    change(
        "ALTER TABLE t MODIFY b2 TEXT, MODIFY g DATETIME(6), ADD COLUMN e VARCHAR(5) NOT NULL DEFAULT 'new'",
        &["INSERT INTO t (id, b2, e) VALUES (10, REPEAT('b', 200), 'e')", "DELETE FROM t WHERE id = 3"],
        &[("e", "e__2")],
    ),
    change(
        "ALTER TABLE t CHANGE id number BIGINT NOT NULL",
        &["INSERT INTO t (number) VALUES (5000000000)", "UPDATE t SET number = 11 WHERE number = 10"],
        &[("e", "e__2"), ("number", "id")],
    ),
    change(
        "ALTER TABLE t RENAME COLUMN c TO amount, RENAME COLUMN amount TO c, DROP COLUMN g",
        &["INSERT INTO t (number, amount, c) VALUES (12, 1.5, 12)"],
        &[("e", "e__2"), ("number", "id"), ("c", "c__2"), ("amount", "amount__2")],
    ),
    change(
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, ALTER COLUMN b2 DROP DEFAULT",
        &["INSERT INTO t (number, b2) VALUES (13, 'ü')"],
        &[("e", "e__2"), ("number", "id"), ("c", "c__2"), ("amount", "amount__2")],
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn columns_that_are_dropped_renamed_moved_and_widened_are_followed_one_by_one() {
    let feeds = "tables: [{ match: '*.*', change_feed: on }]\n";
    let copies = "tables: [{ match: '*.*', merge: copy_on_write, partition_by: [year(h)] }]\n";
    for (flavor, more) in Flavor::ALL.into_iter().flat_map(|flavor| ["", feeds, copies].map(|more| (flavor, more))) {
        let server = Server::shared(flavor);
        let database = &server.new_database("columns").await;
        exec(server, database, MADE).await;
        let job = TempJob::live(server, &[&format!("{database}.*")], &format!("{BUSY_UPKEEP}{more}"));
        job.run().expect_code(0);
        for change in FOLLOWED {
            exec(server, database, &[&[change.statement], change.rows].concat()).await;
            job.run().expect_code(0);
            let names = change.names.iter().copied().collect();
            assert_equal(server, &job, database, "t", &names, change.statement).await;
            if more == feeds {
                // What the table was before, and each change since, are what it is now.
                let sql = "SELECT count(*) AS n FROM table_changes('t', 1)";
                job.verb(&["sql", sql]).expect_code(0);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_many_changes_is_caught_up_with_at_once_and_after_a_crash_at_every_step() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let steps = [failpoint::CHECKPOINT_BEFORE, failpoint::CHECKPOINT_AFTER, failpoint::SCHEMA_BEFORE]
            .into_iter()
            .chain([failpoint::SCHEMA_AFTER, failpoint::POINT_BEFORE, failpoint::POINT_AFTER])
            .chain([failpoint::DATA_FILE_AFTER, failpoint::COMMIT_AFTER]);
        for step in steps {
            let database = &server.new_database("crashes").await;
            exec(server, database, MADE).await;
            let job = TempJob::live(server, &[&format!("{database}.*")], SMALL_BATCHES);
            job.run().expect_code(0);
            for change in FOLLOWED {
                exec(server, database, &[&[change.statement], change.rows].concat()).await;
            }
            let mut crashes = 0;
            // Each run comes further than the one before, or to its end.
            while !job
                .spawn(&["run"], &[(failpoint::VARIABLE, &format!("{step}:{}", crashes + 1))])
                .wait()
                .status
                .success()
            {
                crashes += 1;
                assert!(crashes < 60, "{step}: the runs come no further");
            }
            assert!(crashes > 2, "{step}: {crashes} crashes");
            let names = FOLLOWED[FOLLOWED.len() - 1].names.iter().copied().collect();
            assert_equal(server, &job, database, "t", &names, &format!("crashes at {step}")).await;
            let statements = "SELECT statement, status, tables FROM alluvium.ddl_log ORDER BY sequence";
            let applied = |change: &Change| format!("{}|applied|{database}.t", change.statement);
            // The last one changes no column.
            let noted = &FOLLOWED[..FOLLOWED.len() - 1];
            assert_eq!(notes(&job, statements), noted.iter().map(applied).collect::<Vec<_>>(), "{step}");
            let versions = "SELECT CAST(schema_version AS VARCHAR) AS a, CAST(version IS NOT NULL AS VARCHAR) AS b \
                            FROM alluvium.schema_history ORDER BY sequence";
            let expected: Vec<String> = (1..=noted.len() + 1).map(|version| format!("{version}|true")).collect();
            assert_eq!(notes(&job, versions), expected, "{step}");
            // The same once the notes are folded.
            job.verb(&["maintain", "--now", "compact"]).expect_code(0);
            assert!(job.lake_folder().join("_alluvium").join(job.name()).join("schema_log/_delta_log").is_dir());
            assert_eq!(notes(&job, versions), expected, "{step}");
        }
    }
}

/// What a policy makes of one changed column: of a row from before, of one that is written again, and of a new one.
struct Cell {
    policy: &'static str,
    /// The column's type before, and two values.
    before: (&'static str, [&'static str; 2]),
    /// The statement, and two values: the second row gets the first of them, a third row the other.
    after: (&'static str, [&'static str; 2]),
    /// The lake's columns and rows, or why the table is out.
    lake: &'static str,
}

const NEW_COLUMN: &str = "schema: { incompatible: new_column }\n";
const STRING: &str = "schema: { incompatible: string }\n";
const STOP: &str = "schema: { incompatible: stop }\n";
const COMPATIBLE: &str = "schema: { evolution: compatible }\n";
const OFF: &str = "schema: { evolution: off }\n";

const TO_TEXT: (&str, [&str; 2]) = ("ALTER TABLE t MODIFY a VARCHAR(20)", ["'seven'", "'8'"]);
const INT: (&str, [&str; 2]) = ("INT", ["1", "2"]);
const DAY: (&str, [&str; 2]) = ("DATE", ["'2024-01-02'", "'2024-03-04'"]);
const MOMENT: (&str, [&str; 2]) = ("DATETIME(3)", ["'2024-01-02 03:04:05.6'", "'2024-03-04 00:00:00'"]);
const MONEY: (&str, [&str; 2]) = ("DECIMAL(5,2)", ["1.25", "-2.75"]);
const BYTES: (&str, [&str; 2]) = ("VARBINARY(4)", ["x'00ff'", "x'41'"]);
const WIDER: (&str, [&str; 2]) = ("ALTER TABLE t MODIFY a BIGINT", ["5000000000", "8"]);
const ADDED: (&str, [&str; 2]) = ("ALTER TABLE t ADD COLUMN b INT", ["7", "8"]);
const RENAMED: (&str, [&str; 2]) = ("ALTER TABLE t CHANGE a b INT", ["7", "8"]);
const DROPPED: (&str, [&str; 2]) = ("ALTER TABLE t ADD COLUMN b INT, DROP COLUMN a", ["7", "8"]);
const MOVED: (&str, [&str; 2]) = ("ALTER TABLE t MODIFY a INT COMMENT 'first' FIRST", ["7", "8"]);

const CELLS: &[Cell] = &[
    Cell { policy: NEW_COLUMN, before: INT, after: TO_TEXT, lake: "a a__2 id | 1 - 1 | - seven 2 | - 8 3" },
    Cell { policy: STRING, before: INT, after: TO_TEXT, lake: "a id | 1 1 | seven 2 | 8 3" },
    Cell { policy: STOP, before: INT, after: TO_TEXT, lake: "column a was changed from int to varchar(20)" },
    Cell { policy: COMPATIBLE, before: INT, after: TO_TEXT, lake: "column a was changed from int to varchar(20)" },
    Cell { policy: OFF, before: INT, after: TO_TEXT, lake: "column a was changed from int to varchar(20)" },
    Cell { policy: NEW_COLUMN, before: DAY, after: TO_TEXT, lake: "a a__2 id | 2024-01-02 - 1 | - seven 2 | - 8 3" },
    Cell { policy: STRING, before: DAY, after: TO_TEXT, lake: "a id | 2024-01-02 1 | seven 2 | 8 3" },
    Cell {
        policy: STRING,
        before: MOMENT,
        after: ("ALTER TABLE t MODIFY a VARCHAR(30)", ["'seven'", "'8'"]),
        lake: "a id | 2024-01-02 03:04:05.600 1 | seven 2 | 8 3",
    },
    Cell {
        policy: NEW_COLUMN,
        before: ("VARCHAR(9)", ["'007'", "'2'"]),
        after: ("ALTER TABLE t MODIFY a INT", ["7", "8"]),
        lake: "a a__2 id | 007 - 1 | - 7 2 | - 8 3",
    },
    Cell {
        policy: STRING,
        before: ("VARCHAR(9)", ["'007'", "'2'"]),
        after: ("ALTER TABLE t MODIFY a INT", ["7", "8"]),
        lake: "a id | 007 1 | 7 2 | 8 3",
    },
    Cell {
        policy: NEW_COLUMN,
        before: MONEY,
        after: ("ALTER TABLE t MODIFY a DECIMAL(5,1)", ["7.5", "8"]),
        lake: "a a__2 id | 1.25 - 1 | - 7.5 2 | - 8.0 3",
    },
    Cell {
        policy: STRING,
        before: MONEY,
        after: ("ALTER TABLE t MODIFY a DOUBLE", ["7.5", "8"]),
        lake: "a id | 1.25 1 | 7.5 2 | 8.0 3",
    },
    Cell {
        policy: STRING,
        before: BYTES,
        after: ("ALTER TABLE t MODIFY a VARCHAR(9) CHARACTER SET latin1", ["'seven'", "'8'"]),
        lake: "a a__2 id | 00FF - 1 | - seven 2 | - 8 3",
    },
    Cell { policy: COMPATIBLE, before: INT, after: WIDER, lake: "a id | 1 1 | 5000000000 2 | 8 3" },
    Cell { policy: STOP, before: INT, after: WIDER, lake: "a id | 1 1 | 5000000000 2 | 8 3" },
    Cell { policy: OFF, before: INT, after: WIDER, lake: "column a was given another type" },
    Cell { policy: OFF, before: INT, after: ADDED, lake: "column b was added" },
    Cell { policy: OFF, before: INT, after: RENAMED, lake: "column a was renamed to b" },
    Cell { policy: OFF, before: INT, after: DROPPED, lake: "column b was added" },
    Cell { policy: OFF, before: INT, after: MOVED, lake: "a id | 1 1 | 7 2 | 8 3" },
    Cell { policy: COMPATIBLE, before: INT, after: RENAMED, lake: "a b id | 1 1 1 | - 7 2 | - 8 3" },
    Cell { policy: COMPATIBLE, before: INT, after: DROPPED, lake: "a b id | 1 - 1 | - 7 2 | - 8 3" },
    Cell { policy: COMPATIBLE, before: INT, after: ADDED, lake: "a b id | 1 - 1 | 2 7 2 | - 8 3" },
    Cell {
        policy: NEW_COLUMN,
        before: ("BIGINT", ["1", "2"]),
        after: ("ALTER TABLE t MODIFY a SMALLINT UNSIGNED", ["7", "65535"]),
        lake: "a id | 1 1 | 7 2 | 65535 3",
    },
    Cell {
        policy: NEW_COLUMN,
        before: ("BIGINT", ["100000", "2"]),
        after: ("SET SESSION sql_mode = ''; ALTER TABLE t MODIFY a SMALLINT", ["7", "8"]),
        lake: "a a__2 id | 100000 - 1 | - 7 2 | - 8 3",
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn each_policy_does_with_old_rows_and_new_ones_what_the_table_of_the_documentation_says() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        for cell in CELLS {
            let found = cell_of(server, cell).await;
            let what = format!("{flavor:?} {} {} -> {}", cell.policy.trim(), cell.before.0, cell.after.0);
            assert!(found.starts_with(cell.lake), "{what}: {found}");
        }
    }
}

async fn cell_of(server: &Server, cell: &Cell) -> String {
    let database = &server.new_database("cells").await;
    let (kind, [one, two]) = cell.before;
    let create = format!("CREATE TABLE t (id INT PRIMARY KEY, a {kind})");
    let insert = format!("INSERT INTO t VALUES (1, {one}), (2, {two})");
    let other = "CREATE TABLE other (id INT PRIMARY KEY)";
    exec(server, database, &[&create, &insert, other]).await;
    let job = TempJob::live(server, &[&format!("{database}.*")], &format!("{SMALL_BATCHES}{}", cell.policy));
    job.run().expect_code(0);
    let (statement, [seven, eight]) = cell.after;
    let column = if statement.contains(" b ") { "b" } else { "a" };
    let update = format!("UPDATE t SET {column} = {seven} WHERE id = 2");
    let insert = format!("INSERT INTO t (id, {column}) VALUES (3, {eight})");
    let statements: Vec<&str> =
        statement.split("; ").chain([update.as_str(), insert.as_str(), "INSERT INTO other VALUES (1)"]).collect();
    exec(server, database, &statements).await;
    let outcome = job.run();
    assert_equal(server, &job, database, "other", &Names::new(), statement).await;
    if let Some(reason) = is_out(&job, database, "t").await {
        outcome.expect_code(3);
        return reason.strip_prefix("stopped: ").unwrap_or(&reason).to_string();
    }
    outcome.expect_code(0);
    let content = job.lake().content(database, "t", &["id".to_string()], None).await;
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_string());
    let rows = content.rows.values().map(|row| row.iter().map(value).collect::<Vec<_>>().join(" "));
    [content.columns.join(" ")].into_iter().chain(rows).collect::<Vec<_>>().join(" | ")
}

/// How often a run dies at a step before it is let alone.
const CRASHES_MAX: usize = 6;

/// Statements in one database, and which tables are then equal to the source and which are out, and why.
async fn check_tables(
    flavor: Flavor,
    scripts: &[&[&str]],
    equal: &[(&str, &[(&'static str, &'static str)])],
    out: &[(&str, &str)],
) {
    let server = Server::shared(flavor);
    let steps = ["", "checkpoint.after:1", "schema.before:1", "schema.after:2", "point.before:2", "point.after:1"];
    for step in steps {
        let database = &server.new_database("names").await;
        exec(server, database, scripts[0]).await;
        let job = TempJob::live(server, &[&format!("{database}.*")], SMALL_BATCHES);
        job.run();
        for script in &scripts[1..] {
            exec(server, database, script).await;
            // A busy server's log never ends, and each run may come to the step.
            for _ in 0..CRASHES_MAX {
                let armed = [(failpoint::VARIABLE, step)];
                if step.is_empty() || job.spawn(&["run"], &armed).wait().status.code().is_some() {
                    break;
                }
            }
            let outcome = job.run();
            assert!(matches!(outcome.status.code(), Some(0 | 3)), "{flavor:?} {step}: {outcome:#?}");
        }
        for (table, names) in equal {
            let reason = is_out(&job, database, table).await;
            assert!(reason.is_none(), "{flavor:?} {step}: {table} is out: {reason:?}");
            let names = names.iter().copied().collect();
            assert_equal(server, &job, database, table, &names, step).await;
        }
        for (table, expected) in out {
            let reason = is_out(&job, database, table).await.unwrap_or_default();
            assert!(reason.starts_with(expected), "{flavor:?} {step}: {table}: {reason}");
        }
    }
}

const ORDERS: &[&str] = &[
    "CREATE TABLE orders (id INT PRIMARY KEY, a INT, b VARCHAR(10))",
    "INSERT INTO orders VALUES (1, 1, 'one'), (2, 2, 'two'), (3, 3, 'three')",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_dropped_stays_in_the_lake_and_one_made_anew_begins_without_rows() {
    for flavor in Flavor::ALL {
        let dropped: &[&str] = &["INSERT INTO orders VALUES (4, 4, 'four')", "DROP TABLE orders"];
        check_tables(flavor, &[ORDERS, dropped], &[], &[("orders", "gone: it was dropped")]).await;
        let made = &[
            "CREATE TABLE orders (code VARCHAR(5) PRIMARY KEY, a VARCHAR(20))",
            "INSERT INTO orders VALUES ('x', 'y')",
        ];
        check_tables(flavor, &[ORDERS, dropped, made], &[("orders", &[])], &[]).await;
        check_tables(flavor, &[ORDERS, &[dropped, &made[..]].concat()], &[("orders", &[])], &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_under_a_new_name_is_a_new_table_with_its_rows() {
    for flavor in Flavor::ALL {
        let renamed = &["RENAME TABLE orders TO orders_2024", "INSERT INTO orders_2024 VALUES (4, 4, 'four')"];
        let gone = [("orders", "gone: it was renamed to ")];
        check_tables(flavor, &[ORDERS, renamed], &[("orders_2024", &[])], &gone).await;
        let altered =
            &["ALTER TABLE orders RENAME TO archive, ADD COLUMN c INT DEFAULT 5", "DELETE FROM archive WHERE id = 2"];
        check_tables(flavor, &[ORDERS, altered], &[("archive", &[])], &gone).await;
        let swapped = &[
            "CREATE TABLE other (id INT PRIMARY KEY, z INT)",
            "INSERT INTO other VALUES (7, 7)",
            "RENAME TABLE orders TO x, other TO orders, x TO other",
            "INSERT INTO orders VALUES (8, 8)",
        ];
        check_tables(flavor, &[ORDERS, swapped], &[("orders", &[]), ("other", &[])], &[]).await;
    }
}

/// What gh-ost sends: its own tables, rows that are copied while others change, and both names at once at the end.
const GHOST: &[&str] = &[
    "CREATE TABLE _orders_ghc (id BIGINT AUTO_INCREMENT, hint VARCHAR(64), value VARCHAR(255), PRIMARY KEY (id))",
    "CREATE TABLE _orders_gho LIKE orders",
    "ALTER TABLE _orders_gho ADD COLUMN c INT NOT NULL DEFAULT 7, MODIFY a BIGINT",
    "INSERT INTO _orders_ghc (hint, value) VALUES ('state', 'GhostTableMigrated')",
    "INSERT IGNORE INTO _orders_gho (id, a, b) SELECT id, a, b FROM orders FORCE INDEX (PRIMARY) WHERE id <= 2",
    "UPDATE orders SET b = 'uno' WHERE id = 1",
    "REPLACE INTO _orders_gho (id, a, b) VALUES (1, 1, 'uno')",
    "INSERT INTO orders VALUES (4, 4, 'four')",
    "REPLACE INTO _orders_gho (id, a, b) VALUES (4, 4, 'four')",
    "INSERT IGNORE INTO _orders_gho (id, a, b) SELECT id, a, b FROM orders WHERE id > 2",
];
const CUT_OVER: &[&str] = &[
    "CREATE TABLE _orders_del (id INT AUTO_INCREMENT PRIMARY KEY) COMMENT 'ghost-cut-over-sentry'",
    "DROP TABLE _orders_del",
    "RENAME /* gh-ost */ TABLE orders TO _orders_del, _orders_gho TO orders",
    "INSERT INTO orders (id, a, b, c) VALUES (5, 5000000000, 'five', 55)",
    "UPDATE orders SET c = 22 WHERE id = 2",
    "DROP TABLE _orders_del",
    "DROP TABLE _orders_ghc",
];

#[tokio::test(flavor = "multi_thread")]
async fn an_online_schema_change_is_followed_at_its_cut_over() {
    for flavor in Flavor::ALL {
        check_tables(flavor, &[ORDERS, &[GHOST, CUT_OVER].concat()], &[("orders", &[])], &[]).await;
        check_tables(flavor, &[ORDERS, GHOST, CUT_OVER], &[("orders", &[])], &[]).await;
        let osc: &[&str] = &[
            "CREATE TABLE _orders_new (id INT NOT NULL PRIMARY KEY, a INT, b VARCHAR(10))",
            "ALTER TABLE _orders_new ADD COLUMN c VARCHAR(20) DEFAULT 'c', DROP COLUMN a",
            "CREATE TRIGGER osc_ins AFTER INSERT ON orders FOR EACH ROW REPLACE INTO _orders_new (id, b) VALUES (NEW.id, NEW.b)",
            "INSERT LOW_PRIORITY IGNORE INTO _orders_new (id, b) SELECT id, b FROM orders LOCK IN SHARE MODE",
            "INSERT INTO orders VALUES (4, 4, 'four')",
            "RENAME TABLE orders TO _orders_old, _orders_new TO orders",
            "INSERT INTO orders VALUES (6, 'six', 'see')",
            "DROP TABLE IF EXISTS _orders_old",
        ];
        // A column that is gone beside one that is new may be the same: the rows are loaded again.
        check_tables(flavor, &[ORDERS, osc], &[("orders", &[])], &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn another_primary_key_takes_the_table_out_until_it_is_loaded_again() {
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let database = &server.new_database("keys").await;
        exec(server, database, ORDERS).await;
        let job = TempJob::live(server, &[&format!("{database}.*")], SMALL_BATCHES);
        job.run().expect_code(0);
        let other = "ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (a, id)";
        exec(server, database, &[other, "INSERT INTO orders VALUES (1, 7, 'again')"]).await;
        job.run().expect_code(3);
        let reason = is_out(&job, database, "orders").await.unwrap();
        assert!(reason.contains("its primary key (id) was changed to (a, id)"), "{reason}");
        job.verb(&["run", "--resnapshot", &format!("{database}.orders")]).expect_code(0);
        exec(server, database, &["UPDATE orders SET b = 'b' WHERE a = 2", "DELETE FROM orders WHERE a = 7"]).await;
        job.run().expect_code(0);
        assert_equal(server, &job, database, "orders", &Names::new(), other).await;
    }
}
