//! Random values of every column type, as SQL literals, with the extremes of the type among them.

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

/// What a column may hold.
#[derive(Debug, Clone)]
pub enum Kind {
    Int {
        min: i128,
        max: i128,
    },
    Decimal {
        precision: usize,
        scale: usize,
        unsigned: bool,
    },
    Float,
    Double,
    Bit(u32),
    Year,
    /// A day of a few, for keys.
    Day,
    Date,
    /// Fractional digits, as for the next two.
    DateTime(usize),
    Timestamp(usize),
    Time(usize),
    /// Characters at most.
    Text(usize),
    /// Text that latin1 can hold.
    Latin(usize),
    /// One of a few short texts, for keys.
    Word,
    Bytes(usize),
    /// One of a few byte strings of this length, for keys.
    ByteKey(usize),
    Enum,
    /// One of the letters a and b.
    Choice,
    Set,
    Json,
    Geometry,
    Vector,
    Uuid,
    Inet4,
    Inet6,
    /// The server works it out.
    Computed,
}

/// The members of every ENUM and SET of the oracle, as its tables declare them.
pub const MEMBERS: [&str; 5] = ["a", "b c", "d''e", "ñ", "🍯"];

const SNIPPETS: [&str; 16] =
    ["", "a", "Z9", " ", "  ", "Ä", "ß", "é", "日本語", "🍯", "\u{200d}👩‍🚀", "'", "\\", "\n", "%_", "\0"];
const LATIN_SNIPPETS: [&str; 8] = ["", "abc", " ", "Ä", "ÿ", "€", "'", "\\"];
const WORDS: [&str; 10] = ["alpha", "Beta", "γάμμα", "δ 1", "e'e", "f\\f", "g🍯", "h%", "ij", "k_"];

impl Kind {
    /// A value that is not null.
    pub fn literal(&self, random: &mut StdRng) -> String {
        match *self {
            Self::Int { min, max } => integer(random, min, max).to_string(),
            Self::Decimal { precision, scale, unsigned } => decimal(random, precision, scale, unsigned),
            Self::Float => float(random),
            Self::Double => double(random),
            Self::Bit(bits) => format!("b'{}'", bit_string(random, bits)),
            Self::Year => pick(random, &["0", "1901", "1999", "2024", "2155"]).to_string(),
            Self::Day => format!("'2026-{:02}-{:02}'", random.random_range(1..=12), random.random_range(1..=12)),
            Self::Date => format!("'{}'", date(random)),
            Self::DateTime(digits) => format!("'{}'", date_time(random, digits)),
            Self::Timestamp(digits) => format!("'{}'", timestamp(random, digits)),
            Self::Time(digits) => format!("'{}'", time(random, digits)),
            Self::Text(length) => quoted(&text(random, &SNIPPETS, length)),
            Self::Latin(length) => quoted(&text(random, &LATIN_SNIPPETS, length)),
            Self::Word => quoted(&format!("{}{}", pick(random, &WORDS), random.random_range(0..12))),
            Self::Bytes(length) => bytes(random, length),
            Self::ByteKey(length) => byte_key(random, length),
            Self::Enum => format!("'{}'", pick(random, &MEMBERS)),
            Self::Choice => format!("'{}'", pick(random, &["a", "b"])),
            Self::Set => set(random),
            Self::Json => quoted(&json(random, 0)),
            Self::Geometry => geometry(random),
            Self::Vector => {
                format!("STRING_TO_VECTOR('[{}, -0.5, {}]')", random.random_range(-9..9), random.random::<f32>())
            }
            Self::Uuid => uuid(random),
            Self::Inet4 => format!("'{}.{}.0.255'", random.random::<u8>(), random.random::<u8>()),
            Self::Inet6 => {
                pick(random, &["'::'", "'::1'", "'2001:db8::ff00:42:8329'", "'::ffff:192.0.2.1'"]).to_string()
            }
            Self::Computed => "DEFAULT".to_string(),
        }
    }
}

fn pick<'a>(random: &mut StdRng, from: &[&'a str]) -> &'a str {
    from.choose(random).copied().unwrap()
}

/// An SQL string with everything escaped that needs it.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''").replace('\0', "\\0"))
}

fn integer(random: &mut StdRng, min: i128, max: i128) -> i128 {
    match random.random_range(0..8) {
        0 if max - min > 1000 => min,
        1 if max - min > 1000 => max,
        2 if min <= 0 => 0,
        _ => random.random_range(min..=max),
    }
}

fn decimal(random: &mut StdRng, precision: usize, scale: usize, unsigned: bool) -> String {
    let all_nines = random.random_bool(0.1);
    let length = random.random_range(1..=precision);
    let digit = |random: &mut StdRng| if all_nines { '9' } else { random.random_range('0'..='9') };
    let count = if all_nines { precision } else { length };
    let digits: String = (0..count).map(|_| digit(random)).collect();
    let digits = format!("{digits:0>width$}", width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    // All nines of a type without whole digits would have one digit too many.
    let whole = if whole.len() > precision - scale { "0" } else { whole };
    let sign = if !unsigned && random.random_bool(0.4) { "-" } else { "" };
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

fn float(random: &mut StdRng) -> String {
    match random.random_range(0..5) {
        0 => pick(random, &["0", "3.40282e38", "-3.40282e38", "1.17549e-38", "0.1", "16777217"]).to_string(),
        _ => format!("{:?}", random.random_range(-1.0e6f32..1.0e6)),
    }
}

fn double(random: &mut StdRng) -> String {
    match random.random_range(0..5) {
        0 => pick(
            random,
            &["0", "1.7976931348623157e308", "-2.2250738585072014e-308", "0.1", "1e22", "9007199254740993"],
        )
        .to_string(),
        _ => format!("{:?}", random.random_range(-1.0e12f64..1.0e12)),
    }
}

fn bit_string(random: &mut StdRng, bits: u32) -> String {
    let same = random.random_range(0..4);
    let bit = |random: &mut StdRng| match same {
        0 => '0',
        1 => '1',
        _ => *['0', '1'].choose(random).unwrap(),
    };
    (0..bits).map(|_| bit(random)).collect()
}

fn date(random: &mut StdRng) -> String {
    match random.random_range(0..8) {
        0 => pick(
            random,
            &["0000-00-00", "2024-00-10", "2024-10-00", "1000-01-01", "9999-12-31", "1582-10-10", "2024-02-29"],
        )
        .to_string(),
        _ => format!(
            "{:04}-{:02}-{:02}",
            random.random_range(1900..2100),
            random.random_range(1..=12),
            random.random_range(1..=28)
        ),
    }
}

fn fraction(random: &mut StdRng, digits: usize) -> String {
    if digits == 0 {
        return String::new();
    }
    let all = *["000000", "999999", "123456", "000001", "100000"].choose(random).unwrap();
    format!(".{}", &all[..digits])
}

fn clock(random: &mut StdRng, hours_max: u32) -> String {
    let minute = random.random_range(0..60);
    format!("{:02}:{minute:02}:{:02}", random.random_range(0..=hours_max), random.random_range(0..60))
}

fn date_time(random: &mut StdRng, digits: usize) -> String {
    format!("{} {}{}", date(random), clock(random, 23), fraction(random, digits))
}

fn timestamp(random: &mut StdRng, digits: usize) -> String {
    match random.random_range(0..8) {
        0 => pick(random, &["1970-01-01 00:00:01", "2038-01-19 03:14:07", "0000-00-00 00:00:00"]).to_string(),
        _ => format!(
            "{}-{:02}-{:02} {}{}",
            random.random_range(1971..2037),
            random.random_range(1..=12),
            random.random_range(1..=28),
            clock(random, 23),
            fraction(random, digits)
        ),
    }
}

fn time(random: &mut StdRng, digits: usize) -> String {
    let sign = if random.random_bool(0.3) { "-" } else { "" };
    match random.random_range(0..8) {
        0 => format!("{sign}838:59:59"),
        1 => format!("{sign}00:00:00{}", fraction(random, digits)),
        _ => format!("{sign}{}{}", clock(random, 120), fraction(random, digits)),
    }
}

fn text(random: &mut StdRng, snippets: &[&str], length: usize) -> String {
    let count = random.random_range(0..6);
    let text: String = (0..count).map(|_| pick(random, snippets)).collect();
    let long = if length > 4000 && random.random_bool(0.05) { "lorem ipsum ".repeat(300) } else { String::new() };
    (text + &long).chars().take(length).collect()
}

fn bytes(random: &mut StdRng, length: usize) -> String {
    let count = random.random_range(0..=length.min(24));
    let hex: String = (0..count).map(|_| format!("{:02X}", random.random::<u8>())).collect();
    // A value that ends in zero bytes, which a log leaves out for fixed lengths.
    let zeros = if count + 2 <= length && random.random_bool(0.2) { "0000" } else { "" };
    format!("X'{hex}{zeros}'")
}

fn byte_key(random: &mut StdRng, length: usize) -> String {
    let hex: String = (0..length).map(|_| *["00", "7F", "FF"].choose(random).unwrap()).collect();
    format!("X'{hex}'")
}

fn set(random: &mut StdRng) -> String {
    let chosen: Vec<&str> = MEMBERS.into_iter().filter(|_| random.random_bool(0.4)).collect();
    format!("'{}'", chosen.join(","))
}

fn json(random: &mut StdRng, depth: usize) -> String {
    let scalars =
        ["null", "true", "false", "0", "-1", "65536", "4294967296", "9223372036854775807", "18446744073709551615"];
    match random.random_range(0..if depth > 2 { 3 } else { 5 }) {
        0 => pick(random, &scalars).to_string(),
        1 => pick(random, &["0.1", "1.0", "-2.5", "1e100", "12345678.9"]).to_string(),
        2 => pick(random, &["\"\"", "\"a b\"", "\"ñ🍯\"", "\"q\\\"q\"", "\"\\\\\"", "\"\\n\\t\"", "\"日本\""])
            .to_string(),
        3 => {
            let items: Vec<String> = (0..random.random_range(0..4)).map(|_| json(random, depth + 1)).collect();
            format!("[{}]", items.join(", "))
        }
        _ => {
            let keys: Vec<&str> =
                ["a", "bb", "ü", "long key"].into_iter().filter(|_| random.random_bool(0.5)).collect();
            let members: Vec<String> =
                keys.iter().map(|key| format!("\"{key}\": {}", json(random, depth + 1))).collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}

fn geometry(random: &mut StdRng) -> String {
    let (x, y) = (random.random_range(-180..180), random.random_range(-90..90));
    let shapes = [
        format!("POINT({x} {y}.5)"),
        format!("LINESTRING(0 0, {x} {y})"),
        "POLYGON((0 0, 0 9, 9 9, 0 0))".to_string(),
        format!("GEOMETRYCOLLECTION(POINT({x} {y}), POINT(1 1))"),
    ];
    format!("ST_GeomFromText('{}')", shapes.choose(random).unwrap())
}

fn uuid(random: &mut StdRng) -> String {
    let hex = format!("{:032x}", random.random::<u128>());
    // The server stores some versions with their parts in another order, and refuses what is no RFC 4122 variant.
    let version = pick(random, &["1", "4", "7"]);
    format!("'{}-{}-{version}{}-b{}-{}'", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}
