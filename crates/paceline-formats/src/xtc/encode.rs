//! Encodes frames as GROMACS does: for the same positions the same bytes.
//!
//! Positions become integers in float32, in the order of operations of xdrfile and of MDAnalysis's
//! writer: Å × 0.1, × precision, half a unit away from zero, cut off. How atoms are then grouped
//! is a writer's choice; it is made as GROMACS makes it (see `runs`), which costs no time.

mod bits;
mod integers;
mod runs;

use self::integers::Integers;
use super::packed::PRECISION_MIN;
use super::{AT_BYTE_COUNT, MAGIC_1995, MAGIC_2023, PLAIN_ATOMS};
use crate::finite::check_finite;
use crate::gromacs::{self, NM_PER_ANGSTROM};
use crate::xdr::padding;
use crate::{Encoder, FrameIn, Series};

/// Integers per nm that GROMACS writes unless told otherwise.
pub const PRECISION: f32 = 1000.0;

/// Frames of more atoms have the magic number 2023 in GROMACS, whatever their size.
const ATOMS_1995: usize = 298_261_617;

/// Encodes the frames of one XTC file.
#[derive(Debug)]
pub struct XtcEncoder {
    n_atoms: usize,
    /// Integers per nm.
    precision: f32,
    integers: Integers,
}

impl XtcEncoder {
    /// For `precision` integers per nm.
    ///
    /// # Errors
    /// What no XTC file can have, in a sentence.
    pub fn new(n_atoms: usize, precision: f32) -> Result<Self, String> {
        if i32::try_from(n_atoms).is_err() {
            return Err(format!(
                "XTC holds at most {} atoms, not {n_atoms}",
                i32::MAX
            ));
        }
        if !(precision > PRECISION_MIN && precision.is_finite()) {
            return Err(format!(
                "expected a precision of so many integers per nm, finite and above \
                 {PRECISION_MIN:e}, found {precision}"
            ));
        }
        Ok(XtcEncoder {
            n_atoms,
            precision,
            integers: Integers::default(),
        })
    }

    fn check(&self, frame: &FrameIn<'_>) -> Result<(), String> {
        if frame.positions.len() != 3 * self.n_atoms {
            return Err(format!(
                "expected positions of {} atoms, found {}",
                self.n_atoms,
                frame.positions.len() / 3
            ));
        }
        if !(frame.velocities.is_empty() && frame.forces.is_empty()) {
            return Err("XTC holds positions only, no velocities or forces".into());
        }
        Ok(())
    }
}

impl Encoder for XtcEncoder {
    /// XTC files begin with their first frame.
    fn head(&self, _series: &Series) -> Vec<u8> {
        Vec::new()
    }

    fn encode(&mut self, frame: &FrameIn<'_>, bytes: &mut Vec<u8>) -> Result<(), String> {
        self.check(frame)?;
        let start = Start::new(frame)?;
        if self.n_atoms <= PLAIN_ATOMS {
            check_finite(frame.positions, "position")?;
            start.put(MAGIC_1995, bytes);
            for position in frame.positions {
                bytes.extend((position * NM_PER_ANGSTROM).to_be_bytes());
            }
            return Ok(());
        }
        self.integers.take(frame.positions, self.precision)?;
        let integers = &self.integers;
        let most = runs::most_bytes(integers);
        let long = self.n_atoms > ATOMS_1995 || i32::try_from(most).is_err();
        let frame_at = bytes.len();
        start.put(if long { MAGIC_2023 } else { MAGIC_1995 }, bytes);
        bytes.extend(self.precision.to_be_bytes());
        for value in [integers.minimum, integers.maximum].as_flattened() {
            bytes.extend(value.to_be_bytes());
        }
        bytes.extend((runs::first_small(integers) as i32).to_be_bytes());
        bytes.extend_from_slice(if long { &[0; 8] } else { &[0; 4] });
        let start = bytes.len();
        bytes.resize(start + most, 0);
        let len = runs::pack(integers, &mut bytes[start..]);
        bytes.resize(start + len, 0);
        bytes.resize(start + len + padding(len as u64) as usize, 0);
        let count_at = frame_at + AT_BYTE_COUNT;
        if long {
            bytes[count_at..start].copy_from_slice(&(len as u64).to_be_bytes());
        } else {
            bytes[count_at..start].copy_from_slice(&(len as u32).to_be_bytes());
        }
        Ok(())
    }
}

/// What stands before the positions, or before their precision.
struct Start {
    n_atoms: i32,
    step: i32,
    time: f32,
    box_vectors: [[f32; 3]; 3],
}

impl Start {
    fn new(frame: &FrameIn<'_>) -> Result<Self, String> {
        let (step, time) = gromacs::moment(frame, "XTC")?;
        Ok(Start {
            n_atoms: (frame.positions.len() / 3) as i32,
            step,
            time,
            box_vectors: gromacs::box_vectors(frame.dimensions)?,
        })
    }

    fn put(&self, magic: i32, bytes: &mut Vec<u8>) {
        for number in [magic, self.n_atoms, self.step] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(self.time.to_be_bytes());
        for value in self.box_vectors.as_flattened() {
            bytes.extend(value.to_be_bytes());
        }
        bytes.extend(self.n_atoms.to_be_bytes());
    }
}
