//! The TABLE_MAP event: which table the row events with its id belong to, and how their rows lie.
//!
//! MySQL internals manual, "TABLE_MAP_EVENT"; `Table_map_log_event` for the optional metadata.

use super::event::Flavor;
use super::reader::{Malformed, Reader};
use super::wire::{WireColumn, code};
use crate::change::TableId;

/// Most columns of a table, on both servers (manual, "Limits on Table Column Count").
pub const COLUMNS_MAX: usize = 4096;

/// A table as one TABLE_MAP event describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableMap {
    pub table: TableId,
    pub columns: Vec<WireColumn>,
    /// Whether each column may be null.
    pub nullable: Vec<bool>,
    /// What the optional metadata says of each column; all `None` where there is none.
    pub metadata: Vec<ColumnMetadata>,
    /// The columns of the primary key, in key order, with the length of their prefix (0: the whole column).
    pub primary_key: Option<Vec<(usize, u64)>>,
}

/// The optional metadata of one column (`binlog_row_metadata`; MINIMAL gives sign, collation and geometry only).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ColumnMetadata {
    pub name: Option<String>,
    pub unsigned: Option<bool>,
    pub collation: Option<u16>,
    /// Members of an ENUM or SET, in the column's character set.
    pub members: Option<Vec<Vec<u8>>>,
    /// Number of the geometry type.
    pub geometry: Option<u8>,
    pub dimensions: Option<u32>,
}

impl TableMap {
    /// Reads only the table's name from the body after the table id: enough to know that nobody wants it.
    pub fn read_name(body: &mut Reader<'_>) -> Result<TableId, Malformed> {
        body.u16()?;
        let database = name(body)?;
        Ok(TableId { database, table: name(body)? })
    }

    /// Reads the body after the table id.
    pub fn read(body: &mut Reader<'_>, flavor: Flavor) -> Result<Self, Malformed> {
        let table = Self::read_name(body)?;
        let count = body.length()?;
        if !(1..=COLUMNS_MAX).contains(&count) {
            return Err(Malformed::value(format!("{count} columns, a table has 1 to {COLUMNS_MAX}")));
        }
        let codes = body.take(count)?;
        let mut meta = Reader::new(body.lenenc_bytes()?);
        let columns = codes.iter().map(|raw| WireColumn::read(*raw, &mut meta)).collect::<Result<Vec<_>, _>>()?;
        if !meta.is_empty() {
            return Err(Malformed::value("more type metadata than its columns have"));
        }
        let nulls = body.take(count.div_ceil(8))?;
        let nullable = (0..count).map(|index| bit(nulls, index)).collect();
        let metadata = vec![ColumnMetadata::default(); count];
        let mut map = Self { table, columns, nullable, metadata, primary_key: None };
        while !body.is_empty() {
            let field = body.u8()?;
            map.read_field(field, Reader::new(body.lenenc_bytes()?), flavor)?;
        }
        Ok(map)
    }

    /// Whether every column has a name: the metadata is FULL.
    pub fn is_full(&self) -> bool {
        self.metadata.iter().all(|column| column.name.is_some())
    }

    /// `enum Optional_metadata_field_type`. Fields that came later than these are skipped.
    fn read_field(&mut self, field: u8, mut value: Reader<'_>, flavor: Flavor) -> Result<(), Malformed> {
        let is_character = |wire: &WireColumn| is_character(wire, flavor);
        match field {
            1 => self.read_signs(&value),
            2 => self.read_default_collation(&mut value, is_character),
            3 => self.read_collations(&mut value, is_character),
            4 => self.each(&mut value, |_| true, read_column_name),
            5 => self.each(&mut value, |wire| wire.code == code::SET, read_members),
            6 => self.each(&mut value, |wire| wire.code == code::ENUM, read_members),
            7 => self.each(&mut value, is_geometry, read_geometry),
            8 => self.read_key(&mut value, false),
            9 => self.read_key(&mut value, true),
            10 => self.read_default_collation(&mut value, is_enum_or_set),
            11 => self.read_collations(&mut value, is_enum_or_set),
            13 => self.each(&mut value, is_vector, read_dimensions),
            _ => Ok(()),
        }
    }

    /// Calls `read` for each column that `belongs`, until the bytes end.
    fn each(
        &mut self,
        value: &mut Reader<'_>,
        belongs: impl Fn(&WireColumn) -> bool,
        read: impl Fn(&mut ColumnMetadata, &mut Reader<'_>) -> Result<(), Malformed>,
    ) -> Result<(), Malformed> {
        let columns = self.columns.iter().zip(&mut self.metadata).filter(|(wire, _)| belongs(wire));
        for (_, column) in columns {
            if value.is_empty() {
                return Err(Malformed::value("column metadata ends before its columns"));
            }
            read(column, value)?;
        }
        if value.is_empty() { Ok(()) } else { Err(Malformed::value("column metadata for more columns than there are")) }
    }

    /// One bit for each numeric column, the highest bit of a byte first.
    fn read_signs(&mut self, value: &Reader<'_>) -> Result<(), Malformed> {
        let numeric = self.columns.iter().zip(&mut self.metadata).filter(|(wire, _)| is_numeric(wire));
        for (index, (_, column)) in numeric.enumerate() {
            let Some(byte) = value.rest().get(index / 8) else {
                return Err(Malformed::value("fewer signs than numeric columns"));
            };
            column.unsigned = Some(byte & (0x80 >> (index % 8)) != 0);
        }
        Ok(())
    }

    fn read_collations(
        &mut self,
        value: &mut Reader<'_>,
        belongs: impl Fn(&WireColumn) -> bool,
    ) -> Result<(), Malformed> {
        self.each(value, belongs, read_collation)
    }

    /// A collation for all, then pairs of a column's number among those that have one, and its own.
    fn read_default_collation(
        &mut self,
        value: &mut Reader<'_>,
        belongs: impl Fn(&WireColumn) -> bool,
    ) -> Result<(), Malformed> {
        let default = collation(value)?;
        let columns = self.columns.iter().zip(&mut self.metadata).filter(|(wire, _)| belongs(wire));
        let mut columns: Vec<&mut ColumnMetadata> = columns.map(|(_, column)| column).collect();
        for column in &mut columns {
            column.collation = Some(default);
        }
        while !value.is_empty() {
            let index = value.length()?;
            let own = collation(value)?;
            let Some(column) = columns.get_mut(index) else {
                return Err(Malformed::value("a collation for a column that is not there"));
            };
            column.collation = Some(own);
        }
        Ok(())
    }

    fn read_key(&mut self, value: &mut Reader<'_>, with_prefixes: bool) -> Result<(), Malformed> {
        let mut key = Vec::new();
        while !value.is_empty() {
            let column = value.length()?;
            let prefix = if with_prefixes { value.lenenc()? } else { 0 };
            if column >= self.columns.len() || key.iter().any(|(known, _)| *known == column) {
                return Err(Malformed::value("a primary key of columns that are not there, or are there twice"));
            }
            key.push((column, prefix));
        }
        self.primary_key = Some(key);
        Ok(())
    }
}

/// Bit `index` of a bitmap, the lowest bit of a byte first; false past its end.
#[inline]
pub fn bit(bitmap: &[u8], index: usize) -> bool {
    bitmap.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
}

/// A name with its length before it and a zero byte after it.
fn name(body: &mut Reader<'_>) -> Result<String, Malformed> {
    let length = usize::from(body.u8()?);
    let name = text(body.take(length)?);
    body.u8()?;
    Ok(name)
}

/// Names are in utf8mb3 in the log, whatever the connection.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn collation(value: &mut Reader<'_>) -> Result<u16, Malformed> {
    let id = value.lenenc()?;
    u16::try_from(id).map_err(|_| Malformed::value(format!("collation {id} does not exist")))
}

fn read_column_name(column: &mut ColumnMetadata, value: &mut Reader<'_>) -> Result<(), Malformed> {
    column.name = Some(text(value.lenenc_bytes()?));
    Ok(())
}

fn read_collation(column: &mut ColumnMetadata, value: &mut Reader<'_>) -> Result<(), Malformed> {
    column.collation = Some(collation(value)?);
    Ok(())
}

fn read_geometry(column: &mut ColumnMetadata, value: &mut Reader<'_>) -> Result<(), Malformed> {
    column.geometry = Some(value.length()? as u8);
    Ok(())
}

fn read_dimensions(column: &mut ColumnMetadata, value: &mut Reader<'_>) -> Result<(), Malformed> {
    column.dimensions = Some(u32::try_from(value.lenenc()?).unwrap_or(u32::MAX));
    Ok(())
}

fn read_members(column: &mut ColumnMetadata, value: &mut Reader<'_>) -> Result<(), Malformed> {
    let count = value.length()?;
    let mut members = Vec::new();
    for _ in 0..count {
        members.push(value.lenenc_bytes()?.to_vec());
    }
    column.members = Some(members);
    Ok(())
}

fn is_numeric(wire: &WireColumn) -> bool {
    matches!(
        wire.code,
        code::TINY
            | code::SHORT
            | code::INT24
            | code::LONG
            | code::LONGLONG
            | code::NEWDECIMAL
            | code::FLOAT
            | code::DOUBLE
            | code::YEAR
    )
}

/// The columns that the lists of collations count. MariaDB counts GEOMETRY, and MySQL 9 VECTOR, as the blobs that
/// they are.
fn is_character(wire: &WireColumn, flavor: Flavor) -> bool {
    let is_blob_in_disguise = match flavor {
        Flavor::MariaDb => wire.code == code::GEOMETRY,
        Flavor::MySql => wire.code == code::VECTOR,
    };
    is_blob_in_disguise
        || matches!(
            wire.code,
            code::STRING
                | code::VAR_STRING
                | code::VARCHAR
                | code::BLOB
                | code::VARCHAR_COMPRESSED
                | code::BLOB_COMPRESSED
        )
}

fn is_enum_or_set(wire: &WireColumn) -> bool {
    matches!(wire.code, code::ENUM | code::SET)
}

fn is_geometry(wire: &WireColumn) -> bool {
    wire.code == code::GEOMETRY
}

fn is_vector(wire: &WireColumn) -> bool {
    wire.code == code::VECTOR
}
