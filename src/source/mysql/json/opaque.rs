//! Values of SQL types inside of JSON, which has no type for them.

use super::number::push;
use super::write_quoted;

/// Type codes of fields (manual of the client protocol, "Column types").
const TIMESTAMP: u8 = 7;
const DATE: u8 = 10;
const TIME: u8 = 11;
const DATETIME: u8 = 12;
const NEWDECIMAL: u8 = 246;

/// Appends the value as the server prints it: decimals as numbers, dates and times as strings with six fractional
/// digits, all else as `"base64:type<code>:<base64>"`. `None` if the bytes are no value of that type.
pub(super) fn write(field_type: u8, value: &[u8], out: &mut String) -> Option<()> {
    match field_type {
        NEWDECIMAL => write_decimal(value, out),
        DATE | TIME | DATETIME | TIMESTAMP => {
            out.push('"');
            write_temporal(field_type, i64::from_le_bytes(value.try_into().ok()?), out)?;
            out.push('"');
            Some(())
        }
        _ => {
            write_quoted(&format!("base64:type{field_type}:{}", base64(value)), out);
            Some(())
        }
    }
}

/// The server's packed form: the time of day in 17 bits and microseconds in 24, above them year * 13 + month and day.
fn write_temporal(field_type: u8, packed: i64, out: &mut String) -> Option<()> {
    let magnitude = packed.unsigned_abs();
    let microseconds = magnitude & 0xFF_FFFF;
    let seconds = magnitude >> 24;
    let (second, minute) = (seconds & 0x3F, seconds >> 6 & 0x3F);
    if field_type == TIME {
        let hour = seconds >> 12 & 0x3FF;
        let sign = if packed < 0 { "-" } else { "" };
        push(out, format_args!("{sign}{hour:02}:{minute:02}:{second:02}.{microseconds:06}"));
        return Some(());
    }
    let hour = seconds >> 12 & 0x1F;
    let (day, months) = (seconds >> 17 & 0x1F, seconds >> 22);
    let (year, month) = (months / 13, months % 13);
    if packed < 0 || year > 9999 {
        return None;
    }
    push(out, format_args!("{year:04}-{month:02}-{day:02}"));
    if field_type != DATE {
        push(out, format_args!(" {hour:02}:{minute:02}:{second:02}.{microseconds:06}"));
    }
    Some(())
}

/// Nine digits take four bytes; fewer take as many as they need.
const DIGITS_A_GROUP: usize = 9;
const BYTES_FOR_DIGITS: [usize; DIGITS_A_GROUP + 1] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Precision and scale in a byte each, then the digits in groups from the point outwards, most significant first.
/// The first bit is set for numbers that are not negative; of negative ones all bits are inverted.
fn write_decimal(value: &[u8], out: &mut String) -> Option<()> {
    let (&[precision, scale], digits) = value.split_first_chunk::<2>()?;
    let scale = usize::from(scale);
    let whole = usize::from(precision).checked_sub(scale)?;
    let negative = digits.first()? & 0x80 == 0;
    let mut bytes: Vec<u8> = digits.iter().map(|byte| if negative { !byte } else { *byte }).collect();
    *bytes.first_mut()? ^= 0x80;

    let mut text = String::new();
    let mut rest = read_group(&bytes, whole % DIGITS_A_GROUP, &mut text)?;
    for _ in 0..whole / DIGITS_A_GROUP + scale / DIGITS_A_GROUP {
        rest = read_group(rest, DIGITS_A_GROUP, &mut text)?;
    }
    if !read_group(rest, scale % DIGITS_A_GROUP, &mut text)?.is_empty() {
        return None;
    }
    let (whole, fraction) = text.split_at_checked(whole)?;
    let whole = whole.trim_start_matches('0');
    let (sign, whole) = (if negative { "-" } else { "" }, if whole.is_empty() { "0" } else { whole });
    let point = if fraction.is_empty() { "" } else { "." };
    push(out, format_args!("{sign}{whole}{point}{fraction}"));
    Some(())
}

fn read_group<'a>(bytes: &'a [u8], digits: usize, text: &mut String) -> Option<&'a [u8]> {
    let (group, rest) = bytes.split_at_checked(*BYTES_FOR_DIGITS.get(digits)?)?;
    let number = group.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    if digits > 0 {
        push(text, format_args!("{number:0digits$}"));
    }
    Some(rest)
}

/// The server breaks base64 into lines of this many characters, and prints the breaks.
const BASE64_LINE: usize = 76;

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for (index, group) in bytes.chunks(3).enumerate() {
        if index > 0 && (index * 4).is_multiple_of(BASE64_LINE) {
            text.push('\n');
        }
        let bits = (0..3).fold(0_u32, |bits, at| bits << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let letter = ALPHABET[(bits >> (18 - 6 * at) & 0x3F) as usize];
            text.push(if at <= group.len() { char::from(letter) } else { '=' });
        }
    }
    text
}
