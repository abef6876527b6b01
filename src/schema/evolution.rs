//! What a change of the source's columns makes of the lake's. Pure: the plan is made once, kept in the ledger, and carried
//! out by the lake.
//!
//! Nothing that the lake has is thrown away. A column that the source drops stays, and is null in rows written from then on. A
//! column that is renamed becomes a new one with the values of the old. A column whose type grows is rewritten in place. A change
//! after which the old values and the new ones do not fit into one column follows the job's [`Policy`].

use std::collections::HashSet;

use arrow::datatypes::DataType;

use super::rules::check_hashed;
use super::{Column, TableSchema, Treatment};

/// Most digits of a decimal that Arrow and Delta hold in 128 bits.
const DECIMAL_DIGITS_MAX: u8 = 38;

/// What the job wants of changes of a table's columns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Policy {
    pub evolution: Evolution,
    pub incompatible: WhenIncompatible,
}

/// Which changes are followed; any other takes the table out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Evolution {
    #[default]
    On,
    /// Those after which one column holds the old values and the new ones.
    Compatible,
    /// Those that leave the lake's columns as they are.
    Off,
}

/// What becomes of a column whose old values and new ones do not fit together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WhenIncompatible {
    /// The old values stay where they are, the new ones go to a column beside it.
    #[default]
    NewColumn,
    /// The column becomes one of text.
    String,
    /// The table is taken out.
    Stop,
}

/// Where a column of the new schema comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnChange {
    /// The name of the old schema's column whose values it has; `None` for an added column.
    pub from: Option<String>,
    /// How the source may have changed the values that it had, which the log does not show; `None` if it kept them.
    pub altered: Option<String>,
}

/// What the lake has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    Follow {
        /// The new schema, with the lake's column for each of its own.
        schema: TableSchema,
        /// Pairs of the lake's columns: the first is new and gets the values of the second.
        copies: Vec<(String, String)>,
    },
    /// The change is not followed, for this reason.
    Refuse(String),
}

/// Whether one column of the lake can have both its present values and those of another type.
enum Fit {
    /// As it is.
    Holds,
    /// As one of this type.
    Widens(DataType),
    No,
}

/// Plans the change from `old` to `new`. `changes` has an entry for each column of `new`; if it is empty, columns of one name
/// are one column, with its values kept.
pub fn plan(old: &TableSchema, new: &TableSchema, changes: &[ColumnChange], policy: Policy) -> Plan {
    let by_name = |column: &Column| ColumnChange {
        from: old.column_index(&column.name).map(|index| old.columns[index].name.clone()),
        altered: None,
    };
    let named: Vec<ColumnChange> = match changes.len() == new.columns.len() {
        true => changes.to_vec(),
        false => new.columns.iter().map(by_name).collect(),
    };
    if let Some(reason) = key_change(old, new, &named) {
        return Plan::Refuse(reason);
    }
    let mut planner = Planner::new(old, policy);
    let mut schema = new.clone();
    for (index, (column, change)) in schema.columns.iter_mut().zip(&named).enumerate() {
        let in_key = new.key.contains(&index);
        if let Err(reason) = planner.column(column, change, in_key) {
            return Plan::Refuse(reason);
        }
    }
    for column in old.columns.iter().filter(|column| is_filled(column)) {
        let stays = named.iter().filter_map(|change| change.from.as_ref()).any(|from| *from == column.name);
        if !stays && policy.evolution == Evolution::Off {
            return Plan::Refuse(format!("column {} was dropped", column.name));
        }
        if !stays {
            planner.retired.push(column.lake_name().to_string());
        }
    }
    schema.retired = planner.retired;
    schema.rules = old.rules.clone();
    Plan::Follow { schema, copies: planner.copies }
}

/// Why the rows of the two schemas are told apart by other values.
fn key_change(old: &TableSchema, new: &TableSchema, changes: &[ColumnChange]) -> Option<String> {
    let was: Vec<&str> = old.key.iter().map(|index| old.columns[*index].name.as_str()).collect();
    let is: Vec<&str> = new.key.iter().map(|index| new.columns[*index].name.as_str()).collect();
    let from = new.key.iter().map(|index| changes[*index].from.as_deref());
    let same = from.eq(was.iter().map(|name| Some(*name)));
    (!same).then(|| format!("its key was ({}) and is now ({})", was.join(", "), is.join(", ")))
}

struct Planner<'a> {
    old: &'a TableSchema,
    policy: Policy,
    /// Names of the lake's columns, in lower case: Delta tells no case apart.
    taken: HashSet<String>,
    copies: Vec<(String, String)>,
    retired: Vec<String>,
}

impl<'a> Planner<'a> {
    fn new(old: &'a TableSchema, policy: Policy) -> Self {
        let names = old.lake_names().into_iter().chain(old.retired.iter().map(String::as_str));
        let taken = names.map(str::to_lowercase).collect();
        Self { old, policy, taken, copies: Vec::new(), retired: old.retired.clone() }
    }

    /// Gives a column of the new schema its place in the lake.
    fn column(&mut self, column: &mut Column, change: &ColumnChange, in_key: bool) -> Result<(), String> {
        let index = change.from.as_ref().and_then(|from| self.old.column_index(from));
        let old = index.map(|index| &self.old.columns[index]);
        column.treatment = self.treatment(old, column, in_key);
        check_hashed(column)?;
        let Some(old) = old.filter(|old| old.treatment == column.treatment) else {
            self.retired.extend(old.filter(|old| is_filled(old)).map(|old| old.lake_name().to_string()));
            return self.added(column);
        };
        let fit = match &change.altered {
            _ if column.treatment == Treatment::LeftOut => return Ok(()),
            _ if column.treatment == Treatment::Masked => Fit::Holds,
            None if column.treatment == Treatment::Hashed => Fit::Holds,
            None => fit(old.lake_type(), &column.data_type),
            Some(_) => Fit::No,
        };
        let data_type = match fit {
            Fit::Holds => old.lake_type().clone(),
            Fit::Widens(data_type) => data_type,
            Fit::No => return self.incompatible(old, column, change, in_key),
        };
        self.carry_on(old, column, data_type, in_key)
    }

    /// By the column's present name; where that says nothing, a column is treated as under its name before.
    fn treatment(&self, old: Option<&Column>, column: &Column, in_key: bool) -> Treatment {
        match self.old.rules.treatment(&column.name) {
            _ if in_key => Treatment::Kept,
            Treatment::Kept => old.map_or(Treatment::Kept, |old| old.treatment),
            named => named,
        }
    }

    fn added(&mut self, column: &mut Column) -> Result<(), String> {
        if column.treatment == Treatment::LeftOut {
            column.lake = None;
            return Ok(());
        }
        if self.policy.evolution == Evolution::Off {
            return Err(format!("column {} was added", column.name));
        }
        let name = self.free_name(self.old.rules.lake_name(&column.name));
        column.place(name, None);
        Ok(())
    }

    /// The old values and the new ones are in one column, of this type. A key column keeps its name in the lake.
    fn carry_on(&mut self, old: &Column, column: &mut Column, data_type: DataType, in_key: bool) -> Result<(), String> {
        let renamed = !old.name.eq_ignore_ascii_case(&column.name) && !in_key;
        let changes_lake = renamed || data_type != *old.lake_type();
        if changes_lake && self.policy.evolution == Evolution::Off {
            let what = if renamed { format!("renamed to {}", column.name) } else { "given another type".to_string() };
            return Err(format!("column {} was {what}", old.name));
        }
        if renamed {
            let name = self.free_name(self.old.rules.lake_name(&column.name));
            self.copies.push((name.clone(), old.lake_name().to_string()));
            self.retired.push(old.lake_name().to_string());
            column.place(name, Some(data_type));
        } else {
            column.place(old.lake_name().to_string(), Some(data_type));
        }
        Ok(())
    }

    fn incompatible(
        &mut self,
        old: &Column,
        column: &mut Column,
        change: &ColumnChange,
        in_key: bool,
    ) -> Result<(), String> {
        let plain = |text: &str| text.split(" default ").next().unwrap_or_default().to_string();
        let (from, to) = (plain(&old.source_type), plain(&column.source_type));
        let why = change.altered.as_ref().map(|altered| format!(" ({altered})")).unwrap_or_default();
        let reason = format!("column {} was changed from {from} to {to}{why}", old.name);
        if in_key {
            return Err(format!("{reason}, and it is part of the key"));
        }
        match (self.policy.evolution, self.policy.incompatible) {
            (Evolution::On, WhenIncompatible::String) if is_texty(old.lake_type()) && is_texty(&column.data_type) => {
                self.carry_on(old, column, DataType::Utf8, false)
            }
            // Bytes and lists have no text: their values go beside the old ones, as by the other policy.
            (Evolution::On, WhenIncompatible::NewColumn | WhenIncompatible::String) => {
                self.retired.push(old.lake_name().to_string());
                let name = self.free_name(self.old.rules.lake_name(&column.name));
                column.place(name, None);
                Ok(())
            }
            _ => Err(reason),
        }
    }

    /// `name`, or `name__2`, `name__3`, ... if the lake has had a column of that name.
    fn free_name(&mut self, name: &str) -> String {
        let numbered = (2u64..).map(|number| format!("{name}__{number}"));
        let free = std::iter::once(name.to_string()).chain(numbered);
        let found = free.into_iter().find(|name| !self.taken.contains(&name.to_lowercase()));
        let found = found.unwrap_or_default();
        self.taken.insert(found.to_lowercase());
        found
    }
}

fn is_filled(column: &Column) -> bool {
    column.treatment != Treatment::LeftOut
}

/// Whether values of the type can be written as text.
fn is_texty(data_type: &DataType) -> bool {
    !matches!(data_type, DataType::Binary) && !data_type.is_nested()
}

fn fit(lake: &DataType, new: &DataType) -> Fit {
    if holds(lake, new) {
        return Fit::Holds;
    }
    if holds(new, lake) && *new != DataType::Utf8 {
        return Fit::Widens(new.clone());
    }
    let (Some((whole, scale)), Some((other_whole, other_scale))) = (digits(lake), digits(new)) else { return Fit::No };
    let (whole, scale) = (whole.max(other_whole), scale.max(other_scale));
    match whole.saturating_add(scale) {
        precision if precision <= DECIMAL_DIGITS_MAX => Fit::Widens(DataType::Decimal128(precision, scale as i8)),
        _ => Fit::No,
    }
}

/// Whether every value of type `new` has an equal of type `lake`.
pub fn holds(lake: &DataType, new: &DataType) -> bool {
    match (lake, new) {
        _ if lake == new => true,
        (DataType::Utf8, new) => is_texty(new),
        (DataType::Float64, DataType::Float32) => true,
        (lake, new) if lake.is_signed_integer() && new.is_signed_integer() => {
            lake.primitive_width() >= new.primitive_width()
        }
        (DataType::Decimal128(..), new) => match (digits(lake), digits(new)) {
            (Some((whole, scale)), Some((other_whole, other_scale))) => whole >= other_whole && scale >= other_scale,
            _ => false,
        },
        _ => false,
    }
}

/// Digits before and behind the point of exact numbers.
fn digits(data_type: &DataType) -> Option<(u8, u8)> {
    match data_type {
        DataType::Int8 => Some((3, 0)),
        DataType::Int16 => Some((5, 0)),
        DataType::Int32 => Some((10, 0)),
        DataType::Int64 => Some((19, 0)),
        DataType::Decimal128(precision, scale) => {
            let scale = u8::try_from(*scale).ok()?;
            Some((precision.checked_sub(scale)?, scale))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::TableId;

    /// `id int, a decimal(5,2)`: columns of a table whose key is the first.
    fn table(columns: &[(&str, DataType)]) -> TableSchema {
        let column =
            |(name, data_type): &(&str, DataType)| Column::new(*name, data_type.clone(), data_type.to_string());
        TableSchema::new(TableId::new("shop", "t"), columns.iter().map(column).collect(), vec![0])
    }

    fn from(names: &[Option<&str>]) -> Vec<ColumnChange> {
        names.iter().map(|name| ColumnChange { from: name.map(str::to_string), altered: None }).collect()
    }

    fn shown(plan: Plan) -> String {
        match plan {
            Plan::Refuse(reason) => reason,
            Plan::Follow { schema, copies } => {
                let column = |column: &Column| format!("{} {}", column.lake_name(), column.lake_type());
                let columns: Vec<String> = schema.columns.iter().map(column).collect();
                let copies: Vec<String> = copies.iter().map(|(new, old)| format!("{new}={old}")).collect();
                format!("{} | {} | {}", columns.join(", "), copies.join(" "), schema.retired.join(" "))
            }
        }
    }

    fn policy(evolution: Evolution, incompatible: WhenIncompatible) -> Policy {
        Policy { evolution, incompatible }
    }

    const IDS: (&str, DataType) = ("id", DataType::Int32);

    /// One column `a` becomes one of another type.
    fn check(old: DataType, new: DataType, incompatible: WhenIncompatible, expected: &str) {
        let (old, new) = (table(&[IDS, ("a", old)]), table(&[IDS, ("a", new)]));
        let made = plan(&old, &new, &[], policy(Evolution::On, incompatible));
        assert_eq!(shown(made), format!("id Int32, {expected}"));
    }

    #[test]
    fn a_type_grows_to_one_that_holds_both() {
        use DataType::{Decimal128, Float32, Float64, Int8, Int32, Int64};
        let column = WhenIncompatible::NewColumn;
        check(Int32, Int64, column, "a Int64 |  | ");
        check(Int64, Int8, column, "a Int64 |  | ");
        check(Float32, Float64, column, "a Float64 |  | ");
        check(Decimal128(5, 2), Decimal128(9, 4), column, "a Decimal128(9, 4) |  | ");
        check(Decimal128(9, 1), Decimal128(5, 3), column, "a Decimal128(11, 3) |  | ");
        check(Int64, Decimal128(20, 0), column, "a Decimal128(20, 0) |  | ");
        check(Int32, Decimal128(5, 2), column, "a Decimal128(12, 2) |  | ");
    }

    #[test]
    fn values_that_do_not_fit_together_follow_the_policy() {
        use DataType::{Binary, Date32, Decimal128, Float64, Int32, Utf8};
        for (old, new) in [(Int32, Utf8), (Date32, Utf8), (Int32, Float64), (Decimal128(38, 0), Decimal128(38, 10))] {
            check(old.clone(), new.clone(), WhenIncompatible::NewColumn, &format!("a__2 {new} |  | a"));
            check(old, new, WhenIncompatible::String, "a Utf8 |  | ");
        }
        check(Binary, Utf8, WhenIncompatible::String, "a__2 Utf8 |  | a");
        let (old, new) = (table(&[IDS, ("a", Int32)]), table(&[IDS, ("a", Utf8)]));
        for policy in [
            policy(Evolution::On, WhenIncompatible::Stop),
            policy(Evolution::Compatible, WhenIncompatible::NewColumn),
            policy(Evolution::Off, WhenIncompatible::String),
        ] {
            assert_eq!(shown(plan(&old, &new, &[], policy)), "column a was changed from Int32 to Utf8");
        }
    }

    #[test]
    fn names_that_the_lake_has_had_are_not_given_again() {
        let policy = Policy::default();
        let next = |old: &TableSchema, columns: &[(&str, DataType)], names: &[Option<&str>]| match plan(
            old,
            &table(columns),
            &from(names),
            policy,
        ) {
            Plan::Follow { schema, .. } => schema,
            Plan::Refuse(reason) => panic!("{reason}"),
        };
        let first = table(&[IDS, ("a", DataType::Int32)]);
        let dropped = next(&first, &[IDS], &[Some("id")]);
        assert_eq!(dropped.retired, ["a"]);
        let again = next(&dropped, &[IDS, ("A", DataType::Int32)], &[Some("id"), None]);
        assert_eq!(again.columns[1].lake_name(), "A__2");
        let text = next(&again, &[IDS, ("A", DataType::Utf8)], &[Some("id"), Some("A")]);
        assert_eq!((text.columns[1].lake_name(), text.retired.join(" ")), ("A__3", "a A__2".to_string()));
    }

    #[test]
    fn a_renamed_column_is_a_new_one_with_the_values_of_the_old() {
        let (old, new) = (table(&[IDS, ("a", DataType::Int32)]), table(&[IDS, ("b", DataType::Int64)]));
        let changes = from(&[Some("id"), Some("a")]);
        assert_eq!(shown(plan(&old, &new, &changes, Policy::default())), "id Int32, b Int64 | b=a | a");
        let off = policy(Evolution::Off, WhenIncompatible::NewColumn);
        assert_eq!(shown(plan(&old, &new, &changes, off)), "column a was renamed to b");
        // Two columns change names: neither name can be taken over.
        let old = table(&[IDS, ("a", DataType::Int32), ("b", DataType::Utf8)]);
        let new = table(&[IDS, ("b", DataType::Int32), ("a", DataType::Utf8)]);
        let swapped = plan(&old, &new, &from(&[Some("id"), Some("a"), Some("b")]), Policy::default());
        assert_eq!(shown(swapped), "id Int32, b__2 Int32, a__2 Utf8 | b__2=a a__2=b | a b");
    }

    #[test]
    fn a_key_column_keeps_its_name_and_another_key_is_refused() {
        let (old, new) = (table(&[IDS]), table(&[("number", DataType::Int64)]));
        assert_eq!(shown(plan(&old, &new, &from(&[Some("id")]), Policy::default())), "id Int64 |  | ");
        let refused = plan(&old, &new, &from(&[None]), Policy::default());
        assert_eq!(shown(refused), "its key was (id) and is now (number)");
    }

    #[test]
    fn what_the_source_altered_is_never_one_column_with_what_it_was() {
        let old = table(&[IDS, ("a", DataType::Utf8)]);
        let altered = ColumnChange { from: Some("a".to_string()), altered: Some("texts were cut".to_string()) };
        let changes = [from(&[Some("id")]), vec![altered]].concat();
        assert_eq!(shown(plan(&old, &old, &changes, Policy::default())), "id Int32, a__2 Utf8 |  | a");
    }

    #[test]
    fn a_table_whose_schema_is_frozen_follows_only_what_leaves_the_lake_as_it_is() {
        let off = policy(Evolution::Off, WhenIncompatible::NewColumn);
        let old = table(&[IDS, ("a", DataType::Int64), ("b", DataType::Utf8)]);
        let moved = table(&[IDS, ("b", DataType::Utf8), ("a", DataType::Int32)]);
        assert_eq!(shown(plan(&old, &moved, &[], off)), "id Int32, b Utf8, a Int64 |  | ");
        assert_eq!(shown(plan(&old, &table(&[IDS]), &[], off)), "column a was dropped");
    }
}
