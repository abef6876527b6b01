//! Dates and times, in the formats since MySQL 5.6 and the ones before.
//!
//! MySQL internals manual, "Date and Time Data Type Representation"; `my_time.cc` for the packed forms.

use arrow::datatypes::{Date32Type, Int64Type, TimestampMicrosecondType};

use super::ColumnBuilder;
use super::numbers::{Primitive, big_endian, fixed};
use crate::source::mysql::binlog::reader::Malformed;
use crate::source::mysql::binlog::wire::{WireColumn, code};
use crate::source::mysql::column_type::ColumnType;

const SECOND_US: i64 = 1_000_000;
const DAY_S: i64 = 86_400;

pub(super) fn builder(wire: &WireColumn, column_type: &ColumnType) -> Option<Box<dyn ColumnBuilder>> {
    use ColumnType as C;
    let data_type = column_type.data_type();
    let digits = wire.meta;
    Some(match (wire.code, column_type) {
        (code::DATE | code::NEWDATE, C::Date) => Primitive::<Date32Type, _>::boxed(data_type, date),
        (code::DATETIME2, C::DateTime { digits: own }) if u16::from(*own) == digits => {
            Primitive::<TimestampMicrosecondType, _>::boxed(data_type, datetime)
        }
        (code::DATETIME, C::DateTime { digits: 0 }) => {
            Primitive::<TimestampMicrosecondType, _>::boxed(data_type, old_datetime)
        }
        (code::TIMESTAMP2, C::Timestamp { digits: own }) if u16::from(*own) == digits => {
            Primitive::<TimestampMicrosecondType, _>::boxed(data_type, timestamp)
        }
        (code::TIMESTAMP, C::Timestamp { digits: 0 }) => {
            Primitive::<TimestampMicrosecondType, _>::boxed(data_type, old_timestamp)
        }
        (code::TIME2, C::Time { digits: own }) if u16::from(*own) == digits => {
            Primitive::<Int64Type, _>::boxed(data_type, time)
        }
        (code::TIME, C::Time { digits: 0 }) => Primitive::<Int64Type, _>::boxed(data_type, old_time),
        _ => return None,
    })
}

/// Days since 1970-01-01, or `None` for a date that is none.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if !(1..=last).contains(&day) || !(0..=9999).contains(&year) {
        return None;
    }
    // Years begin in March here, so that the leap day is the last of its year.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    Some(era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468)
}

/// Microseconds of a time of day, or `None` if it is none.
fn of_day(hour: i64, minute: i64, second: i64, fraction_us: i64) -> Option<i64> {
    let valid = (0..24).contains(&hour) && (0..60).contains(&minute) && (0..60).contains(&second);
    let valid = valid && (0..SECOND_US).contains(&fraction_us);
    valid.then_some((hour * 3600 + minute * 60 + second) * SECOND_US + fraction_us)
}

/// Day in 5 bits, month in 4, year in 15.
fn date(cell: &[u8]) -> Result<Option<i32>, Malformed> {
    let [a, b, c] = fixed(cell)?;
    let packed = i64::from(u32::from_le_bytes([a, b, c, 0]));
    Ok(days(packed >> 9, packed >> 5 & 15, packed & 31).map(|days| days as i32))
}

/// The fraction at the end of a value: one byte for every two digits, big-endian.
fn fraction_us(bytes: &[u8]) -> i64 {
    let number = big_endian(bytes) as i64;
    match bytes.len() {
        1 => number * 10_000,
        2 => number * 100,
        _ => number,
    }
}

/// Sign in 1 bit, year times 13 plus month in 17, day in 5, hour in 5, minute and second in 6 each; fraction.
fn datetime(cell: &[u8]) -> Result<Option<i64>, Malformed> {
    let (whole, fraction) = split(cell, 5)?;
    let packed = big_endian(whole) as i64 - 0x80_0000_0000;
    let (date, time) = (packed >> 17, packed & 0x1ffff);
    let months = date >> 5;
    let days = days(months / 13, months % 13, date & 31);
    let of_day = of_day(time >> 12, time >> 6 & 63, time & 63, fraction_us(fraction));
    Ok(days.zip(of_day).map(|(days, of_day)| days * DAY_S * SECOND_US + of_day))
}

/// Decimal digits: YYYYMMDDHHMMSS.
fn old_datetime(cell: &[u8]) -> Result<Option<i64>, Malformed> {
    let number = u64::from_le_bytes(fixed(cell)?);
    let part = |divisor: u64, modulus: u64| (number / divisor % modulus) as i64;
    let days = days(part(10_000_000_000, u64::MAX), part(100_000_000, 100), part(1_000_000, 100));
    let of_day = of_day(part(10_000, 100), part(100, 100), part(1, 100), 0);
    Ok(days.zip(of_day).map(|(days, of_day)| days * DAY_S * SECOND_US + of_day))
}

/// Seconds since 1970, UTC, and the fraction; 0 is the zero date.
fn timestamp(cell: &[u8]) -> Result<Option<i64>, Malformed> {
    let (whole, fraction) = split(cell, 4)?;
    let us = big_endian(whole) as i64 * SECOND_US + fraction_us(fraction);
    Ok((us != 0).then_some(us))
}

fn old_timestamp(cell: &[u8]) -> Result<Option<i64>, Malformed> {
    let seconds = u32::from_le_bytes(fixed(cell)?);
    Ok((seconds != 0).then_some(i64::from(seconds) * SECOND_US))
}

/// Sign and an unused bit, hour in 10 bits, minute and second in 6 each, then the fraction. A negative time is
/// the two's complement of the whole, fraction included.
fn time(cell: &[u8]) -> Result<Option<i64>, Malformed> {
    let (_, fraction) = split(cell, 3)?;
    let offset = 0x80_0000_i64 << (8 * fraction.len());
    let packed = big_endian(cell) as i64 - offset;
    let magnitude = packed.abs();
    let whole = magnitude >> (8 * fraction.len());
    let low = magnitude & ((1 << (8 * fraction.len())) - 1);
    let low = match fraction.len() {
        1 => low * 10_000,
        2 => low * 100,
        _ => low,
    };
    let seconds = (whole >> 12) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63);
    Ok(Some(packed.signum() * (seconds * SECOND_US + low)))
}

/// Decimal digits with a sign: HHHMMSS.
fn old_time(cell: &[u8]) -> Result<Option<i64>, Malformed> {
    let [a, b, c] = fixed(cell)?;
    let number = i64::from(i32::from_le_bytes([0, a, b, c]) >> 8);
    let magnitude = number.abs();
    let seconds = magnitude / 10_000 * 3600 + magnitude / 100 % 100 * 60 + magnitude % 100;
    Ok(Some(number.signum() * seconds * SECOND_US))
}

fn split(cell: &[u8], whole: usize) -> Result<(&[u8], &[u8]), Malformed> {
    match cell.split_at_checked(whole) {
        Some(parts) if parts.1.len() <= 3 => Ok(parts),
        _ => Err(Malformed::value(format!("{} bytes where a time has {whole} to {}", cell.len(), whole + 3))),
    }
}
