//! Whether an ALTER TABLE kept the values that a column had. The servers convert them without a word in the log, so what
//! they may have changed can only be told from the two definitions and the mode of the session.
//!
//! In a strict mode the server refuses a statement under which a value does not fit ("Strict SQL Mode", "Conversions
//! under ALTER TABLE" in the manual); in any other it changes the value and goes on. Some conversions change values in
//! either: digits behind the point are rounded, spaces at the end of a CHAR are lost.

use crate::schema::Column;
use crate::source::mysql::charset::Charset;
use crate::source::mysql::column_type::{BlobKind, ColumnType, TextKind};

/// How the values of a column may have been changed by its new definition; `None` if all are as they were.
pub(super) fn altered(old: &Column, new: &Column, strict: bool) -> Option<String> {
    let nulls = (old.nullable && !new.nullable && !strict).then_some("nulls may have become other values");
    let (Ok(from), Ok(to)) = (old.source_type.parse(), new.source_type.parse()) else {
        return Some("its type is not known".to_string());
    };
    let change = if from == to { Change::Kept } else { change(&from, &to) };
    let values = match change {
        Change::Kept => None,
        Change::Checked(what) => (!strict).then_some(what),
        Change::Altered(what) => Some(what),
    };
    values.or(nulls).map(str::to_string)
}

/// What a conversion does to values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    Kept,
    /// All values fit, or a strict server has refused the statement; any other may have done this.
    Checked(&'static str),
    Altered(&'static str),
}

const CLIPPED: &str = "values out of range may have been clipped";
const ROUNDED: &str = "values were rounded";
const CUT: &str = "values may have been cut";
const CONVERTED: &str = "values were converted";
const PADDED: &str = "values were padded or cut";
const UNKNOWN_MEMBERS: &str = "members that are gone may have become the empty text";

fn kept_if(kept: bool, otherwise: Change) -> Change {
    if kept { Change::Kept } else { otherwise }
}

fn change(from: &ColumnType, to: &ColumnType) -> Change {
    use ColumnType as T;
    match (from, to) {
        _ if range(from).is_some() && range(to).is_some() => whole_numbers(from, to),
        _ if digits(from).is_some() && digits(to).is_some() => decimals(from, to),
        (T::Float, T::Double) => Change::Kept,
        (T::Double, T::Float) => Change::Altered(ROUNDED),
        (T::Bit { bits: from }, T::Bit { bits: to }) => kept_if(from <= to, Change::Checked(CLIPPED)),
        (T::DateTime { digits: from }, T::DateTime { digits: to })
        | (T::Timestamp { digits: from }, T::Timestamp { digits: to })
        | (T::Time { digits: from }, T::Time { digits: to }) => kept_if(from <= to, Change::Altered(ROUNDED)),
        (T::Text { kind: from, charset: old }, T::Text { kind: to, charset: new }) => texts(*from, old, *to, new),
        (T::Enum { .. } | T::Set { .. }, T::Text { kind, .. }) => {
            kept_if(chars(*kind) >= u64::from(u16::MAX), Change::Checked(CUT))
        }
        (T::Json, T::Text { kind, .. }) => kept_if(*kind == TextKind::LongText, Change::Checked(CUT)),
        (T::Enum { members: from, .. }, T::Enum { members: to, .. }) => {
            kept_if(from.iter().all(|member| to.contains(member)), Change::Checked(UNKNOWN_MEMBERS))
        }
        (T::Set { members: from, .. }, T::Set { members: to, .. }) => sets(from, to),
        (T::Blob { kind: from }, T::Blob { kind: to }) => kept_if(bytes(*from) <= bytes(*to), Change::Checked(CUT)),
        (T::Binary { length }, T::Blob { kind }) => kept_if(u64::from(*length) <= bytes(*kind), Change::Checked(CUT)),
        (T::Blob { .. } | T::Binary { .. }, T::Binary { .. }) => Change::Altered(PADDED),
        (T::Geometry { .. }, T::Geometry { .. }) | (T::Vector { .. }, T::Vector { .. }) => Change::Kept,
        _ => Change::Altered(CONVERTED),
    }
}

/// The smallest and the largest value of a type of whole numbers.
fn range(column_type: &ColumnType) -> Option<(i128, i128)> {
    let (bits, unsigned) = match column_type {
        ColumnType::TinyInt { unsigned } => (8, unsigned),
        ColumnType::SmallInt { unsigned } => (16, unsigned),
        ColumnType::MediumInt { unsigned } => (24, unsigned),
        ColumnType::Int { unsigned } => (32, unsigned),
        ColumnType::BigInt { unsigned } => (64, unsigned),
        _ => return None,
    };
    let values = 1i128 << bits;
    Some(if *unsigned { (0, values - 1) } else { (-values / 2, values / 2 - 1) })
}

fn whole_numbers(from: &ColumnType, to: &ColumnType) -> Change {
    match (range(from), range(to)) {
        (Some(from), Some(to)) => kept_if(to.0 <= from.0 && from.1 <= to.1, Change::Checked(CLIPPED)),
        _ => Change::Altered(CONVERTED),
    }
}

/// Digits before and behind the point, and whether there is no sign.
fn digits(column_type: &ColumnType) -> Option<(u8, u8, bool)> {
    match column_type {
        ColumnType::Decimal { precision, scale, unsigned } => {
            Some((precision.saturating_sub(*scale), *scale, *unsigned))
        }
        _ => {
            let (least, most) = range(column_type)?;
            let count = least.unsigned_abs().max(most.unsigned_abs()).to_string().len();
            Some((u8::try_from(count).unwrap_or(u8::MAX), 0, least == 0))
        }
    }
}

fn decimals(from: &ColumnType, to_type: &ColumnType) -> Change {
    match (digits(from), digits(to_type)) {
        (Some((_, from, _)), Some((_, to, _))) if to < from => Change::Altered(ROUNDED),
        (Some((from, _, was_unsigned)), Some((to, _, unsigned))) => {
            let keeps_sign = was_unsigned || !unsigned;
            kept_if(from <= to && keeps_sign && range(to_type).is_none(), Change::Checked(CLIPPED))
        }
        _ => Change::Altered(CONVERTED),
    }
}

/// Characters that a type of text holds at least.
fn chars(kind: TextKind) -> u64 {
    match kind {
        TextKind::Char(length) | TextKind::VarChar(length) => u64::from(length),
        TextKind::TinyText => 0xFF,
        TextKind::Text => 0xFFFF,
        TextKind::MediumText => 0xFF_FFFF,
        TextKind::LongText => 0xFFFF_FFFF,
    }
}

fn texts(from: TextKind, old: &str, to: TextKind, new: &str) -> Change {
    let is_char = |kind| matches!(kind, TextKind::Char(_));
    if is_char(to) && !is_char(from) {
        return Change::Altered("spaces at the end of values were lost");
    }
    // Of those that are counted in bytes, one in another character set holds another number of characters.
    let is_counted = matches!(to, TextKind::Char(_) | TextKind::VarChar(_));
    let all = |name: &str| matches!(name, "utf8mb4" | "utf16" | "utf16le" | "utf32" | "gb18030");
    let same_charset = Charset::by_name(old).is_some() && Charset::by_name(old) == Charset::by_name(new);
    let has_characters = same_charset || all(new);
    let has_room = chars(to) >= chars(from) && (same_charset || is_counted);
    kept_if(has_characters && has_room, Change::Checked(CUT))
}

/// A value of a SET is shown in the order of its members.
fn sets(from: &[String], to: &[String]) -> Change {
    let stay: Vec<&String> = from.iter().filter(|member| to.contains(member)).collect();
    let order: Vec<&String> = to.iter().filter(|member| from.contains(member)).collect();
    if stay != order {
        return Change::Altered("the members of values stand in another order");
    }
    kept_if(stay.len() == from.len(), Change::Checked(UNKNOWN_MEMBERS))
}

fn bytes(kind: BlobKind) -> u64 {
    match kind {
        BlobKind::VarBinary(length) => u64::from(length),
        BlobKind::TinyBlob => 0xFF,
        BlobKind::Blob => 0xFFFF,
        BlobKind::MediumBlob => 0xFF_FFFF,
        BlobKind::LongBlob => 0xFFFF_FFFF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `kept`, `checked` (kept if the server is strict) or `altered`.
    fn check(from: &str, to: &str, expected: &str) {
        let column = |source_type: &str| {
            let column_type: ColumnType = source_type.parse().unwrap_or_else(|error| panic!("{error}"));
            column_type.column("a", true)
        };
        let (old, new) = (column(from), column(to));
        let found = match (altered(&old, &new, true), altered(&old, &new, false)) {
            (None, None) => "kept",
            (None, Some(_)) => "checked",
            _ => "altered",
        };
        assert_eq!(found, expected, "{from} -> {to}");
    }

    #[test]
    fn numbers_are_kept_where_all_of_them_fit() {
        check("int", "bigint", "kept");
        check("int unsigned", "bigint", "kept");
        check("bigint", "int", "checked");
        check("int", "int unsigned", "checked");
        check("bigint unsigned", "decimal(20,0)", "kept");
        check("int", "decimal(9,0)", "checked");
        check("decimal(5,2)", "decimal(7,4)", "kept");
        check("decimal(5,2)", "decimal(6,4)", "checked");
        check("decimal(5,2)", "decimal(8,1)", "altered");
        check("decimal(5,2)", "int", "altered");
        check("float", "double", "kept");
        check("double", "float", "altered");
        check("int", "double", "altered");
        check("bit(9)", "bit(8)", "checked");
        check("datetime(3)", "datetime(6)", "kept");
        check("datetime(3)", "datetime", "altered");
        check("datetime", "timestamp", "altered");
    }

    #[test]
    fn texts_are_kept_where_there_is_room_and_every_character() {
        let text = |kind: &str, charset: &str| format!("{kind} character set {charset}");
        let (short, long) = (text("varchar(5)", "latin1"), text("varchar(9)", "latin1"));
        check(&short, &long, "kept");
        check(&long, &short, "checked");
        check(&short, &text("varchar(5)", "utf8mb4"), "kept");
        check(&text("varchar(5)", "utf8mb4"), &short, "checked");
        check(&text("text", "latin1"), &text("mediumtext", "utf8mb4"), "checked");
        check(&short, &text("char(9)", "latin1"), "altered");
        check(&text("char(9)", "latin1"), &long, "kept");
        check(&short, "varbinary(5)", "altered");
        check("enum('a','b') character set latin1", "enum('c','b','a') character set latin1", "kept");
        check("enum('a','b') character set latin1", "enum('a') character set latin1", "checked");
        check("set('a','b') character set latin1", "set('a','c','b') character set latin1", "kept");
        check("set('a','b') character set latin1", "set('b','a') character set latin1", "altered");
        check("json", &text("longtext", "utf8mb4"), "kept");
        check(&text("longtext", "utf8mb4"), "json", "altered");
        check("binary(4)", "varbinary(4)", "kept");
        check("binary(4)", "binary(5)", "altered");
    }

    #[test]
    fn nulls_are_kept_where_the_server_is_strict() {
        let column = |nullable| ColumnType::Date.column("a", nullable);
        assert_eq!(altered(&column(true), &column(false), true), None);
        assert!(altered(&column(true), &column(false), false).is_some());
        assert_eq!(altered(&column(false), &column(true), false), None);
    }
}
