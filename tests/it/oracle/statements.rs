//! Random statements over one table.

use std::collections::BTreeSet;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};

use super::tables::{Column, Table};
use super::values::Kind;
use crate::harness::Flavor;

/// A key as literals.
pub type Key = Vec<String>;

/// Writes statements for one table. Remembers keys that were ever given, so that later statements meet rows; some
/// of them are gone by then, which makes a statement that changes nothing, as it happens in real life.
pub struct Statements<'a> {
    pub table: &'a Table,
    pub keys: &'a mut BTreeSet<Key>,
    pub random: &'a mut StdRng,
    pub flavor: Flavor,
}

impl Statements<'_> {
    pub fn any(&mut self) -> String {
        match self.random.random_range(0..100) {
            0..30 => self.insert("INSERT"),
            30..38 => self.insert("REPLACE"),
            38..44 => self.insert_or_update(),
            44..66 => self.update_one(),
            66..72 => self.update_many(),
            72..80 => self.change_key(),
            80..82 => self.shift_keys(),
            82..94 => self.delete_one(),
            94..99 => self.delete_many(),
            // As TRUNCATE, but row by row in the log; rare, or nothing would be left to compare.
            _ if self.random.random_bool(0.7) => self.update_one(),
            _ => format!("DELETE FROM {}", self.table.name),
        }
    }

    /// One statement with many rows.
    pub fn insert_many(&mut self, rows: usize) -> String {
        self.insert_rows("INSERT IGNORE", rows)
    }

    fn insert(&mut self, verb: &str) -> String {
        let rows = if self.random.random_bool(0.3) { self.random.random_range(2..6) } else { 1 };
        self.insert_rows(verb, rows)
    }

    /// Now and then without columns that have a default. (With minimal images MariaDB logs a REPLACE of a row that is there as
    /// an update, without the columns that got their default: what they were before would stay.)
    fn insert_rows(&mut self, verb: &str, rows: usize) -> String {
        let leaves_out = self.random.random_bool(0.5) && (verb != "REPLACE" || self.flavor == Flavor::Mysql);
        let table = self.table;
        let columns: Vec<&Column> =
            table.columns[table.key_columns..].iter().filter(|column| column.is_given()).collect();
        let random = &mut *self.random;
        let kept = |column: &&&Column| !(leaves_out && column.may_be_left_out() && random.random_bool(0.4));
        let columns: Vec<&Column> = columns.iter().filter(kept).copied().collect();
        let rows: Vec<String> = (0..rows).map(|_| format!("({})", self.row(&columns).join(", "))).collect();
        let names = table.key_names().into_iter().chain(columns.iter().map(|column| column.name.clone()));
        let names = names.collect::<Vec<_>>().join(", ");
        format!("{verb} INTO {} ({names}) VALUES {}", self.table.name, rows.join(", "))
    }

    fn insert_or_update(&mut self) -> String {
        let insert = self.insert_rows("INSERT", 1);
        format!("{insert} ON DUPLICATE KEY UPDATE {}", self.assignments())
    }

    fn update_one(&mut self) -> String {
        format!("UPDATE {} SET {} WHERE {}", self.table.name, self.assignments(), self.known_key())
    }

    fn update_many(&mut self) -> String {
        let limit = self.random.random_range(2..20);
        format!("UPDATE {} SET {} {}", self.table.name, self.assignments(), self.first_rows(limit))
    }

    fn change_key(&mut self) -> String {
        let key = self.new_key();
        let names = self.table.key_names();
        let set: Vec<String> = names.iter().zip(&key).map(|(name, value)| format!("{name} = {value}")).collect();
        format!("UPDATE {} SET {} WHERE {}", self.table.name, set.join(", "), self.known_key())
    }

    /// Every key becomes another row's old key, in one statement.
    fn shift_keys(&mut self) -> String {
        match self.table.name {
            "integers" | "special" | "defaults" => {
                format!("UPDATE {0} SET id = id + 1 ORDER BY id DESC", self.table.name)
            }
            "unsigned_key" => format!("UPDATE {} SET id = id - 1 ORDER BY id", self.table.name),
            _ => self.update_many(),
        }
    }

    fn delete_one(&mut self) -> String {
        format!("DELETE FROM {} WHERE {}", self.table.name, self.known_key())
    }

    fn delete_many(&mut self) -> String {
        let limit = self.random.random_range(2..8);
        format!("DELETE FROM {} {}", self.table.name, self.first_rows(limit))
    }

    fn first_rows(&self, limit: usize) -> String {
        format!("ORDER BY {} LIMIT {limit}", self.table.key_names().join(", "))
    }

    fn row(&mut self, columns: &[&Column]) -> Vec<String> {
        let mut row = self.new_key();
        row.extend(columns.iter().map(|column| column.literal(self.random)));
        row
    }

    /// One to three columns outside the key with new values.
    fn assignments(&mut self) -> String {
        let count = self.random.random_range(1..=3);
        let given = self.table.columns[self.table.key_columns..].iter().filter(|column| column.is_given());
        let chosen = given.choose_multiple(self.random, count);
        let set: Vec<String> = chosen.into_iter().map(|column| self.assignment(column)).collect();
        set.join(", ")
    }

    /// A document is changed in parts now and then.
    fn assignment(&mut self, column: &Column) -> String {
        let name = &column.name;
        if !matches!(column.kind, Kind::Json) || self.random.random_bool(0.3) {
            return format!("{name} = {}", column.literal(self.random));
        }
        let path = ["$.a", "$.b", "$.ab", "$.\"k k\"", "$.list[0]", "$.list[2]", "$[1]", "$.a.b", "$"];
        let path = path.choose(self.random).copied().unwrap_or("$");
        let change = match self.random.random_range(0..5) {
            0 if path != "$" => format!("JSON_REMOVE({name}, '{path}')"),
            1 => format!("JSON_REPLACE({name}, '{path}', {})", self.random.random_range(0..99)),
            2 => format!("JSON_SET({name}, '$.list', JSON_ARRAY(1, 'é', NULL), '{path}', 'x')"),
            3 => format!("JSON_SET({name}, '{path}', JSON_OBJECT('b', 1.5, 'aa', TRUE))"),
            _ => format!("JSON_INSERT({name}, '{path}', 'new \\\\ \\\" text')"),
        };
        format!("{name} = {change}")
    }

    fn new_key(&mut self) -> Key {
        let key: Key = self.table.columns[..self.table.key_columns]
            .iter()
            .map(|column| column.kind.literal(self.random))
            .collect();
        self.keys.insert(key.clone());
        key
    }

    fn known_key(&mut self) -> String {
        let key = match self.keys.iter().choose(self.random) {
            Some(key) => key.clone(),
            None => self.new_key(),
        };
        let names = self.table.key_names();
        let parts: Vec<String> = names.iter().zip(&key).map(|(name, value)| format!("{name} = {value}")).collect();
        parts.join(" AND ")
    }
}
