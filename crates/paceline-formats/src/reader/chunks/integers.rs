//! All numbers of a dataset of integers, such as the steps of all frames.

use std::sync::Arc;

use super::damage::Damage;
use super::desk::Desk;
use super::hand::Hand;
use super::{Element, Slice};
use crate::atom_set::Atoms;
use crate::error::{Error, Result};
use crate::hdf5_chunks::{DEFLATE_MOST, Dataset, Kind, Units};
use crate::source::Source;

/// Read rows of a dataset of (rows, numbers), each chunk once.
///
/// # Errors
/// [`Error::DamagedChunk`] for the first chunk that cannot be read, [`Error::Argument`] for a
/// dataset of other numbers, or of more than its file could hold, and what the source gives.
pub fn read_integers(
    source: Arc<dyn Source>,
    dataset: Dataset,
    slice: Slice<'_>,
) -> Result<Vec<i64>> {
    let mut desk = Desk::new(source)?;
    let width = dataset.number.width as u64;
    let columns = dataset.shape.get(1).copied().unwrap_or_default();
    let n = columns.saturating_mul(slice.rows.len() as u64);
    let most = desk.file_size.saturating_mul(DEFLATE_MOST as u64) / width;
    if dataset.number.kind == Kind::Float || dataset.shape.len() != 2 || n > most {
        return Err(Error::Argument(format!(
            "{}: expected rows of integers, at most {most} in this file, found {n}",
            dataset.name
        )));
    }
    let element = Element {
        dataset,
        units: Units::NONE,
    };
    let mut hand = Hand::new(&desk, element, &Atoms::all(columns as usize), 1)?;
    hand.check(slice, slice.rows.len())?;
    let mut numbers = vec![0; n as usize];
    let mut damage = Damage {
        path: desk.source.path().to_owned(),
        frames: slice.rows,
        skip: false,
        base: 0,
        errors: slice.rows.iter().map(|_| None).collect(),
    };
    let rows = 0..slice.rows.len();
    hand.fill(&mut desk, slice, rows, true, &mut numbers, &mut damage)?;
    Ok(numbers)
}
