//! What the frames of XTC and TRR have in common beside XDR: a box in nm, and a step of 32 bits.

use super::FrameIn;
use super::cell::{triclinic_box, triclinic_vectors};

pub const NM_PER_ANGSTROM: f32 = 0.1;

/// A box as lengths (Å) and angles (degrees), in MDAnalysis's order of operations.
pub fn dimensions(vectors: [[f32; 3]; 3]) -> [f32; 6] {
    let [x, y, z] = vectors.map(|vector| vector.map(f64::from));
    let [lx, ly, lz, alpha, beta, gamma] = triclinic_box(x, y, z);
    [lx * 10.0, ly * 10.0, lz * 10.0, alpha, beta, gamma]
}

/// The box of lengths (Å) and angles (degrees). A frame without a cell has one of zeros.
///
/// # Errors
/// Where there is a cell, but none that spans a volume.
pub fn box_vectors(dimensions: &[f32; 6]) -> Result<[[f32; 3]; 3], String> {
    let [lx, ly, lz, alpha, beta, gamma] = *dimensions;
    let [lx, ly, lz] = [lx, ly, lz].map(|length| length * NM_PER_ANGSTROM);
    match triclinic_vectors(&[lx, ly, lz, alpha, beta, gamma]) {
        Some(vectors) => Ok(vectors),
        None if *dimensions == [0.0; 6] => Ok([[0.0; 3]; 3]),
        None => Err(format!(
            "expected a unit cell or zeros, found {dimensions:?}, which span no volume"
        )),
    }
}

/// Step and time (ps) of a frame, as a file of the format `name` holds them.
///
/// # Errors
/// Where one of them does not fit.
pub fn moment(frame: &FrameIn<'_>, name: &str) -> Result<(i32, f32), String> {
    let step = i32::try_from(frame.step)
        .map_err(|_| format!("step {} does not fit in the 32 bits of {name}", frame.step))?;
    let time = frame.time as f32;
    if !time.is_finite() {
        return Err(format!(
            "expected a time that fits in 32 bits, found {} ps",
            frame.time
        ));
    }
    Ok((step, time))
}
