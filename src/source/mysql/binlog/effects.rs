//! Statements in the log that change tables: what they do becomes schema changes, truncates, or stops.

use std::sync::Arc;

use super::decoder::{Decoder, Failure};
use super::derive;
use super::event::{EventHeader, Flavor};
use super::follow::header_time_us;
use super::statement::Query;
use crate::change::{ChangeBatch, TableId};
use crate::schema::TableSchema;
use crate::source::SourceEvent;
use crate::source::mysql::ddl::{self, Context, Effect};

const STATEMENT_ADVICE: &str = "a statement changed its rows, and the log has the statement in place of the rows: \
                                SET GLOBAL binlog_format = ROW, then load the table again";

impl Decoder {
    /// Follows a statement that is neither a transaction's begin nor its end.
    pub(super) fn statement(&mut self, query: &Query, header: &EventHeader) -> Result<(), Failure> {
        let effects = self.effects(query);
        let opens = query.statement.trim_end().to_ascii_uppercase().ends_with("START TRANSACTION");
        let ends = !self.transaction.open && !opens;
        let before = self.ready.len();
        for effect in effects {
            self.apply(effect, query, header)?;
        }
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
            Effect::AddColumns { table, schema, defaults } => self.add_columns(&table, schema, defaults, query),
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
        if !self.tables.wants(&table) || self.known(&table).is_some() {
            return Ok(());
        }
        match derive::with_key(schema, self.given_key(&table)) {
            Ok(schema) => self.announce(&schema, Some(&query.statement), Vec::new()),
            Err(reason) => self.stop(&table, reason),
        }
    }

    fn add_columns(
        &mut self,
        table: &TableId,
        schema: TableSchema,
        defaults: Vec<(String, Option<String>)>,
        query: &Query,
    ) -> Result<(), Failure> {
        let Some(known) = self.known(table).filter(|_| self.tables.wants(table)) else { return Ok(()) };
        let news = defaults.iter().filter(|(name, _)| known.column_index(name).is_none()).count();
        let is_old = news == 0 || schema.columns.len() == known.columns.len();
        // A default that changed is a change too: rows that leave the column out get it.
        if is_old && (!defaults.is_empty() || schema.columns == known.columns) {
            return Ok(());
        }
        let defaults = defaults.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.announce(&Arc::new(schema), Some(&query.statement), defaults)
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
            self.stop_known(&table, format!("its database {database} was dropped"))?;
        }
        Ok(())
    }

    /// Takes out a table that rows have been read of, or will be.
    fn stop_known(&mut self, table: &TableId, reason: String) -> Result<(), Failure> {
        if self.known(table).is_some() { self.stop_wanted(table, reason) } else { Ok(()) }
    }

    fn stop_wanted(&mut self, table: &TableId, reason: String) -> Result<(), Failure> {
        if self.tables.wants(table) { self.stop(table, reason) } else { Ok(()) }
    }
}
