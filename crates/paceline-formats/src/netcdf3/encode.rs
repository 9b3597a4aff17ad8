//! Encodes Amber's trajectories, as MDAnalysis, MDTraj and cpptraj read them: CDF-2, or CDF-5 where
//! an array of a frame is too large for it.

mod header;

use self::header::{Describe, Entry};
use super::KILOJOULES;
use super::layout::Role;
use crate::finite::check_finite;
use crate::{Encoder, Fields, FrameIn, Series};

/// What Amber divides velocities by: its unit of time is 1/20.455 ps.
const VELOCITY_SCALE: f64 = 20.455;

/// CDF-2 states the size of an array in a record, which is a multiple of 4, in 32 bits.
const CDF2_MOST: u64 = u32::MAX as u64 - 3;

/// Encodes the frames of one Amber NetCDF file.
#[derive(Debug)]
pub struct NetcdfEncoder {
    n_atoms: usize,
    has_cell: bool,
    fields: Fields,
    always_cdf5: bool,
}

impl NetcdfEncoder {
    /// Every frame will hold the same fields, and with `has_cell` a cell, of zeros where it has
    /// none.
    ///
    /// # Errors
    /// What no NetCDF file can have, in a sentence.
    pub fn new(n_atoms: usize, has_cell: bool, fields: Fields) -> Result<Self, String> {
        if n_atoms == 0 {
            return Err("NetCDF holds at least 1 atom, not 0".into());
        }
        Ok(NetcdfEncoder {
            n_atoms,
            has_cell,
            fields,
            always_cdf5: false,
        })
    }

    /// The same, as CDF-5 also where CDF-2 has room.
    #[must_use]
    pub fn as_cdf5(self) -> Self {
        NetcdfEncoder {
            always_cdf5: true,
            ..self
        }
    }

    /// The variables of a record, in their order. What is small comes first: so a reader of the
    /// first atoms' positions has all that it wants in one piece.
    fn variables(&self) -> Vec<Entry> {
        [
            (Role::Time, true),
            (Role::Lengths, self.has_cell),
            (Role::Angles, self.has_cell),
            (Role::Positions, self.fields.positions),
            (Role::Velocities, self.fields.velocities),
            (Role::Forces, self.fields.forces),
        ]
        .into_iter()
        .filter(|&(_, written)| written)
        .map(|(role, _)| Entry::of_frame(role, self.n_atoms as u64))
        .collect()
    }

    fn check(&self, frame: &FrameIn<'_>) -> Result<(), String> {
        for (one, all, written, values) in [
            (
                "position",
                "positions",
                self.fields.positions,
                frame.positions,
            ),
            (
                "velocity",
                "velocities",
                self.fields.velocities,
                frame.velocities,
            ),
            ("force", "forces", self.fields.forces, frame.forces),
        ] {
            let n_atoms = if written { self.n_atoms } else { 0 };
            if values.len() != 3 * n_atoms {
                let found = values.len() / 3;
                return Err(format!(
                    "expected the {all} of {n_atoms} atoms, found those of {found}"
                ));
            }
            check_finite(values, one)?;
        }
        if !(frame.time as f32).is_finite() {
            let time = frame.time;
            return Err(format!(
                "expected a time that an f32 holds, found {time:e} ps"
            ));
        }
        if !self.has_cell && *frame.dimensions != [0.0; 6] {
            return Err("expected no unit cell, as in the file's first frame, found one".into());
        }
        match frame.dimensions.iter().find(|value| !value.is_finite()) {
            Some(value) => Err(format!("expected a finite unit cell, found {value}")),
            None => Ok(()),
        }
    }
}

impl Encoder for NetcdfEncoder {
    fn head(&self, series: &Series) -> Vec<u8> {
        let variables = self.variables();
        let too_large = |variable: &Entry| variable.size > CDF2_MOST;
        let large = self.always_cdf5 || variables.iter().any(too_large);
        let has_cell = self.has_cell;
        Describe::new(large, self.n_atoms as u64, has_cell).header(series.n_frames, &variables)
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.check(frame)?;
        bytes.extend((frame.time as f32).to_be_bytes());
        if self.has_cell {
            put(bytes, frame.dimensions, |value| {
                f64::from(value).to_be_bytes()
            });
        }
        put(bytes, frame.positions, f32::to_be_bytes);
        put(bytes, frame.velocities, |value| {
            ((f64::from(value) / VELOCITY_SCALE) as f32).to_be_bytes()
        });
        put(bytes, frame.forces, |value| {
            (value / KILOJOULES).to_be_bytes()
        });
        Ok(())
    }
}

fn put<const N: usize>(bytes: &mut Vec<u8>, values: &[f32], code: impl Fn(f32) -> [u8; N]) {
    let start = bytes.len();
    bytes.resize(start + N * values.len(), 0);
    let (places, _) = bytes[start..].as_chunks_mut::<N>();
    for (place, &value) in places.iter_mut().zip(values) {
        *place = code(value);
    }
}
