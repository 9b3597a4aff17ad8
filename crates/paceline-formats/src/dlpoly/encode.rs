//! Encodes CONFIG, REVCON and HISTORY as DL_POLY_4 and DL_POLY_5 write them: records of 72
//! characters and a line feed.
//!
//! ```text
//! CONFIG    title                                  a72
//!           levcfg, imcon, atoms, step, Δt, time   4i10,1p,2e16.7
//!           cell, where imcon is not 0             3 records of 3f20.10
//! HISTORY   title                                  a72
//!           keytrj, imcon, atoms, frames, records  3i10,2i21
//! frame     "timestep", step, atoms, keytrj, imcon, Δt, time   a8,2i10,2i2,2f20.6
//!           cell                                   3 records of 3f20.10
//! atom      name, id                               a8,i10
//!           in HISTORY also mass, charge, displacement         3f12.6
//!           position, velocity, force              1 to 3 records of 3g20.10
//! ```
//!
//! Lengths in Å, times in ps, masses in Da, charges in e, forces in [`FORCE`]. DL_POLY reads the
//! cell of every frame of a HISTORY, also where imcon is 0; it is then written as zeros.

mod atom;
mod head;
#[cfg(test)]
mod tests;

use crate::Fields;

pub use self::atom::{Atom, atom_size};
pub use self::head::{Moment, config_head, frame_head, history_head};

/// Bytes of a record.
pub const RECORD: usize = 73;

/// Characters of a record, before the line feed.
const LINE: usize = RECORD - 1;

/// DL_POLY's units of force in a kJ/(mol·Å): it writes Da·Å/ps², which are 0.01 of these.
pub const FORCE: f64 = 100.0;

/// Three vectors of a cell, Å.
pub type Cell = [[f64; 3]; 3];

/// levcfg of a CONFIG, keytrj of a HISTORY: 0 with positions, 1 with velocities too, 2 with forces
/// too.
///
/// # Errors
/// Fields that no level has, in a sentence.
pub fn level(fields: Fields) -> Result<usize, String> {
    match (fields.positions, fields.velocities, fields.forces) {
        (true, false, false) => Ok(0),
        (true, true, false) => Ok(1),
        (true, true, true) => Ok(2),
        (true, false, true) => Err("DL_POLY's files hold forces only beside velocities".into()),
        (false, ..) => Err("DL_POLY's files hold nothing without positions".into()),
    }
}

/// DL_POLY's periodic boundary of a cell: 0 none, 1 cubic, 2 orthorhombic, 3 any parallelepiped.
///
/// # Errors
/// Vectors that span no volume or are not finite, in a sentence.
pub fn imcon(cell: Option<&Cell>) -> Result<i64, String> {
    let Some(cell @ &[[ax, ay, az], [bx, by, bz], [cx, cy, cz]]) = cell else {
        return Ok(0);
    };
    let volume = ax * (by * cz - bz * cy) + ay * (bz * cx - bx * cz) + az * (bx * cy - by * cx);
    if volume == 0.0 || !volume.is_finite() {
        return Err(format!(
            "expected cell vectors that span a volume, found {cell:?}"
        ));
    }
    let rectangular = [ay, az, bx, bz, cx, cy] == [0.0; 6] && [ax, by, cz].iter().all(|&x| x > 0.0);
    Ok(match rectangular {
        true if ax == by && by == cz => 1,
        true => 2,
        false => 3,
    })
}
