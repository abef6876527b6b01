//! Statements that change rows, where the log has them in place of the rows.

use super::token::{Cursor, Token};
use super::{Context, Effect};
use crate::change::TableId;

/// Words that may stand between the verb and the table.
const MODIFIERS: [&str; 12] = [
    "low_priority",
    "delayed",
    "high_priority",
    "ignore",
    "quick",
    "into",
    "from",
    "local",
    "concurrent",
    "only",
    "history",
    "table",
];

/// The tables that the statement may change. Of an UPDATE or DELETE over several tables these are all of them.
pub(super) fn effects(cursor: &mut Cursor<'_, '_>, context: &Context<'_>) -> Vec<Effect> {
    if cursor.sees(&["with"]) {
        while !cursor.is_end() && !cursor.sees(&["update"]) && !cursor.sees(&["delete"]) {
            cursor.skip_one();
        }
    }
    let tables = match cursor.next() {
        Some(verb) if verb.is_word("update") => many(cursor, context, &["set"]),
        Some(verb) if verb.is_word("delete") => many(cursor, context, &["where", "order", "limit", "returning"]),
        Some(verb) if verb.is_word("load") => loaded(cursor, context),
        Some(_) => {
            while cursor.skip_any(&MODIFIERS) {}
            context.table(cursor).into_iter().collect()
        }
        None => Vec::new(),
    };
    tables.into_iter().map(|table| Effect::Dml { table }).collect()
}

fn loaded(cursor: &mut Cursor<'_, '_>, context: &Context<'_>) -> Vec<TableId> {
    // LOAD DATA and LOAD XML, not LOAD INDEX.
    while !cursor.is_end() && !cursor.skip(&["into", "table"]) {
        cursor.skip_one();
    }
    context.table(cursor).into_iter().collect()
}

/// The names in a list of tables and joins, up to one of these words.
fn many(cursor: &mut Cursor<'_, '_>, context: &Context<'_>, ends: &[&str]) -> Vec<TableId> {
    let mut tables = Vec::new();
    let mut expects_name = true;
    while !cursor.is_end() && !ends.iter().any(|end| cursor.sees(&[end])) {
        if cursor.skip(&["using"]) {
            // The columns of a join; without parentheses it begins the tables of a DELETE.
            expects_name = cursor.parenthesized().is_none();
        } else if cursor.skip_any(&MODIFIERS) || cursor.skip_any(&["join"]) || cursor.skip_symbol(',') {
            expects_name = true;
        } else if expects_name && matches!(cursor.peek(), Some(Token::Word(_) | Token::Name(_))) {
            tables.extend(context.table(cursor));
            expects_name = false;
        } else if let Some(mut inside) = cursor.parenthesized() {
            if !inside.sees(&["select"]) {
                tables.extend(many(&mut inside, context, ends));
            }
            expects_name = false;
        } else {
            cursor.next();
        }
    }
    tables.sort();
    tables.dedup();
    tables
}
