//! `pg_catalog`, which psql's `\d` and the browsers of BI tools read: answered by datafusion-pg-catalog over the names of
//! the lake.

use std::collections::HashSet;

use datafusion::error::{DataFusionError, Result};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as PlannerStatement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use datafusion_pg_catalog::pg_catalog::context::EmptyContextProvider;
use datafusion_pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use crate::query::{QueryError, Session};

/// What tools ask about the server itself. `version` counts only as a function: it is also a word of time travel.
const ASKED_BY_TOOLS: [&str; 8] = [
    "current_schema",
    "current_schemas",
    "current_database",
    "current_catalog",
    "current_user",
    "session_user",
    "regclass",
    "regtype",
];
const PREFIX: &str = "pg_";
const SCHEMA: &str = "pg_catalog";
/// The name of the database that clients see: the lake's catalogue.
const DATABASE: &str = "lake";

/// Answers what is asked about the tables, not of them. Numbers given to tables (`oid`) hold as long as this lives.
pub(super) struct Catalogue {
    context: SessionContext,
    parser: PostgresCompatibilityParser,
    /// Tables of the lake whose names look like those of the catalogue, in lower case.
    look_alikes: HashSet<String>,
}

impl Catalogue {
    /// # Errors
    /// When the catalogue's tables cannot be made.
    pub fn of(session: &Session) -> Result<Self, QueryError> {
        let context = session.catalogue()?;
        setup_pg_catalog(&context, DATABASE, EmptyContextProvider).map_err(|error| *error)?;
        let schemas = context.catalog(DATABASE);
        let schemas = schemas.iter().flat_map(|catalog| {
            let names = catalog.schema_names().into_iter().filter(|name| name != SCHEMA);
            names.filter_map(|name| catalog.schema(&name)).collect::<Vec<_>>()
        });
        let names = schemas.flat_map(|schema| schema.table_names()).map(|name| name.to_lowercase());
        let look_alikes = names.filter(|name| name.starts_with(PREFIX)).collect();
        // This context is asked in PostgreSQL's way: unquoted names are in lower case.
        context.state_ref().write().config_mut().options_mut().sql_parser.enable_ident_normalization = true;
        Ok(Self { context, parser: PostgresCompatibilityParser::new(), look_alikes })
    }

    /// Whether a statement is for the catalogue. One with mistakes is not: the lake's own parser tells them better.
    pub fn is_asked(&self, sql: &str) -> bool {
        let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize() else { return false };
        let tokens: Vec<&Token> = tokens.iter().filter(|token| !matches!(token, Token::Whitespace(_))).collect();
        tokens.iter().enumerate().any(|(index, token)| {
            let Token::Word(word) = token else { return false };
            let name = word.value.to_lowercase();
            let is_called = matches!(tokens.get(index + 1), Some(Token::LParen));
            ASKED_BY_TOOLS.contains(&name.as_str())
                || (name == "version" && is_called)
                || (name.starts_with(PREFIX) && !self.look_alikes.contains(&name))
        })
    }

    /// # Errors
    /// A statement that is not understood, or not a question.
    pub async fn plan(&self, sql: &str) -> Result<LogicalPlan> {
        let mut statements = self.parser.parse(sql).map_err(|error| DataFusionError::Plan(error.to_string()))?;
        let (Some(statement), 0) = (statements.pop(), statements.len()) else {
            return Err(DataFusionError::Plan("expected one statement".to_string()));
        };
        let plan = self.context.state().statement_to_plan(PlannerStatement::Statement(Box::new(statement))).await?;
        SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false)
            .verify_plan(&plan)?;
        Ok(plan)
    }

    /// # Errors
    /// As [`Self::plan`], and of the run.
    pub async fn ask(&self, sql: &str, parameters: Vec<ScalarValue>) -> Result<SendableRecordBatchStream> {
        let plan = self.plan(sql).await?;
        let plan = if parameters.is_empty() { plan } else { plan.with_param_values(parameters)? };
        self.context.execute_logical_plan(plan).await?.execute_stream().await
    }
}
