use super::*;
use crate::source::mysql::column_type::split_left_out;

pub(super) fn read_with<T>(statement: &str, read: impl FnOnce(&mut Cursor<'_, '_>) -> T) -> T {
    let context = context(&|_| None, false);
    let tokens = token::tokens(statement, &context).unwrap_or_else(|error| panic!("{statement}: {error}"));
    read(&mut Cursor::new(&tokens))
}

fn context(known: &dyn Fn(&TableId) -> Option<Arc<TableSchema>>, mariadb: bool) -> Context<'_> {
    Context {
        default_database: "shop",
        mariadb,
        sql_mode: SqlMode::default(),
        known,
        database_charset: &|_| Some("latin1".to_string()),
    }
}

fn table(name: &str) -> TableId {
    TableId::new("shop", name)
}

/// What a statement does to these tables, in short.
fn short(statement: &str, mariadb: bool) -> String {
    let made = effects("create table t (id int primary key, a varchar(3), b int)", &context(&|_| None, mariadb));
    let Some(Effect::CreateTable(schema)) = made.first().cloned() else { panic!("no table: {made:?}") };
    let schema = Arc::new(schema);
    let known = |id: &TableId| (*id == table("t")).then(|| Arc::clone(&schema));
    let lines = effects(statement, &context(&known, mariadb)).into_iter().map(|effect| match effect {
        Effect::CreateTable(schema) => format!("create {}", schema.table),
        Effect::CreateTableUnreadable { table, reason } => format!("unreadable {table}: {reason}"),
        Effect::Alter { table, schema, changes, defaults, primary_key } => {
            let key = primary_key.map(|columns| format!(" key {columns:?}")).unwrap_or_default();
            format!("{}{key}", altered_columns(&table, &schema, &changes, &defaults))
        }
        Effect::Rename { from, to } => format!("rename {from} {to}"),
        Effect::DropTable(table) => format!("drop {table}"),
        Effect::Truncate(table) => format!("truncate {table}"),
        Effect::Other { table, what } => format!("other {table}: {what}"),
        Effect::Dml { table } => format!("dml {table}"),
        Effect::DropDatabase(name) => format!("drop database {name}"),
        Effect::DatabaseCharset { database, charset } => format!("charset {database} {charset}"),
        Effect::Unparsed { tables_mentioned, reason } => format!("unparsed {tables_mentioned:?} {reason}"),
    });
    lines.collect::<Vec<_>>().join(" | ")
}

/// The columns of an altered table: `a` for one that stays as it is, `new` for an added one, `b=a int` for another one that has
/// the values of `a`, with `!` where those may have been changed.
fn altered_columns(
    table: &TableId,
    schema: &TableSchema,
    changes: &[ColumnChange],
    defaults: &[(String, Option<String>)],
) -> String {
    let column = |(column, change): (&Column, &ColumnChange)| {
        let plain = split_left_out(&column.source_type).0;
        let mark = if change.altered.is_some() { "!" } else { "" };
        match &change.from {
            None => "new".to_string(),
            Some(from) if *from == column.name && mark.is_empty() && OLD.contains(&plain) => from.clone(),
            Some(from) => format!("{}={from} {plain}{mark}", column.name),
        }
    };
    let columns: Vec<String> = schema.columns.iter().zip(changes).map(column).collect();
    match columns.join(" ").replace(" new", "").strip_prefix("id a b") {
        Some("") => format!("add {table} v{} {defaults:?}", schema.version),
        _ => format!("alter {table} {}", columns.join(" ")),
    }
}

/// The types that the columns have before.
const OLD: [&str; 2] = ["int", "varchar(3) character set latin1"];

fn check(statement: &str, expected: &str) {
    assert_eq!(short(statement, true), expected, "MariaDB: {statement}");
    assert_eq!(short(statement, false), expected, "MySQL: {statement}");
}

#[test]
fn a_new_default_character_set_is_that_of_columns_added_later() {
    check("alter table t default character set utf8mb4", "add shop.t v2 []");
    check("alter table t charset = latin1, comment 'the one it has'", "");
}

#[test]
fn a_new_text_column_takes_the_default_of_its_table_not_that_of_other_columns() {
    let columns = "create table t (id int primary key, a varchar(3) character set latin1) default charset utf8mb4";
    let made = effects(columns, &context(&|_| None, true));
    let Some(Effect::CreateTable(schema)) = made.first().cloned() else { panic!("no table: {made:?}") };
    let schema = Arc::new(schema);
    let known = |id: &TableId| (*id == table("t")).then(|| Arc::clone(&schema));
    let grown = effects("alter table t add b varchar(9)", &context(&known, true));
    let Some(Effect::Alter { schema, .. }) = grown.first() else { panic!("nothing added: {grown:?}") };
    assert_eq!(schema.columns[2].source_type, "varchar(9) character set utf8mb4 default null");
}

#[test]
fn what_changes_no_column_and_no_row_has_no_effect() {
    for statement in [
        "",
        ";",
        "/* alter table t drop a */",
        "-- drop table t",
        "BEGIN",
        "grant all on t.* to x",
        "create user x identified by 'alter table t drop column a'",
        "flush tables",
        "analyze table t",
        "optimize table t",
        "create view v as select * from t",
        "create or replace view t as select 1",
        "create trigger x before insert on t for each row delete from t",
        "create procedure p() begin drop table t; end",
        "create index i on t (a)",
        "drop index i on t",
        "drop view t",
        "create temporary table t (id int)",
        "drop temporary table t",
        "drop /*!40005 temporary */ table if exists t",
        "alter table t add index (a), drop key b, rename index x to y, engine = innodb",
        "alter table t drop foreign key a, drop constraint b, drop check c",
        "alter table t alter a set default 'x', alter column a drop default, alter index i invisible",
        "alter table t comment 'add column c int', auto_increment 5, disable keys, force, order by a",
        "alter table t analyze partition p, remove partitioning",
        "alter table t partition by hash (id) partitions 3",
        "alter table t modify a varchar(3) default null comment 'x'",
        "alter table t change column a a varchar(3) collate latin1_bin",
        "alter table t add if not exists a int",
        "alter event e rename to f",
        "create table if not exists t (id int)",
        "xa end 'x'",
    ] {
        check(statement, "");
    }
}

#[test]
fn other_changes_of_a_table_are_told_in_words() {
    check("drop table if exists `t`, other.`x``y`", "drop shop.t | drop other.x`y");
    check("rename table t to u, u to `v w`", "rename shop.t shop.u | rename shop.u shop.v w");
    check("alter table t rename to x.y", "rename shop.t x.y");
    check("alter table t rename as y, add c int", "add shop.t v2 [(\"c\", None)] | rename shop.t shop.y");
    check("alter table u rename to y", "rename shop.u shop.y");
    check("alter table t drop primary key, add primary key (b)", r#"add shop.t v2 [] key ["b"]"#);
    check("alter table t drop primary key", "add shop.t v2 [] key []");
    check("alter table t drop column id", "other shop.t: column id of its key was dropped");
    check("alter ignore table t add unique (b)", "other shop.t: rows with equal keys may be gone");
    check("alter table t modify nowhere int", "other shop.t: column nowhere, which is not known, was redefined");
    check("alter table t drop partition p", "other shop.t: a partition was dropped with its rows");
    check("alter table t truncate partition p", "other shop.t: a partition was emptied");
    check(
        "alter table t exchange partition p with table u",
        "other shop.t: its rows were exchanged with those of a partition | other shop.u: an ALTER TABLE of shop.t changed it too",
    );
    check(
        "alter table t add c int auto_increment unique",
        "other shop.t: column c was added as a key or with numbers for old rows",
    );
    check("alter table t add c int as (b + 1)", "other shop.t: column c was added, which the server computes");
    check(
        "alter table t add c datetime default now()",
        "other shop.t: column c was added, whose old rows hold what an expression gave when it was added",
    );
    check("drop database `shop`", "drop database shop");
    check("truncate t", "truncate shop.t");
    check("truncate table 1x.2", "truncate 1x.2");
    check("truncate table `1`.2e3", "truncate 1.2e3");
    check("TRUNCATE TABLE other . t", "truncate other.t");
    check("alter database character set = utf8mb4", "charset shop utf8mb4");
    check("create database if not exists x default charset utf8", "charset x utf8mb3");
}

#[test]
fn columns_change_their_names_places_and_types() {
    let (a, wide) = ("varchar(3) character set latin1", "varchar(3) character set utf8mb4");
    check("alter table t drop a", "alter shop.t id b");
    check("alter table t drop if exists nowhere", "");
    check("alter table t drop column a, add c int", "alter shop.t id b new");
    check("alter table t rename column a to c", &format!("alter shop.t id c=a {a} b"));
    check("alter table t rename column a to b, rename column b to a", &format!("alter shop.t id b=a {a} a=b int"));
    check("alter table t change a c varchar(3)", &format!("alter shop.t id c=a {a} b"));
    check("alter table t modify a varchar(4)", "alter shop.t id a=a varchar(4) character set latin1 b");
    check("alter table t modify a varchar(2)", "alter shop.t id a=a varchar(2) character set latin1! b");
    check("alter table t modify a varchar(3) charset utf8mb4", &format!("alter shop.t id a=a {wide} b"));
    check("alter table t convert to character set utf8mb4", &format!("alter shop.t id a=a {wide} b"));
    check("alter table t modify a varchar(3) first", "alter shop.t a id b");
    check("alter table t modify a varchar(3) after b, add c int after id", "alter shop.t id new b a");
    check("alter table t add c int first, add d int after c, drop b", "alter shop.t new new id a");
    check("alter table t drop a, add a int", "alter shop.t id b new");
    check("alter table t add a int, drop a", "alter shop.t id b new");
    check("alter table t modify b bigint, change a x text", "alter shop.t id x=a text character set latin1 b=b bigint");
    check("alter table t modify b varchar(10)", "alter shop.t id a b=b varchar(10) character set latin1!");
    check("alter table t modify id bigint", "alter shop.t id=id bigint a b");
}

#[test]
fn columns_are_added_with_what_old_rows_hold() {
    check("alter table t add c int", r#"add shop.t v2 [("c", None)]"#);
    check(
        "alter table t add column (c int not null, d char(2) default 'x')",
        r#"add shop.t v2 [("c", Some("0")), ("d", Some("x"))]"#,
    );
    check("alter table t add c int default -1 after id", r#"add shop.t v2 [("c", Some("-1"))]"#);
    check("/*!50100 alter table t add c date not null */", r#"add shop.t v2 [("c", None)]"#);
    check("alter table t add c double default .5", r#"add shop.t v2 [("c", Some(".5"))]"#);
    check("alter table `t`add`c`int", r#"add shop.t v2 [("c", None)]"#);
    assert!(short("alter online table t add c uuid not null", true).contains("00000000-0000"));
    assert_eq!(short("alter table t /*M! add c int */", true), r#"add shop.t v2 [("c", None)]"#);
    assert_eq!(
        short("set statement max_statement_time=1 for alter table t add c int", true),
        r#"add shop.t v2 [("c", None)]"#
    );
}

#[test]
fn tables_that_cannot_be_read_are_named() {
    check("create table n as select * from t", "unreadable shop.n: it was made from the result of a query");
    check(
        "create table n (id int primary key) select 1 as id",
        "unreadable shop.n: it was made from the result of a query",
    );
    check("create table n like x.y", "unreadable shop.n: it was made like x.y, whose columns are not known");
    check("create table n (id klingon)", "unreadable shop.n: the definition of column id could not be read");
    check(
        "create table n (id int) with system versioning",
        "unreadable shop.n: it is system-versioned, and such tables are not followed",
    );
    check(
        "alter table t add c klingon",
        r#"unparsed [TableId { database: "shop", table: "t" }] the definition of column c could not be read"#,
    );
    check(
        "alter table t add c enum('x",
        "unparsed [] a statement could not be read: a string or quoted name does not end",
    );
}

/// The source types of table `t` after a statement, behind that of `id`.
fn check_defaults(statement: &str, mariadb: bool, expected: &[&str]) {
    let made = "create table t (id int primary key, a varchar(3) default 'x', b int as (id + 1), c int as (id) stored)";
    let made = effects(made, &context(&|_| None, mariadb));
    let Some(Effect::CreateTable(schema)) = made.first().cloned() else { panic!("no table: {made:?}") };
    let known = Arc::new(schema.clone());
    let known = |id: &TableId| (*id == table("t")).then(|| Arc::clone(&known));
    let schema = match effects(statement, &context(&known, mariadb)).pop() {
        Some(Effect::Alter { schema, .. }) => schema,
        _ => schema,
    };
    let found: Vec<&str> = schema.columns[1..].iter().map(|column| column.source_type.as_str()).collect();
    assert_eq!(found, expected, "{statement}");
}

#[test]
fn what_rows_get_that_leave_a_column_out_is_kept_with_its_type() {
    let a = "varchar(3) character set latin1";
    let (x, y) = (format!("{a} default x'78'"), format!("{a} default x'79'"));
    check_defaults("", false, &[&x, "int", "int"]);
    check_defaults("", true, &[&x, "int computed", "int"]);
    check_defaults("alter table t alter a set default 'y'", false, &[&y, "int", "int"]);
    check_defaults("alter table t modify a varchar(3) default (concat('y'))", false, &[a, "int", "int"]);
    check_defaults("alter table t alter column a drop default", false, &[&format!("{a} default null"), "int", "int"]);
    check_defaults("alter table t change a a varchar(3) not null", false, &[&format!("{a} default x''"), "int", "int"]);
    check_defaults(
        "alter table t add d time default '1:02:03'",
        false,
        &[&x, "int", "int", "time default x'33373233303030303030'"],
    );
}

#[test]
fn a_table_replaced_is_dropped_first() {
    let statement = "create or replace table t (id int primary key)";
    check(statement, "drop shop.t | create shop.t");
}

#[test]
fn rows_changed_by_statements_are_told_by_table() {
    check("insert into t values (1)", "dml shop.t");
    check("insert ignore t set a = 1", "dml shop.t");
    check("replace delayed into x.t (a) select * from u", "dml x.t");
    check("update low_priority t set a = (select 1 from u)", "dml shop.t");
    check("update t as x join y.u on x.a = u.a, (select 1) z set x.a = 1", "dml shop.t | dml y.u");
    check("delete from t where a = 1", "dml shop.t");
    check("delete t, u from t join u using (a) where 1", "dml shop.t | dml shop.u");
    check("load data infile 'x' replace into table `t` fields terminated by ','", "dml shop.t");
    check("with c as (select 1) update t set a = 1", "dml shop.t");
}

#[test]
fn modes_of_the_session_change_how_a_statement_reads() {
    let mut context = context(&|_| None, false);
    context.sql_mode = SqlMode::from_bits(1 << 2 | 1 << 20 | 1);
    let made = effects(r#"create table "n" ("i""d" int primary key, a real, b enum('x\','y'))"#, &context);
    let Some(Effect::CreateTable(schema)) = made.first() else { panic!("{made:?}") };
    let types: Vec<_> =
        schema.columns.iter().map(|column| (column.name.as_str(), split_left_out(&column.source_type).0)).collect();
    assert_eq!(types, [("i\"d", "int"), ("a", "float"), ("b", r"enum('x\\','y') character set latin1")]);
}

#[test]
fn no_text_whatever_makes_reading_panic() {
    use rand::{Rng, SeedableRng};
    let pieces = [
        "alter",
        "table",
        "create",
        "t",
        "add",
        "column",
        "(",
        ")",
        ",",
        "int",
        "enum",
        "'x'",
        "'",
        "`",
        "default",
        "/*!",
        "*/",
        "--",
        "1",
        "1e",
        ".",
        "é",
        "primary",
        "key",
        "after",
        "not",
        "null",
        "drop",
        "rename",
        "to",
        "like",
        "char",
        "update",
        "set",
        "delete",
        "references",
        "on",
        "decimal",
        "-",
        "\\",
        "0x1",
        "b",
        "=",
        ";",
        "character",
    ];
    let seed = 19;
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    for _ in 0..20_000 {
        let begins = ["alter table t add ", "create table t (", "alter table t ", ""][random.random_range(0..4)];
        let length = random.random_range(0..12);
        let mut statement = begins.to_string();
        for _ in 0..length {
            statement += pieces[random.random_range(0..pieces.len())];
            statement += if random.random() { " " } else { "" };
        }
        effects(&statement, &context(&|_| None, random.random()));
    }
}

mod corpus;
