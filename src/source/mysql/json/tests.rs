use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

/// Documents that MySQL 9.7 wrote to its binlog, in hex, and after a tab what it printed for them (`CAST(j AS CHAR)`).
const RECORDED: &str = include_str!("../../../../tests/data/json/mysql-9.7.txt");

fn unhex(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn recorded() -> impl Iterator<Item = (Vec<u8>, &'static str)> {
    RECORDED.lines().filter_map(|line| line.split_once('\t')).map(|(hex, text)| (unhex(hex), text))
}

fn text_of(bytes: &[u8]) -> Result<String, JsonError> {
    let mut out = String::new();
    write_text(bytes, &mut out).map(|()| out)
}

fn check(bytes: &[u8], text: &str) {
    assert_eq!(text_of(bytes).as_deref(), Ok(text));
}

fn check_corrupt(bytes: &[u8], expected: &str) {
    let JsonError::Corrupt { problem, length, .. } = text_of(bytes).expect_err("no document");
    assert_eq!((problem, length), (expected, bytes.len()));
}

#[test]
fn documents_are_printed_as_the_server_prints_them() {
    recorded().for_each(|(bytes, text)| check(&bytes, text));
    assert!(recorded().count() > 50);
}

#[test]
fn doubles_are_printed_as_the_server_prints_them() {
    let cases: [(f64, &str); 10] = [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.1, "0.1"),
        (1e15, "1e15"),
        (123456789012345.0, "123456789012345.0"),
        (1234567890123456.5, "1234567890123456.5"),
        (622_608_696_672_849.2, "622608696672849.2"),
        (1e100, "1e100"),
        (1.5e-20, "1.5e-20"),
        (5e-324, "5e-324"),
    ];
    for (number, text) in cases {
        let bytes = [&[DOUBLE], number.to_le_bytes().as_slice()].concat();
        check(&bytes, text);
    }
    check_corrupt(&[&[DOUBLE], f64::NAN.to_le_bytes().as_slice()].concat(), "a double is no number");
}

#[test]
fn no_bytes_are_null() {
    check(&[], "null");
}

#[test]
fn what_is_no_document_is_refused() {
    check_corrupt(&[0x0D], "unknown type of a value");
    check_corrupt(&[LITERAL, 3], "unknown literal");
    check_corrupt(&[LITERAL], "a value reaches beyond its end");
    check_corrupt(&[INT32, 1, 2, 3], "a value reaches beyond its end");
    check_corrupt(&[STRING, 2, b'a'], "a value reaches beyond its end");
    check_corrupt(&[STRING, 1, 0xFF], "a string is not UTF-8");
    check_corrupt(&[STRING, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF], "a length has no end");
    check_corrupt(&[SMALL_ARRAY, 1, 0, 200, 0, LITERAL, 0, 0], "an object or array is larger than its place");
    check_corrupt(&[SMALL_ARRAY, 9, 0, 7, 0, LITERAL, 0, 0], "a value reaches beyond its end");
    check_corrupt(&[OPAQUE, 246, 2, 3, 1], "a decimal or a time has another form");
    check_corrupt(&[OPAQUE, 12, 1, 1], "a decimal or a time has another form");
}

#[test]
fn an_array_inside_itself_ends() {
    let mut bytes = vec![SMALL_ARRAY, 1, 0, 7, 0, SMALL_ARRAY, 0, 0];
    check_corrupt(&bytes, "values overlap");
    // With bytes enough to be claimed it is the depth that ends it.
    bytes.extend([0; 2000]);
    check_corrupt(&bytes, "nested deeper than 100 levels");
}

/// Nests arrays, and returns them with one more around.
fn nest(levels: usize) -> Vec<u8> {
    let mut inner = vec![0, 0, 4, 0];
    for _ in 1..levels {
        let size = (inner.len() + 7) as u16;
        let [low, high] = size.to_le_bytes();
        inner = [&[1, 0, low, high, SMALL_ARRAY, 7, 0], inner.as_slice()].concat();
    }
    [&[SMALL_ARRAY], inner.as_slice()].concat()
}

#[test]
fn a_hundred_levels_are_read_and_no_more() {
    check(&nest(100), &("[".repeat(100) + &"]".repeat(100)));
    check_corrupt(&nest(101), "nested deeper than 100 levels");
}

#[test]
fn no_bytes_whatever_make_reading_panic_or_run_away() {
    let seed = 3;
    let mut random = StdRng::seed_from_u64(seed);
    for (bytes, _) in recorded().filter(|(bytes, _)| bytes.len() < 700) {
        (0..bytes.len()).for_each(|length| drop(text_of(&bytes[..length])));
        for _ in 0..200 {
            let mut changed = bytes.clone();
            for _ in 0..random.random_range(1..4) {
                let at = random.random_range(0..changed.len());
                changed[at] = random.random();
            }
            let text = text_of(&changed).unwrap_or_default();
            assert!(text.len() < 20 * changed.len() + 400, "seed {seed}");
        }
    }
}

#[test]
fn what_a_string_may_not_have_is_escaped_and_nothing_else() {
    let quoted = |text: &str| {
        let mut out = String::new();
        write_quoted(text, &mut out);
        out
    };
    assert_eq!(quoted(""), r#""""#);
    assert_eq!(quoted("plain é 😀 \u{7f}"), "\"plain é 😀 \u{7f}\"");
    assert_eq!(quoted("\"a\\é\u{8}\t\u{c}\n\r\u{1}\u{1f}"), r#""\"a\\é\b\t\f\n\r\u0001\u001f""#);
}
