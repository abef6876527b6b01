//! How numbers, times and tables look to people.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat};

/// Which side a column's cells keep to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// A table with a heading, two spaces between the columns, an end of line after each row. A row with fewer
/// cells than the heading ends there: its last cell may be as long as it likes.
pub fn table(heading: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|(name, _)| name.chars().count()).collect();
    for row in rows.iter().filter(|row| !row.is_empty()) {
        let full = if row.len() < heading.len() { row.len() - 1 } else { row.len() };
        for (width, cell) in widths.iter_mut().zip(row.iter().take(full)) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let names: Vec<String> = heading.iter().map(|(name, _)| name.to_string()).collect();
    let aligns: Vec<Align> = heading.iter().map(|(_, align)| *align).collect();
    std::iter::once(&names).chain(rows).map(|row| line(row, &widths, &aligns)).collect()
}

fn line(cells: &[String], widths: &[usize], aligns: &[Align]) -> String {
    let padded: Vec<String> = cells
        .iter()
        .zip(widths.iter().zip(aligns))
        .map(|(cell, (&width, align))| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        })
        .collect();
    padded.join("  ").trim_end().to_string() + "\n"
}

/// `1234567` as `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the largest unit of which there is at least one, to one decimal.
pub fn bytes(number: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, shift)| number >> shift > 0) {
        // Tenths, rounded down: a size is never shown as more than it is.
        Some((unit, shift)) => {
            let tenths = (u128::from(number) * 10) >> shift;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{number} B"),
    }
}

/// A duration in its two largest units, of seconds upwards: `2d 3h`, `4m 5s`, `0s`.
pub fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [("d", seconds / 86_400), ("h", seconds / 3600 % 24), ("m", seconds / 60 % 60), ("s", seconds % 60)];
    let from = parts.iter().position(|(_, amount)| *amount > 0).unwrap_or(parts.len() - 1);
    let shown: Vec<String> = parts.iter().skip(from).take(2).map(|(unit, amount)| format!("{amount}{unit}")).collect();
    shown.join(" ")
}

/// A time in microseconds since 1970-01-01 UTC as `2026-01-02T03:04:05.678901Z`, without a fraction that is zero.
pub fn time(unix_us: i64) -> String {
    let Some(time) = DateTime::from_timestamp_micros(unix_us) else { return format!("{unix_us} us") };
    let format = if unix_us % 1_000_000 == 0 { SecondsFormat::Secs } else { SecondsFormat::Micros };
    time.to_rfc3339_opts(format, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_reading() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), text);
        }
        for (number, text) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1_572_864, "1.5 MiB"), (u64::MAX, "16777215.9 TiB")]
        {
            assert_eq!(bytes(number), text);
        }
    }

    #[test]
    fn times_and_durations_are_written_for_reading() {
        for (seconds, text) in [(0, "0s"), (59, "59s"), (61, "1m 1s"), (3600, "1h 0m"), (200_000, "2d 7h")] {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
        assert_eq!(time(1_767_225_600_000_000), "2026-01-01T00:00:00Z");
        assert_eq!(time(-1), "1969-12-31T23:59:59.999999Z");
        assert_eq!(time(i64::MAX), "9223372036854775807 us");
    }

    #[test]
    fn a_table_lines_up_and_a_short_row_runs_on() {
        let rows = vec![
            vec!["é".to_string(), "10".to_string(), "x".to_string()],
            vec!["longer".to_string(), "a reason that is long".to_string()],
            vec![],
        ];
        let text = table(&[("NAME", Align::Left), ("N", Align::Right), ("END", Align::Left)], &rows);
        assert_eq!(text, "NAME     N  END\né       10  x\nlonger  a reason that is long\n\n");
    }
}
