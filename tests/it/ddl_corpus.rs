//! The statements of `tests/data/ddl/changes.sql` on both servers: after each of them the tables that are read from the statements
//! have the columns that `information_schema` shows.

use std::collections::HashMap;
use std::sync::Arc;

use alluvium::change::TableId;
use alluvium::schema::TableSchema;
use alluvium::source::mysql::column_type::{ColumnType, split_left_out};
use alluvium::source::mysql::ddl::{Context, Effect, SqlMode, effects};
use mysql_async::prelude::Queryable;

use crate::harness::{Flavor, Server};

const CHANGES: &str = include_str!("../data/ddl/changes.sql");

/// Of the statements that a server takes, so many at least are followed; the others are read, and take their table out with a reason.
const FOLLOWED_MIN: usize = 590;

/// What is known of the tables, from the statements alone.
struct Known {
    flavor: Flavor,
    database: String,
    tables: HashMap<TableId, Arc<TableSchema>>,
    followed: usize,
    out: Vec<String>,
}

impl Known {
    /// Takes in a statement that the server has run. What is not followed leaves the table as it was.
    fn run(&mut self, statement: &str) {
        let known = |table: &TableId| self.tables.get(table).cloned();
        let context = Context {
            default_database: &self.database,
            mariadb: self.flavor == Flavor::Mariadb,
            sql_mode: SqlMode { strict: true, ..SqlMode::default() },
            known: &known,
            database_charset: &|_| Some("utf8mb4".to_string()),
        };
        self.followed += 1;
        for effect in effects(statement, &context) {
            match effect {
                Effect::CreateTable(schema) => _ = self.tables.insert(schema.table.clone(), Arc::new(schema)),
                // The key of a table is not changed in place.
                Effect::Alter { table, primary_key: Some(_), .. } => self.leave(&table, statement, "another key"),
                Effect::Alter { table, schema, .. } => _ = self.tables.insert(table, Arc::new(schema)),
                Effect::Rename { from, to } => {
                    if let Some(schema) = self.tables.remove(&from) {
                        self.tables.insert(to, schema);
                    }
                }
                Effect::DropTable(table) => _ = self.tables.remove(&table),
                Effect::Truncate(_) | Effect::DatabaseCharset { .. } | Effect::Dml { .. } => {}
                Effect::CreateTableUnreadable { table, reason } => self.leave(&table, statement, &reason),
                Effect::Other { table, what } => self.leave(&table, statement, &what),
                other => panic!("{:?}: {statement}: {other:?}", self.flavor),
            }
        }
    }

    fn leave(&mut self, table: &TableId, statement: &str, why: &str) {
        self.followed -= 1;
        self.out.push(format!("{statement}: {why}"));
        self.tables.remove(table);
    }

    /// Names, types, and whether null is allowed, as the statements tell.
    fn shown(schema: &TableSchema) -> Vec<(String, String, bool)> {
        let column = |column: &alluvium::schema::Column| {
            (column.name.clone(), split_left_out(&column.source_type).0.to_string(), column.nullable)
        };
        schema.columns.iter().map(column).collect()
    }
}

async fn on_server(server: &Server, table: &TableId) -> Vec<(String, String, bool)> {
    let rows = server
        .query(&format!(
            "SELECT CAST(column_name AS CHAR), CAST(column_type AS CHAR), CAST(character_set_name AS CHAR), \
             CAST(is_nullable AS CHAR) FROM information_schema.columns WHERE table_schema = '{}' AND table_name = '{}' \
             ORDER BY ordinal_position",
            table.database, table.table
        ))
        .await;
    let column = |row: Vec<Option<String>>| {
        let text = |index: usize| row[index].as_deref();
        let column_type = ColumnType::from_information_schema(text(1).unwrap(), text(2)).unwrap();
        (text(0).unwrap().to_string(), column_type.to_string(), text(3) == Some("YES"))
    };
    rows.into_iter().map(column).collect()
}

/// One block, from a table of its own. Where its table is taken out, it begins again without the statement that did it.
async fn check_block(server: &Server, statements: &[String]) -> Known {
    let mut left_out = Vec::new();
    loop {
        let database = server.new_database("ddl").await;
        let tables = HashMap::new();
        let mut known = Known { flavor: server.flavor, database, tables, followed: 0, out: Vec::new() };
        let mut connection = server.connect().await;
        connection.query_drop(format!("USE {}", known.database)).await.unwrap();
        let before = left_out.len();
        for statement in statements.iter().filter(|statement| !left_out.contains(*statement)) {
            if connection.query_drop(statement.as_str()).await.is_err() {
                continue;
            }
            let was = known.out.len();
            known.run(statement);
            if known.out.len() > was {
                left_out.push(statement.clone());
                break;
            }
            for (table, schema) in &known.tables {
                let expected = on_server(server, table).await;
                assert_eq!(Known::shown(schema), expected, "{:?} {table} after: {statement}", server.flavor);
            }
        }
        if left_out.len() == before {
            known.out = left_out;
            return known;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_have_the_columns_that_the_server_shows_after_each_statement() {
    let lines = CHANGES.split("\n\n").skip(1);
    let blocks: Vec<Vec<String>> =
        lines.map(|block| block.lines().map(|line| line.replace("\\n", "\n")).collect()).collect();
    for flavor in Flavor::ALL {
        let server = Server::shared(flavor);
        let (mut followed, mut out) = (0, Vec::new());
        for block in &blocks {
            let known = check_block(server, block).await;
            followed += known.followed;
            out.extend(known.out);
        }
        println!("{flavor:?}: {followed} statements are followed, {} take their table out: {out:#?}", out.len());
        assert!(followed >= FOLLOWED_MIN, "{flavor:?}: {followed}");
    }
}
