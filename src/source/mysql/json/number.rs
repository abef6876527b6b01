//! Numbers as the server prints them in JSON.

use std::fmt::{Display, Write};

/// A double with up to this many digits before the point, or fewer than this many zeros after it, is written
/// without an exponent (MAX_DECPT_FOR_F_FORMAT in MySQL's `strings/dtoa.cc`).
const PLAIN_DIGITS_MAX: i32 = 15;

pub(super) fn push(out: &mut String, what: impl Display) {
    // Writing to a string cannot fail.
    let _ = write!(out, "{what}");
}

/// Appends the shortest text that reads back as the same number: `1.0`, `0.1`, `1e100`, `-0.0`. `None` for what
/// JSON has no number for.
pub(super) fn write_double(number: f64, out: &mut String) -> Option<()> {
    if !number.is_finite() {
        return None;
    }
    // The standard library finds how many digits are needed, as in `d.ddde-7`, but where two texts are equally near it
    // takes the larger one and the server the even one, as rounding to a given number of digits does.
    let shortest = format!("{:e}", number.abs());
    let places = shortest.split_once('e')?.0.len().saturating_sub("d.".len());
    let scientific = format!("{:.places$e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e')?;
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let exponent: i32 = exponent.parse().ok()?;
    if number.is_sign_negative() {
        out.push('-');
    }
    let before_point = exponent + 1;
    let many_digits = i32::try_from(digits.len()).is_ok_and(|length| length > before_point);
    if before_point > -PLAIN_DIGITS_MAX && (before_point <= PLAIN_DIGITS_MAX || many_digits) {
        write_plain(&digits, before_point, out);
    } else {
        push(out, format_args!("{mantissa}e{exponent}"));
    }
    Some(())
}

/// Appends the digits with the point after the first `before_point` of them.
fn write_plain(digits: &str, before_point: i32, out: &mut String) {
    match usize::try_from(before_point) {
        Ok(before_point) if before_point > 0 => {
            let (whole, fraction) = digits.split_at(before_point.min(digits.len()));
            push(out, format_args!("{whole:0<before_point$}.{}", if fraction.is_empty() { "0" } else { fraction }));
        }
        _ => {
            let zeros = before_point.unsigned_abs() as usize;
            push(out, format_args!("0.{:0<zeros$}{digits}", ""));
        }
    }
}
