//! Column definitions.

use super::data_type::{self, DataType, Dialect};
use super::default::{self, Default};
use super::token::{Cursor, Token};

/// A column as CREATE TABLE or ALTER TABLE defines it.
#[derive(Debug, Clone)]
pub(super) struct ColumnDefinition {
    pub(super) name: String,
    pub(super) data_type: DataType,
    pub(super) nullable: bool,
    pub(super) default: Default,
    pub(super) primary_key: bool,
    pub(super) auto_increment: bool,
    pub(super) generated: Generated,
    /// A generated column whose values are stored.
    pub(super) stored: bool,
    pub(super) place: Option<Place>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generated {
    No,
    /// AS (expression).
    Expression,
    /// AS ROW START or END: the table is system-versioned.
    Row,
}

/// Where ALTER TABLE puts a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    First,
    After(String),
}

/// Why a definition cannot be read.
pub(super) fn unreadable(name: &str) -> String {
    format!("the definition of column {name} could not be read")
}

/// Reads a definition to its end.
///
/// # Errors
/// Which column has a type that is not known.
pub(super) fn read(cursor: &mut Cursor<'_, '_>, dialect: Dialect) -> Result<ColumnDefinition, String> {
    let name = cursor.name().ok_or("a column without a name")?;
    let data_type = data_type::read(cursor, dialect).ok_or_else(|| unreadable(&name))?;
    let serial = data_type == DataType::Serial;
    let mut column = ColumnDefinition {
        name,
        data_type,
        nullable: !serial,
        default: Default::Missing,
        primary_key: false,
        auto_increment: serial,
        generated: Generated::No,
        stored: false,
        place: None,
    };
    while !cursor.is_end() {
        column.attribute(cursor);
    }
    column.nullable &= !column.primary_key;
    Ok(column)
}

impl ColumnDefinition {
    /// Reads one attribute; those without a meaning here are stepped over.
    fn attribute(&mut self, cursor: &mut Cursor<'_, '_>) {
        if cursor.skip(&["not", "null"]) {
            self.nullable = false;
        } else if cursor.skip(&["null"]) {
            self.nullable = true;
        } else if cursor.skip(&["default"]) {
            self.default = default::read(cursor);
        } else if cursor.skip(&["serial", "default", "value"]) {
            self.auto_increment = true;
            self.nullable = false;
        } else if cursor.skip(&["auto_increment"]) {
            self.auto_increment = true;
        } else if cursor.skip(&["unique", "key"]) || cursor.skip(&["unique"]) {
            // No part of the primary key.
        } else if cursor.skip(&["primary", "key"]) || cursor.skip(&["primary"]) || cursor.skip(&["key"]) {
            self.primary_key = true;
        } else if cursor.skip(&["generated", "always", "as", "row"]) || cursor.skip(&["as", "row"]) {
            self.generated = Generated::Row;
        } else if cursor.skip(&["generated", "always", "as"]) || cursor.skip(&["as"]) {
            self.generated = Generated::Expression;
            cursor.skip_one();
        } else if cursor.skip_any(&["stored", "persistent"]) {
            self.stored = true;
        } else if cursor.skip(&["first"]) {
            self.place = Some(Place::First);
        } else if cursor.skip(&["after"]) {
            self.place = cursor.name().map(Place::After);
        } else {
            self.other_attribute(cursor);
        }
    }

    fn other_attribute(&mut self, cursor: &mut Cursor<'_, '_>) {
        if cursor.skip(&["collate"]) {
            cursor.skip_symbol('=');
            let charset = cursor.name_or_text().and_then(|name| data_type::charset_of_collation(&name));
            if let Some(charset) = charset {
                self.data_type.set_charset(&charset);
            }
        } else if let Some(charset) = data_type::charset(cursor) {
            self.data_type.set_charset(&charset);
        } else if cursor.skip(&["references"]) {
            skip_reference(cursor);
        } else if cursor.skip(&["on", "update"]) {
            // A function, with or without parentheses.
            cursor.next();
            cursor.parenthesized();
        } else if cursor.skip(&["comment"]) || cursor.skip(&["constraint"]) {
            // The name or text may look like a keyword; CONSTRAINT need not have one.
            if !cursor.sees(&["check"]) {
                cursor.skip_one();
            }
        } else {
            cursor.skip_one();
        }
    }
}

/// The rest of a foreign key, in which NULL and DEFAULT mean no attribute of the column.
fn skip_reference(cursor: &mut Cursor<'_, '_>) {
    while matches!(cursor.peek(), Some(Token::Word(_) | Token::Name(_) | Token::Symbol('.' | '('))) {
        if cursor.skip(&["on"]) {
            cursor.next();
            let _ = cursor.skip_any(&["restrict", "cascade"]) || cursor.skip(&["set", "null"]);
            let _ = cursor.skip(&["no", "action"]) || cursor.skip(&["set", "default"]);
        } else if cursor.sees(&["not"]) || cursor.sees(&["null"]) || cursor.sees(&["comment"]) {
            return;
        } else {
            cursor.skip_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::mysql::ddl::tests::read_with;

    /// The definition gives this type in a table of latin1, on MySQL.
    fn check(definition: &str, expected: &str) {
        let dialect = Dialect { mariadb: false, real_as_float: false };
        let column = read_with(definition, |cursor| read(cursor, dialect));
        let null = |column: &ColumnDefinition| if column.nullable { "" } else { " not null" };
        let made = column.map(|column| format!("{}{}", column.data_type.resolve("latin1"), null(&column)));
        assert_eq!(made.as_deref(), Ok(expected), "{definition}");
    }

    #[test]
    fn attributes_are_told_apart() {
        check("a int not null default 5 comment 'primary key'", "int not null");
        check("a int key", "int not null");
        check("a int references b (id) on delete set null on update set default not null", "int not null");
        check("a varchar(5) collate utf8mb4_bin", "varchar(5) character set utf8mb4");
        check("a char(3) charset 'koi8r' collate koi8r_bin", "char(3) character set koi8r");
        check("a timestamp(3) null default current_timestamp(3) on update current_timestamp(3)", "timestamp(3)");
        check("a int generated always as (b + 1) stored not null", "int not null");
        check("a char(2) character set binary", "binary(2)");
        check("a text(100) charset utf8mb4", "text character set utf8mb4");
        check("a text(100)", "tinytext character set latin1");
    }
}
