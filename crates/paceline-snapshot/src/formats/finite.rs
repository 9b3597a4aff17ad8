//! Finds numbers that no file should hold.

use crate::Vectors;

/// Whether all numbers are finite. x − x is 0 where x is, and NaN elsewhere; gathered without a
/// branch for each number.
#[expect(clippy::eq_op, reason = "not equal where x is NaN or infinite")]
pub fn all_finite(vectors: &Vectors<'_>) -> bool {
    match vectors {
        Vectors::F32(values) => values.iter().fold(0, |odd, x| odd | (x - x).to_bits()) == 0,
        Vectors::F64(values) => values.iter().fold(0, |odd, x| odd | (x - x).to_bits()) == 0,
    }
}
