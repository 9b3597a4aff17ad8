//! Distances of chosen pairs of atoms in each frame of a block, and the part of them that are
//! contacts, as `MDAnalysis.analysis.contacts` defines it.
//!
//! Distances are those of `MDAnalysis.lib.distances.distance_array` to the last bit, because what a
//! file holds to 0.01 Å is often as long as in the reference.

use super::cell::{ApplyPbc, nearest_in, nearest_of_27, square};
use super::rows::{Frames, RowKernel, cell_or_none};
use super::transform::Refused;
use super::{Columns, check_len};
use paceline_formats::error::{Error, Result};

/// Distances of pairs of atoms: one column a pair.
#[derive(Debug, Clone)]
pub struct PairDistances {
    /// Each atom of a pair, once.
    atoms: Columns,
    /// Places in `atoms`.
    pairs: Vec<[usize; 2]>,
    periodic: bool,
}

impl PairDistances {
    /// The distances of two atoms each, which follow each other in `columns`; between nearest images
    /// in frames that have a cell, if they are periodic.
    ///
    /// # Errors
    /// [`Error::Argument`] where there are none, or not two columns each.
    pub fn new(columns: &[usize], periodic: bool) -> Result<Self> {
        let (pairs, rest) = columns.as_chunks();
        if pairs.is_empty() || !rest.is_empty() {
            return Err(Error::Argument(format!(
                "expected two atoms for each distance, found {} atoms",
                columns.len()
            )));
        }
        let mut atoms = columns.to_vec();
        atoms.sort_unstable();
        atoms.dedup();
        let place = |column| atoms.partition_point(|&atom| atom < column);
        let pairs = pairs.iter().map(|pair| pair.map(place)).collect();
        Ok(PairDistances {
            atoms: Columns::new(&atoms),
            pairs,
            periodic,
        })
    }

    /// Fill `out` with the distances of a frame, Å.
    fn frame(
        &self,
        frame: &[f32],
        dimensions: [f32; 6],
        scratch: &mut Vec<f32>,
        out: &mut [f64],
    ) -> Result<(), String> {
        let positions = self.atoms.pick(frame, scratch).as_chunks().0;
        let cell = match self.periodic {
            true => cell_or_none(dimensions, "pbc=True")?,
            false => None,
        };
        match cell {
            None => self.fill(positions, square, out),
            Some(cell) if !cell.is_oblique() => {
                let edges = std::array::from_fn(|i| cell.vectors()[i][i] as f32);
                self.fill(positions, nearest_in(edges), out);
            }
            Some(cell) => {
                let pbc = ApplyPbc::new(cell.vectors());
                let mut within = Vec::with_capacity(positions.len());
                for &x in positions {
                    within.push(if x.iter().all(|x| x.is_finite()) {
                        pbc.apply(x).ok_or_else(|| {
                            format!("an atom at {x:?} Å is too far away to be put into the cell")
                        })?
                    } else {
                        [f32::NAN; 3]
                    });
                }
                self.fill(&within, nearest_of_27(&cell), out);
            }
        }
        Ok(())
    }

    fn fill(&self, positions: &[[f32; 3]], square: impl Fn([f64; 3]) -> f64, out: &mut [f64]) {
        for (&[i, j], out) in self.pairs.iter().zip(out) {
            let (from, to) = (positions[i], positions[j]);
            // In single precision, as MDAnalysis.
            let d = std::array::from_fn(|k| f64::from(to[k] - from[k]));
            *out = square(d).sqrt();
        }
    }
}

impl RowKernel for PairDistances {
    fn n_columns(&self) -> usize {
        self.pairs.len()
    }

    /// Distances, Å; NaN where a position is.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.atoms.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            self.frame(frame, dimensions, &mut scratch, row)
        })
    }
}

/// How a distance counts that has a limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Switch {
    /// As 1 up to the limit, and 0 beyond.
    Hard,
    /// As 1 / (1 + exp(β (r − limit))), of this β (Å⁻¹).
    Soft(f64),
}

/// Fractions of contacts: one column for each reference, whose contacts are pairs of atoms.
#[derive(Debug, Clone)]
pub struct Contacts {
    distances: PairDistances,
    /// Of each pair, Å.
    limits: Vec<f64>,
    /// Pairs of each reference.
    sizes: Vec<usize>,
    switch: Switch,
}

impl Contacts {
    /// The pairs of references follow each other, `sizes` of each.
    ///
    /// # Errors
    /// [`Error::Argument`] where a reference has no pairs, or not one limit a pair.
    pub fn new(
        distances: PairDistances,
        limits: &[f64],
        sizes: &[usize],
        switch: Switch,
    ) -> Result<Self> {
        if sizes.contains(&0) {
            return Err(Error::Argument("a reference has no contacts".to_string()));
        }
        check_len("limits", limits.len(), distances.n_columns())?;
        check_len("pairs", limits.len(), sizes.iter().sum())?;
        Ok(Contacts {
            distances,
            limits: limits.to_vec(),
            sizes: sizes.to_vec(),
            switch,
        })
    }

    fn fraction(&self, distances: &[f64], limits: &[f64]) -> f64 {
        let pairs = distances.iter().zip(limits);
        let sum = match self.switch {
            // A distance of NaN is neither within the limit nor beyond.
            Switch::Hard if distances.iter().any(|r| r.is_nan()) => f64::NAN,
            Switch::Hard => pairs.filter(|(r, limit)| r <= limit).count() as f64,
            Switch::Soft(beta) => pairs
                .map(|(r, limit)| 1.0 / (1.0 + (beta * (r - limit)).exp()))
                .sum(),
        };
        sum / distances.len() as f64
    }
}

impl RowKernel for Contacts {
    fn n_columns(&self) -> usize {
        self.sizes.len()
    }

    /// Fractions, 0 to 1; NaN where a position that counts is. With [`Switch::Soft`] they come from
    /// the standard library's `exp`, whose last bit may be another on another system.
    fn compute(&self, frames: &Frames<'_>, out: &mut [f64]) -> Result<Option<Refused>> {
        self.distances.atoms.check(frames.n_atoms())?;
        let mut scratch = Vec::new();
        let mut distances = vec![0.0; self.limits.len()];
        frames.fill_rows(out, self.n_columns(), |frame, dimensions, row| {
            (self.distances).frame(frame, dimensions, &mut scratch, &mut distances)?;
            let (mut r, mut limits) = (&distances[..], &self.limits[..]);
            for (fraction, &size) in row.iter_mut().zip(&self.sizes) {
                *fraction = self.fraction(&r[..size], &limits[..size]);
                (r, limits) = (&r[size..], &limits[size..]);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;
    use crate::tests::Random;

    const NONE: [f32; 6] = [0.0; 6];
    const CELLS: [[f32; 6]; 4] = [
        [10.0, 12.0, 14.0, 90.0, 90.0, 90.0],
        [12.0, 12.0, 12.0, 60.0, 60.0, 90.0],
        [12.0, 12.0, 12.0, 70.53, 109.47, 70.53],
        [15.0, 12.0, 14.0, 80.0, 100.0, 115.0],
    ];

    fn row(task: &impl RowKernel, positions: &[f32], cell: [f32; 6]) -> Vec<f64> {
        let frames = Frames::new(positions, positions.len() / 3, &cell).expect("a frame");
        let mut out = vec![-1.0; task.n_columns()];
        assert_eq!(task.compute(&frames, &mut out).expect("a block"), None);
        out
    }

    #[test]
    fn distances_are_those_of_the_nearest_images() {
        let mut random = Random(31);
        let positions: Vec<f32> = (0..60).map(|_| 40.0 * random.number() as f32).collect();
        let columns: Vec<usize> = (0..40).map(|k| (7 * k) % 20).collect();
        let plain = row(
            &PairDistances::new(&columns, true).unwrap(),
            &positions,
            NONE,
        );
        let around = || [-1.0, 0.0, 1.0].into_iter();
        for dimensions in CELLS {
            let cell = Cell::new(dimensions).expect("a cell");
            let task = PairDistances::new(&columns, true).expect("pairs");
            for (pair, found) in columns.chunks(2).zip(row(&task, &positions, dimensions)) {
                let [i, j] = [pair[0], pair[1]];
                let d = std::array::from_fn(|k| {
                    f64::from(positions[3 * j + k]) - f64::from(positions[3 * i + k])
                });
                let home = cell.shifted(d, cell.nearest_images(d));
                let least = around()
                    .flat_map(|i| around().map(move |j| (i, j)))
                    .flat_map(|(i, j)| around().map(move |k| [i, j, k]))
                    .map(|images| square(cell.shifted(home, images)).sqrt())
                    .fold(f64::INFINITY, f64::min);
                assert!(
                    (found - least).abs() < 1e-4,
                    "{dimensions:?}: {found} {least}"
                );
            }
            let task = PairDistances::new(&columns, false).expect("pairs");
            assert_eq!(row(&task, &positions, dimensions), plain);
        }
    }

    /// Four atoms on a line, at 0, 1, 3 and 7 Å.
    const LINE: [f32; 12] = [0., 0., 0., 1., 0., 0., 3., 0., 0., 7., 0., 0.];

    fn contacts(switch: Switch, limits: [f64; 3]) -> Contacts {
        let distances = PairDistances::new(&[0, 1, 3, 1, 2, 3], true).expect("pairs");
        Contacts::new(distances, &limits, &[2, 1], switch).expect("contacts")
    }

    #[test]
    fn fractions_are_those_of_pairs_within_their_limits() {
        let task = contacts(Switch::Hard, [1.0, 5.9, 4.0]);
        assert_eq!(row(&task, &LINE, NONE), [0.5, 1.0]);
        // In this cell, 6 Å are 2 Å, and 4 Å stay.
        assert_eq!(
            row(&task, &LINE, [8.0, 90.0, 90.0, 90.0, 90.0, 90.0]),
            [1.0, 1.0]
        );
        let task = contacts(Switch::Soft(2.0), [1.0, 5.5, 3.0]);
        let soft = |r: f64| 1.0 / (1.0 + (2.0 * r).exp());
        let expected = [(soft(0.0) + soft(0.5)) / 2.0, soft(1.0)];
        assert_eq!(row(&task, &LINE, NONE), expected);
    }

    #[test]
    fn a_position_that_is_no_number_shows() {
        let mut line = LINE;
        line[3 * 2 + 1] = f32::NAN;
        for switch in [Switch::Hard, Switch::Soft(1.0)] {
            for cell in [NONE, CELLS[0], CELLS[1]] {
                let found = row(&contacts(switch, [9.0; 3]), &line, cell);
                assert!(found[0].is_finite() && found[1].is_nan(), "{found:?}");
            }
        }
    }

    #[test]
    fn what_does_not_belong_together_is_refused() {
        assert!(PairDistances::new(&[], true).is_err());
        assert!(PairDistances::new(&[0, 1, 2], true).is_err());
        let distances = PairDistances::new(&[0, 1, 3, 1], true).expect("pairs");
        let new = |limits: &[f64], sizes: &[usize]| {
            Contacts::new(distances.clone(), limits, sizes, Switch::Hard)
        };
        assert!(new(&[1.0, 1.0], &[1, 1]).is_ok());
        assert!(new(&[1.0], &[1]).is_err());
        assert!(new(&[1.0, 1.0], &[2, 0]).is_err());
        assert!(new(&[1.0, 1.0], &[1]).is_err());
        let frames = Frames::new(&LINE[..9], 3, &NONE).expect("a frame");
        assert!(distances.compute(&frames, &mut [0.0; 2]).is_err());
        let far = [[0.0; 9].as_slice(), &[1e30, 0.0, 0.0]].concat();
        let frames = Frames::new(&far, 4, &CELLS[1]).expect("a frame");
        let (_, reason) =
            (distances.compute(&frames, &mut [0.0; 2]).expect("a block")).expect("a reason");
        assert!(reason.contains("too far away"), "{reason}");
        let flat = [10.0, 10.0, 10.0, 120.0, 120.0, 120.0];
        let frames = Frames::new(&LINE, 4, &flat).expect("a frame");
        assert!(
            distances
                .compute(&frames, &mut [0.0; 2])
                .expect("a block")
                .is_some()
        );
    }
}
