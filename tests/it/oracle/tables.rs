//! The oracle's tables: every column type that both servers have, those that only one has, and keys of every
//! kind.

use rand::Rng;
use rand::rngs::StdRng;

use super::values::{Kind, MEMBERS};
use crate::harness::Flavor;

/// A table as the writer knows it.
#[derive(Debug, Clone)]
pub struct Table {
    pub name: &'static str,
    pub columns: Vec<Column>,
    /// How many of the first columns are the key.
    pub key_columns: usize,
}

#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    /// The type in SQL, without nullability.
    pub sql: String,
    pub kind: Kind,
    pub nullable: bool,
    /// In SQL.
    pub default: Option<&'static str>,
}

impl Column {
    /// A value for the column, null now and then where it may be.
    pub fn literal(&self, random: &mut StdRng) -> String {
        if self.nullable && random.random_bool(0.15) { "NULL".to_string() } else { self.kind.literal(random) }
    }
}

impl Table {
    pub fn create_statement(&self) -> String {
        let columns: Vec<String> = self.columns.iter().map(Column::definition).collect();
        let key: Vec<&str> = self.columns[..self.key_columns].iter().map(|column| column.name.as_str()).collect();
        format!("CREATE TABLE {} ({}, PRIMARY KEY ({}))", self.name, columns.join(", "), key.join(", "))
    }

    pub fn key_names(&self) -> Vec<String> {
        self.columns[..self.key_columns].iter().map(|column| column.name.clone()).collect()
    }
}

impl Column {
    fn or(self, default: &'static str) -> Self {
        Self { default: Some(default), ..self }
    }

    /// Whether statements may give it a value.
    pub fn is_given(&self) -> bool {
        !matches!(self.kind, Kind::Computed)
    }

    /// Whether an insert may leave it out.
    pub fn may_be_left_out(&self) -> bool {
        self.nullable || self.default.is_some()
    }

    fn definition(&self) -> String {
        let null = if self.nullable { "NULL" } else { "NOT NULL" };
        match (&self.kind, self.default) {
            (Kind::Computed, _) => format!("{} {}", self.name, self.sql),
            (_, Some(default)) => format!("{} {} {null} DEFAULT {default}", self.name, self.sql),
            (_, None) => format!("{} {} {null}", self.name, self.sql),
        }
    }
}

fn column(name: &str, sql: &str, kind: Kind) -> Column {
    Column { name: name.to_string(), sql: sql.to_string(), kind, nullable: true, default: None }
}

fn table(name: &'static str, keys: Vec<Column>, columns: Vec<Column>) -> Table {
    let key_columns = keys.len();
    let keys = keys.into_iter().map(|key| Column { nullable: false, ..key });
    Table { name, columns: keys.chain(columns).collect(), key_columns }
}

fn int(bits: u32, signed: bool) -> Kind {
    let range = 1i128 << bits;
    if signed { Kind::Int { min: -range / 2, max: range / 2 - 1 } } else { Kind::Int { min: 0, max: range - 1 } }
}

fn few(min: i128, max: i128) -> Kind {
    Kind::Int { min, max }
}

/// All tables for a server of this flavor.
pub fn tables(flavor: Flavor) -> Vec<Table> {
    vec![
        integers(),
        texts(),
        decimals(),
        moments(),
        bytes(),
        unsigned_key(),
        composite(),
        special(flavor),
        defaults(flavor),
    ]
}

fn integers() -> Table {
    let columns = vec![
        column("i8", "TINYINT", int(8, true)),
        column("u8", "TINYINT UNSIGNED", int(8, false)),
        column("i16", "SMALLINT", int(16, true)),
        column("u16", "SMALLINT UNSIGNED", int(16, false)),
        column("i24", "MEDIUMINT", int(24, true)),
        column("u24", "MEDIUMINT UNSIGNED", int(24, false)),
        column("i32", "INT", int(32, true)),
        column("u32", "INT UNSIGNED", int(32, false)),
        column("i64", "BIGINT", int(64, true)),
        column("u64", "BIGINT UNSIGNED", int(64, false)),
        column("flag", "BOOLEAN", few(0, 1)),
    ];
    table("integers", vec![column("id", "INT", few(-30, 60))], columns)
}

fn texts() -> Table {
    let enumeration = format!("'{}'", MEMBERS.join("','"));
    let columns = vec![
        column("fixed", "CHAR(12)", Kind::Text(12)),
        column("short", "VARCHAR(200)", Kind::Text(200)),
        column("latin", "VARCHAR(60) CHARACTER SET latin1", Kind::Latin(60)),
        column("tiny", "TINYTEXT", Kind::Text(40)),
        column("body", "TEXT", Kind::Text(5000)),
        column("medium", "MEDIUMTEXT", Kind::Text(5000)),
        column("long_one", "LONGTEXT", Kind::Text(5000)),
        column("choice", &format!("ENUM({enumeration})"), Kind::Enum),
        column("choices", &format!("SET({enumeration})"), Kind::Set),
        column("document", "JSON", Kind::Json),
    ];
    let key = column("code", "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", Kind::Word);
    table("texts", vec![key], columns)
}

fn decimals() -> Table {
    let decimal = |precision, scale, unsigned| Kind::Decimal { precision, scale, unsigned };
    let columns = vec![
        column("small", "DECIMAL(5,2)", decimal(5, 2, false)),
        column("positive", "DECIMAL(10,0) UNSIGNED", decimal(10, 0, true)),
        column("money", "DECIMAL(20,4)", decimal(20, 4, false)),
        column("widest", "DECIMAL(38,10)", decimal(38, 10, false)),
        column("wider", "DECIMAL(65,30)", decimal(65, 30, false)),
        column("below_one", "DECIMAL(9,9)", decimal(9, 9, false)),
        column("single", "FLOAT", Kind::Float),
        column("twofold", "DOUBLE", Kind::Double),
    ];
    table("decimals", vec![column("amount", "DECIMAL(6,2)", decimal(3, 2, false))], columns)
}

fn moments() -> Table {
    let columns = vec![
        column("at0", "DATETIME", Kind::DateTime(0)),
        column("at3", "DATETIME(3)", Kind::DateTime(3)),
        column("at6", "DATETIME(6)", Kind::DateTime(6)),
        column("ts0", "TIMESTAMP", Kind::Timestamp(0)),
        column("ts1", "TIMESTAMP(1)", Kind::Timestamp(1)),
        column("ts6", "TIMESTAMP(6)", Kind::Timestamp(6)),
        column("t0", "TIME", Kind::Time(0)),
        column("t2", "TIME(2)", Kind::Time(2)),
        column("t6", "TIME(6)", Kind::Time(6)),
        column("y", "YEAR", Kind::Year),
        column("other_day", "DATE", Kind::Date),
    ];
    table("moments", vec![column("day", "DATE", Kind::Day)], columns)
}

fn bytes() -> Table {
    let columns = vec![
        column("fixed", "BINARY(16)", Kind::Bytes(16)),
        column("padded", "VARBINARY(64)", Kind::Bytes(64)),
        column("tiny", "TINYBLOB", Kind::Bytes(64)),
        column("body", "BLOB", Kind::Bytes(64)),
        column("long_one", "LONGBLOB", Kind::Bytes(64)),
        column("bit1", "BIT(1)", Kind::Bit(1)),
        column("bit9", "BIT(9)", Kind::Bit(9)),
        column("bit64", "BIT(64)", Kind::Bit(64)),
    ];
    table("bytes", vec![column("id", "BINARY(4)", Kind::ByteKey(4))], columns)
}

fn unsigned_key() -> Table {
    let top = i128::from(u64::MAX);
    let columns = vec![column("note", "VARCHAR(40)", Kind::Text(40)), column("weight", "DOUBLE", Kind::Double)];
    table("unsigned_key", vec![column("id", "BIGINT UNSIGNED", few(top - 60, top))], columns)
}

fn composite() -> Table {
    let keys = vec![
        column("tenant", "SMALLINT UNSIGNED", few(0, 4)),
        column("name", "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", Kind::Word),
        column("at", "DATETIME(3)", Kind::Day),
    ];
    let columns = vec![column("value", "INT", int(32, true)), column("note", "TEXT", Kind::Text(200))];
    table("composite", keys, columns)
}

/// Columns whose values follow from the table's definition where a statement leaves them out.
fn defaults(flavor: Flavor) -> Table {
    let with = |name: &str, sql: &str, kind: Kind| Column { nullable: false, ..column(name, sql, kind) };
    let mut columns = vec![
        with("quantity", "INT", int(32, true)).or("7"),
        with("code", "VARCHAR(30)", Kind::Text(30)).or("'it''s'"),
        with("price", "DECIMAL(9,3)", Kind::Decimal { precision: 9, scale: 3, unsigned: false }).or("1.50"),
        with("began", "DATETIME(3)", Kind::DateTime(3)).or("'2024-01-02 03:04:05.600'"),
        with("lasted", "TIME", Kind::Time(0)).or("'-01:02:03'"),
        with("choice", "ENUM('a','b')", Kind::Choice).or("'b'"),
        with("mask", "BIT(9)", Kind::Bit(9)).or("b'101'"),
        with("raw", "VARBINARY(20)", Kind::Bytes(20)).or("'raw'"),
        with("seen", "TIMESTAMP(6)", Kind::Timestamp(6)).or("CURRENT_TIMESTAMP(6)"),
        column("note", "TEXT", Kind::Text(60)),
        column("doc", "JSON", Kind::Json),
        column("maybe", "INT", int(32, true)),
        column("doubled", "BIGINT AS (quantity * 2) STORED", Kind::Computed),
    ];
    if flavor == Flavor::Mysql {
        columns.push(column("tripled", "BIGINT AS (quantity * 3) VIRTUAL", Kind::Computed));
    }
    table("defaults", vec![column("id", "INT", few(0, 50))], columns)
}

/// Types that only one of the servers has.
fn special(flavor: Flavor) -> Table {
    let mut columns = vec![column("shape", "GEOMETRY", Kind::Geometry)];
    match flavor {
        Flavor::Mysql => columns.push(column("direction", "VECTOR(3)", Kind::Vector)),
        Flavor::Mariadb => columns.extend([
            column("uid", "UUID", Kind::Uuid),
            column("v4", "INET4", Kind::Inet4),
            column("v6", "INET6", Kind::Inet6),
        ]),
    }
    table("special", vec![column("id", "SMALLINT", few(0, 50))], columns)
}
