//! DEFAULT clauses, and what rows that were there before hold in a column that was added.

use super::column::{ColumnDefinition, Generated};
use super::token::{Cursor, Token};
use crate::source::mysql::charset::Charset;
use crate::source::mysql::column_type::{BlobKind, ColumnType, LeftOut, TextKind};

/// A DEFAULT clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Default {
    Missing,
    Null,
    /// A string, or a number as written.
    Text(String),
    Number(String),
    /// `x'41'`, `0x41`, `b'101'`.
    Bytes(Vec<u8>),
    /// Something that only the server can work out.
    Expression,
}

/// Reads what follows the word DEFAULT.
pub(super) fn read(cursor: &mut Cursor<'_, '_>) -> Default {
    if let Some(mut inside) = cursor.parenthesized() {
        let value = read(&mut inside);
        return if inside.is_end() { value } else { Default::Expression };
    }
    if cursor.skip_symbol('-') {
        return match read(cursor) {
            Default::Number(number) => Default::Number(format!("-{number}")),
            _ => Default::Expression,
        };
    }
    cursor.skip_symbol('+');
    match cursor.next() {
        Some(Token::Text(text)) => Default::Text(text.clone()),
        Some(Token::Number(number)) => Default::Number((*number).to_string()),
        Some(Token::Word(word)) => read_word(word, cursor),
        _ => Default::Expression,
    }
}

fn read_word(word: &str, cursor: &mut Cursor<'_, '_>) -> Default {
    let lower = word.to_ascii_lowercase();
    let text = match cursor.peek() {
        Some(Token::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let value = match (lower.as_str(), &text) {
        ("null", None) => return Default::Null,
        ("true", None) => return Default::Number("1".to_string()),
        ("false", None) => return Default::Number("0".to_string()),
        ("x", Some(text)) => from_base(text, 16),
        ("b", Some(text)) => from_base(text, 2),
        ("n" | "date" | "time" | "timestamp", Some(text)) => Some(Default::Text(text.clone())),
        (prefix, Some(text)) if prefix.starts_with('_') => Some(Default::Text(text.clone())),
        (prefixed, None) => {
            let hex = prefixed.strip_prefix("0x").and_then(|digits| from_base(digits, 16));
            hex.or_else(|| prefixed.strip_prefix("0b").and_then(|digits| from_base(digits, 2)))
        }
        _ => None,
    };
    if text.is_some() {
        cursor.next();
    }
    if value.is_none() {
        // The arguments of a function.
        cursor.parenthesized();
    }
    value.unwrap_or(Default::Expression)
}

/// The bytes of a literal in hexadecimal (two digits a byte) or binary (eight).
fn from_base(digits: &str, base: u32) -> Option<Default> {
    let width = if base == 16 { 2 } else { 8 };
    let padding = (width - digits.len() % width) % width;
    let digits = format!("{}{digits}", "0".repeat(padding));
    let bytes = digits.as_bytes().chunks(width).map(|byte| {
        let byte = std::str::from_utf8(byte).ok()?;
        u8::from_str_radix(byte, base).ok()
    });
    bytes.collect::<Option<Vec<u8>>>().map(Default::Bytes)
}

/// What old rows hold in an added column: text that reads as the column's Arrow type, or null.
///
/// # Errors
/// Why only the server can tell.
pub(super) fn of_old_rows(column: &ColumnDefinition, column_type: &ColumnType) -> Result<Option<String>, String> {
    let unknown = |why: &str| format!("column {} was added, whose old rows {why}", column.name);
    match &column.default {
        Default::Missing | Default::Null if column.nullable => Ok(None),
        Default::Null => Ok(None),
        Default::Missing => implicit(column_type).map_err(unknown),
        Default::Expression => Err(unknown("hold what an expression gave when it was added")),
        Default::Text(text) => from_text(text, column_type).ok_or_else(|| unknown(UNREADABLE)),
        Default::Number(number) => from_text(number, column_type).ok_or_else(|| unknown(UNREADABLE)),
        Default::Bytes(bytes) => from_bytes(bytes, column_type).ok_or_else(|| unknown(UNREADABLE)),
    }
}

/// What a row gets whose insert leaves the column out.
pub(super) fn left_out(column: &ColumnDefinition, column_type: &ColumnType, mariadb: bool) -> LeftOut {
    match column.generated {
        Generated::No => {}
        Generated::Expression if mariadb && !column.stored => return LeftOut::Computed,
        Generated::Expression | Generated::Row => return LeftOut::Unknown,
    }
    if column.auto_increment {
        return LeftOut::Unknown;
    }
    of_default(&column.default, column.nullable, column_type)
}

/// The same for a default alone.
pub(super) fn of_default(default: &Default, nullable: bool, column_type: &ColumnType) -> LeftOut {
    let value = match default {
        Default::Missing | Default::Null if nullable => return LeftOut::Null,
        Default::Missing => implicit(column_type).ok(),
        Default::Null | Default::Expression => None,
        Default::Text(text) | Default::Number(text) => from_text(text, column_type),
        Default::Bytes(bytes) => from_bytes(bytes, column_type),
    };
    match value {
        Some(Some(text)) => LeftOut::Value(text),
        Some(None) => LeftOut::Null,
        None => LeftOut::Unknown,
    }
}

const UNREADABLE: &str = "hold a default that the server converts to the column's type";

/// "Data Type Default Values" in the manual. Zero dates are null in the lake.
fn implicit(column_type: &ColumnType) -> Result<Option<String>, &'static str> {
    Ok(Some(match column_type {
        ColumnType::Date | ColumnType::DateTime { .. } => return Ok(None),
        ColumnType::Timestamp { .. } => {
            return Err("hold zero, or the time at which it was added, by the server's settings");
        }
        ColumnType::Geometry { .. } | ColumnType::Vector { .. } => return Err("hold no valid value"),
        ColumnType::Text { .. } | ColumnType::Blob { .. } | ColumnType::Set { .. } => String::new(),
        ColumnType::Binary { length } => "\0".repeat(*length as usize),
        ColumnType::Enum { members, .. } => members.first().cloned().unwrap_or_default(),
        ColumnType::Json => "null".to_string(),
        ColumnType::Inet4 => "0.0.0.0".to_string(),
        ColumnType::Inet6 => "::".to_string(),
        ColumnType::Uuid => "00000000-0000-0000-0000-000000000000".to_string(),
        _ => "0".to_string(),
    }))
}

/// The default as the column holds it; `None` where the server would change it and this does not know how.
fn from_text(text: &str, column_type: &ColumnType) -> Option<Option<String>> {
    let own = || Some(Some(text.to_string()));
    match column_type {
        ColumnType::TinyInt { .. } | ColumnType::SmallInt { .. } | ColumnType::MediumInt { .. } => integer(text),
        ColumnType::Int { .. } | ColumnType::BigInt { .. } | ColumnType::Bit { .. } => integer(text),
        ColumnType::Year => {
            integer(text).filter(|year| year.as_ref().is_some_and(|year| year.len() == 4 || year == "0"))
        }
        ColumnType::Decimal { scale, .. } => decimal(text, usize::from(*scale)),
        ColumnType::Float | ColumnType::Double => {
            text.trim().parse::<f64>().ok().map(|_| Some(text.trim().to_string()))
        }
        ColumnType::Text { kind: TextKind::Char(_), .. } => Some(Some(text.trim_end_matches(' ').to_string())),
        ColumnType::Text { .. } | ColumnType::Blob { kind: BlobKind::VarBinary(_) } => own(),
        ColumnType::Blob { .. } => own(),
        ColumnType::Binary { length } => Some(Some(format!("{text:\0<width$}", width = *length as usize))),
        ColumnType::Enum { members, .. } => Some(Some(members.iter().find(|member| same(member, text))?.clone())),
        ColumnType::Set { members, .. } => set(text, members),
        ColumnType::Date if is_zero(text) => Some(None),
        ColumnType::DateTime { .. } | ColumnType::Timestamp { .. } if is_zero(text) => Some(None),
        ColumnType::Date => is_shape(text, "0000-00-00").then(own)?,
        ColumnType::DateTime { digits } => date_time(text, *digits),
        ColumnType::Time { digits } => time(text, *digits),
        // A TIMESTAMP is in the session's time zone; the others have no literal defaults or many spellings.
        _ => None,
    }
}

fn from_bytes(bytes: &[u8], column_type: &ColumnType) -> Option<Option<String>> {
    let number = || bytes.iter().try_fold(0_u64, |number, byte| Some(number.checked_mul(256)? | u64::from(*byte)));
    let text = match column_type {
        ColumnType::TinyInt { .. } | ColumnType::SmallInt { .. } | ColumnType::MediumInt { .. } => {
            number()?.to_string()
        }
        ColumnType::Int { .. } | ColumnType::BigInt { .. } | ColumnType::Bit { .. } => number()?.to_string(),
        ColumnType::Text { charset, .. } => {
            let mut text = String::new();
            (Charset::by_name(charset)?.decode_into(bytes, &mut text) == 0).then_some(text)?
        }
        ColumnType::Blob { .. } | ColumnType::Binary { .. } => String::from_utf8(bytes.to_vec()).ok()?,
        _ => return None,
    };
    match column_type {
        ColumnType::Text { .. } | ColumnType::Binary { .. } => from_text(&text, column_type),
        _ => Some(Some(text)),
    }
}

fn integer(text: &str) -> Option<Option<String>> {
    text.trim().parse::<i128>().ok().map(|number| Some(number.to_string()))
}

/// A number without an exponent that needs no rounding.
fn decimal(text: &str, scale: usize) -> Option<Option<String>> {
    let text = text.trim();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let plain = (whole.to_string() + fraction).bytes().all(|byte| byte.is_ascii_digit());
    let fits = plain && fraction.len() <= scale && !(whole.is_empty() && fraction.is_empty());
    let sign = if text.starts_with('-') { "-" } else { "" };
    let whole = if whole.is_empty() { "0" } else { whole };
    let padded = if scale == 0 { String::new() } else { format!(".{fraction:0<scale$}") };
    fits.then(|| Some(format!("{sign}{whole}{padded}")))
}

/// Members are compared as most collations do it; only ASCII letters are known to be the same in both cases.
fn same(member: &str, text: &str) -> bool {
    member.eq_ignore_ascii_case(text.trim_end_matches(' '))
}

/// The members that the text names, in the order of the type.
fn set(text: &str, members: &[String]) -> Option<Option<String>> {
    if text.is_empty() {
        return Some(Some(String::new()));
    }
    let named: Vec<&str> = text.split(',').collect();
    if !named.iter().all(|name| members.iter().any(|member| same(member, name))) {
        return None;
    }
    let chosen = members.iter().filter(|member| named.iter().any(|name| same(member, name)));
    Some(Some(chosen.map(String::as_str).collect::<Vec<_>>().join(",")))
}

fn is_zero(text: &str) -> bool {
    text.starts_with("0000-00-00") || text == "0"
}

/// Whether the text has digits where the shape has zeros, and is otherwise the same.
fn is_shape(text: &str, shape: &str) -> bool {
    let fits = |(found, wanted): (char, char)| if wanted == '0' { found.is_ascii_digit() } else { found == wanted };
    text.len() == shape.len() && text.chars().zip(shape.chars()).all(fits)
}

/// A fraction of at most `digits` digits, with its point; empty is none.
fn is_fraction(text: &str, digits: u8) -> bool {
    let fraction = text.strip_prefix('.').unwrap_or(text);
    text.is_empty()
        || (text.starts_with('.') && fraction.len() <= digits.into() && fraction.bytes().all(|b| b.is_ascii_digit()))
}

fn date_time(text: &str, digits: u8) -> Option<Option<String>> {
    if is_shape(text, "0000-00-00") {
        return Some(Some(format!("{text} 00:00:00")));
    }
    let (seconds, fraction) = text.split_at_checked("0000-00-00 00:00:00".len())?;
    (is_shape(seconds, "0000-00-00 00:00:00") && is_fraction(fraction, digits)).then(|| Some(text.to_string()))
}

/// The lake holds microseconds.
fn time(text: &str, digits: u8) -> Option<Option<String>> {
    let (sign, text) = text.strip_prefix('-').map_or((1, text), |text| (-1, text));
    let at = text.find('.').unwrap_or(text.len());
    let (seconds, fraction) = text.split_at_checked(at)?;
    let mut parts = seconds.split(':').map(|part| part.parse::<i64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    if parts.next().is_some() || !is_fraction(fraction, digits) || hours > 838 || minutes > 59 || seconds > 59 {
        return None;
    }
    let microseconds = format!("{:0<6}", fraction.trim_start_matches('.')).parse::<i64>().ok()?;
    Some(Some((sign * (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + microseconds)).to_string()))
}
