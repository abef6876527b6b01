//! One spelling per name in a query, so that case does not matter where it tells nothing apart.
//!
//! MySQL compares names of columns without regard to case; the planner compares them exactly. So before planning, all
//! words of a query that differ only by case get one spelling: that of an output column's alias if there is one (its
//! case is what the reader of the result sees), else that of a table's column, else that of the first occurrence.
//! A table whose own column is spelled otherwise is shown to the planner under the chosen spelling. SQL's own words don't
//! care about case, and strings are not words.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::{Column, DataFusionError};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder};
use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr, Statement};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::names::several_spellings;
use super::statement::Tokens;

/// The chosen spelling of each name, by its lower case.
#[derive(Debug, Default)]
pub(super) struct Spelling {
    chosen: HashMap<String, String>,
}

impl Spelling {
    /// Chooses the spellings for one query. Names in `case_counts` (lower case), and columns that one table has in several
    /// spellings, stay as they are typed.
    pub fn choose<'a>(
        statement: &Statement,
        tokens: &Tokens,
        schemas: impl Iterator<Item = &'a SchemaRef> + Clone,
        mut case_counts: HashSet<String>,
    ) -> Self {
        for schema in schemas.clone() {
            case_counts.extend(several_spellings(schema.fields().iter().map(|field| field.name().as_str())));
        }
        let columns: HashSet<String> =
            schemas.clone().flat_map(|schema| schema.fields().iter()).map(|field| field.name().clone()).collect();
        let in_order = schemas.flat_map(|schema| schema.fields().iter()).map(|field| field.name().clone());
        let words: Vec<String> = tokens.words().map(str::to_string).collect();
        // Where two tables spell a column differently, the query's own spelling decides, if it is one of theirs.
        let typed = words.iter().filter(|word| columns.contains(*word)).cloned();
        let mut chosen = HashMap::new();
        for name in output_aliases(statement).into_iter().chain(typed).chain(in_order).chain(words.clone()) {
            let key = name.to_lowercase();
            if !case_counts.contains(&key) {
                chosen.entry(key).or_insert(name);
            }
        }
        Self { chosen }
    }

    /// The spelling of a name; as given when none was chosen.
    pub fn of(&self, name: &str) -> String {
        self.chosen.get(&name.to_lowercase()).map_or(name, String::as_str).to_string()
    }

    /// The same tokens with every word in its chosen spelling.
    pub fn apply(&self, tokens: &Tokens) -> Tokens {
        let mut respelled = tokens.clone();
        for token in &mut respelled.tokens {
            if let Token::Word(word) = &mut token.token {
                word.value = self.of(&word.value);
            }
        }
        respelled
    }

    /// The table with its columns in their chosen spellings: itself where they are so already.
    pub fn apply_to_table(&self, provider: Arc<dyn TableProvider>) -> Result<Arc<dyn TableProvider>, DataFusionError> {
        let schema = provider.schema();
        if schema.fields().iter().all(|field| self.of(field.name()) == *field.name()) {
            return Ok(provider);
        }
        let columns = schema
            .fields()
            .iter()
            .map(|field| Expr::Column(Column::from_name(field.name())).alias(self.of(field.name())));
        let plan =
            LogicalPlanBuilder::scan("respelled", provider_as_source(provider), None)?.project(columns)?.build()?;
        Ok(Arc::new(ViewTable::new(plan, None)))
    }
}

/// The aliases of the columns that the statement puts out.
fn output_aliases(statement: &Statement) -> Vec<String> {
    let Statement::Query(query) = statement else { return Vec::new() };
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            SetExpr::Select(select) => return select.projection.iter().filter_map(alias_of).collect(),
            _ => return Vec::new(),
        }
    }
}

fn alias_of(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        _ => None,
    }
}
