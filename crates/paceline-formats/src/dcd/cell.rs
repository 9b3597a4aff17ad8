//! The cell record of a frame: six numbers that programs mean in three ways.
//!
//! ```text
//! A, gamma, B, beta, alpha, C   angles in degrees (X-PLOR, NAMD before 2.5) or as cosines
//! xx, xy, yy, xz, yz, zz        CHARMM's symmetric shape matrix
//! ```

use crate::UnitCell;
use crate::{triclinic_box, triclinic_vectors};

/// Other programs pretend to be a CHARMM of this version at the most.
const LAST_PRETENDED: i32 = 25;
/// NAMD, VMD, LAMMPS, OpenMM and MDAnalysis pretend to be of this version, and mean cosines.
const USUALLY_PRETENDED: i32 = 24;
/// Degrees: cells of simulations have no sharper angles.
const SHARPEST: f32 = 20.0;

/// True if no other program than CHARMM, which writes shape matrices, gives itself this version.
pub(super) fn is_charmms_own(version: i32) -> bool {
    version > LAST_PRETENDED
}

/// The cell of a record, as MDAnalysis reads it where `version`, the header's, may be pretended:
/// three angles from -1 to 1 are cosines, a negative number or an angle above 180 tells a shape
/// matrix, and all else are lengths and degrees. Later versions write a shape matrix. Numbers that
/// make no cell one way are read the other way. The vectors of a shape matrix are its rows.
pub(super) fn unit_cell(version: i32, record: [f64; 6]) -> UnitCell {
    if is_read_as_shape(version, record) {
        UnitCell::of_vectors(shape(record))
    } else {
        UnitCell::of_dimensions(from_lengths(record))
    }
}

fn is_read_as_shape(version: i32, record: [f64; 6]) -> bool {
    let likely =
        is_charmms_own(version) || !are_cosines(record) && !is_likely(&from_lengths(record));
    let certain = !are_cosines(record) && contradicts_degrees(record);
    certain || likely && is_shape(record)
}

/// Return what a user should be told where neither the version nor the numbers say how to read a
/// record.
pub(super) fn doubt(version: i32, record: [f64; 6]) -> Option<String> {
    let (shape, lengths) = (from_shape(record), from_lengths(record));
    if shape == lengths || !is_likely(&lengths) {
        return None;
    }
    let certain = match (is_charmms_own(version), are_cosines(record)) {
        // Nobody else is known to write cosines under such a version.
        (true, true) => is_shape(record),
        (true, false) => false,
        (false, true) => version == USUALLY_PRETENDED || !is_shape(record),
        (false, false) => true,
    };
    if certain {
        return None;
    }
    let readings = [
        ("CHARMM's shape matrix", shape),
        ("lengths and angles", lengths),
    ];
    let read = unit_cell(version, record).dimensions;
    let [(taken, _), (left, other)] = match read == shape {
        true => readings,
        false => [readings[1], readings[0]],
    };
    Some(format!(
        "neither CHARMM's version, {version}, in the header nor the numbers tell how cells are \
         meant: the last frame's is read as {taken}, {read:?}; as {left} it is {other:?}"
    ))
}

fn angles([_, gamma, _, beta, alpha, _]: [f64; 6]) -> [f64; 3] {
    [alpha, beta, gamma]
}

fn are_cosines(record: [f64; 6]) -> bool {
    angles(record).iter().all(|angle| angle.abs() <= 1.0)
}

fn contradicts_degrees(record: [f64; 6]) -> bool {
    record.iter().any(|&value| value < 0.0) || angles(record).iter().any(|&angle| angle > 180.0)
}

fn shape([xx, xy, yy, xz, yz, zz]: [f64; 6]) -> [[f64; 3]; 3] {
    [[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]
}

fn from_shape(record: [f64; 6]) -> [f32; 6] {
    let [x, y, z] = shape(record);
    triclinic_box(x, y, z)
}

fn from_lengths(record: [f64; 6]) -> [f32; 6] {
    let [a, _, b, _, _, c] = record;
    let mut angles = angles(record);
    if are_cosines(record) {
        // The arc sine gives a right angle exactly where the arc cosine does not.
        angles = angles.map(|cosine| 90.0 - cosine.asin() * 90.0 / std::f64::consts::FRAC_PI_2);
    }
    let [alpha, beta, gamma] = angles;
    // Angles without lengths are no cell, nor is what is not finite.
    match [a, b, c, alpha, beta, gamma].map(|value| value as f32) {
        [0.0, 0.0, 0.0, ..] => [0.0; 6],
        dimensions if !dimensions.iter().all(|value| value.is_finite()) => [0.0; 6],
        dimensions => dimensions,
    }
}

/// True if a record is a positive definite matrix, and so can be a shape, of a likely cell.
fn is_shape(record: [f64; 6]) -> bool {
    let [xx, xy, yy, xz, yz, zz] = record;
    let minor = xx * yy - xy * xy;
    let determinant =
        xx * (yy * zz - yz * yz) - xy * (xy * zz - yz * xz) + xz * (xy * yz - yy * xz);
    xx > 0.0 && minor > 0.0 && determinant > 0.0 && is_likely(&from_shape(record))
}

/// True if simulations have such cells.
fn is_likely(dimensions: &[f32; 6]) -> bool {
    let blunt = |angle: &f32| (SHARPEST..=180.0 - SHARPEST).contains(angle);
    dimensions[3..].iter().all(blunt) && triclinic_vectors(dimensions).is_some()
}
