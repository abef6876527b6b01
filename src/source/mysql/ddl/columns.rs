//! What the clauses of an ALTER TABLE make of the table's columns.
//!
//! All clauses of one statement speak of the table as it was before ("ALTER TABLE" in the manual): each old column is
//! dropped, redefined or renamed by the name that it had, and then columns that are added or moved go to their places among
//! the names of the new ones.

use std::sync::Arc;

use super::alter::Change;
use super::column::{ColumnDefinition, Generated, Place};
use super::data_type;
use super::default::{self, Default};
use super::{Context, Effect, retype};
use crate::change::TableId;
use crate::schema::{Column, ColumnChange, TableSchema};
use crate::source::mysql::column_type::{ColumnType, split_left_out};

/// One ALTER TABLE.
pub(super) struct Alteration<'c> {
    pub table: TableId,
    pub known: Option<Arc<TableSchema>>,
    /// A default character set that the statement itself gives.
    pub charset: Option<String>,
    /// Rows that do not fit are changed or left out (ALTER IGNORE).
    pub ignores: bool,
    pub context: &'c Context<'c>,
}

/// A column of the table that is being made.
struct Part {
    column: Column,
    /// Its number among the old columns; `None` for one that is added.
    old: Option<usize>,
}

/// The statement's clauses by what they speak of.
#[derive(Default)]
struct Clauses {
    columns: Vec<Change>,
    primary_key: Option<Vec<String>>,
    renamed: Option<TableId>,
    others: Vec<String>,
    /// Other tables that it touches.
    touched: Vec<TableId>,
}

impl Alteration<'_> {
    pub fn effects(self, changes: Vec<Change>) -> Vec<Effect> {
        let clauses = self.sort(changes);
        let renamed = clauses.renamed.clone();
        let Some(known) = self.known.clone() else {
            let renamed = renamed.map(|to| Effect::Rename { from: self.table.clone(), to });
            return self.touch(clauses.touched).into_iter().chain(renamed).collect();
        };
        let altered = match self.alter(&known, clauses) {
            Ok(altered) => altered.into_iter().collect(),
            Err((what, touched)) => {
                let first = Effect::Other { table: self.table.clone(), what };
                std::iter::once(first).chain(self.touch(touched)).collect::<Vec<_>>()
            }
        };
        let renamed = renamed.map(|to| Effect::Rename { from: self.table.clone(), to });
        altered.into_iter().chain(renamed).collect()
    }

    fn sort(&self, changes: Vec<Change>) -> Clauses {
        let mut clauses = Clauses::default();
        for change in changes {
            match change {
                Change::Nothing => {}
                Change::Unique if self.ignores => clauses.others.push("rows with equal keys may be gone".to_string()),
                Change::Unique => {}
                // Of DROP PRIMARY KEY, ADD PRIMARY KEY the second says what the key is.
                Change::PrimaryKey(names) => {
                    let known = clauses.primary_key.take().unwrap_or_default();
                    clauses.primary_key = Some(if names.is_empty() { known } else { names });
                }
                Change::RenameTable(to) => clauses.renamed = Some(to),
                Change::Other(what, table) => {
                    clauses.others.push(what);
                    clauses.touched.extend(table);
                }
                of_columns => clauses.columns.push(of_columns),
            }
        }
        clauses
    }

    fn touch(&self, tables: Vec<TableId>) -> Vec<Effect> {
        let what = format!("an ALTER TABLE of {} changed it too", self.table);
        tables.into_iter().map(|table| Effect::Other { table, what: what.clone() }).collect()
    }

    /// The new columns; `None` where nothing changed.
    fn alter(&self, known: &TableSchema, clauses: Clauses) -> Result<Option<Effect>, (String, Vec<TableId>)> {
        if !clauses.others.is_empty() {
            return Err((clauses.others.join("; "), clauses.touched));
        }
        let mut defaults = Vec::new();
        let converted = clauses.columns.iter().find_map(|clause| self.converted(clause));
        let parts = self.parts(known, clauses.columns, &mut defaults).map_err(|what| (what, Vec::new()))?;
        let mut schema = TableSchema { columns: Vec::new(), key: Vec::new(), ..known.clone() };
        let place = |old: &usize| parts.iter().position(|part| part.old == Some(*old));
        for old in &known.key {
            let gone = || (format!("column {} of its key was dropped", known.columns[*old].name), Vec::new());
            schema.key.push(place(old).ok_or_else(gone)?);
        }
        let strict = self.context.sql_mode.strict && !self.ignores;
        let change = |part: &Part| {
            let old = part.old.and_then(|old| known.columns.get(old));
            ColumnChange {
                from: old.map(|old| old.name.clone()),
                altered: old.and_then(|old| retype::altered(old, &part.column, strict)),
            }
        };
        let changes: Vec<ColumnChange> = parts.iter().map(change).collect();
        schema.columns = parts.into_iter().map(|part| part.column).collect();
        // Columns that are added later take it.
        schema.default_charset = converted.or(self.charset.clone()).or(schema.default_charset);
        let is_same = schema == *known && clauses.primary_key.is_none();
        schema.version += 1;
        let effect =
            Effect::Alter { table: self.table.clone(), schema, changes, defaults, primary_key: clauses.primary_key };
        Ok((!is_same).then_some(effect))
    }

    /// The columns in their new order. `defaults` gets what old rows hold in those that are added.
    fn parts(
        &self,
        known: &TableSchema,
        clauses: Vec<Change>,
        defaults: &mut Vec<(String, Option<String>)>,
    ) -> Result<Vec<Part>, String> {
        let old = known.columns.iter().enumerate();
        let mut stay: Vec<Option<Part>> =
            old.map(|(index, column)| Some(Part { column: column.clone(), old: Some(index) })).collect();
        let mut late = Vec::new();
        let (first, rest): (Vec<_>, Vec<_>) = clauses
            .into_iter()
            .partition(|clause| matches!(clause, Change::DropColumn(_) | Change::RenameColumn { .. }));
        // What is dropped or renamed makes its name free for what is added, in whatever order the clauses stand.
        for clause in first.into_iter().chain(rest) {
            match clause {
                Change::Add(definition) => late.extend(self.add(known, &stay, &definition, defaults)?),
                Change::Redefine { old, if_exists, .. } | Change::RenameColumn { from: old, if_exists, .. }
                    if if_exists && known.column_index(&old).is_none() => {}
                Change::Redefine { old, definition, .. } => {
                    late.extend(self.redefine(known, &mut stay, &old, &definition)?);
                }
                Change::DropColumn(name) => {
                    // One that is not there: DROP COLUMN IF EXISTS, or the catalogue was ahead of the log.
                    if let Some(index) = known.column_index(&name) {
                        stay[index] = None;
                    }
                }
                Change::RenameColumn { from, to, .. } => {
                    let index = renamed(known, &from, &to)?;
                    if let Some(part) = index.and_then(|index| stay[index].as_mut()) {
                        part.column.name = to;
                    }
                }
                Change::Default(name, default) => {
                    let index = known.column_index(&name);
                    if let Some(part) = index.and_then(|index| stay[index].as_mut()) {
                        set_default(&mut part.column, &default);
                    }
                }
                clause => {
                    if let Some(charset) = self.converted(&clause) {
                        stay.iter_mut().flatten().for_each(|part| convert(&mut part.column, &charset));
                    }
                }
            }
        }
        let parts = put_in_places(stay.into_iter().flatten().collect(), late)?;
        if parts.is_empty() {
            return Err("all its columns were dropped".to_string());
        }
        Ok(parts)
    }

    /// The character set of CONVERT TO, which is the table's own from there on.
    fn converted(&self, clause: &Change) -> Option<String> {
        match clause {
            Change::Convert(Some(charset)) => Some(charset.clone()),
            Change::Convert(None) => Some(self.context.charset_of_database(&self.table.database)),
            _ => None,
        }
    }

    fn add(
        &self,
        known: &TableSchema,
        stay: &[Option<Part>],
        definition: &ColumnDefinition,
        defaults: &mut Vec<(String, Option<String>)>,
    ) -> Result<Option<(Late, Option<Place>)>, String> {
        let name = &definition.name;
        let is_there = |part: &Part| part.column.name.eq_ignore_ascii_case(name);
        if stay.iter().flatten().any(is_there) && known.column_index(name).is_some() {
            // ADD COLUMN IF NOT EXISTS, or the catalogue was ahead of the log: the source would have refused anything else.
            return Ok(None);
        }
        if definition.primary_key || definition.auto_increment {
            return Err(format!("column {name} was added as a key or with numbers for old rows"));
        }
        if definition.generated != Generated::No {
            return Err(format!("column {name} was added, which the server computes"));
        }
        let column_type = definition.data_type.resolve(&self.table_charset());
        defaults.push((name.clone(), default::of_old_rows(definition, &column_type)?));
        let left_out = default::left_out(definition, &column_type, self.context.mariadb);
        let column = column_type.column_left_out(name, definition.nullable, &left_out);
        Ok(Some((Late::New(Box::new(Part { column, old: None })), definition.place.clone())))
    }

    /// MODIFY and CHANGE: in its place, and given back with the place that it goes to, if it does.
    fn redefine(
        &self,
        known: &TableSchema,
        stay: &mut [Option<Part>],
        old: &str,
        definition: &ColumnDefinition,
    ) -> Result<Option<(Late, Option<Place>)>, String> {
        let Some(index) = renamed(known, old, &definition.name)? else { return Ok(None) };
        if definition.generated != Generated::No {
            return Err(format!("column {old} was redefined, and the server computes it"));
        }
        let column_type = definition.data_type.resolve(&self.table_charset());
        let nullable = definition.nullable && !known.key.contains(&index);
        let left_out = default::left_out(definition, &column_type, self.context.mariadb);
        let Some(part) = stay[index].as_mut() else { return Ok(None) };
        let lake = part.column.lake.take();
        part.column = Column { lake, ..column_type.column_left_out(&definition.name, nullable, &left_out) };
        Ok(definition.place.clone().map(|place| (Late::Moved(index), Some(place))))
    }

    /// The default character set of the table: of this statement, else the one it has; where that is
    /// not known, of all its text columns, else the database's.
    fn table_charset(&self) -> String {
        if let Some(charset) = &self.charset {
            return charset.clone();
        }
        if let Some(charset) = self.known.as_ref().and_then(|known| known.default_charset.as_ref()) {
            return charset.clone();
        }
        let columns = self.known.iter().flat_map(|known| &known.columns);
        let types = columns.filter_map(|column| column.source_type.parse::<ColumnType>().ok());
        let mut charsets: Vec<String> = types.filter_map(|made| made.charset().map(str::to_string)).collect();
        charsets.dedup();
        match (charsets.pop(), charsets.is_empty()) {
            (Some(only), true) => only,
            _ => self.context.charset_of_database(&self.table.database),
        }
    }
}

/// A column that goes to a place: a new one, or the old one of this number, which stands where it was until its turn comes.
enum Late {
    New(Box<Part>),
    Moved(usize),
}

/// Puts columns that are added or moved where they belong, in the order of the statement.
fn put_in_places(mut parts: Vec<Part>, late: Vec<(Late, Option<Place>)>) -> Result<Vec<Part>, String> {
    for (late, place) in late {
        let part = match late {
            Late::New(part) => Some(*part),
            Late::Moved(old) => parts.iter().position(|part| part.old == Some(old)).map(|index| parts.remove(index)),
        };
        let Some(part) = part else { continue };
        let at = match &place {
            None => parts.len(),
            Some(Place::First) => 0,
            Some(Place::After(name)) => {
                let after = parts.iter().position(|part| part.column.name.eq_ignore_ascii_case(name));
                let unknown = || format!("column {} was put after an unknown one", part.column.name);
                after.ok_or_else(unknown)? + 1
            }
        };
        parts.insert(at, part);
    }
    Ok(parts)
}

/// The number of a column that gets another name; `None` where it has it already, for the catalogue was ahead of the log, or
/// the statement said IF EXISTS.
fn renamed(known: &TableSchema, from: &str, to: &str) -> Result<Option<usize>, String> {
    match (known.column_index(from), known.column_index(to)) {
        (Some(index), _) => Ok(Some(index)),
        (None, Some(_)) => Ok(None),
        (None, None) => Err(format!("column {from}, which is not known, was redefined")),
    }
}

/// A default that cannot be read makes it unknown; so does one of a type that cannot.
fn set_default(column: &mut Column, default: &Default) {
    let plain = split_left_out(&column.source_type).0.to_string();
    let left_out = plain.parse::<ColumnType>().map(|kind| default::of_default(default, column.nullable, &kind));
    column.source_type = plain + &left_out.map(|left_out| left_out.suffix()).unwrap_or_default();
}

/// CONVERT TO CHARACTER SET: a text column gets the character set, and where it needs it the next larger type.
fn convert(column: &mut Column, charset: &str) {
    let (plain, left_out) = split_left_out(&column.source_type);
    let Ok(column_type) = plain.parse::<ColumnType>() else { return };
    let converted = data_type::converted(column_type, charset);
    let lake = column.lake.take();
    *column = Column { lake, ..converted.column_left_out(&column.name, column.nullable, &left_out) };
}
