//! Files recorded from real servers (`tests/data/binlog`): whole, cut, and with flipped bits.

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use super::{drain, options_of, rows};
use crate::config::TableFilter;
use crate::source::mysql::binlog::{Decoder, HEADER_BYTES};
use crate::source::{SourceError, SourceErrorKind, SourceEvent};

fn read(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/binlog/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The rows of each table in order, the last set of GTIDs, and how the reading ended.
#[derive(Default)]
struct Outcome {
    rows: BTreeMap<String, Vec<String>>,
    gtids: Option<String>,
    error: Option<SourceError>,
}

fn decode(file: &[u8]) -> Outcome {
    // Made once: patterns are slow to make, and the file is read thousands of times.
    static FILTER: LazyLock<TableFilter> = LazyLock::new(|| TableFilter::new(["ty.*"]).unwrap());
    let options = options_of(FILTER.clone(), 1 << 20);
    let (mut decoder, mut events) = (Decoder::new(options), Vec::new());
    let mut outcome = Outcome { error: feed(&mut decoder, file, &mut events).err(), ..Outcome::default() };
    // After an error, what was committed before it is still there.
    let _ = drain(&mut decoder, &mut events);
    for event in events {
        match event {
            SourceEvent::Rows(batch) => {
                let lines = rows(&batch);
                let table = outcome.rows.entry(batch.schema.table.table.clone()).or_default();
                table.extend(lines.split(", ").map(str::to_string));
            }
            SourceEvent::Boundary(boundary) => outcome.gtids = boundary.resume.gtid_set,
            _ => {}
        }
    }
    outcome
}

fn feed(decoder: &mut Decoder, file: &[u8], events: &mut Vec<SourceEvent>) -> Result<(), SourceError> {
    let mut rest = file.get(4..).unwrap_or_default();
    while !rest.is_empty() {
        let size = rest.get(9..13).map_or(rest.len(), |size| u32::from_le_bytes(size.try_into().unwrap()) as usize);
        let (event, after) = rest.split_at(size.clamp(HEADER_BYTES.min(rest.len()), rest.len()));
        decoder.feed(event)?;
        drain(decoder, events)?;
        rest = after;
    }
    decoder.flush()?;
    drain(decoder, events)
}

/// Whether each table's rows are the first of what the whole file gives.
fn is_beginning_of(part: &Outcome, whole: &Outcome) -> bool {
    part.rows.iter().all(|(table, rows)| whole.rows.get(table).is_some_and(|all| all.starts_with(rows)))
}

/// What `table` of a whole file holds, one line for each change.
fn check(file: &str, table: &str, expected: &[&str]) {
    let outcome = decode(&read(file));
    assert!(outcome.error.is_none(), "{file}: {:?}", outcome.error);
    assert_eq!(outcome.rows[table], expected, "{file} {table}");
}

/// Both servers give the same for what both can hold.
fn check_both(table: &str, expected: &[&str]) {
    check("mysql-types.000001", table, expected);
    check("mariadb-types.000001", table, expected);
}

#[test]
fn numbers_keep_their_extremes() {
    let low = "-32768 65535 -8388608 16777215 -2147483648 4294967295 -9223372036854775808 18446744073709551615 \
               -1234567.891 -1234567890123456789012345678.0123456789 \
               -99999999999999999999999999999999999.999999999999999999999999999999 1.5 -2.25e300 true 341 \
               18446744073709551615 2155 -0.9 12345678901234567890";
    let high = "127 0 32767 0 8388607 0 2147483647 0 9223372036854775807 0 0.001 0.0000000000 \
                0.000000000000000000000000000001 -1.17549e-38 0.0 false 0 1 0 0.1 0";
    let nulls = "- ".repeat(18);
    check_both(
        "n",
        &[
            &format!("Insert n 1 -128 255 {low}"),
            &format!("Insert n 2 {high}"),
            &format!("Insert n 3 {nulls}1901 - -"),
            &format!("Update n 1 1 255 {low}"),
            &format!("Delete n 2 {nulls}- - -"),
            &format!("Insert n 10 {high}"),
            &format!("Delete n 3 {nulls}- - -"),
        ],
    );
}

#[test]
fn times_keep_every_digit_and_dates_that_are_none_become_null() {
    check_both(
        "d",
        &[
            "Insert d x 2024-02-29 1000-01-01T00:00:00 9999-12-31T23:59:59.900 2024-01-02T03:04:05.670 \
         2024-01-02T03:04:05.678 2024-01-02T03:04:05.678900 2024-01-02T03:04:05.678901 1970-01-01T00:00:01Z \
         2038-01-19T03:14:07.999Z 2024-01-02T03:04:05.678901Z -3020399000000 -100000 -1250000 3020398999000 \
         -45296789100 -10 -3020398999999",
            "Insert d y - - - - - - - - - - 3020399000000 0 10000 -1000000 - 36672000010 3020398000001",
        ],
    );
}

#[test]
fn text_of_any_character_set_becomes_utf8_and_binary_is_padded() {
    check_both(
        "s",
        &[
            "Insert s 01000000 ab é 日本 x y trail ｱ表 0001  ff00 ü'x x,z € 𝄞 ö",
            "Insert s 00000001         00  b    ä",
            "Insert s ffffffff - - - - - - - - - - - - - - -",
            "Insert s 02000000 - - - - - - - - - -  - - - -",
        ],
    );
}

#[test]
fn generated_columns_are_in_the_log_and_an_added_column_is_followed() {
    check_both(
        "v",
        &[
            "Insert v 1 5 10 15 q",
            "Update v 1 6 12 18 q",
            "Delete v 1 - - - -",
            "Insert v 7 7 14 21 -",
            "Insert v 9 9 18 27 -",
            "Insert v 20 1 2 3 - 1",
        ],
    );
}

#[test]
fn a_key_that_changes_its_case_is_another_key() {
    check_both("ci", &["Insert ci a 1", "Delete ci a -", "Insert ci A 1", "Truncate ci - -", "Insert ci b 2"]);
    check_both("ctas", &["Insert ctas b 2"]);
    check_both(
        "g",
        &["Insert g 1 0101000000000000000000f03f0000000000000040 \
         01020000000200000000000000000000000000000000000000000000000000f03f000000000000f03f"],
    );
}

#[test]
fn types_of_one_server_only_are_read() {
    let (abc, x, e, z) = ("abc".repeat(200), "78".repeat(300), "é".repeat(300), "z".repeat(1000));
    check(
        "mariadb-types.000001",
        "m",
        &[
            &format!(
                "Insert m 123e4567-e89b-12d3-a456-426655440000 2001:db8::ff00:42:8329 1.2.3.4 {{\"a\": 1}} {abc} {x} {e} 3"
            ),
            "Insert m 00000000-0000-0000-0000-000000000001 :: 0.0.0.0 []   s 3",
            "Insert m ffffffff-0000-0000-0000-000000000000 fe80:: 10.0.0.0 - - - - 3",
            &format!("Insert m 01890a5d-ac96-774b-bcce-b302099a8057 ::1 0.0.0.1 1 {z}   3"),
        ],
    );
    check("mysql-types.000001", "gipk", &["Insert gipk 1 5"]);
    check("mysql-types.000001", "fx", &["Insert fx 1 q"]);
    let document = decode(&read("mysql-types.000001")).rows["m"].join(", ");
    assert_eq!(
        document,
        "Insert m 1 {\"a\": [1, 2.5, \"x\", null, true], \"b\": {\"c\": 1e100}} [1.0, 2.5, -3.0] 3, \
         Insert m 2 null - 3, Insert m 3 - - 3"
    );
}

#[test]
fn compressed_logs_give_what_plain_ones_do() {
    let (a, b, c, d) = ("a".repeat(200), "b".repeat(200), "c".repeat(200), "d".repeat(200));
    for file in ["mysql-compressed.000001", "mariadb-compressed.000001"] {
        check(
            file,
            "c",
            &[
                &format!("Insert c 1 {a} 1"),
                &format!("Insert c 2 {b} 2"),
                &format!("Insert c 3 {c} 3"),
                &format!("Update c 1 {d} 1"),
                &format!("Update c 2 {d} 2"),
                "Delete c 3 - -",
                &format!("Insert c 30 {c} 3"),
                "Delete c 1 - -",
                "Insert c 4 x 4",
            ],
        );
    }
}

#[test]
fn images_without_all_columns_tell_what_they_have() {
    let images = [
        "Insert i 1 new 7 - -",
        "Insert i 2 new 7 - -",
        "Insert i 3 x 7 text -",
        "Update i 1 . 8 . .",
        "Delete i 3 - - - -",
        "Insert i 10 moved . . .",
        "Delete i 2 - - - -",
        "Insert i 4 new 7 - 1.50",
        "Update i 10 moved 9 . -",
        "Update i 10 moved 9 other -",
        "Delete i 10 - - - -",
        "Insert i 11 moved 9 . -",
        "Update i 11 moved 10 other -",
        "Insert i 20 xa 7 - -",
    ];
    check("mysql-images.000001", "i", &images);
    check("mariadb-images.000001", "i", &images);
    let documents = decode(&read("mysql-images.000001")).rows["j"].join(", ");
    let pad = "p".repeat(54);
    assert_eq!(
        documents,
        format!(
            "Insert j 1 {{\"a\": 1, \"b\": [\"x\", \"y\"], \"pad\": \"{pad}\"}} 1, \
             Update j 1 {{\"a\": 2, \"b\": [\"x\", \"y\"], \"pad\": \"{pad}\"}} 2, \
             Update j 1 ~r $.b[1] \"z\"; ., Update j 1 ~d $.b[0]; ., \
             Delete j 1 - -, Insert j 5 ~r $.a \"w\"; ., Update j 5 [] ."
        )
    );
}

#[test]
fn the_set_of_ids_is_the_servers_own() {
    let ids = |file: &str| decode(&read(file)).gtids.unwrap();
    let server = "37d79d68-ecd0-11f1-b49b-02fc00000001";
    assert_eq!(ids("mysql-tagged.000001"), format!("{server}:1-4:other_tag_0:1:reload:1"));
    assert_eq!(ids("mysql-compressed.000001"), format!("{server}:1-9"));
    assert_eq!(ids("mariadb-compressed.000001"), "0-1-9");
}

/// The files that are cut and damaged.
const DAMAGED: [&str; 5] = [
    "mysql-tagged.000001",
    "mariadb-compressed.000001",
    "mysql-compressed.000001",
    "mysql-images.000001",
    "mariadb-images.000001",
];

#[test]
fn a_file_cut_anywhere_gives_the_beginning_of_its_rows() {
    for name in DAMAGED {
        let file = read(name);
        let whole = decode(&file);
        for length in 4..file.len() {
            let part = decode(&file[..length]);
            assert!(is_beginning_of(&part, &whole), "{name} cut at {length}");
        }
    }
}

#[test]
fn a_flipped_bit_is_never_a_wrong_row() {
    for name in DAMAGED {
        let file = read(name);
        let whole = decode(&file);
        let mut unnoticed = HashSet::new();
        // Every bit of one file, and of the others one in each byte.
        let step = if name == "mysql-tagged.000001" { 1 } else { 7 };
        for bit in (4 * 8..file.len() * 8).step_by(step) {
            let mut flipped = file.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let part = decode(&flipped);
            assert!(is_beginning_of(&part, &whole), "{name}: bit {} of byte {}", bit % 8, bit / 8);
            match part.error {
                Some(error) => assert_eq!(error.kind, SourceErrorKind::Corrupt, "{error}"),
                None => drop(unnoticed.insert(bit)),
            }
        }
        // The bit that says that the server still writes the file is left out of its checksum.
        unnoticed.remove(&((4 + 17) * 8));
        assert_eq!(unnoticed, HashSet::new(), "{name}");
    }
}
