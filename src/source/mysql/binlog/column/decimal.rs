//! DECIMAL: groups of nine digits, most significant first (`bin2decimal` in the servers' `decimal.c`).

use arrow::datatypes::Decimal128Type;

use super::ColumnBuilder;
use super::bytes::Strings;
use super::numbers::Primitive;
use crate::source::mysql::binlog::reader::{Malformed, Reader};
use crate::source::mysql::binlog::wire::{WireColumn, code};
use crate::source::mysql::column_type::{ColumnType, DECIMAL_PRECISION_MAX};

/// Digits of a full group, which takes four bytes.
const GROUP_DIGITS: u8 = 9;

/// Bytes that a group of so many digits takes.
const GROUP_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];

/// Largest precision of a DECIMAL column (manual, "Fixed-Point Types").
const PRECISION_MAX: u8 = 65;

/// Bytes that a DECIMAL value takes in the log.
///
/// # Errors
/// If there is no such type.
pub fn decimal_bytes(precision: u8, scale: u8) -> Result<usize, Malformed> {
    if precision == 0 || precision > PRECISION_MAX || scale > precision {
        return Err(Malformed::value(format!("DECIMAL({precision},{scale}) does not exist")));
    }
    Ok(part_bytes(precision - scale) + part_bytes(scale))
}

fn part_bytes(digits: u8) -> usize {
    usize::from(digits / GROUP_DIGITS) * 4 + group_bytes(digits % GROUP_DIGITS)
}

fn group_bytes(digits: u8) -> usize {
    GROUP_BYTES.get(usize::from(digits)).copied().unwrap_or(4)
}

pub(super) fn builder(wire: &WireColumn, column_type: &ColumnType) -> Option<Box<dyn ColumnBuilder>> {
    let ColumnType::Decimal { precision, scale, .. } = *column_type else { return None };
    if wire.code != code::NEWDECIMAL || wire.meta != u16::from_be_bytes([precision, scale]) {
        return None;
    }
    if precision <= DECIMAL_PRECISION_MAX {
        return Some(Primitive::<Decimal128Type, _>::boxed(column_type.data_type(), move |cell| {
            number(cell, precision, scale).map(Some)
        }));
    }
    let mut text = String::new();
    Some(Strings::boxed(move |cell, out| {
        text.clear();
        write_text(cell, precision, scale, &mut text)?;
        out.extend_from_slice(text.as_bytes());
        Ok(0)
    }))
}

/// Calls `group` with each group's value and number of digits. Returns whether the number is negative.
fn groups(cell: &[u8], precision: u8, scale: u8, mut group: impl FnMut(u32, u8)) -> Result<bool, Malformed> {
    // The highest bit is set for numbers from 0 on; all bits of a negative one are inverted.
    let negative = cell.first().is_some_and(|first| first & 0x80 == 0);
    let flip = if negative { 0xff } else { 0 };
    let mut first = true;
    let mut bytes = Reader::new(cell);
    let whole = precision - scale;
    let leading = [whole % GROUP_DIGITS, scale % GROUP_DIGITS];
    let mut next = |digits: u8| -> Result<(), Malformed> {
        let mut value = 0u32;
        for byte in bytes.take(group_bytes(digits))? {
            let sign = if std::mem::take(&mut first) { 0x80 } else { 0 };
            value = value << 8 | u32::from(byte ^ sign ^ flip);
        }
        if value >= 10u32.pow(u32::from(digits)) {
            return Err(Malformed::value(format!("a group of {digits} decimal digits holds {value}")));
        }
        group(value, digits);
        Ok(())
    };
    let [whole_leading, scale_trailing] = leading;
    if whole_leading > 0 {
        next(whole_leading)?;
    }
    for _ in 0..whole / GROUP_DIGITS + scale / GROUP_DIGITS {
        next(GROUP_DIGITS)?;
    }
    if scale_trailing > 0 {
        next(scale_trailing)?;
    }
    Ok(negative)
}

/// The value times ten to the power of `scale`. `precision` is at most 38.
fn number(cell: &[u8], precision: u8, scale: u8) -> Result<i128, Malformed> {
    let mut number = 0i128;
    let negative = groups(cell, precision, scale, |value, digits| {
        number = number * 10i128.pow(u32::from(digits)) + i128::from(value);
    })?;
    Ok(if negative { -number } else { number })
}

/// The value as the server prints it: no leading zeros, all digits of the scale.
fn write_text(cell: &[u8], precision: u8, scale: u8, out: &mut String) -> Result<(), Malformed> {
    let mut digits = String::with_capacity(usize::from(precision));
    let negative = groups(cell, precision, scale, |value, count| {
        digits.push_str(&format!("{value:0width$}", width = usize::from(count)));
    })?;
    let (whole, fraction) = digits.split_at(usize::from(precision - scale));
    if negative && digits.bytes().any(|digit| digit != b'0') {
        out.push('-');
    }
    let whole = whole.trim_start_matches('0');
    out.push_str(if whole.is_empty() { "0" } else { whole });
    if scale > 0 {
        out.push('.');
        out.push_str(fraction);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cell: &[u8], precision: u8, scale: u8, expected: &str) {
        let mut text = String::new();
        write_text(cell, precision, scale, &mut text).expect("valid");
        assert_eq!(text, expected, "{cell:?} as DECIMAL({precision},{scale})");
        let number = number(cell, precision, scale).expect("valid").to_string();
        let digits = expected.replace('.', "");
        let (sign, digits) = if let Some(rest) = digits.strip_prefix('-') { ("-", rest) } else { ("", &*digits) };
        let digits = digits.trim_start_matches('0');
        assert_eq!(number, format!("{sign}{}", if digits.is_empty() { "0" } else { digits }));
    }

    // The first two are the example of the comment at `decimal2bin` in the servers' source.
    #[test]
    fn groups_of_nine_digits_give_the_number() {
        check(&[0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2], 14, 4, "1234567890.1234");
        check(&[0x7E, 0xF2, 0x04, 0xC7, 0x2D, 0xFB, 0x2D], 14, 4, "-1234567890.1234");
        check(&[0x80, 0x00, 0x00], 4, 2, "0.00");
        check(&[0x80], 1, 0, "0");
        check(&[0x7f], 1, 0, "0");
        check(&[0x89], 1, 1, "0.9");
        check(&[0x76], 1, 1, "-0.9");
    }

    #[test]
    fn a_group_with_too_many_digits_is_refused() {
        assert!(number(&[0x80 | 100], 2, 0).is_err());
        assert!(number(&[0x80], 4, 0).is_err());
        assert!(decimal_bytes(66, 0).is_err());
        assert!(decimal_bytes(2, 3).is_err());
    }
}
