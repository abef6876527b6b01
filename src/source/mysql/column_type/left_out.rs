//! What a row gets in a column that the log of its insert leaves out (`binlog_row_image=MINIMAL`, `NOBLOB`): the
//! column's default, which only the table's definition tells.
//!
//! It stands behind the type in [`Column::source_type`](crate::schema::Column), after all that a type can end with:
//! ```text
//! int default null | varchar(20) character set latin1 default x'6e6577' | int computed
//! ```

use std::fmt::Write;

/// Text that Arrow casts to the column's type (a TIME in microseconds, a BIT as a number), where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOut {
    /// The definition was not seen, or its default is an expression, which the servers log.
    Unknown,
    Null,
    Value(String),
    /// MariaDB computes the column when it is read, and never logs it in a minimal image.
    Computed,
}

const NULL: &str = " default null";
const COMPUTED: &str = " computed";
const VALUE: &str = " default x'";

impl LeftOut {
    /// What stands behind the type.
    pub fn suffix(&self) -> String {
        match self {
            Self::Unknown => String::new(),
            Self::Null => NULL.to_string(),
            Self::Computed => COMPUTED.to_string(),
            Self::Value(text) => {
                let mut suffix = VALUE.to_string();
                for byte in text.bytes() {
                    let _ = write!(suffix, "{byte:02x}");
                }
                suffix.push('\'');
                suffix
            }
        }
    }
}

/// The type, and what stands behind it.
pub fn split(source_type: &str) -> (&str, LeftOut) {
    if let Some(plain) = source_type.strip_suffix(NULL) {
        return (plain, LeftOut::Null);
    }
    if let Some(plain) = source_type.strip_suffix(COMPUTED) {
        return (plain, LeftOut::Computed);
    }
    let value = source_type.strip_suffix('\'').and_then(|text| text.rsplit_once(VALUE));
    match value.and_then(|(plain, digits)| Some((plain, from_hex(digits)?))) {
        Some((plain, text)) => (plain, LeftOut::Value(text)),
        None => (source_type, LeftOut::Unknown),
    }
}

fn from_hex(digits: &str) -> Option<String> {
    let pairs = digits.as_bytes().chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
    String::from_utf8(pairs.collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_behind_a_type_is_read_back() {
        let types =
            ["int", "enum('a default null','b computed') character set latin1", "varchar(3) character set utf8mb4"];
        let values = ["", "x'", " default x'41'", "é\n"].map(|text| LeftOut::Value(text.to_string()));
        for plain in types {
            for left_out in [LeftOut::Unknown, LeftOut::Null, LeftOut::Computed].into_iter().chain(values.clone()) {
                let text = format!("{plain}{}", left_out.suffix());
                assert_eq!(split(&text), (plain, left_out), "{text}");
            }
        }
    }
}
