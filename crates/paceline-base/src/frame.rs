//! Frames: output of decoders, and input of encoders.

use crate::cell::{CellRow, UnitCell};

/// Set of per-atom fields, such as those that a frame contains or that a caller wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fields {
    /// True if the set contains positions (Å).
    pub positions: bool,
    /// True if the set contains velocities (Å/ps).
    pub velocities: bool,
    /// True if the set contains forces (kJ/(mol·Å)).
    pub forces: bool,
}

impl Fields {
    /// Positions, without velocities and forces.
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

    /// Encode the fields in bits: 1 positions, 2 velocities, 4 forces.
    pub fn bits(self) -> u8 {
        u8::from(self.positions) | u8::from(self.velocities) << 1 | u8::from(self.forces) << 2
    }

    /// Decode the bits of [`Fields::bits`]; higher bits are ignored.
    pub fn from_bits(bits: u8) -> Fields {
        Fields {
            positions: bits & 1 != 0,
            velocities: bits & 2 != 0,
            forces: bits & 4 != 0,
        }
    }

    /// Return the name of the first field that is in this set and not in `others`; `None` if all
    /// are in `others`.
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
/// The slice of an unwanted field is empty. If the frame lacks a wanted field, its slice is not
/// changed. `fields` reports the fields of the frame.
#[derive(Debug)]
pub struct FrameOut<'a> {
    /// x, y, z of each wanted atom in turn, Å: 3 numbers per atom.
    pub positions: &'a mut [f32],
    /// Velocities of each wanted atom in turn, Å/ps: 3 numbers per atom.
    pub velocities: &'a mut [f32],
    /// Forces on each wanted atom in turn, kJ/(mol·Å): 3 numbers per atom.
    pub forces: &'a mut [f32],
    /// Cell as a row of [`UnitCell::row`].
    pub cell: &'a mut CellRow,
    /// Time, ps.
    pub time: &'a mut f64,
    /// Step number of the simulation.
    pub step: &'a mut i64,
    /// λ of a free-energy calculation; unchanged if the format has none.
    pub lambda: &'a mut f32,
    /// Fields in the frame, wanted or not.
    pub fields: &'a mut Fields,
}

/// Frame that owns the memory of its numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// x, y, z of each atom in turn, Å; empty if unwanted.
    pub positions: Vec<f32>,
    /// Velocities, Å/ps; empty if unwanted.
    pub velocities: Vec<f32>,
    /// Forces, kJ/(mol·Å); empty if unwanted.
    pub forces: Vec<f32>,
    /// Cell as a row of [`UnitCell::row`].
    pub cell: CellRow,
    /// Time, ps.
    pub time: f64,
    /// Step number of the simulation.
    pub step: i64,
    /// λ of a free-energy calculation; 0 if the format has none.
    pub lambda: f32,
    /// Fields in the frame, wanted or not.
    pub fields: Fields,
}

impl Frame {
    /// Allocate a frame with the wanted fields of `n_atoms` atoms.
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

    /// Return the frame as the output of a decoder.
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

    /// Return the frame as the input of an encoder.
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

/// Frame to encode, in the units of [`FrameOut`]. A field that is not written is empty; other
/// fields contain 3 numbers for each atom.
#[derive(Debug, Clone, Copy)]
pub struct FrameIn<'a> {
    /// x, y, z of each atom in turn, Å.
    pub positions: &'a [f32],
    /// Velocities, Å/ps.
    pub velocities: &'a [f32],
    /// Forces, kJ/(mol·Å).
    pub forces: &'a [f32],
    /// Unit cell.
    pub cell: UnitCell,
    /// Time, ps.
    pub time: f64,
    /// Step number of the simulation.
    pub step: i64,
    /// λ of a free-energy calculation; 0 for other simulations.
    pub lambda: f32,
}

/// Number, times and step numbers of the frames of a written file, for its header. They are
/// complete after the last frame was encoded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Series {
    /// Number of frames.
    pub n_frames: u64,
    /// Time of the first frame, ps.
    pub time: f64,
    /// Time between frames, ps; 0 for a single frame.
    pub dt: f64,
    /// Step number of the first frame.
    pub step: i64,
    /// Simulation steps between frames; 0 for a single frame.
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
