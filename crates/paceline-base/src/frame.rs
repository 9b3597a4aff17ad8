//! A frame on its way from bytes to numbers and back.

use crate::cell::{CellRow, UnitCell};

/// The fields that a frame may hold of its atoms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields {
    /// Positions, Å.
    pub positions: bool,
    /// Velocities, Å/ps.
    pub velocities: bool,
    /// Forces, kJ/(mol·Å).
    pub forces: bool,
}

impl Fields {
    /// Positions alone.
    pub const POSITIONS: Fields = Fields {
        positions: true,
        velocities: false,
        forces: false,
    };

    /// All three fields.
    pub const ALL: Fields = Fields {
        positions: true,
        velocities: true,
        forces: true,
    };

    /// One bit a field: 1 positions, 2 velocities, 4 forces.
    pub fn bits(self) -> u8 {
        u8::from(self.positions) | u8::from(self.velocities) << 1 | u8::from(self.forces) << 2
    }

    /// The fields of [`Fields::bits`]; higher bits are ignored.
    pub fn from_bits(bits: u8) -> Fields {
        Fields {
            positions: bits & 1 != 0,
            velocities: bits & 2 != 0,
            forces: bits & 4 != 0,
        }
    }

    /// The name of a field that is here and not in `others`.
    pub fn beyond(self, others: Fields) -> Option<&'static str> {
        match self.bits() & !others.bits() {
            0 => None,
            bits if bits & 1 != 0 => Some("positions"),
            bits if bits & 2 != 0 => Some("velocities"),
            _ => Some("forces"),
        }
    }
}

/// Destination of one decoded frame. Units: Å, Å/ps, kJ/(mol·Å), degrees, ps.
///
/// The slice of a field that is not wanted is empty. A field that is wanted but that the frame does
/// not hold is left as it is; `fields` reports which are held.
#[derive(Debug)]
pub struct FrameOut<'a> {
    /// x, y, z of each wanted atom in turn: 3 × atoms wanted, Å.
    pub positions: &'a mut [f32],
    /// The same of velocities, Å/ps.
    pub velocities: &'a mut [f32],
    /// The same of forces, kJ/(mol·Å).
    pub forces: &'a mut [f32],
    /// The cell: a row of [`UnitCell::row`].
    pub cell: &'a mut CellRow,
    /// Time, ps.
    pub time: &'a mut f64,
    /// Step number of the simulation.
    pub step: &'a mut i64,
    /// λ of a free-energy run; left as it is where the format has none.
    pub lambda: &'a mut f32,
    /// Fields that the frame holds, wanted or not.
    pub fields: &'a mut Fields,
}

/// A frame that owns its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// x, y, z of each atom in turn, Å; empty where not wanted, as the next two.
    pub positions: Vec<f32>,
    /// Velocities, Å/ps.
    pub velocities: Vec<f32>,
    /// Forces, kJ/(mol·Å).
    pub forces: Vec<f32>,
    /// The cell: a row of [`UnitCell::row`].
    pub cell: CellRow,
    /// Time, ps.
    pub time: f64,
    /// Step number of the simulation.
    pub step: i64,
    /// λ of a free-energy run; 0 where the format has none.
    pub lambda: f32,
    /// Fields that the frame holds, wanted or not.
    pub fields: Fields,
}

impl Frame {
    /// Allocate the fields wanted of `n_atoms` atoms.
    pub fn new(n_atoms: usize, wanted: Fields) -> Frame {
        let room = |wanted| vec![0.0; if wanted { 3 * n_atoms } else { 0 }];
        Frame {
            positions: room(wanted.positions),
            velocities: room(wanted.velocities),
            forces: room(wanted.forces),
            cell: UnitCell::NONE.row(),
            time: 0.0,
            step: 0,
            lambda: 0.0,
            fields: Fields::default(),
        }
    }

    /// Return the frame as the destination to decode to.
    pub fn out(&mut self) -> FrameOut<'_> {
        FrameOut {
            positions: &mut self.positions,
            velocities: &mut self.velocities,
            forces: &mut self.forces,
            cell: &mut self.cell,
            time: &mut self.time,
            step: &mut self.step,
            lambda: &mut self.lambda,
            fields: &mut self.fields,
        }
    }

    /// Return the frame's cell.
    pub fn unit_cell(&self) -> UnitCell {
        UnitCell::of_row(&self.cell)
    }

    /// Return the frame as input to encode.
    pub fn as_input(&self) -> FrameIn<'_> {
        FrameIn {
            positions: &self.positions,
            velocities: &self.velocities,
            forces: &self.forces,
            cell: self.unit_cell(),
            time: self.time,
            step: self.step,
            lambda: self.lambda,
        }
    }
}

/// One frame to be encoded, in the units of [`FrameOut`]. A field that is not to be written is
/// empty; the others have 3 numbers for each of the same atoms.
#[derive(Debug, Clone, Copy)]
pub struct FrameIn<'a> {
    /// x, y, z of each atom in turn, Å.
    pub positions: &'a [f32],
    /// Velocities, Å/ps.
    pub velocities: &'a [f32],
    /// Forces, kJ/(mol·Å).
    pub forces: &'a [f32],
    /// The cell.
    pub cell: UnitCell,
    /// Time, ps.
    pub time: f64,
    /// Step number of the simulation.
    pub step: i64,
    /// λ of a free-energy run, 0 if it is none.
    pub lambda: f32,
}

/// Properties that all frames of a file have in common, known when the last one has been encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series {
    /// Number of frames.
    pub n_frames: u64,
    /// Time of the first frame, ps.
    pub time: f64,
    /// Time between frames, ps; 0 for a single one.
    pub dt: f64,
    /// Step of the first frame, in the simulation.
    pub step: i64,
    /// Steps between frames; 0 for a single one.
    pub steps: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_their_bits_and_name_what_is_beyond() {
        for bits in 0..8 {
            assert_eq!(Fields::from_bits(bits).bits(), bits);
        }
        let both = Fields::from_bits(5);
        assert_eq!(both.beyond(Fields::POSITIONS), Some("forces"));
        assert_eq!(Fields::POSITIONS.beyond(both), None);
    }
}
