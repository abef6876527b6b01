use std::collections::BTreeMap;

use super::*;

const SHOP: &str = "\
version: 1
job: shop
source:
  type: mysql
  url: mysql://cdc@db.internal
  tables: [shop.*]
lake:
  path: ./lake
";

fn environment(name: &str) -> Option<String> {
    let known = [
        ("SECRET", "hunter2"),
        ("SHOP_URL", "mysql://cdc:hunter2@db"),
        ("ROWS", "7"),
        ("EMPTY", ""),
        ("KEY", "0123456789abcdef hunter2"),
    ];
    known.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_string())
}

fn load_text(text: &str) -> Result<(Job, Vec<Setting>), Problems> {
    parse(text, Path::new("f"), Path::new("/jobs"), &environment)
}

/// The whole list of problems of a job file, a line each.
fn check(text: &str, expected: &str) {
    let found = load_text(text).err().map(|problems| problems.to_string()).unwrap_or_default();
    assert_eq!(found, expected, "\n{text}");
    assert!(!found.contains("hunter2"), "a secret was shown: {found}");
}

/// The problems of the job above with one text in place of another.
fn check_with(old: &str, new: &str, expected: &str) {
    assert!(SHOP.contains(old), "{old}");
    check(&SHOP.replace(old, new), expected);
}

fn mysql(text: &str) -> (MysqlConfig, Vec<Setting>) {
    match load_text(text) {
        Ok((Job { source: SourceConfig::Mysql(mysql), .. }, settings)) => (mysql, settings),
        other => panic!("{other:?}\n{text}"),
    }
}

#[test]
fn rules_of_columns_are_checked() {
    let columns = |top: &str, columns: &str, expected: &str| {
        check(&format!("{SHOP}{top}tables: [{{ match: s.a, columns: {columns} }}]\n"), expected);
    };
    let key = "hash_key: { env: KEY }\n";
    columns(key, "{ include: [a], hash: [b], mask: [c], rename: { a: z }, add: { t: 1 }, metadata: { o: op } }", "");
    columns(
        "",
        "{ hash: [b] }",
        "f:9:41 tables[0].columns.hash: needs a hash_key at the top of the job file: { env: NAME } or { file: path }",
    );
    columns("", "{ exclude: [b], mask: [B] }", "f:9:33 tables[0].columns: B is under two of exclude, hash and mask");
    columns(
        "",
        "{ add: { a: x }, metadata: { a: op } }",
        "f:9:60 tables[0].columns.metadata: a is a column under add too",
    );
    columns(
        "hash_key: { env: SECRET }\n",
        "{}",
        "f:9:11 hash_key: must be at least 16 bytes, for example of: openssl rand -hex 32",
    );
    columns(
        "hash_key: 0123456789abcdef\n",
        "{}",
        "f:9:11 hash_key: is a key in clear: put it into an environment variable and write its name, as `hash_key: { env: SHOP_HASH_KEY }`",
    );
}

#[test]
fn ten_lines_make_a_complete_job() {
    let (job, settings) = load_text(SHOP).unwrap();
    assert_eq!(job.name, "shop");
    assert_eq!(job.lake.url.as_str(), "file:///jobs/lake/");
    assert_eq!((job.run.memory_bytes, job.run.batch_rows, job.run.batch_age.as_secs()), (1 << 30, 1_000_000, 60));
    let (mysql, _) = mysql(SHOP);
    assert_eq!((mysql.host.as_str(), mysql.port, mysql.user.as_str()), ("db.internal", 3306, "cdc"));
    assert_eq!((mysql.tls, mysql.resume), (TlsMode::Verified, ResumeBy::Auto));
    assert_eq!((mysql.snapshot.mode, mysql.snapshot.split_rows), (SnapshotMode::Initial, None));
    assert!(mysql.server_id >= 1 << 31);
    let defaults: Vec<_> = settings.iter().filter(|s| s.is_default).map(|s| s.key.as_str()).collect();
    assert_eq!(
        defaults,
        [
            "source.password",
            "source.tls",
            "source.ca",
            "source.snapshot.mode",
            "source.snapshot.split_rows",
            "source.snapshot.readers",
            "source.snapshot.query_time",
            "source.snapshot.threads_running",
            "source.snapshot.replica_lag",
            "source.resume",
            "source.server_id",
            "lake.options",
            "run.memory",
            "run.batch.rows",
            "run.batch.bytes",
            "run.batch.seconds",
            "schema.evolution",
            "schema.incompatible",
            "tables",
            "maintain.compact.every",
            "maintain.compact.file_size",
            "maintain.compact.small_files",
            "maintain.compact.deleted_percent",
            "maintain.cluster.every",
            "maintain.vacuum.every",
            "maintain.vacuum.retention",
            "maintain.vacuum.allow_short_retention",
            "maintain.checkpoint.versions",
            "maintain.log.retention",
        ]
    );
}

#[test]
fn every_problem_is_reported_at_once_and_in_order() {
    check(
        "\
version: 2
job: my shop
surce: {}
source:
  type: mysql
  url: postgres://x@y
  pasword: x
  tables: [orders, shop.*]
  snapshot: { mode: sometimes, split_rows: many, readers: 0 }
  server_id: 0
defaults: {}
lake:
  path: ${NOPE}/lake
run:
  memory: 1MiB
  batch: { rows: 0, seconds: a }
tables:
  - match: shop.orders
    key: []
  - key: [a, a]
",
        "\
f:1:10 version: must be 1, found 2: this Alluvium knows no other format
f:2:6 job: must be 1 to 64 letters, digits, - or _
f:3:1 surce: is not a key here; did you mean source?
f:6:8 source.url: must start with mysql://, found postgres: write mysql://user@host:port
f:7:3 source.pasword: is not a key here; did you mean password?
f:8:12 source.tables[0]: \"orders\" is not a table pattern: write database.table, with * for any name (shop.*, !shop.tmp_*)
f:9:21 source.snapshot.mode: must be initial or never, found `sometimes`
f:9:44 source.snapshot.split_rows: must be auto or a whole number, found `many`
f:9:59 source.snapshot.readers: must be 1 to 64, found 0
f:10:14 source.server_id: must be 1 to 4294967295, found 0
f:11:1 defaults: is not supported yet: leave it out
f:13:9 lake.path: the environment variable NOPE is not set
f:15:11 run.memory: must be at least 64MiB
f:16:18 run.batch.rows: must be 1 to 1000000000, found 0
f:16:30 run.batch.seconds: must be a whole number, found `a`
f:19:10 tables[0].key: must name at least one column
f:20:5 tables[1].match: is missing: write for example `match: shop.orders`
f:20:14 tables[1].key[1]: must be a column that is not named before",
    );
}

#[test]
fn an_empty_mapping_lists_all_that_is_missing() {
    check(
        "{}",
        "\
f:1:1 version: is missing: write for example `version: 1`
f:1:1 job: is missing: write for example `job: shop`
f:1:1 source: is missing: write for example `source: { type: mysql, url: ..., tables: [...] }`
f:1:1 lake: is missing: write for example `lake: { path: ./lake/shop }`",
    );
    check(
        "[1]",
        "f:1:1: must be a mapping with the keys version, job, source, lake, run, schema, tables, hash_key, maintain, found a list",
    );
    check_with("  type: mysql\n", "", "f:4:3 source.type: is missing: write for example `type: mysql`");
    check_with(
        "type: mysql",
        "type: oracle",
        "f:4:9 source.type: must be mysql or mariadb or binlog_files or dynamodb, found `oracle`",
    );
    check_with("path: ./lake", "path:", "f:8:7 lake.path: is missing: write for example `path: ./lake/shop`");
}

#[test]
fn values_of_the_wrong_type_say_what_was_expected() {
    check_with("[shop.*]", "shop.*", "f:6:11 source.tables: must be a list, found text");
    check_with(
        "[shop.*]",
        "[]",
        "f:6:11 source.tables: must have a pattern that selects tables, for example \"shop.*\"",
    );
    check_with("job: shop", "job: [shop]", "f:2:6 job: must be text, found a list");
    check_with("version: 1", "version: one", "f:1:10 version: must be a whole number, found `one`");
    check_with(
        "lake:\n  path: ./lake",
        "lake: ./lake",
        "f:7:7 lake: must be a mapping with the keys path, options, found text",
    );
    let run = |value: &str, problem: &str| check(&format!("{SHOP}run: {value}\n"), problem);
    run("{ memory: 1GB }", "f:9:16 run.memory: must be a whole number with KiB, MiB or GiB (256MiB), found `1GB`");
    run("{ batch: { rows: -1 } }", "f:9:23 run.batch.rows: must be a whole number, found `-1`");
    run("{ batch: { rows: \"${ROWS}\" } }", "");
}

#[test]
fn a_password_comes_from_the_environment_or_a_file_and_never_stands_in_clear() {
    let password = |text: &str| mysql(text).0.password.reveal().to_string();
    let with = |url: &str, line: &str| SHOP.replace("mysql://cdc@db.internal", url) + "" + line;
    assert_eq!(password(&with("mysql://cdc:${SECRET}@db", "")), "hunter2");
    assert_eq!(password(&with("${SHOP_URL}", "")), "hunter2");
    assert_eq!(password(&SHOP.replace("job: shop", "job: none")), "");
    let source = |line: &str| SHOP.replace("  tables:", &format!("  password: {line}\n  tables:"));
    assert_eq!(password(&source("{ env: SECRET }")), "hunter2");
    assert_eq!(password(&source("${SECRET}")), "hunter2");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "hunter2\r\n").unwrap();
    assert_eq!(password(&source(&format!("{{ file: {} }}", file.path().display()))), "hunter2");

    let advice = "has a password in clear: put it into an environment variable and write its name, as \
        `mysql://user:${SHOP_DB_PASSWORD}@host` or as `password: { env: SHOP_DB_PASSWORD }`";
    check(&with("mysql://cdc:hunter2@db", ""), &format!("f:5:8 source.url: {advice}"));
    check(&source("hunter2"), &format!("f:6:13 source.password: {advice}"));
    check(&source("{ env: NOPE }"), "f:6:20 source.password.env: the environment variable NOPE is not set");
    check(&source("{ env: A, file: b }"), "f:6:13 source.password: must have one key: env or file");
    check(
        &source("{ file: nope }"),
        "f:6:21 source.password.file: /jobs/nope cannot be read: No such file or directory (os error 2)",
    );
    check(
        &source("{ env: SECRET }").replace("mysql://cdc@db.internal", "${SHOP_URL}"),
        "f:6:13 source.password: the URL has a password too: leave one of them out",
    );
}

#[test]
fn the_default_password_is_the_variable_of_the_job() {
    let environment = |name: &str| (name == "MY_SHOP_DB_PASSWORD").then(|| "hunter2".to_string());
    let text = SHOP.replace("job: shop", "job: my-shop");
    let (job, settings) = parse(&text, Path::new("f"), Path::new("/"), &environment).unwrap();
    assert!(matches!(&job.source, SourceConfig::Mysql(mysql) if mysql.password.reveal() == "hunter2"));
    let shown: Vec<_> = settings.iter().filter(|setting| setting.key == "source.password").collect();
    assert_eq!(shown[0].value, "(the environment variable MY_SHOP_DB_PASSWORD)");
    assert!(!format!("{job:?} {settings:?}").contains("hunter2"));
}

#[test]
fn neither_explain_nor_debug_shows_a_secret() {
    let text = SHOP.replace("mysql://cdc@db.internal", "mysql://cdc:${SECRET}@db").replace(
        "path: ./lake",
        "path: s3://b/p\n  options: { aws_secret_access_key: \"${SECRET}\", aws_region: x, aws_token: \"${SECRET}\" }",
    );
    let (job, settings) = load_text(&text).unwrap();
    assert_eq!(job.lake.options["aws_secret_access_key"], "hunter2");
    assert!(!format!("{job:?} {settings:?}").contains("hunter2"));
}

#[test]
fn tls_is_on_by_default_for_other_machines_only() {
    for (host, tls) in [("db", TlsMode::Verified), ("127.0.0.1", TlsMode::Disabled), ("[::1]", TlsMode::Disabled)] {
        assert_eq!(mysql(&SHOP.replace("db.internal", host)).0.tls, tls, "{host}");
    }
}

#[test]
fn the_server_id_differs_from_job_to_job_and_stays_the_same() {
    let id = |name: &str| mysql(&SHOP.replace("job: shop", &format!("job: {name}"))).0.server_id;
    assert_eq!(id("shop"), id("shop"));
    assert_ne!(id("shop"), id("shop2"));
}

#[test]
fn the_lake_is_a_folder_or_a_bucket() {
    let lake = |path: &str, problem: &str| check_with("./lake", path, problem);
    lake("s3://bucket/x", "");
    lake("/abs/../lake", "");
    lake("file:///lake", "");
    lake("gs://b/x", "f:8:9 lake.path: is a store that is not supported yet: write a folder or s3://bucket/prefix");
    lake("s3a://b/x", "f:8:9 lake.path: must start with s3://");
    lake("http://b/x", "f:8:9 lake.path: must be a folder or s3://bucket/prefix");
    lake(
        "x\n  options: { aws_region: a }",
        "f:9:12 lake.options: has a meaning for s3:// only: a folder has no options",
    );
    lake(
        "s3://b/x\n  options: { aws_regio: a, aws_secret_access_key: k }",
        "f:9:25 lake.options.aws_regio: is not an option of S3; did you mean aws_region?\n\
         f:9:51 lake.options.aws_secret_access_key: is a secret in clear: put it into an environment variable and \
         write `aws_secret_access_key: ${NAME}`",
    );
}

#[test]
fn keys_by_hand_belong_to_one_table_each() {
    let (job, _) = load_text(&format!("{SHOP}tables: [{{ match: shop.a, key: [x, y] }}]\n")).unwrap();
    assert_eq!(job.keys, BTreeMap::from([("shop.a".to_string(), vec!["x".to_string(), "y".to_string()])]));
    let tables = |tables: &str, problem: &str| check(&format!("{SHOP}tables: {tables}\n"), problem);
    tables(
        "[{ match: a, key: [x] }]",
        "f:9:19 tables[0].match: must be a table as database.table, with * for any name",
    );
    tables(
        "[{ match: shop.*, key: [x] }]",
        "f:9:32 tables[0].key: is for one table: give the table's name as `match`, not a pattern",
    );
    tables(
        "[{ match: s.a, key: [x] }, { match: s.a, key: [y] }]",
        "f:9:36 tables[1]: s.a has a key above: leave one of them out",
    );
}

#[test]
fn settings_of_tables_are_checked() {
    let tables = |tables: &str, problem: &str| check(&format!("{SHOP}tables: {tables}\n"), problem);
    tables("[{ match: s.a, merge: merge_on_read, change_feed: off }]", "");
    tables("[{ match: '!s.a' }]", "f:9:19 tables[0].match: must say which tables it is for, not which it is not for");
    tables("[{ match: s.a, cluster_by: [v, w, x, y] }]", "");
    tables("[{ match: s.a, cluster_by: [v, w, x, y, z] }]", "f:9:36 tables[0].cluster_by: must be at most 4 columns");
    tables(
        "[{ match: s.a, merge: cow }]",
        "f:9:31 tables[0].merge: must be merge_on_read or copy_on_write, found `cow`",
    );
}

#[test]
fn upkeep_has_defaults_and_can_be_off_in_whole_or_in_part() {
    let maintain = |text: &str| load_text(&format!("{SHOP}maintain: {text}\n")).unwrap().0.maintain;
    assert_eq!(maintain(""), MaintainConfig::default());
    let off = maintain("off");
    assert!(off.compact.is_none() && off.vacuum.is_none() && off.log_retention.is_none());
    assert_eq!(off.checkpoint_versions, 100);
    let some = maintain("{ compact: off, vacuum: { every: 6h, retention: 90s, allow_short_retention: true } }");
    assert_eq!((some.compact, some.cluster_every), (None, MaintainConfig::default().cluster_every));
    assert_eq!(some.vacuum.map(|vacuum| (vacuum.every.as_secs(), vacuum.retention.as_secs())), Some((21_600, 90)));
    let text = "{ compact: { every: 15m, file_size: 64MiB, small_files: 4, deleted_percent: 50 } }";
    let compact = maintain(text).compact.unwrap();
    assert_eq!((compact.every.as_secs(), compact.file_bytes, compact.small_files), (900, 64 << 20, 4));
}

#[test]
fn upkeep_that_makes_no_sense_is_refused() {
    let maintain = |text: &str, problem: &str| check(&format!("{SHOP}maintain: {text}\n"), problem);
    maintain("sometimes", "f:9:11 maintain: must be off or a mapping, found text");
    maintain(
        "{ vacuum: { retention: 6d } }",
        "f:9:34 maintain.vacuum.retention: must be at least 7d: a shorter one takes files from under readers and \
         writers that are at work; `allow_short_retention: true` beside it allows that",
    );
    maintain(
        "{ vacuum: { retention: 31d } }",
        "f:9:34 maintain.vacuum.retention: must be at most maintain.log.retention (30d by default): lengthen that too",
    );
    maintain(
        "{ log: { retention: 6d } }",
        "f:9:31 maintain.log.retention: must be at least maintain.vacuum.retention: without their log, old versions \
         cannot be read",
    );
    maintain("{ vacuum: off, log: { retention: 1d } }", "");
    maintain(
        "{ compact: { every: 1w, file_size: 1KiB, small_files: 1 } }",
        "f:9:31 maintain.compact.every: must be a whole number with s, m, h or d (6h), found `1w`\n\
         f:9:46 maintain.compact.file_size: must be 1MiB to 4GiB, found 1KiB\n\
         f:9:65 maintain.compact.small_files: must be 2 to 64, found 1",
    );
}

#[test]
fn binlog_files_are_found_from_the_job_files_folder() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["bin.000002", "bin.000001", "bin.index"] {
        std::fs::write(folder.path().join(name), b"").unwrap();
    }
    let text =
        SHOP.replace("type: mysql", "type: binlog_files").replace("url: mysql://cdc@db.internal", "files: [bin.*]");
    let (job, _) = parse(&text, Path::new("f"), folder.path(), &environment).unwrap();
    let SourceConfig::BinlogFiles(source) = job.source else { panic!("{:?}", job.source) };
    assert_eq!(source.files, ["bin.000001", "bin.000002"].map(|name| folder.path().join(name)));
    let nothing = text.replace("bin.*", "no.*");
    let problem = parse(&nothing, Path::new("f"), folder.path(), &environment).unwrap_err().to_string();
    assert!(problem.starts_with("f:5:11 source.files[0]: no file in "), "{problem}");
    check(
        &text.replace("files: [bin.*]", "resume: auto"),
        "\
f:4:3 source.files: is missing: write for example `files: [binlogs/mysql-bin.*]`
f:5:3 source.resume: is not a key here; the keys are type, files, tables",
    );
}

/// The problems of a job of DynamoDB with these lines in its source.
fn check_dynamodb(lines: &str, expected: &str) {
    check(&format!("version: 1\njob: shop\nsource:\n  type: dynamodb\n{lines}lake: {{ path: ./lake }}\n"), expected);
}

#[test]
fn tables_of_dynamodb_are_names_without_a_database() {
    let text = "version: 1\njob: d\nsource: { type: dynamodb, tables: [orders, \"a.b_*\", \"!a.b_tmp\"] }\nlake: { path: ./lake }\n";
    let (job, settings) = load_text(text).unwrap();
    let SourceConfig::Dynamodb(source) = &job.source else { panic!("{:?}", job.source) };
    for (table, expected) in [("orders", true), ("a.b_1", true), ("a.b_tmp", false), ("order", false)] {
        assert_eq!(source.tables.matches(&crate::change::TableId::new("dynamodb", table)), expected, "{table}");
    }
    assert!(!source.tables.matches(&crate::change::TableId::new("shop", "orders")));
    assert_eq!((source.number_keys, source.read_units), (NumberKeys::Long, ReadUnits::Percent(50)));
    assert!(settings.iter().any(|setting| setting.key == "source.snapshot.read_units" && setting.is_default));
}

#[test]
fn a_source_of_dynamodb_is_checked() {
    let good = "  tables: [t]\n  region: eu-west-1\n  endpoint_url: http://127.0.0.1:8000\n  number_keys: decimal\n  expired: keep\n";
    check_dynamodb(good, "");
    for (units, is_good) in [("1", true), ("100%", true), ("off", true), ("0", false), ("101%", false), ("x", false)] {
        let problem =
            "f:6:27 source.snapshot.read_units: must be a number from 1 to 10000000, a share from 1% to 100%, or off";
        let lines = format!("  tables: [t]\n  snapshot: {{ read_units: {units} }}\n");
        check_dynamodb(&lines, if is_good { "" } else { problem });
    }
    check_dynamodb(
        "  tables: [\"a b\", \"!t\"]\n  region: EU\n  endpoint_url: ftp://h\n",
        "f:5:12 source.tables[0]: must be the name of a table of DynamoDB, or a pattern with * for any letters\n\
         f:6:11 source.region: must be the name of an AWS region, for example eu-central-1\n\
         f:7:17 source.endpoint_url: must be an address such as https://dynamodb.internal:8000, without a password",
    );
}

#[test]
fn a_file_that_is_no_job_file_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.yaml");
    let problem = |bytes: Vec<u8>| {
        std::fs::write(&path, bytes).unwrap();
        load(&path).unwrap_err().to_string()
    };
    assert!(problem(vec![0xff]).contains("is not UTF-8 text (byte 0)"));
    assert!(problem(vec![b' '; 2 << 20]).contains("a job file has at most 1048576"));
    assert!(problem(b"job".to_vec()).contains("job.yaml:1:1: must be a mapping"));
    assert!(load(&folder.path().join("none")).unwrap_err().to_string().contains("there is no such file"));
    assert!(load(folder.path()).unwrap_err().to_string().contains("is not a file"));
}

#[test]
fn no_bytes_of_a_job_file_make_a_panic() {
    let base = include_str!("../../jobs/s3.yaml");
    let mut state = 0x9E37_79B9_u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let pieces = [
        "{", "}", "[", "]", ":", "- ", "\n", "  ", "&a ", "*a", "!x ", "\"", "'", "|", ">", "#", "%", "${", "\t", "é",
        "?", ",",
    ];
    for _ in 0..500 {
        let mut chars: Vec<char> = base.chars().collect();
        for _ in 0..=random(6) {
            let at = random(chars.len());
            match random(3) {
                0 => chars.truncate(at.max(1)),
                1 => drop(chars.remove(at)),
                _ => drop(chars.splice(at..at, pieces[random(pieces.len())].chars())),
            }
            if chars.is_empty() {
                chars.push('a');
            }
        }
        let _ = load_text(&chars.into_iter().collect::<String>());
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn every_job_file_in_the_repository_loads() {
    let environment = |_: &str| Some("x".to_string());
    for name in ["shop", "s3", "demo", "demo-warehouse", "dynamodb"] {
        let path = root().join(format!("jobs/{name}.yaml"));
        let text = std::fs::read_to_string(&path).unwrap();
        if let Err(problems) = parse(&text, &path, &root().join("jobs"), &environment) {
            panic!("{problems}");
        }
    }
    let files = std::fs::read_dir(root().join("jobs")).unwrap();
    let names = files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "yaml"));
    assert_eq!(names.count(), 5, "name every file of jobs/ above");
}

#[test]
fn the_committed_schema_is_the_codes_own() {
    let committed = std::fs::read_to_string(root().join("jobs/alluvium.schema.json")).unwrap_or_default();
    let current = serde_json::to_string_pretty(&json_schema()).unwrap() + "\n";
    assert_eq!(committed, current, "write it anew: alluvium schema > jobs/alluvium.schema.json");
}

#[test]
fn the_documentation_names_every_key_with_its_default() {
    let text = std::fs::read_to_string(root().join("docs/job-file.md")).unwrap_or_default();
    for key in keys() {
        let path = [key.parent, key.name].join(if key.parent.is_empty() { "" } else { "." });
        let is_this = |line: &&str| line.starts_with(&format!("| `{path}` | {} |", key.about));
        let line = text.lines().find(is_this);
        let line = line.unwrap_or_else(|| panic!("docs/job-file.md lacks: | `{path}` | {} |", key.about));
        assert!(line.contains(key.default.unwrap_or("must be there")), "docs/job-file.md on {path}: the default");
    }
}
