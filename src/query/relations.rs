//! Finds the tables that a statement names, and puts their full names in.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Ident, ObjectName, Query, Statement, TableAlias, TableFactor, VisitMut, VisitorMut, With,
};

use super::QueryError;
use super::changes::{ChangesOf, TABLE_CHANGES};
use super::names::{LakeNames, TableAt};
use super::spelling::Spelling;
use super::travel::AsOf;

/// The tables of a statement.
#[derive(Debug, Default)]
pub(super) struct Relations {
    pub tables: BTreeSet<TableAt>,
    /// Views of the information schema, by their names in lower case.
    pub information: BTreeSet<String>,
    /// What it reads of the job's own notes.
    pub notes: BTreeSet<JobNotes>,
}

/// The tables of the job's own notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum JobNotes {
    /// Its points.
    Batches,
    /// The versions of the tables' schemas.
    SchemaHistory,
    /// What became of the source's schema statements.
    DdlLog,
}

impl JobNotes {
    const ALL: [Self; 3] = [Self::Batches, Self::SchemaHistory, Self::DdlLog];

    fn table(self) -> &'static str {
        match self {
            Self::Batches => "batches",
            Self::SchemaHistory => "schema_history",
            Self::DdlLog => "ddl_log",
        }
    }

    /// The schema and name under which the planner finds the table.
    pub fn name(self, spelling: &Spelling) -> [String; 2] {
        [SCHEMA_OF_NOTES, self.table()].map(|name| spelling.of(name))
    }
}

/// The schema that the job's own notes are in.
const SCHEMA_OF_NOTES: &str = "alluvium";

pub(super) const INFORMATION_SCHEMA: &str = "information_schema";

impl Relations {
    /// Resolves every name of a table in the statement and replaces it by `database.table`, spelled as `spelling` says;
    /// names that WITH defines are left alone where they are in scope. A table at a version keeps its plain name as its
    /// alias, so that columns can be qualified by it.
    pub fn resolve(
        statement: &mut Statement,
        names: &LakeNames,
        spelling: &Spelling,
        travelled: &[String],
    ) -> Result<Self, QueryError> {
        let mut resolver = Resolver {
            names,
            spelling,
            travelled: travelled.to_vec(),
            found: Self::default(),
            in_scope: Vec::new(),
            withs: Vec::new(),
        };
        if let ControlFlow::Break(error) = statement.visit(&mut resolver) {
            return Err(*error);
        }
        if !resolver.travelled.is_empty() {
            return Err(QueryError::AsOfMisplaced);
        }
        Ok(resolver.found)
    }
}

struct Resolver<'a> {
    names: &'a LakeNames,
    spelling: &'a Spelling,
    /// Names with an AS OF that have not been met as tables yet.
    travelled: Vec<String>,
    found: Relations,
    /// The names (in lower case) that WITH defines around the current place.
    in_scope: Vec<String>,
    /// The WITH of each query around the current place, taken out while its body is visited, and how many names were in
    /// scope before it.
    withs: Vec<Option<(With, usize)>>,
}

impl VisitorMut for Resolver<'_> {
    type Break = Box<QueryError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let Some(mut with) = query.with.take() else {
            self.withs.push(None);
            return ControlFlow::Continue(());
        };
        let before = self.in_scope.len();
        if with.recursive {
            self.in_scope.extend(with.cte_tables.iter().map(|cte| cte.alias.name.value.to_lowercase()));
        }
        for cte in &mut with.cte_tables {
            // A name is in scope behind its own definition: WITH t AS (SELECT * FROM t) reads the table t.
            cte.query.visit(self)?;
            self.in_scope.push(cte.alias.name.value.to_lowercase());
        }
        self.withs.push(Some((with, before)));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        if let Some(Some((with, before))) = self.withs.pop() {
            query.with = Some(with);
            self.in_scope.truncate(before);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        match self.table(factor) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Resolver<'_> {
    fn table(&mut self, factor: &mut TableFactor) -> Result<(), QueryError> {
        if let TableFactor::Table { name, alias, args, .. } = factor
            && let Some(arguments) = args
            && parts_of(name).last().is_some_and(|name| name.eq_ignore_ascii_case(TABLE_CHANGES))
        {
            let ChangesOf { table, from, to } = ChangesOf::read(arguments)?;
            let mut table = self.names.resolve(&table)?;
            table.as_of = Some(AsOf::Changes { from, to });
            *args = None;
            *name = quoted(registered_name(&table, self.spelling));
            alias.get_or_insert_with(|| plain_alias(self.spelling.of(TABLE_CHANGES)));
            self.found.tables.insert(table);
            return Ok(());
        }
        let TableFactor::Table { name, alias, args: None, partitions, sample, json_path, .. } = factor else {
            return Ok(());
        };
        // The planner would read the whole table and not say so.
        for (given, what) in [
            (!partitions.is_empty(), "PARTITION"),
            (sample.is_some(), "TABLESAMPLE"),
            (json_path.is_some(), "a path into a value"),
        ] {
            if given {
                return Err(QueryError::NotSupported { what });
            }
        }
        let parts = parts_of(name);
        if self.is_with(&parts)? {
            return Ok(());
        }
        if let Some(view) = information_view(&parts) {
            *name = quoted([INFORMATION_SCHEMA.to_string(), view.clone()]);
            self.found.information.insert(view);
            return Ok(());
        }
        if let Some(notes) = self.notes(&parts) {
            *name = quoted(notes.name(self.spelling));
            self.found.notes.insert(notes);
            return Ok(());
        }
        self.met(&parts);
        let table = self.names.resolve(&parts)?;
        *name = quoted(registered_name(&table, self.spelling));
        if table.as_of.is_some() && alias.is_none() {
            *alias = Some(plain_alias(self.spelling.of(&table.table.table)));
        }
        self.found.tables.insert(table);
        Ok(())
    }

    fn is_with(&self, parts: &[String]) -> Result<bool, QueryError> {
        let [name] = parts else { return Ok(false) };
        if self.in_scope.contains(&name.to_lowercase()) {
            return Ok(true);
        }
        match AsOf::split(name)? {
            Some((base, _)) if self.in_scope.contains(&base.to_lowercase()) => {
                Err(QueryError::AsOfOfWith { name: base.to_string() })
            }
            _ => Ok(false),
        }
    }

    /// A database of the source may have the same name; then its table is meant.
    fn notes(&self, parts: &[String]) -> Option<JobNotes> {
        let [schema, table] = parts else { return None };
        let named = JobNotes::ALL.into_iter().find(|notes| table.eq_ignore_ascii_case(notes.table()))?;
        let is_ours = schema.eq_ignore_ascii_case(SCHEMA_OF_NOTES) && self.names.resolve(parts).is_err();
        is_ours.then_some(named)
    }

    fn met(&mut self, parts: &[String]) {
        let Some(name) = parts.last() else { return };
        let same = |travelled: &String| travelled.to_lowercase() == name.to_lowercase();
        if let Some(index) = self.travelled.iter().position(same) {
            self.travelled.swap_remove(index);
        }
    }
}

/// The schema and name under which the planner finds a table.
pub(super) fn registered_name(table: &TableAt, spelling: &Spelling) -> [String; 2] {
    let name = spelling.of(&table.table.table);
    let name = table.as_of.as_ref().map_or_else(|| name.clone(), |as_of| as_of.name_of(&name));
    [spelling.of(&table.table.database), name]
}

/// The parts of a dotted name, without quotes.
pub(super) fn parts_of(name: &ObjectName) -> Vec<String> {
    name.0.iter().map(|part| part.as_ident().map_or_else(|| part.to_string(), |ident| ident.value.clone())).collect()
}

fn information_view(parts: &[String]) -> Option<String> {
    match parts {
        [schema, view] if schema.eq_ignore_ascii_case(INFORMATION_SCHEMA) => Some(view.to_lowercase()),
        _ => None,
    }
}

fn quoted(parts: [String; 2]) -> ObjectName {
    ObjectName::from(parts.map(|part| Ident::with_quote('"', part)).to_vec())
}

fn plain_alias(name: String) -> TableAlias {
    TableAlias { explicit: true, name: Ident::with_quote('"', name), columns: Vec::new(), at: None }
}

#[cfg(test)]
mod tests {
    use super::super::statement::Tokens;
    use super::*;
    use crate::change::TableId;

    fn check(sql: &str, expected: &str) {
        let names = LakeNames::new([TableId::new("shop", "orders"), TableId::new("crm", "people")]);
        let tokens = Tokens::read(sql).unwrap();
        let mut statement = tokens.parse().unwrap();
        let found = match Relations::resolve(&mut statement, &names, &Spelling::default(), &tokens.travelled) {
            Ok(_) => statement.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{sql}");
    }

    #[test]
    fn a_name_gets_its_database_and_a_version_its_alias() {
        check("SELECT * FROM Orders", "SELECT * FROM \"shop\".\"orders\"");
        check("SELECT * FROM orders@v3", "SELECT * FROM \"shop\".\"orders@v3\" AS \"orders\"");
        check("SELECT * FROM orders VERSION AS OF 3 AS o", "SELECT * FROM \"shop\".\"orders@v3\" AS o");
        check(
            "SELECT (SELECT max(id) FROM people) FROM crm.people WHERE id IN (SELECT id FROM orders)",
            "SELECT (SELECT max(id) FROM \"crm\".\"people\") FROM \"crm\".\"people\" WHERE id IN (SELECT id FROM \"shop\".\"orders\")",
        );
    }

    #[test]
    fn a_name_defined_by_with_is_used_only_where_it_is_in_scope() {
        check(
            "WITH orders AS (SELECT * FROM orders) SELECT * FROM Orders",
            "WITH orders AS (SELECT * FROM \"shop\".\"orders\") SELECT * FROM Orders",
        );
        check(
            "SELECT * FROM (WITH people AS (SELECT 1) SELECT * FROM people) JOIN people",
            "SELECT * FROM (WITH people AS (SELECT 1) SELECT * FROM people) JOIN \"crm\".\"people\"",
        );
        check(
            "WITH RECURSIVE orders AS (SELECT 1 UNION ALL SELECT * FROM orders) SELECT * FROM orders",
            "WITH RECURSIVE orders AS (SELECT 1 UNION ALL SELECT * FROM orders) SELECT * FROM orders",
        );
    }

    #[test]
    fn a_version_of_something_else_than_a_table_is_refused() {
        let misplaced =
            "AS OF belongs directly behind a table's name and before its alias: orders VERSION AS OF 3 AS o";
        check("SELECT * FROM orders o VERSION AS OF 3", misplaced);
        check(
            "WITH orders AS (SELECT 1) SELECT * FROM orders VERSION AS OF 3",
            "orders is defined by WITH in this query and has no versions; put AS OF behind the table inside it",
        );
        check("SELECT * FROM orders TABLESAMPLE (10 ROWS)", "TABLESAMPLE is not supported behind a table's name");
    }

    #[test]
    fn the_information_schema_is_not_looked_up_in_the_lake() {
        check("SELECT * FROM Information_Schema.TABLES", "SELECT * FROM \"information_schema\".\"tables\"");
    }

    #[test]
    fn no_order_of_words_makes_the_reader_panic() {
        use rand::{Rng, SeedableRng, rngs::StdRng};
        const WORDS: [&str; 28] = [
            "SELECT",
            "FROM",
            "orders",
            "people",
            "VERSION",
            "TIMESTAMP",
            "SYSTEM_TIME",
            "AS",
            "OF",
            "FOR",
            "12",
            "'2026-01-31'",
            "WITH",
            "RECURSIVE",
            "(",
            ")",
            ",",
            "*",
            "orders@v3",
            "a@t",
            "@",
            "\"x@v1\"",
            "JOIN",
            "ON",
            "UNION",
            ";",
            "'",
            ".",
        ];
        const SEED: u64 = 7;
        let names = LakeNames::new([TableId::new("shop", "orders"), TableId::new("crm", "people")]);
        let mut random = StdRng::seed_from_u64(SEED);
        for _ in 0..5000 {
            let length = random.random_range(0..20);
            let words: Vec<&str> = (0..length).map(|_| WORDS[random.random_range(0..WORDS.len())]).collect();
            let Ok(tokens) = Tokens::read(&words.join(" ")) else { continue };
            let Ok(mut statement) = tokens.parse() else { continue };
            let _ = Relations::resolve(&mut statement, &names, &Spelling::default(), &tokens.travelled);
        }
    }
}
