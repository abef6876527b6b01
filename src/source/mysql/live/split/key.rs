//! Where a split ends: the key of its last row as SQL literals, and the condition for the rows after it.
//!
//! The server decides the order, so a literal must compare just as the row's own value does: a text goes back
//! in the column's own bytes and character set, ENUM and SET as the numbers that they are sorted by.

use mysql_async::Value;

use super::super::connection::{bytes_literal, identifier, text_literal};
use crate::change::RowKey;
use crate::schema::TableSchema;
use crate::source::mysql::charset::Charset;
use crate::source::mysql::column_type::ColumnType;
use crate::source::{SourceError, SourceErrorKind, SplitKey};

/// The key columns of a table, in key order.
pub(super) struct Key {
    parts: Vec<Part>,
}

struct Part {
    /// The quoted column.
    name: String,
    /// What is compared, in SQL; the column itself unless its order is another's.
    compared: String,
    /// Where in the selected row its value stands.
    index: usize,
    /// An expression that is selected beside the columns, as `index` says.
    extra: Option<String>,
    literal: Literal,
    kind: ColumnType,
}

/// How a value is written.
enum Literal {
    Number,
    Quoted,
    Binary,
    Utf8,
    Charset(String),
    Bits,
}

impl Key {
    pub fn of(schema: &TableSchema, types: &[ColumnType]) -> Self {
        let mut extras = schema.columns.len();
        let key = schema.key.iter().filter_map(|index| Some((index, schema.columns.get(*index)?, types.get(*index)?)));
        let parts = key.map(|(index, column, kind)| {
            let mut part = Part::of(&column.name, *index, kind);
            if part.extra.is_some() {
                part.index = extras;
                extras += 1;
            }
            part
        });
        Self { parts: parts.collect() }
    }

    /// Expressions to be selected after the columns.
    pub fn extra_columns(&self) -> impl Iterator<Item = String> + '_ {
        self.parts.iter().filter_map(|part| part.extra.clone())
    }

    pub fn order_by(&self) -> String {
        let names: Vec<&str> = self.parts.iter().map(|part| part.name.as_str()).collect();
        names.join(", ")
    }

    /// What is selected to get a key alone.
    pub fn columns(&self) -> String {
        let columns: Vec<&str> =
            self.parts.iter().map(|part| part.extra.as_deref().unwrap_or(part.name.as_str())).collect();
        columns.join(", ")
    }

    /// The quoted column of a key of one.
    pub fn single(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [part] => Some(&part.name),
            _ => None,
        }
    }

    /// The key of a selected row.
    pub fn of_row(&self, values: &[Value]) -> Result<SplitKey, SourceError> {
        self.of_values(self.parts.iter().map(|part| values.get(part.index)))
    }

    /// The key of a row of [`Self::columns`].
    pub fn of_columns(&self, values: &[Value]) -> Result<SplitKey, SourceError> {
        self.of_values((0..self.parts.len()).map(|index| values.get(index)))
    }

    /// The literals of a key whose literals are numbers.
    pub fn of_number(number: i128) -> SplitKey {
        SplitKey(format!("[\"{number}\"]"))
    }

    /// A JSON list of SQL literals.
    fn of_values<'a>(&self, values: impl Iterator<Item = Option<&'a Value>>) -> Result<SplitKey, SourceError> {
        let literal = |(part, value): (&Part, Option<&Value>)| value.and_then(|value| part.literal.of(value));
        let literals: Option<Vec<String>> = self.parts.iter().zip(values).map(literal).collect();
        let text = literals.and_then(|literals| serde_json::to_string(&literals).ok());
        text.map(SplitKey).ok_or_else(|| {
            SourceError::new(
                SourceErrorKind::Corrupt,
                format!("a key ({}) has a value of no usable kind", self.order_by()),
            )
        })
    }

    /// The condition for the rows after a key: `a >= 1 AND (a > 1 OR (a = 1 AND (b > 2)))`.
    pub fn after(&self, key: &SplitKey) -> Result<String, SourceError> {
        self.condition(key, ">", ">")
    }

    /// The condition for the rows up to a key, included: `a <= 1 AND (a < 1 OR (a = 1 AND (b <= 2)))`.
    pub fn up_to(&self, key: &SplitKey) -> Result<String, SourceError> {
        self.condition(key, "<", "<=")
    }

    /// The condition for the rows with these keys: `(a = 1 AND b = 2) OR (a = 3 AND b = 4)`, which the servers answer from the index.
    pub fn any_of(&self, keys: &[RowKey]) -> Result<String, SourceError> {
        if keys.is_empty() {
            return Ok("1 = 0".to_string());
        }
        let one = |key: &RowKey| {
            let pairs = self.parts.iter().zip(&key.0).map(|(part, value)| part.equals(value));
            let all: Option<Vec<String>> = pairs.collect();
            all.filter(|all| all.len() == self.parts.len() && all.len() == key.0.len())
        };
        let conditions: Option<Vec<String>> =
            keys.iter().map(|key| one(key).map(|all| format!("({})", all.join(" AND ")))).collect();
        conditions.map(|conditions| conditions.join(" OR ")).ok_or_else(|| {
            let message =
                format!("rows are noted by keys that are none of ({}); load the table again", self.order_by());
            SourceError::new(SourceErrorKind::Misconfigured, message)
        })
    }

    fn condition(&self, key: &SplitKey, beyond: &str, last_beyond: &str) -> Result<String, SourceError> {
        let literals: Vec<String> = serde_json::from_str(&key.0).unwrap_or_default();
        if literals.len() != self.parts.len() || literals.is_empty() {
            let message = format!("{:?} is no key of ({}); load the table again", key.0, self.order_by());
            return Err(SourceError::new(SourceErrorKind::Misconfigured, message));
        }
        let mut pairs = self.parts.iter().map(|part| &part.compared).zip(&literals).rev();
        let last = pairs.next().map(|(name, value)| format!("{name} {last_beyond} {value}")).unwrap_or_default();
        let nested = pairs.fold(last, |inner, (name, value)| {
            // The first comparison is implied by the second; with it the server can use the key's index.
            format!("{name} {beyond}= {value} AND ({name} {beyond} {value} OR ({name} = {value} AND ({inner})))")
        });
        Ok(nested)
    }
}

impl Part {
    fn of(column: &str, index: usize, kind: &ColumnType) -> Self {
        let name = identifier(column);
        let (mut compared, mut extra) = (name.clone(), None);
        let literal = match kind {
            ColumnType::Text { charset, .. } if is_utf8(charset) => Literal::Utf8,
            ColumnType::Text { charset, .. } => {
                extra = Some(format!("CAST({name} AS BINARY)"));
                Literal::Charset(charset.clone())
            }
            ColumnType::Enum { .. } | ColumnType::Set { .. } => {
                compared = format!("CAST({name} AS UNSIGNED)");
                extra = Some(compared.clone());
                Literal::Number
            }
            ColumnType::Binary { .. } | ColumnType::Blob { .. } => Literal::Binary,
            ColumnType::Bit { .. } => Literal::Bits,
            ColumnType::TinyInt { .. }
            | ColumnType::SmallInt { .. }
            | ColumnType::MediumInt { .. }
            | ColumnType::Int { .. }
            | ColumnType::BigInt { .. }
            | ColumnType::Decimal { .. }
            | ColumnType::Year => Literal::Number,
            // Dates, times, addresses and uuids; the rest is never part of a key.
            _ => Literal::Quoted,
        };
        Self { name, compared, index, extra, literal, kind: kind.clone() }
    }

    /// `a = 1` for a value as [`RowKey`] has it. The column's own collation compares, whatever the literal's character set is.
    fn equals(&self, value: &str) -> Option<String> {
        let literal = match (&self.kind, &self.literal) {
            (ColumnType::Enum { .. } | ColumnType::Set { .. }, _) | (_, Literal::Utf8 | Literal::Charset(_)) => {
                text_literal(value)
            }
            (_, Literal::Binary) => hex_literal(value)?,
            (_, Literal::Bits) => bit_text(value)?,
            (_, Literal::Number) => number_text(value.as_bytes())?,
            (ColumnType::Time { .. }, _) => text_literal(&time_text(value.parse().ok()?)),
            (ColumnType::DateTime { .. } | ColumnType::Timestamp { .. }, _) => {
                text_literal(&value.trim_end_matches('Z').replace('T', " "))
            }
            (_, Literal::Quoted) => text_literal(value),
        };
        Some(format!("{} = {literal}", self.name))
    }
}

/// Whether the values come over the connection, which speaks utf8mb4, as they are stored.
fn is_utf8(charset: &str) -> bool {
    Charset::by_name(charset).is_some_and(|charset| charset.is_utf8_compatible())
}

impl Literal {
    /// `None` for a value that such a column cannot have.
    fn of(&self, value: &Value) -> Option<String> {
        match (self, value) {
            (_, Value::NULL) => None,
            (Self::Binary, Value::Bytes(bytes)) => Some(bytes_literal(bytes)),
            (Self::Utf8, Value::Bytes(bytes)) => Some(text_literal(std::str::from_utf8(bytes).ok()?)),
            (Self::Charset(name), Value::Bytes(bytes)) => Some(format!("_{name} {}", bytes_literal(bytes))),
            (Self::Bits, Value::Bytes(bytes)) if bytes.len() <= 8 => {
                Some(bytes.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte)).to_string())
            }
            (Self::Number, Value::Int(number)) => Some(number.to_string()),
            (Self::Number, Value::UInt(number)) => Some(number.to_string()),
            (Self::Number, Value::Bytes(bytes)) => number_text(bytes),
            (Self::Quoted, Value::Date(..) | Value::Time(..)) => Some(value.as_sql(true)),
            // Addresses and uuids are plain ASCII.
            (Self::Quoted, Value::Bytes(bytes)) => Some(text_literal(std::str::from_utf8(bytes).ok()?)),
            _ => None,
        }
    }
}

/// A binary string from its hexadecimal digits.
fn hex_literal(digits: &str) -> Option<String> {
    let is_hex = digits.len().is_multiple_of(2) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| format!("X'{digits}'"))
}

/// A BIT of one digit is a boolean in the lake.
fn bit_text(value: &str) -> Option<String> {
    match value {
        "true" => Some("1".to_string()),
        "false" => Some("0".to_string()),
        number => number_text(number.as_bytes()),
    }
}

/// A TIME from its microseconds.
fn time_text(us: i64) -> String {
    let (sign, us) = (if us < 0 { "-" } else { "" }, us.unsigned_abs());
    let (seconds, fraction) = (us / 1_000_000, us % 1_000_000);
    format!("{sign}{:03}:{:02}:{:02}.{fraction:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn number_text(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'.')).then(|| text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::TableId;

    fn key(columns: &[(&str, &str)]) -> Key {
        let types: Vec<ColumnType> = columns.iter().map(|(_, kind)| kind.parse().unwrap()).collect();
        let schema = TableSchema::new(
            TableId::new("shop", "orders"),
            columns.iter().zip(&types).map(|((name, _), kind)| kind.column(*name, false)).collect(),
            (0..columns.len()).collect(),
        );
        Key::of(&schema, &types)
    }

    fn check(columns: &[(&str, &str)], values: &[Value], expected: &str) {
        let key = key(columns);
        let split = key.of_row(values).unwrap();
        assert_eq!(key.after(&split).unwrap(), expected);
    }

    #[test]
    fn a_key_of_one_column_is_compared_as_it_is() {
        check(&[("id", "bigint")], &[Value::Int(-5)], "`id` > -5");
        check(&[("d", "decimal(10,2)")], &[Value::Bytes(b"-1.50".to_vec())], "`d` > -1.50");
        check(&[("b", "binary(2)")], &[Value::Bytes(vec![0, 255])], "`b` > X'00FF'");
        check(&[("v", "varchar(3) character set utf8mb4")], &[Value::Bytes(b"a'".to_vec())], "`v` > _utf8mb4 X'6127'");
        check(&[("b", "bit(12)")], &[Value::Bytes(vec![1, 2])], "`b` > 258");
        check(&[("t", "time(6)")], &[Value::Time(true, 1, 2, 3, 4, 5)], "`t` > '-026:03:04.000005'");
        check(&[("t", "datetime")], &[Value::Date(2024, 2, 29, 1, 2, 3, 0)], "`t` > '2024-02-29 01:02:03'");
    }

    #[test]
    fn values_that_the_server_orders_otherwise_are_compared_by_that_order() {
        let columns = [("e", "enum('b','a') character set latin1"), ("v", "varchar(3) character set sjis")];
        let text = Value::Bytes(b"x".to_vec());
        let values = [text.clone(), text, Value::UInt(2), Value::Bytes(vec![0x81, 0x40])];
        let number = "CAST(`e` AS UNSIGNED)";
        let expected = format!("{number} >= 2 AND ({number} > 2 OR ({number} = 2 AND (`v` > _sjis X'8140')))");
        check(&columns, &values, &expected);
        assert_eq!(key(&columns).extra_columns().collect::<Vec<_>>(), [number, "CAST(`v` AS BINARY)"]);
    }

    #[test]
    fn a_key_of_three_columns_nests_from_the_last() {
        let columns = [("a", "int"), ("b", "int"), ("c", "int")];
        let expected = "`a` >= 1 AND (`a` > 1 OR (`a` = 1 AND (`b` >= 2 AND (`b` > 2 OR (`b` = 2 AND (`c` > 3))))))";
        check(&columns, &[Value::Int(1), Value::Int(2), Value::Int(3)], expected);
    }

    #[test]
    fn an_upper_end_is_included() {
        let key = key(&[("a", "int"), ("b", "int")]);
        let end = key.of_columns(&[Value::Int(1), Value::Int(2)]).unwrap();
        assert_eq!(key.up_to(&end).unwrap(), "`a` <= 1 AND (`a` < 1 OR (`a` = 1 AND (`b` <= 2)))");
        assert_eq!(Key::of_number(-7), SplitKey("[\"-7\"]".into()));
    }

    #[test]
    fn rows_are_chosen_by_their_keys() {
        let check = |kind: &str, value: &str, expected: &str| {
            let condition = key(&[("k", kind)]).any_of(&[RowKey(vec![value.to_string()])]).unwrap();
            assert_eq!(condition, format!("(`k` = {expected})"), "{kind}");
        };
        check("bigint", "-5", "-5");
        check("decimal(10,2)", "-1.50", "-1.50");
        check("binary(2)", "00ff", "X'00ff'");
        check("varchar(3) character set utf8mb4", "a'", "_utf8mb4 X'6127'");
        check("varchar(3) character set sjis", "\u{3042}", "_utf8mb4 X'E38182'");
        check("enum('a','b') character set latin1", "b", "_utf8mb4 X'62'");
        check("bit(1)", "true", "1");
        check("bit(12)", "258", "258");
        check("year", "2024", "2024");
        check("date", "2024-02-29", &text_literal("2024-02-29"));
        check("datetime(6)", "2024-02-29T01:02:03.500", &text_literal("2024-02-29 01:02:03.500"));
        check("timestamp", "2024-02-29T01:02:03Z", &text_literal("2024-02-29 01:02:03"));
        check("time(6)", "-3020399000001", &text_literal("-838:59:59.000001"));
        let two = key(&[("a", "int"), ("b", "int")]);
        let keys = ["1", "3"].map(|a| RowKey(vec![a.to_string(), "2".to_string()]));
        assert_eq!(two.any_of(&keys).unwrap(), "(`a` = 1 AND `b` = 2) OR (`a` = 3 AND `b` = 2)");
        assert_eq!(two.any_of(&[]).unwrap(), "1 = 0");
        assert!(two.any_of(&[RowKey(vec!["1".to_string()])]).is_err());
        assert!(key(&[("a", "int")]).any_of(&[RowKey(vec!["1 OR 1".to_string()])]).is_err());
        assert!(key(&[("a", "binary(1)")]).any_of(&[RowKey(vec!["0'".to_string()])]).is_err());
    }

    #[test]
    fn a_split_key_of_another_table_is_refused() {
        assert!(key(&[("a", "int")]).after(&SplitKey("[\"1\",\"2\"]".into())).is_err());
        assert!(key(&[("a", "int")]).after(&SplitKey("1; DROP".into())).is_err());
    }
}
