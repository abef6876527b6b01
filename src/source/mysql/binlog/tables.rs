//! The tables that are captured, and which of them each table id of the log stands for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::buffer::RowBuffer;
use crate::change::{Losses, TableId};
use crate::config::TableFilter;
use crate::schema::TableSchema;

/// Most table ids that are remembered; past that all are forgotten at the next transaction's end, for each
/// transaction names its tables again.
const MAPS_MAX: usize = 65_536;

/// A captured table, or one that was.
pub struct Table {
    pub id: TableId,
    pub schema: Option<Arc<TableSchema>>,
    /// Taken out: its changes are left out.
    pub stopped: bool,
    pub buffer: Option<RowBuffer>,
    /// The last statement that changed its columns, for messages.
    pub last_statement: Option<String>,
    losses: Losses,
}

/// What becomes of the rows under a table id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    Skip,
    Table(usize),
}

struct Mapped {
    body: Vec<u8>,
    target: Target,
}

/// All tables that the log has named and the job wants.
pub struct Tables {
    filter: TableFilter,
    skip: HashSet<TableId>,
    list: Vec<Table>,
    by_name: HashMap<TableId, usize>,
    maps: HashMap<u64, Mapped>,
}

impl Tables {
    pub fn new(filter: TableFilter, skip: HashSet<TableId>, schemas: HashMap<TableId, Arc<TableSchema>>) -> Self {
        let mut tables = Self { filter, skip, list: Vec::new(), by_name: HashMap::new(), maps: HashMap::new() };
        // In the order of their names, so that the same log gives the same events every time.
        for (id, schema) in schemas.into_iter().collect::<BTreeMap<_, _>>() {
            let index = tables.index(&id);
            if let Some(table) = tables.list.get_mut(index) {
                table.schema = Some(schema);
            }
        }
        tables
    }

    /// Whether the table's changes are to be read.
    pub fn wants(&self, id: &TableId) -> bool {
        match self.find(id) {
            Some(table) => !table.stopped && !self.skip.contains(id) && self.filter.matches(id),
            None => !self.skip.contains(id) && self.filter.matches(id),
        }
    }

    pub fn find(&self, id: &TableId) -> Option<&Table> {
        self.by_name.get(id).and_then(|index| self.list.get(*index))
    }

    /// The table's number, a new one for a new table.
    pub fn index(&mut self, id: &TableId) -> usize {
        if let Some(index) = self.by_name.get(id) {
            return *index;
        }
        let index = self.list.len();
        let losses = Losses::default();
        self.list.push(Table {
            id: id.clone(),
            schema: None,
            stopped: false,
            buffer: None,
            last_statement: None,
            losses,
        });
        self.by_name.insert(id.clone(), index);
        index
    }

    pub fn get(&mut self, index: usize) -> Option<&mut Table> {
        self.list.get_mut(index)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Table> {
        self.list.iter()
    }

    pub fn buffer(&mut self, index: usize) -> Option<&mut RowBuffer> {
        self.list.get_mut(index)?.buffer.as_mut()
    }

    /// All buffers that hold rows, with their tables' numbers.
    pub fn full_buffers(&mut self) -> impl Iterator<Item = (usize, &mut RowBuffer)> {
        let buffers = self.list.iter_mut().enumerate();
        buffers
            .filter_map(|(index, table)| Some((index, table.buffer.as_mut()?)))
            .filter(|(_, buffer)| buffer.rows() > 0)
    }

    /// Gives the table a schema; rows under its old one must have been handed out.
    pub fn set_schema(&mut self, schema: &Arc<TableSchema>) {
        let index = self.index(&schema.table);
        self.forget_buffer(index);
        if let Some(table) = self.list.get_mut(index) {
            table.schema = Some(Arc::clone(schema));
        }
    }

    /// Takes the table out.
    pub fn stop(&mut self, index: usize) {
        self.forget_buffer(index);
        if let Some(table) = self.list.get_mut(index) {
            table.stopped = true;
        }
    }

    /// The table is no more; one of its name is a new one.
    pub fn forget(&mut self, index: usize) {
        self.forget_buffer(index);
        if let Some(table) = self.list.get_mut(index) {
            (table.schema, table.stopped, table.last_statement) = (None, false, None);
        }
    }

    /// Whether the table is a helper of an online schema change of a captured one, see [`TableFilter::shadowed`].
    pub fn is_shadow(&self, id: &TableId) -> bool {
        self.filter.shadowed(id).is_some()
    }

    /// Whether the helper `shadow` is one of `table`'s.
    pub fn is_shadow_of(&self, shadow: &TableId, table: &TableId) -> bool {
        self.filter.shadowed(shadow).as_ref() == Some(table)
    }

    /// Puts a new buffer in place of the old one, whose rows must have been handed out.
    pub fn set_buffer(&mut self, index: usize, buffer: RowBuffer) {
        self.forget_buffer(index);
        if let Some(table) = self.list.get_mut(index) {
            table.buffer = Some(buffer);
        }
    }

    /// Table ids that stood for it have to name it again, for a buffer only fits what it was made for.
    fn forget_buffer(&mut self, index: usize) {
        self.maps.retain(|_, mapped| mapped.target != Target::Table(index));
        if let Some(table) = self.list.get_mut(index)
            && let Some(mut buffer) = table.buffer.take()
        {
            table.losses += buffer.take_losses();
        }
    }

    /// What the table id stands for, if it was described by just these bytes.
    pub fn mapped(&self, table_id: u64, body: &[u8]) -> Option<Target> {
        self.maps.get(&table_id).filter(|mapped| mapped.body == body).map(|mapped| mapped.target)
    }

    pub fn target(&self, table_id: u64) -> Option<Target> {
        self.maps.get(&table_id).map(|mapped| mapped.target)
    }

    pub fn map(&mut self, table_id: u64, body: &[u8], target: Target) {
        self.maps.insert(table_id, Mapped { body: body.to_vec(), target });
    }

    /// A new log file: its table ids are its own.
    pub fn forget_maps(&mut self) {
        self.maps.clear();
    }

    /// Called between transactions.
    pub fn trim_maps(&mut self) {
        if self.maps.len() > MAPS_MAX {
            self.maps.clear();
        }
    }

    /// What was lost of each table's values, tables without losses left out.
    pub fn losses(&self) -> impl Iterator<Item = (&TableId, Losses)> {
        let all = self.list.iter().map(|table| {
            let mut losses = table.losses;
            losses += table.buffer.as_ref().map(RowBuffer::losses).unwrap_or_default();
            (&table.id, losses)
        });
        all.filter(|(_, losses)| *losses != Losses::default())
    }
}
