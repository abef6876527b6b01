//! `table_changes('orders', from, to)`: what happened to each row between two versions, as Spark's function of that name has
//! it. `from` and `to` are versions or times, both included; without `to` the newest version is the last.

use std::sync::Arc;

use arrow::datatypes::Schema;
use chrono::{DateTime, Utc};
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, col};
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, TableFunctionArgs, UnaryOperator, Value, ValueWithSpan,
};

use super::QueryError;
use super::travel::parse_time;
use crate::lake::{CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, Changes};

/// The function's name.
pub(super) const TABLE_CHANGES: &str = "table_changes";

/// One end of a run of versions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Bound {
    Version(u64),
    /// The first version that was committed then or later, or the last that was committed then or before.
    Time(DateTime<Utc>),
}

/// The arguments of the function: the parts of a table's name, and the versions.
pub(super) struct ChangesOf {
    pub table: Vec<String>,
    pub from: Bound,
    pub to: Option<Bound>,
}

impl ChangesOf {
    pub fn read(arguments: &TableFunctionArgs) -> Result<Self, QueryError> {
        let usage = || QueryError::TableChanges;
        let values: Option<Vec<&Expr>> = arguments.args.iter().map(plain_argument).collect();
        let values = values.ok_or_else(usage)?;
        let (table, from, to) = match values.as_slice() {
            [table, from] => (table, from, None),
            [table, from, to] => (table, from, Some(to)),
            _ => return Err(usage()),
        };
        let name = text_of(table).ok_or_else(usage)?;
        let table = name.split('.').map(|part| part.trim_matches(['`', '"']).to_string()).collect();
        let to = to.map(|to| bound(to)).transpose()?;
        Ok(Self { table, from: bound(from)?, to })
    }
}

fn plain_argument(argument: &FunctionArg) -> Option<&Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value),
        _ => None,
    }
}

fn text_of(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => Some(text.clone()),
        Expr::Identifier(name) => Some(name.value.clone()),
        Expr::CompoundIdentifier(parts) => {
            Some(parts.iter().map(|part| part.value.as_str()).collect::<Vec<_>>().join("."))
        }
        _ => None,
    }
}

fn bound(value: &Expr) -> Result<Bound, QueryError> {
    match value {
        Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
            digits.parse().map(Bound::Version).map_err(|_| QueryError::TableChanges)
        }
        Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(text), .. }) => match text.parse() {
            Ok(version) => Ok(Bound::Version(version)),
            Err(_) => parse_time(text).map(Bound::Time),
        },
        Expr::UnaryOp { op: UnaryOperator::Plus, expr } => bound(expr),
        _ => Err(QueryError::TableChanges),
    }
}

/// The changes as one table.
pub(super) async fn provider(changes: Changes) -> Result<Arc<dyn TableProvider>, QueryError> {
    let columns = all_columns(&changes.columns);
    let mut parts = Vec::new();
    for scan in [&changes.known, &changes.plain].into_iter().filter(|scan| !scan.is_empty()) {
        parts.push(plan_of(Arc::new(scan.clone()), &columns)?);
    }
    if !changes.rows.is_empty() {
        parts.push(matched(&changes).await?);
    }
    if parts.is_empty() {
        parts.push(plan_of(Arc::new(changes.known.clone()), &columns)?);
    }
    let mut all: Option<LogicalPlanBuilder> = None;
    for part in parts {
        all = Some(match all {
            Some(before) => before.union(part)?,
            None => LogicalPlanBuilder::from(part),
        });
    }
    let plan = all.ok_or(QueryError::TableChanges)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

fn all_columns(columns: &Schema) -> Vec<String> {
    let of_changes = [CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP].map(str::to_string);
    columns.fields().iter().map(|field| field.name().clone()).chain(of_changes).collect()
}

fn plan_of(provider: Arc<dyn TableProvider>, columns: &[String]) -> Result<LogicalPlan, QueryError> {
    let scan = LogicalPlanBuilder::scan("changes", provider_as_source(provider), None)?;
    Ok(scan.project(columns.iter().map(|name| col(quoted(name))))?.build()?)
}

/// Rows that came and went in one version, matched by their key: a row that is in both with the same values was only moved.
/// The match is by windows, not by a join: windows are sorted, and a sort that does not fit into memory goes to disk.
pub(super) async fn matched(changes: &Changes) -> Result<LogicalPlan, QueryError> {
    let context = SessionContext::new();
    context.register_table("changed", Arc::new(changes.rows.clone()))?;
    let names: Vec<String> = changes.columns.fields().iter().map(|field| quoted(field.name())).collect();
    let (version, time) = (quoted(COMMIT_VERSION), quoted(COMMIT_TIMESTAMP));
    let (columns, kind) = (names.join(", "), quoted(CHANGE_TYPE));
    if changes.key.is_empty() {
        let sql = format!("SELECT {columns}, {kind}, {version}, {time} FROM changed");
        return Ok(context.state().create_logical_plan(&sql).await?);
    }
    let key = changes.key.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let sql = format!(
        "SELECT {columns}, \
         CASE WHEN _of_key < 2 THEN {kind} WHEN {kind} = 'delete' THEN 'update_preimage' ELSE 'update_postimage' END AS {kind}, \
         {version}, {time} FROM (SELECT *, count(*) OVER (PARTITION BY {version}, {key}) AS _of_key, \
         count(*) OVER (PARTITION BY {version}, {columns}) AS _alike FROM changed) WHERE _alike < 2"
    );
    Ok(context.state().create_logical_plan(&sql).await?)
}

/// A name as SQL takes it literally.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
