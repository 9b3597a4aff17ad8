//! Search for molecules whose parts are in different images, on NumPy arrays.

use pyo3::prelude::*;

use super::arrays::{Array1, Array2, Array3, Indices, NewArray};
use super::errors::Result;
use super::kernels::{in_frames, kernels};

use super::transforms::{check_atoms, pairs};
use paceline_kernels::whole;

/// Pairs of linked atoms, the number of bonds of each link, and further atoms to decode.
type Links = (NewArray<i64, 2>, NewArray<i64, 1>, NewArray<i64, 1>);

/// Number of records of each frame, and the records.
type Records = (NewArray<i64, 1>, NewArray<f64, 2>);

/// Find the paths of at most `longest` bonds between the wanted atoms.
#[pyfunction]
pub(super) fn links(
    py: Python<'_>,
    n_atoms: usize,
    bonds: Array2<'_, i64>,
    wanted: Indices,
    longest: usize,
) -> Result<Links> {
    let bonds = pairs(&bonds)?;
    let found = py.detach(|| whole::Links::new(n_atoms, &bonds, &wanted, longest));
    let whole::Links {
        pairs,
        lengths,
        added,
    } = found?;
    let signed = |values: &[usize]| values.iter().map(|&x| x as i64).collect::<Vec<_>>();
    Ok((
        NewArray::new(signed(pairs.as_flattened()), [pairs.len(), 2]),
        signed(&lengths).into(),
        signed(&added).into(),
    ))
}

kernels! {
    /// Groups of atoms, and the check that the parts of a molecule are not in different images.
    ///
    /// `links` are pairs of atoms, with the number of bonds between them. `contacts` are pairs of
    /// atoms in different molecules.
    pub(super) struct Whole(whole::Whole);

    new {
        (
            py: Python<'_>,
            n_atoms: usize,
            links: (Array2<'_, i64>, Indices),
            longest: usize,
            groups: Vec<Indices>,
            contacts: Array2<'_, i64>,
        ) {
            let (bonds, lengths) = (pairs(&links.0)?, links.1);
            let groups = groups.into_iter().map(|group| group.0).collect();
            let contacts = pairs(&contacts)?;
            py.detach(|| {
                whole::Whole::new(n_atoms, (&bonds, &lengths), longest, groups, contacts)
            })
        }
    }

    methods {
        /// Return records of the frames with these numbers, in the form of a ragged analysis. A
        /// record contains 0 for a broken molecule or 1 for a broken contact (only in frames
        /// without a broken molecule); 0; the columns of two atoms; and their distance (Å). Return
        /// None if there are no records.
        fn look(
            &self,
            py: Python<'_>,
            positions: Array3<'_, f32>,
            cells: Array2<'_, f64>,
            frames: Array1<'_, i64>,
        ) -> Result<Option<Records>> {
            check_atoms(positions.shape(), self.0.n_atoms())?;
            let numbers = &*frames;
            let (broken, apart) = in_frames(py, &positions, &cells, |_, placed| {
                self.0.look(&placed.positions, &placed.dimensions, numbers)
            })?;
            if broken.is_empty() && apart.is_empty() {
                return Ok(None);
            }
            let mut found: Vec<_> = broken.into_iter().map(|one| (one, 0.0)).collect();
            found.extend(apart.into_iter().map(|one| (one, 1.0)));
            found.sort_by_key(|one| one.0.0);
            let mut counts = vec![0; numbers.len()];
            let mut records = Vec::with_capacity(5 * found.len());
            for &((row, [first, second], length), kind) in &found {
                counts[row] += 1;
                records.extend([kind, 0.0, first as f64, second as f64, length]);
            }
            Ok(Some((counts.into(), NewArray::new(records, [found.len(), 5]))))
        }
    }
}
