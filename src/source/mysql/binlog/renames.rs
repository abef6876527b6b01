//! RENAME TABLE: which table has which name afterwards.
//!
//! The renames of one statement belong together: `RENAME TABLE t TO _t_del, _t_gho TO t` is how an online schema change ends,
//! and neither half alone says so.

use std::sync::Arc;

use super::decoder::{Decoder, Failure};
use super::statement::Query;
use crate::change::TableId;
use crate::schema::{ColumnChange, TableSchema};
use crate::source::mysql::column_type::{LeftOut, split_left_out};
use crate::source::mysql::ddl;
use crate::source::{Arrival, Ending, SchemaChange};

/// Names in the order in which they were met, and the name that the table under each had before; `None` for none.
type Moves = Vec<(TableId, Option<TableId>)>;

/// Follows the renames one after the other.
fn moves(renames: &[(TableId, TableId)]) -> Moves {
    let mut moves: Moves = Vec::new();
    for (from, to) in renames {
        for name in [from, to] {
            if !moves.iter().any(|(known, _)| known == name) {
                moves.push((name.clone(), Some(name.clone())));
            }
        }
        let moved = moves.iter_mut().find(|(name, _)| name == from).and_then(|(_, held)| held.take());
        if let Some((_, held)) = moves.iter_mut().find(|(name, _)| name == to) {
            *held = moved;
        }
    }
    moves.retain(|(name, held)| held.as_ref() != Some(name));
    moves
}

impl Decoder {
    pub(super) fn rename_tables(&mut self, renames: &[(TableId, TableId)], query: &Query) -> Result<(), Failure> {
        let moves = moves(renames);
        let schema_before =
            |name: &TableId| self.known(name).filter(|known| !self.is_past(known)).filter(|_| !self.is_stopped(name));
        let before: Vec<Option<Arc<TableSchema>>> =
            moves.iter().map(|(_, held)| held.as_ref().and_then(&schema_before)).collect();
        let own: Vec<Option<Arc<TableSchema>>> = moves.iter().map(|(name, _)| schema_before(name)).collect();
        // The new names first: what is cut off between two steps is then known to have been begun.
        for (((name, held), before), own) in moves.iter().zip(before).zip(own) {
            match held {
                Some(held) if self.tables.wants(name) => self.take_name(name, held, before, own, query)?,
                Some(_) if self.tables.is_shadow(name) => self.become_shadow(name, before, query)?,
                _ => {}
            }
        }
        for (name, _) in moves.iter().filter(|(_, held)| held.is_none()) {
            let now = moves.iter().find(|(_, held)| held.as_ref() == Some(name)).map(|(name, _)| name);
            let now = now.map_or_else(|| "another name".to_string(), ToString::to_string);
            self.end_known(name, format!("it was renamed to {now}"), Ending::Gone)?;
        }
        Ok(())
    }

    fn is_stopped(&self, table: &TableId) -> bool {
        self.tables.find(table).is_some_and(|table| table.stopped)
    }

    /// A captured name stands for the table that was `held` before, whose columns were `before`. `own` are those that the name
    /// had itself.
    fn take_name(
        &mut self,
        name: &TableId,
        held: &TableId,
        before: Option<Arc<TableSchema>>,
        own: Option<Arc<TableSchema>>,
        query: &Query,
    ) -> Result<(), Failure> {
        let is_known_again = self.known(name).is_some_and(|known| self.is_followed(&known));
        if is_known_again {
            return Ok(());
        }
        let is_shadow = self.tables.is_shadow_of(held, name);
        if let (true, Some(own), Some(shadow)) = (is_shadow, &own, &before)
            && let Some(change) = self.cut_over(own, shadow, query)
        {
            return self.announce(change);
        }
        if let (false, None, Some(before)) = (is_shadow, own, before) {
            let columns = ddl::columns_of_source(&before.columns);
            let position = self.here.position();
            let schema = TableSchema {
                table: name.clone(),
                columns,
                since: Some(position.clone()),
                retired: Vec::new(),
                version: 1,
                ..TableSchema::clone(&before)
            };
            let (arrival, statement) = (Arrival::Renamed(held.clone()), Some(query.statement.clone()));
            let (changes, defaults) = (Vec::new(), Vec::new());
            return self.announce(SchemaChange {
                schema: Arc::new(schema),
                position,
                arrival,
                changes,
                statement,
                defaults,
            });
        }
        let reason = format!(
            "{held} was renamed to its name, and the log has not all of its rows; load it with: alluvium run --resnapshot {name}"
        );
        let index = self.tables.index(name);
        self.end_index(index, reason, Ending::Replaced)
    }

    fn become_shadow(
        &mut self,
        name: &TableId,
        before: Option<Arc<TableSchema>>,
        query: &Query,
    ) -> Result<(), Failure> {
        let Some(before) = before else { return Ok(()) };
        let position = self.here.position();
        let columns = ddl::columns_of_source(&before.columns);
        let (since, retired) = (Some(position.clone()), Vec::new());
        let schema =
            TableSchema { table: name.clone(), columns, since, retired, version: 1, ..TableSchema::clone(&before) };
        let (changes, defaults, statement) = (Vec::new(), Vec::new(), Some(query.statement.clone()));
        let arrival = Arrival::Shadow;
        self.announce(SchemaChange { schema: Arc::new(schema), position, arrival, changes, statement, defaults })
    }

    /// An online schema change ends: the table has the rows that it had, under the columns of its shadow. `None` where the
    /// columns do not tell which came from which, or what old rows hold: then the rows have to be loaded.
    fn cut_over(&self, own: &TableSchema, shadow: &TableSchema, query: &Query) -> Option<SchemaChange> {
        let (mut changes, mut defaults) = (Vec::new(), Vec::new());
        let mut columns = ddl::columns_of_source(&shadow.columns);
        for column in &mut columns {
            let Some(index) = own.column_index(&column.name) else {
                match split_left_out(&column.source_type).1 {
                    LeftOut::Value(text) => defaults.push((column.name.clone(), text)),
                    LeftOut::Null => {}
                    LeftOut::Unknown | LeftOut::Computed => return None,
                }
                changes.push(ColumnChange::default());
                continue;
            };
            let old = &own.columns[index];
            let altered = ddl::altered(old, column, query.sql_mode.strict);
            column.lake.clone_from(&old.lake);
            changes.push(ColumnChange { from: Some(old.name.clone()), altered });
        }
        let is_added = changes.iter().any(|change| change.from.is_none());
        let stay = changes.iter().filter(|change| change.from.is_some()).count();
        // One that is gone and one that is new may be the same under another name.
        if is_added && stay < own.columns.len() {
            return None;
        }
        let key = |schema: &TableSchema| -> Vec<String> {
            schema.key.iter().map(|index| schema.columns[*index].name.to_lowercase()).collect()
        };
        if self.given_key(&own.table).is_none() && key(own) != key(shadow) {
            return None;
        }
        let key = own.key.iter().map(|index| {
            let name = &own.columns[*index].name;
            columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
        });
        let key = key.collect::<Option<Vec<usize>>>()?;
        let position = self.here.position();
        let schema = TableSchema {
            columns,
            key,
            default_charset: shadow.default_charset.clone(),
            version: own.version + 1,
            since: Some(position.clone()),
            ..own.clone()
        };
        let statement = Some(query.statement.clone());
        let arrival = Arrival::Met;
        Some(SchemaChange { schema: Arc::new(schema), position, arrival, changes, statement, defaults })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(renames: &[(&str, &str)], expected: &str) {
        let id = |name: &str| TableId::new("shop", name);
        let renames: Vec<_> = renames.iter().map(|(from, to)| (id(from), id(to))).collect();
        let moved = moves(&renames).into_iter().map(|(name, held)| {
            let held = held.map_or_else(|| "nothing".to_string(), |held| held.table);
            format!("{}={held}", name.table)
        });
        assert_eq!(moved.collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn renames_of_one_statement_are_one() {
        check(&[("a", "b")], "a=nothing b=a");
        check(&[("t", "_t_del"), ("_t_gho", "t")], "t=_t_gho _t_del=t _t_gho=nothing");
        check(&[("a", "x"), ("b", "a"), ("x", "b")], "a=b x=nothing b=a");
        check(&[("a", "b"), ("b", "a")], "b=nothing");
        check(&[("a", "b"), ("b", "c")], "a=nothing b=nothing c=a");
    }
}
