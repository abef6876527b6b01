//! The order of clustered rows: a Z-order curve through the values of up to four columns.
//!
//! A value counts by its rank among a sample of its column's values, nulls first, so that each column fills the curve
//! evenly whatever its type and skew. The bits of the ranks are interleaved, the highest first, which gives a number
//! that is close for rows that are close in all columns (G. M. Morton, 1966).

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::row::{OwnedRow, RowConverter, SortField};

/// Columns of a curve: with more of them none is ordered well.
pub(super) const COLUMNS_MAX: usize = 4;
/// Bits of a rank.
const RANK_BITS: u32 = 16;
/// The column with the place on the curve. No source has such a name.
pub(super) const PLACE: &str = "\u{0}alluvium.place";

/// Finds the place of rows.
pub(super) struct Curve {
    columns: Vec<Ranks>,
}

/// The sample of one column, ascending.
struct Ranks {
    name: String,
    converter: RowConverter,
    bounds: Vec<OwnedRow>,
}

impl Curve {
    /// From samples of the columns: each some values of the column, in any order.
    pub fn new(samples: Vec<(String, ArrayRef)>) -> Result<Self, ArrowError> {
        let columns = samples.into_iter().map(|(name, values)| Ranks::new(name, &values));
        Ok(Self { columns: columns.collect::<Result<_, _>>()? })
    }

    /// `schema` with the place behind its columns.
    pub fn extended(&self, schema: &SchemaRef) -> SchemaRef {
        let place = Arc::new(Field::new(PLACE, DataType::UInt64, false));
        Arc::new(Schema::new(schema.fields().iter().cloned().chain([place]).collect::<Vec<_>>()))
    }

    /// `rows` with their places; `schema` is the extended one.
    pub fn extend(&self, rows: &RecordBatch, schema: SchemaRef) -> Result<RecordBatch, ArrowError> {
        let ranks = self.columns.iter().map(|column| column.of(rows)).collect::<Result<Vec<_>, _>>()?;
        let place = |row: usize| interleave(ranks.iter().map(|ranks| ranks[row]));
        let places: UInt64Array = (0..rows.num_rows()).map(place).map(Some).collect();
        let columns = rows.columns().iter().cloned().chain([Arc::new(places) as ArrayRef]).collect();
        RecordBatch::try_new(schema, columns)
    }
}

impl Ranks {
    fn new(name: String, values: &ArrayRef) -> Result<Self, ArrowError> {
        let converter = RowConverter::new(vec![SortField::new(values.data_type().clone())])?;
        let rows = converter.convert_columns(std::slice::from_ref(values))?;
        let mut bounds: Vec<OwnedRow> = rows.iter().map(|row| row.owned()).collect();
        bounds.sort();
        // Equal bounds give one rank to many values and leave ranks unused.
        bounds.dedup();
        Ok(Self { name, converter, bounds })
    }

    /// The rank of each row's value, spread over all that a rank can be.
    fn of(&self, rows: &RecordBatch) -> Result<Vec<u64>, ArrowError> {
        let values = rows.column_by_name(&self.name).ok_or_else(|| ArrowError::SchemaError(self.name.clone()))?;
        let encoded = self.converter.convert_columns(std::slice::from_ref(values))?;
        let places = self.bounds.len().max(1) as u64;
        let rank = |row: arrow::row::Row<'_>| {
            let below = self.bounds.partition_point(|bound| bound.row() <= row) as u64;
            (below.saturating_sub(1) << RANK_BITS) / places
        };
        Ok(encoded.iter().map(rank).collect())
    }
}

/// One bit of each rank in turn, the highest bits first.
fn interleave(ranks: impl ExactSizeIterator<Item = u64> + Clone) -> u64 {
    let mut place = 0;
    for bit in (0..RANK_BITS).rev() {
        for rank in ranks.clone() {
            place = place << 1 | (rank >> bit & 1);
        }
    }
    place
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};

    #[test]
    fn bits_are_interleaved_from_the_highest_down() {
        assert_eq!(interleave([0b11, 0b00].into_iter()), 0b1010);
        assert_eq!(interleave([0b01, 0b10].into_iter()), 0b0110);
        assert_eq!(interleave([u64::from(u16::MAX); 4].into_iter()), u64::MAX);
        assert_eq!(interleave([5].into_iter()), 5);
    }

    fn places(columns: [ArrayRef; 2]) -> Vec<u64> {
        let [numbers, texts] = columns;
        let curve = Curve::new(vec![("n".into(), numbers.clone()), ("t".into(), texts.clone())]).unwrap();
        let rows = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let places = curve.extend(&rows, curve.extended(&rows.schema())).unwrap();
        places.column(2).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec()
    }

    #[test]
    fn rows_that_are_close_in_all_columns_are_close_on_the_curve() {
        let numbers: ArrayRef = Arc::new((0..64).map(|id| Some(id % 8 * 1_000_000)).collect::<Int64Array>());
        let texts: ArrayRef = Arc::new((0..64).map(|id| Some(format!("k{}", id / 8))).collect::<StringArray>());
        let places = places([numbers, texts]);
        let mut order: Vec<usize> = (0..64).collect();
        order.sort_by_key(|row| places[*row]);
        // Each quarter of the curve is one quarter of the square.
        for quarter in order.chunks(16) {
            let (rows, columns): (Vec<_>, Vec<_>) = quarter.iter().map(|id| (id / 8, id % 8)).unzip();
            for side in [rows, columns] {
                assert_eq!(side.iter().max().unwrap() - side.iter().min().unwrap(), 3, "{quarter:?}");
            }
        }
    }

    #[test]
    fn nulls_come_first_and_values_outside_of_the_sample_at_its_ends() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1), Some(2), None]));
        let texts: ArrayRef = Arc::new(StringArray::from(vec![None, Some("a"), Some("b"), Some("b")]));
        let placed = places([numbers.clone(), texts]);
        assert!(placed[0] == 0 && placed[1] > 0 && placed[2] > placed[1] && placed[3] < placed[2], "{placed:?}");
        let curve = Curve::new(vec![("n".into(), numbers)]).unwrap();
        let other: ArrayRef = Arc::new(Int64Array::from(vec![0, 2, 9]));
        let rows = RecordBatch::try_from_iter([("n", other)]).unwrap();
        let places = curve.extend(&rows, curve.extended(&rows.schema())).unwrap();
        let places = places.column(1).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec();
        assert!(places[0] == 0 && places[1] == places[2] && places[1] > 0, "{places:?}");
    }
}
