//! Wrapping of atoms or whole compounds into the cell, and translation of a group to a point.

use std::ops::Range;

use super::cell::Cell;
use super::cells_in_standard_form::Basis;
use super::transform_common::{
    Notes, Refused, Transform, centre, each_frame, each_row, position, translate,
};
use super::{check_len, transform_common};
use paceline_base::error::Result;

/// Atoms to be wrapped, and the compounds whose atoms stay together.
#[derive(Debug, Clone)]
pub struct Wrap {
    n_atoms: usize,
    atoms: Vec<usize>,
    weights: Vec<f64>,
    /// Parts of `atoms` whose weighted centres are moved into the cell.
    compounds: Vec<Range<usize>>,
}

impl Wrap {
    /// Create a kernel. `sizes` contains the number of atoms of each compound; compounds follow one
    /// another in `atoms`.
    ///
    /// # Errors
    /// [`paceline_base::error::Error::Argument`] if the sizes do not add up to the number of atoms,
    /// and as [`transform_common::weights`] for each compound.
    pub fn new(
        n_atoms: usize,
        atoms: &[usize],
        sizes: &[usize],
        weights: Option<&[f64]>,
    ) -> Result<Self> {
        let mut end = 0_usize;
        let compounds: Vec<Range<usize>> = sizes
            .iter()
            .map(|&size| {
                let begin = end;
                end = end.saturating_add(size);
                begin..end
            })
            .collect();
        check_len("atoms in compounds", atoms.len(), end)?;
        if let Some(weights) = weights {
            check_len("weights", weights.len(), end)?;
        }
        let mut checked = Vec::with_capacity(end);
        for members in &compounds {
            let given = weights.map(|weights| &weights[members.clone()]);
            let atoms = &atoms[members.clone()];
            checked.extend(transform_common::weights(n_atoms, atoms, given)?);
        }
        Ok(Wrap {
            n_atoms,
            atoms: atoms.to_vec(),
            weights: checked,
            compounds,
        })
    }

    fn change(&self, members: Range<usize>, frame: &mut [f32], cell: &Cell) {
        let atoms = &self.atoms[members.clone()];
        if let &[atom] = atoms {
            let (home, _) = cell.home(position(frame, atom));
            frame[3 * atom..3 * atom + 3].copy_from_slice(&home);
            return;
        }
        let positions = atoms.iter().map(|&atom| position(frame, atom));
        // The centre is rounded to single precision, as in MDAnalysis, before the test whether it
        // is in the cell.
        let centre = centre(positions, &self.weights[members]).map(|x| x as f32);
        let (_, images) = cell.home(centre);
        if images == [0.0; 3] {
            return;
        }
        for &atom in atoms {
            let moved = cell.shifted(position(frame, atom).map(f64::from), images);
            frame[3 * atom..3 * atom + 3].copy_from_slice(&moved.map(|x| x as f32));
        }
    }
}

impl Transform for Wrap {
    fn n_atoms(&self) -> usize {
        self.n_atoms
    }

    fn basis(&self) -> Option<Basis> {
        Some(Basis::Own)
    }

    fn apply(&self, positions: &mut [f32], dimensions: &[f32]) -> Result<Vec<Refused>> {
        each_frame(positions, self.n_atoms, dimensions, |frame, cell| {
            let cell = cell.map_err(|no_cell| no_cell.reason("wrap"))?;
            for members in &self.compounds {
                self.change(members.clone(), frame, &cell);
            }
            Ok(())
        })
    }
}

// Translation of all atoms that moves the centre of a group to a point, or to the middle of the
// cell.

/// Group of atoms whose centre is moved, and the target of the centre.
#[derive(Debug, Clone)]
pub struct Center {
    n_atoms: usize,
    atoms: Vec<usize>,
    weights: Vec<f64>,
    /// Target, Å; `None` for the middle of the cell.
    point: Option<[f64; 3]>,
    /// True if the centre is computed from the atoms' images within the cell.
    wrap: bool,
}

impl Center {
    /// # Errors
    /// As [`transform_common::weights`].
    pub fn new(
        n_atoms: usize,
        atoms: &[usize],
        weights: Option<&[f64]>,
        point: Option<[f64; 3]>,
        wrap: bool,
    ) -> Result<Self> {
        Ok(Center {
            n_atoms,
            weights: transform_common::weights(n_atoms, atoms, weights)?,
            atoms: atoms.to_vec(),
            point,
            wrap,
        })
    }

    /// Return the centre of the group, Å. With a cell, compute it from the images within the cell.
    fn centre(&self, frame: &[f32], cell: Option<Cell>) -> [f64; 3] {
        let atoms = self.atoms.iter().map(|&atom| position(frame, atom));
        match cell {
            Some(cell) => transform_common::centre(atoms.map(|x| cell.home(x).0), &self.weights),
            None => transform_common::centre(atoms, &self.weights),
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

    const CELL: [f32; 6] = [10.0, 10.0, 10.0, 90.0, 90.0, 90.0];
    const FRAME: [f32; 9] = [-1.0, 5.0, 12.0, -3.0, 5.0, 9.0, 31.0, -11.0, 5.0];

    fn applied(wrap: &Wrap) -> Vec<f32> {
        let mut frame = FRAME.to_vec();
        assert_eq!(wrap.apply(&mut frame, &CELL).expect("a frame"), []);
        frame
    }

    #[test]
    fn atoms_come_into_the_cell() {
        let wrap = Wrap::new(3, &[0, 1, 2], &[1, 1, 1], None).expect("atoms");
        assert_eq!(
            applied(&wrap),
            [9.0, 5.0, 2.0, 7.0, 5.0, 9.0, 1.0, 9.0, 5.0]
        );
    }

    #[test]
    fn compounds_stay_together() {
        let wrap = Wrap::new(3, &[1, 0], &[2], None).expect("a pair");
        assert_eq!(applied(&wrap)[..6], [9.0, 5.0, 2.0, 7.0, 5.0, -1.0]);
        assert_eq!(applied(&wrap)[6..], FRAME[6..]);
        let heavy = Wrap::new(3, &[1, 0], &[2], Some(&[9.0, 1.0])).expect("a pair");
        assert_eq!(applied(&heavy)[..6], [9.0, 5.0, 12.0, 7.0, 5.0, 9.0]);
    }

    #[test]
    fn a_frame_without_a_cell_is_refused() {
        let wrap = Wrap::new(3, &[0], &[1], None).expect("an atom");
        let refused = wrap.apply(&mut FRAME.to_vec(), &[0.0; 6]).expect("a frame");
        assert_eq!(refused[0].1, "the frame has no cell, which wrap needs");
    }

    #[test]
    fn what_does_not_add_up_is_refused() {
        for (atoms, sizes) in [
            (&[0, 1][..], &[1][..]),
            (&[0, 1], &[1, 2]),
            (&[0, 1], &[2, 0]),
            (&[0, 3], &[1, 1]),
            (&[0], &[usize::MAX, 2]),
        ] {
            assert!(
                Wrap::new(3, atoms, sizes, None).is_err(),
                "{atoms:?} {sizes:?}"
            );
        }
        assert!(Wrap::new(3, &[0, 1], &[1, 1], Some(&[1.0])).is_err());
        assert!(Wrap::new(3, &[0, 1], &[1, 1], Some(&[1.0, 0.0])).is_err());
    }

    const BRICK: [f32; 6] = [10.0, 20.0, 30.0, 90.0, 90.0, 90.0];

    fn centered(center: &Center, frame: &[f32], dimensions: [f32; 6]) -> Vec<f32> {
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
        assert_eq!(centered(&center, &frame, BRICK), expected);
        let center = Center::new(3, &[1, 0], Some(&[3.0, 1.0]), None, false).expect("a group");
        assert_eq!(centered(&center, &frame, BRICK)[6..], [2.5, 8.0, 13.5]);
    }

    #[test]
    fn a_point_needs_no_cell() {
        let frame = [1.0, 2.0, 3.0];
        let center = Center::new(1, &[0], None, Some([7.0, 8.0, 9.0]), false).expect("a group");
        assert_eq!(centered(&center, &frame, [0.0; 6]), [7.0, 8.0, 9.0]);
        for (point, wrap) in [(None, false), (Some([0.0; 3]), true)] {
            let center = Center::new(1, &[0], None, point, wrap).expect("a group");
            assert!(centered(&center, &frame, [0.0; 6])[0].is_nan());
        }
    }

    #[test]
    fn images_within_the_cell_count_when_asked() {
        let frame = [1.0, 2.0, 3.0, 13.0, 2.0, -27.0];
        let center = Center::new(2, &[0, 1], None, Some([0.0; 3]), true).expect("a group");
        let expected = [-1.0, 0.0, 0.0, 11.0, 0.0, -30.0];
        assert_eq!(centered(&center, &frame, BRICK), expected);
    }

    #[test]
    fn a_lost_atom_is_no_centre() {
        let frame = [1.0, 2.0, 3.0, f32::INFINITY, 0.0, 0.0];
        let center = Center::new(2, &[0, 1], None, None, false).expect("a group");
        assert!(centered(&center, &frame, BRICK)[0].is_nan());
        let center = Center::new(2, &[0], None, None, false).expect("a group");
        assert_eq!(centered(&center, &frame, BRICK)[..3], [5.0, 10.0, 15.0]);
    }
}
