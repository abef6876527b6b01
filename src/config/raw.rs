//! The job file as it is written: nothing defaulted, nothing checked beyond its shape.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use super::period::Period;
use super::problem::Report;
use super::read::{
    At, Field, FromNode, KeyDoc, Need, entries, field, key_name, mapping, mapping_schema, word_of, words, wrong_type,
};
use super::size::ByteCount;
use super::substitute::Text;
use super::yaml::{Node, Value, key_path};

mapping! {
    /// A job of Alluvium: one source, one lake, and what to do between them.
    struct RawJob {
        /// The version of the job file's format: 1.
        version: u64 => required "version: 1",
        /// The job's name: 1 to 64 letters, digits, `-` and `_`. It marks the job's commits and must stay the same over its life.
        job: Text => required "job: shop",
        /// Where the changes come from.
        source: RawSource => required "source: { type: mysql, url: ..., tables: [...] }",
        /// Where the Delta tables are.
        lake: RawLake => required "lake: { path: ./lake/shop }",
        /// What a run may use, and when a batch is written.
        run: RawRun => default "the defaults of its keys",
        /// Which changes of the source's columns are followed, and how.
        schema: RawSchema => default "the defaults of its keys",
        /// Settings of single tables.
        tables: Vec<At<RawTable>> => default "none",
        /// The secret key of the columns under `tables[].columns.hash`: `{ env: NAME }`, `{ file: path }` or `${NAME}`. Whoever has it can find out which value a hash is of.
        hash_key: RawPassword => default "none",
        /// Upkeep of the tables: a mapping of its jobs, or `off` where something else does it. Checkpoints are written in any case.
        maintain: OrOff<RawMaintain> => default "the defaults of its keys",
    }
    later ["defaults"]
}

words! {
    /// The kinds of sources.
    enum SourceKind {
        "mysql" => Mysql,
        "mariadb" => Mariadb,
        "binlog_files" => BinlogFiles,
        "dynamodb" => Dynamodb,
    }
}

/// The source; its keys depend on its `type`.
#[derive(Debug)]
pub(super) enum RawSource {
    Mysql(Box<RawMysql>),
    BinlogFiles(RawBinlogFiles),
    Dynamodb(Box<RawDynamodb>),
}

mapping! {
    /// A live MySQL or MariaDB server, read through its replication protocol.
    struct RawMysql {
        /// `mysql` or `mariadb`; both mean the same, which server it is shows when it is connected.
        r#type: SourceKind => required "type: mysql",
        /// The server and user: `mysql://user@host:port`; port 3306 may be left out.
        url: Text => required "url: mysql://cdc@db.internal:3306",
        /// The password, from a variable or a file: `{ env: NAME }`, `{ file: path }` or `${NAME}`. It may stand in the URL as `${NAME}` instead.
        password: RawPassword => default "the environment variable JOB_DB_PASSWORD (the job's name in capitals, - as _), or no password if that is not set",
        /// Encryption of the connection: `disabled`, `required` (encrypted, the server's certificate is not checked) or `verified`.
        tls: TlsWord => default "verified; disabled for localhost",
        /// The certificate authority's certificate that the server's is checked against, a PEM file from the job file's folder: for servers whose certificate no public authority has signed, such as those of most clouds.
        ca: Text => default "the public authorities",
        /// The tables to capture: patterns `database.table` in which `*` stands for any name and a leading `!` takes away; the last pattern that matches decides.
        tables: Vec<At<Text>> => required "tables: [\"shop.*\", \"!shop.tmp_*\"]",
        /// The first load of each table.
        snapshot: RawSnapshot => default "the defaults of its keys",
        /// How reading resumes: by `gtid`, by `position` (file and offset), or `auto`, by GTID where the server has them. With `gtid` on MariaDB, with `gtid` or `auto` on MySQL, a replica may take the place of its primary.
        resume: ResumeWord => default "auto",
        /// The number under which Alluvium registers as a replica, 1 to 4294967295. No two replicas of a server may have the same.
        server_id: u64 => default "a number above 2147483648 made from the job's name",
    }
    later ["ssl", "heartbeat"]
}

mapping! {
    /// Binlog files in a folder, read once from the first to the last.
    struct RawBinlogFiles {
        /// `binlog_files`.
        r#type: SourceKind => required "type: binlog_files",
        /// The files in log order: paths, or patterns with `*` in the file name, from the job file's folder. The files of one pattern are taken in the order of their numbers.
        files: Vec<At<Text>> => required "files: [binlogs/mysql-bin.*]",
        /// The tables to capture: patterns `database.table` in which `*` stands for any name and a leading `!` takes away; the last pattern that matches decides.
        tables: Vec<At<Text>> => required "tables: [\"shop.*\"]",
    }
    later []
}

mapping! {
    /// Tables of Amazon DynamoDB, followed through their streams. Credentials come from where the AWS SDK finds them: variables, profiles, roles.
    struct RawDynamodb {
        /// `dynamodb`.
        r#type: SourceKind => required "type: dynamodb",
        /// The tables to capture, in the lake `dynamodb.NAME`: names, or patterns in which `*` stands for any letters and a leading `!` takes away; the last pattern that matches decides.
        tables: Vec<At<Text>> => required "tables: [orders, \"shop_*\"]",
        /// The AWS region.
        region: Text => default "AWS_REGION, or what the AWS profile says",
        /// Another address than the region's own, for a gateway or a server of one's own: `http://` or `https://`.
        endpoint_url: Text => default "the region's own",
        /// The type of key columns whose attributes are numbers: `long`, `decimal` (whole numbers of up to 38 digits) or `string`. Holds from the table's creation on.
        number_keys: NumberKeysWord => default "long",
        /// What becomes of rows whose items DynamoDB deletes because they have expired (TTL): `delete` or `keep`.
        expired: ExpiredWord => default "delete",
        /// The first load of each table.
        snapshot: RawScan => default "the defaults of its keys",
    }
    later []
}

mapping! {
    /// The first load of each table of DynamoDB.
    struct RawScan {
        /// `initial` loads the items that are there and then follows the stream; `never` follows the stream only, and tables start empty.
        mode: SnapshotWord => default "initial",
        /// How many items one read brings: a number, or `auto`, as many as suit their size and `run.memory`.
        split_rows: RowsOrAuto => default "auto",
        /// How many reads there are at once, 1 to 64.
        readers: u64 => default "4",
        /// Read units a second that the load of one table may use: a number, a share of what the table has provisioned such as `50%`, or `off` for no limit.
        read_units: Text => default "50%",
    }
    later []
}

words! {
    /// The types of key columns of numbers.
    enum NumberKeysWord {
        "long" => Long,
        "decimal" => Decimal,
        "string" => Text,
    }
}

words! {
    /// What becomes of expired rows.
    enum ExpiredWord {
        "delete" => Delete,
        "keep" => Keep,
    }
}

mapping! {
    /// The first load of each table.
    struct RawSnapshot {
        /// `initial` loads the rows that are there and then follows the log; `never` follows the log only, and tables start empty.
        mode: SnapshotWord => default "initial",
        /// How many rows one query reads: a number, or `auto`, as many as suit their size and `run.memory`.
        split_rows: RowsOrAuto => default "auto",
        /// How many queries read at once, each on a connection of its own, 1 to 64.
        readers: u64 => default "4",
        /// How long one query may take: a number with s, m or h. One that takes longer ends where it has come to, and the next begins there; one that gives no row takes its table out.
        query_time: Period => default "5m",
        /// No rows are asked for while the server's `Threads_running` is above this: a number, or `off`.
        threads_running: ValueOrOff<u64> => default "100",
        /// No rows are asked for while the server, where it is a replica itself, is further behind its own source: a number with s, m or h, or `off`. MariaDB shows it to those with the privilege SLAVE MONITOR.
        replica_lag: ValueOrOff<Period> => default "off",
    }
    later []
}

mapping! {
    /// Where the Delta tables are.
    struct RawLake {
        /// A folder, from the job file's folder, or `s3://bucket/prefix`. The table `shop.orders` is in `shop/orders` below it.
        path: Text => required "path: ./lake/shop",
        /// Options of the object store, by the names of its documentation: `aws_region`, `aws_endpoint`, ... Secrets as `${NAME}`. What is not given here is taken from the environment (`AWS_REGION`, ...).
        options: BTreeMap<String, At<Text>> => default "none",
    }
    later ["credentials"]
}

mapping! {
    /// What a run may use, and when a batch is written.
    struct RawRun {
        /// What all buffers together may hold: a number with KiB, MiB or GiB, at least 64MiB. A larger transaction spills to disk.
        memory: ByteCount => default "1GiB",
        /// When a batch is written.
        batch: RawBatch => default "the defaults of its keys",
    }
    later []
}

mapping! {
    /// A batch is written at the end of the first transaction with which it reaches one of these.
    struct RawBatch {
        /// Changed rows.
        rows: u64 => default "1000000",
        /// Size of the changes in memory and spilled, a number with KiB, MiB or GiB.
        bytes: ByteCount => default "as much as `run.memory`",
        /// Age in seconds, from its first change.
        seconds: u64 => default "60",
    }
    later []
}

mapping! {
    /// Settings of one table, or of all that a pattern matches. The last entry that has a setting decides it.
    struct RawTable {
        /// The table, `database.table`, or a pattern with `*` for any name.
        r#match: Text => required "match: shop.orders",
        /// The columns that identify a row, for a table whose primary key the source does not tell. The entry then names one table, not a pattern.
        key: Vec<At<Text>> => default "the source's primary key",
        /// The columns by whose values the table is divided into folders, or a part of a date: `year(created)`, `month(created)`, `day(created)`. Holds from the table's creation on.
        partition_by: Vec<At<Text>> => default "none",
        /// The columns whose values maintenance puts close together in the files, for queries that filter by them.
        cluster_by: Vec<At<Text>> => default "the key",
        /// How old versions of rows leave the table: `merge_on_read` hides them with deletion vectors, `copy_on_write` writes their files again, for readers that know no deletion vectors.
        merge: MergeWord => default "merge_on_read",
        /// Whether commits carry a change data feed, `on` or `off`.
        change_feed: OnOff => default "off",
        /// Which changes of the source's columns are followed for these tables, and how.
        schema: RawTableSchema => default "what `schema` of the job says",
        /// Which of the source's columns come into the lake, and how. Holds from the table's creation on; `alluvium run --resnapshot` makes it anew.
        columns: RawColumns => default "all, as they are",
    }
    later ["mode", "deletes", "types", "into"]
}

mapping! {
    /// Which columns come into the lake, and how. Names are the source's, whatever case they are in.
    struct RawColumns {
        /// These columns and the key, and no others.
        include: Vec<At<Text>> => default "all",
        /// Columns that do not come into the lake, also not those that get such a name later. Not of the key.
        exclude: Vec<At<Text>> => default "none",
        /// Columns that have another name in the lake: `{ cust_no: customer }`.
        rename: BTreeMap<String, At<Text>> => default "none",
        /// Columns of whose values only a hash comes into the lake, 64 hexadecimal digits (HMAC with SHA-256 and `hash_key`): equal values stay equal. Not of the key.
        hash: Vec<At<Text>> => default "none",
        /// Columns whose values become `***`; null stays null. Not of the key.
        mask: Vec<At<Text>> => default "none",
        /// Columns of one text for all rows: `{ tenant: acme }`.
        add: BTreeMap<String, At<Text>> => default "none",
        /// Columns that tell where a row is from: the name in the lake, and `database`, `table`, `op` (`read` by a first load, `insert` or `update`), `commit_time` or `position`, each of the row's last change.
        metadata: BTreeMap<String, At<MetadataWord>> => default "none",
    }
    later []
}

words! {
    /// What a column tells of a row's last change.
    enum MetadataWord {
        "database" => Database,
        "table" => Table,
        "op" => Operation,
        "commit_time" => CommitTime,
        "position" => Position,
    }
}

mapping! {
    /// Which changes of the source's columns are followed, and how. `docs/schema.md` says which changes are compatible.
    struct RawSchema {
        /// `on` follows all changes, `compatible` those after which one column holds the old values and the new ones, `off` those that leave the lake's columns as they are. Any other change takes its table out.
        evolution: EvolutionWord => default "on",
        /// What becomes of a column whose old values and new ones do not fit together: `new_column` puts the new ones into a column beside it, `string` makes it a column of text, `stop` takes the table out.
        incompatible: IncompatibleWord => default "new_column",
    }
    later []
}

mapping! {
    /// Which changes of the source's columns are followed for some tables, and how.
    struct RawTableSchema {
        /// As `schema.evolution`.
        evolution: EvolutionWord => default "that of the job",
        /// As `schema.incompatible`.
        incompatible: IncompatibleWord => default "that of the job",
    }
    later []
}

words! {
    /// Which changes of columns are followed.
    enum EvolutionWord {
        "on" => On,
        "compatible" => Compatible,
        "off" => Off,
    }
}

words! {
    /// What becomes of a column whose old values and new ones do not fit together.
    enum IncompatibleWord {
        "new_column" => NewColumn,
        "string" => String,
        "stop" => Stop,
    }
}

mapping! {
    /// Upkeep of the tables: what is done beside the changes of their source, at the end of a run and between the batches of one that follows.
    struct RawMaintain {
        /// Small files, and files with many deleted rows, are folded into larger ones: a mapping, or `off`.
        compact: OrOff<RawCompact> => default "the defaults of its keys",
        /// New rows of tables with `cluster_by` are put close together: a mapping, or `off`.
        cluster: OrOff<RawCluster> => default "the defaults of its keys",
        /// Files that no version needs any more are deleted: a mapping, or `off`.
        vacuum: OrOff<RawVacuum> => default "the defaults of its keys",
        /// Checkpoints of the Delta log, from which readers start.
        checkpoint: RawCheckpoint => default "the defaults of its keys",
        /// Old parts of the Delta log are deleted: a mapping, or `off`.
        log: OrOff<RawLog> => default "the defaults of its keys",
    }
    later []
}

mapping! {
    /// Small files, and files with many deleted rows, are folded into larger ones.
    struct RawCompact {
        /// How often at most: a number with s, m, h or d. Eight times as many small files do not wait for it.
        every: Period => default "1h",
        /// The size that files are brought to, 1MiB to 4GiB.
        file_size: ByteCount => default "256MiB",
        /// How many files of one level are folded into one of the next level, at least; 2 to 64.
        small_files: u64 => default "8",
        /// The share of deleted rows, in percent, from which on a file is written again; 1 to 99.
        deleted_percent: u64 => default "20",
    }
    later []
}

mapping! {
    /// New rows of tables with `cluster_by` are put close together.
    struct RawCluster {
        /// How often at most: a number with s, m, h or d.
        every: Period => default "24h",
    }
    later []
}

mapping! {
    /// Files that no version needs any more are deleted.
    struct RawVacuum {
        /// How often at most: a number with s, m, h or d.
        every: Period => default "24h",
        /// For how long a version can still be read after the next one has replaced it; at least 7d.
        retention: Period => default "7d",
        /// `true` allows a shorter retention, which takes files from under readers and writers that are at work.
        allow_short_retention: bool => default "false",
    }
    later []
}

mapping! {
    /// Checkpoints of the Delta log, from which readers start.
    struct RawCheckpoint {
        /// Versions between two checkpoints, 1 to 10000.
        versions: u64 => default "100",
    }
    later []
}

mapping! {
    /// Old parts of the Delta log are deleted.
    struct RawLog {
        /// For how long the log of a version is kept after the next one has replaced it; at least as long as the retention of vacuum.
        retention: Period => default "30d",
    }
    later []
}

words! {
    /// How old versions of rows leave a table.
    enum MergeWord {
        "merge_on_read" => OnRead,
        "copy_on_write" => CopyOnWrite,
    }
}

words! {
    /// A switch.
    enum OnOff {
        "on" => On,
        "off" => Off,
    }
}

words! {
    /// TLS to the server.
    enum TlsWord {
        "disabled" => Disabled,
        "required" => Required,
        "verified" => Verified,
    }
}

words! {
    /// How reading resumes.
    enum ResumeWord {
        "auto" => Auto,
        "gtid" => Gtid,
        "position" => Position,
    }
}

words! {
    /// Whether there is a first load.
    enum SnapshotWord {
        "initial" => Initial,
        "never" => Never,
    }
}

impl FromNode for RawSource {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        let Value::Map(entries) = &node.value else {
            return wrong_type(node, path, "a mapping that starts with its type", report);
        };
        let Some((_, kind)) = entries.iter().find(|(key, _)| key.text == "type") else {
            report.add(node.at, &key_path(path, "type"), "is missing: write for example `type: mysql`");
            return None;
        };
        match SourceKind::from_node(kind, &key_path(path, "type"), report)? {
            SourceKind::Mysql | SourceKind::Mariadb => {
                RawMysql::from_node(node, path, report).map(Box::new).map(Self::Mysql)
            }
            SourceKind::BinlogFiles => RawBinlogFiles::from_node(node, path, report).map(Self::BinlogFiles),
            SourceKind::Dynamodb => RawDynamodb::from_node(node, path, report).map(Box::new).map(Self::Dynamodb),
        }
    }

    fn schema() -> Json {
        let of_kind = |mut schema: Json, kinds: &[SourceKind]| {
            let words: Vec<_> = kinds.iter().map(|kind| kind.word()).collect();
            if let Some(kind) = schema.pointer_mut("/properties/type/enum") {
                *kind = json!(words);
            }
            schema
        };
        json!({ "oneOf": [
            of_kind(RawMysql::schema(), &[SourceKind::Mysql, SourceKind::Mariadb]),
            of_kind(RawBinlogFiles::schema(), &[SourceKind::BinlogFiles]),
            of_kind(RawDynamodb::schema(), &[SourceKind::Dynamodb]),
        ] })
    }
}

/// The settings of a job, or `off`.
#[derive(Debug)]
pub(super) enum OrOff<T> {
    Off,
    On(T),
}

impl<T: FromNode> FromNode for OrOff<T> {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if text.text() == "off" => Some(Self::Off),
            Value::Scalar(_) => wrong_type(node, path, "off or a mapping", report),
            _ => T::from_node(node, path, report).map(Self::On),
        }
    }

    fn schema() -> Json {
        json!({ "oneOf": [{ "const": "off" }, T::schema()] })
    }
}

/// A limit, or `off`.
#[derive(Debug)]
pub(super) enum ValueOrOff<T> {
    Off,
    On(T),
}

impl<T: FromNode> FromNode for ValueOrOff<T> {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if text.text() == "off" => Some(Self::Off),
            _ => T::from_node(node, path, report).map(Self::On),
        }
    }

    fn schema() -> Json {
        json!({ "oneOf": [{ "const": "off" }, T::schema()] })
    }
}

/// A number of rows, or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowsOrAuto {
    Auto,
    Rows(u64),
}

impl FromNode for RowsOrAuto {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        match &node.value {
            Value::Scalar(text) if text.text() == "auto" => Some(Self::Auto),
            Value::Scalar(text) if text.text().parse::<u64>().is_err() => {
                report.add(node.at, path, format!("must be auto or a whole number, found `{}`", text.typed()));
                None
            }
            _ => u64::from_node(node, path, report).map(Self::Rows),
        }
    }

    fn schema() -> Json {
        json!({ "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1 }] })
    }
}

/// Where a password comes from.
#[derive(Debug, Clone)]
pub(super) enum RawPassword {
    Text(Text),
    From(PasswordFrom),
}

/// The one key that a password's mapping has.
#[derive(Debug, Clone)]
pub(super) enum PasswordFrom {
    Environment(At<Text>),
    File(At<Text>),
}

mapping! {
    /// A password from an environment variable or from a file.
    struct RawPasswordFrom {
        /// The name of an environment variable.
        env: Text => default "none",
        /// A file that holds the password and nothing else, from the job file's folder; an end of line is left out.
        file: Text => default "none",
    }
    later []
}

impl FromNode for RawPassword {
    fn from_node(node: &Node, path: &str, report: &mut Report) -> Option<Self> {
        if let Value::Scalar(text) = &node.value {
            return Some(Self::Text(text.clone()));
        }
        let from = RawPasswordFrom::from_node(node, path, report)?;
        match (from.env, from.file) {
            (Field::Set(name), Field::Missing) => Some(Self::From(PasswordFrom::Environment(name))),
            (Field::Missing, Field::Set(file)) => Some(Self::From(PasswordFrom::File(file))),
            (Field::Invalid, _) | (_, Field::Invalid) => None,
            _ => {
                report.add(node.at, path, "must have one key: env or file");
                None
            }
        }
    }

    fn schema() -> Json {
        json!({ "oneOf": [{ "type": "string" }, RawPasswordFrom::schema()] })
    }
}

/// Every mapping of the job file with its keys, in the file's order, for the documentation and its test.
pub(super) fn mappings() -> [(&'static str, &'static [KeyDoc]); 20] {
    [
        ("", RawJob::KEYS),
        ("source", RawMysql::KEYS),
        ("source", RawBinlogFiles::KEYS),
        ("source.password", RawPasswordFrom::KEYS),
        ("source.snapshot", RawSnapshot::KEYS),
        ("source", RawDynamodb::KEYS),
        ("source.snapshot", RawScan::KEYS),
        ("lake", RawLake::KEYS),
        ("run", RawRun::KEYS),
        ("run.batch", RawBatch::KEYS),
        ("schema", RawSchema::KEYS),
        ("tables[]", RawTable::KEYS),
        ("tables[].schema", RawTableSchema::KEYS),
        ("tables[].columns", RawColumns::KEYS),
        ("maintain", RawMaintain::KEYS),
        ("maintain.compact", RawCompact::KEYS),
        ("maintain.cluster", RawCluster::KEYS),
        ("maintain.vacuum", RawVacuum::KEYS),
        ("maintain.checkpoint", RawCheckpoint::KEYS),
        ("maintain.log", RawLog::KEYS),
    ]
}
