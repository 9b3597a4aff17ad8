//! Dipole moments and currents: Σ q x and Σ q v over atoms.

use super::cell::Cell;
use super::row_kernel::{FrameConversion, Frames, RowKernel};
use super::transform_common::Refused;
use super::{Columns, check_len};
use paceline_base::error::{Error, Result};

/// Number of partial sums: atom i is added to partial sum i modulo `LANES`.
const LANES: usize = 4;

/// Dipole moment or current of some atoms, and the volume of the cell if `needs_cell` is set.
#[derive(Debug, Clone)]
pub struct Dipole {
    columns: Columns,
    charges: Vec<f64>,
    summed: String,
    needs_cell: Option<String>,
}

impl Dipole {
    /// Create a kernel. Two names are used in messages: `summed` is "positions" or "velocities",
    /// the vectors in the frames; `needs_cell` is the analysis that needs the volume.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are no atoms, or the numbers of atoms and charges differ.
    pub fn new(
        columns: &[usize],
        charges: &[f64],
        summed: &str,
        needs_cell: Option<&str>,
    ) -> Result<Self> {
        check_len("charges", charges.len(), columns.len())?;
        if columns.is_empty() {
            let reason = "a dipole moment needs atoms";
            return Err(Error::Argument(reason.to_string()));
        }
        Ok(Dipole {
            columns: Columns::new(columns),
            charges: charges.to_vec(),
            summed: summed.to_string(),
            needs_cell: needs_cell.map(str::to_string),
        })
    }

    fn moment(&self, atoms: &[[f32; 3]]) -> [f64; 3] {
        let mut sums = [[0.0; LANES]; 3];
        for (atoms, charges) in atoms.chunks(LANES).zip(self.charges.chunks(LANES)) {
            for (lane, (atom, charge)) in atoms.iter().zip(charges).enumerate() {
                for (sums, &x) in sums.iter_mut().zip(atom) {
                    sums[lane] += charge * f64::from(x);
                }
            }
        }
        sums.map(|[a, b, c, d]| (a + b) + (c + d))
    }
}

impl RowKernel for Dipole {
    fn conversion(&self) -> FrameConversion {
        FrameConversion::Stored
    }

    fn n_columns(&self) -> usize {
        3 + usize::from(self.needs_cell.is_some())
    }

    /// Compute x, y and z of the sum (charge × Å, or charge × Å/ps), and the volume (Å³) if it is
    /// needed. A frame is refused if a number is not finite, or a required cell is missing.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            if let Some(needed_by) = &self.needs_cell {
                let cell = Cell::new(dimensions);
                row[3] = cell.map_err(|none| none.reason(needed_by))?.volume();
            }
            let atoms = self.columns.pick(frame, &mut scratch).as_chunks().0;
            row[..3].copy_from_slice(&self.moment(atoms));
            if row.iter().all(|x| x.is_finite()) {
                return Ok(());
            }
            Err(format!("{} are not all finite", self.summed))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CELL: [f32; 6] = [10.0, 20.0, 30.0, 90.0, 90.0, 90.0];

    fn made(columns: &[usize], charges: &[f64]) -> Result<Dipole> {
        Dipole::new(columns, charges, "positions", Some("the test"))
    }

    fn row(dipole: &Dipole, frame: &[f32], cell: [f32; 6]) -> Result<Vec<f64>, String> {
        let mut row = vec![0.0; dipole.n_columns()];
        let frames = Frames::new(frame, frame.len() / 3, &cell).expect("a frame");
        match dipole.compute(&frames, &mut row).expect("atoms") {
            None => Ok(row),
            Some((_, reason)) => Err(reason),
        }
    }

    #[test]
    fn moments_are_sums_over_atoms() {
        let mut random = Random(71);
        for n_atoms in [1, 2, 3, 4, 5, 90] {
            let frame = random.structure(n_atoms + 1, 20.0, 7.0);
            let frame: Vec<f32> = frame.iter().map(|&x| x as f32).collect();
            let charges = random.weights(n_atoms);
            let columns: Vec<usize> = (0..n_atoms).map(|i| (7 * i) % (n_atoms + 1)).collect();
            let dipole = made(&columns, &charges).expect("atoms");
            let found = row(&dipole, &frame, CELL).expect("a row");
            for axis in 0..3 {
                let terms = columns.iter().zip(&charges);
                let terms = terms.map(|(i, charge)| charge * f64::from(frame[3 * i + axis]));
                assert!((found[axis] - terms.sum::<f64>()).abs() < 1e-9);
            }
            assert_eq!(found[3], 6000.0);
        }
        let pair = made(&[0, 1], &[0.5, -0.5]).expect("atoms");
        let found = row(&pair, &[1.0, 2.0, 3.0, 2.0, 2.0, 1.0], CELL);
        assert_eq!(found, Ok(vec![-0.5, 0.0, 1.0, 6000.0]));
        let alone = Dipole::new(&[0, 1], &[0.5, -0.5], "velocities", None).expect("atoms");
        let found = row(&alone, &[1.0, 2.0, 3.0, 2.0, 2.0, 1.0], [0.0; 6]);
        assert_eq!(found, Ok(vec![-0.5, 0.0, 1.0]));
    }

    #[test]
    fn what_has_no_moment_is_refused() {
        let dipole = made(&[0, 1], &[1.0, -1.0]).expect("atoms");
        let frame = [1.0, 2.0, 3.0, 4.0, f32::NAN, 1.0];
        assert!(row(&dipole, &frame, CELL).is_err_and(|reason| reason.contains("finite")));
        let none = row(&dipole, &[1.0; 6], [0.0; 6]);
        assert!(none.is_err_and(|reason| reason.contains("no cell, which the test")));
        assert!(made(&[], &[]).is_err());
        assert!(made(&[0, 1], &[1.0]).is_err());
    }
}
