//! Column types with values to try: the ends of every range, nothing, zero, and what is odd.

use crate::harness::{Flavor, Server};

/// A column definition and values for it as SQL.
pub struct Case {
    pub definition: String,
    pub values: Vec<String>,
}

impl Case {
    fn new<S: ToString>(definition: impl Into<String>, values: impl IntoIterator<Item = S>) -> Self {
        let values = values.into_iter().map(|value| value.to_string()).chain(["NULL".to_string()]);
        Self { definition: definition.into(), values: values.collect() }
    }

    /// Whether such a column can be part of a key.
    pub fn is_key(&self) -> bool {
        let unfit = ["float", "double", "json", "geometry", "point", "linestring", "polygon", "vector", "blob", "text"];
        let long = ["varchar(2000)", "varbinary(2000)", "as ("];
        let definition = self.definition.to_ascii_lowercase();
        !unfit.iter().chain(&long).any(|word| definition.contains(word))
    }
}

pub async fn all(server: &Server) -> Vec<Case> {
    let mut cases = integers();
    cases.extend(decimals());
    cases.extend(floats());
    cases.extend(bits());
    cases.extend(dates_and_times());
    cases.extend(texts());
    cases.extend(charsets(server).await);
    cases.extend(bytes());
    cases.extend(lists());
    cases.extend(documents());
    cases.extend(geometries());
    cases.extend(generated());
    cases.extend(match server.flavor {
        Flavor::Mysql => only_mysql(),
        Flavor::Mariadb => only_mariadb(),
    });
    cases
}

/// A few of each kind, for what does not depend on the type.
pub fn few() -> Vec<Case> {
    let mut cases = integers();
    cases.extend(decimals());
    cases.extend(dates_and_times().into_iter().step_by(4));
    cases.extend(texts());
    cases.extend(bytes());
    cases.extend(lists());
    cases
}

fn integers() -> Vec<Case> {
    let widths = [("tinyint", 8u32), ("smallint", 16), ("mediumint", 24), ("int", 32), ("bigint", 64)];
    let mut cases = Vec::new();
    for (name, bits) in widths {
        let (low, high) = (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1);
        cases.push(Case::new(name, [low, low + 1, -1, 0, 1, high - 1, high]));
        cases.push(Case::new(format!("{name} unsigned"), [0, 1, high, high + 1, (1i128 << bits) - 1]));
    }
    cases.push(Case::new("int(7) unsigned zerofill", [0, 42, 4_294_967_295i64]));
    cases.push(Case::new("bool", [0, 1, -7]));
    cases.push(Case::new("year", ["1901", "2155", "'0000'", "2024"]));
    cases
}

fn decimals() -> Vec<Case> {
    let shapes = [(1, 0), (5, 2), (9, 9), (10, 3), (18, 9), (30, 30), (38, 0), (38, 30), (39, 0), (65, 0), (65, 30)];
    let mut cases = Vec::new();
    for (precision, scale) in shapes {
        let whole = "9".repeat(precision - scale);
        let fraction = "9".repeat(scale);
        let largest = match scale {
            0 => whole,
            _ => format!("{whole}.{fraction}"),
        };
        let smallest = format!("0.{}1", "0".repeat(scale.max(1) - 1));
        let values = [largest.clone(), format!("-{largest}"), "0".into(), smallest.clone(), format!("-{smallest}")];
        cases.push(Case::new(format!("decimal({precision},{scale})"), values));
    }
    cases.push(Case::new("decimal(20,4) unsigned", ["0", "9999999999999999.9999", "1.5"]));
    cases.push(Case::new("decimal(10,2) unsigned zerofill", ["0", "1.5", "99999999.99"]));
    cases.push(Case::new(
        "decimal(60,2) unsigned zerofill",
        ["0", "1.5", "0.01", "123456789012345678901234567890123456789.1"],
    ));
    cases
}

fn floats() -> Vec<Case> {
    let floats =
        ["0", "-0e0", "1.5", "0.1", "-3.4028234663852886e38", "1.17549435e-38", "1e-45", "16777217", "3.14159265"];
    let doubles =
        ["0", "-0e0", "0.1", "1.7976931348623157e308", "-2.2250738585072014e-308", "1e15", "123456789.123456789"];
    vec![
        Case::new("float", floats),
        Case::new("double", doubles),
        Case::new("float(7,3)", ["1.2345", "-9999.999"]),
        Case::new("double(12,4)", ["1.23456", "-99999999.9999"]),
        Case::new("float unsigned", ["1.1"]),
    ]
}

fn bits() -> Vec<Case> {
    let case = |bits: u32| {
        let ones = "1".repeat(bits as usize);
        Case::new(format!("bit({bits})"), ["b'0'".to_string(), "b'1'".into(), format!("b'{ones}'")])
    };
    [1, 2, 7, 8, 9, 16, 17, 33, 63, 64].map(case).into()
}

fn dates_and_times() -> Vec<Case> {
    let dates = [
        "'0000-00-00'",
        "'2024-00-10'",
        "'2024-10-00'",
        "'0000-01-01'",
        "'0001-01-01'",
        "'1000-01-01'",
        "'1582-10-10'",
        "'1969-12-31'",
        "'1970-01-01'",
        "'2000-02-29'",
        "'2024-02-29'",
        "'9999-12-31'",
    ];
    let mut cases = vec![Case::new("date", dates)];
    for digits in 0..=6 {
        let fraction = match digits {
            0 => String::new(),
            _ => format!(".{}", &"987654"[..digits]),
        };
        let with = |text: &str| format!("'{text}{fraction}'");
        let datetimes = [
            "1000-01-01 00:00:00",
            "9999-12-31 23:59:59",
            "1969-12-31 23:59:59",
            "2024-02-29 12:34:56",
            "2024-00-01 01:02:03",
        ];
        let datetimes =
            datetimes.map(with).into_iter().chain(["'0000-00-00 00:00:00'".to_string(), "'2024-01-01'".into()]);
        cases.push(Case::new(format!("datetime({digits})"), datetimes));
        let timestamps = ["1970-01-01 00:00:01", "2038-01-19 03:14:07", "2024-02-29 12:34:56", "2001-09-09 01:46:40"];
        let timestamps = timestamps.map(with).into_iter().chain(["'0000-00-00 00:00:00'".to_string()]);
        cases.push(Case::new(format!("timestamp({digits}) NULL"), timestamps));
        let times =
            ["-00:00:00", "00:00:00", "-00:00:01", "-12:34:56", "23:59:59", "100:00:00", "-837:59:59", "837:59:58"];
        let times = times.map(with).into_iter().chain(["'-838:59:59'".to_string(), "'838:59:59'".into()]);
        cases.push(Case::new(format!("time({digits})"), times));
    }
    cases
}

fn texts() -> Vec<Case> {
    let values = ["''", "'a'", "'A'", "'b  '", "'ä'", "'日本語'", "'😀 👩‍👩‍👧'", "'it''s \\\\ \\n\\t\\0'", "'z'"];
    let long = ["''", "REPEAT('x', 255)", "REPEAT('ü', 100)"];
    vec![
        Case::new("char(20)", values),
        Case::new("char(255)", values.into_iter().chain(["REPEAT('😀', 255)"])),
        Case::new("varchar(20)", values),
        Case::new("varchar(20) collate utf8mb4_bin", values),
        Case::new("varchar(100) character set ascii", ["''", "'abc'", "'Z'"]),
        Case::new("varchar(2000)", long.into_iter().chain(["REPEAT('日', 2000)"])),
        Case::new("tinytext", long),
        Case::new("text", long.into_iter().chain(["REPEAT('日', 20000)"])),
        Case::new("mediumtext", long.into_iter().chain(["REPEAT('x', 70000)"])),
        Case::new("longtext", long.into_iter().chain(["REPEAT('x', 300000)"])),
    ]
}

/// Every charset of the server: all bytes of the narrow ones, words of many scripts in the wide ones.
async fn charsets(server: &Server) -> Vec<Case> {
    let rows = server
        .query("SELECT CAST(character_set_name AS CHAR), maxlen FROM information_schema.character_sets ORDER BY 1")
        .await;
    let mut cases = Vec::new();
    for row in rows {
        let (Some(name), Some(maxlen)) = (&row[0], &row[1]) else { continue };
        if name == "binary" {
            continue;
        }
        let hex = |from: u8, to: u8| (from..=to).map(|byte| format!("{byte:02X}")).collect::<String>();
        let words = [
            "''",
            "'abc'",
            "'Ä ö ß é'",
            "'Ελληνικά'",
            "'Русский'",
            "'日本語 かな カナ'",
            "'中文'",
            "'한국어'",
            "'ไทย'",
        ];
        let mut values: Vec<String> = words.map(str::to_string).into();
        if maxlen == "1" {
            values.push(format!("_{name} X'{}'", hex(0x20, 0x7e)));
            values.push(format!("_{name} X'{}'", hex(0x80, 0xff)));
        }
        cases.push(Case::new(format!("varchar(200) character set {name}"), &values));
        cases.push(Case::new(format!("char(150) character set {name}"), &values));
        cases.push(Case::new(format!("text character set {name}"), &values));
        cases.push(Case::new(format!("enum('a','Z') character set {name}"), ["'a'", "'Z'"]));
    }
    cases
}

fn bytes() -> Vec<Case> {
    let values = ["X''", "X'00'", "X'0000'", "X'01020000'", "X'FF'", "X'20'", "'text'"];
    let long = ["X''", "X'00'", "REPEAT(X'00FF', 100)"];
    vec![
        Case::new("binary(5)", values),
        Case::new("binary(255)", values),
        Case::new("varbinary(10)", values),
        Case::new("varbinary(2000)", values.into_iter().chain(["REPEAT(X'FE', 2000)"])),
        Case::new("tinyblob", long),
        Case::new("blob", long.into_iter().chain(["REPEAT(X'FE', 60000)"])),
        Case::new("mediumblob", long.into_iter().chain(["REPEAT(X'FE', 70000)"])),
        Case::new("longblob", long.into_iter().chain(["REPEAT(X'FE', 300000)"])),
    ]
}

fn lists() -> Vec<Case> {
    let many: Vec<String> = (0..300).map(|number| format!("'m{number}'")).collect();
    let flags: Vec<String> = (0..64).map(|number| format!("'f{number}'")).collect();
    let all_flags: Vec<String> = (0..64).map(|number| format!("f{number}")).collect();
    vec![
        Case::new("enum('b','a','it''s','ü','c d')", ["'a'", "'b'", "'it''s'", "'ü'", "'c d'", "'none of them'"]),
        Case::new("enum('','x')", ["''", "'x'"]),
        Case::new(format!("enum({})", many.join(",")), ["'m0'", "'m254'", "'m255'", "'m256'", "'m299'"]),
        Case::new("set('b','a','ü')", ["''", "'a'", "'b,a'", "'b,ü'", "'b,a,ü'"]),
        Case::new("set('a','b','c','d','e','f','g','h','i')", ["'a,i'", "'i'"]),
        Case::new(
            format!("set({})", flags.join(",")),
            ["''".into(), "'f63'".into(), format!("'{}'", all_flags.join(","))],
        ),
    ]
}

fn documents() -> Vec<Case> {
    let values = [
        r#"'{}'"#,
        r#"'[]'"#,
        r#"'null'"#,
        r#"'true'"#,
        r#"'0'"#,
        r#"'-1'"#,
        r#"'18446744073709551615'"#,
        r#"'-9223372036854775808'"#,
        r#"'1.0'"#,
        r#"'0.1'"#,
        r#"'1e100'"#,
        r#"'-0.0'"#,
        r#"'123456789012345678901234567890.5'"#,
        r#"'""'"#,
        r#"'"a\\"b\\\\c\\n\\u0001/é😀"'"#,
        r#"'{"b": 1, "a": [1, 2.5, {"c": null}], "long key": "x"}'"#,
        r#"'[[[[1]]]]'"#,
        r#"CONCAT('[', REPEAT('"abcdefghij",', 8000), '1]')"#,
        r#"'{"aa":1,"b":2,"":3}'"#,
    ];
    vec![Case::new("json", values)]
}

fn geometries() -> Vec<Case> {
    let point = "ST_GeomFromText('POINT(1 -2.5)')";
    let line = "ST_GeomFromText('LINESTRING(0 0, 1 1, 2 0)')";
    let polygon = "ST_GeomFromText('POLYGON((0 0, 4 0, 4 4, 0 0))')";
    vec![
        Case::new(
            "geometry",
            [
                point,
                line,
                polygon,
                "ST_GeomFromText('GEOMETRYCOLLECTION(POINT(1 1))')",
                "ST_GeomFromText('POINT(1 2)', 4326)",
            ],
        ),
        Case::new("point", [point]),
        Case::new("linestring", [line]),
        Case::new("polygon", [polygon]),
        Case::new("multipoint", ["ST_GeomFromText('MULTIPOINT(1 1, 2 2)')"]),
    ]
}

fn generated() -> Vec<Case> {
    vec![
        Case::new("int, s int as (v + 1) stored", [1, 2]),
        Case::new("int, g int as (v * 2) virtual, z varchar(5) default 'x'", [1, 2]),
    ]
}

fn only_mysql() -> Vec<Case> {
    let opaque = [
        "JSON_OBJECT('d', CAST('2024-02-29' AS DATE), 't', CAST('-12:34:56.789' AS TIME(6)))",
        "JSON_ARRAY(CAST(1.50 AS DECIMAL(10,2)), CAST('2024-02-29 01:02:03.5' AS DATETIME(6)), X'00FF', b'101')",
    ];
    vec![
        Case::new("json ", opaque),
        Case::new("vector(3)", ["STRING_TO_VECTOR('[1, -2.5, 3e10]')", "STRING_TO_VECTOR('[0,0,0]')"]),
        Case::new("int invisible default 7", [1]),
    ]
}

fn only_mariadb() -> Vec<Case> {
    vec![
        // The server stores the parts of an uuid in an order of its own for some versions and variants.
        Case::new(
            "uuid",
            [
                "'123e4567-e89b-12d3-a456-426655440000'",
                "'550e8400-e29b-41d4-a716-446655440000'",
                "'1ec9414c-232a-6b00-b3c8-9f6bdeced846'",
                "'0190a5b8-7c3e-7abc-8def-0123456789ab'",
                "'12345678-1234-1234-1234-123456789abc'",
                "'12345678-1234-5678-c234-123456789abc'",
                "'12345678-1234-0678-8234-123456789abc'",
                "'12345678-1234-f678-8234-123456789abc'",
                "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
                "'00000000-0000-0000-0000-000000000000'",
            ],
        ),
        Case::new("inet4", ["'0.0.0.0'", "'255.255.255.255'", "'10.1.2.3'"]),
        Case::new(
            "inet6",
            [
                "'::'",
                "'::1'",
                "'2001:db8::ff00:42:8329'",
                "'::ffff:1.2.3.4'",
                "'ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff'",
            ],
        ),
        Case::new("int invisible default 7", [1]),
        Case::new("varchar(2000) compressed", ["''", "REPEAT('abc', 500)"]),
    ]
}
