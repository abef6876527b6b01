//! Some values of some columns, from all over a group of files.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array, new_null_array};
use arrow::compute::{cast, concat, take};
use arrow::datatypes::SchemaRef;
use futures::TryStreamExt;
use parquet::arrow::ProjectionMask;
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;

use crate::lake::LakeError;
use crate::lake::files::FileEntry;
use crate::lake::locate::Prober;

/// Values of a sample: a rank among them is right to a few thousandths.
const SAMPLE_ROWS: u64 = 16_384;
/// Rows that are read at a time.
const BATCH_ROWS: usize = 8_192;

/// A sample of each of the columns; rows that are deleted may be among it.
pub(super) async fn columns(
    prober: &Prober,
    schema: &SchemaRef,
    files: &[Arc<FileEntry>],
    names: &[String],
) -> Result<Vec<(String, ArrayRef)>, LakeError> {
    let mut rows = 0;
    for file in files {
        rows += prober.footers.get(file).await?.metadata().file_metadata().num_rows().unsigned_abs();
    }
    let step = rows.div_ceil(SAMPLE_ROWS).max(1);
    let mut parts = vec![Vec::new(); names.len()];
    for file in files {
        read(prober, schema, file, names, step, &mut parts).await?;
    }
    let failed = LakeError::arrow(&prober.space.table, "sample its values");
    let column = |(name, parts): (&String, Vec<ArrayRef>)| {
        let parts: Vec<_> = parts.iter().map(AsRef::as_ref).collect();
        concat(&parts).map(|values| (name.clone(), values)).map_err(&failed)
    };
    names.iter().zip(parts).map(column).collect()
}

/// Adds each `step`-th row of a file.
async fn read(
    prober: &Prober,
    schema: &SchemaRef,
    file: &FileEntry,
    names: &[String],
    step: u64,
    parts: &mut [Vec<ArrayRef>],
) -> Result<(), LakeError> {
    let failed = LakeError::parquet(&prober.space.table, "sample", &file.add.path);
    let footer = prober.footers.get(file).await?;
    let roots = names.iter().filter_map(|name| footer.schema().index_of(name).ok());
    let mask = ProjectionMask::roots(footer.parquet_schema(), roots);
    let reader = prober.footers.reader(file);
    let rows = ParquetRecordBatchStreamBuilder::new_with_metadata(reader, footer.as_ref().clone());
    let mut batches = rows.with_projection(mask).with_batch_size(BATCH_ROWS).build().map_err(&failed)?;
    let mut position = 0;
    while let Some(batch) = batches.try_next().await.map_err(&failed)? {
        let end = position + batch.num_rows() as u64;
        let picked: UInt64Array = (position.next_multiple_of(step)..end)
            .step_by(usize::try_from(step).unwrap_or(usize::MAX))
            .map(|row| Some(row - position))
            .collect();
        position = end;
        for (name, parts) in names.iter().zip(parts.iter_mut()) {
            let values = pick(schema, &batch, name, &picked);
            parts.push(values.map_err(LakeError::arrow(&prober.space.table, "sample its values"))?);
        }
    }
    Ok(())
}

fn pick(
    schema: &SchemaRef,
    batch: &RecordBatch,
    name: &str,
    picked: &UInt64Array,
) -> Result<ArrayRef, arrow::error::ArrowError> {
    let data_type = schema.field_with_name(name)?.data_type();
    match batch.column_by_name(name) {
        Some(column) => cast(&take(column, picked, None)?, data_type),
        None => Ok(new_null_array(data_type, picked.len())),
    }
}
