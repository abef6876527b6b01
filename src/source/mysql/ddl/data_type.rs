//! Data types as statements write them ("Data Types" in both manuals), with all their synonyms.

use super::token::{Cursor, Token};
use crate::source::mysql::charset::Charset;
use crate::source::mysql::column_type::{BlobKind, ColumnType, GEOMETRIES, TextKind};

/// A data type whose character set may still depend on the table's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DataType {
    /// Nothing is left open.
    Plain(ColumnType),
    /// SERIAL: BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE.
    Serial,
    Text {
        size: TextSize,
        charset: Option<String>,
    },
    Enum {
        members: Vec<String>,
        charset: Option<String>,
    },
    Set {
        members: Vec<String>,
        charset: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextSize {
    Char(u32),
    VarChar(u32),
    /// TEXT(n): the smallest kind that holds `n` characters.
    AtLeast(u32),
    Kind(TextKind),
}

/// Of VARCHAR, which becomes a TEXT beyond it where the server is not strict.
const VARCHAR_BYTES_MAX: u64 = 65_535;

impl DataType {
    /// The type in a table with this default character set.
    pub(super) fn resolve(&self, table_charset: &str) -> ColumnType {
        let own = |charset: &Option<String>| charset.clone().unwrap_or_else(|| table_charset.to_string());
        match self {
            Self::Plain(column_type) => column_type.clone(),
            Self::Serial => ColumnType::BigInt { unsigned: true },
            Self::Text { size, charset } => text_type(*size, own(charset)),
            Self::Enum { members, charset } => ColumnType::Enum { members: members.clone(), charset: own(charset) },
            Self::Set { members, charset } => ColumnType::Set { members: members.clone(), charset: own(charset) },
        }
    }

    /// Sets the character set that an attribute after the type names; the first one counts.
    pub(super) fn set_charset(&mut self, name: &str) {
        match self {
            Self::Text { charset, .. } | Self::Enum { charset, .. } | Self::Set { charset, .. } => {
                charset.get_or_insert_with(|| charset_name(name));
            }
            Self::Plain(_) | Self::Serial => {}
        }
    }
}

/// The server's own spelling.
pub(super) fn charset_name(name: &str) -> String {
    Charset::by_name(name).map_or_else(|| name.to_ascii_lowercase(), |charset| charset.name().to_string())
}

/// The character set of a collation: its name up to the first underscore. (`uca1400_ai_ci` alone belongs to none.)
pub(in crate::source::mysql) fn charset_of_collation(collation: &str) -> Option<String> {
    let name = collation.split('_').next().unwrap_or_default();
    Charset::by_name(name).map(|charset| charset.name().to_string())
}

fn text_type(size: TextSize, charset: String) -> ColumnType {
    let bytes_a_char = Charset::by_name(&charset).map_or(4, |charset| u64::from(charset.max_bytes_per_char()));
    let kind = match size {
        TextSize::Char(length) => TextKind::Char(length),
        TextSize::VarChar(length) if u64::from(length) * bytes_a_char <= VARCHAR_BYTES_MAX => TextKind::VarChar(length),
        TextSize::VarChar(length) | TextSize::AtLeast(length) => text_kind(u64::from(length) * bytes_a_char),
        TextSize::Kind(kind) => kind,
    };
    if charset != "binary" {
        return ColumnType::Text { kind, charset };
    }
    match kind {
        TextKind::Char(length) => ColumnType::Binary { length },
        TextKind::VarChar(length) => ColumnType::Blob { kind: BlobKind::VarBinary(length) },
        other => ColumnType::Blob { kind: blob_kind(other) },
    }
}

/// A type under CONVERT TO CHARACTER SET: one of text that is counted in bytes grows, so that it holds as many characters in the
/// new set as in the old one; none ever shrinks.
pub(super) fn converted(column_type: ColumnType, charset: &str) -> ColumnType {
    let widest =
        |name: &str| Charset::by_name(name).map_or(4, |charset| u64::from(charset.max_bytes_per_char()).max(1));
    match column_type {
        // Bytes are not converted.
        binary if binary.charset() == Some("binary") => binary,
        ColumnType::Enum { members, .. } => ColumnType::Enum { members, charset: charset.to_string() },
        ColumnType::Set { members, .. } => ColumnType::Set { members, charset: charset.to_string() },
        ColumnType::Text { kind, charset: old } => {
            let bytes = match kind {
                TextKind::TinyText => 0xFF,
                TextKind::Text => 0xFFFF,
                TextKind::MediumText => 0xFF_FFFF,
                TextKind::LongText => 0xFFFF_FFFF,
                TextKind::Char(length) => return text_type(TextSize::Char(length), charset.to_string()),
                TextKind::VarChar(length) => return text_type(TextSize::VarChar(length), charset.to_string()),
            };
            let (from, to) = (widest(&old), widest(charset));
            let kind = if to > from { text_kind(bytes * to / from) } else { kind };
            text_type(TextSize::Kind(kind), charset.to_string())
        }
        other => other,
    }
}

fn text_kind(bytes: u64) -> TextKind {
    match bytes {
        0..=0xFF => TextKind::TinyText,
        0x100..=0xFFFF => TextKind::Text,
        0x1_0000..=0xFF_FFFF => TextKind::MediumText,
        _ => TextKind::LongText,
    }
}

fn blob_kind(kind: TextKind) -> BlobKind {
    match kind {
        TextKind::TinyText => BlobKind::TinyBlob,
        TextKind::MediumText => BlobKind::MediumBlob,
        TextKind::LongText => BlobKind::LongBlob,
        TextKind::Char(_) | TextKind::VarChar(_) | TextKind::Text => BlobKind::Blob,
    }
}

/// What a type means that the two servers, or modes of them, read in different ways.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dialect {
    pub(super) mariadb: bool,
    pub(super) real_as_float: bool,
}

/// Reads a data type and its own attributes (UNSIGNED, CHARACTER SET, ...). `None` if it is no type that is known.
pub(super) fn read(cursor: &mut Cursor<'_, '_>, dialect: Dialect) -> Option<DataType> {
    let name = cursor.name()?.to_ascii_lowercase();
    let mut data_type = numeric(&name, cursor, dialect)
        .or_else(|| temporal(&name, cursor).map(DataType::Plain))
        .or_else(|| text(&name, cursor, dialect))
        .or_else(|| binary(&name, cursor, dialect).map(DataType::Plain))
        .or_else(|| special(&name, cursor, dialect))?;
    attributes(cursor, &mut data_type);
    Some(data_type)
}

fn numeric(name: &str, cursor: &mut Cursor<'_, '_>, dialect: Dialect) -> Option<DataType> {
    let make: fn(bool) -> ColumnType = match name {
        "tinyint" | "int1" | "bool" | "boolean" => |unsigned| ColumnType::TinyInt { unsigned },
        "smallint" | "int2" => |unsigned| ColumnType::SmallInt { unsigned },
        "mediumint" | "int3" | "middleint" => |unsigned| ColumnType::MediumInt { unsigned },
        "int" | "integer" | "int4" => |unsigned| ColumnType::Int { unsigned },
        "bigint" | "int8" => |unsigned| ColumnType::BigInt { unsigned },
        _ => return other_numeric(name, cursor, dialect),
    };
    numbers(cursor)?;
    Some(DataType::Plain(make(unsigned(cursor))))
}

fn other_numeric(name: &str, cursor: &mut Cursor<'_, '_>, dialect: Dialect) -> Option<DataType> {
    let float = match name {
        "decimal" | "dec" | "numeric" | "fixed" => return decimal(cursor).map(DataType::Plain),
        "serial" => return Some(DataType::Serial),
        "bit" => {
            let bits = u8::try_from(numbers(cursor)?.first().copied().unwrap_or(1)).ok()?;
            return (1..=64).contains(&bits).then_some(DataType::Plain(ColumnType::Bit { bits }));
        }
        "float" | "float4" => true,
        "real" => dialect.real_as_float,
        "double" | "float8" => {
            cursor.skip(&["precision"]);
            false
        }
        _ => return None,
    };
    /// FLOAT(p) with more bits than this is a DOUBLE.
    const FLOAT_BITS_MAX: u32 = 24;
    let numbers = numbers(cursor)?;
    unsigned(cursor);
    let float = float && !matches!(numbers.as_slice(), [bits] if *bits > FLOAT_BITS_MAX);
    Some(DataType::Plain(if float { ColumnType::Float } else { ColumnType::Double }))
}

fn decimal(cursor: &mut Cursor<'_, '_>) -> Option<ColumnType> {
    let numbers = numbers(cursor)?;
    let precision = numbers.first().copied().filter(|precision| *precision > 0).unwrap_or(10);
    let scale = numbers.get(1).copied().unwrap_or(0);
    if precision > 65 || scale > 30 || scale > precision {
        return None;
    }
    let (precision, scale) = (u8::try_from(precision).ok()?, u8::try_from(scale).ok()?);
    Some(ColumnType::Decimal { precision, scale, unsigned: unsigned(cursor) })
}

fn temporal(name: &str, cursor: &mut Cursor<'_, '_>) -> Option<ColumnType> {
    if !matches!(name, "year" | "date" | "datetime" | "timestamp" | "time") {
        return None;
    }
    let digits = u8::try_from(numbers(cursor)?.first().copied().unwrap_or(0)).ok()?;
    match name {
        "year" => {
            unsigned(cursor);
            Some(ColumnType::Year)
        }
        "date" => Some(ColumnType::Date),
        _ if digits > 6 => None,
        "datetime" => Some(ColumnType::DateTime { digits }),
        "timestamp" => Some(ColumnType::Timestamp { digits }),
        _ => Some(ColumnType::Time { digits }),
    }
}

fn text(name: &str, cursor: &mut Cursor<'_, '_>, dialect: Dialect) -> Option<DataType> {
    let mut charset = None;
    let mut varying = false;
    let size = match name {
        "national" => {
            charset = Some("utf8mb3".to_string());
            varying = cursor.skip_any(&["varchar", "varcharacter"]);
            if !varying && !cursor.skip_any(&["char", "character"]) {
                return None;
            }
            length(cursor, varying)?
        }
        "nchar" => {
            charset = Some("utf8mb3".to_string());
            varying = cursor.skip(&["varchar"]) || cursor.skip(&["varcharacter"]);
            length(cursor, varying)?
        }
        "nvarchar" => {
            charset = Some("utf8mb3".to_string());
            length(cursor, true)?
        }
        "char" | "character" => length(cursor, varying)?,
        "varchar" | "varcharacter" | "varchar2" => length(cursor, true)?,
        "tinytext" => TextSize::Kind(TextKind::TinyText),
        "mediumtext" => TextSize::Kind(TextKind::MediumText),
        "longtext" => TextSize::Kind(TextKind::LongText),
        "text" => match numbers(cursor)?.first() {
            Some(length) if has_length(*length, dialect) => TextSize::AtLeast(*length),
            _ => TextSize::Kind(TextKind::Text),
        },
        "long" if !cursor.sees(&["varbinary"]) => {
            let _ = cursor.skip_any(&["varchar", "varcharacter"]) || cursor.skip(&["char", "varying"]);
            TextSize::Kind(TextKind::MediumText)
        }
        _ => return None,
    };
    Some(DataType::Text { size, charset })
}

/// TEXT(0) is the smallest kind on MySQL, and plain TEXT on MariaDB; the same for BLOB.
fn has_length(length: u32, dialect: Dialect) -> bool {
    length > 0 || !dialect.mariadb
}

/// The rest of CHAR or VARCHAR, of which VARYING may still make the latter.
fn length(cursor: &mut Cursor<'_, '_>, varying: bool) -> Option<TextSize> {
    let varying = cursor.skip(&["varying"]) || varying;
    let length = numbers(cursor)?.first().copied();
    Some(if varying { TextSize::VarChar(length?) } else { TextSize::Char(length.unwrap_or(1)) })
}

fn binary(name: &str, cursor: &mut Cursor<'_, '_>, dialect: Dialect) -> Option<ColumnType> {
    let kind = match name {
        "binary" => return Some(ColumnType::Binary { length: numbers(cursor)?.first().copied().unwrap_or(1) }),
        "varbinary" => match numbers(cursor)?.first().copied()? {
            length if u64::from(length) <= VARCHAR_BYTES_MAX => BlobKind::VarBinary(length),
            length => blob_kind(text_kind(length.into())),
        },
        "tinyblob" => BlobKind::TinyBlob,
        "mediumblob" => BlobKind::MediumBlob,
        "longblob" => BlobKind::LongBlob,
        "blob" => match numbers(cursor)?.first() {
            Some(length) if has_length(*length, dialect) => blob_kind(text_kind((*length).into())),
            _ => BlobKind::Blob,
        },
        "long" if cursor.skip(&["varbinary"]) => BlobKind::MediumBlob,
        _ => return None,
    };
    Some(ColumnType::Blob { kind })
}

fn special(name: &str, cursor: &mut Cursor<'_, '_>, dialect: Dialect) -> Option<DataType> {
    /// What VECTOR without a number has on MySQL.
    const DIMENSIONS: u32 = 2048;
    Some(DataType::Plain(match name {
        "enum" => return members(cursor).map(|members| DataType::Enum { members, charset: None }),
        "set" => return members(cursor).map(|members| DataType::Set { members, charset: None }),
        "json" if dialect.mariadb => {
            let size = TextSize::Kind(TextKind::LongText);
            return Some(DataType::Text { size, charset: Some("utf8mb4".to_string()) });
        }
        "json" => ColumnType::Json,
        "vector" => ColumnType::Vector { dimensions: numbers(cursor)?.first().copied().unwrap_or(DIMENSIONS) },
        "inet4" if dialect.mariadb => ColumnType::Inet4,
        "inet6" if dialect.mariadb => ColumnType::Inet6,
        "uuid" if dialect.mariadb => ColumnType::Uuid,
        "geometrycollection" | "geomcollection" if !dialect.mariadb => {
            ColumnType::Geometry { kind: "geomcollection".to_string() }
        }
        name if GEOMETRIES.contains(&name) => ColumnType::Geometry { kind: name.to_string() },
        _ => return None,
    }))
}

/// The numbers in parentheses; none if there are no parentheses, `None` if there is something else in them.
fn numbers(cursor: &mut Cursor<'_, '_>) -> Option<Vec<u32>> {
    let Some(mut inside) = cursor.parenthesized() else { return Some(Vec::new()) };
    let mut numbers = Vec::new();
    while let Some(mut item) = inside.item() {
        numbers.push(item.number()?);
    }
    Some(numbers)
}

/// Trailing spaces are not part of a member ("The ENUM Type" in the manual).
fn members(cursor: &mut Cursor<'_, '_>) -> Option<Vec<String>> {
    let mut inside = cursor.parenthesized()?;
    let mut members = Vec::new();
    while let Some(mut item) = inside.item() {
        let member = member(&mut item)?;
        members.push(member.trim_end_matches(' ').to_string());
    }
    Some(members)
}

/// A string, or one that a character set (`_utf8mb4'x'`, `N'x'`) or a base (`x'C3A4'`) stands before.
fn member(item: &mut Cursor<'_, '_>) -> Option<String> {
    match item.next()? {
        Token::Text(text) => Some(text.clone()),
        Token::Word(prefix) if prefix.starts_with('_') || prefix.eq_ignore_ascii_case("n") => match item.next()? {
            Token::Text(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}

/// ZEROFILL makes a number unsigned.
fn unsigned(cursor: &mut Cursor<'_, '_>) -> bool {
    let mut unsigned = false;
    loop {
        if cursor.skip_any(&["unsigned", "zerofill"]) {
            unsigned = true;
        } else if !cursor.skip(&["signed"]) {
            return unsigned;
        }
    }
}

fn attributes(cursor: &mut Cursor<'_, '_>, data_type: &mut DataType) {
    loop {
        if cursor.skip(&["byte"]) {
            data_type.set_charset("binary");
        } else if cursor.skip(&["ascii"]) {
            data_type.set_charset("latin1");
        } else if cursor.skip(&["unicode"]) {
            data_type.set_charset("ucs2");
        } else if let Some(name) = charset(cursor) {
            data_type.set_charset(&name);
        } else if !cursor.skip(&["binary"]) {
            // BINARY after a text type only picks the collation.
            return;
        }
    }
}

/// A CHARACTER SET clause in any of its spellings.
pub(super) fn charset(cursor: &mut Cursor<'_, '_>) -> Option<String> {
    let found = cursor.skip(&["character", "set"]) || cursor.skip(&["char", "set"]) || cursor.skip(&["charset"]);
    if !found {
        return None;
    }
    cursor.skip_symbol('=');
    cursor.name_or_text()
}
