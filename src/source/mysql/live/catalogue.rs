//! The tables that a job asks for, with their columns and keys. Three statements read the catalogue for any
//! number of tables.

use std::collections::{BTreeMap, HashMap};

use super::connection::{Session, TextRow, text_literal};
use crate::change::TableId;
use crate::config::TableFilter;
use crate::schema::TableSchema;
use crate::source::mysql::binlog::Flavor;
use crate::source::mysql::column_type::{ColumnType, LeftOut};
use crate::source::mysql::ddl::{charset_of_collation, default_of_catalogue};
use crate::source::{DiscoveredTable, SourceError};

/// Given keys by table (`database.table`), from the job file.
pub(super) type GivenKeys = BTreeMap<String, Vec<String>>;

/// How the reason of a table without a key is told.
pub(super) const NO_PRIMARY_KEY: &str = "has no primary key";

/// Engines whose rows change outside transactions: what a statement did before it failed stays.
const TRANSACTIONAL_ENGINES: [&str; 4] = ["InnoDB", "RocksDB", "ROCKSDB", "ndbcluster"];

/// What the catalogue says about one table, before it is judged.
#[derive(Debug, Default)]
struct Found {
    kind: String,
    engine: String,
    rows_estimated: Option<u64>,
    /// Of new text columns.
    charset: Option<String>,
    columns: Vec<FoundColumn>,
    /// Column and prefix length, in key order.
    primary: Vec<(String, Option<u64>)>,
    /// The other unique keys by name: their columns in order, `None` for a part that is no whole column.
    unique: BTreeMap<String, Vec<Option<String>>>,
}

#[derive(Debug, Clone)]
struct FoundColumn {
    name: String,
    column_type: String,
    charset: Option<String>,
    nullable: bool,
    default: Option<String>,
    /// `auto_increment`, `DEFAULT_GENERATED`, `VIRTUAL GENERATED` and more.
    extra: String,
}

/// The tables that pass the filter, ordered by name.
pub(super) async fn tables(
    session: &mut Session,
    filter: &TableFilter,
    keys: &GivenKeys,
) -> Result<Vec<DiscoveredTable>, SourceError> {
    let mariadb = session.flavor == Flavor::MariaDb;
    let mut found = HashMap::new();
    let of_databases = databases_condition(filter);
    for row in session.rows(&tables_query(&of_databases)).await? {
        read_table(&mut found, filter, row);
    }
    for row in session.rows(&columns_query(&of_databases)).await? {
        read_column(&mut found, row);
    }
    for row in session.rows(&keys_query(&of_databases)).await? {
        read_key_part(&mut found, row);
    }
    let mut tables: Vec<_> = found.into_iter().map(|(table, found)| discovered(table, found, keys, mariadb)).collect();
    tables.sort_by(|a, b| a.table.cmp(&b.table));
    Ok(tables)
}

/// The default character set of each database as it is now, by its name in lower case: a new table that names none has it, and
/// the log does not always say which it is.
pub(super) async fn database_charsets(session: &mut Session) -> Result<HashMap<String, String>, SourceError> {
    let query = "SELECT schema_name, default_character_set_name FROM information_schema.schemata";
    let rows = session.rows(query).await?;
    Ok(rows.into_iter().map(|mut row| (text(&mut row, 0).to_lowercase(), text(&mut row, 1))).collect())
}

/// Names every database where the patterns do: on MariaDB each table of the others would be opened for
/// nothing.
fn databases_condition(filter: &TableFilter) -> String {
    let selecting = filter.patterns().filter(|pattern| !pattern.starts_with('!'));
    let databases: Vec<&str> = selecting.filter_map(|pattern| Some(pattern.split_once('.')?.0)).collect();
    let any = databases.iter().any(|name| name.contains(['*', '?', '[', '{', '\\']));
    if any || databases.is_empty() {
        return "table_schema NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')".to_string();
    }
    let literals: Vec<String> = databases.iter().map(|name| text_literal(name)).collect();
    format!("table_schema IN ({})", literals.join(", "))
}

fn tables_query(of_databases: &str) -> String {
    format!(
        "SELECT table_schema, table_name, table_type, engine, table_rows, table_collation FROM information_schema.tables \
         WHERE {of_databases} AND table_type <> 'VIEW'"
    )
}

fn columns_query(of_databases: &str) -> String {
    format!(
        "SELECT table_schema, table_name, column_name, column_type, character_set_name, is_nullable, \
         column_default, extra \
         FROM information_schema.columns WHERE {of_databases} ORDER BY table_schema, table_name, ordinal_position"
    )
}

fn keys_query(of_databases: &str) -> String {
    format!(
        "SELECT table_schema, table_name, column_name, sub_part, index_name FROM information_schema.statistics \
         WHERE {of_databases} AND non_unique = 0 ORDER BY table_schema, table_name, index_name, seq_in_index"
    )
}

fn text(row: &mut TextRow, index: usize) -> String {
    row.get_mut(index).and_then(Option::take).unwrap_or_default()
}

fn read_table(found: &mut HashMap<TableId, Found>, filter: &TableFilter, mut row: TextRow) {
    let table = TableId::new(text(&mut row, 0), text(&mut row, 1));
    if !filter.matches(&table) {
        return;
    }
    let (kind, engine, rows) = (text(&mut row, 2), text(&mut row, 3), text(&mut row, 4));
    let charset = charset_of_collation(&text(&mut row, 5));
    // Sequences are no tables of rows; the log has their changes as statements.
    if kind != "SEQUENCE" {
        found.insert(table, Found { kind, engine, charset, rows_estimated: rows.parse().ok(), ..Found::default() });
    }
}

fn read_column(found: &mut HashMap<TableId, Found>, mut row: TextRow) {
    let Some(table) = found.get_mut(&TableId::new(text(&mut row, 0), text(&mut row, 1))) else { return };
    table.columns.push(FoundColumn {
        name: text(&mut row, 2),
        column_type: text(&mut row, 3),
        charset: row.get_mut(4).and_then(Option::take),
        nullable: text(&mut row, 5) == "YES",
        default: row.get_mut(6).and_then(Option::take),
        extra: text(&mut row, 7).to_ascii_uppercase(),
    });
}

fn read_key_part(found: &mut HashMap<TableId, Found>, mut row: TextRow) {
    let Some(table) = found.get_mut(&TableId::new(text(&mut row, 0), text(&mut row, 1))) else { return };
    // A part of an expression has no column.
    let column = row.get_mut(2).and_then(Option::take);
    let prefix = text(&mut row, 3).parse().ok();
    let index = text(&mut row, 4);
    match column {
        Some(column) if index == "PRIMARY" => table.primary.push((column, prefix)),
        column => table.unique.entry(index).or_default().push(column.filter(|_| prefix.is_none())),
    }
}

/// Of the unique keys that identify every row, the one of the fewest columns.
fn key_advised(table: &TableId, found: &Found) -> Vec<String> {
    if !found.primary.is_empty() {
        return Vec::new();
    }
    let Ok(types) = column_types(table, found) else { return Vec::new() };
    let is_fit = |name: &String| {
        let mut columns = found.columns.iter().zip(&types).filter(|(column, _)| column.name.eq_ignore_ascii_case(name));
        columns.next().is_some_and(|(column, kind)| check_key_column(table, column, kind).is_ok())
    };
    let keys = found.unique.values().filter_map(|parts| parts.iter().cloned().collect::<Option<Vec<String>>>());
    keys.filter(|key| key.iter().all(is_fit)).min_by_key(Vec::len).unwrap_or_default()
}

fn discovered(table: TableId, found: Found, keys: &GivenKeys, mariadb: bool) -> DiscoveredTable {
    if !TRANSACTIONAL_ENGINES.contains(&found.engine.as_str()) {
        tracing::warn!(%table, engine = found.engine, "engine has no transactions: changes of a failed statement stay");
    }
    let rows_estimated = found.rows_estimated;
    let key_advised = key_advised(&table, &found);
    let schema = schema(&table, &found, keys.get(&table.to_string()), mariadb);
    let schema = schema.map_err(|reason| match key_advised.as_slice() {
        [] => reason,
        key => format!("{reason}; its unique key would do: `key: [{}]`", key.join(", ")),
    });
    DiscoveredTable { table, schema, key_advised, rows_estimated }
}

fn schema(table: &TableId, found: &Found, given: Option<&Vec<String>>, mariadb: bool) -> Result<TableSchema, String> {
    if found.kind != "BASE TABLE" {
        return Err(format!("{table} is a {}, which cannot be captured", found.kind.to_lowercase()));
    }
    if found.columns.is_empty() {
        return Err(format!("{table} shows no columns; grant SELECT on it to Alluvium's user"));
    }
    let types = column_types(table, found)?;
    let columns = found.columns.iter().zip(&types);
    let columns =
        columns.map(|(found, kind)| kind.column_left_out(&found.name, found.nullable, &left_out(found, kind, mariadb)));
    let mut schema = TableSchema::new(table.clone(), columns.collect(), Vec::new());
    schema.default_charset.clone_from(&found.charset);
    schema.key = match given {
        Some(names) => given_key(&schema, names)?,
        None => primary_key(&schema, found)?,
    };
    for index in &schema.key {
        // Indexes of both lists are those of the columns.
        if let (Some(kind), Some(column)) = (types.get(*index), found.columns.get(*index)) {
            check_key_column(table, column, kind)?;
        }
    }
    Ok(schema)
}

/// What a row gets whose insert leaves the column out. The servers log what only they can work out.
fn left_out(found: &FoundColumn, kind: &ColumnType, mariadb: bool) -> LeftOut {
    if mariadb && found.extra.contains("VIRTUAL") {
        return LeftOut::Computed;
    }
    // DEFAULT_GENERATED among them.
    if found.extra.contains("GENERATED") || found.extra.contains("AUTO_INCREMENT") {
        return LeftOut::Unknown;
    }
    default_of_catalogue(found.default.as_deref(), mariadb, found.nullable, kind)
}

fn column_types(table: &TableId, found: &Found) -> Result<Vec<ColumnType>, String> {
    let parse = |column: &FoundColumn| {
        ColumnType::from_information_schema(&column.column_type, column.charset.as_deref())
            .map_err(|error| format!("column {} of {table}: {error}", column.name))
    };
    found.columns.iter().map(parse).collect()
}

fn given_key(schema: &TableSchema, names: &[String]) -> Result<Vec<usize>, String> {
    let index = |name: &String| {
        let index = schema.column_index(name);
        index.ok_or_else(|| format!("{} has no column {name}, which `key:` names in the job file", schema.table))
    };
    names.iter().map(index).collect()
}

fn primary_key(schema: &TableSchema, found: &Found) -> Result<Vec<usize>, String> {
    if found.primary.is_empty() {
        return Err(format!(
            "{} {NO_PRIMARY_KEY}; add one, or name columns that are unique and never null with `key:` for the \
             table in the job file",
            schema.table
        ));
    }
    let mut key = Vec::new();
    for (name, prefix) in &found.primary {
        if let Some(length) = prefix {
            return Err(format!(
                "the primary key of {} covers only the first {length} characters of {name}; make the key whole, or \
                 name other unique columns with `key:` in the job file",
                schema.table
            ));
        }
        let index = schema.column_index(name);
        key.push(index.ok_or_else(|| format!("the primary key of {} has no column {name}", schema.table))?);
    }
    Ok(key)
}

/// A key must have values that are equal exactly when the source says so, and that a WHERE can name.
fn check_key_column(table: &TableId, column: &FoundColumn, kind: &ColumnType) -> Result<(), String> {
    let unfit = match kind {
        ColumnType::Float | ColumnType::Double => "is a floating-point number, which has no exact equality",
        ColumnType::Json => "is JSON, which has no order",
        ColumnType::Geometry { .. } => "is a geometry, which has no order",
        ColumnType::Vector { .. } => "is a vector, which has no order",
        _ if column.nullable => "can be null",
        _ => return Ok(()),
    };
    Err(format!("key column {} of {table} {unfit}; name other unique columns with `key:` in the job file", column.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &str, column_type: &str, nullable: bool) -> FoundColumn {
        let charset = column_type.starts_with("varchar").then(|| "utf8mb4".to_string());
        FoundColumn {
            name: name.into(),
            column_type: column_type.into(),
            charset,
            nullable,
            default: None,
            extra: String::new(),
        }
    }

    fn table(primary: &[(&str, Option<u64>)]) -> Found {
        Found {
            charset: None,
            kind: "BASE TABLE".into(),
            engine: "InnoDB".into(),
            rows_estimated: Some(3),
            columns: vec![
                column("a", "int(11)", false),
                column("b", "varchar(20)", false),
                column("c", "double", false),
                column("d", "int", true),
            ],
            primary: primary.iter().map(|(name, prefix)| (name.to_string(), *prefix)).collect(),
            unique: BTreeMap::new(),
        }
    }

    fn check(primary: &[(&str, Option<u64>)], given: Option<&[&str]>, expected: Result<&[usize], &str>) {
        let given = given.map(|names| names.iter().map(|name| name.to_string()).collect());
        let schema = schema(&TableId::new("shop", "orders"), &table(primary), given.as_ref(), false);
        match (schema, expected) {
            (Ok(schema), Ok(key)) => assert_eq!(schema.key, key),
            (Err(reason), Err(words)) => assert!(reason.contains(words), "{reason}"),
            (schema, expected) => panic!("{schema:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn the_key_is_the_primary_key_in_its_own_order() {
        check(&[("b", None), ("a", None)], None, Ok(&[1, 0]));
    }

    #[test]
    fn a_given_key_goes_before_the_primary_key() {
        check(&[("a", None)], Some(&["B"]), Ok(&[1]));
        check(&[], Some(&["b"]), Ok(&[1]));
        check(&[], Some(&["x"]), Err("no column x"));
    }

    #[test]
    fn a_table_without_a_usable_key_says_what_to_do() {
        check(&[], None, Err("add one, or name columns"));
        check(&[("b", Some(10))], None, Err("first 10 characters of b"));
        check(&[("c", None)], None, Err("floating-point"));
        check(&[], Some(&["d"]), Err("can be null"));
    }

    #[test]
    fn a_unique_key_that_is_never_null_is_advised() {
        let advised = |unique: &[(&str, &[Option<&str>])]| {
            let mut found = table(&[]);
            let parts = |parts: &[Option<&str>]| parts.iter().map(|part| part.map(str::to_string)).collect();
            found.unique = unique.iter().map(|(name, columns)| (name.to_string(), parts(columns))).collect();
            key_advised(&TableId::new("shop", "orders"), &found)
        };
        assert_eq!(advised(&[("x", &[Some("a"), Some("b")]), ("y", &[Some("B")])]), ["B"]);
        assert!(
            advised(&[("null", &[Some("d")]), ("double", &[Some("c")]), ("prefix", &[Some("a"), None])]).is_empty()
        );
    }

    #[test]
    fn only_databases_that_are_named_are_read_from_the_catalogue() {
        let condition = |patterns: &[&str]| databases_condition(&TableFilter::new(patterns).unwrap());
        assert_eq!(condition(&["a.*", "!b*.x"]), "table_schema IN (_utf8mb4 X'61')");
        assert!(condition(&["a.*", "s*.x"]).contains("NOT IN"));
    }
}
