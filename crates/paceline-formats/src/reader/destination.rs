//! Destination of a block's frames: arrays with a row for each, or a visitor.

use crate::error::{Error, Result};
use crate::{CELL_WIDTH, CellRow, Fields, FrameOut};

/// Destination of a block: one row a frame.
pub struct BlockOut<'a> {
    pub numbers: Numbers<'a>,
    pub cells: &'a mut [CellRow],
    /// ps.
    pub times: &'a mut [f64],
    pub steps: &'a mut [i64],
    /// λ of free-energy runs; left as they are where the format has none.
    pub lambdas: &'a mut [f32],
    /// Fields that each frame holds, as [`Fields::bits`]; 0 for one that could not be read.
    pub fields: &'a mut [u8],
}

impl BlockOut<'_> {
    /// # Errors
    /// [`Error::Argument`] where there is no room for `n` frames of `n_wanted` atoms, or for more.
    pub(super) fn check(&self, n: usize, n_wanted: usize, wanted: Fields) -> Result<()> {
        let width = 3 * n_wanted;
        let room = |wanted, n| if wanted { n * width } else { 0 };
        let fits = match &self.numbers {
            Numbers::Kept {
                positions,
                velocities,
                forces,
            } => {
                positions.len() == room(wanted.positions, n)
                    && velocities.len() == room(wanted.velocities, n)
                    && forces.len() == room(wanted.forces, n)
            }
            Numbers::Visited(_) => true,
        };
        let fits = fits
            && self.cells.len() == n
            && self.times.len() == n
            && self.steps.len() == n
            && self.lambdas.len() == n
            && self.fields.len() == n;
        if !fits {
            return Err(Error::Argument(format!(
                "the arrays of a block must all have {n} rows, and {n_wanted} atoms where they \
                 have atoms"
            )));
        }
        Ok(())
    }

    /// Note what a row's frame holds, and NaN in place of what it does not.
    pub(super) fn keep(&mut self, row: usize, width: usize, held: Fields) {
        self.fields[row] = held.bits();
        if let Numbers::Kept {
            positions,
            velocities,
            forces,
        } = &mut self.numbers
        {
            for (there, values) in [
                (held.positions, positions),
                (held.velocities, velocities),
                (held.forces, forces),
            ] {
                if !there {
                    row_of_mut(values, row, width).fill(f32::NAN);
                }
            }
        }
    }

    /// Make a row say that nothing is known of its frame.
    pub(super) fn blank(&mut self, row: usize, width: usize) {
        self.keep(row, width, Fields::default());
        if let Numbers::Visited(visit) = &mut self.numbers {
            visit(row, [&[]; 3], Fields::default());
        }
        self.cells[row] = [f64::NAN; CELL_WIDTH];
        self.times[row] = f64::NAN;
        self.steps[row] = i64::MIN;
    }
}

/// Called with each frame of a block in turn: its row, its positions, velocities and forces, and
/// which of them it holds. A frame that could not be read has no numbers and holds nothing.
pub type Visitor<'a> = dyn FnMut(usize, [&[f32]; 3], Fields) + Send + 'a;

/// Use of the numbers of a frame's atoms.
pub enum Numbers<'a> {
    /// They are kept. A field that is not wanted has no room.
    Kept {
        /// frames × atoms wanted × 3, Å.
        positions: &'a mut [f32],
        /// frames × atoms wanted × 3, Å/ps.
        velocities: &'a mut [f32],
        /// frames × atoms wanted × 3, kJ/(mol·Å).
        forces: &'a mut [f32],
    },
    /// They are shown, frame by frame, while the processor has them at hand, and then forgotten.
    Visited(Box<Visitor<'a>>),
}

/// The rows of a block while they are filled.
pub(super) struct Rows<'a> {
    out: BlockOut<'a>,
    /// Numbers of a frame in each field.
    width: usize,
    /// Positions, velocities and forces of the frame at hand, where they are visited.
    scratch: [Vec<f32>; 3],
}

impl<'a> Rows<'a> {
    /// Takes `scratch`, whatever its size, until [`Rows::into_scratch`].
    ///
    /// # Errors
    /// [`Error::Argument`] where there is no room for `n` frames of `n_wanted` atoms, or for more.
    pub fn new(
        out: BlockOut<'a>,
        n: usize,
        n_wanted: usize,
        wanted: Fields,
        scratch: &mut [Vec<f32>; 3],
    ) -> Result<Self> {
        out.check(n, n_wanted, wanted)?;
        let width = 3 * n_wanted;
        let mut scratch = std::mem::take(scratch);
        if let Numbers::Visited(_) = &out.numbers {
            let wanted = [wanted.positions, wanted.velocities, wanted.forces];
            for (values, wanted) in scratch.iter_mut().zip(wanted) {
                values.resize(if wanted { width } else { 0 }, 0.0);
            }
        }
        Ok(Rows {
            out,
            width,
            scratch,
        })
    }

    pub fn into_scratch(self) -> [Vec<f32>; 3] {
        self.scratch
    }

    /// Return where to decode a row's frame, and to note what it holds.
    pub fn place<'b>(&'b mut self, row: usize, held: &'b mut Fields) -> FrameOut<'b> {
        let width = self.width;
        let [positions, velocities, forces] = match &mut self.out.numbers {
            Numbers::Kept {
                positions,
                velocities,
                forces,
            } => [positions, velocities, forces].map(|values| row_of_mut(values, row, width)),
            Numbers::Visited(_) => self.scratch.each_mut().map(|values| &mut values[..]),
        };
        FrameOut {
            positions,
            velocities,
            forces,
            cell: &mut self.out.cells[row],
            time: &mut self.out.times[row],
            step: &mut self.out.steps[row],
            lambda: &mut self.out.lambdas[row],
            fields: held,
        }
    }

    /// Note what a decoded row's frame holds, and NaN in place of what it does not; or show it.
    pub fn keep(&mut self, row: usize, held: Fields) {
        self.out.keep(row, self.width, held);
        if let Numbers::Visited(visit) = &mut self.out.numbers {
            visit(row, self.scratch.each_ref().map(|values| &values[..]), held);
        }
    }

    /// Make a row say that nothing is known of its frame.
    pub fn blank(&mut self, row: usize) {
        self.out.blank(row, self.width);
    }
}

/// A row's part of an array that may have no room at all.
pub(super) fn row_of_mut(values: &mut [f32], row: usize, width: usize) -> &mut [f32] {
    values
        .get_mut(row * width..(row + 1) * width)
        .unwrap_or_default()
}

/// The same, to be looked at.
pub(super) fn row_of(values: &[f32], row: usize, width: usize) -> &[f32] {
    values
        .get(row * width..(row + 1) * width)
        .unwrap_or_default()
}
