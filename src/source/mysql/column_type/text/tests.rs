use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// The text is read, and written again as `canonical`.
fn check(text: &str, canonical: &str) {
    let column_type: ColumnType = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(column_type.to_string(), canonical, "from {text}");
    assert_eq!(canonical.parse(), Ok(column_type), "from {canonical}");
}

#[test]
fn the_texts_of_both_servers_are_read() {
    check("int(11) unsigned zerofill", "int unsigned");
    check("tinyint(1)", "tinyint");
    check("bigint(20) unsigned", "bigint unsigned");
    check("decimal(10,2) unsigned", "decimal(10,2) unsigned");
    check("decimal(65,30)", "decimal(65,30)");
    check("double(5,2) unsigned", "double");
    check("float(7,3)", "float");
    check("bit(64)", "bit(64)");
    check("year(4)", "year");
    check("datetime(6)", "datetime(6)");
    check("time", "time");
    check("timestamp(3) /* mariadb-5.3 */", "timestamp(3)");
    check("varchar(10) /*M!100301 COMPRESSED*/ character set utf8mb4", "varchar(10) character set utf8mb4");
    check("blob /*M!100301 COMPRESSED*/", "blob");
    check("CHAR(0) CHARACTER SET Latin1 COLLATE latin1_bin", "char(0) character set latin1");
    check("binary(16)", "binary(16)");
    check("varbinary(255)", "varbinary(255)");
    check("geomcollection", "geomcollection");
    check("point", "point");
    check("vector(2048)", "vector(2048)");
    check("inet6", "inet6");
    check("json", "json");
}

#[test]
fn members_of_an_enum_are_unquoted_as_the_servers_quote_them() {
    let text = r"enum('a','it''s','b\\c','x\ny','é','','a,b',') character set x') character set latin1";
    check(text, text);
    let Ok(ColumnType::Enum { members, charset }) = text.parse() else { panic!("no enum") };
    assert_eq!(members, ["a", "it's", "b\\c", "x\ny", "é", "", "a,b", ") character set x"]);
    assert_eq!(charset, "latin1");
}

#[test]
fn the_columns_of_information_schema_make_a_type() {
    let make = |text, charset| ColumnType::from_information_schema(text, charset).map(|made| made.to_string());
    assert_eq!(make("longtext", Some("utf8mb4")).as_deref(), Ok("longtext character set utf8mb4"));
    assert_eq!(make("enum('a')", None).as_deref(), Ok("enum('a') character set binary"));
    assert_eq!(make("SET('a')", None).as_deref(), Ok("set('a') character set binary"));
    assert_eq!(make("int(11)", None).as_deref(), Ok("int"));
    assert_eq!(make("text", None), Err(ColumnTypeError::NoCharset { text: "text".to_string() }));
}

#[test]
fn what_is_no_type_is_refused() {
    for text in [
        "",
        "(",
        "int(",
        "int(x)",
        "int unsigned trailing",
        "bit(0)",
        "bit(65)",
        "decimal(66,0)",
        "decimal(5,6)",
        "datetime(7)",
        "vector",
        "varchar character set latin1",
        "enum('a",
        "enum('a'",
        "enum('a' 'b')",
        "text",
        "text character set",
        "xmltype",
        "int(99999999999)",
        "é",
    ] {
        assert!(text.parse::<ColumnType>().is_err(), "{text}");
    }
}

fn any_members(random: &mut StdRng) -> Vec<String> {
    let alphabet = ['a', '\'', '\\', '\n', '\r', '\0', ',', ')', '(', ' ', 'é', '🙂', '"', '%', 'n', '/', '*'];
    let length = random.random_range(1..6);
    let member = |random: &mut StdRng| {
        (0..random.random_range(0..6)).map(|_| alphabet[random.random_range(0..alphabet.len())]).collect()
    };
    (0..length).map(|_| member(random)).collect()
}

fn any_type(random: &mut StdRng) -> ColumnType {
    let unsigned = random.random();
    let digits = random.random_range(0..=6);
    let length = random.random_range(0..70_000);
    let precision = random.random_range(1..=65);
    let scale = random.random_range(0..=precision.min(30));
    let charset = ["latin1", "utf8mb4", "binary", "ucs2"][random.random_range(0..4)].to_string();
    match random.random_range(0..18) {
        0 => ColumnType::TinyInt { unsigned },
        1 => ColumnType::MediumInt { unsigned },
        2 => ColumnType::BigInt { unsigned },
        3 => ColumnType::Decimal { precision, scale, unsigned },
        4 => ColumnType::Float,
        5 => ColumnType::Bit { bits: random.random_range(1..=64) },
        6 => ColumnType::DateTime { digits },
        7 => ColumnType::Timestamp { digits },
        8 => ColumnType::Time { digits },
        9 => ColumnType::Text { kind: TextKind::Char(length), charset },
        10 => ColumnType::Text { kind: TextKind::VarChar(length), charset },
        11 => ColumnType::Text { kind: TextKind::MediumText, charset },
        12 => ColumnType::Blob { kind: BlobKind::VarBinary(length) },
        13 => ColumnType::Blob { kind: BlobKind::LongBlob },
        14 => ColumnType::Enum { members: any_members(random), charset },
        15 => ColumnType::Set { members: any_members(random), charset },
        16 => ColumnType::Geometry { kind: GEOMETRIES[random.random_range(0..GEOMETRIES.len())].to_string() },
        _ => ColumnType::Vector { dimensions: random.random_range(1..16_384) },
    }
}

#[test]
fn every_type_survives_being_written_and_read() {
    let seed = 7;
    let mut random = StdRng::seed_from_u64(seed);
    for round in 0..20_000 {
        let column_type = any_type(&mut random);
        let text = column_type.to_string();
        assert_eq!(text.parse(), Ok(column_type), "seed {seed}, round {round}: {text}");
    }
}

#[test]
fn no_text_whatever_makes_reading_panic() {
    let pieces =
        ["enum", "(", "'", "''", "\\", ")", ",", "a", "é", " ", "character set", "1", "99999999999", "/*", "*/"];
    let mut random = StdRng::seed_from_u64(11);
    for _ in 0..50_000 {
        let length = random.random_range(0..10);
        let text: String = (0..length).map(|_| pieces[random.random_range(0..pieces.len())]).collect();
        let _ = text.parse::<ColumnType>();
    }
}
