//! Statements in the log that change tables: what they do becomes schema changes, truncates, or stops.

use std::sync::Arc;

use super::decoder::{Decoder, Failure};
use super::derive;
use super::event::{EventHeader, Flavor};
use super::follow::header_time_us;
use super::statement::Query;
use crate::change::{ChangeBatch, TableId};
use crate::schema::{ColumnChange, TableSchema};
use crate::source::mysql::ddl::{self, Context, Effect};
use crate::source::{Arrival, Ending, SchemaChange, SourceEvent};

const STATEMENT_ADVICE: &str = "a statement changed its rows, and the log has the statement in place of the rows: \
                                SET GLOBAL binlog_format = ROW, then load the table again";

/// What an ALTER TABLE made of a table, see [`Effect::Alter`].
struct Altered {
    schema: TableSchema,
    changes: Vec<ColumnChange>,
    defaults: Vec<(String, Option<String>)>,
    primary_key: Option<Vec<String>>,
}

impl Decoder {
    /// Follows a statement that is neither a transaction's begin nor its end.
    pub(super) fn statement(&mut self, query: &Query, header: &EventHeader) -> Result<(), Failure> {
        let effects = self.effects(query);
        let opens = query.statement.trim_end().to_ascii_uppercase().ends_with("START TRANSACTION");
        let ends = !self.transaction.open && !opens;
        let before = self.ready.len();
        let mut renames = Vec::new();
        self.statement_read = (!effects.is_empty()).then(|| query.statement.clone());
        for effect in effects {
            match effect {
                Effect::Rename { from, to } => renames.push((from, to)),
                effect => self.apply(effect, query, header)?,
            }
        }
        self.rename_tables(&renames, query)?;
        self.statement_read = None;
        // MySQL logs CREATE TABLE ... SELECT as a definition that begins a transaction.
        self.transaction.open |= opens;
        if ends {
            let changed = self.ready.len() > before;
            self.end_transaction(header)?;
            if changed {
                self.hand_out(Vec::new())?;
            }
        }
        Ok(())
    }

    fn effects(&self, query: &Query) -> Vec<Effect> {
        let charset = |database: &str| {
            let known = self.database_charsets.get(&database.to_lowercase()).cloned();
            known.or_else(|| query.default_charset.map(str::to_string))
        };
        let context = Context {
            default_database: &query.database,
            mariadb: self.flavor() == Flavor::MariaDb,
            sql_mode: query.sql_mode,
            known: &|table| self.known(table),
            database_charset: &charset,
        };
        ddl::effects(&query.statement, &context)
    }

    fn apply(&mut self, effect: Effect, query: &Query, header: &EventHeader) -> Result<(), Failure> {
        match effect {
            Effect::CreateTable(schema) => self.create(schema, query),
            Effect::CreateTableUnreadable { table, reason } => self.stop_wanted(&table, reason),
            Effect::Alter { table, schema, changes, defaults, primary_key } => {
                let alteration = Altered { schema, changes, defaults, primary_key };
                self.alter(&table, alteration, query)
            }
            // Gathered before, for those of one statement belong together.
            Effect::Rename { .. } => Ok(()),
            Effect::DropTable(table) => self.end_known(&table, "it was dropped".to_string(), Ending::Gone),
            Effect::Truncate(table) => self.truncate(&table, header),
            Effect::Other { table, what } => self.stop_known(&table, what),
            Effect::Dml { table } => self.stop_wanted(&table, STATEMENT_ADVICE.to_string()),
            Effect::DropDatabase(database) => self.drop_database(&database),
            Effect::DatabaseCharset { database, charset } => {
                self.database_charsets.insert(database.to_lowercase(), charset);
                Ok(())
            }
            Effect::Unparsed { tables_mentioned, reason } => {
                for table in tables_mentioned {
                    self.stop_known(&table, reason.clone())?;
                }
                Ok(())
            }
        }
    }

    fn create(&mut self, schema: TableSchema, query: &Query) -> Result<(), Failure> {
        let table = schema.table.clone();
        // A table that is known already: CREATE TABLE IF NOT EXISTS, or the log is read again after a restart.
        if self.known(&table).is_some() {
            return Ok(());
        }
        if self.tables.is_shadow(&table) && !self.tables.wants(&table) {
            return self.announce_made(Arc::new(schema), Arrival::Shadow, query);
        }
        if !self.tables.wants(&table) {
            return Ok(());
        }
        match derive::with_key(schema, self.given_key(&table)) {
            Ok(schema) => self.announce_made(schema, Arrival::Created, query),
            Err(reason) => self.stop(&table, reason),
        }
    }

    fn announce_made(&mut self, schema: Arc<TableSchema>, arrival: Arrival, query: &Query) -> Result<(), Failure> {
        let position = self.here.position();
        let schema = Arc::new(TableSchema { since: Some(position.clone()), ..TableSchema::clone(&schema) });
        let statement = Some(query.statement.clone());
        let (changes, defaults) = (Vec::new(), Vec::new());
        self.announce(SchemaChange { schema, position, arrival, changes, statement, defaults })
    }

    /// Whether the statement that ends here is part of what made the table what it is known as: the log is read again.
    pub(super) fn is_followed(&self, known: &TableSchema) -> bool {
        known.since.as_ref().is_some_and(|since| self.here.position() <= *since)
    }

    /// Whether a later statement made the table what it is known as: the one that ends here was followed before, and was of another
    /// table of its name.
    pub(super) fn is_past(&self, known: &TableSchema) -> bool {
        known.since.as_ref().is_some_and(|since| self.here.position() < *since)
    }

    fn alter(&mut self, table: &TableId, altered: Altered, query: &Query) -> Result<(), Failure> {
        let is_captured = self.tables.wants(table);
        let Some(known) = self.known(table).filter(|_| is_captured || self.tables.is_shadow(table)) else {
            return Ok(());
        };
        if self.is_followed(&known) {
            return Ok(());
        }
        if let Some(reason) = self.key_fault(&known, &altered).filter(|_| is_captured) {
            return self.stop(table, reason);
        }
        let position = self.here.position();
        let schema = Arc::new(TableSchema { since: Some(position.clone()), ..altered.schema });
        let arrival = if is_captured { Arrival::Met } else { Arrival::Shadow };
        let defaults = altered.defaults.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let statement = Some(query.statement.clone());
        self.announce(SchemaChange { schema, position, arrival, changes: altered.changes, statement, defaults })
    }

    /// Why rows are told apart by other columns from here on.
    fn key_fault(&self, known: &TableSchema, altered: &Altered) -> Option<String> {
        let columns = altered.primary_key.as_ref().filter(|_| self.given_key(&known.table).is_none())?;
        let key = known.key.iter().filter_map(|index| known.columns.get(*index)).map(|column| column.name.as_str());
        let key: Vec<&str> = key.collect();
        let same = key.len() == columns.len() && key.iter().zip(columns).all(|(a, b)| a.eq_ignore_ascii_case(b));
        let table = &known.table;
        (!same).then(|| {
            let now =
                if columns.is_empty() { "dropped".into() } else { format!("changed to ({})", columns.join(", ")) };
            format!(
                "its primary key ({}) was {now}; load it again with: alluvium run --resnapshot {table}",
                key.join(", ")
            )
        })
    }

    /// Straight after a boundary, a change that is a transaction of its own.
    fn truncate(&mut self, table: &TableId, header: &EventHeader) -> Result<(), Failure> {
        let Some(schema) = self.known(table).filter(|_| self.tables.wants(table)) else { return Ok(()) };
        self.hand_out(Vec::new())?;
        let commit_time_us = self.transaction.commit_time_us.unwrap_or_else(|| header_time_us(header));
        let truncate = ChangeBatch::truncate(&schema, self.here.position(), commit_time_us);
        self.ready.push_back(SourceEvent::Rows(truncate));
        self.transaction.handed += 1;
        Ok(())
    }

    fn drop_database(&mut self, database: &str) -> Result<(), Failure> {
        let tables = self.tables.iter().map(|table| &table.id);
        let tables: Vec<TableId> = tables.filter(|id| id.database.eq_ignore_ascii_case(database)).cloned().collect();
        for table in tables {
            self.end_known(&table, format!("its database {database} was dropped"), Ending::Gone)?;
        }
        Ok(())
    }

    /// A table that is captured, or may take the name of one that is, is no more.
    pub(super) fn end_known(&mut self, table: &TableId, reason: String, ending: Ending) -> Result<(), Failure> {
        let Some(known) = self.known(table) else { return Ok(()) };
        let is_ours = self.tables.wants(table) || self.tables.is_shadow(table);
        if self.is_past(&known) || !is_ours {
            return Ok(());
        }
        let index = self.tables.index(table);
        self.end_index(index, reason, ending)
    }

    /// Takes out a table that rows have been read of, or will be.
    fn stop_known(&mut self, table: &TableId, reason: String) -> Result<(), Failure> {
        if self.known(table).is_some() { self.stop_wanted(table, reason) } else { Ok(()) }
    }

    fn stop_wanted(&mut self, table: &TableId, reason: String) -> Result<(), Failure> {
        if self.tables.wants(table) { self.stop(table, reason) } else { Ok(()) }
    }
}
