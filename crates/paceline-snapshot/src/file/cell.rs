//! Lengths and angles of cells, for files that do not contain vectors.

use std::path::Path;

use paceline_formats::dlpoly::encode::Cell;

use super::unwritable;
use crate::Result;

/// Return lengths A, B, C (Å) of a cell's vectors, and the cosines of α, β, γ between them.
pub fn lengths_and_cosines(cell: &Cell) -> ([f64; 3], [f64; 3]) {
    let dot = |i: usize, j: usize| {
        cell[i][0] * cell[j][0] + cell[i][1] * cell[j][1] + cell[i][2] * cell[j][2]
    };
    let lengths = [0, 1, 2].map(|i| dot(i, i).sqrt());
    let cosines = [(1, 2), (0, 2), (0, 1)].map(|(i, j)| dot(i, j) / (lengths[i] * lengths[j]));
    (lengths, cosines)
}

/// Convert cosines to angles in degrees; 0 becomes exactly 90.
pub fn angles(cosines: [f64; 3]) -> [f64; 3] {
    cosines.map(|cosine| 90.0 - cosine.clamp(-1.0, 1.0).asin().to_degrees())
}

/// Return the cell of a frame; refuse a frame without a cell, or with vectors that lengths and
/// angles do not determine.
pub(super) fn oriented<'a>(path: &Path, cell: &'a Option<Cell>) -> Result<&'a Cell> {
    let Some(cell) = cell else {
        return Err(unwritable(path)("expected a cell, found none".into()));
    };
    let &[[ax, ay, az], [_, by, bz], [_, _, cz]] = cell;
    match [ay, az, bz] == [0.0; 3] && [ax, by, cz].iter().all(|&x| x > 0.0) {
        true => Ok(cell),
        false => Err(unwritable(path)(format!(
            "expected a cell with its first vector along x and its second in the xy \
             plane, because the file stores lengths and angles only, found {cell:?}"
        ))),
    }
}
