//! The text form of a column type: what `information_schema.columns.column_type` says, and after it the
//! character set where the type has one.
//!
//! ```text
//! bigint unsigned | decimal(10,2) | datetime(6) | varchar(20) character set latin1
//! enum('a','it''s','b\\c') character set utf8mb4
//! ```
//! Reading is tolerant of what the servers add and no value depends on (display widths, ZEROFILL, comments
//! such as `/*M!100301 COMPRESSED*/`); writing leaves those out.

use std::fmt;
use std::str::FromStr;

use super::{BlobKind, ColumnType, TextKind};

/// Why a text is not a column type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ColumnTypeError {
    #[error("{text:?} is not a column type of MySQL or MariaDB that Alluvium knows")]
    Unknown { text: String },
    #[error("column type {text:?} lacks the character set of its text (expected: {text} character set <name>)")]
    NoCharset { text: String },
    #[error("column type {text:?}: {problem}")]
    Invalid { text: String, problem: &'static str },
}

/// The servers allow 65,535 members of an ENUM (manual, "The ENUM Type").
const MEMBERS_MAX: usize = 65_535;

impl ColumnType {
    /// Reads `column_type` and `character_set_name` of `information_schema.columns`. A `None` charset stands
    /// for `binary` on ENUM and SET, as MySQL shows it.
    ///
    /// # Errors
    /// If the text is no type that Alluvium knows, or a text type comes without its charset.
    pub fn from_information_schema(column_type: &str, charset: Option<&str>) -> Result<Self, ColumnTypeError> {
        let lower = column_type.trim_start().get(..4).map(str::to_ascii_lowercase);
        let list = lower.is_some_and(|start| start == "enum" || start.starts_with("set"));
        match charset.or(list.then_some("binary")) {
            Some(charset) => format!("{column_type} character set {charset}").parse(),
            None => column_type.parse(),
        }
    }

    /// The character set of the column's values, for the types that have one.
    pub fn charset(&self) -> Option<&str> {
        match self {
            Self::Text { charset, .. } | Self::Enum { charset, .. } | Self::Set { charset, .. } => Some(charset),
            _ => None,
        }
    }
}

impl FromStr for ColumnType {
    type Err = ColumnTypeError;

    fn from_str(text: &str) -> Result<Self, ColumnTypeError> {
        let (text, _) = super::split_left_out(text);
        let parts = Parts::read(text).map_err(|problem| match problem {
            Problem::Unknown => ColumnTypeError::Unknown { text: text.to_string() },
            Problem::Invalid(problem) => ColumnTypeError::Invalid { text: text.to_string(), problem },
        })?;
        let unknown = || ColumnTypeError::Unknown { text: text.to_string() };
        if let Some(column_type) = parts.simple().or_else(|| parts.binary()) {
            return Ok(column_type);
        }
        if !matches!(parts.name.as_str(), "enum" | "set") && parts.text_kind().is_none() {
            return Err(unknown());
        }
        let no_charset = || ColumnTypeError::NoCharset { text: text.to_string() };
        let charset = parts.charset.clone().ok_or_else(no_charset)?;
        match (parts.name.as_str(), parts.text_kind()) {
            ("enum", _) => Ok(Self::Enum { members: parts.members, charset }),
            ("set", _) => Ok(Self::Set { members: parts.members, charset }),
            (_, Some(kind)) => Ok(Self::Text { kind, charset }),
            _ => Err(unknown()),
        }
    }
}

enum Problem {
    Unknown,
    Invalid(&'static str),
}

/// A column type cut into its parts, all of them checked, none of them lost.
struct Parts {
    /// In lower case.
    name: String,
    /// `10` and `2` of `decimal(10,2)`.
    numbers: Vec<u32>,
    /// Of ENUM and SET, unquoted.
    members: Vec<String>,
    unsigned: bool,
    charset: Option<String>,
}

impl Parts {
    fn read(text: &str) -> Result<Self, Problem> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
        let (name, mut rest) = text.split_at(end);
        let mut parts = Self {
            name: name.to_ascii_lowercase(),
            numbers: Vec::new(),
            members: Vec::new(),
            unsigned: false,
            charset: None,
        };
        if let Some(inside) = rest.trim_start().strip_prefix('(') {
            rest = parts.read_parameters(inside)?;
        }
        parts.read_attributes(rest)?;
        Ok(parts)
    }

    /// Reads what stands between the parentheses and returns what comes after them.
    fn read_parameters<'a>(&mut self, inside: &'a str) -> Result<&'a str, Problem> {
        let mut rest = inside;
        loop {
            rest = rest.trim_start();
            if let Some(quoted) = rest.strip_prefix('\'') {
                let (member, after) = unquote(quoted).ok_or(Problem::Invalid("a quoted member does not end"))?;
                if self.members.len() == MEMBERS_MAX {
                    return Err(Problem::Invalid("more than 65535 members"));
                }
                self.members.push(member);
                rest = after;
            } else {
                let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                let (digits, after) = rest.split_at(end);
                let number = digits.parse().map_err(|_| Problem::Invalid("expected a number in parentheses"))?;
                self.numbers.push(number);
                rest = after;
            }
            rest = rest.trim_start();
            if let Some(after) = rest.strip_prefix(')') {
                return Ok(after);
            }
            rest = rest.strip_prefix(',').ok_or(Problem::Invalid("expected , or ) in the parentheses"))?;
        }
    }

    fn read_attributes(&mut self, rest: &str) -> Result<(), Problem> {
        let rest = without_comments(rest).to_ascii_lowercase();
        let mut words = rest.split_whitespace();
        while let Some(word) = words.next() {
            match word {
                "unsigned" => self.unsigned = true,
                "zerofill" | "signed" => {}
                "character" if words.next() == Some("set") => {
                    self.charset =
                        Some(words.next().ok_or(Problem::Invalid("no name after CHARACTER SET"))?.to_string());
                }
                "collate" => {
                    words.next().ok_or(Problem::Invalid("no name after COLLATE"))?;
                }
                _ => return Err(Problem::Unknown),
            }
        }
        Ok(())
    }

    fn number(&self, default: u32) -> u32 {
        self.numbers.first().copied().unwrap_or(default)
    }

    /// The first number as a count that is at most `max`.
    fn small(&self, default: u8, max: u8) -> Option<u8> {
        u8::try_from(self.number(u32::from(default))).ok().filter(|number| *number <= max)
    }

    fn simple(&self) -> Option<ColumnType> {
        let unsigned = self.unsigned;
        Some(match self.name.as_str() {
            "tinyint" => ColumnType::TinyInt { unsigned },
            "smallint" => ColumnType::SmallInt { unsigned },
            "mediumint" => ColumnType::MediumInt { unsigned },
            "int" => ColumnType::Int { unsigned },
            "bigint" => ColumnType::BigInt { unsigned },
            "decimal" => self.decimal()?,
            "float" => ColumnType::Float,
            "double" => ColumnType::Double,
            "bit" => ColumnType::Bit { bits: self.small(1, 64).filter(|bits| *bits > 0)? },
            "year" => ColumnType::Year,
            "date" => ColumnType::Date,
            "datetime" => ColumnType::DateTime { digits: self.small(0, 6)? },
            "timestamp" => ColumnType::Timestamp { digits: self.small(0, 6)? },
            "time" => ColumnType::Time { digits: self.small(0, 6)? },
            "json" => ColumnType::Json,
            "inet4" => ColumnType::Inet4,
            "inet6" => ColumnType::Inet6,
            "uuid" => ColumnType::Uuid,
            "vector" => ColumnType::Vector { dimensions: self.numbers.first().copied()? },
            name if GEOMETRIES.contains(&name) => ColumnType::Geometry { kind: self.name.clone() },
            _ => return None,
        })
    }

    fn decimal(&self) -> Option<ColumnType> {
        let precision = self.small(10, 65).filter(|precision| *precision > 0)?;
        let scale = u8::try_from(self.numbers.get(1).copied().unwrap_or(0)).ok()?;
        (scale <= 30 && scale <= precision).then_some(ColumnType::Decimal { precision, scale, unsigned: self.unsigned })
    }

    fn binary(&self) -> Option<ColumnType> {
        let kind = match self.name.as_str() {
            "binary" => return Some(ColumnType::Binary { length: self.number(1) }),
            "varbinary" => BlobKind::VarBinary(self.numbers.first().copied()?),
            "tinyblob" => BlobKind::TinyBlob,
            "blob" => BlobKind::Blob,
            "mediumblob" => BlobKind::MediumBlob,
            "longblob" => BlobKind::LongBlob,
            _ => return None,
        };
        Some(ColumnType::Blob { kind })
    }

    fn text_kind(&self) -> Option<TextKind> {
        Some(match self.name.as_str() {
            "char" => TextKind::Char(self.number(1)),
            "varchar" => TextKind::VarChar(self.numbers.first().copied()?),
            "tinytext" => TextKind::TinyText,
            "text" => TextKind::Text,
            "mediumtext" => TextKind::MediumText,
            "longtext" => TextKind::LongText,
            _ => return None,
        })
    }
}

/// In the order of `enum geometry_type` of both servers. The last one is another name of the one before it: MySQL 8
/// and MariaDB differ in it.
pub(in crate::source::mysql) const GEOMETRIES: [&str; 9] = [
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geometrycollection",
    "geomcollection",
];

/// The text up to the closing quote, and what follows that. The servers double quotes and escape a
/// backslash, a newline, a carriage return, a zero byte and Control-Z with a backslash.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut member = String::new();
    let mut characters = quoted.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        match character {
            '\'' if characters.next_if(|(_, next)| *next == '\'').is_some() => member.push('\''),
            '\'' => return quoted.get(at + 1..).map(|rest| (member, rest)),
            '\\' => member.push(match characters.next()?.1 {
                'n' => '\n',
                'r' => '\r',
                '0' => '\0',
                'Z' => '\u{1a}',
                other => other,
            }),
            other => member.push(other),
        }
    }
    None
}

fn without_comments(text: &str) -> String {
    let mut kept = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("/*") {
        kept.push_str(before);
        kept.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    kept + rest
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TinyInt { unsigned } => integer(f, "tinyint", *unsigned),
            Self::SmallInt { unsigned } => integer(f, "smallint", *unsigned),
            Self::MediumInt { unsigned } => integer(f, "mediumint", *unsigned),
            Self::Int { unsigned } => integer(f, "int", *unsigned),
            Self::BigInt { unsigned } => integer(f, "bigint", *unsigned),
            Self::Decimal { precision, scale, unsigned } => {
                write!(f, "decimal({precision},{scale}){}", if *unsigned { " unsigned" } else { "" })
            }
            Self::Float => f.write_str("float"),
            Self::Double => f.write_str("double"),
            Self::Bit { bits } => write!(f, "bit({bits})"),
            Self::Year => f.write_str("year"),
            Self::Date => f.write_str("date"),
            Self::DateTime { digits } => temporal(f, "datetime", *digits),
            Self::Timestamp { digits } => temporal(f, "timestamp", *digits),
            Self::Time { digits } => temporal(f, "time", *digits),
            Self::Text { kind, charset } => write!(f, "{kind} character set {charset}"),
            Self::Binary { length } => write!(f, "binary({length})"),
            Self::Blob { kind } => write!(f, "{kind}"),
            Self::Enum { members, charset } => list(f, "enum", members, charset),
            Self::Set { members, charset } => list(f, "set", members, charset),
            Self::Json => f.write_str("json"),
            Self::Geometry { kind } => f.write_str(kind),
            Self::Vector { dimensions } => write!(f, "vector({dimensions})"),
            Self::Inet4 => f.write_str("inet4"),
            Self::Inet6 => f.write_str("inet6"),
            Self::Uuid => f.write_str("uuid"),
        }
    }
}

fn integer(f: &mut fmt::Formatter<'_>, name: &str, unsigned: bool) -> fmt::Result {
    write!(f, "{name}{}", if unsigned { " unsigned" } else { "" })
}

fn temporal(f: &mut fmt::Formatter<'_>, name: &str, digits: u8) -> fmt::Result {
    match digits {
        0 => f.write_str(name),
        digits => write!(f, "{name}({digits})"),
    }
}

fn list(f: &mut fmt::Formatter<'_>, name: &str, members: &[String], charset: &str) -> fmt::Result {
    write!(f, "{name}(")?;
    for (index, member) in members.iter().enumerate() {
        f.write_str(if index == 0 { "'" } else { ",'" })?;
        member.chars().try_for_each(|character| quote(f, character))?;
        f.write_str("'")?;
    }
    write!(f, ") character set {charset}")
}

fn quote(f: &mut fmt::Formatter<'_>, character: char) -> fmt::Result {
    match character {
        '\'' => f.write_str("''"),
        '\\' => f.write_str("\\\\"),
        '\n' => f.write_str("\\n"),
        '\r' => f.write_str("\\r"),
        '\0' => f.write_str("\\0"),
        other => write!(f, "{other}"),
    }
}

impl fmt::Display for TextKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Char(length) => write!(f, "char({length})"),
            Self::VarChar(length) => write!(f, "varchar({length})"),
            Self::TinyText => f.write_str("tinytext"),
            Self::Text => f.write_str("text"),
            Self::MediumText => f.write_str("mediumtext"),
            Self::LongText => f.write_str("longtext"),
        }
    }
}

impl fmt::Display for BlobKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VarBinary(length) => write!(f, "varbinary({length})"),
            Self::TinyBlob => f.write_str("tinyblob"),
            Self::Blob => f.write_str("blob"),
            Self::MediumBlob => f.write_str("mediumblob"),
            Self::LongBlob => f.write_str("longblob"),
        }
    }
}

#[cfg(test)]
mod tests;
