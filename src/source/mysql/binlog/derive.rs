//! A table's schema from the metadata of its TABLE_MAP, and the check of a known schema against it.

use std::sync::Arc;

use super::column::{self, ColumnBuilder};
use super::event::Flavor;
use super::table_map::{ColumnMetadata, TableMap};
use super::wire::{WireColumn, code};
use crate::schema::TableSchema;
use crate::source::mysql::charset::Charset;
use crate::source::mysql::column_type::{BlobKind, ColumnType, GEOMETRIES, TextKind, split_left_out};

/// The setting that a log needs so that its tables explain themselves.
const METADATA_ADVICE: &str = "set binlog_row_metadata=FULL on the server, or begin with a log that has the table's \
                               CREATE TABLE";

/// The schema that full row metadata tells, version 1.
///
/// # Errors
/// Why the table cannot be captured, in words for its owner.
pub fn schema(map: &TableMap, given_key: Option<&[String]>, flavor: Flavor) -> Result<TableSchema, String> {
    if !map.is_full() {
        return Err(format!("the log does not say which columns the table has: {METADATA_ADVICE}"));
    }
    let mut columns = Vec::with_capacity(map.columns.len());
    for ((wire, metadata), nullable) in map.columns.iter().zip(&map.metadata).zip(&map.nullable) {
        let name = metadata.name.clone().unwrap_or_default();
        let column_type = column_type(wire, metadata, flavor).map_err(|what| format!("column {name}: {what}"))?;
        columns.push(column_type.column(name, *nullable));
    }
    let mut schema = TableSchema::new(map.table.clone(), columns, Vec::new());
    schema.key = match given_key {
        Some(names) => key_of_names(&schema, names)?,
        None => primary_key(map)?,
    };
    check_key(&schema)?;
    Ok(schema)
}

/// The columns that the job names as the key.
///
/// # Errors
/// The first name that is no column's.
pub fn key_of_names(schema: &TableSchema, names: &[String]) -> Result<Vec<usize>, String> {
    let index = |name: &String| {
        schema.column_index(name).ok_or_else(|| format!("the job's key names column {name}, which is not there"))
    };
    names.iter().map(index).collect()
}

/// What a table without a key needs.
pub const NO_KEY: &str = "the table has no primary key: add one, or name the columns that make a row unique as its \
                          key in the job file";

fn primary_key(map: &TableMap) -> Result<Vec<usize>, String> {
    match &map.primary_key {
        Some(key) if !key.is_empty() => {
            if key.iter().any(|(_, prefix)| *prefix != 0) {
                return Err("its primary key has only the beginning of a column: name whole columns as its key in \
                            the job file"
                    .into());
            }
            Ok(key.iter().map(|(column, _)| *column).collect())
        }
        _ => Err(NO_KEY.into()),
    }
}

/// Keys are compared by value: types whose equal values have no one form are none.
///
/// # Errors
/// The first column that cannot be part of a key.
pub fn check_key(schema: &TableSchema) -> Result<(), String> {
    for column in schema.key.iter().filter_map(|index| schema.columns.get(*index)) {
        let usable = match column.source_type.parse::<ColumnType>() {
            Ok(ColumnType::Float | ColumnType::Double | ColumnType::Json) => false,
            Ok(ColumnType::Geometry { .. } | ColumnType::Vector { .. }) => false,
            Ok(_) => true,
            Err(error) => return Err(format!("column {}: {error}", column.name)),
        };
        if !usable {
            return Err(format!("key column {} is {}, which cannot be a key", column.name, plain(&column.source_type)));
        }
    }
    Ok(())
}

fn plain(source_type: &str) -> &str {
    split_left_out(source_type).0
}

/// Builders for the rows of `map` under a known schema.
///
/// # Errors
/// How the log's columns differ from the schema's, in words for the table's owner.
pub fn builders(map: &TableMap, schema: &TableSchema) -> Result<Vec<Box<dyn ColumnBuilder>>, String> {
    if map.columns.len() != schema.columns.len() {
        return Err(format!(
            "the log has {} columns of it where {} are known; load the table again",
            map.columns.len(),
            schema.columns.len()
        ));
    }
    let mut builders = Vec::with_capacity(map.columns.len());
    for ((wire, metadata), known) in map.columns.iter().zip(&map.metadata).zip(&schema.columns) {
        let differs = |found: String| {
            let (name, known) = (&known.name, plain(&known.source_type));
            format!("column {name} is {known}, but the log has {found}; load the table again")
        };
        let column_type: ColumnType = known.source_type.parse().map_err(|error| format!("{error}"))?;
        check_metadata(metadata, &known.name, &column_type).map_err(differs)?;
        let column_type = with_members(column_type, &known.name, metadata)?;
        builders.push(column::builder(wire, &column_type).map_err(differs)?);
    }
    Ok(builders)
}

/// An ENUM or SET with the members as the log has them. The servers' catalogues give them in `utf8mb3`, with a
/// question mark for each character beyond it.
///
/// # Errors
/// The catalogue may have lost a character, and the log does not tell the members.
fn with_members(column_type: ColumnType, name: &str, metadata: &ColumnMetadata) -> Result<ColumnType, String> {
    let (ColumnType::Enum { members: known, .. } | ColumnType::Set { members: known, .. }) = &column_type else {
        return Ok(column_type);
    };
    if metadata.members.is_none() {
        let lossy = known.iter().any(|member| member.contains('?'));
        let told =
            format!("the server does not tell all characters of the members of column {name}: {METADATA_ADVICE}");
        return if lossy { Err(told) } else { Ok(column_type) };
    }
    let (members, charset) = members(metadata)?;
    Ok(match column_type {
        ColumnType::Set { .. } => ColumnType::Set { members, charset },
        _ => ColumnType::Enum { members, charset },
    })
}

/// Compares what metadata there is: names, signs, members.
fn check_metadata(metadata: &ColumnMetadata, name: &str, column_type: &ColumnType) -> Result<(), String> {
    if let Some(found) = &metadata.name
        && !found.eq_ignore_ascii_case(name)
    {
        return Err(format!("a column {found} there"));
    }
    let known_unsigned = match column_type {
        ColumnType::TinyInt { unsigned }
        | ColumnType::SmallInt { unsigned }
        | ColumnType::MediumInt { unsigned }
        | ColumnType::Int { unsigned }
        | ColumnType::BigInt { unsigned } => Some(*unsigned),
        _ => None,
    };
    if let (Some(known), Some(found)) = (known_unsigned, metadata.unsigned)
        && known != found
    {
        return Err(format!("it {}", if found { "unsigned" } else { "signed" }));
    }
    if let (ColumnType::Enum { members, .. } | ColumnType::Set { members, .. }, Some(found)) =
        (column_type, &metadata.members)
        && members.len() != found.len()
    {
        return Err(format!("{} members of it", found.len()));
    }
    if let (Some(known), Some(found)) = (column_type.charset(), metadata.collation.and_then(Charset::by_collation_id))
        && matches!(column_type, ColumnType::Text { .. })
        && Charset::by_name(known) != Some(found)
    {
        return Err(format!("text in character set {}", found.name()));
    }
    Ok(())
}

fn column_type(wire: &WireColumn, metadata: &ColumnMetadata, flavor: Flavor) -> Result<ColumnType, String> {
    let unsigned = metadata.unsigned.unwrap_or(false);
    let digits = wire.meta as u8;
    Ok(match wire.code {
        code::TINY => ColumnType::TinyInt { unsigned },
        code::SHORT => ColumnType::SmallInt { unsigned },
        code::INT24 => ColumnType::MediumInt { unsigned },
        code::LONG => ColumnType::Int { unsigned },
        code::LONGLONG => ColumnType::BigInt { unsigned },
        code::NEWDECIMAL => {
            let [precision, scale] = wire.meta.to_be_bytes();
            ColumnType::Decimal { precision, scale, unsigned }
        }
        code::FLOAT => ColumnType::Float,
        code::DOUBLE => ColumnType::Double,
        code::BIT => ColumnType::Bit { bits: digits },
        code::YEAR => ColumnType::Year,
        code::DATE | code::NEWDATE => ColumnType::Date,
        code::DATETIME | code::DATETIME2 => ColumnType::DateTime { digits },
        code::TIMESTAMP | code::TIMESTAMP2 => ColumnType::Timestamp { digits },
        code::TIME | code::TIME2 => ColumnType::Time { digits },
        code::JSON => ColumnType::Json,
        code::GEOMETRY => ColumnType::Geometry { kind: geometry_kind(metadata.geometry.unwrap_or(0))?.into() },
        code::VECTOR => ColumnType::Vector { dimensions: metadata.dimensions.unwrap_or(0) },
        code::ENUM => {
            let (members, charset) = members(metadata)?;
            ColumnType::Enum { members, charset }
        }
        code::SET => {
            let (members, charset) = members(metadata)?;
            ColumnType::Set { members, charset }
        }
        _ => character(wire, charset(metadata)?, flavor)?,
    })
}

/// Text in a character set, or bytes where that is `binary`.
fn character(wire: &WireColumn, charset: Charset, _flavor: Flavor) -> Result<ColumnType, String> {
    let bytes = u32::from(wire.meta);
    let chars = bytes / u32::from(charset.max_bytes_per_char()).max(1);
    let (text, blob) = match (wire.code, wire.meta) {
        (code::STRING, _) if charset.name() == "binary" => return Ok(ColumnType::Binary { length: bytes }),
        (code::STRING, _) => (TextKind::Char(chars), BlobKind::VarBinary(bytes)),
        (code::VARCHAR | code::VAR_STRING | code::VARCHAR_COMPRESSED, _) => {
            (TextKind::VarChar(chars), BlobKind::VarBinary(bytes))
        }
        (code::BLOB | code::BLOB_COMPRESSED, 1) => (TextKind::TinyText, BlobKind::TinyBlob),
        (code::BLOB | code::BLOB_COMPRESSED, 2) => (TextKind::Text, BlobKind::Blob),
        (code::BLOB | code::BLOB_COMPRESSED, 3) => (TextKind::MediumText, BlobKind::MediumBlob),
        (code::BLOB | code::BLOB_COMPRESSED, 4) => (TextKind::LongText, BlobKind::LongBlob),
        (other, _) => return Err(format!("its type {other} is not known")),
    };
    Ok(match charset.name() {
        "binary" => ColumnType::Blob { kind: blob },
        name => ColumnType::Text { kind: text, charset: name.into() },
    })
}

fn charset(metadata: &ColumnMetadata) -> Result<Charset, String> {
    let id = metadata.collation.ok_or("the log does not tell its character set")?;
    Charset::by_collation_id(id).ok_or_else(|| format!("its collation {id} is not known"))
}

/// The members of an ENUM or SET in UTF-8, and their character set's name.
fn members(metadata: &ColumnMetadata) -> Result<(Vec<String>, String), String> {
    let charset = charset(metadata)?;
    let raw = metadata.members.as_ref().ok_or("the log does not tell its members")?;
    let decode = |bytes: &Vec<u8>| {
        let mut text = String::new();
        charset.decode_into(bytes, &mut text);
        text
    };
    Ok((raw.iter().map(decode).collect(), charset.name().into()))
}

/// `enum geometry_type` of both servers.
fn geometry_kind(number: u8) -> Result<&'static str, String> {
    let kinds = &GEOMETRIES[..GEOMETRIES.len() - 1];
    kinds.get(usize::from(number)).copied().ok_or_else(|| format!("geometry type {number} is not known"))
}

/// The same schema under the key that the job gives, where it gives one.
///
/// # Errors
/// If the key names no column, cannot be a key, or there is none.
pub fn with_key(mut schema: TableSchema, given_key: Option<&[String]>) -> Result<Arc<TableSchema>, String> {
    if let Some(names) = given_key {
        schema.key = key_of_names(&schema, names)?;
    }
    if schema.key.is_empty() {
        return Err(NO_KEY.into());
    }
    check_key(&schema)?;
    Ok(Arc::new(schema))
}
