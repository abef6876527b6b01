//! Reads a table of a server into canonical text.

use mysql_async::Conn;

use super::content::Content;
use super::server::{Flavor, query_text};

/// The end of the log, `file:offset`.
pub async fn server_position(connection: &mut Conn, flavor: Flavor) -> String {
    let rows = query_text(connection, flavor.log_status()).await;
    let row = &rows[0];
    format!("{}:{}", row[0].as_deref().unwrap(), row[1].as_deref().unwrap())
}

/// All rows of `database.table` as the server has them now.
pub async fn source_content(connection: &mut Conn, database: &str, table: &str) -> Content {
    let catalogue = format!(
        "SELECT CAST(column_name AS CHAR), CAST(data_type AS CHAR), CAST(column_type AS CHAR) \
         FROM information_schema.columns WHERE table_schema = '{database}' AND table_name = '{table}' ORDER BY ordinal_position"
    );
    let columns: Vec<SourceColumn> =
        query_text(connection, &catalogue).await.into_iter().map(SourceColumn::new).collect();
    assert!(!columns.is_empty(), "{database}.{table} is not there");
    let keys = format!(
        "SELECT CAST(column_name AS CHAR) FROM information_schema.statistics WHERE table_schema = '{database}' \
         AND table_name = '{table}' AND index_name = 'PRIMARY' ORDER BY seq_in_index"
    );
    let key: Vec<String> = query_text(connection, &keys).await.into_iter().map(|row| row[0].clone().unwrap()).collect();
    let expressions: Vec<String> = columns.iter().map(SourceColumn::expression).collect();
    let select = format!("SELECT {} FROM `{database}`.`{table}`", expressions.join(", "));
    let rows = query_text(connection, &select).await.into_iter().map(|row| {
        row.into_iter().zip(&columns).map(|(value, column)| value.and_then(|value| column.canonical(value))).collect()
    });
    let names = columns.iter().map(|column| column.name.clone()).collect();
    Content::new(&format!("{database}.{table} on the server"), names, &key, rows.collect())
}

struct SourceColumn {
    name: String,
    kind: Kind,
}

/// How a value is asked for and made canonical.
#[derive(Clone, Copy)]
enum Kind {
    /// As printed.
    Plain,
    /// As a whole number.
    Unsigned,
    Float,
    Date,
    DateTime,
    Time,
    Binary,
    Geometry,
}

impl SourceColumn {
    fn new(row: Vec<Option<String>>) -> Self {
        let mut row = row.into_iter().flatten();
        let (name, data_type, _) = (row.next().unwrap(), row.next().unwrap(), row.next().unwrap());
        let kind = match data_type.to_lowercase().as_str() {
            "bit" | "year" => Kind::Unsigned,
            "float" | "double" => Kind::Float,
            "date" => Kind::Date,
            "datetime" | "timestamp" => Kind::DateTime,
            "time" => Kind::Time,
            "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "vector" => Kind::Binary,
            "geometry" | "point" | "linestring" | "polygon" | "multipoint" | "multilinestring" | "multipolygon"
            | "geometrycollection" | "geomcollection" => Kind::Geometry,
            _ => Kind::Plain,
        };
        Self { name, kind }
    }

    fn expression(&self) -> String {
        let name = format!("`{}`", self.name);
        match self.kind {
            Kind::Unsigned => format!("CAST({name} AS UNSIGNED)"),
            // A FLOAT is printed with six digits only; as a DOUBLE it is exact.
            Kind::Float => format!("CAST({name} AS DOUBLE)"),
            Kind::Binary | Kind::Geometry => format!("HEX({name})"),
            _ => name,
        }
    }

    /// The canonical text; `None` for a value that has no equal in a lake (a zero date).
    fn canonical(&self, text: String) -> Option<String> {
        match self.kind {
            Kind::Plain | Kind::Unsigned | Kind::Binary => Some(text),
            Kind::Float => Some(format!("{:?}", text.parse::<f64>().unwrap())),
            Kind::Date => (!has_zero_part(&text)).then_some(text),
            Kind::DateTime => (!has_zero_part(&text)).then(|| with_microseconds(&text)),
            Kind::Time => Some(time_us(&text).to_string()),
            // The server puts four bytes of SRID before the well-known binary.
            Kind::Geometry => Some(text[8..].to_string()),
        }
    }
}

fn has_zero_part(date: &str) -> bool {
    &date[5..7] == "00" || &date[8..10] == "00"
}

fn with_microseconds(text: &str) -> String {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}.{fraction:0<6}")
}

/// `-838:59:59.000000` as microseconds.
fn time_us(text: &str) -> i64 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let seconds = whole.split(':').fold(0, |sum, part| sum * 60 + part.parse::<i64>().unwrap());
    sign * (seconds * 1_000_000 + format!("{fraction:0<6}").parse::<i64>().unwrap())
}
