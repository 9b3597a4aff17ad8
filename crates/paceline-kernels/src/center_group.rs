//! A group of atoms brought to the middle of the cell, and all others with it.

use super::cell::Cell;
use super::placement::Basis;
use super::transform::{self, Notes, Refused, Transform, each_row, position, translate};
use paceline_base::error::Result;

/// The atoms to be centred, and where to.
#[derive(Debug, Clone)]
pub struct Center {
    n_atoms: usize,
    atoms: Vec<usize>,
    weights: Vec<f64>,
    /// Å; `None` for the middle of the cell.
    point: Option<[f64; 3]>,
    /// True if the centre is that of the atoms' images within the cell.
    wrap: bool,
}

impl Center {
    /// # Errors
    /// As [`transform::weights`].
    pub fn new(
        n_atoms: usize,
        atoms: &[usize],
        weights: Option<&[f64]>,
        point: Option<[f64; 3]>,
        wrap: bool,
    ) -> Result<Self> {
        Ok(Center {
            n_atoms,
            weights: transform::weights(n_atoms, atoms, weights)?,
            atoms: atoms.to_vec(),
            point,
            wrap,
        })
    }

    /// The group's centre, of its images within a cell where one is given, Å.
    fn centre(&self, frame: &[f32], cell: Option<Cell>) -> [f64; 3] {
        let atoms = self.atoms.iter().map(|&atom| position(frame, atom));
        match cell {
            Some(cell) => transform::centre(atoms.map(|x| cell.home(x).0), &self.weights),
            None => transform::centre(atoms, &self.weights),
        }
    }
}

impl Transform for Center {
    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn basis(&self) -> Option<Basis> {
        Some(Basis::Own)
    }

    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> Result<Vec<Refused>> {
        self.apply_noting(positions, dimensions, &mut Notes::default())
    }

    fn apply_noting(
        &self,
        positions: &mut [f32],
        dimensions: &[f32],
        notes: &mut Notes,
    ) -> Result<Vec<Refused>> {
        each_row(positions, self.n_atoms, dimensions, |row, frame, cell| {
            let cell = || cell.map_err(|no_cell| no_cell.reason("center"));
            let centre = self.centre(frame, if self.wrap { Some(cell()?) } else { None });
            let target = match self.point {
                Some(point) => notes.placed(row, point),
                None => cell()?.centre(),
            };
            let by: [f64; 3] = std::array::from_fn(|i| target[i] - centre[i]);
            if !by.iter().all(|x| x.is_finite()) {
                return Err("a position of the group to center is not finite".to_string());
            }
            translate(frame, by);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: [f32; 6] = [10.0, 20.0, 30.0, 90.0, 90.0, 90.0];

    fn applied(center: &Center, frame: &[f32], dimensions: [f32; 6]) -> Vec<f32> {
        let mut frame = frame.to_vec();
        let refused = center.apply(&mut frame, &dimensions).expect("a frame");
        assert_eq!(refused.len(), usize::from(frame[0].is_nan()), "{refused:?}");
        frame
    }

    #[test]
    fn the_group_comes_to_the_middle() {
        let frame = [1.0, 2.0, 3.0, 3.0, 2.0, 1.0, 0.0, 0.0, 0.0];
        let center = Center::new(3, &[0, 1], None, None, false).expect("a group");
        let expected = [4.0, 10.0, 16.0, 6.0, 10.0, 14.0, 3.0, 8.0, 13.0];
        assert_eq!(applied(&center, &frame, CELL), expected);
        let center = Center::new(3, &[1, 0], Some(&[3.0, 1.0]), None, false).expect("a group");
        assert_eq!(applied(&center, &frame, CELL)[6..], [2.5, 8.0, 13.5]);
    }

    #[test]
    fn a_point_needs_no_cell() {
        let frame = [1.0, 2.0, 3.0];
        let center = Center::new(1, &[0], None, Some([7.0, 8.0, 9.0]), false).expect("a group");
        assert_eq!(applied(&center, &frame, [0.0; 6]), [7.0, 8.0, 9.0]);
        for (point, wrap) in [(None, false), (Some([0.0; 3]), true)] {
            let center = Center::new(1, &[0], None, point, wrap).expect("a group");
            assert!(applied(&center, &frame, [0.0; 6])[0].is_nan());
        }
    }

    #[test]
    fn images_within_the_cell_count_when_asked() {
        let frame = [1.0, 2.0, 3.0, 13.0, 2.0, -27.0];
        let center = Center::new(2, &[0, 1], None, Some([0.0; 3]), true).expect("a group");
        let expected = [-1.0, 0.0, 0.0, 11.0, 0.0, -30.0];
        assert_eq!(applied(&center, &frame, CELL), expected);
    }

    #[test]
    fn a_lost_atom_is_no_centre() {
        let frame = [1.0, 2.0, 3.0, f32::INFINITY, 0.0, 0.0];
        let center = Center::new(2, &[0, 1], None, None, false).expect("a group");
        assert!(applied(&center, &frame, CELL)[0].is_nan());
        let center = Center::new(2, &[0], None, None, false).expect("a group");
        assert_eq!(applied(&center, &frame, CELL)[..3], [5.0, 10.0, 15.0]);
    }
}
