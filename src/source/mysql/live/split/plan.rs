//! Where a split should end, found without reading the table's rows.
//!
//! A key of one whole number is cut by arithmetic: the server tells the least key that is left, and guesses from its index
//! how many rows lie in a range. Gaps cost nothing, and where keys lie dense the step becomes short. Any other key
//! is cut by the server walking so many entries of the key's index on: in its own order, whatever that is.

use mysql_async::prelude::Queryable;
use mysql_async::{Row, Value};

use super::key::Key;
use super::{column_types, failure_of, from, table_name};
use crate::schema::TableSchema;
use crate::source::mysql::binlog::Flavor;
use crate::source::mysql::column_type::ColumnType;
use crate::source::mysql::live::connection::Session;
use crate::source::{KeyRange, SourceError, SplitKey};

/// Guesses that one cut may cost. Each brings it nearer by what the guess before was off.
const GUESSES_MAX: usize = 16;

/// How far off a guess may be: it is one, and splits need not be equal.
const GUESS_FACTOR: i128 = 2;

/// The key at which a split of about `rows` rows after `range.after` should end; `None` where it is the last.
pub(in crate::source::mysql::live) async fn next_cut(
    session: &mut Session,
    schema: &TableSchema,
    range: &KeyRange,
    rows: usize,
) -> Result<Option<SplitKey>, SourceError> {
    // How a condition's rows lie is not known; walking to the next of them would read all others.
    if range.condition.is_some() {
        return Ok(None);
    }
    let types = column_types(schema)?;
    let key = Key::of(schema, &types);
    let is_number = schema.key.first().and_then(|index| types.get(*index)).is_some_and(is_whole_number);
    match key.single().filter(|_| is_number) {
        Some(column) => {
            let after = range.after.as_ref().map(|after| key.after(after)).transpose()?;
            let numbers = Numbers { table: table_name(schema), column: column.to_string() };
            let cut = numbers.next_cut(session, after, i128::try_from(rows).unwrap_or(i128::MAX)).await?;
            Ok(cut.map(Key::of_number))
        }
        None => walk(session, schema, &key, range, rows).await,
    }
}

fn is_whole_number(kind: &ColumnType) -> bool {
    matches!(
        kind,
        ColumnType::TinyInt { .. }
            | ColumnType::SmallInt { .. }
            | ColumnType::MediumInt { .. }
            | ColumnType::Int { .. }
            | ColumnType::BigInt { .. }
    )
}

/// Walks the key's index on.
async fn walk(
    session: &mut Session,
    schema: &TableSchema,
    key: &Key,
    range: &KeyRange,
    rows: usize,
) -> Result<Option<SplitKey>, SourceError> {
    let rest = from(schema, key, range)?;
    let sql = format!("SELECT {} {rest} LIMIT 1 OFFSET {}", key.columns(), rows.saturating_sub(1));
    let row: Option<Row> =
        session.conn.exec_first(sql, ()).await.map_err(|error| failure_of(&session.endpoint, &schema.table, error))?;
    let Some(row) = row else { return Ok(None) };
    let values: Vec<Value> = row.unwrap_raw().into_iter().map(|value| value.unwrap_or(Value::NULL)).collect();
    key.of_columns(&values).map(Some)
}

/// A key of one whole number.
struct Numbers {
    /// Quoted names.
    table: String,
    column: String,
}

impl Numbers {
    /// `after` is a condition.
    async fn next_cut(
        &self,
        session: &mut Session,
        after: Option<String>,
        rows: i128,
    ) -> Result<Option<i128>, SourceError> {
        let Some((first, last)) = self.ends(session, after).await? else { return Ok(None) };
        let all = self.guess(session, first, last).await?;
        let mut step = step(last - first + 1, rows, all);
        for _ in 0..GUESSES_MAX {
            let cut = first + step - 1;
            if cut >= last {
                return Ok(None);
            }
            let found = self.guess(session, first, cut).await?;
            let is_near = found <= rows * GUESS_FACTOR && found * GUESS_FACTOR >= rows;
            if is_near || (found > rows && step == 1) {
                break;
            }
            // Towards more rows not too fast: a guess of nearly none says little about what follows.
            step = self::step(step, rows, found).min(step.saturating_mul(16));
        }
        Ok(Some(first + step - 1).filter(|cut| *cut < last))
    }

    /// The least and the greatest key that is left; the server looks into the index alone.
    async fn ends(&self, session: &mut Session, after: Option<String>) -> Result<Option<(i128, i128)>, SourceError> {
        let condition = after.map(|after| format!(" WHERE {after}")).unwrap_or_default();
        let sql = format!("SELECT MIN({0}), MAX({0}) FROM {1}{condition}", self.column, self.table);
        let row = session.rows(&sql).await?.into_iter().next().unwrap_or_default();
        let number = |index: usize| row.get(index)?.as_deref()?.parse::<i128>().ok();
        Ok(number(0).zip(number(1)))
    }

    /// How many rows the server believes to be in a range of keys.
    async fn guess(&self, session: &mut Session, first: i128, last: i128) -> Result<i128, SourceError> {
        // MySQL's plain form may be another than a table; MariaDB knows no name for it.
        let (format, column) = match session.flavor {
            Flavor::MySql => ("FORMAT = TRADITIONAL ", 9),
            Flavor::MariaDb => ("", 8),
        };
        let (name, table) = (&self.column, &self.table);
        let sql = format!("EXPLAIN {format}SELECT {name} FROM {table} WHERE {name} >= {first} AND {name} <= {last}");
        let row = session.rows(&sql).await?.into_iter().next().unwrap_or_default();
        Ok(row.get(column).and_then(|rows| rows.as_deref()?.parse().ok()).unwrap_or(0))
    }
}

/// The width of a range with `wanted` rows, where one of `width` has `found`.
fn step(width: i128, wanted: i128, found: i128) -> i128 {
    (width.saturating_mul(wanted) / found.max(1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn a_step_is_as_wide_as_the_rows_lie_far_apart() {
        assert_eq!(step(1_000_000, 100, 10_000), 10_000);
        assert_eq!(step(10, 100, 10_000), 1);
        assert_eq!(step(100, 100, 0), 10_000);
        assert_eq!(step(i128::from(u64::MAX), 1_000_000, 1), i128::from(u64::MAX) * 1_000_000);
    }
}
