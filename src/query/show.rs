//! What SHOW and DESCRIBE answer.

use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow::compute::filter_record_batch;
use arrow::compute::kernels::comparison::ilike;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, TimeUnit};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    ShowStatementFilter, ShowStatementFilterPosition, ShowStatementOptions, Statement,
};

use super::QueryError;
use super::names::LakeNames;
use super::relations::parts_of;
use super::session::QueryResult;
use super::tables::{LakeReader, OpenTable};

/// The answer to a statement that asks for names only; `None` for a statement of another kind.
pub(super) async fn answer(
    statement: &Statement,
    names: &LakeNames,
    reader: &LakeReader,
) -> Result<Option<QueryResult>, QueryError> {
    let batch = match statement {
        Statement::ShowTables { show_options, .. } => filtered(tables(names, show_options), show_options)?,
        Statement::ShowDatabases { show_options, .. } | Statement::ShowSchemas { show_options, .. } => {
            filtered(databases(names), show_options)?
        }
        Statement::ShowColumns { show_options, .. } => {
            filtered(columns(&named_by(show_options), names, reader).await?, show_options)?
        }
        Statement::ExplainTable { table_name, .. } => columns(&parts_of(table_name), names, reader).await?,
        _ => return Ok(None),
    };
    let schema = batch.schema();
    let stream = RecordBatchStreamAdapter::new(Arc::clone(&schema), futures::stream::iter([Ok(batch)]));
    Ok(Some((schema, Box::pin(stream))))
}

fn tables(names: &LakeNames, options: &ShowStatementOptions) -> RecordBatch {
    let wanted = named_by(options);
    let wanted = wanted.last();
    let listed = || names.tables().filter(|table| wanted.is_none_or(|name| table.database.eq_ignore_ascii_case(name)));
    text_batch([
        ("table", listed().map(|table| table.table.clone()).collect()),
        ("database", listed().map(|table| table.database.clone()).collect()),
    ])
}

fn databases(names: &LakeNames) -> RecordBatch {
    let mut databases: Vec<String> = names.tables().map(|table| table.database.clone()).collect();
    databases.dedup();
    text_batch([("database", databases)])
}

/// The parts of the name behind FROM or IN.
fn named_by(options: &ShowStatementOptions) -> Vec<String> {
    options.show_in.as_ref().and_then(|show_in| show_in.parent_name.as_ref()).map(parts_of).unwrap_or_default()
}

async fn columns(name: &[String], names: &LakeNames, reader: &LakeReader) -> Result<RecordBatch, QueryError> {
    let table = reader.open(&names.resolve(name)?).await?;
    let schema = table.provider.schema();
    let fields = schema.fields();
    let yes_no = |yes: bool| if yes { "YES" } else { "NO" }.to_string();
    let key = |field: &FieldRef| if is_key(&table, field) { "PRI" } else { "" }.to_string();
    Ok(text_batch([
        ("column", fields.iter().map(|field| field.name().clone()).collect()),
        ("type", fields.iter().map(|field| type_name(field.data_type())).collect()),
        ("null", fields.iter().map(|field| yes_no(field.is_nullable())).collect()),
        ("key", fields.iter().map(key).collect()),
    ]))
}

fn is_key(table: &OpenTable, field: &Field) -> bool {
    table.key.iter().any(|name| name == field.name())
}

/// The name that Delta gives a type.
fn type_name(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Boolean => "boolean",
        DataType::Int8 => "byte",
        DataType::Int16 => "short",
        DataType::Int32 => "integer",
        DataType::Int64 => "long",
        DataType::Float32 => "float",
        DataType::Float64 => "double",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "string",
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "binary",
        DataType::Date32 => "date",
        DataType::Timestamp(TimeUnit::Microsecond, None) => "timestamp_ntz",
        DataType::Timestamp(_, Some(_)) => "timestamp",
        DataType::Decimal128(precision, scale) => return format!("decimal({precision},{scale})"),
        DataType::List(item) => return format!("array<{}>", type_name(item.data_type())),
        other => return other.to_string(),
    };
    name.to_string()
}

/// Keeps the rows whose first column is LIKE the pattern of the statement, without regard to case.
fn filtered(batch: RecordBatch, options: &ShowStatementOptions) -> Result<RecordBatch, QueryError> {
    let pattern = match &options.filter_position {
        None => return Ok(batch),
        Some(ShowStatementFilterPosition::Infix(filter) | ShowStatementFilterPosition::Suffix(filter)) => {
            match filter {
                ShowStatementFilter::Like(text)
                | ShowStatementFilter::ILike(text)
                | ShowStatementFilter::NoKeyword(text) => text,
                ShowStatementFilter::Where(_) => {
                    return Err(QueryError::Plan("SHOW takes LIKE, not WHERE".to_string()));
                }
            }
        }
    };
    let failed = |error: arrow::error::ArrowError| QueryError::Plan(error.to_string());
    let names = Arc::clone(batch.column(0));
    let keep: BooleanArray = ilike(&names, &StringArray::new_scalar(pattern)).map_err(failed)?;
    filter_record_batch(&batch, &keep).map_err(failed)
}

fn text_batch<const N: usize>(columns: [(&str, Vec<String>); N]) -> RecordBatch {
    let fields: Vec<Field> = columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, false)).collect();
    let arrays = columns.into_iter().map(|(_, values)| Arc::new(StringArray::from(values)) as ArrayRef).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays)
        .expect("invariant: the columns are of one table and equally long")
}
