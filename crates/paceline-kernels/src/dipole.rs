//! Dipole moments: Σ q x over atoms.

use super::cell::Cell;
use super::rows::{Frames, RowKernel};
use super::transform::Refused;
use super::{Columns, check_len};
use paceline_formats::error::{Error, Result};

/// Partial sums: atom i adds to sum i modulo this.
const LANES: usize = 4;

/// The dipole moment of some atoms, and the volume of the cell.
#[derive(Debug, Clone)]
pub struct Dipole {
    columns: Columns,
    charges: Vec<f64>,
}

impl Dipole {
    /// # Errors
    /// [`Error::Argument`] where there are no atoms, or not one charge an atom.
    pub fn new(columns: &[usize], charges: &[f64]) -> Result<Self> {
        check_len("charges", charges.len(), columns.len())?;
        if columns.is_empty() {
            let reason = "a dipole moment needs atoms";
            return Err(Error::Argument(reason.to_string()));
        }
        Ok(Dipole {
            columns: Columns::new(columns),
            charges: charges.to_vec(),
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
    fn n_columns(&self) -> usize {
        4
    }

    /// The moment's x, y and z, units of charge × Å; and the volume, Å³. Frames with positions that
    /// are not finite, or without a cell, are refused.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.columns.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            let cell = Cell::new(dimensions);
            let cell = cell.map_err(|no_cell| no_cell.reason("the dielectric constant"))?;
            let atoms = self.columns.pick(frame, &mut scratch).as_chunks().0;
            row[..3].copy_from_slice(&self.moment(atoms));
            row[3] = cell.volume();
            if row.iter().all(|x| x.is_finite()) {
                return Ok(());
            }
            Err("positions are not all finite numbers".to_string())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Random;

    const CELL: [f32; 6] = [10.0, 20.0, 30.0, 90.0, 90.0, 90.0];

    fn row(dipole: &Dipole, frame: &[f32], cell: [f32; 6]) -> Result<[f64; 4], String> {
        let mut row = [0.0; 4];
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
            let dipole = Dipole::new(&columns, &charges).expect("atoms");
            let found = row(&dipole, &frame, CELL).expect("a row");
            for axis in 0..3 {
                let terms = columns.iter().zip(&charges);
                let terms = terms.map(|(i, charge)| charge * f64::from(frame[3 * i + axis]));
                assert!((found[axis] - terms.sum::<f64>()).abs() < 1e-9);
            }
            assert_eq!(found[3], 6000.0);
        }
        let pair = Dipole::new(&[0, 1], &[0.5, -0.5]).expect("atoms");
        let found = row(&pair, &[1.0, 2.0, 3.0, 2.0, 2.0, 1.0], CELL);
        assert_eq!(found, Ok([-0.5, 0.0, 1.0, 6000.0]));
    }

    #[test]
    fn what_has_no_moment_is_refused() {
        let dipole = Dipole::new(&[0, 1], &[1.0, -1.0]).expect("atoms");
        let frame = [1.0, 2.0, 3.0, 4.0, f32::NAN, 1.0];
        assert!(row(&dipole, &frame, CELL).is_err_and(|reason| reason.contains("finite")));
        let none = row(&dipole, &[1.0; 6], [0.0; 6]);
        assert!(none.is_err_and(|reason| reason.contains("no cell")));
        assert!(Dipole::new(&[], &[]).is_err());
        assert!(Dipole::new(&[0, 1], &[1.0]).is_err());
    }
}
